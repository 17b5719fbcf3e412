"""Everything that a report shows, as values: one cell for each recording."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from suffice._version import __version__
from suffice.calibration import CalibrationReport, calibration_report
from suffice.display import Displayed
from suffice.errors import ConfigMismatchError, DataError
from suffice.replays import Price, ReplayResult, Row, outcome, replay
from suffice.replays.prepared import PreparedRecording
from suffice.replays.tables import outcomes_table, replay_notes, replay_tables
from suffice.reports.extras import diagnostics, which_round
from suffice.reports.gate import gate_part
from suffice.reports.headline import Headline, headline
from suffice.reports.part import Part
from suffice.reports.trajectories import Stopped
from suffice.session import Policy
from suffice.statistics import Resampling
from suffice.store.recording import Recording
from suffice.tables import Column, Table

__all__ = ["Report", "ReportCell", "Settings", "make_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a report is computed.

    Attributes:
        metrics: See `replay`; the first is what quality means.
        baseline: What differences are taken against, see `replay`.
        resampling: How intervals are made; its seed also draws the sample of questions.
        margins: For non-inferiority and equivalence.
        cost: What "cheapest" and "dominated" compare, see `replay`.
        ledger: Which calls a policy is charged for, see `replay`.
        command: How the report was made; empty if not by the command line.
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
        name: What the report calls it.
        result: The replay.
        prepared: The recording as the replay saw it, questions that failed left out.
        policies: The policies, in the order of the result's first rows.
        extra: Tables of the diagnostics, by heading.
        notes: What could not be computed, and why.
        parts: What other evaluations add.
    """

    name: str
    result: ReplayResult
    prepared: PreparedRecording
    policies: tuple[Policy, ...]
    extra: Mapping[str, Sequence[Table]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def rules(self) -> list[Row]:
        """The rows of the policies."""
        return list(self.result.rows[: len(self.policies)])

    @cached_property
    def headlines(self) -> list[Headline]:
        """What is said about each policy."""
        pairs = zip(self.rules, self.policies, strict=True)
        return [headline(self.result, row.label, policy) for row, policy in pairs]

    @cached_property
    def stopped(self) -> list[Stopped]:
        """What each policy did with each question."""
        return [Stopped.of(self.prepared, policy) for policy in self.policies]

    @cached_property
    def reliability(self) -> dict[str, dict[str, CalibrationReport]]:
        """How well calibrated signals match exact match: by signal, then `all rounds` and each round."""
        if "em" not in self.prepared.recording.table.column_names:
            return {}
        em = outcome(self.prepared.recording, "em")
        found: dict[str, dict[str, CalibrationReport]] = {}
        for policy in self.policies:
            view = self.prepared.view(policy)
            for calibrator in policy.calibrators:
                name = calibrator.output
                if name in view.columns and name not in found:
                    found[name] = _by_round(view[name], self.prepared.in_view(em, view), view.index.tolist())
        return {name: reports for name, reports in found.items() if reports}

    def reliability_tables(self) -> list[Table]:
        """Return Brier score and calibration error of each calibrated signal, by round."""
        columns = (
            Column("rounds"),
            Column("answers", ",.0f"),
            Column("Brier", ".3f"),
            Column("always the mean", ".3f"),
            Column("ECE", ".3f"),
        )
        return [
            Table(
                title=f"Calibration of {name} against exact match, on these questions",
                columns=columns,
                rows=tuple((g, r.n, r.brier, r.brier_uninformed, r.ece) for g, r in reports.items()),
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
        """Return where the figures come from."""
        recording, result = self.prepared.recording, self.result
        rows: list[tuple[str, Any]] = [
            ("recording", self.name),
            ("data hash", result.data_hash),
            ("questions", f"{result.n:,} in {result.n_clusters:,} units of resampling; {result.n_failed:,} failed"),
            ("rounds", f"{int(recording.index[0])} to {int(recording.index[-1])}"),
            *_flat("recorded with", recording.metadata.get("config") or {}),
            *_flat("data set", recording.metadata.get("dataset") or {}),
            *((f"policy {policy.label}", str(policy.rule)) for policy in self.policies),
        ]
        rows += [
            (f"policy {policy.label}, selector", str(policy.selector))
            for policy in self.policies
            if str(policy.selector) != "last"
        ]
        return Table(title="Provenance", columns=(Column("what"), Column("value")), rows=tuple(rows))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "name": self.name,
            "headlines": [asdict(told) for told in self.headlines],
            "replay": self.result.to_dict(),
            "tables": [table.to_dict() for table in self.tables()],
            "notes": [*replay_notes(self.result), *self.notes],
        }


@dataclass(frozen=True, kw_only=True)
class Report(Displayed):
    """A report: cells, and how they were computed."""

    cells: tuple[ReportCell, ...]
    settings: Settings

    def cells_table(self) -> Table:
        """Return all policies of all cells, one row each."""
        first = outcomes_table(self.cells[0].result)
        metric = self.settings.metrics[0]
        rows = [
            (
                cell.name,
                row.marked,
                row.n,
                row.bounds.get(metric, row.metrics[metric]),
                row.difference(metric),
                row.at_least(row.calls.mean),
                row.difference("calls"),
                row.verdict,
            )
            for cell in self.cells
            for row in cell.rules
        ]
        baselines = dict.fromkeys(row.baseline for cell in self.cells for row in cell.rules)
        name = " or ".join(baselines)
        return Table(
            title="All recordings",
            columns=(
                Column("recording"),
                Column("policy"),
                Column("n", ",.0f"),
                Column(metric.upper(), ".1f", scale=100),
                Column(f"Δ{metric} vs {name}", "+.1f", scale=100, interval=True),
                Column("calls", ",.2f"),
                Column(f"Δcalls vs {name}", "+,.2f", interval=True),
                Column("verdict"),
            ),
            rows=tuple(rows),
            notes=first.notes,
        )

    def tables(self) -> list[Table]:
        """Return the table of all cells together, if there are several, and those of each cell."""
        together = [self.cells_table()] if len(self.cells) > 1 else []
        return [*together, *(table for cell in self.cells for table in cell.tables())]

    @property
    def lead(self) -> str:
        """The first headline."""
        return self.cells[0].headlines[0].sentence

    def provenance(self) -> Table:
        """Return what the whole report rests on."""
        settings, how = self.settings, self.settings.resampling
        rows = [
            ("suffice", __version__),
            ("python, numpy", f"{platform.python_version()}, {np.__version__}"),
            ("command", settings.command or "made in Python"),
            ("metrics", ", ".join(settings.metrics)),
            (
                "intervals",
                f"{100 * how.level:g} %, {how.n_resamples:,} paired bootstrap draws, seed {how.seed}",
            ),
        ]
        return Table(title="How this report was made", columns=(Column("what"), Column("value")), rows=tuple(rows))

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
    """Replay policies on recordings and collect what a report shows.

    Args:
        recordings: By name.
        policies: What to evaluate; a policy that was made for another model than a recording's is left out there.
        tune: What the policies were fitted on, for diagnostics such as drift; None if unknown.
        settings: How; default settings if None.
        prices: By recording, then component; None = money is NaN.

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
        others = {} if cells else {other: kept for other, kept in recordings.items() if other != name}
        fitting = [policy for policy in policies if _belongs(policy, recording)] if len(recordings) > 1 else [*policies]
        if fitting:
            cells.append(
                _cell(
                    name,
                    recording,
                    fitting,
                    others=others,
                    tune=tune,
                    settings=settings,
                    prices=(prices or {}).get(name),
                )
            )
    if not cells:
        raise ConfigMismatchError("none of the policies was made for one of the recordings")
    return Report(cells=tuple(cells), settings=settings)


def _belongs(policy: Policy, recording: Recording) -> bool:
    recorded = recording.metadata.get("depends") or {}
    return all(recorded.get(key, value) == value for key, value in policy.depends.items())


def _cell(
    name: str,
    recording: Recording,
    policies: Sequence[Policy],
    *,
    others: Mapping[str, Recording],
    tune: Recording | None,
    settings: Settings,
    prices: Mapping[str, Price] | None,
) -> ReportCell:
    named = _distinct(policies)
    result = replay(
        recording,
        named,
        metrics=settings.metrics,
        baseline=settings.baseline,
        resampling=settings.resampling,
        prices=prices,
        margins=settings.margins,
        cost=settings.cost,
        ledger=settings.ledger,
    )
    prepared = PreparedRecording.of(recording, result.metrics, prices=prices, ledger=settings.ledger)
    kept = prepared.recording
    extra, notes = diagnostics(
        kept,
        named[0],
        tune,
        result.metrics,
        name=name,
        others=others,
        baseline=settings.baseline,
        resampling=settings.resampling,
    )
    if prepared.cut.any():
        notes.append("no threshold to move: a rule cut this recording, and at other thresholds more rounds never ran")
    rounds, missing = which_round(kept, _different(named, result), result.metrics[0], resampling=settings.resampling)
    return ReportCell(
        name=name,
        result=result,
        prepared=prepared,
        policies=tuple(named),
        extra=rounds | extra,
        notes=(*notes, *missing),
        parts=gate_part(
            kept, result.metrics, resampling=settings.resampling, margin=min(settings.margins, default=0.02)
        ),
    )


def _distinct(policies: Sequence[Policy]) -> list[Policy]:
    """Return the policies, those of one label told apart as `replay` does."""
    found: list[Policy] = []
    for policy in policies:
        same = sum(other.label == policy.label for other in found)
        found.append(replace(policy, name=f"{policy.label} #{same + 1}") if same else policy)
    return found


def _different(policies: Sequence[Policy], result: ReplayResult) -> list[Policy]:
    """Return the policies without those that do on these questions what an earlier one does."""
    found: dict[str, Policy] = {}
    for policy, row in zip(policies, result.rows, strict=False):
        found.setdefault(repr((row.metrics, row.bounds, row.calls, row.stop_rounds, row.reasons)), policy)
    return list(found.values())


def _by_round(predicted: Any, em: Any, rounds: Sequence[int]) -> dict[str, CalibrationReport]:
    known = np.isfinite(predicted) & np.isfinite(em)
    if not known.any():
        return {}
    parts = {
        f"round {r}": calibration_report(predicted[:, k], em[:, k]) for k, r in enumerate(rounds) if known[:, k].any()
    }
    return {"all rounds": calibration_report(predicted, em), **parts}


def _flat(prefix: str, data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return nested settings as rows, empty ones left out."""
    rows: list[tuple[str, str]] = []
    for key, value in data.items():
        if isinstance(value, Mapping):
            rows += _flat(f"{prefix}: {key}", value)
        elif value not in (None, "", [], ()):
            rows.append((f"{prefix}: {key}", str(value)))
    return rows
