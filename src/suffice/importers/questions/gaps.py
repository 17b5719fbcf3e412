"""Errors about questions whose rounds have a gap."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from suffice.errors import DataError, UnsettledError
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record
from suffice.importers.words.choices import Choices, of_columns
from suffice.importers.words.names import is_round_name, last_name

_DIGITS = re.compile(r"\d+")


_OFFERED = 2


def gap_error(
    where: str, question: str, rounds: Sequence[int], theirs: str, files: Sequence[str], *, others: Sequence[str] = ()
) -> DataError:
    """Return the error about a question with a gap in its rounds.

    Args:
        where: The log.
        question: A description of the question.
        rounds: The question's round numbers.
        theirs: The column of round numbers.
        files: The file of each row.  If each file is a round, the error does not suggest numbering the rows, which would make each
            file a run.
        others: Other columns, which number the rounds of every question without a gap.
    """
    are_files = len({*files}) > 1 and all(
        n in map(int, _DIGITS.findall(file)) for n, file in zip(rounds, files, strict=True)
    )
    if are_files:
        return DataError(
            f"{where}: {question} is missing in the file of a round: its rounds are numbered {rounds!r:.80}. Rows that --where leaves out are "
            "missing, too: without it, rows without an answer are rounds without one"
        )
    choices: Choices = {}
    for name in others[:_OFFERED]:
        choices |= of_columns({"round": name}, f"{name!r} is the number of the round")
    choices |= of_columns({"round": ""}, "nothing is missing: count the rows of each question in their order")
    if theirs.lower().endswith("depth"):
        meaning = f"the rows of each {theirs!r} are a loop of their own, with its own rounds and verdict"
        choices |= of_columns({"run": theirs, "round": ""}, meaning)
    return UnsettledError(
        f"{where}: the rounds of {question} are numbered {rounds!r:.80}; expected 0, 1, 2, ... or 1, 2, ... without gaps. If rounds are missing, find "
        "them first",
        "columns",
        choices,
    )


def counting_columns(rows: Sequence[Record], key: str, used: Collection[str]) -> Iterator[str]:
    """Yield the unused columns that are named like rounds and number the rows of each question from 0 or 1, without gaps or copies."""
    table = TableColumns(rows)
    ids = [*map(str, table.column(key))]
    for name in [name for name in table.names if name not in used and is_round_name(last_name(name))]:
        pairs = {*zip(ids, map(str, table.column(name)), strict=True)}
        if len(pairs) == len(ids) and table.counts(name) and table.counts_in(name, key):
            yield name
