"""Rules for reading the columns and cells of long tables of rounds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from suffice.common.tables import cut_list
from suffice.errors import DataError, SchemaError, did_you_mean
from suffice.importers.columns.cost_names import (
    CACHE_READ,
    CACHE_WRITTEN,
    CACHED_COLUMNS,
    INPUT_COLUMNS,
    OUTPUT_COLUMNS,
)
from suffice.importers.files.literals import tagged_texts
from suffice.importers.words.choices import column_options
from suffice.importers.words.names import counts_tokens, last_name, plain_name, words
from suffice.importers.words.number_forms import FORMS, is_undecided, written_number
from suffice.loops.retrieval.fields import literal
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import COST_KINDS, WRITTEN_KINDS, End
from suffice.policy.signals import SIGNALS
from suffice.policy.signals.position import DECIMAL_COMMA, THOUSANDS, boxed

_TEXT_COLUMNS = frozenset({"question_id", "cluster", "end", "question", "answer", "text", "feedback", "finish_reason"})
OWN_COLUMNS = _TEXT_COLUMNS | {"round", "golds"}
"""Names of this library that are not signals, metrics or costs."""

_EMPTY = frozenset({"", "nan", "null", "none", "na", "n/a", "#n/a", "<na>", "-"})
_TRUTH_WORDS = {
    **dict.fromkeys(words("true yes pass passed accepted correct"), 1.0),
    **dict.fromkeys(
        words(
            "false no fail failed incorrect not_attempted wrong_answer runtime_error compilation_error time_limit_exceeded "
            "memory_limit_exceeded"
        ),
        0.0,
    ),
}
"""Words that are read as 0 or 1 if a number is expected; blanks count as underscores."""
END_NAMES = get_args(End)
_KINDS: dict[tuple[str, ...], str] = {
    INPUT_COLUMNS: "uncached_tokens",
    (*CACHED_COLUMNS, CACHE_READ): "cached_tokens",
    OUTPUT_COLUMNS: "output_tokens",
    (CACHE_WRITTEN,): "written_tokens",
    **{(kind,): kind for kind in (*COST_KINDS, *WRITTEN_KINDS)},
}
"""Kinds of costs by the usual names of their columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Settings for reading a table; see `read_tabular`.

    `numbered` is the added column of round numbers, if the table has no such column; else "".
    """

    columns: Mapping[str, str]
    metrics: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    first_round: int | None = None
    ended: End | None = None
    strict: bool = False
    listed_golds: bool = True
    list_answers: bool = False
    single_answers: bool = False
    gold_form: str = ""
    lowest: int | None = None
    longest: int | None = None
    numbered: str = ""

    def pairs(self) -> list[tuple[str, str]]:
        """Return the mapped columns as pairs: this library's name and the file's name."""
        return [*self.columns.items(), *self.metrics.items(), *self.labels.items()]

    def assumes_end(self, said: str | None, n_rounds: int, longest: int) -> bool:
        """Return whether the reason why a trajectory ended must be assumed.

        It must if the trajectory is shorter than the longest one, and neither its rows nor the user give a reason.
        """
        return not said and self.ended is None and n_rounds < longest

    def check(self, path: Path, names: Sequence[str]) -> None:
        """Raise if the table lacks a mapped column, or a name is not allowed."""
        missing = [ours for ours in ("question_id", "round") if ours not in self.columns]
        if missing:
            raise SchemaError(
                f"{path}: no column is mapped to {missing[0]!r}; there are: {cut_list(names) or 'none'}. Name it with --column "
                f"{missing[0]}=COLUMN, or the field with the list of a question's rounds with --column rounds=FIELD. If each question "
                "has one answer, there is nothing to stop: log that of every round"
            )
        absent = [pair for pair in self.pairs() if pair[1] not in names]
        if absent:
            ours, theirs = absent[0]
            raise SchemaError(f"{path}: no column {theirs!r} (for {ours!r}); there are: {cut_list(names)}")
        for ours, theirs in self.columns.items():
            _check_name(ours, theirs)
        for ours in (*self.metrics, *self.labels):
            if not ours.isidentifier():
                raise DataError(f"{ours!r} cannot name a metric or label of your own; use letters, digits and _")
            if ours in OWN_COLUMNS or ours in SIGNALS or (ours in METRICS and ours in self.labels):
                raise DataError(
                    f"{ours!r} cannot name a metric or label of your own: the library has a column or signal of this name; "
                    f"choose another, such as {f'{ours}_label' if ours in self.labels else f'{ours}_score'!r}"
                )
        if self.first_round not in (None, 0, 1):
            raise DataError(f"first_round is {self.first_round!r}; allowed are 0, 1 and None")
        if self.ended is not None and self.ended not in END_NAMES:
            raise DataError(f"ended is {self.ended!r}; allowed are {', '.join(END_NAMES)} and None")


def _check_name(ours: str, theirs: str) -> None:
    """Raise if `ours` cannot be the name of a column of a recording.

    Also raise if `ours` is a usual name for a cost instead of this library's name, ``cost.<component>.<kind>``.
    """
    if ours in OWN_COLUMNS or ours in SIGNALS or is_cost(ours):
        return
    kind = last_name(ours)
    if ours.startswith("cost.") or any(kind in names for names in _KINDS):
        usual = next((own for names, own in _KINDS.items() if kind in names), "")
        column = re.sub(rf" \(({'|'.join(FORMS)})\)$", r":\1", theirs)
        meant = f" {column_options({f'cost.generator.{usual}': column})} counts it." if usual else ""
        names = ", ".join(f"cost.generator.{own}" for own in COST_KINDS)
        raise DataError(f"{ours!r} is not the name of a cost, so nothing would count it.{meant} Costs are {names}")
    if not ours.isidentifier():
        raise DataError(
            f"{ours!r} is not a name of ours; see read_tabular, or use letters, digits and _ for a signal of your own"
        )


def signal_cell(value: Any, name: str, theirs: str, where: str, *, strict: bool) -> float:
    """Return a signal's value; raise if the value is out of range.

    An undefined value in its place would hide the error: a rule that reads the signal would never fire.
    """
    signal = SIGNALS.get(name)
    try:
        number = cell_number(value, name, where)
    except DataError as error:
        hint = "" if signal is not None else f" {name!r} is a signal of your own.{did_you_mean(name, OWN_COLUMNS)}"
        raise DataError(f"{error}{hint}") from None
    if strict and signal is not None and not signal.clip and math.isfinite(number):
        low, high = signal.range
        if not signal.allows(number):
            raise DataError(
                f"{where}: {name} is {number!r} (column {theirs!r}), and it lies in [{low:g}, {high:g}]: scale the column, or "
                f"rename it to a signal of your own, --column my_{name}={theirs}"
            )
    return number


def differing_golds(message: str, grid: Grid) -> DataError:
    """Return the error about gold answers that differ between the rows of a question."""
    return DataError(
        f"{message}: is {grid.columns['golds']!r} what the model said? Map another column to golds, or --log-golds drop. If one id "
        "names several questions, as in logs of two data sets, import one at a time (--where), or map a column that tells them apart"
    )


def is_cost(name: str) -> bool:
    """Return whether a name of this library has the form ``cost.<component>.<kind>``."""
    parts = name.split(".")
    return len(parts) == 3 and parts[0] == "cost" and bool(parts[1]) and parts[2] in (*COST_KINDS, *WRITTEN_KINDS)  # noqa: PLR2004


def cell_text(value: Any, name: str, where: str) -> str | None:
    """Return a cell as text; whole numbers are converted, and lists and objects become JSON if they are answers.

    Raises:
        DataError: The cell is a list, object, boolean or fraction.  Answers may be any of these, and an end reason a boolean.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):  # a missing text in a data frame
        return None
    if isinstance(value, bool | list | dict) or (isinstance(value, float) and not value.is_integer()):
        if isinstance(value, bool) and name == "end":
            return str(value).lower()
        if name == "answer":
            return list_text(value) if isinstance(value, list | dict) else str(value).lower()
        raise DataError(f"{where}: {name} is {value!r:.80}; expected text")
    return str(int(value))


