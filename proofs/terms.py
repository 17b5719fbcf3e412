"""Proof terms out of rule objects, and numbers out of proof terms.

`term_of` runs the rule's own `fires` on symbolic rounds.  `evaluator` reads the term that comes out, node by node, with
numpy's doubles; `agreement` compares that with what `fires` says of the same numbers.  So the one thing that is trusted
without a check is that z3 means by IEEE 754 what the standard says.
"""

from __future__ import annotations

import functools
import itertools
import random
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import z3

from proofs.solver import DOUBLE, Refuted
from proofs.symbols import Column, paths
from suffice.policy.rounds import Rounds
from suffice.policy.rules import (
    NAMED_RULES,
    AllOf,
    AnyOf,
    FirstOf,
    KOf,
    Never,
    Patience,
    Rule,
    Threshold,
    WeightedSum,
)
from suffice.policy.rules.algebra import Times

__all__ = [
    "LENGTH",
    "POSITION",
    "UNPROVED",
    "WITHIN",
    "agreement",
    "at",
    "evaluator",
    "random_rule",
    "random_values",
    "symbolic_rounds",
    "term_of",
]

Array = npt.NDArray[Any]
UNPROVED = Times
"""The kind of rule without a term: it counts over any number of rounds, where a term looks at a few.  Tests compare it with a plain loop."""

NAMES = ("a", "b", "c", "answer_stable", "p_correct")
NUMBERS = (-1.5, -1.0, 0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 1e-9, 1 / 3, 1e20)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308, 5e-324, *NUMBERS)
DEPTH = 4

POSITION, LENGTH = z3.Int("r"), z3.Int("T")
"""The round that a term speaks of, and how many there are: any number."""
WITHIN = (POSITION >= 0, POSITION < LENGTH)


def symbolic_rounds(names: Iterable[str]) -> Rounds:
    """Return any number of rounds of any values: each column an unknown function of the round.

    Args:
        names: The signals; one that begins with `rule` holds truth values, as `proofs.rules.Anything` reads them.
    """
    columns: dict[str, Any] = {
        name: Column(z3.Function(name, z3.IntSort(), z3.BoolSort() if name.startswith("rule") else DOUBLE), LENGTH)
        for name in names
    }
    seen: Any = Column(z3.Function("seen", z3.IntSort(), z3.BoolSort()), LENGTH)
    return Rounds(columns, np.arange(0), seen)


def term_of(rule: Rule, rounds: Rounds, *assumed: z3.BoolRef) -> z3.BoolRef:
    """Return when `rule` fires at `POSITION`: what `Rule.fires` computes on symbolic rounds.

    Raises:
        Refuted: It raises, or does not end.
    """
    cases = []
    for path in paths(lambda: rule.fires(rounds), *assumed):
        if path.error is not None:
            raise Refuted(f"{type(rule).__name__} raises {path.error!r}") from path.error
        cases.append(z3.And(path.condition, at(path.result)))
    return z3.Or(*cases)


def at(fires: Any) -> z3.BoolRef:
    """Return what a rule's answer says at `POSITION`.

    Raises:
        Refuted: The answer is no column of truth values.
    """
    term = fires.at(POSITION) if isinstance(fires, Column) else None
    if term is None or not z3.is_bool(term):
        raise Refuted(f"a rule answers {fires!r}, not a truth value for each round")
    return term


def _fold(combine: np.ufunc) -> Callable[..., Any]:
    return lambda *given: functools.reduce(combine, given)


def _rounded(combine: np.ufunc) -> Callable[..., Any]:
    return lambda _rounding, a, b: combine(a, b)


_MEANING: dict[int, Callable[..., Any]] = {
    z3.Z3_OP_AND: _fold(np.logical_and),
    z3.Z3_OP_OR: _fold(np.logical_or),
    z3.Z3_OP_NOT: np.logical_not,
    z3.Z3_OP_ITE: np.where,
    z3.Z3_OP_EQ: np.equal,
    z3.Z3_OP_ADD: _fold(np.add),
    z3.Z3_OP_SUB: _fold(np.subtract),
    z3.Z3_OP_MUL: _fold(np.multiply),
    z3.Z3_OP_GT: np.greater,
    z3.Z3_OP_GE: np.greater_equal,
    z3.Z3_OP_LT: np.less,
    z3.Z3_OP_LE: np.less_equal,
    z3.Z3_OP_FPA_GT: np.greater,
    z3.Z3_OP_FPA_GE: np.greater_equal,
    z3.Z3_OP_FPA_LT: np.less,
    z3.Z3_OP_FPA_LE: np.less_equal,
    z3.Z3_OP_FPA_EQ: np.equal,
    z3.Z3_OP_FPA_ADD: _rounded(np.add),
    z3.Z3_OP_FPA_SUB: _rounded(np.subtract),
    z3.Z3_OP_FPA_MUL: _rounded(np.multiply),
    z3.Z3_OP_FPA_RM_NEAREST_TIES_TO_EVEN: lambda: None,  # how numpy rounds
    z3.Z3_OP_TRUE: lambda: True,
    z3.Z3_OP_FALSE: lambda: False,
}


