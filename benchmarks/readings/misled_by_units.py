"""Logs whose units stand after decimal commas, and logs with several raters or models of each answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.readings.cases import Draw, Log, Loop, shape
from benchmarks.readings.plain import loops, plain, rows


def _metered(draw: Draw, right: str, wrong: str) -> Log:
    """Return amounts as in German, of which every second wrong one is wrong by its unit alone."""
    questions = []
    for asked in draw.asked(60, 3, "whole"):
        amounts = [1000 + abs(int(value)) for value in (asked.gold, *asked.answers)]
        said = [f"{n // 1000}.{n % 1000:03},{asked.number % 9 + 1}" for n in amounts]
        units = [f"{said[0]} {wrong}" if asked.number % 2 else f"{own} {right}" for own in said[1:]]
        gold = f"{said[0]} {right}"
        answers = tuple(gold if good else unit for good, unit in zip(asked.right, units, strict=True))
        right_ones = tuple(text == gold for text in answers)
        questions.append(replace(asked, gold=gold, answers=answers, right=right_ones))
    return Log(rows(questions, plain), loops(questions))


@shape("bills.csv", metric="match")
def energies_with_decimal_commas(draw: Draw) -> Log:
    """Bills in kWh, with MWh in wrong answers."""
    return _metered(draw, "kWh", "MWh")


@shape("fees.csv", metric="match")
def currencies_after_decimal_commas(draw: Draw) -> Log:
    """Fees in CHF, with EUR in wrong answers."""
    return _metered(draw, "CHF", "EUR")


@shape("drafts.csv")
def raters_of_each_answer(draw: Draw) -> Log:
    """Each draft has a row for each of three annotators, and a ticket no column with a usual name."""
    made: list[dict[str, Any]] = []
    read: list[Loop] = []
    for asked in draw.asked(60, 3):
        for name in ("ann", "ben", "cat"):
            row = {"ticket": f"T{asked.number}", "annotator": name}
            made += [
                {**row, "draft_no": r, "reply": text, "gold": asked.gold} for r, text in enumerate(asked.answers, 1)
            ]
            read.append(replace(asked.loop(), question=f"T{asked.number}"))
    return Log(made, read)


@shape("models.csv", samples=True)
def a_column_of_answers_for_each_model(draw: Draw) -> Log:
    """Each row has the answer of three models, which are asked the same."""
    questions = draw.asked(60, 3)
    names = ("north", "south", "west")
    made = [
        {"id": a.number, "question": a.question, "correct_answer": a.gold}
        | {f"{name}_answer": text for name, text in zip(names, a.answers, strict=True)}
        for a in questions
    ]
    return Log(made, loops(questions))
