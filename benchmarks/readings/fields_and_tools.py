"""Logs whose answer is a record, a call of a tool, or what a writer wrote before a judge spoke of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, Loop, shape

ROOMS = ("Single", "Standard Twin", "Double")


@shape("bookings.jsonl")
def bookings_in_one_text(draw: Draw) -> Log:
    """An answer is four fields in one text, and is wrong if one of them is."""
    questions = draw.asked(80, kind="whole", rounds=3)
    form = "{}, 2026-05-{}, {} nights, {} guests"
    written = [form.format(ROOMS[own.number % 3], 10 + own.number % 20, "{}", 1 + own.number % 4) for own in questions]
    made = [
        {
            "id": f"HB-{own.number}",
            "gold": text.format(own.gold),
            "attempts": [{"answer": text.format(said)} for said in own.answers],
        }
        for own, text in zip(questions, written, strict=True)
    ]
    read = [
        own.loop(answers=tuple(text.format(said) for said in own.answers), golds=(text.format(own.gold),))
        for own, text in zip(questions, written, strict=True)
    ]
    return Log(made, read)


@shape("trips.csv")
def trips_with_dates_in_other_words(draw: Draw) -> Log:
    """Fields have semicolons between them, and a later answer writes the date and the price in another way."""
    questions = draw.asked(80, kind="name", rounds=2)
    forms = ("{}; 2026-03-{:02}; 450 EUR", "{}; {} March 2026; €450.00")
    made = [
        {
            "trip": own.number,
            "round": r,
            "answer": forms[r - 1].format(said, 1 + own.number % 28),
            "gold": forms[0].format(own.gold, 1 + own.number % 28),
        }
        for own in questions
        for r, said in enumerate(own.answers, start=1)
    ]
    read = [
        own.loop(
            answers=tuple(
                form.format(said, 1 + own.number % 28) for form, said in zip(forms, own.answers, strict=True)
            ),
            golds=(forms[0].format(own.gold, 1 + own.number % 28),),
        )
        for own in questions
    ]
    return Log(made, read)


@shape("towns.jsonl")
def prose_with_commas(draw: Draw) -> Log:
    """Answers are prose with as many commas each, of which any part counts."""
    questions = draw.asked(80)
    form = "In May, the council of {} approved the new plan, after a long debate about it, as the mayor had asked."
    short = "In May, the council of {} approved it, in the end, they say."
    made = [
        {"id": own.number, "round": r, "answer": (form if good else short).format(said), "gold": form.format(own.gold)}
        for own in questions
        for r, (said, good) in enumerate(zip(own.answers, own.right, strict=True), start=1)
    ]
    texts = [row["answer"] for row in made]
    read = [
        own.loop(answers=tuple(texts[4 * i : 4 * i + 4]), golds=(form.format(own.gold),))
        for i, own in enumerate(questions)
    ]
    return Log(made, read)


def _turns(questions: Sequence[Asked], draw: Draw, second: str, names: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Return two rows for each turn: of a writer, and of somebody who speaks of what was written."""
    doc, turn, role = names
    return [
        {doc: own.number, turn: r, role: who, "content": text, "score": score, "tokens": draw.tokens()}
        for own in questions
        for r, said in enumerate(own.answers)
        for who, text, score in (("writer", f"The caravan stops at {said}.", None), (second, draw.prose(5), 7 + r))
    ]


def _written(questions: Sequence[Asked]) -> list[Loop]:
    return [Loop(own.number, tuple(f"The caravan stops at {said}." for said in own.answers)) for own in questions]


@shape("refine.jsonl")
def what_a_judge_says_in_rows(draw: Draw) -> Log:
    """Each turn has a row of the writer and one of the judge, who has the score."""
    questions = draw.asked(40)
    return Log(_turns(questions, draw, "judge", ("doc", "turn", "role")), _written(questions))


@shape("refine.csv")
def what_a_reviewer_says_in_rows(draw: Draw) -> Log:
    """As with a judge, and only the writer's tokens are logged."""
    questions = draw.asked(40)
    made = _turns(questions, draw, "Style Reviewer", ("doc_id", "turn", "role"))
    made = [{**row, "tokens": row["tokens"] if row["role"] == "writer" else ""} for row in made]
    return Log(made, _written(questions))


