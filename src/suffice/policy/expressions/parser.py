"""The process behind `expression_key`, which reads texts as lines of JSON and writes their keys.

It imports nothing of this package.  An expression whose value has too many digits is not evaluated: its key is its
text, so the key is the same on every machine.  Processor time is limited for each text, and memory for the whole
process; the system ends a process that needs more.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import signal
import sys
from fractions import Fraction
from typing import Any

import sympy
from math_verify import parse
from sympy.logic.boolalg import Boolean

MEMORY = 2 << 30
DIGITS = 15
"""Number of significant digits to which irrational values are compared."""

LARGEST_DIGITS = 4300
"""Most digits of a number; an expression with larger numbers is compared by its text."""

LARGEST_BITS = 1 << 20
"""Most bits of a power that is computed on the way to a value."""

LARGEST_FACTORIAL = 2000
LARGEST_SPAN = 1000
"""Most terms of a sum or product that is computed term by term."""

PRECISION = 50
POINTS = 4
LARGEST_DENOMINATOR = 10**6
_ZERO = sympy.Rational(1, 10**25)
_TOO_LARGE = 10**LARGEST_DIGITS

_WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORDS = re.compile(r"(?=.*[A-Za-z]{3})[A-Za-z][A-Za-z\s.,;:!?'-]*|[Nn][Oo]")
_PROSE = re.compile(r"(?:[A-Za-z]{2,}[\s,.:;]+){2,}")
_DELIMITED = re.compile(r"(?<!\\)\$|\\\(|\\\[|\\f?box")
_PERIODIC = re.compile(r"(\d*)\.(\d*)\\overline\s*\{(\d+)\}")
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?!\w)")
_IN_BASE = re.compile(r"\$?\s*(\w+)\s*_\s*\{?\s*(\d+)\s*\}?\s*\$?")
_UNREAD = re.compile(r"\$|\\left(?![a-z])|\\right(?![a-z])|(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])")
_BOXED = re.compile(r"\\f?box(?:ed)?\s*\{")


class TooLargeError(BaseException):
    """Raised for an expression that is too large to evaluate.

    It is not a subclass of `Exception`, so that only `key_of` catches it.
    """


def _guard_powers() -> None:
    """Prevent the computation of powers of whole numbers and fractions whose result has more than `LARGEST_BITS` bits."""

    def guarded(power: Any) -> Any:
        def bounded(base: Any, exponent: Any) -> Any:
            if exponent.is_Rational and abs(base.p) != base.q:
                bits = max(abs(base.p), base.q).bit_length()
                if bits * abs(exponent.p) > LARGEST_BITS * exponent.q:
                    raise TooLargeError
            return power(base, exponent)

        return bounded

    for kind in (sympy.Rational, sympy.Integer):
        kind._eval_power = guarded(kind._eval_power)  # noqa: SLF001 - what every power of such a number calls


def _guard_factorials() -> None:
    """Prevent the computation of factorials and binomial coefficients with more than `LARGEST_FACTORIAL` factors."""

    def guarded(kind: Any, factors: Any) -> Any:
        inner = kind.eval.__func__

        def bounded(cls: Any, *arguments: Any) -> Any:
            if all(argument.is_Rational for argument in arguments) and factors(*arguments) > LARGEST_FACTORIAL:
                raise TooLargeError
            return inner(cls, *arguments)

        return classmethod(bounded)

    for kind in (sympy.factorial, sympy.factorial2, sympy.subfactorial):
        kind.eval = guarded(kind, lambda n: n)
    for kind in (sympy.RisingFactorial, sympy.FallingFactorial):
        kind.eval = guarded(kind, lambda x, n: abs(n))  # noqa: ARG005
    sympy.binomial.eval = guarded(sympy.binomial, lambda n, k: min(abs(k), abs(n - k)))


_guard_powers()
_guard_factorials()


def key_of(text: str) -> str | None:
    """Return the key of a text; None if it contains no expression."""
    text = _unboxed(text)
    try:
        return _key_of(text)
    except TooLargeError:
        return "text " + _UNREAD.sub("", text).strip(".")


def _key_of(text: str) -> str | None:
    bare = _WRAPPED.sub(r"\1", text).strip(" \t\n$.")
    if _WORDS.fullmatch(bare):
        return "word " + " ".join(bare.lower().split())
    if (in_base := _IN_BASE.fullmatch(text)) and in_base[1][0].isdigit():
        return f"base {in_base[2]} {in_base[1]}"
    text = _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", _PERIODIC.sub(_fraction_of, text))
    if not _DELIMITED.search(text) and not _PROSE.search(_COMMAND.sub(" ", _WRAPPED.sub(" ", text))):
        text = f"${text.strip().rstrip('.')}$"
    values = [value for value in parse(text, parsing_timeout=None) if not isinstance(value, str)]
    return None if not values else canonical(values[0])


def _fraction_of(match: re.Match[str]) -> str:
    """Convert a periodic decimal to a fraction."""
    whole, fixed, period = match.groups()
    top = int(whole + fixed + period) - int((whole + fixed) or "0")
    return f"\\frac{{{top}}}{{{10 ** len(fixed) * (10 ** len(period) - 1)}}}"


def _unboxed(text: str) -> str:
    """Return the content of the last LaTeX box of a text, put between dollar signs.

    A text without a box is returned as it is.
    """
    boxes = list(_BOXED.finditer(text))
    if not boxes:
        return text
    start, depth = boxes[-1].end(), 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return f"${text[start:place].strip(' $')}$"
    return text


def canonical(value: Any) -> str | None:  # noqa: PLR0911 - one for each kind of value
    """Return the key of a parsed value."""
    if isinstance(value, sympy.And) and all(isinstance(part, sympy.Eq) for part in value.args):
        parts = getattr(value, "_unsorted_args", value.args)
        if isinstance(parts[0].lhs, sympy.Symbol):  # x = 2 + 3 = 5
            return canonical(parts[-1].rhs)
    if isinstance(value, sympy.Eq):
        if isinstance(value.lhs, (sympy.Symbol, sympy.core.function.AppliedUndef)):
            return canonical(value.rhs)
        return _marked("=", _values(value.lhs - value.rhs, scaled="any"))
    if isinstance(value, Boolean) and not isinstance(value, sympy.Symbol):
        return _condition(value)
    if isinstance(value, sympy.Set):
        return _set(value)
    if isinstance(value, sympy.MatrixBase):
        rows = [[canonical(item) for item in value.row(place)] for place in range(value.rows)]
        return None if any(None in row for row in rows) else "matrix " + json.dumps(rows)
    if isinstance(value, (sympy.Tuple, tuple, list)):
        return _parts("(", [canonical(item) for item in value], ")")
    return _values(value)


def _marked(mark: str, key: str | None) -> str | None:
    return None if key is None else f"{mark} {key}"


def _parts(opening: str, keys: list[str | None], closing: str) -> str | None:
    return None if None in keys else opening + "; ".join(map(str, keys)) + closing


def _condition(value: Any) -> str | None:
    """Return the key of inequalities; if they have a single variable, the key is that of their solution set."""
    if value in (sympy.true, sympy.false):
        return f"word {str(value).lower()}"
    if len(value.free_symbols) == 1:
        try:
            return _set(value.as_set())
        except (NotImplementedError, TypeError, ValueError, AttributeError):
            pass
    if isinstance(value, (sympy.And, sympy.Or)):
        keys = [_condition(part) for part in value.args]
        return None if None in keys else f"{value.func.__name__} " + " | ".join(sorted(map(str, keys)))
    if isinstance(value, (sympy.StrictGreaterThan, sympy.GreaterThan)):
        value = value.reversed
    if not isinstance(value, (sympy.StrictLessThan, sympy.LessThan, sympy.Ne)):
        return None
    scaled = "any" if isinstance(value, sympy.Ne) else "positive"
    return _marked(value.rel_op, _values(value.lhs - value.rhs, scaled=scaled))


def _set(value: Any) -> str | None:
    if isinstance(value, sympy.FiniteSet):
        keys = [canonical(item) for item in value.args]
        if None in keys:
            return None
        distinct = sorted(set(map(str, keys)))
        return distinct[0] if len(distinct) == 1 else "{" + "; ".join(distinct) + "}"
    if isinstance(value, sympy.Interval):
        ends = [canonical(value.start), canonical(value.end)]
        # An open interval has the same notation as a point: (1, 2).
        return _parts("[("[bool(value.left_open)], ends, "])"[bool(value.right_open)])
    if isinstance(value, sympy.Union):
        keys = [_set(part) for part in value.args]
        return None if None in keys else "union " + " | ".join(sorted(map(str, keys)))
    return f"set {sympy.srepr(value)}"


def _values(value: Any, scaled: str = "") -> str | None:
    """Return the key of an expression: its value, or its values at fixed points of its variables.

    Args:
        value: The expression.
        scaled: The multiples of the expression that share its key: `any` multiple, only `positive` multiples, or "" for
            no multiples.
    """
    value = _exact(value)
    names = sorted(value.free_symbols, key=str)
    if not names and not scaled:
        return _number(value)
    if value.atoms(sympy.core.function.AppliedUndef):
        return f"expression {sympy.srepr(value)}"
    points = [value.subs({name: _point(str(name), place) for name in names}) for place in range(POINTS)]
    numbers = [sympy.N(point, PRECISION, chop=True) for point in points]
    if not all(number.is_number and number.is_finite for number in numbers):
        return f"expression {sympy.srepr(value)}"
    if scaled:
        first = next((number for number in numbers if abs(number) > _ZERO), None)
        if first is None:
            return "0"
        numbers = [number / (first if scaled == "any" else abs(first)) for number in numbers]
    elif all(abs(number - numbers[0]) <= _ZERO * (1 + abs(number)) for number in numbers):
        return _number(numbers[0])  # the variables cancel out
    return "values " + " ".join(_digits(number) for number in numbers)


def _exact(value: Any) -> Any:
    """Evaluate an expression as far as possible, with decimals as fractions and without percent signs."""
    for part in value.atoms(sympy.Sum, sympy.Product):
        _bound_terms(part)
    value = value.replace(
        lambda part: isinstance(part, sympy.UnevaluatedExpr),
        lambda part: sympy.Integer(1) if part.args[0] == sympy.Rational(1, 100) else part.args[0],
    )
    return sympy.nsimplify(value.doit(), rational=True)


def _bound_terms(value: Any) -> None:
    """Raise if a sum or product has too many terms and no closed form (sums of polynomials have one)."""
    for name, start, end in value.limits:
        terms = (end - start).doit()
        has_closed_form = isinstance(value, sympy.Sum) and value.function.is_polynomial(name)
        if terms.is_Rational and terms > LARGEST_SPAN and not has_closed_form:
            raise TooLargeError


def _point(name: str, place: int) -> Any:
    """Return a variable's value at one of the fixed points, a fraction in (-2, 2) that depends on the variable's name.

    At the last point all values are negative.
    """
    drawn = int.from_bytes(hashlib.sha256(f"{name} {place}".encode()).digest()[:4])
    size = sympy.Rational(drawn % 1_999_993 + 7, 1_000_003)
    return -size if place == POINTS - 1 else size


def _number(value: Any) -> str | None:
    """Return the key of a number, or None if the number is undefined.

    The key of a whole number or fraction is its exact value. The key of any other number consists of its first digits.
    """
    if value.is_Rational:
        if max(abs(value.p), value.q) >= _TOO_LARGE:
            raise TooLargeError
        return str(value)
    if value in (sympy.oo, -sympy.oo):
        return str(value)
    if value in (sympy.nan, sympy.zoo):
        return None
    number = sympy.N(value, PRECISION, chop=True)
    if not (number.is_number and number.is_finite):
        return f"expression {sympy.srepr(value)}"
    return _digits(number)


def _digits(number: Any) -> str:
    real, imaginary = (_part(part) for part in number.as_real_imag())
    return real if imaginary == "0" else f"{real} + {imaginary} i"


def _part(value: Any) -> str:
    if abs(value) <= _ZERO:
        return "0"
    if abs(value) >= _TOO_LARGE:
        raise TooLargeError
    near = Fraction(str(sympy.Rational(str(value)))).limit_denominator(LARGEST_DENOMINATOR)
    if abs(value - sympy.Rational(near.numerator, near.denominator)) <= _ZERO * (1 + abs(value)):
        return str(near)
    return str(sympy.N(value, DIGITS))


def bound_memory() -> None:
    """Limit the memory of this process, if the operating system supports that."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def set_timer(seconds: float) -> None:
    """Make the system end this process after `seconds` seconds of processor time; 0 cancels the timer."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(
            signal.ITIMER_PROF, seconds
        )  # by default, the timer's signal ends the process even during a computation


def main() -> None:
    """Read requests and write replies until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # text that a library prints must not be taken for a reply
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(3000)
    bound_memory()
    seconds = float(sys.argv[1])
    for line in sys.stdin:
        set_timer(seconds)
        try:
            key = key_of(json.loads(line))
        except Exception:  # noqa: BLE001 - whatever a parser raises, the text is not an expression that it reads
            key = None
        set_timer(0)
        replies.write(json.dumps({"key": key}) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
