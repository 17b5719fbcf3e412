"""Parse rules and selectors from text: only whitelisted nodes of the syntax tree are accepted, and nothing is evaluated.

In the text of a rule, comparisons bind tighter than ``&``, ``|``, ``and`` and ``or``. In Python, ``&`` and ``|`` bind
tighter than comparisons, so they are replaced by ``and`` and ``or`` before Python parses the text.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar, cast, overload

from suffice.common.syntax import parse_expression
from suffice.errors import DataError, RuleSyntaxError, did_you_mean
from suffice.policy.rules.algebra import FirstOf, KOf, Linear, Never, Patience, Times, signal
from suffice.policy.rules.named import NAMED_RULES
from suffice.policy.rules.rule import CALLED, AllOf, AnyOf, Rule
from suffice.policy.rules.selectors import SELECTORS, Best, MaxSignal, MedianSignal, MinSignal, Selector

_COMPARISON_NODES: dict[type[ast.cmpop], str] = {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<="}
_LONGEST_TEXT = 20_000
_FUNCTIONS = ("k_of", "patience", "times", "first_of", "never")

_Parsed = TypeVar("_Parsed")

OWN_RULES: dict[str, Callable[..., Rule]] = {}
"""Rules registered by `register_rule`, by name."""

OWN_SELECTORS: dict[str, Callable[..., Selector]] = {}
"""Selectors registered by `register_selector`, by name."""


_OwnRule = TypeVar("_OwnRule", bound=Callable[..., Rule])
_OwnSelector = TypeVar("_OwnSelector", bound=Callable[..., Selector])


@overload
def register_rule(name: str) -> Callable[[_OwnRule], _OwnRule]: ...


@overload
def register_rule(name: str, build: _OwnRule) -> _OwnRule: ...


def register_rule(name: str, build: Any = None) -> Any:
    """Register your own rule under a name that texts of rules, policy files and the command line may use.

    `register_rule` can also be used as a decorator.

    ``name(argument, ...)`` calls `build`, and ``name`` alone calls it without arguments.  `build` gets the name of a
    signal as a `str`, a number as an `int` or a `float`, and a rule in parentheses as a `Rule`. If `build` is a class,
    ``str(rule)`` must have the form ``name(argument, ...)``, with ``parse_rule(str(rule)) == rule``.

    >>> @register_rule("sure")
    ... def sure(least=0.9):
    ...     return signal("p_correct") > least
    >>> print(parse_rule("(sure(0.8)) | (answer_stable >= 1)"))
    (p_correct > 0.8) | (answer_stable >= 1)

    Args:
        name: An ASCII identifier that no other rule has.
        build: A rule class, or any function that returns a rule; `register_rule` returns it unchanged. None = return a
            decorator.

    Raises:
        DataError: The name is taken, or is not an identifier.
    """
    if build is None:
        return partial(register_rule, name)
    _check_name_is_free(name, {*_FUNCTIONS, *NAMED_RULES, *OWN_RULES}, "rule")
    OWN_RULES[name] = build
    _name_class(name, build)
    return build


@overload
def register_selector(name: str) -> Callable[[_OwnSelector], _OwnSelector]: ...


@overload
def register_selector(name: str, build: _OwnSelector) -> _OwnSelector: ...


def register_selector(name: str, build: Any = None) -> Any:
    """Register your own selector under a name that texts of selectors may use; see `register_rule`.

    Args:
        name: An ASCII identifier that no other selector has.
        build: A selector class, or any function that returns a selector; `register_selector` returns it unchanged. None
            = return a decorator.

    Raises:
        DataError: The name is taken, or is not an identifier.
    """
    if build is None:
        return partial(register_selector, name)
    prefixed = {name} if name.startswith(tuple(f"{kind}_" for kind in _OF_A_SIGNAL)) else set()
    _check_name_is_free(name, {*SELECTORS, *prefixed, *OWN_SELECTORS}, "selector")
    OWN_SELECTORS[name] = build
    _name_class(name, build)
    return build


def _name_class(name: str, build: Any) -> None:
    if isinstance(build, type):
        CALLED.setdefault(build, name)


def _check_name_is_free(name: str, taken: set[str], kind: str) -> None:
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise DataError(f"{name!r} is not a name that text can call: ASCII letters, digits and underscores, no keyword")
    if name in taken:
        raise DataError(f"the name {name!r} belongs to another {kind}: choose a name that is free")


def parse_rule(text: str) -> Rule:
    """Return the rule that `text` describes; nothing is executed.

    >>> rule = parse_rule("(answer_stable >= 1) & (p_correct > 0.25)")
    >>> parse_rule(str(rule)) == rule == parse_rule("tasr")
    True
    >>> print(parse_rule("answer_stable >= 1 and p_correct > 0.25 or round >= 5"))
    ((answer_stable >= 1) & (p_correct > 0.25)) | (round >= 5)

    Args:
        text: Comparisons of signals with numbers, joined by ``&`` or ``and`` and by ``|`` or ``or``; weighted sums of
            signals; ``k_of(k, ...)``, ``patience(rule, n)``, ``times(rule, n)``, ``first_of(...)``; the name of a published rule.
            Comparisons bind tighter than ``&``, and ``&`` tighter than ``|``; parentheses are optional otherwise.

    Raises:
        RuleSyntaxError: The text is not a rule; the message and `span` give the place of the error.
    """
    example = "(answer_stable >= 1) & (p_correct > 0.25)"
    return _parsed(text, "rule", example, lambda node: _rule(node, text))


def _parsed(text: str, what: str, example: str, build: Callable[[ast.expr], _Parsed]) -> _Parsed:
    """Parse a text and build a value from its syntax tree; every error is raised as an error about the text."""
    if len(text) > _LONGEST_TEXT:
        raise RuleSyntaxError(f"a {what} of {len(text)} characters is too long; allowed: {_LONGEST_TEXT}")
    try:
        return build(parse_expression(_with_words(text.strip())[0]))
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        if isinstance(error, RuleSyntaxError):
            raise
        span = _reported(error, text) if isinstance(error, SyntaxError) else None
        raise RuleSyntaxError(f"{text!r} is not a {what}: {error}. Example: {example}", span) from None


_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")
_WORDS: Mapping[str, str] = {"&": " and ", "|": " or "}


def _with_words(text: str) -> tuple[str, list[int]]:
    """Replace ``&`` and ``|`` in a text by ``and`` and ``or``; also return each character's original position."""
    pieces = [_WORDS.get(character, character) for character in text]
    return "".join(pieces), [place for place, piece in enumerate(pieces) for _ in piece]


