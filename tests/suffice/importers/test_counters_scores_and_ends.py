"""Counters of nested rounds under any name, lists of scores beside answers, reasons in an event after a loop, and calls around one."""

from __future__ import annotations

import re
import shlex

import pytest

from suffice.importers.columns.closed_book import is_of_evidence
from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import CITIES, answer, asked, by_command, imported, offered, paired, recorded, texts, written

N, ROUNDS = 24, 3


def hops(name, *, passages=True, lowest=0, n=N):
    """Return questions with a list of hops, numbered by a field; only the first has no passages."""
    return [
        {
            "id": f"v{q}",
            "gold": CITIES[q % 4],
            "hops": [
                {name: lowest + r, "answer": answer(q, r)}
                | ({"retrieved": [f"d{q}{i}" for i in range(2 * r)]} if passages else {})
                for r in range(ROUNDS)
            ],
        }
        for q in range(n)
    ]


@pytest.mark.parametrize("name", ["n", "k", "i", "idx", "index", "nr", "hop", "step", "turn"])
def test_a_nested_counter_of_any_name_is_asked_about(name, tmp_path):
    source = written(tmp_path / "log.json", hops(name))
    options = {"columns": {"rounds": "hops"}}
    assert offered(source, "counts from 0", **options) == ["--first-round 1", "--first-round 0"]
    for first in (0, 1) if name == "n" else ():
        recording = read_recording(imported(source, **options, first_round=first).path)
        assert recording.index.tolist() == [first, first + 1, first + 2]
        assert texts(recording)["v1"] == [answer(1, r) for r in range(ROUNDS)]


@pytest.mark.parametrize("name", ["n", "k"])
def test_a_nested_setting_may_still_tell_loops_apart(name, tmp_path):
    done = by_command(tmp_path, hops(name), name="log.json", code=2)
    assert [own[-1] for own in done.commands] == [f"run={name}", "rounds=hops"]
    loops, rounds = done.commands
    assert "--first-round" not in cli(*loops).err
    assert "--first-round 0" in cli(*rounds, code=2).error


@pytest.mark.parametrize("options", [{"passages": False}, {"lowest": 1}])
def test_other_nested_counters_only_number_the_items(options, tmp_path):
    summary, recording = recorded(tmp_path, hops("idx", **options))
    assert recording.index.tolist() == [1, 2, 3]
    assert not any("counts from 0" in note for note in summary.notes)


def test_the_number_of_passages_is_no_counter_of_rounds(tmp_path):
    log = hops("n_retrieved")
    _, recording = recorded(tmp_path, log)
    assert recording.index.tolist() == [1, 2, 3]
    assert recording.column("n_retrieved")[0].tolist() == [0, 1, 2]
    assert is_of_evidence("n_retrieved")


def drafts(n=N, **scores):
    """Return questions with a list of drafts, and lists of scores that are as long."""
    return [
        {"id": f"c{q}", "captions": [f"Caption {r} of piece {q} says {q * r}" for r in range(ROUNDS)]}
        | {name: score(q) for name, score in scores.items()}
        for q in range(n)
    ]


def numbers(q):
    return [55 + (7 * q + 13 * r) % 45 for r in range(ROUNDS)]


@pytest.mark.parametrize(
    ("name", "score", "printed"),
    [
        ("judge_score", numbers, "judge_score=judge_score:0..100"),
        ("judge_scores", numbers, "judge_score=judge_score:0..100"),
        ("judgeScore", numbers, "judgeScore=judgeScore:0..100"),
        ("quality", lambda q: [("bad", "good")[(q + r) % 2] for r in range(ROUNDS)], "quality=quality:bad,good"),
        ("eval", lambda q: {"judge": numbers(q)}, "eval_judge=eval.judge:0..100"),
    ],
)
def test_a_printed_list_of_scores_judges_when_typed(name, score, printed, tmp_path):
    rounds = ("--column", "rounds=captions")
    done = by_command(tmp_path, drafts(**{name: score}), *rounds, "--details", code=0)
    option = shlex.split(re.search(r"--metric-column ('[^']*'|\S+)", done.words)[0].rstrip(",;"))
    assert option[1] == printed
    typed = cli("import", tmp_path / "log.jsonl", "-o", tmp_path / "r.parquet", "--yes", *rounds, *option, code=0)
    assert "may:" not in typed.words
    table = read_recording(tmp_path / "r.parquet").table
    assert len({*table.column(printed.partition("=")[0]).to_pylist()}) > 1


