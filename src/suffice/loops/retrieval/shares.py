"""Load one process's share of a data set without holding the other questions in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from suffice.loops.retrieval.datasets import Question, digest_question, iter_questions


class QuestionShare(list[Question]):
    """The questions of a data set that one process takes, with the hash and number of all its questions.

    >>> share = QuestionShare([Question(question_id=name, question="Who?") for name in "abc"], takes=lambda name: name != "b")
    >>> [question.question_id for question in share], share.places, share.dataset["questions"]
    (['a', 'c'], {'a': 0, 'c': 2}, 3)

    Args:
        questions: All questions, in their order; they are read once.
        takes: Returns whether to take a question, by its id.

    Attributes:
        places: The position of each taken question in the data set, from 0.
        dataset: Hash and number of all questions, as `dataset_hash` gives it.
    """

    def __init__(self, questions: Iterable[Question], takes: Callable[[str], bool]) -> None:
        super().__init__()
        self.places: dict[str, int] = {}
        digest, n = hashlib.sha256(), 0
        for question in questions:
            digest_question(digest, question)
            if takes(question.question_id):
                self.append(question)
                self.places[question.question_id] = n
            n += 1
        self.dataset = {"hash": digest.hexdigest()[:16], "questions": n}


def load_share(
    spec: str | Path,
    takes: Callable[[str], bool],
    *,
    limit: int | None = None,
    split: str | None = None,
    change: Callable[[Question], Question] | None = None,
) -> QuestionShare:
    """Load a share of the questions of a bundled set or a file; see `load_questions`.

    Args:
        spec: The data set.
        takes: Returns whether to take a question within the limit, by its id.
        limit: Largest number of all questions from the start; None for all.
        split: Only questions of this split; None for all.
        change: Changes each question before it is recorded; None = keep it.
    """
    questions = iter_questions(spec, limit=limit, split=split)
    return QuestionShare(questions if change is None else map(change, questions), takes)
