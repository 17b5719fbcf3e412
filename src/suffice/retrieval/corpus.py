"""Documents on disk as a corpus: a folder of text files, or JSON lines.

A folder is read recursively: `.txt` and `.md` files in the order of their paths, without hidden ones.  Other files are
counted by type in the log, and files that are not UTF-8 are named there.  Each file is split at paragraph borders into
passages of about 120 words, with one file in memory at a time.  Every passage gets a unique title: the file name, the
Markdown heading above it, and a part number if the heading has several passages.

Each line of a JSON lines file, ``{"id": ..., "title": ..., "text": ...}``, is one passage, which is not split.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.files import file_sha256, json_lines
from suffice.json_text import well_formed
from suffice.retrieval.corpus_bm25 import CorpusBM25
from suffice.retrieval.dense import DenseRetriever, write_vectors
from suffice.retrieval.passages import PASSAGE_WORDS, split_text
from suffice.rounds import Passage

__all__ = ["Decoding", "corpus_source", "open_corpus", "open_dense", "read_corpus"]

Decoding = Literal["skip", "strict", "replace"]
"""What to do with bytes that are not UTF-8: skip the file of a folder, raise, or insert a replacement character."""

_SUFFIXES = (".txt", ".md")
_FILES_NAMED = 5
"""Largest number of files named in a log message."""

_CORPUS_LOG = logging.getLogger(__name__)


def read_corpus(path: str | Path, *, errors: Decoding = "skip") -> Iterator[Passage]:
    """Yield the passages of a folder or of a JSON lines file, in a fixed order.

    Args:
        path: A folder with `.txt` and `.md` files, or a `.jsonl` file.
        errors: `"skip"` leaves files of a folder out that are not UTF-8, and logs their names; `"strict"` refuses them,
            as all but `"replace"` do with JSON lines; `"replace"` puts U+FFFD in place of the bytes.

    Raises:
        DataError: Nothing to read, bytes that are not UTF-8, or a line that is not a passage; the message names the file.
    """
    path = Path(path)
    _log_skipped(path)
    return _corpus_passages(path, errors)


def _corpus_passages(path: Path, errors: Decoding) -> Iterator[Passage]:
    if path.is_dir():
        return _read_folder(path, errors)
    return _read_lines(_jsonl(path), "strict" if errors == "skip" else errors)


def corpus_source(path: str | Path, *, errors: Decoding = "skip") -> str:
    """Return a hash of the content and file names of a corpus, and of the settings for reading it.

    Args:
        path: See `read_corpus`.
        errors: See `read_corpus`.

    Raises:
        DataError: There is nothing to read.
    """
    path = Path(path)
    digest = hashlib.sha256(f"1 {errors} {PASSAGE_WORDS}".encode())
    files = _documents(path) if path.is_dir() else [_jsonl(path)]
    for file in files:
        name = file.relative_to(path).as_posix() if path.is_dir() else ""
        digest.update(json.dumps([name, file_sha256(file).hex()]).encode())
    return digest.hexdigest()


def open_corpus(path: str | Path, index_dir: str | Path | None = None, *, errors: Decoding = "skip") -> CorpusBM25:
    """Return a BM25 index of a corpus: the saved one if it is up to date, else a new one, which is saved.

    Args:
        path: A folder with `.txt` and `.md` files, or a `.jsonl` file.
        index_dir: Folder of the index; None for ``<path>.suffice-index`` beside the corpus.
        errors: See `read_corpus`.

    Raises:
        DataError: The corpus cannot be read, or the index cannot be written to the given `index_dir`.  If the
            default folder cannot be written, this is logged and the index stays in memory.
    """
    path = Path(path)
    source = corpus_source(path, errors=errors)
    _log_skipped(path)
    beside = path.resolve()
    directory = beside.with_name(f"{beside.name}.suffice-index") if index_dir is None else Path(index_dir)
    try:
        return CorpusBM25.load(directory, source=source)
    except SchemaError as reason:
        _CORPUS_LOG.info("indexing %s: %s", path, reason)
    index = CorpusBM25(list(_corpus_passages(path, errors)))
    try:
        index.save(directory, source=source)
    except DataError as error:
        if index_dir is not None:
            raise
        _CORPUS_LOG.warning("the index of %s is not saved: %s", path, error)
    return index


def open_dense(
    path: str | Path,
    model: str | Path,
    index_dir: str | Path | None = None,
    *,
    errors: Decoding = "skip",
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> DenseRetriever:
    """Return a dense index of a corpus: the saved one if corpus and encoder are the same, else a new one, which is saved.

    The index is built block by block, and after an interruption the same call goes on. Passages and vectors stay on disk.

    Args:
        path: A folder with `.txt` and `.md` files, or a `.jsonl` file.
        model: Id or folder of a sentence-transformers model.
        index_dir: Folder of the index; None for ``<path>.<hash of the encoder>.suffice-index`` beside the corpus.
        errors: See `read_corpus`.
        on_progress: Called with the number of encoded passages and of all.
        **options: Other parameters of `DenseRetriever`.

    Raises:
        DataError: The corpus cannot be read, or the index cannot be written to the given `index_dir`.  If the default
            folder cannot be written, this is logged and the index stays in memory.
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model cannot be loaded, or returns no usable vectors.
    """
    path = Path(path)
    source = corpus_source(path, errors=errors)
    _log_skipped(path)
    retriever = DenseRetriever(model, **options)
    beside = path.resolve()
    directory = beside.with_name(f"{beside.name}.{_encoder_hash(retriever)}.suffice-index")
    if index_dir is not None:
        directory = Path(index_dir)
    try:
        retriever.attach(directory, source=source)
    except SchemaError as reason:
        _CORPUS_LOG.info("indexing %s: %s", path, reason)
    else:
        return retriever
    try:
        write_vectors(retriever, directory, _corpus_passages(path, errors), source=source, on_progress=on_progress)
    except DataError as error:
        if index_dir is not None:
            raise
        passages = list(_corpus_passages(path, errors))  # raises where it was the corpus that could not be read
        _CORPUS_LOG.warning("the index of %s is not saved: %s", path, error)
        return DenseRetriever(model, passages, **options)
    retriever.attach(directory, source=source)
    return retriever


def _encoder_hash(retriever: DenseRetriever) -> str:
    """Return 8 hexadecimal digits for what makes the vectors: several encoders may have an index of one corpus."""
    made_by = retriever.embedder()
    named = ("model", "revision") if "content" in made_by else ()
    text = json.dumps({key: value for key, value in made_by.items() if key not in named}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _jsonl(path: Path) -> Path:
    if not path.exists():
        raise NotFoundError(
            f"the corpus {str(path)!r} does not exist; give a folder of .txt and .md files, or a .jsonl file"
        )
    if path.suffix != ".jsonl":
        raise DataError(f"{path}: a corpus file must end in .jsonl; give a JSON lines file, or a folder of documents")
    return path


def _documents(folder: Path) -> list[Path]:
    """Return the documents of a folder in the order of their paths, without following links to folders."""
    documents = [file for file in _files(folder) if file.name.lower().endswith(_SUFFIXES) and file.is_file()]
    if not documents:
        raise DataError(f"{folder}: the folder contains no .txt or .md file; add documents, or give a .jsonl file")
    return sorted(documents, key=lambda file: file.relative_to(folder).as_posix())


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that are not hidden."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and not name.endswith(".suffice-index")]
        yield from (Path(parent) / name for name in files if not name.startswith("."))


def _log_skipped(path: Path) -> None:
    """Log the number of skipped files by type."""
    kinds: Counter[str] = Counter()
    for file in _files(path):
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


def _read_folder(folder: Path, errors: Decoding) -> Iterator[Passage]:
    files = _documents(folder)
    if errors == "skip":
        files, errors = _utf8_only(folder, files), "strict"
    stems = Counter(file.stem for file in files)
    names = Counter(file.relative_to(folder).with_suffix("").as_posix() for file in files)
    for file in files:
        relative = file.relative_to(folder)
        # The shortest name that no other document has.
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


def _read_lines(path: Path, errors: Decoding) -> Iterator[Passage]:
    first_line: dict[str, int] = {}
    for where, row in json_lines(path, "an object with title and text", errors=errors):
        number = int(where.rpartition(" ")[2])
        passage = _row_passage(row, number, where)
        if passage.passage_id in first_line:
            raise DataError(
                f"{where}: id {passage.passage_id!r} was already used on line {first_line[passage.passage_id]}; each "
                "passage needs its own id"
            )
        first_line[passage.passage_id] = number
        yield passage


def _row_passage(row: dict[str, Any], number: int, where: str) -> Passage:
    if not isinstance(row.get("text"), str):
        raise DataError(f"{where}: got {row!r:.80}; expected an object with a string 'text'")
    passage_id = row.get("id", number)
    title = row.get("title")
    if isinstance(passage_id, bool) or not isinstance(passage_id, str | int) or not isinstance(title, str | None):
        raise DataError(
            f"{where}: id is {passage_id!r:.40}, title is {title!r:.40}; expected strings (id may be a number)"
        )
    # Use the id as a missing title, so that prompts name every passage.
    return Passage(passage_id=str(passage_id), title=title or str(passage_id), text=row["text"])
