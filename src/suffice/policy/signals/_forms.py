r"""Find the answer where usual forms of replies have it: in \boxed, a block of code, the last number, the letter of an option."""

from __future__ import annotations

import re

from suffice.policy.signals._spans import Span

_BOXED = re.compile(r"\\f?boxed\s*+\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_STYLED = re.compile(r"\s*\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}\s*")
_NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d++)(?:\.\d++)?(?:[eE][-+]?\d{1,3})?(?:\s?/\s?\d++)?(?!\w|[.,]\d)"
)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\r\n`]*)$", re.MULTILINE)
_FURTHER = (
    r"(?:[)\]*_]{0,3}(?:[ \t]*+(?:[,;/&+\n]|\b(?:and|or)\b)){1,2}[ \t]*+[(\[*_]{0,3}[A-Z](?![\w'\u2019])){1,8}"
    r"(?=[)\]*_.!]*+[ \t]*+(?:$|[\n(]|(?:are|as|because|since)\b))"
)
"""The letters of further options after the first."""

_OPTIONS = rf"([A-Z](?:{_FURTHER})?)"
_SAID = re.compile(
    r"\b(?i:answers?|options?|choices?)\b[*_\s]{0,3}(?i:is|are|:)?[:\s*_]{0,4}(?i:options?|choices?)?\s?[(\[*_]{0,3}"
    rf"{_OPTIONS}(?![\w'\u2019])"
)
_BRACKETED = re.compile(rf"[(\[]{_OPTIONS}[)\]]")
_LEADING = re.compile(rf"[\s(\[*_]*{_OPTIONS}(?:[)\].:*_]|\s*$)")


def boxed(text: str, start: int) -> Span | None:
    r"""Return the span of what the last complete `\boxed{...}` contains, without a command for the font around it."""
    result = None
    opening = _BOXED.search(text, start)
    while opening is not None:
        end = _closing(text, opening.end())
        if end < 0:
            break
        result = opening.end(), end
        opening = _BOXED.search(text, end)
    styled = None if result is None else _STYLED.fullmatch(text, *result)
    return result if styled is None else styled.span(1)


def _closing(text: str, start: int) -> int:
    """Return the position of the brace that closes the one before `start`; -1 if none does."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return brace.start()
    return -1


def last_number(text: str, start: int) -> Span | None:
    """Return the span of the last number that is not a part of a word: -1,200.50, 3/4 or 1e-3."""
    result = None
    for number in _NUMBER.finditer(text, start):
        result = number.span()
    return result


def letter(text: str, start: int) -> Span | None:
    """Return the span of the letter of an option: the last one after "answer" or "option", else in brackets, else the first.

    If several options are named there, "A and C", the span has all of them.
    """
    for pattern in (_SAID, _BRACKETED):
        spans = [match.span(1) for match in pattern.finditer(text, start)]
        if spans:
            return spans[-1]
    first = _LEADING.match(text, start)
    return first.span(1) if first else None


def code_block(text: str, start: int) -> Span | None:
    """Return the span of the code in the last fenced block that is complete."""
    result: Span | None = None
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text, start):
        if opening is None:
            opening = fence
        elif fence[1].startswith(opening[1]) and not fence[2].strip():
            result, opening = (opening.end(), fence.start()), None
    return result
