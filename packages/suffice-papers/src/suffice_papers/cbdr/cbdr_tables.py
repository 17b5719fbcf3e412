"""The tables of CBDR: measured figures beside published figures, and inconsistencies of the published figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from suffice.common.tables import Column, Table
from suffice_gates.gates import GatePoint
from suffice_gates.gates.changes import transitions_table
from suffice_gates.gates.point import ALWAYS, verdict
from suffice_gates.training.ranking import NAMES
from suffice_papers.cbdr.figures import cbdr_charts
from suffice_papers.cbdr.names import ALIGNED, RETRIEVER
from suffice_papers.cbdr.plan import CbdrSettings
from suffice_papers.cbdr.run import CbdrRun
from suffice_papers.paper import Paper, flags_table, narrow, origin_table
from suffice_papers.published import Flag, flagged, read_published

_MEASURED, _PUBLISHED = "measured", "published"
_PER_CENT = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCbdr:
    """The figures of the paper, shares in [0, 1].

    Attributes:
        title: Title of the paper.
        tables: The rows of figures by name, for each of `table1`, `table2`, `table3` and `transitions`.
        flags: The inconsistencies of the published figures.
    """

    title: str
    tables: Mapping[str, Mapping[str, tuple[float, ...]]]
    flags: tuple[Flag, ...]


@cache
def published_cbdr() -> PublishedCbdr:
    """Return the published figures of CBDR.

    >>> published_cbdr().tables["table3"]["CBDR beta=0.98"]
    (0.929, 0.617, 0.678)
    """
    data, flags = read_published("cbdr")
    scales = {"transitions": 1.0}
    return PublishedCbdr(
        title=data["paper"]["title"],
        tables={
            name: {
                row: tuple(round(value * scales.get(name, _PER_CENT), 6) for value in values)
                for row, values in table["rows"].items()
            }
            for name, table in data.items()
            if isinstance(table, dict) and "rows" in table
        },
        flags=flags,
    )


def paper_cbdr(
    run: CbdrRun, *, model: str, reranker: str, data: str, command: str = "suffice_papers.cbdr.run.run_cbdr"
) -> Paper:
    """Return the tables of a run beside the published figures.

    Args:
        run: The run to report.
        model: Name of the target model in the tables.
        reranker: Name of the reranker before alignment.
        data: Name of the question set.
        command: The command that was run.
    """
    published = published_cbdr()
    layer, epochs = run.best
    depths = sorted(run.changes)
    gates = _table3(run, published)
    parts = (
        _run_facts(run, {"model": model, "reranker": reranker, "data": data, "command": command}),
        _probes(run),
        run.shift.table(),
        _preferences(run),
        _table1(run, published),
        _table2(run, published, model, data),
        gates,
        *(
            transitions_table(f"Section 5.4: what each step changes, top-{d}, layer {layer}, {epochs} epochs", steps)
            for d, steps in ((d, run.changes[d]) for d in depths)
        ),
        _published_changes(published),
        _seconds(run),
        flags_table(published.flags),
    )
    deepest = f"top-{depths[-1]}"
    shown = ("method", "figures", "retrieval rate", deepest, f"Δ vs always, {deepest}", f"verdict, {deepest}")
    return Paper(
        title="The tables of CBDR",
        headline=_best_gate_sentence(run, depths[-1]),
        summary=narrow(gates, shown),
        parts=parts,
        figures=cbdr_charts(run, published.tables["table3"]),
    )


def _run_facts(run: CbdrRun, sources: Mapping[str, str]) -> Table:
    layer, epochs = run.best
    facts = (
        ("paper", published_cbdr().title),
        *sources.items(),
        ("known", f"the model answers {100 * run.known:.1f} % of the questions rightly by itself"),
        ("questions of each part", ", ".join(f"{name} {n}" for name, n in run.parts.items())),
        ("probe for the reranker", f"layer {layer}, {epochs} epochs: the best on dev"),
    )
    note = "published figures are those of Llama3-8B-Instruct and Qwen2.5-7B-Instruct on NQ and HotpotQA"
    return origin_table(facts, (note,))


def _probes(run: CbdrRun) -> Table:
    measures = {"AUROC": "auroc", "AUPRC": "auprc", "Brier": "brier", "ECE": "ece", "accuracy": "accuracy"}
    rows = []
    for (layer, epochs), trained in run.probes.items():
        figures = (trained.test_figures[0].measures[key] for key in measures.values())
        best = max(candidate.dev_auroc for candidate in trained.candidates)
        rows.append((layer, epochs, best, *((figure.value, figure.low, figure.high) for figure in figures)))
    return Table(
        title="Probes (sections 3.1, C and H)",
        columns=(
            Column("layer", "d"),
            Column("epochs", "d"),
            Column("AUROC dev", ".3f"),
            *(Column(name, ".3f", interval=True) for name in measures),
        ),
        rows=tuple(rows),
        notes=("on the test questions, by the answers of the prompt without passages",),
    )


def _preferences(run: CbdrRun) -> Table:
    return Table.of(
        "Preference data (section 3.2)",
        run.preferences.items(),
        {
            Column("preference data"): lambda item: item[0],
            Column("questions", ",d"): lambda item: item[1].questions,
            Column("kept", ",d"): lambda item: item[1].kept,
            Column("positives", ",d"): lambda item: item[1].positives,
            Column("negatives", ",d"): lambda item: item[1].negatives,
            Column("dropped"): lambda item: ", ".join(f"{why}: {n}" for why, n in item[1].dropped.items()),
        },
    )


def _table1(run: CbdrRun, published: PublishedCbdr) -> Table:
    ours = [(name, _MEASURED, *values) for name, values in run.ranking.items()]
    theirs = [(name, _PUBLISHED, *values) for name, values in published.tables["table1"].items()]
    return Table(
        title="Table 1: ranking what raises the probe's confidence first",
        columns=(
            Column("reranker"),
            Column("figures"),
            *(Column(n, ".2f", scale=100, interval=True) for n in NAMES),
        ),
        rows=(*ours, *theirs),
        notes=_flag_note(published, "table1"),
    )


def _table2(run: CbdrRun, published: PublishedCbdr, model: str, data: str) -> Table:
    depths = sorted({depth for _, depth in run.accuracy})
    names = dict.fromkeys(name for name, _ in run.accuracy)
    rows: list[tuple[Any, ...]] = [
        (model, name, data, _MEASURED, *(run.accuracy[name, depth] for depth in depths), *_ranking_costs(run, name))
        for name in names
    ]
    for name, values in published.tables["table2"].items():
        their_model, reranker = name.split(", ", 1)
        by_data = {
            "HotpotQA": dict(zip((1, 3), values[:2], strict=True)),
            "NQ": dict(zip((1, 3), values[2:], strict=True)),
        }
        rows += [
            (
                their_model,
                reranker,
                dataset,
                _PUBLISHED,
                *(values_by_depth.get(depth, math.nan) for depth in depths),
                None,
                None,
            )
            for dataset, values_by_depth in by_data.items()
        ]
    columns = (
        *map(Column, ("model", "reranker", "data", "figures")),
        *(Column(f"top-{depth}", ".2f", scale=100, interval=True) for depth in depths),
        *_RANKING_COSTS,
    )
    notes = (
        *(_best_order(run, depth) for depth in depths),
        f"{RETRIEVER}: the retriever's own first passages, no reranker",
        _COST_NOTE,
        *_flag_note(published, "table2"),
    )
    return Table(title="Table 2: accuracy of the whole system", columns=columns, rows=tuple(rows), notes=notes)


_RANKING_COSTS = (Column("online: passages scored", ",.2f"), Column("offline: passes for preferences", ",d"))
_COST_NOTE = (
    "online costs are those of one question, beside the pass that answers it; offline ones are paid once: labels are "
    "closed-book answers that were marked, passes those of the target model"
)


def _ranking_costs(run: CbdrRun, name: str, share: float = 1.0) -> tuple[float, int]:
    """Return two costs of a ranking: passages to score per question, and passes of the model to train the reranker.

    The passes are 0 if the run did not train the reranker.
    """
    train = run.preferences["train"]
    scored = 0.0 if name == RETRIEVER else share * run.settings.candidates
    return scored, train.questions + train.candidates if name == ALIGNED else 0


def _best_order(run: CbdrRun, depth: int) -> str:
    """Return a sentence that compares the order of the aligned reranker with the best other order."""
    others = [(values[0], name) for (name, d), values in run.accuracy.items() if d == depth and name != ALIGNED]
    (best, name), aligned = max(others), run.accuracy[ALIGNED, depth][0]
    differs = f"{100 * abs(aligned - best):.2f} points {'above' if aligned > best else 'below'}"
    return f"top-{depth}: the aligned order is {differs if aligned != best else 'equal to'} the best other one, {name}"


def _table3(run: CbdrRun, published: PublishedCbdr) -> Table:
    depths = sorted(run.gates)
    columns = (
        Column("method"),
        Column("figures"),
        Column("retrieval rate", ".1f", scale=100),
        *(Column(f"top-{depth}", ".2f", scale=100) for depth in depths),
        *(Column(f"Δ vs always, top-{depth}", "+.2f", scale=100, interval=True) for depth in depths),
        *(Column(f"p (Holm), top-{depth}", ".3f") for depth in depths),
        *(Column(f"Δ vs random, top-{depth}", "+.2f", scale=100) for depth in depths),
        *(Column(f"verdict, top-{depth}") for depth in depths),
        Column("online: passes to decide", ",d"),
        *_RANKING_COSTS,
        Column("offline: labels", ",d"),
    )
    rows: list[tuple[Any, ...]] = []
    for points in zip(*(run.gates[depth] for depth in depths), strict=True):
        first = points[0]
        rate = (
            math.nan if first.kind == "perfect" else first.retrieval_rate
        )  # a perfect gate's retrieval rate differs by depth
        rows.append(
            (
                first.label,
                _MEASURED,
                rate,
                *(point.metrics[_metric(point)] for point in points),
                *(_delta(point) for point in points),
                *(point.against_always[_metric(point)].p_holm for point in points),
                *(point.against_random[_metric(point)].delta if point.kind == "gate" else None for point in points),
                *(verdict(point) for point in points),
                *_gate_costs(run, first),
            )
        )
    blank = [None] * (len(columns) - 3 - len(depths))
    for name, (rate, *values) in published.tables["table3"].items():
        theirs = dict(zip((1, 3), values, strict=True))
        rows.append((name, _PUBLISHED, rate, *(theirs.get(depth, math.nan) for depth in depths), *blank))
    n_gates = sum(point.kind == "gate" for points in run.gates.values() for point in points)
    return Table(
        title="Table 3: answering directly where the probe is confident",
        columns=columns,
        rows=tuple(rows),
        notes=(
            *(_best_gate_sentence(run, depth) for depth in depths),
            f"gates, random gates and always retrieving have the {ALIGNED} reranker's order where no other is named",
            f"p: paired permutation test against always retrieving, adjusted by Holm over the {n_gates} gates tried",
            "random: as many questions, drawn blindly (exact expectation)",
            _thresholds(run),
            _COST_NOTE,
            *_flag_note(published, "table3"),
        ),
    )


def _metric(point: GatePoint) -> str:
    return next(iter(point.metrics))


def _best_gate_sentence(run: CbdrRun, depth: int) -> str:
    """Return a sentence that compares the best gate with a loop that always retrieves and uses the best ranking."""
    points = run.gates[depth]
    gates = [point for point in points if point.kind == "gate"]
    best = max(gates, key=lambda point: (point.metrics[_metric(point)], -point.retrieval_rate))
    metric = _metric(best)
    always = max((p for p in points if p.kind in ("always", "other")), key=lambda point: point.metrics[metric])
    p = best.against_always[metric].p_holm
    return (
        f"top-{depth}, the best of {len(gates)} gates here, so its figures flatter: {best.headline(metric)}; p {p:.3f} by "
        f"Holm. {always.label} has {metric} {100 * always.metrics[metric]:.1f}"
    )


def _gate_costs(run: CbdrRun, point: GatePoint) -> tuple[Any, ...]:
    """Return the costs in a gate's row: passes to decide, scored passages, passes for preference data, and labels."""
    if point.kind == "perfect":
        return (None,) * 4
    if point.kind == "never":
        return (0, 0.0, 0, 0)
    order = point.label.removeprefix(f"{ALWAYS}, ") if point.kind == "other" else ALIGNED
    labels = run.parts["probe, train"] + run.parts["probe, dev"] if order == ALIGNED else 0  # its probe was fitted
    return (int(point.kind == "gate"), *_ranking_costs(run, order, point.retrieval_rate), labels)


