"""Render a report as one HTML page with all scripts, styles, charts and data inside, so that it needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from suffice._version import __version__
from suffice.common.display import html_table
from suffice.common.display.chart import VENDOR, components, vendored
from suffice.common.display.table_html import style
from suffice.common.results import jsonable
from suffice.common.tables import Column, Table
from suffice.evaluation.replay import ReplayResult, Row
from suffice.evaluation.replay.charts import pareto_chart, pareto_costs, path_chart, reliability_chart, stops_chart
from suffice.evaluation.replay.replay_tables import (
    costs_table,
    differences_table,
    margin_tests_table,
    mixtures_table,
    outcomes_table,
    replay_notes,
    stops_table,
)
from suffice.presentation.data import Report, ReportCell, ReportPart
from suffice.presentation.slider import Pool, json_in_html, make_slider, pack_bytes, slidable
from suffice.presentation.trajectories import FEW, Passages, choose, to_dicts

LARGEST_PAGE = 5_000_000
"""The largest page in bytes, unless everything is requested."""

_RESERVED = 500_000
"""Bytes of a page that are reserved for tables, charts and trajectories and not used by sliders."""

_LEAST_TRAJECTORIES = 50_000
"""The least bytes for trajectories, even if everything else has used up the page."""


_TEMPLATES = ("report.html", "report.css", "report.js")


def render_html(report: Report, *, everything: bool = False, passages: Passages | None = None) -> str:
    """Return the HTML page of a report.

    Args:
        report: The report to show.
        everything: Whether to include every trajectory and slider, however large the page becomes.  Otherwise the page
            has at most `LARGEST_PAGE` bytes, with up to 300 trajectories (fewer if they are long) and the sliders of the
            first policies.
        passages: Title and text of the evidence by question and passage id; recordings contain only the ids.
    """
    pool = Pool()
    room = LARGEST_PAGE // len(report.cells)
    cells = []
    spent = sum(len(text) for text in (*map(_template, _TEMPLATES), components(), *map(vendored, VENDOR))) // len(
        report.cells
    )
    for cell in report.cells:
        before = pool.size
        sliders, left_out = _sliders(cell, pool, None if everything else room - spent)
        shown = {**_shown_cell(cell, sliders), "no_slider": left_out}
        left = room - spent - (pool.size - before) - len(json_in_html(shown["data"])) - 2 * len(str(shown["sections"]))
        shown["data"]["browser"] = _browser(
            cell, report.settings.resampling.seed, None if everything else max(left, _LEAST_TRAJECTORIES), passages
        )
        cells.append(shown)
    data = json_in_html({"arrays": pool.arrays, "cells": [shown.pop("data") for shown in cells]})
    scripts = [*map(vendored, VENDOR), page_script("report.js")]
    several = report.cells_table() if len(report.cells) > 1 else None
    return _page("report.html", scripts, cells=cells, several=several, provenance=report.provenance(), data=data)


def _page(template: str, scripts: list[str], **values: Any) -> str:
    page: str = (
        environment()
        .get_template(template)
        .render(
            version=__version__,
            style=page_style(),
            scripts=scripts,
            hashes=[digest(script) for script in scripts],
            **values,
        )
    )
    return page


def parts_page(title: str, parts: Sequence[ReportPart], provenance: Table) -> str:
    """Return a page with a section for each part; scripts in it draw the charts."""
    charts = {name: spec for part in parts for name, (spec, _) in part.charts.items()}
    scripts = [*map(vendored, VENDOR), page_script("parts.js")] if charts else []
    data = json_in_html(jsonable(charts))
    return _page("parts.html", scripts, title=title, parts=parts, provenance=provenance, charts=data).lstrip()


def _shown_cell(cell: ReportCell, sliders: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a cell's values for the template; the script's values are under the key `data`."""
    result, rules = cell.result, cell.rules
    charts: dict[str, Any] = {f"pareto-{cost}": pareto_chart(result, cost) for cost in pareto_costs(result)}
    charts["stops"] = stops_chart(result, rules)
    charts |= {name: spec for part in cell.parts for name, (spec, _) in part.charts.items()}
    charts |= {f"reliability-{name}": reliability_chart(reports, name) for name, reports in cell.reliability.items()}
    sections = {
        "outcomes": [outcomes_table(result)],
        "costs": [costs_table(result), stops_table(result)],
        "tests": [
            differences_table(result),
            mixtures_table(result),
            *([margin_tests_table(result)] if any(row.margins for row in rules) else []),
        ],
        "reliability": cell.reliability_tables(),
        "extra": dict(cell.extra),
        "provenance": [cell.provenance()],
    }
    return {
        "name": cell.name,
        "advice": "" if cell.advice is None else cell.advice.sentence,
        "headlines": cell.headlines,
        "tiles": tiles(result, rules[0], cell.prepared.highest),
        "costs": pareto_costs(result),
        "reliability": list(cell.reliability),
        "censored": any(row.censored for row in result.rows),
        "sliders": sliders,
        "parts": cell.parts,
        "sections": sections,
        "notes": replay_notes(result),
        "missing": cell.notes,
        "result": result,
        "data": {
            "name": cell.name,
            "charts": charts,
            "sliders": sliders,
            "metric": result.metrics[0],
            "currency": result.currency,
        },
    }


