"""Read numbers in the form that the user gives.

Scores on a range or in words are scaled to [0, 1], and numbers may have separators or a unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from suffice.common.files import quoted
from suffice.common.tables import cut_list
from suffice.errors import DataError, UnsettledError
from suffice.importers.columns.cost_names import SECONDS
from suffice.importers.columns.grid import cell_number, is_cost, number_or_nan, says_missing
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.ids import ALIKE, ANY_CASE, plain_id
from suffice.importers.files.records import Record, column_names
from suffice.importers.guesses.cost_guesses import COST_NAMES
from suffice.importers.shapes.shape import Shape, with_derived
from suffice.importers.words.choices import column_options
from suffice.importers.words.names import MONEY, TOTAL_TOKENS, counts_tokens, last_name
from suffice.importers.words.number_forms import EACH, FORMS, TOTALS, UNITS, money_unit, points_separate, written_number
from suffice.importers.words.word_scales import EQUAL, PLACEHOLDERS, TEMPLATE, order_of_words
from suffice.policy.signals.position import ANSWER_FORMS, DECIMAL_COMMA, AnswerPosition

_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")
_NUMBER = re.compile(r"(-?\d+(?:[.,]\d+)?)\s*%?")
_SHOWN = 6
"""The most words of a column that a message shows."""


def scaled_metrics(shape: Shape, metrics: Mapping[str, str]) -> tuple[Shape, dict[str, str]]:
    """Add a scaled column for each metric given as ``COLUMN:WORST..BEST``, ``COLUMN:WORST,...,BEST`` or ``COLUMN/TOTAL``.

    Return the rows, and the metrics with the scaled columns in place of the original ones.

    Words joined by ``|`` are equally good.  Words that are not listed give an unknown value (None), and so does a total of 0.  Words
    of a usual scale, such as bad and good, need not be listed.

    Raises:
        DataError: A number is outside the range, or the order of a column's words is not known.
        UnsettledError: A column has two words, and it is unknown which one is better.
    """
    result, names = dict(metrics), {*column_names(shape.rows)}
    for ours, theirs in metrics.items():
        name, _, how = theirs.rpartition(":")
        part, slash, total = theirs.partition("/")
        if theirs in names:
            how = _order_of_column(shape, ours, theirs)
            if how:
                result[ours] = own = f"{theirs} ({how})"
                shape = with_derived(shape, theirs, own, _scale(theirs, how, all_words=True))
            continue
        if name in names:
            how = how or _order_of_column(shape, ours, name)
            result[ours] = own = f"{name} ({how})"
            _refuse_template(shape, name, how)
            shape = with_derived(shape, name, own, _scale(name, how))
        elif slash and {part, total} <= names:
            shape = with_derived(shape, part, theirs, partial(_share, name=part, total=total))
    return shape, result


def _order_of_column(shape: Shape, ours: str, name: str) -> str:
    """Return the words of a column from worst to best; "" if it has only numbers, or too many words for a scale.

    Raises:
        DataError: The column has a few words of unknown order.
        UnsettledError: The column has two words of unknown order.
    """
    values = {str(value).strip(): value for row in shape.rows if (value := row.values.get(name)) is not None}
    said = sorted(word for word, value in values.items() if not says_missing(value))
    is_scale = 1 < len(said) <= _SHOWN and not any(mark in word for word in said for mark in (",", EQUAL))
    if not is_scale or not any(math.isnan(number_or_nan(values[word], name)) for word in said):
        return ""
    if order := order_of_words(name, said):
        return order
    question = (
        f"{name!r} has the words {cut_list([f'{word:.24}' for word in said])}, and a metric has numbers in [0, 1]"
    )
    option = f"--metric-column {quoted(f'{ours}={name}{TEMPLATE}')}"
    if len(said) == len(("worst", "best")):
        ways = {f"{ours}={name}:{worst},{best}": (worst, best) for worst, best in (said, said[::-1])}
        choices = {
            f"--metric-column {quoted(way)}": (
                {"metrics": {ours: way.partition("=")[2]}},
                f"{best!r:.24} is better than {worst!r:.24}",
            )
            for way, (worst, best) in ways.items()
        }
        raise UnsettledError(f"{question}: which of them is better?", "options", choices)
    others = "; or give what became of each run in a file (--outcomes FILE)" if name in shape.outer else ""
    raise DataError(f"{question}: list them from the worst to the best, with {EQUAL} between equals: {option}{others}")


def _refuse_template(shape: Shape, name: str, how: str) -> None:
    """Raise if a scale still contains the placeholders of the option that a note suggested, and not the column's own words."""
    said = {word.strip() for word in how.split(",")} & PLACEHOLDERS
    if said and said.isdisjoint(own := {str(row.values.get(name)).strip() for row in shape.rows}):
        raise DataError(
            f"{name!r} has no {cut_list(sorted(said, reverse=True))}, which stand for its own words: "
            f"write all of them, from the worst to the best ({name}:bad,good); it has {cut_list([f'{word:.24}' for word in sorted(own)][:_SHOWN])}"
        )


