"""The protocol of semantic early stopping on planted recordings, against plain loops, scipy and statsmodels."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from proofs.__main__ import CLAIMS
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW

from suffice.errors import CensoredError, ConfigMismatchError, DataError, SufficeError
from suffice.evaluation.statistics import Resampling
from suffice.policy.rules.named import semantic_full
from suffice.policy.seen import id_hash
from suffice.policy.session import stops
from suffice_papers.semantic import given, published, semantic_protocol, split_drafts, tune
from suffice_papers.semantic.comparisons import compare
from suffice_papers.semantic.convergence import converge, monotone, slopes
from suffice_papers.semantic.data import read_drafts
from suffice_papers.semantic.policies import CELLS, MEMBERS, replay_all
from suffice_papers.semantic.theory import PROVED, check_theory
from suffice_papers.semantic.tuning import distance_thresholds
from tests.support.protocol_tools import EMBEDDER, NAN, drafts, plain_cell, row, table

pytestmark = pytest.mark.usefixtures("no_collecting")

FEW = Resampling(n_resamples=60)
SCORE = "information_score"


def replayed(recording, tuned, metric=SCORE, ledger="live"):
    read = read_drafts(recording, metric, ledger=ledger)
    return read, replay_all(read, tuned)


def ragged(n=80, seed=3, **options):
    """Drafts with short trajectories, undefined distances and marks, and a critic that sometimes approves."""
    rng = np.random.default_rng(seed)
    rows = drafts(n, seed=seed, approve=0.1, shorter=0.3).table.to_pylist()
    for item in rows:
        if item["round"] > 1 and rng.random() < 0.1:
            item["semantic_distance"] = None
        if item["round"] > 1 and rng.random() < 0.1:
            item["information_gain"] = None
    return table([{k: v for k, v in item.items() if k != "cluster"} for item in rows], **options)


def columns(recording, name):
    return recording.column(name)


# --- The seven cells, against plain loops ---------------------------------------------------------------------------


@pytest.mark.parametrize(("eps", "patience"), [(0.02, 1), (0.04, 2), (0.08, 3)])
def test_every_cell_stops_pays_and_returns_as_a_plain_loop_says(eps, patience):
    recording = ragged()
    read, done = replayed(recording, given(eps, patience))
    names = ("semantic_distance", "critic_approved", "information_gain", SCORE)
    values = {name: columns(read.prepared.recording, name) for name in names}
    assert set(done.policies) == set(CELLS)
    for label, members in CELLS.items():
        tokens = done.spent(label)
        for q in range(read.n):
            last = int(read.last[q])
            seen = [values[name][q, :last].tolist() for name in names[:3]]
            stop, asked, critiques = plain_cell(members, eps, patience, *seen)
            assert done.rounds[label][q] == stop, (label, q)
            assert done.runs[label].values[SCORE][q] == values[SCORE][q, stop - 1]
            assert tokens[q] == pytest.approx(110 * stop + 60 * critiques + 1010 * len(asked)), (label, q)


def test_cells_are_all_sets_of_members_and_the_cascade_as_published():
    sets = [set(c) for n in (1, 2, 3) for c in itertools.combinations(MEMBERS, n)]
    assert sorted(map(sorted, map(set, CELLS.values()))) == sorted(map(sorted, sets))
    _, done = replayed(drafts(5, approve=0.5), given(0.05, 2))
    assert done.policies["cascade"].rule == semantic_full(0.05, 2)
    assert str(done.policies["judge_free"].rule) == "patience((semantic_distance < 0.05), 2)"


def test_a_silent_critic_makes_three_pairs_of_ablations_equal_by_construction():
    _, done = replayed(drafts(30, approve=0.0), given(0.03, 2))
    assert done.silent == {"critic": "the critic never approves"}
    pairs = {label: done.equal_by_construction(label) for label in CELLS}
    assert pairs == {
        "cascade": ["no_critic"],
        "no_critic": ["cascade"],
        "no_convergence": ["gain_only"],
        "gain_only": ["no_convergence"],
        "no_gain": ["judge_free"],
        "judge_free": ["no_gain"],
        "critic_only": ["fixed_k(6)"],
    }
    for label, equal in pairs.items():
        for other in equal:
            assert np.array_equal(done.rounds[label], done.rounds[other])
    # The silent critic is still asked what it says of the last draft, where the cell reads it before round 6.
    for label, other in (("cascade", "no_critic"), ("no_convergence", "gain_only"), ("no_gain", "judge_free")):
        assert done.spent(label) == pytest.approx(done.spent(other) + 60)
    assert done.spent("critic_only") == pytest.approx(done.spent("fixed_k(6)") + 60)


def test_nothing_is_equal_by_construction_where_every_member_fires_somewhere():
    _, done = replayed(drafts(60, approve=0.2), given(0.03, 2))
    assert done.silent == {}
    assert all(done.equal_by_construction(label) == [] for label in CELLS)
    # Here the critic approves at the second draft of every question: what else is on changes no stop, by chance only.
    rows = [
        row(f"q{q}", r, distance=0.01 * r, critic_approved=float(r > 1), gain=0.1) for q in range(4) for r in (1, 2, 3)
    ]
    rows[5]["information_gain"], rows[5]["critic_approved"] = -0.1, 0.0
    rows[4]["critic_approved"] = 0.0
    _, done = replayed(table(rows), given(0.04, 1))
    assert done.silent == {}
    assert done.equal_by_construction("no_convergence") == []
    assert set(done.same_stops("judge_free")) >= {"cascade", "no_gain", "no_critic"}


def test_cells_whose_signal_was_not_recorded_are_left_out_with_a_note():
    rows = [{**item, "information_gain": None, "critic_approved": None} for item in drafts(20).table.to_pylist()]
    found = semantic_protocol(table(rows), given(0.05), resampling=FEW)
    assert set(found.replayed.policies) == {"judge_free"}
    assert found.replayed.missing == ("critic", "gain")
    [note] = [note for note in found.tables()[2].notes if "left out" in note]
    assert "cascade, no_critic, no_convergence, no_gain, critic_only, gain_only" in note
    assert "critic's replies" in note
    assert "judge's marks" in note


# --- Baselines ------------------------------------------------------------------------------------------------------


def test_the_whole_frontier_stands_first_and_a_uniform_round_is_its_mean():
    found = semantic_protocol(ragged(20), given(0.04, 2), resampling=FEW)
    first = [cells[0] for cells in found.tables()[0].rows]
    assert first[:6] == [f"fixed_k({k})" for k in range(1, 7)]
    done = found.replayed
    fixed = [done.runs[f"fixed_k({k})"] for k in range(1, 7)]
    lottery = done.runs["random_round"]
    assert lottery.values[SCORE] == pytest.approx(np.mean([run.values[SCORE] for run in fixed], axis=0))
    assert done.spent("random_round") == pytest.approx(np.mean([run.ledger.total("tokens") for run in fixed], axis=0))
    assert done.rounds["random_round"] == pytest.approx(np.mean([run.rounds for run in fixed], axis=0))


def test_random_rounds_are_those_of_every_permutation_of_the_stops():
    rows = [
        row(f"q{q}", r, distance=d, score=0.1 * r + 0.01 * q)
        for q, trajectory in enumerate([(NAN, 0.01, 0.3, 0.3), (NAN, 0.3, 0.01), (NAN, 0.3, 0.3, 0.3), (NAN,)])
        for r, d in enumerate(trajectory, 1)
    ]
    read, done = replayed(table(rows), given(0.05, 1))
    assert (done.rounds["judge_free"].tolist(), read.last.tolist()) == ([2, 3, 4, 1], [4, 3, 4, 1])
    # Only questions with as many drafts exchange their stops: the two of four drafts stop at 2 and at 4.
    expected = np.mean([[a, 3, b, 1] for a, b in itertools.permutations((2, 4))], axis=0)
    assert done.rounds["random(judge_free)"] == pytest.approx(expected)


def test_the_oracle_pays_its_judge_up_to_its_choice_only_published():
    recording = drafts(25)
    _, live = replayed(recording, given(0.05))
    _, told = replayed(recording, given(0.05), ledger="published")
    rounds = live.rounds["oracle_best"]
    assert live.spent("oracle_best") == pytest.approx(170 * rounds - 60)  # nobody reads the last critique
    assert told.spent("oracle_best") == pytest.approx((170 + 1010) * rounds)
    assert told.spent("cascade") == pytest.approx((170 + 1010) * told.rounds["cascade"])
    assert live.spent("judge_free") == pytest.approx(told.spent("judge_free") - 60)


def test_equality_up_to_rounding_is_no_difference():
    rows = [
        row(f"q{q}", r, distance=0.01 * r if r > 1 else NAN, score=0.7) for q in range(30) for r in range(1, 2 + q % 6)
    ]
    _, done = replayed(table(rows), given(0.035, 1))
    found = compare(done, resampling=FEW).differences["random(judge_free)"][SCORE]
    assert (found.n_nonzero, found.p_wilcoxon, found.delta) == (0, 1.0, 0.0)


# --- The verdict ----------------------------------------------------------------------------------------------------


def settling(n=60, seed=0):
    """Drafts that settle at the round from 2 to 5 at which they are right, and are spoilt by every later revision."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(n):
        right, before = int(rng.integers(2, 6)), NAN
        for r in range(1, 7):
            score = 0.9 if r == right else 0.3
            distance = NAN if r == 1 else 0.01 if r == right else 0.4
            rows.append(row(f"q{q}", r, distance=distance, score=score, gain=score - before))
            before = score
    return table(rows)


