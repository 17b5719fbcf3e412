"""Means over cells (model, retriever, corpus), with intervals; cells with the same questions share bootstrap draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics.bootstrap import blocks, quantiles
from suffice.evaluation.statistics.intervals import Intervals
from suffice.evaluation.statistics.units import check_differences, check_level
from suffice.policy.rounds import Floats
from suffice_papers.multinomial import bootstrap_weights

_NAMED = 5
"""Largest number of questions to name in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDeltas:
    """Paired differences of several rules in one cell.

    Attributes:
        name: Name of the cell.
        deltas: Differences to the cell's baseline, shape ``(n_rules, n_rows)``; the rules are the same in every cell.
        questions: The question of each row, shape ``(n_rows,)``; rows of one question are drawn together.
    """

    name: str
    deltas: Floats
    questions: Sequence[Any] | npt.NDArray[Any]

    def sums(self, order: dict[Any, int]) -> tuple[Floats, Floats]:
        """Return, for each question, the sum of its differences, shape ``(n_rules, n_questions)``, and the number of its rows."""
        codes = np.array([order[question] for question in self.questions], dtype=np.int64)
        sums = np.zeros((len(self.deltas), len(order)))
        np.add.at(sums.T, codes, self.deltas.T)
        return sums, np.bincount(codes, minlength=len(order)).astype(np.float64)


def macro_bootstrap(
    cells: Sequence[CellDeltas], *, n_resamples: int = 1000, rng: np.random.Generator | int, level: float = 0.95
) -> Intervals:
    """Return the mean over cells of each rule's mean difference, with percentile intervals.

    Cells with the same questions share each draw, since two models on the same questions are not independent.  Cells
    with different questions are drawn independently, in the order in which their questions first appear.  All cells
    have the same weight, regardless of their numbers of questions.

    >>> one = CellDeltas(name="small model", deltas=np.array([[0.5, 0.0]]), questions=["a", "b"])
    >>> two = CellDeltas(name="large model", deltas=np.array([[0.0, 0.5]]), questions=["a", "b"])
    >>> result = macro_bootstrap([one, two], rng=0)  # the second takes back what the first gains, question by question
    >>> result.delta.tolist(), result.low.tolist(), result.high.tolist()
    ([0.25], [0.25], [0.25])

    Args:
        cells: At least one cell; any two cells have the same questions or no question in common.
        n_resamples: Number of draws.
        rng: Generator, or the seed of one.
        level: Nominal coverage, in (0, 1).

    Raises:
        DataError: There are no cells, cells differ in the number of rules, two cells share only some of their
            questions, a difference is NaN, or the level is outside (0, 1).
    """
    check_level(level)
    cells = _matrices(cells)
    generator = np.random.default_rng(rng)
    draws: dict[frozenset[Any], tuple[dict[Any, int], Floats]] = {}
    parts = []
    for cell in cells:
        questions = frozenset(cell.questions)
        if questions not in draws:
            order = {question: place for place, question in enumerate(dict.fromkeys(cell.questions))}
            draws[questions] = order, bootstrap_weights(len(order), n_resamples, rng=generator)
        order, weights = draws[questions]
        sums, sizes = cell.sums(order)
        parts.append((sums, weights, weights @ sizes))
    n_rules, tail = len(cells[0].deltas), (1 - level) / 2
    low, high = np.empty(n_rules), np.empty(n_rules)
    for block in blocks(n_rules, n_resamples):
        means = sum((sums[block] @ weights.T) / rows for sums, weights, rows in parts) / len(cells)
        assert isinstance(means, np.ndarray)
        low[block], high[block] = quantiles(means, (tail, 1 - tail))
    delta = np.mean([cell.deltas.mean(axis=-1) for cell in cells], axis=0)
    return Intervals(delta=delta, low=low, high=high, level=level, n_resamples=n_resamples, method="percentile")


def _matrices(cells: Sequence[CellDeltas]) -> list[CellDeltas]:
    """Return the cells with their differences as matrices; raise if the cells cannot be averaged."""
    if not cells:
        raise DataError("no cells to average: give at least one")
    matrices: list[CellDeltas] = []
    for cell in cells:
        deltas = np.atleast_2d(np.asarray(cell.deltas, dtype=np.float64))
        if deltas.shape[-1] != len(cell.questions) or not len(cell.questions):
            raise DataError(
                f"cell {cell.name!r} has {len(cell.questions)} questions for {deltas.shape[-1]} differences: "
                "name one for each row, and at least one"
            )
        check_differences(deltas)
        matrices.append(CellDeltas(name=cell.name, deltas=deltas, questions=cell.questions))
        if len(deltas) != len(matrices[0].deltas):
            raise DataError(
                f"cell {cell.name!r} has {len(deltas)} rules, {matrices[0].name!r} has {len(matrices[0].deltas)}: "
                "every cell needs every rule"
            )
        for other in matrices[:-1]:
            _check_paired(other, matrices[-1])
    return matrices


def _check_paired(first: CellDeltas, second: CellDeltas) -> None:
    left, right = set(first.questions), set(second.questions)
    if left == right or not left & right:
        return
    only = [
        f"only {cell.name!r} has {len(extra)}: {', '.join(map(repr, sorted(extra, key=str)[:_NAMED]))}"
        + (", ..." if len(extra) > _NAMED else "")
        for cell, extra in ((first, left - right), (second, right - left))
        if extra
    ]
    raise DataError(
        f"cells {first.name!r} and {second.name!r} share {len(left & right)} questions, but not all ({'; '.join(only)}). "
        "Unpaired questions cannot be compared: record the missing ones, or drop them from both"
    )
