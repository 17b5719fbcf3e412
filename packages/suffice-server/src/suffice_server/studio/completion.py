"""Completion and diagnosis of rule and selector texts; every candidate is checked with the parser itself."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from suffice.errors import RuleSyntaxError
from suffice.policy.rules import NAMED_RULES, SELECTORS, parse_rule, parse_selector
from suffice.policy.rules.named import spelled
from suffice.policy.rules.parse import OWN_RULES, OWN_SELECTORS

LONGEST = 2_000
"""Longest text before the cursor that is completed, because every candidate costs a call of the parser."""

_WORD_BEFORE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_WORD_END = re.compile(r"[A-Za-z_0-9]*")
_LEXEME = re.compile(r"(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*|\.\d[\w.]*)|(?P<sign>>=|<=|[^\s\w])")

_CALLABLES: Mapping[str, tuple[str, str]] = {
    "k_of": ("k_of(k, (rule), ...)", "at least k of the rules fire"),
    "patience": ("patience((rule), n)", "the rule fired in each of the last n rounds"),
    "first_of": ("first_of((rule), ...)", "any rule fires; the first that does gives the reason"),
    "never": ("never()", "never stops: the whole budget"),
}
_OPERATORS: Mapping[str, str] = {
    ")": "close the parenthesis",
    ">": "greater than",
    ">=": "at least",
    "<": "less than",
    "<=": "at most",
    "&": "and: both rules fire",
    "|": "or: either rule fires",
    "+": "add another signal",
    "-": "subtract another signal",
    "*": "weight a signal",
    ",": "the next argument",
}
_CLOSERS = ("", "0", " > 0", "round > 0", "(round > 0)", "2", "0.5", " round > 0", ", round > 0", "1, round > 0", ", 2")
"""Endings that may complete the innermost rule."""

_MOST_FILLED = 20
_DEEPEST = 40

OfferKind = Literal["signal", "rule", "function", "sign", "number", "selector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One completion at the cursor.

    Attributes:
        label: The text in the list of completions.
        insert: The text that replaces the characters from `first` to `last`.
        first: Index of the first replaced character.
        last: Index after the last replaced character.
        kind: The kind of the completion.
        about: The meaning of the completion, in one line.
    """

    label: str
    insert: str
    first: int
    last: int
    kind: OfferKind
    about: str = ""

    def applied(self, text: str) -> tuple[str, int]:
        """Return the text after the completion, and the new cursor."""
        return text[: self.first] + self.insert + text[self.last :], self.first + len(self.insert)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The reason why a text cannot be tried as a rule here.

    Attributes:
        message: The reason, and what to do.
        first: Index of the first wrong character.
        last: Index after the last wrong character; equal to `first` if something is missing there.
        fixes: Likely corrections.
    """

    message: str
    first: int
    last: int
    fixes: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """Completions at the cursor, and the reason why the text cannot be tried (None if it can)."""

    candidates: tuple[Offer, ...] = ()
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The signals of a recording that a rule can read.

    Attributes:
        signals: The meaning of each signal that has values, by name.
        values_of: Returns a few typical values of a signal, ascending.
    """

    signals: Mapping[str, str]
    values_of: Callable[[str], Sequence[float]] = lambda _: ()

    @property
    def names(self) -> list[str]:
        """The signals that a rule can name."""
        return [name for name in self.signals if name.isidentifier() and name.isascii() and not keyword.iskeyword(name)]


def complete_rule(text: str, cursor: int, vocabulary: Vocabulary) -> Offers:
    """Return completions at the cursor of a rule's text, and the reason why the text cannot be tried, if any.

    After each completion the text up to the cursor is the beginning of a valid rule, as checked with the parser.

    >>> signals = Vocabulary(signals={"answer_stable": "the answer repeats", "overlap": "the evidence repeats"})
    >>> [candidate.insert for candidate in complete_rule("(answer_stable >= 1) & (ov", 26, signals).candidates][:3]
    ['overlap ', 'margin_or_overlap', 'stable_and_overlap']
    >>> complete_rule("answer_stabel > 0", 17, signals).problem.fixes[0].insert
    'answer_stable'

    Args:
        text: The text so far.
        cursor: Index of the character after the cursor.
        vocabulary: The signals of the recording.
    """
    cursor = min(max(0, cursor), len(text))
    candidates = tuple(_rule_offers(text, cursor, vocabulary)) if cursor <= LONGEST else ()
    return Offers(candidates=candidates, problem=_rule_problem(text, vocabulary))


