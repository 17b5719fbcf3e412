"""Join gold answers from another file, by question id or by question text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.common.files import quoted
from suffice.common.tables import counted, cut_list
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.importers.answers.answer_or_gold import FEW
from suffice.importers.columns.grid import AFTER_MARK, IN_BOX, gold_texts, marked_part, only_text
from suffice.importers.files.ids import plain_id
from suffice.importers.files.records import Record, column_names, records_of
from suffice.importers.words.choices import Choices, in_options, of_columns
from suffice.importers.words.names import GOLDS, IDS, OUTCOME_NAMES, QUESTIONS, last_name, plain_name
from suffice.loops.retrieval.fields import literal
from suffice.policy.metrics import normalize_answer
from suffice.policy.normalizers import listed_items
from suffice.recordings.runs import value_text

_LISTED_IDS, _NAMED = 3, 4
_IDS_OF_FILE = (
    "What has the file's ids in the run is named by --column question_id=COLUMN for a table, --key ATTRIBUTE for traces, and --key "
    "custom_id.question for a batch whose ids have the number of a sample at their ends"
)
_PLAIN = "id without spaces and leading zeros"
_NEARLY_ALL, _OFTEN = 0.95, 0.1
_ENOUGH = 5
_TRUE_OR_FALSE, _ONE_OR_NONE = {"true", "false"}, {"0", "1", "0.0", "1.0"}

_SIGNS, _LONGEST = "|;", 1_000
"""Signs between alternatives, and the most characters of a text of them."""


def gold_form(golds: Sequence[Any], answers: Sequence[Any]) -> str:
    """Return the form of gold answers: after a mark ("####"), in a box ("boxed"), or between separators ("|" or ";").

    Return "" for plain text.  A separator counts only if many answers equal one of the separated alternatives, and no answer
    contains the separator.
    """
    pairs = [(gold, answer) for gold, answer in zip(golds, answers, strict=True) if isinstance(gold, str)]
    if form := mark_of([gold for gold, _ in pairs]):
        return form
    for sign in _SIGNS:
        own = [(gold, str(answer)) for gold, answer in pairs if sign in gold]
        n = sum(normalize_answer(answer) in {*map(normalize_answer, gold.split(sign))} for gold, answer in own)
        if n >= max(_ENOUGH, _OFTEN * len(own)) and not any(sign in str(answer) for answer in answers):
            return sign
    return ""


def mark_of(texts: Sequence[Any]) -> str:
    r"""Return the mark of the answer in nearly all texts, "####" or "boxed"; "" without a mark, or for a box without other text.

    >>> mark_of(["19 * 4 = 76\n#### 76"]), mark_of([r"So it is \boxed{76}."]), mark_of([r"\boxed{76}"]), mark_of(["76"])
    ('####', 'boxed', '', '')
    """
    for form in (AFTER_MARK, IN_BOX):
        if sum(marked_part(text, form) is not None for text in texts) > _NEARLY_ALL * len(texts):
            return form
    return ""


def ask_about_gold_lists(rows: Iterable[tuple[Sequence[str], Any]]) -> None:
    """Raise if a question's several gold answers may be the items of one answer, and not alternatives.

    They may be if many answers list all gold answers of their question, and fewer answers equal just one of them.
    """
    pairs = [({*own}, {*listed_items(answer)}) for own, answer in rows if len(own) > 1 and isinstance(answer, str)]
    whole = sum(own == items for own, items in pairs)
    if whole >= max(_ENOUGH, _OFTEN * len(pairs)) and whole > sum(
        len(items) == 1 and items <= own for own, items in pairs
    ):
        raise UnsettledError(
            f"{whole:,} of {len(pairs):,} answers with several gold answers name all of them: are they the items of one answer?",
            "normalizer",
            {
                "--set normalizer=unordered": (
                    "unordered",
                    "they are: an answer has to have all of them, in any order",
                ),
                "--set normalizer=qa": ("qa", "each of them alone is a right answer"),
            },
        )


def items_of(text: str) -> list[str | None]:
    """Return a text, followed by the answers that it may contain.

    These are the items if the text is a list, or else the marked answer if the text is a solution.
    """
    if listed := listed_texts(text):
        return [text, *listed]
    return [text, *filter(None, (marked_part(text, form) for form in (AFTER_MARK, IN_BOX)))]


def listed_texts(text: str) -> list[str | None]:
    """Return the items of a list that is written as text, such as `["Oslo", "Rome"]` or `Oslo; Rome`; empty for other texts."""
    listed = literal(text)
    if isinstance(listed, list):
        return [*map(value_text, listed)]
    signs = [sign for sign in _SIGNS if sign in text] if len(text) <= _LONGEST else []
    return [*filter(None, map(str.strip, text.split(signs[0])))] if signs else []


class GoldAnswers:
    """Gold answers from a file, by question id and by question text, with counts of the matched trajectories.

    Args:
        path: The file.
        named: The columns that the user names, by this library's names; None if the log's format does not let users name columns.

    Attributes:
        names: The file's columns.

    Raises:
        DataError: A question has two different lists of gold answers.
    """

    def __init__(self, path: str | Path, named: Mapping[str, str] | None = None) -> None:
        self._path, self._can_be_named = Path(path), named is not None
        self._records, self.names = _records(self._path)
        self._golds = self._named(named, "golds") or self._called(
            (*GOLDS, "answers", "answer"), ("outputs", "output", *GOLDS)
        )
        self._ids = self._named(named, "question_id") or self._called(IDS)
        self._questions = self._named(named, "question") or self._called(QUESTIONS, ("inputs", "input"))
        self._found = ""
        self._by_id: dict[str, tuple[str, ...]] = {}
        self._by_text: dict[str, tuple[str, ...]] = {}
        self._by_plain_id: dict[str, tuple[str, ...]] = {}
        self._is_read = False
        if self._golds and (self._ids or self._questions):
            self._read()
        self._ways = {"id": 0, _PLAIN: 0, "text": 0}
        self._n = 0
        self._first: list[str] = []
        self._asked = ""
        self._missing: list[str] = []

    def _named(self, named: Mapping[str, str] | None, ours: str) -> list[str]:
        """Return the column that the user names, as a list of one name; empty if the file does not have it.

        The user may add the form of the values: `solution:####` names the column `solution`.
        """
        theirs = (named or {}).get(ours, "")
        return [name for name in (theirs, theirs.rpartition(":")[0]) if name and name in self.names][:1]

    def _called(self, usual: tuple[str, ...], within: tuple[str, ...] = ()) -> list[str]:
        """Return the file's columns with usual names, and fields with such names in the objects named by `within`."""
        inside = [name for name in self.names if "." in name and plain_name(name).partition(".")[0] in within]
        own = [name for wanted in usual for name in inside if last_name(name) == wanted]
        return [name for wanted in usual for name in self.names if plain_name(name) == wanted] + (
            own or (inside if len(inside) == 1 else [])
        )

    def _read(self) -> None:
        """Read the gold answers of the columns."""
        self._by_id = _by(self._records, self._ids, self._golds, str)
        self._by_text = _by(self._records, self._questions, self._golds, normalize_answer)
        plain = [(plain_id(own), golds) for own, golds in self._by_id.items()]
        once = Counter(own for own, _ in plain)
        self._by_plain_id = {own: golds for own, golds in plain if once[own] == 1}
        self._is_read, self._records = True, []

    def find(self, ids: Iterable[str], questions: Iterable[str]) -> None:
        """Find columns that have unusual names.

        A column has ids or question texts if its values occur in the run, too.  The only remaining column has the gold answers.

        Raises:
            SchemaError: The file has no gold answers, or neither ids nor questions.
        """
        if self._is_read:
            return
        wanted = [*dict.fromkeys(ids)]
        if not (self._ids or self._questions):
            self._ids = self._with_values({*map(plain_id, wanted)}, plain_id)
            known = {*map(normalize_answer, questions)} - {""}
            self._questions = [] if self._ids else self._with_values(known, lambda value: normalize_answer(str(value)))
        keys = [*self._ids, *self._questions]
        others = [name for name in self.names if name not in keys]
        if not self._golds:
            self._ask_about_outcomes(others)
        there = f"there are: {cut_list(self.names)}"
        if (not self._golds and len(others) > 1) or not others:
            options = " or ".join(f"--column {quoted(f'golds={name}')}" for name in others[:_NAMED])
            remedy = f"{options} names it" if self._can_be_named and others else "Call the column that has them gold"
            raise SchemaError(f"{self._path}: no column has gold answers; {there}. {remedy}")
        if not keys:
            shown = ", ".join(map(repr, wanted[:_LISTED_IDS]))
            raise SchemaError(
                f"{self._path}: no column has ids or questions of the run, such as {shown}; {there}. {_IDS_OF_FILE}"
            )
        self._golds = self._golds or others
        self._found = f", {self._golds[0]!r} by {keys[0]!r}"
        self._read()

    def _ask_about_outcomes(self, names: Collection[str]) -> None:
        """Raise if the values of a column are all outcomes, such as true and false, and no column is named like gold answers."""
        for name in names:
            said = {
                str(item.values[name]).strip().lower() for item in self._records if item.values.get(name) is not None
            }
            if not (said <= _TRUE_OR_FALSE or (said <= _ONE_OR_NONE and plain_name(name) in OUTCOME_NAMES)):
                continue
            file = quoted(os.path.relpath(self._path))
            choices: Choices = {
                f"--outcomes {file}": (
                    {"outcomes": str(self._path), "golds": None},
                    f"{name!r} says which runs succeeded",
                )
            }
            if self._can_be_named:
                choices |= in_options(of_columns({"golds": name}, f"{name!r} is the right answer to each question"))
            raise UnsettledError(
                f"{self._path.name}: {name!r} has {' and '.join(sorted(said))} alone: is it the outcome of each run?",
                "options",
                choices,
            )

    def _with_values(self, wanted: set[str], form: Callable[[Any], str]) -> list[str]:
        """Find the column with the most wanted values; return a list with its name, or an empty list.

        At least half of the column's values must be wanted, or the column must contain at least half of the wanted values.
        """
        known = {
            name: {form(item.values[name]) for item in self._records if item.values.get(name) is not None}
            for name in self.names
            if name not in self._golds
        }
        found = {name: len(values & wanted) for name, values in known.items()}
        names = [name for name, n in found.items() if n and 2 * n >= min(len(known[name]), len(wanted))]
        return sorted(names, key=lambda name: -found[name])[:1]

    def of(self, question_id: str, cluster: str, question: str) -> tuple[str, ...] | None:
        """Return the gold answers of a trajectory and count the match; None if the file has no gold answers for it."""
        golds = self._by_id.get(question_id) or self._by_id.get(cluster)
        way = "id"
        if golds is None and question:
            golds, way = self._by_text.get(normalize_answer(question)), "text"
        if golds is None:
            golds, way = (
                self._by_plain_id.get(plain_id(question_id)) or self._by_plain_id.get(plain_id(cluster)),
                _PLAIN,
            )
        self._n += 1
        self._asked = self._asked or question
        self._ways[way] += golds is not None
        listed = [self._first, self._missing] if golds is None else [self._first]
        for ids in listed:
            if len(ids) <= _LISTED_IDS:
                ids.append(question_id)
        return golds

    def note(self) -> str:
        """Return a note on the number of trajectories with gold answers; raise if no trajectory has gold answers."""
        matched = sum(self._ways.values())
        if not matched:
            texts = [next(iter(self._by_text), ""), self._asked]
            asked = f"; the file asks {texts[0]!r:.60}, the run {texts[1]!r:.60}" if all(texts) else ""
            raise DataError(
                f"{self._path}: no question of the run is in it; the run has the ids "
                f"{', '.join(map(repr, self._first[:_LISTED_IDS]))}, ..., the file "
                f"{', '.join(map(repr, list(self._by_id)[:_LISTED_IDS])) or 'none'}, ...{asked}. {_IDS_OF_FILE}"
            )
        how = " and ".join(f"{count} by {way}" for way, count in self._ways.items() if count)
        n = counted(self._n, "trajectory", "trajectories")
        note = f"gold answers of {self._path.name}{self._found}: {matched} of {n} matched ({how})"
        if self._missing:
            more = ", ..." if len(self._missing) > _LISTED_IDS else ""
            note += f"; missing for {', '.join(map(repr, self._missing[:_LISTED_IDS]))}{more}"
        return note


