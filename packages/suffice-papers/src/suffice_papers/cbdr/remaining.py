"""What the target model of CBDR's pipeline is asked in all, and how much of it is left; no model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suffice.loops.retrieval import Question
from suffice.recordings.journal import count_finished
from suffice_papers.cbdr.journaled import answers_path
from suffice_papers.cbdr.plan import CbdrSettings, divide

__all__ = [
    "ALIGNED",
    "CLOSED_BOOK",
    "ONE_PASSAGE",
    "RETRIEVER",
    "PipelineWork",
    "answers_of_order",
    "display_name",
    "pipeline_work",
]

ALIGNED = "aligned"
"""The name of the reranker trained here, in the tables."""

RETRIEVER = "BM25 order"
"""The name of the retriever's own order, without a reranker."""

CLOSED_BOOK, ONE_PASSAGE = "closed book", "one passage"
"""Names of answers."""


def answers_of_order(name: str, depth: int) -> str:
    """Return the name of the answers with the first passages of an order."""
    return f"{name} top-{depth}"


def display_name(reranker: str) -> str:
    """Return the name of a reranker in the tables: its id, or the name of its folder."""
    return Path(reranker).name if Path(reranker).is_dir() else reranker


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineWork:
    """What the target model does, at most.

    Attributes:
        answers: Answers that it generates in a whole run.
        left: Those that no journal holds yet.
        reads: Prompts that it reads for their states in a whole run, without generating.
    """

    answers: int
    left: int
    reads: int


def pipeline_work(
    questions: Sequence[Question], rerankers: Sequence[str], settings: CbdrSettings, out: Path
) -> PipelineWork:
    """Return what a pipeline asks of its target model.

    Args:
        questions: As for `run_cbdr`.
        rerankers: The cross-encoder to align, and the others.
        settings: Settings of the pipeline.
        out: Its folder, where the journals are.

    Raises:
        DataError: The questions cannot be divided, or another process is writing to a journal.
        SchemaError: A journal is damaged.
    """
    parts = divide(questions, settings)
    asked, n_test = len(parts.asked(questions)), len(parts.test)
    names = [RETRIEVER, *map(display_name, rerankers), ALIGNED]
    plan = {CLOSED_BOOK: asked, **{answers_of_order(name, k): n_test for name in names for k in settings.depths}}
    left = sum(max(n - count_finished(answers_path(out, name)), 0) for name, n in plan.items())
    shifted = min(settings.shift, n_test)
    one_passage = answers_path(out, ONE_PASSAGE)  # its name goes on with the number of questions
    held = max(map(count_finished, one_passage.parent.glob(f"{one_passage.stem}*.journal")), default=0)
    return PipelineWork(
        answers=sum(plan.values()) + shifted,
        left=left + max(shifted - held, 0),
        reads=asked + n_test + 2 * shifted + (1 + settings.candidates) * (len(parts.prefer) + n_test),
    )
