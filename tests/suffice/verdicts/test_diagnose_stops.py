"""Diagnostics of calibrators, thresholds, types, stops and cells: against replay and plain loops, and bad input."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from suffice.cli.main import run
from suffice.common.results import jsonable
from suffice.errors import ConfigMismatchError, DataError, NotFittedError
from suffice.evaluation.replay import calibrate, policy_for, replay
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import Resampling
from suffice.policy.calibration import Calibrator
from suffice.policy.rules import parse_rule, thresholds
from suffice.policy.rules.algebra import with_threshold
from suffice.policy.session import Policy, stops
from suffice.recordings import write_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice.verdicts.diagnostics import (
    compare_cells,
    cross_fitted_signal,
    diagnose,
    matching_threshold,
    pareto_knee,
    sweep_threshold,
    without_floor,
)
from suffice.verdicts.diagnostics.sweep import _front
from tests.support.replayed import equivalent_thresholds
from tests.support.strategies import policies, recorded

NAN = math.nan


def made(seed: int = 0, n: int = 60, width: int = 4, *, prefix: str = "q", end: str = "max_rounds", scale: float = 1.0):
    """A recording whose margins tell right from wrong; answers change now and then, and so does what is right."""
    rng = np.random.default_rng(seed)
    listed = []
    for q in range(n):
        answer = int(rng.integers(3))
        for r in range(1, width + 1):
            before = answer
            answer = int(rng.integers(3)) if rng.random() < 0.35 else answer
            right = float(answer == 0)
            listed.append(
                {
                    "question_id": f"{prefix}{q}",
                    "round": r,
                    "end": end,
                    "question": f"Which is {prefix}{q}?",
                    "question_type": ("bridge", "comparison")[q % 3 == 0],
                    "answer": f"answer {answer}",
                    "em": right,
                    "f1": max(right, float(rng.random() < 0.3) / 2),
                    "answer_margin": scale * round(abs(rng.normal(right, 1)), 3),
                    "answer_stable": NAN if r == 1 else float(answer == before),
                    "cost.generator.calls": 1.0,
                    "cost.generator.uncached_tokens": 100.0 * r,
                    "cost.generator.cached_tokens": 0.0,
                    "cost.generator.output_tokens": 5.0,
                }
            )
    return Recording(build_table(listed))


def prepared_for(recording: Recording, policy: Policy) -> PreparedRecording:
    return PreparedRecording.of(recording, ["f1", "em"])


# --- threshold sweep ------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_point_of_a_sweep_is_what_replay_says_of_that_threshold(data):
    recording = data.draw(recorded()).recording
    policy = data.draw(policies(recording))
    for literal in thresholds(policy.rule):
        prepared = prepared_for(recording, policy)
        swept = sweep_threshold(prepared, policy, literal)
        assert [point.own for point in swept.points].count(True) == 1
        assert (swept.points[0].low, swept.points[-1].high) == (-math.inf, math.inf)
        closed = literal.comparison in (">", "<=")
        for point in swept.points:
            ends = (point.low, NAN) if closed else (NAN, point.high)
            for value in (point.value, *(end for end in ends if math.isfinite(end))):
                moved = replace(policy, rule=with_threshold(policy.rule, literal, value))
                run, stopped = run_policy(prepared, moved)
                assert point.quality == pytest.approx(run.values["f1"].mean(), abs=1e-12)
                assert point.calls == pytest.approx(run.ledger.calls.mean(), abs=1e-12)
                last = stopped.view.seen.sum(axis=1) - 1
                assert point.early == pytest.approx((stopped.position < last).mean())


@pytest.mark.parametrize(
    "text", ["answer_margin > 1", "answer_margin >= 1", "answer_margin < 0.5", "answer_margin <= 0.5"]
)
def test_the_interval_of_the_own_threshold_is_that_of_equivalent_thresholds(text):
    recording = made()
    policy = policy_for(recording, f"(answer_stable >= 1) & ({text})")
    literal = thresholds(policy.rule)[1]
    swept = sweep_threshold(prepared_for(recording, policy), policy, literal)
    own = next(point for point in swept.points if point.own)
    assert (own.low, own.high) == equivalent_thresholds(policy, recording.rounds(policy.raw_columns), literal)
    assert own.value == literal.value


@pytest.mark.parametrize("comparison", [">", ">=", "<", "<="])
def test_a_threshold_equal_to_a_recorded_value_is_on_its_own_side(comparison):
    recording = made()
    for value in recording.column("answer_margin")[:4, 0].tolist():
        policy = policy_for(recording, f"answer_margin {comparison} {value}")
        prepared = prepared_for(recording, policy)
        own = next(p for p in sweep_threshold(prepared, policy, thresholds(policy.rule)[0]).points if p.own)
        run, _ = run_policy(prepared, policy)
        assert (own.value, own.calls) == (value, run.ledger.calls.mean())
        assert own.quality == pytest.approx(run.values["f1"].mean())


def test_thresholds_with_equal_stops_but_other_judge_costs_stay_separate():
    recording = made(n=5)
    table = recording.table
    for name, value in (("judge_entailment", 1.0), ("cost.judge:entailment.calls", 1.0)):
        table = table.append_column(name, [[value] * table.num_rows])
    recording = Recording(table)
    policy = policy_for(recording, "(answer_margin > 1) & (judge_entailment >= 4)")
    swept = sweep_threshold(prepared_for(recording, policy), policy, thresholds(policy.rule)[0])
    assert {point.early for point in swept.points} == {0.0}
    assert [swept.points[0].calls, swept.points[-1].calls] == [8.0, 4.0]
    assert len(swept.points) == len(np.unique(recording.column("answer_margin"))) + 1


def test_a_sweep_with_many_outcomes_shows_evenly_spaced_thresholds_and_says_so():
    recording = made(n=120)
    policy = policy_for(recording, "answer_margin > 1")
    swept = sweep_threshold(prepared_for(recording, policy), policy, thresholds(policy.rule)[0])
    assert len(swept.points) <= 41 < swept.n_outcomes
    assert any(point.own for point in swept.points)
    assert "different outcomes are shown" in " ".join(swept.table().notes)


def test_the_front_holds_what_no_other_point_beats():
    rng = np.random.default_rng(0)
    for _ in range(50):
        quality, calls = rng.integers(0, 5, 12) / 4, rng.integers(1, 5, 12).astype(float)
        front = _front(quality, calls)
        points = list(zip(quality, calls, strict=True))
        for q, c in {points[i] for i in front}:
            assert not any(a >= q and b <= c and (a, b) != (q, c) for a, b in points)
        best = {(q, c) for q, c in points if not any(a >= q and b <= c and (a, b) != (q, c) for a, b in points)}
        assert {points[i] for i in front} == best
        assert len(front) == len(best)


@pytest.mark.parametrize(
    ("quality", "calls", "knee"),
    [
        ([0.3, 0.58, 0.6], [1.0, 2.0, 5.0], 1),
        ([0.3, 0.31, 0.6], [1.0, 4.0, 5.0], None),  # bends the other way
        ([0.3, 0.45, 0.6], [1.0, 3.0, 5.0], None),  # straight
        ([0.3, 0.6], [1.0, 2.0], None),
        ([0.3, 0.5, 0.2, 0.58, 0.6], [1.0, 1.5, 1.6, 2.0, 5.0], 3),
    ],
)
def test_the_knee_lies_farthest_above_the_line_between_the_ends(quality, calls, knee):
    assert pareto_knee(np.array(quality), np.array(calls)) == knee


# --- calibrators ----------------------------------------------------------------------------------------------------


def test_calibrators_are_fitted_on_tune_and_judged_beside_the_rule():
    tune, recording = made(1, prefix="t"), made(2)
    found = diagnose(recording, policy="tasr", tune=tune, resampling=Resampling(n_resamples=20)).parts["calibration"]
    forms = {form.form: form for form in found.forms}
    assert set(forms) == {"the policy's", "per-round isotonic", "global isotonic", "per-round Platt", "global Platt"}
    em = recording.column("em")
    for name, (method, per_round) in {
        "global isotonic": ("isotonic", False),
        "per-round Platt": ("platt", True),
    }.items():
        fitted = Calibrator(method=method, per_round=per_round).fit(
            tune.column("answer_margin"), tune.column("em"), index=tune.index
        )
        p = fitted.predict(recording.column("answer_margin"), index=recording.index)
        assert forms[name].overall.brier == pytest.approx(np.mean((p - em) ** 2))
        assert forms[name].by_round[2].brier == pytest.approx(np.mean((p[:, 1] - em[:, 1]) ** 2))
        policy, _ = calibrate(tune, rule="tasr", method=method, per_round=per_round)
        row = replay(recording, [policy]).row("tasr")
        assert (forms[name].quality, forms[name].calls) == pytest.approx((row.metrics["f1"], row.calls.mean))
    assert jsonable(forms["the policy's"].overall) == jsonable(forms["per-round isotonic"].overall)


def test_a_recorded_probability_is_judged_without_tune_questions():
    recording = made()
    table = recording.table.append_column("p_correct", [[0.25] * recording.table.num_rows])
    found = diagnose(Recording(table), policy="tasr", resampling=Resampling(n_resamples=20)).parts["calibration"]
    assert [form.form for form in found.forms] == ["as recorded"]
    assert found.forms[0].overall.brier == pytest.approx(np.mean((0.25 - recording.column("em")) ** 2))
    assert math.isfinite(found.forms[0].calls)


# --- types, premature stops, the floor -------------------------------------------------------------------------------


def test_each_type_is_the_replay_of_its_own_questions():
    recording = made()
    found = diagnose(recording, policy="answer_stable", resampling=Resampling(n_resamples=200)).parts["types"]
    kinds = recording.per_question("question_type", [])
    assert [row.type for row in found.rows] == ["bridge", "comparison", "all"]
    for row in found.rows:
        part = recording if row.type == "all" else recording.select(kinds == row.type)
        alone = replay(part, ["answer_stable"], resampling=Resampling(n_resamples=200)).row("answer_stable")
        assert (row.n, row.quality, row.calls) == pytest.approx((alone.n, alone.metrics["f1"], alone.calls.mean))
        for got, name in ((row.delta, "f1"), (row.delta_calls, "calls")):
            expected = alone.deltas[name]
            assert (got.delta, got.low, got.high) == pytest.approx((expected.delta, expected.low, expected.high))


def fates(recording: Recording, policy: Policy) -> dict[str, set[str]]:
    """The fate of each question, by a plain loop."""
    position = stops(policy, recording.rounds(policy.raw_columns)).position.tolist()
    em, stable = recording.column("em"), recording.column("answer_stable")
    found: dict[str, set[str]] = {name: set() for name in ("early", "wrong", "later", "end", "spared", "held")}
    for q, (name, k) in enumerate(zip(recording.question_ids, position, strict=True)):
        last = int(recording.seen[q].sum()) - 1
        if k >= last:
            continue
        found["early"].add(name)
        if em[q, k] == 0:
            found["wrong"].add(name)
            if any(em[q, r] == 1 for r in range(k + 1, last + 1)):
                found["later"].add(name)
            if em[q, last] == 1:
                found["end"].add(name)
            if stable[q, k] == 1:
                found["held"].add(name)
        elif em[q, last] == 0:
            found["spared"].add(name)
    return found


@pytest.mark.parametrize("text", ["answer_stable", "answer_margin > 1.5", "(answer_stable >= 1) & (answer_margin > 1)"])
def test_premature_stops_are_those_of_a_plain_loop(text):
    recording = made(3)
    policy = policy_for(recording, text)
    found = diagnose(recording, policy=policy, resampling=Resampling(n_resamples=20)).parts["premature"]
    expected = fates(recording, policy)
    names = {
        "early": found.early, "wrong": found.wrong, "later": found.right_later, "end": found.right_at_end,
        "spared": found.spared, "held": found.stable_wrong,
    }  # fmt: skip
    for name, group in names.items():
        assert set(group.question_ids) == expected[name], name
        assert group.n == len(expected[name])
    assert found.right.n + found.wrong.n == found.early.n
    assert found.right_later.share == pytest.approx(found.right_later.n / found.early.n)
    assert found.wrong_and_stable_rate == pytest.approx(found.stable_wrong.n / found.stable.n)


def test_the_floor_is_compared_with_the_same_rule_without_it():
    tune, recording = made(1, prefix="t"), made(4, n=80)
    policy, _ = calibrate(tune, rule="(answer_stable >= 1) & (p_correct > 0.4)")
    found = diagnose(recording, policy=policy, resampling=Resampling(n_resamples=100)).parts["floor"]
    bare = replace(policy, rule=parse_rule("answer_stable"))
    at = {name: stops(p, recording.rounds(policy.raw_columns)).position for name, p in (("a", bare), ("b", policy))}
    em = recording.column("em")
    expected: dict[str, list[str]] = {"unchanged": []}
    for q, name in enumerate(recording.question_ids):
        a, b = int(at["a"][q]), int(at["b"][q])
        kind = "unchanged" if a == b else f"{int(em[q, a])}{int(em[q, b])}"
        expected.setdefault(kind, []).append(name)
    groups = {
        "unchanged": found.unchanged, "01": found.rescued, "10": found.harmed, "11": found.spent_right,
        "00": found.spent_wrong,
    }  # fmt: skip
    assert {kind: list(group.question_ids) for kind, group in groups.items() if group.n} == expected
    assert sum(group.share for group in groups.values()) == pytest.approx(1)
    assert found.delta.delta == pytest.approx((found.rescued.n - found.harmed.n) / found.n)
    assert found.delta_rounds.delta == pytest.approx((at["b"] - at["a"]).mean())
    assert min(found.rescued.n, found.harmed.n, found.spent_right.n, found.spent_wrong.n) > 0


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("(answer_stable >= 1) & (p_correct > 0.25)", "answer_stable >= 1"),
        ("(answer_stable >= 1) & (p_correct >= 0.25) & (abstained < 1)", "(answer_stable >= 1) & (abstained < 1)"),
        ("(answer_stable >= 1) | (p_correct > 0.25)", None),
        ("p_correct > 0.25", None),
        ("(answer_stable >= 1) & (p_correct < 0.25)", None),
        ("(p_correct > 0.2) & (p_correct > 0.25)", None),
    ],
)
def test_only_a_conjunction_with_one_lower_bound_has_a_floor(text, bare):
    found = without_floor(parse_rule(text))
    assert (None if found is None else str(found[0])) == bare


# --- cells ----------------------------------------------------------------------------------------------------------


def test_only_calibrated_thresholds_carry_over_to_another_scale():
    cells = {"first": made(5, n=200), "louder": made(5, n=200, scale=3.0), "smaller": made(6, n=40)}
    found = compare_cells(cells, rule=parse_rule("p_correct > 0.4"))
    first, louder, smaller = found.cells
    assert louder.raw_stops > first.raw_stops + 0.1
    assert (louder.stops, louder.quality, louder.calls) == pytest.approx((first.stops, first.quality, first.calls))
    assert (louder.mean, louder.sd) == pytest.approx((3 * first.mean, 3 * first.sd))
    assert (first.n, smaller.n) == (200, 40)


@pytest.mark.parametrize("text", ["p_correct > 0.4", "p_correct >= 0.4", "p_correct > 2", "p_correct >= 0"])
def test_the_raw_threshold_fires_as_often_as_the_calibrated_one(text):
    rng = np.random.default_rng(0)
    p = np.where(rng.random((50, 4)) < 0.1, NAN, rng.integers(0, 6, (50, 4)) / 5)
    recording = made(n=50)
    margin = rng.normal(5, 1, (50, 4))
    listed = recording.table.to_pylist()
    for row, value, raw in zip(listed, p.ravel(), margin.ravel(), strict=True):
        row["p_correct"], row["answer_margin"] = float(value), float(raw)
    found = compare_cells({"one": Recording(build_table(listed))}, rule=parse_rule(text))
    fires = p > float(text.split()[-1]) if "> " in text else p >= float(text.split()[-1])
    assert (margin > found.raw_threshold).sum() == fires.sum()
    assert matching_threshold(margin, fires) == found.raw_threshold


def test_a_rule_without_a_floor_on_the_probability_is_compared_as_tasr():
    for text in ("answer_stable", "p_correct < 0.5", "(p_correct > 0.2) | (p_correct > 0.6)"):
        assert compare_cells({"one": made()}, rule=parse_rule(text)).rule == "(answer_stable >= 1) & (p_correct > 0.25)"


def test_a_cross_fitted_probability_never_saw_its_question():
    recording = made(7)
    p = cross_fitted_signal(recording)
    listed = recording.table.to_pylist()
    for row in listed:
        if row["question_id"] == "q3":
            row["em"] = 1.0 - row["em"]
    changed = cross_fitted_signal(Recording(build_table(listed)))
    q = recording.question_ids.index("q3")
    assert changed[q].tolist() == p[q].tolist()
    assert not np.array_equal(changed, p)


# --- the whole ------------------------------------------------------------------------------------------------------


def test_every_diagnosis_part_needs_its_inputs_and_notes_missing_ones():
    recording, tune = made(), made(1, prefix="t")
    alone = diagnose(recording, resampling=Resampling(n_resamples=20))
    assert list(alone.parts) == ["signals", "correlations"]
    assert "no recording of tune questions" in alone.notes[0]
    assert "no policy" in alone.notes[1]
    full = diagnose(
        recording, policy="tasr", tune=tune, cells={"other": made(9)}, resampling=Resampling(n_resamples=20)
    )
    assert list(full.parts) == [
        "signals", "correlations", "drift", "calibration", "sweep p_correct > 0.25", "types", "premature", "floor", "cells",
    ]  # fmt: skip
    assert all("a model that is not named" in note for note in full.notes)  # `made` names none
    json.dumps(full.to_dict(), allow_nan=False)
    for table in full.tables():
        assert table.texts()
        json.dumps(table.to_dict(), allow_nan=False)


def test_shared_questions_and_a_policys_own_are_selected_here():
    recording = made()
    policy, _ = calibrate(recording, rule="tasr")
    said = " ".join(diagnose(recording, policy=policy, tune=recording, resampling=Resampling(n_resamples=20)).notes)
    assert "selected here: 60 questions are in the tune recording too" in said
    assert "the policy was fitted or selected on 60" in said


def test_the_same_seed_gives_the_same_numbers():
    recording, tune = made(), made(1, prefix="t")
    first, again, other = (
        diagnose(recording, policy="tasr", tune=tune, resampling=Resampling(n_resamples=50, seed=seed)).to_dict()
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_censored_recording_is_noted():
    found = diagnose(made(end="rule"), policy="answer_stable", resampling=Resampling(n_resamples=20))
    assert "censored: a rule ended 60 of 60" in found.notes[0]
    assert found.parts["premature"].n_censored == found.parts["premature"].early.n > 0
    assert "censored" in " ".join(found.parts["premature"].notes)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_right_or_all_wrong_leaves_no_warning(value):
    def flat(recording: Recording) -> Recording:
        return Recording(build_table([{**row, "em": value, "f1": value} for row in recording.table.to_pylist()]))

    found = diagnose(
        flat(made()),
        policy="tasr",
        tune=flat(made(1, prefix="t")),
        cells={"other": flat(made(2))},
        resampling=Resampling(n_resamples=20),
    )
    assert found.parts["calibration"].forms[0].overall.brier == 0
    json.dumps(found.to_dict(), allow_nan=False)


def test_one_question_of_one_round_is_enough():
    found = diagnose(
        made(n=1, width=1),
        policy="answer_margin > 1",
        cells={"other": made(n=1)},
        resampling=Resampling(n_resamples=20),
    )
    assert found.parts["premature"].early.n == 0
    assert math.isnan(found.parts["premature"].wrong.share)
    assert "cells" not in found.parts
    assert "cells are not compared" in " ".join(found.notes)


def test_missing_margins_are_notes_and_not_errors():
    listed = [{**row, "answer_margin": NAN} for row in made().table.to_pylist()]
    blank = Recording(build_table(listed))
    found = diagnose(
        blank,
        policy="answer_stable",
        tune=made(1, prefix="t"),
        cells={"other": made()},
        resampling=Resampling(n_resamples=20),
    )
    said = " ".join(found.notes)
    assert "no calibrated signal" in said
    assert "cells are not compared" in said
    without = Recording(made().table.drop_columns(["question_type", "answer_stable"]))
    bare = diagnose(without, policy="answer_margin > 1", resampling=Resampling(n_resamples=20))
    assert "no column 'question_type'" in " ".join(bare.notes)
    assert math.isnan(bare.parts["premature"].wrong_and_stable_rate)


def test_a_policy_that_does_not_belong_is_refused():
    recording = made()
    with pytest.raises(ConfigMismatchError, match="round 9"):
        diagnose(recording, policy=policy_for(recording, "answer_stable", max_rounds=9))
    with pytest.raises(NotFittedError, match="p_correct"):
        diagnose(recording, policy="tasr")


def test_the_command_prints_tables_and_json(tmp_path, capsys):
    for name, item in (("eval", made()), ("tune", made(1, prefix="t"))):
        write_recording(tmp_path / f"{name}.parquet", item.table)
    path, tune = str(tmp_path / "eval.parquet"), str(tmp_path / "tune.parquet")

    def told(*more: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            run(["diagnose", path, "--tune", tune, "--rule", "tasr", "--set=resamples=50", *more])
        return ended.value.code or 0, capsys.readouterr().out

    code, out = told("--json", "--cells", tune)
    data = json.loads(out)
    assert code == 0
    assert data["signals"]["signals"][0]["name"] == "answer_margin"
    assert [cell["cell"] for cell in data["cells"]["cells"]] == ["eval", "tune"]
    code, out = told("--details")
    assert code == 0
    assert "What p_correct > 0.25 changed: tasr against answer_stable >= 1" in out
    assert told("--policy", "p.json")[0] == 2
    assert told("--metric", "f1")[0] == 1


# --- charts ---------------------------------------------------------------------------------------------------------


def test_the_chart_of_signals_has_every_known_area_the_largest_first():
    result = diagnose(made(), resampling=Resampling(n_resamples=20))
    points = result.plot().spec["data"]["values"]
    areas = {item.name: item for item in result.parts["signals"].signals if not math.isnan(item.auroc)}
    assert {point["signal"]: (point["auroc"], point["low"], point["high"]) for point in points} == {
        name: (item.auroc, item.auroc_low, item.auroc_high) for name, item in areas.items()
    }
    assert [point["auroc"] for point in points] == sorted((item.auroc for item in areas.values()), reverse=True)


def test_a_sweeps_chart_marks_its_value_and_omits_unknown_ones():
    recording = made(n=40)
    policy = policy_for(recording, "answer_margin > 1")
    sweep = sweep_threshold(prepared_for(recording, policy), policy, thresholds(policy.rule)[0])
    spec = sweep.plot().spec
    points = spec["data"]["values"]
    assert [(p["threshold"], p["quality"], p["calls"]) for p in points] == [
        (p.value, 100 * p.quality, p.calls) for p in sweep.points
    ]
    assert sum(point["front"] for point in points) == len(sweep.front)
    own = next(point for point in sweep.points if point.own)
    assert [point["threshold"] for point in points if point["kind"] == "its own value"] == [own.value]
    assert {entry["name"] for entry in spec["usermeta"]["legend"]} == {point["kind"] for point in points}
    unknown = replace(sweep, points=(replace(sweep.points[0], quality=NAN), *sweep.points[1:]))
    assert len(unknown.plot().spec["data"]["values"]) == len(points) - 1


def test_a_diagnosis_draws_the_parts_that_have_a_chart_and_names_them():
    tune, recording = made(1, prefix="t"), made(2)
    result = diagnose(recording, policy="tasr", tune=tune, resampling=Resampling(n_resamples=20))
    (sweep,) = [name for name in result.parts if name.startswith("sweep")]
    assert result.plot() == result.parts["signals"].plot()
    assert result.plot(sweep) == result.parts[sweep].plot()
    reliability = result.plot("calibration").spec
    form = result.parts["calibration"].in_use("p_correct")
    assert form.form == "the policy's"
    drawn = [(p["predicted"], p["n"]) for p in reliability["data"]["values"] if p["group"] == "round 2"]
    assert drawn == [(b.predicted, b.n) for b in form.by_round[2].bins if b.n]
    for shown in (result.plot(), result.plot(sweep), result.plot("calibration")):
        assert "var(" not in json.dumps(shown.to_dict(), allow_nan=False)
    with pytest.raises(DataError, match="'types'"):
        result.plot("types")
    with pytest.raises(DataError, match="'p_known'.*p_correct"):
        result.parts["calibration"].plot("p_known")
