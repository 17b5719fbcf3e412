"""Calibrating a policy on tune questions."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest

from suffice.errors import DataError, NotFittedError, UnknownSignalError, UnsettledError
from suffice.evaluation.replay import calibrate, replay
from suffice.policy.calibration import Calibrator, calibration_report
from suffice.policy.rounds import Round
from suffice.policy.rules import parse_selector, tasr
from suffice.policy.seen import id_hash
from suffice.policy.session import Policy, Session, stops
from suffice.policy.signals import AnswerPosition, Idf
from suffice.recordings import write_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.support.cli_tools import cli


def questions(n: int = 60, highest: int = 4, seed: int = 0, prefix: str = "q", drop: tuple[str, ...] = ()) -> Recording:
    """Questions whose margins tell right from wrong a little."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(n):
        before = None
        score = float(rng.gamma(3.0))
        for r in range(1, highest + 1):
            right = bool(rng.random() < 0.2 + 0.12 * r)
            answer = "tempest" if right else str(rng.choice(["storm", "sea"]))
            row = {
                "question_id": f"{prefix}{q}",
                "round": r,
                "end": "failed" if q == n - 1 else "max_rounds",
                "answer": answer,
                "em": float(right),
                "f1": 1.0 if right else float(rng.choice([0.0, 0.4, 0.6])),
                "answer_margin": float(rng.exponential(2.0 if right else 1.0)),
                "verbal_confidence": float(rng.integers(1, 6)),
                "answer_stable": None if before is None else float(answer == before),
                "top_score": score,
                "overlap": None if r == 1 else float(rng.random()),
                "cost.generator.calls": 1.0,
            }
            rows.append({name: value for name, value in row.items() if name not in drop})
            before = answer
    return Recording(build_table(rows))


RECORDING = questions()
KEPT = RECORDING.select(RECORDING.ends != "failed")


def test_tasr_gets_the_calibrator_of_the_margin_and_is_ready_to_save(tmp_path):
    policy, summary = calibrate(RECORDING)
    expected = Calibrator().fit(KEPT.column("answer_margin"), KEPT.column("em"), index=KEPT.index)
    assert policy.calibrators == (expected,)
    assert (policy.rule, policy.max_rounds, policy.label) == (tasr(), 4, "tasr")
    policy.check(frozenset({"logprobs"}))
    policy.save(tmp_path / "policy.json")
    assert Policy.load(tmp_path / "policy.json") == policy
    assert json.dumps(summary.to_dict(), allow_nan=False)
    assert (summary.n, summary.n_failed, summary.target) == (59, 1, "em")


def test_the_fit_figures_are_those_of_the_calibration_report():
    policy, summary = calibrate(RECORDING)
    (fit,) = summary.fits
    p_correct = policy.calibrators[0].predict(KEPT.column("answer_margin"), index=KEPT.index)
    expected = calibration_report(p_correct, KEPT.column("em"))
    np.testing.assert_equal(asdict(fit.report), asdict(expected))  # NaN in empty bins
    assert (fit.output, fit.signal, fit.rounds_fitted) == ("p_correct", "answer_margin", {1: 59, 2: 59, 3: 59, 4: 59})


def test_calibrators_by_method_and_round_are_compared_with_the_rules_outcome():
    policy, summary = calibrate(RECORDING, method="platt", per_round=False)
    forms = [(item.method, item.per_round, item.chosen) for item in summary.comparisons]
    assert forms == [
        ("isotonic", True, False),
        ("isotonic", False, False),
        ("platt", True, False),
        ("platt", False, True),
    ]
    own = replay(RECORDING, [policy]).rows[0]
    chosen = summary.comparisons[-1]
    assert (chosen.quality, chosen.calls) == (own.metrics["f1"], own.calls.mean)
    assert chosen.brier == {"p_correct": summary.fits[0].report.brier}
    assert summary.comparisons[0].brier["p_correct"] < summary.comparisons[1].brier["p_correct"]


