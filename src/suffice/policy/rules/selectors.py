"""Selectors, which choose the answer to return among the answers of the rounds up to the stop."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, RuleSyntaxError
from suffice.policy.metrics import answer_key
from suffice.policy.normalizers import Grouping
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules.rule import spelled_call


def _answers(rounds: Rounds) -> npt.NDArray[np.object_]:
    if rounds.answers is None:
        raise DataError(
            "these rounds have no answers, so that none can be returned: record them, or give Rounds(answers=...)"
        )
    return rounds.answers


def _keys(rounds: Rounds) -> npt.NDArray[np.object_]:
    """Return the keys by which answers are compared, shape ``(..., n_rounds)``; "" for a round without an answer."""
    key_of = rounds.normalizer or answer_key
    if isinstance(key_of, Grouping):
        ids = key_of.ids_of(_answers(rounds))
        return np.where(np.isnan(ids), "", ids.astype(str)).astype(object)

    def key(answer: object) -> str:
        return (key_of(answer) or "") if isinstance(answer, str) else ""

    return np.asarray(np.frompyfunc(key, 1, 1)(_answers(rounds)), dtype=object)


def answered(rounds: Rounds) -> Mask:
    """Return a mask of the rounds whose answer is not blank and has a key, shape ``(..., n_rounds)``."""
    if rounds.answered is None:
        answers = _answers(rounds)
        given: Mask = answers.astype(np.bool_) & rounds.seen  # neither None nor ""
        try:
            given[given] = ~np.asarray(_ISSPACE(np.broadcast_to(answers, given.shape)[given]), dtype=np.bool_)
        except TypeError:  # other values, such as a NaN from a foreign table, are not answers either
            given = np.asarray(_keys(rounds) != "", dtype=np.bool_) & rounds.seen
        rounds.answered = given
    return rounds.answered


_ISSPACE = np.frompyfunc(
    str.isspace, 1, 1
)  # a C function without a Python frame, since this takes the largest part of a large replay


def same_answers(rounds: Rounds) -> Mask:
    """Return a mask of the pairs of rounds that have the same answer, shape ``(..., n_rounds, n_rounds)``."""
    keys = _keys(rounds)
    return np.asarray(keys[..., :, None] == keys[..., None, :], dtype=np.bool_)


def total(values: Floats) -> Floats:
    """Return sums over the last axis, added strictly in the order of the rounds.

    Because of this order trailing zeros change nothing, so the rounds of a live question and a longer recording give
    exactly the same number. `numpy.sum` does not guarantee that, since it does not add in the order of the rounds.
    """
    return np.asarray(np.add.accumulate(values, axis=-1)[..., -1])


class Selector(ABC):
    """Base class of selectors, which choose one of the rounds up to the stop.

    As for a `Rule`, ``str(selector)`` is the text of the selector.
    """

    __slots__ = ()

    def select(self, rounds: Rounds, stop: Positions) -> Positions:
        """Return the position (on the last axis) of the answer to return; -1 if no round up to the stop has an answer.

        Args:
            rounds: The rounds from the policy's start on, with answers.
            stop: Position of the stop on the last axis, shape ``(...)``.
        """
        candidates = answered(rounds) & (np.arange(len(rounds)) <= np.asarray(stop)[..., None])
        position = self.among(rounds, candidates)
        fallback = last_of(candidates)
        return np.where(position >= 0, position, fallback)

    def shares(self, rounds: Rounds, stop: Positions) -> Floats | None:
        """Return the probability that each round's answer is returned, in the shape of `rounds`.

        A selector that draws among tied answers by a seed returns the shares over all seeds. A selector whose `select` is
        deterministic returns None. The arguments are those of `select`.
        """
        del rounds, stop
        return None

    def means_by_stop(self, rounds: Rounds, values: Floats, otherwise: Callable[[], Floats]) -> Floats | None:
        """Return the expected value of the returned answer for a stop at each round, same shape as `values`.

        Return None if `shares` returns None, because `select` is then deterministic.

        Args:
            rounds: See `select`, shape ``(n, n_rounds)``.
            values: The value of each round's answer, same shape.
            otherwise: A function that returns, in the shape of `values`, the values to use for stops at which `shares` is
                zero everywhere.
        """
        del rounds, values, otherwise
        return None

    @abstractmethod
    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        """Return the position of the chosen candidate; -1 if all values that the selector reads are undefined."""

    @property
    def signals(self) -> frozenset[str]:
        """The signals that the selector reads."""
        return frozenset()

    def __str__(self) -> str:
        return spelled_call(self)


def last_of(mask: Mask) -> Positions:
    """Return the last True position of `mask` along the last axis; -1 if no position is True."""
    last = mask.shape[-1] - 1 - np.argmax(mask[..., ::-1], axis=-1)
    return np.where(mask.any(axis=-1), last, -1)


@dataclass(frozen=True, slots=True)
class Last(Selector):
    """The selector of the latest answer."""

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        del rounds
        return last_of(candidates)

    def __str__(self) -> str:
        return "last"


@dataclass(frozen=True, slots=True)
class First(Selector):
    """The selector of the earliest answer."""

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        del rounds
        return np.where(candidates.any(axis=-1), np.argmax(candidates, axis=-1), -1)

    def __str__(self) -> str:
        return "first"


@dataclass(frozen=True, slots=True)
class OfSignal(Selector):
    """Base class of the selectors that compare rounds by one signal."""

    prefix: ClassVar[str]
    name: str

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({self.name})

    def __str__(self) -> str:
        return f"{self.prefix}_{self.name}"


@dataclass(frozen=True, slots=True)
class MaxSignal(OfSignal):
    """The selector of the round with the largest signal; of tied rounds, the latest, which has seen most evidence."""

    prefix = "max"
    name: str = "p_correct"

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        column = rounds[self.name]
        usable = candidates & ~np.isnan(column)
        scores = np.where(usable, column, -np.inf)
        best = usable & (scores == scores.max(axis=-1, keepdims=True))
        return last_of(best)


@dataclass(frozen=True, slots=True)
class MinSignal(OfSignal):
    """The selector of the round with the smallest signal; of tied rounds, the latest."""

    prefix = "min"

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        return nearest(rounds[self.name], np.asarray(-np.inf), candidates)


QUALITY = (
    "p_correct",
    "calibrated_confidence",
    "answer_margin",
    "verbal_confidence",
    "information_score",
    "judge_entailment",
)
"""The signals that say how good an answer is, higher for a better one."""

_OTHERS = frozenset({"top_score", "rerank_score"})
"""Signals of retrieval that are called a score and say nothing of the answer."""

CALIBRATED: Mapping[str, str] = {"p_correct": "answer_margin", "calibrated_confidence": "verbal_confidence"}
"""The calibrated signals and the raw signals that they come from, as TASR names them (section 3.2)."""

_HOSTS_QUALITY = re.compile(r"(?:\w*_)?(?:quality|score|reward|rating|confidence)")


@dataclass(frozen=True, slots=True)
class Best(Selector):
    """The selector of the best round by the only signal of quality; a policy replaces this selector by ``max_SIGNAL``."""

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        return self.by(rounds.columns).among(rounds, candidates)

    def by(self, names: Iterable[str]) -> MaxSignal:
        """Return the selector that `best` stands for, given the available signals.

        >>> str(Best().by({"answer_stable", "quality"})), str(Best().by({"p_correct", "answer_margin"}))
        ('max_quality', 'max_p_correct')

        Args:
            names: The signals that are available live.  The signals in `QUALITY` are signals of quality. A host's own
                signal is also a signal of quality if its name is, or ends in, `quality`, `score`, `reward`, `rating` or
                `confidence`, as in `judge_score`.
        """
        names = set(names)
        known = {name for name in names if name in QUALITY or (name not in _OTHERS and _HOSTS_QUALITY.fullmatch(name))}
        known -= {raw for calibrated, raw in CALIBRATED.items() if calibrated in known}
        if len(known) == 1:
            return MaxSignal(known.pop())
        which = f"several signals of quality: {', '.join(sorted(known))}" if known else "no signal of quality"
        listed = sorted(known) or [*QUALITY[:1], "quality"]
        raise RuleSyntaxError(
            f"'best' does not say which round is best: the rule or the recording has {which}. Name the signal: "
            f"{' or '.join(f'max_{name}' for name in listed)}"
        )

    def __str__(self) -> str:
        return "best"


@dataclass(frozen=True, slots=True)
class MedianSignal(OfSignal):
    """The selector of the round whose signal is nearest to the median over the rounds up to the stop; of tied rounds, the latest."""

    prefix = "median"

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        column = np.broadcast_to(rounds[self.name], candidates.shape)
        usable = candidates & ~np.isnan(column)
        # Unusable values are sorted last, so that the prefix of a recording and a live question give exactly the same
        # numbers.
        ordered = np.sort(np.where(usable, column, np.inf), axis=-1)
        n = usable.sum(axis=-1, keepdims=True)
        middle = (np.maximum(n - 1, 0) // 2, np.minimum(n // 2, column.shape[-1] - 1))
        low, high = (np.take_along_axis(ordered, place, axis=-1) for place in middle)
        return nearest(column, np.where(n > 0, low / 2 + high / 2, 0.0), candidates)


def nearest(column: Floats, target: Floats, candidates: Mask) -> Positions:
    """Return the position of the candidate whose signal is nearest to `target`; -1 if the signal is NaN at all candidates.

    Of equally near candidates, the latest is chosen.

    Args:
        column: The signal, shape ``(..., n_rounds)``; NaN is never chosen.
        target: The target, shape ``(..., 1)`` or scalar; minus infinity selects the smallest value.
        candidates: Mask of the candidates, shape ``(..., n_rounds)``.
    """
    usable = candidates & ~np.isnan(column)
    away = column if np.isneginf(target).all() else np.abs(column - target)
    away = np.where(usable, away, np.inf)
    return last_of(usable & (away == away.min(axis=-1, keepdims=True)))


@dataclass(frozen=True, slots=True)
class Majority(Selector):
    """The selector of the most frequent answer, by normalised text; of tied answers, the answer seen last.

    The answer is returned as worded in its latest round.

    Attributes:
        weight: A signal by which each round's vote is weighted; a round where it is undefined does not vote. None =
            equal weights.
    """

    weight: str | None = None

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        votes: Floats = candidates.astype(np.float64)
        if self.weight is not None:
            column = rounds[self.weight]
            candidates = candidates & ~np.isnan(column)
            votes = np.where(candidates, column, 0.0)
        totals = total(np.where(same_answers(rounds) & candidates[..., None, :], votes[..., None, :], 0.0))
        totals = np.where(candidates, totals, -np.inf)
        return last_of(candidates & (totals == totals.max(axis=-1, keepdims=True)))

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
"""The selectors by name; `max_SIGNAL`, `min_SIGNAL` and `median_SIGNAL` work for any signal, and `best` is one of these."""
