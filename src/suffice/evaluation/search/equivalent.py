"""Exact intervals in which a threshold can vary without changing any stop, for many rules at once.

A rule of a search fires more often if one of its literals fires more often.  So the rule fires at round t if and only
if the literal's threshold v lies below a critical value c: infinity if the rule fires without the literal, minus
infinity if the rule does not fire even with the literal, and otherwise the literal's signal.  With a patience of n
rounds, c is the smallest of these values over the last n rounds.  A question stops at the first round with c > v, so
its stop stays the same while v is at or above every earlier c and below the c of the stop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from suffice.evaluation.search.bits import Bits, evaluator
from suffice.evaluation.search.explore import Explorer
from suffice.evaluation.search.families import FormFamily, RuleCodes
from suffice.evaluation.search.space import Block
from suffice.policy.rounds import Floats, Positions

ThresholdIntervals = dict[str, tuple[float, float]]
"""By literal (``p_correct >``): the interval of thresholds with the same stops; an open end is infinite."""

_MOST = sys.float_info.max


def equivalent_intervals(explorer: Explorer, numbers: Positions) -> list[ThresholdIntervals]:
    """Return, for each rule of the sorted `numbers`, the interval of each of its thresholds.

    For ``>`` and ``<=`` the interval includes its lower end and excludes its upper end; for ``>=`` and ``<`` it is the
    other way round.
    """
    intervals: list[ThresholdIntervals] = [{} for _ in numbers]
    evaluators: dict[int, Callable[[RuleCodes], Bits]] = {}
    for part, section, variant, within in explorer.where(numbers):
        side, family = section.side, section.family
        if section.start not in evaluators:
            evaluators[section.start] = evaluator(FormFamily(_with_extremes(family.block)), side.view)
        patience, end = section.variants[variant]
        # Critical values are floats for every round, while stops are bits, so fewer rules fit into the cache.
        step = max(1, explorer.step // max(1, 4 * len(side.view)))
        for begin in range(0, len(within), step):
            codes = family.decode(within[begin : begin + step])
            stops = section.stops(section.bits(codes), variant)
            for i, literal in enumerate(family.block.literals):
                rows = np.flatnonzero(codes.digits[:, i])
                if not len(rows):
                    continue
                sign = 1.0 if literal.comparison.startswith(">") else -1.0
                width = len(literal.thresholds)
                ends = _threshold_ends(
                    evaluators[section.start](_with_digit(codes, rows, i, width + 1)),
                    evaluators[section.start](_with_digit(codes, rows, i, width + 2)),
                    sign * side.view[literal.signal],
                    stops[rows],
                    patience=patience,
                    last=np.minimum(side.last, end),
                )
                for row, low, high in zip(rows.tolist(), *(values.tolist() for values in ends), strict=True):
                    key = f"{literal.signal} {literal.comparison}"
                    intervals[part.start + begin + row][key] = (low, high) if sign > 0 else (-high, -low)
    return intervals


def _with_extremes(block: Block) -> Block:
    """Add two thresholds to each literal: one that every defined value passes, and one that none passes."""
    easy = [-_MOST if literal.comparison.startswith(">") else _MOST for literal in block.literals]
    literals = (
        replace(literal, thresholds=(*literal.thresholds, value, -value))
        for literal, value in zip(block.literals, easy, strict=True)
    )
    return replace(block, literals=tuple(literals))


def _with_digit(codes: RuleCodes, rows: Positions, literal: int, digit: int) -> RuleCodes:
    """Return some of the rules, with the threshold of one literal replaced."""
    digits = codes.digits[rows]
    digits[:, literal] = digit
    return RuleCodes(
        digits=digits,
        labels=None if codes.labels is None else codes.labels[rows],
        votes=None if codes.votes is None else codes.votes[rows],
    )


def _threshold_ends(
    with_it: Bits,
    without: Bits,
    column: Floats,
    stops: Positions,
    *,
    patience: int,
    last: Positions,
) -> tuple[Floats, Floats]:
    """Return the least and the greatest threshold of each rule, each of shape ``(n_rules,)``.

    Args:
        with_it: Bits of the rounds where the rules fire if the literal fires wherever its signal is defined.
        without: Bits of the rounds where they fire if the literal never fires.
        column: The signal, with its sign turned if needed so that larger values fire, shape ``(n_questions,
            n_rounds)``.
        stops: Stops of the rules, shape ``(n_rules, n_questions)``.
        patience: Number of consecutive rounds in which the rules must fire.
        last: The position at which every question stops at the latest.
    """
    width = column.shape[1]
    bit = [with_it.dtype.type(r) for r in range(width)]
    one = with_it.dtype.type(1)
    critical = np.empty((width, *with_it.shape))
    for r in range(width):
        inside = np.where((with_it >> bit[r]) & one, column[:, r], -np.inf)
        critical[r] = np.where((without >> bit[r]) & one, np.inf, inside)
    # A rule with patience fires if all of the last rounds fire, so their smallest critical value decides.
    windowed = critical.copy()
    for back in range(1, patience):
        windowed[back:] = np.minimum(windowed[back:], critical[: width - back])
        windowed[:back] = -np.inf
    reached = np.minimum(stops, last)
    low, high = np.full(len(stops), -np.inf), np.full(len(stops), np.inf)
    for r in range(width):
        before = np.where(r < reached, windowed[r], -np.inf)
        there = np.where((r == reached) & (reached < last), windowed[r], np.inf)
        np.maximum(low, before.max(axis=1), out=low)
        np.minimum(high, there.min(axis=1), out=high)
    return low, high
