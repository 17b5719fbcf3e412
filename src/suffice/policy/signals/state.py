"""Fitted state of signals that need statistics over questions; it is fitted on tune questions and stored as JSON."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from suffice.common.json_text import as_number
from suffice.common.results import UNLESS_EMPTY, Tagged
from suffice.errors import DataError
from suffice.policy.rounds import Floats, Passage, Round
from suffice.policy.seen import Seen

DIFFICULTY = "difficulty"
"""The signal that says how hard a question is, before any answer."""

_WORD_CHARACTERS = re.compile(r"\w+")


class FittedState(Tagged, ABC):
    """Statistics of one signal, fitted on tune questions; `state_from_dict` reads its JSON."""

    __slots__ = ()

    @abstractmethod
    def compute(self, rounds: Sequence[Round]) -> float:
        """Return the signal at the last of `rounds`; NaN where undefined."""


def overlap_tokens(text: str) -> frozenset[str]:
    r"""Return the tokens of a text for the signal `overlap`: its lowercased runs of word characters (`\w+`).

    >>> sorted(overlap_tokens("The Tempest, a play; the TEMPEST."))
    ['a', 'play', 'tempest', 'the']
    """
    return frozenset(_WORD_CHARACTERS.findall(text.lower()))


def _passage_tokens(passage: Passage) -> frozenset[str]:
    return overlap_tokens(passage.title) | overlap_tokens(passage.text)


@dataclass(frozen=True, slots=True)
class Idf(FittedState):
    """Inverse document frequencies for the signal `overlap`.

    The weight of a token is ``ln((1 + n) / (1 + df)) + 1``; a token outside the fitted texts gets the highest weight.

    >>> idf = Idf.fit(["the tempest", "the storm", "the sea"])
    >>> idf.weight("the"), round(idf.weight("tempest"), 3), round(idf.weight("calm"), 3)
    (1.0, 1.693, 2.386)

    Attributes:
        n: Number of fitted texts.
        df: Number of texts with each token.
        seen: The questions to which these texts belong; empty if they were not recorded.
    """

    tag = ("type", "idf")
    n: int
    df: Mapping[str, int]
    seen: Seen = field(default_factory=Seen, compare=False, metadata=UNLESS_EMPTY)
    _weights: Mapping[str, float] = field(init=False, repr=False, compare=False)
    _unseen: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _is_count(self.n) or not all(_is_count(count) and count <= self.n for count in self.df.values()):
            raise DataError(f"document frequencies must be whole numbers from 1 to the number of texts, {self.n!r}")
        object.__setattr__(self, "_unseen", math.log1p(self.n) + 1)
        weights = {token: math.log((1 + self.n) / (1 + count)) + 1 for token, count in self.df.items()}
        object.__setattr__(self, "_weights", weights)

    @classmethod
    def fit(cls, texts: Iterable[str], seen: Seen | None = None) -> Idf:
        """Count, for each token, the texts that contain it; a text is a passage (title and text) of the tune questions.

        Args:
            texts: The passages.
            seen: The questions of the passages; None if unknown.

        Raises:
            DataError: `texts` is empty.
        """
        df: Counter[str] = Counter()
        n = 0
        for text in texts:
            n += 1
            df.update(overlap_tokens(text))
        if not n:
            raise DataError("cannot fit document frequencies without texts: give the passages of tune questions")
        return cls(n, dict(sorted(df.items())), seen or Seen())

    def weight(self, token: str) -> float:
        """Return the weight of a token, at least 1."""
        return self._weights.get(token, self._unseen)

    def compute(self, rounds: Sequence[Round]) -> float:
        """Return the overlap of the newest passage with the earlier ones, in [0, 1]; NaN if there is no earlier passage.

        The overlap is the weight of the tokens that the newest passage shares with the earlier passages, divided by the
        weight of all tokens of all these passages. Tokens of titles count (TASR, section 3.2).
        """
        passages = rounds[-1].passages
        if len(passages) < 2:  # noqa: PLR2004  # the new one and one before
            return math.nan
        new = _passage_tokens(passages[-1])
        earlier = frozenset[str]().union(*map(_passage_tokens, passages[:-1]))
        # fsum is exact up to one rounding, so the sum does not depend on the set order, which differs between processes.
        every = math.fsum(self.weight(token) for token in new | earlier)
        return math.fsum(self.weight(token) for token in new & earlier) / every if every else math.nan


@dataclass(frozen=True, slots=True)
class ZScore(FittedState):
    """A shift and a scale, fitted over questions, for the signal `top_score_z`.

    The signal is a pure function of the column `top_score`, so a recording needs only that column.

    >>> z = ZScore.fit([1.0, 3.0])
    >>> z
    ZScore(center=2.0, scale=1.0)
    >>> z.apply(np.array([2.0, 4.0]))
    array([0., 2.])

    Attributes:
        center: Mean of the fitted values.
        scale: Standard deviation (of the population); 0 makes every result NaN.
    """

    tag = ("type", "zscore")
    center: float
    scale: float

    def __post_init__(self) -> None:
        if not (_is_finite(self.center) and _is_finite(self.scale) and self.scale >= 0):
            raise DataError(
                f"a z-score needs a finite center and a finite scale >= 0, got {self.center!r}, {self.scale!r}"
            )

    @classmethod
    def fit(cls, values: Iterable[float] | Floats) -> ZScore:
        """Fit center and scale to the finite values.

        Args:
            values: `top_score` of the tune questions, one per question; NaN = undefined.

        Raises:
            DataError: No value is finite.
        """
        array = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
        array = array[np.isfinite(array)]
        if not array.size:
            raise DataError("cannot fit a z-score without finite values: record scores of a retriever first")
        if array.min() == array.max():  # the mean of equal numbers may differ from them by a rounding
            return cls(float(array[0]), 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            return cls(float(array.mean()), float(array.std()))

    def apply(self, values: Floats) -> Floats:
        """Return the z-scores of a column of `top_score`, shape unchanged; NaN where undefined."""
        if self.scale == 0:
            return np.full(np.shape(values), np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            z = (np.asarray(values, dtype=np.float64) - self.center) / self.scale
        return np.where(np.isfinite(z), z, np.nan)

    def compute(self, rounds: Sequence[Round]) -> float:
        """Return the z-score of the last round's `top_score`; NaN if `top_score` is undefined."""
        return float(self.apply(np.asarray(top_score(rounds))))


