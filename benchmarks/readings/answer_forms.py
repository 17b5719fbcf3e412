"""Logs whose gold answers have unusual names or other forms than answers, and logs with costs and ends under unusual names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops, plain, rows


def _renamed(questions: list[Asked], name: str, make: Any = None) -> list[dict[str, Any]]:
    """Return rows whose gold answer is in a column of another name."""
    return [
        {name if key == "gold" else key: make(key, value) if make else value for key, value in row.items()}
        for row in rows(questions, plain)
    ]


def _amounts(draw: Draw, n: int = 60) -> list[Asked]:
    """Return questions whose answers are amounts of money, with a wrong one that has tax added."""
    asked = []
    for item in draw.asked(n, 3):
        amount = draw.random.randint(1_000, 480_000) / 100
        answers = tuple(amount if good else round(1.19 * amount, 2) for good in item.right)
        asked.append(replace(item, gold=amount, answers=answers))
    return asked


def _german(amount: float) -> str:
    return f"{amount:,.2f}".translate(str.maketrans(",.", ".,"))


@shape("rain.csv")
def booleans_with_the_truth(draw: Draw) -> Log:
    """Answers are yes or no, and what happened is in `truth`."""
    questions = [
        replace(
            item,
            gold="yes" if (gold := draw.random.random() < 0.5) else "no",
            answers=tuple("yes" if good == gold else "no" for good in item.right),
        )
        for item in draw.asked(60, 3)
    ]
    return Log(_renamed(questions, "truth"), loops(questions))


@shape("observed.csv")
def booleans_that_were_observed(draw: Draw) -> Log:
    """Answers are yes or no, and what happened is in `observed`, with few values, which equal answers by chance, too."""
    log = booleans_with_the_truth(draw)
    return Log([{"observed" if k == "truth" else k: v for k, v in row.items()} for row in log.content], log.loops)


@shape("intents.csv")
def intents_verified_by_people(draw: Draw) -> Log:
    """Three labels, verified by people."""
    intents = ("cancel", "change", "track")
    questions = []
    for item in draw.asked(60, 3):
        gold, *wrong = draw.random.sample(intents, 3)
        answers = tuple(gold if good else wrong[0] for good in item.right)
        questions.append(replace(item, gold=gold, answers=answers))
    return Log(_renamed(questions, "human"), loops(questions))


@shape("tax.csv")
def amounts_with_commas(draw: Draw) -> Log:
    """Answers are amounts such as 1.234,50 EUR, gold answers plain numbers."""
    questions = _amounts(draw)
    made = [{**row, "answer": f"{_german(row['answer'])} EUR"} for row in rows(questions, plain)]
    return Log(made, _read(questions, lambda amount: f"{amount:.2f} EUR"))


@shape("tax.jsonl")
def amounts_with_commas_in_turns(draw: Draw) -> Log:
    """The same in a list of turns, with the currency before the amount."""
    questions = _amounts(draw)
    made = [
        {
            "id": item.number,
            "question": item.question,
            "gold": item.gold,
            "turns": [{"answer": f"€ {_german(amount)}"} for amount in item.answers],
        }
        for item in questions
    ]
    return Log(made, _read(questions, lambda amount: f"€ {amount:.2f}"))


@shape("right.csv")
def right_amounts_with_commas(draw: Draw) -> Log:
    """Gold answers are amounts such as 1.234,50, answers plain numbers."""
    questions = _amounts(draw)
    made = [{**row, "gold": _german(row["gold"])} for row in rows(questions, plain)]
    return Log(made, [replace(item, golds=(f"{item.golds[0]:.2f}",)) for item in loops(questions)])


@shape("swiss.csv")
def amounts_with_apostrophes(draw: Draw) -> Log:
    """Answers are amounts such as CHF 1'234.50, and those below a thousand have no apostrophe."""
    questions = _amounts(draw)
    made = [{**row, "answer": "CHF " + f"{row['answer']:,.2f}".replace(",", "'")} for row in rows(questions, plain)]
    return Log(made, _read(questions, lambda amount: f"CHF {amount:.2f}"))


