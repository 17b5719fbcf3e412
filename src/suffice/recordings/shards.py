"""Shards: shares of the questions for several processes, and the parts that these processes write."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from suffice.errors import DataError

SHARD = "shard"
"""The entry of a part's metadata with its shard and data set."""

DATASET_INDEX = "dataset_index"
"""The column of a part with each question's position in the data set, used to sort the folder's rows, then dropped."""

MANIFEST_FILE = "manifest.json"
"""The manifest, which the last shard writes: it lists the parts of the complete folder."""

ANY_PART = "part-*.parquet"
"""The pattern of the parts' names."""

_TEXT = re.compile(r"(\d+)/(\d+)")
_PART_NAME = re.compile(r"part-(\d{4,})-of-(\d{4,})\.parquet")
_SHARDS_LISTED = 8
_PLACE_FIELD = pa.field(DATASET_INDEX, pa.int64(), metadata={"kind": "provenance", "unit": "place from 0"})


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """One of `n` shares of the questions; the hash of a question's id decides its share.

    >>> shard = Shard.parse("3/8")
    >>> shard.part_name, shard.takes("q1"), sum(Shard(i, 8).takes("q1") for i in range(1, 9))
    ('part-0003-of-0008.parquet', False, 1)
    """

    index: int
    n: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.n:
            raise DataError(f"there is no shard {str(self)!r}: shards are counted from 1/{max(self.n, 1)}, as in 3/8")

    def __str__(self) -> str:
        return f"{self.index}/{self.n}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shard that a text such as ``3/8`` names."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise DataError(f"a shard is two numbers, such as 3/8 for the third of eight, not {text!r}")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_part(cls, path: str | Path) -> Self | None:
        """Return the shard in a part's name; None if the name does not contain one."""
        match = _PART_NAME.fullmatch(re.split(r"[/\\]", str(path))[-1])
        return None if match is None else cls(int(match[1]), int(match[2]))

    @property
    def part_name(self) -> str:
        """The file name of the shard's part."""
        return f"part-{self.index:04d}-of-{self.n:04d}.parquet"

    @property
    def folder_name(self) -> str:
        """Return the name of the shard's folder, for a part that consists of several files."""
        return self.part_name.removesuffix(".parquet")

    def beside(self, path: Path, suffix: str) -> Path:
        """Return the path of the shard's own version of a file that a command without shards writes once.

        An example is the file of stored replies.
        """
        return path.with_name(f"{path.name}.{self.folder_name}{suffix}")

    def takes(self, question_id: str) -> bool:
        """Return True if a question belongs to the shard; this does not depend on the machine or on other questions."""
        digest = hashlib.sha256(question_id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest, "big") % self.n == self.index - 1

    def entry(self, dataset: Mapping[str, Any], questions: int) -> dict[str, Any]:
        """Return the entry `SHARD` for the metadata of the shard's part; `dataset` describes the questions of all shards."""
        return {"index": self.index, "of": self.n, "dataset": dict(dataset), "questions": questions}


def shard_files_beside(path: Path, suffix: str) -> list[Path]:
    """Return the paths of all shards' versions of a file; see `Shard.beside`."""
    return sorted(path.parent.glob(f"{escape(path.name)}.part-*-of-*{suffix}"))


def shards_in(folder: Path, end: str = "") -> set[Shard]:
    """Return the shards whose parts are in a folder.

    If `end` is the suffix of journals, return the shards that have a journal in the folder instead.
    """
    names = [path.name.removesuffix(end) for path in folder.glob(ANY_PART + end)]
    return {shard for name in names if (shard := Shard.of_part(name)) is not None}


def n_shards_at(out: Path) -> int | None:
    """Return the number of shards that write to a folder or file, from the names of parts; None if there are no shards."""
    parts = [*out.glob("part-*"), *out.parent.glob(f"{escape(out.name)}.part-*")]
    names = (path.name.removeprefix(f"{out.name}.").partition(".")[0] for path in parts)
    return next((shard.n for name in names if (shard := Shard.of_part(f"{name}.parquet")) is not None), None)


def listed_shards(shards: Sequence[Shard]) -> str:
    """List a recording's shards in words.

    >>> listed_shards([Shard(2, 8), Shard(5, 8)])
    '2 and 5 of 8'
    """
    names = [str(shard.index) for shard in sorted(shards)]
    if len(names) > _SHARDS_LISTED:
        names = [*names[: _SHARDS_LISTED - 1], f"{len(names) - _SHARDS_LISTED + 1} more"]
    return f"{' and '.join([', '.join(names[:-1]), names[-1]] if len(names) > 1 else names)} of {shards[0].n}"


def with_places(table: pa.Table, places: Mapping[str, int]) -> pa.Table:
    """Add each question's position in the data set to the rows of a part; null if the question is not in the data set."""
    ids: list[Any] = table.column("question_id").to_pylist()
    if DATASET_INDEX in table.column_names:
        table = table.drop_columns([DATASET_INDEX])
    return table.append_column(_PLACE_FIELD, pa.array(map(places.get, ids), pa.int64()))