def complete_selector(text: str, cursor: int, vocabulary: Vocabulary) -> Offers:
    """Return completions of a selector's text, and the reason why the text cannot be tried, if any.

    Args:
        text: The text so far.
        cursor: Index of the character after the cursor; a completion also replaces the text after the cursor.
        vocabulary: The signals of the recording.
    """
    before = text[: min(max(0, cursor), len(text))].strip()
    named = dict.fromkeys(SELECTORS, "") | {
        "best": "the answer at the largest value of the one signal of quality",
        "centroid": "the draft nearest to the centroid of all",
        "majority_of_samples": "the answer given most often, ties at random",
        "weighted_majority_of_samples": "the same, weighted by p_correct",
    }
    named |= {f"{name}(": "takes arguments" for name in OWN_SELECTORS if name not in named}
    for name in vocabulary.names:
        named |= {f"{kind}_{name}": f"the answer at the {kind} of: {vocabulary.signals[name]}" for kind in _EXTREMES}
    candidates = [
        Offer(label=name, insert=name, first=0, last=len(text), kind="selector", about=_SELECTOR_WORDS.get(name, about))
        for name, about in _matching(before, named)
    ]
    problem = None
    try:
        parse_selector(text)
    except RuleSyntaxError as error:
        near = get_close_matches(text.strip(), named, n=3)
        fixes = [Offer(label=name, insert=name, first=0, last=len(text), kind="selector") for name in near]
        problem = Problem(message=str(error), first=0, last=len(text), fixes=tuple(fixes))
    return Offers(candidates=tuple(candidates), problem=problem)


_EXTREMES = ("max", "min", "median")
_SELECTOR_WORDS: Mapping[str, str] = {
    "last": "the answer at the stop",
    "first": "the first answer",
    "max_p_correct": "the answer most likely to be right",
    "majority": "the answer given most often, among ties the latest",
    "weighted_majority": "the same, weighted by p_correct",
}


