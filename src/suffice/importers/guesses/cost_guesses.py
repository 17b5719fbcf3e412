"""Guess the columns of tokens, seconds, calls and dollars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from suffice.importers.answers.answer_or_gold import is_called_reply, is_model_text
from suffice.importers.columns.cost_names import (
    CACHE_READ,
    CACHE_WRITTEN,
    CACHED_COLUMNS,
    CALLS,
    INPUT_COLUMNS,
    OF_CALLS,
    OUTPUT_COLUMNS,
    SECONDS,
    dollar_columns,
)
from suffice.importers.columns.grid import cell_number
from suffice.importers.columns.table_columns import WITHIN, ColumnMap, TableColumns
from suffice.importers.files.records import Record
from suffice.importers.rows.left_out import questions_of
from suffice.importers.shapes.shape import Shape
from suffice.importers.words.names import TOTAL_TOKENS, last_name, words, words_in

_OF_OTHERS = frozenset(words("execution exec sandbox tool test tests judge grader eval evaluation retriever search"))
"""Words of objects whose tokens and seconds are not the model's."""

_COST = "cost.generator."
COST_NAMES = (*INPUT_COLUMNS, *OUTPUT_COLUMNS, *CACHED_COLUMNS, CACHE_READ, CACHE_WRITTEN, *SECONDS, *CALLS)
"""Usual names of costs of a round."""


class CostGuess:
    """Guesses costs by usual names.

    As the base class of all guesses, it also has the table and the columns read so far.
    """

    def __init__(self, table: TableColumns, result: ColumnMap, shape: Shape, said: frozenset[str]) -> None:
        self.table, self.result, self.shown, self.outer, self.said = table, result, shape.columns, shape.outer, said
        self._shape = shape
        self.counters = self._counters()

    def _counters(self) -> frozenset[str]:
        """Return the columns that number the rounds of each question; empty unless some text of the model varies between rounds.

        Counters are neither answers, gold answers nor questions.
        """
        table, ids = self.table, questions_of(self.table, self._shape, self.result.columns)
        of_rounds = [name for name in self._unread(of_rounds=True) if name != "round"]
        counters = frozenset(name for name in of_rounds if table.numbers_rows(name, ids))
        others = [name for name in of_rounds if is_model_text(name) and name not in counters] if counters else []
        are_texts = (is_called_reply(name) or table.numbers(name) is None for name in others)
        is_said = any(own and table.changing_in(name, ids) for own, name in zip(are_texts, others, strict=True))
        return counters if is_said else frozenset()

    def free(self, usual: Iterable[str], *, of_rounds: bool = False) -> list[str]:
        """Return the unused columns with a usual name; with `of_rounds`, without columns about the whole question."""
        unread = {*self._unread(of_rounds=of_rounds)}
        return [name for name in self.table.by_name(usual) if name in unread]

    def _of_model(self, usual: Iterable[str]) -> list[str]:
        """Return the unused columns of rounds with a usual name, except fields of a tool, a test or a judge."""
        names = self.free(usual, of_rounds=True)
        return [name for name in names if _OF_OTHERS.isdisjoint(words_in(name.rpartition(".")[0]))]

    def _unread(self, *, of_rounds: bool = False) -> list[str]:
        used = {*self.result.columns.values(), *self.result.metrics.values(), *self.result.labels.values()}
        used |= self.outer if of_rounds else set()
        return [name for name in self.table.names if name not in used]

    def lacks(self, ours: str) -> bool:
        """Return whether this library's column `ours` is still open: neither guessed nor given by the user."""
        return ours not in self.result.columns and ours not in self.said

    def read(self, ours: str, theirs: str, how: str = "usual name") -> None:
        """Read the file's column `theirs` as this library's column `ours`."""
        self.result.read(ours, theirs, how, self.shown.get(theirs, ""))

    def costs(self) -> None:
        """Find the columns of tokens, seconds, calls and dollars.

        Counts of input tokens include cached ones, except under Anthropic's names.
        """
        inputs, cached, read, written = (
            next((name for name in self._of_model(usual) if self.table.numbers(name)), None)
            for usual in (INPUT_COLUMNS, CACHED_COLUMNS, (CACHE_READ,), (CACHE_WRITTEN,))
        )
        if inputs is not None and self.lacks(f"{_COST}uncached_tokens"):
            less = cached if read is None else None
            self._sum("uncached_tokens", [inputs, *([written] if written else [])], less)
            self._first(f"{_COST}written_tokens", (CACHE_WRITTEN,))
        for name in (read, cached):
            if name is not None and self.lacks(f"{_COST}cached_tokens"):
                self.read(f"{_COST}cached_tokens", name)
        for kind, usual in (("output_tokens", OUTPUT_COLUMNS), ("calls", CALLS)):
            self._first(_COST + kind, usual)
        if self.lacks(f"{_COST}seconds"):
            for name in [name for name in self._of_model(SECONDS) if self.table.numbers(name)][:1]:
                self._seconds(name, SECONDS[last_name(name)])
        self._first("spend", dollar_columns(self.result.columns), OF_CALLS)
        self._within()

    def _first(self, ours: str, usual: Iterable[str], how: str = "usual name") -> None:
        names = self._of_model(usual) if self.lacks(ours) else []
        for name in [name for name in names if self.table.numbers(name)][:1]:
            self.read(ours, name, how)

    def _within(self) -> None:
        """Set cached tokens to 0 if a column counts all input tokens; set all input tokens to 0 if a column counts the tokens of a whole call.

        So no token is counted twice.  Nothing is set if the contained tokens have a column of their own.
        """
        columns = self.result.columns
        for kind, usual, contained in (
            ("uncached_tokens", INPUT_COLUMNS, ("cached_tokens",)),
            ("output_tokens", TOTAL_TOKENS, ("uncached_tokens", "cached_tokens")),
        ):
            name = columns.get(_COST + kind, "")
            if last_name(name) in usual and all(self.lacks(_COST + other) for other in contained):
                for other in contained:
                    zero = lambda row, name=name: 0 * cell_number(row.values.get(name), name, row.where)  # noqa: E731
                    shown = f"0: {self.shown.get(name, name)} contains them"
                    self.result.formulas[_COST + other] = zero
                    self.result.read(_COST + other, _COST + other, WITHIN, shown)

    def _seconds(self, name: str, scale: float) -> None:
        if scale == 1:
            self.read(f"{_COST}seconds", name)
        else:
            number = lambda row: cell_number(row.values.get(name), name, row.where) * scale  # noqa: E731
            self._make(f"{_COST}seconds", number, f"{self.shown.get(name, name)} / 1000", [name])

    def _sum(self, kind: str, more: Sequence[str], less: str | None) -> None:
        if len(more) == 1 and less is None:
            self.read(_COST + kind, more[0])
            return

        def number(row: Record) -> float:
            known = [cell_number(row.values.get(name), name, row.where) for name in more]
            without = 0.0 if less is None else cell_number(row.values.get(less), less, row.where)
            total = known[0] + sum(item for item in known[1:] if not math.isnan(item))
            return total - (0.0 if math.isnan(without) else without)

        shown = " + ".join(self.shown.get(name, name) for name in more)
        shown += "" if less is None else f" - {self.shown.get(less, less)}"
        self._make(_COST + kind, number, shown, [*more, *([] if less is None else [less])])

    def _make(self, ours: str, number: Callable[[Record], Any], shown: str, sources: Sequence[str]) -> None:
        self.result.formulas[ours] = number
        self.result.read(ours, ours, "usual names", shown, sources)
