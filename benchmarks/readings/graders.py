"""Logs in which a grader's replies are among the answers."""

from __future__ import annotations

import json

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops


def _chat(asked: Asked, grades: tuple[str, ...]) -> list[dict[str, str]]:
    """Return messages: a question, and answers of which each is graded."""
    messages = [{"role": "user", "content": asked.question}]
    for answer, grade in zip(asked.answers, grades, strict=True):
        messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": "Grade this answer."})
        messages.append({"role": "assistant", "content": grade})
    return messages


def _verdicts(asked: Asked) -> tuple[str, ...]:
    return tuple("CORRECT" if right else "INCORRECT: another place is on its way." for right in asked.right)


@shape("chats.jsonl")
def an_answer_and_its_grade(draw: Draw) -> Log:
    """One answer, and a number from 1 to 5 for it: nothing can be stopped."""
    return Log(
        [
            {"id": asked.number, "gold": asked.gold, "messages": _chat(asked, (str(2 + 3 * asked.right[0]),))}
            for asked in draw.asked(60, 1)
        ]
    )


@shape("chats.jsonl")
def an_answer_and_its_verdict_without_golds(draw: Draw) -> Log:
    """One answer, and an object with a score and its reason: nothing can be stopped, and nothing else judges."""
    verdict = lambda right: json.dumps({"score": int(right), "reason": draw.prose(4)})  # noqa: E731
    return Log(
        [{"id": asked.number, "messages": _chat(asked, (verdict(asked.right[0]),))} for asked in draw.asked(60, 1)]
    )


@shape("chats.jsonl")
def verdicts_between_answers(draw: Draw) -> Log:
    """Each answer is followed by a verdict, until one is accepted or four were wrong."""
    questions = draw.asked(60)
    records, read = [], []
    for asked in questions:
        n = next((r for r, right in enumerate(asked.right, start=1) if right), len(asked.right))
        cut = Asked(asked.number, asked.question, asked.gold, asked.answers[:n], asked.right[:n])
        records.append({"id": cut.number, "gold": cut.gold, "messages": _chat(cut, _verdicts(cut))})
        read.append(cut)
    return Log(records, loops(read))


@shape("log.jsonl")
def grades_in_rows_of_a_grader(draw: Draw) -> Log:
    """A row for each call; those of the grader have another template."""
    questions = draw.asked(60)
    records = []
    for asked in questions:
        for answer, verdict in zip(asked.answers, _verdicts(asked), strict=True):
            for template, text in (("answering", answer), ("grading", verdict)):
                records.append({"id": asked.number, "gold": asked.gold, "template": template, "output": text})
    return Log(records, loops(questions))


@shape("log.jsonl")
def verdicts_that_are_answers(draw: Draw) -> Log:
    """Reviews of claims: a verdict is the answer, and the first round of some questions does not know it."""
    records, read = [], []
    for number in range(60):
        gold, wrong = draw.random.sample(["correct", "incorrect"], 2)
        right = tuple(draw.random.random() < share for share in (0.4, 0.6, 0.8))
        said = tuple(gold if good else ("cannot be told" if r == 0 else wrong) for r, good in enumerate(right))
        asked = Asked(number, f"Claim {number}: the caravan has arrived.", gold, said, right)
        read.append(asked)
        for r, answer in enumerate(asked.answers, start=1):
            records.append({"id": number, "round": r, "question": asked.question, "gold": gold, "output": answer})
    return Log(records, loops(read))
