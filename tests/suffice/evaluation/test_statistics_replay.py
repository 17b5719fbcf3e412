"""What replay makes of the statistics: tests, corrections and intervals of its rows, and how the command line shows them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from suffice.errors import DataError
from suffice.evaluation.replay import replay
from suffice.evaluation.replay.replay_tables import differences_table, margin_tests_table, outcomes_table, replay_tables
from suffice.evaluation.statistics import INTERVALS, Resampling, keys_of, paired_bootstrap, permutation_tests
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.support.cli_tools import cli

RULES = ("round >= 1", "round >= 2", "overlap > 0.5")
N = 60


def recording(n: int = N, clusters: int = N, seed: int = 0) -> Recording:
    """Return answers that get better by luck, with F1 that is not binary."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(n):
        right = rng.random(3) < (0.3, 0.5, 0.6)
        rows += [
            {
                "question_id": f"q{q}",
                "cluster": f"c{q % clusters}",
                "round": r + 1,
                "end": "max_rounds",
                "answer": "a" if right[r] else "b",
                "em": float(right[r]),
                "f1": 1.0 if right[r] else round(0.5 * rng.random(), 2),
                "overlap": rng.random(),
                "cost.generator.calls": 1.0,
            }
            for r in range(3)
        ]
    return Recording(build_table(rows))


def policies(*rules: str) -> list[Policy]:
    from suffice.policy.rules import parse_rule

    return [Policy(rule=parse_rule(rule), max_rounds=3, name=rule) for rule in rules]


def outcomes(of: Recording, metric: str, round_: int) -> np.ndarray:
    return of.column(metric)[:, round_ - 1]


def test_em_has_mcnemars_p_and_other_metrics_that_of_the_permutation_test():
    of = recording()
    row = replay(of, policies(*RULES), resampling=Resampling(n_resamples=200, seed=7)).row("round >= 1")
    rule, base = outcomes(of, "em", 1), outcomes(of, "em", 3)
    table = [[int(((rule == a) & (base == b)).sum()) for b in (1, 0)] for a in (1, 0)]
    em = row.deltas["em"]
    assert em.test == "mcnemar"
    assert em.p == pytest.approx(mcnemar(table, exact=True).pvalue, abs=1e-12)
    delta, keys = outcomes(of, "f1", 1) - outcomes(of, "f1", 3), keys_of(of.clusters)
    [expected] = permutation_tests(delta, n_resamples=200, rng=7, keys=keys)
    assert (row.deltas["f1"].p, row.deltas["f1"].test) == (expected.p, "monte_carlo")
    assert math.isnan(row.deltas["calls"].p)
    assert row.deltas["calls"].test == ""


@pytest.mark.parametrize("metric", ["f1", "em"])
def test_holm_counts_the_policies_given_and_nothing_else(metric):
    result = replay(recording(), policies(*RULES), resampling=Resampling(n_resamples=200))
    family = [result.row(rule).deltas[metric] for rule in RULES]
    expected = multipletests([delta.p for delta in family], method="holm")[1]
    assert [delta.p_holm for delta in family] == pytest.approx(expected, abs=1e-12)
    others = [row for row in result.rows if row.label not in RULES]
    assert {row.kind for row in others} == {"random", "fixed", "oracle"}
    assert all(math.isnan(row.deltas[metric].p_holm) for row in others)
    assert not any(math.isnan(row.deltas[metric].p) for row in others)


def test_a_policy_that_is_the_baseline_is_no_member_of_its_family():
    made = policies(*RULES)
    result = replay(recording(), made, baseline=made[1], resampling=Resampling(n_resamples=100))
    assert result.baseline == "round >= 2"
    assert math.isnan(result.row("round >= 2").deltas["em"].p_holm)
    family = [result.row(rule).deltas["em"] for rule in (RULES[0], RULES[2])]
    expected = multipletests([delta.p for delta in family], method="holm")[1]
    assert [delta.p_holm for delta in family] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("method", INTERVALS)
def test_replay_takes_the_interval_that_is_asked_for(method):
    of = recording()
    result = replay(of, policies(*RULES), resampling=Resampling(n_resamples=200, seed=3, level=0.9, interval=method))
    delta = outcomes(of, "f1", 1) - outcomes(of, "f1", 3)
    weights = Resampling(n_resamples=200, seed=3).draws(of.clusters).weights
    expected = paired_bootstrap(delta, weights, method=method, level=0.9)
    found = result.row("round >= 1").deltas["f1"]
    assert (found.low, found.high) == pytest.approx((expected.low[0], expected.high[0]), abs=1e-12)
    assert (found.interval, result.resampling.interval, result.to_dict()["interval"]) == (method, method, method)


def test_an_unknown_interval_is_refused():
    with pytest.raises(DataError, match="'studentized'"):
        replay(recording(), policies("round >= 1"), resampling=Resampling(interval="studentized"))


