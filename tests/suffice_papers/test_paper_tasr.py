"""The tables of TASR from imported recordings: equal to plain loops, beside the published figures, and honest."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

import suffice
from suffice.errors import DataError
from suffice.evaluation.replay import replay
from suffice.evaluation.search import search
from suffice.evaluation.statistics import Resampling
from suffice.loops.retrieval import dataset_hash
from suffice.policy.metrics import normalize_answer
from suffice_papers import commands
from suffice_papers.multinomial import draws_by_place
from suffice_papers.published import published_tasr
from suffice_papers.tasr import tasr_tables
from suffice_papers.tasr.cells import TasrCell, load_cell, read_cells
from suffice_papers.tasr.figures import tasr_charts
from suffice_papers.tasr.frontier import cell_table, figure3, macro_table
from suffice_papers.tasr.searched import search_summary
from suffice_papers.tasr.signal_tables import margin_figure
from suffice_papers.tasr.tasr_tables import PARTS, paper_tasr
from tests.support import paper
from tests.support.cli_tools import cli
from tests.support.reference import dominated

pytestmark = pytest.mark.usefixtures("quick_reader")

ROOT = Path(__file__).resolve().parents[2]
DRAWS = Resampling(n_resamples=200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    paper.cell_list(folder)
    return folder


@pytest.fixture(scope="module")
def cells(folder):
    return read_cells(folder / "cells.toml")


@pytest.fixture(scope="module", autouse=True)
def _tables_are_made_once():
    """Commands that print the same tables in other forms compute them once, and `made` is what a command prints."""
    kept = {}

    def once(cells, *, resampling, command="", on_progress=None):
        asked = (tuple(cells), resampling)
        if asked not in kept:
            kept[asked] = paper_tasr(cells, resampling=resampling, command=command, on_progress=on_progress)
        return kept[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "paper_tasr", once)
        yield


@pytest.fixture(scope="module")
def loaded(cells):
    return [load_cell(cell, resampling=DRAWS) for cell in cells]


@pytest.fixture(scope="module")
def made(cells, _tables_are_made_once):
    return commands.paper_tasr(cells, resampling=DRAWS)


@pytest.fixture(scope="module")
def alone(cells, _tables_are_made_once):
    """The tables of the first cell by itself."""
    return commands.paper_tasr(cells[:1], resampling=DRAWS)


def table(made, start):
    return next(item for item in made.tables() if item.title.startswith(start))


def rows(found):
    """The rows of a table as mappings by column."""
    names = [column.name for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows]


def line(found, figures="here", **heads):
    return next(
        row
        for row in rows(found)
        if row["figures"] == figures and all(row[name] == head for name, head in heads.items())
    )


def value(figure):
    return figure[0] if isinstance(figure, tuple) else figure


# Plain loops


def questions(listed):
    """Recorded rounds by question, in the order of their ids, in which the authors draw."""
    grouped = {}
    for row in sorted(listed, key=lambda row: row["qid"]):
        grouped.setdefault(row["qid"], []).append(row)
    return list(grouped.values())


@cache
def recorded(name):
    """The tune and eval questions of one of the fixture's cells."""
    _, model, corpus, _, prompt, _, n, _ = next(item for item in paper.CELLS if item[0] == name)
    says = 0.6 if prompt == "confidence_first" else None
    tune = questions(paper.rows(model, "hotpotqa", "tune", 40))
    return tune, questions(paper.rows(model, corpus, "eval", n, says_five=says))


def p_correct(tune, evaluation):
    """Isotonic regression of EM on the margin, one for each round, by scikit-learn; None without a margin."""
    found = []
    for r in range(paper.ROUNDS):
        known = [question[r] for question in tune if question[r]["answer_token_margin"] is not None]
        model = IsotonicRegression(out_of_bounds="clip")
        model.fit([row["answer_token_margin"] for row in known], [row["current_em"] for row in known])
        margins = [question[r]["answer_token_margin"] for question in evaluation]
        p = iter(model.predict([margin for margin in margins if margin is not None]).tolist())
        found.append([None if margin is None else next(p) for margin in margins])
    return list(zip(*found, strict=True))


def tasr_stop(question, probabilities):
    """The position at which the answer repeats and its calibrated margin exceeds 0.25, else the last."""
    for r in range(1, len(question)):
        same = normalize_answer(question[r]["current_answer"]) == normalize_answer(question[r - 1]["current_answer"])
        if same and probabilities[r] is not None and probabilities[r] > 0.25:
            return r
    return len(question) - 1


@cache
def replayed(name):
    """F1 and calls of every policy by question, in plain loops."""
    tune, evaluation = recorded(name)
    probabilities = p_correct(tune, evaluation)
    f1 = [[row["current_f1"] for row in question] for question in evaluation]
    stops = [tasr_stop(*pair) for pair in zip(evaluation, probabilities, strict=True)]
    right = [next((r for r, row in enumerate(q) if row["current_em"]), 0) for q in evaluation]
    best = [max(range(paper.ROUNDS), key=lambda r, at=at: (at[r], -r)) for at in f1]
    picked = {f"fixed_k({k})": [k - 1] * len(f1) for k in range(1, paper.ROUNDS + 1)}
    picked |= {"tasr": stops, "oracle_earliest": right, "oracle_best": best}
    found = {
        label: ([at[r] for at, r in zip(f1, chosen, strict=True)], [r + 1 for r in chosen])
        for label, chosen in picked.items()
    }
    shares = [stops.count(r) / len(stops) for r in range(paper.ROUNDS)]
    chance = [sum(share * at[r] for r, share in enumerate(shares)) for at in f1]
    found["random(tasr)"] = chance, [fmean(r + 1 for r in stops)] * len(f1)
    return found


