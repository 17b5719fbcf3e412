"""Advice on logs that may lack rounds: what the loop returned there is unknown, unless somebody says why they ended."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suffice import Claim, Policy, certify, decide, import_recording, read_recording
from suffice.errors import CensoredError
from suffice.policy.rules import fixed_k
from suffice.recordings import Recording
from suffice.recordings.audits import uncut
from suffice.recordings.schema import build_table
from suffice.verdicts.decisions import Advice
from suffice.verdicts.decisions.losses import Totals, measure_candidates
from tests.support.cli_tools import cli

N, CAP = 700, 3
ONE = Policy(rule=fixed_k(1), max_rounds=1)
TWO = Policy(rule=fixed_k(2), max_rounds=2)


def written(path: Path, lengths: list[int], value, **columns) -> Path:
    """Write a log of one row for each round; `value` gives its score."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "round", "answer", "score", *columns])
        for q, length in enumerate(lengths):
            for r in range(1, length + 1):
                score = value(q, r)
                rows.writerow(
                    [f"question {q}", r, f"a{score:g}", score, *(column(q, r) for column in columns.values())]
                )
    return path


def imported(path: Path, **options) -> Recording:
    return read_recording(
        import_recording(path, out=path.with_suffix(".parquet"), metrics={"score": "score"}, **options).path
    )


@pytest.fixture(scope="module")
def lossy(tmp_path_factory) -> Path:
    """A log in which round 3 saves 5 % of the questions, and the rows of round 3 were lost mostly there: rounds 1 and 2 lose 5 points."""
    rng = np.random.default_rng(1)
    late = rng.random(N) < 0.05
    lost = np.where(late, rng.random(N) < 0.9, rng.random(N) < 0.1)
    lengths = np.where(lost, 2, CAP).tolist()
    return written(tmp_path_factory.mktemp("lossy") / "log.csv", lengths, lambda q, r: float(r == CAP or not late[q]))


def test_lost_rows_where_late_rounds_helped_prevent_advice_to_stop(lossy):
    recording = imported(lossy)
    advice = decide(recording, metric="score", max_loss=0.04)
    assert advice.verdict == "cannot be judged"
    assert recording.unexplained.sum() == (recording.ends == "rule").sum() > 90
    n, short = advice.n, advice.trial.totals.unexplained
    assert f"{short} of {n} questions have fewer than 3 rounds, and the log does not say why" in advice.sentence
    assert "import the log again with --ended rule" in advice.sentence
    assert len(advice.sentence) < 600
    assert advice.to_dict()["trial"]["totals"]["unexplained"] == short
    assert advice.to_dict()["sentence"] == advice.sentence


def test_a_loop_stated_to_have_stopped_by_itself_is_judged_as_before(lossy):
    recording = imported(lossy, ended="rule")
    assert not recording.unexplained.any()
    assert (recording.ends == "rule").any()
    advice = decide(recording, metric="score", max_loss=0.04)
    assert advice.verdict == "do it"
    assert "does not say why" not in advice.sentence
    assert advice.trial.totals.unexplained == 0


def test_a_log_that_names_its_ends_needs_no_word_of_the_user(tmp_path):
    lengths = [2 + q % 2 for q in range(60)]
    ends = imported(
        written(tmp_path / "log.csv", lengths, lambda q, r: 1.0, end=lambda q, r: "" if q % 4 == 0 else "rule")
    )
    assert ends.unexplained.tolist() == [q % 4 == 0 for q in range(60)]
    assert set(ends.ends[[q % 4 == 2 for q in range(60)]]) == {"rule"}
    assert set(uncut(ends).ends[~ends.unexplained]) == {"exhausted"}
    assert set(uncut(ends).ends[ends.unexplained]) == {"rule"}


