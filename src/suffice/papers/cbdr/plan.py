"""How CBDR's pipeline is run, and which questions are for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from suffice.errors import DataError
from suffice.retrieval import Question
from suffice.train.examples import Split, split_by_hash
from suffice.train.probe import ProbeSettings
from suffice.train.reranker_trainer import RerankerSettings

__all__ = ["CbdrSettings", "Parts", "divide"]


@dataclass(frozen=True, kw_only=True)
class CbdrSettings:
    """How the paper's pipeline is run; the defaults are the paper's where it gives any.

    Attributes:
        epochs: Passes over the probe's training set to try, without early stopping: the paper names 30 and 100.
        probe: How the probe is trained, besides.
        train_size: Questions that the probe is fitted on, as many known as unknown; fewer where there are not as many.
        label: When an answer counts as right.
        candidates: Contexts of each question.
        k: Most positives and most negatives of a question.
        reranker: How the reranker is trained.
        depths: How many passages an answer is given: K of the tables.
        betas: Thresholds of the gate.
        test: Share of the questions that every figure is of.
        prefer: Share of the others that the reranker learns from; the probe gets the rest.
        seed: Of training and draws.
        n_resamples: Bootstrap draws.
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
    seed: int = 0
    n_resamples: int = 1000

    def __post_init__(self) -> None:
        if not self.epochs or not self.depths or not self.betas:
            raise DataError("epochs, depths and betas each need at least one value")
        if min(self.depths) < 1 or max(self.depths) > self.candidates:
            raise DataError(f"depths are {self.depths!r}; allowed is 1 to {self.candidates}, the number of candidates")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The questions by what they are for; none is in two parts.

    Attributes:
        probe: Training and dev set of the probe, with the test set.
        prefer: What the reranker learns from.
        test: What every figure is of.
    """

    probe: Split
    prefer: tuple[Question, ...]
    test: tuple[Question, ...]


def divide(questions: Sequence[Question], settings: CbdrSettings) -> Parts:
    """Return the parts of a question set, by the hash of each id; those of one text stay together.

    Raises:
        DataError: A part is empty, or an id occurs twice.
    """
    ids = [question.question_id for question in questions]
    if len(set(ids)) < len(ids):
        raise DataError("a question id occurs twice: the parts would share a question")
    texts = {question.question_id: question.question for question in questions}
    whole = split_by_hash(ids, dev=settings.prefer * (1 - settings.test), test=settings.test, salt="cbdr", texts=texts)
    probe = split_by_hash(sorted(whole.train), dev=0.2, test=0.01, salt="cbdr probe", texts=texts)
    return Parts(
        probe=Split(train=probe.train | probe.test, dev=probe.dev, test=whole.test),
        prefer=tuple(q for q in questions if q.question_id in whole.dev),
        test=tuple(q for q in questions if q.question_id in whole.test),
    )