def ends(values, seed=42, n=200):
    """The percentile interval of a mean, by the documented draws."""
    drawn = np.random.default_rng(seed).integers(0, len(values), size=(n, len(values)))
    means = np.asarray(values)[drawn].mean(axis=1)
    return np.quantile(means, [0.025, 0.975]).tolist()


# Tables against plain loops


@pytest.mark.parametrize(
    ("name", "start"), [("ours_qwen_hp", "Table 2"), ("ours_gemma_hp", "Table 2"), ("ours_qwen_nq", "Table 4")]
)
def test_the_figures_of_a_cell_equal_plain_loops(made, name, start):
    found, expected = line(table(made, start), cell=name), replayed(name)
    (f1, calls), (base, _), (chance, _) = (expected[label] for label in ("tasr", "fixed_k(3)", "random(tasr)"))
    gain = [ours - theirs for ours, theirs in zip(f1, base, strict=True)]
    assert found["F1"] == pytest.approx((fmean(f1), *ends(f1)))
    assert found["calls"] == pytest.approx((fmean(calls), *ends(calls)))
    assert found["ΔF1 vs k=3"] == pytest.approx((fmean(gain), *ends(gain)))
    assert value(found["ΔF1 vs random stop"]) == pytest.approx(fmean(f1) - fmean(chance))
    if start == "Table 4":
        assert found["k=3 F1"] == pytest.approx((fmean(base), *ends(base)))
        assert value(found["k=5 F1"]) == pytest.approx(fmean(expected["fixed_k(5)"][0]))


def test_the_macro_is_the_mean_of_the_cells(made):
    everything = [replayed(name) for name, *_ in paper.CELLS if name in ("ours_qwen_hp", "ours_gemma_hp", "of_my_own")]
    found = table(made, "Table 1")
    fixed = [f"fixed_k({k})" for k in range(1, 6)]
    methods = [row["method"] for row in rows(found)]
    assert methods == [*fixed, "tasr", "random(tasr)", "oracle_earliest", "oracle_best"]
    for label in everything[0]:
        row = line(found, method=label)
        assert value(row["F1"]) == pytest.approx(fmean(fmean(cell[label][0]) for cell in everything)), label
        assert value(row["calls"]) == pytest.approx(fmean(fmean(cell[label][1]) for cell in everything)), label
        delta = fmean(fmean(cell[label][0]) - fmean(cell["fixed_k(3)"][0]) for cell in everything)
        assert value(row["ΔF1 vs k=3"]) == pytest.approx(delta, abs=1e-12), label


def test_cells_with_the_same_questions_share_their_draws(loaded):
    pair = [item for item in loaded if item.cell.name in ("ours_qwen_hp", "ours_gemma_hp")]
    found = line(macro_table(pair, published_tasr(), DRAWS), method="tasr")
    together = np.mean([replayed(item.cell.name)["tasr"][0] for item in pair], axis=0)
    assert found["F1"] == pytest.approx((together.mean(), *ends(together)))


def test_the_interval_of_one_cell_is_on_draws_by_place(loaded):
    item = loaded[0]
    f1 = {label: np.array(values) for label, (values, _) in replayed(item.cell.name).items()}
    expected = draws_by_place(DRAWS, len(f1["tasr"])).paired(f1["tasr"] - f1["fixed_k(3)"])
    found = line(cell_table([item], published_tasr(), DRAWS, "distractor"), cell=item.cell.name)
    assert found["ΔF1 vs k=3"] == pytest.approx(expected.triple)
    row = replay(item.eval, [item.policy], metrics=("f1",), resampling=DRAWS).row("tasr").deltas["f1"]
    assert row.delta == pytest.approx(expected.delta)


def test_a_dominating_baseline_is_named(made):
    """In the cell where one exists, and nowhere else."""
    for name, start in (("ours_qwen_hp", "Table 2"), ("ours_gemma_hp", "Table 2"), ("of_my_own", "Table 2")):
        points = {label: (fmean(f1), fmean(calls)) for label, (f1, calls) in replayed(name).items()}
        rivals = {label: point for label, point in points.items() if label.startswith(("fixed", "random"))}
        better = dominated(points["tasr"], rivals) or coins_above(points["tasr"], rivals)
        remark = line(table(made, start), cell=name)["remarks"]
        assert ("dominated by" in remark) == bool(better)
        assert not better or remark.split("dominated by ")[1].split(";")[0] in better


def coins_above(point, rivals):
    """Name the mixtures of two budgets that cost as much as a policy and reach a higher F1."""
    f1, calls = point
    budgets = {label: at for label, at in rivals.items() if label.startswith("fixed")}
    return {
        f"a mixture of {cheap} and {dear}"
        for cheap, (low, least) in budgets.items()
        for dear, (high, most) in budgets.items()
        if least < calls < most and low + (high - low) * (calls - least) / (most - least) > f1 + 1e-12
    }