def test_each_calibrator_is_fitted_once_and_only_the_chosen_without_comparison(monkeypatch):
    forms, fit = [], Calibrator.fit

    def counted(calibrator, *arguments, **options):
        forms.append((calibrator.method, calibrator.per_round))
        return fit(calibrator, *arguments, **options)

    monkeypatch.setattr(Calibrator, "fit", counted)
    compared, _ = calibrate(RECORDING)
    assert len(forms) == len({*forms}) == 4
    forms.clear()
    alone, summary = calibrate(RECORDING, compare=False)
    assert forms == [("isotonic", True)]
    assert summary.comparisons == ()
    assert (alone.digest, alone.calibrators) == (compared.digest, compared.calibrators)


def test_replay_on_tune_questions_says_selected_here():
    policy, _ = calibrate(RECORDING)
    assert policy.provenance["tune_ids"] == sorted(id_hash(name) for name in KEPT.question_ids)
    assert policy.provenance["data_hash"] == RECORDING.data_hash
    assert set(policy.provenance["versions"]) == {"suffice", "python", "numpy", "scipy"}
    assert policy.provenance["fit"]["fits"][0]["report"]["brier"] > 0
    here = replay(RECORDING, [policy]).rows[0]
    there = replay(questions(prefix="e", seed=1), [policy]).rows[0]
    assert (here.selected_here, here.n_selected, there.selected_here) == (True, 59, False)


def test_a_calibrated_policy_decides_live_as_it_replays():
    policy, _ = calibrate(RECORDING)
    other = questions(prefix="e", seed=2)
    stopped = stops(policy, other.rounds(policy.raw_columns))
    margins = other.column("answer_margin")
    for q in range(len(other.question_ids)):
        session = Session(policy)
        for position, r in enumerate(other.index.tolist()):
            observed = Round(
                index=r, answer=other.answers[q, position], signals={"answer_margin": float(margins[q, position])}
            )
            decision = session.observe(observed)
            if decision.stop:
                break
        assert (decision.stop_round, decision.answer_round) == (stopped.rounds[q], stopped.answer_rounds[q])


@pytest.mark.parametrize("target", ["em", "f1 > 0.5", "f1>=0.4", "agreement", "agreement_f1", "f1"])
def test_targets_may_be_em_a_threshold_agreement_or_a_column(target):
    policy, summary = calibrate(RECORDING, target=target)
    assert policy.calibrators[0].target == summary.target == target
    assert any("sameness" in note for note in summary.notes) == target.startswith("agreement")
    assert summary.quality_metric == ("agreement_f1" if target.startswith("agreement") else "f1")


def test_without_gold_answers_agreement_calibrates():
    bare = questions(drop=("em", "f1"))
    policy, summary = calibrate(bare, target="agreement")
    assert summary.quality_metric == "agreement_f1"
    assert 0 < summary.comparisons[0].quality <= 1
    row = replay(bare, [policy], metrics=("agreement",)).rows[0]
    assert 0 < row.metrics["agreement"] <= 1
    with pytest.raises(DataError, match="'em'"):
        calibrate(bare)


def test_calibrated_signals_that_the_policy_reads_are_fitted_others_on_request():
    both, _ = calibrate(RECORDING, rule="calibrated_confidence > 0.5", selector=parse_selector("max_p_correct"))
    assert [item.output for item in both.calibrators] == ["calibrated_confidence", "p_correct"]
    extra, _ = calibrate(RECORDING, rule="answer_stable", signals=["p_correct"])
    assert [item.output for item in extra.calibrators] == ["p_correct"]
    none, summary = calibrate(RECORDING, rule="answer_stable")
    assert none.calibrators == ()
    assert summary.comparisons == () == summary.fits
    with pytest.raises(DataError, match="'overlap'"):
        calibrate(RECORDING, signals=["overlap"])