def test_a_planted_winner_is_not_dominated_and_reaches_the_oracle():
    found = semantic_protocol(settling(30), given(0.05, 1), resampling=FEW)
    assert found.result.row("judge_free").dominated_by is None
    assert found.result.row("judge_free").cheapest_match is None
    assert "Not dominated" in found.headline("judge_free")
    assert "DOMINATED" not in found.headline("judge_free")
    done = found.replayed
    assert np.array_equal(done.runs["judge_free"].values[SCORE], done.runs["oracle_best"].values[SCORE])
    difference = found.compared.differences["judge_free"][SCORE]
    assert difference.delta == pytest.approx(0.6)


def test_where_the_first_draft_is_best_the_headline_says_dominated():
    found = semantic_protocol(drafts(30, quality=(0.8, 0.5, 0.5, 0.5, 0.5, 0.5)), given(0.03, 2), resampling=FEW)
    told = found.headline("judge_free")
    assert "DOMINATED: fixed_k(1) reaches" in told
    assert found.to_dict()["dominated"]["judge_free"] == "fixed_k(1)"
    assert (
        next(cells for cells in found.tables()[0].rows if cells[0].startswith("judge_free"))[7]
        == "dominated by fixed_k(1)"
    )
    assert found.headlines()[0] == told


def test_the_headline_names_the_cheapest_equal_policy_if_it_costs_more():
    rows = [
        row(
            f"q{q}",
            r,
            distance=NAN if r == 1 else 0.01 if r == 2 + (q % 3) else 0.5,
            score=0.6 if r >= 2 + (q % 3) else 0.2,
        )
        for q in range(30)
        for r in range(1, 7)
    ]
    found = semantic_protocol(table(rows), given(0.05, 1), resampling=FEW)
    assert "Not dominated: the cheapest of at least this quality is fixed_k(4)" in found.headline("judge_free")


