"""Texts in place of an answer that are not answers: grades, verdicts, and error messages of failed calls."""

from __future__ import annotations

import json
import re
from contextlib import suppress

_WORD = r"(?:in)?correct|(?:un)?acceptable|pass(?:ed)?|fail(?:ed)?|accept(?:ed)?|reject(?:ed)?|approved?|good|bad|right|wrong"
_NUMBER = r"\d+(?:\.\d+)?"
_OF_ALL = r"(?: ?(?:/|out of) ?\d+)"
_HEADED = rf"(?:overall |final |my )?(?:grade|score|rating|verdict|judge?ment|evaluation|assessment) ?(?:is |[:=-])\W*(?:{_WORD}|yes|no|true|false|[a-f][+-]?|{_NUMBER}){_OF_ALL}?"
_ALONE = re.compile(
    rf"\W*(?:{_HEADED}|(?:it|this|(?:the|your) (?:answer|response)) is (?:{_WORD})|(?:not )?(?:{_WORD})|{_NUMBER}{_OF_ALL})\W*",
    re.IGNORECASE,
)
_FIRST = re.compile(rf"\W*(?:(?i:{_HEADED})|(?:IN)?CORRECT|PASS|FAIL|(?:ACCEPT|REJECT)(?:ED)?|APPROVED?)\b *[:.,;(\n-]")
_ERROR = re.compile(
    r"[\[(<*{#\s]*(?:(?:api |http |server |model )?error\b\W*[:\])\-\d]|exception:|traceback \(most recent|(?:the )?request (?:timed out|failed)"
    r"|rate limit(?:ed| exceeded| reached)|time(?:d )?out(?: error|:|$)|[\w.]*(?:Error|Exception): )",
    re.IGNORECASE,
)
_FIELDS = frozenset({"score", "grade", "rating", "verdict", "is_correct", "correct", "passed", "judgment", "judgement"})
_ANSWERS = frozenset({"answer", "final_answer", "response", "output", "prediction"})
_LONG = 60
_TOP = 10
"""The highest grade that is recognised as a number alone."""


def is_grade(text: str) -> bool:
    """Return whether a text is a grade or a verdict: alone, followed by reasons, or as JSON with a score.

    >>> [is_grade(text) for text in ("CORRECT", "Grade: 4/5", "The answer is wrong.", "INCORRECT: see above", '{"score": 2}')]
    [True, True, True, True, True]
    >>> [is_grade(text) for text in ("Oslo", "4", "yes", "Correct answer: Oslo", "Right. It is Oslo.", '{"score": 2, "answer": "Oslo"}')]
    [False, False, False, False, False, False]
    """
    text = text.strip().removeprefix("```json").removesuffix("```").strip()
    if text[:1] == "{" and text[-1:] == "}":
        with suppress(ValueError, RecursionError):
            fields = {str(name).lower() for name in json.loads(text)}
            return not fields.isdisjoint(_FIELDS) and fields.isdisjoint(_ANSWERS)
    is_alone = len(text) <= _LONG and _ALONE.fullmatch(text) is not None
    return is_alone or _FIRST.match(text) is not None


def may_be_grade(text: str) -> bool:
    """Return whether a text is a grade, or only a number that may be one.

    >>> [may_be_grade(text) for text in ("4", "0.5", "10", "CORRECT", "1492", "-1")]
    [True, True, True, True, False, False]
    """
    is_low = re.fullmatch(_NUMBER, text.strip()) is not None and float(text) <= _TOP
    return is_low or is_grade(text)


def is_error(text: str) -> bool:
    """Return whether a text is the error message of a failed call.

    >>> [is_error(text) for text in ("[ERROR] Request timed out.", "openai.RateLimitError: 429", "Error: 500", "Request failed")]
    [True, True, True, True]
    >>> [is_error(text) for text in ("Oslo", "Errors in the log", "error handling", "The request was sent")]
    [False, False, False, False]
    """
    return _ERROR.match(text) is not None
