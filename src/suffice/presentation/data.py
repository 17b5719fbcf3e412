"""The contents of a report, as values: one cell for each recording."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from suffice._version import __version__
from suffice.common.identities import aligned
from suffice.common.provided import is_provided, provided
from suffice.common.results import Displayed
from suffice.common.tables import Column, Table, facts_table
from suffice.errors import ConfigMismatchError, DataError, SufficeError
from suffice.evaluation.replay import Price, ReplayResult, Row, outcome, replay
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.replay_tables import outcomes_table, replay_notes, replay_tables
from suffice.evaluation.statistics import Resampling
from suffice.policy.calibration import CalibrationReport
from suffice.policy.session import Policy
from suffice.policy.signals import KNOWN
from suffice.presentation.extras import diagnostics, which_round
from suffice.presentation.headline import Headline, headline
from suffice.presentation.trajectories import Stopped
from suffice.recordings.recording import Recording
from suffice.verdicts.decisions import Advice, decide
from suffice.verdicts.diagnostics.calibration import named_reports, reports_by_round


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A part that an evaluation other than the replay adds to a page, before the parts that every report contains.

    Attributes:
        sentences: The results of the evaluation, the most important first.
        charts: Vega-Lite specifications by name, each with its caption.
        folded: Further tables by heading, initially collapsed.
    """

    title: str
    sentences: tuple[str, ...] = ()
    charts: Mapping[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    folded: Mapping[str, tuple[Table, ...]] = field(default_factory=dict)

    def listed(self) -> list[Table]:
        """Return all tables of the part."""
        return [*self.tables, *(table for tables in self.folded.values() for table in tables)]


def advice_part(advice: Advice) -> ReportPart:
    """Return the part with the advice on changing the loop."""
    short, every, *twins = advice.tables()
    # The last column shows intervals as text, for pages without charts.
    short, every = (
        replace(table, columns=table.columns[:-1], rows=tuple(row[:-1] for row in table.rows))
        for table in (short, every)
    )
    caption = "Each candidate with its 95 % interval, on questions that neither chose nor fitted it."
    return ReportPart(
        title="Should this loop change?",
        sentences=(advice.sentence,),
        charts={"advice": (dict(advice.plot().spec), caption)},
        tables=(short,),
        folded={"Every candidate": (every, *twins)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings by which a report is computed.

    Attributes:
        metrics: See `replay`; the first one is the measure of quality.
        baseline: The reference of differences, see `replay`.
        resampling: Settings of intervals; its seed also draws the sample of questions.
        margins: Margins for non-inferiority and equivalence.
        cost: The cost compared for "cheapest" and "dominated", see `replay`.
        ledger: The calls that a policy is charged for, see `replay`.
        command: The command that produced the report; empty if the report was produced by a call in Python.
    """

    metrics: tuple[str, ...] = ("f1", "em")
    baseline: str | Policy | None = None
    resampling: Resampling = Resampling()
    margins: tuple[float, ...] = (0.02,)
    cost: str = "calls"
    ledger: str = "live"
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class ReportCell:
    """One recording with the policies that were replayed on it.

    Attributes:
        name: The recording's name in the report.
        result: The replay.
        prepared: The recording as replayed, without failed questions.
        policies: The policies, in the order of the result's first rows.
        extra: Tables of the diagnostics, by heading.
        notes: Notes on figures that could not be computed, with the reasons.
        parts: Parts that other evaluations add.
        advice: Advice on changing the loop itself; None if it could not be computed, for the reason in `notes`.
    """

    name: str
    result: ReplayResult
    prepared: PreparedRecording
    policies: tuple[Policy, ...]
    extra: Mapping[str, Sequence[Table]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    parts: tuple[ReportPart, ...] = ()
    advice: Advice | None = None

    @property
    def rules(self) -> list[Row]:
        """The rows of the policies."""
        return list(self.result.rows[: len(self.policies)])

    @cached_property
    def headlines(self) -> list[Headline]:
        """The headline of each policy."""
        pairs = zip(self.rules, self.policies, strict=True)
        return [headline(self.result, row.label, policy) for row, policy in pairs]

    @cached_property
    def stopped(self) -> list[Stopped]:
        """For each policy, its stops and the answers that it returned."""
        return [Stopped.of(self.prepared, policy) for policy in self.policies]

    @cached_property
    def reliability(self) -> dict[str, dict[str, CalibrationReport]]:
        """Calibration reports of signals against exact match: by signal, then by round or `all rounds`."""
        if "em" not in self.prepared.recording.table.column_names:
            return {}
        em = outcome(self.prepared.recording, "em")
        by_signal: dict[str, dict[str, CalibrationReport]] = {}
        for policy in self.policies:
            view = self.prepared.view(policy)
            for calibrator in policy.calibrators:
                name = calibrator.output
                if name in view.columns and name not in by_signal:
                    reports = reports_by_round(view[name], self.prepared.in_view(em, view), view.index.tolist())
                    by_signal[name] = {} if reports is None else named_reports(*reports)
        return {name: reports for name, reports in by_signal.items() if reports}

    def reliability_tables(self) -> list[Table]:
        """Return one table for each calibrated signal, with its Brier score and calibration error by round."""
        return [
            Table.of(
                f"Calibration of {name} against exact match, on these questions",
                reports.items(),
                {
                    Column("rounds"): lambda item: item[0],
                    Column("answers", ",.0f"): lambda item: item[1].n,
                    Column("Brier", ".3f"): lambda item: item[1].brier,
                    Column("always the mean", ".3f"): lambda item: item[1].brier_uninformed,
                    Column("ECE", ".3f"): lambda item: item[1].ece,
                    Column("if calibrated", ".3f"): lambda item: item[1].ece_if_calibrated,
                },
                notes=("A lower Brier score does not promise a better stopping rule.",),
            )
            for name, reports in self.reliability.items()
        ]

    def tables(self) -> list[Table]:
        """Return all tables of the cell."""
        extra = [table for tables in self.extra.values() for table in tables]
        added = [table for part in self.parts for table in part.listed()]
        return [*added, *replay_tables(self.result), *self.reliability_tables(), *extra]

    def provenance(self) -> Table:
        """Return a table with the origin of the figures."""
        recording, result = self.prepared.recording, self.result
        facts = {
            "recording": self.name,
            "data hash": result.data_hash,
            "questions": f"{result.n:,} in {result.n_clusters:,} units of resampling; {result.n_failed:,} failed",
            "rounds": f"{int(recording.index[0])} to {int(recording.index[-1])}",
            **_flat("recorded with", recording.metadata.get("config") or {}),
            **_flat("data set", recording.metadata.get("dataset") or {}),
            **{f"policy {policy.label}": str(policy.rule) for policy in self.policies},
            **{
                f"policy {policy.label}, selector": str(policy.selector)
                for policy in self.policies
                if str(policy.selector) != "last"
            },
        }
        return facts_table("Provenance", facts)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "name": self.name,
            "advice": None if self.advice is None else self.advice.sentence,
            "headlines": [asdict(headline) for headline in self.headlines],
            "replay": self.result.to_dict(),
            "tables": [table.to_dict() for table in self.tables()],
            "notes": [*replay_notes(self.result), *self.notes],
        }


@dataclass(frozen=True, kw_only=True)
class Report(Displayed):
    """A report: its cells, and the settings by which they were computed."""

    cells: tuple[ReportCell, ...]
    settings: Settings

    def cells_table(self) -> Table:
        """Return a table of all policies in all cells, one row for each."""
        metric = self.settings.metrics[0]
        name = " or ".join(dict.fromkeys(row.baseline for cell in self.cells for row in cell.rules))
        return Table.of(
            "All recordings",
            [(cell, row) for cell in self.cells for row in cell.rules],
            {
                Column("recording"): lambda item: item[0].name,
                Column("policy"): lambda item: item[1].marked,
                Column("n", ",.0f"): lambda item: item[1].n,
                Column(metric.upper(), ".1f", scale=100): lambda item: item[1].bounds.get(
                    metric, item[1].metrics[metric]
                ),
                Column(f"Δ{metric} vs {name}", "+.1f", scale=100, interval=True): lambda item: item[1].difference(
                    metric
                ),
                Column("calls", ",.2f"): lambda item: item[1].at_least(item[1].calls.mean),
                Column(f"Δcalls vs {name}", "+,.2f", interval=True): lambda item: item[1].difference("calls"),
                Column("verdict"): lambda item: item[1].verdict,
            },
            outcomes_table(self.cells[0].result).notes,
        )

    def tables(self) -> list[Table]:
        """Return the table of all cells, if there are several, and the tables of each cell."""
        together = [self.cells_table()] if len(self.cells) > 1 else []
        return [*together, *(table for cell in self.cells for table in cell.tables())]

    @property
    def lead(self) -> str:
        """The advice and the first headline."""
        cell = self.cells[0]
        advice = [] if cell.advice is None else [cell.advice.sentence]
        return " ".join([*advice, cell.headlines[0].sentence])

    def provenance(self) -> Table:
        """Return the settings of the report, as a table."""
        settings, how = self.settings, self.settings.resampling
        return facts_table(
            "How this report was made",
            {
                "suffice": __version__,
                "python, numpy": f"{platform.python_version()}, {np.__version__}",
                "command": settings.command or "made in Python",
                "metrics": ", ".join(settings.metrics),
                "intervals": f"{100 * how.level:g} %, {how.n_resamples:,} paired bootstrap draws, seed {how.seed}",
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "suffice": __version__,
            "command": self.settings.command,
            "seed": self.settings.resampling.seed,
            "cells": [cell.to_dict() for cell in self.cells],
        }


def make_report(
    recordings: Mapping[str, Recording],
    policies: Sequence[Policy],
    *,
    tune: Recording | None = None,
    settings: Settings | None = None,
    prices: Mapping[str, Mapping[str, Price] | None] | None = None,
) -> Report:
    """Replay policies on recordings and collect the contents of a report.

    Args:
        recordings: Recordings by name.
        policies: The policies; each is left out for recordings of a model other than its own.
        tune: The recording that policies were fitted on, for diagnostics such as drift; None if unknown.
        settings: Settings of the report; None = the defaults.
        prices: Prices by recording, then component.  None = take money from the log (`spend`); NaN where the log has
            none.

    Raises:
        DataError: No recording, no policy, or two policies of one label.
        ConfigMismatchError: A policy belongs to none of the recordings.
    """
    settings = settings or Settings()
    if not recordings or not policies:
        raise DataError(f"a report needs a recording and a policy, not {len(recordings)} and {len(policies)}")
    if not settings.metrics:
        raise DataError("a report needs a metric: 'agreement' needs no gold answers")
    cells: list[ReportCell] = []
    for name, recording in recordings.items():
        fitting = [policy for policy in policies if len(recordings) == 1 or _belongs(policy, recording)]
        if not fitting:
            continue
        # The first cell shows all recordings side by side.
        others = {} if cells else {other: item for other, item in recordings.items() if other != name}
        cell_prices = (prices or {}).get(name)
        cells.append(_report_cell(name, recording, fitting, others, tune=tune, settings=settings, prices=cell_prices))
    if not cells:
        raise ConfigMismatchError("none of the policies was made for one of the recordings")
    return Report(cells=tuple(cells), settings=settings)


def _belongs(policy: Policy, recording: Recording) -> bool:
    recorded = recording.metadata.get("depends") or {}
    return all(recorded.get(key, value) == value for key, value in aligned(policy.depends, recorded).items())


def _report_cell(
    name: str,
    recording: Recording,
    policies: Sequence[Policy],
    others: Mapping[str, Recording],
    *,
    tune: Recording | None,
    settings: Settings,
    prices: Mapping[str, Price] | None,
) -> ReportCell:
    resampling = settings.resampling
    result = replay(
        recording,
        policies,
        metrics=settings.metrics,
        baseline=settings.baseline,
        resampling=resampling,
        prices=prices,
        margins=settings.margins,
        cost=settings.cost,
        ledger=settings.ledger,
    )
    # Use the names of the replay, which numbers policies with the same label.
    named = [
        replace(policy, name=row.label) if row.label != policy.label else policy
        for policy, row in zip(policies, result.rows, strict=False)
    ]
    prepared = PreparedRecording.of(recording, result.metrics, prices=prices, ledger=settings.ledger)
    extra, notes = diagnostics(
        prepared.recording,
        named[0],
        tune,
        result.metrics,
        name=name,
        others=others,
        baseline=settings.baseline,
        resampling=resampling,
    )
    if prepared.cut.any():
        notes.append("no threshold to move: a rule cut this recording, and at other thresholds more rounds never ran")
    # A policy with the same results as an earlier one adds nothing to the comparison of selectors.
    different: dict[str, Policy] = {}
    for policy, row in zip(named, result.rows, strict=False):
        different.setdefault(repr((row.metrics, row.bounds, row.calls, row.stop_rounds, row.reasons)), policy)
    rounds, missing = which_round(
        prepared.recording, list(different.values()), result.metrics[0], resampling=resampling
    )
    margin = min(settings.margins, default=0.02)
    advice: Advice | None = None
    try:
        advice = decide(recording, metric=result.metrics[0], max_loss=margin, tune=tune, prices=prices)
    except SufficeError as error:
        notes.append(f"no advice on the loop itself: {error}")
    gates: tuple[ReportPart, ...] = ()
    if is_provided("gates.gate_part"):
        gates = provided("gates.gate_part")(prepared.recording, result.metrics, resampling=resampling, margin=margin)
    elif KNOWN in prepared.recording.table.column_names:
        notes.append(f"no part about the gate: it reads {KNOWN}, and suffice-gates is not installed")
    return ReportCell(
        name=name,
        result=result,
        prepared=prepared,
        policies=tuple(named),
        extra=rounds | extra,
        notes=(*notes, *missing),
        parts=gates if advice is None else (advice_part(advice), *gates),
        advice=advice,
    )


def _flat(prefix: str, data: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key, value in data.items():
        facts |= _flat(f"{prefix}: {key}", value) if isinstance(value, Mapping) else {f"{prefix}: {key}": value}
    return facts
