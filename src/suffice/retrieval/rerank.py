"""A cross-encoder's score of each new passage: the signal `rerank_score`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from suffice.embedding.sentence_transformers import weights_hash
from suffice.errors import MissingExtraError, ModelError
from suffice.retrieval.tokens import passage_text
from suffice.rounds import Cost, Passage, Reply
from suffice.signals import Measurement

__all__ = ["CrossEncoderScorer", "PairScorer"]

_COMPONENT = "reranker"
_SIGNAL = "rerank_score"


class PairScorer(Protocol):
    """Scores pairs of texts; `sentence_transformers.CrossEncoder` is one."""

    def predict(self, sentences: list[tuple[str, str]], /) -> Any:
        """Return one number for each pair."""
        ...


class CrossEncoderScorer:
    """Measures how well the newest passage fits the question, with any sentence-transformers cross-encoder.

    The score is the model's own, on its own scale; without a passage it is NaN and nothing is computed.

    >>> class Shared:
    ...     def predict(self, pairs):
    ...         return [len(set(a.split()) & set(b.split())) for a, b in pairs]
    >>> scorer = CrossEncoderScorer("shared-words", encoder=Shared())
    >>> passages = [Passage(passage_id="1", title="", text="blue sky"), Passage(passage_id="2", title="", text="red sky")]
    >>> asyncio.run(scorer.measure("a red sky", passages, Reply(answer=None))).signals
    {'rerank_score': 2.0}

    Args:
        model: Id or folder of a cross-encoder, loaded at the first use; with `encoder`, its name.
        encoder: What to score with instead of loading `model`.
        revision: Revision of the model; with `encoder`, any words that tell two versions apart.
        device: Where the model runs, as torch names it; None for the default.
    """

    name = _COMPONENT

    def __init__(
        self,
        model: str | Path,
        *,
        encoder: PairScorer | None = None,
        revision: str | None = None,
        device: str | None = None,
    ) -> None:
        self.model = str(model)
        self.revision = revision
        self._encoder = encoder
        self._is_given = encoder is not None
        self._device = device
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"CrossEncoderScorer({self.model!r})"

    @property
    def capabilities(self) -> frozenset[str]:
        """`reranker`."""
        return frozenset({"reranker"})

    def fingerprint(self) -> Mapping[str, Any]:
        """Return model and revision; a model in a folder is named by the folder and the hash of its weights."""
        folder = Path(self.model)
        if self._is_given or not folder.is_dir():
            return {"model": self.model, "revision": self.revision}
        whole = folder.resolve()
        return {"model": f"{whole.parent.name}/{whole.name}", "revision": weights_hash(folder)}

    async def measure(self, question: str, passages: Sequence[Passage], reply: Reply) -> Measurement:
        """Score the newest of `passages` against the question, in a thread.

        Raises:
            MissingExtraError: sentence-transformers is not installed.
            ModelError: The model cannot be loaded, or does not give one number for a pair.
        """
        del reply
        if not passages:
            return Measurement(signals={_SIGNAL: float("nan")}, costs={_COMPONENT: Cost()})
        newest = passages[-1]
        began = time.perf_counter()
        score = await asyncio.to_thread(self._score, question, passage_text(newest.title, newest.text))
        cost = Cost(calls=1.0, seconds=time.perf_counter() - began)
        return Measurement(signals={_SIGNAL: score}, costs={_COMPONENT: cost})

    def _score(self, question: str, text: str) -> float:
        with self._lock:  # torch uses all cores for one call
            if self._encoder is None:
                self._encoder = _load(self.model, self.revision, self._device)
            scores = np.asarray(self._encoder.predict([(question, text)]), dtype=np.float64)
        if scores.size != 1:
            raise ModelError(
                f"the cross-encoder {self.model!r} gave {scores.size} numbers for one pair; use one with a single label"
            )
        return float(scores.ravel()[0])


def _load(model: str, revision: str | None, device: str | None) -> PairScorer:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise MissingExtraError("scoring passages with a cross-encoder", "dense") from error
    try:
        loaded: PairScorer = CrossEncoder(model, revision=revision, device=device)
    except Exception as error:  # what it raises depends on the hub client, the file format and torch
        raise ModelError(
            f"the cross-encoder {model!r} cannot be loaded ({type(error).__name__}: {error!s:.200}); give the id of one, "
            "or a folder that holds one."
        ) from error
    return loaded
