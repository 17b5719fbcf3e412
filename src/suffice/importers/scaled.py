"""Scale scores to [0, 1] as the user says: numbers of a range, or words from the worst to the best."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from suffice.errors import DataError
from suffice.importers.records import Record
from suffice.importers.shape import Shape, column_names
from suffice.importers.stages import changed_by

_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")
_NUMBER = re.compile(r"(-?\d+(?:[.,]\d+)?)\s*%?")


def scaled_metrics(shape: Shape, metrics: Mapping[str, str]) -> tuple[Shape, dict[str, str]]:
    """Return rows with a further column for each metric that is given as ``COLUMN:WORST..BEST`` or ``COLUMN:WORST,...,BEST``.

    Words that are not listed count as unknown.  The metrics are returned with the names of these columns.

    Raises:
        DataError: A number is outside the range.
    """
    result, names = dict(metrics), {*column_names(shape.rows)}
    for ours, theirs in metrics.items():
        name, _, how = theirs.rpartition(":")
        if theirs in names or name not in names:
            continue
        result[ours] = own = f"{name} ({how})"
        outer = shape.outer | ({own} if name in shape.outer else set())
        shape = changed_by(shape, partial(_scaled, name=name, own=own, how=how), {})
        shape = replace(shape, outer=outer)
    return shape, result


def _scaled(rows: Sequence[Record], name: str, own: str, how: str) -> list[Record]:
    match = _RANGE.fullmatch(how)
    words = [word.strip() for word in how.split(",")]
    if (match is None and len({*words}) < len(("worst", "best"))) or (match is not None and match[1] == match[2]):
        raise DataError(
            f"{how!r} is no scale of {name!r}: give a range from the worst to the best (1..5, or 6..1 if 1 is best), or words (bad,good)"
        )
    places = {word: place / max(1, len(words) - 1) for place, word in enumerate(words)}
    result = []
    for row in rows:
        value = row.values.get(name)
        score = places.get(str(value).strip()) if match is None else _place(value, match, f"{row.where}: {name}")
        result.append(replace(row, values={**row.values, own: score}))
    return result


def _place(value: Any, scale: re.Match[str], where: str) -> float | None:
    """Return the place of a number in a range, from 0 to 1; None for an empty cell."""
    if value is None or str(value).strip() == "":
        return None
    worst, best = float(scale[1]), float(scale[2])
    match = _NUMBER.fullmatch(str(value).strip())
    place = (float(match[1].replace(",", ".")) - worst) / (best - worst) if match else -1.0
    if not 0 <= place <= 1:
        raise DataError(f"{where} is {value!r:.40}, and the scale is {scale[0]}: give a range that has all numbers")
    return place