@pytest.mark.parametrize(("name", "answers"), paired(["context", "metadata", "passages"], ["captions", "answers"]))
def test_scores_of_passages_are_no_scores_of_rounds(name, answers, tmp_path):
    made = drafts(**{name: lambda q: {"scores": [0.5 + (r + q) / 100 for r in range(ROUNDS)]}})
    log = [{"id": row["id"], answers: row["captions"], name: row[name]} for row in made]
    said = {"columns": {"rounds": answers}} if answers == "captions" else {"expected": ["sample-list"]}
    _, recording = recorded(tmp_path, log, **said)
    assert not any("score" in column for column in recording.metadata["read_from"])


def test_scores_in_an_object_are_parallel_to_answers_of_a_usual_name(tmp_path):
    made = drafts(eval=lambda q: {"judge": numbers(q)})
    log = [{"id": row["id"], "answers": row["captions"], "eval": row["eval"]} for row in made]
    _, recording = recorded(tmp_path, log, expected=["sample-list"], metrics={"judge": "eval.judge:0..100"})
    assert recording.column("judge")[1].tolist() == pytest.approx([n / 100 for n in numbers(1)])


def test_a_falling_list_of_scores_is_turned_by_the_printed_option(tmp_path):
    log = drafts(40, reward=lambda q: [0.9 - 0.3 * r + (q % 3) / 100 for r in range(ROUNDS)])
    error = asked(written(tmp_path, log), "reverse order", columns={"rounds": "captions"})
    assert next(iter(error.choices)) == "--metric-column reward=reward:1..0"


def stream(end, *, calls=(), n=N):
    """Return events of runs: a start, an answer in each round, calls beside it, and an end, whose fields `end` makes; every second run stops early."""
    log = []
    for q in range(n):
        run, last = {"run_id": f"run{q}"}, ROUNDS - q % 2
        log.append({**run, "event": "start", "question": f"Wind at buoy {q}?", "gold": CITIES[q % 4]})
        for r in range(1, last + 1):
            log += [{**run, "event": kind, "iteration": r} for kind in calls]
            log.append({**run, "event": "answer", "iteration": r, "answer": answer(q, r)})
        log.append({**run, "event": "end", **end(q, last < ROUNDS)})
    return log


def ends(recording):
    return {str(value) for value in recording.table.column("end").to_pylist()}


@pytest.mark.parametrize("name", ["reason", "stop_reason", "cause", "status", "run.outcome"])
def test_the_event_after_a_loop_says_why_it_ended(name, tmp_path):
    log = stream(lambda _, early: {name: "converged" if early else "max_iterations", "iterations": 9})
    summary, recording = recorded(tmp_path, log)
    assert ends(recording) == {"rule", "max_rounds"}
    assert recording.table.num_rows == sum(event["event"] == "answer" for event in log)
    assert not any("--ended" in note for note in summary.notes)
    if name != "reason":
        return
    done = by_command(tmp_path, log, "--column", f"end={name}", code=0)
    assert "for a reason that the log does not give" not in done.words


def test_own_words_for_the_end_in_a_last_event_are_asked_about(tmp_path):
    log = stream(lambda _, early: {"reason": "tired" if early else "max_iterations"})
    assert "'reason' may say why, but is not read (--column end=reason)" in by_command(tmp_path, log, code=0).words
    refused = by_command(tmp_path, log, "--column", "end=reason", code=2)
    assert "end is 'tired'" in refused.error
    assert cli(*refused.commands[0], code=0)
    assert ends(read_recording(tmp_path / "r.parquet")) == {"rule", "max_rounds"}


def test_words_that_differ_within_a_run_are_no_reason(tmp_path):
    log = stream(lambda _, early: {"status": "converged" if early else "max_iterations"})
    more = [{**event, "status": "failed"} for event in log if event["event"] == "end"]
    _, recording = recorded(tmp_path, sorted([*log, *more], key=lambda event: int(event["run_id"][3:])))
    assert ends(recording).isdisjoint({"failed"})


def test_states_of_calls_are_no_reason(tmp_path):
    log = stream(lambda *_: {"status": "ok", "result": "Oslo"})
    _, recording = recorded(tmp_path, log)
    assert {"status", "result"}.isdisjoint(recording.table.column_names)