@shape("wines.jsonl", metric="match")
def prices_among_other_fields(draw: Draw) -> Log:
    """Answers list a year, a volume and a price with a decimal comma; gold answers have a point."""
    questions = []
    for item in draw.asked(80, 3):
        said = f"{2000 + item.number % 20}, {{}} ml, {20 + item.number / 4:.2f} EUR"
        answers = tuple(said.format(750 if good else 375) for good in item.right)
        questions.append(replace(item, gold=said.format(750), answers=answers))
    made = [{**row, "answer": re.sub(r"(?<=\d)\.(?=\d)", ",", row["answer"])} for row in rows(questions, plain)]
    return Log(made, loops(questions))


@shape("dates.csv")
def months_first_beside_days_first(draw: Draw) -> Log:
    """Gold answers have the day first, answers the month."""
    questions = draw.asked(80, 3, "day")
    for_people = [
        replace(item, gold=f"{item.gold[8:]}/{item.gold[5:7]}/2021", answers=item.answers) for item in questions
    ]
    made = [
        {**row, "answer": f"{row['answer'][5:7]}/{row['answer'][8:]}/2021"} if _is_day(row["answer"]) else row
        for row in rows(for_people, plain)
    ]
    return Log(made, loops(for_people))


def _is_day(text: str) -> bool:
    return text[5:7] <= "12"


def _read(questions: list[Asked], form: Any) -> list[Any]:
    """Return the readings of logs whose answers are read with a decimal point."""
    return [replace(loop, answers=tuple(map(form, loop.answers))) for loop in loops(questions)]


@shape("intents.csv")
def labels_of_several_words(draw: Draw) -> Log:
    """A classifier's labels have a word in common, and are right as a whole or not at all."""
    intents = ("cancel order", "change order", "track order", "return order")
    questions = [
        replace(item, gold=gold, answers=tuple(gold if good else wrong for good in item.right))
        for item in draw.asked(60, 3)
        for gold, wrong in [draw.random.sample(intents, 2)]
    ]
    return Log(rows(questions, plain), loops(questions))


@shape("parts.jsonl")
def numbers_of_parts(draw: Draw) -> Log:
    """Part numbers such as P/N 65-5041, another of which is not half right."""
    questions = [
        replace(
            item, gold=gold, answers=tuple(gold if good else f"P/N 65-{7_000 + item.number}" for good in item.right)
        )
        for item in draw.asked(60, 3)
        for gold in [f"P/N 65-{1_000 + 37 * item.number}"]
    ]
    return Log(rows(questions, plain), loops(questions))


@shape("tickets.csv")
def tickets_in_microdollars(draw: Draw) -> Log:
    """A ticket's number has an unusual name, `exit` says why the loop ended, and each call's price is in microdollars."""
    questions = draw.asked(60, 3)
    short = [
        replace(item, answers=item.answers[:n], right=item.right[:n])
        for item in questions
        for n in [draw.random.choice((1, 2, 3))]
    ]
    made = [
        {
            "ticket": f"T-{item.number}",
            "attempt": r,
            "answer": answer,
            "gold": item.gold,
            "exit": "max_attempts" if len(item.answers) == len(questions[0].answers) else "converged",
            "cost_micros_usd": draw.random.randint(100, 900),
        }
        for item in short
        for r, answer in enumerate(item.answers, start=1)
    ]
    return Log(made, [item.loop(question=f"T-{item.number}") for item in short])


def _accepted(draw: Draw, name: str, sign: str) -> Log:
    """Return a log with every right answer of a question in one text."""
    questions = draw.asked(90, 3)
    both = {item.number: (item.gold, f"City of {item.gold}") for item in questions}
    made = _renamed(questions, name, lambda key, value: f"{value}{sign}City of {value}" if key == "gold" else value)
    return Log(made, [item.loop(golds=both[item.number]) for item in questions])


@shape("pubquiz.tsv")
def accepted_answers_in_one_text(draw: Draw) -> Log:
    """Several answers are accepted, with a bar between them."""
    return _accepted(draw, "accepted_answers", "|")


@shape("trivia.csv")
def aliases_in_one_text(draw: Draw) -> Log:
    """The aliases of what is right are in one text, and no name says that they are right."""
    return _accepted(draw, "aliases", "; ")
