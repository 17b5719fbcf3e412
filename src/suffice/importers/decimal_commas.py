"""Read the decimal commas of answers beside gold answers with points, or of these beside such answers, as the gold answers show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from suffice.errors import UnsettledError
from suffice.importers.choices import of_options
from suffice.importers.number_forms import DECIMAL_COMMA
from suffice.importers.reply_answers import HARDLY_EVER, OFTEN, SAMPLE
from suffice.policy.normalizers import NORMALIZERS, comma_number

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("answer", "golds")
"""The columns of a recording that are looked at."""

_ENOUGH, _GAIN = 8, 0.1
"""The fewest answers, and by how much more of them a comma must make equal to a gold answer."""

_POINT, _COMMA = NORMALIZERS["number"], comma_number
_ASKED = ("normalizer", "answer_position")
"""Options by which the user has said how answers are read."""


def refuse_commas_beside_points(
    parts: Iterable[pa.Table], options: Mapping[str, Any], columns: Mapping[str, str]
) -> None:
    """Ask whether the comma of answers, or that of gold answers, is the decimal point, if only that makes them equal.

    Args:
        parts: The recording, at least its columns `COLUMNS`.
        options: The user's options for the import.
        columns: The log's column for each name of ours.

    Raises:
        UnsettledError: It is; the option that says so is confirmed if hardly any answer is right without it.
    """
    if any(columns.get(ours, "").endswith((")", "'")) or ours not in columns for ours in COLUMNS):
        return  # computed, read in a form, or joined from elsewhere
    if any(name in options for name in _ASKED):
        return
    pairs = _pairs(parts)
    if len(pairs) < _ENOUGH or not any("," in text for pair in pairs for text in (pair[0], *pair[1])):
        return
    shares = {
        (of_answers, of_golds): sum(_agree(of_answers(said), map(of_golds, right)) for said, right in pairs)
        for of_answers, of_golds in product((_POINT, _COMMA), repeat=2)
    }
    before, (best, agreed) = shares[_POINT, _POINT], max(shares.items(), key=lambda item: (item[1], len({*item[0]})))
    if best[0] is best[1] or agreed - before < _GAIN * len(pairs):
        return
    ours = "answer" if best[0] is _COMMA else "golds"
    theirs, other = columns[ours], columns["golds" if ours == "answer" else "answer"]
    texts = (text for said, right in pairs for text in ([said] if ours == "answer" else right))
    example = next(text for text in texts if "," in text and _COMMA(text) is not None)
    question = (
        f"the comma in {theirs!r}, as in {example!r:.40}, may be a decimal point beside {other!r}: read so, {agreed:,} of {len(pairs):,} "
        f"answers equal a gold answer, else {before:,}"
    )
    choices = of_options(f"the comma in {theirs!r} is the decimal point", columns={ours: f"{theirs}:{DECIMAL_COMMA}"})
    if before <= HARDLY_EVER * len(pairs) and agreed >= OFTEN * len(pairs):
        raise UnsettledError(question, "options", choices, next(iter(choices)))
    choices |= {"--set normalizer=number": ({"normalizer": "number"}, "it separates thousands, or numbers")}
    raise UnsettledError(question, "options", choices)


def _agree(said: str | None, right: Iterable[str | None]) -> bool:
    return said is not None and said in right


def _pairs(parts: Iterable[pa.Table]) -> list[tuple[str, list[str]]]:
    """Return answers of the first questions with their gold answers."""
    pairs: list[tuple[str, list[str]]] = []
    for part in parts:
        answers, golds = (part.column(name).to_pylist() for name in COLUMNS)
        pairs += [(said, right) for said, right in zip(answers, golds, strict=True) if said and right]
        if len(pairs) >= SAMPLE:
            break
    return pairs[:SAMPLE]
