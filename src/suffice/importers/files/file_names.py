"""Use the names of a folder's files as the round, model, run or question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suffice.errors import DataError, SchemaError


def said_by_names(path: Path, names: Sequence[str], file_is: str) -> dict[str, dict[str, Any]]:
    """Return, for each file, the column and value that the file's name gives to its records."""
    columns = {"round": "round", "model": "model", "run": "run", "question": "question_id"}
    if file_is not in columns:
        raise DataError(f"a file is {file_is!r}; allowed are {', '.join(columns)}")
    if len(names) == 1:
        raise DataError(f"{path} is one file, so its name says nothing: leave out --file-is")
    values = rounds_by_names(names) if file_is == "round" else {name: name for name in names}
    return {name: {columns[file_is]: value} for name, value in values.items()}


def rounds_by_names(names: Sequence[str]) -> dict[str, int]:
    """Return the round of each file: the only number that differs between the names or, if there is no such number, the file's position.

    >>> rounds_by_names(["pass_2.v1", "pass_10.v1"]), rounds_by_names(["draft", "final"])
    ({'pass_2.v1': 2, 'pass_10.v1': 10}, {'draft': 1, 'final': 2})
    """
    parts = [re.split(r"([0-9]+)", name) for name in names]
    places = range(1, len(parts[0]), 2) if len({tuple(part[::2]) for part in parts}) == 1 else ()
    differing = [place for place in places if len({part[place] for part in parts}) > 1]
    numbers = [int(part[differing[0]]) for part in parts] if len(differing) == 1 else range(1, len(names) + 1)
    return dict(zip(names, numbers, strict=True))


def refuse_other_files(path: Path, files: set[str], with_rounds: set[str], how: str) -> None:
    """Raise if rounds are fields of the records, and some files of the folder do not have these fields."""
    without = sorted(files - with_rounds)
    if without and len(files) > 1:
        raise SchemaError(
            f"{path}: {how}, and the file {without[0]!r} has no such rounds. The files of a folder are one run: put files of "
            "another form into a folder of their own, or import them one by one"
        )
