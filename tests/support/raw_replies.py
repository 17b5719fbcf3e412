"""A log of whole replies, and what its answers are worth once they are read at their position."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from suffice import AnswerPosition, import_recording, read_recording
from suffice.policy.session import Policy, stops
from suffice.verdicts.decisions import decide

CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Bern", "Quito", "Paris")
POSITIONS = {
    "marker": AnswerPosition("marker", "Final answer:"),
    "regex": AnswerPosition("regex", r"<<(\w+)>>"),
    "json": AnswerPosition("json", "result.city"),
    "boxed": AnswerPosition("boxed"),
}
QUESTIONS, ROUNDS = 48, 6

JUDGED = 240
"""Questions that are enough to judge a policy."""


def answers_of(q: int) -> list[str]:
    """Return the answers of a question by round: up to four wrong ones, then the gold answer, and seldom a slip at the end."""
    gold = CITIES[q % 7]
    wrong = [CITIES[(q + 1 + r) % 7] for r in range((0, 0, 0, 1, 4)[q % 5])]
    answers = [*wrong, *[gold] * (ROUNDS - len(wrong))]
    return answers if q % 40 else [*answers[:-1], CITIES[(q + 5) % 7]]


def reply(kind: str, answer: str, q: int, r: int) -> str:
    """Return a reply that differs in every round."""
    thought = f"In step {r} I wonder about tower {q}: {CITIES[(q + r) % 7]}?"
    return {
        "marker": f"{thought}\n\n**Final answer:** {answer}.\nConfidence: {r}",
        "regex": f"{thought} So <<{answer}>>, number {q * r} of my guesses",
        "json": json.dumps({"city": thought, "result": {"why": thought, "city": answer}}),
        "boxed": rf"<think>\boxed{{{thought}}}</think>{thought} Hence $\boxed{{\text{{{answer}}}}}$.",
    }[kind]


def records(kind: str, questions: int = QUESTIONS) -> list[dict[str, object]]:
    """Return the rows of the log."""
    return [
        {"id": f"q{q}", "attempt": r, "expected": CITIES[q % 7], "response": reply(kind, answer, q, r)}
        for q in range(questions)
        for r, answer in enumerate(answers_of(q), 1)
    ]


@dataclass(frozen=True)
class Judged:
    """The policy that `decide` advises for a log, and for each question its replies, and where the policy stops with what."""

    policy: Policy
    questions: list[tuple[list[str], int, int, str]]


def judged(kind: str, folder: Path) -> Judged:
    """Import the log with the position of its answers, and decide."""
    log = folder / f"{kind}.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in records(kind, JUDGED)), "utf-8")
    summary = import_recording(log, out=folder / f"{kind}.parquet", answer_position=POSITIONS[kind])
    recording = read_recording(summary.path)
    policy = decide(recording).policy
    assert policy is not None
    stopped = stops(policy, recording.rounds(policy.raw_columns))
    texts, answers = recording.objects("text").tolist(), recording.answers
    questions = [
        (texts[q], int(stop), int(answer), answers[q, int(answer) - 1])
        for q, (stop, answer) in enumerate(zip(stopped.rounds, stopped.answer_rounds, strict=True))
    ]
    return Judged(policy, questions)
