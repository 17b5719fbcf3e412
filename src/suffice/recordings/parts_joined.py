"""The rows of many small parts in one hidden file of their folder, so that later reads open one file instead of thousands.

The file is what a compaction would write, and the parts stay where they are.  It is used only while each part in it has the same bytes as
when its rows were read and compared with their checksums.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from suffice._version import __version__
from suffice.common.files import is_url
from suffice.common.provided import provided
from suffice.errors import DataError, SchemaError
from suffice.recordings.merging import MERGED
from suffice.recordings.opened import OpenFile, OpenRecording, write_tables
from suffice.recordings.parts import OpenFolder, OpenPart, checksum_of, joined_parts, opened_parts, part_paths
from suffice.recordings.parts_compaction import gathered
from suffice.recordings.recording_files import is_sharded
from suffice.recordings.schema import ROUNDS_SUFFIX

JOINED = ".joined"
"""The name of the file."""

_FEWEST = 100
_SMALL_ROWS = 1 << 12

_LOG = logging.getLogger(__name__)


class JoinedRows(OpenPart):
    """The file, opened."""

    def damage(self, error: SchemaError) -> SchemaError:
        """Return an error with advice on what to do."""
        return SchemaError(f"{error}. It has the rows of parts beside it: remove it, and the parts are read again")

    @property
    def checksums(self) -> Mapping[str, str]:
        """The checksums of the files whose rows were joined, by name."""
        return {entry["file"]: entry["checksum"] for entry in self.metadata[MERGED] if "checksum" in entry}


class JoiningFolder(OpenFolder):
    """A folder of parts of which many small ones are joined in one file once all rows were read."""

    def table(self) -> pa.Table:
        """Return the rows of all parts; see `OpenFolder.table`."""
        table = super().table()
        _join(self)
        return table


def open_folder(path: Path, *, keep: bool = False, each: bool = False) -> OpenRecording:
    """Open a folder of parts; the package `suffice-scale` opens one of shards.

    Args:
        path: The folder.
        keep: Whether all rows will be read at once, so that they may stay in memory.
        each: Whether to open each part, although an earlier read has joined their rows.
    """
    if is_sharded(path):
        opened: OpenRecording = provided("scale.open_shards", f"reading {str(path)!r}, a recording in shards,")(path)
        return opened
    joined = None if each or is_url(path) else _open_joined(path)
    kind = JoiningFolder if keep and not each else OpenFolder
    if joined is None:
        return kind(path, opened_parts(path, keep=keep))
    known = joined_parts(joined)
    parts = opened_parts(path, known, keep=keep)
    if any(joined_parts(part) & known for part in parts):  # a compaction has joined them, too
        for part in (joined, *parts):
            part.close()
        return OpenFolder(path, opened_parts(path, keep=keep))
    return kind(path, sorted((joined, *parts), key=_first_name))


def _first_name(part: OpenFile) -> str:
    """Return the name by which a part is sorted: of joined ones, the first."""
    return min(joined_parts(part)) if isinstance(part, JoinedRows) else part.path.name


def _open_joined(folder: Path) -> JoinedRows | None:
    """Open the joined rows of a folder if each of their parts is as it was; remove the file otherwise."""
    path = folder / JOINED
    if not path.is_file() or path.is_symlink():
        return None
    with suppress(SchemaError):  # damaged, or of another release
        joined = JoinedRows(path)
        if joined.metadata.get("suffice") == __version__ and _are_unchanged(folder, joined.checksums):
            return joined
        joined.close()
    with suppress(OSError):
        path.unlink()
    return None


def _are_unchanged(folder: Path, checksums: Mapping[str, str]) -> bool:
    """Return whether parts have the bytes of these checksums, and nothing is being added to them."""
    present = {path.name for path in part_paths(folder)}
    if not checksums.keys() <= present:
        return False
    for name, checksum in checksums.items():
        part = folder / name
        if part.is_symlink() or part.with_name(name + ROUNDS_SUFFIX).exists():
            return False
        try:
            if checksum_of(part.read_bytes()) != checksum:
                return False
        except OSError:
            return False
    return True


def _join(opened: OpenFolder) -> None:
    """Write the rows of small sealed parts to one file, if there are many of them that are not in it yet."""
    parts = [part for part in opened.parts if isinstance(part, OpenPart)]
    before = [part for part in parts if isinstance(part, JoinedRows)]
    small = [part for part in parts if part.is_final and part.checksum and part.n_rows <= _SMALL_ROWS]
    chosen = sorted((*before, *small), key=_first_name)
    if len(small) < _FEWEST or (len(chosen) < len(parts) and any("dataset" in part.metadata for part in parts)):
        return  # the hash of several data sets depends on their order
    entries = [{"file": name, "checksum": checksum} for part in before for name, checksum in part.checksums.items()]
    entries += [{"file": part.path.name, "checksum": str(part.checksum)} for part in small]
    replaced = set().union(*map(joined_parts, chosen)) - {entry["file"] for entry in entries}
    folder = opened if len(chosen) == len(parts) else OpenFolder(opened.path, chosen)
    metadata = {**folder.metadata, MERGED: [*entries, *({"file": name} for name in sorted(replaced))]}
    try:
        write_tables(opened.path / JOINED, folder.schema, gathered(folder.tables()), metadata, private=True)
    except DataError as error:
        _LOG.info("the next read opens %d parts again: %s", len(small), error)