def top_score(rounds: Sequence[Round]) -> float:
    """Return the retriever's score of rank 1, or the host's value of `top_score`; NaN if unranked."""
    last = rounds[-1]
    value = as_number(last.signals.get("top_score", last.pool_scores[0] if last.pool_scores else math.nan))
    return value if math.isfinite(value) else math.nan


@dataclass(frozen=True, slots=True)
class Allocation(FittedState):
    """The number of samples for a question of given difficulty, for the signal `allocated` of the rule `dsc`.

    Difficulty-adaptive self-consistency (Wang et al., 2025) ranks questions by difficulty.  From the hardest question
    down, it looks for a run of questions whose first samples agree. The questions of this run and all easier questions
    get one sample. A harder question gets as many samples as slightly easier questions needed. Here the difficulty up to
    which one sample is enough, and the numbers of samples above it, are learned from tune questions. So they do not
    depend on a question's own samples.

    Attributes:
        difficulties: Difficulties of the tune questions, ascending.
        sizes: Numbers of samples; entry i is for a question that is harder than i tune questions, so there is one more
            entry than in `difficulties`.
        easy: The largest difficulty for which one sample is enough; None if one sample is never enough.
    """

    tag = ("type", "allocation")
    difficulties: tuple[float, ...]
    sizes: tuple[int, ...]
    easy: float | None

    def __post_init__(self) -> None:
        wrong = not all(map(_is_finite, self.difficulties)) or list(self.difficulties) != sorted(self.difficulties)
        wrong |= len(self.sizes) != len(self.difficulties) + 1 or not all(map(_is_count, self.sizes))
        if wrong or not (self.easy is None or _is_finite(self.easy)):
            raise DataError(
                "an allocation needs ascending difficulties, a number of samples for each and one more, and the largest easy "
                "difficulty or None"
            )

    @classmethod
    def fit(
        cls,
        difficulty: Iterable[float] | Floats,
        agree: Iterable[bool],
        needed: Iterable[int],
        *,
        window: int = 4,
        judged: int = 32,
        similar: int = 16,
    ) -> Allocation:
        """Fit the allocation on tune questions; the defaults come from the authors' code.

        >>> fitted = Allocation.fit([1, 2, 3, 4], [True, True, False, False], [4, 4, 9, 15], judged=1, similar=2)
        >>> fitted.easy, fitted.sizes
        (2.0, (4, 4, 4, 8, 12))

        Args:
            difficulty: Difficulty of each tune question, finite; of equally difficult questions, the first counts as
                easier.
            agree: For each question, whether its first `window` samples agree.
            needed: For each question, the number of samples after which its vote was decided.
            window: Number of samples in a window.
            judged: Number of consecutive questions whose first samples must agree.
            similar: Number of neighbours: the mean `needed` of this many next easier questions determines a question's
                number of samples.

        Raises:
            DataError: There are no questions, a difficulty is not finite, or the arguments have different lengths.
        """
        hardness = np.asarray([*difficulty], dtype=np.float64)
        agreed, wanted = np.asarray([*agree], dtype=np.bool_), np.asarray([*needed], dtype=np.float64)
        n = len(hardness)
        if not n or len(agreed) != n or len(wanted) != n or not np.isfinite(hardness).all():
            raise DataError(
                "an allocation is fitted on tune questions with a finite difficulty each: give at least one"
            )
        order = np.argsort(hardness, kind="stable")
        hardness, agreed, wanted = hardness[order], agreed[order], wanted[order]
        runs = (start for start in range(n - judged, -1, -1) if agreed[start : start + judged].all())
        hardest = min(next(runs, -n) + judged, n - judged)  # the hardest questions never count as easy
        sizes = [window] * min(similar, n + 1)
        sizes += [max(round(float(wanted[j - similar : j].mean()) / window), 1) * window for j in range(similar, n + 1)]
        easy = float(hardness[hardest - 1]) if hardest > 0 else None
        return cls(tuple(hardness.tolist()), tuple(sizes), easy)

    def apply(self, values: Floats) -> Floats:
        """Return the numbers of samples for a column of difficulties, shape unchanged; NaN where undefined."""
        column = np.asarray(values, dtype=np.float64)
        sizes = np.asarray(self.sizes, dtype=np.float64)[np.searchsorted(self.difficulties, column, side="left")]
        sizes = np.where(column <= (-np.inf if self.easy is None else self.easy), 1.0, sizes)
        return np.where(np.isnan(column), np.nan, sizes)

    def compute(self, rounds: Sequence[Round]) -> float:
        """Return the number of samples for the last round's `difficulty`; NaN if the difficulty is undefined."""
        return float(self.apply(np.asarray(as_number(rounds[-1].signals.get(DIFFICULTY)))))