def _scale(name: str, how: str, *, all_words: bool = False) -> Callable[[Record], float | None]:
    """Return a function from a row to the value of a column on a scale, from 0 (worst) to 1 (best).

    With `all_words`, that function raises a `DataError` for words that are not in the scale.
    """
    match = _RANGE.fullmatch(how)
    words = [word.strip() for word in how.split(",")]
    if (match is None and len({*words}) < len(("worst", "best"))) or (match is not None and match[1] == match[2]):
        raise DataError(
            f"{how!r} is no scale of {name!r}: give a range from the worst to the best (1..5, or 6..1 if 1 is best), or words (bad,good)"
        )
    if match is not None:
        return lambda row: _place(row.values.get(name), match, f"{row.where}: {name}")
    steps = [step.split(EQUAL) for step in words]
    places = {word.strip(): place / (len(steps) - 1) for place, step in enumerate(steps) for word in step}

    def place(row: Record) -> float | None:
        value = row.values.get(name)
        word = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
        if all_words and word not in places and value is not None and not says_missing(value):
            raise DataError(
                f"{row.where}: {name} is {word!r:.40}, and earlier rows have {cut_list(sorted(places))} alone: list all words "
                f"from the worst to the best, --metric-column NAME={name}{TEMPLATE}"
            )
        return places.get(word)

    return place


def _share(row: Record, name: str, total: str) -> float | None:
    part, whole = (cell_number(row.values.get(column), column, row.where) for column in (name, total))
    if part < 0 or part > whole:
        raise DataError(f"{row.where}: {name} is {part:g}, and {total} is {whole:g}: expected a part of a total")
    return part / whole if whole > 0 and not math.isnan(part) else None


def _place(value: Any, scale: re.Match[str], where: str) -> float | None:
    """Return the position of a number in a range, from 0 (worst) to 1 (best); None for an empty cell."""
    if says_missing(value):
        return None
    worst, best = float(scale[1]), float(scale[2])
    match = _NUMBER.fullmatch(str(value).strip())
    number = (
        float(match[1].replace(",", ".")) if match else number_or_nan(value, where)
    )  # for a truth value, or its word
    place = (number - worst) / (best - worst)
    if not 0 <= place <= 1:
        raise DataError(f"{where} is {value!r:.40}, and the scale is {scale[0]}: give a range that has all numbers")
    return place


def with_forms(
    shape: Shape, columns: dict[str, str], position: AnswerPosition | None = None
) -> tuple[Shape, AnswerPosition | None]:
    """Add a converted column for each option ``COLUMN:FORM``, and replace the option in `columns` by the name of this column.

    If answers are inside replies, the form applies to the answers only.  It is then returned as a part of `position`.

    Raises:
        DataError: Answers have two forms, or a column of money has one unit in its name and is read in another.
    """
    names, said = {*column_names(shape.rows)}, {} if position is None else {position.form: ""}
    for ours, theirs in columns.items():
        name, _, form = theirs.rpartition(":")
        own = theirs if theirs in names else name
        unit = money_unit(own) if ours == "spend" and own in names else ""
        if unit and (own == theirs or form not in (unit, f"{unit}-total")):
            option = column_options({ours: f"{own}:{unit}"})
            raise DataError(
                f"{own!r} says {unit} by its name, and {ours!r} is in dollars: {option} divides it by {UNITS[unit]:,}"
            )
        read = _READ_BY.get(ours, _OF_CELLS).get(form)
        if theirs in names or name not in names or read is None:
            continue
        if position is not None and ours in _REPLIES:
            columns[ours] = name
            said[form] = theirs
            continue
        columns[ours] = form_name(name, form)
        shape = with_derived(shape, name, columns[ours], partial(_in_form, name=name, read=read))
    forms = [form for form in said if form]
    if len(forms) > 1:
        raise DataError(f"answers are read in one form, and {cut_list(forms)} are given: leave one of them out")
    return shape, replace(position, form=forms[0]) if position is not None and forms else position


