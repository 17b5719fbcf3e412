"""What never ran is unknown to gates, selectors and diagnostics too, on real answers cut by a coin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.errors import CensoredError
from suffice.evaluation.replay import policy_for
from suffice.evaluation.statistics import Resampling
from suffice.recordings.recording import Recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.diagnostics import diagnose
from suffice.verdicts.diagnostics.selection import compare_selectors
from suffice_gates.gates import GateEvaluation
from tests.suffice.verdicts.test_diagnose_stops import made
from tests.support.cli_tools import cli
from tests.support.coin import RULE, no_false_gain


def shortened(recording: Recording, keep: int, every: int = 2) -> Recording:
    """Every second question of a recording ended by a rule after `keep` rounds."""
    cut = set(recording.question_ids[::every])
    rows = [
        {**row, "end": "rule" if row["question_id"] in cut else row["end"]}
        for row in recording.table.to_pylist()
        if row["question_id"] not in cut or row["round"] <= keep
    ]
    return Recording(build_table(rows))


def test_gates_refuse_questions_whose_retrieval_never_ran(cut, cut_path):
    with pytest.raises(CensoredError, match=f"{cut.heads.sum()} of {len(cut.heads)}"):
        GateEvaluation(cut.cut, metrics=("em",), resampling=Resampling(n_resamples=10))
    refused = cli(
        "gate", "compare", cut_path, "--column", "p_known", "--no-questions", "--metric", "em", "--set=resamples=20"
    )
    assert refused.code == 1
    assert "full width" in refused.error
    no_false_gain(cut, refused.out)


def test_selectors_refuse_a_rule_that_goes_on_past_the_recording(cut, cut_path):
    with pytest.raises(CensoredError, match="a rule ended"):
        compare_selectors(
            cut.cut,
            [policy_for(cut.cut, "full")],
            ["last", "majority"],
            metric="em",
            resampling=Resampling(n_resamples=10),
        )
    whole = cut_path.parent / "whole.parquet"
    write_recording(whole, cut.whole.table, cut.whole.metadata)
    refused = cli(
        "data", "selectors", cut_path, "--tune", whole, "--rule", "full", "--selector", "last", "--metric", "em"
    )
    assert refused.code == 1
    no_false_gain(cut, refused.out)


def test_selectors_ignore_the_best_round_where_some_never_ran():
    recording = made(5)
    cut = shortened(recording, keep=2)
    rule = policy_for(cut, "fixed_k(2)")
    exact, partly = (
        compare_selectors(item, [rule], ["first"], resampling=Resampling(n_resamples=20)).row("fixed_k(2)", "first")
        for item in (recording, cut)
    )
    assert (partly.quality, partly.delta, partly.gap_seen) == (exact.quality, exact.delta, exact.gap_seen)
    assert math.isnan(partly.oracle_full)
    assert all(map(math.isnan, partly.gap_full))
    assert not math.isnan(exact.oracle_full)
    notes = compare_selectors(cut, [rule], ["first"], resampling=Resampling(n_resamples=20)).notes
    assert any("the best of all rounds is unknown" in note for note in notes)


def test_diagnose_prints_no_false_gain(cut, cut_path):
    options = ("--metric", "em", "--set=quality=em", "--set=types=question_type", "--set=resamples=20")
    for rule in ("full", "fixed_k(1)", RULE):
        short = cli("diagnose", cut_path, "--rule", rule, *options)
        no_false_gain(cut, short.out)
        assert f"censored: a rule ended {cut.heads.sum()} of" in short.out
        printed = cli("diagnose", cut_path, "--rule", rule, *options, "--details", code=0)
        no_false_gain(cut, printed.out)
        assert f"censored: a rule ended {cut.heads.sum()} of" in printed.out
    unknown = cli("diagnose", cut_path, "--rule", "full", *options, "--details").out
    assert f"'em' is unknown where full stops in {cut.heads.sum()} of" in unknown
    assert "by question_type" not in unknown
    against = cli("diagnose", cut_path, "--rule", RULE, *options, "--baseline", "fixed_k(1)", "--details").out
    assert "because a rule had ended the recording of some questions: no types" in against


def test_types_of_a_cut_recording_are_compared_with_what_was_recorded():
    cut = shortened(made(5), keep=2)
    types = diagnose(cut, policy="fixed_k(2)", resampling=Resampling(n_resamples=20)).parts["types"]
    assert types.baseline == "recorded"
    last = cut.seen.sum(axis=1) - 1
    recorded = cut.column("f1")[np.arange(len(last)), last].mean()
    assert types.rows[-1].baseline == pytest.approx(recorded)
    assert (
        diagnose(made(5), policy="fixed_k(2)", resampling=Resampling(n_resamples=20)).parts["types"].baseline
        == "fixed_k(3)"
    )


def test_what_would_have_come_after_a_cut_counts_in_no_fate():
    recording, cut = made(5), shortened(made(5), keep=3)
    policy = policy_for(recording, "fixed_k(2)")
    whole, partly = (
        diagnose(item, policy=policy, resampling=Resampling(n_resamples=20)).parts["premature"]
        for item in (recording, cut)
    )
    gone = set(cut.question_ids[::2])
    for name in ("right_later", "right_at_end", "spared"):
        kept = [q for q in getattr(whole, name).question_ids if q not in gone]
        assert list(getattr(partly, name).question_ids) == kept
        assert getattr(partly, name).share == pytest.approx(len(kept) / (whole.n - len(gone)))
    assert partly.wrong == whole.wrong
    assert partly.n_censored == len(gone)


def test_a_sweep_leaves_out_thresholds_whose_rounds_never_ran():
    recording, cut = made(5), shortened(made(5), keep=3)
    policy = policy_for(cut, "(answer_margin > 0.01) & (round >= 2)")
    swept = next(
        part
        for name, part in diagnose(cut, policy=policy, resampling=Resampling(n_resamples=20)).parts.items()
        if "margin" in name
    )
    exact = next(
        part
        for name, part in diagnose(recording, policy=policy, resampling=Resampling(n_resamples=20)).parts.items()
        if "margin" in name
    )
    unknown = [point for point in swept.points if math.isnan(point.quality)]
    assert unknown
    assert all(math.isnan(point.calls) and not point.on_front for point in unknown)
    own, known = (next(p for p in part.points if p.own) for part in (swept, exact))
    assert (own.quality, own.calls) == (known.quality, known.calls)
    assert any("need rounds that never ran" in note for note in swept.table().notes)


def test_a_floor_is_not_judged_where_it_goes_on_past_the_recording():
    from suffice.evaluation.replay import calibrate

    policy, _ = calibrate(made(1, prefix="t"), rule="(answer_stable >= 1) & (p_correct > 0.6)")
    recording, cut = made(4, n=80), shortened(made(4, n=80), keep=2)
    whole, partly = (
        diagnose(item, policy=policy, resampling=Resampling(n_resamples=20)).parts["floor"] for item in (recording, cut)
    )
    assert partly.n + partly.n_unmeasured == whole.n
    assert partly.n_unmeasured > 0
    judged = {q for group in (partly.unchanged, partly.rescued, partly.harmed, partly.spent_right, partly.spent_wrong)
              for q in group.question_ids}  # fmt: skip
    for name in ("unchanged", "rescued", "harmed", "spent_right", "spent_wrong"):
        kept = [q for q in getattr(whole, name).question_ids if q in judged]
        assert list(getattr(partly, name).question_ids) == kept


def test_a_rule_beyond_the_recording_has_no_calibrator_or_cell_figures():
    tune = made(1, prefix="t")
    policy, _ = calibrate_tasr(tune)
    cut = shortened(made(4, n=80), keep=2)
    found = diagnose(
        cut, policy=policy, tune=tune, cells={"other": made(6, prefix="o")}, resampling=Resampling(n_resamples=20)
    )
    assert all(math.isnan(form.quality) and math.isnan(form.calls) for form in found.parts["calibration"].forms)
    here, other = found.parts["cells"].cells
    assert math.isnan(here.quality)
    assert math.isnan(here.calls)
    assert not math.isnan(other.quality)


def calibrate_tasr(tune):
    from suffice.evaluation.replay import calibrate

    return calibrate(tune, rule="tasr")
