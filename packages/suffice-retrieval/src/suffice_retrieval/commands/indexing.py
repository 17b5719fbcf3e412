"""`suffice index`: index a corpus into a folder; searches then read the folder from disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option

from suffice.cli.console import progress_bar
from suffice.cli.datasets import PassageEncoder
from suffice.cli.local import DeviceName
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting, from_file
from suffice.common.files import quoted
from suffice.common.tables import counted
from suffice.loops.retrieval.bm25 import K1, B
from suffice.recordings.shards import Shard
from suffice_retrieval.indexes import CorpusIndex, DenseIndex, index_corpus, index_dense
from suffice_retrieval.indexes.engines import IN_MEMORY, EngineName


@dataclass(frozen=True, kw_only=True)
class Encoding(PassageEncoder):
    """Options for an index of vectors instead of words."""

    dense: Annotated[
        str | None, Option("--dense", help="Encode passages with a sentence-transformers model (id or path).")
    ] = None
    dense_store: Annotated[
        Literal["float32", "float16"],
        Setting("retrieval", "dense-store", help="With --dense: type of the vectors on disk."),
    ] = "float32"
    approximate: Annotated[
        float | None,
        Setting(
            "retrieval",
            "approximate",
            help="With --dense: search approximately (FAISS), so that this share of the ten best passages is in the result, "
            "such as 0.95. Default: every vector is compared.",
        ),
    ] = None
    shard: Annotated[
        str | None,
        Option("--shard", metavar="I/N", help="With --dense: encode one share of N, each in a process of its own."),
    ] = None
    device: DeviceName = None

    def write(self, corpus: str, out: Path, model: str, output: Output) -> None:
        """Encode the passages, and print the index."""
        shard = Shard(1, 1) if self.shard is None else Shard.parse(self.shard)
        with progress_bar(f"encoding {corpus}", quiet=output.as_json) as progress:
            index = index_dense(
                corpus,
                out,
                shard=(shard.index, shard.n),
                stored=self.dense_store,
                recall=self.approximate,
                on_progress=progress,
                **self.settings(model, self.device),
            )
        output.show(index.to_dict(), _dense_screen(index, shard))


def _dense_screen(index: DenseIndex, shard: Shard) -> Screen:
    if not index.is_complete:
        sentence = f"{index.path}: shard {shard} of the vectors is complete; others are not yet"
        return Screen(sentences=[sentence], then="")
    sentence = f"{index.path}: {counted(index.n_passages, 'passage')} of {index.corpus} as vectors of {index.model}"
    then = f"suffice record QUESTIONS.jsonl --corpus {quoted(index.path)} --dense {quoted(index.model)} -o recording.parquet"
    return Screen(sentences=[sentence], tables=[index.table()], then=then)


def index_command(
    corpus: Annotated[
        str,
        Argument(
            metavar="CORPUS",
            help="Passages as .jsonl or .tsv (also .gz), a folder of them, hf:NAME, or a folder of .txt/.md files.",
        ),
    ],
    out: Annotated[
        Path, Option("--out", "-o", help="The folder of the index, which other commands search as their corpus.")
    ],
    encoding: Encoding,
    output: Output,
    engine: Annotated[
        EngineName | None,
        Option(
            "--engine",
            help=f"Library of the BM25 index: bm25s (in memory; default up to {IN_MEMORY:,} passages) or tantivy (on disk).",
        ),
    ] = None,
    k1: Annotated[
        float | None,
        Setting(
            "retrieval", "k1", min=0, help=f"BM25's saturation of the term frequency, {K1:g} if not given (bm25s)."
        ),
    ] = None,
    b: Annotated[
        float | None,
        Setting(
            "retrieval", "b", min=0, max=1, help=f"BM25's share of length normalisation, {B:g} if not given (bm25s)."
        ),
    ] = None,
) -> None:
    """Read a corpus once, and write an index with its passages; a search reads only the parts that it needs.

    With --dense the index contains vectors instead of words, which several processes may encode (--shard).

    Example: suffice index wiki.jsonl -o wiki-index
    """
    encoding.of_dense()
    if encoding.dense is not None:
        for option, value in (("--engine", engine), ("k1", k1), ("b", b)):
            if value is not None and not from_file(option):
                raise BadParameter("is for BM25, and --dense makes an index of vectors", param_hint=option)
        encoding.write(corpus, out, encoding.dense, output)
        return
    with progress_bar(f"indexing {corpus}", quiet=output.as_json) as progress:
        index = index_corpus(corpus, out, engine=engine, k1=k1, b=b, on_progress=progress)
    output.show(index.to_dict(), _index_screen(index))


def _index_screen(index: CorpusIndex) -> Screen:
    passages = counted(index.n_passages, "passage")
    sentence = (
        f"{index.path}: {passages} of {index.corpus}, read as {index.form}, for BM25 by {index.library} with k1 {index.k1:g} "
        f"and b {index.b:g}"
    )
    if not index.is_new:
        sentence += "; the index was up to date"
    then = f"suffice record QUESTIONS.jsonl --corpus {quoted(index.path)} -o recording.parquet"
    return Screen(sentences=[sentence], tables=[index.table()], then=then)
