r"""Preference data on disk: JSON lines in the form that FlagEmbedding and sentence-transformers read.

One question per line::

    {"query": "Who ...?", "pos": ["title\ntext", ...], "neg": ["title\ntext", ...], "prompt": "Given a query ..."}

`pos` contains passages that raise the model's confidence and `neg` passages that lower it, largest effect first.  The
effects are stored in a card beside the file (``FILE.card.json``), because trainers would read further fields as text columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.common.files import json_lines
from suffice.errors import DataError

PROMPT = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)
"""The instruction for FlagEmbedding's rerankers that are language models; cross-encoders ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """The passages that a model prefers for one question, and the passages it rejects.

    Attributes:
        query: The question.
        pos: Passages that raise the model's confidence, at least one; without repeats, and none of them in `neg`.
        neg: Passages that lower it, at least one.
        prompt: Instruction for rerankers that are language models.
    """

    query: str
    pos: tuple[str, ...]
    neg: tuple[str, ...]
    prompt: str = PROMPT


def card_path(path: Path) -> Path:
    """Return the path of the card of a preference file.

    >>> card_path(Path("nq.jsonl")).name
    'nq.jsonl.card.json'
    """
    return path.with_name(f"{path.name}.card.json")


def preference_lines(preferences: Sequence[Preference]) -> str:
    """Return the text of a preference file.

    >>> print(preference_lines([Preference(query="?", pos=("a",), neg=("b",), prompt="p")]), end="")
    {"query": "?", "pos": ["a"], "neg": ["b"], "prompt": "p"}
    """
    lines = [
        {"query": item.query, "pos": list(item.pos), "neg": list(item.neg), "prompt": item.prompt}
        for item in preferences
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def read_preferences(path: str | Path, *, at_least: int = 1) -> list[Preference]:
    """Return the questions of a preference file; other programs may have written the file.

    Args:
        path: JSON lines; blank lines are skipped, unknown fields are ignored.
        at_least: Smallest number of questions allowed.

    Raises:
        DataError: The file is missing or not UTF-8, a line is not a valid record (the message names it), or there
            are too few questions.
    """
    path = Path(path)
    preferences = [
        _preference(record, where) for where, record in json_lines(path, "an object with query, pos and neg")
    ]
    if len(preferences) < at_least:
        raise DataError(f"{path}: {len(preferences)} questions; at least {at_least} are needed: score more questions")
    return preferences


def _preference(record: Mapping[str, Any], where: str) -> Preference:
    query, prompt = record.get("query"), record.get("prompt", PROMPT)
    if not isinstance(query, str) or not query.strip():
        raise DataError(f"{where}: query is {query!r:.80}; expected a non-empty string")
    if not isinstance(prompt, str):
        raise DataError(f"{where}: prompt is {prompt!r:.80}; expected a string, or leave the field out")
    pos, neg = _passage_texts(record, "pos", where), _passage_texts(record, "neg", where)
    both = sorted(set(pos) & set(neg))
    if both:
        raise DataError(f"{where}: {both[0]!r:.80} appears in both pos and neg; put each passage into one of them")
    return Preference(query=query, pos=pos, neg=neg, prompt=prompt)


def _passage_texts(record: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = record.get(key)
    if not isinstance(values, list) or not all(isinstance(text, str) and text.strip() for text in values):
        raise DataError(f"{where}: {key} is {values!r:.80}; expected a list of non-empty strings")
    if not values:
        raise DataError(
            f"{where}: {key} is empty; a question needs passages on both sides: add one or leave the question out"
        )
    return tuple(dict.fromkeys(values))
