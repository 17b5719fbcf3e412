"""Convert rounds to rows of a recording, and replies to entries of the journal and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from suffice.common.json_text import number_or_none
from suffice.loops.retrieval import Question
from suffice.policy.metrics import METRICS
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH, match
from suffice.policy.rounds import Cost, End, Reply, Round, Token
from suffice.policy.session import Session
from suffice.policy.signals import compute_signals
from suffice.policy.signals.state import FittedState
from suffice.recordings.schema import EMBEDDING, REPLY_COLUMNS, SHADOW, THINKING_IDS, cost_column


def reply_to_payload(reply: Reply, recorded_at: float) -> dict[str, Any]:
    """Return a reply as JSON-ready values; infinite log-probabilities stay as they are."""
    tokens = None
    if reply.answer_tokens is not None:
        tokens = [
            [
                token.text,
                token.logprob,
                [list(pair) for pair in token.alternatives],
                None if token.raw is None else base64.b64encode(token.raw).decode(),
            ]
            for token in reply.answer_tokens
        ]
    return {
        "answer": reply.answer,
        "text": reply.text,
        "answer_tokens": tokens,
        "signals": dict(reply.signals),
        "costs": {component: asdict(cost) for component, cost in reply.costs.items()},
        "finish_reason": reply.finish_reason,
        "reply_model": reply.reply_model,
        "system_fingerprint": reply.system_fingerprint,
        "embedding": None if reply.embedding is None else reply.embedding.tolist(),
        **({} if reply.token_ids is None else {"token_ids": list(reply.token_ids)}),
        "recorded_at": recorded_at,
    }


def reply_from_payload(payload: Mapping[str, Any]) -> Reply:
    """Build the reply from the values of `reply_to_payload`; only the tokens of the answer are kept."""
    tokens = payload["answer_tokens"]
    if tokens is not None:
        tokens = tuple(
            Token(text, logprob, tuple((a, b) for a, b in alternatives), None if raw is None else base64.b64decode(raw))
            for text, logprob, alternatives, raw in tokens
        )
    embedding, ids = payload.get("embedding"), payload.get("token_ids")
    return Reply(
        answer=payload["answer"],
        text=payload["text"],
        answer_tokens=tokens,
        signals=payload["signals"],
        costs={component: Cost(**cost) for component, cost in payload["costs"].items()},
        finish_reason=payload["finish_reason"],
        reply_model=payload.get("reply_model"),
        system_fingerprint=payload.get("system_fingerprint"),
        token_ids=None if ids is None else tuple(ids),
        embedding=None if embedding is None else np.array(embedding, dtype=np.float32),
    )


def rows_of(
    question: Question,
    rounds: Sequence[Round],
    end: End,
    *,
    state: Mapping[str, FittedState],
    cells: Sequence[Mapping[str, str]],
    recorded_at: Sequence[float],
    normalizer: str = DEFAULT_NORMALIZER,
) -> list[dict[str, Any]]:
    """Return one row for each round: identity, texts, signals, costs, metrics.

    Args:
        question: The question; without gold answers the metrics are undefined.
        rounds: All rounds of the question.
        end: The reason why there is no further round.
        state: Fitted state of signals, by name.
        cells: Text columns of each round (model, retriever, prompt_id).
        recorded_at: Time of each round's reply, seconds since 1970.
        normalizer: Compares answers with gold answers for the metric `match`, besides EM and F1.
    """
    return [
        row_of(
            question,
            rounds[: position + 1],
            end,
            state=state,
            cells=cells[position],
            recorded_at=recorded_at[position],
            normalizer=normalizer,
        )
        for position in range(len(rounds))
    ]


def row_of(
    question: Question,
    rounds: Sequence[Round],
    end: End,
    *,
    state: Mapping[str, FittedState],
    cells: Mapping[str, str],
    recorded_at: float,
    normalizer: str = DEFAULT_NORMALIZER,
) -> dict[str, Any]:
    """Return the row of the last of `rounds`; see `rows_of`."""
    observed = rounds[-1]
    row: dict[str, Any] = {
        "question_id": question.question_id,
        "round": observed.index,
        "cluster": question.cluster or question.question_id,
        "end": end,
        **cells,
        "question": question.question,
        "question_type": question.type,
        "golds": list(question.answers),
        **said_columns(observed),
        **measured_columns(rounds, state),
    }
    for name, metric in METRICS.items():
        row[name] = metric(observed.answer, question.answers) if question.answers else None
    if normalizer != DEFAULT_NORMALIZER:
        row[MATCH] = number_or_none(match(observed.answer, question.answers, normalizer))
    row["recorded_at"] = recorded_at
    return row


def said_columns(observed: Round) -> dict[str, Any]:
    """Return the columns with a round's texts, passage ids, finish reason, token ids and embedding."""
    columns: dict[str, Any] = {
        "answer": observed.answer,
        "text": observed.text,
        "passage_ids": [passage.passage_id for passage in observed.passages],
        "finish_reason": observed.finish_reason,
        "feedback": observed.feedback,
    }
    columns |= {} if observed.thinking_ids is None else {THINKING_IDS: list(observed.thinking_ids)}
    columns |= {name: text for name in ("thinking", *REPLY_COLUMNS) if (text := getattr(observed, name)) is not None}
    return columns if observed.embedding is None else {**columns, EMBEDDING: observed.embedding.tolist()}


def decision_columns(session: Session, *, is_deployed: bool = True) -> dict[str, Any]:
    """Return the columns of a session's decision, of the audit's draw, and of the rounds at which shadow policies stop.

    Args:
        session: The session, after its decision.
        is_deployed: True if a user's policy decides.  False if the session only has the loop's cap; then only shadow
            policies have columns.
    """
    shadows = {f"{SHADOW}{name}": decided and decided.stop_round for name, decided in session.shadows.items()}
    decision, draw = session.decision, session.draw
    if decision is None or not is_deployed:
        return shadows
    is_code = session.policy.answer_position.kind == "callable"  # a policy that contains code has no digest
    return {
        "policy_digest": None if is_code else session.policy.digest,
        "stop_round": decision.stop_round,
        "answer_round": decision.answer_round,
        "stop_reason": decision.reason,
        "audit_rate": draw and draw.rate,
        "audited": draw and int(draw.audited),
        **shadows,
    }


def measured_columns(rounds: Sequence[Round], state: Mapping[str, FittedState]) -> dict[str, float | None]:
    """Return the signals and the costs of the last of `rounds`; None if undefined or unknown."""
    values = compute_signals(rounds, state=state)
    for component, cost in rounds[-1].costs.items():
        values |= {cost_column(component, kind): getattr(cost, kind) for kind in cost.kinds}
    return {name: number_or_none(value) for name, value in values.items()}
