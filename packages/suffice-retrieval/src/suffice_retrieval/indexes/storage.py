"""Write and open the folders of indexes so that an incomplete index is always detected.

`suffice-index.json` contains kind, version and a digest of every other file, and is written last.  Every file is
flushed to disk before it gets its final name.  An index of words is built in a temporary subfolder, so that an earlier
index stays valid meanwhile.  An index of vectors takes hours and may resume after an interruption, so it is built in
place, with its plan and progress in `unfinished.json`.

Digests are compared whenever an index is opened.  The digest of a file below 16 MiB covers every byte.  The digest of a
larger file covers its size and 256 evenly spaced pieces of 64 KiB, so that an index of many gigabytes opens at once on
every machine.  Opening thus detects a truncated file, a file of another index, and damage longer than 1/256 of the
file. It may not detect a single changed byte of a large file, so a search must check that the positions it reads are
within bounds.  `validate_index` (`suffice data validate`) reads every byte.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import shutil
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, overload

import numpy as np
import numpy.typing as npt

from suffice.common.files import LOCK, locking, remove_leftovers, replacing, write_file
from suffice.common.identities import sha256_of
from suffice.errors import DataError, SchemaError
from suffice.policy.rounds import Passage

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
        "vocabulary.json",  # to "maxima.npy": of BM25 until 0.4.0
        "words.bin",
        "word-starts.npy",
        "word-terms.npy",
        "data.npy",
        "indices.npy",
        "starts.npy",
        "maxima.npy",
        "vectors.npy",
        "vectors.json",
        "approximate.faiss",
    }
)

_NUMBERED = re.compile(r"\.?vectors-\d{5}\.(?:npy|json)(?:\.[\w-]+\.tmp)?")
"""Names of files of vectors, if there are several, and of the progress notes of unfinished files."""

_ENGINE_FILE = re.compile(r"(?:bm25s|tantivy)(?:/[\w.-]+)?")
"""The folder of a library within an index, and the files in it."""

_SPILL = "spill"
_LEFTOVER = re.compile(rf"\.({'|'.join(map(re.escape, (*sorted(_INDEX_FILES), _SPILL)))})\..*\.tmp")
"""Names of temporary files that killed processes leave, see `suffice.common.files.remove_leftovers`."""

_WHOLE = 2**24
"""Files below this size are read in full when an index is opened; others stay on disk."""

_PIECES, _PIECE = 256, 2**16
SAMPLED = "pieces:"
"""The beginning of a digest that covers pieces of a large file."""


def _is_sampled(path: Path) -> bool:
    return path.stat().st_size >= _WHOLE


def _digest(path: Path) -> str:
    """Return the digest of a file of an index, as the module's docstring describes it."""
    size = path.stat().st_size
    if not _is_sampled(path):
        return sha256_of(path).hex()
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for i in range(_PIECES):
            file.seek((size - _PIECE) * i // (_PIECES - 1))
            digest.update(file.read(_PIECE))
    return SAMPLED + digest.hexdigest()


def is_unchanged(path: Path, digest: str) -> bool:
    """Return whether a file exists and matches a digest; the digest of a large file covers only pieces of the file."""
    # Indexes of earlier releases have digests of whole files of any size.
    return path.is_file() and digest == (_digest(path) if digest.startswith(SAMPLED) else sha256_of(path).hex())


def mapped_bytes(path: Path) -> bytes | mmap.mmap:
    """Return the content of a file; a large file is mapped, so that it stays on disk."""
    if path.stat().st_size < _WHOLE:
        return path.read_bytes()
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class PassageFile(Sequence[Passage]):
    """A sequence of passages that stay in a file; each passage is read when it is accessed.

    Args:
        path: The file of an index with passages as JSON lines.
        offsets: The start of each line, and the end of the file, in bytes, shape ``(n + 1,)``.
    """

    def __init__(self, path: Path, offsets: npt.NDArray[np.int64]) -> None:
        self._path, self._offsets = path, offsets
        self._content = mapped_bytes(path)

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
        return _passage(self._content[self._offsets[row] : self._offsets[row + 1]])

    def __iter__(self) -> Iterator[Passage]:
        with self._path.open("rb") as lines:
            yield from map(_passage, lines)


def _passage(line: bytes) -> Passage:
    row = json.loads(line)
    return Passage(passage_id=row[0], title=row[1], text=row[2])


def passage_line(passage: Passage) -> bytes:
    """Return a passage as a line of an index, escaped to ASCII so that lone surrogates survive."""
    return json.dumps([passage.passage_id, passage.title, passage.text]).encode() + b"\n"


@dataclass
class Stored:
    """An index folder.

    Attributes:
        directory: The folder.
        kind: The kind of index.
        version: The version of its file format.
        meta: JSON-ready values that describe the index.
        used: Names of the files of the index.
        progress: The progress of an unfinished index, JSON-ready; empty at its beginning.
    """

    directory: Path
    kind: str = ""
    version: int = 0
    meta: dict[str, Any] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    progress: dict[str, Any] = field(default_factory=dict)
    _plan: Mapping[str, Any] | None = None

    @property
    def plan(self) -> dict[str, Any]:
        """The settings and source of an unfinished index."""
        return {**(self._plan or {}), "kind": self.kind, "version": self.version}

    def path(self, name: str) -> Path:
        """Return the path of a file of an opened index.

        Raises:
            SchemaError: The index does not have this file.
        """
        if name not in self.used:
            raise SchemaError(f"{self.directory}: the index has no {name}; build it again")
        return self.directory / name

    def read_array(self, name: str, *, mapped: bool = False) -> npt.NDArray[Any]:
        """Return an array written by `write_array`; with `mapped`, it stays on disk."""
        values: npt.NDArray[Any] = np.load(self.path(name), mmap_mode="r" if mapped else None, allow_pickle=False)
        return values

    def is_large(self, name: str) -> bool:
        """Return whether a file is large enough to be left on disk."""
        return self.path(name).stat().st_size >= _WHOLE

    def passage_file(self) -> PassageFile:
        """Return the passages that `stream_passages` wrote; they stay on disk."""
        return PassageFile(self.path(_PASSAGES), self.read_array(_OFFSETS, mapped=True))

    def advance(self, **progress: Any) -> None:
        """Store the progress of an unfinished index, and the digests of its files so far."""
        self.progress |= progress
        state = {"plan": self.plan, "progress": self.progress, "used": self.used}
        write_file(self.directory / _UNFINISHED, json.dumps(state, allow_nan=False))

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Yield a new file of the index, open for writing."""
        self.used.append(name)
        with replacing(self.directory / name) as path, path.open("wb") as file:
            yield file

    def adopt(self, folder: str) -> None:
        """Add to the index the files that a library wrote into a folder."""
        for file in sorted((self.directory / folder).iterdir()):
            if file.suffix == ".lock":  # left by a writer that has ended
                file.unlink()
                continue
            with file.open("rb+") as written:
                os.fsync(written.fileno())
            self.used.append(f"{folder}/{file.name}")

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write an array in NumPy's format."""
        with self.writing(name) as file:
            np.save(file, array, allow_pickle=False)

    def stream_passages(self, passages: Iterable[Passage]) -> str:
        """Write passages so that `passage_file` can read single passages; return their hash, see `passages_hash`."""
        digest, ends = hashlib.sha256(), array("q", [0])
        with self.writing(_PASSAGES) as file:
            for passage in passages:
                line = passage_line(passage)
                ends.append(ends[-1] + file.write(line))
                digest.update(line)
        self.write_array(_OFFSETS, np.frombuffer(ends, dtype=np.int64))
        return digest.hexdigest()[:16]


@contextmanager
def write_stored(directory: Path, kind: str, version: int) -> Iterator[Stored]:
    """Yield an index to which the caller writes files and `meta`; afterwards the new index replaces the old one in the folder.

    Args:
        directory: The folder, which is created.
        kind: The kind of index.
        version: The version of its file format.

    Raises:
        DataError: The folder contains other files, or cannot be written.
    """
    with _writable(directory):
        _clear_leftovers(directory)
        with TemporaryDirectory(prefix=f".{_SPILL}.", suffix=".tmp", dir=directory) as folder:
            stored = Stored(Path(folder), kind=kind, version=version)
            yield stored
            manifest = _manifest(stored)
            (directory / MANIFEST).unlink(missing_ok=True)  # there is no index until the next few renames are done
            for item in list(directory.iterdir()):
                if item.name != LOCK and item != stored.directory:
                    _remove(item)
            for item in list(stored.directory.iterdir()):
                item.replace(directory / item.name)
            write_file(directory / MANIFEST, manifest)


@contextmanager
def building(directory: Path, what: str) -> Iterator[None]:
    """Let only one process at a time build an index in a folder; see `suffice.common.files.locking`.

    Raises:
        DataError: The folder contains other files, or cannot be written.
    """
    with _writable(directory):
        directory.mkdir(parents=True, exist_ok=True)
        _check_free(directory)
    with locking(directory, what):
        yield


def _clear_leftovers(directory: Path) -> None:
    """Create a folder, or remove the leftovers of killed processes from it; raise if it contains other files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in (*_INDEX_FILES, _SPILL):
        remove_leftovers(directory / name)
    _check_free(directory)


def _remove(item: Path) -> None:
    if item.is_dir():
        shutil.rmtree(item)
    else:
        item.unlink(missing_ok=True)


def _check_free(directory: Path) -> None:
    names = (item.name for item in directory.iterdir())
    foreign = sorted(name for name in names if not is_index_file(name) and not _LEFTOVER.fullmatch(name))
    if foreign:
        raise DataError(
            f"{directory}: contains other files ({', '.join(foreign[:3])}); give an empty or new folder for the index"
        )


@contextmanager
def _writable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{directory}: the index cannot be written ({error}); give another folder") from error


def begin_stored(directory: Path, kind: str, version: int, plan: Mapping[str, Any] | None = None) -> Stored:
    """Return an index to be written in place; it resumes an earlier run with the same plan.

    Args:
        directory: The folder, which is created.
        kind: The kind of index.
        version: The version of its file format.
        plan: The JSON-ready settings and source of an index that can be resumed: the files and the `progress` of an
            earlier run with the same plan are kept.  None to build the index anew.

    Raises:
        DataError: The folder contains other files, or cannot be written.
    """
    with _writable(directory):
        _clear_leftovers(directory)
        stored = Stored(directory, kind=kind, version=version, _plan=plan)
        if plan is None or not _resumes(stored):
            for item in list(
                directory.iterdir()
            ):  # also the manifest, so that there is no index until the new one is written
                if item.name != LOCK:
                    _remove(item)
        (directory / MANIFEST).unlink(missing_ok=True)
        return stored


def join_stored(directory: Path, kind: str, version: int, plan: Mapping[str, Any]) -> Stored | None:
    """Return the unfinished index that another process began with the same plan; None if no such index exists."""
    stored = Stored(directory, kind=kind, version=version, _plan=plan)
    return stored if _resumes(stored) else None


def finish_stored(stored: Stored) -> None:
    """Write the manifest, which completes the index; several processes may call this.

    Raises:
        DataError: The folder cannot be written.
    """
    with _writable(stored.directory):
        write_file(stored.directory / MANIFEST, _manifest(stored))
        (stored.directory / _UNFINISHED).unlink(missing_ok=True)


def _manifest(stored: Stored) -> str:
    content = {
        "kind": stored.kind,
        "version": stored.version,
        "meta": stored.meta,
        "files": {name: _digest(stored.directory / name) for name in stored.used},
        "whole": {name: sha256_of(path).hex() for name in stored.used if _is_sampled(path := stored.directory / name)},
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def is_index_file(name: str) -> bool:
    """Return whether a file of this name belongs to an index."""
    return name in _INDEX_FILES or name == LOCK or any(form.fullmatch(name) for form in (_NUMBERED, _ENGINE_FILE))


def _resumes(stored: Stored) -> bool:
    """Load the progress of an earlier run with the same plan; return whether there is one."""
    try:
        state = json.loads((stored.directory / _UNFINISHED).read_text(encoding="utf-8"))
        plan, progress, used = state["plan"], dict(state["progress"]), list(state["used"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if plan != json.loads(json.dumps(stored.plan)) or not all((stored.directory / name).is_file() for name in used):
        return False
    stored.progress, stored.used = progress, used
    return True


def open_stored(directory: Path, kind: str, version: int) -> Stored:
    """Open an index and check that its files are complete and unchanged.

    Raises:
        SchemaError: The folder contains no index of this kind and version, or it is damaged.
    """
    manifest = read_manifest(directory)
    identity = (manifest.get("kind"), manifest.get("version"))
    if identity[0] == kind and identity[1] != version:
        raise SchemaError(
            f"{directory}: the index was written by another release (version {identity[1]!r} of its form; this release reads "
            f"{version}); `suffice index {directory} -o NEW_FOLDER` builds it again from the passages in it"
        )
    if identity != (kind, version):
        raise SchemaError(
            f"{directory}: kind {identity[0]!r} version {identity[1]!r}; this release reads {kind!r} version {version}. "
            "Build it again"
        )
    return _opened(directory, manifest)


def open_passages(directory: Path) -> tuple[PassageFile, str]:
    """Return the passages of an index of any kind, and their hash; the passages stay on disk.

    Raises:
        SchemaError: The folder contains no index with passages that are read one by one, or it is damaged.
    """
    stored = _opened(directory, read_manifest(directory))
    return stored.passage_file(), str(stored.meta.get("corpus_hash"))


def is_index(path: Path) -> bool:
    """Return whether a folder contains an index, which may be incomplete."""
    named = any((path / name).is_file() for name in (MANIFEST, _UNFINISHED, _OFFSETS, "words.bin"))
    return named or any(path.glob(f".{_SPILL}.*.tmp"))


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the description of a complete index.

    Raises:
        SchemaError: The folder contains no complete index.
    """
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SchemaError(
            f"{directory}: the folder contains no complete index ({type(error).__name__} reading {MANIFEST}); build it "
            "with save() or `suffice index`"
        ) from error
    return manifest if isinstance(manifest, dict) else {}


def _opened(directory: Path, manifest: Mapping[str, Any]) -> Stored:
    files, meta = manifest.get("files"), manifest.get("meta")
    if not isinstance(files, dict) or not isinstance(meta, dict) or not all(map(is_index_file, files)):
        raise SchemaError(f"{directory}: {MANIFEST} is damaged; build the index again")
    for name, digest in files.items():
        if not is_unchanged(directory / name, str(digest)):
            raise SchemaError(f"{directory}: {name} is missing, truncated or changed; build the index again")
    return Stored(directory, str(manifest.get("kind")), int(manifest.get("version", 0)), meta, list(files))