def test_table_one_says_what_the_tests_say():
    found = semantic_protocol(drafts(60, approve=0.1), given(0.04, 2), resampling=Resampling(n_resamples=200))
    first = found.tables()[0]
    names = [column.name for column in first.columns]
    assert "all but its name" not in found.headline("judge_free")
    for cells in first.rows:
        line = dict(zip(names, cells, strict=True))
        label = line["policy"].split(" ")[0]
        saved = line["tokens saved, %"]
        if label == "fixed_k(6)":
            assert (saved, line["non-inferior at 2"], line["equivalent at 2"]) == (None, "-", "-")
            continue
        value, low, high = saved
        assert low - 1e-12 <= value <= high + 1e-12
        whole = found.replayed.spent("fixed_k(6)").mean()
        assert value == pytest.approx(1 - found.replayed.spent(label).mean() / whole)
        at = found.compared.margins[label][0.02]
        if label.startswith(("fixed", "judge", "cascade", "critic")):
            for name, test in (("non-inferior at 2", at.non_inferior), ("equivalent at 2", at.equivalent)):
                assert line[name] == ("yes" if test.passed and test.passed_bootstrap else "no")
        else:
            assert line["non-inferior at 2"] == "-"


@pytest.mark.parametrize("ledger", ["live", "published"])
def test_verdicts_go_by_the_tokens_of_the_ledger(ledger):
    found = semantic_protocol(drafts(15), given(0.04, 2), ledger=ledger, resampling=FEW)
    assert found.result.cost == "tokens"
    for label in found.replayed.policies:
        assert found.result.row(label).costs["tokens"] == pytest.approx(found.replayed.spent(label).mean())
    assert f"this policy pays {found.replayed.spent('cascade').mean():,.0f} tokens" in found.headline("cascade")


# --- Selection on dev -----------------------------------------------------------------------------------------------


def permuted(recording, seed, names):
    """The recording with the values of some columns dealt out to other questions."""
    rng = np.random.default_rng(seed)
    rows = recording.table.to_pylist()
    for name in names:
        for r in range(1, 7):
            here = [item for item in rows if item["round"] == r]
            values = [item[name] for item in here]
            for item, value in zip(here, rng.permutation(np.array(values, dtype=object)).tolist(), strict=True):
                item[name] = value
    return table(rows, **recording.metadata)


def test_permuting_dev_labels_changes_eps_and_permuting_test_labels_never_does():
    test, dev = drafts(12, seed=1), drafts(40, seed=2, prefix="d", quality=(0.3, 0.5, 0.55, 0.58, 0.6, 0.61))
    chosen = {
        (found.tuned.eps, found.tuned.patience)
        for seed in range(3)
        for found in [
            semantic_protocol(permuted(test, seed, [SCORE, "semantic_distance"]), tune(dev, SCORE), resampling=FEW)
        ]
    }
    assert len(chosen) == 1
    others = {(t.eps, t.patience) for t in (tune(permuted(dev, seed, [SCORE]), SCORE) for seed in range(5))}
    assert others != chosen


def test_of_one_recording_eps_comes_from_the_dev_part_alone():
    whole = drafts(120, seed=5)
    test, dev = split_drafts(whole, 0.3)
    alone = tune(dev, SCORE)
    assert set(test.question_ids).isdisjoint(dev.question_ids)
    assert sorted([*test.question_ids, *dev.question_ids]) == sorted(whole.question_ids)
    assert 20 < len(dev.question_ids) < 52
    for seed in range(3):
        noisy = permuted(test, seed, [SCORE, "semantic_distance"]).table.to_pylist()
        again = table([*dev.table.to_pylist(), *noisy])
        assert tune(split_drafts(again, 0.3)[1], SCORE).curve == alone.curve
    # The part of a question hangs on its id alone, not on its neighbours.
    fewer = whole.select(np.arange(120) < 60)
    assert set(split_drafts(fewer, 0.3)[1].question_ids) == set(dev.question_ids) & set(fewer.question_ids)


def test_rows_that_repeat_a_question_stay_on_one_side_of_the_split():
    rows = [
        {**item, "cluster": item["question_id"].split("/")[0]} for item in drafts(30, prefix="q0/").table.to_pylist()
    ]
    rows += [
        {**item, "cluster": item["question_id"].replace("b", "a")}
        for p in "ab"
        for item in drafts(20, prefix=p).table.to_pylist()
    ]
    test, dev = split_drafts(table(rows), 0.5)
    assert set(test.clusters).isdisjoint(dev.clusters)


