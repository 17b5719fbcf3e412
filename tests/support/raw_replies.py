"""A log of whole replies, and what its answers are worth once they are read at their position."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from suffice import AnswerPosition, import_recording, read_recording
from suffice.policy.session import Policy, stops
from suffice.verdicts.decisions import Advice, decide

CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Bern", "Quito", "Paris")
POSITIONS = {
    "marker": AnswerPosition("marker", "Final answer:"),
    "regex": AnswerPosition("regex", r"<<(\w+)>>"),
    "json": AnswerPosition("json", "result.city"),
    "boxed": AnswerPosition("boxed"),
}
FORMS = {
    "thousands": ("1{n}34 km", "1 {n}34 km", "1,{n}34 km"),
    "decimal-comma": ("1{n}34.50 m", "1.{n}34,50 m", "1{n}34,50 m"),
    "day-first": ("202{n}-04-03", "3/4/202{n}", "03.04.202{n}"),
    "month-first": ("202{n}-04-03", "4/3/202{n}", "April 3, 202{n}"),
    "no-currency": ("1{n}.50", "€1{n}.50", "1{n}.50"),
}
"""Answers as gold answers are written, and in two ways of each form, with the number of the city for n."""

OF_FORMS = [kind for form in FORMS for kind in (form, f"{form} json")]
"""Logs in each form, of answers alone and of replies."""

QUESTIONS, ROUNDS = 24, 6
"""Questions of which at least eight choose a position and eight others measure it, and rounds."""

JUDGED = 160
"""Questions that are enough to judge a policy: of 120, `decide` says that they are not."""


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


def position_of(kind: str) -> AnswerPosition:
    """Return the position at which a policy reads the answers of a log, with their form."""
    form, _, place = kind.partition(" ") if kind in OF_FORMS else ("", "", kind)
    return replace(POSITIONS.get(place, AnswerPosition()), form=form)


def written(form: str, way: int, city: str) -> str:
    """Return an answer in one way of its form, 0 for that of gold answers."""
    return FORMS[form][way].format(n=CITIES.index(city))


def in_form(kind: str, questions: int) -> list[dict[str, object]]:
    """Return the rows of a log whose answers are written in a form, in another way every other round."""
    form, _, place = kind.partition(" ")
    rows: list[dict[str, object]] = []
    for q in range(questions):
        for r, city in enumerate(answers_of(q), 1):
            answer = written(form, 1 + (q + r) % 2, city)
            text = reply(place, answer, q, r) if place else answer
            rows.append({"id": f"q{q}", "attempt": r, "expected": written(form, 0, CITIES[q % 7]), "response": text})
    return rows


def records(kind: str, questions: int = QUESTIONS) -> list[dict[str, object]]:
    """Return the rows of the log."""
    if kind in OF_FORMS:
        return in_form(kind, questions)
    return [
        {"id": f"q{q}", "attempt": r, "expected": CITIES[q % 7], "response": reply(kind, answer, q, r)}
        for q in range(questions)
        for r, answer in enumerate(answers_of(q), 1)
    ]


@dataclass(frozen=True)
class Judged:
    """What `decide` advises for a log, its policy, and for each question its replies, and where the policy stops with what."""

    advice: Advice
    policy: Policy
    questions: list[tuple[list[str], int, int, str]]


def judged(kind: str, folder: Path) -> Judged:
    """Import the log with the position and the form of its answers, and decide."""
    log, rows = folder / f"{kind}.jsonl", records(kind, JUDGED)
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    form = position_of(kind).form
    summary = import_recording(
        log,
        out=folder / f"{kind}.parquet",
        answer_position=POSITIONS.get(kind.removeprefix(f"{form} ")),
        columns={"answer": f"response:{form}"} if form else None,
    )
    recording = read_recording(summary.path)
    advice = decide(recording)
    policy = advice.policy
    assert policy is not None
    stopped = stops(policy, recording.rounds(policy.raw_columns))
    texts = [[str(row["response"]) for row in rows[at : at + ROUNDS]] for at in range(0, len(rows), ROUNDS)]
    answers = recording.answers
    questions = [
        (texts[q], int(stop), int(answer), answers[q, int(answer) - 1])
        for q, (stop, answer) in enumerate(zip(stopped.rounds, stopped.answer_rounds, strict=True))
    ]
    return Judged(advice, policy, questions)
