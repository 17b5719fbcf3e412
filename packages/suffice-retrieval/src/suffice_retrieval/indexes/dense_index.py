"""Index a corpus as vectors on disk, encoded block by block by one or several processes.

The vectors are in files of a million each.  With n processes, each process encodes every n-th file, and notes its
progress beside the file.  The first process writes the passages while the others wait.  The process that finishes last
writes the manifest.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.files import disk_fault, write_file
from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.errors import DataError, SchemaError
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes.approximate import RECALL_K, ApproximateSearch, ApproximateSettings
from suffice_retrieval.indexes.corpus import check_apart, index_beside, note_index_beside
from suffice_retrieval.indexes.corpus_forms import corpus_of
from suffice_retrieval.indexes.dense import (
    APPROXIMATE,
    APPROXIMATE_FILE,
    DENSE_KIND,
    DENSE_VERSION,
    STORED,
    DenseRetriever,
    vector_files,
)
from suffice_retrieval.indexes.documents import Decoding
from suffice_retrieval.indexes.storage import (
    Stored,
    begin_stored,
    building,
    finish_stored,
    is_index,
    join_stored,
    open_stored,
)
from suffice_retrieval.indexes.vectors import StoredVectors

_BLOCK = 4096
"""Number of passages encoded between two notes of the progress."""

_FILE_ROWS = 2**20
"""Number of vectors in a file."""

_WAIT_S = 1.0
_DENSE_LOG = logging.getLogger(__name__)
_Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseIndex(Result):
    """An index of vectors.

    Attributes:
        path: Its folder.
        corpus: The corpus that was indexed.
        model: The model that encoded the passages.
        is_complete: True if all vectors are stored; False while other processes encode theirs.
        n_passages: Number of passages; like `dimension` and `n_files`, 0 until the index is complete.
        dimension: Number of components of a vector.
        dtype: Type of the components on disk.
        n_files: Number of files of vectors.
        approximate: Settings of the approximate search; None without one.
        n_bytes: Size of the index on disk, in bytes.
        seconds: Time taken, in seconds.
    """

    path: Path
    corpus: str
    model: str
    is_complete: bool
    n_passages: int
    dimension: int
    dtype: str
    n_files: int
    approximate: ApproximateSettings | None
    n_bytes: int
    seconds: float

    def table(self) -> Table:
        """Return the size of the index, and the recall of its approximate search if it has one, as a table."""
        columns = [
            Column("passages", ",d"),
            Column("numbers", "d"),
            Column("type"),
            Column("files", "d"),
            Column("MB on disk", ",.1f"),
            Column("seconds", ",.1f"),
        ]
        row: list[Any] = [self.n_passages, self.dimension, self.dtype, self.n_files, self.n_bytes / 1e6, self.seconds]
        notes: tuple[str, ...] = ()
        if self.approximate is not None:
            columns += [Column("lists"), Column("visited", "d"), Column(f"recall@{RECALL_K}", ".3f")]
            row += [self.approximate.form, self.approximate.probes, self.approximate.recall]
            asked = f"{self.approximate.recall_queries} passages as questions, which trained no centroid"
            notes = (
                f"recall@{RECALL_K} is measured against exact search with {asked}; that of your questions may differ",
            )
        return Table(title="The index", columns=tuple(columns), rows=(tuple(row),), notes=notes)


def open_dense(
    path: str | Path,
    model: str | Path,
    index_dir: str | Path | None = None,
    *,
    errors: Decoding = "skip",
    on_progress: _Progress | None = None,
    **options: Any,
) -> DenseRetriever:
    """Open the saved dense index of a corpus if corpus and encoder are the same; otherwise build and save a new index.

    The index is built block by block; after an interruption, the same call resumes.  Passages and vectors stay on disk.

    Args:
        path: A corpus (see `read_corpus`), or the folder of a dense index, in which case no corpus is needed.
        model: Id or folder of a sentence-transformers model.
        index_dir: Folder of the index; None for ``<path>.<hash of the encoder>.suffice-index`` beside the corpus.
        errors: See `read_corpus`.
        on_progress: Called with the number of encoded passages and the total.
        **options: Other parameters of `DenseRetriever`.

    Raises:
        DataError: The corpus cannot be read, or the index cannot be written to the given `index_dir`.  If the default
            folder cannot be written, this is logged and the index stays in memory.
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model cannot be loaded, or returns no usable vectors.
        SchemaError: `path` is a dense index that belongs to another model, is damaged or is unfinished.
    """
    if index_dir is None and is_dense_index(Path(path)):
        return DenseRetriever.load(path, model, **options)
    corpus = corpus_of(path, errors)
    source = corpus.source()
    retriever = DenseRetriever(model, **options)
    beside = f"{_encoder_hash(retriever)}.suffice-index"
    directory = index_beside(path, beside) if index_dir is None else Path(index_dir)
    check_apart(path, directory)
    if _is_made_of(retriever, directory, source):
        return retriever
    try:
        with building(directory, f"the vectors of {path} are being written in {directory}"):
            if not _is_made_of(retriever, directory, source):  # perhaps written by the process that held the lock
                write_vectors(retriever, directory, corpus.passages(), source=source, on_progress=on_progress)
                retriever.attach(directory, source=source)
                if index_dir is None:
                    note_index_beside(path, directory)
    except DataError as error:
        if index_dir is not None:
            raise
        passages = list(corpus.passages())  # raises if the corpus, and not the folder, was the problem
        _DENSE_LOG.warning("the index of %s is not saved: %s", path, error)
        return DenseRetriever(model, passages, **options)
    return retriever


def is_dense_index(path: Path) -> bool:
    """Return whether a folder contains a dense index, complete or not."""
    return is_index(path) and (any(path.glob("vectors*.npy")) or any(path.glob("vectors*.json")))


def index_dense(
    path: str | Path,
    directory: str | Path,
    model: str | Path,
    *,
    shard: tuple[int, int] = (1, 1),
    stored: str = "float32",
    recall: float | None = None,
    seed: int = 0,
    errors: Decoding = "skip",
    on_progress: _Progress | None = None,
    **options: Any,
) -> DenseIndex:
    """Write the dense index of a corpus of any size to a folder, which `open_dense` then opens without the corpus.

    After an interruption, the same call resumes from the files of the earlier run, if corpus and encoder are the same.

    Args:
        path: See `read_corpus`.
        directory: The folder.
        model: See `DenseRetriever`.
        shard: Number of this process, from 1, and the number of processes.  Each process encodes its share, and the
            process that ends last completes the index.
        stored: Type of the vectors on disk, `float32` or `float16`.
        recall: Share of the ten best passages that an approximate search must find; None to build no approximate
            search.
        seed: Seed of the approximate search.
        errors: See `read_corpus`.
        on_progress: Called with the number of passages that this process has encoded, and the size of its share.
        **options: Other parameters of `DenseRetriever`.

    Raises:
        DataError: The corpus cannot be read, the folder cannot be written, or a parameter is out of range.
        MissingExtraError: sentence-transformers, or FAISS, is not installed.
        ModelError: The model cannot be loaded, or returns no usable vectors.
    """
    began = time.perf_counter()
    if stored not in ("float32", "float16"):
        raise DataError(f"vectors are stored as float32 or float16, not {stored!r}")
    if recall is not None and not 0 < recall <= 1:
        raise DataError(f"the recall of an approximate index is {recall!r}; allowed: above 0, up to 1")
    place = Path(directory)
    check_apart(path, place)
    corpus = corpus_of(path, errors)
    source = corpus.source()
    retriever = DenseRetriever(model, **options)
    # Only the first shard removes an old index.
    alone = building(place, f"the vectors of {path} are being written in {place}") if shard[0] == 1 else nullcontext()
    with alone:
        is_complete = _is_made_of(retriever, place, source, stored) or write_vectors(
            retriever,
            place,
            corpus.passages(),
            source=source,
            shard=shard,
            stored=stored,
            on_progress=on_progress,
        )
        if is_complete:
            retriever.attach(place, source=source)
            if recall is not None:
                _add_approximate(retriever, place, recall, seed)
    vectors = retriever.vectors if is_complete else StoredVectors([])
    return DenseIndex(
        path=place,
        corpus=str(path),
        model=retriever.model,
        is_complete=is_complete,
        n_passages=len(vectors),
        dimension=vectors.dimension,
        dtype=stored,
        n_files=len(vectors.parts),
        approximate=retriever.approximate,
        n_bytes=sum(file.stat().st_size for file in place.iterdir() if file.is_file()),
        seconds=time.perf_counter() - began,
    )


def write_vectors(
    retriever: DenseRetriever,
    directory: Path,
    passages: Iterator[Passage],
    *,
    source: str,
    shard: tuple[int, int] = (1, 1),
    stored: str = "float32",
    on_progress: _Progress | None = None,
) -> bool:
    """Encode a corpus of any size block by block; after an interruption, the same call resumes.

    Args:
        retriever: Encodes the passages.
        directory: The folder, which is created.
        passages: The corpus, read once, and only by the first process.
        source: A hash of the corpus; an unfinished index with another hash is started anew.
        shard: See `index_dense`.
        stored: See `index_dense`.
        on_progress: See `index_dense`.

    Returns:
        True if the index is complete.
    """
    number, n = shard
    if not 1 <= number <= n:
        raise DataError(f"there is no shard {number}/{n}: shards are counted from 1, as in 3/8")
    made_of = {**retriever.embedder(), "source": source, **({} if stored == "float32" else {STORED: stored})}
    index = _begun(retriever, directory, made_of, passages, shard)
    if index is None:
        return True
    listed, size = index.passage_file(), int(index.progress["file_rows"])
    files = vector_files(len(listed), size)
    shares = [range(i * size, min((i + 1) * size, len(listed))) for i in range(len(files))]
    own = [*zip(files, shares, strict=True)][number - 1 :: n]
    total, before = sum(len(share) for _, share in own), 0
    for name, share in own:
        for done in _encoded(retriever, directory / name, listed, share, stored):
            if on_progress is not None:
                on_progress(before + done, total)
        before += len(share)
    if any(not (directory / name).is_file() or _note(directory / name).is_file() for name in files):
        return False
    if files:
        index.used += files
    else:
        index.write_array("vectors.npy", np.zeros((0, 0), dtype=stored))
    index.meta = {**made_of, "corpus_hash": index.progress["corpus_hash"]}
    finish_stored(index)
    return True


def _begun(
    retriever: DenseRetriever,
    directory: Path,
    made_of: Mapping[str, Any],
    passages: Iterator[Passage],
    shard: tuple[int, int],
) -> Stored | None:
    """Start or resume an index with its passages; return None if another process has completed it meanwhile."""
    number, n = shard
    plan = {
        **made_of,
        "layout": "files",
    }  # an unfinished index of an earlier release has another layout, and is begun anew
    if number == 1:
        stored = begin_stored(directory, DENSE_KIND, DENSE_VERSION, plan)
        if "corpus_hash" not in stored.progress:
            corpus_hash = stored.stream_passages(passages)
            blocks_each = math.ceil(len(stored.passage_file()) / n / _BLOCK)
            stored.advance(corpus_hash=corpus_hash, file_rows=min(_FILE_ROWS, max(1, blocks_each) * _BLOCK))
        return stored
    is_waiting = False
    while (joined := join_stored(directory, DENSE_KIND, DENSE_VERSION, plan)) is None or not joined.progress:
        if _is_made_of(retriever, directory, str(made_of["source"]), made_of.get(STORED, "float32")):
            return None
        if not is_waiting:
            _DENSE_LOG.warning(
                "shard %d/%d waits until shard 1/%d has written the passages of %s", *shard, n, directory
            )
        is_waiting = True
        time.sleep(_WAIT_S)
    return joined


def _note(path: Path) -> Path:
    """Return the path of the progress note of an unfinished file of vectors."""
    return path.with_suffix(".json")


def _encoded(
    retriever: DenseRetriever, path: Path, listed: Sequence[Passage], share: range, dtype: str
) -> Iterator[int]:
    """Encode the passages of one file of vectors, or resume an earlier run; yield the number of encoded passages."""
    if path.is_file() and not _note(path).is_file():
        yield len(share)
        return
    done = 0
    with suppress(OSError, ValueError, KeyError):
        done = int(json.loads(_note(path).read_text(encoding="utf-8"))["done"]) if path.is_file() else 0
    if not done:
        write_file(_note(path), json.dumps({"done": 0}))
    while done < len(share):
        passages = listed[share[done] : share[done] + min(_BLOCK, len(share) - done)]
        block = _stored_as(dtype, retriever.encode_passages(passages))
        try:
            _write_rows(path, block, done, len(share))
        except OSError as error:
            raise disk_fault(path, error) from error
        done += len(block)
        write_file(_note(path), json.dumps({"done": done}))
        yield done
    _note(path).unlink()


def _write_rows(path: Path, block: npt.NDArray[np.floating], first: int, rows: int) -> None:
    """Write consecutive rows to an array file; the first rows create the file."""
    shape = (rows, block.shape[1])
    if not first:
        header = {"descr": np.lib.format.dtype_to_descr(block.dtype), "fortran_order": False, "shape": shape}
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + rows * block[0].nbytes)
    array = np.load(path, mmap_mode="r")
    if array.shape != shape or array.dtype != block.dtype:
        raise DataError(f"{path}: was begun with vectors of another form {array.shape}; give another folder")
    with path.open("rb+") as file:
        file.seek(array.offset + first * block[0].nbytes)
        file.write(np.ascontiguousarray(block).data)
        file.flush()
        os.fsync(file.fileno())


def _stored_as(dtype: str, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.floating]:
    with np.errstate(over="ignore"):
        converted = vectors.astype(dtype, copy=False)
    if not np.isfinite(converted).all():
        raise DataError(f"numbers up to {np.abs(vectors).max():g} do not fit into {dtype}; store them as float32")
    return converted


def _is_made_of(retriever: DenseRetriever, directory: Path, source: str, dtype: str | None = None) -> bool:
    """Let the retriever search the index in a folder, if the index is complete and has these settings.

    Return whether the retriever now searches it.
    """
    try:
        retriever.attach(directory, source=source)
    except SchemaError as reason:
        _DENSE_LOG.info("indexing %s: %s", directory, reason)
        return False
    parts = retriever.vectors.parts
    return dtype is None or not parts or parts[0].dtype == dtype


def _add_approximate(retriever: DenseRetriever, directory: Path, recall: float, seed: int) -> None:
    """Add an approximate search to a complete index, unless the index already has one with the same settings."""
    known = retriever.approximate
    if known is not None and (known.demanded, known.seed) == (recall, seed):
        return
    stored = open_stored(directory, DENSE_KIND, DENSE_VERSION)
    if APPROXIMATE_FILE in stored.used:  # remove the old one first: until there is a new one, the search is exact
        stored.used.remove(APPROXIMATE_FILE)
        del stored.meta[APPROXIMATE]
        finish_stored(stored)
    settings = ApproximateSearch.build(directory / APPROXIMATE_FILE, retriever.vectors, recall=recall, seed=seed)
    if settings.recall < recall:
        _DENSE_LOG.warning(
            "%s: the approximate search finds %.3f of the %d best passages, not %g; search exactly (without the setting approximate)",
            *(directory, settings.recall, RECALL_K, recall),
        )
    stored.used.append(APPROXIMATE_FILE)
    stored.meta[APPROXIMATE] = asdict(settings)
    finish_stored(stored)
    retriever.attach(directory)


def _encoder_hash(retriever: DenseRetriever) -> str:
    """Return 8 hexadecimal digits that identify an encoder, since a corpus may have indexes of several encoders."""
    made_by = retriever.embedder()
    named = ("model", "revision") if "content" in made_by else ()
    text = json.dumps({key: value for key, value in made_by.items() if key not in named}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