def test_missing_rounds_of_perfect_candidates_are_named_without_changing_verdicts(tmp_path):
    lengths = [2 if q % 3 else CAP for q in range(N)]
    advice = decide(imported(written(tmp_path / "log.csv", lengths, lambda q, r: 1.0)), metric="score")
    assert advice.verdict == "do it"
    assert advice.policy.label == "fixed_k(1)"
    short = advice.trial.totals.unexplained
    assert f"{short} of {advice.n} questions have fewer than 3 rounds, and the log does not say why" in advice.sentence
    assert "what they would have answered later is unknown, and counts at its worst" in advice.sentence
    again = Advice.from_dict(json.loads(json.dumps(advice.to_dict())))
    assert (again.sentence, again.trial.totals.unexplained) == (advice.sentence, short)
    stored = advice.to_dict()
    del stored["trial"]["totals"]["unexplained"]  # as in a file of an earlier release
    assert Advice.from_dict(stored).trial.totals.unexplained == 0


def test_the_loss_is_bounded_by_what_the_candidate_scores(tmp_path):
    scores = {0: (0.25, 0.5), 1: (1.0, 0.0), 2: (0.0, 0.5, 1.0)}
    path = written(tmp_path / "log.csv", [2, 2, 3], lambda q, r: scores[q][r - 1])
    units = measure_candidates(uncut(imported(path)), [ONE, TWO], "recorded", "score")
    assert units.totals.unexplained == 2
    assert units.worst.tolist() == [[0.75, 0.0, 1.0], [0.5, 1.0, 0.5]]
    assert units.best.tolist() == [[-0.25, -1.0, 1.0], [-0.5, 0.0, 0.5]]
    three = Policy(rule=fixed_k(3), max_rounds=3)  # it would have gone on
    longer = measure_candidates(uncut(imported(path)), [three], "recorded", "score")
    assert (longer.worst.tolist(), longer.best.tolist()) == ([[1.0, 1.0, 0.0]], [[-1.0, -1.0, 0.0]])


def test_agreement_with_an_answer_that_may_not_be_the_last_is_unknown(tmp_path):
    path = written(tmp_path / "log.csv", [2, 3], lambda q, r: 1.0)
    units = measure_candidates(uncut(imported(path)), [ONE], "recorded", "agreement")
    assert (units.worst.tolist(), units.best.tolist()) == ([[1.0, 0.0]], [[0.0, 0.0]])
    declared = measure_candidates(uncut(imported(path, ended="rule")), [ONE], "recorded", "agreement")
    assert (declared.worst.tolist(), declared.best.tolist()) == ([[0.0, 0.0]], [[0.0, 0.0]])


def test_a_certificate_is_refused_where_rounds_may_be_missing(lossy):
    with pytest.raises(CensoredError, match="--ended") as raised:
        certify(imported(lossy), ["fixed_k(1)"], Claim(epsilon=0.1, metric="score"))
    assert len(str(raised.value)) < 600
    declared = imported(lossy, ended="exhausted")
    assert certify(declared, ["fixed_k(1)"], Claim(epsilon=0.1, metric="score")).n == N


def test_fewer_samples_and_recordings_of_ones_own_are_not_missing_rounds(tmp_path):
    path = written(tmp_path / "log.csv", [2, 3] * 30, lambda q, r: 1.0)
    assert not imported(path, samples=True).unexplained.any()
    rows = [{"question_id": "a", "round": 1, "answer": "x", "end": "rule"}] + [
        {"question_id": "b", "round": r, "answer": "x", "end": "max_rounds"} for r in (1, 2)
    ]
    assert not Recording(build_table(rows)).unexplained.any()


def test_rows_missing_in_the_middle_are_refused(tmp_path):
    path = written(tmp_path / "log.csv", [3] * 40, lambda q, r: 1.0)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("question 7,2,")))
    done = cli("import", path, "-o", tmp_path / "log.parquet", "--metric-column", "score=score", "--yes", code=2)
    assert "question 7" in done.err
    assert "without gaps" in done.err


