"""Read a folder of documents as a corpus: text and Markdown files, cut into passages.

A folder is read recursively: all `.txt` and `.md` files that are not hidden, in the order of their paths.  The log
contains the number of other files by type, and the names of files that are not UTF-8.  Each file is split at paragraph
borders into passages of about 120 words, with one file in memory at a time.  Every passage gets a unique title: the
file name, the Markdown heading above it, and a part number if the heading has several passages.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from suffice.common.json_text import well_formed
from suffice.errors import DataError
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes.passages import split_text

Decoding = Literal["skip", "strict", "replace"]
"""Treatment of bytes that are not UTF-8: skip the file of a folder, raise, or insert a replacement character."""

_SUFFIXES = (".txt", ".md")
_FILES_NAMED = 5
"""Largest number of files named in a log message."""

_CORPUS_LOG = logging.getLogger("suffice_retrieval.indexes.corpus")


def documents(folder: Path) -> list[Path]:
    """Return the documents of a folder in the order of their paths, without following links to folders."""
    listed = [file for file in corpus_files(folder) if file.name.lower().endswith(_SUFFIXES) and file.is_file()]
    return sorted(listed, key=lambda file: file.relative_to(folder).as_posix())


def is_left_out(folder: Path) -> bool:
    """Return whether a folder in a corpus is left out: it is hidden, is an index, or lies inside such a folder.

    >>> is_left_out(Path(".git/hooks")), is_left_out(Path("a/wiki.suffice-index")), is_left_out(Path("a/b"))
    (True, True, False)
    """
    return any(name.startswith(".") or name.endswith(".suffice-index") for name in folder.parts)


def corpus_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that are not hidden."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not is_left_out(Path(name))]
        yield from (Path(parent) / name for name in files if not name.startswith("."))


def log_skipped(path: Path) -> None:
    """Log the number of files that are not read, by type."""
    kinds: Counter[str] = Counter()
    for file in corpus_files(path):
        if not file.is_file():
            kinds["broken links"] += 1
        elif not file.name.lower().endswith(_SUFFIXES):
            kinds[file.suffix.lower() or "without a suffix"] += 1
    if kinds:
        listed = ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items(), key=lambda item: (-item[1], item[0])))
        _CORPUS_LOG.warning("%s: skipped %s; only .txt and .md files are read", path, listed)


def _utf8_only(folder: Path, files: list[Path]) -> list[Path]:
    """Return the files that are valid UTF-8, and log the names of the others."""
    wrong = [file for file in files if not _is_utf8(file)]
    if wrong:
        names = [file.relative_to(folder).as_posix() for file in wrong]
        more = "" if len(names) <= _FILES_NAMED else f" and {len(names) - _FILES_NAMED:,} more"
        _CORPUS_LOG.warning(
            "%s: skipped because they are not UTF-8: %s%s", folder, ", ".join(names[:_FILES_NAMED]), more
        )
    if len(wrong) == len(files):
        raise DataError(f"{folder}: none of its {len(files)} documents is UTF-8; save them as UTF-8")
    return [file for file in files if file not in set(wrong)]


def _is_utf8(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8") as lines:
            for _ in lines:
                pass
    except UnicodeDecodeError:
        return False
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error})") from error
    return True


def read_documents(folder: Path, errors: Decoding) -> Iterator[Passage]:
    """Yield the passages of a folder's documents."""
    files = documents(folder)
    if errors == "skip":
        files, errors = _utf8_only(folder, files), "strict"
    stems = Counter(file.stem for file in files)
    names = Counter(file.relative_to(folder).with_suffix("").as_posix() for file in files)
    for file in files:
        relative = file.relative_to(folder)
        # The shortest name that is unique among the documents.
        name = file.stem
        if stems[name] > 1:
            name = relative.with_suffix("").as_posix()
            name = name if names[name] == 1 else relative.as_posix()
        try:
            with file.open(encoding="utf-8-sig", errors=errors) as lines:
                parts = split_text(lines, well_formed(name), markdown=file.suffix.lower() == ".md")
                for i, (title, text) in enumerate(parts):
                    # A file name may contain bytes that are not UTF-8.
                    yield Passage(passage_id=well_formed(f"{relative.as_posix()}#{i}"), title=title, text=text)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{file}: not UTF-8 (byte {error.object[error.start : error.start + 1]!r}); save it as UTF-8, or "
                "read with errors='replace' or 'skip'"
            ) from error
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error})") from error