def test_tests_of_replay_flip_clusters_whole():
    of = recording(clusters=12)
    [name] = {str(c) for c in of.clusters[:1]}
    assert name == "c0"
    found = replay(of, policies("round >= 1"), resampling=Resampling(n_resamples=100)).row("round >= 1").deltas["em"]
    delta = outcomes(of, "em", 1) - outcomes(of, "em", 3)
    [expected] = permutation_tests(delta, n_resamples=100, rng=42, clusters=of.clusters)
    assert (found.n_clusters, found.p, found.test) == (12, expected.p, expected.test)
    assert found.test == "sign_flip"


def test_the_tables_name_the_tests_the_family_and_the_interval():
    result = replay(recording(), policies(*RULES), resampling=Resampling(n_resamples=100), margins=(0.02, 0.9))
    table = differences_table(result)
    assert table.title == "Tests of no difference to fixed_k(3); Holm's correction, policies: 3"
    assert [(row[0], row[1]) for row in table.rows] == [(rule, name) for name in ("f1", "em") for rule in RULES]
    assert {row[-1] for row in table.rows} == {"sign flips, 100 at random", "McNemar, exact"}
    assert "(expanded percentile, 100 paired bootstrap draws, seed 42)" in outcomes_table(result).title
    margins = [row for row in margin_tests_table(result).rows if row[0] == "round >= 1"]
    assert [row[-2] for row in margins] == ["no", "no", "yes", "yes"]
    assert len({row[-1] for row in margins if row[1] == "non-inferior"}) == 1


def test_the_margin_table_never_says_shown_because_nothing_differs():
    rows = [{"question_id": f"q{q}", "round": r, "answer": "a", "em": 1.0} for q in range(60) for r in (1, 2, 3)]
    result = replay(
        Recording(build_table(rows)),
        ["fixed_k(1)"],
        metrics=("em",),
        resampling=Resampling(n_resamples=50),
        margins=(0.02, 0.2),
    )
    table = margin_tests_table(result)
    cells = [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
    assert [(row["claim"], row["margin"], row["shown"]) for row in cells] == [
        ("non-inferior", 0.02, "no"),
        ("equivalent", 0.02, "no"),
        ("non-inferior", 0.2, "yes"),
        ("equivalent", 0.2, "yes"),
    ]
    assert {(row["lower bound, t"], row["lower bound, bootstrap"]) for row in cells} == {(None, None)}
    assert 0.3 < cells[0]["p, betting"] < 0.4
    assert all(0.02 < row["shown above"] < 0.1 for row in cells)
    assert any(note.startswith("shown: by betting") for note in table.notes)


def test_what_is_shown_does_not_depend_on_the_order_of_the_rows():
    of = recording()
    shuffled = of.table.take(np.random.default_rng(1).permutation(of.table.num_rows))
    found = [
        replay(each, policies("round >= 1"), resampling=Resampling(n_resamples=20)).rows[0].margins
        for each in (of, Recording(shuffled))
    ]
    assert [test.p_exact for test in found[0]] == pytest.approx([test.p_exact for test in found[1]], rel=1e-12)


@pytest.mark.parametrize("method", INTERVALS)
@pytest.mark.parametrize("n", [1, 2])
def test_hardly_any_questions_give_results_without_warnings_and_strict_json(method, n):
    result = replay(recording(n, n), policies(*RULES), resampling=Resampling(n_resamples=20, interval=method))
    json.dumps(result.to_dict(), allow_nan=False)
    for table in replay_tables(result):
        assert "nan" not in str(table.texts())
    assert len(replay_tables(replay(recording(n, n), [], resampling=Resampling(n_resamples=20)))) == 3
    assert all(row.deltas["f1"].p == 1.0 for row in result.rows if n == 1)


def test_the_command_line_shows_tests_and_takes_an_interval(tmp_path):
    from suffice.recordings import write_recording

    path = tmp_path / "r.parquet"
    write_recording(path, recording().table)
    arguments = ("replay", path, "--rule", "round >= 1", "--rule", "round >= 2", "--set=resamples=50")
    shown = cli(*arguments, "--set=margin=0.02", "--set=margin=0.5", "--details").out
    assert "Holm's correction, policies: 2" in shown
    assert "shown above" in shown
    found = cli(*arguments, "--set=interval=percentile", "--json").json
    assert found["interval"] == "percentile"
    assert all(0 <= row["deltas"]["em"]["p"] <= row["deltas"]["em"]["p_holm"] <= 1 for row in found["rows"][:2])
    assert found["rows"][2]["deltas"]["em"]["p_holm"] is None
    wrong = cli(*arguments, "--set=interval=jackknife", code=2)
    assert "'jackknife'" in wrong.error
