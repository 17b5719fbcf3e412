"""Boundaries in a chain of thought at which a trial answer may be asked: any token, paragraphs, or words such as "Wait"."""

from __future__ import annotations

import re
from functools import cache

from suffice.errors import DataError

TOKENS, PARAGRAPH, WORDS = "tokens", "paragraph", "words"
TURNS = ("wait", "hmm", "alternatively")
"""The words of the boundary `words`, at which DEER looks."""

_PARAGRAPH = re.compile(r"\n[^\S\n]{0,80}\n")


@cache
def boundary_pattern(boundary: str) -> re.Pattern[str] | None:
    """Return the regular expression that finds a boundary; None if every token is a boundary.

    Args:
        boundary: `tokens`, `paragraph`, `words`, or words of your own with commas between them.
    """
    if boundary == TOKENS:
        return None
    if boundary == PARAGRAPH:
        return _PARAGRAPH
    words = TURNS if boundary == WORDS else tuple(word.strip() for word in boundary.split(","))
    if not all(re.fullmatch(r"[^\W_]+(?:['\u2019 -][^\W_]+)*", word) for word in words):
        raise DataError(
            f"boundary is {boundary!r}; allowed are {TOKENS}, {PARAGRAPH}, {WORDS} ({', '.join(TURNS)}) or words of your own with commas "
            "between them, such as wait,but"
        )
    listed = "|".join(map(re.escape, words))
    return re.compile(rf"\b(?:{listed})\b", re.IGNORECASE)


def last_boundary(text: str, boundary: str, *, begins: bool) -> int | None:
    r"""Return the index of the last boundary in a stretch of a chain; None if the stretch has no boundary.

    White space in front of a boundary belongs to the boundary.

    >>> last_boundary("6 times 7.\n\nIt is 42.", "paragraph", begins=True)
    10
    >>> last_boundary("It is 42. Wait, is it?", "words", begins=True), last_boundary("Wait", "words", begins=True)
    (9, None)

    Args:
        text: The stretch of the chain since the last look for a boundary.
        boundary: See `boundary_pattern`.
        begins: True if the chain begins with this stretch; its start is then not a boundary.
    """
    pattern = boundary_pattern(boundary)
    if pattern is None:
        return len(text)
    places = [len(text[: match.start()].rstrip()) for match in pattern.finditer(text)]
    return next((place for place in reversed(places) if place or not begins), None)
