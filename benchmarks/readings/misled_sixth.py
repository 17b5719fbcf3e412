"""Logs that misled the importer when a sixth person tried it: sessions, sub-questions, steps of agents, chats, and spans of tools."""

from __future__ import annotations

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops


@shape("gateway.jsonl", "Helicone/helicone: packages/llm-mapper/types.ts")
def sessions_whose_prompts_change(draw: Draw) -> Log:
    """The prompt has other passages in some rounds, and a session is a question."""
    questions = draw.asked(60)
    made = [
        {
            "request_id": f"r{a.number}-{r}",
            "request_created_at": f"2026-03-02T{8 + a.number // 60:02}:{a.number % 60:02}:{7 * r:02}Z",
            "request_properties": {"Helicone-Session-Id": f"s-{a.number:04}", "gold": a.gold},
            "request_body": {"messages": [{"role": "user", "content": f"{a.question}\n\nContext: {passage}"}]},
            "response_body": {
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": draw.tokens(), "completion_tokens": draw.tokens()},
            },
        }
        for a in questions
        for passages in [[draw.prose()[:40] for _ in range(2)]]
        for r, (text, passage) in enumerate(zip(a.answers, (passages[0], *passages, passages[1]), strict=True))
    ]
    return Log(made, loops(questions))


@shape(
    "engine.jsonl", "run-llama/llama_index: llama-index-core/llama_index/core/query_engine/sub_question_query_engine.py"
)
def answers_to_sub_questions(draw: Draw) -> Log:
    """Each record has one answer, and a list of sub-questions with theirs."""
    made = [
        {
            "query": a.question,
            "sub_qas": [{"sub_question": f"Part {r} of {a.question}", "answer": a.answers[r]} for r in range(2)],
            "response": a.answers[3],
            "reference": a.gold,
        }
        for a in draw.asked(60)
    ]
    return Log(made)


@shape("react.json", "stanfordnlp/dspy: dspy/predict/react.py")
def numbered_steps_of_an_agent(draw: Draw) -> Log:
    """Each record has one answer, and its steps have numbered names; their queries are few."""
    made = [
        {
            "example": {"question": a.question, "answer": a.gold},
            "prediction": {
                "trajectory": {
                    **{f"thought_{r}": f"maybe {text}" for r, text in enumerate(a.answers)},
                    **{f"tool_name_{r}": draw.random.choice(("search", "lookup")) for r in range(4)},
                    **{f"tool_args_{r}": {"query": draw.random.choice(("born", "register"))} for r in range(4)},
                },
                "answer": a.answers[3],
            },
            "score": float(a.right[3]),
        }
        for a in draw.asked(60)
    ]
    return Log(made)


@shape("day.json", "slackapi/python-slack-sdk: slack_sdk/models/messages/message.py")
def a_thread_of_a_person_and_a_bot(draw: Draw) -> Log:
    """A person asks in a thread, and a bot answers in it several times."""
    questions = draw.asked(60)
    made = [
        {"type": "message", **speaker, "text": text, "ts": f"{start + 20 * r}.000100", "thread_ts": f"{start}.000100"}
        for a in questions
        for start in [1772438400 + 600 * a.number]
        for r, (speaker, text) in enumerate(
            [
                ({"user": "U1"}, a.question),
                *(({"subtype": "bot_message", "bot_id": "B07"}, text) for text in a.answers),
            ]
        )
    ]
    return Log(made, [a.loop(golds=(), scores=None) for a in questions])
