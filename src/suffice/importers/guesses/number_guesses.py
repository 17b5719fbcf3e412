"""Guess the columns of metrics, of confidences and other signals, and of the tokens of prefixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from suffice.importers.checks.judging import other_judge_note, total_beside
from suffice.importers.columns.closed_book import is_confidence, is_of_retrieval
from suffice.importers.columns.grid import OWN_COLUMNS, is_cost, whole_number
from suffice.importers.guesses.cost_guesses import CostGuess
from suffice.importers.guesses.prefixes import THINKING_TOKENS, prefix_columns
from suffice.importers.rounds.trajectories import ColumnReading
from suffice.importers.rows.scores import LAST_ROUND, is_of_runs, refuse_single_score, run_note
from suffice.importers.words.gold_names import may_be_golds
from suffice.importers.words.names import OUTCOME_NAMES, OWN_SIGNALS, SYNONYMS, last_name, plain_name
from suffice.importers.words.score_names import (
    is_measure_of,
    is_overlap,
    is_score_name,
    is_task_outcome,
    may_be_of_passes,
)
from suffice.policy.metrics import METRICS
from suffice.policy.signals import SIGNALS


class NumberGuess(CostGuess):
    """Guesses columns of numbers other than costs, by names and values."""

    def _ids_of_rows(self) -> Sequence[Any]:
        make = self.result.formulas.get("question_id")
        if make is not None:
            return [make(row) for row in self.table.rows]
        return self.table.column(self.result.columns.get("question_id", ""))

    def counted_rounds(self, key: str, counter: str) -> None:
        """Read `key` as the question id, since `counter` numbers its rows; also read `counter` as the round, if no round column is known."""
        self.read("question_id", key, f"its rows have all rounds by {counter!r}")
        for name in self.table.counters_in([counter], [key]) if self.lacks("round") else ():
            self.read("round", name)

    def numbers(self) -> None:
        """Find metrics in [0, 1], and numbers that a loop may have known when it decided to stop (signals)."""
        for name in self.free((*OUTCOME_NAMES, *SYNONYMS, *OWN_SIGNALS), of_rounds=True):
            ours = last_name(name)
            is_outcome = ours in OUTCOME_NAMES
            ours = SYNONYMS.get(ours, ours)
            taken = {*self.result.columns, *self.result.metrics, *self.result.labels, *self.said}
            values = self.table.numbers(name)
            if values is None or ours in taken or not ours.isidentifier() or (is_outcome and is_measure_of(name)):
                continue
            in_unit = all(0 <= value <= 1 for value in values)
            if is_outcome and not in_unit and total_beside(name, self.table.names):
                continue  # a count; its share is offered instead
            if ours in SIGNALS and ours not in OUTCOME_NAMES:
                signal = SIGNALS[ours]
                if signal.clip or all(signal.allows(value) for value in values if math.isfinite(value)):
                    self.read(ours, name)
            elif ours in METRICS:
                if in_unit:
                    self.read(ours, name)
            elif is_outcome and in_unit:
                ours = f"{ours}_score" if ours in SIGNALS else ours  # a name cannot be both a signal and a metric
                self.result.read_metric(ours, name, "usual name, all in [0, 1]", self.shown.get(name, ""))
            else:
                low, high = min(values), max(values)
                what = f"a number from {low:g} to {high:g}" if is_outcome else "a number"
                self.read(ours, name, f"{what}: a signal of your own")

    def scores(self) -> None:
        """Read scores in [0, 1] as metrics.

            Measures of overlap with a reference, such as ROUGE, are always read.  If no metric is known, one other score is read, if its
        name has a word for correctness.
        """
        for name in [name for name in self._unread(of_rounds=True) if is_overlap(name)]:
            self._score(name, name if name.isidentifier() else plain_name(name).replace(".", "_"))
        if self._is_judged():
            return
        names = [name for name in self._unread(of_rounds=True) if is_score_name(name)]
        for name in [n for n in names if not may_be_of_passes(n) or {*(self.table.numbers(n) or ())} <= {0, 1}]:
            if self._score(name, plain_name(name).replace(".", "_")):
                self.result.notes += other_judge_note(
                    self.table, self._ids_of_rows(), name, self._unread(of_rounds=True)
                )
                return

    def _score(self, name: str, ours: str, what: str = "a score") -> bool:
        """Read a column as a metric if all of its numbers are in [0, 1]; return whether they are."""
        answers, own = (map(str, self.table.column(one)) for one in (self.result.columns.get("answer", ""), name))
        if may_be_golds(name) and {*own} <= {*answers}:
            return False  # a gold answer in the words of the answers, such as yes and no
        values = self.table.numbers(name)
        is_usable = ours.isidentifier() and ours not in self.said and ours not in (*SIGNALS, *OWN_COLUMNS)
        if not is_usable or values is None or not all(0 <= value <= 1 for value in values):
            return False
        self.result.read_metric(ours, name, f"{what} by its name, all in [0, 1]", self.shown.get(name, ""))
        return True

    def confidences(self) -> None:
        """Read numbers with a word for confidence in their names as signals.

        If they belong to a whole question, they are read only if there is a round 0.
        """
        numbers = self.table.column(self.result.columns.get("round", ""))
        begins_at_0 = any(whole_number(str(number)) == 0 for number in numbers)
        for name in [name for name in self._unread() if is_confidence(name) and not is_of_retrieval(name)]:
            ours, values = plain_name(name).replace(".", "_"), self.table.numbers(name)
            is_known = begins_at_0 if name in self.outer else "round" in self.result.columns
            is_usable = ours.isidentifier() and not {ours, name} & {
                *self.said,
                *SIGNALS,
                *METRICS,
                *OWN_COLUMNS,
                *self.result.columns,
            }
            if is_known and is_usable and values is not None and len({*values}) > 1:
                self.read(ours, name, "a confidence by its name: a signal of your own")

    def thoughts(self) -> None:
        """Find the column with the tokens of prefixes of a chain of thought, if no column of costs is known."""
        is_free = (
            self.lacks(THINKING_TOKENS)
            and "answer" in self.result.columns
            and not any(map(is_cost, self.result.columns))
        )
        number = self.result.columns.get("round", "")
        unread = self._unread(of_rounds=True) if is_free else []
        for name in prefix_columns(self.table, self._ids_of_rows(), number, unread)[:1]:
            self.read(THINKING_TOKENS, name, "tokens of a chain so far: they rise in each question")

    def outcomes_of_tasks(self) -> None:
        """Read a column as the outcome of whole tasks because of a word in its name.

        It must be constant in each question, and nothing else may judge answers.
        """
        if self._is_judged() or "golds" in self.result.columns:
            return
        ids, answer = self._ids_of_rows(), self.result.columns.get("answer", "")
        for name in [name for name in self._unread(of_rounds=True) if is_task_outcome(name)]:
            ours = plain_name(name).replace(".", "_")
            if is_of_runs(self.table, name, ids, answer) and self._score(name, ours, "an outcome"):
                return

    def _is_judged(self) -> bool:
        return bool(self.result.metrics) or not self.result.columns.keys().isdisjoint(METRICS)

    def outcomes_of_runs(self) -> None:
        """Find metrics that judge whole runs and are repeated in each row.

        A metric that the user names is included only if it cannot judge single rounds.
        """
        columns, ids = self.result.columns, self._ids_of_rows()
        found = {**{name: columns[name] for name in columns if name in METRICS}, **self.result.metrics}
        for name, theirs in found.items():
            is_outer = name in self.result.metrics and theirs in self.outer
            if is_outer and "answer" in columns:
                refuse_single_score(theirs)
            may_be = name not in self.said or "answer" not in columns  # without answers, it can only judge runs
            if is_outer or (may_be and is_of_runs(self.table, theirs, ids, columns.get("answer", ""))):
                self.result.of_runs.add(name)
                ours = name if name in columns else f"{name} (metric)"
                if name in self.said and name not in columns:
                    self.result.readings.append(ColumnReading(ours=ours, theirs=theirs, how="option"))
                self.result.readings[:] = [
                    replace(item, theirs=f"{item.theirs}{LAST_ROUND}") if item.ours == ours else item
                    for item in self.result.readings
                ]
                self.result.notes.append(run_note(name, theirs, has_answers="answer" in columns))