def test_z_scores_are_fitted_on_one_value_a_question():
    policy, summary = calibrate(RECORDING, rule="top_score_z > 0")
    scores = KEPT.column("top_score")[:, 0]
    assert policy.state["top_score_z"].to_dict() == pytest.approx(
        {"type": "zscore", "center": scores.mean(), "scale": scores.std()}
    )
    assert summary.state == ("top_score_z",)
    assert 0 < replay(RECORDING, [policy]).rows[0].stop_rounds[1] < 1


def test_a_z_score_skips_rounds_without_a_ranking():
    rows = [
        {"question_id": f"q{q}", "round": r, "answer": "a", "em": 1.0, "top_score": score if r else None}
        for q, score in enumerate([2.0, 4.0])
        for r in (0, 1)
    ]
    policy, _ = calibrate(Recording(build_table(rows)), rule="top_score_z > 0")
    assert policy.state["top_score_z"].to_dict() == {"type": "zscore", "center": 3.0, "scale": 1.0}


def test_the_recorders_document_frequencies_are_copied_into_the_policy():
    idf = Idf.fit(["the tempest", "the storm"])
    stored = questions()
    stored.metadata["state"] = {"overlap": idf.to_dict()}
    policy, summary = calibrate(stored, rule="overlap > 0.5")
    assert policy.state == {"overlap": idf}
    assert summary.notes == (
        "the questions that the state of 'overlap' was fitted on are unknown: if some are here, figures on them flatter",
    )
    without, summary = calibrate(RECORDING, rule="overlap > 0.5")
    assert without.state == {}
    assert "cannot run live" in summary.notes[0]
    stored.metadata["state"] = {"overlap": Idf.fit(["another corpus"]).to_dict()}
    with pytest.raises(DataError, match="fitted state"):
        replay(stored, [policy])


def test_an_unseen_round_is_an_error_unless_told():
    short = questions(highest=2)
    strict, _ = calibrate(short, max_rounds=4)
    nearest, _ = calibrate(short, max_rounds=4, unseen_round="nearest")
    longer = questions(prefix="e", seed=3)
    with pytest.raises(NotFittedError, match="round 3"):
        replay(longer, [strict])
    assert replay(longer, [nearest]).rows[0].n == 59


def test_the_policy_inherits_what_the_recording_depends_on():
    recording = questions()
    recording.metadata.update(depends={"model": "m"}, config={"answer_position": AnswerPosition().to_dict()})
    policy, _ = calibrate(recording, name="mine", provenance={"by": "me"})
    assert (policy.depends, policy.label, policy.provenance["by"]) == ({"model": "m"}, "mine", "me")


def test_a_recording_without_margins_cannot_be_calibrated():
    with pytest.raises(UnknownSignalError, match="no column"):
        calibrate(questions(drop=("answer_margin",)))
    rows = [{"question_id": f"q{q}", "round": 1, "answer": "a", "em": 1.0, "answer_margin": None} for q in range(3)]
    with pytest.raises(DataError, match="'answer_margin'"):
        calibrate(Recording(build_table(rows)))


def test_several_models_are_calibrated_one_by_one(tmp_path):
    parts = [
        questions(prefix=name).table.append_column("model", [[name] * len(questions().table)]) for name in ("a", "b")
    ]
    both = Recording(pa.concat_tables(parts))
    with pytest.raises(UnsettledError, match="loops of 2") as error:
        calibrate(both)
    assert [*error.value.choices] == ["--where model=a", "--where model=b"]
    policy, fit = calibrate(both.where(model="b"))
    assert (fit.n, policy.depends["model"]) == (calibrate(questions())[1].n, "b")
    write_recording(tmp_path / "both.parquet", both.table)
    command = ["calibrate", tmp_path / "both.parquet", "-o", tmp_path / "policy.json", "--rule", "tasr"]
    assert "--where model=b" in cli(*command).err
    assert cli(*command, "--where", "model=b").code == 0
