"""A log of a benchmark of readings: its files, made by a seeded function, and the reading that is right."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Paris", "Quito", "Accra", "Hanoi", "Delhi", "Sofia")
WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "heath")
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with the answers that a loop gave to it.

    Attributes:
        number: Its place among the questions.
        question: Its text.
        gold: The right answer.
        answers: The answer of each round.
        right: For each round, whether the answer means the same as the gold.
    """

    number: int
    question: str
    gold: Any
    answers: tuple[Any, ...]
    right: tuple[bool, ...]

    def loop(self, **changed: Any) -> Loop:
        """Return the reading of a log that holds all of it."""
        said = {"question": self.number, "answers": self.answers, "golds": (self.gold,), "scores": self.right}
        return Loop(**{**said, **changed})


@dataclass(frozen=True, slots=True)
class Loop:
    """The right reading of the rounds of one question in one run.

    Attributes:
        question: What names the question; runs of the same question have it in common.
        answers: The answer of each round, None where it is missing.
        golds: The gold answers; none if the log has none.
        scores: The score of each answer, 1 or True for a right one; None if the log has neither golds nor a score.
        calls: The calls of each round; None if they are not compared.
    """

    question: Any
    answers: tuple[Any, ...]
    golds: tuple[Any, ...] = ()
    scores: tuple[float | bool | None, ...] | None = None
    calls: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """The content of a log, and its right reading; no loops: it must be refused, since no question has several answers in order."""

    content: Any
    loops: Sequence[Loop] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A log of the benchmark.

    Attributes:
        name: Name of the case.
        file: Name of its file; one without a suffix is a folder.
        make: Returns the log, from a source of random numbers.
        source: The public project whose files have this shape, and the file that says so; "" for a shape of our own.
        options: The one option that it is documented to need.
        metric: The column of the recording with the scores; None = the comparison with the gold answers.
        samples: Whether the answers of a question are independent samples.
        states: Whether an answer stands for a state, so that only which answers are the same counts.
    """

    name: str
    file: str
    make: Callable[[Draw], Log]
    source: str
    options: tuple[str, ...]
    metric: str | None
    samples: bool
    states: bool = False

    def log(self) -> Log:
        """Return the log; the same for every call."""
        return self.make(Draw(self.name))

    def write(self, folder: Path) -> Path:
        """Write the log's files into a folder and return the path to import."""
        path = folder / self.file
        content = self.log().content
        if path.suffix:
            _write(path, content)
        else:
            path.mkdir()
            for name, part in content.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                _write(path / name, part)
        return path


CASES: list[Case] = []
"""All cases, in the order of their definitions."""


def shape(
    file: str,
    source: str = "",
    *,
    options: Sequence[str] = (),
    metric: str | None = None,
    samples: bool = False,
    states: bool = False,
) -> Callable[[Callable[[Draw], Log]], Callable[[Draw], Log]]:
    """Register the function as a case under its name."""

    def add(make: Callable[[Draw], Log]) -> Callable[[Draw], Log]:
        CASES.append(Case(make.__name__, file, make, source, tuple(options), metric, samples, states))
        return make

    return add


def _write(path: Path, content: Any) -> None:
    """Write a text as it is, bytes likewise, rows as CSV, TSV, parquet or JSON lines, and any other content as JSON."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, "utf-8")
    elif path.suffix in {".csv", ".tsv"}:
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(content[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            table.writeheader()
            table.writerows(content)
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(content), path)
    elif path.suffix == ".jsonl":
        path.write_text(lines(content), "utf-8")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines(content).encode(), mtime=0))
    else:
        path.write_text(json.dumps(content), "utf-8")


def lines(records: Sequence[Any]) -> str:
    """Return records as JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records)


class Draw:
    """Questions and answers that depend on a name alone."""

    def __init__(self, name: str) -> None:
        self.random = random.Random(name)

    def asked(
        self, n: int = 60, rounds: int = ROUNDS, kind: str = "name", right: tuple[float, float] = (0.4, 0.85)
    ) -> list[Asked]:
        """Return questions whose answers become right ever more often, from the first round to the last."""
        return list(self._asked(n, rounds, getattr(self, kind), right))

    def _asked(self, n: int, rounds: int, draw: Callable[[], Any], right: tuple[float, float]) -> Iterator[Asked]:
        low, high = right
        for number in range(n):
            gold, wrong = draw()
            shares = [low + (high - low) * r / max(1, rounds - 1) for r in range(rounds)]
            is_right = tuple(self.random.random() < share for share in shares)
            answers = tuple(gold if good else self.random.choice(wrong) for good in is_right)
            yield Asked(number, f"Where does caravan {number} stop?", gold, answers, is_right)

    def name(self) -> tuple[str, list[str]]:
        """Return a gold answer and wrong ones: names."""
        gold = self.random.choice(CITIES)
        return gold, [city for city in CITIES if city != gold]

    def number(self) -> tuple[float, list[float]]:
        """Numbers, wrong by their sign, by their decimal point, or by one."""
        gold = self.random.choice([self.random.randint(2, 900), self.random.randint(11, 99) / 4])
        return gold, [-gold, 10 * gold, gold / 10, gold + 1]

    def whole(self) -> tuple[str, list[str]]:
        """Texts of whole numbers."""
        gold = self.random.randint(2, 900)
        return str(gold), [str(-gold), str(10 * gold), str(gold + 1)]

    def letter(self) -> tuple[str, list[str]]:
        """Letters of choices."""
        gold = self.random.choice("ABCDE")
        return gold, [letter for letter in "ABCDE" if letter != gold]

    def truth(self) -> tuple[bool, list[bool]]:
        """Booleans."""
        gold = self.random.random() < 0.5
        return gold, [not gold]

    def code(self) -> tuple[str, list[str]]:
        """Programs, wrong by an operator or the case of a name."""
        k = self.random.randint(2, 90)
        return f"def f(x):\n    return x + {k}\n", [f"def f(x):\n    return x {op} {k}\n" for op in "-*%"]

    def day(self) -> tuple[str, list[str]]:
        """Dates, wrong by a day or with month and day exchanged."""
        day, month = self.random.randint(1, 11), self.random.randint(1, 12)
        if day == month:
            month = month % 12 + 1
        form = "2021-{:02}-{:02}"
        return form.format(month, day), [form.format(day, month), form.format(month, day + 1)]

    def prose(self, words: int = 12) -> str:
        """Return words without any meaning for the log."""
        return " ".join(self.random.choice(WORDS) for _ in range(words))

    def tokens(self) -> int:
        """Return a number of tokens."""
        return self.random.randint(40, 400)
