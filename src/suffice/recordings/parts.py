"""A recording as a folder of parts, each of which is itself a recording."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from suffice._version import __version__
from suffice.common.files import is_url
from suffice.common.provided import provided
from suffice.common.tables import counted
from suffice.errors import ConfigMismatchError, DataError, NotFoundError, SchemaError
from suffice.recordings.journal import differences
from suffice.recordings.merging import INFERRED, MERGED, OF_ONE_FILE, RUN, common_facts, conformed, joint_schema
from suffice.recordings.opened import OpenFile, OpenRecording, PartGoneError, check_moved, header_text, open_file
from suffice.recordings.part_questions import PartQuestions, part_questions
from suffice.recordings.recording_files import is_sharded
from suffice.recordings.round_journal import RoundJournal
from suffice.recordings.schema import META_KEY, ROUNDS_SUFFIX
from suffice.recordings.shards import ANY_PART, Shard

_OPEN_FILES = 100
_AT_ONCE = 16
_LISTINGS = 100
_LISTED = 3
_GATHERED_ROWS = 1 << 11
_SMALL_ROWS = 1 << 12
_SMALL_BYTES = 1 << 22


def part_paths(folder: Path) -> list[Path]:
    """Return the paths of a folder's parts, sorted by name; a part may have a journal but no file yet."""
    # List journals first: a journal is removed after its file was written, so a part that is sealed meanwhile is not missed.
    journals = {path.with_name(path.name.removesuffix(ROUNDS_SUFFIX)) for path in folder.glob(ANY_PART + ROUNDS_SUFFIX)}
    return sorted(journals | {*folder.glob(ANY_PART)})