def test_table_6_equals_plain_loops(made):
    found = line(table(made, "Table 6"), model="qwen", setting="distractor")
    tune, evaluation = recorded("ours_qwen_hp")
    pairs = [
        (row["answer_token_margin"], p)
        for question, chances in zip(evaluation, p_correct(tune, evaluation), strict=True)
        for row, p in zip(question, chances, strict=True)
        if p is not None
    ]
    assert value(found["raw margin, nats"]) == pytest.approx(fmean(margin for margin, _ in pairs))
    assert value(found["calibrated margin"]) == pytest.approx(fmean(p for _, p in pairs))
    assert value(found["k=1 F1"]) == pytest.approx(fmean(replayed("ours_qwen_hp")["fixed_k(1)"][0]))


def d(listed, name):
    """Cohen's d with the pooled standard deviation."""
    known = [row for row in listed if row[name] is not None]
    right, wrong = ([row[name] for row in known if row["current_em"] == em] for em in (1, 0))
    pooled = ((len(right) - 1) * stdev(right) ** 2 + (len(wrong) - 1) * stdev(wrong) ** 2) / (len(known) - 2)
    return (fmean(right) - fmean(wrong)) / math.sqrt(pooled)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("overlap", "jaccard_overlap"),
        ("score_gap", "gap_1_2"),
        ("judge_entailment", "judge_entailment"),
        ("answer_margin", "answer_token_margin"),
        ("rerank_score", "rerank_score"),
        ("answer_in_evidence", "answer_in_evidence"),
    ],
)
def test_table_3_equals_plain_loops(made, ours, theirs):
    found = line(table(made, "Table 3"), cell="ours_gemma_hp", signal=ours)
    tune, evaluation = ([row for question in part for row in question] for part in recorded("ours_gemma_hp"))
    assert value(found["tune d"]) == pytest.approx(d(tune, theirs))
    assert value(found["eval d"]) == pytest.approx(d(evaluation, theirs))
    assert value(found["Δ"]) == pytest.approx(d(evaluation, theirs) - d(tune, theirs))
    assert found["tune d"][1] < found["tune d"][0] < found["tune d"][2]
    assert any("the authors' columns are 0 there" in note for note in table(made, "Table 3").notes)


def test_margins_of_another_prompt_do_not_stand_beside_the_published_ones(loaded):
    item = loaded[0]
    assert line(margin_figure([item], published_tasr(), DRAWS), "published")["rounds"] == 500
    other = replace(item, cell=replace(item.cell, prompt="confidence_first"))
    found = rows(margin_figure([other], published_tasr(), DRAWS))
    assert [(row["figures"], row["remarks"]) for row in found] == [("here", "published: -")]


def test_figure_2_equals_plain_loops(made):
    found = line(table(made, "Figure 2, left"), cell="ours_gemma_hp")
    known = [row for q in recorded("ours_gemma_hp")[0] for row in q if row["answer_token_margin"] is not None]
    right, wrong = ([row["answer_token_margin"] for row in known if row["current_em"] == em] for em in (1, 0))
    assert found["rounds"] == len(known)
    assert value(found["right, nats"]) == pytest.approx(fmean(right))
    assert value(found["wrong, nats"]) == pytest.approx(fmean(wrong))
    assert value(found["separation, nats"]) == pytest.approx(fmean(right) - fmean(wrong))
    shown = [row["cell"] for row in rows(table(made, "Figure 2, left")) if row["figures"] == "here"]
    assert shown == ["ours_qwen_hp", "ours_gemma_hp"], "once for each tune recording"
    buckets = [row for row in rows(table(made, "Figure 2, right")) if row["cell"] == "ours_gemma_hp"]
    ordered = sorted(known, key=lambda row: row["answer_token_margin"])
    assert [row["rounds"] for row in buckets] == [len(part) for part in np.array_split(ordered, 5)]
    for bucket, part in zip(buckets, np.array_split(ordered, 5), strict=True):
        assert value(bucket["P(EM = 1)"]) == pytest.approx(fmean(row["current_em"] for row in part))


def test_the_separation_is_resampled_by_question(made):
    low, high = line(table(made, "Figure 2, left"), cell="ours_qwen_hp")["separation, nats"][1:]
    tune = recorded("ours_qwen_hp")[0]
    drawn = np.random.default_rng(42).integers(0, len(tune), size=(200, len(tune)))
    resampled = []
    for draw in drawn:
        known = [row for q in draw for row in tune[q] if row["answer_token_margin"] is not None]
        sides = [[row["answer_token_margin"] for row in known if row["current_em"] == em] for em in (1, 0)]
        resampled.append(fmean(sides[0]) - fmean(sides[1]))
    assert (low, high) == pytest.approx(np.quantile(resampled, [0.025, 0.975]))


@pytest.mark.parametrize(
    ("prompt", "names"),
    [("answer_first", ("ours_qwen_hp", "ours_gemma_hp", "ours_qwen_nq")), ("confidence_first", ("confidence",))],
)
def test_figure_5_equals_plain_loops(made, prompt, names):
    found = line(table(made, "Figure 5"), prompt=prompt, cells=len(names))
    said = [row["llm_confidence"] for name in names for question in recorded(name)[1] for row in question]
    for mark in range(1, 6):
        assert value(found[f"% {mark}"]) == pytest.approx(said.count(mark) / len(said))
    shares = [said.count(mark) / len(said) for mark in set(said)]
    assert found["entropy, nats"] == pytest.approx(-sum(share * math.log(share) for share in shares))


def test_figures_3_and_4_hold_the_points_of_the_tables(made):
    for row in rows(table(made, "Table 1")):
        if not row["method"].startswith("oracle"):
            point = line(table(made, "Figure 3"), setting="distractor", policy=row["method"])
            assert (point["F1"], point["calls"]) == (row["F1"], row["calls"])
    for name in ("ours_qwen_hp", "of_my_own"):
        point, row = line(table(made, "Figure 4"), cell=name), line(table(made, "Table 2"), cell=name)
        assert (point["TASR F1"], point["calls"]) == (row["F1"], row["calls"])


