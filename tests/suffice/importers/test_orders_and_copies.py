"""Logs whose order, copies, scores or transcripts misled the importer, though nothing in them was hidden."""

from __future__ import annotations

import json
import random

import pytest

from suffice import read_recording
from suffice.errors import SufficeError, UnsettledError
from suffice.importers.tables import table_parts
from tests.support.cli_tools import CITIES
from tests.support.logs import asked, imported, recorded, texts, written

N = 40
TOWNS = (*CITIES, "Bern", "Graz", "Turin")


def answers(q, n=4):
    """Return answers to a question, the later ones more often right."""
    draw = random.Random(q)
    return [TOWNS[q % 7] if draw.random() < 0.4 + 0.1 * r else draw.choice(TOWNS) for r in range(n)]


def rows(order=list, **columns):
    made = []
    for q in range(N):
        for r, text in enumerate(order(answers(q)), start=1):
            row = {"qid": f"q{q}", "question": f"Where is tower {q}?", "gold": TOWNS[q % 7], "answer": text}
            made.append({**row, **{name: make(q, r, text) for name, make in columns.items()}})
    return made


@pytest.mark.parametrize("order", [sorted, lambda said: sorted(said, reverse=True)], ids=["rise", "fall"])
def test_answers_in_sorted_order_are_no_rounds(tmp_path, order):
    error = asked(written(tmp_path, rows(order)))
    assert [*error.choices] == ["--expected sorted-answers"]
    recorded(tmp_path, rows(order), samples=True)


@pytest.mark.parametrize(
    ("order", "columns"),
    [(list, {}), (sorted, {"round": lambda q, r, text: r})],
    ids=["not sorted", "counted by a column"],
)
def test_rounds_in_an_order_are_read(tmp_path, order, columns):
    _, recording = recorded(tmp_path, rows(order, **columns))
    assert [*texts(recording).values()] == [order(answers(q)) for q in range(N)]


def transcript(q, r, _):
    """Return all rounds so far."""
    return "".join(f"## Round {i}\nA search.\nAnswer: {text}\n" for i, text in enumerate(answers(q)[:r], start=1))


def test_the_last_answer_of_a_transcript_is_read(tmp_path):
    records = rows(round=lambda q, r, _: r, answer=transcript)
    error = asked(written(tmp_path, records), answer_position="marker:Answer:", columns={"answer": "answer"})
    assert [*error.choices] == [
        r"--answer-position 'regex:^(?s:.*)Answer:(?!(?s:.*)Answer:)\s*(.+)'",
        "--expected transcripts",
    ]
    (settled, *_) = [value for value, _ in error.choices.values()]
    _, recording = recorded(tmp_path, records, **settled)
    assert [*texts(recording).values()] == [answers(q) for q in range(N)]
    _, recording = recorded(tmp_path, records, answer_position=error.choices and settled["answer_position"])
    assert [*texts(recording).values()] == [answers(q) for q in range(N)]


def test_a_position_in_transcripts_is_guessed_from_golds(tmp_path):
    records = rows(round=lambda q, r, _: r, answer=transcript)
    try:
        _, recording = recorded(tmp_path, records)
    except UnsettledError as error:
        choices = {option: value for option, (value, _) in error.choices.items() if "(?s:.*)" in option}
        ((_, position),) = choices.items()
        _, recording = recorded(tmp_path, records, answer_position=position)
    assert [*texts(recording).values()] == [answers(q) for q in range(N)]


@pytest.mark.parametrize("cut", [True, False])
def test_texts_of_one_greatest_length_were_cut(tmp_path, cut):
    most = 300 if cut else 10_000

    def reply(q, r, text):
        words = " ".join(random.Random(10 * q + r).choices(TOWNS, k=20 + 3 * r + q % 5))
        return f"{words}\nAnswer: {text}. {words}"[:most]

    records = rows(round=lambda q, r, _: r, answer=reply)
    options = {"answer_position": r"regex:Answer: (\w+)"}
    if cut:
        assert "exactly 300 characters" in asked(written(tmp_path, records), **options).question
    else:
        recorded(tmp_path, records, **options)


def filled(n, *, cost=True, count=True):
    """Return records of a loop that ended after `n(q)` rounds, with copies of its last answer in the cells after it."""
    records = []
    for q in range(N):
        said, end = answers(q), n(q)
        record = {"qid": f"q{q}", "question": f"Where is tower {q}?", "gold": TOWNS[q % 7]}
        record |= {"n_rounds": end} if count else {}
        record |= {f"answer_{r}": said[min(r, end) - 1] for r in range(1, 5)}
        record |= {f"completion_tokens_{r}": (7 + r) * (r <= end) for r in range(1, 5)} if cost else {}
        records.append(record)
    return records


