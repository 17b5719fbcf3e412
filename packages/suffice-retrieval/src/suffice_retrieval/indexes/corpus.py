"""Read corpora in their published forms, and open or write their BM25 indexes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.errors import DataError, SchemaError
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes.corpus_bm25 import CorpusBM25
from suffice_retrieval.indexes.corpus_forms import HUB, Corpus, corpus_of
from suffice_retrieval.indexes.documents import Decoding, is_left_out
from suffice_retrieval.indexes.engines import EngineName, choose_engine
from suffice_retrieval.indexes.storage import building, is_index

__all__ = [
    "CorpusIndex",
    "Decoding",
    "check_apart",
    "corpus_source",
    "index_beside",
    "index_corpus",
    "open_corpus",
    "read_corpus",
]

_CORPUS_LOG = logging.getLogger(__name__)


def read_corpus(path: str | Path, *, errors: Decoding = "skip") -> Iterator[Passage]:
    """Yield the passages of a corpus in a fixed order, with one passage in memory at a time.

    Args:
        path: A file or folder, a data set (``hf:NAME``) or an index; `suffice_retrieval.indexes.corpus_forms` lists the forms.
        errors: Treatment of text that is not UTF-8.  `"replace"` puts U+FFFD in place of invalid bytes.  `"strict"`
            raises. `"skip"` leaves files with such text out of a folder of documents, and logs their names; for other
            forms of corpora it raises.

    Raises:
        DataError: There is nothing to read, bytes are not UTF-8, a line is not a passage, or an id repeats; the message
            names the file and line.
    """
    return corpus_of(path, errors).passages()


def corpus_source(path: str | Path, *, errors: Decoding = "skip") -> str:
    """Return a hash of a corpus's content, its file names and the settings for reading it.

    Args:
        path: See `read_corpus`.
        errors: See `read_corpus`.

    Raises:
        DataError: There is nothing to read.
    """
    return corpus_of(path, errors).source()


def open_corpus(
    path: str | Path,
    index_dir: str | Path | None = None,
    *,
    errors: Decoding = "skip",
    on_progress: Callable[[int, int | None], None] | None = None,
) -> CorpusBM25:
    """Open the saved BM25 index of a corpus if it is up to date; otherwise build and save a new index.

    Args:
        path: A corpus (see `read_corpus`), or the folder of an index, in which case no corpus is needed.
        index_dir: Folder of the index; None for ``<path>.suffice-index`` beside the corpus.
        errors: See `read_corpus`.
        on_progress: Called with the number of passages indexed so far, and the total if it is known.

    Raises:
        DataError: The corpus cannot be read, or the index cannot be written to the given `index_dir`.  If the
            default folder cannot be written, this is logged and the index stays in memory.
    """
    if index_dir is None and is_index(Path(path)):
        return CorpusBM25.load(path)
    directory = index_beside(path, "suffice-index") if index_dir is None else Path(index_dir)
    try:
        index, _, is_new = _indexed(path, directory, errors, None, on_progress)
    except DataError as error:
        if index_dir is not None:
            raise
        index = CorpusBM25(
            read_corpus(path, errors=errors)
        )  # raises if the corpus, and not the folder, was the problem
        _CORPUS_LOG.warning("the index of %s is not saved: %s", path, error)
        return index
    if is_new and index_dir is None:
        note_index_beside(path, directory)
    return index


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusIndex(Result):
    """An index of a corpus.

    Attributes:
        path: Folder of the index.
        corpus: The corpus that was indexed.
        form: The form in which the corpus was read, such as `DPR tsv`.
        is_new: True if the index was built now; False if an existing index was up to date.
        n_passages: Number of passages.
        n_tokens: Number of words of all passages, without stop words.
        n_terms: Number of distinct words; None for an index of tantivy, which does not count them.
        library: The library that built and searches the index, with its release series, such as `bm25s 0.3`.
        k1: Saturation of the term frequency.
        b: Share of length normalisation.
        n_bytes: Size of the index on disk, in bytes.
        seconds: Time taken, in seconds.
    """

    path: Path
    corpus: str
    form: str
    is_new: bool
    n_passages: int
    n_tokens: int
    n_terms: int | None
    library: str
    k1: float
    b: float
    n_bytes: int
    seconds: float

    def table(self) -> Table:
        """Return the size of the index as a table."""
        columns = (
            ("passages", ",d"),
            ("words", ",d"),
            ("distinct words", ",d"),
            ("MB on disk", ",.1f"),
            ("seconds", ",.1f"),
        )
        row = (self.n_passages, self.n_tokens, self.n_terms, self.n_bytes / 1e6, self.seconds)
        return Table(title="The index", columns=tuple(Column(*column) for column in columns), rows=(row,))


def index_corpus(
    path: str | Path,
    directory: str | Path,
    *,
    engine: EngineName | None = None,
    k1: float | None = None,
    b: float | None = None,
    errors: Decoding = "skip",
    on_progress: Callable[[int, int | None], None] | None = None,
) -> CorpusIndex:
    """Write the BM25 index of a corpus of any size to a folder, which `open_corpus` then opens without the corpus.

    Args:
        path: See `read_corpus`.
        directory: The folder; an existing index in it is kept if corpus, engine and parameters are the same, else
            replaced.
        engine: See `CorpusBM25.build`.
        k1: See `CorpusBM25.build`.
        b: See `CorpusBM25.build`.
        errors: See `read_corpus`.
        on_progress: See `CorpusBM25.build`.

    Raises:
        DataError: The corpus cannot be read, the folder cannot be written, or the engine does not have the parameters.
        MissingExtraError: The library is not installed (extra `corpus`).
    """
    began = perf_counter()
    index, corpus, is_new = _indexed(path, Path(directory), errors, (engine, k1, b), on_progress)
    return CorpusIndex(
        path=Path(directory),
        corpus=str(path),
        form=corpus.form,
        is_new=is_new,
        n_passages=len(index),
        n_tokens=index.n_tokens,
        n_terms=index.n_terms,
        library=index.library,
        k1=index.k1,
        b=index.b,
        n_bytes=sum(file.stat().st_size for file in Path(directory).rglob("*") if file.is_file()),
        seconds=perf_counter() - began,
    )


_Method = tuple[EngineName | None, float | None, float | None]
"""The requested engine, k1 and b, see `choose_engine`."""


def _indexed(
    path: str | Path,
    directory: Path,
    errors: Decoding,
    method: _Method | None,
    on_progress: Callable[[int, int | None], None] | None,
) -> tuple[CorpusBM25, Corpus, bool]:
    """Return the index in a folder, the corpus, and whether the index is new.

    With `method` None, a saved index with any engine and parameters is accepted.
    """
    check_apart(path, directory)
    corpus = corpus_of(path, errors)
    source = corpus.source()
    index = _saved(path, directory, source, method)
    if index is not None:
        return index, corpus, False
    with building(directory, f"the index of {path} is being built in {directory}"):
        index = _saved(path, directory, source, method)  # perhaps written by the process that held the lock
        if index is not None:
            return index, corpus, False
        engine, k1, b = method or (None, None, None)
        built = CorpusBM25.build(
            directory, corpus.passages(), source=source, engine=engine, k1=k1, b=b, on_progress=on_progress
        )
        return built, corpus, True


def _saved(path: str | Path, directory: Path, source: str, method: _Method | None) -> CorpusBM25 | None:
    """Return the index in a folder if its corpus and its method match, else None.

    With `method` None, every method matches.
    """
    try:
        index = CorpusBM25.load(directory, source=source)
    except SchemaError as reason:
        _CORPUS_LOG.info("indexing %s: %s", path, reason)
        return None
    is_asked = method is None or choose_engine(len(index), *method) == (index.engine, index.k1, index.b)
    return index if is_asked else None


def check_apart(path: str | Path, directory: Path) -> None:
    """Raise if the folder of an index is the folder of its corpus, or lies inside that folder.

    Raises:
        DataError: The folder of the index is that of the corpus, or lies inside it.
    """
    if str(path).startswith(HUB):
        return
    corpus, place = Path(path).resolve(), directory.resolve()
    if place == corpus:
        raise DataError(f"{directory} is the corpus itself, which its index would replace: give another folder")
    if place.is_relative_to(corpus) and not is_left_out(place.relative_to(corpus)):
        raise DataError(
            f"{directory} is inside the corpus {path}, which would then contain the passages of its index: give another folder"
        )


def note_index_beside(path: str | Path, directory: Path) -> None:
    """Log that the new index of a corpus is in a folder beside the corpus."""
    _CORPUS_LOG.warning(
        "the index of %s is kept in %s; `suffice index %s -o FOLDER` keeps one elsewhere", path, directory, path
    )


def index_beside(path: str | Path, ending: str) -> Path:
    """Return the default folder for the index of a corpus, which is beside the corpus."""
    if str(path).startswith(HUB):
        raise DataError(
            f"{path} has no place on this disk for an index beside it: `suffice index {path} -o FOLDER` writes one"
        )
    place = Path(path).resolve()
    return place.with_name(f"{place.name}.{ending}")
