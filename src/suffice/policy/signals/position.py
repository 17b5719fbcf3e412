"""The position of the answer in the text and tokens of a reply, and the forms in which answers are written.

TASR reads the margin at the first token of the answer, so the position of the answer is part of a policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from suffice.errors import DataError
from suffice.policy.normalizers import NORMALIZERS, with_decimal_point
from suffice.policy.plain_forms import without_currency
from suffice.policy.rounds import Token
from suffice.policy.signals.text import Span, after_marker, answer_line, json_value, strip_thinking, tokens_of_span

THOUSANDS, DECIMAL_COMMA = "thousands", "decimal-comma"
DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
NO_CURRENCY = "no-currency"
"""Names of forms: the meaning of a comma, what is first in a date, or that the currencies of amounts are left out."""

_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:[ \u00a0\u2009\u202f'\u2019]\d{3})+(?!\w)")


def without_separators(text: str) -> str:
    """Return a text without the commas, blanks and apostrophes that separate the thousands of its numbers.

    >>> without_separators("CHF 1'234.50"), without_separators("1,234 or 12 345")
    ('CHF 1234.50', '1234 or 12345')
    """
    return _THOUSANDS.sub(lambda found: re.sub(r"\D", "", found[0]), text).replace(",", "")


def _with_point(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d)", "", with_decimal_point(text))


def _as_date(normalizer: str) -> Callable[[str], str]:
    key_of = NORMALIZERS[normalizer]
    return lambda text: key_of(text) or text


ANSWER_FORMS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        THOUSANDS: without_separators,
        DECIMAL_COMMA: _with_point,
        DAY_FIRST: _as_date("date_day_first"),
        MONTH_FIRST: _as_date("date"),
        NO_CURRENCY: without_currency,
    }
)
"""For each form, the function that returns an answer as it is compared and returned; another text stays as it is.

>>> ANSWER_FORMS["decimal-comma"]("1.234,50 EUR"), ANSWER_FORMS["day-first"]("3/4/2021"), ANSWER_FORMS["day-first"]("Oslo")
('1234.50 EUR', '2021-04-03', 'Oslo')
"""


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
    r"""Return the span of the content of the last complete `\boxed{...}`, without a font command around the content."""
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
    """Return the position of the brace that closes the brace before `start`; -1 if that brace is never closed."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return brace.start()
    return -1


def last_number(text: str, start: int) -> Span | None:
    """Return the span of the last number that is not a part of a word, such as -1,200.50, 3/4 or 1e-3."""
    result = None
    for number in _NUMBER.finditer(text, start):
        result = number.span()
    return result