@pytest.mark.parametrize(("cost", "count"), [(True, True), (True, False), (False, True)])
def test_copies_after_the_end_of_a_loop_are_no_rounds(tmp_path, cost, count):
    summary, recording = recorded(
        tmp_path, filled(lambda q: 1 + q % 4, cost=cost, count=count), **({} if cost else {"ended": "rule"})
    )
    assert [*texts(recording).values()] == [answers(q)[: 1 + q % 4] for q in range(N)]
    assert summary.ends == {"rule": 30, "max_rounds": 10}
    assert any("--expected copied-rounds keeps them" in note for note in summary.notes)
    _, recording = recorded(tmp_path, filled(lambda q: 1 + q % 4, cost=cost, count=count), expected=["copied-rounds"])
    assert {len(said) for said in texts(recording).values()} == {4}


def test_a_count_alone_does_not_leave_rounds_out(tmp_path):
    error = asked(written(tmp_path, filled(lambda q: 1 + q % 4, cost=False)))
    assert [*error.choices] == ["--column n_rounds=", "--ended rule"]
    _, recording = recorded(tmp_path, filled(lambda q: 1 + q % 4, cost=False), **error.choices["--column n_rounds="][0])
    assert {len(said) for said in texts(recording).values()} == {4}


@pytest.mark.parametrize("name", ["num_hops", "hops", "steps", "attempts"])
def test_a_property_of_questions_counts_no_rounds(tmp_path, name):
    records = [{**row, name: 1 + q % 4} for q, row in enumerate(filled(lambda q: 1 + q % 4, cost=False, count=False))]
    _, recording = recorded(tmp_path, records)
    assert {len(said) for said in texts(recording).values()} == {4}


@pytest.mark.parametrize("tokens", [None, 0], ids=["unknown", "cached"])
def test_the_last_call_of_a_stop_on_repeat_is_a_round(tmp_path, tokens):
    records = [
        {
            "qid": f"q{q}",
            "gold": TOWNS[q % 7],
            "round": r,
            "answer": TOWNS[(q + max(n - 1 - r, 0) * (1 + q % 2)) % 7],
            "output_tokens": tokens if r == n else 90 + 7 * r + q,
        }
        for q in range(N)
        for n in [3 + q % (3 if tokens == 0 else 1)]
        for r in range(1, n + 1)
    ]
    summary, recording = recorded(tmp_path, records, log_golds="keep", expected=["last-is-gold", "stopped-when-right"])
    assert len(recording.table) == len(records)
    assert not any("left out" in note for note in summary.notes)


def test_copies_are_found_in_all_parts_or_in_none(tmp_path, monkeypatch):
    records = [
        {
            "qid": f"q{q}",
            "gold": TOWNS[q % 7],
            "round": r,
            "answer": said[min(r, n) - 1],
            "output_tokens": 90 * (r <= n),
        }
        for q, said in enumerate(map(answers, range(N)))
        for n in [2 + q % 3 if q < 20 else 3 + q % 2]
        for r in range(1, 5)
    ]
    whole, recording = recorded(tmp_path, records)
    monkeypatch.setattr(table_parts, "LARGE", 0)
    monkeypatch.setattr(table_parts, "PART", 16)
    parts, in_parts = recorded(tmp_path, records)
    assert texts(in_parts) == texts(recording)
    assert (len(in_parts.table) < len(records), parts.ends) == (True, whole.ends)
    assert any("repeat the last round of a loop" in note for note in parts.notes)


@pytest.mark.parametrize("lost", ["answer", "seed", ""])
def test_only_rows_with_an_answer_and_a_run_were_merged(tmp_path, lost):
    records = [
        {"qid": f"q{q}" if r == 0 else "", "seed": seed, "gold": TOWNS[q % 7] if r == 0 else "", "answer": text}
        for seed in (1, 2)
        for q in range(N)
        for r, text in enumerate(answers(q + 50 * seed - 50 * (q % 7 == 0)))
    ]
    if lost:
        records[8 if lost == "seed" else 9][lost] = ""
    options = {"columns": {"question_id": "qid", "run": "seed"}}
    if lost:
        with pytest.raises(SufficeError, match="qid is empty"):
            recorded(tmp_path, records, **options)
    else:
        _, recording = recorded(tmp_path, records, **options)
        assert len(recording.table) == len(records)


def test_free_rounds_within_a_loop_are_kept(tmp_path):
    records = rows(
        round=lambda q, r, _: r,
        answer=lambda q, r, _: TOWNS[(q + q % 3) % 7],
        completion_tokens=lambda q, r, _: 9 * ((q + r) % 3 > 0),
    )
    _, recording = recorded(tmp_path, records)
    assert {len(said) for said in texts(recording).values()} == {4}


