"""Logs that a further new user would have had misread: lists of labels, outcomes of nested runs, and two columns of amounts."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import CITIES, Draw, Log, Loop, shape

_FINDINGS = ("edema", "fracture", "effusion", "pneumonia", "nodule", "cardiomegaly")


@shape("scans.json")
def lists_of_labels(draw: Draw) -> Log:
    """Each pass over a report has a list of labels, and the report one of what an expert found."""
    made: list[dict[str, Any]] = []
    read: list[Loop] = []
    for number in range(60):
        right = draw.random.sample(_FINDINGS, draw.random.choice((1, 2, 2, 3)))
        more = [*right, draw.random.choice([name for name in _FINDINGS if name not in right])]
        said = [list(right if draw.random.random() < share else more) for share in (0.4, 0.6, 0.8)]
        for own in said:
            draw.random.shuffle(own)
        passes = [{"iteration": r, "labels": own, "rationale": draw.prose(6)} for r, own in enumerate(said, start=1)]
        made.append({"scan_id": f"s{number}", "report": draw.prose(), "reference_labels": right, "iterations": passes})
        scores = tuple({*own} == {*right} for own in said)
        read.append(Loop(number, tuple(said), (right,), scores))
    return Log({"run": "labeller-2", "scans": made}, read)


@shape("bookings", metric="outcome")
def outcomes_in_words_of_nested_runs(draw: Draw) -> Log:
    """A file for each run of an agent: its steps call tools, and only the run as a whole has an outcome and a message."""
    files, read = {}, []
    for number in range(40):
        outcome = draw.random.choice(("success", "success", "failed", "gave_up"))
        steps = [
            {
                "step": r,
                "tool_call": {
                    "name": draw.random.choice(("search_calendar", "send_email", "check_room")),
                    "arguments": {"day": f"2025-12-{draw.random.randint(1, 28):02}"},
                },
                "observation": draw.prose(3),
            }
            for r in range(1, draw.random.randint(3, 6))
        ]
        message = "Booked." if outcome == "success" else "I found no slot."
        run = {"task_id": f"t{number}", "goal": f"Book meeting {number}", "steps": steps, "final_message": message}
        files[f"t{number:02}.json"] = {**run, "outcome": outcome}
        none = (None,) * len(steps)
        read.append(Loop(number, none, (), (*none[1:], float(outcome == "success"))))
    return Log(files, read)


@shape("flats.csv")
def prices_beside_areas(draw: Draw) -> Log:
    """Each pass extracts a price and an area, each beside the right one; prices seldom change, and what a call costs is in euros."""
    made, read = [], []
    for number in range(80):
        price, area = 1000 * draw.random.randint(180, 990), draw.random.randint(30, 190)
        is_right = number % 8 > 1
        prices = [price if is_right or (number % 16 == 0 and r > 1) else price + 4000 for r in range(1, 4)]
        areas = [area if draw.random.random() < 0.3 * r else area + 9 for r in range(1, 4)]
        made += [
            {
                "inserat_id": f"AT-{number}",
                "ort": CITIES[number % len(CITIES)],
                "durchlauf": r,
                "preis_eur": prices[r - 1],
                "flaeche_m2": areas[r - 1],
                "preis_soll": price,
                "flaeche_soll": area,
                "kosten_eur": draw.random.randint(11, 29) / 10_000,
            }
            for r in range(1, 4)
        ]
        scores = tuple(own == price for own in prices)
        read.append(Loop(number, tuple(prices), (price,), scores))
    return Log(made, read)
