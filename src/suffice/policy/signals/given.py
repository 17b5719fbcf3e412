"""Signals without a function: the policy, a gate at round 0 or an enricher provides their values.

Some of these signals need an extra call, for example of a judge.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from suffice.policy.rounds import Cost, Reply, Round
from suffice.policy.signals.definitions import declare
from suffice.policy.signals.state import DIFFICULTY

WRITERS = ("generator", "writer")
"""The components that write answers: of most loops, of a drafting loop."""

CRITIC = "critic"
"""The component that replies to drafts."""

TRIAL = "trial"
"""The component that answers at a checkpoint of a chain of thought, which goes on without this answer."""

OF_ANSWERS = frozenset({WRITERS[0], TRIAL})
"""The components of the signals of a checkpoint's answer, which its trial measures."""

QUERY = "query"
"""The component that writes what a retriever is asked, where that takes a call of its own."""

LOOP_COMPONENTS = (*WRITERS, CRITIC, QUERY)
"""The components whose calls the signals `calls` and `tokens` count: the loop's own generation (SEMANTICS)."""

CUMULATED = {
    "calls": ("calls",),
    "tokens": ("uncached_tokens", "cached_tokens", "output_tokens"),
    "seconds": ("seconds",),
}
"""The signals that add up costs since the start round, and the kinds of cost that they add."""

_COUNT = (0.0, math.inf)


def cost_columns(name: str) -> tuple[str, ...]:
    """Return the columns that a signal in `CUMULATED` adds up; empty for other signals."""
    return tuple(f"cost.{component}.{kind}" for component in LOOP_COMPONENTS for kind in CUMULATED.get(name, ()))


def member_component(model: str) -> str:
    """Return the component to which the calls of one model of a panel are charged.

    >>> member_component("gpt-4o-mini")
    'generator:gpt-4o-mini'
    """
    return f"{WRITERS[0]}:{model}"


declare(
    "p_correct",
    "P(correct) by the policy's calibrator of answer_margin.",
    "probability",
    (0.0, 1.0),
    "logprobs",
    source="TASR, section 3.3",
    fitted=True,
)
declare("round", "The index of the round; known to every policy.", "count", _COUNT, component="")
for _name, _unit, _what in (
    ("calls", "count", "The loop's own generation calls since its first round."),
    ("tokens", "count", "Input and output tokens of the loop's own generation calls since its first round."),
    (
        "seconds",
        "seconds",
        "Seconds of the loop's own generation calls since its first round; not exactly replayable.",
    ),
):
    declare(_name, _what, _unit, _COUNT, "costs", component="")

GATE = "gate"
"""The component that decides at round 0, before any answer: its costs are those of the decision."""

KNOWN = "p_known"
"""The signal of a gate."""

COMPLEXITY = "complexity"
"""The signal of a gate that also says whether one retrieval is enough."""

RETRIEVE = "p_retrieve"
"""The signal of a gate of a model that says itself whether to retrieve."""

SEAKR = "seakr"
"""The component of SeaKR, which reads the states of sampled replies."""
SAMPLE_SPREAD = "sample_spread"
"""The signal of `SEAKR`."""
MONITOR = "ctrla"
"""The component of CtrlA, which reads the states of the reply's new words."""
NEW_CONFIDENCE = "new_confidence"
"""The signal of `MONITOR`."""
SELF_RAG = "self-rag"
"""The component of Self-RAG's critique."""
CRITIQUE = "critique_score"
"""The signal of `SELF_RAG`."""
PROBER = "prober"
"""The component of Probing-RAG's probes of the reply."""
ENOUGH = "p_enough"
"""The signal of `PROBER` on replies."""
SETTLED = "p_settled"
"""The signal of `PROBER` on chains of thought."""

declare(
    KNOWN,
    "P(the model's closed-book answer is correct), by a gate that reads the question alone; round 0 only.",
    "probability",
    (0.0, 1.0),
    KNOWN,
    source="CBDR, section 3.1",
    component=GATE,
    last_round=0,
)
declare(
    COMPLEXITY,
    "What a classifier of questions expects to be enough: 0 no retrieval, 1 a single one, 2 more; round 0 only.",
    "count",
    (0.0, 2.0),
    COMPLEXITY,
    source="Adaptive-RAG, section 3.2",
    component=GATE,
    last_round=0,
)
declare(
    ENOUGH,
    "P(the round's answer is correct), by probes on the states of the model's own reply.",
    "probability",
    (0.0, 1.0),
    ENOUGH,
    source="Probing-RAG, section 3",
    component=PROBER,
)
declare(
    SETTLED,
    "P(the trial answer is right), by a probe on the model's states at the checkpoint, before it is asked.",
    "probability",
    (0.0, 1.0),
    SETTLED,
    source="thought calibration (Wu et al., 2025); LYNX (2025)",
    component=PROBER,
)
declare(
    RETRIEVE,
    "P([Retrieval]) against [No Retrieval], the model's own next token after the question; round 0 only.",
    "probability",
    (0.0, 1.0),
    RETRIEVE,
    source="Self-RAG, section 3.3",
    component=GATE,
    last_round=0,
)
declare(
    SAMPLE_SPREAD,
    "How far apart the end states of sampled replies are (Gram determinant); low where the model is sure.",
    "score",
    (-math.inf, math.inf),
    SAMPLE_SPREAD,
    source="SeaKR, section 3.2",
    component=SEAKR,
)
declare(
    NEW_CONFIDENCE,
    "Lowest projection on the direction of confidence among the new words of the reply; 0 lies midway.",
    "score",
    (-math.inf, math.inf),
    NEW_CONFIDENCE,
    source="CtrlA, section 3.2",
    component=MONITOR,
)
declare(
    CRITIQUE,
    "Weighted sum of IsRel, IsSup and IsUse, the model's own critique of evidence and answer.",
    "score",
    (-math.inf, math.inf),
    CRITIQUE,
    source="Self-RAG, section 3.3",
    component=SELF_RAG,
    first_round=1,
)

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
        """Return the signals and costs of the last checkpoint in `rounds`.

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
        difficulty: A map from question to difficulty, or a function that returns a question's difficulty. A question
            without a difficulty gets NaN.
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
