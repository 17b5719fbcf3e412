"""A writer and a critic behind a local endpoint, and a recording run that a test can kill."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

from suffice import ChatModel, DraftingLoop, Passage, Policy, record
from suffice.loops.retrieval import Question
from tests.support.endpoint import prompt_of

CONTEXTS = (
    Passage(passage_id="c1", title="Tower", text="The tower stands in Oslo."),
    Passage(passage_id="c2", title="Harbour", text="The harbour was built in 1961."),
)
ROUNDS = 4


def role_of(prompt: str) -> str:
    """Return who is asked: the critic, or the writer for a first draft or for a revision."""
    if "Task: review" in prompt:
        return "critic"
    return "revision" if "Review of the draft" in prompt else "draft"


def reply(body: dict[str, Any]) -> str:
    """Write `Draft 1.`, `Draft 2.`, ... and approve the third, by a pure function of the prompt."""
    prompt = prompt_of(body)
    number = int(prompt.rpartition("\nDraft ")[2].partition(".")[0]) if "\nDraft " in prompt else 0
    match role_of(prompt):
        case "critic":
            return "Approved" if number == 3 else f"Say more than draft {number} does."
        case _:
            return f"Draft {number + 1}. The tower stands in Oslo."


def questions(n: int = 12) -> list[Question]:
    """Return questions with contexts."""
    return [
        Question(question_id=f"q{i}", question=f"Where is tower {i}?", answers=("Oslo",), passages=CONTEXTS)
        for i in range(n)
    ]


def known_questions(n: int = 5) -> list[Question]:
    """Return questions of the world that the model of `tests.support.llamacpp` was taught."""
    from tests.support import llamacpp

    return [
        Question(question_id=f"q{i}", question=q.question, answers=(q.answer,), passages=q.passages[:2])
        for i, q in enumerate(llamacpp.questions(n, seed=31))
    ]


def loop(url: str, policy: Policy | None = None, **options: Any) -> DraftingLoop:
    """Return a loop over the endpoint."""
    writer = ChatModel("writer", base_url=url, api_key="key", max_retries=0)
    return DraftingLoop(writer=writer, policy=policy or Policy(max_rounds=ROUNDS), max_tokens=64, **options)


def run(url: str, path: str, concurrency: int, tell: Connection) -> None:
    """Record `questions`, or, one at a time, `known_questions`; after each reply wait for a word from the test."""

    def wait(_: object) -> None:
        tell.send("ready")
        tell.recv()

    asked = known_questions() if concurrency == 1 else questions()
    record(asked, loop(url), path, concurrency=concurrency, on_progress=wait)