def drawn(paper_, start):
    """The chart of a figure by the beginning of its name, and the rows of its layers by their mark."""
    figure = next(item for item in paper_.figures if item.name.startswith(start))
    spec = figure.spec
    return spec, [layer.get("data", spec["data"])["values"] for layer in spec["layer"]]


def test_the_figures_are_drawn_from_the_points_of_the_tables(made, loaded):
    names = [figure.name for figure in made.figures]
    assert names == [
        *(f"figure2-{what}-ours-{model}-hp" for what in ("margins", "reliability") for model in ("qwen", "gemma")),
        *("figure3-distractor", "figure3-open-domain-bm25", "figure4-gemma", "figure4-qwen", "figure5-confidence"),
    ]
    spec, _ = drawn(made, "figure3-distractor")
    points = {point["label"]: point for point in spec["data"]["values"]}
    for label in ("tasr", "fixed_k(4)"):
        row = line(table(made, "Figure 3"), setting="distractor", policy=label)
        assert points[label]["quality"] == pytest.approx(100 * row["F1"][0])
        assert points[label]["low"] == pytest.approx(100 * row["F1"][1])
        assert points[label]["cost"] == pytest.approx(value(row["calls"]))
    _, (fixed, ways, *_) = drawn(made, "figure4-gemma")
    own = line(table(made, "Figure 4"), cell="of_my_own")
    way = {point["policy"]: (point["calls"], point["f1"]) for point in ways if point["cell"] == "of_my_own"}
    assert way["TASR"] == pytest.approx((value(own["calls"]), 100 * own["TASR F1"][0]))
    assert way["k = 3"] == pytest.approx((3, 100 * own["k=3 F1"][0]))
    assert len(fixed) == 2 * 5
    _, (bars, means) = drawn(made, "figure2-margins-ours-qwen")
    row = line(table(made, "Figure 2, left"), cell="ours_qwen_hp")
    assert [mean["mean"] for mean in means] == pytest.approx([row["right, nats"][0], row["wrong, nats"][0]])
    for answer in ("right", "wrong"):
        assert sum(bar["share"] for bar in bars if bar["answer"] == answer) == pytest.approx(1)
    _, (shares,) = drawn(made, "figure5")
    for prompt in dict.fromkeys(share["prompt"] for share in shares):
        assert sum(share["share"] for share in shares if share["prompt"] == prompt) == pytest.approx(1)
    pair = [item for item in loaded if item.cell.name in ("ours_qwen_hp", "ours_gemma_hp")]
    whole = {name: cell for name, cell in published_tasr().cells.items() if name in ("qwen_hp", "gemma_hp")}
    compared = figure3(pair, replace(published_tasr(), cells=whole), DRAWS)
    (figure,) = [item for item in tasr_charts([], [compared], published_tasr()) if item.name == "figure3-distractor"]
    theirs = figure.spec["layer"][-1]["data"]["values"]
    assert {"label": "tasr", "cost": 3.13, "quality": pytest.approx(57.4)} in theirs
    assert figure.spec["usermeta"]["legend"][-1]["name"] == "published"


def test_the_command_draws_the_figures_as_pictures(one, tmp_path):
    result = cli("paper", "tasr", "--cells", one, "--set=resamples=50", f"--set=figures={tmp_path / 'figures'}")
    pictures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert len(pictures) == 5
    assert f"5 figures written to {tmp_path / 'figures'}" in result.words
    for name in pictures:
        words = [node.text for node in ET.parse(tmp_path / "figures" / name).iter() if node.tag.endswith("text")]
        assert {"answer margin, nats", "P(EM = 1)", "F1, points", "share of rounds"} & {*words}, name


def test_the_search_counts_what_dominates_tasr_and_reports_what_tune_chose(made, loaded):
    item = loaded[0]
    found = line(table(made, "Section 5.3"), cell="ours_qwen_hp", space="tasr-dnf-876")
    result = search(item.eval, "tasr-dnf-876", tune=item.tune, resampling=DRAWS)
    tasr = next(named for named in result.named if named.name == "tasr")
    points = {
        number: (row["quality"], row["calls"], row["members"])
        for number, row in enumerate(result.rows(range(len(result.distinct))))
    }
    better = dominated((tasr.quality, tasr.calls), {number: point[:2] for number, point in points.items()})
    assert found["rules"] == 876 == sum(point[2] for point in points.values())
    assert found["dominate TASR"] == sum(points[number][2] for number in better)
    chosen = replay(item.eval, [result.chosen.policy], metrics=("f1",), resampling=DRAWS).rows[0]
    assert value(found["chosen, ΔF1 vs k=3"]) == pytest.approx(chosen.deltas["f1"].delta)
    assert found["calls"] == pytest.approx(chosen.calls.mean)
    assert found["chosen on tune"] == chosen.rule
    assert any("tasr-381: " in note and "confidence_first" in note for note in table(made, "Section 5.3").notes)


def two_prompts(folder, split, n):
    """One file with the rounds of both prompts, as TASR's importer takes it."""
    plain, asked = (paper.rows("qwen", "hotpotqa", split, n, says_five=says) for says in (None, 0.6))
    listed = [{**row, "prompt_id": "answer_first"} for row in plain]
    return paper.imported(
        folder, f"two_{split}", listed + [{**row, "prompt_id": "confidence_first@1"} for row in asked]
    )


