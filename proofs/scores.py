"""Claims about numbers: the information score, the distance between drafts, and what a signal may show."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import z3
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from proofs.claims import Claim, demand
from proofs.sessions import EXAMPLES, NUMBERS, run_examples
from proofs.solver import DOUBLE, fresh, refute, refute_generally
from proofs.symbols import Scalar, paths
from suffice.errors import DataError
from suffice.policy import metrics
from suffice.policy.signals import Signal, definitions, semantic

__all__ = ["CLAIMS"]

SLACK = z3.Q(1, 10**8)
"""More than the weights' sum may be off 1."""


def _term(result: Any, sort: z3.SortRef) -> z3.ExprRef:
    """Return what the code returned, a symbol or a number, as a term."""
    if isinstance(result, Scalar):
        return result.term
    return z3.FPVal(result, DOUBLE) if sort == DOUBLE else z3.RealVal(result)


def _within(value: z3.ExprRef, low: float, high: float) -> z3.BoolRef:
    if not z3.is_fp(value):
        return z3.And(value >= low, value <= high)
    inside = z3.And(z3.fpLEQ(z3.FPVal(low, DOUBLE), value), z3.fpLEQ(value, z3.FPVal(high, DOUBLE)))
    return z3.Or(inside, z3.fpIsNaN(value))


def score_in_range() -> None:
    """See that `information_score` is in [0, 1]: for any doubles, and without its guard in the reals."""
    names = list(metrics.EQUAL_WEIGHTS)
    for sort in (DOUBLE, z3.RealSort()):
        marks = {name: Scalar(fresh(sort, "mark")) for name in names}
        weights = {name: Scalar(fresh(sort, "weight")) for name in names}
        mean = z3.Sum([weights[name].term * marks[name].term for name in names]) if sort != DOUBLE else None
        scored = 0
        for path in paths(lambda m=marks, w=weights: metrics.information_score(m, w)):  # type: ignore[misc]
            if path.error is not None:
                demand(isinstance(path.error, DataError), f"information_score raises {path.error!r}")
                continue
            for weight in weights.values():
                refute_generally((weight >= 0).term, path.condition, what="a negative or undefined weight is taken")
            if isinstance(path.result, float) and math.isnan(path.result):
                continue
            score = _term(path.result, sort)
            scored += 1
            refute_generally(_within(score, 0, 1), path.condition, what="a score outside [0, 1]")
            if mean is not None:
                total = z3.Sum([weight.term for weight in weights.values()])
                near = z3.And(total - 1 < SLACK, 1 - total < SLACK)
                refute(near, path.condition, what="weights off the simplex are taken")
                refute(score == mean, path.condition, total == 1, what="on the simplex the score is not the mean")
        demand(scored > 0, "information_score never returns a score")


def distance_in_range() -> None:
    """See that the distance is in [0, 2]: for any doubles, and without its guard in the reals of any dimension."""
    dot, norms = Scalar(fresh(DOUBLE, "dot")), Scalar(fresh(DOUBLE, "norms"))
    for path in paths(lambda: semantic._bounded_distance(dot, norms), (norms > 0).term):
        demand(path.error is None, f"the distance raises {path.error!r}")
        distance = _term(path.result, DOUBLE)
        refute_generally(_within(distance, 0, 2), path.condition, what="a distance outside [0, 2]")
    # Cauchy and Schwarz, dimension by dimension: s = a.b, p = a.a, q = b.b so far, u and v the next components.
    s, p, q, u, v, n = z3.Reals("s p q u v n")
    so_far = z3.And(s * s <= p * q, p >= 0, q >= 0)
    step = (s + u * v) * (s + u * v) <= (p + u * u) * (q + v * v)
    refute(z3.substitute(so_far, (s, z3.RealVal(0)), (p, z3.RealVal(0)), (q, z3.RealVal(0))), what="no dimension")
    refute(step, so_far, what="one dimension more")
    known = (s * s <= n * n, n > 0)
    for path in paths(lambda: semantic._bounded_distance(Scalar(s), Scalar(n)), *known):
        distance = _term(path.result, z3.RealSort())
        exact = z3.And(distance == 1 - s / n, _within(distance, 0, 2))
        refute(exact, path.condition, *known, what="in the reals the guard moves the distance")


def distance_of_embeddings() -> None:
    """See that any two embeddings have a distance in [0, 2], 1 where one is zero, or NaN where one is undefined."""
    embeddings = arrays(np.float64, 3, elements=NUMBERS)

    @EXAMPLES
    @given(embeddings, embeddings, st.floats(0.5, 2))
    def any_embeddings(a: Any, b: Any, scale: float) -> None:
        for other in (b, np.zeros(3), a, -scale * np.clip(a, -1e300, 1e300)):
            distance = semantic.semantic_distance(a, other)
            if not (np.isfinite(a).all() and np.isfinite(other).all()):
                assert math.isnan(distance)
            else:
                assert 0 <= distance <= 2
                assert distance == 1 or (a.any() and other.any())

    run_examples(any_embeddings)


_MATH = SimpleNamespace(
    inf=math.inf,
    nan=math.nan,
    isnan=lambda number: number != number,  # noqa: PLR0124 - what makes NaN one
    isfinite=lambda number: -math.inf < number < math.inf,
)
"""What `Signal.clean` takes from `math`, for symbols."""


def signals_in_range() -> None:
    """See that what a signal shows is in its range or undefined, on every path of `Signal.clean`."""
    value, low, high = (Scalar(fresh(DOUBLE, name)) for name in ("value", "low", "high"))
    ordered, undefined = (low <= high).term, (value != value).term  # noqa: PLR0124

    def shown(*, clip: bool) -> Any:
        with mock.patch.multiple(definitions, math=_MATH, as_number=lambda number: number):
            return Signal(name="any", compute=None, range=(low, high), unit="", clip=clip, doc="").clean(value)

    for clip in (False, True):
        for path in paths(lambda clip=clip: shown(clip=clip), ordered):  # type: ignore[misc]
            demand(path.error is None, f"Signal.clean raises {path.error!r}")
            number = _term(path.result, DOUBLE)
            inside = z3.And(z3.fpLEQ(low.term, number), z3.fpLEQ(number, high.term))
            allowed = z3.And(z3.Not(undefined), inside) if clip else z3.And(inside, z3.Not(z3.fpIsInf(number)))
            missing = undefined if clip else z3.BoolVal(True)
            claim = z3.Or(allowed, z3.And(z3.fpIsNaN(number), missing))
            refute(claim, path.condition, ordered, what=f"a number outside its range, clip={clip}")


CLAIMS = (
    Claim(
        "the information score lies in [0, 1] or is undefined; weights off the simplex are refused",
        "proved for all",
        "any marks and weights of the four metrics, as doubles and as reals",
        score_in_range,
    ),
    Claim(
        "a distance lies in [0, 2] or is undefined",
        "proved for all",
        "any doubles in its last step; as reals, any dimension, by induction",
        distance_in_range,
    ),
    Claim(
        "embeddings have a distance in [0, 2]: 1 for a zero vector, NaN for an undefined one",
        "tested",
        f"{EXAMPLES.max_examples} random pairs of embeddings of any doubles",
        distance_of_embeddings,
    ),
    Claim(
        "what a signal shows is within its range, or undefined",
        "proved for all",
        "any double, any range; every path of `Signal.clean`",
        signals_in_range,
    ),
)
"""The claims about scores and signals."""
