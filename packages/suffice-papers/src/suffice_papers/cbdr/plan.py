"""The settings of CBDR's pipeline and its division of the questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.evaluation.statistics.units import hash_places
from suffice.loops.retrieval import Question
from suffice.policy.seen import one_name_per_text
from suffice_gates.training.examples import Split, sets_by_hash, split_by_hash
from suffice_gates.training.probe import ProbeSettings
from suffice_gates.training.reranker_trainer import RerankerSettings


@dataclass(frozen=True, kw_only=True)
class CbdrSettings:
    """Settings of the paper's pipeline; the defaults are those of the paper where it states them.

    Attributes:
        epochs: Numbers of epochs to try for the probe, without early stopping: the paper names 30 and 100.
        probe: Other settings of the probe.
        train_size: Training questions of the probe, half of them known; fewer if there are not enough.
        label: The rule by which an answer is right.
        candidates: Contexts per question.
        k: Largest number of positives, and of negatives, per question.
        reranker: Settings of the reranker.
        depths: Numbers of passages for an answer: K of the tables.
        betas: Thresholds of the gate.
        test: Share of the questions on which all figures are measured.
        prefer: Share of the non-test questions that train the reranker; the other questions are for the probe.
        test_size: Number of test questions, in place of the share; needs `prefer_size`.
        prefer_size: Number of questions that train the reranker, in place of the share; the other questions are for the
            probe.
        shift: The largest number of test questions on which the probe is measured under both prompts; each of these
            questions is answered once more, with a passage.
        seed: Seed of training, of contexts and of random signs.
        resampling: Settings of the intervals.
    """

    epochs: tuple[int, ...] = (30, 100)
    probe: ProbeSettings = field(default_factory=lambda: ProbeSettings(patience=None))
    train_size: int = 2000
    label: str = "contains"
    candidates: int = 8
    k: int = 5
    reranker: RerankerSettings = field(default_factory=RerankerSettings)
    depths: tuple[int, ...] = (1, 3)
    betas: tuple[float, ...] = (0.90, 0.95, 0.98, 1.00)
    test: float = 0.25
    prefer: float = 0.4
    test_size: int | None = None
    prefer_size: int | None = None
    shift: int = 1000
    seed: int = 0
    resampling: Resampling = Resampling(seed=0)

    def __post_init__(self) -> None:
        if not self.epochs or not self.depths or not self.betas:
            raise DataError("epochs, depths and betas each need at least one value")
        if not (0 < self.test < 1 and 0 < self.prefer < 1):
            raise DataError(
                f"test is {self.test!r} and prefer {self.prefer!r}; allowed: shares strictly between 0 and 1"
            )
        sizes = self.test_size, self.prefer_size
        if sizes != (None, None) and any(size is None or size < 1 for size in sizes):
            raise DataError(
                f"test-size is {sizes[0]!r} and prefer-size {sizes[1]!r}; allowed: both at least 1, or neither"
            )
        if self.shift < 1:
            raise DataError(f"shift is {self.shift!r}; allowed: 1 or more")
        if min(self.depths) < 1 or max(self.depths) > self.candidates:
            raise DataError(f"depths are {self.depths!r}; allowed: 1 to {self.candidates}, the number of candidates")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Disjoint parts of the questions.

    Attributes:
        probe: The split of the probe: its training set, its dev set, and the test questions.
        prefer: Training questions of the reranker.
        test: Questions on which all figures are measured.
    """

    probe: Split
    prefer: tuple[Question, ...]
    test: tuple[Question, ...]

    def asked(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions to answer without passages: the probe's questions and the test questions."""
        reranked = {question.question_id for question in self.prefer}
        return [question for question in questions if question.question_id not in reranked]


def divide(questions: Sequence[Question], settings: CbdrSettings) -> Parts:
    """Divide a question set by the hash of each id; questions with the same text stay together.

    If the settings contain sizes, the questions with the smallest hashes are the test questions, and the next ones
    train the reranker.

    Raises:
        DataError: A part is empty, there are too few questions for the sizes, or an id occurs twice.
    """
    ids = [question.question_id for question in questions]
    if len(set(ids)) < len(ids):
        raise DataError("a question id occurs twice: give each question its own id")
    texts = {question.question_id: question.question for question in questions}
    if settings.test_size is None or settings.prefer_size is None:
        whole = split_by_hash(
            ids, dev=settings.prefer * (1 - settings.test), test=settings.test, salt="cbdr", texts=texts
        )
    else:
        whole = _by_size(ids, texts, settings.test_size, settings.prefer_size)
    probe = sets_by_hash(sorted(whole.train), dev=0.2, test=0.01, salt="cbdr probe", texts=texts)
    return Parts(
        probe=Split(train=probe["train"] | probe["test"], dev=probe["dev"], test=whole.test),
        prefer=tuple(q for q in questions if q.question_id in whole.dev),
        test=tuple(q for q in questions if q.question_id in whole.test),
    )


def _by_size(ids: Sequence[str], texts: Mapping[str, str], test: int, prefer: int) -> Split:
    """Return `test` questions for the test, the next `prefer` for the reranker, and the others for the probe.

    A part gets a few more questions if it would end between questions with the same text.
    """
    if test + prefer >= len(ids):
        raise DataError(
            f"there are {len(ids):,} questions; test-size and prefer-size take {test:,} + {prefer:,}, and the probe needs more: convert more "
            "questions, or give smaller sizes"
        )
    names = one_name_per_text(ids, [texts[q] for q in ids])
    places = sorted(zip(hash_places(names, salt="cbdr").tolist(), names, ids, strict=True))
    ends = [_end_of_text(places, test)]
    ends.append(_end_of_text(places, ends[0] + prefer))
    parts = [frozenset(q for _, _, q in part) for part in (places[: ends[0]], places[slice(*ends)], places[ends[1] :])]
    return Split(test=parts[0], dev=parts[1], train=parts[2])


def _end_of_text(places: Sequence[tuple[float, str, str]], end: int) -> int:
    """Return the first index, at or after `end`, where a cut does not separate questions with the same text."""
    while 0 < end < len(places) and places[end][1] == places[end - 1][1]:
        end += 1
    return end