def letter(text: str, start: int) -> Span | None:
    """Return the span of the letter of the option that a reply chooses.

    It is the last letter after "answer" or "option", else the last letter in brackets, else a letter at the beginning.
    If the reply names several options at this place, as in "A and C", the span covers all of them.
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


PositionKind = Literal[
    "marker", "json", "tool", "start", "whole", "regex", "boxed", "last-number", "letter", "code-block", "callable"
]
"""How the answer is marked in a reply."""

_POSITION_KINDS = get_args(PositionKind)
_DEFAULT_NAMES = {"marker": "Answer:", "start": "Answer:", "json": "answer", "tool": "answer"}
_NAMED = frozenset({*_DEFAULT_NAMES, "regex"})
"""Kinds that have a text."""

_FORMS: Mapping[str, Callable[[str, int], Span | None]] = {
    "boxed": boxed,
    "last-number": last_number,
    "letter": letter,
    "code-block": code_block,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """An answer found in a reply.

    Attributes:
        answer: The answer, converted from `AnswerPosition.form`; None if the reply has no answer at the position.
        answer_tokens: The answer's tokens; the first one contains the answer's first character, and may begin before it
            (`":Paris"`).  None if there are no tokens, or if the tokens of the answer cannot be determined with certainty.
        start: Index of the answer's first character in the text; -1 without an answer.
        end: Index after the answer's last character; -1 without an answer. `text[start:end]` is the answer as written;
            in JSON, it is the literal of the answer.
    """

    answer: str | None = None
    answer_tokens: tuple[Token, ...] | None = None
    start: int = -1
    end: int = -1


@dataclass(frozen=True, slots=True)
class AnswerPosition:
    r"""The position of the answer in a reply.  Only generated text counts, not the prompt.

    >>> AnswerPosition().locate("**Answer:** Paris\nConfidence: 4").answer
    'Paris'
    >>> AnswerPosition("json").locate('{"answer": "Paris", "confidence": 4}').answer
    'Paris'

    Kinds:
        - `marker`: after the first `text` that follows any thinking block, up to the end of the line or to a stated
          confidence, without white space and markdown. If the exact marker is missing, case is ignored and markdown
          before its colon is allowed (`**answer**:`).
        - `start`: at the start of the generation, because the prompt ends with the marker `text`. If the model repeats
          the marker, the answer begins after it.
        - `json`: the value of the first key named `text` in a JSON reply, regardless of surrounding text. If there is no such
          key and `text` has points, `text` is read as a path: `result.city` is the `city` in the first `result`.
        - `tool`: like `json`, but in the arguments of a tool call; pass `locate` the string of arguments.
        - `whole`: the whole reply after any thinking block, without surrounding white space, such as a draft of several
          paragraphs.
        - `regex`: the first match of the regular expression `text` after any thinking block. If the expression has
          groups, the answer is the first group that took part in the match.
        - `boxed`: the content of the last `\boxed{...}`.
        - `last-number`: the last number, with its sign, thousands separators, decimals or denominator.
        - `letter`: the letter of an option: "the answer is (B)", "(B)", "B) Paris", "B"; all of "A and C".
        - `code-block`: the code in the last complete fenced block.
        - `callable`: `span(text)` returns the character span `(start, end)`, or None.  Cannot be saved.

    Attributes:
        kind: One of the kinds above.
        text: The marker, the name of the field, or the regular expression; default: `Answer:` or `answer`, by kind.
        span: The function of kind `callable`; its exceptions are not caught.
        form: The form in which answers are written: `thousands` (with separators), `decimal-comma`, `day-first` or
            `month-first` (dates), `no-currency` (amounts, whose currency is removed); "" = the normalizer reads answers
            as they are. Equal numbers or dates become the same answer: with `decimal-comma`, 1.234,50 and 1234,50 are
            1234.50.
    """

    kind: PositionKind = "marker"
    text: str = ""
    span: Callable[[str], tuple[int, int] | None] | None = None
    form: str = ""

    def __post_init__(self) -> None:
        if self.kind not in _POSITION_KINDS:
            raise DataError(f"unknown kind of answer position {self.kind!r}; allowed: {', '.join(_POSITION_KINDS)}")
        if (self.kind == "callable") != (self.span is not None):
            raise DataError(
                f"answer position {self.kind!r}: kind 'callable' needs a span function, and other kinds must not have one"
            )
        if self.form and self.form not in ANSWER_FORMS:
            raise DataError(f"unknown form of answers {self.form!r}; allowed: {', '.join(ANSWER_FORMS)}")
        if self.text == "" and self.kind != "regex":
            object.__setattr__(self, "text", _DEFAULT_NAMES.get(self.kind, ""))
        elif self.kind not in _NAMED:
            raise DataError(f"answer position {self.kind!r} has no marker, got {self.text!r}: the kind says all")
        elif not isinstance(self.text, str) or not self.text.strip():
            raise DataError(
                f"answer position {self.kind!r}: text must be a marker, a field name or a regular expression, not {self.text!r}"
            )
        if self.kind == "regex":
            try:
                re.compile(self.text)
            except re.error as error:
                raise DataError(
                    f"answer position 'regex': {self.text!r} is not a regular expression: {error}"
                ) from error

    @classmethod
    def parse(cls, words: str) -> AnswerPosition:
        """Parse the value of an option: an optional form, the kind, and the text if there is one, separated by colons.

        >>> AnswerPosition.parse("json:city").text, str(AnswerPosition.parse("decimal-comma:last-number"))
        ('city', 'decimal-comma:last-number')

        Raises:
            DataError: The kind is unknown, or the text does not fit it.
        """
        form, _, rest = words.partition(":")
        if form in ANSWER_FORMS:
            return replace(cls.parse(rest), form=form)
        kind, _, text = words.partition(":")
        if kind not in _POSITION_KINDS[:-1]:
            raise DataError(f"{words!r}: the kinds of answer position are {', '.join(_POSITION_KINDS[:-1])}")
        return cls(cast("PositionKind", kind), text)

    def __str__(self) -> str:
        return ":".join(filter(None, [self.form, self.kind, self.text]))

    @property
    def is_default(self) -> bool:
        """True if this is the default position, which may not be a deliberate choice."""
        return replace(self, form="") == AnswerPosition()

    @property
    def whole(self) -> AnswerPosition:
        """The position of the whole reply, with the form of answers of this position."""
        return AnswerPosition("whole", form=self.form)

    def locate(self, text: str, tokens: Sequence[Token] | None = None) -> Located:
        r"""Return the answer of a reply with its tokens.

        Tokens are aligned with the bytes of the text, so a token may be a part of a character or contain both marker
        and answer, and the marker may be split over tokens. Tokens may be plain text, given bytes, or text of
        byte-level vocabularies, of SentencePiece, of byte fallback (`<0xE2>`, `bytes:\xe2`) or with replacement
        characters.

        >>> tokens = [Token("An"), Token("swer"), Token(": "), Token("Par"), Token("is"), Token("<|eot_id|>")]
        >>> [token.text for token in AnswerPosition().locate("Answer: Paris", tokens).answer_tokens]
        ['Par', 'is']

        Args:
            text: The generated text, unchanged.
            tokens: Its tokens in order; None if the endpoint returned none.
        """
        match = self._find(text)
        if match is None:
            return Located()
        answer, start, end = match
        answer = ANSWER_FORMS[self.form](answer) if self.form else answer
        return Located(
            answer=answer,
            answer_tokens=tokens_of_span(text, tokens, start, end) if tokens else None,
            start=start,
            end=end,
        )

    def _find(self, text: str) -> tuple[str, int, int] | None:
        name = self.text
        if self.span is not None:
            span = _checked_span(self.span(text), text)
        elif self.kind == "tool":
            return json_value(text, name, 0)
        else:
            start = strip_thinking(text)[0]
            if self.kind == "json":
                return json_value(text, name, start)
            span = self._span_from(text, start)
        return None if span is None else (text[span[0] : span[1]], *span)

    def _span_from(self, text: str, start: int) -> Span | None:
        if self.kind in _FORMS:
            return _checked_span(_FORMS[self.kind](text, start), text)
        if self.kind == "regex":
            match = re.search(self.text, text[start:])  # a slice, so that ^ matches at `start`
            if match is None:
                return None
            group = next((i for i, said in enumerate(match.groups(), 1) if said is not None), 0)
            return _checked_span((start + match.start(group), start + match.end(group)), text)
        if self.kind == "whole":
            return _bare_span(text, start, len(text))
        start = after_marker(text, self.text, start) if self.kind == "marker" else start
        return answer_line(text, start, self.text) if start >= 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return the position as JSON-ready values.

        >>> AnswerPosition().to_dict()
        {'kind': 'marker', 'text': 'Answer:'}

        Raises:
            DataError: The kind is `callable`, and code cannot be saved as data.
        """
        if self.kind == "callable":
            raise DataError(
                f"answer position with the function {self.span!r} cannot be saved; use another kind, "
                "or pass the function again after loading"
            )
        return {"kind": self.kind, "text": self.text, **({"form": self.form} if self.form else {})}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AnswerPosition:
        """Build the position from the values of `to_dict`.

        Raises:
            DataError: A field is missing, unknown or of the wrong type.
        """
        if not isinstance(data, Mapping) or {*data} | {"form"} != {"kind", "text", "form"}:
            raise DataError(f"an answer position has the fields kind and text, and perhaps a form, not {data!r}")
        kind, text, form = data["kind"], data["text"], data.get("form", "")
        is_text = isinstance(kind, str) and isinstance(text, str) and bool(text) == (kind in _NAMED)
        if kind == "callable" or not is_text:
            raise DataError(f"an answer position is text of kind {', '.join(_POSITION_KINDS[:-1])}, not {data!r}")
        if not isinstance(form, str):
            raise DataError(f"the form of an answer position is one of {', '.join(ANSWER_FORMS)}, not {form!r}")
        return cls(cast("PositionKind", kind), text, form=form)


def _checked_span(span: tuple[int, int] | None, text: str) -> tuple[int, int] | None:
    """Return a span without white space at its ends; None if it is empty or outside the text."""
    if span is None or not 0 <= span[0] < span[1] <= len(text):
        return None
    return _bare_span(text, *span)


def _bare_span(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return a span without white space at its ends; None if nothing is left."""
    part = text[start:end]
    bare = part.strip()
    begin = start + len(part) - len(part.lstrip())
    return (begin, begin + len(bare)) if bare else None
