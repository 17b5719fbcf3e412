"""Files of a folder with the same questions: each file may be a round, a run or a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from suffice.common.tables import cut_list
from suffice.importers.files.file_names import rounds_by_names
from suffice.importers.files.records import Record, column_names
from suffice.importers.rows.runs import ordered_files
from suffice.importers.words.choices import Choices
from suffice.importers.words.id_names import is_id_name
from suffice.importers.words.names import IDS, QUESTIONS, RUNS, SPEAKERS, is_round_name, last_name
from suffice.recordings.runs import LOOP_NAMES

_FEW, _TENTH, _NEARLY_ALL = 3, 0.1, 0.9
"""The fewest values of a column that names questions, their least share of a file's rows, and the share of them that files have in common."""

_SHOWN = 20
"""The most characters of a file's name."""


def of_files(rows: Sequence[Record], computed: str = "") -> Choices:
    """Return options for the meaning of each file, if several files have the same questions; else no options.

    There are also no options if file names count rounds, or if a column distinguishes the files.

    Args:
        rows: The rows of all files.
        computed: A column of the rows that the log does not have; it is ignored.
    """
    files = _by_file(rows)
    names = {*column_names(rows)} - {computed}
    if len(files) == 1 or ordered_files([*files])[0] or not _hold_the_same(files, names):
        return {}
    if any(_tells_apart(files, name) for name in ("round", *RUNS) if name in names):
        return {}
    order = sorted(files, key=rounds_by_names([*files]).__getitem__)
    shown = cut_list([name[:_SHOWN] for name in order])
    said = {
        "round": f"the files hold the same questions, and each is a round, in this order: {shown}",
        "run": "the files hold the same questions, and each is a run of the same loop",
        "model": "the files hold the same questions, and each has the answers of another model",
    }
    are_single = len({(row.file, row.number) for row in rows}) == len(rows)
    return {
        f"--file-is {what}": ({"file_is": what}, meaning)
        for what, meaning in said.items()
        if what not in names and (are_single or what != "round")
    }


def _by_file(rows: Sequence[Record]) -> Mapping[str, Sequence[Record]]:
    files: dict[str, list[Record]] = {}
    for row in rows:
        files.setdefault(row.file, []).append(row)
    return files


def _hold_the_same(files: Mapping[str, Sequence[Record]], names: Collection[str]) -> bool:
    """Return whether all files have the same questions.

    They do if some column of ids, or of texts that rarely repeat, has the same values in all files, equally often.
    """
    return any(_is_the_same(files, name) for name in names if not _is_no_question(name))


def _is_no_question(name: str) -> bool:
    plain = last_name(name)
    return is_round_name(plain) or plain in {*LOOP_NAMES, *RUNS, *SPEAKERS} - {*IDS}


def _is_the_same(files: Mapping[str, Sequence[Record]], name: str) -> bool:
    counts = [
        Counter(str(row.values.get(name)) for row in own if _may_name(row.values.get(name))) for own in files.values()
    ]
    most, n_rows = max(counts, key=len), min(map(len, files.values()))
    is_named = is_id_name(last_name(name)) or last_name(name) in QUESTIONS
    if len(most) < max(_FEW, 0 if is_named else _TENTH * n_rows) or any(
        own.total() < _NEARLY_ALL * n_rows for own in counts
    ):
        return False
    return all(sum(own[value] == n for value, n in most.items()) >= _NEARLY_ALL * len(most) for own in counts)


def _may_name(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _tells_apart(files: Mapping[str, Sequence[Record]], name: str) -> bool:
    """Return whether a column has a single value in each file, different for each file."""
    values = [{str(row.values.get(name)) for row in own} for own in files.values()]
    return all(len(own) == 1 for own in values) and len(set().union(*values)) == len(files)
