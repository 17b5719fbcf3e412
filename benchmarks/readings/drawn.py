"""Logs drawn at random: the names of their columns, their shape, what their answers are and what judges them, and columns beside these.

Nobody chose these combinations, so they say more about logs that nobody has seen than logs written for a reason.  Some facts may be
read in several ways that are right: an answer alone or in the words around it, the gold answers beside a score of the log's own that
judges, and what the import only names in a note: a score that is not on [0, 1], and yes and no under a name that does not say that they
are gold answers, which equal many answers by chance.  A drawn log is read right if any of these comes of it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.readings.cases import CITIES, Case, Log, Loop
from benchmarks.readings.classes import MISREAD, NO_WAY, Outcome, outcome

IDS = [
    "id",
    "question_id",
    "qid",
    "q_id",
    "example_id",
    "item_id",
    "sample_id",
    "task_id",
    "ticket",
    "case_id",
    "doc_id",
    "uid",
    "key",
    "idx",
    "query_id",
    "instance_id",
    "request_id",
    "record",
    "conversation_id",
    "prompt_id",
]
TEXTS = [
    "question",
    "query",
    "prompt",
    "input",
    "user_input",
    "problem",
    "text",
    "title",
    "instruction",
    "request",
    "message",
    "task",
    "ask",
    "description",
]
ROUNDS = [
    "round",
    "turn",
    "step",
    "iteration",
    "iter",
    "attempt",
    "hop",
    "pass",
    "cycle",
    "loop",
    "revision",
    "try",
    "round_no",
    "attempt_number",
    "step_idx",
    "n",
    "depth",
]
GOLDS = [
    "gold",
    "gold_answer",
    "expected",
    "reference",
    "ground_truth",
    "target",
    "label",
    "answer_key",
    "truth",
    "correct_answer",
    "expected_output",
    "solution",
    "y_true",
    "ref",
    "human_label",
    "verified_answer",
    "gt",
    "canonical",
]
ANSWERS = [
    "answer",
    "prediction",
    "pred",
    "output",
    "model_answer",
    "final_answer",
    "response",
    "result",
    "predicted",
    "y_pred",
    "extracted_answer",
    "draft",
    "reply",
    "completion",
    "generated",
    "model_output",
    "hypothesis",
    "guess",
    "candidate",
    "parsed",
    "our_answer",
]
MARKS = [
    "correct",
    "is_correct",
    "passed",
    "success",
    "em",
    "exact_match",
    "ok",
    "hit",
    "right",
    "accepted",
    "judge_ok",
    "graded_correct",
    "match",
]
GRADES = [
    "score",
    "f1",
    "rouge_l",
    "bertscore",
    "judge_score",
    "quality",
    "similarity",
    "bleu",
    "faithfulness",
    "rating",
    "grade",
]
LISTS = ["rounds", "steps", "turns", "attempts", "iterations", "history", "trace", "log", "drafts", "outputs"]
RUNS = ["seed", "run", "run_id", "trial", "repeat", "replicate", "experiment", "variant"]
STOPS = ["stop", "done", "stopped", "final", "is_last", "finished"]

FLAT = ("log.jsonl", "log.csv", "log.tsv", "log.parquet", "log.jsonl.gz", "log.json")
SHAPES = (*FLAT, "nested", "folder", "parallel", "wide")
JUDGES = ("gold", "gold", "gold", "both", "mark", "grade", "nothing")
FRAMES = ("{}", "{}", "{}", "{}", "The answer is {}.", "Answer: {}", "{} (from the manual)")
_WORDS = [
    "pump",
    "valve",
    "order",
    "guest",
    "river",
    "ledger",
    "museum",
    "cable",
    "parcel",
    "signal",
    "court",
    "clinic",
    "garden",
    "engine",
    "harbor",
]
_PHRASES = (
    "annual leave",
    "night shift bonus",
    "parental leave",
    "travel budget",
    "remote work rule",
    "spare key deposit",
)
_LABELS = ("billing", "refund", "shipping", "login", "other")


@dataclass(frozen=True, slots=True)
class _Step:
    answer: str
    is_right: bool
    grade: float


class _Drawing:
    """One log, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        draw = self.random.choice
        self.kind, self.shape, self.judge = draw([*KINDS]), draw(SHAPES), draw(JUDGES)
        self.frame = draw(FRAMES)
        self.n, self.longest = draw((40, 60, 90)), draw((2, 3, 4, 5, 6))
        self.stops_early, self.first = self.random.random() < 0.3, draw((0, 1, 1))
        self.n_runs = draw((1, 1, 1, 1, 1, 2, 3)) if self.shape in FLAT else 1
        self.scale = draw((1, 10, 100))
        self.taken: set[str] = set()
        self.id = self._name(IDS) if self.random.random() < 0.85 else ""
        self.text = self._name(TEXTS) if not self.id or self.random.random() < 0.85 else ""
        self.round = self._name(ROUNDS) if self.random.random() < 0.85 else ""
        self.gold, self.answer = self._name(GOLDS), self._name(ANSWERS)
        self.score = self._name(MARKS if self.judge in {"both", "mark"} else GRADES)
        self.run = self._name(RUNS) if self.n_runs > 1 else ""
        self.stop = self._name(STOPS) if self.random.random() < 0.15 and self.shape not in {"parallel", "wide"} else ""
        self.list = self._name(LISTS)
        self.beside = self._some(self._of_rounds())
        self.above = self._some(self._of_questions())
        self.loops = [*self._questions()]

    def _name(self, names: Sequence[str]) -> str:
        name = self.random.choice([name for name in names if name not in self.taken])
        self.taken.add(name)
        return name

    def _some(self, columns: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
        free = sorted({*columns} - self.taken)
        return {name: columns[name] for name in self.random.sample(free, self.random.choice((0, 1, 2, 3, 5)))}

    def _prose(self, n: int) -> str:
        return " ".join(self.random.choices(_WORDS, k=n)).capitalize()

    def _of_rounds(self) -> dict[str, Callable[[], Any]]:
        """Return columns that vary by round and say nothing about which answer is right."""
        draw = self.random
        return {
            "latency_ms": lambda: draw.randint(200, 4000),
            "tokens": lambda: draw.randint(100, 2000),
            "model": lambda: "gpt-4o-mini",
            "temperature": lambda: 0.2,
            "confidence": lambda: round(draw.uniform(0.3, 0.99), 3),
            "logprob": lambda: round(-draw.uniform(0.05, 3), 4),
            "critique": lambda: self._prose(9),
            "thought": lambda: self._prose(14),
            "reasoning": lambda: self._prose(20),
            "retrieved": lambda: [f"doc{draw.randint(1, 99)}" for _ in range(3)],
            "context": lambda: self._prose(25),
            "search_query": lambda: self._prose(3),
            "n_docs": lambda: draw.choice((3, 5, 5)),
            "status": lambda: "ok",
            "retry": lambda: False,
            "notes": lambda: draw.choice(("", "", "checked")),
            "tool": lambda: draw.choice(("search", "lookup", "calc")),
            "finish_reason": lambda: "stop",
            "cost": lambda: round(draw.uniform(0.001, 0.01), 5),
            "source": lambda: draw.choice(("wiki", "faq", "manual")),
            "reranker_score": lambda: round(draw.uniform(0.1, 0.9), 3),
        }

    def _of_questions(self) -> dict[str, Callable[[], Any]]:
        """Return columns that are the same in all rounds of a question."""
        draw = self.random.choice
        return {
            "category": lambda: draw("abc"),
            "difficulty": lambda: draw(("easy", "hard")),
            "split": lambda: "test",
            "lang": lambda: draw(("en", "de")),
            "user": lambda: f"u{self.random.randint(1, 30)}",
            "tenant": lambda: draw(("acme", "zeta")),
            "topic": lambda: draw(_WORDS),
            "priority": lambda: draw((1, 2, 3)),
            "region": lambda: draw(("north", "south", "west")),
            "explanation": lambda: self._prose(15),
        }

    def _questions(self) -> Iterator[tuple[dict[str, Any], int, str, list[_Step]]]:
        """Yield the columns of a question, its number, its gold answer, and the steps of one run."""
        for q in range(self.n):
            gold, wrong = KINDS[self.kind](self.random)
            columns: dict[str, Any] = {self.id: f"q{q}"} if self.id else {}
            columns |= {self.text: f"{self._prose(6)} {q}?"} if self.text else {}
            columns |= {name: make() for name, make in self.above.items()}
            columns |= {self.gold: gold} if self.judge in {"gold", "both"} else {}
            for run in range(1, self.n_runs + 1):
                n_rounds = self.random.randint(1, self.longest) if self.stops_early else self.longest
                is_easy = self.random.random() < 0.3
                steps = [
                    self._step(gold, wrong, is_easy or self.random.random() < 0.35 + 0.1 * r) for r in range(n_rounds)
                ]
                yield (columns | {self.run: run} if self.run else columns), q, gold, steps

    def _step(self, gold: str, wrong: Sequence[str], is_right: bool) -> _Step:
        grade = round(((0.75 if is_right else 0.3) + self.random.uniform(-0.2, 0.2)) * self.scale, 2)
        return _Step(gold if is_right else self.random.choice(wrong), is_right, grade)

    def _columns(self, r: int, step: _Step, is_last: bool) -> dict[str, Any]:
        said: dict[str, Any] = {self.round: r + self.first} if self.round else {}
        said[self.answer] = self.frame.format(step.answer)
        if self.judge in {"both", "mark"}:
            said[self.score] = int(step.is_right)
        elif self.judge == "grade":
            said[self.score] = step.grade
        said |= {name: make() for name, make in self.beside.items()}
        return said | ({self.stop: is_last} if self.stop else {})

    def content(self) -> tuple[str, Any]:
        """Return the name of the file, and what it holds."""
        records = [
            (columns, [self._columns(r, step, r == len(steps) - 1) for r, step in enumerate(steps)])
            for columns, _, _, steps in self.loops
        ]
        if self.shape in FLAT:
            rows = [columns | own for columns, steps in records for own in steps]
            is_text = self.shape.endswith((".csv", ".tsv"))
            return self.shape, [_texts(row) for row in rows] if is_text else rows
        if self.shape == "wide":
            return "log.csv", [*self._wide(records)]
        if self.shape == "parallel":
            return "log.jsonl", [
                columns | {f"{name}_by_round": [own[name] for own in steps] for name in steps[0] if name != self.round}
                for columns, steps in records
            ]
        whole = [columns | {self.list: steps} for columns, steps in records]
        return (
            ("log.json", whole)
            if self.shape == "nested"
            else ("logs", {f"{q:03}.json": own for q, own in enumerate(whole)})
        )

    def _wide(self, records: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]]) -> Iterator[dict[str, Any]]:
        form = self.random.choice(("{name}_{r}", "round{r}_{name}", "r{r}.{name}"))
        for columns, steps in records:
            row = dict(columns)
            for r in range(self.longest):
                for name in [name for name in steps[0] if name != self.round]:
                    row[form.format(name=name, r=r + self.first)] = steps[r][name] if r < len(steps) else ""
            yield _texts(row)

    def readings(self) -> Iterator[tuple[list[Loop], str | None]]:
        """Yield the right readings, any of which may come of the log, and the column of the recording that judges each."""
        has_golds = self.judge in {"gold", "both"}
        for frame in dict.fromkeys(("{}", self.frame)):
            marked: list[Loop] = []
            graded: list[Loop] = []
            unjudged: list[Loop] = []
            for _, q, gold, steps in self.loops:
                answers, golds = tuple(frame.format(step.answer) for step in steps), (gold,) if has_golds else ()
                marked.append(Loop(q, answers, golds, tuple(step.is_right for step in steps)))
                graded.append(Loop(q, answers, (), tuple(round(step.grade / self.scale, 6) for step in steps)))
                unjudged.append(Loop(q, answers))
            if has_golds:
                yield marked, None
            if self.judge in {"both", "mark"}:
                alone = [Loop(own.question, own.answers, (), own.scores) for own in marked]
                yield from ((alone, name) for name in (self.score, f"{self.score}_score", "em", "match"))
            if self.judge == "grade":
                yield from ((graded, name) for name in (self.score, "f1"))
            is_by_chance = self.judge == "gold" and self.kind == "yes or no" and self.gold == "canonical"
            if self.judge in {"grade", "nothing"} or is_by_chance:
                yield unjudged, None


