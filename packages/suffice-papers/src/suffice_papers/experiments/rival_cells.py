"""Compare ways to retrieve evidence: the plain loop, TASR and every rival, on the same eval questions."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError, SufficeError
from suffice.evaluation.replay import calibrate, policy_for
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.selected import selected_on
from suffice.evaluation.statistics import Units, undefined_notes
from suffice.policy.rules.algebra import find_threshold, with_threshold
from suffice.policy.session import Policy
from suffice.recordings import Recording, read_recording
from suffice.verdicts.diagnostics.sweep import sweep_threshold
from suffice_papers.experiments.choices import RivalChoice
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.stages import CellFolder
from suffice_papers.experiments.variance import RunValues, Shown, runs_tables
from suffice_papers.paper import narrow
from suffice_papers.rivals.lines import FIXED, RivalLine, fixed_lines, line_of, rivals_table

_WAY_NOTES = (
    "a fixed number of passages is ranked once by the question and read in one call",
    "fixed for no more: the one of these that is right most often for no more calls and no more tokens",
    "verdict: better = the interval of the paired difference is above 0; dominated = that fixed number is right at least as often",
    "own end = the method decides when it is done, and is answered only there, as it was published",
)
_OURS = "TASR"
_SCREEN = ("cell", "method", "right, %", "calls", "tokens", "fixed for no more", "verdict")
_RUN_FIGURES = {
    "right": Shown(heading="right, %, by way of asking", spec=".1f", scale=100),
    "calls": Shown(heading="calls, by way of asking"),
    "tokens": Shown(heading="tokens, by way of asking", spec=".0f"),
}


class WaysOfAsking:
    """Compares cells that differ only in the way in which they retrieve evidence.

    Args:
        folders: The folders of all cells, recorded.
        experiment: The experiment.
    """

    def __init__(self, folders: Sequence[CellFolder], experiment: Experiment) -> None:
        self._folders, self._experiment = folders, experiment
        self._facts: list[str] = []

    @property
    def left_out(self) -> list[str]:
        """A note on the rivals' cells, which other tables leave out; empty without recorded rivals."""
        names = [rival.name for rival in self._experiment.rivals if rival.is_recorded]
        if not names:
            return []
        return [
            f"left out of all tables but Ways of asking, as they ask in another way: the cells of {', '.join(names)}"
        ]

    @property
    def sentences(self) -> list[str]:
        """A sentence on the results of the rivals; empty without rivals."""
        summary = self.summary
        if summary is None:
            return []  # if there are rivals, the reason stands in place of the table
        verdicts = [row[-1] for row in summary.rows if row[1] != _OURS]
        better, dominated = (sum(verdict == word for verdict in verdicts) for word in ("better", "dominated"))
        rest = f"did better than a fixed number of passages for no more, and {dominated} did no better"
        return [f"{better} of {counted(len(verdicts), 'rival')} {rest}."]

    @property
    def summary(self) -> Table | None:
        """A table for one screen, with TASR and the rivals in each cell; None if it cannot be made."""
        if not self._experiment.rivals:
            return None
        try:
            table = self._table
        except DataError:
            return None
        rows = tuple(row for row in table.rows if row[2] != FIXED)
        return narrow(replace(table, rows=rows), _SCREEN)

    def tables(self) -> list[Table]:
        """Return a table of all ways to retrieve evidence and, if there are several runs, tables over runs.

        There are no tables without rivals.

        Raises:
            DataError: The recordings of a cell have different questions.
        """
        return [self._table, *self._runs()] if self._experiment.rivals else []

    @cached_property
    def _lines(self) -> list[tuple[Cell, list[RivalLine]]]:
        """Each cell of the plain loop that has rivals, with one line for every way to retrieve evidence in this cell."""
        by_cell = {folder.cell.name: folder for folder in self._folders}
        return [
            (folder.cell, self._lines_of(folder, by_cell))
            for folder in self._folders
            if folder.cell.rival is None and self._experiment.rivals_of(folder.cell.model)
        ]

    def _lines_of(self, plain: CellFolder, by_cell: dict[str, CellFolder]) -> list[RivalLine]:
        recording = read_recording(plain.file("eval.parquet"))
        lines = [*fixed_lines(recording), self._line(_OURS, "rule", recording, _policy_of(plain))]
        for rival in self._experiment.rivals_of(plain.cell.model):
            own = recording
            if rival.is_recorded:
                folder = by_cell.get(replace(plain.cell, rival=rival).name)
                if folder is None:
                    lines.append(RivalLine.not_run(rival.name, rival.kind, "its cell failed"))
                    continue
                own = read_recording(folder.file("eval.parquet"))
            lines.append(self._line(rival.name, rival.kind, own, self._policy(rival, plain, own)))
        return lines

    def _policy(self, rival: RivalChoice, plain: CellFolder, recording: Recording) -> Policy | str:
        """Return the policy that stops a rival, or the reason why the rival has no policy."""
        try:
            if rival.is_recorded:
                return policy_for(recording, rival.rule or "full", max_rounds=self._experiment.max_rounds)
            return self._fitted(rival, plain)
        except SufficeError as error:
            return str(error)

    def _fitted(self, rival: RivalChoice, plain: CellFolder) -> Policy:
        """Return the policy of a rival's rule, calibrated on the tune questions."""
        tune = read_recording(plain.recording("tune"))
        policy = calibrate(tune, rule=rival.rule, max_rounds=self._experiment.max_rounds, compare=False)[0]
        if rival.threshold_of:
            policy = _with_best_threshold(policy, rival.threshold_of, tune)
            self._facts.append(f"{plain.cell.name}, {rival.name}: {policy.rule}, by tune")
        return policy

    def _line(self, name: str, kind: str, recording: Recording, policy: Policy | str) -> RivalLine:
        if isinstance(policy, str):
            return RivalLine.not_run(name, kind, policy)
        self._facts += [f"{name}: {note}" for note in selected_on(policy, recording).notes]
        try:
            return line_of(name, kind, recording, policy)
        except SufficeError as error:
            return RivalLine.not_run(name, kind, str(error))

    @cached_property
    def _table(self) -> Table:
        resampling = self._experiment.resampling
        tables = [(cell, rivals_table("", lines, resampling)) for cell, lines in self._lines]
        columns = tables[0][1].columns
        rows: list[tuple[Any, ...]] = [(cell.name, *row) for cell, table in tables for row in table.rows]
        return Table(
            title="Ways of asking: cells of one model, data and seed that differ in how they ask for evidence",
            columns=(Column("cell"), *columns),
            rows=tuple(rows),
            notes=(*_WAY_NOTES, resampling.text, *self._undefined(), *dict.fromkeys(self._facts)),
        )

    def _undefined(self) -> list[str]:
        """Return notes on the reason why differences have no intervals; empty if they have intervals."""
        fewest = min(Units.of(len(lines[0].questions), lines[0].clusters).n_units for _, lines in self._lines)
        return undefined_notes(fewest, self._experiment.resampling.n_resamples)

    def _runs(self) -> list[Table]:
        """Return tables of the figures over runs and questions; empty if there is only one run of each."""
        runs: dict[str, list[RunValues]] = {}
        for cell, lines in self._lines:
            for line in lines:
                if not line.why:
                    values = {name: getattr(line, name) for name in _RUN_FIGURES}
                    run = RunValues(values=values, questions=line.questions, clusters=line.clusters)
                    runs.setdefault(f"{cell.configuration}: {line.name}", []).append(run)
        repeated = {name: parts for name, parts in runs.items() if len(parts) > 1}
        return runs_tables(repeated, _RUN_FIGURES, self._experiment.resampling, macro=False) if repeated else []


def _with_best_threshold(policy: Policy, signal: str, tune: Recording) -> Policy:
    """Choose the threshold of a signal in a policy's rule on tune questions.

    The chosen threshold has the most right answers; among ties, the fewest calls.

    Raises:
        DataError: No threshold can be judged on the tune questions.
    """
    threshold = find_threshold(policy.rule, signal)
    points = sweep_threshold(PreparedRecording.of(tune, ["em"]), policy, threshold, metric="em").points
    known = [point for point in points if not math.isnan(point.quality)]
    if not known:
        raise DataError(f"no threshold of {signal!r} can be judged on the tune questions")
    best = max(known, key=lambda point: (round(point.quality, _DIGITS), -point.calls))
    return replace(policy, rule=with_threshold(policy.rule, threshold, best.value), name="")


_DIGITS = 12
"""Means are rounded to this number of digits before they are compared, since the order of summing changes the last digits."""


def _policy_of(plain: CellFolder) -> Policy | str:
    """Return the TASR policy of a cell, or the reason why it could not be calibrated."""
    path = plain.file("policy.json")
    problem: str | None = json.loads(path.read_text("utf-8")).get("problem")
    return problem or Policy.load(path)