@shape("refine.jsonl")
def what_an_editor_writes_in_rows(draw: Draw) -> Log:
    """Each turn has a row of the writer and one of the editor: either may have the answers."""
    questions = draw.asked(40)
    return Log(_turns(questions, draw, "editor", ("doc", "turn", "role")), _written(questions))


def _messages(own: Asked, tool: str, argument: str, **more: str) -> list[dict[str, Any]]:
    """Return the messages of a loop that looks something up before each answer, which it hands in by a tool."""
    made: list[dict[str, Any]] = [{"role": "user", "content": own.question}]
    for r, said in enumerate(own.answers):
        for name, arguments in (("look_up", {"caravan": own.number, "day": r}), (tool, {argument: said, **more})):
            called = {"id": f"c{r}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            made.append({"role": "assistant", "content": None, "tool_calls": [called]})
            made.append({"role": "tool", "tool_call_id": f"c{r}", "content": "noted"})
    return made


def _handed_in(questions: Sequence[Asked]) -> list[Loop]:
    return [own.loop(calls=(2,) * len(own.answers)) for own in questions]


@shape("orders.jsonl")
def answers_that_a_tool_takes(draw: Draw) -> Log:
    """The model says nothing: each answer is the argument of a tool's call, as are the arguments of look-ups."""
    questions = draw.asked(60, rounds=3)
    made = [
        {
            "task_id": f"T{own.number}",
            "messages": _messages(own, "submit_decision", "decision"),
            "expected_decision": own.gold,
        }
        for own in questions
    ]
    return Log(made, _handed_in(questions))


@shape("orders.jsonl")
def answers_among_the_arguments_of_a_tool(draw: Draw) -> Log:
    """The tool takes a reason, too, its name says nothing, and the model says goodbye in the end."""
    questions = draw.asked(60, rounds=3)
    made = [
        {
            "task_id": f"T{own.number}",
            "messages": [
                *_messages(own, "set_case", "place", why="It was written there."),
                {"role": "assistant", "content": "Goodbye!"},
            ],
            "gold": own.gold,
        }
        for own in questions
    ]
    return Log(made, [replace(own, calls=None) for own in _handed_in(questions)])


def _objects(questions: Sequence[Asked]) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    """Return the right object of each question, and the object of each answer, whose keys stand in another order."""
    golds = [{"room": ROOMS[own.number % 3], "nights": 1 + own.number % 7, "guest": own.gold} for own in questions]
    said = [
        [{"guest": text, "room": gold["room"], "nights": gold["nights"]} for text in own.answers]
        for own, gold in zip(questions, golds, strict=True)
    ]
    return golds, said


def _of_objects(questions: Sequence[Asked], golds: Sequence[Any], said: Sequence[Sequence[Any]]) -> list[Loop]:
    return [
        own.loop(answers=tuple(map(json.dumps, texts)), golds=(json.dumps(gold),))
        for own, gold, texts in zip(questions, golds, said, strict=True)
    ]


@shape("bookings.jsonl")
def answers_that_are_objects(draw: Draw) -> Log:
    """An answer has three fields, and so has the gold answer, in another order."""
    questions = draw.asked(60, rounds=3)
    golds, said = _objects(questions)
    made = [
        {"id": f"HB-{own.number}", "expected": gold, "attempts": [{"output": text, "cost_usd": 0.01} for text in texts]}
        for own, gold, texts in zip(questions, golds, said, strict=True)
    ]
    return Log(made, _of_objects(questions, golds, said))


@shape("bookings.jsonl", options=("--column", "answer=booking", "--column", "golds=final_booking_by_staff"))
def objects_in_texts_and_what_staff_booked(draw: Draw) -> Log:
    """Both are JSON in a text, and the gold answer has a name of its own."""
    questions = draw.asked(60, rounds=3)
    golds, said = _objects(questions)
    made = [
        {
            "conversation_id": f"HB-{own.number}",
            "attempts": [{"attempt": r, "booking": json.dumps(text)} for r, text in enumerate(texts, start=1)],
            "final_booking_by_staff": json.dumps(gold),
        }
        for own, gold, texts in zip(questions, golds, said, strict=True)
    ]
    return Log(made, _of_objects(questions, golds, said))