def test_failed_questions_stand_in_the_sentence_of_the_advice(tmp_path):
    rows = [
        {
            "question_id": f"q{q}",
            "round": r,
            "answer": "a",
            "score": 1.0,
            "end": "failed" if q % 100 == 0 else "max_rounds",
        }
        for q in range(1500)
        for r in (1, 2, 3)
    ]
    log = Recording(build_table(rows, {"score": "metric"}))
    counted, left_out = (decide(log, metric="score", max_loss=0.05, leave_out_failed=out) for out in (False, True))
    assert counted.verdict == left_out.verdict == "do it"
    assert f"{counted.trial.totals.failed} questions failed while recording and count as lost." in counted.sentence
    assert left_out.sentence.endswith("Questions that failed are left out, as declared.")
    none = replace(counted, trial=replace(counted.trial, totals=replace(counted.trial.totals, failed=0)))
    assert "failed" not in none.sentence


def partly_failed(failing: int, first: int = 0, n: int = 200) -> Recording:
    """Return a recording with two rows of each question, of which `failing` failed in every tenth question."""
    rows = [
        {
            "question_id": f"q{q}-{copy}",
            "cluster": f"q{q}",
            "round": r,
            "answer": "a",
            "score": 1.0,
            "end": "failed" if q % 10 == 0 and copy < failing else "max_rounds",
        }
        for q in range(first, first + n)
        for copy in range(2)
        for r in (1, 2, 3)
    ]
    return Recording(build_table(rows, {"score": "metric"}))


def test_printed_means_leave_out_failed_questions_as_certify_does():
    for failing in (1, 2):
        advice = decide(partly_failed(failing), metric="score", max_loss=0.2)
        totals = advice.trial.totals
        assert totals.failed > 0
        assert totals.n_recorded == totals.n - (totals.failed if failing == 2 else 0)
        assert {figures.value for figures in advice.figures} == {1.0}
        assert advice.table().rows[0][1] == 3.0
        assert advice.figures[0].change[0] == pytest.approx(-totals.failed / totals.n * failing / 2)
        again = Advice.from_dict(advice.to_dict()).trial.totals
        assert again.n_recorded == totals.n_recorded


def test_continued_sums_of_an_earlier_release_stay_means():
    """Release 0.4 counted each failed row as 0, and did not write how many questions have another one."""
    stored = decide(partly_failed(1), metric="score", max_loss=0.2).to_dict()
    totals = stored["trial"]["totals"]
    n, failed = totals["n"], totals["failed"]
    del totals["n_recorded"]
    kept = 1 - 0.5 * failed / n
    totals["values"] = [kept * value for value in totals["values"]]
    totals["costs"]["calls"] = [kept * calls for calls in totals["costs"]["calls"]]
    old = Advice.from_dict(stored)
    assert old.figures[0].value == pytest.approx(kept)
    assert any("failed recordings count as 0" in note for note in old.notes)
    more = decide(partly_failed(1, first=200), previous=old)
    assert more.n > n
    new = Advice.from_dict(more.to_dict())
    for advice in (more, new):
        mean = (kept * n + advice.n - n) / advice.n
        assert [figures.value for figures in advice.figures] == pytest.approx([mean] * len(advice.figures))
        assert advice.table().rows[0][1] == pytest.approx(3 * mean)
        assert sum("failed recordings count as 0" in note for note in advice.notes) == 1
    assert not any("failed recordings" in note for note in decide(partly_failed(1), metric="score", max_loss=0.2).notes)


def test_a_decision_states_of_how_many_questions_something_is_recorded():
    totals = decide(partly_failed(2), metric="score", max_loss=0.2).trial.totals
    stored = totals.to_dict()
    assert (stored["n_recorded"], Totals.from_dict(stored).n_recorded) == (totals.n - totals.failed,) * 2
    assert "n_recorded" not in decide(partly_failed(0), metric="score", max_loss=0.2).trial.totals.to_dict()
