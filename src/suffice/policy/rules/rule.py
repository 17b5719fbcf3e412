"""The base class of rules, and the combinations of rules that ``&`` and ``|`` build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NoReturn

import numpy as np

from suffice.errors import RuleSyntaxError
from suffice.policy.rounds import Mask, Rounds


class Rule(ABC):
    """A predicate over rounds; combine rules with ``&`` and ``|``.

    To write your own rule, define a frozen dataclass with the method `fires`, and with `signals` if it reads columns
    itself. Rules in its fields are found automatically.  The text of a rule, ``str(rule)``, specifies the rule completely:
    ``parse_rule(str(rule)) == rule``. By default the text is a call of the name that `register_rule` gave to the class,
    with the fields as arguments.
    """

    __slots__ = ()

    @abstractmethod
    def fires(self, rounds: Rounds) -> Mask:
        """Return a mask of the rounds at which the rule fires, shape ``(..., n_rounds)``.

        A rule is causal: whether it fires at a round depends only on this round and the rounds before it.  A comparison
        with an undefined signal (NaN) is False, so missing evidence never stops the loop.
        """

    @property
    def signals(self) -> frozenset[str]:
        """The signals that the rule may read; by default the signals of the rules in its fields."""
        return frozenset().union(*(rule.signals for rules in inner_rules(self).values() for rule in rules))

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        """Return for each signal a mask of the rounds at which a lazy evaluation reads it, shape ``(..., n_rounds)``.

        Args:
            rounds: The rounds.
            asked: Mask of the rounds at which it matters whether this rule fires, shape ``(..., n_rounds)``.

        Members are evaluated in order, and a member is skipped where an earlier member has determined the outcome. So
        `reads` determines the number and the cost of calls of judges and gates.  By default every signal is read
        at every round, which is correct for any rule, but expensive for a rule that could be lazy.
        """
        del asked
        return dict.fromkeys(sorted(self.signals), rounds.seen)

    def held(self, rounds: Rounds) -> str:
        """Return the text of the member that fires at the last of `rounds`, the rounds of one question.

        Only ``|`` and `FirstOf` name a member; any other rule returns its own text.
        """
        del rounds
        return str(self)

    def __str__(self) -> str:
        return spelled_call(self)

    def __and__(self, other: Rule) -> Rule:
        return AllOf((self, other)) if isinstance(other, Rule) else NotImplemented

    def __or__(self, other: Rule) -> Rule:
        return AnyOf((self, other)) if isinstance(other, Rule) else NotImplemented

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a Rule has no truth value: combine rules with & and |, not `and` or `or`; "
            "write (a > 1) & (a < 2), not 1 < a < 2"
        )

    def __invert__(self) -> NoReturn:
        raise TypeError(
            "a Rule cannot be negated: the negation of an undefined signal would fire. Write the opposite comparison."
        )


CALLED: dict[type, str] = {}
"""The names of registered classes of rules and selectors in the text of rules."""


def spelled_call(value: Any) -> str:
    """Return the text of a dataclass as a call of its registered name, with its fields as arguments.

    Rules among the fields are put in parentheses.
    """
    arguments = [getattr(value, item.name) for item in fields(value)] if is_dataclass(value) else []
    texts = (f"({item})" if isinstance(item, Rule) else str(item) for item in arguments)
    return f"{CALLED.get(type(value), type(value).__name__)}({', '.join(texts)})"


def inner_rules(rule: Rule) -> dict[str, tuple[Rule, ...]]:
    """Return the rules inside a rule, by the field that contains them."""
    values: dict[str, Any] = {}
    if is_dataclass(rule):
        values = {item.name: getattr(rule, item.name) for item in fields(rule)}
    listed = {name: value if isinstance(value, tuple) else (value,) for name, value in values.items()}
    return {name: inner for name, inner in listed.items() if inner and all(isinstance(item, Rule) for item in inner)}


def merge_reads(reads: list[Mapping[str, Mask]]) -> dict[str, Mask]:
    """Return the union of several results of `Rule.reads`; its keys are in the order in which the last round reads them."""
    merged: dict[str, Mask] = {}
    for mapping in reads:
        for name, mask in mapping.items():
            earlier = merged.get(name)
            if earlier is not None:
                if not earlier[..., -1:].any():
                    del merged[name]  # all earlier members were skipped, so this member is the first that reads it
                mask = np.logical_or(earlier, mask)  # noqa: PLW2901
            merged[name] = mask
    return merged


def check_rules(owner: str, rules: Any, least: int) -> tuple[Rule, ...]:
    """Return `rules` as a tuple; raise if one is not a rule, or if there are fewer than `least`."""
    members = tuple(rules)
    if len(members) < least or not all(isinstance(member, Rule) for member in members):
        raise RuleSyntaxError(f"{owner} takes at least {least} rules, not {members!r}")
    return members


class Members(Rule):
    """Base class of the rules that contain several other rules, their members."""

    __slots__ = ()
    rules: tuple[Rule, ...]

    @property
    def signals(self) -> frozenset[str]:
        return frozenset().union(*(rule.signals for rule in self.rules))


def _reads_in_order(members: tuple[Rule, ...], rounds: Rounds, asked: Mask, *, settled_by: bool) -> Mapping[str, Mask]:
    """Return the rounds at which each signal is read when the members are evaluated in order; see `Rule.reads`.

    At rounds where a member evaluates to `settled_by`, later members read nothing.
    """
    reads: list[Mapping[str, Mask]] = []
    for member in members:
        reads.append(member.reads(rounds, asked))
        fires = member.fires(rounds)
        asked = asked & (~fires if settled_by else fires)
    return merge_reads(reads)


def _flat_members(kind: type[Members], members: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(inner for member in members for inner in (member.rules if type(member) is kind else (member,)))


@dataclass(frozen=True, slots=True)
class AllOf(Members):
    """A rule that fires where all members fire; built by ``&``."""

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", _flat_members(AllOf, check_rules("AllOf", self.rules, 2)))

    def fires(self, rounds: Rounds) -> Mask:
        fires = self.rules[0].fires(rounds)
        for rule in self.rules[1:]:
            fires = fires & rule.fires(rounds)
        return fires

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        return _reads_in_order(self.rules, rounds, asked, settled_by=False)

    def __str__(self) -> str:
        return " & ".join(f"({rule})" for rule in self.rules)


class Either(Members):
    """Base class of ``|`` and `FirstOf`, which fire at the same rounds."""

    __slots__ = ()

    def fires(self, rounds: Rounds) -> Mask:
        fires = self.rules[0].fires(rounds)
        for rule in self.rules[1:]:
            fires = fires | rule.fires(rounds)
        return fires

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        return _reads_in_order(self.rules, rounds, asked, settled_by=True)

    def held(self, rounds: Rounds) -> str:
        for rule in self.rules:
            if rule.fires(rounds)[-1]:
                return rule.held(rounds)
        return str(self)


@dataclass(frozen=True, slots=True)
class AnyOf(Either):
    """A rule that fires where any member fires; built by ``|``."""

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", _flat_members(AnyOf, check_rules("AnyOf", self.rules, 2)))

    def __str__(self) -> str:
        return " | ".join(f"({rule})" for rule in self.rules)
