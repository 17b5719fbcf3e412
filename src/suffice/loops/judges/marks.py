"""Judges that mark one draft, panels that also compute the weighted mean (the information score), and the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, NotFoundError
from suffice.loops.judges.endpoint import JudgeModel, JudgeReply, read_object
from suffice.loops.judges.prompts import MARKS, VERDICTS, MarkPrompt, read_mark, schema_of
from suffice.policy.metrics import information_score
from suffice.policy.rounds import Cost, Floats, Passage, Reply, Round
from suffice.policy.signals.semantic import JUDGE

SCORE = "information_score"
"""The column and signal of a panel's weighted mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The content of one round, as a judge sees it.

    Attributes:
        question: The question.
        text: The draft; None or white space if there is none.
        contexts: The passages in order; empty if there are none or they are unknown.
        reference: The gold answer; None if unknown.
    """

    question: str
    text: str | None
    contexts: tuple[Passage, ...] = ()
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One mark of one draft.

    Attributes:
        mark: Mark in [0, 1]; NaN if undefined.
        note: The reason why the mark is undefined; empty if it is defined.
        cost: Cost of all attempts; zero if no request was made.  A reply from the cache has the cost of the original call.
        attempts: Number of replies until one could be read or the attempts were used up.
        from_cache: Whether all replies came from the cache.
    """

    mark: float
    note: str = ""
    cost: Cost = field(default_factory=Cost)
    attempts: int = 0
    from_cache: bool = False


class MarkJudge:
    """Asks a model for one mark of a draft.

    In two cases the mark is undefined, and a note states the reason.  In the first case, the draft lacks a text that the
    prompt needs; no request is then made.  In the second case, no reply can be read; every call is nevertheless paid for
    and stored.

    Args:
        model: Sends requests and stores the replies.
        prompt: The mark and its prompt.
    """

    def __init__(self, model: JudgeModel, prompt: MarkPrompt) -> None:
        self.model, self.prompt = model, prompt

    def __repr__(self) -> str:
        return f"MarkJudge({self.model!r}, {self.prompt.prompt_id!r})"

    def inputs(self, draft: Draft, *, repeat: int = 0) -> dict[str, Any] | str:
        """Return the judge's inputs, which are the key of the cache; if an input is missing, return a note instead.

        The inputs contain only what the judge is shown.  Answer relevancy is thus judged once for all contexts, and context
        recall once for all drafts.
        """
        text = {"draft": draft.text, "reference": draft.reference, "contexts": ""}[self.prompt.subject]
        if self.prompt.subject != "contexts" and not (text or "").strip():
            return f"no {self.prompt.subject}"
        if self.prompt.with_contexts and not draft.contexts:
            return "no contexts"
        contexts = draft.contexts if self.prompt.with_contexts else ()
        return {
            **self.prompt.pin,
            "question": draft.question.strip(),
            "contexts": [[passage.title.strip(), passage.text.strip()] for passage in contexts],
            "text": (text or "").strip(),
            "repeat": repeat,
        }

    async def judge(self, draft: Draft, *, repeat: int = 0) -> Judgement:
        """Return the mark of a draft.

        Args:
            draft: The draft to judge.
            repeat: 0 for the mark itself; each higher number is another judgement for measuring noise.

        Raises:
            ModelError: The endpoint failed.
        """
        inputs = self.inputs(draft, repeat=repeat)
        if isinstance(inputs, str):
            return Judgement(mark=math.nan, note=inputs)
        contexts = draft.contexts if self.prompt.with_contexts else ()
        messages = self.prompt.messages(draft.question, contexts, inputs["text"])

        def read(reply: JudgeReply) -> float:
            return read_mark(self.prompt, read_object(reply), len(contexts))

        outcome = await self.model.ask(inputs, messages, self.prompt.name, schema_of(self.prompt.shape), read)
        return Judgement(
            mark=math.nan if outcome.value is None else outcome.value,
            note=outcome.note,
            cost=outcome.cost,
            attempts=outcome.attempts,
            from_cache=outcome.from_cache,
        )