def evaluator(term: z3.ExprRef) -> Callable[[Mapping[str, Array]], Array]:
    """Return a function from columns to the value of a term at every round, shape ``(n_questions, n_rounds)``.

    The columns go by the names of the term's functions, and have that shape, too.  Each node is read from z3 once, here.

    Args:
        term: What `term_of` gave for `POSITION` and any `LENGTH`.

    Raises:
        Refuted: The term holds something that has no value here.
    """
    position, length, root = POSITION.get_id(), LENGTH.get_id(), term.get_id()
    steps: dict[int, tuple[Any, list[int]]] = {}  # each node after those that it is made of

    def visit(node: z3.ExprRef) -> int:
        key = int(node.get_id())
        if key not in (position, length) and key not in steps:
            inner, kind = [visit(child) for child in node.children()], node.decl().kind()
            if kind == z3.Z3_OP_UNINTERPRETED and inner:
                steps[key] = node.decl().name(), inner
            else:
                steps[key] = _MEANING[kind] if kind in _MEANING else _constant(node), inner
        return key

    def value(values: Mapping[str, Array]) -> Array:
        shape = next(iter(values.values())).shape
        known: dict[int, Any] = {position: np.broadcast_to(np.arange(shape[1]), shape), length: shape[1]}
        with np.errstate(all="ignore"):
            for key, (step, places) in steps.items():
                inner = [known[place] for place in places]
                if isinstance(step, str):
                    # Positions out of range are asked for in branches that are not taken only.
                    read = np.clip(np.broadcast_to(inner[0], shape), 0, shape[1] - 1)
                    known[key] = np.take_along_axis(values[step], read, axis=1)
                else:
                    known[key] = step(*inner) if callable(step) else step
        return np.broadcast_to(known[root], shape)

    visit(term)
    return value


def _constant(node: z3.ExprRef) -> Any:
    if z3.is_int_value(node):
        return node.as_long()
    if z3.is_fp_value(node):
        bits = z3.simplify(z3.fpToIEEEBV(node)).as_long()
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    raise Refuted(f"no value for {node!s} in a proof term")


def random_rule(draw: random.Random, depth: int = DEPTH) -> Rule:
    """Return a rule of any kind, at most `depth` deep."""
    kinds = [Threshold, WeightedSum, Never] if depth == 0 else [Threshold, AllOf, AnyOf, FirstOf, KOf, Patience]
    kind = draw.choice(kinds)
    comparison, number = draw.choice((">", ">=", "<", "<=")), draw.choice(NUMBERS)
    if kind is Threshold:
        return Threshold(draw.choice(NAMES), comparison, number)
    if kind is WeightedSum:
        terms = tuple((draw.choice(NUMBERS), draw.choice(NAMES)) for _ in range(draw.randint(2, 3)))
        return WeightedSum(terms, comparison, number)
    if kind is Never:
        return Never()
    if kind is Patience:
        return Patience(random_rule(draw, depth - 1), draw.randint(1, 4))
    members = tuple(random_rule(draw, depth - 1) for _ in range(draw.randint(2, 3)))
    return KOf(draw.randint(1, len(members)), members) if kind is KOf else kind(members)


def random_values(rng: np.random.Generator, shape: tuple[int, int], names: Iterable[str]) -> dict[str, Array]:
    """Return columns of doubles of every kind: NaN, infinities, zeros of both signs, huge, tiny, ties with thresholds."""
    values = {}
    for name in names:
        special = rng.choice(np.asarray(SPECIAL), size=shape)
        values[name] = np.where(rng.random(shape) < 0.6, special, rng.normal(size=shape))
    return values


def agreement(*, n_rules: int = 200, n_inputs: int = 500, seed: int = 0) -> int:
    """Compare terms with `Rule.fires` on random trajectories; return on how many.

    Every named rule takes part that has a term, and random trees of all kinds.  Trajectories have 1 to 8 rounds.

    Raises:
        Refuted: They differ.
    """
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    rules = [entry.build(*[2.0] * entry.arity[0]) for entry in NAMED_RULES.values()]
    rules = [rule for rule in rules if not isinstance(rule, UNPROVED)]
    rules += [random_rule(draw) for _ in range(n_rules - len(rules))]
    for rule, n_rounds in itertools.product(rules, (1, 3, 5, 8)):
        names = sorted(rule.signals) or ["a"]
        if n_rounds == 1:
            of_term = evaluator(z3.simplify(term_of(rule, symbolic_rounds(names), *WITHIN)))
        values = random_values(rng, (n_inputs // 4, n_rounds), names)
        seen = np.arange(n_rounds) < rng.integers(1, n_rounds + 1, size=(n_inputs // 4, 1))
        fires = rule.fires(Rounds(values, np.arange(1, n_rounds + 1), seen))
        found = of_term({**values, "seen": seen})
        if not np.array_equal(found, fires):
            q, position = np.argwhere(found != fires)[0]
            numbers = {name: values[name][q].tolist() for name in names}
            raise Refuted(f"{rule!s} at position {position} of {numbers}: {fires[q, position]}, in the terms not so")
    return len(rules) * n_inputs