@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.05, 1.0])
def test_the_choice_is_that_of_a_plain_loop_over_the_grid(tolerance):
    dev = drafts(40, seed=7, quality=(0.3, 0.5, 0.55, 0.58, 0.6, 0.61), shorter=0.1)
    found = tune(dev, SCORE, tolerance=tolerance)
    distance, score, last = dev.column("semantic_distance"), dev.column(SCORE), dev.seen.sum(axis=1)
    full = np.mean([score[q, last[q] - 1] for q in range(40)])
    best = None
    for patience in (1, 2, 3):
        for eps in distance_thresholds(distance):
            ends = [plain_cell(("convergence",), eps, patience, distance[q, : last[q]])[0] for q in range(40)]
            quality = np.mean([score[q, t - 1] for q, t in enumerate(ends)])
            near = quality >= full - tolerance - 1e-12
            key = (not near, np.mean(ends) if near else 0, -quality, np.mean(ends), eps, patience)
            best = min(best, key) if best is not None else key
    assert (found.eps, found.patience) == best[-2:]
    assert found.full == pytest.approx(full)


def test_where_every_threshold_loses_too_much_the_best_quality_is_taken():
    # The last draft alone is good; half of the questions repeat their first one, below any threshold.
    rows = [
        row(
            f"q{q}",
            r,
            distance=NAN if r == 1 else 0.0 if q % 2 and r == 2 else 0.1 + 0.01 * q,
            score=0.9 if r == 6 else 0.1,
        )
        for q in range(12)
        for r in range(1, 7)
    ]
    found = tune(table(rows), SCORE, tolerance=0.0, patiences=(1,))
    best = max(point.quality for point in found.curve)
    assert best < found.full
    [chosen] = [point for point in found.curve if (point.eps, point.patience) == (found.eps, found.patience)]
    assert chosen.quality == best


def test_thresholds_are_positive_quantiles_even_for_a_zero_column():
    distance = np.array([[NAN, 0.0, 0.1], [NAN, 0.2, 0.4]])
    grid = distance_thresholds(distance)
    assert min(grid) > 0
    assert max(grid) >= 0.38
    assert grid == sorted(set(grid))
    assert distance_thresholds(np.zeros((3, 2))) == [0.001]


def test_page_and_json_name_dev_grid_and_criterion():
    dev = drafts(30, seed=2, prefix="d")
    found = semantic_protocol(drafts(15), tune(dev, SCORE), resampling=FEW)
    told = found.to_dict()["convergence_rule"]
    assert told["how"] == "selected on dev"
    assert "quantiles of the dev distances" in told["grid"]
    assert "fewest rounds" in told["criterion"]
    assert told["n_dev"] == 30
    assert len(told["dev_curve"]) == 3 * len({p["eps"] for p in told["dev_curve"]})
    [dev_table] = [t for t in found.tables() if t.title.startswith("Dev")]
    assert sum(cells[-1] == "selected on dev" for cells in dev_table.rows) == 1
    assert found.replayed.policies["judge_free"].provenance["tune_ids"] == sorted(id_hash(f"d{i}") for i in range(30))
    assert found.replayed.policies["judge_free"].depends["embedder"] == EMBEDDER
    assert not found.result.row("judge_free").selected_here


def test_dev_and_test_must_not_share_a_question_nor_a_cluster():
    test = drafts(40)
    with pytest.raises(ConfigMismatchError, match="dev and test"):
        semantic_protocol(test, tune(drafts(10), SCORE), resampling=FEW)
    rows = [{**item, "cluster": "q1"} for item in drafts(8, prefix="d").table.to_pylist()]
    with pytest.raises(ConfigMismatchError, match="'q1'"):
        semantic_protocol(test, tune(table(rows), SCORE), resampling=FEW)
    repeated = [{**item, "cluster": "q1"} for item in drafts(8, prefix="t").table.to_pylist()]
    with pytest.raises(ConfigMismatchError, match="'q1'"):
        semantic_protocol(table(repeated), tune(table(rows), SCORE), resampling=FEW)


def test_eps_of_another_embedder_is_refused():
    other = {"embedder": {"id": "another", "revision": "1", "pooling": "mean"}}
    tuned = tune(drafts(20, prefix="d", depends=other), SCORE)
    with pytest.raises(ConfigMismatchError, match="another"):
        semantic_protocol(drafts(30), tuned, resampling=FEW)


def test_the_published_threshold_is_for_the_published_embedder_only():
    bge = {"embedder": {"id": "BAAI/bge-small-en-v1.5", "revision": "1", "pooling": "cls"}}
    found = published(drafts(5, depends=bge))
    assert (found.eps, found.patience, found.how) == (0.06, 2, "published for bge-small-en-v1.5")
    with pytest.raises(ConfigMismatchError, match="planted"):
        published(drafts(5))
    with pytest.raises(ConfigMismatchError, match="no embedder"):
        published(drafts(5, depends={}))


# --- Statistics -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def statistics():
    read, done = replayed(drafts(60, seed=11, approve=0.05), given(0.04, 2))
    return read, done, compare(done, resampling=Resampling(n_resamples=400, seed=1))


def test_tests_are_those_of_scipy_and_statsmodels(statistics):
    _read, done, found = statistics
    base = "fixed_k(6)"
    values = {
        SCORE: {label: run.values[SCORE] for label, run in done.runs.items()},
        "rounds": done.rounds,
        "tokens": {label: done.spent(label) for label in done.runs},
    }
    for label, quantities in found.differences.items():
        for name, difference in quantities.items():
            rule, full = values[name][label], values[name][base]
            delta = rule - full
            assert difference.delta == pytest.approx(delta.mean())
            if np.ptp(delta) == 0:
                assert math.isnan(difference.d_z)
                continue
            assert difference.p == pytest.approx(stats.ttest_rel(rule, full).pvalue, rel=1e-9)
            assert difference.d_z == pytest.approx(delta.mean() / delta.std(ddof=1))
            if (delta != 0).sum() > 20:
                sizes = np.abs(delta[delta != 0])
                method = "exact" if len(sizes) <= 50 and len(np.unique(sizes)) == len(sizes) else "approx"
                peer = stats.wilcoxon(delta[delta != 0], correction=False, method=method).pvalue
                assert difference.p_wilcoxon == pytest.approx(peer, rel=1e-9), (label, name)


