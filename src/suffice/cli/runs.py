"""The option that chooses one loop of a recording that holds several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import BadParameter, Option

from suffice.common.files import quoted
from suffice.recordings import Recording, read_recording
from suffice.recordings.runs import loop_labels

Where = Annotated[
    list[str] | None,
    Option("--where", metavar="COLUMN=VALUE", help="Only the questions of this model, prompt or system; repeatable."),
]


ASK = " --ask golds.jsonl"
"""What a printed `suffice decide` has where nothing says which answers are right."""


def where_pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Parse `--where COLUMN=VALUE` to values by column."""
    pairs = [item.partition("=") for item in given or ()]
    if any(not column or not sign for column, sign, _ in pairs):
        raise BadParameter("it is given as COLUMN=VALUE, for instance model=gpt-4o", param_hint="--where")
    return {column: value for column, _, value in pairs}


def where_words(given: Sequence[str] | None) -> str:
    """Return the `--where` options for a printed command, each preceded by a space; empty if none are given."""
    return "".join(f" --where {quoted(item)}" for item in given or ())


def chosen_loop(recording: Recording, given: Sequence[str] | None) -> Recording:
    """Return the questions of a recording that `--where` chooses."""
    wanted = where_pairs(given)
    return recording.where(**wanted) if wanted else recording


def chosen_questions(path: Path, given: Sequence[str] | None) -> Recording | Path:
    """Return the questions of a stored recording that `--where` chooses, or its path if it is not given."""
    return chosen_loop(read_recording(path), given) if given else path


def tune_of_loop(tune: Recording | None, given: Sequence[str] | None) -> Recording | None:
    """Return the tune questions that `--where` chooses; filters on columns that they lack are ignored."""
    if tune is None:
        return None
    wanted = {column: value for column, value in where_pairs(given).items() if column in loop_labels(tune.table.schema)}
    return tune.where(**wanted) if wanted else tune
