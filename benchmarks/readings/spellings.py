"""Logs whose answers are the gold answer in another spelling: typography, times of day, ranges and dates, and names with words in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops, plain, rows


def _spelled(
    draw: Draw, make: Callable[[int], tuple[str, str]], spell: Callable[[str, int], str], n: int = 80
) -> list[Asked]:
    """Return questions whose gold answer and wrong answer are made of their number, and whose answers are spelled anew in each round."""
    return [
        replace(
            item,
            gold=gold,
            answers=tuple(spell(gold if good else wrong, r) for r, good in enumerate(item.right)),
        )
        for item in draw.asked(n)
        for gold, wrong in [make(item.number)]
    ]


@shape("delivery.jsonl")
def ranges_with_another_dash(draw: Draw) -> Log:
    """Gold answers have hyphens, and answers an en dash, a non-breaking blank or "to" as often."""
    forms = ("{}-{} days", "{}\u2013{} days", "{}-{}\u00a0days", "{} to {} days")
    questions = _spelled(
        draw,
        lambda n: (f"{n + 2}-{n + 5} days", f"{n + 2}-{n + 7} days"),
        lambda text, _: draw.random.choice(forms).format(*text.removesuffix(" days").split("-")),
    )
    return Log(rows(questions, plain), loops(questions))


@shape("puzzles.csv")
def names_with_curly_quotes(draw: Draw) -> Log:
    """Later rounds write a curly apostrophe and a narrow blank, and gold answers neither."""
    names = [f"{first} O'{last}" for first in ("Ann", "Sean", "Maeve", "Cian") for last in ("Neil", "Dea", "Hara")]
    questions = _spelled(
        draw,
        lambda n: (f"{names[n % 12]}'s House", f"{names[(n + 5) % 12]}'s Tower"),
        lambda text, r: text.replace("'", "\u2019").replace(" H", "\u202fH") if r > 1 else text,
    )
    return Log(rows(questions, plain), loops(questions))


@shape("departures.jsonl")
def times_with_and_without_zeros(draw: Draw) -> Log:
    """The first rounds write 08:05 as gold answers do, and later ones 8:05 or 8:05 am."""
    forms = ("0{}", "0{}", "{}", "{} am")
    questions = _spelled(
        draw,
        lambda n: (f"0{n % 9 + 1}:{n % 50 + 10}", f"0{n % 9 + 1}:{n % 50 + 9:02}"),
        lambda text, r: forms[r].format(text.removeprefix("0")),
    )
    return Log(rows(questions, plain), loops(questions))


@shape("facts.jsonl")
def agents_with_padded_numbers(draw: Draw) -> Log:
    """Zeros before a number beside words are asked about, since 007 may be an id."""
    questions = _spelled(
        draw,
        lambda n: (f"{draw.random.choice(('Oslo', 'Rome'))} platform {n % 8 + 1}", f"Lima platform {n % 8 + 1}"),
        lambda text, _: text.replace("platform ", "platform 0") if draw.random.random() < 0.5 else text,
    )
    return Log(rows(questions, plain), loops(questions))


@shape("wayfinding.jsonl")
def numbered_places(draw: Draw) -> Log:
    """Places with a number, such as Gate 12, of which some answers give two, or none: they are no numbers."""
    kinds = ("Gate", "Pier", "Hall", "Platform", "Terminal")
    questions = _spelled(
        draw,
        lambda n: (f"{kinds[n % 5]} {n % 17 + 1}", ("the desk", f"Gate {n % 9 + 1} or Pier {n % 5 + 1}")[n % 2]),
        lambda text, _: text,
    )
    return Log(rows(questions, plain), loops(questions))


@shape("precedents.jsonl")
def names_of_cases_at_law(draw: Draw) -> Log:
    """Cases such as A v. B, of which another is not half right because of its "v."."""
    names = [f"{first}{second}" for first in ("Har", "Mil", "Ben", "Cold") for second in ("ton", "ler", "wick", "man")]
    questions = _spelled(
        draw,
        lambda n: (f"{names[n % 16]} v. {names[(n // 2 + 5) % 16]}", f"{names[(n + 3) % 16]}son v. State"),
        lambda text, _: text,
    )
    return Log(rows(questions, plain), loops(questions))


@shape("provisions.jsonl")
def articles_of_law(draw: Draw) -> Log:
    """Articles such as Art. 6(1)(f) GDPR, of which another is not half right."""
    questions = _spelled(
        draw,
        lambda n: (f"Art. {n % 40 + 1}({n % 3 + 1})(f) GDPR", f"Art. {n % 40 + 1}({n % 3 + 1})(b) GDPR"),
        lambda text, _: text,
    )
    return Log(rows(questions, plain), loops(questions))


@shape("authors.jsonl")
def names_with_initials(draw: Draw) -> Log:
    """Authors such as J. Smith are no options of multiple choice, of which the first letter counts."""
    names = ("Moss", "Reed", "Vale", "Hart", "Lane")
    questions = _spelled(
        draw,
        lambda n: (f"{'JATM'[n % 4]}. {names[n % 5]}", f"{'JATM'[n % 4]}. {names[(n + 1) % 5]}"),
        lambda text, _: text,
    )
    return Log(rows(questions, plain), loops(questions))


@shape("tactics.tsv", options=("--set", "normalizer=exact"))
def moves_in_chess(draw: Draw) -> Log:
    """Moves such as bxc4, of a pawn, and Bxc4, of a bishop, which is no gold answer: case tells them apart."""
    squares = [f"{file}{rank}" for file in "acdefg" for rank in range(2, 8)]
    questions = _spelled(
        draw,
        lambda n: (
            (f"bx{squares[n % 36]}", f"Bx{squares[n % 36]}")
            if n % 5 == 0
            else (f"{('N', 'Q', '')[n % 3]}{squares[n % 36]}", f"R{squares[(n + 7) % 36]}")
        ),
        lambda text, _: text,
    )
    return Log(rows(questions, plain), loops(questions))
