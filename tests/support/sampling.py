"""Scripted samples behind a local endpoint, and a recording run that a test can kill."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from suffice import ChatModel, Policy, SamplingLoop, record
from suffice.evaluation.replay import LIVE, CostTable
from suffice.loops import Outcome
from suffice.loops.retrieval import Question
from suffice.loops.sampling_loop import sample_seed
from suffice.policy.rounds import total_cost
from suffice.policy.session import stops
from suffice.recordings import Recording
from tests.support.endpoint import Endpoint, prompt_of

TOWER = "Where is tower 0?"
SAMPLES = 8
VOTES = ("Oslo", "Lima", "Oslo.", None, "oslo", "Oslo", "Rome", "Oslo")
"""The answers to the first question; None cannot be read."""


def answer_of(i: int, r: int) -> str | None:
    """Return sample `r` of question `i`."""
    return VOTES[(r - 1 + 3 * i) % len(VOTES)]


def sample_of(body: Mapping[str, Any], n: int = 12) -> tuple[int, int]:
    """Return the question and the sample that a request is for, by its seed."""
    i = int(prompt_of(dict(body)).rpartition("Where is tower ")[2].partition("?")[0])
    seeds = {sample_seed(0, f"Where is tower {i}?", r): r for r in range(1, n + 1)}
    return i, seeds[body["seed"]]


def text_of(answer: str | None) -> str:
    """Return a reply with an answer, or one in which there is none."""
    return "I would rather not say." if answer is None else f"Answer: {answer}"


def reply(body: dict[str, Any]) -> str:
    """Answer by the script."""
    return text_of(answer_of(*sample_of(body)))


def several(body: dict[str, Any], most: int = 99) -> dict[str, Any]:
    """Answer a request for `n` choices, with at most so many."""
    i, r = sample_of(body)
    texts = [text_of(answer_of(i, r + k)) for k in range(min(body.get("n", 1), most))]
    choices = [
        {"index": k, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        for k, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 40, "completion_tokens": 3 * len(texts)}
    return {"id": uuid.uuid4().hex, "object": "chat.completion", "model": "m", "choices": choices, "usage": usage}


def questions(n: int = 6) -> list[Question]:
    """Return questions without passages."""
    return [Question(question_id=f"q{i}", question=f"Where is tower {i}?", answers=("Oslo",)) for i in range(n)]


def models_of(endpoint: Endpoint | str, names: Sequence[str] = ("m",), **options: Any) -> list[ChatModel]:
    """Return models of an endpoint."""
    url = endpoint if isinstance(endpoint, str) else endpoint.url
    return [ChatModel(name, base_url=url, api_key="key", max_retries=0, top_logprobs=None, **options) for name in names]


def loop(endpoint: Endpoint | str, rule: str = "never()", **options: Any) -> SamplingLoop:
    """Return a loop over the endpoint."""
    policy = Policy(rule=rule, selector="majority_of_samples", max_rounds=options.pop("samples", SAMPLES))
    options.setdefault("model", models_of(endpoint))
    return SamplingLoop(policy=policy, **options)


TOKENS = ("uncached_tokens", "cached_tokens", "output_tokens")


def assert_replayed(
    recording: Recording, policy: Policy, outcomes: Sequence[Outcome], kinds: Sequence[str] = ("calls", *TOKENS)
) -> None:
    """Compare live outcomes with the same policy on the stored order of a recording: stop, answer, cost."""
    stopped = stops(policy, recording.rounds(policy.raw_columns))
    assert [outcome.decision.stop_round for outcome in outcomes] == stopped.rounds.tolist()
    assert [outcome.decision.reason for outcome in outcomes] == stopped.reasons(recording.ends, policy.max_rounds)
    assert [outcome.decision.answer_round or -1 for outcome in outcomes] == stopped.answer_rounds.tolist()
    table = CostTable(recording)
    ledger = table.charge(LIVE.policy_masks(table, policy, stopped))
    for kind in kinds:
        spent = [sum(getattr(total_cost(r.costs), kind) for r in outcome.rounds) for outcome in outcomes]
        assert spent == ledger.total(kind).tolist(), kind


def run(url: str, path: str, tell: Connection) -> None:
    """Record `questions` in waves of two, and tell of each reply that is committed."""
    record(questions(), loop(url, wave=2), path, concurrency=2, on_progress=lambda _: tell.send("ready"))
