"""Convert gold answers of multiple choice to the form of the answers: both may be numbers, letters or texts of options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from suffice.errors import DataError, UnsettledError
from suffice.importers.files.records import Record, column_names
from suffice.importers.rows.round_lists import OPTION_LISTS
from suffice.importers.shapes.shape import Shape, with_derived
from suffice.importers.words.choices import of_columns
from suffice.importers.words.names import last_name
from suffice.loops.retrieval.fields import literal
from suffice.policy.metrics import normalize_answer

_LABELS = "ABCDEFGHIJ"
_OF_ONE = re.compile(r"(?:(?:option|choice|opt|ans)s?[._ ]?)?([A-Ja-j])")
_LETTER, _TEXT, _FROM_0, _FROM_1 = "letters", "texts", "numbers from 0", "numbers from 1"
_BITS, _TRUTHS = "0 or 1", "true or false"
_LETTER_AND_TEXT = re.compile(r"[(\[]?([A-Ja-j])[).:\]]\s*(.+)", re.DOTALL)
_NEARLY_ALL, _OFTEN, _SOME = 0.95, 0.5, 0.01

_Options = dict[str, str]
"""The texts of a question's options by their letters."""


def golds_as_answers(shape: Shape, golds: str, answer: str, *, is_said: bool = False) -> tuple[Shape, str, str, str]:
    """Convert gold answers to the form of the answers.

    Return the rows, the column of gold answers, and descriptions of both forms ("" if nothing was converted).

    All gold answers must have the same form: numbers, letters or texts of options.  Numbers must show if they count from 0 or 1.
    Replies that name letters count as letters.  Gold answers of 0 and 1 mean false and true if all answers are true or false.

    Raises:
        DataError: A gold answer in a later part of the file does not name an option, such as 7 if there are four options.
        UnsettledError: More answers would be right if 1 meant false, as in data sets where 0 is entailment.  Not raised with
            `is_said`, which means that the user has confirmed that 1 is true.
    """
    if _are_truths(shape.rows, golds, answer):
        if not is_said:
            _ask_if_reversed(shape.rows, golds, answer)
        name = f"{golds} (as {_TRUTHS})"
        shape = with_derived(shape, golds, name, lambda row: {"0": "false", "1": "true"}.get(_word(row, golds)))
        return shape, name, _BITS, _TRUTHS
    read = _reader(shape.rows)
    if read is None:
        return shape, golds, "", ""
    pairs = [(read(row), row.values.get(golds), row.values.get(answer)) for row in shape.rows]
    known = [(options, _single(gold), said) for options, gold, said in pairs if gold not in (None, "") and options]
    if not known or any(gold not in (None, "") and not options for options, gold, _ in pairs):
        return shape, golds, "", ""
    of_golds = _forms(((options, gold) for options, gold, _ in known), 1.0)
    of_golds -= {_FROM_0, _FROM_1} if {_FROM_0, _FROM_1} <= of_golds else set()
    said = [(options, own) for options, _, own in known if own not in (None, "")]
    of_answers = _forms(said, _NEARLY_ALL)
    if not of_answers and of_golds <= {_FROM_0, _FROM_1} and _name_letters(said):
        of_answers = {_LETTER}
    if not of_golds or not of_answers or of_golds & of_answers:
        return shape, golds, "", ""
    own, wanted = (
        next(form for form in (_LETTER, _TEXT, _FROM_0, _FROM_1) if form in forms) for forms in (of_golds, of_answers)
    )
    name = f"{golds} (as {wanted})"
    shape = with_derived(shape, golds, name, lambda row: _converted(row, read(row), golds, own, wanted))
    return shape, name, own, wanted


def answers_in_one_form(shape: Shape, golds: str, answer: str) -> tuple[Shape, str, str]:
    """Convert answers to the form of the gold answers, which are letters or texts of options.

    Return the rows, the column of answers, and the form ("" if nothing was converted).

    Nearly all answers must name an option by its letter, its text or both.  Both answers with the text alone and answers with the
    letter must occur.
    """
    read = _reader(shape.rows)
    if read is None:
        return shape, answer, ""
    values = [(read(row), _single(row.values.get(golds)), row.values.get(answer)) for row in shape.rows]
    of_golds = _forms(((options, gold) for options, gold, _ in values if gold not in (None, "")), 1.0)
    said = [(options, own) for options, _, own in values if own not in (None, "")]
    forms = [_forms_of(own, options) or _both_forms(own, options) for options, own in said]
    n = len(forms)
    texts = sum(own.keys() == {_TEXT} for own in forms)
    is_mixed = sum(map(bool, forms)) >= _NEARLY_ALL * n and min(texts, n - texts) > _SOME * n
    wanted = next((form for form in (_LETTER, _TEXT) if form in of_golds), "") if is_mixed else ""
    if not wanted:
        return shape, answer, ""
    name = f"{answer} (as {wanted})"
    shape = with_derived(shape, answer, name, lambda row: _in_form(row.values.get(answer), read(row), wanted))
    return shape, name, wanted


def _in_form(value: Any, options: _Options, wanted: str) -> Any:
    """Return the letter or the text (`wanted`) of the option that an answer names; return other answers unchanged."""
    forms = _forms_of(value, options) or _both_forms(value, options)
    label = forms.get(_LETTER, forms.get(_TEXT)) if value not in (None, "") else None
    return value if label is None else label if wanted == _LETTER else options[label]


