"""A baseline returns answers by the selector of the policy that it is compared with; its label says which."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.evaluation.replay import policy_for, replay
from suffice.evaluation.statistics import Resampling
from suffice.policy.calibration import Calibrator
from suffice.policy.rules import parse_selector
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import Claim
from suffice.verdicts.certificates.losses import measure_losses
from suffice.verdicts.diagnostics import diagnose
from tests.support.cli_tools import cli
from tests.support.replayed import replay_in_blocks
from tests.support.shared import recording_of

RULE = "vote_lead >= 2"
ROUNDS = 10


def votes(answers: list[str], k: int) -> str:
    """Return the most frequent of the first k answers, among tied ones the one that came last: a plain loop."""
    counts = Counter(answers[:k])
    return next(answer for answer in reversed(answers[:k]) if counts[answer] == max(counts.values()))


def lead(answers: list[str], k: int) -> int:
    first, second, *_ = [*sorted(Counter(answers[:k]).values(), reverse=True), 0, 0]
    return first - second


def sampled(n: int = 300, seed: int = 1) -> list[list[str]]:
    """Ten independent samples for each question; "a" is right, and most often so, but not on every question."""
    rng = np.random.default_rng(seed)
    chances = rng.beta(3.0, 2.0, size=n)
    return [
        ["a" if rng.random() < chance else str(rng.choice(["b", "c"])) for _ in range(ROUNDS)] for chance in chances
    ]


SAMPLES = sampled()


@pytest.fixture(scope="module")
def recording() -> Recording:
    leads = [[float(lead(answers, k)) for k in range(1, ROUNDS + 1)] for answers in SAMPLES]
    return recording_of(SAMPLES, kinds={"vote_lead": "signal"}, vote_lead=leads)


def voted(k: int) -> float:
    return float(np.mean([votes(answers, k) == "a" for answers in SAMPLES]))


def single(k: int) -> float:
    return float(np.mean([answers[k - 1] == "a" for answers in SAMPLES]))


def by_rule() -> float:
    stops = [next((k for k in range(1, ROUNDS + 1) if lead(a, k) >= 2), ROUNDS) for a in SAMPLES]
    return float(np.mean([votes(a, k) == "a" for a, k in zip(SAMPLES, stops, strict=True)]))


def policy(recording: Recording, selector: str, name: str = "", rule: str = RULE) -> Policy:
    return policy_for(recording, rule, selector=parse_selector(selector), name=name or f"{rule} by {selector}")


def test_a_vote_is_compared_with_the_full_vote(recording):
    ours = policy(recording, "majority")
    result = replay(recording, [ours], metrics=("em",), baseline="full", resampling=Resampling(n_resamples=50))
    row = result.row(ours.label)
    assert (row.baseline, row.selector) == ("fixed_k(10), majority", "majority")
    assert row.metrics["em"] == pytest.approx(by_rule())
    assert row.deltas["em"].delta == pytest.approx(by_rule() - voted(ROUNDS))
    assert row.deltas["em"].delta < 0.0 < by_rule() - single(ROUNDS)  # a single sample would make it a gain
    for k in range(1, ROUNDS + 1):
        assert result.row(f"fixed_k({k}), majority").metrics["em"] == pytest.approx(voted(k))
    assert not any(other.label == "fixed_k(10)" for other in result.rows)


def test_each_selector_in_use_has_its_own_frontier_and_its_own_baseline(recording):
    last, majority = policy(recording, "last"), policy(recording, "majority")
    result = replay(recording, [last, majority], metrics=("em",), resampling=Resampling(n_resamples=50))
    assert (result.row(last.label).baseline, result.row(majority.label).baseline) == (
        "fixed_k(3)",
        "fixed_k(3), majority",
    )
    assert result.row(f"random({majority.label})").baseline == "fixed_k(3), majority"
    for k in range(1, ROUNDS + 1):
        assert result.row(f"fixed_k({k})").metrics["em"] == pytest.approx(single(k))
        assert result.row(f"fixed_k({k}), majority").metrics["em"] == pytest.approx(voted(k))
    assert result.against == "the baseline of its selector"
    assert "vs fixed_k(3), majority" in result.headline(majority.label)
    alone = replay(recording, [last], metrics=("em",), resampling=Resampling(n_resamples=50))
    assert [row.label for row in alone.rows if row.kind == "fixed"] == [f"fixed_k({k})" for k in range(1, ROUNDS + 1)]
    assert alone.row(last.label).deltas["em"].delta == result.row(last.label).deltas["em"].delta


def test_a_baseline_named_by_its_row_serves_all_policies(recording):
    last, majority = policy(recording, "last"), policy(recording, "majority")
    for baseline in (last.label, "oracle_best", "fixed_k(10), majority"):
        result = replay(
            recording, [last, majority], metrics=("em",), baseline=baseline, resampling=Resampling(n_resamples=10)
        )
        assert {row.baseline for row in result.rows} == {baseline}
    named = replay(
        recording,
        [majority],
        metrics=("em",),
        baseline=policy(recording, "last", "x"),
        resampling=Resampling(n_resamples=10),
    )
    assert named.row(majority.label).baseline == "x"
    beyond = replay(
        recording, [last, majority], metrics=("em",), baseline="vote_lead >= 3", resampling=Resampling(n_resamples=10)
    )
    assert [row.baseline for row in beyond.rows[:2]] == ["vote_lead >= 3", "vote_lead >= 3, majority"]


def test_a_selector_with_its_own_fitted_state_has_its_own_frontier(recording):
    def fitted(turned: bool) -> Calibrator:
        column, em = recording.column("vote_lead"), recording.column("em")
        made = Calibrator(output="p_correct", signal="vote_lead", per_round=False)
        return made.fit(column, 1 - em if turned else em, index=recording.index)

    items = [
        policy_for(recording, RULE, selector=parse_selector("max_p_correct"), calibrators=(fitted(turned),), name=name)
        for name, turned in (("one", False), ("two", True))
    ]
    result = replay(recording, items, metrics=("em",), resampling=Resampling(n_resamples=10))
    assert result.row("one").baseline == "fixed_k(3), max_p_correct"
    assert result.row("two").baseline == "fixed_k(3), max_p_correct #2"
    assert (
        replay(recording, items[:1] * 2, metrics=("em",), resampling=Resampling(n_resamples=10)).against
        == "fixed_k(3), max_p_correct"
    )


def test_a_certificate_compares_a_vote_with_the_full_vote(recording):
    claim = Claim(epsilon=0.05, metric="em")
    measured = measure_losses(recording, [policy(recording, "majority")], claim)
    assert measured.baseline == "full, majority"
    assert measured.baseline_values.mean() == pytest.approx(voted(ROUNDS))
    assert measured.losses.mean() == pytest.approx(voted(ROUNDS) - by_rule())
    with pytest.raises(DataError, match="majority, last"):
        measure_losses(recording, [policy(recording, "majority"), policy(recording, "last")], claim)


def test_a_stream_and_a_diagnosis_compare_votes_with_fixed_budget_votes(recording, tmp_path):
    write_recording(tmp_path / "r.parquet", recording.table)
    ours = policy(recording, "majority")
    streamed = replay_in_blocks(tmp_path / "r.parquet", ours, metrics=("em",), baseline="full")
    assert streamed.baseline == f"fixed_k({ROUNDS}), majority"
    assert streamed.row(streamed.baseline).metrics["em"] == pytest.approx(voted(ROUNDS))
    rows = [{**row, "question_type": "any"} for row in recording.table.to_pylist()]
    typed = Recording(build_table(rows, kinds={"vote_lead": "signal"}))
    part = diagnose(typed, policy=ours, quality="em", baseline="full", resampling=Resampling(n_resamples=10)).parts[
        "types"
    ]
    assert (part.baseline, part.rows[0].baseline) == ("full, majority", pytest.approx(voted(ROUNDS)))


def test_the_command_has_a_selector_and_a_highest_round(recording, tmp_path):
    path = tmp_path / "r.parquet"
    write_recording(path, recording.table)
    how = ("--metric", "em", "--set=resamples=20", "--selector", "majority", "--max-rounds", "4", "--baseline", "full")
    result = cli("replay", path, "--rule", RULE, *how, "--json").json
    row = result["rows"][0]
    assert (row["label"], row["baseline"]) == ("vote_lead >= 2, majority", "fixed_k(10), majority")
    assert max(map(int, row["stop_rounds"])) == 4
    assert " vs fixed_k(10), majority); " in cli("replay", path, "--rule", RULE, *how).out.splitlines()[0]
    assert "Δem vs fixed_k(10), majority" in cli("replay", path, "--rule", RULE, *how, "--details").out
    cli("report", path, "--rule", RULE, "--metric", "em", "--set=resamples=20", "--format", "md", code=0)


def test_what_was_recorded_at_full_width_is_the_full_budget(recording):
    recorded, full = (
        replay(recording, ["fixed_k(1)"], metrics=("em",), baseline=name, resampling=Resampling(n_resamples=10))
        for name in ("recorded", "full")
    )
    assert recorded.baseline == full.baseline
    assert recorded.row("fixed_k(1)").deltas["em"].delta == full.row("fixed_k(1)").deltas["em"].delta
