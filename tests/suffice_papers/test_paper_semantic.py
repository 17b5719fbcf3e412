"""The published figures of Semantic Early-Stopping: they read, what follows from them, and each flag's arithmetic."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from suffice.errors import DataError
from suffice.evaluation.statistics import both_margin_tests, holm
from suffice_papers.semantic.figures import BASELINE, MARGINS, FigureDifference, published_semantic
from suffice_papers.semantic.semantic_tables import paper_semantic
from tests.support.cli_tools import cli
from tests.support.reference import bootstrap_weights

PAPER = published_semantic()
TEST, DEV = PAPER.splits["test"], PAPER.splits["dev"]
SPLITS = [TEST, DEV]
FLAGS = {flag.id: flag for flag in PAPER.flags}
COMPARED = [(split, run) for split in SPLITS for run in split.runs.values() if run.name != BASELINE]
SPREAD = [(split, run) for split, run in COMPARED if run.differences["score"].d_z != 0]


def score(split, name):
    return split.runs[name].differences["score"]


def places(flag):
    return set(FLAGS[flag].places)


# --- what was published fits together ------------------------------------------------------------------------------


def test_both_splits_have_ten_policies_and_seven_cells():
    for split, questions in zip(SPLITS, (60, 20), strict=True):
        assert split.questions == questions
        assert len(split.runs) == 17
        assert len([name for name in split.runs if name.startswith("abl_")]) == 7


@pytest.mark.parametrize(("split", "run"), COMPARED)
def test_differences_are_those_of_the_means(split, run):
    base = split.runs[BASELINE]
    for name, difference in run.differences.items():
        assert difference.mean == pytest.approx(getattr(run, name) - getattr(base, name), rel=1e-5, abs=2e-6)
        assert difference.low <= difference.mean <= difference.high


@pytest.mark.parametrize(("split", "run"), SPREAD)
def test_the_spread_from_d_z_gives_the_published_p_values(split, run):
    difference = run.differences["score"]
    assert difference.recomputed_p() == pytest.approx(difference.t_p, rel=2e-3)
    assert difference.p_loss(PAPER.paper["margin"]) == pytest.approx(run.p_lower, rel=2e-4)
    assert run.verdict == difference.non_inferior(PAPER.paper["margin"]) == (run.p_lower < 0.05)
    width = (difference.high - difference.low) / 2 / 1.96
    assert width == pytest.approx(difference.error, rel=0.12)  # a bootstrap's interval says about the same


@pytest.mark.parametrize("n", [20, 60])
def test_the_derived_tests_are_those_of_the_library_on_raw_differences(n):
    rows = np.random.default_rng(n).normal(0.01, 0.1, n)
    d_z = float(rows.mean() / rows.std(ddof=1))
    derived = FigureDifference(mean=float(rows.mean()), low=-1.0, high=1.0, d_z=d_z, t_p=0.5, wilcoxon_p=0.5, n=n)
    weights = bootstrap_weights(n, 20, rng=0)
    for margin in MARGINS:
        ((one, both),) = both_margin_tests(rows, [margin], weights=weights)
        assert derived.p_loss(margin) == pytest.approx(one.p, rel=1e-9)
        assert max(derived.p_loss(margin), derived.p_gain(margin)) == pytest.approx(both.p, rel=1e-9)
        assert (derived.non_inferior(margin), derived.equivalent(margin)) == (one.passed, both.passed)
    assert derived.bounds() == pytest.approx((both.low, both.high), rel=1e-9)
    assert derived.recomputed_p() == pytest.approx(stats.ttest_1samp(rows, 0).pvalue, rel=1e-9)


def test_runs_without_a_spread_are_decided_by_the_difference_alone():
    same = score(TEST, "critic_only")
    assert same.error == 0
    assert math.isnan(same.recomputed_p())
    assert same.non_inferior(0.01)
    assert same.equivalent(0.01)
    assert TEST.runs["fixed_k1"].differences["rounds"].error == 0
    unknown = FigureDifference(mean=0.1, low=0.0, high=0.2, d_z=0.0, t_p=math.nan, wilcoxon_p=math.nan, n=20)
    assert math.isnan(unknown.error)
    assert not unknown.non_inferior(0.02)


# --- the acceptance: savings, differences, verdicts ----------------------------------------------------------------


def test_percent_saved_and_differences_are_those_of_the_abstract():
    text = PAPER.text
    assert round(TEST.saved("entropy_only"), 2) == text["saved"]
    assert round(score(TEST, "entropy_only").mean, 3) == text["delta"]
    assert round(score(TEST, "entropy_only").recomputed_p(), 2) == text["p"]
    assert round(score(TEST, "oracle_is").mean, 3) == text["oracle_delta"]
    assert {name: round(100 * TEST.saved(name)) for name in ("fixed_k1", "fixed_k3", "shp", "oracle_is")} == {
        "fixed_k1": 86,
        "fixed_k3": 53,
        "shp": -129,
        "oracle_is": -170,
    }


def test_who_is_non_inferior_at_two_points_on_test():
    passing = {run.name for run in TEST.different() if run.differences["score"].non_inferior(0.02)}
    assert passing == {"fixed_k1", "random_s0", "oracle_is"}
    at_one = {run.name for run in TEST.different() if run.differences["score"].non_inferior(0.01)}
    assert at_one == passing
    at_five = {run.name for run in TEST.different() if run.differences["score"].non_inferior(0.05)}
    assert at_five == {run.name for run in TEST.different()}


def test_which_published_verdicts_change_under_both_sides():
    changed = {
        f"{split.name}.{run.name}"
        for split, run in COMPARED
        if run.verdict != run.differences["score"].equivalent(PAPER.paper["margin"])
    }
    assert changed == places("one-sided")
    assert changed == {"test.fixed_k1", "test.random_s0", "test.oracle_is", "dev.random_s2", "dev.oracle_is"}
    nobody = [run for split in SPLITS for run in split.different() if run.differences["score"].equivalent(0.02)]
    assert nobody == []


# --- each flag -----------------------------------------------------------------------------------------------------


def test_the_same_runs_are_named():
    for split in SPLITS:
        assert split.copies("critic_only") == [BASELINE, "abl_critic_only"]
        assert {*split.copies("shp")} == {"abl_full", "abl_no_critic"}
        assert {*split.copies("entropy_only")} == {"abl_entropy_only", "abl_no_isgain"}
        assert split.copies("abl_no_entropy") == ["abl_isgain_only"]
        cells = [run for name, run in split.runs.items() if name.startswith("abl_")]
        assert len({(run.rounds, run.tokens, run.score) for run in cells}) == 4
        assert len(split.different()) == 9
        named = {place.removeprefix(f"{split.name}.") for place in places("same-run") if place.startswith(split.name)}
        assert named == {run.name for run in cells} | {"critic_only"}


def test_the_judge_free_stopper_is_dominated_on_both_splits():
    assert TEST.dominating("entropy_only") == ["fixed_k3", "fixed_k1", "random_s0", "random_s1"]
    assert DEV.dominating("entropy_only") == ["fixed_k1", "random_s1", "random_s2"]
    assert places("dominated") == {"test.entropy_only", "dev.entropy_only"}
    for split in SPLITS:
        for name in ("entropy_only", "shp", "critic_only", "fixed_k3", BASELINE):
            assert "fixed_k1" in split.dominating(name)


def test_a_two_point_loss_of_the_judge_free_stopper_remains_possible():
    low, high = score(TEST, "entropy_only").bounds()
    assert -low == pytest.approx(0.0292, abs=5e-5)
    assert high > 0.02
    assert TEST.runs["entropy_only"].verdict is False
    assert "0.029" in FLAGS["parity"].reason


def test_chance_has_the_higher_score_for_fewer_tokens():
    chance = [TEST.runs[f"random_s{seed}"] for seed in range(3)]
    assert np.mean([run.score for run in chance]) == pytest.approx(0.678, abs=5e-4)
    assert np.mean([run.tokens for run in chance]) < TEST.runs["entropy_only"].tokens
    assert TEST.runs["entropy_only"].score == pytest.approx(0.667, abs=5e-4)
    passing = {f"{s.name}.{r.name}" for s, r in COMPARED if r.name.startswith("random") and r.verdict}
    assert passing == places("chance-passes")


def test_corrected_over_the_family_two_verdicts_do_not_hold():
    lost = set()
    for split in SPLITS:
        runs = split.different()
        raised = holm([run.differences["score"].p_loss(0.02) for run in runs])
        lost |= {f"{split.name}.{r.name}" for r, p in zip(runs, raised, strict=True) if r.verdict and p >= 0.05}
    assert lost == places("family")


def test_the_oracle_is_not_as_far_above_every_policy():
    best = TEST.runs["oracle_is"].score
    assert best - TEST.runs["fixed_k1"].score == pytest.approx(0.086, abs=5e-4)
    assert best - TEST.runs["random_s0"].score == pytest.approx(0.091, abs=5e-4)
    assert best - TEST.runs[BASELINE].score == pytest.approx(PAPER.text["oracle_delta"], abs=5e-4)
    p = score(TEST, "oracle_is").t_p
    assert f"{p:.1e}" == "3.8e-11"
    assert float(f"{p:.0e}") == PAPER.text["oracle_p"] != PAPER.text["oracle_p_table"]


def test_judging_all_rounds_would_cost_more_than_twice_the_oracles_tokens():
    whole = TEST.runs[BASELINE].tokens + 6 * TEST.judge_tokens("oracle_is")
    assert 63_000 < whole < 67_000
    assert whole > 2 * TEST.runs["oracle_is"].tokens


def test_the_full_cascade_is_not_the_dearest():
    for split in SPLITS:
        dearer = [run.name for run in split.different() if run.tokens > split.runs["shp"].tokens]
        assert dearer == ["oracle_is", "abl_no_entropy"]


def test_one_difference_was_rounded_twice():
    assert round(score(TEST, "fixed_k1").mean, 3) == 0.029
    assert PAPER.text["fixed_k1_delta"] == 0.030


def test_a_spread_of_zero_is_printed_as_d_z_of_zero():
    found = {
        f"{split.name}.{run.name}"
        for split, run in COMPARED
        for difference in [run.differences["rounds"]]
        if difference.d_z == 0 and difference.mean != 0 and difference.low == difference.high == difference.mean
    }
    assert found == places("no-spread")


def test_two_methods_stand_behind_wilcoxons_p_values():
    exact = TEST.runs["entropy_only"].differences["tokens"].wilcoxon_p
    normal = TEST.runs["fixed_k1"].differences["tokens"].wilcoxon_p
    assert exact == pytest.approx(2 / 2**49, rel=1e-5)  # all 49 of 49 that differ
    lower = -np.arange(1.0, 61.0)
    assert normal == pytest.approx(stats.wilcoxon(lower, method="approx").pvalue, rel=1e-5)
    assert exact < normal


def test_the_statistic_of_the_conjecture_is_too_large_for_one_value_each():
    for split in SPLITS:
        n, steps = split.questions, 4 * split.questions
        assert n * (n + 1) / 2 < split.conjecture["statistic"] <= steps * (steps + 1) / 2
        assert split.conjecture["supported"] is True
        assert split.conjecture["monotone"] == 0.05
    assert PAPER.text["steps"] == 5 * TEST.questions
    assert f"{60 * 61 // 2:,}" in FLAGS["pooled-steps"].reason


def test_the_token_column_fits_an_eager_better_than_a_lazy_judge():
    for split in SPLITS:
        wide, narrow = split.runs["abl_isgain_only"], split.runs["shp"]
        rounds = round((wide.rounds - narrow.rounds) * split.questions)
        extra = (wide.tokens - narrow.tokens) * split.questions
        loop = split.loop_tokens(3) - split.loop_tokens(2)
        judge = split.judge_tokens("shp")
        eager, lazy = rounds * (judge + loop), (rounds + 1) * judge + rounds * loop
        assert rounds == 3
        assert abs(extra - eager) < abs(extra - lazy)
        assert 8_500 < judge < 9_500
    with pytest.raises(DataError, match="not 7"):
        TEST.loop_tokens(7)


def test_every_flag_points_at_something_and_gives_a_reason():
    for flag in PAPER.flags:
        assert flag.reason
        for place in flag.places:
            where, _, name = place.partition(".")
            assert where == "text" or name == "conjecture" or name in PAPER.splits[where].runs, place
    assert len(FLAGS) == len(PAPER.flags)


# --- the tables ----------------------------------------------------------------------------------------------------


def test_the_tables_hold_every_flag_and_the_changed_verdicts():
    tables = {table.title: table for table in paper_semantic().tables()}
    verdicts = next(
        table for title, table in tables.items() if title.startswith("Non-inferiority") and " test" in title
    )
    changed = [row[0].split(" ")[0] for row in verdicts.rows if row[-1] == "yes -> no"]
    assert changed == ["fixed_k1", "random_s0", "oracle_is"]
    listed = tables["Published figures that do not fit together"]
    assert [row[0] for row in listed.rows] == list(FLAGS)
    assert len(tables) == 11


def test_the_command_prints_and_writes_them(tmp_path):
    told = cli("paper", "semantic", "--json").json
    assert len(told["tables"]) == 11
    assert "tests between two policies" in told["not_made"]
    screen = cli("paper", "semantic").out
    assert screen.startswith("Of 16 published verdicts of equivalence on test, 3 do not follow")
    assert "fixed_k1, random_s0, oracle_is" in screen
    assert "more: --details" in screen
    assert len(screen.splitlines()) <= 45
    assert "next: suffice paper protocol" in screen
    whole = cli("paper", "semantic", "--details").out
    assert all(table["title"] in whole for table in told["tables"])
    assert cli("paper", "semantic", "--format", "md", "-o", tmp_path / "p.md").code == 0
    assert (tmp_path / "p.md").read_text("utf-8").startswith(f"# {paper_semantic().title}\n")
    assert "add --format md" in cli("paper", "semantic", "-o", tmp_path / "x").error
    assert "allowed" in cli("paper", "semantic", "--format", "pdf").error


def test_the_policies_are_drawn_at_their_published_means(tmp_path):
    assert cli("paper", "semantic", f"--set=figures={tmp_path}").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policies-dev.svg", "policies-test.svg"]
    figure = next(figure for figure in paper_semantic().figures if figure.name == "policies-test")
    points = {name: point for point in figure.spec["data"]["values"] for name in point["label"].split(", ")}
    assert (points["entropy_only"]["cost"], points["entropy_only"]["quality"]) == pytest.approx(
        (3.917, 0.6665), abs=5e-4
    )
    assert points["entropy_only"]["low"] == pytest.approx(0.6702 - 0.033, abs=1e-3)
    assert {points[name]["kind"] for name in ("fixed_k1", "random_s0", "oracle_is")} == {"fixed", "random", "oracle"}


def test_the_page_of_the_documentation_is_what_the_command_prints():
    page = Path(__file__).resolve().parents[2] / "docs" / "results" / "paper-semantic.md"
    assert page.read_text("utf-8") == cli("paper", "semantic", "--format", "md").out
