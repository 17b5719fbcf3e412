"""Logs whose units stand after decimal commas, and a log with several raters of each draft."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.readings.cases import Draw, Log, Loop, shape
from benchmarks.readings.plain import loops, plain, rows


def _metered(draw: Draw, right: str, wrong: str) -> Log:
    """Return quantities as in German, of which every second wrong one is wrong by its unit alone."""
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


@shape("peaks.jsonl", metric="match")
def powers_with_decimal_commas(draw: Draw) -> Log:
    """Peaks in kW, with kWh in wrong answers."""
    return _metered(draw, "kW", "kWh")


@shape("loads.csv", metric="match")
def masses_with_decimal_commas(draw: Draw) -> Log:
    """Loads in kg, with t in wrong answers."""
    return _metered(draw, "kg", "t")


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
