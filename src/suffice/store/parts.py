"""A recording as a folder of parts, each a recording by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from suffice._version import __version__
from suffice.errors import ConfigMismatchError, DataError, NotFoundError, SchemaError
from suffice.store.journal import differences
from suffice.store.merging import INFERRED, MERGED, OF_ONE_FILE, RUN, common_facts, conformed, joint_schema
from suffice.store.opened import OpenFile, OpenRecording, header_text, open_file
from suffice.store.part_questions import PartQuestions, part_questions
from suffice.store.round_journal import RoundJournal
from suffice.store.schema import META_KEY
from suffice.tables import counted

__all__ = [
    "OpenFolder",
    "common_state",
    "open_folder",
    "open_part",
    "part_paths",
    "replaced_parts",
]

_PART_FILES = "part-*.parquet"
_JOURNAL = ".rounds"
_OPEN_FILES = 100
_LISTINGS = 100
_LISTED = 3
_GATHERED_ROWS = 1 << 11


def part_paths(folder: Path) -> list[Path]:
    """Return the parts of a folder, in the order of their names; some may have a journal and no file yet."""
    files = {*folder.glob(_PART_FILES)}
    journals = {path.with_name(path.name.removesuffix(_JOURNAL)) for path in folder.glob(_PART_FILES + _JOURNAL)}
    return sorted(files | journals)


def common_state(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two files' metadata with the fitted state of the signals that both have: a policy may be replaced by another."""
    states = [item.get("state") or {} for item in (first, second)]
    both = states[0].keys() & states[1].keys()
    one, other = ({name: state[name] for name in both} for state in states)
    return {**first, "state": one}, {**second, "state": other}


