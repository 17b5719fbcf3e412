"""Usual names of columns in the logs of answer loops, the clearest first."""

from __future__ import annotations

import re
from functools import lru_cache

from suffice.recordings.runs import LOOP_NAMES

ROUND_WORDS = (
    "round",
    "step",
    "iteration",
    "iter",
    "turn",
    "attempt",
    "trial",
    "try",
    "draft",
    "hop",
    "sample",
    "revision",
)
ORDER_WORDS = (*(word for word in ROUND_WORDS if word not in ("sample", "trial", "try")), "loop", "depth")
"""Words in file names that mean rounds; samples and trials are left out, since they may also be runs."""

_ROUND_NAME = re.compile(
    rf"(?:{'|'.join(ROUND_WORDS)}|loop|depth)(?:_(?:index|idx|number|num|no|nr|id|count|i))?|n_(?:{'|'.join(ROUND_WORDS)})"
)

IDS = (
    "question_id",
    "qid",
    "question_idx",
    "task_id",
    "problem_id",
    "example_id",
    "instance_id",
    "query_id",
    "item_id",
    "id",
    "_id",
    "sample_id",
    "record_id",
    "conversation_id",
    "thread_id",
    "session_id",
    "trace_id",
    "trajectory_id",
    "run_id",
    "uid",
    "uuid",
    "idx",
    "index",
    "key",
)
RUNS = (
    *sorted(LOOP_NAMES),
    "run_id",
    "run",
    "seed",
    "agent_id",
    "agent",
    "member",
    "generator",
    "trial",
    "attempt",
    "repeat",
    "conversation_id",
    "session_id",
    "trace_id",
)
"""Columns that tell several runs of one question apart."""

QUESTIONS = (
    "question",
    "question_text",
    "query",
    "user_query",
    "user_input",
    "problem",
    "prompt",
    "task",
    "instruction",
    "input",
    "request",
    "goal",
)
GOLDS = (
    "golds",
    "gold",
    "gold_answers",
    "gold_answer",
    "golden_answers",
    "golden_answer",
    "ground_truths",
    "ground_truth",
    "reference_answers",
    "reference_answer",
    "references",
    "reference",
    "expected_answer",
    "expected_output",
    "expected",
    "correct_answer",
    "targets",
    "target",
    "labels",
    "label",
)
PARSED_ANSWERS = (
    "answer",
    "final_answer",
    "predicted_answer",
    "model_answer",
    "parsed_answer",
    "extracted_answer",
    "prediction",
    "predicted",
    "pred",
)
"""Names of answers parsed from a reply; beside them, a reply is read as the text."""

REPLIES = (
    "response",
    "output",
    "completion",
    "generation",
    "generated_text",
    "model_output",
    "model_response",
    "reply",
    "draft",
)
WEAK_REPLIES = ("result", "content", "text")
"""Names that also have other meanings."""

ANSWERS = (*PARSED_ANSWERS, *REPLIES)
FEEDBACK = ("feedback", "critique", "critic", "reflection")
MODELS = ("model", "model_name", "model_id", "llm")

OUTCOME_NAMES = (
    "correct",
    "is_correct",
    "correctness",
    "passed",
    "success",
    "solved",
    "resolved",
    "reward",
    "score",
    "accuracy",
    "em",
    "f1",
    "exact_match",
    "f1_score",
)
"""Names of outcomes (correct or not, or how well): metrics if all values lie in [0, 1]."""

SYNONYMS = {
    "exact_match": "em",
    "f1_score": "f1",
    "logprob_margin": "answer_margin",
    "answer_logprob_margin": "answer_margin",
    "margin_nats": "answer_margin",
    "logit_margin": "answer_margin",
    "mean_logprob": "answer_logprob_mean",
    "avg_logprob": "answer_logprob_mean",
}
"""Other names of this library's metrics and signals."""

OWN_SIGNALS = (
    "confidence",
    "self_confidence",
    "certainty",
    "uncertainty",
    "margin",
    "logprob",
    "log_probability",
    "entropy",
    "perplexity",
    "similarity",
    "quality",
    "rating",
    "critic_score",
    "judge_score",
)
"""Names of numbers that a loop may know when it decides; each becomes a signal of the user's own."""


@lru_cache(maxsize=1024)
def plain_name(name: str) -> str:
    """Return a name in lower case with underscores.

    >>> plain_name("finalAnswer"), plain_name("Final-Answer "), plain_name("Turn #"), plain_name("Latency (ms)")
    ('final_answer', 'final_answer', 'turn', 'latency_ms')
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"[#($%)\[\]:?]+", " ", name).strip())
    return re.sub(r"[\s\-]+", "_", spaced).lower()


TOTAL_TOKENS = ("tokens", "total_tokens", "n_tokens", "num_tokens", "token_count", "tokens_used", "total_token_count")
"""Names of token counts that do not tell input from output."""

MONEY = ("cost", "cost_usd", "total_cost", "price", "usd", "cost_in_usd", "total_cost_usd", "cost_eur", "price_usd")

TIMES = (
    "timestamp",
    "time",
    "ts",
    "datetime",
    "created_at",
    "created",
    "start_time",
    "started_at",
    "logged_at",
    "date",
)
"""Names of the time at which a row was written."""


def is_round_name(name: str) -> bool:
    """Return whether a column of this name usually counts rounds.

    >>> is_round_name("stepIndex"), is_round_name("attempt"), is_round_name("rounding")
    (True, True, False)
    """
    return _ROUND_NAME.fullmatch(plain_name(name)) is not None
