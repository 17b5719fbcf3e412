"""The files that an import writes: the recording, and its options for the next import of the same source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.common.files import PACKED, files_hash, quoted, write_file
from suffice.common.json_text import load_json
from suffice.errors import DataError, SchemaError
from suffice.importers.words.names import words
from suffice.recordings.recording import open_recording

_FORMAT = "suffice import"
_VERSION = 1
_LOG_ENDINGS = (
    *words(".csv .tsv .json .jsonl .ndjson .txt .zip .eval .xlsx .db .sqlite .duckdb"),
    *PACKED,
)

_BY_NAME = {"columns": "--column", "metrics": "--metric-column", "labels": "--label", "where": "--where"}
_ENDING = ".import.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The options and confirmed columns of an import.

    Attributes:
        options: The user's options, by parameter of `import_recording`.
        confirmed: The guesses that the user confirmed, as a map from this library's columns to the file's columns.
    """

    options: dict[str, Any]
    confirmed: dict[str, str]


def mapping_path(out: Path) -> Path:
    """Return the path of a recording's mapping.

    >>> mapping_path(Path("runs.parquet")).name
    'runs.import.json'
    """
    return out.with_suffix(_ENDING)


def read_mapping(out: Path, source: Path) -> Mapped | None:
    """Return the mapping of an earlier import of a source to `out`; None if there was no such import."""
    path = mapping_path(out)
    if not path.is_file():
        return None
    try:
        stored = load_json(path.read_text("utf-8"))
        version, mapped = (
            (stored["format"], stored["version"]),
            Mapped(options=dict(stored["options"]), confirmed=dict(stored["confirmed"])),
        )
        own = stored["source"] == source.resolve().name
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise SchemaError(
            f"{path} is not a mapping of columns ({error}); remove it, and name the options again"
        ) from error
    if version != (_FORMAT, _VERSION):
        raise SchemaError(
            f"{path} has the format and version {version}; this release reads {(_FORMAT, _VERSION)}: remove it"
        )
    return mapped if own else None


def write_mapping(out: Path, source: Path, mapped: Mapped) -> None:
    """Write the mapping of a source beside its recording."""
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "source": source.resolve().name,
        "content": _content(source),
        "options": mapped.options,
        "confirmed": mapped.confirmed,
    }
    write_file(mapping_path(out), json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def as_typed(options: Mapping[str, Any]) -> str:
    """Return the options of an import as they are typed on the command line.

    >>> as_typed({"columns": {"answer": "final reply"}, "samples": True, "expected": ["drafts"], "first_round": 0})
    "--column 'answer=final reply' --samples --expected drafts --first-round 0"
    """
    texts: list[str] = []
    for name, value in options.items():
        flag = _BY_NAME.get(name, f"--{name.replace('_', '-')}")
        if isinstance(value, Mapping):
            texts += [f"{flag} {quoted(f'{ours}={theirs}')}" for ours, theirs in value.items()]
        elif name == "normalizer":
            texts.append(f"--set {quoted(f'{name}={value}')}")
        else:
            each = value if isinstance(value, list) else [value]
            texts += [flag if item is True else f"{flag} {quoted(str(item))}" for item in each]
    return " ".join(texts)


def earlier_import(out: Path, source: Path) -> tuple[str, str]:
    """Find the last import of a source with the same content; return the name of its options file, and the options as typed.

    The file may be in the current folder, in the folder of `out`, or in the folder of the source.  Both texts are "" if there was no
    such import, or if the import needed no options.
    """
    folders = {folder.resolve() for folder in (out.parent, source.parent, Path())}
    found = [file for folder in folders for file in folder.glob(f"*{_ENDING}")]
    content = ""
    for file in sorted(found, key=lambda file: file.stat().st_mtime_ns, reverse=True):
        with suppress(ValueError, KeyError, TypeError, OSError):
            stored = load_json(file.read_text("utf-8"))
            if stored["format"] != _FORMAT or stored["source"] != source.resolve().name or not stored["options"]:
                continue
            content = content or _content(source)
            if stored["content"] == content:
                return file.name, as_typed(stored["options"])
    return "", ""


def _content(source: Path) -> str:
    """Return a hash of a source's content, ignoring files that imports write into its folder."""
    if source.is_file():
        return files_hash(source.parent, [source])
    files = [file for file in source.rglob("*") if file.is_file() and not file.name.startswith(".")]
    mappings = {file for file in files if file.name.endswith(_ENDING)}
    written = {file.with_name(file.name.removesuffix(_ENDING) + ".parquet") for file in mappings}
    return files_hash(source, [file for file in files if file not in mappings | written])


def default_out(path: Path) -> Path:
    """Return the default path of a recording: in the current folder, with the name of its source.

    If the source has this path itself, the recording gets the ending `.recording.parquet`.
    """
    name = path.resolve().name
    stem = name.rpartition(".")[0] if name.endswith(PACKED) else name
    out = Path(f"{stem if path.is_dir() else Path(stem).stem}.parquet")
    return out.with_suffix(".recording.parquet") if out.resolve() == path.resolve() else out


def own_place(out: Path) -> Path:
    """Return `out` if an import may write there; else raise.

    An import overwrites only recordings that imports wrote.  It overwrites no log, and no other recording, since making such a
    recording again may cost calls.
    """
    ending = out.suffix.lower()
    if ending in _LOG_ENDINGS:
        raise DataError(
            f"a recording is a parquet file, and {str(out)!r} has the ending of a log: -o {out.stem}.parquet"
        )
    if out.exists() and not _was_imported(out):
        raise DataError(
            f"{str(out)!r} exists and is no recording that an import wrote: -o {out.stem}.recording.parquet"
        )
    return out


def _was_imported(path: Path) -> bool:
    try:
        return "source" in open_recording(path).metadata
    except SchemaError:
        return False
