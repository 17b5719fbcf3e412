"""Find equal dates in a column and in answers, even if they are written in different ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from suffice.importers.rounds.own_columns import Part
from suffice.policy.normalizers import NORMALIZERS, Normalizer

_FORMS = ("date_day_first", "date")
_SAMPLE = 20
"""Texts that show whether the others are dates, of which most are."""


def pairs_of_dates(texts: Mapping[int, str], part: Part) -> list[int]:
    """Pair the values of a column with the keys of answers; return the pairs in which both are the same date.

    A pair is encoded as one number: the code of the value times the number of keys, plus the place of the key.

    Dates such as 3/4/2025 are read with the day first or with the month first, whichever gives more pairs.

    Args:
        texts: The column's different values, by their codes.
        part: The answers; no pairs are returned unless the first answers are dates.
    """
    said = {part.places[key]: text for key, text in zip(part.keys, part.answers, strict=True) if text is not None}
    if not (_are_dates([*islice(texts.values(), _SAMPLE)]) and _are_dates([*islice(said.values(), _SAMPLE)])):
        return []
    return max((_pairs(texts, said, len(part.places), NORMALIZERS[form]) for form in _FORMS), key=len)


def _are_dates(texts: Sequence[str]) -> bool:
    return any(2 * sum(NORMALIZERS[form](text) is not None for text in texts) > len(texts) for form in _FORMS)


def _pairs(texts: Mapping[int, str], said: Mapping[int, str], n: int, key_of: Normalizer) -> list[int]:
    places: dict[str, list[int]] = {}
    for place, text in said.items():
        if (date := key_of(text)) is not None:
            places.setdefault(date, []).append(place)
    return [code * n + place for code, text in texts.items() for place in places.get(key_of(text) or "", ())]
