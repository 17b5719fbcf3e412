"""What a table's trajectories have in common, added up part by part: the notes of an import, and what it depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from suffice.adapters.base import ImportedTrajectory
from suffice.adapters.grid import Grid
from suffice.adapters.guesses import ColumnMap
from suffice.errors import UnsettledError
from suffice.store.schema import PINNED_LABELS
from suffice.tables import counted

__all__ = ["Tally"]

_FEW, _COPIED = 5, 0.98


class Tally:
    """Counts over trajectories."""

    def __init__(self) -> None:
        self.lengths: Counter[int] = Counter()
        self.ends: Counter[str] = Counter()
        self._first: int | None = None
        self._unmapped: dict[str, None] = {}
        self._labels: dict[str, set[Any]] = {name: set() for name in PINNED_LABELS}
        self._scored = self._equal = 0

    def add(self, trajectories: Iterable[ImportedTrajectory]) -> None:
        """Count further trajectories."""
        for item in trajectories:
            self._first = item.rounds[0].index if self._first is None else self._first
            self.lengths[len(item.rounds)] += 1
            self.ends[item.end] += 1
            self._unmapped.update(dict.fromkeys(name for row in item.extras for name in row))
            for name, values in self._labels.items():
                values.add(item.labels.get(name))
            answer = item.rounds[-1].answer
            if answer and item.golds:
                self._scored += 1
                self._equal += answer.strip() in {gold.strip() for gold in item.golds}

    def refuse_copied_golds(self, column: str) -> None:
        """Raise if the gold answers are probably the model's own: in a log, `answer` and `output` are."""
        if self._scored >= _FEW and self._equal >= _COPIED * self._scored:
            raise UnsettledError(
                f"in {self._equal} of {self._scored} trajectories the gold answer (column {column!r}) is exactly the last "
                "answer: is it what the model said?",
                "log_golds",
                {
                    "--log-golds keep": ("keep", "they are gold answers"),
                    "--log-golds drop": ("drop", "leave them out"),
                },
            )

    def notes(self, plan: ColumnMap, grid: Grid) -> list[str]:
        """Return what a reader must know of rounds, ends, columns and labels."""
        notes = []
        if self._first == 0:
            notes.append(
                "round 0 is read as the model alone (closed book); --first-round 1 makes it the first draft or evidence"
            )
        elif grid.first_round is not None:
            notes.append(f"the lowest {plan.columns['round']!r} is read as round 1, the first draft or evidence")
        if "answer" not in plan.columns:
            notes.append("no column is read as the answer: rules and metrics that need answers are undefined")
        if self._unmapped:
            notes.append(f"columns that are kept as they are: {', '.join(self._unmapped)}")
        if grid.ended is None and "end" not in plan.columns:
            notes.append(self._end_note())
        for name, values in self._labels.items():
            if len(values) > 1:
                notes.append(
                    f"{len(values)} different values of {name!r}: a policy fitted on this recording pins none of them"
                )
        notes += [
            f"policies fitted on this recording depend on {name} {value!r}" for name, value in self.depends().items()
        ]
        return notes

    def _end_note(self) -> str:
        """Return how trajectories are taken to have ended, as nothing says it."""
        longest, n = max(self.lengths), self.lengths.total()
        if len(self.lengths) == 1:
            return f"all trajectories have {counted(longest, 'round')}: read as the loop's cap (max_rounds)"
        return (
            f"{n - self.lengths[longest]} of {n} trajectories have fewer than {longest} rounds: read as the loop's own stops, "
            "beyond which nothing is known (censored). --ended exhausted or --ended max_rounds if they ended otherwise"
        )

    def depends(self) -> dict[str, Any]:
        """Return what the run depends on, by its labels."""
        return {
            name: next(iter(values)) for name, values in self._labels.items() if len(values) == 1 and None not in values
        }
