"""Labels by hand, and the labelling sheet that contains them: JSON lines, or CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from suffice.common.files import decoded, json_lines, write_file
from suffice.common.tables import counted
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.statistics import hash_order
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH
from suffice.recordings.recording import Recording
from suffice.verdicts.losses import PREFERENCE

CANNOT_TELL = "?"
"""The label of a question whose answers cannot be judged; it counts at its worst."""
NONE_RIGHT = "none"
_SHOWN_SALT = "decide, shown answers:"
EQUAL = "equal"
"""The label of two answers that are equally good."""
_HEADS = ("id", "question", "answers", "right", "gold", "better")
_LETTERS = re.compile(r"[A-Z]{1,2}")
_LARGEST_CELL = 1 << 30
_NAMED = 3

Right = tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """A judgement of two answers.

    Attributes:
        better: 1 if the first answer is better, -1 if the second is, 0 if both are equally good; None for "cannot
            tell".
    """

    answers: tuple[str, str]
    better: int | None

    def __str__(self) -> str:
        if self.better is None:
            return CANNOT_TELL
        return repr(self.answers[0 if self.better > 0 else 1]) if self.better else EQUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Labels of questions by their ids.

    Attributes:
        right: For each question, the texts of its right answers: those that are marked as right, and gold answers in
            the sheet. An empty tuple means that no answer is right, None means "cannot tell".
        further: For a question with several labels, the second and later ones, in the order of the file; see
            `judged_by`.
        preferences: Judgements of pairs of answers; empty if the labels do not judge pairs.
        sheet: The rows of the labelling sheet in their order, so that the sheet can be written again.
    """

    right: Mapping[str, Right] = field(default_factory=dict)
    further: Mapping[str, tuple[Right, ...]] = field(default_factory=dict)
    preferences: Mapping[str, tuple[Preference, ...]] = field(default_factory=dict)
    sheet: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def read(cls, path: str | Path) -> Labels:
        """Read a labelling sheet; a file that does not exist yet has no labels.

        Args:
            path: A JSON lines or CSV file that `write_sheet` wrote.  In each row, `right` has the letters of the right
                answers (``A``, ``A C``), ``none``, or ``?`` for "cannot tell"; or `gold` has the right answer itself. A
                row without `right` and `gold` has no label yet.  Several rows of one question are several labels of
                that question. In a sheet of pairs, `better` has the letter of the better answer, ``equal``, or ``?``.

        Raises:
            DataError: The file cannot be read or is not a labelling sheet, a row has no id, or a label has none of
                these forms; the message names the row.
        """
        suffix = _suffix(path)
        if not Path(path).exists():
            return cls()
        right: dict[str, Right] = {}
        rows: list[Mapping[str, Any]] = []
        further: dict[str, tuple[Right, ...]] = {}
        preferences: dict[str, tuple[Preference, ...]] = {}
        for where, row in _csv_rows(Path(path)) if suffix == ".csv" else _json_rows(Path(path)):
            name = row.get("id")
            if not isinstance(name, str) or not name:
                raise DataError(f"{where}: the row has no 'id', the id of its question in the log")
            if not {"right", "gold", "better"} & row.keys():
                raise DataError(
                    f"{where}: the row has neither 'right', 'gold' nor 'better', so this is no labelling sheet. Name another file (--ask OTHER.jsonl); "
                    "gold answers that you have stand in 'gold'"
                )
            rows.append(row)
            letters, golds = _marks(where, row.get("right")), _marks(where, row.get("gold"), split=False)
            if marks := _marks(where, row.get("better")):
                if letters or golds:
                    raise DataError(
                        f"{where}: the row has 'better' beside 'right' or 'gold', two kinds of labels: keep one"
                    )
                judged = _preference_of(where, marks, answers_in(row, where))
                preferences[name] = (*preferences.get(name, ()), judged)
            elif letters or golds:
                label = _label_of(where, letters, golds, answers_in(row, where))
                if name in right:
                    further[name] = (*further.get(name, ()), label)
                else:
                    right[name] = label
        return cls(right=right, further=further, preferences=preferences, sheet=tuple(rows))

    @property
    def names(self) -> frozenset[str]:
        """The ids of the questions that have a label."""
        return frozenset((*self.right, *self.preferences))

    def metric(self, stated: str | None) -> str:
        """Return the metric that these labels determine: `match`, or `preference` if they are judgements of pairs.

        Raises:
            DataError: Labels cannot determine the stated metric, or the sheet's labels are for the other of the two metrics.
        """
        name = stated or MATCH
        if name not in (MATCH, PREFERENCE):
            raise DataError(
                f"labels say which answers are right ({MATCH}) or which of two is better ({PREFERENCE}), and the metric is {name!r}: leave "
                "--metric out, or judge by golds without --ask"
            )
        if self.right if name == PREFERENCE else self.preferences:
            kinds = ("which answers are right", "which of two answers is better")
            said, wanted = kinds if name == PREFERENCE else kinds[::-1]
            raise DataError(
                f"the sheet says {said}, and the metric {name} is about {wanted}. They are never mixed: name another sheet and decision "
                "(--ask OTHER.jsonl -o OTHER.json), or the other metric (--metric)"
            )
        return name

    def note(self, recording: Recording) -> list[str]:
        """Return a note if some labels belong to no question of the recording.

        Raises:
            ConfigMismatchError: No label belongs to a question of the recording.
        """
        known = set(recording.question_ids)
        names = [*self.right, *self.preferences]
        unknown = [name for name in names if name not in known]
        if not unknown:
            return []
        said = f"{counted(len(unknown), 'label')} of {len(names)} name no question of this log ({', '.join(unknown[:_NAMED])})"
        if len(unknown) == len(names):
            raise ConfigMismatchError(f"{said}: the sheet belongs to another log, or a spreadsheet changed the ids")
        return [said]


