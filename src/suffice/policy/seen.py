"""Hashes of the questions on which a policy or a part of it was fitted, chosen or certified.

They serve to recognise these questions later, so that results on them are marked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import SchemaError
from suffice.policy.metrics import normalize_answer

_SEEN_KEYS = ("tune_ids", "tune_texts")


@lru_cache(maxsize=4096)  # splits, seen questions and draws hash the same ids
def id_hash(question_id: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a question id, as stored in policies and splits.

    >>> id_hash("5a77e70f")
    '2dd53066e8421fa3'
    """
    return hashlib.sha256(question_id.encode()).hexdigest()[:16]


def text_hash(question: str) -> str:
    """Return the hash of a question's normalised text; it recognises the question even if the question's id has changed.

    >>> text_hash("Who wrote The Tempest?") == text_hash("who wrote  tempest")
    True
    """
    return id_hash(normalize_answer(question))


def one_name_per_text(names: Sequence[str], texts: Sequence[str | None] | None) -> list[str]:
    """Return one name for each question: the smallest of the names of all questions with the same text.

    Names are joined transitively: if two clusters share a text, all of their questions get one name.

    >>> one_name_per_text(["q2", "q1", "q3"], ["Who wrote The Tempest?", "who wrote tempest", None])
    ['q1', 'q1', 'q3']
    >>> one_name_per_text(["b", "b", "a"], ["Who sang it?", "Who wrote The Tempest?", "who wrote tempest"])
    ['a', 'a', 'a']

    Args:
        names: Names of the questions, or of their clusters.
        texts: Texts of the questions, None where missing; None = all are unknown.
    """
    if texts is None:
        return list(names)
    smaller: dict[str, str] = {}  # maps a name to another one that it is linked to

    def smallest(name: str) -> str:
        while name in smaller:
            other = smaller[name]
            smaller[name] = smaller.get(other, other)  # shorten the path for later look-ups
            name = other
        return name

    name_of_text: dict[str, str] = {}
    for name, text in zip(names, texts, strict=True):
        key = normalize_answer(text or "")
        if key:
            low, high = sorted((smallest(name), smallest(name_of_text.get(key, name))))
            if low != high:
                smaller[high] = low
            name_of_text[key] = low
    return [smallest(name) for name in names]


@dataclass(frozen=True, slots=True)
class Seen:
    """The questions on which a policy, or a part of it such as a calibrator, was fitted, chosen or certified.

    >>> seen = Seen.of(["q1"], ["Who wrote The Tempest?"])
    >>> seen.among(["q1", "q2", "q3"], ["Who sang it?", "who wrote the tempest", None]).tolist()
    [True, True, False]

    Attributes:
        texts: Hashes of the questions' normalised texts; empty if they were not recorded.
    """

    ids: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, ids: Iterable[str], texts: Iterable[str | None] = ()) -> Seen:
        """Build the hashes from ids and texts; texts that are missing or normalise to nothing are left out."""
        named = {text for text in texts if text is not None and normalize_answer(text)}
        return cls(frozenset(map(id_hash, ids)), frozenset(map(text_hash, named)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> Seen | None:
        """Read the hashes that `to_dict` wrote; return None if `data` is None or has no key for hashes.

        Keys of `data` that `to_dict` does not write are ignored.

        Raises:
            SchemaError: The hashes are not lists of text.
        """
        found = [(data or {}).get(key) for key in _SEEN_KEYS]
        if all(part is None for part in found):
            return None
        for key, part in zip(_SEEN_KEYS, found, strict=True):
            if part is not None and not (
                isinstance(part, list | tuple) and all(isinstance(item, str) for item in part)
            ):
                raise SchemaError(f"{key!r} must be a list of hashes, not {part!r:.80}")
        return cls(*(frozenset(part or ()) for part in found))

    def to_dict(self) -> dict[str, list[str]]:
        """Return JSON-ready values, sorted."""
        return {key: sorted(part) for key, part in zip(_SEEN_KEYS, (self.ids, self.texts), strict=True)}

    def __or__(self, other: Seen) -> Seen:
        return Seen(self.ids | other.ids, self.texts | other.texts)

    def __bool__(self) -> bool:
        return bool(self.ids or self.texts)

    def among(self, ids: Sequence[str], texts: Sequence[str | None] | None = None) -> npt.NDArray[np.bool_]:
        """Return a mask of the given questions whose id or text is among the hashes of this object, shape ``(n,)``.

        Args:
            ids: The questions' ids.
            texts: The questions' texts, None where missing; None = compare ids only.
        """
        by_id = np.array([bool(self.ids) and id_hash(name) in self.ids for name in ids], dtype=np.bool_)
        if texts is None or not self.texts:
            return by_id
        by_text = (text is not None and text_hash(text) in self.texts for text in texts)
        return by_id | np.fromiter(by_text, dtype=np.bool_, count=len(ids))