class Panel:
    """Several marks of one draft and their weighted mean; a panel judges recordings, or is an `Enricher` of a live loop.

    All calls are charged to one component, because a rule that reads the information score pays for all marks.  The
    component is `judge:information_score`, or `judge:MARK` for a panel of one mark, which has no score.

    Args:
        model: Sends requests and stores the replies.
        marks: Names in `MARKS` and your own prompts; or a single name in `VERDICTS` and nothing else.
        weights: Weights by mark, with sum 1; default: equal.
        references: Gold answers by question, for marks that need one.  A live policy that reads such a mark decides
            with gold answers: use it for evaluation only.

    Raises:
        DataError: Marks are missing, unknown or repeated, or the weights do not match them.
    """

    def __init__(
        self,
        model: JudgeModel,
        marks: Sequence[str | MarkPrompt] = tuple(MARKS),
        *,
        weights: Mapping[str, float] | None = None,
        references: Mapping[str, str] | None = None,
    ) -> None:
        known = {**MARKS, **VERDICTS}
        unknown = [mark for mark in marks if isinstance(mark, str) and mark not in known]
        if unknown:
            raise NotFoundError(f"unknown mark {unknown[0]!r}; allowed: {', '.join(known)}")
        prompts = [known[mark] if isinstance(mark, str) else mark for mark in marks]
        verdicts = [prompt.name for prompt in prompts if prompt.subject == "contexts"]
        if verdicts and len(prompts) > 1:
            raise DataError(
                f"{verdicts[0]} is a verdict on the evidence and no mark of a draft, so it has no part in a score: judge it alone "
                f"(--set marks={verdicts[0]}), and the other marks in another run"
            )
        self.marks = tuple(prompt.name for prompt in prompts)
        if not prompts or len(set(self.marks)) != len(prompts) or SCORE in self.marks:
            raise DataError(
                f"a panel needs at least one mark, without repeats or the name {SCORE!r}; got {self.marks!r}"
            )
        self.model = model
        self.judges = {prompt.name: MarkJudge(model, prompt) for prompt in prompts}
        self.weights = checked_weights(equal_weights(self.marks) if weights is None else weights, self.marks)
        self.references = dict(references or {})

    def __repr__(self) -> str:
        return f"Panel({self.model!r}, {self.marks!r})"

    @property
    def has_score(self) -> bool:
        """True if there is an information score, i.e. more than one mark."""
        return len(self.marks) > 1

    @property
    def name(self) -> str:
        """The component to which the panel's costs are charged."""
        return JUDGE if self.has_score else f"judge:{self.marks[0]}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the panel's columns: the marks and, if there are several, the information score."""
        return (*self.marks, SCORE) if self.has_score else self.marks

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities that the panel gives to a loop, as named in `Signal.needs`.

        A panel of one mark gives `judge`.  A panel of several marks gives `judge` and `information_score`.  A panel with a
        verdict on the evidence gives only `sufficiency`.
        """
        if self.marks[0] in VERDICTS:
            return frozenset({"sufficiency"})
        return frozenset({"judge", SCORE} if self.has_score else {"judge"})

    def fingerprint(self) -> Mapping[str, Any]:
        """All settings that affect the marks, JSON-ready and without secrets."""
        prompts = {name: judge.prompt.pin for name, judge in self.judges.items()}
        return {**self.model.fingerprint(), "prompts": prompts, "weights": dict(self.weights)}

    def scored(self, marks: Mapping[str, float]) -> dict[str, float]:
        """Return the marks and, for a panel of several marks, the information score."""
        return {**marks, SCORE: information_score(marks, self.weights)} if self.has_score else dict(marks)

    async def measure(self, question: str, observed: Round) -> Reply:
        """Return the marks of one round with their cost; replies from the cache have the cost of the original call.

        Raises:
            ModelError: The endpoint failed.
        """
        draft = Draft(
            question=question, text=observed.answer, contexts=observed.passages, reference=self.references.get(question)
        )
        cost, marks = Cost(), {}
        for name, judge in self.judges.items():
            judgement = await judge.judge(draft)
            marks[name] = judgement.mark
            cost = cost + judgement.cost
        return Reply(signals=self.scored(marks), costs={self.name: cost})


_RANDOM_INDEX = (0.0, 0.0, 0.0, 0.58, 0.90, 1.12, 1.24, 1.32, 1.41, 1.45, 1.49)
"""Saaty's random index: the mean consistency index of random matrices, by their size."""
_RECIPROCAL_TOLERANCE = 1e-6


def equal_weights(marks: Sequence[str]) -> dict[str, float]:
    """Return the same weight for every mark.

    >>> equal_weights(["faithfulness", "context_recall"])
    {'faithfulness': 0.5, 'context_recall': 0.5}

    Raises:
        DataError: `marks` is empty.
    """
    if not marks:
        raise DataError("weights need at least one mark")
    return dict.fromkeys(marks, 1 / len(marks))


def checked_weights(weights: Mapping[str, float], marks: Sequence[str]) -> dict[str, float]:
    """Return the given weights in the order of the marks; a mark without a weight gets 0.

    Raises:
        DataError: The weights are negative, their sum is not 1, or a mark is unknown.
    """
    unknown = [name for name in weights if name not in marks]
    if unknown:
        raise DataError(f"unknown mark {unknown[0]!r} in the weights; allowed: {', '.join(marks)}")
    information_score({}, weights)
    return {name: float(weights.get(name, 0.0)) for name in marks}


