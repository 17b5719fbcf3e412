"""Names of columns that identify questions or their runs."""

from __future__ import annotations

import re

from suffice.importers.words.names import GOLDS, RUNS, last_name, plain_name


def is_run_name(name: str) -> bool:
    """Return whether a column's name is usual for the runs of a question.

    >>> is_run_name("seed"), is_run_name("rep"), is_run_name("segment")
    (True, True, False)
    """
    return last_name(name) in {*RUNS, "rep"} - {"attempt", "trace_id", "conversation_id", "session_id"}


def is_id_name(name: str) -> bool:
    """Return whether a column's name ends like one of ids or numbers, and is not a name of gold answers.

    >>> is_id_name("ticket_id"), is_id_name("Frage-Nr"), is_id_name("customer"), is_id_name("answer_key")
    (True, True, False, False)
    """
    return (
        last_name(name) not in GOLDS
        and re.search(r"(?:id|ind|idx|nr|no|num|number|key)$", plain_name(name)) is not None
    )
