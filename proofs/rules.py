"""Claims about rules, by induction over their trees.

Every operator is run with members that are *any rule whatsoever*: an unknown truth value for each round.  What holds of
each operator if it holds of its members, and of the leaves, holds of every rule that is built from them, however deep.
Signals are any doubles, and the number of rounds is any.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from proofs.claims import Claim, demand
from proofs.solver import Refuted, refute, refute_generally
from proofs.symbols import Column, Scalar, double, paths
from proofs.terms import LENGTH, POSITION, UNPROVED, WITHIN, agreement, at, symbolic_rounds, term_of
from suffice.policy.rounds import Mask, Rounds
from suffice.policy.rules import AllOf, AnyOf, FirstOf, KOf, Never, Patience, Rule, Threshold, WeightedSum

__all__ = ["CLAIMS", "Case", "cases"]

MEMBERS, PATIENCE, TERMS = 8, 8, 3
"""The bounds: members of a rule, rounds of patience, terms of a weighted sum."""
INPUTS = 100_000
COMPARISONS = (">", ">=", "<", "<=")
BOUNDS = f"any values, rounds and depth; up to {MEMBERS} members, {TERMS} terms, patience {PATIENCE}"


@dataclass(frozen=True, slots=True)
class Anything(Rule):
    """Any rule: it fires wherever its column of unknown truth values says so."""

    name: str

    def fires(self, rounds: Rounds) -> Mask:
        return rounds[self.name]  # type: ignore[return-value]

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({self.name})

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        raise NotImplementedError


def anything(count: int) -> tuple[Anything, ...]:
    """Return that many rules of which nothing is known."""
    return tuple(Anything(f"rule_{k}") for k in range(count))


@dataclass(frozen=True)
class Case:
    """One way to build a rule of one kind.

    Attributes:
        label: What counterexamples call it.
        rule: The rule; its numbers may be symbolic.
        assumed: What its constructor makes sure of.
    """

    label: str
    rule: Rule
    assumed: tuple[z3.BoolRef, ...] = ()

    @property
    def members(self) -> tuple[Rule, ...]:
        """The rules inside."""
        return (self.rule.rule,) if isinstance(self.rule, Patience) else tuple(getattr(self.rule, "rules", ()))


def with_any(rule: Rule, **fields: Any) -> Rule:
    """Put symbolic numbers into a rule, past its constructor."""
    for name, value in fields.items():
        object.__setattr__(rule, name, value)
    return rule


def finite(*numbers: Scalar) -> tuple[z3.BoolRef, ...]:
    """Return that numbers are finite, as constructors demand of thresholds and weights."""
    return tuple(z3.Not(z3.Or(z3.fpIsNaN(n.term), z3.fpIsInf(n.term))) for n in numbers)


def threshold(comparison: str, value: Scalar) -> Case:
    """Return the comparison of a signal with any number."""
    return Case(f"x {comparison} v", with_any(Threshold("x_0", comparison, 0.0), value=value), finite(value))


def weighted_sum(comparison: str, weights: list[Scalar], value: Scalar) -> Case:
    """Return the comparison of a weighted sum with any number, for any weights."""
    plain = WeightedSum(tuple((2.0, f"x_{k}") for k in range(len(weights))), comparison, 0.0)
    terms = tuple((weight, f"x_{k}") for k, weight in enumerate(weights))
    return Case(
        f"a sum of {len(weights)} {comparison} v", with_any(plain, terms=terms, value=value), finite(*weights, value)
    )


def leaves() -> Iterator[Case]:
    """Return every kind of rule without members."""
    yield Case("never", Never())
    for comparison in COMPARISONS:
        yield threshold(comparison, double("v"))
        for count in range(1, TERMS + 1):
            yield weighted_sum(comparison, [double("w") for _ in range(count)], double("v"))


def operators() -> Iterator[Case]:
    """Return every kind of rule that holds others."""
    for n in range(1, PATIENCE + 1):
        yield Case(f"patience {n}", Patience(anything(1)[0], n))
    for count in range(1, MEMBERS + 1):
        if count > 1:
            yield Case(f"all of {count}", AllOf(anything(count)))
            yield Case(f"any of {count}", AnyOf(anything(count)))
        yield Case(f"first of {count}", FirstOf(anything(count)))
        for k in range(1, count + 1):
            yield Case(f"{k} of {count}", KOf(k, anything(count)))


def _kinds(kind: type = Rule) -> set[str]:
    """Return the names of all kinds of rules that a text can name; two classes stand behind a dataclass with slots."""
    ours = "__dataclass_fields__" in vars(kind) and kind.__module__.startswith("suffice.policy.rules.")
    own = {kind.__qualname__} if ours else set()
    return own.union(*map(_kinds, kind.__subclasses__()))


def cases() -> list[Case]:
    """Return every way to build a rule, within the bounds.

    Raises:
        Refuted: The package has a kind of rule that is not among them.
    """
    found = [*leaves(), *operators()]
    forgotten = _kinds() - {type(case.rule).__qualname__ for case in found} - {UNPROVED.__qualname__}
    if forgotten:
        raise Refuted(f"no proof looks at {', '.join(sorted(forgotten))}")
    return found


def changed(rounds: Rounds, into: Callable[[str, z3.ArithRef, z3.ExprRef], z3.ExprRef], n: z3.ArithRef) -> Rounds:
    """Return other rounds, `n` of them, made from the values of these by `into(name, position, value)`."""

    def column(name: str, given: Any) -> Any:
        return Column(lambda k: into(name, k, given.at(k)), n)

    found = {name: column(name, given) for name, given in rounds.columns.items()}
    return Rounds(found, rounds.index, column("seen", rounds.seen))


def fires(case: Case, rounds: Rounds) -> z3.BoolRef:
    """Return when a case fires at `POSITION`."""
    return term_of(case.rule, rounds, *case.assumed, *WITHIN)


def never_earlier(late: Case, early: Case, *assumed: z3.BoolRef, what: str) -> None:
    """See that `early` fires wherever `late` does, in any rounds: its first stop is then no later.

    Raises:
        Refuted: It does not, somewhere.
    """
    rounds = symbolic_rounds(late.rule.signals | early.rule.signals)
    assumed = (*late.assumed, *early.assumed, *WITHIN, *assumed)
    # Both in one run: what they branch on is then the same.
    for path in paths(lambda: (late.rule.fires(rounds), early.rule.fires(rounds)), *assumed):
        demand(path.error is None, f"{what}: {path.error!r}")
        one, other = map(at, path.result)
        refute_generally(z3.Implies(one, other), path.condition, *assumed, what=what)


def total() -> None:
    """See that no kind of rule raises or runs on, on any path."""
    for case in cases():
        fires(case, symbolic_rounds(case.rule.signals))


def causal() -> None:
    """See that what later rounds hold, and how many there are, changes nothing at round r."""
    other = z3.Int("T_other")

    def later(name: str, k: z3.ArithRef, value: z3.ExprRef) -> z3.ExprRef:
        return z3.If(k <= POSITION, value, z3.Function(f"{name}_other", z3.IntSort(), value.sort())(k))

    for case in cases():
        here = symbolic_rounds(case.rule.signals)
        there = changed(here, later, other)
        again = term_of(case.rule, there, *case.assumed, POSITION >= 0, other > POSITION)
        refute_generally(
            fires(case, here) == again, *case.assumed, *WITHIN, other > POSITION, what=f"{case.label} looks ahead"
        )


def undefined() -> None:
    """See that a leaf that reads something undefined does not fire, nor a rule none of whose members does."""
    for case in cases():
        rounds = symbolic_rounds(case.rule.signals)
        if case.members:
            nothing = [z3.Not(member.fires(rounds).at(POSITION)) for member in case.members]  # type: ignore[attr-defined]
            refute(z3.Not(fires(case, rounds)), *nothing, *WITHIN, what=f"{case.label} fires although no member does")
            continue
        weights = dict.fromkeys(rounds.columns, z3.BoolVal(True)) | {
            name: z3.Not(z3.fpIsZero(weight.term)) for weight, name in getattr(case.rule, "terms", ())
        }
        missing = [
            z3.And(weights[name], z3.fpIsNaN(column.at(POSITION)))  # type: ignore[attr-defined]
            for name, column in rounds.columns.items()
        ]
        held = z3.Not(fires(case, rounds))
        refute(held, z3.Or(*missing), *case.assumed, *WITHIN, what=f"{case.label} fires on something undefined")


def and_not_earlier() -> None:
    """See that ``&`` stops no earlier than any of its members."""
    for count in range(2, MEMBERS + 1):
        for member in anything(count):
            never_earlier(Case("", AllOf(anything(count))), Case("", member), what=f"& of {count} stops earlier")


def or_not_later() -> None:
    """See that ``|`` and `first_of` stop no later than any of their members."""
    for kind, count in itertools.product((AnyOf, FirstOf), range(2, MEMBERS + 1)):
        for member in anything(count):
            never_earlier(Case("", member), Case("", kind(anything(count))), what=f"| of {count} stops later")


def threshold_not_earlier() -> None:
    """See that a harder comparison never stops earlier: alone, and by `members_count_for` anywhere in a rule."""
    low, high = double("low"), double("high")
    weights = [double("w") for _ in range(TERMS)]
    for comparison in COMPARISONS:
        easy, hard = (low, high) if comparison[0] == ">" else (high, low)
        pairs = [(threshold(comparison, hard), threshold(comparison, easy))]
        pairs += [
            (weighted_sum(comparison, weights[:count], hard), weighted_sum(comparison, weights[:count], easy))
            for count in range(1, TERMS + 1)
        ]
        for late, early in pairs:
            never_earlier(late, early, z3.fpLEQ(low.term, high.term), what=f"a harder {late.label} stops earlier")
    members_count_for()


def members_count_for() -> None:
    """See that a member that fires at more rounds never takes a stop away from the rule that holds it."""

    def more(name: str, k: z3.ArithRef, value: z3.ExprRef) -> z3.ExprRef:
        return z3.Or(value, z3.Function(f"{name}_more", z3.IntSort(), z3.BoolSort())(k)) if name != "seen" else value

    for case in operators():
        fewer = symbolic_rounds(case.rule.signals)
        claim = z3.Implies(fires(case, fewer), fires(case, changed(fewer, more, LENGTH)))
        refute_generally(claim, *WITHIN, what=f"{case.label} stops later")


def patience_counts_rounds() -> None:
    """See that `patience(rule, n)` fires exactly where the rule fired in each of the last n rounds, this one included."""
    for n in range(1, PATIENCE + 1):
        member = anything(1)[0]
        case = Case(f"patience {n}", Patience(member, n))
        rounds = symbolic_rounds(case.rule.signals)
        fired: Any = member.fires(rounds)
        last = z3.And(n - 1 <= POSITION, *(fired.at(POSITION - back) for back in range(n)))
        refute(fires(case, rounds) == last, *WITHIN, what=f"patience {n} is not {n} rounds in a row")


def k_of_counts_members() -> None:
    """See that `k_of(k, ...)` fires exactly where at least k of its members do."""
    for count in range(1, MEMBERS + 1):
        for k in range(1, count + 1):
            case = Case(f"{k} of {count}", KOf(k, anything(count)))
            rounds = symbolic_rounds(case.rule.signals)
            votes = [z3.If(member.fires(rounds).at(POSITION), 1, 0) for member in case.members]  # type: ignore[attr-defined]
            refute(fires(case, rounds) == (z3.Sum(votes) >= k), *WITHIN, what=f"{k} of {count} is not {k} votes")


def patience_not_earlier() -> None:
    """See that one more round of patience never stops earlier."""
    member = anything(1)[0]
    for n in range(1, PATIENCE):
        longer, shorter = Case("", Patience(member, n + 1)), Case("", Patience(member, n))
        never_earlier(longer, shorter, what=f"patience {n + 1} stops before patience {n}")


def k_not_earlier() -> None:
    """See that one more vote never stops earlier."""
    for count in range(2, MEMBERS + 1):
        for k in range(1, count):
            more, less = Case("", KOf(k + 1, anything(count))), Case("", KOf(k, anything(count)))
            never_earlier(more, less, what=f"{k + 1} of {count} stops before {k} of {count}")


def first_of_is_or() -> None:
    """See that `first_of` fires exactly where ``|`` does."""
    for count in range(2, MEMBERS + 1):
        cascade, either = Case("", FirstOf(anything(count))), Case("", AnyOf(anything(count)))
        rounds = symbolic_rounds(cascade.rule.signals)
        refute(fires(cascade, rounds) == fires(either, rounds), *WITHIN, what=f"first_of {count} is not |")


def terms_agree() -> None:
    """Compare the terms of the proofs with what the rules say of random numbers."""
    demand(agreement() >= INPUTS, "too few inputs")


CLAIMS = (
    Claim("the proof terms say what `Rule.fires` says", "tested", f"{INPUTS:,} random trajectories of any doubles, every named rule", terms_agree),
    Claim("no rule raises or runs on, whatever the values", "up to a bound", BOUNDS, total),
    Claim("a rule at round r reads rounds up to r only", "up to a bound", BOUNDS, causal),
    Claim("what is undefined never stops", "up to a bound", BOUNDS, undefined),
    Claim("`a & b` never stops earlier than `a` or `b`", "up to a bound", BOUNDS, and_not_earlier),
    Claim("`a | b` never stops later than `a` or `b`", "up to a bound", BOUNDS, or_not_later),
    Claim("`first_of(a, b)` fires exactly where `a | b` does", "up to a bound", BOUNDS, first_of_is_or),
    Claim("a harder threshold, anywhere in a rule, never stops earlier", "up to a bound", BOUNDS, threshold_not_earlier),
    Claim("`patience(rule, n)` fires exactly where the rule fired in each of the last n rounds", "up to a bound", BOUNDS, patience_counts_rounds),
    Claim("`k_of(k, ...)` fires exactly where at least k of its members do", "up to a bound", BOUNDS, k_of_counts_members),
    Claim("more patience never stops earlier", "up to a bound", BOUNDS, patience_not_earlier),
    Claim("a higher k of `k_of` never stops earlier", "up to a bound", BOUNDS, k_not_earlier),
)  # fmt: skip
"""The claims about rules."""
