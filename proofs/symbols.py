"""Symbolic values that the code under proof computes with: `Rule.fires` itself runs on them, no translation of it.

A `Column` stands where numpy arrays stand: a function of the round, over any number of rounds.  A `Scalar` stands for
one number.  Both hold z3 terms.  Signals are IEEE 754 doubles, not reals, since those are what runs: NaN compares
false, infinities compare, sums round.  Where the code branches on a symbolic value, `paths` follows every way.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import z3

from proofs.solver import DOUBLE, Refuted, fresh, generalised, solver

__all__ = ["Column", "Path", "Scalar", "double", "paths"]

ROUNDING = z3.RNE()
LONGEST, MOST = 64, 512
"""Most branches on one path, and most paths: beyond them the code counts as one that does not end."""


@dataclass(frozen=True)
class Path:
    """One way through the code.

    Attributes:
        condition: When the code goes this way.
        result: What it returned; None if it raised.
        error: What it raised; None if it returned.
    """

    condition: z3.BoolRef
    result: Any
    error: Exception | None = None


class _Trail:
    """The branches of one run: those of a script first, then the first possible one each time."""

    def __init__(self, script: list[bool], assumed: tuple[z3.BoolRef, ...]) -> None:
        self.script = script
        self.taken: list[z3.BoolRef] = []
        self.others: list[list[bool]] = []
        self._solver = solver()
        self._solver.add(*map(generalised, assumed))

    def decide(self, condition: z3.BoolRef) -> bool:
        position = len(self.taken)
        if position >= LONGEST:
            raise Refuted(f"a path of more than {LONGEST} branches: the code may not end")
        general = generalised(condition)
        if position == len(self.script):
            choice = self._possible(general)
            if choice and self._possible(z3.Not(general)):
                self.others.append([*self.script, False])
            self.script.append(choice)
        choice = self.script[position]
        self.taken.append(condition if choice else z3.Not(condition))
        self._solver.add(general if choice else z3.Not(general))
        return choice

    def _possible(self, condition: z3.BoolRef) -> bool:
        self._solver.push()
        self._solver.add(condition)
        answer = self._solver.check()
        self._solver.pop()
        return answer != z3.unsat


_trails: list[_Trail] = []


def paths(run: Callable[[], Any], *assumed: z3.BoolRef) -> Iterator[Path]:
    """Run code once for each way in which its branches on symbolic values can go, where `assumed` holds.

    Raises:
        Refuted: There are too many ways, or one does not end.
    """
    scripts: list[list[bool]] = [[]]
    for count in itertools.count():
        if not scripts:
            return
        if count >= MOST:
            raise Refuted(f"more than {MOST} paths")
        trail = _Trail(scripts.pop(), assumed)
        _trails.append(trail)
        try:
            with mock.patch.object(np, "zeros", _zeros):
                result, error = run(), None
        except Refuted:
            raise
        except Exception as raised:  # noqa: BLE001 - what the code raises is part of the outcome
            result, error = None, raised
        finally:
            _trails.pop()
        scripts += trail.others
        yield Path(z3.And(*trail.taken), result, error)


def _lift(value: Any) -> z3.ExprRef:
    """Return a Python or numpy number as a term; a whole number is one, whatever it meets decides."""
    if isinstance(value, z3.ExprRef):
        return value
    if isinstance(value, bool | np.bool_):
        return z3.BoolVal(bool(value))
    if isinstance(value, int | np.integer):
        return z3.IntVal(int(value))
    return z3.FPVal(float(value), DOUBLE)


def _alike(a: z3.ExprRef, b: z3.ExprRef) -> tuple[z3.ExprRef, z3.ExprRef]:
    """Return both terms in the wider of their sorts: bool, whole number, real or double."""
    if z3.is_real(a) or z3.is_real(b):
        return _real(a), _real(b)
    if z3.is_fp(a) or z3.is_fp(b):
        return _double(a), _double(b)
    return _whole(a), _whole(b)


def _whole(term: z3.ExprRef) -> z3.ExprRef:
    return z3.If(term, z3.IntVal(1), z3.IntVal(0)) if z3.is_bool(term) else term


def _real(term: z3.ExprRef) -> z3.ExprRef:
    if z3.is_fp(term):  # a constant of the code
        return z3.simplify(z3.fpToReal(term))
    return term if z3.is_real(term) else z3.ToReal(_whole(term))


def _double(term: z3.ExprRef) -> z3.ExprRef:
    if z3.is_fp(term):
        return term
    if not z3.is_int_value(z3.simplify(_whole(term))):
        raise TypeError("a symbolic whole number meets a double")
    return z3.FPVal(z3.simplify(_whole(term)).as_long(), DOUBLE)


def _comparison(doubles: Callable[..., z3.BoolRef], others: Callable[..., z3.BoolRef]) -> Callable[..., z3.ExprRef]:
    def compare(a: z3.ExprRef, b: z3.ExprRef) -> z3.ExprRef:
        a, b = _alike(a, b)
        return doubles(a, b) if z3.is_fp(a) else others(a, b)

    return compare


def _arithmetic(doubles: Callable[..., z3.ExprRef], others: Callable[..., z3.ExprRef]) -> Callable[..., z3.ExprRef]:
    def combine(a: z3.ExprRef, b: z3.ExprRef) -> z3.ExprRef:
        a, b = _alike(a, b)
        return doubles(ROUNDING, a, b) if z3.is_fp(a) else others(a, b)

    return combine


_GREATER = _comparison(z3.fpGT, operator.gt)
_AT_LEAST = _comparison(z3.fpGEQ, operator.ge)
_LESS = _comparison(z3.fpLT, operator.lt)
_AT_MOST = _comparison(z3.fpLEQ, operator.le)
_EQUAL = _comparison(z3.fpEQ, operator.eq)
_UNEQUAL = _comparison(lambda a, b: z3.Not(z3.fpEQ(a, b)), operator.ne)
_PLUS = _arithmetic(z3.fpAdd, operator.add)
_MINUS = _arithmetic(z3.fpSub, operator.sub)
_TIMES = _arithmetic(z3.fpMul, operator.mul)
_OVER = _arithmetic(z3.fpDiv, operator.truediv)


def _swapped(combine: Callable[..., z3.ExprRef]) -> Callable[..., z3.ExprRef]:
    return lambda a, b: combine(b, a)


class _Operand:
    """The operators that scalars and columns share."""

    __array_ufunc__ = None  # so that numpy leaves its operators to this class
    __hash__ = None  # type: ignore[assignment]

    def _with(self, other: Any, combine: Callable[..., z3.ExprRef]) -> Any:
        raise NotImplementedError

    def __gt__(self, other: Any) -> Any:
        return self._with(other, _GREATER)

    def __ge__(self, other: Any) -> Any:
        return self._with(other, _AT_LEAST)

    def __lt__(self, other: Any) -> Any:
        return self._with(other, _LESS)

    def __le__(self, other: Any) -> Any:
        return self._with(other, _AT_MOST)

    def __eq__(self, other: object) -> Any:
        return self._with(other, _EQUAL)

    def __ne__(self, other: object) -> Any:
        return self._with(other, _UNEQUAL)

    def __add__(self, other: Any) -> Any:
        return self._with(other, _PLUS)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, _swapped(_PLUS))

    def __sub__(self, other: Any) -> Any:
        return self._with(other, _MINUS)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, _swapped(_MINUS))

    def __mul__(self, other: Any) -> Any:
        return self._with(other, _TIMES)

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, _swapped(_TIMES))

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, _OVER)

    def __and__(self, other: Any) -> Any:
        return self._with(other, z3.And)

    def __or__(self, other: Any) -> Any:
        return self._with(other, z3.Or)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Any:
        return self._with(True, lambda a, _: z3.Not(a))


class Scalar(_Operand):
    """One symbolic value.

    Args:
        term: The value.
    """

    def __init__(self, term: z3.ExprRef) -> None:
        self.term = term

    def _with(self, other: Any, combine: Callable[..., z3.ExprRef]) -> Any:
        if isinstance(other, Column):
            return NotImplemented
        return Scalar(combine(self.term, other.term if isinstance(other, Scalar) else _lift(other)))

    def __abs__(self) -> Scalar:
        return Scalar(z3.fpAbs(self.term) if z3.is_fp(self.term) else z3.If(self.term >= 0, self.term, -self.term))

    def __bool__(self) -> bool:
        condition = self.term if z3.is_bool(self.term) else self.term != 0
        known = z3.simplify(condition)
        if z3.is_true(known) or z3.is_false(known):
            return z3.is_true(known)
        if not _trails:
            raise TypeError("a branch on a symbolic value outside `paths`")
        return _trails[-1].decide(condition)


class _Values:
    """A function of the round that computes each of its values once."""

    def __init__(self, function: Callable[[z3.ArithRef], z3.ExprRef]) -> None:
        self._function = function
        self._known: dict[int, tuple[z3.ArithRef, z3.ExprRef]] = {}

    def __call__(self, r: z3.ArithRef) -> z3.ExprRef:
        r = z3.simplify(r)
        if r.get_id() not in self._known:
            self._known[r.get_id()] = r, self._function(r)  # with r itself: z3 gives the numbers of the dead away
        return self._known[r.get_id()][1]


class Column(_Operand):
    """A symbolic column of ``length`` rounds, the only axis.

    Args:
        at: The value at a position on the axis; asked for positions within the length only.
        length: How many rounds; any number >= 1.
    """

    def __init__(self, at: Callable[[z3.ArithRef], z3.ExprRef], length: z3.ArithRef) -> None:
        self._values = at if isinstance(at, _Values) else _Values(at)
        self.length = length

    @property
    def at(self) -> _Values:
        """The value at a position, as it is now: writing into the column later does not change it."""
        return self._values

    @property
    def shape(self) -> tuple[Scalar]:
        """The shape, as numpy's."""
        return (Scalar(self.length),)

    def _with(self, other: Any, combine: Callable[..., z3.ExprRef]) -> Any:
        mine = self.at
        if isinstance(other, Column):
            _check_lengths(self.length, other.length)
            theirs = other.at
            return Column(lambda r: combine(mine(r), theirs(r)), self.length)
        constant = other.term if isinstance(other, Scalar) else _lift(other)
        return Column(lambda r: combine(mine(r), constant), self.length)

    def copy(self) -> Column:
        """Return a column that changes on its own."""
        return Column(self.at, self.length)

    def __getitem__(self, key: Any) -> Any:
        mine = self.at
        if isinstance(key, int):
            return Scalar(mine(self.length + key if key < 0 else z3.IntVal(key)))
        start, end = _bounds(key, self.length)
        return Column(lambda r: mine(r + start), end - start)

    def __setitem__(self, key: Any, value: Any) -> None:
        start, end = _bounds(key, self.length)
        if isinstance(value, Column):
            _check_lengths(end - start, value.length)
        mine, theirs = self.at, value.at if isinstance(value, Column) else lambda _: _lift(value)
        self._values = _Values(lambda r: z3.If(z3.And(r >= start, r < end), theirs(r - start), mine(r)))


