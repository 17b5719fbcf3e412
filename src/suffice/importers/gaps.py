"""Errors about questions whose rounds have a gap."""

from __future__ import annotations

import re
from collections.abc import Sequence

from suffice.errors import DataError, UnsettledError
from suffice.importers.choices import of_columns

_DIGITS = re.compile(r"\d+")


def gap_error(where: str, question: str, rounds: Sequence[int], theirs: str, files: Sequence[str]) -> DataError:
    """Return the error about a question with a gap in its rounds.

    Args:
        where: The log.
        question: The question, in words.
        rounds: Its rounds.
        theirs: The column that counts them.
        files: The file of each row; where it is the round, counting the rows instead would make each file a run.
    """
    are_files = len({*files}) > 1 and all(
        n in map(int, _DIGITS.findall(file)) for n, file in zip(rounds, files, strict=True)
    )
    if are_files:
        return DataError(
            f"{where}: {question} is missing in the file of a round: it has the rounds {rounds!r:.80}. Rows that --where leaves out are "
            "missing, too: without it, rows without an answer are rounds without one"
        )
    choices = of_columns({"round": ""}, "nothing is missing: count the rows of each question in their order")
    if theirs.lower().endswith("depth"):
        meaning = f"the rows of each {theirs!r} are a loop of their own, with its own rounds and verdict"
        choices |= of_columns({"run": theirs, "round": ""}, meaning)
    return UnsettledError(
        f"{where}: {question} has the rounds {rounds!r:.80}; expected 0, 1, 2, ... or 1, 2, ... without gaps. If rounds are missing, find "
        "them first",
        "columns",
        choices,
    )
