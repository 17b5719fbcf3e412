"""Unfold records whose rounds are in numbered columns, such as ``answer_1`` and ``answer_2``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from suffice.errors import UnsettledError
from suffice.importers.answer_or_gold import is_model_text, is_of_passages
from suffice.importers.choices import Choices, of_columns
from suffice.importers.closed_book import alone_note, begins_alone, closed_book_families, has_run, pair_of, texts_differ
from suffice.importers.families import families_beside, numbered_families
from suffice.importers.names import ANSWERS, ORDER_WORDS, OUTCOME_NAMES, plain_name
from suffice.importers.records import Record, column_names
from suffice.importers.shape import Pair, Shape, flat_record, outer_names, round_rows, without_rounds
from suffice.importers.table_columns import TableColumns

OPTION_STEMS = frozenset({"option", "choice", "alternative", "ending", "distractor", "note", "comment", "tag"})
"""Names of numbered texts that are no rounds: options of a multiple choice, and notes."""

_OFFERED, _LONGEST_OPTION = 4, 120
"""The most families of texts that are asked about, and the most letters of an option that a message makes up."""


def widened(records: list[Record]) -> Shape | None:
    """Return a row for each number of the columns ``answer_1``, ``answer_2``, ...; None for other tables."""
    families = numbered_families(column_names(records))
    leads = [stem for stem in families if not stem or plain_name(stem.rpartition(".")[2]) in (*ANSWERS, *OUTCOME_NAMES)]
    if not leads:
        pair = pair_of(column_names(records))
        if pair and texts_differ(records, pair):
            return rows_of_answers(records, pair)
        _ask_for_texts(records, families)
        return None
    lead = max(leads, key=lambda stem: (len(families[stem]), stem == "" or plain_name(stem) in ANSWERS))
    ordered = all(any(word in plain_name(name) for word in ORDER_WORDS) for name in families[lead].values())
    return rows_of_families(records, families, lead, is_ordered=ordered)


def rows_of_answers(records: list[Record], answers: Sequence[str]) -> Shape:
    """Return a row for each of the columns of answers, in this order, with the columns beside them; that of the model alone is round 0."""
    names = column_names(records)
    families = families_beside(answers, names)
    if begins_alone(answers):
        families = closed_book_families(answers, families, names)
    return rows_of_families(records, families, "answer", is_ordered=True)


def _ask_for_texts(records: Sequence[Record], families: Mapping[str, Mapping[int, str]]) -> None:
    """Raise if numbered columns have texts of some words that differ within most records: they may be the answers of successive rounds."""
    choices: Choices = {}
    table = TableColumns(records)
    for stem, family in families.items():
        if not is_model_text(stem) or is_of_passages(stem) or stem in OPTION_STEMS or not stem:
            continue
        rows = [*zip(*map(table.column, family.values()), strict=True)]
        texts = [[value for value in row if isinstance(value, str) and " " in value.strip()] for row in rows]
        differing = sum(len({*own}) > 1 for own in texts)
        joined, (first, *_, last) = ",".join(family.values()), family.values()
        if 2 * differing > len(rows) and sum(map(len, texts)) > len(rows) and len(joined) <= _LONGEST_OPTION:
            meaning = f"{first!r} to {last!r} are the answers of successive rounds, in this order"
            choices |= of_columns({"rounds": joined}, meaning)
    if choices and len(choices) <= _OFFERED:
        raise UnsettledError(
            "no column is called like an answer, and numbered columns have texts: are these what the model said in each round?",
            "columns",
            choices,
        )


def rows_of_families(
    records: list[Record], families: Mapping[str, Mapping[int, str]], lead: str, *, is_ordered: bool
) -> Shape:
    """Return a row for each number of the columns of the family `lead`, with those of the other families."""
    numbers = list(families[lead])
    moved = {stem: family for stem, family in families.items() if len(family) == len(numbers) and [*family] != numbers}
    parts = {
        stem: dict(zip(numbers, family.values(), strict=True)) if stem in moved else family
        for stem, family in families.items()
        if stem in moved or set(family) <= set(numbers)
    }
    beside = "".join(f"; {_first_to_last(family)} belong to them in this order" for family in moved.values())
    used = {name for family in parts.values() for name in family.values()}
    is_alone = min(numbers) == 0 and begins_alone([*families[lead].values()])
    own = {"round", *(stem or "answer" for stem in parts)}

    def read(others: Iterable[Record]) -> tuple[list[Record], int]:
        pairs: list[Pair] = []
        for item in map(flat_record, others):
            outer = {name: value for name, value in item.values.items() if name not in used}
            inner = [
                {stem or "answer": item.values.get(family[n]) for stem, family in parts.items() if n in family}
                for n in numbers
            ]
            while inner and not has_run(inner[-1]):
                inner.pop()
            pairs.append((item, outer, [{"round": r, **row} for r, row in enumerate(inner)] if is_alone else inner))
        return round_rows(pairs, own, "round"), without_rounds(pairs)

    rows, skipped = read(records)
    ends = f"{families[lead][numbers[0]]!r} to {families[lead][numbers[-1]]!r}"
    return Shape(
        rows=rows,
        how=f"each record is a question, and the columns {ends} are its rounds{beside}{alone_note(families[lead][0]) if is_alone else ''}",
        columns={
            "round": f"number in {ends}",
            **{stem or "answer": _first_to_last(family) for stem, family in parts.items()},
        },
        skipped=skipped,
        outer=outer_names(rows, own),
        is_ordered=is_ordered,
        read=read,
    )


def _first_to_last(family: Mapping[int, str]) -> str:
    first, *_, last = family.values() if len(family) > 1 else (*family.values(), *family.values())
    return f"{first} ... {last}"
