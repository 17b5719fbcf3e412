"""Measurements of a round that need a call, such as those by a judge or a cross-encoder."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from suffice.policy.rounds import Cost, Reply, Round
from suffice.policy.signals.state import DIFFICULTY

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "chain": "Use a loop that writes a chain (suffice record --loop, QueryLoop)",
        "feedback": "Use a loop with a critic (suffice draft answer, DraftingLoop)",
        "thinking": "Use a loop that thinks (suffice think answer, ThinkingLoop)",
        "steps": "Import an agent's transcripts, or put the signals of each step into Round.signals (StepSignals)",
        "passages": "Use a loop that retrieves (suffice answer, RetrievalLoop)",
        "pool_scores": "Use a loop that retrieves (suffice answer, RetrievalLoop)",
        "p_known": "Put a gate in front (--gate PROBE, RetrievalLoop(gate=...))",
        "complexity": "Put a classifier of questions in front (`suffice gate classify`, --gate FOLDER, RetrievalLoop(gate=...))",
        "information_score": (
            "Have drafts marked by a panel of judges (suffice draft answer --judge-model NAME, or enrichers=(Panel(...),) with two "
            "marks or more)"
        ),
        "p_enough": "Let probes read the replies of a local model (enrichers=(ReplyProbes(...),))",
        "p_settled": "Let a probe read the states of the chain (suffice think answer --probe FOLDER, enrichers=(SettledProbe(...),))",
        "p_retrieve": "Put a model with Self-RAG's tokens in front (RetrievalLoop(gate=ReflectionGate(...)))",
        "critique_score": "Let a model with Self-RAG's tokens judge itself (--local --set own-signal=critique_score, enrichers=(SelfCritique(...),))",
        "sample_spread": "Sample a local model (--local --set own-signal=sample_spread, enrichers=(SampleSpread(...),))",
        "new_confidence": "Watch the states of a local model (--local --set own-signal=new_confidence, enrichers=(ConfidenceMonitor(...),))",
        "difficulty": "Give each question its difficulty (a column, or enrichers=(KnownDifficulty(...),))",
        "judge": "Give a judge (suffice answer --judge-model NAME, or enrichers=(EntailmentJudge(...),))",
        "sufficiency": (
            "Give a judge (suffice answer --judge-model NAME --set judge-signal=context_sufficient, or "
            "enrichers=(Panel(JudgeModel(...), ['context_sufficient']),))"
        ),
        "reranker": "Give a cross-encoder (suffice answer --set rerank-signal=ID, or enrichers=(CrossEncoderScorer(...),))",
        "embedding": "Have drafts embedded (suffice draft answer --set embedder=minilm, or enrichers=(DraftEmbedder(MiniLM()),))",
    }
)
"""Advice for needs that model endpoints do not meet, by the terms of `Signal.needs`."""


@runtime_checkable
class Enricher(Protocol):
    """Measures signals of a round by an extra call, such as to a judge or a cross-encoder.

    A recording measures every round. A live loop measures lazily: the policy is evaluated member by member, and the
    enricher is called only if a member reads one of its signals. These are the signals whose `component` is the name of
    this enricher, and those in its optional attribute `columns`.
    """

    @property
    def name(self) -> str:
        """The component to which the enricher's costs are charged."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities that the enricher adds to the model's, as named in `Signal.needs`."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """All settings that affect the enricher's measurements, JSON-ready and without secrets."""
        ...

    async def measure(self, question: str, observed: Round) -> Reply:
        """Return the signals and costs of a round, and the embedding of its answer if the enricher is an embedder.

        Raises:
            ModelError: The call failed.
        """
        ...


@runtime_checkable
class ChainEnricher(Enricher, Protocol):
    """Measures a checkpoint of a chain of thought from the whole chain up to there, without the checkpoint's trial answer."""

    async def measure_chain(self, question: str, rounds: Sequence[Round]) -> Reply:
        """Return the signals and costs of the last of these checkpoints.

        Args:
            question: The question.
            rounds: The checkpoints of the chain so far, in order.

        Raises:
            ModelError: The call failed.
        """
        ...


class KnownDifficulty:
    """An enricher that gives every round of a question its known `difficulty`, for the rule `dsc`.

    The difficulty is known before the first answer.  Use it as `SamplingLoop(..., enrichers=(KnownDifficulty(len),))`.

    Args:
        difficulty: A map from question to difficulty, or a function that returns the difficulty; a question without one
            gets NaN.
    """

    name = DIFFICULTY
    capabilities = frozenset({DIFFICULTY})

    def __init__(self, difficulty: Mapping[str, float] | Callable[[str], float]) -> None:
        self.difficulty = difficulty

    def __repr__(self) -> str:
        return f"KnownDifficulty({self.difficulty!r:.80})"

    def fingerprint(self) -> Mapping[str, Any]:
        """A hash of the difficulties, or the name of the function."""
        if callable(self.difficulty):
            return {"function": getattr(self.difficulty, "__qualname__", repr(self.difficulty))}
        text = json.dumps(sorted(self.difficulty.items()))
        return {"hash": hashlib.sha256(text.encode()).hexdigest()[:16]}

    async def measure(self, question: str, observed: Round) -> Reply:
        """Return the difficulty of the question, at no cost."""
        del observed
        value = self.difficulty(question) if callable(self.difficulty) else self.difficulty.get(question, math.nan)
        return Reply(signals={DIFFICULTY: float(value)}, costs={DIFFICULTY: Cost()})