def _span(node: ast.expr, text: str) -> tuple[int, int]:
    """Return the start and end of a node of the syntax tree in the text."""
    first = (node.lineno, node.col_offset)
    return _original_span(text, first, (node.end_lineno or 0, node.end_col_offset or 0), of_bytes=True)


def _reported(error: SyntaxError, text: str) -> tuple[int, int]:
    """Return the span of the text that Python's parser rejects; for an incomplete text, return an empty span at the end."""
    if not error.offset or not error.lineno:
        return len(text.rstrip()), len(text.rstrip())
    last = (error.end_lineno or error.lineno, (error.end_offset or 0) - 1)
    return _original_span(text, (error.lineno, error.offset - 1), last)


def _original_span(
    text: str, first: tuple[int, int], last: tuple[int, int], *, of_bytes: bool = False
) -> tuple[int, int]:
    """Convert two parser positions (line from 1, column from 0) to indices of the original text."""
    parsed, places = _with_words(text.strip())
    lines: list[str] = _LINE.findall(parsed)
    begin, end = (_index(lines, position, of_bytes=of_bytes) for position in (first, last))
    offset = len(text) - len(text.lstrip())
    begin_place = places[begin] if begin < len(places) else len(text.strip())
    end_place = places[end - 1] + 1 if end > begin else begin_place
    return offset + begin_place, offset + end_place


def _index(lines: list[str], position: tuple[int, int], *, of_bytes: bool) -> int:
    """Convert a parser position to an index of the parsed text."""
    line, column = position[0], max(0, position[1])
    own = lines[line - 1]
    before = own.encode()[:column].decode() if of_bytes else own[:column]
    return sum(map(len, lines[: line - 1])) + len(before)


def _rule(node: ast.expr, text: str) -> Rule:
    try:
        return _rule_at(node, text)
    except RuleSyntaxError as error:
        error.span = error.span or _span(node, text)  # the innermost part
        raise


