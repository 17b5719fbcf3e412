"""Logs whose answers are amounts of money beside answers of other kinds, and name the currency in another way than gold answers, or alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops, plain, rows


def _asked(
    draw: Draw,
    gold_of: Callable[[int], str],
    answer_of: Callable[[int, int], str],
    bare: Callable[[int], str] | None = None,
) -> tuple[list[Asked], list[Asked]]:
    """Return questions of which every third asks for an amount, as logged and as they are to be read.

    Args:
        draw: The source of random numbers.
        gold_of: The gold answer of an amount in cents.
        answer_of: The answer of an amount in a round.
        bare: The answer as it is to be read; None = as it is.
    """
    logged, read = [], []
    for own in draw.asked(90, 3):
        amount, said = draw.random.randint(500, 90_000), own
        if own.number % 3 == 1:
            gold = draw.random.choice(("yes", "no"))
            said = replace(own, gold=gold, answers=tuple(gold if good else "unknown" for good in own.right))
        amounts = [amount if good else amount + 750 for good in own.right]
        is_amount = own.number % 3 == 2
        if is_amount:
            answers = tuple(answer_of(own, r) for r, own in enumerate(amounts))
            said = replace(own, gold=gold_of(amount), answers=answers)
        logged.append(said)
        read.append(replace(said, answers=tuple(map(bare, amounts))) if is_amount and bare else said)
    return logged, read


def _plain(cents: int) -> str:
    return f"{cents / 100:,.2f}"


@shape("huts.jsonl")
def prices_with_the_sign_in_later_rounds(draw: Draw) -> Log:
    """Gold answers and first drafts have EUR after the amount, and later ones the sign before it."""
    questions, _ = _asked(
        draw,
        lambda own: f"{own / 100:.2f} EUR",
        lambda own, r: f"€{own / 100:.2f}" if r else f"{own / 100:.2f} EUR",
    )
    return Log(rows(questions, plain), loops(questions))


@shape("salaries.csv")
def dollars_by_sign_code_and_name(draw: Draw) -> Log:
    """Dollars are written in four ways, with separators of thousands and without."""
    forms = ("${}", "{} USD", "US${}", "{} dollars")
    questions, _ = _asked(
        draw,
        lambda own: f"{own * 100} USD",
        lambda own, _: draw.random.choice(forms).format(draw.random.choice((f"{own * 100}", f"{own * 100:,}"))),
    )
    return Log(rows(questions, plain), loops(questions))


@shape("fares.jsonl")
def bare_golds_beside_pounds(draw: Draw) -> Log:
    """Gold answers leave out the currency, which answers name: it is the same in all of them, and left out."""
    questions, read = _asked(
        draw,
        lambda own: f"{own / 100:.2f}",
        lambda own, r: f"£{_plain(own)}" if r else f"{own / 100:.2f} GBP",
        lambda own: f"{own / 100:.2f}",
    )
    return Log(rows(questions, plain), loops(read))


@shape("exchange.jsonl")
def other_currencies_are_wrong(draw: Draw) -> Log:
    """A wrong answer is often the right number in another currency."""
    questions, _ = _asked(
        draw,
        lambda own: f"€{own / 100:.2f}",
        lambda own, _: f"{own / 100:.2f} EUR",
    )
    questions = [
        replace(
            item,
            answers=tuple(
                text if good or "EUR" not in text else item.gold.replace("€", "$")
                for text, good in zip(item.answers, item.right, strict=True)
            ),
        )
        for item in questions
    ]
    return Log(rows(questions, plain), loops(questions))
