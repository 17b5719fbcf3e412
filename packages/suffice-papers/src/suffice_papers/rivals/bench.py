"""The bench of the page on rivals: its questions, tiny model and recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.cli.console import status
from suffice.loops import LiveLoop, RetrievalLoop, record
from suffice.loops.retrieval import PoolBM25, Question, load_questions
from suffice.policy.session import Policy
from suffice.policy.signals.position import AnswerPosition
from suffice.recordings import Recording, read_recording
from suffice_gates.models import TransformersModel
from suffice_papers.rivals.taught import ASKING_LENGTH, READER
from suffice_retrieval.methods import ChainMethod, QueryLoop

ROUNDS = 5
_READ_TOKENS = 40
_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The questions, models and recordings from which every line of the page is measured.

    Attributes:
        folder: Folder of the model.
        out: Folder of the recordings.
        tune: Questions for choosing thresholds.
        evaluation: Questions to report on.
        steps: The model that continues chains, one sentence at a time.
        reader: The model that answers with a whole chain.
        quiet: True to hide progress.
    """

    folder: Path
    out: Path
    tune: list[Question]
    evaluation: list[Question]
    steps: TransformersModel
    reader: TransformersModel
    quiet: bool = False

    @classmethod
    def of(cls, folder: Path, out: Path, limit: int | None, *, quiet: bool) -> Bench:
        """Open the model and its questions."""
        settings: dict[str, Any] = {
            "prompt": READER,
            "position": AnswerPosition("marker", "answer is:"),
            "batch_size": _AT_ONCE,
            "name": "tiny",
        }
        steps = TransformersModel(folder, max_tokens=ASKING_LENGTH, **settings)
        return cls(
            folder=folder,
            out=out,
            tune=load_questions(folder / "tune.jsonl", limit=limit),
            evaluation=load_questions(folder / "eval.jsonl", limit=limit),
            steps=steps,
            reader=TransformersModel(steps.loaded, max_tokens=_READ_TOKENS, **settings),
            quiet=quiet,
        )

    def policy(self, **settings: Any) -> Policy:
        """Return a policy with these settings, and with the position of the answer in this model's replies."""
        return Policy(answer_position=self.reader.position, **{"max_rounds": ROUNDS, **settings})

    def recorded(self, name: str, loop: LiveLoop, questions: Sequence[Question]) -> Recording:
        """Record questions, or read their earlier recording; raise if the loop has changed since that recording."""
        path = self.out / f"{name}.parquet"
        with status(f"recording {name}", quiet=self.quiet):
            record(list(questions), loop, path, concurrency=_AT_ONCE, allow_unread=True)
        return read_recording(path)

    def plain(self, name: str, questions: Sequence[Question], **settings: Any) -> Recording:
        """Record the plain loop from round 0 on; by default, each round adds one passage."""
        policy = self.policy(start_round=0, max_rounds=10)
        return self.recorded(
            name, RetrievalLoop(model=self.reader, retriever=PoolBM25(), policy=policy, **settings), questions
        )

    def asked(self, name: str, method: ChainMethod, questions: Sequence[Question], *, every_round: bool) -> Recording:
        """Record a method that writes its own queries.

        The method answers in every round if `every_round` is true, or else only when it ends.
        """
        loop = QueryLoop(
            method=method,
            model=self.steps,
            reader=self.reader,
            retriever=PoolBM25(),
            policy=self.policy(),
            every_round=every_round,
        )
        return self.recorded(name, loop, questions)