def _rule_at(node: ast.expr, text: str) -> Rule:
    if isinstance(node, ast.BoolOp):
        kind = AllOf if isinstance(node.op, ast.And) else AnyOf
        return kind(tuple(_rule(member, text) for member in node.values))
    if isinstance(node, ast.Compare):
        return _comparison(node, text)
    if isinstance(node, ast.Name):
        return _call(node.id, [], text) if node.id in OWN_RULES else _named_rule(node.id, [], text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _call(node.func.id, node.args, text)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert | ast.Not):
        raise _refused(node, text, "a rule cannot be negated; write the opposite comparison")
    raise _refused(node, text, "a comparison, a combination or a named rule is expected here")


def _comparison(node: ast.Compare, text: str) -> Rule:
    if len(node.ops) != 1:
        raise _refused(node, text, "one comparison at a time: a > 1 & a < 2")
    comparison = _COMPARISON_NODES.get(type(node.ops[0]))
    if comparison is None:
        raise _refused(node, text, f"allowed comparisons: {', '.join(_COMPARISON_NODES.values())}")
    right = node.comparators[0]
    return _linear(node.left, text)._compare(comparison, _number(right, text))  # noqa: SLF001


def _linear(node: ast.expr, text: str) -> Linear:
    if isinstance(node, ast.Name):
        return signal(node.id)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Add):
            return _linear(node.left, text) + _linear(node.right, text)
        if isinstance(node.op, ast.Sub):
            return _linear(node.left, text) - _linear(node.right, text)
        if isinstance(node.op, ast.Mult):
            return _linear(node.right, text) * _number(node.left, text)
    raise _refused(node, text, "a signal or a weighted sum of signals is expected here: a + 2 * b")


def _number(node: ast.expr, text: str) -> float:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, text)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    raise _refused(node, text, "a number is expected here")


def _whole_number(node: ast.expr, text: str) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    raise _refused(node, text, "a whole number is expected here")


def _call(name: str, arguments: list[ast.expr], text: str) -> Rule:
    if name in OWN_RULES:
        values = [_argument(argument, text) for argument in arguments]
        return _built(Rule, name, partial(OWN_RULES[name], *values), text)  # type: ignore[type-abstract]
    rule = _function(name, arguments, text)
    return _named_rule(name, [_number(item, text) for item in arguments], text) if rule is None else rule


def _function(name: str, arguments: list[ast.expr], text: str) -> Rule | None:
    """Return the rule that a function in `_FUNCTIONS` builds; None if `name` is not one of them or the arguments do not fit."""
    rule: Rule | None = None
    match name, arguments:
        case "k_of", [k, *members]:
            rule = KOf(_whole_number(k, text), tuple(_rule(member, text) for member in members))
        case "first_of", _:
            rule = FirstOf(tuple(_rule(member, text) for member in arguments))
        case "patience", [inner, *n] if len(n) <= 1:
            rule = Patience(_rule(inner, text), *(_whole_number(number, text) for number in n))
        case "times", [inner, n]:
            rule = Times(_rule(inner, text), _whole_number(n, text))
        case "never", []:
            rule = Never()
    return rule


def _built(kind: type[_Parsed], name: str, build: Callable[[], Any], text: str) -> _Parsed:
    """Build the rule or selector registered under a name; raise if the arguments or the result do not fit."""
    try:
        built = build()
    except (TypeError, ValueError) as error:
        raise RuleSyntaxError(f"{name!r} in {text!r} does not take these arguments: {error}") from None
    if not isinstance(built, kind):
        raise RuleSyntaxError(f"{name!r} in {text!r} was registered for {built!r}, which is not a {kind.__name__}")
    return built


def _argument(node: ast.expr, text: str) -> str | int | float | Rule:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant | ast.UnaryOp):
        number = _number(node, text)
        return int(number) if isinstance(node, ast.Constant) and isinstance(node.value, int) else number
    return _rule(node, text)


