"""Folders with an index, written so that an incomplete one is always detected.

`suffice-index.json` contains kind, version and the sha256 of every other file.  It is removed first and written last.
Every file reaches the disk before it gets its name.  An index that takes hours to build may go on after an interruption:
`unfinished.json` then says what it is made of, and how far it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, overload

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, SchemaError
from suffice.files import remove_leftovers, replacing, write_file
from suffice.identities import sha256_of
from suffice.rounds import Passage

__all__ = ["MANIFEST", "PassageFile", "Stored", "open_stored", "write_stored"]

MANIFEST = "suffice-index.json"
"""The file that marks a folder as an index."""

_UNFINISHED = "unfinished.json"
_PASSAGES, _OFFSETS = "passages.jsonl", "offsets.npy"
_INDEX_FILES = frozenset(
    {
        MANIFEST,
        _UNFINISHED,
        _PASSAGES,
        _OFFSETS,
        "vocabulary.json",
        "data.npy",
        "indices.npy",
        "starts.npy",
        "vectors.npy",
    }
)


class PassageFile(Sequence[Passage]):
    """Passages that stay in their file: one is read when it is asked for.

    Args:
        path: The JSON lines of an index.
        offsets: Where each line begins, and the end of the file, shape ``(n + 1,)``.
    """

    def __init__(self, path: Path, offsets: npt.NDArray[np.int64]) -> None:
        self._path, self._offsets = path, offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> Passage: ...
    @overload
    def __getitem__(self, place: slice) -> list[Passage]: ...
    def __getitem__(self, place: int | slice) -> Passage | list[Passage]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        row = range(len(self))[place]
        with self._path.open("rb") as file:
            file.seek(int(self._offsets[row]))
            return _passage(file.read(int(self._offsets[row + 1] - self._offsets[row])))

    def __iter__(self) -> Iterator[Passage]:
        with self._path.open("rb") as lines:
            yield from map(_passage, lines)


def _passage(line: bytes) -> Passage:
    row = json.loads(line)
    return Passage(passage_id=row[0], title=row[1], text=row[2])


@dataclass
class Stored:
    """An index folder.

    Attributes:
        directory: The folder.
        meta: JSON-ready values that describe the index.
        used: Names of its files.
        progress: How far an unfinished index is, JSON-ready; empty at its beginning.
    """

    directory: Path
    meta: dict[str, Any] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    progress: dict[str, Any] = field(default_factory=dict)
    _plan: Mapping[str, Any] | None = None

    def path(self, name: str) -> Path:
        """Return the path of a file of an opened index.

        Raises:
            SchemaError: The index does not have this file.
        """
        if name not in self.used:
            raise SchemaError(f"{self.directory}: the index has no {name}; build it again")
        return self.directory / name

    def read_array(self, name: str, *, mapped: bool = False) -> npt.NDArray[Any]:
        """Return an array written by `write_array`; a mapped one stays on disk."""
        array: npt.NDArray[Any] = np.load(self.path(name), mmap_mode="r" if mapped else None, allow_pickle=False)
        return array

    def read_passages(self) -> tuple[Passage, ...]:
        """Return the passages written by `write_passages`."""
        with self.path(_PASSAGES).open("rb") as lines:
            return tuple(map(_passage, lines))

    def passage_file(self) -> PassageFile:
        """Return the passages written by `stream_passages`, which stay on disk."""
        return PassageFile(self.path(_PASSAGES), self.read_array(_OFFSETS, mapped=True))

    def advance(self, **progress: Any) -> None:
        """Commit how far an unfinished index is, with the files that it has by now."""
        self.progress |= progress
        state = {"plan": self._plan, "progress": self.progress, "used": self.used}
        write_file(self.directory / _UNFINISHED, json.dumps(state, allow_nan=False))

    def mapped_array(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Return an array of 32-bit numbers on disk to write into, with what an earlier run wrote."""
        is_new = name not in self.used
        if is_new:
            self.used.append(name)
        path = self.directory / name
        return np.lib.format.open_memmap(path, "w+" if is_new else "r+", np.float32, shape if is_new else None)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Yield a new file of the index, to be written."""
        self.used.append(name)
        with replacing(self.directory / name) as path, path.open("wb") as file:
            yield file

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write an array in NumPy's format."""
        with self.writing(name) as file:
            np.save(file, array, allow_pickle=False)

    def write_passages(self, passages: Iterable[Passage]) -> tuple[list[int], str]:
        """Write id, title and text of each passage as JSON lines.

        Returns:
            Where each line begins, and the end of the file; and the hash of the passages, see `passages_hash`.
        """
        digest, offsets = hashlib.sha256(), [0]
        with self.writing(_PASSAGES) as file:
            for passage in passages:
                # Escaped to ASCII, so that lone surrogates survive.
                line = json.dumps([passage.passage_id, passage.title, passage.text]).encode() + b"\n"
                offsets.append(offsets[-1] + file.write(line))
                digest.update(line)
        return offsets, digest.hexdigest()[:16]

    def stream_passages(self, passages: Iterable[Passage]) -> str:
        """Write passages that `passage_file` will read one by one, and return their hash."""
        offsets, digest = self.write_passages(passages)
        self.write_array(_OFFSETS, np.array(offsets, dtype=np.int64))
        return digest


