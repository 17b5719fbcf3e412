"""Logs whose questions have ids under odd names, beside an id of each row, dates, shelves and other columns that group rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops, rows


def _with_stops(draw: Draw, n: int = 60) -> list[Asked]:
    """Return questions whose loops stop after one to three rounds."""
    lengths = [draw.random.randint(1, 3) for _ in range(n)]
    questions = draw.asked(n, 3)
    return [
        replace(own, answers=own.answers[:k], right=own.right[:k]) for own, k in zip(questions, lengths, strict=True)
    ]


def _plain(key: str, own: Asked, r: int) -> dict[str, Any]:
    return {key: f"N-{7 * own.number + 100}", "answer": own.answers[r - 1], "gold": own.gold}


def _numbered(records: list[dict[str, Any]], name: str = "id") -> list[dict[str, Any]]:
    """Return rows with an id of their own in front."""
    return [{name: number, **row} for number, row in enumerate(records, start=1)]


@shape("bank.csv")
def transactions_by_day(draw: Draw) -> Log:
    """The id has an odd name, loops stop early, and `booked` groups rows of several transactions."""
    questions = _with_stops(draw)
    made = rows(
        questions,
        lambda own, r: {
            "txn_id": f"TX{880 + own.number}",
            "booked": f"{1 + own.number // 6:02}/01/2026",
            "pass_no": r,
            "model": "large" if r == 3 else "mini",
            "category": own.answers[r - 1],
            "bookkeeper": own.gold,
        },
    )
    return Log(made, loops(questions))


@shape("pairs.csv")
def pairs_beside_a_primary_key(draw: Draw) -> Log:
    """Each row has an `id` of its own, and `pair_id` names the question."""
    questions = draw.asked(60, 4)
    return Log(_numbered(rows(questions, lambda own, r: {**_plain("pair_id", own, r), "hop": r})), loops(questions))


@shape("tickets.csv")
def tickets_asked_in_rounds_of_all(draw: Draw) -> Log:
    """Rows are in the order of attempts, each has an `id`, and the question's name does not end as ids do."""
    questions = _with_stops(draw)
    made = rows(questions, lambda own, r: {**_plain("ticket_ref", own, r), "attempt_no": r})
    return Log(_numbered(sorted(made, key=lambda row: row["attempt_no"])), loops(questions))


@shape("complaints.csv")
def patients_with_one_complaint(draw: Draw) -> Log:
    """Texts are asked again of other patients, with other gold answers, and only `mrn` tells these apart."""
    questions = [replace(own, question=f"Where does caravan {own.number % 20} stop?") for own in _with_stops(draw)]
    made = rows(questions, lambda own, r: {**_plain("mrn", own, r), "question": own.question, "attempt": r})
    return Log(_numbered(made, "row_id"), [own.loop(question=own.question) for own in questions])


@shape("batches.csv")
def items_numbered_within_batches(draw: Draw) -> Log:
    """Each row has an `id`, and only a batch and an item together name a question."""
    questions = draw.asked(60, 3)
    made = rows(
        questions,
        lambda own, r: {
            "batch": f"b{own.number // 10}",
            "item": own.number % 10,
            "iteration": r,
            "answer": own.answers[r - 1],
            "gold": own.gold,
        },
    )
    return Log(_numbered(made), loops(questions))


@shape("orders.csv")
def orders_that_nothing_counts(draw: Draw) -> Log:
    """Each row has an `id`, the rows of an order are together, and nothing counts them."""
    questions = _with_stops(draw)
    return Log(_numbered(rows(questions, lambda own, r: _plain("ordernr", own, r))), loops(questions))


@shape("checks.jsonl")
def calls_with_a_parent(draw: Draw) -> Log:
    """Each row has a `uuid` of its own and that of its parent, which names the question."""
    questions = _with_stops(draw)
    made = rows(questions, lambda own, r: {**_plain("parent_uuid", own, r), "step": r})
    return Log(_numbered(made, "uuid"), loops(questions))
