"""Logs that misled the importer when a ninth person tried it: spellings that count, passes, sessions of tasks, and failed calls."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops


def spelled(draw: Draw, forms: Callable[[], tuple[str, list[str], list[str]]]) -> Log:
    """Return a log of a gold answer, other spellings of it, and wrong answers that are spelled nearly alike."""
    questions = []
    for a in draw.asked(80):
        gold, same, wrong = forms()
        answers = tuple(draw.random.choice(same if right else wrong) for right in a.right)
        questions.append(Asked(a.number, a.question, gold, answers, a.right))
    made = [
        {"qid": f"q{a.number}", "question": a.question, "round": r, "answer": text, "gold": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))


@shape("moves.csv")
def moves_that_differ_in_case(draw: Draw) -> Log:
    """In chess, bxc3 is a pawn's move and Bxc3 a bishop's."""

    def forms() -> tuple[str, list[str], list[str]]:
        square = f"x{draw.random.choice('ac')}{draw.random.randint(3, 6)}"
        own, other = draw.random.sample(["b", "B"], 2)
        return own + square, [own + square], [other + square]

    return spelled(draw, forms)


@shape("versions.csv")
def versions_that_end_in_zero(draw: Draw) -> Log:
    """Version 3.10 came after 3.9, and is not 3.1."""

    def forms() -> tuple[str, list[str], list[str]]:
        gold = f"{draw.random.randint(1, 4)}.{draw.random.randint(1, 3)}0"
        return gold, [gold], [gold[:-1], f"{gold}0"]

    return spelled(draw, forms)


@shape("prices.csv")
def prices_with_and_without_zeros(draw: Draw) -> Log:
    """A price of 3.50 is 3.5."""

    def forms() -> tuple[str, list[str], list[str]]:
        cents = 5 * draw.random.randint(21, 900)
        gold = f"{cents / 100:.2f}"
        return gold, [gold, f"{cents / 100:g}"], [f"{cents / 100 + 1:.2f}"]

    return spelled(draw, forms)


@shape("powers.csv")
def units_that_differ_in_case(draw: Draw) -> Log:
    """An answer of 8 mW is 8mW and 0.008 W, and not 8 MW."""

    def forms() -> tuple[str, list[str], list[str]]:
        value = draw.random.choice([2, 5, 8, 10, 40])
        own, other = draw.random.sample(["mW", "MW"], 2)
        return f"{value} {own}", [f"{value} {own}", f"{value}{own}"], [f"{value} {other}"]

    return spelled(draw, forms)
