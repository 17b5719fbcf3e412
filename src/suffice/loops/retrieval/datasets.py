"""Load questions with their candidate passages: bundled sets, JSON lines, and the forms of published sets.

A file of JSON lines has one question in each line, and is gzipped if its name ends in ``.gz``::

    {"id": "q1", "question": "Who ...?", "answers": ["..."], "type": "bridge", "level": "hard", "split": "dev",
     "paragraphs": [{"title": "...", "text": "...", "is_supporting": true}, ...]}

Only `question` is required.  The id may be a number; a missing id is derived from the text.  The field of the gold answers may
have any name in `GOLD_FIELDS`, and contains a text or a list.  ``"supporting_titles"`` may name pages of a corpus that contain
the evidence.
Unused fields are logged once per file.  Instead of this form, items may have any form in
`suffice.loops.retrieval.forms` (HotpotQA's, MuSiQue's, ...), which is recognised by the fields of the item.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from suffice.common.files import decoded, json_lines, unpacked
from suffice.common.json_text import array_items, well_formed
from suffice.data import BUNDLED_QUESTIONS
from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.loops.retrieval.fields import list_field, object_of, text_field
from suffice.loops.retrieval.forms import converted
from suffice.policy.metrics import normalize_answer
from suffice.policy.rounds import Passage

GOLD_FIELDS = (
    "answers",
    "golds",
    "gold",
    "gold_answers",
    "gold_answer",
    "golden_answers",
    "ground_truths",
    "ground_truth",
    "reference_answers",
    "reference_answer",
    "targets",
    "target",
    "answer",
)
"""Names of the gold answers in a question file; the first with a value is read.

`answer` comes last, since beside another such field it is the answer of a model.
"""

_IDS = ("id", "_id", "question_id", "qid")
_QUESTION_FIELDS = frozenset({*_IDS, "question", "type", "level", "split", "paragraphs", "supporting_titles"})

_QUESTIONS_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question with its gold answers and candidate passages.

    Attributes:
        question_id: An id that is unique in the question set; paired comparisons match questions by their ids.
        question: The question, without surrounding white space.
        answers: Gold answers; empty if unknown, which makes metrics NaN.
        passages: The question's own pool in the order of the file; empty if a corpus is searched instead.
            A passage's id is ``<question_id>#<position>``.
        type: Type in the data set (`bridge`, `comparison`); None if not given.
        level: Level in the data set (`easy`, `medium`, `hard`); None if not given.
        supporting: Ids of the passages with the gold evidence; empty if unknown.
        split: Split in the data set (`dev`, `test`); None if not given.
        supporting_pages: Titles of pages with the gold evidence, which need not be among the passages; empty if unknown.
        cluster: An id shared by all questions with the same meaning; empty = the question's own id.
    """

    question_id: str
    question: str
    answers: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    type: str | None = None
    level: str | None = None
    supporting: frozenset[str] = frozenset()
    split: str | None = None
    supporting_pages: frozenset[str] = frozenset()
    cluster: str = ""

    def __post_init__(self) -> None:
        for name in ("question_id", "question", "type", "level", "split"):
            object.__setattr__(self, name, well_formed(getattr(self, name)))
        object.__setattr__(self, "answers", tuple(map(well_formed, self.answers)))

    @property
    def supporting_titles(self) -> frozenset[str]:
        """Titles of the supporting passages and pages, for judging a corpus search."""
        titles = frozenset(item.title for item in self.passages if item.passage_id in self.supporting)
        return titles | self.supporting_pages


def bundled_path(name: str) -> Path:
    """Return the file of a bundled question set.

    Raises:
        DataError: The name is unknown.
    """
    if name not in BUNDLED_QUESTIONS:
        raise DataError(f"unknown bundled question set {name!r}; allowed: {', '.join(BUNDLED_QUESTIONS)}")
    return Path(str(files("suffice") / "data" / "questions" / f"{name}.jsonl.gz"))


def load_questions(spec: str | Path, *, limit: int | None = None, split: str | None = None) -> list[Question]:
    """Return the questions of a bundled set or of a file, in the order of the file.

    >>> questions = load_questions("hotpotqa_tune", limit=3)
    >>> len(questions), len(questions[0].passages), questions[0].answers
    (3, 10, ('British',))

    Args:
        spec: A name in `BUNDLED_QUESTIONS`, or a path that ends in ``.jsonl`` or ``.json`` (a published form), optionally
            followed by ``.gz``.
        limit: Largest number of questions from the start, at least 1; None for all.
        split: Return only questions of this split; None for all.

    Raises:
        DataError: The file is missing, not UTF-8 or truncated, has no question of the split, or contains an invalid
            question; the message names file and line.
        SchemaError: The file has another format.
    """
    return list(iter_questions(spec, limit=limit, split=split))