def answer_form(columns: Mapping[str, str], named: Mapping[str, str]) -> str:
    """Return the form that the user gives for the column of answers; "" if answers are read unchanged.

    >>> answer_form({"answer": "said (decimal-comma)"}, {"answer": "said:decimal-comma"})
    'decimal-comma'

    Args:
        columns: The columns that are read, by this library's names.
        named: The columns as the user names them, perhaps with a form.
    """
    name, _, form = named.get("answer", "").rpartition(":")
    return form if form in ANSWER_FORMS and columns.get("answer") == form_name(name, form) else ""


def _in_form(row: Record, name: str, read: Callable[[Any], Any]) -> Any:
    return read(row.values.get(name))


def with_whole_thousands(shape: Shape, columns: Mapping[str, str]) -> tuple[Shape, list[str]]:
    """Convert numbers such as 1.234 in cost columns to 1234 if points separate thousands; also return notes about this.

    Args:
        shape: The rows.
        columns: The columns that the user names.
    """
    table, notes = TableColumns(shape.rows), []
    said = {theirs: ours for ours, theirs in columns.items() if is_cost(ours) or ours == "spend"}
    names = [name for name in table.names if name in said or is_cost(name) or _costs(name)]
    for name in [name for name in names if not name.endswith(tuple(f" ({form})" for form in FORMS))]:
        ours = said.get(name, "")
        of_parts = last_name(name) in SECONDS or _is_money(name) or ours == "spend" or ours.endswith(".seconds")
        values, whole = table.column(name), not of_parts
        if example := points_separate(values, whole=whole):
            shape = with_derived(shape, name, name, partial(_in_form, name=name, read=_OF_CELLS[DECIMAL_COMMA]))
            notes.append(f"{example} in {name!r} is read as {example.replace('.', '')}: its point separates thousands")
        elif whole and (part := _fraction(values)) is not None:
            notes.append(
                f"{name!r} has {part:g}, and a count has no fraction: if points separate thousands, write whole numbers into the log"
            )
    return shape, notes


def _costs(name: str) -> bool:
    return last_name(name) in (*COST_NAMES, *TOTAL_TOKENS) or _is_money(name) or counts_tokens(name, ())


def _is_money(name: str) -> bool:
    return last_name(name) in MONEY


def _fraction(values: Sequence[Any]) -> float | None:
    """Return the first number that is not whole; None if all numbers are whole."""
    numbers = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    return next((value for value in numbers if not value.is_integer()), None)


def form_name(name: str, form: str) -> str:
    """Return the name of a new column, which has the values of the column `name` as read in a form.

    >>> form_name("cost_usd", EACH)
    'cost_usd (each)'
    """
    return f"{name} ({form})"


def _of_texts(read: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda value: read(value) if isinstance(value, str) else value


def _in_dollars(value: Any, per: int) -> Any:
    number = written_number(value) if isinstance(value, str) else value
    return value if number is None or isinstance(number, bool | list | dict) else number / per


def _as_id(form: str) -> Callable[[Any], Any]:
    return lambda value: None if value is None else plain_id(value, form)


_OF_IDS = {form: _as_id(form) for form in (ALIKE, ANY_CASE)}


_OF_ANSWERS = {form: _of_texts(read) for form, read in ANSWER_FORMS.items()}
_OF_CELLS: dict[str, Callable[[Any], Any]] = {
    **_OF_ANSWERS,
    EACH: lambda value: value,
    **{unit: partial(_in_dollars, per=per) for unit, per in (UNITS | TOTALS).items()},
}
_REPLIES = ("answer", "text")
_READ_BY = {"question_id": _OF_IDS, **dict.fromkeys(_REPLIES, _OF_ANSWERS)}
"""What reads a cell in a form, of ids, answers, and other columns."""
