"""Cross-encoders: a score of each new passage (the signal `rerank_score`), and reranking by such scores."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from suffice.common.blocking import finished
from suffice.errors import DataError, MissingExtraError, ModelError
from suffice.loops.models.sentence_transformers import model_id, weights_hash
from suffice.loops.retrieval.bm25 import passage_text
from suffice.loops.retrieval.ranking import RankedPassages, RanksByCosts, costed_ranking, is_pinned
from suffice.loops.retrieval.retriever import (
    AsyncRetriever,
    Identity,
    Retriever,
    ScoreKind,
    best_first,
    checked_k,
    identity_of,
    is_async,
)
from suffice.policy.rounds import Cost, Passage, Reply, Round, added_costs
from suffice.policy.seen import Seen
from suffice.policy.signals import RERANKING

_RERANKER_COMPONENT = "reranker"
_RERANKER_SIGNAL = "rerank_score"

RERANKER_CARD = "reranker.json"
"""File in the folder of a cross-encoder trained with this package, with the details of its training."""


class PairScorer(Protocol):
    """Protocol of objects that score pairs of texts, such as `sentence_transformers.CrossEncoder`."""

    def predict(self, sentences: list[tuple[str, str]], /) -> Any:
        """Return one number for each pair."""
        ...


class CrossEncoderScorer:
    """Measures how well the newest passage fits the question, with any sentence-transformers cross-encoder.

    The score is on the scale of the model; without a passage it is NaN and the model is not called.

    >>> class Shared:
    ...     def predict(self, pairs):
    ...         return [len(set(a.split()) & set(b.split())) for a, b in pairs]
    >>> scorer = CrossEncoderScorer("shared-words", encoder=Shared())
    >>> observed = Round(index=1, passages=(Passage(passage_id="1", title="", text="red sky"),))
    >>> asyncio.run(scorer.measure("a red sky", observed)).signals
    {'rerank_score': 2.0}

    Args:
        model: Id or folder of a cross-encoder, which is loaded on first use.  If `encoder` is given, a name for it.
        encoder: Cross-encoder to use instead of loading `model`.
        revision: Revision of the model.  If `encoder` is given, any name for its version.
        device: A torch device; None for the default.
        dtype: Number type of the loaded weights; `auto` for the type of the stored weights, None for the default of
            transformers.
    """

    name = _RERANKER_COMPONENT
    capabilities = frozenset({"reranker"})

    def __init__(
        self,
        model: str | Path,
        *,
        encoder: PairScorer | None = None,
        revision: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        self.model = str(model)
        self.revision = revision
        self._encoder = encoder
        self._is_given = encoder is not None
        self._device = device
        self._options: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"CrossEncoderScorer({self.model!r})"

    def fingerprint(self) -> Mapping[str, Any]:
        """Return model and revision; a model in a folder is identified by the folder name and the hash of its weights."""
        if self._is_given or not Path(self.model).is_dir():
            return {"model": self.model, "revision": self.revision}
        return {"model": model_id(self.model), "revision": weights_hash(Path(self.model))}

    @property
    def is_pinned(self) -> bool:
        """True if the model is identified by content or revision."""
        return self.fingerprint()["revision"] is not None

    @property
    def seen(self) -> Seen | None:
        """The training questions according to the model's card; None if the card does not contain them.

        A model that `suffice reranker train` did not write has no recorded questions.
        """
        card = Path(self.model) / RERANKER_CARD
        if self._is_given or not card.is_file():
            return Seen()
        try:
            return Seen.from_dict(json.loads(card.read_text(encoding="utf-8")))
        except (ValueError, AttributeError) as error:
            raise DataError(f"the card {str(card)!r} of the reranker cannot be read: {error}") from None

    async def measure(self, question: str, observed: Round) -> Reply:
        """Score the newest passage of a round against the question, in a thread.

        Raises:
            MissingExtraError: sentence-transformers is not installed.
            ModelError: The model cannot be loaded, or does not return one number per pair.
        """
        if not observed.passages:
            return Reply(signals={_RERANKER_SIGNAL: float("nan")}, costs={_RERANKER_COMPONENT: Cost()})
        began = time.perf_counter()
        [score] = await asyncio.to_thread(self.scores, question, observed.passages[-1:])
        cost = Cost(calls=1.0, seconds=time.perf_counter() - began)
        return Reply(signals={_RERANKER_SIGNAL: score}, costs={_RERANKER_COMPONENT: cost})

    def scores(self, question: str, passages: Sequence[Passage]) -> list[float]:
        """Return the score of each passage in order, from a single call of the model.

        Raises:
            MissingExtraError: sentence-transformers is not installed.
            ModelError: The model cannot be loaded, or does not return one number per pair.
        """
        if not passages:
            return []
        pairs = [(question, passage_text(passage.title, passage.text)) for passage in passages]
        with self._lock:  # torch uses all cores for one call
            if self._encoder is None:
                self._encoder = load_cross_encoder(self.model, self.revision, self._device, **self._options)
            scores = np.asarray(self._encoder.predict(pairs), dtype=np.float64)
        if scores.size != len(pairs):
            raise ModelError(
                f"the cross-encoder {self.model!r} returned {scores.size} numbers for {len(pairs)} pair(s); use one with a "
                "single label"
            )
        return [float(score) for score in scores.ravel()]


class Reranked(RanksByCosts):
    """A retriever whose best passages are reordered by a cross-encoder; its other passages are left out.

    CBDR retrieves K * r passages, reranks them and answers from the first K: give the number K * r as `candidates`. The
    rounds of a loop reveal evidence in the new order. The cost of the cross-encoder is charged to the component
    `reranking`, the cost of the candidates to `retrieval`. If `retriever` is an `AsyncRetriever`, this object is one,
    too: await `rank`.

    >>> from suffice.loops.retrieval.retriever import InMemoryRetriever
    >>> class Longest:
    ...     def predict(self, pairs):
    ...         return [len(text) for _, text in pairs]
    >>> pool = [Passage(passage_id=i, title="", text=text) for i, text in enumerate(["a", "abc", "ab", "abcd"])]
    >>> ranked = Reranked(InMemoryRetriever(), CrossEncoderScorer("longest", encoder=Longest()), candidates=3)
    >>> [passage.text for passage in ranked.rank("?", pool=pool)]
    ['abc', 'ab', 'a']

    Args:
        retriever: Finds the candidates.
        scorer: Orders the candidates.
        candidates: Number of candidates, at least 1.

    Raises:
        DataError: `candidates` is below 1.
    """

    def __init__(
        self, retriever: Retriever | AsyncRetriever, scorer: CrossEncoderScorer, *, candidates: int = 20
    ) -> None:
        if candidates < 1:
            raise DataError(f"candidates is {candidates!r}; allowed: 1 or more")
        if is_async(retriever):
            self.rank = self._rank_async  # type: ignore[assignment]
        self.retriever = retriever
        self.scorer = scorer
        self.candidates = candidates

    def __repr__(self) -> str:
        return f"Reranked({self.retriever!r}, {self.scorer!r}, candidates={self.candidates})"

    @property
    def name(self) -> str:
        """The retriever's name with the suffix `+reranked`."""
        return f"{self.retriever.name}+reranked"

    @property
    def seen(self) -> Seen | None:
        """The questions that the cross-encoder was trained on; see `CrossEncoderScorer.seen`."""
        return self.scorer.seen

    @property
    def has_corpus(self) -> bool:
        """True if the retriever searches its own corpus."""
        return getattr(self.retriever, "has_corpus", False)

    @property
    def identity(self) -> Identity:
        """The field that identifies the retriever's passages."""
        return identity_of(self.retriever)

    @property
    def is_pinned(self) -> bool:
        """True if retriever and cross-encoder are both pinned."""
        return is_pinned(self.retriever) and self.scorer.is_pinned

    @property
    def score_kind(self) -> ScoreKind:
        """The kind of the scores, `cross-encoder`."""
        return "cross_encoder"

    def fingerprint(self) -> dict[str, Any]:
        """Return values that identify the retriever, the cross-encoder and the number of candidates."""
        return {
            "name": self.name,
            "retriever": self.retriever.fingerprint(),
            "reranker": dict(self.scorer.fingerprint()),
            "candidates": self.candidates,
        }

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return the candidates, best first, with the cross-encoder's scores; ties keep the retriever's order.

        Raises:
            DataError: The retriever needs a pool and `pool` is None, or `k` is below 1.
            MissingExtraError: sentence-transformers is not installed.
            ModelError: The cross-encoder cannot be loaded, or returns no usable scores.
        """
        return list(finished(self.costed_rank(question, pool=pool, k=k)).passages)

    async def costed_rank(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> RankedPassages:
        """Return the passages of `rank` with the costs of retriever and cross-encoder."""
        checked_k(k, self.candidates)  # raises if `k` is invalid, before anything is computed
        candidates = await costed_ranking(self.retriever, question, pool=pool, k=self.candidates)
        began = time.perf_counter()
        best = partial(self._best, question, candidates.passages, k)
        passages = await asyncio.to_thread(best) if is_async(self.retriever) else best()
        cost = Cost(calls=float(bool(candidates.passages)), seconds=time.perf_counter() - began)
        return RankedPassages(passages=passages, costs=added_costs(candidates.costs, {RERANKING: cost}))

    def _best(self, question: str, passages: Sequence[Passage], k: int | None) -> list[Passage]:
        scores = self.scorer.scores(question, passages)
        if not all(map(math.isfinite, scores)):
            raise ModelError(
                f"the cross-encoder {self.scorer.model!r} returned scores that are not finite; its weights are damaged, or "
                "overflow in half precision: load it in another precision"
            )
        return best_first(passages, scores, k)


def load_cross_encoder(
    model: str,
    revision: str | None = None,
    device: str | None = None,
    *,
    new_head: bool = False,
    dtype: str | None = None,
) -> Any:
    """Return a cross-encoder of sentence-transformers.

    Args:
        model: Id or folder.
        revision: Revision of an id.
        device: A torch device; None for the default.
        new_head: True to allow an encoder without a trained head; it gets a random one for training.
        dtype: Number type of the weights; `auto` for the type of the stored weights, None for the default of
            transformers.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model cannot be loaded, or would give random scores or equal scores to all pairs.
    """
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise MissingExtraError("scoring passages with a cross-encoder", "dense") from error
    try:
        more = {} if dtype is None else {"model_kwargs": {"dtype": dtype}}
        loaded = CrossEncoder(model, revision=revision, device=device, trust_remote_code=False, **more)
    except Exception as error:  # the type of error depends on the hub client, the file format and torch
        raise ModelError(
            f"the cross-encoder {model!r} cannot be loaded ({type(error).__name__}: {error!s:.200}); give the id of one, "
            "or a folder that contains one. Without a network only downloaded ids work: fetch the "
            "model elsewhere and give the path of its folder"
        ) from error
    _check_scores(loaded, model, new_head=new_head)
    return loaded


def _check_scores(encoder: Any, model: str, *, new_head: bool) -> None:
    """Raise if the model would give random scores, or the same score to all pairs."""
    answers = next((module for module in encoder if hasattr(module, "true_token_id")), None)
    if answers is not None:  # a language model, which scores by the logits of its answer words
        words = [answers.true_token_id, answers.false_token_id]
        if words[0] == words[1] or encoder.tokenizer.unk_token_id in words:
            raise ModelError(
                f"the cross-encoder {model!r} scores by its answer words, such as 'yes' and 'no', but its "
                "tokenizer does not contain them, so every score would be 0. Use a model trained as a reranker"
            )
        return
    architectures = list(getattr(encoder.config, "architectures", None) or ())
    if not new_head and not any(name.endswith("ForSequenceClassification") for name in architectures):
        raise ModelError(
            f"{model!r} is {' and '.join(architectures) or 'an encoder of unknown type'} without a trained head, so it would "
            "rank at random. Use a reranker, or train its head first (suffice reranker train)"
        )
