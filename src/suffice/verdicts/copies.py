"""Find copies of questions that are not declared as such: nearly equal texts, or the same passages in all rounds."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from weakref import WeakKeyDictionary

import numpy as np

from suffice.evaluation.replay import dividing_names
from suffice.policy.metrics import normalize_answer
from suffice.policy.rounds import Mask
from suffice.policy.seen import id_hash, one_name_per_text, text_hash
from suffice.recordings.recording import Recording

NEARLY = 0.9
"""The share of all their words that two nearly equal texts have in common: one word in twenty differs."""
_COMMON = 0.5
"""What more than this share of the questions has belongs to a template, or to the task, and shows no copies."""
_MOST_COMPARED = 20
"""The most texts with one rare word in common that a further text is compared with."""
_NO_TEXT = text_hash("")
_KNOWN: WeakKeyDictionary[Recording, list[str]] = WeakKeyDictionary()
"""The names of the recordings that are in use: a verdict asks for them several times, and a million texts take a minute."""


def unit_names(recording: Recording) -> list[str]:
    """Return the name of each row's unit: rows share a unit if they have the same cluster or ask nearly the same question.

    Questions are never joined because of equal answers or scores, which are common among easy questions.
    """
    if recording not in _KNOWN:
        names = [*map(str, dividing_names(recording))]
        if recording.texts is not None:
            names = one_name_per_text(names, near_texts(recording.texts))
        if "passage_ids" in recording.table.column_names:
            names = one_name_per_text(names, _same_passages(recording))
        _KNOWN[recording] = names
    return _KNOWN[recording]


def with_copies(recording: Recording, chosen: Mask) -> Mask:
    """Return the mask `chosen`, extended to all rows that share a unit with a chosen row, shape ``(n_questions,)``."""
    if not chosen.any() or chosen.all():
        return chosen
    names = np.array(unit_names(recording))
    rows: Mask = np.isin(names, names[chosen])
    return rows


def asked_names(recording: Recording, names: Sequence[str]) -> list[str]:
    """Return a hash of the text of each row's unit; the unit's name if no text was recorded.

    Unlike an id, a text cannot be renamed.
    """
    asked: dict[str, str] = {}
    for name, text in zip(names, recording.texts or (), strict=False):
        if text and (own := text_hash(text)) != _NO_TEXT:
            asked[name] = min(asked.get(name, own), own)
    return [asked.get(name, name) for name in names]


def copies_note(recording: Recording) -> list[str]:
    """Return a note if some questions are copies although they have different clusters and different texts."""
    declared, found = (len(set(names)) for names in (dividing_names(recording), unit_names(recording)))
    if declared == found:
        return []
    note = (
        f"{declared:,} questions count as {found:,}: the others nearly repeat a text, or have the same passages in every round "
        "(copies that are not found like this must be declared: --column cluster=COLUMN)"
    )
    return [note]


def near_texts(texts: Sequence[str | None]) -> list[str | None]:
    """Return a label for each text; nearly equal texts share a label, and a missing text has None.

    Nearly equal texts have `NEARLY` of their normalised words in common, and the same numbers in the same order.

    >>> shared = "which of the two rivers that meet in Koblenz rises further south and passes more large towns before it flows north"
    >>> texts = [f"{shared} again", f"{shared} then", "2 plus 3", "2 plus 4", "who sang it", "who wrote it"]
    >>> labels = near_texts(texts)
    >>> labels[0] == labels[1], len(set(labels))
    (True, 5)
    """
    keys = [normalize_answer(text or "") for text in texts]
    distinct = sorted({key for key in keys if key})
    root = _near_roots(distinct)
    label = {key: id_hash(distinct[root[place]]) for place, key in enumerate(distinct)}
    return [label.get(key) for key in keys]


def wordings_of(texts: Iterable[str | None] | None) -> frozenset[str]:
    """Return the wording of each text: hashes of its words.

    Wordings are enough to recognise near copies, so the texts need not be stored.

    Args:
        texts: Texts of questions, None where missing; None = all are unknown.
    """
    return frozenset(filter(None, map(_wording, texts or ())))


def near_known(texts: Sequence[str | None], known: Collection[str]) -> Mask:
    """Return a mask of the texts that are nearly equal to a known one, shape of `texts`; see `near_texts`.

    >>> shared = "which of the two rivers that meet in Koblenz rises further south and passes more large towns before it flows north"
    >>> near_known([f"{shared} then", "who sang it", None], wordings_of([f"{shared} again", "who wrote it"])).tolist()
    [True, False, False]

    Args:
        texts: Texts of questions, None where missing.
        known: The wordings of other questions.
    """
    if not known:
        return np.zeros(len(texts), dtype=np.bool_)
    own = [*map(_wording, texts)]
    distinct = sorted({*own, *known} - {""})
    root = _near_roots(distinct)
    group = dict(zip(distinct, root, strict=True))
    groups = {group[wording] for wording in known}
    return np.array([group.get(wording, -1) in groups for wording in own], dtype=np.bool_)


def _wording(text: str | None) -> str:
    return " ".join(map(_word_hash, normalize_answer(text or "").split()))


@lru_cache(maxsize=1 << 16)
def _word_hash(word: str) -> str:
    """Return a hash of a word, made of four letters.

    If the word contains digits, the hash begins with "0", and `_near_roots` treats the word as a number.
    """
    number = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8])
    letters = "".join(chr(ord("a") + number // 26**place % 26) for place in range(4))
    return "0" * any(sign.isdigit() for sign in word) + letters


def _near_roots(distinct: Sequence[str]) -> list[int]:
    """Return for each text the position of a text that represents its group of nearly equal texts."""
    words = [text.split() for text in distinct]
    numbers = [tuple(word for word in row if any(sign.isdigit() for sign in word)) for row in words]
    every = [frozenset(row) for row in words]
    counts = Counter(chain.from_iterable(every))
    root = [*range(len(distinct))]
    buckets: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    rare: list[frozenset[str]] = []
    for place, own in enumerate(every):
        kept = sorted(
            (word for word in own if counts[word] <= _COMMON * len(distinct)), key=lambda word: (counts[word], word)
        )
        rare.append(frozenset(kept))
        # Two sets with a share of at least NEARLY in common also have one of their first words in common, in any fixed
        # order of words.
        for word in kept[: len(kept) - math.ceil(NEARLY * len(kept)) + 1]:
            bucket = buckets.setdefault((word, numbers[place]), [])
            for other in bucket[-_MOST_COMPARED:]:
                if _alike(rare[place], rare[other]) and _alike(own, every[other]):
                    low, high = sorted((_root(root, place), _root(root, other)))
                    root[high] = low
            bucket.append(place)
    return [_root(root, place) for place in range(len(root))]


def _root(root: list[int], place: int) -> int:
    while root[place] != place:
        root[place] = root[root[place]]  # shorten the path for later look-ups
        place = root[place]
    return place


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= NEARLY * len(one | other)


def _same_passages(recording: Recording) -> list[str | None]:
    """Return a label for each question; two questions share a label if they have the same passages in every round.

    The label is None if a question has no passages, or if too many questions have the same passages.
    """
    keys = [
        None if not any(row) else id_hash(repr([None if passages is None else [*passages] for passages in row]))
        for row in recording.objects("passage_ids").tolist()
    ]
    counts = Counter(keys)
    return [key if key is None or counts[key] <= max(1.0, _COMMON * len(keys)) else None for key in keys]
