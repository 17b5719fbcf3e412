"""Import a log as a user would, and compare what was read with the reading that is right, by content."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.readings.cases import Case, Log, Loop
from suffice.cli.main import run
from suffice.evaluation.replay.outcomes import measured_metrics, own_judges
from suffice.policy.metrics import METRICS
from suffice.policy.normalizers import MATCH
from suffice.recordings import Recording, read_recording

PLAIN, OPTION, ASKED = "read right with no option", "read right with one option", "refused with the command that works"
NOTHING, NO_WAY, MISREAD = "rightly refused: nothing to stop", "refused without a way", "misread"
CLASSES = (PLAIN, OPTION, ASKED, NOTHING, NO_WAY, MISREAD)

_Read = Mapping[str, Mapping[str, Sequence[dict[str, Any]]]]
"""The rows of a recording, by question and run."""

METRIC_NAMES = ("em", "match", "correct", "success", "score", "reward")
"""Outcomes that a verdict could read, if there are no answers."""

DEPTH = 3
"""The most commands that are typed in a row as they were printed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a log: its class, what was typed after `suffice import FILE`, and what was said."""

    log: str
    source: str
    kind: str
    typed: str
    said: str


def outcome(case: Case, folder: Path) -> Outcome:
    """Import a log with no option, then as it is documented or as the refusals say, and classify what comes of it."""
    path, log, out = case.write(folder), case.log(), folder / "recording.parquet"
    command = ["import", str(path), "-o", str(out), "--yes"]
    code, said = _suffice(command)
    kind, typed = "", ""
    if code == 0:
        kind, said = _imported(case, log, read_recording(out), said)
    elif not log.loops:
        kind = NOTHING
    if not kind and case.options and _reads(case, log, [*command, *case.options], out):
        kind, typed = OPTION, shlex.join(case.options)
    if not kind and code:
        lost: list[str] = []
        typed = _printed(case, log, said, out, command, lost)
        kind, said = (MISREAD, lost[0]) if lost else (ASKED if typed else NO_WAY, said)
    return Outcome(case.name, case.source, kind or NO_WAY, typed, said if kind in {"", NO_WAY, MISREAD} else "")


def _imported(case: Case, log: Log, recording: Recording, said: str) -> tuple[str, str]:
    """Return the class of a log that was imported with no option ("": still open), and what is wrong with it."""
    are_samples = bool(recording.metadata.get("exchangeable"))
    wrong = differences(case, log, recording, samples=are_samples and case.samples)
    if case.samples and not are_samples and "--samples" not in said:
        wrong = wrong or "independent samples are read as rounds in an order, and nothing says so"
    if wrong:
        return MISREAD, wrong
    if not log.loops:
        return NOTHING, said
    return (PLAIN if are_samples == case.samples else ""), said


def _printed(  # noqa: PLR0917 - it calls itself
    case: Case, log: Log, said: str, out: Path, typed: Sequence[str], lost: list[str], depth: int = DEPTH
) -> str:
    """Type each command that a refusal prints; return what was typed for the first that reads the log right.

    Args:
        case: The case.
        log: Its right reading.
        said: The refusal.
        out: The recording.
        typed: What was typed and refused.
        lost: Gets a sentence for each command that lacks an option that was typed.
        depth: The most commands that are typed in a row.
    """
    lost += lost_options(said, typed)
    for line in re.findall(r"^ +suffice (import .*)$", said, flags=re.MULTILINE):
        command = shlex.split(line)
        code, answer = _suffice(command)
        options = shlex.join(command[command.index("--yes") + 1 :]) if "--yes" in command else line
        if code == 0 and case.samples and "--samples" in answer:
            options += " --samples"
            code, answer = _suffice([*command, "--samples"])
        if code == 0 and not differences(case, log, read_recording(out), samples=case.samples):
            return options
        if code and depth > 1 and (deeper := _printed(case, log, answer, out, command, lost, depth - 1)):
            return deeper
    return ""


def lost_options(said: str, typed: Sequence[str]) -> list[str]:
    """Return a sentence for each command of a refusal that lacks a word that was typed, unless it says that it replaces it.

    A column that a command says more about, as in `round=turn:newest-first` or `run=lang,seed`, is not lost.
    """
    sentences = []
    for meaning, line in re.findall(r"^ +(.*):\n +suffice (import .*)$", said, flags=re.MULTILINE):
        words, instead = shlex.split(line), meaning.partition("(instead of ")[2]
        sentences += [
            f"a printed command lacks {word!r}, which was typed: suffice {line}"
            for word in typed
            if word not in instead and not any(_says(own, word) for own in words)
        ]
    return sentences


def _says(word: str, typed: str) -> bool:
    """Return whether a word of a command says what was typed, and perhaps more."""
    (name, _, value), (own, _, before) = word.partition("="), typed.partition("=")
    more = bool(before) and (value.startswith(f"{before}:") or {*before.split(",")} < {*value.split(",")})
    return word == typed or (name == own and more)


def _reads(case: Case, log: Log, command: Sequence[str], out: Path) -> bool:
    return _suffice(command)[0] == 0 and not differences(case, log, read_recording(out), samples=case.samples)


def _suffice(arguments: Sequence[str]) -> tuple[int, str]:
    """Run the command line in this process; return its exit code and what it said."""
    said = io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            run(list(arguments))
        except SystemExit as left:
            code = left.code
    return int(code or 0), said.getvalue()


def differences(case: Case, log: Log, recording: Recording, *, samples: bool) -> str:
    """Return in what a recording differs from the right reading; "" if in nothing that counts.

    Questions and runs are matched by their answers and gold answers, not by their names.
    """
    rows = recording.table.to_pylist()
    if not log.loops:
        return _stoppable(rows)
    read: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        read.setdefault(str(row["cluster"]), {}).setdefault(row["question_id"], []).append(row)
    questions: dict[Any, list[Loop]] = {}
    for loop in log.loops:
        questions.setdefault(loop.question, []).append(loop)
    exchangeable = bool(recording.metadata.get("exchangeable"))
    if samples != exchangeable:
        return f"the answers of a question are {'rounds in an order' if samples else 'independent samples'}"
    scored = case.metric or ("match" if "match" in rows[0] else "em")
    return _judges(case, recording) or _sizes(read, questions) or _values(read, questions, scored, states=case.states)


def _judges(case: Case, recording: Recording) -> str:
    """Say of a log that judges answers by a column of its own which other one does so in its place."""
    own = own_judges(measured_metrics(recording))
    is_other = bool(own) and case.metric not in (None, MATCH, *METRICS, *own)
    return f"{', '.join(own)} judges, and not {case.metric}" if is_other else ""


def _stoppable(rows: Sequence[dict[str, Any]]) -> str:
    """Say of a log that must be refused whether a verdict could follow from its recording."""
    longest = max(Counter(row["question_id"] for row in rows).values())
    has_outcomes = any(isinstance(row.get(name), float) for row in rows for name in METRIC_NAMES)
    is_empty = not has_outcomes and all(row.get("answer") is None for row in rows)
    return "" if longest == 1 or is_empty else f"read as up to {longest} rounds, where nothing can be stopped"


def _sizes(read: _Read, questions: Mapping[Any, Sequence[Loop]]) -> str:
    """Compare the numbers of questions, of their runs, and of rounds."""
    pairs = (
        ("questions", [len(read)], [len(questions)]),
        ("runs of a question", [*map(len, read.values())], [*map(len, questions.values())]),
        (
            "rounds",
            [len(run) for runs in read.values() for run in runs.values()],
            [len(loop.answers) for loops in questions.values() for loop in loops],
        ),
    )
    for what, ours, theirs in pairs:
        if sorted(ours) != sorted(theirs):
            return f"{what}: {min(ours)} to {max(ours)}, not {min(theirs)} to {max(theirs)}"
    return ""


def _values(read: _Read, questions: Mapping[Any, Sequence[Loop]], scored: str, *, states: bool) -> str:
    """Compare answers, gold answers and scores."""
    columns: tuple[tuple[str, Callable[[dict[str, Any]], Any], Callable[[Loop], Sequence[Any]]], ...] = (
        ("answers", lambda row: _key(row.get("answer")), lambda loop: [*map(_key, loop.answers)]),
        ("golds", lambda row: _golds(row.get("golds")), lambda loop: [_golds(loop.golds)] * len(loop.answers)),
        ("scores", lambda row: _score(row.get(scored)), _scores),
        (
            "calls",
            lambda row: _score(row.get("cost.generator.calls")) or 1.0,
            lambda loop: [*map(float, loop.calls or ())],
        ),
    )
    are_counted = any(loop.calls for loops in questions.values() for loop in loops)
    for what, of_row, of_loop in columns[: None if are_counted else -1]:
        shown = _pattern if states and what == "answers" else list
        ours = _bag([shown(map(of_row, sorted(run, key=_round))) for run in runs.values()] for runs in read.values())
        theirs = _bag([shown(of_loop(loop)) for loop in loops] for loops in questions.values())
        if ours != theirs:
            return f"{what}: {_example(ours - theirs)}, not {_example(theirs - ours)}"
    return ""


def _pattern(answers: Iterable[Any]) -> list[int | None]:
    """Return answers as numbers in the order of their first occurrence."""
    numbers: dict[Any, int] = {}
    return [None if answer is None else numbers.setdefault(answer, len(numbers)) for answer in answers]


def _round(row: dict[str, Any]) -> Any:
    return row["round"]


def _bag(questions: Iterable[Iterable[Sequence[Any]]]) -> Counter[str]:
    """Count questions by the columns of their runs."""
    return Counter(repr(sorted(map(repr, runs))) for runs in questions)


def _example(bag: Counter[str]) -> str:
    return f"{next(iter(bag), ''):.120}"


def _key(value: Any) -> Any:
    """Return a value, or its text in a recording, in one form: numbers by value, lists and booleans as JSON."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value.lower() if value.lower() in {"true", "false"} else value)
    if isinstance(value, float | int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(sorted(map(repr, map(_key, value))))
    return value if isinstance(value, bool) else str(value).strip()


def _golds(values: Any) -> tuple[str, ...]:
    return tuple(sorted(repr(_key(value)) for value in (values if values is not None else ())))


def _score(value: Any) -> float | None:
    return None if value is None or np.isnan(float(value)) else round(float(value), 6)


def _scores(loop: Loop) -> list[float | None]:
    return [None] * len(loop.answers) if loop.scores is None else [_score(value) for value in loop.scores]
