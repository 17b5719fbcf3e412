"""Logs whose ids hold the question and the number of the round."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops


def _batch_line(name: str, text: str, draw: Draw) -> dict[str, Any]:
    """Return a line of the output of OpenAI's Batch API."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"id": f"chatcmpl-{draw.random.random()}", "object": "chat.completion", "created": 7, "model": "m"}
    usage = {"prompt_tokens": draw.tokens(), "completion_tokens": 4, "total_tokens": 0}
    response = {"status_code": 200, "request_id": "r", "body": {**body, "choices": [choice], "usage": usage}}
    return {"id": f"batch_req_{draw.random.random()}", "custom_id": name, "response": response, "error": None}


@shape("batch_output.jsonl", "openai/openai-openapi: openapi.yaml")
def batch_of_rounds(draw: Draw) -> Log:
    """All rounds in one batch, answered in any order, without gold answers."""
    questions = draw.asked(60)
    lines = [
        _batch_line(f"q{asked.number:03d}-round{r}", text, draw)
        for asked in questions
        for r, text in enumerate(asked.answers, start=1)
    ]
    draw.random.shuffle(lines)
    return Log(lines, [asked.loop(golds=(), scores=None) for asked in questions])


@shape("batch_output.jsonl", "openai/openai-openapi: openapi.yaml", samples=True)
def batch_of_samples(draw: Draw) -> Log:
    """Several samples of each question, by their custom ids."""
    questions = draw.asked(60, 8, right=(0.6, 0.6))
    lines = [
        _batch_line(f"q_{asked.number}_sample_{r}", text, draw)
        for asked in questions
        for r, text in enumerate(asked.answers)
    ]
    return Log(lines, [asked.loop(golds=(), scores=None) for asked in questions])


@shape(
    "results.jsonl",
    "anthropics/anthropic-sdk-python: src/anthropic/types/messages/message_batch_individual_response.py",
)
def message_batch_of_attempts(draw: Draw) -> Log:
    """Results of a batch of messages, with the attempt in their custom ids."""
    questions = draw.asked(60)
    lines = []
    for asked in questions:
        for r, text in enumerate(asked.answers, start=1):
            message = {"id": f"msg_{asked.number}_{r}", "type": "message", "role": "assistant", "model": "m"}
            message |= {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
            message |= {"usage": {"input_tokens": draw.tokens(), "output_tokens": 5}}
            result = {"type": "succeeded", "message": message}
            lines.append({"custom_id": f"task-{asked.number}/attempt-{r}", "result": result})
    return Log(lines, [asked.loop(golds=(), scores=None) for asked in questions])


@shape("log.csv")
def attempts_in_ids_of_rows(draw: Draw) -> Log:
    """Each row has an id of its own, with the number of the attempt."""
    questions = draw.asked(60)
    return Log(
        [
            {"id": f"q{asked.number}_attempt_{r}", "gold": asked.gold, "output": text}
            for asked in questions
            for r, text in enumerate(asked.answers, start=1)
        ],
        loops(questions),
    )