def only_text(value: Any) -> Any:
    """Return the text in a list of exactly one text; return any other value unchanged.

    >>> only_text(["Oslo"]), only_text(["Oslo", "Lima"])
    ('Oslo', ['Oslo', 'Lima'])
    """
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) else value


def list_text(value: Any) -> str:
    """Return a list or an object as JSON.

    The order of a list is kept; the normalizer decides if it counts.

    >>> list_text(["b", "a"]), list_text({"b": 1, "a": None})
    ('["b", "a"]', '{"a": null, "b": 1}')
    """
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def cell_number(value: Any, name: str, where: str) -> float:
    """Return a cell as a number, or NaN if the cell is empty; raise a `DataError` for other values."""
    if value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # an integer may have hundreds of digits
        text = value.strip().lower() if isinstance(value, str) else None
    if text in _EMPTY:
        return math.nan
    if text is not None and (truth := _TRUTH_WORDS.get(text.replace(" ", "_"))) is not None:
        return truth
    if text is not None and re.fullmatch(r"[0-9]+(\.[0-9]*)?\s*%", text):
        return float(text[:-1]) / 100
    number = None if text is None else written_number(value.strip(), whole=_is_whole_name(name))
    if number is not None:
        return number
    means = f" Does its comma separate thousands (COLUMN:{THOUSANDS}), or decimals (COLUMN:{DECIMAL_COMMA})?"
    why = means if is_undecided(value) else ""
    raise DataError(f"{where}: {name} is {value!r:.80}; expected a number, or nothing where undefined.{why}")


