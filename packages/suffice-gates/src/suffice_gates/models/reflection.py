"""Self-RAG's reflection tokens: decisions to retrieve, and critiques of evidence and answer (Asai et al., 2024).

Their probabilities are read from a model that has these tokens in its vocabulary; other models are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, ModelError, NotFoundError
from suffice.loops.models.protocols import Verdict
from suffice.policy.rounds import Cost, Passage, Reply, Round
from suffice.policy.signals import CRITIQUE, RETRIEVE, SELF_RAG
from suffice_gates.models._transformers_passes import Prefill, greedy, prefill
from suffice_gates.models.reply_states import check_context
from suffice_gates.models.states import required_questions
from suffice_gates.models.transformers_model import TransformersModel

_RETRIEVAL = ("[Retrieval]", "[No Retrieval]")
_RELEVANCE = ("[Relevant]", "[Irrelevant]")
_SUPPORT = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
_UTILITY = tuple(f"[Utility:{mark}]" for mark in range(1, 6))
_SUPPORT_WORTH = np.array([1.0, 0.5, 0.0])
_UTILITY_WORTH = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def _token_ids(model: TransformersModel, tokens: Sequence[str]) -> list[int]:
    """Return the ids of reflection tokens.

    Raises:
        NotFoundError: The model's vocabulary lacks one of them.
    """
    vocabulary: Mapping[str, int] = model.loaded.tokenizer.get_vocab()
    missing = [token for token in tokens if token not in vocabulary]
    if missing:
        raise NotFoundError(
            f"{model.id!r} has no token {', '.join(map(repr, missing))}: Self-RAG reads the reflection tokens of models that "
            "were trained with them (selfrag/selfrag_llama2_7b), so use such a model, or another gate"
        )
    return [int(vocabulary[token]) for token in tokens]


def _shares(start: Prefill, ids: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the probabilities of the tokens `ids` as the next token, scaled to sum to 1; NaN if all are 0."""
    logits = start.logits[0].double().cpu().numpy()[list(ids)]
    with np.errstate(invalid="ignore"):
        weights = np.exp(logits - logits.max())  # the softmax over these tokens alone
        shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


class ReflectionGate:
    """Decides at round 0 by the probabilities that a reply begins with `[Retrieval]` or `[No Retrieval]`.

    `p_retrieve` is ``P([Retrieval]) / (P([Retrieval]) + P([No Retrieval]))`` (section 3.3).  The paper retrieves if
    `p_retrieve` is above a threshold such as 0.2, so the policy, which states when to stop, is `p_retrieve <= 0.2`.
    Without retrieval the same pass continues with `[No Retrieval]` and the answer.

    Args:
        model: A model that was trained with the tokens; the same model answers.
        name: Name in reports.

    Raises:
        NotFoundError: The model's vocabulary lacks the tokens.
    """

    capabilities = frozenset({RETRIEVE})

    def __init__(self, model: TransformersModel, *, name: str = "self-rag") -> None:
        self._ids = _token_ids(model, _RETRIEVAL)
        self.source, self.name = model, name

    def __repr__(self) -> str:
        return f"ReflectionGate({self.source!r})"

    @property
    def seen(self) -> None:
        """Always None, because the training questions of published models are unknown."""
        return

    def fingerprint(self) -> Mapping[str, Any]:
        """The model and its prompt."""
        return {**self.source.fingerprint(), "kind": "reflection tokens"}

    def decide(self, question: str) -> Verdict:
        """Read the question and return `p_retrieve`.

        Raises:
            DataError: The question is empty.
            ModelError: The pass failed.
        """
        required_questions([question])
        began = time.perf_counter()
        ids = self.source._ids(question, ())  # noqa: SLF001 - the same package; a prompt is encoded in one place
        start = prefill(self.source.loaded, [ids], ())
        p_retrieve = float(_shares(start, self._ids)[0])
        cost = Cost(calls=1.0, uncached_tokens=float(len(ids)), seconds=time.perf_counter() - began)
        return Verdict(signals={RETRIEVE: p_retrieve}, cost=cost, resume=_Answer(self.source, ids, start, self._ids[1]))

    async def decide_async(self, question: str) -> Verdict:
        """Like `decide`, in a worker thread."""
        return await asyncio.to_thread(self.decide, question)