def _both_forms(value: Any, options: _Options) -> dict[str, str]:
    """Return the letter of an option under each of the two forms, if a value has both letter and text of the option ("B. Paris").

    Return an empty object for any other value.
    """
    match = _LETTER_AND_TEXT.fullmatch(str(value).strip())
    label = match[1].upper() if match else ""
    is_one = label in options and normalize_answer(str(match and match[2])) == normalize_answer(options[label])
    return {_LETTER: label, _TEXT: label} if is_one else {}


def _are_truths(rows: Sequence[Record], golds: str, answer: str) -> bool:
    """Return whether gold answers are 0 and 1, and answers true and false, without other values."""
    bits, said = ({_word(row, name) for row in rows} - {""} for name in (golds, answer))
    return bits == {"0", "1"} and said == {"true", "false"}


def _ask_if_reversed(rows: Sequence[Record], golds: str, answer: str) -> None:
    """Raise if more answers are right when a gold answer of 1 means false than when it means true."""
    pairs = [(_word(row, golds), _word(row, answer)) for row in rows]
    same = [(gold == "1") == (said == "true") for gold, said in pairs if gold and said]
    if 2 * sum(same) < len(same):
        raise UnsettledError(
            f"{golds!r} is 0 or 1, and answers are true or false: {sum(same):,} of {len(same):,} are right if 1 is true, and the others if "
            "1 is false, as where 0 is entailment. If it is false, write true and false into the log",
            "columns",
            of_columns({"golds": golds}, "1 is true, and most answers are wrong")
            | of_columns({"golds": ""}, "the log has no gold answers"),
        )


def _word(row: Record, name: str) -> str:
    value = row.values.get(name)
    return "" if value is None else str(value).strip().lower().removesuffix(".0")


def has_options(rows: Sequence[Record]) -> bool:
    """Return whether rows have multiple-choice options."""
    return _reader(rows) is not None


def _reader(rows: Sequence[Record]) -> Callable[[Record], _Options] | None:
    """Return a function that reads the options of a row; None if the rows have no options."""
    names = column_names(rows)
    for name in names:
        path, _, last = name.rpartition(".")
        if last_name(path) in OPTION_LISTS and last == "text" and f"{path}.label" in names:
            return lambda row: dict(zip(_texts(row, f"{path}.label"), _texts(row, name), strict=False))
        if last_name(name) in OPTION_LISTS and any(_texts(row, name) for row in rows):
            return lambda row: dict(zip(_LABELS, _texts(row, name), strict=False))
    single = {match[1].upper(): name for name in names if (match := _OF_ONE.fullmatch(name.rpartition("options.")[2]))}
    if {"A", "B"} <= single.keys():
        return lambda row: {
            label: str(row.values[name])
            for label, name in sorted(single.items())
            if row.values.get(name) not in (None, "")
        }
    return None


def _texts(row: Record, name: str) -> list[str]:
    """Return the items of a list in a cell, also of a list that is written as text; empty for any other value."""
    value = literal(row.values.get(name))
    are_texts = isinstance(value, list) and all(isinstance(item, str | int | float) for item in value)
    return [str(item) for item in value] if are_texts and value else []


def _single(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _forms(pairs: Iterable[tuple[_Options, Any]], share: float) -> set[str]:
    """Return the forms in which at least the given share of values name an option."""
    forms = [_forms_of(value, options) for options, value in pairs]
    return {
        form
        for form in (_LETTER, _TEXT, _FROM_0, _FROM_1)
        if forms and sum(form in own for own in forms) >= share * len(forms)
    }


def _forms_of(value: Any, options: _Options) -> dict[str, str]:
    """Return the letter of the option that a value names, by form: "1" may be the text of one option and the number of another."""
    text = str(value).strip()
    by_text = {normalize_answer(own): label for label, own in options.items()}
    labels, result = [*options], {}
    if (label := text.strip("().:[] ")).upper() in options:
        result[_LETTER] = label.upper()
    if normalize_answer(text) in by_text:
        result[_TEXT] = by_text[normalize_answer(text)]
    if re.fullmatch(r"\d{1,2}(?:\.0)?", text):
        for form, place in ((_FROM_0, int(float(text))), (_FROM_1, int(float(text)) - 1)):
            if 0 <= place < len(labels):
                result[form] = labels[place]
    return result


def _name_letters(said: Sequence[tuple[_Options, Any]]) -> bool:
    """Return whether most replies contain the letter of an option as a separate word; an article, as in "A dog", does not count."""
    found = [
        any(re.search(rf"\b{re.escape(label)}\b(?! [a-z])", str(reply)) for label in options) for options, reply in said
    ]
    return sum(found) >= _OFTEN * len(found) > 0


def _converted(row: Record, options: _Options, golds: str, own: str, wanted: str) -> str | None:
    value = _single(row.values.get(golds))
    if value in (None, ""):
        return None
    label = _forms_of(value, options).get(own)
    if label is None:
        raise DataError(
            f"{row.where}: {golds} is {value!r:.60}, and gold answers are {own} of options: there are {len(options)} here"
        )
    number = [*options].index(label)
    return {_LETTER: label, _TEXT: options[label], _FROM_0: str(number), _FROM_1: str(number + 1)}[wanted]