def iter_questions(spec: str | Path, *, limit: int | None = None, split: str | None = None) -> Iterator[Question]:
    """Yield the questions of `load_questions` one at a time."""
    if limit is not None and limit < 1:
        raise DataError(f"limit is {limit!r}; allowed: 1 or more, or None for all questions")
    path = bundled_path(spec) if isinstance(spec, str) and spec in BUNDLED_QUESTIONS else Path(spec)
    n = 0
    first_place: dict[str, str] = {}
    splits: dict[str, None] = {}
    unused: Counter[str] = Counter()
    for where, record in _read_questions(path):
        question = question_from(converted(record, where), where, unused)
        if question.question_id in first_place:
            origin = "" if _id(record, where) else " (derived from the text, because the question has no id)"
            raise DataError(
                f"{where}: question id {question.question_id!r}{origin} was already used at {first_place[question.question_id]}; "
                "each question needs a unique id, because ids pair questions across runs"
            )
        first_place[question.question_id] = where
        if question.split is not None:
            splits[question.split] = None
        if split is None or question.split == split:
            n += 1
            yield question
        if n == limit:
            break
    if not first_place:
        raise DataError(f"{path}: the file contains no questions; expected at least one")
    if unused:
        listed = ", ".join(f"{name} ({n})" for name, n in sorted(unused.items()))
        _QUESTIONS_LOG.warning("%s: unused fields, with the number of questions that have them: %s", path, listed)
    if not n:
        splits_in_it = f"splits in the file: {', '.join(map(repr, splits))}" if splits else "they are not split"
        raise DataError(f"{path}: no question has the split {split!r}; {splits_in_it}")


def text_id(text: str) -> str:
    """Return an id that is derived from a question's text: 12 hexadecimal digits of the hash of the normalised text.

    >>> text_id("Who made it?") == text_id("who made  it")
    True
    """
    return hashlib.sha256((normalize_answer(text) or text).encode()).hexdigest()[:12]


def dataset_hash(questions: Iterable[Question]) -> str:
    """Return 16 hexadecimal digits that identify the questions, gold answers and passages in this order."""
    digest = hashlib.sha256()
    for item in questions:
        digest_question(digest, item)
    return digest.hexdigest()[:16]


