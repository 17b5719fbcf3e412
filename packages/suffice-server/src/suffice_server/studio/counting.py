"""Tables of a file's provenance, and tables and a chart of a log: reasons of stops, audits, policies, stops over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from suffice.common.display import Chart
from suffice.common.tables import Column, Table, counted
from suffice.evaluation.replay.charts import accent_shades, shares_chart
from suffice.recordings import Recording
from suffice.verdicts.watches.requests import RAN_ON, moment, numbers_of, times_of

_MOST_BARS = 10
_FEW = 12


def flat_facts(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested facts; keys join the names on the path, and long values become a count.

    >>> flat_facts({"model": {"name": "m", "layers": list(range(20))}, "seed": 1})
    {'model: name': 'm', 'model: layers': '20 entries', 'seed': 1}
    """
    facts: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list | tuple | Mapping) and len(value) > _FEW:
            facts[f"{prefix}{name}"] = counted(len(value), "entry", "entries")
        elif isinstance(value, Mapping):
            facts |= flat_facts(value, f"{prefix}{name}: ")
        else:
            facts[f"{prefix}{name}"] = value
    return facts


def reasons_table(log: Recording) -> Table:
    """Count the stops of a log by reason."""
    counts = Counter(str(reason or "not known") for reason in log.per_question("stop_reason", [None] * log.shape[0]))
    return Table(
        title="Stops by reason",
        columns=(Column("reason"), Column("requests", ",d"), Column("share", ".1f", scale=100)),
        rows=tuple((reason, n, n / log.shape[0]) for reason, n in counts.most_common()),
    )


def audits_table(log: Recording) -> Table:
    """Count the requests that were drawn for an audit, by outcome."""
    drawn, rates = numbers_of(log, "audited") == 1, numbers_of(log, "audit_rate")
    ran_on = np.isin(log.ends.astype(str), [*RAN_ON])
    lost = drawn & ~ran_on
    known = rates[~np.isnan(rates)]
    rows: list[tuple[Any, ...]] = [
        ("requests", log.shape[0]),
        ("with an audit rate", len(known)),
        ("drawn for an audit", int(drawn.sum())),
        ("ran on to the last round", int((drawn & ran_on).sum())),
        ("open or lost: their loss is unknown", int(lost.sum())),
    ]
    notes = () if not len(known) else (f"audit rates from {known.min():g} to {known.max():g}",)
    return Table(title="Audits", columns=(Column("what"), Column("requests", ",d")), rows=tuple(rows), notes=notes)


def deciders_table(log: Recording, names: Mapping[str, str]) -> Table:
    """List the policies that decided the log, with the time of the first decision of each.

    Args:
        log: The log.
        names: Names of known policies, by digest.
    """
    digests, times = log.per_question("policy_digest", [None] * log.shape[0]), times_of(log)
    rows = []
    for digest, n in Counter(digests.tolist()).most_common():
        own = times[digests == digest]
        own = own[~np.isnan(own)]
        first, last = (moment(float(own.min())), moment(float(own.max()))) if len(own) else ("", "")
        rows.append((digest or "not known", names.get(digest, "not in this folder"), n, first, last))
    columns = (Column("policy"), Column("file"), Column("requests", ",d"), Column("first"), Column("last"))
    return Table(title="Policies that decided", columns=columns, rows=tuple(rows))


def stops_over_time(log: Recording) -> Chart:
    """Chart the share of requests that stopped at each round, in consecutive windows of equal size."""
    stop, times = numbers_of(log, "stop_round"), times_of(log)
    order = np.argsort(times, kind="stable")
    rounds = sorted({int(r) for r in stop[~np.isnan(stop)]})
    names = [f"round {r}" for r in rounds]
    groups: dict[str, list[float]] = {}
    for part in np.array_split(order, min(_MOST_BARS, len(order))):
        label = moment(float(times[part[0]])) or f"from request {int(np.flatnonzero(order == part[0])[0]) + 1:,}"
        groups[_unused(label, groups)] = [float((stop[part] == r).mean()) for r in rounds]
    parts = dict(zip(names, accent_shades(len(rounds)), strict=True))
    size = -(-len(order) // min(_MOST_BARS, len(order)))
    axis = f"share of about {size:,} requests each"
    return Chart(shares_chart(groups, parts, axis, "Stop rounds over time", group="since"))


def _unused(label: str, groups: Mapping[str, Any]) -> str:
    """Return a label for a window; if an earlier window has the same label, add a number."""
    same = sum(name == label or name.startswith(f"{label} (") for name in groups)
    return label if not same else f"{label} ({same + 1})"
