"""Folders with an index, written so that an incomplete one is always detected.

`suffice-index.json` contains kind, version and the sha256 of every other file.  It is removed first and written last.
Every file reaches the disk before it gets its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, SchemaError
from suffice.files import file_sha256, remove_leftovers, replacing, write_file
from suffice.rounds import Passage

__all__ = ["MANIFEST", "Stored", "open_stored", "write_stored"]

MANIFEST = "suffice-index.json"
"""The file that marks a folder as an index."""

_INDEX_FILES = frozenset(
    {
        MANIFEST,
        "passages.jsonl",
        "vocabulary.json",
        "data.npy",
        "indices.npy",
        "starts.npy",
        "vectors.npy",
    }
)


@dataclass
class Stored:
    """An index folder.

    Attributes:
        directory: The folder.
        meta: JSON-ready values that describe the index.
        used: Names of its files.
    """

    directory: Path
    meta: dict[str, Any] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)

    def path(self, name: str) -> Path:
        """Return the path of a file of an opened index.

        Raises:
            SchemaError: The index does not have this file.
        """
        if name not in self.used:
            raise SchemaError(f"{self.directory}: the index has no {name}; build it again")
        return self.directory / name

    def read_array(self, name: str) -> npt.NDArray[Any]:
        """Return an array written by `write_array`."""
        array: npt.NDArray[Any] = np.load(self.path(name), allow_pickle=False)
        return array

    def read_passages(self) -> tuple[Passage, ...]:
        """Return the passages written by `write_passages`."""
        with self.path("passages.jsonl").open(encoding="utf-8") as lines:
            return tuple(Passage(passage_id=row[0], title=row[1], text=row[2]) for row in map(json.loads, lines))

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

    def write_passages(self, passages: Sequence[Passage]) -> None:
        """Write id, title and text of each passage as JSON lines."""
        with self.writing("passages.jsonl") as file:
            for passage in passages:
                # Escaped to ASCII, so that lone surrogates survive.
                file.write(json.dumps([passage.passage_id, passage.title, passage.text]).encode() + b"\n")


@contextmanager
def write_stored(directory: Path, kind: str, version: int) -> Iterator[Stored]:
    """Write an index: the caller writes its files and sets `meta`, and the manifest is written at the end.

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
        for name in _INDEX_FILES:  # including the manifest: until the new one is written there is no index here
            (directory / name).unlink(missing_ok=True)
        stored = Stored(directory)
        yield stored
        manifest = {
            "kind": kind,
            "version": version,
            "meta": stored.meta,
            "files": {name: file_sha256(directory / name).hex() for name in stored.used},
        }
        write_file(directory / MANIFEST, json.dumps(manifest, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise DataError(f"{directory}: the index cannot be written ({error}); give another folder") from error


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
        if not (directory / name).is_file() or file_sha256(directory / name).hex() != digest:
            raise SchemaError(f"{directory}: {name} is missing, truncated or changed; build the index again")
    return Stored(directory, meta, list(files))