def _matching(word: str, named: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the names that begin with a word, then other names that contain the word."""
    word = word.lower()
    yield from ((name, about) for name, about in named.items() if name.lower().startswith(word))
    yield from (
        (name, about) for name, about in named.items() if word in name.lower()[1:] and not name.lower().startswith(word)
    )


def _rule_offers(text: str, cursor: int, vocabulary: Vocabulary) -> Iterator[Offer]:
    before = text[:cursor]
    word = _WORD_BEFORE.search(before)
    if word is None and re.search(r"[\w.]\Z", before):
        yield from _typical_numbers(text, cursor, vocabulary)
        return
    first = cursor if word is None else word.start()
    rest = _WORD_END.match(text, cursor)
    last = rest.end() if rest and word else cursor
    head, typed = text[:first], text[first:cursor]
    gap = "" if not head or head[-1] in " (\n" else " "
    if _begins(f"{head}{gap}round"):
        for name, about in _matching(typed, {name: vocabulary.signals[name] for name in vocabulary.names}):
            yield Offer(label=name, insert=f"{gap}{name} ", first=first, last=last, kind="signal", about=about)
    for label, insert, about, kind in _callable(typed) if _begins(f"{head}{gap}never()") else ():
        if _begins(f"{head}{gap}{insert}"):
            yield Offer(label=label, insert=gap + insert, first=first, last=last, kind=kind, about=about)
    if not typed:
        yield from _typical_numbers(text, cursor, vocabulary)
        yield from _signs(text, cursor, vocabulary)


def _callable(typed: str) -> Iterator[tuple[str, str, str, OfferKind]]:
    """Yield label, text, meaning and kind of the named rules and functions that match a word."""
    for name, _ in _matching(typed, dict.fromkeys(_CALLABLES, "")):
        yield _CALLABLES[name][0], "never()" if name == "never" else f"{name}(", _CALLABLES[name][1], "function"
    for name, about in _matching(typed, {name: entry.doc for name, entry in NAMED_RULES.items()}):
        arity = NAMED_RULES[name].arity
        numbers = ", ".join("xy"[: max(arity)])
        label = f"{name}({numbers})" if 0 not in arity else f"{name}[({numbers})]" if max(arity) else name
        yield label, name if 0 in arity else f"{name}(", f"{about}: {spelled(name)}", "rule"
    for name, _ in _matching(typed, dict.fromkeys(OWN_RULES, "")):
        yield f"{name}(...)", f"{name}(", "a rule of your own", "rule"


def _typical_numbers(text: str, cursor: int, vocabulary: Vocabulary) -> Iterator[Offer]:
    """Yield typical values of the signal that is compared at the cursor."""
    match = re.search(r"([A-Za-z_]\w*)\s*(?:>=|<=|>|<)\s*(-?[\d.]*)\Z", text[:cursor])
    if match is None or match[1] not in vocabulary.signals:
        yield from _arguments(text, cursor)
        return
    first, rest = match.start(2), re.compile(r"[\d.]*").match(text, cursor)
    gap = "" if text[first - 1 : first] == " " else " "
    for value, about in _value_offers(vocabulary.values_of(match[1])):
        insert = f"{value:.3g}"
        if insert.startswith(match[2]) and _begins(text[:first] + gap + insert):
            last = rest.end() if rest else cursor
            yield Offer(label=insert, insert=gap + insert, first=first, last=last, kind="number", about=about)


def _arguments(text: str, cursor: int) -> Iterator[Offer]:
    """Yield numbers if the cursor is at a numeric argument of a function."""
    levels = _open_levels(text[:cursor])
    if levels and levels[-1][0] and re.search(r"[(,]\s*\Z", text[:cursor]):
        for number in ("1", "2", "3", "5", "0.5", "0.9"):
            if _begins(f"{text[:cursor]}{number} "):
                about = f"a number that {levels[-1][0]} takes"
                yield Offer(label=number, insert=number, first=cursor, last=cursor, kind="number", about=about)


def _value_offers(values: Sequence[float]) -> Iterator[tuple[float, str]]:
    if len(values) == len(_VALUE_WORDS):
        yield from dict(zip(values, _VALUE_WORDS, strict=True)).items()
    else:
        yield from ((value, "a value here") for value in values)


_VALUE_WORDS = (
    "a tenth of its values lie below",
    "a quarter lies below",
    "half lie below",
    "three quarters lie below",
    "nine tenths lie below",
)


def _signs(text: str, cursor: int, vocabulary: Vocabulary) -> Iterator[Offer]:
    """Yield operators, commas and closing parentheses that may follow at the cursor."""
    head = text[:cursor]
    tokens = list(_LEXEME.finditer(head))
    if not tokens:
        return
    before = tokens[-1]
    operand = before["number"] or before[0] == ")" or before["name"] in vocabulary.signals
    for sign, about in _OPERATORS.items():
        if sign not in "&|,)" and not operand:
            continue
        tight = sign in ",)"
        insert = f"{sign} " if sign == "," else sign if tight else f"{'' if head[-1:] == ' ' else ' '}{sign} "
        if _begins(head + insert):
            yield Offer(label=sign, insert=insert, first=cursor, last=cursor, kind="sign", about=about)


def _parses(text: str) -> bool:
    try:
        parse_rule(text)
    except RuleSyntaxError:
        return False
    return True


def _begins(head: str) -> bool:
    """Return whether a text is the beginning of a valid rule."""
    return next(ends_of(head), None) is not None


def ends_of(head: str) -> Iterator[str]:
    """Yield valid rules that consist of a text and a short ending, as checked with the parser.

    >>> next(ends_of("patience((answer_stable >= 1) & (p_corr"))
    'patience((answer_stable >= 1) & (p_corr > 0))'
    """
    levels = _open_levels(head)
    if len(levels) > _DEEPEST:
        return
    closings = [f"{fill})" for _, fill in reversed(levels)]
    for end in _CLOSERS:
        if _parses(whole := head + end + "".join(closings)):
            yield whole
    for end in _CLOSERS:
        for place, (name, _) in enumerate(reversed(levels), 1):
            if not name:  # a sum in parentheses
                whole = head + end + "".join(closings[:place]) + " > 0" + "".join(closings[place:])
                if _parses(whole):
                    yield whole


def _open_levels(head: str) -> list[tuple[str, str]]:
    """Return a pair for each open parenthesis, the outermost first: the function's name, and its missing arguments as text."""
    levels: list[list[str]] = []
    name = ""
    for token in _LEXEME.finditer(head):
        sign = token["sign"]
        if sign == "(":
            levels.append([name])
        elif sign == ")" and levels:
            levels.pop()
        elif levels:
            levels[-1].append(token[0])
        name = token["name"] or ""
    return [(tokens[0], _missing_arguments(tokens)) for tokens in levels]


def _missing_arguments(tokens: list[str]) -> str:
    if tokens[0] != "k_of" or len(tokens) < 2 or not tokens[1].isdecimal():  # noqa: PLR2004
        return ""
    return ", round > 0" * min(max(0, int(tokens[1]) - tokens.count(",")), _MOST_FILLED)


def _rule_problem(text: str, vocabulary: Vocabulary) -> Problem | None:
    try:
        rule = parse_rule(text)
    except RuleSyntaxError as error:
        return _syntax_problem(text, error, vocabulary)
    missing = sorted(rule.signals - set(vocabulary.signals))
    if not missing:
        return None
    name = missing[0]
    match = re.search(rf"\b{re.escape(name)}\b", text)
    first, last = match.span() if match else (0, len(text))
    message = f"{name} has no values in this recording" + ("" if match else f", and the rule reads it: {rule}")
    return Problem(message=message, first=first, last=last, fixes=tuple(_fixes(text, first, vocabulary.names)))


def _syntax_problem(text: str, error: RuleSyntaxError, vocabulary: Vocabulary) -> Problem:
    """Explain why a text does not parse: it is unfinished, has an unknown word, or the parser gives another reason."""
    known = {*vocabulary.names, *NAMED_RULES, *OWN_RULES, *_CALLABLES}
    first, last = error.span or (0, len(text))
    message = str(error).replace(" (<unknown>, line 1)", "")
    ending, wrong = _WORD_BEFORE.search(text), _IDENTIFIER.match(text, first)
    more = _some_whole(text, vocabulary)
    if more:
        message = f"this is not finished; for example: {more}"
        first, last = (ending.start() if ending else len(text)), len(text)
    elif wrong is not None and wrong[0] not in known and not keyword.iskeyword(wrong[0]) and "is not a rule" in message:
        message = f"{wrong[0]} is neither a named rule nor a signal of this recording"
        last = wrong.end()
    return Problem(message=message, first=first, last=last, fixes=tuple(_fixes(text, first, known)))


def _some_whole(text: str, vocabulary: Vocabulary) -> str:
    """Return an example of a valid rule that continues a text; empty if no rule does."""
    if len(text) > LONGEST:
        return ""
    whole = next(ends_of(text), "")
    begun = None if whole or not _WORD_BEFORE.search(text) else next(_rule_offers(text, len(text), vocabulary), None)
    return whole if begun is None else next(ends_of(begun.applied(text)[0]), "")


def _fixes(text: str, first: int, known: Iterable[str]) -> Iterator[Offer]:
    """Yield replacements of the first wrong word by similar known names."""
    word = _IDENTIFIER.match(text, first)
    if word is None or word[0] in known:
        return
    for name in get_close_matches(word[0], sorted(known), n=3):
        yield Offer(label=name, insert=name, first=word.start(), last=word.end(), kind="signal")