def test_the_intervals_are_bootstrapped_means_of_the_same_pairs(statistics):
    _, done, found = statistics
    delta = done.runs["judge_free"].values[SCORE] - done.runs["fixed_k(6)"].values[SCORE]
    theirs = stats.bootstrap((delta,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(0))
    mine = found.differences["judge_free"][SCORE]
    assert mine.low == pytest.approx(theirs.confidence_interval.low, abs=0.006)
    assert mine.high == pytest.approx(theirs.confidence_interval.high, abs=0.006)


def test_margins_use_t_tests_and_holm_counts_the_family(statistics):
    _, done, found = statistics
    family = found.family
    assert family == (*(f"fixed_k({k})" for k in range(1, 6)), "cascade", "critic_only", "judge_free")
    for margin in (0.01, 0.02, 0.05):
        one, both = [], []
        for label in family:
            delta = done.runs[label].values[SCORE] - done.runs["fixed_k(6)"].values[SCORE]
            at = found.margins[label][margin]
            if np.ptp(delta) > 0:
                described = DescrStatsW(delta)
                assert at.non_inferior.p == pytest.approx(described.ttest_mean(-margin, alternative="larger")[1])
                assert at.equivalent.p == pytest.approx(described.ttost_mean(-margin, margin)[0])
            one.append(at.non_inferior.p)
            both.append(at.equivalent.p)
        assert [found.margins[m][margin].p_non_inferior for m in family] == pytest.approx(
            multipletests(one, method="holm")[1]
        )
        assert [found.margins[m][margin].p_equivalent for m in family] == pytest.approx(
            multipletests(both, method="holm")[1]
        )
    for name in (SCORE, "rounds", "tokens"):
        for raw, adjusted in (("p", "p_holm"), ("p_wilcoxon", "p_wilcoxon_holm")):
            p = [getattr(found.differences[label][name], raw) for label in family]
            holm = [getattr(found.differences[label][name], adjusted) for label in family]
            assert holm == pytest.approx(multipletests(p, method="holm")[1])
    outside = set(found.differences) - set(family)
    assert outside == {
        "random(cascade)",
        "random(critic_only)",
        "random(judge_free)",
        "random_round",
        "oracle_best",
        *(set(CELLS) - {"cascade", "critic_only", "judge_free"}),
    }
    assert all(math.isnan(d.p_holm) for label in outside for d in found.differences[label].values())


def test_only_an_informed_policy_gains_against_its_random_stops():
    found = semantic_protocol(drafts(40, seed=11, approve=0.05), given(0.04, 2), resampling=Resampling(n_resamples=200))
    assert set(found.chance) == {"judge_free", "cascade", "critic_only"}
    done = found.replayed
    delta = done.runs["judge_free"].values[SCORE] - done.runs["random(judge_free)"].values[SCORE]
    blind = found.chance["judge_free"]
    assert blind.delta == pytest.approx(delta.mean())
    assert blind.low < 0 < blind.high
    assert blind.p > 0.05
    knows = semantic_protocol(settling(30), given(0.05, 1), resampling=Resampling(n_resamples=200))
    assert knows.chance["judge_free"].low > 0.2
    assert knows.chance["judge_free"].p == pytest.approx(1 / 201)
    assert "Do the signals know" in knows.tables()[1].title


def test_what_cannot_differ_is_no_test_and_does_not_count_for_holm():
    found = semantic_protocol(drafts(20, approve=0.0), given(0.03, 2), resampling=FEW)
    assert "critic_only" not in found.compared.family
    assert {"judge_free", "cascade"} <= set(found.compared.family)
    assert math.isnan(found.compared.differences["critic_only"][SCORE].p_holm)
    rows = [{**item, "information_gain": 0.5 if item["round"] > 1 else None} for item in drafts(20).table.to_pylist()]
    found = semantic_protocol(table(rows), given(0.03, 2), resampling=FEW)
    assert found.replayed.silent == {"critic": "the critic never approves", "gain": "the score always rises"}
    assert len({"judge_free", "cascade"} & set(found.compared.family)) == 1


def test_the_permutation_test_is_that_of_every_permutation():
    scores = {0: (0.1, 0.9, 0.2), 1: (0.4, 0.6, 0.5), 2: (0.3, 0.2, 0.8), 3: (0.5, 0.1, 0.7), 4: (0.2, 0.8, 0.4)}
    stop = {0: 2, 1: 2, 2: 3, 3: 3, 4: 3}
    rows = [
        row(f"q{q}", r, distance=NAN if r == 1 else 0.01 if r == stop[q] else 0.5, score=s)
        for q, line in scores.items()
        for r, s in enumerate(line, 1)
    ]
    found = semantic_protocol(table(rows), given(0.05, 1), resampling=Resampling(n_resamples=4000)).chance["judge_free"]
    means = [
        np.mean([scores[q][k - 1] for q, k in enumerate(dealt)]) for dealt in itertools.permutations(stop.values())
    ]
    observed = np.mean([scores[q][k - 1] for q, k in stop.items()])
    exact = np.mean(np.abs(np.array(means) - np.mean(means)) >= abs(observed - np.mean(means)) - 1e-12)
    assert found.delta == pytest.approx(observed - np.mean(means))
    assert found.p == pytest.approx(exact, abs=0.03)


def test_one_lucky_stop_does_not_prove_that_a_signal_knows():
    """The second round is always better than the third; one question of 200 stops at the third, where it loses nothing."""
    rows = [
        row(
            f"q{q}",
            r,
            distance=NAN if r == 1 else 0.5 if q == 0 and r == 2 else 0.01,
            score=0.5 if q == 0 else (0.1, 0.9, 0.8)[r - 1],
        )
        for q in range(200)
        for r in (1, 2, 3)
    ]
    found = semantic_protocol(table(rows), given(0.05, 1), resampling=Resampling(n_resamples=400))
    assert found.chance["judge_free"].delta > 0
    assert found.chance["judge_free"].low <= 0
    told = found.headline("judge_free")
    assert "It is fixed_k(2) in all but its name: it stops there on 199 of 200 questions." in told


def test_repeated_questions_have_an_interval_but_no_permutations():
    rows = [{**item, "cluster": item["question_id"][:2]} for item in drafts(20).table.to_pylist()]
    found = semantic_protocol(table(rows), given(0.05, 2), resampling=FEW).chance["judge_free"]
    assert math.isnan(found.p)
    assert found.low <= found.delta <= found.high


def test_repeating_every_question_as_a_cluster_changes_no_p_value():
    once = drafts(30, seed=4)
    rows = once.table.to_pylist()
    twice = [
        {**item, "question_id": f"{item['question_id']}/{copy}", "cluster": item["question_id"]}
        for copy in "ab"
        for item in rows
    ]
    (alone, first), (both, second) = (
        (r, replay_all(r, given(0.04))) for r in (read_drafts(once, SCORE), read_drafts(table(twice), SCORE))
    )
    one, two = compare(first, resampling=FEW), compare(second, resampling=FEW)
    assert two.n_clusters == one.n_clusters == 30
    for label, name in itertools.product(("judge_free", "fixed_k(2)"), (SCORE, "tokens")):
        a, b = one.differences[label][name], two.differences[label][name]
        assert (b.p, b.p_wilcoxon, b.d_z, b.low) == pytest.approx((a.p, a.p_wilcoxon, a.d_z, a.low), nan_ok=True)
    alone_trend, both_trend = converge(alone, 0.04, resampling=FEW), converge(both, 0.04, resampling=FEW)
    assert (both_trend.p_t, both_trend.p_wilcoxon, both_trend.slope, both_trend.d_z) == pytest.approx(
        (alone_trend.p_t, alone_trend.p_wilcoxon, alone_trend.slope, alone_trend.d_z)
    )


# --- The conjecture -------------------------------------------------------------------------------------------------


def test_the_share_of_monotone_trajectories_is_the_planted_one():
    falling, rising, gap, short = (NAN, 0.4, 0.3, 0.3), (NAN, 0.2, 0.3, 0.1), (NAN, 0.4, NAN, 0.5), (NAN, 0.4)
    planted = [falling] * 3 + [rising] * 4 + [gap] + [short] * 2
    rows = [row(f"q{q}", r, distance=d) for q, t in enumerate(planted) for r, d in enumerate(t, 1)]
    found = converge(read_drafts(table(rows), SCORE), 0.35, resampling=FEW)
    assert (found.n, found.n_usable) == (10, 8)
    assert found.monotone == pytest.approx(3 / 8)
    assert found.falling == pytest.approx(7 / 8)
    assert [r.n for r in found.rounds] == [10, 7, 8]
    assert found.rounds[0].below == pytest.approx(0.4)
    assert monotone(np.array([falling, rising, gap, (*short, NAN, NAN)])).tolist() == [True, False, False, True]


def test_slopes_are_those_of_numpy_on_the_defined_rounds():
    rng = np.random.default_rng(0)
    distance = rng.random((40, 6))
    distance[:, 0] = NAN
    distance[rng.random((40, 6)) < 0.2] = NAN
    distance[0], distance[1, 2:] = NAN, NAN  # no distance, and a single one
    found = slopes(distance, np.arange(1, 7))
    for values, slope in zip(distance, found, strict=True):
        known = ~np.isnan(values)
        if known.sum() < 2:
            assert math.isnan(slope)
        else:
            assert slope == pytest.approx(np.polyfit(np.arange(1, 7)[known], values[known], 1)[0])


def test_the_slope_is_tested_by_trajectories_and_published_by_pooled_steps():
    read = read_drafts(drafts(60, seed=9), SCORE)
    found = converge(read, 0.05, resampling=FEW)
    each = slopes(read.distance, read.index)
    assert found.slope == pytest.approx(each.mean())
    assert found.p_t == pytest.approx(stats.ttest_1samp(each, 0).pvalue)
    assert found.p_wilcoxon == pytest.approx(stats.wilcoxon(each, method="approx", correction=False).pvalue)
    assert found.d_z == pytest.approx(each.mean() / each.std(ddof=1))
    steps = [b - a for line in read.distance for a, b in itertools.pairwise(line[1:])]
    theirs = stats.wilcoxon(steps, alternative="less")
    assert (found.pooled.n_steps, found.pooled.mean_step) == (240, pytest.approx(np.mean(steps)))
    assert found.pooled.p_decreasing == pytest.approx(theirs.pvalue)
    told = semantic_protocol(drafts(8, seed=9), given(0.05), resampling=FEW)
    [conjecture] = [t for t in told.tables() if t.title.startswith("The conjecture")]
    assert any("published method (pools dependent steps)" in cells[0] for cells in conjecture.rows)


@pytest.mark.parametrize(("sign", "verdict"), [(-1, "distances fall on average"), (1, "distances rise on average")])
def test_the_verdict_on_the_conjecture_follows_the_planted_trend(sign, verdict):
    rng = np.random.default_rng(0)
    rows = [
        row(f"q{q}", r, distance=NAN if r == 1 else 0.3 + sign * 0.02 * r + rng.normal(0, 0.01))
        for q in range(40)
        for r in range(1, 7)
    ]
    assert converge(read_drafts(table(rows), SCORE), 0.05, resampling=FEW).verdict == verdict


def test_identical_drafts_have_no_trend_and_two_drafts_no_slope():
    same = [row(f"q{q}", r, distance=0.0 if r > 1 else NAN) for q in range(4) for r in range(1, 5)]
    found = semantic_protocol(table(same), given(0.05), resampling=FEW)
    assert found.convergence.monotone == 1
    assert found.convergence.slope == 0
    assert found.convergence.verdict == "no trend is shown"
    assert math.isnan(found.convergence.pooled.p_decreasing)
    assert set(found.replayed.rounds["judge_free"].tolist()) == {3.0}
    pair = [
        row(f"q{q}", r, distance=0.1 if r > 1 else NAN, gain=0.0 if r > 1 else NAN) for q in range(4) for r in (1, 2)
    ]
    found = semantic_protocol(table(pair), given(0.05, 1), resampling=FEW)
    assert found.convergence.verdict == "not testable: no trajectory has two distances"
    json.dumps(found.to_dict(), allow_nan=False)


# --- Claims of the theory -------------------------------------------------------------------------------------------


def test_the_claims_hold_here_and_are_those_that_make_prove_proves():
    read, done = replayed(ragged(30), given(0.04, 2))
    checked = check_theory(read, done)
    assert [item.holds for item in checked] == [True] * 5
    names = {claim.name for claim in CLAIMS}
    assert set(PROVED.values()) <= names
    assert {item.proved for item in checked} <= names


def test_each_claim_can_fail(monkeypatch):
    read, done = replayed(drafts(20, approve=0.1), given(0.04, 2))

    def status(found):
        return [item.holds for item in found]

    late = dataclasses.replace(done, rounds={**done.rounds, "gain_only": done.rounds["gain_only"] + 9})
    assert status(check_theory(read, late)) == [False, True, True, True, True]
    read.prepared.metrics[SCORE][0, 0] = 1.5
    assert status(check_theory(read, done)) == [True, False, True, True, True]
    read.prepared.metrics[SCORE][0, 0] = 0.5
    far = dataclasses.replace(read, distance=np.where(np.isnan(read.distance), NAN, 2.5))
    assert status(check_theory(far, done)) == [True, True, False, True, True]

    def early(policy, raw):
        found = stops(policy, raw)
        return dataclasses.replace(found, position=np.zeros_like(found.position), fired=np.ones_like(found.fired))

    monkeypatch.setattr("suffice.evaluation.replay.prepared.stops", early)
    assert status(check_theory(read, done)) == [True, True, True, False, False]


# --- What is left out, and what is refused --------------------------------------------------------------------------


def test_questions_without_marks_are_left_out_of_every_policy_alike_and_counted():
    rows = drafts(20).table.to_pylist()
    for item in rows:
        if item["question_id"] in ("q3", "q7") and item["round"] == 4:
            item["information_score"] = item["information_gain"] = None
    found = semantic_protocol(table(rows), given(0.05), resampling=FEW)
    assert found.drafts.n == 18
    assert {run.values[SCORE].shape for run in found.replayed.runs.values()} == {(18,)}
    assert any("WARNING: 2 of 20 questions are left out" in note for note in found.notes)
    rows = drafts(40).table.to_pylist()
    rows[3]["information_score"] = None
    few = semantic_protocol(table(rows), given(0.05), resampling=FEW)
    assert any(note.startswith("1 of 40 questions are left out") for note in few.notes)


def test_an_empty_draft_needs_no_mark_because_no_policy_returns_it():
    rows = drafts(10).table.to_pylist()
    for item in rows:
        if item["question_id"] == "q3" and item["round"] == 4:
            item["answer"] = item["information_score"] = None
    assert semantic_protocol(table(rows), given(0.05), resampling=FEW).drafts.n == 10


def test_a_trajectory_of_one_round_is_returned_by_every_policy():
    rows = [*drafts(20).table.to_pylist(), row("alone", 1, score=0.7, end="exhausted")]
    found = semantic_protocol(table(rows), given(0.05), resampling=FEW)
    position = found.drafts.prepared.recording.question_ids.index("alone")
    assert {round(float(values[position]), 12) for values in found.replayed.rounds.values()} == {1.0}
    assert found.convergence.n_usable == 20
    assert any("one draft: 1" in note for note in found.notes)


def test_a_closed_book_round_before_drafts_is_never_used_nor_charged():
    plain = drafts(12, approve=0.1, shorter=0.2)
    rows = [row(q, 0, score=0.9, end=end) for q, end in zip(plain.question_ids, plain.ends, strict=True)]
    before, after = (
        semantic_protocol(r, given(0.05), resampling=FEW) for r in (plain, table([*rows, *plain.table.to_pylist()]))
    )
    for label, rounds in before.replayed.rounds.items():
        assert np.array_equal(rounds, after.replayed.rounds[label]), label
        assert np.array_equal(before.replayed.spent(label), after.replayed.spent(label)), label
        assert np.array_equal(before.replayed.runs[label].values[SCORE], after.replayed.runs[label].values[SCORE]), (
            label
        )
    assert after.convergence == before.convergence
    assert after.chance == before.chance
    assert [item.holds for item in after.checked] == [True] * 5


def test_failed_questions_are_left_out_and_counted():
    rows = [{**item, "end": "failed"} if item["question_id"] == "q1" else item for item in drafts(12).table.to_pylist()]
    found = semantic_protocol(table(rows), given(0.05), resampling=FEW)
    assert found.drafts.n == 11
    assert any("left out of every policy alike: 1" in note for note in found.notes)


def test_a_recording_that_a_rule_cut_is_refused():
    whole = drafts(12, rounds=4).table.to_pylist()
    rows = [{**item, "end": "rule"} for item in whole if item["question_id"] != "q1" or item["round"] < 3]
    with pytest.raises(CensoredError, match="a rule ended"):
        semantic_protocol(table(rows), given(0.0001), resampling=FEW)
    at_the_end = [{**item, "end": "rule"} for item in whole]  # cut after the last round: nothing is missing
    assert semantic_protocol(table(at_the_end), given(0.0001), resampling=FEW).drafts.n == 12


def test_any_metric_in_the_unit_interval_will_do():
    rows = [{**item, "flag": float(item["round"] == 2)} for item in drafts(30).table.to_pylist()]
    for item in rows:
        item.pop("information_score")
    found = semantic_protocol(
        table(rows),
        tune(
            table([{**i, "question_id": f"d{i['question_id']}", "cluster": None, "question": None} for i in rows]),
            "flag",
        ),
        metric="flag",
        resampling=FEW,
    )
    assert found.drafts.metric == "flag"
    assert (
        found.result.row("judge_free").dominated_by == "fixed_k(2)" or found.replayed.rounds["judge_free"].mean() == 2
    )
    assert semantic_protocol(drafts(8), given(0.05), metric="agreement", resampling=FEW).drafts.metric == "agreement"


def test_unknown_prompt_tokens_leave_output_tokens_and_unknown_costs_leave_calls():
    def without(*endings):
        rows = drafts(15, approve=0.2).table.to_pylist()
        return table([{k: v for k, v in item.items() if not k.endswith(endings)} for item in rows])

    found = semantic_protocol(without("uncached_tokens", "cached_tokens"), given(0.05), resampling=FEW)
    assert found.replayed.tokens_name == "output tokens"
    assert found.result.cost == "calls"
    assert any("output tokens saved" in column.name for column in found.tables()[0].columns)
    found = semantic_protocol(without("tokens", "calls", "seconds"), given(0.05), resampling=FEW)
    assert found.result.cost == "calls"
    assert all(math.isnan(cells[3]) and cells[4] is None for cells in found.tables()[0].rows)
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_judge_whose_calls_were_not_recorded_is_said_to_flatter():
    rows = [{k: v for k, v in item.items() if "judge" not in k} for item in drafts(10).table.to_pylist()]
    found = semantic_protocol(table(rows), given(0.05), resampling=FEW)
    assert any("look cheaper than they are" in note for note in found.notes)
    assert not any("look cheaper" in note for note in semantic_protocol(drafts(10), given(0.05), resampling=FEW).notes)


def without(recording, name):
    return table([{k: v for k, v in item.items() if k != name} for item in recording.table.to_pylist()])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: without(drafts(5), "semantic_distance"), "not embedded"),
        (lambda: table([{**i, "semantic_distance": None} for i in drafts(5).table.to_pylist()]), "not embedded"),
        (lambda: drafts(5, rounds=1), "second draft"),
        (lambda: without(drafts(5), SCORE), "suffice judge drafts"),
        (lambda: without(drafts(5), "answer"), "'answer'"),
        (lambda: table([{**i, SCORE: None} for i in drafts(5).table.to_pylist()]), "at every round"),
        (lambda: table([{**i, SCORE: 4.0} for i in drafts(5).table.to_pylist()]), r"\[0, 1\]|every"),
        (lambda: table([{**i, "end": "failed"} for i in drafts(5).table.to_pylist()]), "failed"),
    ],
)
def test_a_recording_that_cannot_tell_is_refused_with_what_to_do(make, told):
    with pytest.raises(SufficeError, match=told):
        semantic_protocol(make(), given(0.05), resampling=FEW)


def test_settings_out_of_range_are_refused():
    for call in (
        lambda: given(0.0),
        lambda: given(3.0),
        lambda: given(float("nan")),
        lambda: given(0.1, 0),
        lambda: given(0.1, True),
        lambda: split_drafts(drafts(10), 0.0),
        lambda: split_drafts(drafts(10), float("nan")),
        lambda: split_drafts(drafts(2), 0.0001),
        lambda: tune(drafts(10), SCORE, tolerance=-0.1),
        lambda: tune(drafts(10), SCORE, patiences=(0,)),
        lambda: tune(drafts(10, rounds=2), SCORE, patiences=(2, 3)),
        lambda: semantic_protocol(drafts(10), given(0.1), margins=(), resampling=FEW),
        lambda: semantic_protocol(drafts(10), given(0.1), margins=(-0.1,), resampling=FEW),
        lambda: semantic_protocol(drafts(10), given(0.1), ledger="theirs", resampling=FEW),
        lambda: semantic_protocol(drafts(10), given(0.1), metric="nothing", resampling=FEW),
    ):
        with pytest.raises(DataError):
            call()
