"""Names of columns that tell questions or their runs apart."""

from __future__ import annotations

import re

from suffice.importers.words.names import GOLDS, RUNS, last_name, plain_name


def is_run_name(name: str) -> bool:
    """Return whether a column's name says that it tells the runs of a question apart.

    >>> is_run_name("seed"), is_run_name("rep"), is_run_name("segment")
    (True, True, False)
    """
    return last_name(name) in {*RUNS, "rep"} - {"attempt", "trace_id", "conversation_id", "session_id"}


def is_id_name(name: str) -> bool:
    """Return whether a column's name ends as those of ids and numbers do, and is none of gold answers.

    >>> is_id_name("ticket_id"), is_id_name("Frage-Nr"), is_id_name("customer"), is_id_name("answer_key")
    (True, True, False, False)
    """
    return (
        last_name(name) not in GOLDS
        and re.search(r"(?:id|ind|idx|nr|no|num|number|key)$", plain_name(name)) is not None
    )
