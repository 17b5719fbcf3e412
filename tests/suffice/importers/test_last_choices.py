"""Logs of which no name says what a row is: values show what may be a question or its rounds, and each choice is printed."""

from __future__ import annotations

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES
from tests.support.logs import answer, by_command, offered, recorded, texts, written

N, ROUNDS = 40, 4
LENGTHS = [1 + q % ROUNDS for q in range(N)]


def said(q, r):
    return f"The answer is {answer(q, r)}."


def rows(make):
    """Return a row for each round of loops that stop early, in the order of the questions."""
    return [make(q, r) for q in range(N) for r in range(LENGTHS[q])]


def typed(place, records, *options):
    """Import a log with these options; return its texts by question."""
    by_command(place, records, *options, code=0)
    return texts(place / "r.parquet")


@pytest.mark.parametrize("name", ["record", "doc_id", "user_question"])
def test_columns_of_several_rows_a_value_are_offered_as_questions(name, tmp_path):
    made = rows(lambda q, r: {name: f"q{q}", "pred": answer(q, r), "passage": f"{q} {r}"})
    assert f"--column question_id={name}" in offered(written(tmp_path, made))
    if name == "record":
        assert typed(tmp_path, made, "--column", f"question_id={name}")["q3"] == [answer(3, r) for r in range(4)]


def test_a_column_of_one_row_a_value_is_no_question(tmp_path):
    made = rows(lambda q, r: {"record": f"q{q}", "trace": f"{q}-{r}", "pred": answer(q, r)})
    options = offered(written(tmp_path, made))
    assert options[0] == "--column question_id=record"
    assert not any("trace" in option for option in options)


@pytest.mark.parametrize("make", [answer, lambda q, r: {"our_answer": answer(q, r), "logprob": -1.0 / (r + 1)}])
def test_lists_of_any_name_are_offered_as_rounds(make, tmp_path):
    made = [{"qid": f"q{q}", "ask": f"Where is {q}?", "log": [make(q, r) for r in range(LENGTHS[q])]} for q in range(N)]
    assert "--column rounds=log" in offered(written(tmp_path, made))


def test_numbered_columns_with_long_names_are_offered(tmp_path):
    names = [f"round{r}_our_preliminary_answer" for r in range(1, ROUNDS + 1)]
    made = [
        {"title": f"Where is {q}?", "gold": CITIES[q % 4], **{own: said(q, r) for r, own in enumerate(names)}}
        for q in range(N)
    ]
    option = f"--column rounds={','.join(names)}"
    assert option in offered(written(tmp_path, made))


def test_short_texts_in_numbered_columns_are_offered_before_thoughts(tmp_path):
    made = [
        {
            "qid": f"q{q}",
            **{f"r{r}_{name}": make(q, r) for r in (1, 2, 3) for name, make in (("thought", said), ("place", answer))},
        }
        for q in range(N)
    ]
    assert [option.partition(",")[0] for option in offered(written(tmp_path, made))] == [
        "--column rounds=r1_place",
        "--column rounds=r1_thought",
    ]


def test_tags_in_numbered_columns_beside_an_answer_are_no_rounds(tmp_path):
    made = rows(lambda q, r: {"qid": f"q{q}", "answer": answer(q, r), "tag_1": f"y{q % 3}", "tag_2": f"z{r}"})
    assert len(texts(recorded(tmp_path, made)[1])) == N


@pytest.mark.parametrize("name", ["canonical", "human_label", "verified_answer"])
def test_golds_within_replies_are_asked_about(name, tmp_path):
    made = rows(lambda q, r: {"qid": f"q{q}", name: CITIES[q % 4], "response": said(q, r), "n": r})
    assert f"--column golds={name}" in offered(written(tmp_path, made))


@pytest.mark.parametrize(
    "more",
    [
        {
            "product": lambda q, r: f"X{q}",
            "response": lambda q, r: f"{'no ' * (q % 7)}{r * 'yes '}the X{q} stops at {answer(q, r)} {q}",
        },
        {"canonical": lambda q, r: CITIES[(q + 1) % 4], "response": lambda q, r: f"It is {CITIES[0]}."},
        {"human_label": lambda q, r: CITIES[q % 9 == 0], "response": lambda q, r: f"It is {CITIES[0]}, {q * r} of it."},
        {
            "canonical": lambda q, r: CITIES[q % 4],
            "response": said,
            "correct": lambda q, r: int(answer(q, r) == CITIES[q % 4]),
        },
    ],
    ids=["mentioned", "by-chance", "mostly-one", "judged"],
)
def test_texts_that_replies_hold_otherwise_are_no_golds(more, tmp_path):
    made = rows(lambda q, r: {"qid": f"q{q}", **{name: make(q, r) for name, make in more.items()}})
    _, recording = recorded(tmp_path, made)
    assert set(recording.table.column("question_id").to_pylist()) == {f"q{q}" for q in range(N)}


def test_the_key_of_answers_is_their_gold(tmp_path):
    made = rows(lambda q, r: {"question": f"Where is {q}?", "answer_key": f"{q}.5", "pred": f"{q + max(0, 1 - r)}.5"})
    _, recording = recorded(tmp_path, made)
    assert recording.table.column("golds")[0].as_py() == ["0.5"]