def common_state(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata of two files, with only the fitted states of signals for which both files have one.

    The files may have fitted states of different signals, because the deployed policy may have changed.
    """
    states = [item.get("state") or {} for item in (first, second)]
    both = states[0].keys() & states[1].keys()
    one, other = ({name: state[name] for name in both} for state in states)
    return {**first, "state": one}, {**second, "state": other}


class OpenFolder(OpenRecording):
    """The parts of a folder as one recording.

    The second run of a question, by time, is named ``NAME#2``, although parts may use one name for both runs. If a run
    is in several parts, one copy counts: a copy that ended before a copy that did not, then the copy with most rounds,
    then the copy that was amended last.

    Raises:
        ConfigMismatchError: Parts were recorded with different settings.
        DataError: A question that no `Recorder` recorded is in several parts.
    """

    def __init__(self, path: Path, parts: Sequence[OpenFile]) -> None:
        self.path = path
        self.parts = parts
        self.check_settings(parts)
        self.metadata = self._metadata()
        joint = joint_schema([part.schema for part in parts], lambda i, name: parts[i].is_blank(name))
        self.schema = joint.with_metadata({META_KEY: header_text(self.metadata)})

    @staticmethod
    def check_settings(parts: Sequence[OpenFile]) -> None:
        """Raise a `ConfigMismatchError` if parts were recorded with different settings."""
        first = parts[0]
        for part in parts[1:]:
            shared = ({k: v for k, v in item.metadata.items() if k not in OF_ONE_FILE} for item in (first, part))
            changed = differences(*common_state(*shared))
            if changed:
                more = f"; and {len(changed) - _LISTED} more" if len(changed) > _LISTED else ""
                raise ConfigMismatchError(
                    f"{str(first.path)!r} and {part.path.name!r} were recorded with different settings "
                    f"({'; '.join(changed[:_LISTED])}{more}): a folder is one recording, so move one of them to another folder"
                )

    @cached_property
    def questions(self) -> list[PartQuestions]:
        """The questions that count in this recording, part by part, and the names that they have in it."""
        return part_questions(self.parts)

    def _metadata(self) -> dict[str, Any]:
        failed: dict[str, str] = {}
        for part, questions in zip(self.parts, self.questions, strict=True):
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
        """The number of rows of all parts; a row that is in several parts counts several times."""
        return sum(part.n_rows for part in self.parts)

    def round_range(self) -> tuple[int, int]:
        """Return the lowest and the highest round of all parts."""
        if any(questions.dropped for questions in self.questions):
            ends = [pc.min_max(table.column("round")).as_py() for table in self.tables(columns=["round"])]
            return min(end["min"] for end in ends), max(end["max"] for end in ends)
        ranges = [part.round_range() for part in self.parts]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def tables(self, rows: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows part by part; see `OpenRecording.tables`."""
        names = self.schema.names if columns is None else [name for name in self.schema.names if name in {*columns}]
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        for i, part in enumerate(self.parts):
            for table in part.tables(rows, None if columns is None else self.needed(i, names)):
                yield from self.counted(i, table, schema)

    def counted(self, i: int, table: pa.Table, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of a part that count, with the questions' names in the whole recording; no table if no row counts."""
        some = self.questions[i].applied(table)
        if some.num_rows:
            yield conformed(some, schema)

    @property
    def renames(self) -> bool:
        """True if the name of some question in this recording differs from its name in its part."""
        return any(questions.names for questions in self.questions)

    def needed(self, i: int, names: Sequence[str]) -> list[str]:
        """Return the columns to read from a part: `names`, and the columns that names, ends and costs depend on."""
        part, questions = self.parts[i], self.questions[i]
        more = {"question_id", *([INFERRED] if questions.is_shorter else [])}
        if any(name.startswith("cost.") and name not in part.schema.names for name in names):
            more |= {name for name in part.schema.names if name.startswith("cost.")}
        return [name for name in part.schema.names if name in {*names} | more]

    def table(self) -> pa.Table:
        """Return the rows of all parts, sorted by the time of each question's first round."""
        return _in_order_of_time(pa.concat_tables(self.tables()))

    def close(self) -> None:
        """Close the files."""
        for part in self.parts:
            part.close()


def opened_parts(path: Path, known: Container[str] = (), *, keep: bool = False) -> list[OpenPart]:
    """Open the parts of a folder that have rows, except for parts whose rows were joined into a larger part.

    Args:
        path: The folder.
        known: The names of parts to leave out.
        keep: Whether to read the rows of small parts at once and keep them; otherwise each part is opened several
            times.
    """
    opened: dict[Path, OpenPart | None] = {}
    # A file that is renamed while the folder is listed may be missed, so the folder is listed until nothing is new. Opened
    # parts stay readable even if a compaction has removed them.
    for _ in range(_LISTINGS):
        new = [place for place in part_paths(path) if place not in opened and place.name not in known]
        if not new:
            break
        for place in new:
            _check_link(place, path)
            with suppress(NotFoundError):
                part = opened[place] = _part_with_rows(place)
                if part is not None and part.is_final and len(opened) > _OPEN_FILES:
                    part.close_itself(keep=keep)
    else:
        raise DataError(f"{new[0].name!r} of {str(path)!r} cannot be opened: try again, or move it away")
    parts = [opened[place] for place in sorted(opened)]
    current = _counted([part for part in parts if part is not None])
    if known:
        return current
    if not opened:
        others = sorted(item.name for item in path.glob("*.parquet"))
        raise NotFoundError(
            f"{str(path)!r} is a folder without a recording: there is no part-*.parquet in it"
            + (f". It has {', '.join(others[:_LISTED])}: give the file" if others else "")
        )
    if not current:
        raise DataError(f"no round was observed yet: the {counted(len(opened), 'part')} of {str(path)!r} have no rows")
    return current


def _check_link(part: Path, folder: Path) -> None:
    """Raise if a part is a link to a file outside its folder, because that file's rows would count for the recording."""
    if not is_url(part) and part.is_symlink() and not part.resolve().is_relative_to(folder.resolve()):
        raise DataError(
            f"{part.name!r} in {str(folder)!r} is a link to a file outside of this folder, which is not read as a part of it: put the file "
            "itself there, or remove the link"
        )


def _counted(parts: Sequence[OpenPart]) -> list[OpenPart]:
    """Return the parts whose rows were not joined into a larger part; close all other parts."""
    replaced = replaced_parts(parts)
    for part in parts:
        if part.path.name in replaced:
            part.close()
    return [part for part in parts if part.path.name not in replaced]


class OpenPart(OpenFile):
    """An opened part.

    Attributes:
        is_final: True if the part will not change.
        closes_itself: True if the file is closed after each use, because the number of open files is limited.
    """

    is_final = False
    closes_itself = False
    _kept: pa.Table | None = None
    _n_uses = 0

    @property
    def file(self) -> pq.ParquetFile:
        """The opened file; a small file is read at once, by a single system call."""
        if self._opened is None and self._buffer is None and not is_url(self.path):
            with suppress(FileNotFoundError):
                if self.path.stat().st_size <= _SMALL_BYTES:
                    self._opened = pq.ParquetFile(
                        pa.BufferReader(self.path.read_bytes()), page_checksum_verification=True
                    )
        return super().file

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return super().n_rows if self._kept is None else int(self._kept.num_rows)

    def close_itself(self, *, keep: bool = False) -> None:
        """Close the file now and after each use; with `keep`, first read the rows of a small file into memory."""
        if keep and self.n_rows <= _SMALL_ROWS:
            with self.used():
                (self._kept,) = super().tables()
        self.closes_itself = True
        self.close()

    def tables(self, rows: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows; see `OpenRecording.tables`."""
        if self._kept is None or rows is not None:
            yield from super().tables(rows, columns)
        else:
            yield self._kept if columns is None else self._kept.select(list(columns))

    @contextmanager
    def used(self) -> Iterator[pq.ParquetFile]:
        """Yield the opened file for one use; uses may be nested.

        The error for a damaged part contains advice.
        """
        was_closed = self._opened is None
        self._n_uses += 1
        try:
            yield self.file
        except SchemaError as error:
            if self._n_uses > 1:
                raise
            raise damaged_part(self.path, error) from None
        finally:
            self._n_uses -= 1
            if self.closes_itself and was_closed:
                self.close()


def damaged_part(path: Path, error: SchemaError) -> SchemaError:
    """Return the error for a damaged part, with advice on what to do."""
    shard = Shard.of_part(path)
    if shard is not None:
        return SchemaError(
            f"{error}. It is shard {shard} of the recording {str(path.parent)!r}: move it away, and record that shard again"
        )
    return SchemaError(
        f"{error}. It is a part of the recording {str(path.parent)!r}: if it cannot be had again, move it away, with its {ROUNDS_SUFFIX} file if "
        "there is one, and the others are read without it"
    )


def open_folder(path: Path, *, keep: bool = False) -> OpenRecording:
    """Open a folder of parts; a folder of shards is opened by the package `suffice-scale`."""
    if is_sharded(path):
        opened: OpenRecording = provided("scale.open_shards", f"reading {str(path)!r}, a recording in shards,")(path)
        return opened
    return OpenFolder(path, opened_parts(path, keep=keep))


def _part_with_rows(path: Path) -> OpenPart | None:
    """Open a part and return it; None if the part has no rows."""
    journal = RoundJournal(path, is_part=True)
    try:
        content = journal.content()
        check_moved(path, content)
    except SchemaError as error:
        raise damaged_part(path, error) from None
    if content is not None and not path.is_file() and not any(question.rows for question in content.questions):
        return None if journal.path.exists() else _part_with_rows(path)
    part = open_part(path)
    part.is_final = content is None
    if part.n_rows:
        return part
    part.close()
    return None


def open_parts(paths: Sequence[Path]) -> list[OpenPart]:
    """Open parts to which no process writes, as `open_part` does; parts at a URL are opened concurrently."""
    if paths and is_url(paths[0]):
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [*pool.map(open_part, paths)]
    parts = []
    for path in paths:
        parts.append(open_part(path))
        if len(parts) > _OPEN_FILES:
            parts[-1].close_itself()
    return parts


def open_part(path: Path) -> OpenPart:
    """Open one part of a folder; the error for a damaged part contains advice."""
    try:
        return open_file(path, OpenPart) if Shard.of_part(path) is None else OpenPart(path)
    except NotFoundError:
        raise PartGoneError(path) from None
    except SchemaError as error:
        raise damaged_part(path, error) from None


def replaced_parts(parts: Sequence[OpenRecording]) -> set[str]:
    """Return the names of the parts whose rows were joined into one of `parts`."""
    return {name for part in parts for name in joined_parts(part)}


def joined_parts(part: OpenRecording) -> set[str]:
    """Return the names of the parts whose rows were joined into `part`."""
    return {entry["file"] for entry in part.metadata.get(MERGED) or ()} - {part.path.name}


def _in_order_of_time(table: pa.Table) -> pa.Table:
    """Sort a folder's rows by the time of each question's first round, so that the order does not depend on the parts."""
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
    return table if (np.diff(order) == 1).all() else taken(table, order)


def taken(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return a table's rows by number, even if a column has more than 2 GB of text (unlike `Table.take`)."""
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
