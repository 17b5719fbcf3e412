"""The position of the answer in the text and tokens of a reply.

TASR reads its margin at the first token of the answer, so the position of the answer is part of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from suffice.errors import DataError
from suffice.policy.rounds import Token
from suffice.policy.signals._spans import after_marker, answer_line, json_value
from suffice.policy.signals.alignment import tokens_of_span
from suffice.policy.signals.text import strip_thinking

PositionKind = Literal["marker", "json", "tool", "start", "whole", "callable"]
"""How the answer is marked in a reply."""

_POSITION_KINDS = get_args(PositionKind)
_DEFAULT_NAMES = {
    "marker": "Answer:",
    "start": "Answer:",
    "json": "answer",
    "tool": "answer",
    "whole": "",
    "callable": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """An answer found in a reply.

    Attributes:
        answer: The answer; None if there is none.
        answer_tokens: The answer's tokens; the first one contains the answer's first character, and may begin before it
            (`":Paris"`).  None if there are no tokens, or if they cannot be determined with certainty.
        start: Index of the answer's first character in the text; -1 if there is none.
        end: Index after the answer's last character; -1 if there is none.  `text[start:end]` is the answer, in JSON its
            literal.
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
        - `marker`: after the first `text` that follows any thinking block, without white space and markdown, to the end
          of the line or to a stated confidence. If the exact marker is missing, it is searched in any case and with
          markdown before its colon (`**answer**:`).
        - `start`: at the start of the generation, because the prompt ends with the marker `text`; if the model
          repeats the marker, after it.
        - `json`: the value of the first key named `text` in a JSON reply, regardless of surrounding text.
        - `tool`: the same in the arguments of a tool call; `locate` then gets the arguments string.
        - `whole`: all of it after any thinking block, without white space around it: a draft, several paragraphs.
        - `callable`: `span(text)` returns the character span `(start, end)`, or None.  Cannot be saved.

    Attributes:
        kind: One of the above.
        text: The marker, or the name of the field; default: `Answer:` or `answer`, by kind.
        span: The function of kind `callable`; its exceptions are not caught.
    """

    kind: PositionKind = "marker"
    text: str = ""
    span: Callable[[str], tuple[int, int] | None] | None = None

    def __post_init__(self) -> None:
        if self.kind not in _POSITION_KINDS:
            raise DataError(f"unknown kind of answer position {self.kind!r}; allowed: {', '.join(_POSITION_KINDS)}")
        if (self.kind == "callable") != (self.span is not None):
            raise DataError(
                f"answer position {self.kind!r}: kind 'callable' needs a span function, and other kinds must not have one"
            )
        if self.text == "":
            object.__setattr__(self, "text", _DEFAULT_NAMES[self.kind])
        elif self.kind == "whole":
            raise DataError(f"answer position 'whole' has no marker, got {self.text!r}: the whole text is the answer")
        elif not isinstance(self.text, str) or not self.text.strip():
            raise DataError(f"answer position {self.kind!r}: text must be a marker or a field name, not {self.text!r}")

    def locate(self, text: str, tokens: Sequence[Token] | None = None) -> Located:
        r"""Return the answer of a reply with its tokens.

        Tokens are aligned with the text on bytes, so a token may be a part of a character, the marker may be split
        over tokens, and the answer may be glued to the marker.  It understands plain text, given bytes, byte-level
        vocabularies, SentencePiece, byte fallback (`<0xE2>`, `bytes:\xe2`) and replacement characters.

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
            if self.kind == "marker":
                start = after_marker(text, name, start)
            if self.kind == "whole":
                span = _bare_span(text, start, len(text))
            else:
                span = answer_line(text, start, name) if start >= 0 else None
        return None if span is None else (text[span[0] : span[1]], *span)

    def to_dict(self) -> dict[str, Any]:
        """Return the position as JSON-ready values.

        >>> AnswerPosition().to_dict()
        {'kind': 'marker', 'text': 'Answer:'}

        Raises:
            DataError: The kind is `callable`: code is not data.
        """
        if self.kind == "callable":
            raise DataError(
                f"answer position with the function {self.span!r} cannot be saved; use marker, json, tool or start, "
                "or pass the function again after loading"
            )
        return {"kind": self.kind, "text": self.text}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AnswerPosition:
        """Build the position from the values of `to_dict`.

        Raises:
            DataError: A field is missing, unknown or of the wrong type.
        """
        if not isinstance(data, Mapping) or set(data) != {"kind", "text"}:
            raise DataError(f"an answer position has exactly the fields kind and text, not {data!r}")
        kind, text = data["kind"], data["text"]
        is_text = isinstance(kind, str) and isinstance(text, str) and bool(text) != (kind == "whole")
        if kind == "callable" or not is_text:
            raise DataError(f"an answer position is text of kind marker, json, tool, start or whole, not {data!r}")
        return cls(cast("PositionKind", kind), text)


def _checked_span(span: tuple[int, int] | None, text: str) -> tuple[int, int] | None:
    """Return a user's span without white space at its ends; None if it is empty or outside the text."""
    if span is None or not 0 <= span[0] < span[1] <= len(text):
        return None
    return _bare_span(text, *span)


def _bare_span(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return a span without white space at its ends; None if nothing is left."""
    part = text[start:end]
    bare = part.strip()
    begin = start + len(part) - len(part.lstrip())
    return (begin, begin + len(bare)) if bare else None