def settle_named_golds(columns: dict[str, str], names: Collection[str], joined: Collection[str]) -> None:
    """Resolve the column of gold answers that the user names.

    If the column contains objects with a single field, this field is used instead.  If only the joined file has the column, it is
    removed from `columns`.

    Args:
        columns: The columns that the user named, by this library's names; changed in place.
        names: The columns of the log.
        joined: The columns of the file that is joined.

    Raises:
        SchemaError: A file is joined, and neither this file nor the log has the column.
    """
    golds = columns.get("golds")
    if not golds:
        return
    within = [name for name in names if golds not in names and name.startswith(f"{golds}.")]
    if len(within) == 1:
        columns["golds"] = within[0]
    own = {golds, golds.rpartition(":")[0]} - {""}
    if within or not joined or not own.isdisjoint(names):
        return
    if own.isdisjoint(joined):
        raise SchemaError(
            f"no column {golds!r} (for 'golds'); in the log there are: {cut_list(names)}; in the file of gold answers: {cut_list(sorted(joined))}"
        )
    del columns["golds"]


def _records(path: Path) -> tuple[list[Record], list[str]]:
    """Return the rows of a file of gold answers and the names of its columns; fields of objects have dotted names."""
    records = [replace(item, values=dict(_fields(item.values))) for item in records_of(path)]
    return records, column_names(records)


