"""Passes that begin again, tasks within sessions, attempts of a round that failed, lines of a log, and runs of MLflow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from suffice.importers.checks.reading import _has_leader
from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import by_command, imported, texts, written

TOWNS = ("Graz", "Bern", "Lyon", "Oslo")


def passes(again: range, *, timed: bool) -> Iterator[dict[str, Any]]:
    for night in (0, 1):
        for q in range(30) if not night else again:
            for r in (1, 2, 3):
                at = {"time": f"2026-03-0{1 + night}T08:{q:02}:0{r}"} if timed else {}
                answer = TOWNS[(q + (r == 1) * (1 + night)) % 4]
                yield {**at, "question": f"Where is tower {q}?", "pass": r, "response": answer, "gold": TOWNS[q % 4]}


@pytest.mark.parametrize(("again", "timed"), [(range(5), True), (range(30), False)])
def test_passes_that_begin_again_are_further_runs(tmp_path, again, timed):
    rows = [*passes(again, timed=timed)]
    refused = by_command(tmp_path, rows, code=2)
    assert "begins again" in refused.err
    option = ("--column", "round=pass", "--column", "run=pass")
    assert " ".join(option) in refused.err
    assert by_command(tmp_path, rows, *option).code == 0
    assert [len(own) for own in texts(tmp_path / "r.parquet").values()] == [3] * (30 + len(again))


@pytest.mark.parametrize("key", ["session", "session_id"])
@pytest.mark.parametrize("blank", [True, False])
def test_tasks_of_a_session_are_questions(tmp_path, key, blank):
    rows = []
    for s in range(12):
        for task in (0, 1):
            for r in (0, 1, 2):
                text = f"{'Where is tower' if task else 'Who owns castle'} {2 * s + task}{'x' * s}?"
                asked = text if r == 0 or not blank else None
                at = f"2026-03-02T08:{s:02}:{10 * task + r:02}"
                rows.append({"at": at, key: f"S{s}", "user_question": asked, "answer": f"{TOWNS[(s + task + r) % 4]} {s}"})  # fmt: skip
    rows.sort(key=lambda row: row["at"][-2:])  # the sessions run side by side
    refused = by_command(tmp_path, rows, code=2)
    option = ("--column", "question_id=user_question", "--column", f"run={key}")
    assert " ".join(option) in refused.err
    assert by_command(tmp_path, rows, *option).code == 0
    wanted = [[f"{TOWNS[(s + task + r) % 4]} {s}" for r in (0, 1, 2)] for s in range(12) for task in (0, 1)]
    assert sorted(texts(tmp_path / "r.parquet").values()) == sorted(wanted)


def test_failed_attempts_with_partial_text_are_no_rounds(tmp_path):
    rows = []
    for q in range(20):
        for r in (1, 2, 3):
            own = {"task": f"q{q}", "prompt": f"Where is tower {q}?", "turn": r, "expected": TOWNS[q % 4]}
            answer = TOWNS[(q + (r == 1)) % 4]
            failed = {**own, "attempt": 1, "http_status": 504, "output": answer[:2]}
            is_again = (q + r) % 7 == 0
            rows += [failed] * is_again
            rows.append({**own, "attempt": 1 + is_again, "http_status": 200, "output": answer})
    refused = by_command(tmp_path, rows, code=2)
    for option in (("--where", "http_status=200"), ("--repeated", "last")):
        assert " ".join(option) in refused.err
        assert by_command(tmp_path, rows, *option).code == 0
        assert sorted(texts(tmp_path / "r.parquet").values()) == sorted(
            [TOWNS[(q + (r == 1)) % 4] for r in (1, 2, 3)] for q in range(20)
        )
    assert {*read_recording(tmp_path / "r.parquet").table.column("question_id").to_pylist()} == {f"q{q}" for q in range(20)}  # fmt: skip
    assert "--column round=" not in refused.err


def test_a_column_with_the_vote_shows_samples_and_not_the_gold_answer(tmp_path):
    rows = []
    for q in range(60):
        gold, wrong = str(100 + q), str(300 + q)
        drawn = [gold if (q + k) % 3 or q % 5 == 0 else wrong for k in range(5)]
        drawn = drawn if q % 7 else [wrong] * 3 + [gold] * 2
        vote = max(dict.fromkeys(drawn), key=drawn.count)
        rows.append({"uid": q, "problem": f"What is {q}?", "solution": gold, "drawn": drawn, "majority": vote})
    refused = by_command(tmp_path, rows, "--column", "rounds=drawn", code=2)
    assert "--samples" in refused.err
    assert "golds=majority" not in refused.err
    again = by_command(tmp_path, rows, "--column", "rounds=drawn", "--samples")
    assert "--column golds=solution" in again.err
    assert by_command(tmp_path, rows, "--column", "rounds=drawn", "--samples", "--column", "golds=solution").code == 0


@pytest.mark.parametrize("late", [10, 28])
def test_the_gold_answer_of_a_good_model_is_no_vote(tmp_path, late):
    rows = []
    for q in range(400):
        gold = f"city{q % 61}"
        said = [f"town{q}" if q % 10 == 0 else gold, gold, f"town{q}" if 0 < q % (400 // late) == 1 else gold]
        rows += [{"question_id": q, "round": r, "answer": text, "label_text": gold} for r, text in enumerate(said, 1)]
    refused = by_command(tmp_path, rows).err
    assert "--column golds=label_text" in refused
    assert "--samples" in refused
    assert "golds=label_text --samples" not in refused
    assert by_command(tmp_path, rows, "--column", "golds=label_text").code == 0


def test_most_frequent_means_more_than_any_other_of_three():
    said = ([1, 2, 2], [1, 1, 2, 2], [1, 1, 1], [1, 2], [1, 2, 3])
    assert [_has_leader(Counter(own)) for own in said] == [True, False, False, False, False]


@pytest.mark.parametrize(("by_chance", "code"), [(False, 2), (True, 0)])
def test_a_gold_answer_of_few_values_is_asked_about(tmp_path, by_chance, code):
    rows = []
    for q in range(80):
        gold = "yes" if q % 5 < 3 else "no"
        said = [gold if (q + r) % 4 or r > 2 else "maybe" for r in range(4)]
        final = ("yes" if q * 7 % 5 < 3 else "no") if by_chance else gold
        wrong = q % 6 == 0
        rows.append({"question": f"Does {q} help?", "final_decision": final, **{f"pred_{r}": "maybe" if wrong else text for r, text in enumerate(said)}})  # fmt: skip
    done = by_command(tmp_path, rows)
    assert (done.code, "golds=final_decision" in done.err) == (code, code == 2), done.err


def log_lines(before: str) -> list[dict[str, Any]]:
    rows = []
    for q in range(12):
        for r in (1, 2, 3):
            own = {"qid": f"q{q}", "question": f"Where is tower {q}?", "round": r, "answer": TOWNS[(q + (r == 1)) % 4], "gold": TOWNS[q % 4]}  # fmt: skip
            rows.append({"log": f"{before}{json.dumps(own)}\n", "time": f"08:{q:02}:0{r}"})
        rows.append({"log": "INFO healthy\n", "time": f"08:{q:02}:09"})
    return rows


@pytest.mark.parametrize("before", ["", "[INFO]\t08:00\treq-1\t"])
def test_objects_in_the_lines_of_a_log_are_rows(tmp_path, before):
    done = by_command(tmp_path, log_lines(before))
    assert (
        "decided by the values of the log: they are left out, as sums and blank rows: those with 'log.qid' remain"
        in done.words
    )
    assert sorted(texts(tmp_path / "r.parquet").values()) == sorted(
        [TOWNS[(q + (r == 1)) % 4] for r in (1, 2, 3)] for q in range(12)
    )


def test_parameters_of_a_run_of_mlflow_are_columns(tmp_path):
    for name, r in (("c3", 1), ("a1", 2), ("b2", 3)):
        for part in ("artifacts", "params", "metrics"):
            (tmp_path / "runs" / name / part).mkdir(parents=True)
        (tmp_path / "runs" / name / "meta.yaml").write_text("run_id: a\n")
        (tmp_path / "runs" / name / "params" / "nested").mkdir()
        (tmp_path / "runs" / name / "params" / "binary").write_bytes(b"caf\xe9")
        data = [[f"Where is tower {q}?", TOWNS[q % 4], TOWNS[(q + (r == 1)) % 4]] for q in range(12)]
        table = {"columns": ["inputs", "ground_truth", "outputs"], "data": data}
        (tmp_path / "runs" / name / "artifacts" / "results.json").write_text(json.dumps(table))
        (tmp_path / "runs" / name / "params" / "round").write_text(str(r))
        (tmp_path / "runs" / name / "metrics" / "exact_match").write_text("1772000000000 0.5 0\n")
    assert cli("import", tmp_path / "runs", "-o", tmp_path / "r.parquet", "--yes").code == 0
    assert sorted(texts(tmp_path / "r.parquet").values()) == sorted(
        [TOWNS[(q + (r == 1)) % 4] for r in (1, 2, 3)] for q in range(12)
    )


@pytest.mark.parametrize("named", [".", "metrics", "metrics/log.jsonl"])
@pytest.mark.parametrize("is_run", [False, True])
def test_folders_without_a_run_of_mlflow_are_read_as_usual(tmp_path, named, is_run):
    for part in ("artifacts", "params/nested", "metrics"):
        (tmp_path / "exp" / part).mkdir(parents=True)
    if is_run:
        (tmp_path / "exp" / "meta.yaml").touch()
    rows = [{"qid": f"q{q}", "round": r, "answer": TOWNS[(q + r) % 4], "gold": TOWNS[q % 4]} for q in range(12) for r in (1, 2)]  # fmt: skip
    written(tmp_path / "exp" / "metrics", rows)
    done = cli("import", tmp_path / "exp" / named, "-o", tmp_path / "r.parquet", "--yes")
    assert done.code == (1 if is_run and named == "." else 0), done.err


@pytest.mark.parametrize(("gold", "wanted"), [("answer_idx", "D"), ("answer", "Oslo")])
def test_letters_and_texts_of_options_are_read_in_one_form(tmp_path, gold, wanted):
    options = dict(zip("ABCD", TOWNS, strict=True))
    forms = ("{0}", "{0}. {1}", "{1}")
    rows = []
    for q in range(40):
        said = [("ABCD"[q % 4], "ABCD"[(q + (r == 0)) % 4]) for r in range(3)]
        row = {f"pred_{r}": forms[(q + r) % 3].format(own, options[own]) for r, (_, own) in enumerate(said)}
        own_gold = {"answer_idx": "ABCD"[q % 4], "answer": TOWNS[q % 4]}[gold]
        rows.append(
            {"id": q, "question": f"Where is tower {q}?", "options": options, "expected_answer": own_gold, **row}
        )
    by_command(tmp_path, rows, code=0)
    assert [*texts(tmp_path / "r.parquet").values()].count([{"D": "A", "Oslo": "Graz"}[wanted], wanted, wanted]) == 10


def test_one_word_for_all_ends_of_loops_is_read(tmp_path):
    rows = [
        {"id": q, "question": f"Where is tower {q}?", "expected": TOWNS[q % 4], "attempts": [{"answer": TOWNS[(q + (r == 0)) % 4]} for r in range(2 + q % 3)], "stop_reason": "converged"}
        for q in range(12)
    ]  # fmt: skip
    done = by_command(tmp_path, rows)
    assert "12 stopped by themselves" in done.out, done.out + done.err


def test_a_doubt_says_how_the_log_was_read(tmp_path):
    rows = [{"question": f"Where is {q}?", "town": TOWNS[q % 4], **{f"pred_{r}": TOWNS[(q + (r < 1 or q % 8 < 3)) % 4] for r in range(3)}} for q in range(60)]  # fmt: skip
    refused = by_command(tmp_path, rows)
    assert "the log was read right: answers from pred_0 ... pred_2" in " ".join(refused.err.split())


@pytest.mark.parametrize("order", ["by question", "by pass", "newest first"])
def test_a_pass_counts_rounds_of_a_question_whose_id_it_shows(order, tmp_path):
    rows = [
        {"post_id": f"p{q}", "pass": r, "predicted_label": TOWNS[(q + (r < q % 5)) % 4], "true_label": TOWNS[q % 4]}
        for q in range(30)
        for r in (1, 2, 3)
    ]
    rows = sorted(rows, key=lambda row: row["pass"]) if order == "by pass" else rows[:: -1 if "newest" in order else 1]
    summary = imported(written(tmp_path / "log.csv", rows))
    read = {item.ours: item.theirs for item in summary.readings}
    assert (read["question_id"], read["round"]) == ("post_id", "pass")
    shares = [sum(r >= q % 5 for q in range(30)) / 30 for r in (1, 2, 3)]
    assert [means.em for means in summary.by_round] == pytest.approx(shares)
    assert not any("no column counts rounds" in note for note in summary.notes)


def test_whether_an_answer_passed_counts_no_rounds(tmp_path):
    rows = [
        {"post_id": f"p{q}", "pass": int(r > q % 3), "predicted_label": TOWNS[(q + r) % 4]}
        for q in range(30)
        for r in (1, 2, 3)
    ]
    summary = imported(written(tmp_path / "log.csv", rows), columns={"question_id": "post_id"})
    assert "pass" not in {item.theirs for item in summary.readings if item.ours == "round"}
    assert summary.judged_by == ("pass",)