def number_or_nan(value: Any, name: str = "tokens") -> float:
    """Return a cell as a number; NaN if it is empty or not a number."""
    with suppress(DataError):
        return cell_number(value, name, "")
    return math.nan


def says_missing(value: Any) -> bool:
    """Return whether a cell is empty or contains a word for a missing value.

    >>> says_missing("n/a"), says_missing(None), says_missing("0"), says_missing("bad")
    (True, True, False, False)
    """
    try:
        return math.isnan(cell_number(value, "", ""))
    except DataError:
        return False


def _is_whole_name(name: str) -> bool:
    """Return whether a column of this name has whole numbers: tokens, calls or milliseconds.

    >>> [_is_whole_name(name) for name in ("Tokens In", "tok_out", "nCalls", "Latency (ms)", "latency_s")]
    [True, True, True, True, False]
    """
    plain = plain_name(name)
    return "token" in plain or counts_tokens(name, ()) or "calls" in plain or plain.endswith("_ms")


@lru_cache(maxsize=1024)
def whole_number(text: str) -> int | None:
    """Parse a whole number, also one written as 7.0; return None for other texts and for more than 30 digits.

    >>> whole_number(" 12 "), whole_number("-3"), whole_number("7.0"), whole_number("²")
    (12, -3, 7, None)
    """
    match = re.fullmatch(r"\s*(-?[0-9]{1,30})(?:\.0)?\s*", text)
    return None if match is None else int(match[1])


def are_texts(items: Any) -> bool:
    """Return whether all items can be gold answers: texts or numbers."""
    return all(isinstance(item, str | int | float) for item in items)


AFTER_MARK, IN_BOX = "####", "boxed"
"""How a solution says its answer: after GSM8K's mark, or in a box of LaTeX, after its reasoning."""


def marked_part(text: Any, form: str) -> str | None:
    r"""Return the answer that a solution marks in a given form; None if nothing is marked in this form.

    A box (`boxed`) counts only if the solution has other text, too.

    >>> marked_part("19 * 4 = 76\n#### 76", "####"), marked_part(r"So it is \boxed{76}.", "boxed"), marked_part("76", "####")
    ('76', '76', None)
    """
    if not isinstance(text, str):
        return None
    if form == AFTER_MARK:
        return text.rpartition(AFTER_MARK)[2].strip() or None if AFTER_MARK in text else None
    span = boxed(text, 0)
    own = None if span is None else text[slice(*span)].strip()
    return own if own and len(text.strip()) > len(own) + len(r"$\boxed{}$") else None


def gold_texts(value: Any, where: str, *, listed: bool = True, as_one: bool = False, form: str = "") -> tuple[str, ...]:
    """Return the gold answers in a cell, which contains a text, a list of texts or, if `listed`, a list written as text.

    Args:
        value: The cell.
        where: The location of the cell, for messages.
        listed: Whether a text in brackets, in JSON or Python syntax, may be a list of gold answers.
        as_one: Whether answers are lists.  Then a list is one gold answer, and a list of lists contains several.
        form: The form of the texts, as returned by `suffice.importers.answers.golds.gold_form`.
    """
    if as_one and isinstance(value, list):
        are_lists = bool(value) and all(isinstance(item, list) for item in value)
        return tuple(map(list_text, value if are_lists else [value]))
    if listed and isinstance(value, str) and value.lstrip().startswith("["):
        items = literal(value)
        if isinstance(items, list) and (are_texts(items) or tagged_texts(items)):
            value = items
    if isinstance(value, list) and (tagged := tagged_texts(value)) is not None:
        value = tagged[1]
    if isinstance(value, str) and form:
        parts = [marked_part(value, form) or value] if form in (AFTER_MARK, IN_BOX) else value.split(form)
        value = [*filter(None, map(str.strip, parts))]
    if value is None or value == "":
        return ()
    golds = value if isinstance(value, list) else [value]
    if not are_texts(golds):
        raise DataError(
            f"{where}: golds is {value!r:.80}; expected a text, or a JSON list of texts. --column golds=FIELD names another field, --column golds= "
            "leaves this one out, and --golds FILE has gold answers by the question's id or text"
        )
    return tuple(str(item) for item in golds)
