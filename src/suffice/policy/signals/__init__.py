"""Pure functions of the rounds: values that are known at each round without gold answers."""

from suffice.policy.rules.selectors_of_drafts import DISTANCES
from suffice.policy.signals.answers import ABSTAIN_PATTERNS, abstained_by
from suffice.policy.signals.chains import CHAIN
from suffice.policy.signals.definitions import (
    EVERY_ROUND,
    SIGNALS,
    Signal,
    add_signal,
    clean_column,
    compute_signals,
    declare,
    register_signal,
)
from suffice.policy.signals.evidence import EMBEDDING, RERANKING, RETRIEVAL  # importing a module registers its signals
from suffice.policy.signals.from_policy import (
    CRITIC,
    CUMULATED,
    LOOP_COMPONENTS,
    OF_ANSWERS,
    QUERY,
    TRIAL,
    cost_columns,
    member_component,
)
from suffice.policy.signals.known import (
    COMPLEXITY,
    CRITIQUE,
    ENOUGH,
    GATE,
    KNOWN,
    MONITOR,
    NEW_CONFIDENCE,
    PROBER,
    RETRIEVE,
    SAMPLE_SPREAD,
    SEAKR,
    SELF_RAG,
)
from suffice.policy.signals.margins import LOGPROB_NEEDS, MAX_MARGIN, token_margin
from suffice.policy.signals.measured import REMEDIES, Enricher, KnownDifficulty
from suffice.policy.signals.needed import FREE, lacking
from suffice.policy.signals.position import AnswerPosition, Located
from suffice.policy.signals.rationales import FEATURES, RATIONALE_SCORE, RELEVANCE, shared_words
from suffice.policy.signals.semantic import EMBEDDER, JUDGE
from suffice.policy.signals.state import (
    Allocation,
    FittedState,
    Idf,
    RationaleScore,
    ZScore,
    overlap_tokens,
    state_from_dict,
    top_score,
)
from suffice.policy.signals.steps import CHECKER, CHECKS, STEPS, StepSignals
from suffice.policy.signals.text import parse_confidence, strip_thinking
from suffice.policy.signals.thinking import HESITATION, THINKING, share_of_words
from suffice.policy.signals.uncertainty import sequence_logprob, token_entropy
from suffice.policy.signals.votes import VOTES, answer_ids, vote_signal
from suffice.policy.signals.wording import critic_praise, lexical_support

__all__ = [
    "ABSTAIN_PATTERNS",
    "CHAIN",
    "CHECKER",
    "CHECKS",
    "COMPLEXITY",
    "CRITIC",
    "CRITIQUE",
    "CUMULATED",
    "DISTANCES",
    "EMBEDDER",
    "EMBEDDING",
    "ENOUGH",
    "EVERY_ROUND",
    "FEATURES",
    "FREE",
    "GATE",
    "HESITATION",
    "JUDGE",
    "KNOWN",
    "LOGPROB_NEEDS",
    "LOOP_COMPONENTS",
    "MAX_MARGIN",
    "MONITOR",
    "NEW_CONFIDENCE",
    "OF_ANSWERS",
    "PROBER",
    "QUERY",
    "RATIONALE_SCORE",
    "RELEVANCE",
    "REMEDIES",
    "RERANKING",
    "RETRIEVAL",
    "RETRIEVE",
    "SAMPLE_SPREAD",
    "SEAKR",
    "SELF_RAG",
    "SIGNALS",
    "STEPS",
    "THINKING",
    "TRIAL",
    "VOTES",
    "Allocation",
    "AnswerPosition",
    "Enricher",
    "FittedState",
    "Idf",
    "KnownDifficulty",
    "Located",
    "RationaleScore",
    "Signal",
    "StepSignals",
    "ZScore",
    "abstained_by",
    "add_signal",
    "answer_ids",
    "clean_column",
    "compute_signals",
    "cost_columns",
    "critic_praise",
    "declare",
    "lacking",
    "lexical_support",
    "member_component",
    "overlap_tokens",
    "parse_confidence",
    "register_signal",
    "sequence_logprob",
    "share_of_words",
    "shared_words",
    "state_from_dict",
    "strip_thinking",
    "token_entropy",
    "token_margin",
    "top_score",
    "vote_signal",
]
