"""Read answers that some replies put into a sentence ("It is Oslo."), while others consist of them ("Oslo")."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from suffice.policy.signals.position import AnswerPosition

_SHARE, _LEAST = 0.03, 3
"""The least share and number of replies with the same words before or after a gold answer."""

_MOST, _LONGEST = 4, 60
"""The most such words that an expression has, and their most characters."""

_BEFORE = re.compile(r"\S+ .*\S[ :]+|.*: *")
_AFTER = re.compile(r"[.!,;*\"')]+|.*\w+ \w+ \w+.*")
"""What makes a sentence of an answer; a unit or a country after one does not."""


def framed_position(pairs: Sequence[tuple[str, Sequence[str]]]) -> AnswerPosition | None:
    r"""Return an expression for answers with or without the usual words around them; None if replies have none.

    >>> pairs = [("Oslo", ["Oslo"]), ("It is Rome.", ["Rome"])] * 3
    >>> str(framed_position(pairs))
    'regex:^(?:It is )?((?s:.+?))(?:\\.)?$'

    Args:
        pairs: Replies with the gold answers of their questions.
    """
    before, after = Counter[str](), Counter[str]()
    for text, golds in pairs:
        place, gold = max((text.rfind(gold), gold) for gold in golds)
        if place >= 0 and "\n" not in text:
            before[text[:place]] += 1
            after[text[place + len(gold) :]] += 1
    least = max(_LEAST, _SHARE * len(pairs))
    heads, tails = (
        [text for text, n in own.most_common() if n >= least and len(text) <= _LONGEST and form.fullmatch(text)]
        for own, form in ((before, _BEFORE), (after, _AFTER))
    )
    if not (heads or tails):
        return None
    return AnswerPosition("regex", f"^{_optional(heads[:_MOST])}((?s:.+?)){_optional(tails[:_MOST])}$")


def _optional(texts: Iterable[str]) -> str:
    alternatives = "|".join(re.escape(text).replace("\\ ", " ") for text in sorted(texts, key=len, reverse=True))
    return f"(?:{alternatives})?" if alternatives else ""