@dataclass(frozen=True, slots=True)
class RationaleScore(FittedState):
    """A logistic regression on features of a sample's reasoning and of the votes before it, for the signal `rationale_score`.

    >>> score = RationaleScore({"rationale_steps": 0.5, "vote_joins": 1.0}, -1.0)
    >>> score.apply({"rationale_steps": np.array([2.0, math.nan]), "vote_joins": np.array([0.0, 1.0])})
    array([0.5, nan])

    Attributes:
        weights: The factor of each feature, by signal; at least one feature.
        intercept: The constant term.
    """

    tag = ("type", "rationale")
    weights: Mapping[str, float]
    intercept: float

    def __post_init__(self) -> None:
        if not self.weights or not all(map(_is_finite, (*self.weights.values(), self.intercept))):
            raise DataError(
                f"a score of rationales needs a finite weight for one or more signals and a finite intercept, not {self.weights!r:.80}, "
                f"{self.intercept!r}: fit it with `suffice calibrate TUNE.parquet --rule rasc`"
            )

    def apply(self, columns: Mapping[str, Floats]) -> Floats:
        """Return the probability that each sample is right, of the shape of the columns; NaN where a feature is undefined."""
        total = self.intercept + sum(weight * columns[name] for name, weight in self.weights.items())
        return np.asarray(
            0.5 * (1 + np.tanh(np.asarray(total) / 2)), dtype=np.float64
        )  # the logistic function, without overflow

    def compute(self, rounds: Sequence[Round]) -> float:
        """Return NaN, because the rounds alone do not contain the counted votes; a policy counts them and calls `apply`."""
        del rounds
        return math.nan


def state_from_dict(data: Mapping[str, Any]) -> FittedState:
    """Build the state from the values of `to_dict`.

    Raises:
        DataError: The type is unknown, fields are missing or unknown, or values are invalid.
    """
    names = {
        "idf": {"n", "df"},
        "zscore": {"center", "scale"},
        "allocation": {"difficulties", "sizes", "easy"},
        "rationale": {"weights", "intercept"},
    }
    kind = data.get("type") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in names:
        raise DataError(f"fitted state of unknown type {kind!r}; allowed: {', '.join(names)}")
    if set(data) - ({"seen"} if kind == "idf" else set()) != names[kind] | {"type"}:
        raise DataError(f"fitted state {kind!r} must have exactly the fields {sorted(names[kind])}, got {sorted(data)}")
    if kind == "zscore":
        return ZScore(data["center"], data["scale"])
    if kind == "allocation":
        lists = [data["difficulties"], data["sizes"]]
        if not all(isinstance(item, list) for item in lists):
            raise DataError(f"difficulties and sizes of an allocation must be lists, not {lists!r:.80}")
        return Allocation(tuple(lists[0]), tuple(lists[1]), data["easy"])
    if kind == "rationale":
        if not isinstance(data["weights"], Mapping):
            raise DataError(f"weights of rationales must be an object of signals, not {data['weights']!r:.80}")
        return RationaleScore(dict(data["weights"]), data["intercept"])
    if not isinstance(data["df"], Mapping) or not all(isinstance(token, str) for token in data["df"]):
        raise DataError(f"document frequencies must be an object of tokens, not {data['df']!r}")
    record = data.get("seen")
    if record is not None and not isinstance(record, Mapping):
        raise DataError(f"the questions that document frequencies were fitted on must be an object, not {record!r:.80}")
    return Idf(data["n"], dict(data["df"]), Seen.from_dict(record) or Seen())


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
