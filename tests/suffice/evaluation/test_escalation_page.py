"""The page of escalations: rules against mixtures of single models, and runs that are given up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks import escalation

from suffice import decide
from suffice.recordings import bundled_recording
from suffice.recordings.bundled import BUNDLED_ESCALATIONS, BUNDLED_VERIFIED
from suffice.recordings.runs import attempts_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "escalation.md"
DATA = Path(__file__).resolve().parents[3] / "src" / "suffice" / "data"


def test_a_gain_is_that_over_the_best_coin():
    rng = np.random.default_rng(2)
    singles = {name: (rng.random(50), np.full(50, price)) for name, price in (("a", 1.0), ("b", 3.0), ("c", 10.0))}
    rule = rng.random(50), rng.choice([1.0, 11.0], 50)
    found = escalation.Outcomes(singles=singles, rules={"rule": rule})
    value, cost, gain = found.gain("rule", np.full(50, 1 / 50))
    means = [(float(v.mean()), float(c.mean())) for v, c in singles.values()]
    coins = [
        (1 - s) * one[0] + s * other[0]
        for one in means
        for other in means
        for s in np.linspace(0, 1, 2001)
        if (1 - s) * one[1] + s * other[1] <= cost + 1e-9
    ]
    assert (value, cost) == pytest.approx((rule[0].mean(), rule[1].mean()))
    assert gain == pytest.approx(value - max(coins), abs=1e-3)


def test_what_the_page_says_of_gpt_is_recomputed():
    recording = bundled_recording("escalation_gpt")
    found = escalation.outcomes(recording, "right", escalation.score_rules(recording))
    first, second = escalation.halves(recording)
    for chooses, judges in ((first, second), (second, first)):
        rule = found.best(chooses)
        value, _, gain = found.gain(rule, judges / judges.sum())
        row = next(line for line in PAGE.read_text("utf-8").splitlines() if f"| {rule} | {judges.sum():,}" in line)
        assert f"| {100 * value:.1f} |" in row
        assert f"| {100 * gain:+.1f} [" in row


def test_a_coin_that_does_better_is_named_in_the_advice():
    said = decide(bundled_recording("escalation_llama"), metric="right", signals=["answer_probability"]).sentence
    assert (
        "Llama-13b alone for some questions, drawn at random, and Llama-70b alone for the others scored better" in said
    )
    assert said in PAGE.read_text("utf-8")


def test_attempts_cost_what_all_models_so_far_cost():
    recording = bundled_recording("escalation_llama")
    found = escalation.outcomes(recording, "right", ["never()", "fixed_k(1)"])
    alone = [cost.mean() for _, cost in found.singles.values()]
    assert found.rules["never()"][1].mean() == pytest.approx(sum(alone))
    assert found.rules["fixed_k(1)"][1].mean() == pytest.approx(alone[0])


def test_a_panel_in_an_order_stops_where_two_agree():
    panel = bundled_recording("panel_gsm8k").select(np.arange(1319) < 60)
    models = ("gpt-4o-mini-2024-07-18", "claude-3-haiku-20240307", "gpt-4o-2024-08-06")
    found = escalation.outcomes(escalation.panel_order(panel, models), "match", ["answer_stable"])
    names, right, answers = panel.objects("member"), panel.column("match"), panel.answers
    expected = []
    for q in range(60):
        at = [int(np.flatnonzero(names[q] == model)[0]) for model in models]
        texts = [float(answers[q, place]) if answers[q, place] else np.nan for place in at[:2]]
        expected.append(right[q, at[1 if texts[0] == texts[1] else 2]])
    assert found.rules["answer_stable"][0].tolist() == expected


def test_giving_up_saves_little_on_held_out_halves():
    rows = {row[0]: row for row in escalation.given_up(bundled_recording("agents_hotpotqa"))}
    assert rows["all, in sample"][3] == pytest.approx(0.019, abs=0.0005)
    assert all(0.015 < rows[name][3] < 0.022 for name in ("first", "second"))
    assert "Keep what you have" in PAGE.read_text("utf-8").rpartition("Giving runs up")[2]


@pytest.mark.parametrize("name", [*BUNDLED_ESCALATIONS, *BUNDLED_VERIFIED])
def test_what_is_bundled_is_small_and_its_source_named(name):
    assert (DATA / "recorded" / f"{name}.parquet").stat().st_size < 170_000
    assert f"recorded/{name}.parquet" in (DATA / "DATA.md").read_text("utf-8")
    recording = bundled_recording(name)
    assert "question" not in recording.table.column_names
    assert len(attempts_of(recording)) == (0 if name in BUNDLED_VERIFIED else recording.shape[1])