def test_a_score_that_is_an_error_is_turned(tmp_path):
    columns = {"round": lambda q, r, _: r, "score": lambda q, r, _: (12 + q % 3 - r) / 20, "metric": lambda *_: "TER"}
    records = [{name: own for name, own in row.items() if name != "gold"} for row in rows(**columns)]
    error = asked(written(tmp_path, records))
    assert [*error.choices] == ["--metric-column score=score:1..0", "--expected falling-scores"]
    summary, recording = recorded(tmp_path, records, metrics={"score": "score:1..0"})
    assert recording.column("score")[0].tolist() == pytest.approx([1 - (12 - r) / 20 for r in (1, 2, 3, 4)])
    assert not [alarm for alarm in summary.alarms if alarm.name == "falling-scores"]


@pytest.mark.parametrize(("step", "asks"), [(0.02, True), (0.001, False), (-0.02, False)])
def test_a_graded_score_that_falls_is_asked_about(tmp_path, step, asks):
    score = lambda q, r, _: 0.3 + 0.01 * (q % 5) - step * r  # noqa: E731
    records = [
        {name: own for name, own in row.items() if name != "gold"} for row in rows(round=lambda q, r, _: r, score=score)
    ]
    if asks:
        assert "--metric-column score=score:1..0" in asked(written(tmp_path, records)).choices
    else:
        recorded(tmp_path, records)


@pytest.mark.parametrize(("source", "asks"), [("self", True), ("human", False)])
def test_what_a_model_thinks_of_itself_is_no_score(tmp_path, source, asks):
    columns = {"round": lambda q, r, _: r, "score": lambda q, r, _: 0.5 + 0.1 * r, "score_source": lambda *_: source}
    records = [{name: own for name, own in row.items() if name != "gold"} for row in rows(**columns)]
    if not asks:
        assert recorded(tmp_path, records)[0].judged_by == ("score",)
        return
    assert [*asked(written(tmp_path, records)).choices] == ["--column self_score=score", "--expected own-score"]
    summary, _ = recorded(tmp_path, records, columns={"self_score": "score"})
    assert summary.judged_by == ()
    assert not any("--metric-column self_score" in note for note in summary.notes)


def test_a_verdict_beside_truth_values_is_the_answer(tmp_path):
    records = [
        {
            "id": f"c{q}",
            "claim": f"Tower {q} is old.",
            "round": r,
            "verdict": str((q + r * r) % 3 > 0),
            "label": int(q % 2),
        }
        for q in range(N)
        for r in (1, 2, 3)
    ]
    assert "--column answer=verdict" in asked(written(tmp_path, records)).choices
    summary, recording = recorded(tmp_path, records, columns={"answer": "verdict"})
    right = [[float(((q + r * r) % 3 > 0) == bool(q % 2)) for r in (1, 2, 3)] for q in range(N)]
    scores = recording.column("em" if "em" in summary.judged_by else "match")
    assert scores[:, -3:].tolist() == right


def test_parameters_by_key_are_columns(tmp_path):
    records = [
        {
            "case_id": str(q),
            "inputs": {"question": f"Where is tower {q}?", "reference": TOWNS[q % 7]},
            "turns": [
                {
                    "turn_number": str(r),
                    "params": [
                        {"key": "model_answer", "value": {"string_value": text, "int_value": None}},
                        {"key": "completion_tokens", "value": {"string_value": None, "int_value": str(7 + r)}},
                    ],
                }
                for r, text in enumerate(answers(q), start=1)
            ],
        }
        for q in range(N)
    ]
    _, recording = recorded(tmp_path, records)
    assert [*texts(recording).values()] == [answers(q) for q in range(N)]
    assert recording.column("cost.generator.output_tokens")[0][-4:].tolist() == [8, 9, 10, 11]


def test_a_writer_and_a_critic_in_a_history_are_speakers(tmp_path):
    def said(q):
        for text in answers(q):
            yield {"role": "writer", "content": text}
            yield {"role": "critic", "content": f"Is {text} right?"}

    records = [
        {"task": q, "prompt": f"Where is tower {q}?", "reference": TOWNS[q % 7], "history": [*said(q)]}
        for q in range(N)
    ]
    without = [{name: own for name, own in record.items() if name != "reference"} for record in records]
    assert "--where role=writer" in asked(written(tmp_path, without)).choices
    _, recording = recorded(tmp_path, records)  # as the gold answers confirm
    assert [*texts(recording).values()] == [answers(q) for q in range(N)]


def test_objects_one_after_another_are_records(tmp_path):
    records = [
        {"id": q, "question": f"Where is tower {q}?", "rounds": [{"answer": text} for text in answers(q)]}
        for q in range(N)
    ]
    path = tmp_path / "log.json"
    path.write_text("\n".join(json.dumps(record, indent=2) for record in records), "utf-8")
    summary = imported(path)
    assert [*texts(read_recording(summary.path)).values()] == [answers(q) for q in range(N)]