def test_a_file_of_two_prompts_gives_each_cell_its_own(cells, tmp_path, made, only):
    only("Table 2", "Section 5.3", "Figure 5")
    files = {split: two_prompts(tmp_path, split, n) for split, n in (("tune", 40), ("eval", 60))}
    plain = replace(cells[0], **files)
    asked = replace(cells[3], name="asked", **files)
    again = paper_tasr([plain, asked], resampling=DRAWS)
    own = line(table(made, "Table 2"), cell="ours_qwen_hp")
    assert line(table(again, "Table 2"), cell="ours_qwen_hp") == own
    assert line(table(again, "Figure 5"), prompt="confidence_first")["rounds"] == 300
    assert line(table(again, "Section 5.3"), space="tasr-381")["rules"] == 381
    assert line(table(again, "Section 5.3"), space="tasr-dnf-876")["rules"] == 876
    with pytest.raises(DataError, match="'no_confidence'"):
        load_cell(replace(plain, published="", prompt="no_confidence"), resampling=DRAWS)


def test_a_rule_equal_to_tasr_in_quality_and_cost_does_not_dominate():
    class Merged(SimpleNamespace):
        def __len__(self):
            return len(self.members)

    result = SimpleNamespace(
        columns={"quality": np.array([0.5, 0.5, 0.6, 0.4, 0.6]), "calls": np.array([3.0, 2.9, 3.0, 2.0, 3.1])},
        distinct=Merged(members=np.array([1, 10, 100, 1000, 10000])),
        named=[SimpleNamespace(name="tasr", quality=0.5, calls=3.0)],
        n_rules=11111,
        chosen=None,
        optimism=None,
    )
    rule, here = search_summary(result)
    assert (rule, here["dominating"], here["rules"], here["distinct"]) == ("", 110, 11111, 5)


# Beside the published figures


def test_published_figures_stand_below_ours_with_the_difference(made):
    found = table(made, "Table 2")
    ours, theirs, difference = (line(found, what, cell="ours_qwen_hp") for what in ("here", "published", "difference"))
    assert theirs["F1"] == pytest.approx(0.6846)
    assert theirs["ΔF1 vs k=3"] == pytest.approx((0.0327, 0.0148, 0.0530))
    assert theirs["ΔF1 vs random stop"] is None
    for name in ("F1", "calls", "ΔF1 vs k=3"):
        assert difference[name] == pytest.approx(value(ours[name]) - value(theirs[name]))
        outside = not ours[name][1] <= value(theirs[name]) <= ours[name][2]
        assert (name in difference["remarks"].removeprefix("published outside our interval: ").split("; ")) == outside


def test_what_lies_inside_the_interval_is_not_marked():
    layout_cells = published_tasr()
    from suffice.common.tables import Column
    from suffice_papers.tasr.rows import Layout

    layout = Layout(
        key="table2",
        title="T",
        heads=("cell",),
        columns={"f1": Column("F1", ".2f", scale=100), "calls": Column("calls", ".2f")},
        published=layout_cells,
    )
    for f1, calls, marked in [
        ((0.68, 0.67, 0.69), (2.7, 2.6, 2.8), ""),
        ((0.60, 0.59, 0.61), (2.7, 2.6, 2.8), "published outside our interval: F1"),
        ((0.68, 0.67, 0.69), (3.0, 3.0, 3.0), "published outside our interval: calls"),
        ((0.6846, 0.68464, 0.68466), (2.71, 2.71, 2.71), ""),  # equal but for the rounding of the print
        ((0.60, math.nan, math.nan), 2.0, ""),  # without an interval there is nothing to say
    ]:
        lines = layout.lines(("c",), {"f1": f1, "calls": calls}, "qwen_hp")
        assert lines[-1][-1] == marked


def test_inconsistent_published_cells_are_flagged_with_their_reason(made):
    assert line(table(made, "Table 2"), "published", cell="ours_gemma_hp")["remarks"] == "[dominated]"
    assert any("61.47 F1 at 3.173" in note for note in table(made, "Table 2").notes)
    old = line(table(made, "Figure 2, left"), "published (24 cells)", cell="ours_qwen_hp")
    assert (old["separation, nats"], old["remarks"]) == (3.08, "[smoke-test]")
    assert line(table(made, "Figure 2, left"), "published", cell="ours_qwen_hp")["separation, nats"] == 2.75
    flags = rows(table(made, "Published figures that do not fit"))
    assert [row["flag"] for row in flags] == [flag.id for flag in published_tasr().flags]


def test_cells_of_our_own_are_compared_with_nothing(made):
    for start in ("Table 2", "Figure 4"):
        own = [row for row in rows(table(made, start)) if row["cell"] == "of_my_own"]
        assert [row["figures"] for row in own] == ["here"]
        assert "published: -" in own[0]["remarks"]
    assert any("without a published counterpart" in note for note in table(made, "Cells").notes)