def _fields(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a record; fields of objects, such as `inputs` and `outputs`, have dotted names (`inputs.question`)."""
    for name, value in values.items():
        own = value.items() if isinstance(value, Mapping) else ()
        yield from ((f"{name}.{key}", item) for key, item in own)
        yield from () if own else ((name, value),)


def _by(
    records: list[Record], keys: list[str], columns: list[str], normalise: Callable[[str], str]
) -> dict[str, tuple[str, ...]]:
    """Return the gold answers for each key, such as a question's id.

    A row's gold answers come from the first of `columns` that is not empty in the row.  Raise if rows with the same key have
    different gold answers.
    """
    result: dict[str, tuple[str, ...]] = {}
    forms = {name: gold_form([item.values.get(name) for item in records], [None] * len(records)) for name in columns}
    for item in records:
        value = next((item.values[name] for name in keys if item.values.get(name) is not None), None)
        listed = (gold_texts(_cell(item.values, name), item.where, form=forms[name]) for name in columns)
        golds = next(filter(None, listed), ())
        if value is None or not golds:
            continue
        own = normalise(str(value))
        if result.setdefault(own, golds) != golds:
            raise DataError(f"{item.where}: {value!r:.60} has other gold answers here than before: {golds!r:.80}")
    return result


def _cell(values: Mapping[str, object], name: str) -> object:
    value = values.get(name)
    return str(value).lower() if isinstance(value, bool) else value


def says_lists(answers: Sequence[Any], golds: Sequence[Any]) -> bool:
    """Return whether a gold answer in brackets is one answer, namely a list, because some answers are in brackets, too.

    Return False if all gold answers are in brackets and hardly any answers are: each gold answer is then a list of alternatives.
    """
    said, right = ([str(value).lstrip()[:1] == "[" for value in own if value is not None] for own in (answers, golds))
    return any(said) and not (right and all(right) and sum(said) <= FEW * len(said))


def are_single_texts(answers: Sequence[Any], golds: Sequence[Any]) -> bool:
    """Return whether each answer is a list of exactly one text, as in logs of OpenAI Evals, and no gold answer is a list."""
    known = [value for value in answers if value is not None]
    is_single = bool(known) and all(isinstance(value, list) and isinstance(only_text(value), str) for value in known)
    return is_single and not any(isinstance(value, list) for value in golds)


def are_lists(answers: Sequence[Any], golds: Sequence[Any]) -> bool:
    """Return whether all answers are lists.

    If all gold answers are lists, answers may be lists that are written as text.
    """
    known = [value for value in answers if value is not None]
    if known and all(isinstance(value, list) for value in known):
        return True
    right = [value for value in golds if value is not None]
    texts = known and all(isinstance(value, str) and value.lstrip()[:1] == "[" for value in known)
    return bool(texts and right) and all(isinstance(value, list) for value in right)
