"""Choices that determine how a log is read: for each command-line option, the value that it sets, and its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from suffice.common.files import quoted
from suffice.errors import UnsettledError
from suffice.importers.words.sample_names import Said

_LISTED, _LONGEST = 4, 160
"""More columns than these are named by the first and the last one, and the letters of columns that a message names as rounds."""

Choices = dict[str, tuple[Any, str]]
"""For each option of the command line, the parameter's value and its meaning, as `UnsettledError` takes them."""


def column_options(columns: Mapping[str, str]) -> str:
    """Return the command-line options that name the log's columns.

    >>> print(column_options({"answer": "said", "golds": "right answer"}))
    --column answer=said --column 'golds=right answer'
    """
    return " ".join(f"--column {quoted(f'{ours}={theirs}')}" for ours, theirs in columns.items())


def of_columns(columns: Mapping[str, str], meaning: str) -> Choices:
    """Return the choice to read some columns in a given meaning, for the parameter `columns`."""
    return {column_options(columns): (dict(columns), meaning)}


def in_options(choices: Mapping[str, tuple[Any, str]], parameter: str = "columns") -> Choices:
    """Convert choices of one parameter to choices of `options`, which may set several parameters."""
    return {option: ({parameter: value}, meaning) for option, (value, meaning) in choices.items()}


def of_options(meaning: str, *, columns: Mapping[str, str] | None = None, samples: bool = False) -> Choices:
    """Return a choice for the parameter `options`: to read columns in a given meaning, rows as independent samples, or both."""
    given = {"columns": dict(columns or {}), "samples": samples}
    options = " ".join(filter(None, [column_options(columns or {}), "--samples" * samples]))
    return {options: ({name: value for name, value in given.items() if value}, meaning)}


def of_expected(name: str, meaning: str) -> Choices:
    """Return the choice that keeps the current reading despite an alarm, for the parameter `options`."""
    return {f"--expected {name}": ({"expected": [name]}, meaning)}


def of_answers(names: Sequence[str], golds: Mapping[str, str], says: Said) -> Choices:
    """Return the choices to read columns of answers as rounds or as samples, with the columns of gold answers.

    Names that imply rounds (`says`) give no choice of samples.  Empty for a single column, or for more columns than fit into a
    message.
    """
    own = {"rounds": ",".join(names), **golds}
    if not 1 < len(names) <= len(own["rounds"]) <= _LONGEST:
        return {}
    beside = "".join(f", and {name!r} has the gold answers" for name in golds.values())
    listed = f"{names[0]!r} to {names[-1]!r}" if len(names) > _LISTED else " and ".join(map(repr, names))
    rounds = of_options(f"{listed} are the answers of successive rounds, asked in this order{beside}", columns=own)
    samples = of_options(
        f"{listed} are independent samples, which are put to a vote{beside}", columns=own, samples=True
    )
    return rounds if says == "rounds" else rounds | samples


def of_rows(theirs: str, value: str, meaning: str) -> Choices:
    """Return the choice to keep the rows in which a column has a value, for the parameter `options`."""
    return {f"--where {quoted(f'{theirs}={value}')}": ({"where": {theirs: value}}, meaning)}


def of_each(theirs: str, values: Iterable[str], meaning: str) -> Choices:
    """Return the choices to keep the rows with one of several values; `{!r}` in `meaning` stands for the value."""
    return {
        option: own
        for value in values
        for option, own in of_rows(theirs, value, meaning.replace("{!r}", repr(value))).items()
    }


def with_named_runs(error: UnsettledError, columns: Mapping[str, str]) -> UnsettledError:
    """Add the run column that the user named to each choice that names another run column.

    >>> asked = UnsettledError("Which?", "columns", of_columns({"run": "seed"}, "each seed is a run"))
    >>> [*with_named_runs(asked, {"run": "lang"}).choices]
    ['--column run=lang,seed']
    """
    named, confirmed, choices = columns.get("run", ""), error.confirmed, Choices()
    for option, (value, meaning) in error.choices.items():
        of_several = value.get("columns", {}) if error.parameter == "options" else {}
        own: dict[str, str] = value if error.parameter == "columns" else of_several
        run = own.get("run", "")
        if not (named and run) or {*run.split(",")} & {*named.split(",")}:
            choices[option] = value, meaning
            continue
        both = {**own, "run": f"{named},{run}"}
        kept = option.replace(column_options({"run": run}), column_options({"run": both["run"]}))
        choices[kept] = (both if error.parameter == "columns" else {**value, "columns": both}), meaning
        confirmed = kept if option == confirmed else confirmed
    return UnsettledError(error.question, error.parameter, choices, confirmed)
