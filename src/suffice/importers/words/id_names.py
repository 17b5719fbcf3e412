"""Names of columns that distinguish questions, or the runs of a question."""

from __future__ import annotations

import re

from suffice.importers.words.names import GOLDS, RUNS, last_name, plain_name
from suffice.recordings.runs import is_of_judge


def is_run_name(name: str) -> bool:
    """Return whether a column distinguishes the runs of a question, by its name.

    Runs may have different seeds, or different people who rate the same answers.

    >>> is_run_name("seed"), is_run_name("rep"), is_run_name("rater_id"), is_run_name("segment")
    (True, True, True, False)
    """
    plain = last_name(name)
    is_run = plain in {*RUNS, "rep"} - {"attempt", "prompt_id", "trace_id", "conversation_id", "session_id"}
    return is_run or is_of_judge(f"{plain.removesuffix('_id')}.name")


def is_id_name(name: str) -> bool:
    """Return whether a column's name ends like a name of ids or numbers, and does not mean gold answers.

    >>> is_id_name("ticket_id"), is_id_name("Frage-Nr"), is_id_name("customer"), is_id_name("answer_key")
    (True, True, False, False)
    """
    return (
        last_name(name) not in GOLDS
        and re.search(r"(?:id|ind|idx|nr|no|num|number|key)$", plain_name(name)) is not None
    )