def test_samples_of_which_questions_have_fewer_and_fewer_are_asked_about(tmp_path):
    made = [
        {"qid": f"q{q}", **{f"completion{r}": answer(q, r) if r < LENGTHS[q] else None for r in range(ROUNDS)}}
        for q in range(N)
    ]
    assert offered(written(tmp_path, made))[0] == "--samples"


@pytest.mark.parametrize("second", ["attempt_number", "cycle"])
def test_a_counter_within_runs_is_offered_as_their_round(second, tmp_path):
    made = [
        {"question": f"Where is {q}?", "trial": t, second: r, "answer": answer(q + t, r)}
        for q in range(N)
        for t in (1, 2)
        for r in (1, 2)
    ]
    option = f"--column run=trial --column round={second}"
    assert option in offered(written(tmp_path, made))
    by_command(tmp_path, made, *option.split(), code=0)
    recording = read_recording(tmp_path / "r.parquet")
    assert (
        recording.table.column("question_id").to_pylist().count(recording.table.column("question_id")[0].as_py()) == 2
    )


def test_rows_of_several_sources_may_be_rounds_of_a_run(tmp_path):
    made = [
        {"task_id": f"q{q}", "trial": t, "draft": answer(q + t, r), "source": ("wiki", "faq")[(q + r) % 2]}
        for q in range(N)
        for t in (1, 2)
        for r in (1, 2, 3)
    ]
    assert "--column run=trial --column round=" in offered(written(tmp_path, made))


def runs(question, run, number):
    """Return rows of two runs of each question, whose rounds are counted."""
    return [
        {question: f"Where is {q}?", "label": CITIES[q % 4], run: t, number: r, "pred": answer(q + t, r)}
        for q in range(N)
        for t in (1, 2)
        for r in (1, 2, 3)
    ]


@pytest.mark.parametrize("run", ["replicate", "rep", "variant", "rater", "annotator_id", "reviewer", "labeler"])
def test_runs_are_offered_beside_ids_of_two_columns(run, tmp_path):
    made = runs("description", run, "depth")
    options = offered(written(tmp_path, made))
    option = f"--column question_id=description --column run={run} --column round=depth"
    assert option in options or "--column question_id=description" in options
    if run not in ("replicate", "rater"):
        return
    by_command(tmp_path, made, *option.split(), code=0)
    recording = read_recording(tmp_path / "r.parquet")
    assert len({*recording.table.column("cluster").to_pylist()}) == N


def test_a_run_within_which_rounds_repeat_is_no_question(tmp_path):
    made = runs("description", "run_id", "loop")
    assert offered(written(tmp_path, made))[0].startswith("--column question_id=description")


def test_ratings_of_drafts_are_offered_as_runs_of_a_ticket(tmp_path):
    made = [
        {"ticket": f"T{q}", "draft_no": r, "reply": said(q, r), "rater": name, "rating": 1 + (q + r) % 5}
        for q in range(N)
        for r in (1, 2, 3)
        for name in ("ann", "ben")
    ]
    first, second = offered(written(tmp_path, made))
    assert first == "--column question_id=ticket --column run=rater --column round=draft_no"
    assert second == "--column question_id=ticket,rater"
    by_command(tmp_path, made, *first.split(), code=0)
    recording = read_recording(tmp_path / "r.parquet")
    assert len({*recording.table.column("cluster").to_pylist()}) == N


def test_columns_of_models_may_vote(tmp_path):
    names = ("gpt4o", "claude", "llama")
    made = [
        {"id": q, "question": f"Where is {q}?", "correct_answer": CITIES[q % 4]}
        | {f"{name}_answer": CITIES[(q + (q % 3 == r)) % 4] for r, name in enumerate(names)}
        for q in range(N)
    ]
    option = "--column rounds=gpt4o_answer,claude_answer,llama_answer"
    assert offered(written(tmp_path, made)) == [option, f"{option} --samples"]


def test_thoughts_in_lists_are_not_offered_as_rounds(tmp_path):
    made = [
        {"record": q, "thoughts": [said(q, r) for r in range(3)], "parsed_items": ["no", "yes", "no"]} for q in range(N)
    ]
    assert offered(written(tmp_path, made)) == ["--column rounds=parsed_items"]


def test_runs_are_offered_where_a_number_is_a_round_or_a_loop(tmp_path):
    made = [{**row, "item_id": row["description"]} for row in runs("description", "replicate", "n")]
    assert "--column question_id=item_id --column run=replicate --column round=n" in offered(written(tmp_path, made))


def test_a_pass_that_numbers_the_rows_is_no_score(tmp_path):
    made = [{"qid": f"q{q}", "pass": r, "reply": answer(q, r), "ok": (q + r) % 2} for q in range(N) for r in (0, 1)]
    assert offered(written(tmp_path, made)) == ["--first-round 1", "--first-round 0"]


def test_golds_within_replies_are_seen_in_runs_too(tmp_path):
    made = [
        {"uid": q, "run": t, "canonical": CITIES[q % 4], "attempt": r, "response": said(q, r)}
        for q in range(N)
        for t in (1, 2, 3)
        for r in (1, 2)
    ]
    assert "--column golds=canonical" in offered(written(tmp_path, made))
