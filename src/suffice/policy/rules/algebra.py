"""The rules: thresholds on signals, combinations of rules, and the replacement of a rule's thresholds."""

from __future__ import annotations

import keyword
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from suffice.errors import RuleSyntaxError
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.rules.rule import Either, Members, Rule, check_rules, inner_rules, merge_reads

_COMPARISONS: dict[str, Callable[[Any, float], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _threshold_text(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _checked_threshold(comparison: str, value: float) -> float:
    if comparison not in _COMPARISONS:
        raise RuleSyntaxError(f"unknown comparison {comparison!r}; allowed: {', '.join(_COMPARISONS)}")
    number = float(value)
    if not math.isfinite(number):
        raise RuleSyntaxError(f"a threshold must be a finite number, not {value!r}")
    return number


def _check_name(name: str) -> None:
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise RuleSyntaxError(
            f"{name!r} is not a signal name: ASCII letters, digits and underscores, no Python keyword"
        )


def _check_count(what: str, value: Any, low: int, high: int | None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        allowed = f"{low}..{high}" if high is not None else f">= {low}"
        raise RuleSyntaxError(f"{what} must be a whole number {allowed}, not {value!r}")


@dataclass(frozen=True, slots=True)
class Linear:
    """A weighted sum of signals; comparing it with a number makes a rule. `signal` returns a sum of one signal."""

    terms: tuple[tuple[float, str], ...]

    def __add__(self, other: Linear) -> Linear:
        return Linear(self.terms + other.terms) if isinstance(other, Linear) else NotImplemented

    def __sub__(self, other: Linear) -> Linear:
        return self + -1 * other if isinstance(other, Linear) else NotImplemented

    def __mul__(self, weight: float) -> Linear:
        return Linear(tuple((float(weight) * w, name) for w, name in self.terms))

    __rmul__ = __mul__

    def _compare(self, comparison: str, value: float) -> Rule:
        if len(self.terms) == 1 and self.terms[0][0] == 1:
            return Threshold(self.terms[0][1], comparison, value)
        return WeightedSum(self.terms, comparison, value)

    def __gt__(self, value: float) -> Rule:
        return self._compare(">", value)

    def __ge__(self, value: float) -> Rule:
        return self._compare(">=", value)

    def __lt__(self, value: float) -> Rule:
        return self._compare("<", value)

    def __le__(self, value: float) -> Rule:
        return self._compare("<=", value)


def signal(name: str) -> Linear:
    """Return the signal `name` as an operand: compare it with a number, or first weight it and add other signals.

    >>> print(signal("p_correct") > 0.25)
    p_correct > 0.25
    >>> print(signal("answer_stable") + 2 * signal("overlap") >= 1.5)
    answer_stable + 2 * overlap >= 1.5

    Raises:
        RuleSyntaxError: `name` is not an identifier.
    """
    _check_name(name)
    return Linear(((1.0, name),))


@dataclass(frozen=True, slots=True)
class Threshold(Rule):
    """A rule that compares a signal with a number, and fires where the comparison holds; it never fires where the signal is NaN."""

    name: str
    comparison: str
    value: float

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "value", _checked_threshold(self.comparison, self.value))

    def fires(self, rounds: Rounds) -> Mask:
        return cast("Mask", _COMPARISONS[self.comparison](rounds[self.name], self.value))

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({self.name})

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        return {self.name: rounds.seen & asked}

    def __str__(self) -> str:
        return f"{self.name} {self.comparison} {_threshold_text(self.value)}"


@dataclass(frozen=True, slots=True)
class WeightedSum(Rule):
    """A rule that compares a weighted sum of signals with a number, and fires where the comparison holds.

    An undefined term with a non-zero weight makes the sum undefined; a term with weight zero is ignored.
    """

    terms: tuple[tuple[float, str], ...]
    comparison: str
    value: float

    def __post_init__(self) -> None:
        terms = tuple((float(weight), name) for weight, name in self.terms)
        if not terms or (len(terms) == 1 and terms[0][0] == 1):
            raise RuleSyntaxError(f"a weighted sum needs a weight or a second term, not {terms!r}: use Threshold")
        for weight, name in terms:
            _check_name(name)
            _checked_threshold(">", weight)
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "value", _checked_threshold(self.comparison, self.value))

    def fires(self, rounds: Rounds) -> Mask:
        total: Floats = np.zeros(rounds.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # a sum that overflows is infinite, or undefined
            for weight, name in self.terms:
                column = rounds[name]
                if weight != 0:
                    total = total + weight * column
        return cast("Mask", _COMPARISONS[self.comparison](total, self.value)) & rounds.seen

    @property
    def signals(self) -> frozenset[str]:
        return frozenset(name for _, name in self.terms)

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        return {name: rounds.seen & asked for weight, name in self.terms if weight != 0}

    def __str__(self) -> str:
        parts = [name if weight == 1 else f"{_threshold_text(weight)} * {name}" for weight, name in self.terms]
        return f"{' + '.join(parts)} {self.comparison} {_threshold_text(self.value)}"


@dataclass(frozen=True, slots=True)
class Never(Rule):
    """A rule that never fires, so that the loop runs its full budget."""

    def fires(self, rounds: Rounds) -> Mask:
        return np.zeros(rounds.shape, dtype=np.bool_)

    def __str__(self) -> str:
        return "never()"


@dataclass(frozen=True, slots=True)
class FirstOf(Either):
    """An ordered cascade: it fires where ``a | b | ...`` fires, and reports the first member that fires."""

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", check_rules("first_of", self.rules, 1))

    def __str__(self) -> str:
        return f"first_of({', '.join(f'({rule})' for rule in self.rules)})"


@dataclass(frozen=True, slots=True)
class KOf(Members):
    """A rule that fires where at least `k` members fire; a member with an undefined signal does not fire."""

    k: int
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", check_rules("k_of", self.rules, 1))
        _check_count("k of k_of", self.k, 1, len(self.rules))

    def fires(self, rounds: Rounds) -> Mask:
        votes = np.zeros(rounds.shape, dtype=np.int64)
        for rule in self.rules:
            votes = votes + rule.fires(rounds)
        return votes >= self.k

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        # Settled once k members fired, or once too few are left to reach k.
        votes = np.zeros(rounds.shape, dtype=np.int64)
        reads: list[Mapping[str, Mask]] = []
        for position, rule in enumerate(self.rules):
            left = len(self.rules) - position
            reads.append(rule.reads(rounds, asked & (votes < self.k) & (votes + left >= self.k)))
            votes = votes + rule.fires(rounds)
        return merge_reads(reads)

    def __str__(self) -> str:
        return f"k_of({self.k}, {', '.join(f'({rule})' for rule in self.rules)})"


@dataclass(frozen=True, slots=True)
class Patience(Rule):
    """A rule that fires once `rule` has fired in each of the last `n` rounds; undefined rounds count as not fired."""

    rule: Rule
    n: int = 2

    def __post_init__(self) -> None:
        check_rules("patience", (self.rule,), 1)
        _check_count("n of patience", self.n, 1, None)

    def fires(self, rounds: Rounds) -> Mask:
        inner = self.rule.fires(rounds)
        if self.n > inner.shape[-1]:
            return np.zeros(inner.shape, dtype=np.bool_)
        fires = inner.copy()
        for back in range(1, self.n):
            fires[..., back:] &= inner[..., :-back]
            fires[..., :back] = False
        return fires

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        # Signals are read even where the outcome is not needed now: later rounds look back at this one, and a signal cannot
        # be measured afterwards.
        return self.rule.reads(rounds, asked if self.n == 1 else rounds.seen)

    def __str__(self) -> str:
        return f"patience(({self.rule}), {self.n})"


@dataclass(frozen=True, slots=True)
class Times(Rule):
    """A rule that fires once `rule` has fired in `n` rounds, in a row or not."""

    rule: Rule
    n: int

    def __post_init__(self) -> None:
        check_rules("times", (self.rule,), 1)
        _check_count("n of times", self.n, 1, None)

    def fires(self, rounds: Rounds) -> Mask:
        return (np.cumsum(self.rule.fires(rounds), axis=-1) >= self.n) & rounds.seen

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        return self.rule.reads(rounds, asked if self.n == 1 else rounds.seen)  # counts earlier rounds, like `Patience`

    def __str__(self) -> str:
        return f"times(({self.rule}), {self.n})"


def thresholds(rule: Rule) -> tuple[Threshold, ...]:
    """Return the different thresholds of a rule, in the order of its text.

    >>> from suffice.policy.rules import tasr
    >>> [str(threshold) for threshold in thresholds(tasr())]
    ['answer_stable >= 1', 'p_correct > 0.25']
    """
    if isinstance(rule, Threshold):
        return (rule,)
    members = [member for inner in inner_rules(rule).values() for member in inner]
    return tuple(dict.fromkeys(threshold for member in members for threshold in thresholds(member)))


def find_threshold(rule: Rule, signal: str) -> Threshold:
    """Return the only threshold of a rule on `signal`.

    Raises:
        RuleSyntaxError: The rule has no threshold on the signal, or more than one.
    """
    matches = [threshold for threshold in thresholds(rule) if threshold.name == signal]
    if len(matches) != 1:
        have = ", ".join(map(str, thresholds(rule))) or "none"
        raise RuleSyntaxError(f"{rule!s} has {len(matches)} thresholds on {signal!r}, one is needed; it has: {have}")
    return matches[0]


def with_threshold(rule: Rule, threshold: Threshold, value: float) -> Rule:
    """Return the rule with `value` as the number of `threshold`, wherever the threshold occurs.

    >>> from suffice.policy.rules import tasr
    >>> print(with_threshold(tasr(), find_threshold(tasr(), "p_correct"), 0.5))
    (answer_stable >= 1) & (p_correct > 0.5)

    Args:
        rule: Any rule.
        threshold: One of `thresholds(rule)`.
        value: The new number, finite.

    Raises:
        RuleSyntaxError: The value is not finite.
    """
    return substitute(rule, threshold, replace(threshold, value=value))


def substitute(rule: Rule, threshold: Threshold, other: Rule) -> Rule:
    """Return `rule` with the rule `other` in place of `threshold`, wherever the threshold occurs."""
    if rule == threshold:
        return other
    inner = inner_rules(rule)
    if not inner:
        return rule
    changes: dict[str, Any] = {}
    for name, members in inner.items():
        changed = tuple(substitute(member, threshold, other) for member in members)
        changes[name] = changed if isinstance(getattr(rule, name), tuple) else changed[0]
    rebuild: Any = replace  # a rule with fields is a dataclass
    rebuilt: Rule = rebuild(rule, **changes)
    return rebuilt