def normalizer_in(recording: Recording) -> str:
    """Return the name of the normalizer by which the answers of a recording are compared."""
    return str(recording.metadata.get("normalizer") or DEFAULT_NORMALIZER)


def write_sheet(
    path: str | Path,
    recording: Recording,
    ids: Sequence[str],
    labels: Labels,
    pairs: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the rows that have a label, followed by the rows that need one, in the order of asking.

    Each different answer of a question is shown once, in an order that does not reveal its round.  Rows that are
    already in the sheet keep any columns that the user added.

    Args:
        path: A file that ends in ``.csv``, or in ``.jsonl`` for JSON lines.
        recording: Recorded rounds.
        ids: The questions that need a label.
        labels: The labels so far.
        pairs: For a sheet of pairs, the two answers of each question in `ids`; see `Advice.pairs`.

    Raises:
        DataError: The name ends neither in ``.csv`` nor in ``.jsonl``.
    """
    places = {name: q for q, name in enumerate(recording.question_ids)}
    texts = recording.texts
    labelled = [row["id"] in labels.right or is_labelled(row) for row in labels.sheet]
    rows: list[dict[str, Any]] = [dict(row) for row, done in zip(labels.sheet, labelled, strict=True) if done]
    # A judged pair keeps its row; another pair of the same question gets a new row.
    before = {row["id"]: row for row, done in zip(labels.sheet, labelled, strict=True) if not (done and pairs)}
    for at, name in enumerate(ids):
        shown = _by_letter(name, pairs[at]) if pairs else _shown(recording, places[name])
        question = None if texts is None else texts[places[name]]
        marks = ("better",) if pairs else ("right", "gold")
        own = {"id": name, "question": question, "answers": shown, **dict.fromkeys(marks)}
        rows.append({**before.get(name, {}), **own})
    write_rows(path, rows)


def write_rows(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of a labelling sheet, whole or not at all.

    Args:
        path: A file that ends in ``.csv``, or in ``.jsonl`` for JSON lines.
        rows: Rows in the form of `Labels.sheet`.
    """
    json_rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_file(path, _csv_of(rows) if _suffix(path) == ".csv" else "".join(json_rows))


def is_labelled(row: Mapping[str, Any]) -> bool:
    """Return True if a row of a labelling sheet has a label."""
    return any(_marks("", row.get(name), split=name != "gold") for name in ("right", "gold", "better"))


def _suffix(path: str | Path) -> str:
    suffix = Path(path).suffix.casefold()
    if suffix not in (".csv", ".jsonl"):
        raise DataError(
            f"a labelling sheet ends in .jsonl or .csv, not as {str(path)!r:.120} does: name a file of its own"
        )
    return suffix


def _shown(recording: Recording, q: int) -> dict[str, str]:
    """Return the different answers of a question, by letter."""
    ids = recording.answer_ids(normalizer_in(recording))[q]
    first = {own: str(text) for own, text in reversed([*zip(ids.tolist(), recording.answers[q].tolist(), strict=True)])}
    return _by_letter(recording.question_ids[q], [text for own, text in first.items() if not np.isnan(own)])


def _by_letter(question: str, texts: Sequence[str]) -> dict[str, str]:
    """Return texts by letter, in a hashed order that does not reveal their rounds."""
    order = hash_order([f"{question}: {text}" for text in texts], salt=_SHOWN_SALT)
    return {_letters(place): texts[at] for place, at in enumerate(order.tolist())}


def _letters(place: int) -> str:
    """Return the letters of a column, as in a spreadsheet.

    >>> _letters(0), _letters(25), _letters(26)
    ('A', 'Z', 'AA')
    """
    first, last = divmod(place, len(ascii_uppercase))
    return (_letters(first - 1) if first else "") + ascii_uppercase[last]


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, row in json_lines(path, "a row of the labelling sheet"):
        yield where, {_head(name): value for name, value in row.items()}


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        text = decoded(path.read_bytes(), str(path)).removeprefix("\ufeff")
    except OSError as error:
        raise DataError(f"the labels {str(path)!r} cannot be read: {error.strerror or error}") from None
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)  # some spreadsheets write semicolons
    limit = csv.field_size_limit(_LARGEST_CELL)
    try:
        for number, cells in enumerate(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator), start=2):
            of_answers = [
                name for name in cells if name and _LETTERS.fullmatch(name) and (name != "ID" or "id" in cells)
            ]
            answers = {name: cells[name] for name in of_answers if cells[name]}
            others = {_head(name): own or None for name, own in cells.items() if name and name not in of_answers}
            yield f"{path}, row {number}", {**others, "answers": answers}
    except csv.Error as error:
        raise DataError(f"the labels {str(path)!r} are no CSV file: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _head(name: str) -> str:
    """Return the name of a column; in lower case if it is a column that this module reads."""
    plain = name.strip().casefold()
    return plain if plain in _HEADS else name


def _csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, with a column for each letter of an answer."""
    letters = sorted({letter for row in rows for letter in row.get("answers") or {}}, key=lambda one: (len(one), one))
    others = [*dict.fromkeys(name for row in rows for name in row if name not in _HEADS)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    marks = ("better",) if any("better" in row for row in rows) else ("right", "gold")
    writer.writerow(["id", "question", *letters, *marks, *others])
    for row in rows:
        answers = [(row.get("answers") or {}).get(letter, "") for letter in letters]
        cells = [_text(row.get(name)) for name in (*marks, *others)]
        writer.writerow([row["id"], row.get("question") or "", *answers, *cells])
    return out.getvalue()


def _text(label: Any) -> str:
    return " ".join(map(str, label)) if isinstance(label, list) else "" if label is None else str(label)


def answers_in(row: Mapping[str, Any], where: str = "") -> dict[str, str]:
    """Return the answers of a row by letter."""
    answers = row.get("answers") or {}
    if not isinstance(answers, dict) or not all(isinstance(text, str) for text in answers.values()):
        raise DataError(f"{where}: 'answers' must be texts by letter, as they were written")
    return answers


def _marks(where: str, cell: Any, *, split: bool = True) -> list[str]:
    """Return the marks in a cell, which are letters or gold answers; blank marks are left out."""
    if cell is None:
        return []
    parts = (cell.replace(",", " ").split() if split else [cell]) if isinstance(cell, str) else cell
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise DataError(
            f"{where}: 'right' must be letters of answers, {NONE_RIGHT!r} or {CANNOT_TELL!r}, and 'gold' a text or a list of texts"
        )
    return [part.strip() for part in parts if part.strip()]


def _preference_of(where: str, marks: Sequence[str], answers: Mapping[str, str]) -> Preference:
    """Return the judgement of a labelled row of two answers."""
    letters = [*answers]
    values = {
        EQUAL: 0,
        CANNOT_TELL: None,
        **dict(zip([letter.casefold() for letter in letters], (1, -1), strict=False)),
    }
    mark = marks[0].casefold()
    if len(letters) != 2 or len(marks) != 1 or mark not in values:  # noqa: PLR2004 - a pair
        raise DataError(
            f"{where}: 'better' says {' '.join(marks)!r:.60}, and the answers are {', '.join(letters) or 'missing'}. Of two answers write the "
            f"letter of the better one, {EQUAL!r}, or {CANNOT_TELL!r} if you cannot tell"
        )
    first, second = answers.values()
    return Preference(answers=(first, second), better=values[mark])


def _label_of(where: str, letters: Sequence[str], golds: Sequence[str], answers: Mapping[str, str]) -> Right:
    """Return the right answers of a labelled row; None for "cannot tell"."""
    marks = [letter.upper() for letter in letters]
    if CANNOT_TELL in marks or NONE_RIGHT.upper() in marks:
        if len(marks) > 1 or (golds and marks == [CANNOT_TELL]):
            raise DataError(f"{where}: 'right' says {' '.join(letters)!r:.60} beside something else: keep one of them")
        return None if marks == [CANNOT_TELL] else tuple(golds)
    if unknown := [letter for letter in marks if letter not in answers]:
        raise DataError(
            f"{where}: 'right' has {unknown[0]!r:.60}, and the answers are {', '.join(answers) or 'missing'}. Write the letters of "
            f"the right answers, {NONE_RIGHT!r}, or {CANNOT_TELL!r} if you cannot tell; or write the right answer into 'gold'"
        )
    return (*(answers[letter] for letter in marks), *golds)