class _Answer:
    """Continues a gate's pass with `[No Retrieval]` and the answer; the pass can be continued only once."""

    def __init__(self, model: TransformersModel, ids: Sequence[int], start: Prefill, first: int) -> None:
        self._model, self._ids, self._first = model, ids, first
        self._start: Prefill | None = start

    def __call__(self) -> Reply:
        start, self._start = self._start, None  # releases the cache of the pass
        if start is None:
            raise ModelError("this pass was continued before: read the question again")
        began = time.perf_counter()
        is_first = True

        def choose(logprobs: Any) -> Any:
            nonlocal is_first
            chosen = greedy(logprobs)
            if is_first:
                chosen[:] = self._first
                is_first = False
            return chosen

        model = self._model
        (steps,) = model._generate(start, len(self._ids), choose)  # noqa: SLF001 - the same package
        completion = model._completion(steps[1:], Cost(calls=1.0, seconds=time.perf_counter() - began))  # noqa: SLF001
        reply = model._reply(completion)  # noqa: SLF001
        costs = {name: replace(cost, output_tokens=cost.output_tokens + 1) for name, cost in reply.costs.items()}
        return replace(reply, costs=costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class CritiqueWeights:
    """Weights of the three critiques; the defaults are those of the authors' code for short answers.

    Attributes:
        relevance: Weight of IsRel.
        support: Weight of IsSup.
        utility: Weight of IsUse.
    """

    relevance: float = 1.0
    support: float = 1.0
    utility: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Critique:
    """A model's critique of a passage and of its own answer.

    Attributes:
        relevance: IsRel: the share of `[Relevant]`, in [0, 1].
        support: IsSup: the share of `[Fully supported]` plus half the share of `[Partially supported]`, in [0, 1].
        utility: IsUse: the expected value when `[Utility:1]` to `[Utility:5]` count -1, -1/2, 0, 1/2 and 1; in [-1, 1].
        cost: Cost of the three passes.
    """

    relevance: float
    support: float
    utility: float
    cost: Cost

    def score(self, weights: CritiqueWeights) -> float:
        """Return the weighted sum (section 3.3, equation 4)."""
        return weights.relevance * self.relevance + weights.support * self.support + weights.utility * self.utility


def critique_of(model: TransformersModel, question: str, text: str, passages: Sequence[Passage]) -> Critique:
    """Read a model's critique of an answer.

    Each part is read at the position where the model would generate it: relevance after the prompt, support after the
    answer, and utility after the likeliest support token.

    Args:
        model: A model that was trained with the tokens.
        question: The question.
        text: The answer, without reflection tokens.
        passages: The passages of the prompt.

    Raises:
        NotFoundError: The model's vocabulary lacks the tokens.
        ModelError: A pass failed.
    """
    relevance, support, utility = (_token_ids(model, tokens) for tokens in (_RELEVANCE, _SUPPORT, _UTILITY))
    began = time.perf_counter()
    ids = list(model._ids(question, passages))  # noqa: SLF001 - the same package; a prompt is encoded in one place
    said = [int(token) for token in model.loaded.tokenizer(text, add_special_tokens=False)["input_ids"]]
    check_context(model, question, len(ids) + len(said) + 2)
    read = 0
    shares = []
    for before, tokens in (([], relevance), (said, support), ([], utility)):
        ids += before
        shares.append(_shares(prefill(model.loaded, [ids], ()), tokens))
        read += len(ids)
        if np.isfinite(shares[-1]).all():
            ids.append(tokens[int(shares[-1].argmax())])
    return Critique(
        relevance=float(shares[0][0]),
        support=float(shares[1] @ _SUPPORT_WORTH),
        utility=float(shares[2] @ _UTILITY_WORTH),
        cost=Cost(calls=3.0, uncached_tokens=float(read), seconds=time.perf_counter() - began),
    )


class SelfCritique:
    """Measures `critique_score`, the weighted sum of a Self-RAG model's critiques of evidence and answer.

    The selector `max_critique_score` returns the answer that the paper's reranking would choose among the rounds so
    far.  A rule may also stop at a high score.  The score is undefined at round 0, which has no evidence.

    Args:
        model: A model that was trained with the tokens.
        weights: Weights of the critiques.

    Raises:
        NotFoundError: The model's vocabulary lacks the tokens.
        DataError: A weight is not finite.
    """

    name = SELF_RAG
    capabilities = frozenset({CRITIQUE})

    def __init__(self, model: TransformersModel, *, weights: CritiqueWeights | None = None) -> None:
        _token_ids(model, (*_RELEVANCE, *_SUPPORT, *_UTILITY))
        self.model, self.weights = model, weights or CritiqueWeights()
        counted = (self.weights.relevance, self.weights.support, self.weights.utility)
        if not np.isfinite(counted).all():
            raise DataError(f"the weights of critiques must be finite numbers, not {self.weights!r}")

    def __repr__(self) -> str:
        return f"SelfCritique({self.model!r}, weights={self.weights!r})"

    def fingerprint(self) -> Mapping[str, Any]:
        """The model and the weights."""
        weights = [self.weights.relevance, self.weights.support, self.weights.utility]
        return {**self.model.fingerprint(), "kind": "self critique", "weights": weights}

    async def measure(self, question: str, observed: Round) -> Reply:
        """Read the critiques of the round and return `critique_score`; NaN without passages.

        Raises:
            ModelError: A pass failed.
        """
        if not observed.passages:
            return Reply(signals={CRITIQUE: float("nan")}, costs={self.name: Cost()})
        critique = await asyncio.to_thread(critique_of, self.model, question, observed.text, observed.passages)
        return Reply(signals={CRITIQUE: critique.score(self.weights)}, costs={self.name: critique.cost})