_TILES = {
    "calls": Column("calls", ",.2f"),
    "tokens": Column("tokens", ",.0f"),
    "seconds": Column("seconds", ",.3f"),
}


def tiles(result: ReplayResult, row: Row, highest: int) -> list[dict[str, Any]]:
    """Return the main figures, shown at the top of a page.

    Args:
        result: The replay.
        row: The policy's row.
        highest: The highest recorded round. Costs are compared with those of the fixed budget of this many rounds.
    """
    metric = result.metrics[0]
    whole_rows = (other for other in result.rows if other.label.startswith(f"fixed_k({highest})"))
    full = next((other for other in whole_rows if other.kind == "fixed" and other.selector == row.selector), None)
    delta = row.difference(metric)
    note = "the baseline"
    if delta is not None and row.label != row.baseline:
        note = f"{Column('', '+.1f', scale=100, interval=True).text(delta)} vs {row.baseline}"
    quality = row.bounds.get(metric, row.metrics[metric])
    listed = [_tile(metric, Column(metric.upper(), ",.1f", scale=100), quality, note)]
    for key, column in {**_TILES, "money": Column(result.currency, ",.6f")}.items():
        value = row.calls.mean if key == "calls" else row.costs.get(key, math.nan)
        whole = math.nan if full is None else full.calls.mean if key == "calls" else full.costs.get(key, math.nan)
        known = whole > 0 and full is not None and not (full.censored or row.censored)
        note = f"{Column('', '+.0%').text(value / whole - 1)} vs the full budget" if known else ""
        if not math.isnan(value):
            listed.append(_tile(key, column, row.at_least(value), note))
    return [*listed, {"key": "", "name": "verdict", "value": None, "text": row.verdict, "note": f"n = {row.n:,}"}]


def _tile(key: str, column: Column, value: float | tuple[float, float], note: str) -> dict[str, Any]:
    known = None if isinstance(value, tuple) else value
    return {"key": key, "name": column.name, "value": known, "text": column.text(value), "note": note}


def _sliders(cell: ReportCell, pool: Pool, room: int | None) -> tuple[list[dict[str, Any]], int]:
    """Return the sliders that fit into `room` bytes (at least the first slider), and the number of omitted sliders."""
    sliders: list[dict[str, Any]] = []
    if cell.prepared.cut.any():  # at nearly every threshold, some question would continue beyond the recording
        return sliders, 0
    began, left_out = pool.size, 0
    for policy, row in zip(cell.policies, cell.rules, strict=True):
        for literal in slidable(policy):
            n_arrays = len(pool.arrays)
            slider = make_slider(cell.prepared, policy, literal)
            start, values = slider.at(literal.value), slider.to_dict(pool)
            if sliders and room is not None and pool.size - began > room - _RESERVED:
                pool.forget(n_arrays)
                left_out += 1
                continue
            chart = path_chart(slider.path(), cell.result, row, start)
            sliders.append({**values, "start": _finite(start), "chart": chart})
    return sliders, left_out


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _browser(cell: ReportCell, seed: int, room: int | None, passages: Passages | None) -> dict[str, Any]:
    """Return as many packed trajectories as fit into `room` bytes."""
    n = len(cell.prepared.recording.question_ids)
    limit = n if room is None else min(FEW, n)
    while True:
        chosen = choose(cell.stopped, n, limit, seed=seed)
        held = to_dicts(cell.prepared, cell.stopped, chosen.chosen, passages)
        packed = pack_bytes(json.dumps(held, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())
        if room is None or len(packed) <= room or limit <= 1:
            return {
                "packed": packed,
                "policies": [policy.label for policy in cell.policies],
                "scope": chosen.sentence(seed),
                "left_out": chosen.left_out,
            }
        limit = max(1, min(limit - 1, int(limit * 0.9 * room / len(packed))))


@cache
def _template(name: str) -> str:
    return files("suffice.presentation").joinpath("templates", name).read_text("utf-8")


def page_script(name: str) -> str:
    """Return a page's script with the shared components inserted, so that it is one file."""
    shared = components().rpartition("export {")[0]
    return f'"use strict";\n(() => {{\n{shared}{_template(name)}}})();\n'


def digest(script: str) -> str:
    """Return a script's hash, for the page's content security policy."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def page_style() -> str:
    """Return the style sheet of all pages."""
    return style("colours") + style("tables") + _template("report.css")


def environment() -> Any:
    """Return the environment that renders the templates of this package."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(_template),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["html"] = lambda table, caption=True: Markup(html_table(table, caption=caption))  # noqa: S704
    return environment
