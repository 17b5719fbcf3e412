"""Journals of the model's answers and of the orders of passages, so that an interruption loses no results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from suffice.loops.retrieval import Question, Retriever, dataset_hash
from suffice.policy.rounds import Passage
from suffice.recordings.journal import Journal
from suffice_gates.models.transformers_model import TransformersModel

OnStage = Callable[[str, int, int], None]
"""Called with the name of a stage, the number of its units that are done, and the number of all its units."""

_BATCH_OF_ANSWERS = 64
"""Questions between two writes to the journal of answers."""


@dataclass(frozen=True, kw_only=True)
class JournaledWork:
    """The journaled answers of a model and rankings of retrievers in one folder.

    Attributes:
        model: The model that answers.
        out: The folder of the journals.
        report: Called after each batch of answers.
    """

    model: TransformersModel
    out: Path
    report: OnStage

    def answers(
        self, name: str, questions: Sequence[Question], passages: Sequence[Sequence[Passage]] | None
    ) -> dict[str, str | None]:
        """Return the model's answers by question; answers from an earlier run are not generated again.

        Raises:
            ConfigMismatchError: The journal of this name belongs to another model, other questions or other passages.
        """
        config = {
            "model": dict(self.model.fingerprint()),
            "questions": dataset_hash(questions),
            "passages": None if passages is None else [[p.passage_id for p in context] for context in passages],
        }
        index = {question.question_id: i for i, question in enumerate(questions)}
        with closing(Journal(answers_path(self.out, name), config)) as journal:
            done = dict(journal.finished())
            pending = [question for question in questions if question.question_id not in done]
            for start in range(0, len(pending), _BATCH_OF_ANSWERS):
                batch = pending[start : start + _BATCH_OF_ANSWERS]
                context = None if passages is None else [passages[index[q.question_id]] for q in batch]
                replies = self.model.answers([q.question for q in batch], context)
                for question, reply in zip(batch, replies, strict=True):
                    journal.finish(question.question_id, [{"answer": reply.answer}])
                self.report(name, len(questions) - len(pending) + start + len(batch), len(questions))
            rows = dict(journal.finished())
        return {question.question_id: rows[question.question_id][0]["answer"] for question in questions}

    def orders(self, name: str, ranked: Retriever, questions: Sequence[Question], deepest: int) -> list[list[Passage]]:
        """Return the first `deepest` passages of each question; rankings from an earlier run are not repeated.

        Raises:
            ConfigMismatchError: The journal of this name belongs to another retriever, other questions or another
                depth.
        """
        config = {"retriever": dict(ranked.fingerprint()), "questions": dataset_hash(questions), "depth": deepest}
        with closing(Journal(self.out / "orders" / f"{_file_name(name)}.journal", config)) as journal:
            rows = dict(journal.finished())
            for question in questions:
                if question.question_id not in rows:
                    ranking = ranked.rank(question.question, pool=question.passages, k=deepest)
                    rows[question.question_id] = [{"passage_id": passage.passage_id} for passage in ranking]
                    journal.finish(question.question_id, rows[question.question_id])
        pools = [{passage.passage_id: passage for passage in question.passages} for question in questions]
        return [
            [pool[row["passage_id"]] for row in rows[question.question_id]]
            for question, pool in zip(questions, pools, strict=True)
        ]


def answers_path(out: Path, name: str) -> Path:
    """Return the path of the journal of the answers under a name."""
    return out / "answers" / f"{_file_name(name)}.journal"


def _file_name(name: str) -> str:
    """Replace the characters of a name that are unsafe in file names."""
    return "".join(character if character.isalnum() or character in "-." else "_" for character in name)[-100:]