def _check_lengths(one: z3.ArithRef, other: z3.ArithRef) -> None:
    """Raise what numpy raises where lengths may differ; a single round, too, is not spread over many."""
    if not Scalar(one == other):
        raise ValueError("operands could not be broadcast together")


def _bounds(key: Any, length: z3.ArithRef) -> tuple[z3.ArithRef, z3.ArithRef]:
    """Return the first position of a slice of the last axis, and the one behind its last."""
    if not (isinstance(key, tuple) and len(key) == 2 and key[0] is Ellipsis and isinstance(key[1], slice)):
        raise TypeError(f"a symbolic column is cut along its rounds only: column[..., a:b], not {key!r}")
    if key[1].step is not None:
        raise TypeError("a symbolic column is cut without steps")

    def position(given: int | None, otherwise: z3.ArithRef) -> z3.ArithRef:
        if given is None:
            return otherwise
        if given < 0:
            return z3.If(length + given > 0, length + given, z3.IntVal(0))
        return z3.If(length < given, length, z3.IntVal(given))

    return position(key[1].start, z3.IntVal(0)), position(key[1].stop, length)


_numpy_zeros = np.zeros


def _zeros(shape: Any, dtype: Any = float, **options: Any) -> Any:
    """Stand in for `numpy.zeros` where the shape is symbolic."""
    if isinstance(shape, tuple) and shape and isinstance(shape[-1], Scalar):
        zero = _lift(np.dtype(dtype).type(0))
        return Column(lambda _: zero, shape[-1].term)
    return _numpy_zeros(shape, dtype, **options)


def double(name: str) -> Scalar:
    """Return any double, NaN and infinities included."""
    return Scalar(fresh(DOUBLE, name))
