"""Logs in which texts are asked again, under ids with names of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import rows

_TEXTS = 40


def _asked_again(draw: Draw, key: str) -> tuple[list[Asked], list[dict[str, Any]]]:
    """Return tickets whose texts are asked up to three times, and their rows, which nothing counts."""
    questions = [
        replace(own, question=f"Where does caravan {own.number % _TEXTS} stop?") for own in draw.asked(90, rounds=3)
    ]
    made = rows(
        questions,
        lambda own, r: {
            key: f"R-{own.number:04}",
            "question": own.question,
            "prediction": own.answers[r - 1],
            "gold": own.gold,
        },
    )
    return questions, made


def _log(questions: list[Asked], records: list[dict[str, Any]]) -> Log:
    return Log(records, [own.loop(question=own.question) for own in questions])


@shape("tickets.csv")
def reviews_with_texts_asked_again(draw: Draw) -> Log:
    """The id has an unusual name that ends as ids do, and the rows of each are together."""
    return _log(*_asked_again(draw, "review_id"))


@shape("flights.csv", options=("--column", "question_id=flight"))
def flights_with_texts_asked_again(draw: Draw) -> Log:
    """The id is not called like one."""
    return _log(*_asked_again(draw, "flight"))


@shape("orders.csv", options=("--column", "question_id=order_no"))
def orders_asked_side_by_side(draw: Draw) -> Log:
    """The rows of several orders alternate, as several were asked at once."""
    questions, records = _asked_again(draw, "order_no")
    order = sorted(range(len(records)), key=lambda place: (place // 12, place % 3))
    return _log(questions, [records[place] for place in order])


@shape("sorted.csv", options=("--column", "question_id=visit"))
def visits_sorted_by_their_texts(draw: Draw) -> Log:
    """Rows with one text are all together, and only other gold answers show that they are of several visits."""
    questions, records = _asked_again(draw, "visit")
    return _log(questions, sorted(records, key=lambda row: row["question"]))


@shape("passages.csv")
def passages_in_groups_of_rows(draw: Draw) -> Log:
    """A column has one value for each group of rows, and no text is asked again: it names what was retrieved."""
    questions = draw.asked(60)
    made = rows(
        questions,
        lambda own, r: {
            "question": own.question,
            "prediction": own.answers[r - 1],
            "gold": own.gold,
            "shelf": f"s{own.number}-{(r - 1) // 2}",
        },
    )
    return Log(made, [own.loop(question=own.question) for own in questions])
