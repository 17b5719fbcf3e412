"""Notes on columns that are not read and may say how good answers are."""

from __future__ import annotations

import re
from collections.abc import Collection

from suffice.common.files import quoted
from suffice.importers.alarm import Read
from suffice.importers.names import plain_name
from suffice.importers.number_forms import written_number
from suffice.importers.own_alarms import is_plain_number, used_columns, words_of
from suffice.importers.own_columns import MANY_VALUES
from suffice.importers.run_outcomes import is_fault

_JUDGING = frozenset(
    {
        "score",
        "scores",
        "judge",
        "judgement",
        "judgment",
        "rating",
        "ratings",
        "grade",
        "mark",
        "marks",
        "correct",
        "correctness",
        "quality",
    }
    | {
        "eval",
        "evaluation",
        "annotation",
        "verdict",
        "reward",
        "thumb",
        "thumbs",
        "feedback",
        "accuracy",
        "passed",
        "stars",
        "critic",
    }
    | {"hallucination", "faithfulness", "factuality", "note", "bewertung", "verifier"}
)
"""Words of columns that may say how good an answer is."""

_SCALES = ((0, 1), (1, 5), (0, 5), (1, 6), (0, 10), (0, 100))
_WORDS = 6


def second_judge_note(read: Read) -> list[str]:
    """Return a note on a column of scores in [0, 1] that is not read, where gold answers judge."""
    columns, used = read.facts.own.columns, used_columns(read)
    known = {name: own for name, own in columns.items() if name not in used and own.varying}
    names = [name for name in known if not _JUDGING.isdisjoint(words := words_of(name)) and "self" not in words]
    names = [name.removeprefix("imported_") for name in names if _in_unit(columns[name].values) and not is_fault(name)]
    if not names or read.source != "tabular":
        return []
    ours = re.sub(r"\W", "_", plain_name(names[0]))
    option = f"--metric-column {quoted(f'{ours}={names[0]}')}"
    return [
        f"answers are judged by the gold answers; {names[0]!r}, from 0 to 1, may judge them, too: {option} reads it"
    ]


def _in_unit(values: Collection[str]) -> bool:
    numbers = [written_number(value) for value in values]
    return 1 < len(numbers) < MANY_VALUES and all(number is not None and 0 <= number <= 1 for number in numbers)


def judging_note(read: Read) -> str:
    """Return a note on columns that may say which answers are right, where nothing that is read does; "" if there is none."""
    columns = read.facts.own.columns
    known = {name: own for name, own in columns.items() if name not in (read.options.get("metrics") or {})}
    known = {name: own for name, own in known.items() if "self" not in words_of(name)}
    may = [name for name, own in known.items() if own.varying and not _JUDGING.isdisjoint(words_of(name))]
    scaled = {name: scale for name in may if (scale := _scale(columns[name].values)) is not None}
    golds = [
        name.removeprefix("imported_")
        for name, own in known.items()
        if len(own.values) > 1 and name not in may and not _JUDGING.isdisjoint(words_of(name))
    ]
    if not scaled and golds and read.source == "tabular":
        return (
            f"no column that is read says which answers are right: if {golds[0]!r}, which is the same in all rounds of a question, is the gold "
            f"answer, --column {quoted(f'golds={golds[0]}')} reads it. Until then `suffice decide` counts every answer that another would replace "
            "as lost, unless labels say more (--ask)"
        )
    if not scaled or read.source != "tabular":
        return ""
    name, scale = next(iter(scaled.items()))
    theirs = name.removeprefix("imported_")
    ours = re.sub(r"\W", "_", plain_name(theirs))
    option = f"--metric-column {quoted(f'{ours}={theirs}{scale}')}"
    worst, dots, best = (scale.removeprefix(":") or "0..1").partition("..")
    turned = (
        f", or {ours}={theirs}:{best}..{worst} if lower is better"
        if dots
        else " (the worst word first)"
        if scale
        else ""
    )
    also = (
        f" ({', '.join(map(repr, [own.removeprefix('imported_') for own in scaled][1:4]))} as well)"
        if len(scaled) > 1
        else ""
    )
    return (
        f"no column that is read says which answers are right, but {theirs!r} may{also}: {option} judges by it{turned}. Until then "
        "`suffice decide` counts every answer that another would replace as lost, unless labels say more (--ask)"
    )


def _scale(values: Collection[str]) -> str | None:
    """Return how values would be scaled, as an ending of an option; "" for 0 to 1, None if they are neither numbers nor few words."""
    if len(values) <= 1 or len(values) >= MANY_VALUES:
        return None
    if all(map(is_plain_number, values)):
        numbers = [float(value) for value in values]
        low, high = min(numbers), max(numbers)
        scale = next((own for own in _SCALES if own[0] <= low and high <= own[1]), None)
        return None if scale is None else "" if scale == (0, 1) else f":{scale[0]}..{scale[1]}"
    if all(re.fullmatch(r"\d+(?:\.\d+)?\s*%", value) for value in values):
        return ""
    return (
        f":{','.join(sorted(values))}" if len(values) <= _WORDS and not any("," in value for value in values) else None
    )
