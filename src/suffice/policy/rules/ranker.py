"""A learned selector: it maximises a weighted sum of features that are known at the stop.

The text of the selector contains all of its numbers.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.errors import RuleSyntaxError
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules.parse import register_selector
from suffice.policy.rules.selectors import Selector, last_of, same_answers, total

SET_FEATURES = ("votes", "is_last", "is_first")
"""What a term reads beside signals, from the seen rounds with an answer: the share of them that give this round's
answer, whether this is the latest of them, whether it is the earliest."""

_SUM, _BEST = "sum_", "best_"
_HUGE = 1e100
"""Limit of the size of weights and signals, so that products and sums stay finite."""
_EXAMPLE = "ranked(p_correct=(1.25, 0.31), votes=(0.4, 0.0))"


@dataclass(frozen=True, slots=True)
class Term:
    """One feature of a ranker.

    Attributes:
        name: The name of a signal, one of `SET_FEATURES`, ``sum_SIGNAL`` or ``best_SIGNAL``. ``sum_SIGNAL`` is the sum of
            a signal over the seen rounds with the same answer; ``best_SIGNAL`` is the signal's largest value over these rounds.
        weight: The factor by which the value of the feature is multiplied.
        fill: The value to use if the feature is missing; 0 for set features, which are never missing.
    """

    name: str
    weight: float
    fill: float = 0.0

    @property
    def signal(self) -> str | None:
        """The signal that the feature is computed from; None for a set feature."""
        if self.name in SET_FEATURES:
            return None
        return self.name.removeprefix(_SUM if self.name.startswith(_SUM) else _BEST)


@dataclass(frozen=True, slots=True)
class Ranked(Selector):
    """The selector of the round with the largest weighted sum of features; of tied rounds, the latest.

    With weights from a logistic regression, the sum is, up to a constant, the log-odds that the round's answer is
    right. A missing signal is replaced by its fill, so every round with an answer has a score.

    >>> from suffice.policy.rules import parse_selector
    >>> rounds = Rounds.from_columns({"p_correct": [0.9, 0.2, 0.3]}, answers=["Paris", "Rome", "rome"])
    >>> int(Ranked((Term("p_correct", 1.0),)).select(rounds, np.array(2)))
    0
    >>> int(Ranked((Term("p_correct", 1.0), Term("votes", 3.0))).select(rounds, np.array(2)))
    2
    >>> print(parse_selector("ranked(p_correct=(1.25, 0.31), votes=(-0.4, 0))"))
    ranked(p_correct=(1.25, 0.31), votes=(-0.4, 0.0))

    Attributes:
        terms: The features: at least one, and each only once.
    """

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        names = [term.name for term in self.terms]
        if not names or len(set(names)) != len(names):
            raise RuleSyntaxError(f"a ranker needs one or more features, each once, not {names!r}")
        for term in self.terms:
            named = term.name.isidentifier() and not keyword.iskeyword(term.name) and term.signal != ""
            if not named or not abs(term.weight) <= _HUGE or not abs(term.fill) <= _HUGE:
                raise RuleSyntaxError(f"a ranker's term is a name with a finite weight and fill, not {term!r}")

    @property
    def signals(self) -> frozenset[str]:
        return frozenset(term.signal for term in self.terms if term.signal is not None)

    def features(self, rounds: Rounds, candidates: Mask) -> list[Floats]:
        """Return the value of each term at every round, shape ``(..., n_rounds)``; missing values are filled.

        Args:
            rounds: The rounds from the policy's start on, with answers.
            candidates: Mask of the seen rounds up to the stop that have an answer, shape ``(..., n_rounds)``.
        """
        among = same_answers(rounds) & candidates[..., None, :]
        return [_feature(term, rounds, candidates, among) for term in self.terms]

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        scores: Floats = np.zeros(candidates.shape)
        for term, values in zip(self.terms, self.features(rounds, candidates), strict=True):
            scores = scores + term.weight * values
        scores = np.where(candidates, scores, -np.inf)
        return last_of(candidates & (scores == scores.max(axis=-1, keepdims=True)))

    def __str__(self) -> str:
        return f"ranked({', '.join(f'{term.name}=({term.weight!r}, {term.fill!r})' for term in self.terms)})"


def _feature(term: Term, rounds: Rounds, candidates: Mask, among: Mask) -> Floats:
    """Return the value of one feature at every round.

    `among` is a mask of the candidates with the same answer as each round, shape ``(..., n_rounds, n_rounds)``.
    """
    if term.name == "votes":
        share: Floats = total(among.astype(np.float64)) / np.maximum(candidates.sum(axis=-1, keepdims=True), 1)
        return share
    if term.name in ("is_last", "is_first"):
        place = np.arange(candidates.shape[-1])
        end = last_of(candidates) if term.name == "is_last" else np.argmax(candidates, axis=-1)
        return np.asarray(place == end[..., None], dtype=np.float64)
    assert term.signal is not None
    column = rounds[term.signal]
    values = np.where(np.isnan(column), term.fill, np.clip(column, -_HUGE, _HUGE))
    if term.name.startswith(_SUM):
        return total(np.where(among, values[..., None, :], 0.0))
    if term.name.startswith(_BEST):
        best = np.where(among, values[..., None, :], -np.inf).max(axis=-1)
        return np.asarray(np.where(np.isneginf(best), term.fill, best))  # no candidate: the score is not used
    return np.asarray(np.broadcast_to(values, candidates.shape))


@register_selector("ranked")
def ranked_by(**pairs: Any) -> Ranked:
    """Return the ranker of these features, given as ``NAME=(weight, fill)``."""
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs.values()):
        raise RuleSyntaxError(f"each feature needs a weight and a fill; write {_EXAMPLE}")
    return Ranked(tuple(Term(name, weight, fill) for name, (weight, fill) in pairs.items()))
