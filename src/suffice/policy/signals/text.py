"""The parts of a reply besides the answer: thinking blocks and the stated confidence."""

from __future__ import annotations

import re

_OPEN = re.compile(r"<(?:think|thinking|thought)>|\[THINK\]|<\|channel>", re.IGNORECASE)
_END_OF_THINKING = re.compile(r"</(?:think|thinking|thought)>|\[/THINK\]|<channel\|>", re.IGNORECASE)
_CHANNEL = "<|channel|>"
_MESSAGE = "<|message|>"

# Every repeat is bounded: a reply may be a megabyte of spaces.
_NAME = r"(?<![\w-])confidence(?:\s(?:level|score|rating))?(?:\s?\([^()\n]{0,30}\))?[*_`\"'\s]{0,4}"
CONFIDENCE_LABEL = re.compile(rf"{_NAME}(?:[:=]|[-\u2013\u2014]?[*_`\s]{{1,4}}\d(?!\w))", re.IGNORECASE)
"""Where a stated confidence begins: the label with its separator, or the label right before a number."""

_STATED_CONFIDENCE = re.compile(
    rf"{_NAME}(?:[:=]|[-\u2013\u2014]|\bis\b)?[*_`\"'\s(<\[]{{0,8}}"
    r"(?P<number>[-+]?[0-9]+(?:[.,][0-9]+)?)"
    r"(?P<rest>\s?%|\s?(?:/|out\sof|of)\s?[0-9]+|[-\u2013\u2014][0-9])?",
    re.IGNORECASE,
)
_CONFIDENCE_MARKS = frozenset("12345")


def strip_thinking(text: str) -> tuple[int, str]:
    """Return the position at which the visible part of a generated text starts, and this part.

    It knows the tags `<think>`, `<thinking>` and `<thought>` (even if the opening tag was in the prompt), `[THINK]`,
    and channels (`<|channel|>final<|message|>`, `<|channel>thought ... <channel|>`).  A text that ends while thinking
    has no visible part: `(len(text), "")`.

    >>> strip_thinking("<think>Answer: no</think>Answer: yes")
    (25, 'Answer: yes')
    >>> strip_thinking("<think>Answer: no")
    (17, '')
    """
    start = 0
    if _CHANNEL in text:
        final = text.rfind(f"{_CHANNEL}final")
        message = text.find(_MESSAGE, final) if final >= 0 else -1
        start = message + len(_MESSAGE) if message >= 0 else len(text)
    for match in _END_OF_THINKING.finditer(text, start):
        start = match.end()
    if _OPEN.search(text, start):
        start = len(text)
    return start, text[start:]


def split_thinking(text: str) -> tuple[str, str | None]:
    """Split a text into the thinking, without tags, and the reply; the reply is None if the text ends while thinking.

    >>> split_thinking("<think>6 times 7</think>42"), split_thinking("<think>6 times"), split_thinking("42")
    (('6 times 7', '42'), ('6 times', None), ('', '42'))
    """
    start, visible = strip_thinking(text)
    if not start:
        return "", text
    begins, ends = _OPEN.search(text), _END_OF_THINKING.search(text)
    thinking = text[begins.end() if begins else 0 : ends.start() if ends else len(text)]
    return thinking, visible if ends else None


def parse_confidence(text: str) -> float:
    r"""Return the stated confidence of a reply, an integer in 1..5; NaN if it states none on that scale.

    It is the number after the first `Confidence` outside thinking blocks, in prose, markdown or JSON.  Other scales are
    not converted: `90%`, `8/10`, `0.9` and also `1.0` (the top of a scale up to 1) give NaN. So does `<1-5>`, which a
    reply may repeat from the prompt.  Source: TASR, section 3.2 (verbalised confidence).

    >>> parse_confidence("Answer: Paris\n**Confidence:** 4/5")
    4.0
    >>> parse_confidence('{"answer": "Paris", "confidence": 5}'), parse_confidence("Confidence: 90%")
    (5.0, nan)
    """
    stated = _STATED_CONFIDENCE.search(strip_thinking(text)[1])
    if stated is None or stated["number"] not in _CONFIDENCE_MARKS:
        return float("nan")
    rest = (stated["rest"] or "").strip()
    if rest and not (rest[0] in "/oO" and re.sub(r"\D", "", rest) == "5"):
        return float("nan")
    return float(stated["number"])