def test_the_macro_is_compared_only_over_the_papers_own_cells(made, loaded):
    for start in ("Table 1", "Figure 3"):
        assert {row["figures"] for row in rows(table(made, start))} == {"here"}
        assert any("not compared" in note for note in table(made, start).notes)
    pair = [item for item in loaded if item.cell.name in ("ours_qwen_hp", "ours_gemma_hp")]
    few = {name: told for name, told in published_tasr().cells.items() if name in ("qwen_hp", "gemma_hp")}
    whole = replace(published_tasr(), cells=few)
    found = macro_table(pair, whole, DRAWS)
    assert line(found, "published", method="tasr")["F1"] == pytest.approx(0.5740)
    oracle = line(found, "published", method="oracle_best")
    assert (oracle["F1"], oracle["calls"]) == pytest.approx((0.6526, 1.61))
    assert oracle["remarks"] == "[oracle-of-the-text]"
    assert line(found, method="oracle_earliest")["remarks"] == "published: -"
    assert any("the oracle as the earliest correct round" in note for note in found.notes)
    assert line(found, method="fixed_k(2)")["remarks"] == "published: -"
    assert any(note.startswith("published [no-random-stop]") for note in found.notes)
    assert line(cell_table(pair, whole, DRAWS, "distractor"), "published", cell="macro")["calls"] == 3.13
    assert "not compared" in " ".join(macro_table(loaded, whole, DRAWS).notes)  # one of three is not the paper's


# What cannot be made


@pytest.fixture
def only(monkeypatch):
    """Compute the named parts alone, where a recording changes nothing else."""

    def chosen(*names):
        monkeypatch.setattr(tasr_tables, "PARTS", {name: PARTS[name] for name in names})

    return chosen


def without(folder, name, *columns, change=None):
    """Import a recording again without some columns, and return its path."""
    listed = paper.rows("qwen", "hotpotqa", "eval", 60)
    for row in listed:
        for column in columns:
            del row[column]
        row.update(change or {})
    return paper.imported(folder, name, listed)


def test_a_part_that_cannot_be_made_says_why_without_stopping_others(cells, tmp_path):
    silent = replace(cells[0], eval=without(tmp_path, "silent", "llm_confidence"))
    made = paper_tasr([silent], resampling=DRAWS)
    assert set(made.not_made) == {"Table 4", "Table 5", "Latency", "Figure 5"}
    assert made.not_made["Figure 5"] == "left out, ours_qwen_hp: no stated confidence was recorded"
    assert "'open'" in made.not_made["Table 4"]
    assert rows(table(made, "Not made")) == [{"what": w, "why": why} for w, why in made.not_made.items()]


def test_without_f1_there_is_no_frontier_but_there_are_signals(cells, tmp_path):
    blind = replace(cells[0], eval=without(tmp_path, "blind", "current_f1"))
    made = paper_tasr([blind], resampling=DRAWS)
    signals = {"Table 3", "Figure 2, left", "Figure 2, right", "Figure 5"}
    assert set(made.not_made) == set(PARTS) - signals
    assert "f1" in made.not_made["Table 1"]
    assert table(made, "Table 3").rows


def test_a_cell_that_lacks_a_column_is_left_out_and_named(cells, tmp_path):
    blind = replace(cells[0], name="blind", published="", eval=without(tmp_path, "blind", "current_f1"))
    made = paper_tasr([blind, cells[1]], resampling=DRAWS)
    found = table(made, "Table 2")
    assert {row["cell"] for row in rows(found)} == {"ours_gemma_hp", "macro"}
    assert any(note.startswith("left out, blind: ") and "f1" in note for note in found.notes)


def test_without_margins_the_recorded_p_correct_is_read_and_said(cells, tmp_path):
    path = without(tmp_path, "bare", "answer_token_margin", "first_token_margin")
    made = paper_tasr([replace(cells[0], eval=path)], resampling=DRAWS)
    assert any("as it was recorded" in note for note in table(made, "Table 2").notes)
    stops = [tasr_stop(q, [row["calibrated_logit_margin"] for row in q]) for q in recorded("ours_qwen_hp")[1]]
    assert value(line(table(made, "Table 2"), cell="ours_qwen_hp")["calls"]) == pytest.approx(fmean(stops) + 1)


@pytest.mark.whole
def test_fewer_rounds_leave_out_what_needs_them(cells, tmp_path):
    short = paper.imported(
        tmp_path, "short", [r for r in paper.rows("qwen", "hotpotqa", "eval", 60) if r["round"] <= 4]
    )
    made = paper_tasr([replace(cells[0], name="short", published="", eval=short), cells[1]], resampling=DRAWS)
    assert "fixed_k(5)" not in {row["method"] for row in rows(table(made, "Table 1"))}
    assert any("fixed_k(5) is missing" in note and "short" in note for note in table(made, "Table 1").notes)
    shorter = paper.imported(
        tmp_path, "shorter", [r for r in paper.rows("qwen", "hotpotqa", "eval", 60) if r["round"] <= 2]
    )
    assert "ends at round 2" in load_cell(replace(cells[0], eval=shorter), resampling=DRAWS).problem


def test_the_closed_book_stands_beside_where_it_was_recorded(cells, alone, tmp_path, only):
    only("Table 1", "Table 3", "Table 6", "Figure 5")
    listed = paper.rows("qwen", "hotpotqa", "eval", 60)
    closed = [{**row, "round": 0, "current_f1": 0.25, "current_em": 0} for row in listed if row["round"] == 1]
    made = paper_tasr([replace(cells[0], eval=paper.imported(tmp_path, "alone", [*closed, *listed]))], resampling=DRAWS)
    row = line(table(made, "Table 1"), method="closed_book")
    assert (row["F1"], row["calls"]) == (0.25, 1.0)
    stops = replayed("ours_qwen_hp")["tasr"][1]
    assert value(line(table(made, "Table 1"), method="tasr")["calls"]) == pytest.approx(fmean(stops))
    for start in ("Table 3", "Table 6", "Figure 5"):  # signals are those of rounds with evidence
        assert table(made, start).rows == table(alone, start).rows