def _thresholds(run: CbdrRun) -> str:
    used, theirs = run.settings.betas, CbdrSettings().betas
    if used == theirs:
        return "the thresholds are the paper's: none was chosen on these questions"
    ours, paper = (", ".join(f"{beta:g}" for beta in betas) for betas in (used, theirs))
    return f"the thresholds were given ({ours}) and are not the paper's ({paper}): every one is shown, none was chosen here"


def _delta(point: GatePoint) -> tuple[float, float, float] | None:
    if point.kind == "always":
        return None
    paired = point.against_always[_metric(point)]
    return paired.delta, paired.low, paired.high


def _published_changes(published: PublishedCbdr) -> Table:
    return Table(
        title="Section 5.4, published: NQ, top-3",
        columns=(Column("beta"), Column("wrong -> right", ".0f"), Column("right -> wrong", ".0f")),
        rows=tuple((name, *values) for name, values in published.tables["transitions"].items()),
        notes=_flag_note(published, "transitions"),
    )


def _seconds(run: CbdrRun) -> Table:
    return Table(
        title="Time of each stage",
        columns=(Column("stage"), Column("seconds", ",.1f")),
        rows=tuple(run.seconds.items()),
        notes=("of this run: what an earlier one had done is not in it",),
    )


def _flag_note(published: PublishedCbdr, table: str) -> tuple[str, ...]:
    names = [flag.id for flag in flagged(published.flags, table)]
    return (f"published figures are flagged, see below: {', '.join(names)}",) if names else ()
