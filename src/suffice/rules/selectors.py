"""Which of the seen rounds' answers to return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, RuleSyntaxError
from suffice.metrics import answer_key
from suffice.rounds import Floats, Mask, Rounds

__all__ = ["SELECTORS", "Selector", "parse_selector"]

Positions = npt.NDArray[np.int64]


def _key(answer: object) -> str:
    return answer_key(answer) if isinstance(answer, str) else ""


def _keys(rounds: Rounds) -> npt.NDArray[np.object_]:
    """Return what makes two answers the same, shape ``(..., n_rounds)``; "" where there is none."""
    if rounds.answers is None:
        raise DataError("these rounds carry no answers: give Rounds(answers=...) to select among them")
    return np.asarray(np.frompyfunc(_key, 1, 1)(rounds.answers), dtype=object)


def answered(rounds: Rounds) -> Mask:
    """Return which rounds have a non-blank answer, shape ``(..., n_rounds)``."""
    return np.asarray(_keys(rounds) != "", dtype=np.bool_) & rounds.seen


class Selector(ABC):
    """Chooses among the rounds seen before and at the stop; its text is its specification."""

    __slots__ = ()

    def select(self, rounds: Rounds, stop: Positions) -> Positions:
        """Return the position on the last axis whose answer to return; -1 where no seen round has an answer.

        Args:
            rounds: The rounds from the policy's start on, with answers.
            stop: Position of the stop on the last axis, shape ``(...)``.
        """
        candidates = answered(rounds) & (np.arange(len(rounds)) <= np.asarray(stop)[..., None])
        position = self._among(rounds, candidates)
        fallback = _latest(candidates)
        return np.where(position >= 0, position, fallback)

    @abstractmethod
    def _among(self, rounds: Rounds, candidates: Mask) -> Positions:
        """Return the chosen position among `candidates`, -1 where the selector has nothing to go by."""

    @property
    def signals(self) -> frozenset[str]:
        """The signals that the selector reads."""
        return frozenset()


def _latest(mask: Mask) -> Positions:
    last = mask.shape[-1] - 1 - np.argmax(mask[..., ::-1], axis=-1)
    return np.where(mask.any(axis=-1), last, -1)


@dataclass(frozen=True, slots=True)
class Last(Selector):
    """The latest answer."""

    def _among(self, rounds: Rounds, candidates: Mask) -> Positions:
        del rounds
        return _latest(candidates)

    def __str__(self) -> str:
        return "last"


@dataclass(frozen=True, slots=True)
class First(Selector):
    """The earliest answer."""

    def _among(self, rounds: Rounds, candidates: Mask) -> Positions:
        del rounds
        return np.where(candidates.any(axis=-1), np.argmax(candidates, axis=-1), -1)

    def __str__(self) -> str:
        return "first"


@dataclass(frozen=True, slots=True)
class MaxSignal(Selector):
    """The answer at the round where a signal is largest; among ties the latest, which has seen most evidence."""

    name: str = "p_correct"

    def _among(self, rounds: Rounds, candidates: Mask) -> Positions:
        column = rounds[self.name]
        usable = candidates & ~np.isnan(column)
        scores = np.where(usable, column, -np.inf)
        best = usable & (scores == scores.max(axis=-1, keepdims=True))
        return _latest(best)

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({self.name})

    def __str__(self) -> str:
        return f"max_{self.name}"


@dataclass(frozen=True, slots=True)
class Majority(Selector):
    """The answer given most often, by normalised text; among tied answers the one seen last, at its latest round.

    Attributes:
        weight: A signal to count each round by (undefined ones do not vote); None counts each round as one.
    """

    weight: str | None = None

    def _among(self, rounds: Rounds, candidates: Mask) -> Positions:
        votes: Floats = candidates.astype(np.float64)
        if self.weight is not None:
            column = rounds[self.weight]
            candidates = candidates & ~np.isnan(column)
            votes = np.where(candidates, column, 0.0)
        keys = _keys(rounds)
        same = np.asarray(keys[..., :, None] == keys[..., None, :], dtype=np.bool_)
        # Summed in the order of the rounds for every round of one answer, so that equal totals are equal numbers.
        totals = np.where(same & candidates[..., None, :], votes[..., None, :], 0.0).sum(axis=-1)
        totals = np.where(candidates, totals, -np.inf)
        return _latest(candidates & (totals == totals.max(axis=-1, keepdims=True)))

    @property
    def signals(self) -> frozenset[str]:
        return frozenset() if self.weight is None else frozenset({self.weight})

    def __str__(self) -> str:
        return "majority" if self.weight is None else "weighted_majority"


SELECTORS: Mapping[str, Selector] = {
    "last": Last(),
    "first": First(),
    "max_p_correct": MaxSignal(),
    "majority": Majority(),
    "weighted_majority": Majority("p_correct"),
}
"""The selectors by name; `max_SIGNAL` works for any other signal."""


def parse_selector(text: str) -> Selector:
    """Return the selector that `text` names.

    >>> str(parse_selector("max_answer_margin"))
    'max_answer_margin'

    Raises:
        RuleSyntaxError: There is no such selector.
    """
    if text in SELECTORS:
        return SELECTORS[text]
    if text.startswith("max_") and text[4:].isidentifier():
        return MaxSignal(text[4:])
    raise RuleSyntaxError(f"{text!r} is no selector; there are: {', '.join(SELECTORS)} and max_SIGNAL")
