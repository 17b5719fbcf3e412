"""The tables of CBDR: what was measured beside what was published, and what speaks against that."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from suffice._version import __version__
from suffice.gates import GatePoint
from suffice.gates.tables import transitions_table, verdict
from suffice.tables import Column, Table
from suffice.train.cbdr import CbdrRun
from suffice.train.ranking import NAMES

__all__ = ["PublishedCbdr", "cbdr_tables", "published_cbdr"]

_MEASURED, _PUBLISHED = "measured", "published"
_PER_CENT = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCbdr:
    """The figures of the paper, shares in [0, 1].

    Attributes:
        title: Of the paper.
        tables: By `table1`, `table2`, `table3` and `transitions`: the rows by name.
        flags: What is inconsistent: a name, the tables it concerns, and why.
    """

    title: str
    tables: Mapping[str, Mapping[str, tuple[float, ...]]]
    flags: tuple[tuple[str, tuple[str, ...], str], ...]

    def flagged(self, table: str) -> tuple[str, ...]:
        """Return the names of the flags of a table."""
        return tuple(name for name, places, _ in self.flags if table in places)


@cache
def published_cbdr() -> PublishedCbdr:
    """Return the figures of CBDR.

    >>> published_cbdr().tables["table3"]["CBDR beta=0.98"]
    (0.929, 0.617, 0.678)
    """
    data = tomllib.loads(files("suffice.data").joinpath("published", "cbdr.toml").read_text("utf-8"))
    scales = {"transitions": 1.0}
    return PublishedCbdr(
        title=data["paper"]["title"],
        tables={
            name: {
                row: tuple(round(value * scales.get(name, _PER_CENT), 6) for value in values)
                for row, values in part["rows"].items()
            }
            for name, part in data.items()
            if isinstance(part, dict) and "rows" in part
        },
        flags=tuple((flag["id"], tuple(flag["places"]), flag["reason"]) for flag in data["flag"]),
    )


def cbdr_tables(
    run: CbdrRun, *, model: str, reranker: str, data: str, command: str = "suffice.train.cbdr.run_cbdr"
) -> list[Table]:
    """Return the tables of a run.

    Args:
        run: The run.
        model: What the tables call the target model.
        reranker: What they call the reranker before it was aligned.
        data: What they call the question set.
        command: What was run.
    """
    published = published_cbdr()
    layer, epochs = run.best
    depths = sorted(run.changes)
    return [
        _provenance(run, {"model": model, "reranker": reranker, "data": data, "command": command}),
        _probes(run),
        run.shift.table(),
        _preferences(run),
        _table1(run, published),
        _table2(run, published, model, data),
        _table3(run, published),
        *(
            transitions_table(f"Section 5.4: what each step changes, top-{d}, layer {layer}, {epochs} epochs", steps)
            for d, steps in ((d, run.changes[d]) for d in depths)
        ),
        _published_changes(published),
        _seconds(run),
        _flags(published),
    ]


def _provenance(run: CbdrRun, told: Mapping[str, str]) -> Table:
    layer, epochs = run.best
    rows = (
        ("paper", published_cbdr().title),
        *told.items(),
        ("known", f"the model answers {100 * run.known:.1f} % of the questions rightly by itself"),
        ("questions of each part", ", ".join(f"{name} {n}" for name, n in run.parts.items())),
        ("probe for the reranker", f"layer {layer}, {epochs} epochs: the best on dev"),
        ("suffice", __version__),
    )
    notes = ("published figures are those of Llama3-8B-Instruct and Qwen2.5-7B-Instruct on NQ and HotpotQA",)
    return Table(title="How these tables were made", columns=(Column("what"), Column("value")), rows=rows, notes=notes)


def _probes(run: CbdrRun) -> Table:
    columns = (
        Column("layer", "d"),
        Column("epochs", "d"),
        Column("AUROC dev", ".3f"),
        *(Column(name, ".3f", interval=True) for name in ("AUROC", "AUPRC", "Brier", "ECE", "accuracy")),
    )
    rows = []
    for (layer, epochs), found in run.probes.items():
        chosen = found.measured[0].measures
        figures = ((f.value, f.low, f.high) for f in (chosen[key] for key in _MEASURES))
        rows.append((layer, epochs, max(c.dev_auroc for c in found.candidates), *figures))
    notes = ("on the test questions, by the answers of the prompt without passages",)
    return Table(title="Probes (sections 3.1, C and H)", columns=columns, rows=tuple(rows), notes=notes)


_MEASURES = ("auroc", "auprc", "brier", "ece", "accuracy")


def _preferences(run: CbdrRun) -> Table:
    rows = tuple(
        (name, s.questions, s.kept, s.positives, s.negatives, ", ".join(f"{why}: {n}" for why, n in s.dropped.items()))
        for name, s in run.preferences.items()
    )
    counts = ("questions", "kept", "positives", "negatives")
    columns = (Column("preference data"), *(Column(name, ",d") for name in counts), Column("dropped"))
    return Table(title="Preference data (section 3.2)", columns=columns, rows=rows)


def _table1(run: CbdrRun, published: PublishedCbdr) -> Table:
    rows: list[tuple[Any, ...]] = [(name, _MEASURED, *values) for name, values in run.ranking.items()]
    for name, values in published.tables["table1"].items():
        rows.append((name, _PUBLISHED, *values))
    columns = (Column("reranker"), Column("figures"), *(Column(n, ".2f", scale=100, interval=True) for n in NAMES))
    return Table(
        title="Table 1: ranking what raises the probe's confidence first",
        columns=columns,
        rows=tuple(rows),
        notes=_flag_note(published, "table1"),
    )


def _table2(run: CbdrRun, published: PublishedCbdr, model: str, data: str) -> Table:
    depths = sorted({depth for _, depth in run.accuracy})
    names = dict.fromkeys(name for name, _ in run.accuracy)
    rows: list[tuple[Any, ...]] = [
        (model, name, data, _MEASURED, *(run.accuracy[name, depth] for depth in depths)) for name in names
    ]
    for name, values in published.tables["table2"].items():
        theirs, reranker = name.split(", ", 1)
        by_data = {
            "HotpotQA": dict(zip((1, 3), values[:2], strict=True)),
            "NQ": dict(zip((1, 3), values[2:], strict=True)),
        }
        rows += [
            (theirs, reranker, of, _PUBLISHED, *(shown.get(depth, math.nan) for depth in depths))
            for of, shown in by_data.items()
        ]
    columns = (
        *map(Column, ("model", "reranker", "data", "figures")),
        *(Column(f"top-{depth}", ".2f", scale=100, interval=True) for depth in depths),
    )
    notes = _flag_note(published, "table2")
    return Table(title="Table 2: accuracy of the whole system", columns=columns, rows=tuple(rows), notes=notes)


def _table3(run: CbdrRun, published: PublishedCbdr) -> Table:
    depths = sorted(run.gates)
    columns = (
        Column("method"),
        Column("figures"),
        Column("retrieval rate", ".1f", scale=100),
        *(Column(f"top-{depth}", ".2f", scale=100) for depth in depths),
        *(Column(f"Δ vs always, top-{depth}", "+.2f", scale=100, interval=True) for depth in depths),
        *(Column(f"verdict, top-{depth}") for depth in depths),
    )
    rows: list[tuple[Any, ...]] = []
    for points in zip(*(run.gates[depth] for depth in depths), strict=True):
        first = points[0]
        rate = math.nan if first.kind == "perfect" else first.retrieval_rate  # a perfect gate's differs by depth
        rows.append(
            (
                first.label,
                _MEASURED,
                rate,
                *(next(iter(point.metrics.values())) for point in points),
                *(_delta(point) for point in points),
                *(verdict(point) for point in points),
            )
        )
    blank = [None] * (2 * len(depths))
    for name, (rate, *values) in published.tables["table3"].items():
        theirs = dict(zip((1, 3), values, strict=True))
        rows.append((name, _PUBLISHED, rate, *(theirs.get(depth, math.nan) for depth in depths), *blank))
    return Table(
        title="Table 3: answering directly where the probe is confident",
        columns=columns,
        rows=tuple(rows),
        notes=(
            "the thresholds are the paper's: nothing was chosen on these questions",
            *_flag_note(published, "table3"),
        ),
    )


def _delta(point: GatePoint) -> tuple[float, float, float] | None:
    if point.kind == "always":
        return None
    found = next(iter(point.against_always.values()))
    return found.delta, found.low, found.high


def _published_changes(published: PublishedCbdr) -> Table:
    rows = tuple((name, *values) for name, values in published.tables["transitions"].items())
    columns = (Column("beta"), Column("wrong -> right", ".0f"), Column("right -> wrong", ".0f"))
    return Table(
        title="Section 5.4, published: NQ, top-3",
        columns=columns,
        rows=rows,
        notes=_flag_note(published, "transitions"),
    )


def _seconds(run: CbdrRun) -> Table:
    columns = (Column("stage"), Column("seconds", ",.1f"))
    return Table(
        title="Time of each stage",
        columns=columns,
        rows=tuple(run.seconds.items()),
        notes=("of this run: what an earlier one had done is not in it",),
    )


def _flag_note(published: PublishedCbdr, table: str) -> tuple[str, ...]:
    flags = published.flagged(table)
    return (f"published figures are flagged, see below: {', '.join(flags)}",) if flags else ()


def _flags(published: PublishedCbdr) -> Table:
    rows = tuple((name, ", ".join(places), why) for name, places, why in published.flags)
    columns = (Column("flag"), Column("where"), Column("why"))
    return Table(title="What does not fit together in the paper", columns=columns, rows=rows)