@contextmanager
def write_stored(directory: Path, kind: str, version: int, plan: Mapping[str, Any] | None = None) -> Iterator[Stored]:
    """Write an index: the caller writes its files and sets `meta`, and the manifest is written at the end.

    Args:
        directory: The folder, which is created.
        kind: What kind of index it is.
        version: The version of its form.
        plan: All that the index is made of, JSON-ready, if building it may go on after an interruption: the files of an
            earlier run with the same plan stay, and `progress` says how far they are. None = it is built anew.

    Raises:
        DataError: The folder contains other files, or cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in _INDEX_FILES:
            remove_leftovers(directory / name)
        foreign = sorted({item.name for item in directory.iterdir()} - _INDEX_FILES)
        if foreign:
            raise DataError(
                f"{directory}: contains other files ({', '.join(foreign[:3])}); give an empty or new "
                "folder for the index"
            )
        stored = Stored(directory, _plan=None if plan is None else {**plan, "kind": kind, "version": version})
        if plan is None or not _resumes(stored):
            for name in _INDEX_FILES:  # including the manifest: until the new one is written there is no index here
                (directory / name).unlink(missing_ok=True)
        yield stored
        manifest = {
            "kind": kind,
            "version": version,
            "meta": stored.meta,
            "files": {name: sha256_of(directory / name).hex() for name in stored.used},
        }
        write_file(directory / MANIFEST, json.dumps(manifest, indent=1, allow_nan=False) + "\n")
        (directory / _UNFINISHED).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{directory}: the index cannot be written ({error}); give another folder") from error


def _resumes(stored: Stored) -> bool:
    """Take up what an earlier run of the same plan left; return whether there is anything."""
    try:
        state = json.loads((stored.directory / _UNFINISHED).read_text(encoding="utf-8"))
        plan, progress, used = state["plan"], dict(state["progress"]), list(state["used"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if plan != json.loads(json.dumps(stored._plan)) or not all((stored.directory / name).is_file() for name in used):  # noqa: SLF001
        return False
    (stored.directory / MANIFEST).unlink(missing_ok=True)
    stored.progress, stored.used = progress, used
    return True


def open_stored(directory: Path, kind: str, version: int) -> Stored:
    """Open an index and check that its files are complete and unchanged.

    Raises:
        SchemaError: The folder contains no index of this kind and version, or it is damaged.
    """
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SchemaError(
            f"{directory}: the folder contains no complete index ({type(error).__name__} reading {MANIFEST}); build it with save()"
        ) from error
    identity = (manifest.get("kind"), manifest.get("version")) if isinstance(manifest, dict) else (None, None)
    if identity != (kind, version):
        raise SchemaError(
            f"{directory}: kind {identity[0]!r} version {identity[1]!r}; this release reads {kind!r} version {version}. "
            "Build it again"
        )
    files, meta = manifest.get("files"), manifest.get("meta")
    if not isinstance(files, dict) or not isinstance(meta, dict) or not set(files) <= _INDEX_FILES:
        raise SchemaError(f"{directory}: {MANIFEST} is damaged; build the index again")
    for name, digest in files.items():
        if not (directory / name).is_file() or sha256_of(directory / name).hex() != digest:
            raise SchemaError(f"{directory}: {name} is missing, truncated or changed; build the index again")
    return Stored(directory, meta, list(files))
