"""Notes on columns whose usual names do not match their values, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from suffice.errors import DataError
from suffice.importers.names import (
    MONEY,
    MOST_SPEAKERS,
    OUTCOME_NAMES,
    OWN_SIGNALS,
    SPEAKERS,
    SYNONYMS,
    TOTAL_TOKENS,
    is_round_name,
    plain_name,
)
from suffice.importers.shapes import Shape
from suffice.importers.table_columns import TableColumns

_OUTPUT = "cost.generator.output_tokens"
_SPEAKERS = tuple(name for name in SPEAKERS if name not in ("source", "name", "type", "kind"))
_FIRST_DRAFT = re.compile(
    r"(initial|first|draft|zero_shot|closed_book|original|base)_(answer|response|output|draft|reply|prediction)"
)
_TOKENS = {"uncached_tokens": "input", "output_tokens": "output"}


def unread_notes(
    table: TableColumns, columns: Mapping[str, str], shape: Shape, used: Collection[str], costs: Collection[str]
) -> list[str]:
    """Return a note for each column whose values do not fit its usual name."""
    speakers = [] if shape.how else [*_speakers(table, columns)]
    unused = [name for name in table.names if name not in used and table.filled(name)]
    drafts = [name for name in unused if name in shape.outer and _FIRST_DRAFT.fullmatch(plain_name(name))]
    return [
        *speakers,
        *(
            f"{name!r} is not read as a round: if it was the first draft, put it in front of the others"
            for name in drafts
        ),
        *_uncounted_rounds(table, columns, unused),
        *_costs(table, columns, [name for name in unused if name not in shape.outer], costs),
        *_outcomes(table, columns, shape, unused),
    ]


def _called(names: Collection[str], usual: Collection[str]) -> list[str]:
    return [name for name in names if plain_name(name).rpartition(".")[2] in usual]


def _speakers(table: TableColumns, columns: Mapping[str, str]) -> Iterator[str]:
    """Note or raise that a question's rows come from several sources, of which perhaps only one gives answers."""
    ids = table.column(columns.get("question_id", ""))
    for name in _called(table.names, _SPEAKERS)[:1]:
        values = [*dict.fromkeys(value for value in table.column(name) if isinstance(value, str))]
        if not 1 < len(values) <= MOST_SPEAKERS or table.constant_in(name, ids):
            continue
        shown = ", ".join(values[:4])
        if {"user", "human", "system", "tool"} & {value.lower() for value in values}:
            raise DataError(
                f"the rows are messages of several speakers ({name!r}: {shown}), and only a model's are answers: import one record "
                "for each question with its messages in a list ('messages'), or the rows of the model alone"
            )
        yield f"each row is read as a round, although they differ in {name!r} ({shown}): import those alone that answer"


def _uncounted_rounds(table: TableColumns, columns: Mapping[str, str], unused: Collection[str]) -> Iterator[str]:
    if "round" not in columns:
        names = [name for name in unused if is_round_name(name.rpartition(".")[2]) and not table.counts(name)]
        for name in names[:1]:
            fault = table.not_whole(name)
            why = "it is the same everywhere" if fault is None else f"it has {fault!r:.40}"
            yield f"{name!r} does not count rounds: {why}"


def _costs(
    table: TableColumns, columns: Mapping[str, str], unused: Collection[str], costs: Collection[str]
) -> Iterator[str]:
    for name in _called(unused, costs):
        fault = table.not_a_number(name)
        if fault is not None:
            yield f"{name!r} is not read as a cost: it has {fault!r:.40}, which is not a number"
    if not any(ours.startswith("cost.") and ours.endswith("_tokens") for ours in columns):
        for name in _called(unused, TOTAL_TOKENS)[:1]:
            yield (
                f"{name!r} does not say which are input and which output, so none is counted; --column {_OUTPUT}={name} counts "
                "all as output, or what each round adds if they never fall (money: an upper bound)"
            )
    kinds = {ours.rpartition(".")[2] for ours in columns if ours.startswith("cost.")}
    absent = [what for kind, what in _TOKENS.items() if kind not in kinds]
    if absent and not _called(unused, TOTAL_TOKENS):
        yield f"no column has {' or '.join(absent)} tokens: what is saved is counted in calls alone"
    for name in _called(unused, MONEY)[:1]:
        yield f"{name!r} is kept as it is: what is paid follows from tokens and prices (suffice decide --prices)"


def _outcomes(table: TableColumns, columns: Mapping[str, str], shape: Shape, unused: Collection[str]) -> Iterator[str]:
    for name in _called(unused, (*OUTCOME_NAMES, *SYNONYMS, *OWN_SIGNALS)):
        is_outcome = bool(_called([name], OUTCOME_NAMES))
        fault = table.not_a_number(name)
        if is_outcome and name in shape.outer:
            yield f"{name!r} is known once of a question, not of each round, so it cannot judge an earlier stop"
        elif fault is not None:
            expected = "a metric has numbers in [0, 1], or true and false" if is_outcome else "expected a number"
            yield f"{name!r} is not read, because it has {fault!r:.40}: {expected}"
    for ours in [ours for ours in columns if ours in OUTCOME_NAMES and ours not in ("em", "f1")]:
        values = table.numbers(columns[ours]) or [0.0]
        if not all(0 <= value <= 1 for value in values):
            span = f"[{min(values):g}, {max(values):g}]"
            yield f"{columns[ours]!r} is not a metric, because it lies in {span}: scale it to [0, 1] to judge by it"