class OpenFolder(OpenRecording):
    """The parts of a folder as one recording.

    A question that was recorded several times has one name in each part; here, its second run is ``NAME#2``, in the order of
    time.  Of a run that is in several parts, the one that ended, or has most rounds, counts.

    Args:
        path: The folder.
        parts: Its parts, opened.

    Raises:
        ConfigMismatchError: Parts were recorded with different settings.
        DataError: A question that no `Recorder` recorded is in several parts.
    """

    def __init__(self, path: Path, parts: Sequence[OpenFile]) -> None:
        self.path = path
        self.parts = parts
        self._check_settings()
        self.metadata = self._metadata()
        joint = joint_schema([part.schema for part in parts], lambda i, name: parts[i].is_blank(name))
        self.schema = joint.with_metadata({META_KEY: header_text(self.metadata)})

    def _check_settings(self) -> None:
        first = self.parts[0]
        for part in self.parts[1:]:
            shared = ({k: v for k, v in item.metadata.items() if k not in OF_ONE_FILE} for item in (first, part))
            changed = differences(*common_state(*shared))
            if changed:
                more = f"; and {len(changed) - _LISTED} more" if len(changed) > _LISTED else ""
                raise ConfigMismatchError(
                    f"{str(first.path)!r} and {part.path.name!r} were recorded with different settings "
                    f"({'; '.join(changed[:_LISTED])}{more}): a folder is one recording, so move one of them to another folder"
                )

    @cached_property
    def _questions(self) -> list[PartQuestions]:
        return part_questions(self.parts)

    def _metadata(self) -> dict[str, Any]:
        failed: dict[str, str] = {}
        for part, questions in zip(self.parts, self._questions, strict=True):
            for name, why in (part.metadata.get("failed") or {}).items():
                if name not in questions.dropped:
                    failed[questions.names.get(name, name)] = why
        every = [part.metadata for part in self.parts]
        state = {name: fitted for item in every for name, fitted in (item.get("state") or {}).items()}
        shared = {key: value for key, value in every[0].items() if key not in OF_ONE_FILE}
        result = {**shared, "failed": failed, "suffice": __version__, **common_facts(every)}
        return {**result, "state": state} if "state" in shared else result

    @property
    def n_rows(self) -> int:
        """The number of rows of all parts; a row that is in several of them is counted again."""
        return sum(part.n_rows for part in self.parts)

    def round_range(self) -> tuple[int, int]:
        """Return the lowest and the highest round of all parts."""
        if any(questions.dropped for questions in self._questions):
            ends = [pc.min_max(table.column("round")).as_py() for table in self.tables(columns=["round"])]
            return min(end["min"] for end in ends), max(end["max"] for end in ends)
        ranges = [part.round_range() for part in self.parts]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def tables(self, rows: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows part by part; see `OpenRecording.tables`."""
        names = self.schema.names if columns is None else [name for name in self.schema.names if name in {*columns}]
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        for part, questions in zip(self.parts, self._questions, strict=True):
            wanted = None if columns is None else self._needed(part, questions, names)
            for table in part.tables(rows, wanted):
                some = questions.applied(table)
                if some.num_rows:
                    yield conformed(some, schema)

    def _needed(self, part: OpenFile, questions: PartQuestions, names: Sequence[str]) -> list[str]:
        """Return the columns of a part from which those that are asked for follow."""
        more = {"question_id", *([INFERRED] if questions.is_shorter else [])}
        if any(name.startswith("cost.") and name not in part.schema.names for name in names):
            more |= {name for name in part.schema.names if name.startswith("cost.")}
        return [name for name in part.schema.names if name in {*names} | more]

    def close(self) -> None:
        """Close the files."""
        for part in self.parts:
            part.close()


def open_folder(path: Path) -> OpenFolder:
    """Open the parts of a folder, with the journals of those that are being written or whose process was killed.

    Raises:
        ConfigMismatchError: Parts were recorded with different settings.
        DataError: There are no parts, or none has a round.
        SchemaError: A part is damaged; the message names it.
    """
    opened: dict[Path, _OpenPart | None] = {}
    # A file may get another name while the folder is listed, and be missed. So it is listed until nothing is new; what was
    # opened before stays open, even if a compaction has removed it.
    for _ in range(_LISTINGS):
        new = [place for place in part_paths(path) if place not in opened]
        if not new:
            break
        for place in new:
            with suppress(NotFoundError):
                part = opened[place] = _part_with_rows(place)
                if part is not None and part.is_final and len(opened) > _OPEN_FILES:
                    part.closes_itself = True
                    part.close()
    else:
        raise DataError(f"{new[0].name!r} of {str(path)!r} cannot be opened: try again, or move it away")
    parts = [opened[place] for place in sorted(opened)]
    current = _counted([part for part in parts if part is not None])
    if not opened:
        others = sorted(item.name for item in path.glob("*.parquet"))
        raise NotFoundError(
            f"{str(path)!r} is a folder without a recording: there is no part-*.parquet in it"
            + (f". It has {', '.join(others[:_LISTED])}: give the file" if others else "")
        )
    if not current:
        raise DataError(f"no round was observed yet: the {counted(len(opened), 'part')} of {str(path)!r} have no rows")
    return OpenFolder(path, current)


def _counted(parts: Sequence[_OpenPart]) -> list[_OpenPart]:
    """Return the parts that are in no other one; close the others."""
    replaced = replaced_parts(parts)
    for part in parts:
        if part.path.name in replaced:
            part.close()
    return [part for part in parts if part.path.name not in replaced]


def read_folder(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the rows of all parts, by the time of their question's first round, and the metadata; see `open_folder`."""
    with open_folder(path) as folder:
        return _in_order_of_time(pa.concat_tables(folder.tables())), folder.metadata


class _OpenPart(OpenFile):
    """One part, opened.

    Attributes:
        is_final: Whether it will not change.
        closes_itself: Whether its file is closed after each use, because a process can only open so many.
    """

    is_final = False
    closes_itself = False

    @property
    def n_rows(self) -> int:
        """The number of its rows."""
        with self._used():
            return super().n_rows

    def round_range(self) -> tuple[int, int]:
        """Return the lowest and the highest round."""
        with self._used():
            return super().round_range()

    def is_blank(self, name: str) -> bool:
        """Return whether a column has no value."""
        with self._used():
            return super().is_blank(name)

    def tables(self, rows: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows; see `OpenRecording.tables`."""
        with self._used():
            yield from super().tables(rows, columns)

    @contextmanager
    def _used(self) -> Iterator[None]:
        try:
            yield
        except SchemaError as error:
            raise _damaged_part(self.path, error) from None
        finally:
            if self.closes_itself:
                self.close()


def _damaged_part(path: Path, error: SchemaError) -> SchemaError:
    return SchemaError(
        f"{error}. It is a part of the recording {str(path.parent)!r}: move it away, with its {_JOURNAL} file if there is one, "
        "and the others are read without it"
    )


def _part_with_rows(path: Path) -> _OpenPart | None:
    """Return a part, opened; None if it has no rows yet."""
    journal = RoundJournal(path, is_part=True)
    try:
        content = journal.content()
    except SchemaError as error:
        raise _damaged_part(path, error) from None
    if content is not None and not path.is_file() and not any(question.rows for question in content.questions):
        return None if journal.path.exists() else _part_with_rows(path)
    part = open_part(path)
    part.is_final = content is None
    return part


def open_part(path: Path) -> _OpenPart:
    """Open one part of a folder; the error for a damaged one says what to do.

    Raises:
        NotFoundError: It was compacted meanwhile.
        SchemaError: It is damaged.
    """
    try:
        return open_file(path, _OpenPart)
    except NotFoundError:
        raise NotFoundError(f"{str(path)!r} was compacted or removed while it was read: try again") from None
    except SchemaError as error:
        raise _damaged_part(path, error) from None


def replaced_parts(parts: Sequence[OpenRecording]) -> set[str]:
    """Return the names of parts whose rows are in another part, into which they were compacted."""
    return {
        entry["file"] for part in parts for entry in part.metadata.get(MERGED) or () if entry["file"] != part.path.name
    }


def _in_order_of_time(table: pa.Table) -> pa.Table:
    """Return the rows of a folder by the time of their question's first round: the same for any division into parts."""
    encoded = table.column("question_id").combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    first = pa.array(np.unique(codes, return_index=True)[1])
    n = len(first)
    runs = table.column(RUN).take(first).to_pylist() if RUN in table.column_names else encoded.dictionary.to_pylist()
    times = [0.0] * n
    if "recorded_at" in table.column_names:
        times = table.column("recorded_at").take(first).fill_null(-math.inf).to_pylist()
    rank = np.empty(n, dtype=np.int64)
    rank[sorted(range(n), key=lambda i: (times[i], runs[i]))] = np.arange(n)
    order = np.lexsort((table.column("round").to_numpy(), rank[codes]))
    return table if (np.diff(order) == 1).all() else _taken(table, order)


def _taken(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return rows of a table in another order; `Table.take` fails where a column has more than 2 GB of text."""
    batches = table.to_batches()
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    pieces = []
    for begin in range(0, len(rows), _GATHERED_ROWS):
        wanted = rows[begin : begin + _GATHERED_ROWS]
        place = np.searchsorted(starts, wanted, side="right") - 1
        some = [batches[i].take(pa.array(wanted[place == i] - starts[i])) for i in np.unique(place)]
        back = np.argsort(np.argsort(place, kind="stable"), kind="stable")
        pieces.append(pa.Table.from_batches(some, table.schema).combine_chunks().take(pa.array(back)))
    return pa.concat_tables(pieces)