def entropy_weights(columns: Mapping[str, npt.ArrayLike]) -> dict[str, float]:
    """Return weights that grow with the variation of each mark between drafts (the entropy weight method).

    A mark's shares ``p = x / sum(x)`` have the entropy ``-sum(p log p) / log n``; the weights are proportional to 1
    minus this entropy.  A mark that is the same for all drafts gets weight 0.  Rows with an undefined mark are left out.

    Args:
        columns: Marks in [0, 1] by name, shape ``(n_drafts,)``.

    Raises:
        DataError: Fewer than two drafts, marks out of range, or no mark varies.
    """
    names, matrix = _matrix(columns)
    total = matrix.sum(axis=0)
    # A mark that is always 0 has no shares; equal shares give it the largest entropy, so weight 0.
    shares = np.divide(matrix, total, out=np.full_like(matrix, 1 / len(matrix)), where=total > 0)
    terms = np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1.0)), 0.0)
    # The entropy of a constant mark equals log n only up to rounding, but its weight must be exactly 0.
    varies = np.ptp(matrix, axis=0) > 0
    information = np.where(varies, np.maximum(1 + terms.sum(axis=0) / np.log(len(matrix)), 0.0), 0.0)
    if not information.sum() > 0:
        raise DataError("no mark varies between drafts, so entropy weights are undefined: use equal weights")
    return _weights_by_name(names, information / information.sum())


def ahp_weights(marks: Sequence[str], comparisons: npt.ArrayLike) -> tuple[dict[str, float], float]:
    """Return weights from pairwise judgements of importance with their consistency ratio (AHP, Saaty 1980).

    Args:
        marks: One to ten names of marks.
        comparisons: Shape ``(n_marks, n_marks)``: importance of the row's mark relative to the column's; mirrored
            entries are reciprocal.

    Returns:
        The principal eigenvector scaled to sum 1, and the consistency ratio: 0 is consistent; above 0.1 the
        comparisons are too inconsistent to be used (Saaty).

    Raises:
        DataError: The matrix has the wrong shape, or is not positive and reciprocal.
    """
    matrix = np.asarray(comparisons, dtype=np.float64)
    n = len(marks)
    if not 1 <= n < len(_RANDOM_INDEX) or matrix.shape != (n, n):
        raise DataError(f"AHP compares 1 to 10 marks by a square matrix; got {n} marks and the shape {matrix.shape}")
    if not (
        np.isfinite(matrix).all()
        and (matrix > 0).all()
        and np.allclose(matrix * matrix.T, 1, rtol=_RECIPROCAL_TOLERANCE)
    ):
        raise DataError("AHP needs positive comparisons with a[j][i] = 1 / a[i][j] and ones on the diagonal")
    # A positive matrix has one largest eigenvalue, real and with a positive vector (Perron); eig returns complex types.
    values, vectors = np.linalg.eig(matrix)
    principal = int(np.argmax(values.real))
    vector = np.abs(vectors[:, principal].real)
    random = _RANDOM_INDEX[n]
    ratio = max(float(values[principal].real) - n, 0.0) / (n - 1) / random if random else 0.0
    return _weights_by_name(list(marks), vector / vector.sum()), ratio


def least_squares_weights(columns: Mapping[str, npt.ArrayLike], target: npt.ArrayLike) -> dict[str, float]:
    """Return the weights whose score is closest to a target, by exact constrained least squares.

    For weights that sum to 1, ``Xw - y = (X - y)w``, and the w that minimises ``|(X - y)w|`` is proportional to the
    solution of a non-negative least-squares problem with a row of ones appended.

    Args:
        columns: Marks in [0, 1] by name, shape ``(n_drafts,)``.
        target: Target of the score (a human mark, a gold metric), in [0, 1], shape ``(n_drafts,)``.  Fit on tune
            questions, never on reported ones.

    Raises:
        DataError: Fewer than two drafts are fully defined, or values are out of range.
    """
    if "target" in columns:
        raise DataError("a mark may not be called 'target'")
    from scipy.optimize import nnls

    names, matrix = _matrix({**columns, "target": target})
    off = matrix[:, :-1] - matrix[:, -1:]
    # The row of ones only fixes the scale, which the division removes again; without it 0 would solve the problem.
    solution, _ = nnls(np.vstack([off, np.ones(off.shape[1])]), np.append(np.zeros(len(off)), 1.0))
    return _weights_by_name(names[:-1], solution / solution.sum())


def _matrix(columns: Mapping[str, npt.ArrayLike]) -> tuple[list[str], Floats]:
    arrays = [np.asarray(column, dtype=np.float64) for column in columns.values()]
    if not arrays or any(array.ndim != 1 or array.shape != arrays[0].shape for array in arrays):
        raise DataError(f"marks must be columns of one length; got {[array.shape for array in arrays]}")
    matrix = np.stack(arrays, axis=1)
    matrix = matrix[~np.isnan(matrix).any(axis=1)]
    if len(matrix) < 2 or not ((matrix >= 0) & (matrix <= 1)).all():  # noqa: PLR2004
        raise DataError(
            f"weights need at least two drafts with all marks in [0, 1]; got {len(matrix)} drafts, or marks out of range"
        )
    return list(columns), matrix


def _weights_by_name(names: Sequence[str], weights: Floats) -> dict[str, float]:
    return dict(zip(names, weights.tolist(), strict=True))