def test_a_round_without_its_score_makes_one_figure_undefined(cells, tmp_path):
    listed = paper.rows("qwen", "hotpotqa", "eval", 60)
    listed[0]["current_f1"] = None  # the first round of the first question: TASR never stops there
    made = paper_tasr([replace(cells[0], eval=paper.imported(tmp_path, "gap", listed))], resampling=DRAWS)
    found = line(table(made, "Figure 4"), cell="ours_qwen_hp")
    assert math.isnan(found["k=1 F1"])
    assert isinstance(found["TASR F1"], tuple), "the others keep their intervals"
    assert value(line(table(made, "Table 2"), cell="ours_qwen_hp")["F1"]) == pytest.approx(
        fmean(replayed("ours_qwen_hp")["tasr"][0])
    )


def test_rounds_past_the_papers_budget_do_not_count(cells, tmp_path, made, only):
    only("Table 2")
    listed = paper.rows("qwen", "hotpotqa", "eval", 60)
    more = [{**row, "round": 6, "current_f1": 1.0, "current_em": 1} for row in listed if row["round"] == 5]
    path = paper.imported(tmp_path, "long", [*listed, *more])
    again = paper_tasr([replace(cells[0], eval=path)], resampling=DRAWS)
    assert line(table(again, "Table 2"), cell="ours_qwen_hp") == line(table(made, "Table 2"), cell="ours_qwen_hp")


def test_cells_of_different_sizes_are_averaged_and_said(made):
    assert any("30 to 60 questions" in note for note in table(made, "Table 1").notes)


def test_cells_that_share_only_some_questions_get_no_macro_interval(cells, tmp_path, only):
    only("Table 1", "Table 2")
    some = paper.imported(tmp_path, "some", paper.rows("gemma", "hotpotqa", "eval", 50))
    made = paper_tasr([cells[0], replace(cells[1], eval=some)], resampling=DRAWS)
    found = table(made, "Table 1")
    assert isinstance(line(found, method="tasr")["F1"], float)
    assert any(note.startswith("no intervals: ") for note in found.notes)
    assert isinstance(line(table(made, "Table 2"), cell="ours_qwen_hp")["F1"], tuple)


@pytest.mark.parametrize("em", [0, 1])
def test_all_right_or_all_wrong_is_no_failure(cells, tmp_path, em):
    same = without(tmp_path, f"same{em}", change={"current_em": em, "current_f1": float(em)})
    made = paper_tasr([replace(cells[0], eval=same)], resampling=DRAWS)
    assert line(table(made, "Table 2"), cell="ours_qwen_hp")["F1"] == em
    assert "Table 3" in made.not_made


def test_a_single_question_is_no_failure(cells, tmp_path):
    one = paper.imported(tmp_path, "one", paper.rows("qwen", "hotpotqa", "eval", 1))
    assert table(paper_tasr([replace(cells[0], eval=one)], resampling=DRAWS), "Table 2").rows


# Wrong inputs


def entry(**changes):
    told = {"name": "a", "model": "m", "retriever": "r", "corpus": "c", "setting": "distractor"}
    told |= {"tune": "qwen_hp_tune.parquet", "eval": "ours_qwen_hp.parquet", **changes}
    return "[[cell]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in told.items() if value is not None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"\[\[cell\]\]"),
        ("cell = 3", r"\[\[cell\]\]"),
        ("cell = [1]", "cell 1 is"),
        ("[[cells]]\nname = 'a'", "'cells'"),
        ("[[cell]\n", "not TOML"),
        (entry(eval=None), "key 'eval'"),
        (entry(name=None), "key 'name'"),
        (entry(prompts="x"), "'a'"),
        (entry(model=7), "model is 7"),
        (entry(corpus=" "), "corpus is"),
        (entry(eval="nowhere.parquet"), "eval recording"),
        (entry(setting="wiki"), "'wiki'"),
        (entry(published="qwen"), "'qwen'"),
        (entry(published="qwen_nq"), "'qwen_nq'"),
        (entry(published="qwen_hp", prompt="no_confidence"), "prompt among"),
        (entry() + entry(), "two cells"),
        (entry(published="qwen_hp") + entry(name="b", published="qwen_hp"), "qwen_hp, answer_f"),
    ],
)
def test_a_wrong_list_of_cells_is_refused(folder, text, message):
    path = folder / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_cells(path)


def test_a_missing_list_and_no_cells_are_refused(tmp_path):
    with pytest.raises(DataError, match="list of cells"):
        read_cells(tmp_path / "cells.toml")
    with pytest.raises(DataError, match="at least one"):
        paper_tasr([])


def test_a_question_in_both_recordings_is_refused(cells, tmp_path):
    both = paper.rows("qwen", "hotpotqa", "eval", 3) + paper.rows("qwen", "hotpotqa", "tune", 2)
    with pytest.raises(DataError, match="2 questions"):
        paper_tasr([replace(cells[0], eval=paper.imported(tmp_path, "both", both))])


def test_a_foreign_file_is_refused_with_the_command_that_imports_it(cells, folder):
    with pytest.raises(DataError, match="suffice import"):
        paper_tasr([replace(cells[0], eval=folder / "ours_qwen_hp.foreign.parquet")])


# The command line