def _named_rule(name: str, arguments: list[float], text: str) -> Rule:
    entry = NAMED_RULES.get(name)
    if entry is None:
        raise RuleSyntaxError(
            f"{name!r} in {text!r} is not a rule.{did_you_mean(name, (*NAMED_RULES, *OWN_RULES))} A signal needs a comparison "
            f"({name} > 0.5); named rules: {', '.join((*NAMED_RULES, *OWN_RULES))}; functions: {', '.join(_FUNCTIONS)}; "
            "a rule of your own must be registered first (register_rule)"
        )
    build: Callable[..., Any] = entry.build
    if len(arguments) not in entry.arity:
        raise RuleSyntaxError(f"{name} takes {' or '.join(map(str, entry.arity))} numbers, not {len(arguments)}")
    built = build(*arguments)
    assert isinstance(built, Rule)
    return built


def _refused(node: ast.expr, text: str, hint: str) -> RuleSyntaxError:
    first, last = _span(node, text)
    return RuleSyntaxError(f"{text[first:last]!r} in {text!r} is not allowed: {hint}", (first, last))


_OF_A_SIGNAL: Mapping[str, Callable[[str], Selector]] = {"max": MaxSignal, "min": MinSignal, "median": MedianSignal}


def parse_selector(text: str) -> Selector:
    """Return the selector that `text` names or describes; nothing is executed.

    >>> str(parse_selector("max_answer_margin")), str(parse_selector("longest_run(semantic_distance < 0.05)"))
    ('max_answer_margin', 'longest_run(semantic_distance < 0.05)')

    Args:
        text: One of `SELECTORS`; ``best`` (``max_SIGNAL`` of the only signal of quality); ``max_SIGNAL``,
            ``min_SIGNAL`` or ``median_SIGNAL``; or a registered selector, written as a name (``centroid``) or with
            arguments (``longest_run(RULE)``, ``ranked(SIGNAL=(weight, fill), ...)``).

    Raises:
        RuleSyntaxError: There is no such selector.
    """
    spelled = text.strip()
    if spelled in SELECTORS:
        return SELECTORS[spelled]
    if spelled == "best":
        return Best()
    name, opened, _ = spelled.partition("(")
    if name in OWN_SELECTORS:
        call = spelled if opened else f"{spelled}()"
        return _parsed(call, "selector", f"{name}(argument, ...)", lambda node: _own_selector(node, name, call))
    kind, _, signal_name = spelled.partition("_")
    if kind in _OF_A_SIGNAL and signal_name.isidentifier():
        return _OF_A_SIGNAL[kind](signal_name)
    names = (*SELECTORS, "best", *OWN_SELECTORS)
    raise RuleSyntaxError(
        f"{text!r} is not a selector.{did_you_mean(text, names)} There are: {', '.join(names)}, max_SIGNAL, min_SIGNAL and "
        "median_SIGNAL; longest_run(RULE) and ranked(SIGNAL=(weight, fill), ...) take arguments; a selector of your own "
        "must be registered first (register_selector)"
    )


def _own_selector(node: ast.expr, name: str, text: str) -> Selector:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise RuleSyntaxError(f"{text!r} is not a selector; write {name}(argument, ...)")
    names = [item.arg for item in node.keywords]
    if None in names or len(set(names)) != len(names):
        raise RuleSyntaxError(f"{text!r} is not a selector: each argument has a name of its own")
    values = [_argument(argument, text) for argument in node.args]
    named = {str(item.arg): _pair_or_argument(item.value, text) for item in node.keywords}
    return _built(Selector, name, partial(OWN_SELECTORS[name], *values, **named), text)  # type: ignore[type-abstract]


def _pair_or_argument(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(_number(item, text) for item in node.elts)
    return _argument(node, text)


class Spelled(Generic[_Parsed]):
    """A field of a frozen dataclass that accepts a value or its text, and stores the value.

    Args:
        kind: The class of the values, which may be abstract.
        parse: A function that parses a text into a value.
        default: The value of the field if no value is given.
    """

    def __init__(self, kind: type[Any], parse: Callable[[str], _Parsed], default: _Parsed) -> None:
        self._kind = kind
        self._parse = parse
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object | None, owner: type) -> _Parsed:
        return self._default if instance is None else cast("_Parsed", vars(instance)[self._name])

    def __set__(self, instance: object, value: _Parsed | str) -> None:
        spelled = self._parse(value) if isinstance(value, str) else value
        if not isinstance(spelled, self._kind):
            hint = " Call it: a function is not what it returns." if callable(spelled) else ""
            raise DataError(f"{self._name} must be a {self._kind.__name__} or its text, not {value!r}.{hint}")
        vars(instance)[self._name] = spelled