@pytest.mark.parametrize(
    ("kinds", "calls", "said"),
    [
        (("retrieve",), 1, "they are steps of that round, none of them calls of a model (--where event=answer)"),
        (("plan",), 2, "they are calls of that round (--where event=answer)"),
        (("retrieve", "plan"), 2, "they are steps of that round, 63 of them calls of a model (--where event=answer)"),
    ],
)
def test_steps_of_a_round_are_called_calls_as_they_are_counted(kinds, calls, said, tmp_path):
    log = stream(lambda *_: {}, calls=kinds, n=25)
    summary, recording = recorded(tmp_path, log)
    counts = {*recording.table.column("cost.generator.calls").to_pylist()}
    assert counts == {calls}
    (note,) = [note for note in summary.notes if "share the round of one" in note]
    assert note.endswith(said)


def rouge(q):
    return [round(0.3 + r / 20 + q / 1000, 3) for r in range(ROUNDS)]


def test_the_note_on_the_judge_names_another_score(tmp_path):
    log = drafts(rouge_l=rouge, judge_score=numbers)
    rounds = {"columns": {"rounds": "captions"}}
    summary, _ = recorded(tmp_path, log, **rounds)
    (note,) = [note for note in summary.notes if "judges" in note]
    assert note.startswith("the log's own 'rouge_l' judges, and not its 'judge_score', from 0 to 100")
    option = "judge_score=judge_score:0..100"
    assert f"--metric-column {option}, then `suffice decide --metric judge_score`" in note
    name, _, theirs = option.partition("=")
    chosen, recording = recorded(tmp_path, log, **rounds, metrics={name: theirs})
    assert not any("judges" in note for note in chosen.notes)
    assert recording.column("judge_score")[1].tolist() == pytest.approx([n / 100 for n in numbers(1)])


def test_a_percentage_beside_gold_answers_judges_only_if_called_so(tmp_path):
    log = [
        {"id": q, "round": r, "gold": CITIES[q % 4], "answer": answer(q, r), "judge_score": n, "feedback_score": n}
        for q in range(N)
        for r, n in enumerate(numbers(q), 1)
    ]
    summary, _ = recorded(tmp_path, log)
    assert any("not the log's own 'judge_score', from 0 to 100" in note for note in summary.notes)
    counted = [{name: value for name, value in row.items() if name != "judge_score"} for row in log]
    assert not any("the gold answers judge, and" in note for note in recorded(tmp_path, counted)[0].notes)


def passes(name, *, first=1, key="Record"):
    return [
        {key: f"G{q}", "Question": f"When was person {q} married?", name: first + r, "Answer": answer(q, r)}
        | {"Expected": CITIES[q % 4], "Checked by": "AK"}
        for q in range(N)
        for r in range(ROUNDS)
    ]


@pytest.mark.parametrize(("name", "key"), paired(["Pass", "pass", "PASS", "pass_no", "Pass #"], ["Record", "id"]))
def test_passes_count_rounds_whatever_the_order_of_rows(name, key, tmp_path):
    log = sorted(passes(name, key=key), key=lambda row: (row["Question"], -row[name]))
    summary, recording = recorded(tmp_path / "log.csv", log)
    assert recording.metadata["read_from"]["round"] == name
    assert not any("no column counts rounds" in note for note in summary.notes)
    counts = "counts rounds that follow one another; if they are independent samples, import them with --samples"
    assert f"{name!r} {counts}" in summary.notes
    assert sorted(texts(recording).values()) == sorted([answer(q, r) for r in range(ROUNDS)] for q in range(N))


@pytest.mark.parametrize("name", ["pass", "Pass"])
def test_passes_of_several_models_are_asked_about(name, tmp_path):
    log = [{**row, "model": ("mini", "mini", "large")[row[name] - 1]} for row in passes(name, key="id")]
    assert offered(written(tmp_path / "log.csv", log), "asked in turn") == [
        f"--column round={name}",
        "--column run=model",
    ]


def test_whether_an_answer_passed_counts_no_rounds(tmp_path):
    log = [{**row, "pass": int(row["Answer"] == row["Expected"])} for row in passes("no", key="id")]
    log = [{name: value for name, value in row.items() if name != "no"} for row in log]
    _, recording = recorded(tmp_path / "log.csv", log)
    assert recording.metadata["read_from"]["round"] == "order of the rows"
    assert recording.shape == (N, ROUNDS)
