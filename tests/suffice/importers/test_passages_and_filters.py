"""Rows newest first or one for each passage, chats of several questions, filters, sentences, trainings, judges, and epochs."""

from __future__ import annotations

import json
import zipfile

import pytest

from suffice.errors import DataError, UnsettledError
from suffice.importers import import_recording
from suffice.importers.tables import table_parts
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES
from tests.support.logs import answer, asked, by_round, first_choice, imported, offered, written

CLOCK = "2026-03-{:02}T{:02}:30:00Z"


def dated(q, falls=True, rounds=(1, 2, 3)):
    """Return the rows of a question whose times are equal."""
    place = 40 - q if falls else q
    row = {"id": q, "created": CLOCK.format(1 + place // 24, place % 24), "gold": CITIES[q % 4]}
    return [{**row, "answer": answer(q, r)} for r in rounds]


def newest_first(n=40, **options):
    return [row for q in range(n) for row in dated(q, rounds=(2, 1, 0), **options)]


@pytest.mark.parametrize("part", [0, 50])
def test_equal_times_that_fall_along_the_file_are_asked_about(tmp_path, monkeypatch, part):
    if part:
        monkeypatch.setattr(table_parts, "LARGE", 0)
        monkeypatch.setattr(table_parts, "PART", part)
    path = written(tmp_path, newest_first())
    first = offered(path)[0]
    assert first == "--column round=created:newest-first"
    assert by_round(path, columns={"round": "created:newest-first"})[-1] == 1.0
    assert by_round(path, columns={"round": ""}, expected=["falling-scores"])[0] == 1.0


def test_a_few_rows_may_be_out_of_order(tmp_path):
    rows = newest_first()
    path = written(tmp_path, [*rows[3:30], *rows[:3], *rows[30:]])
    assert offered(path)[0] == "--column round=created:newest-first"


def test_equal_times_that_rise_along_the_file_are_not_asked_about(tmp_path):
    rows = [row for q in range(40) for row in dated(q, falls=False, rounds=(0, 1, 2))]
    assert by_round(written(tmp_path, rows))[-1] == 1.0


def test_four_falling_times_may_be_chance(tmp_path):
    assert imported(written(tmp_path, newest_first(5))).rounds == 3


def test_the_newest_row_is_first_in_a_column_of_times_alone(tmp_path):
    path = written(tmp_path, newest_first())
    with pytest.raises(DataError, match="column of times"):
        imported(path, columns={"round": "answer:newest-first"})


def test_american_times_may_be_newest_first(tmp_path):
    rows = [{**row, "created": row["created"].replace("2026-03-", "")} for row in newest_first(20)]
    rows = [{**row, "created": f"3/{row['created'][:2]}/2026 {row['created'][3:8]}"} for row in rows]
    assert by_round(written(tmp_path, rows), columns={"round": "created:newest-first"})[-1] == 1.0


def passages(n, **others):
    return [
        {"id": q, "answer": CITIES[q % 4], "gold": CITIES[q % 3], "context": f"Page {q} {r}", **others}
        for q in range(n)
        for r in range(3)
    ]


def test_rows_for_each_passage_of_one_answer_stop_the_import(tmp_path):
    path = written(tmp_path, passages(10))
    assert set(offered(path)) == {"--expected equal-answers"}
    assert imported(path, expected=["equal-answers"]).rounds == 3


def test_passages_may_be_named_by_numbers(tmp_path):
    rows = [{name: value for name, value in row.items() if name != "context"} for row in passages(10)]
    rows = [row | {"doc_id": 7 * i % 31, "rank": i % 3 + 1} for i, row in enumerate(rows)]
    assert set(offered(written(tmp_path, rows))) == {"--expected equal-answers"}


@pytest.mark.parametrize("rows", [passages(9), [row | {"step": i % 3} for i, row in enumerate(passages(40))]])
def test_few_or_counted_rows_with_passages_are_rounds(tmp_path, rows):
    assert imported(written(tmp_path, rows), first_round=1).rounds == 3


def chat(ask, key="session_id", n=30, name="query"):
    return [{key: f"s{q}", name: ask(q, r), "response": answer(q, r)} for q in range(n) for r in range(3)]


def other(q, r):
    return f"What about {('comets', 'violins', 'glaciers', 'beetles')[(q + r) % 4]} {31 * q + 7 * r}?"


@pytest.mark.parametrize("name", ["query", "question", "message", "prompt"])
def test_a_session_of_different_questions_is_asked_about(tmp_path, name):
    path = written(tmp_path, chat(other, name=name))
    assert set(offered(path)) == {"--column question_id=session_id"}
    if name == "query":
        assert imported(path, columns={"question_id": "session_id"}).rounds == 3


def test_an_id_of_different_questions_is_not_offered(tmp_path):
    path = written(tmp_path, chat(other, key="chat_id", name="message"))
    with pytest.raises(DataError, match="nothing to stop") as error:
        imported(path)
    assert not isinstance(error.value, UnsettledError)


@pytest.mark.parametrize(
    "rows",
    [
        chat(lambda q, r: ("Where is tower {}?", "tower {} place", "city of tower {}")[r].format(q)),
        chat(other, key="task_id"),
        chat(lambda q, r: f"Where is tower {q}?"),
    ],
)
def test_one_question_in_other_words_is_not_asked_about(tmp_path, rows):
    assert imported(written(tmp_path, rows)).rounds == 3


def filtered(labels=("strict", "flexible"), n=30):
    rows = []
    for q in range(n):
        said = [f"Adding gives {answer(q, r)}, page {q * 7 + r}." for r in range(3)]
        row = {"doc_id": q, "doc": {"question": f"Sum {q}?"}, "target": CITIES[q % 3], "resps": [said]}
        rows += [{**row, "filtered_resps": [[answer(q, r) for r in range(3)]], "filter": own} for own in labels]
    return rows


def test_replies_that_are_parsed_by_the_import_are_counted_once(tmp_path):
    rows = [{name: value for name, value in row.items() if name != "filtered_resps"} for row in filtered()]
    path = written(tmp_path, rows)
    options = asked(path, samples=True, answer_position=r"regex:gives (\w+)").choices
    assert set(options) == {"--where filter=strict", "--where filter=flexible"}


@pytest.mark.parametrize("samples", [False, True])
def test_the_same_replies_under_two_filters_are_asked_about(tmp_path, samples):
    path = written(tmp_path, filtered())
    assert set(offered(path, samples=samples)) == {"--where filter=strict", "--where filter=flexible"}
    if samples:
        one = imported(path, samples=True, where={"filter": "strict"})
        assert (one.trajectories, one.clusters) == (30, 30)


def test_one_filter_is_not_asked_about(tmp_path):
    assert imported(written(tmp_path, filtered(["strict"])), samples=True).trajectories == 30


def mixed(form, share, n=42):
    rows = []
    for q in range(n):
        for r in range(3):
            said = answer(q, r)
            rows.append({"id": q, "round": r + 1, "answer": form.format(said) if (q + r) % share == 0 else said})
            rows[-1]["gold"] = CITIES[q % 4]
    return rows


@pytest.mark.parametrize(("form", "share"), [("It is {}.", 2), ("It is {}.", 4), ("{} is the right one.", 3)])
def test_sentences_beside_short_answers_are_asked_about(tmp_path, form, share):
    path = written(tmp_path, mixed(form, share))
    position = first_choice(path)
    assert by_round(path, answer_position=position)[-1] == 1.0


@pytest.mark.parametrize(("form", "asked"), [("It is {}.", True), ("Old {}", False)])
def test_sentences_without_gold_answers_are_asked_about(tmp_path, form, asked):
    rows = [{"id": row["id"], "round": row["round"], "answer": row["answer"]} for row in mixed(form, 2)]
    path = written(tmp_path, rows)
    if asked:
        assert offered(path)[0].startswith("--answer-position 'regex:^(?:It is )?")
    else:
        assert imported(path).rounds == 3


@pytest.mark.parametrize(("form", "share"), [("It is {}.", 40), ("{} km", 2), ("{}.", 2), ("Old {}", 3)])
def test_short_answers_are_not_taken_for_sentences(tmp_path, form, share):
    assert imported(written(tmp_path, mixed(form, share))).rounds == 3


@pytest.mark.parametrize(
    ("name", "values"), [("global_step", (500, 1000, 1500)), ("checkpoint", (1, 2, 3)), ("shard", (0, 1, 2))]
)
def test_steps_of_a_training_are_other_loops(tmp_path, name, values):
    rows = [
        {"example_id": q, name: value, "pred": answer(q, r), "label": CITIES[q % 4]}
        for q in range(30)
        for r, value in enumerate(values)
    ]
    path = written(tmp_path, rows)
    if name != "global_step":
        assert offered(path)[0] == f"--column run={name}"
    assert imported(path, columns={} if name == "global_step" else {"run": name}).rounds == 1


def judged(order):
    rows = [
        {"query": f"Where is tower {q}?", "attempt": r + 1, "response": answer(q, r), "judge": judge}
        for q in range(30)
        for judge in ("large", "small")
        for r in range(3)
    ]
    return rows if order == "judge" else sorted(rows, key=lambda row: (row["query"], row["attempt"]))


def test_a_row_for_each_judge_is_no_further_attempt(tmp_path):
    path = written(tmp_path, judged("attempt"))
    assert [imported(path, columns=own).trajectories for own in ({}, {"run": "judge"})] == [60, 60]


def test_answers_do_not_tell_runs_apart(tmp_path):
    rows = [row | {"response": CITIES[i % 2]} for i, row in enumerate(judged("attempt"))]
    path = written(tmp_path, rows)
    assert "--column run=response" not in offered(path)


def test_attempts_that_begin_again_for_a_judge_are_runs(tmp_path):
    path = written(tmp_path, judged("judge"))
    assert [imported(path, columns=own).trajectories for own in ({}, {"run": "attempt"})] == [60, 60]


def events(model):
    rows = [{"spec": {"eval_name": "faq"}}]
    for q in range(30):
        own = {"run_id": "x", "sample_id": f"faq.{q}"}
        said = [{**own, "type": "sampling", "data": {"sampled": [answer(q, r)], **model}} for r in range(3)]
        match = {"expected": CITIES[q % 4], "picked": CITIES[q % 4], "correct": True}
        rows += [*said, {**own, "type": "match", "data": match}]
    return [*rows, {"final_report": {"accuracy": 1.0}}]


@pytest.mark.parametrize("model", [{}, {"model": "m"}])
def test_rows_of_no_question_are_never_one(tmp_path, model):
    path = written(tmp_path, events(model))
    assert set(offered(path)) == {"--where type=sampling"}
    assert imported(path, where={"type": "sampling"}, columns={"answer": "data.sampled"}).rounds == 3


def inspect_archive(tmp_path, calls=1):
    path = tmp_path / "log.eval"
    header = {"version": 2, "status": "success", "eval": {"task": "t", "config": {"epochs": 3}}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(header))
        for q in range(4):
            for epoch in range(3):
                said = answer(q, epoch)
                output = {"model": "m", "choices": [{"message": {"role": "assistant", "content": said}}]}
                event = {"event": "model", "input": [], "output": output}
                events = [{**event, "timestamp": f"2026-03-02T08:{q:02}:{place:02}Z"} for place in range(calls)]
                sample = {"id": q, "epoch": epoch + 1, "input": f"Where is tower {q}?", "target": CITIES[q % 4]}
                sample |= {"output": output, "scores": {"choice": {"value": "C" if said == CITIES[q % 4] else "I"}}}
                sample |= {"events": events if calls > 1 else []}
                archive.writestr(f"samples/{q}_epoch_{epoch + 1}.json", json.dumps(sample))
    return path


def test_epochs_of_one_call_each_are_samples(tmp_path):
    path = inspect_archive(tmp_path)
    joined = imported(path)
    assert (joined.trajectories, joined.rounds, joined.samples) == (4, 3, True)
    assert any("(--samples)" in note for note in joined.notes)
    table = read_recording(path.with_suffix(".parquet")).table
    assert table.column("choice").to_pylist() == table.column("em").to_pylist()


def test_epochs_of_several_calls_are_not_joined(tmp_path):
    joined = imported(inspect_archive(tmp_path, calls=2), samples=True)
    assert (joined.trajectories, joined.rounds) == (12, 2)


def test_the_question_names_both_filters(tmp_path):
    with pytest.raises(UnsettledError, match="values of 'filter'"):
        import_recording(written(tmp_path, filtered()), out=tmp_path / "x.parquet")
