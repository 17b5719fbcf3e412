"""Recordings of the bundled questions with the embedded reader, without a network or a download."""

from __future__ import annotations

from pathlib import Path

from suffice.cli.datasets import overlap_state
from suffice.cli.show import recording_progress
from suffice.loops import RecordSummary, RetrievalLoop, record
from suffice.loops.retrieval import PoolBM25, load_questions
from suffice.policy.session import Policy
from suffice_reader.model import SpanReaderModel


def record_bundled(dataset: str, split: str, folder: Path, *, limit: int | None = None, quiet: bool) -> RecordSummary:
    """Record a bundled split into ``FOLDER/DATASET_SPLIT.parquet``, except rounds that this file already contains."""
    path = folder / f"{dataset}_{split}.parquet"
    questions = load_questions(f"{dataset}_{split}", limit=limit)
    policy = Policy(state=overlap_state(f"{dataset}_tune"))
    loop = RetrievalLoop(model=SpanReaderModel(), retriever=PoolBM25(), policy=policy)
    with recording_progress(f"recording {path.stem}", None, quiet=quiet) as report:
        return record(questions, loop, path, concurrency=2, on_progress=report)
