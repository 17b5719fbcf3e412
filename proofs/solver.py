"""Questions to z3, and what it says when a claim does not hold."""

from __future__ import annotations

import itertools

import z3

__all__ = ["DOUBLE", "Refuted", "fresh", "generalised", "refute", "refute_generally", "solver"]

DOUBLE = z3.Float64()
EFFORT = 300_000_000
"""What z3 may spend on one question, in its own steps: about half a minute, and the same on every machine."""

_numbers = itertools.count()


class Refuted(Exception):  # noqa: N818 - what a failed proof says
    """A claim does not hold, or could not be decided; the message holds a counterexample where there is one."""


def fresh(sort: z3.SortRef, name: str = "any") -> z3.ExprRef:
    """Return a constant of which nothing is known."""
    return z3.Const(f"{name}!{next(_numbers)}", sort)


def solver() -> z3.Solver:
    """Return a solver that gives up after `EFFORT`."""
    made = z3.Solver()
    made.set("rlimit", EFFORT)
    return made


def refute(claim: z3.BoolRef, *assumed: z3.BoolRef, what: str) -> None:
    """Look for a case in which `claim` fails although all of `assumed` hold.

    Raises:
        Refuted: There is one, or z3 does not know.
    """
    asked = solver()
    asked.add(*assumed, z3.Not(claim))
    answer = asked.check()
    if answer == z3.sat:
        raise Refuted(f"{what}: {' '.join(str(asked.model()).split())[:400]}")
    if answer != z3.unsat:
        raise Refuted(f"{what}: not decided, {asked.reason_unknown()}")


def refute_generally(claim: z3.BoolRef, *assumed: z3.BoolRef, what: str) -> None:
    """Look for a case as `refute` does, with any functions in place of sums and products of doubles.

    What holds for all functions holds for addition and multiplication, and is far easier to decide.

    Raises:
        Refuted: There is one, or z3 does not know.
    """
    refute(generalised(claim), *map(generalised, assumed), what=what)


_ARITHMETIC = (z3.Z3_OP_FPA_ADD, z3.Z3_OP_FPA_SUB, z3.Z3_OP_FPA_MUL, z3.Z3_OP_FPA_DIV)


def generalised(term: z3.ExprRef) -> z3.ExprRef:
    """Return a term in which unknown functions stand for sums and products of doubles."""
    children = [generalised(child) for child in term.children()]
    if not children:
        return term
    if term.decl().kind() in _ARITHMETIC:
        function = z3.Function(f"any {term.decl().name()}", DOUBLE, DOUBLE, DOUBLE)
        return function(*children[1:])
    return term.decl()(*children)