def digest_question(digest: Any, item: Question) -> None:
    """Add a question to a SHA-256 digest, for `dataset_hash`."""
    pool = [[passage.passage_id, passage.title, passage.text] for passage in item.passages]
    fields = [item.question_id, item.question, list(item.answers), item.type, item.level, sorted(item.supporting)]
    pages = item.supporting_pages - {passage.title for passage in item.passages}
    fields += [sorted(pages)] if pages else []
    digest.update(json.dumps([*fields, pool], ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")


def _read_questions(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each question as stored in the file, with its location for messages."""
    name = path.name.removesuffix(".gz")
    if not path.is_file():
        raise NotFoundError(
            f"the question file {str(path)!r} does not exist; give a path to .jsonl, .jsonl.gz or .json, or a bundled set: "
            f"{', '.join(BUNDLED_QUESTIONS)}"
        )
    if name.endswith(".jsonl"):
        return json_lines(path, "one question as one JSON object")
    if name.endswith(".json"):
        return _read_list(path)
    raise SchemaError(
        f"{path}: a question file ends in .jsonl (one question a line) or .json (HotpotQA's official download, or "
        "published scenarios), either with .gz behind it; rename or convert it"
    )


def _read_list(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    text = decoded(b"".join(unpacked(path)), str(path))
    if not text.lstrip().startswith("["):
        raise SchemaError(
            f"{path}: expected a JSON list of questions, HotpotQA's official form or published scenarios; got {text[:40]!r}"
        )
    # One object at a time: the official training file is a single line of half a gigabyte.
    items, number = array_items([text]), 0
    while True:
        number += 1
        where = f"{path}, item {number}"
        try:
            record = next(items)
        except StopIteration:
            return
        except ValueError as error:
            raise DataError(f"{where}: not JSON ({error}); the file may be truncated") from error
        yield where, object_of(record, where)


def question_from(record: dict[str, Any], where: str, unused: Counter[str]) -> Question:
    """Return the question of a record in the library's own form, and count its unused fields.

    Raises:
        DataError: A field is missing or has the wrong type; the message begins with `where`.
    """
    text = (text_field(record, "question", where, required=True) or "").strip()
    question_id = _id(record, where) or text_id(text)
    gold = next((name for name in GOLD_FIELDS if record.get(name) not in (None, "", [])), None)
    unused.update(
        name for name in record if name not in _QUESTION_FIELDS and name != gold and record[name] not in (None, "", [])
    )
    paragraphs = [
        object_of(item, f"{where}, paragraph {i}", "its title and text: {'text': ...}")
        for i, item in enumerate(list_field(record, "paragraphs", where))
    ]
    passages, supporting = [], set()
    for i, item in enumerate(paragraphs):
        location = f"{where}, paragraph {i}"
        passage_id = f"{question_id}#{i}"
        body = text_field(item, "text", location) or ""
        passages.append(Passage(passage_id=passage_id, title=text_field(item, "title", location) or "", text=body))
        if not isinstance(item.get("is_supporting", False), bool):
            raise DataError(f"{location}: is_supporting is {item['is_supporting']!r}; expected true or false")
        if item.get("is_supporting", False):
            supporting.add(passage_id)
    return Question(
        question_id=question_id,
        question=text,
        answers=() if gold is None else _gold_answers(record[gold], gold, where),
        passages=tuple(passages),
        type=text_field(record, "type", where),
        level=text_field(record, "level", where),
        supporting=frozenset(supporting),
        split=text_field(record, "split", where),
        supporting_pages=frozenset(_titles(record, where)),
    )


def _titles(record: dict[str, Any], where: str) -> list[str]:
    titles = list_field(record, "supporting_titles", where)
    if not all(isinstance(title, str) for title in titles):
        raise DataError(f"{where}: supporting_titles is {titles!r:.80}; expected a list of texts")
    return titles


def _id(record: dict[str, Any], where: str) -> str | None:
    """Return a record's id as text, even if it is a number; None if the record has no id."""
    name = next((name for name in _IDS if record.get(name) is not None), None)
    if name is None:
        return None
    value = _number_text(record[name])
    if not isinstance(value, str) or not value.strip():
        raise DataError(
            f"{where}: {name} is {value!r:.80}; expected a non-empty text or a whole number; or leave the id out"
        )
    return value


def _gold_answers(value: Any, name: str, where: str) -> tuple[str, ...]:
    listed = [_number_text(item) for item in (value if isinstance(value, list) else [value])]
    if not all(isinstance(item, str) for item in listed):
        raise DataError(
            f"{where}: {name} is {value!r:.80}; expected text or a number, or a list of these; write yes or no instead of "
            "true or false"
        )
    return tuple(listed)


def _number_text(value: Any) -> Any:
    """Convert a number to text (7.0 to 7).

    Other values stay unchanged, and so does NaN, which is not an answer.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return value
    return str(int(value)) if isinstance(value, int) or value.is_integer() else str(value)


class QuestionShare(list[Question]):
    """One process's share of a data set's questions, with the hash and number of all questions.

    >>> share = QuestionShare([Question(question_id=name, question="Who?") for name in "abc"], takes=lambda name: name != "b")
    >>> [question.question_id for question in share], share.places, share.dataset["questions"]
    (['a', 'c'], {'a': 0, 'c': 2}, 3)

    Args:
        questions: All questions, in order; the iterable is read once.
        takes: Returns True for the id of a question that belongs to the share.

    Attributes:
        places: The position of each taken question in the data set, from 0.
        dataset: The hash of all questions (see `dataset_hash`) and their number.
    """

    def __init__(self, questions: Iterable[Question], takes: Callable[[str], bool]) -> None:
        super().__init__()
        self.places: dict[str, int] = {}
        digest, n = hashlib.sha256(), 0
        for question in questions:
            digest_question(digest, question)
            if takes(question.question_id):
                self.append(question)
                self.places[question.question_id] = n
            n += 1
        self.dataset = {"hash": digest.hexdigest()[:16], "questions": n}


def load_share(
    spec: str | Path,
    takes: Callable[[str], bool],
    *,
    limit: int | None = None,
    split: str | None = None,
    change: Callable[[Question], Question] | None = None,
) -> QuestionShare:
    """Load a share of the questions of a bundled set or a file; see `load_questions`.

    Args:
        spec: The data set.
        takes: Returns True for the id of a question that belongs to the share.
        limit: Largest number of questions from the start of the set, before the share is taken; None for all.
        split: Use only questions of this split; None for all.
        change: Changes each question before it is recorded; None = keep it.
    """
    questions = iter_questions(spec, limit=limit, split=split)
    return QuestionShare(questions if change is None else map(change, questions), takes)
