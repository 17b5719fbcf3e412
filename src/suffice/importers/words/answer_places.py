"""Possible positions of answers in replies: marks that models are usually told to write, and the text around gold answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import starmap
from typing import Any

from suffice.importers.words.names import PARSED_ANSWERS, words_in
from suffice.policy.numbers_in_text import is_number_alone
from suffice.policy.signals.position import AnswerPosition, PositionKind
from suffice.policy.signals.text import strip_thinking

_FORMS: tuple[PositionKind, ...] = ("boxed", "code-block", "letter", "last-number")
_PHRASES = ("Answer:", "answer is:", "answer is", "####")
_ANSWER_FIELD = re.compile(r"(?:\^\(\?s:\.\*\))?(?:<(?:final_)?answer>|\\\[\\\[ ## (?:final_)?answer ## )")
_LABEL = re.compile(r"^[\W_]{0,8}([A-Za-z][A-Za-z ]{0,30}?)[*_`]{0,3}:", re.MULTILINE)
_HEAD = re.compile(r"^\[\[ ## (\w+) ## \]\]$", re.MULTILINE)
"""The heads of fields in replies of DSPy."""

_IN_HEADS = r"\[\[ ## "
_ANYWHERE = "(?s:.*)"
_TO_THE_LAST = f"^{_ANYWHERE}"  # without the ^, a text without the mark takes quadratic time
_TAG = re.compile(r"<(\w{1,30})>(?s:.*?)</\1>")

_ANSWERS = frozenset((*PARSED_ANSWERS, "result", "output", "conclusion", "solution", "verdict", "value"))
FIRST_LETTER = AnswerPosition("regex", r"^\W*([A-Za-z])[.):\]]")
"""The letter of an option that a reply begins with, whatever other letters follow."""

_DIGITS = r"[-+]?[\d.,]*\d"
"""A number, without what follows it."""

_CONTINUED = 0.4
_MOST = 6
_AROUND = 12
"""Most characters around gold answers that an expression quotes."""


def marks_in(texts: Sequence[str]) -> list[AnswerPosition]:
    """Return marks of answers that at least half of the replies have: tags, field headers, boxes and labels.

    Gold answers are not used.
    """
    own = [strip_thinking(text)[1] for text in texts]
    labels = [
        AnswerPosition("marker", f"{name}:") for name in _often(map(_LABEL.findall, own)) if "answer" in name.lower()
    ]
    return [*_between_marks(own), AnswerPosition("boxed"), *(map(last_of, labels) if _are_transcripts(own) else labels)]


def is_mark(position: AnswerPosition) -> bool:
    """Return whether a position is a mark that a model writes to indicate its answer."""
    is_usual = position.kind in ("marker", "json", "boxed", "letter") or position == FIRST_LETTER
    return is_usual or position.text.startswith(("<", _TO_THE_LAST, _IN_HEADS))


def is_answer_field(position: AnswerPosition) -> bool:
    r"""Return whether a position is a tag or field header that is named like the answer.

    >>> tag, head, other = r"<answer>\s*((?s:.*?))\s*</answer>", r"\[\[ ## answer ## \]\]\s*(.+)", r"<value>\s*((?s:.*?))\s*</value>"
    >>> [is_answer_field(AnswerPosition("regex", text)) for text in (tag, head, other)]
    [True, True, False]
    """
    return _ANSWER_FIELD.match(position.text) is not None


def candidates(replies: Sequence[tuple[str, Sequence[str]]], *, has_golds: bool) -> list[AnswerPosition]:
    """Return positions of the answer that many replies may have, the most specific first.

    Each reply is given with its gold answers, which are used if `has_golds`.
    """
    texts = [strip_thinking(text)[1] for text, _ in replies]
    names = _often(map(_json_paths, texts))
    keys = [AnswerPosition("json", name) for name in sorted(names[:_MOST], key=lambda name: not _is_usual(name))]
    if has_golds:
        objects = _often(map(_json_objects, texts))[:_MOST]
        keys += [AnswerPosition("regex", rf'"{re.escape(name)}":\s*(\{{[^{{}}]*\}})') for name in objects]
    labels = [name for name in _often(map(_LABEL.findall, texts))[:_MOST] if has_golds or _is_usual(name)]
    markers = [AnswerPosition("marker", text) for text in (*(f"{name}:" for name in labels), *_PHRASES)]
    if 2 * sum(any(text.count(own.text) > 1 for own in markers) for text in texts) >= len(texts):
        markers = [*(markers if has_golds or not _are_transcripts(texts) else []), *map(last_of, markers)]
    markers += _between_marks(texts)
    boxed, code, letter, number = map(AnswerPosition, _FORMS)
    if not has_golds:
        return [*keys, *markers, boxed, code]
    golds = [own for _, own in replies]
    sides = [_around(text, own) for text, own in zip(texts, golds, strict=True)]
    before, after = (max(_often(side), key=len, default="") for side in zip(*sides, strict=True))
    if len(before) == _AROUND and " " in before.strip():
        before = before.partition(" ")[2]  # otherwise, it begins within a word
    expression = f"{re.escape(before)}(.+?){re.escape(after)}".replace("\\ ", " ")
    between = [AnswerPosition("regex", expression)] if before and after else []
    if before.strip() and all(is_number_alone(text) for own in golds for text in own):
        between.insert(0, AnswerPosition("regex", f"{re.escape(before)}({_DIGITS})".replace("\\ ", " ")))
    return [*keys, *markers, boxed, code, *between, letter, FIRST_LETTER, number]


def last_of(marker: AnswerPosition) -> AnswerPosition:
    r"""Return the position after the last occurrence of a marker.

    >>> last_of(AnswerPosition("marker", "Answer:")).locate("Answer: Rome\nAnswer: Oslo\n").answer
    'Oslo'
    >>> last_of(AnswerPosition("marker", "Answer:")).locate("Answer: Rome\nAnswer:").answer  # a reply that was cut has none
    """
    mark = re.escape(marker.text).replace("\\ ", " ")
    return AnswerPosition("regex", rf"{_TO_THE_LAST}{mark}(?!{_ANYWHERE}{mark})\s*(.+)")


def is_continued(text: str, earlier: str) -> bool:
    """Return whether a text begins with an earlier one and is longer, like a transcript of all rounds so far."""
    return len(text) > len(earlier) > 0 and text.startswith(earlier)


def _are_transcripts(texts: Sequence[str]) -> bool:
    """Return whether most texts begin with the text before them; the first text of a question never does."""
    return sum(starmap(is_continued, zip(texts[1:], texts, strict=False))) > _CONTINUED * len(texts)


def _often(found: Iterable[Collection[str]]) -> list[str]:
    own = [*found]
    counts = Counter(name for names in own for name in {*names})
    return [name for name, n in counts.most_common() if 2 * n >= len(own)]


def _is_usual(name: str) -> bool:
    return not _ANSWERS.isdisjoint(words_in(name))


def _between_marks(texts: Sequence[str]) -> list[AnswerPosition]:
    """Return the positions of the texts in tags and after field headers whose name means an answer."""
    tags, heads = (
        [name for name in _often(map(own.findall, texts))[:_MOST] if _is_usual(name)] for own in (_TAG, _HEAD)
    )
    several = {name for name in tags for text in texts if text.count(f"<{name}>") > 1}  # the last one counts
    lead = dict.fromkeys(several, _TO_THE_LAST)
    between = [AnswerPosition("regex", rf"{lead.get(name, '')}<{name}>\s*((?s:.*?))\s*</{name}>") for name in tags]
    return [*between, *(AnswerPosition("regex", rf"{_IN_HEADS}{name} ## \]\]\s*(.+)") for name in heads)]


def _json_paths(text: str) -> list[str]:
    """Return the paths of all texts, numbers and booleans in the first JSON object of a reply."""
    return [path for path, own in _values_in(text) if path and isinstance(own, str | int | float)]


def _json_objects(text: str) -> list[str]:
    """Return the keys of the innermost objects in the first JSON object of a reply."""
    objects = [(path, own) for path, own in _values_in(text) if path and isinstance(own, dict)]
    return [
        path.rpartition(".")[2] for path, own in objects if not any(isinstance(item, dict) for item in own.values())
    ]


def _values_in(text: str) -> list[tuple[str, Any]]:
    """Return all values in the first JSON object of a reply, with their paths; the object itself comes first."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text, max(text.find("{"), 0))
    except (ValueError, RecursionError):
        return []
    left = [("", value)]
    for path, own in left:
        if isinstance(own, dict):
            left += [(f"{path}.{key}".removeprefix("."), item) for key, item in own.items()]
    return left


def _around(text: str, golds: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the texts that end where a reply's last gold answer begins, and those that begin where it ends.

    They have all lengths up to a limit, and do not go beyond the line.
    """
    place, gold = max((text.rfind(gold), gold) for gold in golds)
    if place < 0:
        return [], []
    before = text[max(place - _AROUND, 0) : place].rpartition("\n")[2]
    after = text[place + len(gold) :][:_AROUND].partition("\n")[0]
    return [before[i:] for i in range(len(before))], [after[:i] for i in range(1, len(after) + 1)]