def _texts(row: dict[str, Any]) -> dict[str, Any]:
    return {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()}


def _one_of(values: Sequence[str]) -> Callable[[random.Random], tuple[str, list[str]]]:
    def make(draw: random.Random) -> tuple[str, list[str]]:
        gold = draw.choice(values)
        return gold, [value for value in values if value != gold]

    return make


def _number(form: str, low: int, high: int, per: int = 1) -> Callable[[random.Random], tuple[str, list[str]]]:
    def make(draw: random.Random) -> tuple[str, list[str]]:
        gold = draw.randint(low, high)
        return form.format(gold / per if per > 1 else gold), [
            form.format((gold + k * per) / per if per > 1 else gold + k) for k in (1, 3)
        ]

    return make


def _day(draw: random.Random) -> tuple[str, list[str]]:
    month, day = draw.randint(1, 12), draw.randint(1, 27)
    return f"2021-{month:02}-{day:02}", [f"2021-{month:02}-{day + 1:02}"]


def _query(draw: random.Random) -> tuple[str, list[str]]:
    table, k = draw.choice(("orders", "users", "items")), draw.randint(1, 60)
    return f"SELECT count(*) FROM {table} WHERE k = {k}", [f"SELECT count(*) FROM {table} WHERE k > {k}"]


KINDS: dict[str, Callable[[random.Random], tuple[str, list[str]]]] = {
    "name": _one_of(CITIES),
    "phrase": _one_of(_PHRASES),
    "label": _one_of(_LABELS),
    "letter": _one_of("ABCD"),
    "yes or no": _one_of(("yes", "no")),
    "number": _number("{}", 2, 900),
    "year": _number("{}", 1750, 2020),
    "decimal": _number("{:.2f}", 1100, 9999, 100),
    "amount": _number("${:.2f}", 1000, 99999, 100),
    "percentage": _number("{}%", 1, 96),
    "length": _number("{} km", 2, 90),
    "place": _number("Gate {}", 1, 40),
    "date": _day,
    "query": _query,
}
"""What a gold answer is, by its kind: a function that draws one and wrong answers beside it."""


def drawn_cases(seed: int) -> list[Case]:
    """Return the same drawn log with each of its right readings."""
    drawing = _Drawing(seed)
    file, content = drawing.content()
    logs = [(Log(content, loops), metric) for loops, metric in drawing.readings()]
    return [Case(f"drawn_{seed}", file, lambda _, log=log: log, "", (), metric, False) for log, metric in logs]  # type: ignore[misc]


def drawn_outcome(seed: int, folder: Path) -> Outcome:
    """Return what comes of a drawn log: the first right reading, or the first outcome if there is none."""
    results = []
    for place, case in enumerate(drawn_cases(seed)):
        own = folder / str(place)
        own.mkdir()
        results.append(outcome(case, own))
        if results[-1].kind not in {MISREAD, NO_WAY}:
            return results[-1]
    return results[0]
