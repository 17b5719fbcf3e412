"""Open and check a folder of shards; an incomplete folder raises an error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suffice.common.files import write_file
from suffice.common.json_text import load_json
from suffice.errors import ConfigMismatchError, DataError, SchemaError, SufficeError
from suffice.recordings.file_checks import DIGEST_KEY
from suffice.recordings.journal import differences
from suffice.recordings.merging import common_facts
from suffice.recordings.opened import OpenFile
from suffice.recordings.part_questions import PartQuestions
from suffice.recordings.parts import OpenFolder, damaged_part, open_part, open_parts, taken
from suffice.recordings.recording_files import JOURNAL_SUFFIX
from suffice.recordings.shards import ANY_PART, DATASET_INDEX, MANIFEST_FILE, SHARD, Shard, listed_shards, shards_in

_SHARDS_FORMAT = "suffice.shards"
_SHARDS_VERSION = 1
_PARTS_SHOWN = 3
_LAST = np.iinfo(np.int64).max


class ShardedFolder(OpenFolder):
    """The parts of all shards as one recording, in the order of the data set.

    Each question is in one part only, so that ids of questions need not be compared between parts.  Questions that are no
    longer in the data set come last.
    """

    def __init__(self, path: Path, parts: Sequence[OpenFile]) -> None:
        self._every = parts
        super().__init__(path, [part for part in parts if part.n_rows])
        place = self.schema.get_field_index(DATASET_INDEX)
        if place >= 0:
            self.schema = self.schema.remove(place)

    @cached_property
    def questions(self) -> list[PartQuestions]:
        """A `PartQuestions` without exclusions for each part, since no question of a part is left out."""
        return [PartQuestions() for _ in self.parts]

    def _metadata(self) -> dict[str, Any]:
        return super()._metadata() | common_facts([part.metadata for part in self._every])

    def table(self) -> pa.Table:
        """Return all rows in the order of the data set."""
        columns = [table.column(0) for part in self.parts for table in part.tables(columns=[DATASET_INDEX])]
        places = [pc.fill_null(column, _LAST).to_numpy() for column in columns]
        return taken(pa.concat_tables(self.tables()), np.argsort(np.concatenate(places), kind="stable"))


def open_shards(folder: Path) -> ShardedFolder:
    """Open the parts of a folder that its manifest lists.

    Raises:
        ConfigMismatchError: The parts differ in the number of shards, in the data set, or in the settings of the recording.
        DataError: Shards are missing or unfinished, or no shard has a round.
        SchemaError: A part differs from its entry in the manifest, or is damaged; the message names the part.
    """
    manifest = _manifest_in(folder / MANIFEST_FILE)
    if manifest is None:
        raise _examined(folder)[1] or DataError(
            f"{str(folder)!r} has all its parts, but its {MANIFEST_FILE} was not written: run the command of any shard again"
        )
    finished = shards_in(folder)
    for entry in manifest["parts"]:
        shard = Shard.of_part(entry["file"])
        if shard not in finished:
            raise SchemaError(
                f"{str(folder / entry['file'])!r} is missing, which {MANIFEST_FILE} lists: restore it, or record shard {shard} again"
            )
    parts = open_parts([folder / entry["file"] for entry in manifest["parts"]])
    entries = []
    for part, listed in zip(parts, manifest["parts"], strict=True):
        _check_name(part)
        entries.append(_entry(part))
        if entries[-1] != listed:
            raise SchemaError(
                f"{str(part.path)!r} is not the part that {MANIFEST_FILE} lists: it was changed, or its process ended before it "
                f"wrote the manifest. Run the command of shard {Shard.of_part(part.path)} again, which checks it and asks for "
                "nothing that it has; if that fails, move the part away first"
            )
    if json.loads(_manifest_of(entries, _dataset(parts[0]))) != manifest:
        raise _damaged_manifest(folder / MANIFEST_FILE)
    _check_others(folder, {entry["file"] for entry in manifest["parts"]})
    if not manifest["rows"]:
        raise DataError(f"the recording {str(folder)!r} has no rounds")
    return ShardedFolder(folder, parts)


def check_shard(folder: Path, shard: Shard, config: Mapping[str, Any]) -> None:
    """Raise if a shard cannot be recorded into a folder, because of the parts that the folder already has.

    These parts must have the same number of shards and the same configuration, and names that match their content.  Call
    this function before the first paid request.

    Args:
        folder: The folder, which need not exist yet.
        shard: The shard that is to be recorded.
        config: The configuration that the recording depends on.
    """
    if folder.suffix == ".parquet" or folder.is_file():
        raise DataError(
            f"{str(folder)!r} is a file: with a shard, name a folder, in which {shard.part_name!r} is written"
        )
    if not folder.is_dir():
        return
    _check_others(folder, {Shard(index, shard.n).part_name for index in range(1, shard.n + 1)})
    finished = sorted(shards_in(folder))
    if shard in finished:
        with open_part(folder / shard.part_name) as part:
            _check_name(part)
    for path in [folder / other.part_name for other in finished if other != shard][:1]:
        with open_part(path) as part:
            changed = differences(part.metadata.get("config") or {}, json.loads(json.dumps(config)))
        if changed:
            raise ConfigMismatchError(
                f"{str(path)!r} was recorded with another configuration ({'; '.join(changed)}): record to another folder"
            )


def complete_shards(folder: Path) -> str:
    """Write the manifest of a folder if all shards are complete; otherwise return a sentence on the missing shards.

    The process of the last shard to end writes the manifest; two processes that end together write the same bytes.
    """
    path = folder / MANIFEST_FILE
    while True:
        parts, fault = _examined(folder)
        text = "" if fault else _manifest_of([*map(_entry, parts)], _dataset(parts[0]))
        for part in parts:
            part.close()
        if fault is not None:
            path.unlink(missing_ok=True)
            return str(fault)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return ""
        write_file(path, text)  # then check again: another shard may have written its part meanwhile


def _check_others(folder: Path, names: set[str]) -> None:
    """Raise if a folder has parts, or journals of parts, whose names are not in `names`."""
    listed = {path.name for end in ("", JOURNAL_SUFFIX) for path in folder.glob(ANY_PART + end)}
    others = sorted(name for name in listed if name.removesuffix(JOURNAL_SUFFIX) not in names)
    if others:
        more = f" and {len(others) - _PARTS_SHOWN} more" if len(others) > _PARTS_SHOWN else ""
        raise ConfigMismatchError(
            f"{str(folder)!r} has {', '.join(others[:_PARTS_SHOWN])}{more} beside {min(names)}: the parts of one recording are of "
            "the same number of shards; move the others to another folder"
        )


def _examined(folder: Path) -> tuple[Sequence[OpenFile], SufficeError | None]:
    """Open the parts of a folder; if they are incomplete or do not fit together, return no parts and the error."""
    finished, begun = shards_in(folder), shards_in(folder, JOURNAL_SUFFIX)
    n = min(shard.n for shard in finished | begun)
    every = [Shard(index, n) for index in range(1, n + 1)]
    try:
        _check_others(folder, {shard.part_name for shard in every})
        missing = [shard for shard in every if shard not in finished]
        if missing:
            raise _incomplete(folder, missing, [shard for shard in missing if shard in begun])
        parts = open_parts([folder / shard.part_name for shard in every])
        for part in parts:
            _check_name(part)
        _check_datasets(folder, every, parts)
        OpenFolder.check_settings(parts)
    except SufficeError as error:
        return [], error
    return parts, None


def _incomplete(folder: Path, missing: Sequence[Shard], unfinished: Sequence[Shard]) -> DataError:
    which = f" ({listed_shards(unfinished)} unfinished)" if unfinished else ""
    return DataError(
        f"the recording {str(folder)!r} is incomplete: {'shard' if len(missing) == 1 else 'shards'} {listed_shards(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} missing{which}. Record them with the same command; each part that is there is a "
        "recording by itself"
    )


def _check_name(part: OpenFile) -> None:
    """Raise if the name of a part and its content belong to different shards."""
    entry = part.metadata.get(SHARD)
    own = None if entry is None else Shard(entry["index"], entry["of"])
    if own != Shard.of_part(part.path):
        content = "not the part of a shard" if own is None else f"shard {own}"
        raise damaged_part(part.path, SchemaError(f"{str(part.path)!r} is {content}: it was copied or renamed"))


def _check_datasets(folder: Path, shards: Sequence[Shard], parts: Sequence[OpenFile]) -> None:
    """Raise if parts are of different data sets."""
    by_hash: dict[str, list[Shard]] = {}
    for shard, part in zip(shards, parts, strict=True):
        by_hash.setdefault(_dataset(part)["hash"], []).append(shard)
    if len(by_hash) > 1:
        sets = "; ".join(f"{listed_shards(some)} of {name!r}" for name, some in by_hash.items())
        raise ConfigMismatchError(
            f"the parts of {str(folder)!r} are of different data sets ({sets}): record every shard of the same questions"
        )


def _dataset(part: OpenFile) -> Mapping[str, Any]:
    dataset: Mapping[str, Any] = part.metadata[SHARD]["dataset"]
    return dataset


def _entry(part: OpenFile) -> dict[str, Any]:
    """Return a part's entry in the manifest; its digest covers the checksums of its header and of every column."""
    digest = hashlib.sha256(part.file.metadata.metadata[DIGEST_KEY]).hexdigest()
    return {
        "file": part.path.name,
        "rows": part.n_rows,
        "questions": part.metadata[SHARD]["questions"],
        "digest": digest,
    }


def _manifest_of(entries: Sequence[Mapping[str, Any]], dataset: Mapping[str, Any]) -> str:
    totals = {key: sum(entry[key] for entry in entries) for key in ("rows", "questions")}
    content = {
        "format": _SHARDS_FORMAT,
        "version": _SHARDS_VERSION,
        "shards": len(entries),
        "dataset": dict(dataset),
        **totals,
        "parts": [*entries],
    }
    return json.dumps(content, indent=1) + "\n"


def _manifest_in(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        manifest = load_json(path.read_text(encoding="utf-8"))
        known = (manifest["format"], manifest["version"]) == (_SHARDS_FORMAT, _SHARDS_VERSION)
        shards = [Shard.of_part(entry["file"]) for entry in manifest["parts"]]
    except (ValueError, KeyError, TypeError):
        known, shards = False, []
    if not (known and shards) or shards != [Shard(index, len(shards)) for index in range(1, len(shards) + 1)]:
        raise _damaged_manifest(path)
    return dict(manifest)


def _damaged_manifest(path: Path) -> SchemaError:
    return SchemaError(
        f"{str(path)!r} is damaged, or is not the manifest of a recording in shards: remove it, and run the command of any "
        "shard again, which writes it"
    )