def test_the_command_prints_table_1_on_a_screen(one):
    result = cli("paper", "tasr", "--cells", one, "--set=resamples=50")
    lines = result.out.splitlines()
    assert lines[0].startswith("tasr reaches F1 ")
    assert "points against fixed_k(3): " in " ".join(lines)
    assert "\nTable 1. Macro results over 1 distractor cell" in result.out
    assert len(lines) <= 45
    assert max(len(line) for line in lines if not line.startswith("next: ")) <= 100
    assert any("more: --details" in line for line in lines)


def test_the_command_prints_every_table(folder):
    result = cli("paper", "tasr", "--cells", folder / "cells.toml", "--set=resamples=200", "--details", code=0)
    for start in ("Cells", *(name for name in PARTS if name != "Table 5"), "Published figures that do not fit"):
        assert any(printed.startswith(start) for printed in result.out.splitlines()), start
    assert "not made: Table 5: needs a cell with setting 'dense'" in result.err


@pytest.fixture(scope="module")
def one(folder):
    """A list of one cell."""
    path = folder / "one.toml"
    path.write_text(entry(name="ours_qwen_hp", published="qwen_hp"), encoding="utf-8")
    return path


def test_every_format_holds_the_same_tables(one, tmp_path):
    common = ("paper", "tasr", "--cells", one, "--set=resamples=50")
    data = cli(*common, "--json").json
    titles = [part["title"] for part in data["tables"]]
    markdown = cli(*common, "--format", "md").out
    assert markdown.startswith("# The tables of TASR\n")
    assert all(f"**{title}**" in markdown for title in titles)
    assert cli(*common, "--format", "latex").out.count(r"\begin{tabular}") == len(titles)
    page = cli(*common, "--format", "html").out
    written = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert written.count("<table>") == len(titles) + 1, "the screen's table comes first"
    assert written.count("data-chart=") == 5
    target = tmp_path / "tables.csv"
    assert cli(*common, "--format", "csv", "-o", target).out == ""
    f1 = replayed("ours_qwen_hp")["tasr"][0]
    low, high = ends(f1, n=50)
    found = next(part for part in data["tables"] if part["title"].startswith("Table 2"))
    assert found["rows"][0]["F1"] == pytest.approx({"value": fmean(f1), "low": low, "high": high})
    assert f"ours_qwen_hp,here,{fmean(f1)!r}," in target.read_text("utf-8")


def test_the_command_that_made_the_tables_stands_in_them(one):
    data = cli("paper", "tasr", "--cells", one, "--set=seed=7", "--set=resamples=50", "--json").json
    told = {row["what"]: row["value"] for row in data["tables"][0]["rows"]}
    assert told["command"] == f"suffice paper tasr --cells {one.name} --set resamples=50 --set seed=7"
    assert "seed 7" in told["draws"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--format", "pdf"), 2, "allowed: table, md, latex, csv, json, html"),
        (("-o", "x.txt"), 2, "add --format md"),
        (("--format", "md", "-o", "nowhere/x.md"), 1, "the folder 'nowhere' does not exist"),
        (("--cells", "nowhere.toml"), 2, "the list of cells 'nowhere.toml' does not exist"),
    ],
)
def test_wrong_usage_is_told(arguments, code, message):
    result = cli("paper", "tasr", *arguments)
    assert result.code == code
    assert message in " ".join(result.error.replace("│", " ").split())


@pytest.mark.whole
def test_without_a_list_the_bundled_questions_are_recorded_and_tabled(tmp_path, monkeypatch, only):
    from suffice_reader.demo import bundled

    only("Table 1")
    load = bundled.load_questions
    monkeypatch.setattr(bundled, "load_questions", lambda name, limit=None: load(name, limit=4))
    made = cli("paper", "tasr", f"--set=recordings={tmp_path}", "--set=resamples=20", "--json", code=0)
    told = next(part for part in made.json["tables"] if part["title"] == "Cells")
    assert [row["cell"] for row in told["rows"]] == ["hotpotqa_span", "2wiki_span"]
    assert any("22 M parameters" in note for note in told["notes"])
    again = bundled.record_bundled("2wiki", "eval", tmp_path, quiet=True)
    assert (again.questions, again.cost.calls) == (4, 0), "nothing is recorded twice"


def test_a_loaded_cell_is_a_value_of_its_own(cells):
    assert isinstance(cells[0], TasrCell)
    assert cells[0].tune.name == "qwen_hp_tune.parquet"
    assert cells[3].prompt == "confidence_first"


def test_the_committed_tables_are_of_what_ships():
    """Weights, questions and version; after a change of one of them: suffice paper tasr --format md -o PAGE."""
    page = (ROOT / "docs" / "results" / "paper-tasr.md").read_text("utf-8")
    assert f"| suffice | {suffice.__version__} |" in page
    assert "| command | suffice paper tasr --format md |" in page
    revision = suffice.SpanReaderModel().fingerprint()["revision"]
    for dataset in ("hotpotqa", "2wiki"):
        hashes = [dataset_hash(suffice.load_questions(f"{dataset}_{split}")) for split in ("tune", "eval")]
        told = f"{dataset}_span: model span-reader, revision {revision}, questions {hashes[0]} (tune) and {hashes[1]} (eval)"
        assert told in page
        kept = json.loads((ROOT / "docs" / "results" / f"{dataset}.json").read_text("utf-8"))
        assert f"| {kept['recording']} |" in page
        row = next(row for row in kept["rows"] if row["label"] == "tasr")
        assert f"| {dataset}_span | here | {100 * row['metrics']['f1']:.2f} [" in page
