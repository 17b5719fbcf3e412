"""Puzzles whose answer is a digit, and chains of thought about them whose mistakes are put there on purpose.

::

    Start 3 a + 4 b * 2 .          (every result modulo 10)
     a 3 + 4 = 7 b 7 * 2 = 4 So 4 Wait a 3 + 4 = 7 b 7 * 2 = 4 So 4 Done

    Largest a 4 b 9 c 2 .
     a 4 : 4 b 9 : 9 c 2 : 9 So 9 Wait a 4 : 4 b 9 : 9 c 2 : 2 So 2 Done

Each pass over the puzzle ends with what the chain then holds to be the answer.  In arithmetic the first pass is hasty and the
next ones are careful, so checking again helps; in lists it is the other way round, so checking again harms.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LABELS = "abcdefgh"
OPERATIONS = "+-*"
LISTS = ("Largest", "Smallest")
SLIPS = {"arithmetic": (0.06, 0.006), "list": (0.004, 0.08)}
"""The chance of a slip at each step, by kind: in the first pass, and in every pass after it."""
END = 0.4
"""The chance that a chain ends after a pass that gave the answer it had (of lists, after any but the first); else it checks once more."""
MOST_PASSES = 6
DOUBT = 0.3
"""The share of trial answers in training that are the truth instead of the answer that the chain holds."""

WHOLE = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""Fields by which llama.cpp samples from all tokens: by default it leaves out the rare ones, and with them most slips."""


@dataclass(frozen=True)
class Puzzle:
    """A puzzle: `start` and `steps` of operation and digit, or a list with "" in the place of operations."""

    kind: str
    word: str
    start: int
    steps: tuple[tuple[str, int], ...]

    @property
    def question(self) -> str:
        """The text of the puzzle."""
        parts = [
            f"{label} {f'{op} ' * bool(op)}{digit}" for label, (op, digit) in zip(LABELS, self.steps, strict=False)
        ]
        head = f"{self.word} {self.start}" if self.kind == "arithmetic" else self.word
        return f"{head} {' '.join(parts)} ."

    @property
    def answer(self) -> int:
        """The right answer."""
        value = self.start
        for step in self.steps:
            value = self.after(value, *step)
        return value

    def after(self, value: int, op: str, digit: int) -> int:
        """Return the running value after a step; below 0 is before the first element of a list."""
        if op:
            return {"+": value + digit, "-": value - digit, "*": value * digit}[op] % 10
        if value < 0:
            return digit
        return max(value, digit) if self.word == "Largest" else min(value, digit)


def draw_puzzle(rng: random.Random, longest: int = len(LABELS)) -> Puzzle:
    """Return a puzzle: three of five are arithmetic."""
    if rng.random() < 0.6:
        steps = tuple((rng.choice(OPERATIONS), rng.randint(1, 5)) for _ in range(rng.randint(2, longest)))
        return Puzzle("arithmetic", "Start", rng.randrange(10), steps)
    elements = tuple(("", rng.randrange(10)) for _ in range(rng.randint(3, longest)))
    return Puzzle("list", rng.choice(LISTS), -1, elements)


def questions(seed: int = 7) -> Iterator[dict[str, Any]]:
    """Yield puzzles, no two of which differ in their operations alone: by its words, that is the same question."""
    rng, seen = random.Random(seed), set()
    while True:
        puzzle = draw_puzzle(rng)
        words = (puzzle.word, puzzle.start, *(digit for _, digit in puzzle.steps))
        if words not in seen:
            seen.add(words)
            yield {
                "id": f"{puzzle.kind}-{len(seen)}",
                "question": puzzle.question,
                "answers": [str(puzzle.answer)],
                "type": puzzle.kind,
            }


@dataclass(frozen=True)
class Chain:
    """A chain of thought as words, and after each word the answer that it holds (None before the first)."""

    words: tuple[str, ...]
    holds: tuple[int | None, ...]


def draw_chain(puzzle: Puzzle, rng: random.Random, most: int = MOST_PASSES) -> Chain:
    """Return a chain of at most so many passes, with slips as likely as `SLIPS` says."""
    words: list[str] = []
    holds: list[int | None] = []
    held: int | None = None
    for number in range(most):
        before, last = held, puzzle.start
        if number:
            words.append("Wait")
        for label, (op, digit) in zip(LABELS, puzzle.steps, strict=False):
            value = puzzle.after(last, op, digit)
            if rng.random() < SLIPS[puzzle.kind][min(number, 1)]:
                value = rng.choice([d for d in range(10) if d != value] if op else [digit, *range(10)])
            words += [label, str(last), op, str(digit), "=", str(value)] if op else [label, str(digit), ":", str(value)]
            last = value
        words.append("So")
        holds += [held] * (len(words) - len(holds))
        held = last
        words.append(str(held))
        holds.append(held)
        agreed = held == before or puzzle.kind == "list"
        if number and agreed and rng.random() < END:
            break
    words.append("Done")
    holds.append(held)
    return Chain(tuple(words), tuple(holds))
