"""Convert published question sets to files for `suffice record`; samples and splits are drawn by hashes of texts."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast, get_args

from suffice._version import __version__
from suffice.common.files import check_file, replacing, write_file
from suffice.common.results import Result
from suffice.common.tables import Column, Table, counted, cut_list
from suffice.errors import DataError
from suffice.evaluation.statistics.units import hash_places
from suffice.loops.retrieval import Question, dataset_hash, text_id
from suffice.loops.retrieval.datasets import question_from
from suffice.loops.retrieval.forms import QUESTION_FORMS
from suffice.policy.seen import text_hash
from suffice_retrieval.question_sets.sources import (
    CORPUS_FORM,
    OWN_FORM,
    QuestionSource,
    check_form,
    form_of,
    open_source,
)

_CARD_FORMAT = "suffice-question-set"
_QUESTION_FILE = re.compile(r"\.jsonl(\.gz)?$")
_DIGITS = re.compile(r"\d+")
_VALUE = re.compile(r" (?:is|contains|found) .*")

_Units = Mapping[str, tuple[list[int], str]]
"""The rows and the type of each text, by the text's hash."""

Draw = Literal["hashed", "shuffled", "sampled"]
"""Ways to draw: by a hash of the texts, or with Python's generator over the rows in source order, as other programs do."""

_REPEATED_ID = "the id was already used by an earlier row"
_REPEATED_TEXT = "the text repeats an earlier row, and neither has an id"
_UNANSWERABLE = "the paragraphs do not answer it (answerable is false)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """The rows that were left out of the output for one reason."""

    reason: str
    n: int
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion(Result):
    """The result of converting a question set.

    Attributes:
        path: The file with the questions.
        card: A file next to it that describes the origin of the questions.
        form: The name of the question set's form.
        title: The name of the question set that has this form; empty if `load_questions` reads the questions without
            conversion.
        licence: The set's licence; empty if unknown.
        n_rows: Number of rows of the source.
        n_questions: Number of questions written.
        splits: Number of questions by split and type; a missing split or a missing type is "".
        unread: Rows that were left out, by reason; every such row has exactly one reason.
        data_hash: Hash of the questions, gold answers and passages; a recording of all questions contains it as
            `dataset`.
        notes: Caveats for the reader.
    """

    path: Path
    card: Path
    form: str
    title: str
    licence: str
    n_rows: int
    n_questions: int
    splits: Mapping[str, Mapping[str, int]]
    unread: tuple[Unread, ...]
    data_hash: str
    notes: tuple[str, ...] = ()

    def tables(self) -> Sequence[Table]:
        """Return the table of questions by split and type, and the table of rows that were not read."""
        kinds = sorted({kind for counts in self.splits.values() for kind in counts})
        questions = Table(
            title=f"Questions of {self.title}" if self.title else "Questions",
            columns=(Column("split"), Column("questions", "d"), *(Column(kind, "d") for kind in kinds if kind)),
            rows=tuple(
                (name or "all", sum(counts.values()), *(counts.get(kind, 0) for kind in kinds if kind))
                for name, counts in self.splits.items()
            ),
        )
        unread = Table(
            title="Rows that were left out",
            columns=(Column("why"), Column("rows", "d"), Column("first")),
            rows=tuple((item.reason, item.n, item.first) for item in self.unread),
        )
        return [questions, unread] if self.unread else [questions]


def convert_questions(
    source: str | Path | QuestionSource,
    out: str | Path,
    *,
    form: str | None = None,
    sample: int | None = None,
    splits: Mapping[str, int] | None = None,
    seed: int = 0,
    draw: Draw = "hashed",
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    passages: bool = True,
) -> Conversion:
    """Write a published question set as JSON lines, with a card next to it that describes its origin.

    `load_questions` and `suffice record` read the file.  A sample is drawn by the hash of the questions' texts.  So it
    does not depend on the order of the source, and questions with the same text are in one split.  If questions have
    types, each split keeps the shares of the types.  The lines of a sample are in the order of the draw, so that its
    first lines are a smaller sample.

    Args:
        source: A file, a folder, the id of a set on the hub, or a result of `open_source`.
        out: The questions, a file that ends in ``.jsonl`` or ``.jsonl.gz``.
        form: A name in `suffice.loops.retrieval.forms.QUESTION_FORMS`, or ``suffice``; None to recognise it.
        sample: Number of texts to draw; None for all.
        splits: Number of texts of each split by name, in the order in which they are drawn.
        seed: Seed of the draw.
        draw: `hashed` draws as described above.  The others repeat another program's draw from the rows in the order of
            the source: `shuffled` takes the first rows after ``random.Random(seed).shuffle``; `sampled` takes
            ``random.Random(seed).sample``.
        split: The split of the source to read.
        config: The configuration of the source.
        revision: The commit of a set on the hub.
        passages: True to write the passages; False to write only the titles of supporting passages.

    Raises:
        DataError: A file cannot be read, no row can be read, or there are fewer questions than requested.
        SchemaError: The form is not recognised.
        UnsettledError: The form, the split or the configuration is ambiguous.
        MissingExtraError: The id of a set is given, and the library `datasets` is not installed.
    """
    path = check_file(out)
    if not _QUESTION_FILE.search(path.name):
        raise DataError(f"{str(path)!r}: questions are written as JSON lines; end the name in .jsonl or .jsonl.gz")
    sizes = _draw_sizes(sample, splits)
    if draw not in get_args(Draw):
        raise DataError(f"draw is {draw!r}; allowed: {', '.join(get_args(Draw))}")
    if draw != "hashed" and not sizes:
        raise DataError(f"draw is {draw!r}, and nothing is drawn: give a sample or splits")
    if form is not None:
        check_form(form)
    origin = (
        source
        if isinstance(source, QuestionSource)
        else open_source(source, split=split, config=config, revision=revision)
    )
    origin.check_apart(path)
    conversion = _converted(origin, form or form_of(origin), path, sizes, seed, draw=draw, passages=passages)
    drawn: dict[str, Any] = {"sample": sum(sizes.values()), "splits": sizes, "seed": seed} if sizes else {}
    if draw != "hashed":
        drawn["draw"] = draw
    card = _card(conversion, origin, drawn, passages=passages)
    write_file(conversion.card, json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    return conversion


def _converted(
    origin: QuestionSource, form: str, path: Path, sizes: Mapping[str, int], seed: int, *, draw: Draw, passages: bool
) -> Conversion:
    """Read a source twice: first draw the questions, then write them."""
    if form == CORPUS_FORM:
        raise DataError(
            f"{origin.name} contains passages and no questions: suffice_retrieval.indexes.convert_corpus converts it"
        )
    reading = _SourceReading(origin, form)
    units = reading.units()
    order, names = _drawn_rows(units, sizes, seed, origin.name, draw=draw) if sizes else ([], {})
    writer = _LineWriter(names, with_passages=passages)
    with _packed_lines(path) as file:
        questions = reading.questions({i for unit in order for i in unit} if sizes else None)
        data_hash = dataset_hash(writer.write(file, _in_drawn_order(questions, order) if sizes else questions))
    if sizes and draw == "hashed":
        writer.note_draw(sum(sizes.values()), has_types=any(kind for _, kind in units.values()))
    elif sizes:
        writer.note_python_draw(names, units, left_out=reading.n_left_out)
    known = QUESTION_FORMS.get(form)
    return Conversion(
        path=path,
        card=path.with_name(f"{_QUESTION_FILE.sub('', path.name)}.card.json"),
        form=form,
        title=known.title if known else "",
        licence=known.licence if known else "",
        n_rows=reading.n_rows,
        n_questions=writer.n,
        splits={name: dict(counts) for name, counts in writer.counts.items()},
        unread=reading.unread(),
        data_hash=data_hash,
        notes=(*reading.notes(), *writer.all_notes()),
    )


def _card(conversion: Conversion, source: QuestionSource, draw: Mapping[str, Any], *, passages: bool) -> dict[str, Any]:
    values = conversion.to_dict()
    home = QUESTION_FORMS[conversion.form].home if conversion.form in QUESTION_FORMS else ""
    own = ("form", "title", "licence", "n_rows", "n_questions", "splits", "unread", "data_hash", "notes")
    return {
        "format": _CARD_FORMAT,
        "version": 1,
        "suffice": __version__,
        "source": source.to_dict(),
        "home": home,
        **{name: values[name] for name in own if values[name] or name == "licence"},
        "passages": passages,
        "drawn": draw,
    }


def _draw_sizes(sample: int | None, splits: Mapping[str, int] | None) -> dict[str, int]:
    """Return the number of texts to draw for each split; a sample without splits has the name ""."""
    sizes = dict(splits or {})
    if any(n < 1 or not name.strip() for name, n in sizes.items()) or (sample is not None and sample < 1):
        raise DataError("a sample and each split need a size of at least 1, and a split a name")
    if sample is not None and sizes and sum(sizes.values()) != sample:
        raise DataError(
            f"the splits have {sum(sizes.values())} questions in all, and the sample {sample}: leave one of them out"
        )
    return sizes or ({} if sample is None else {"": sample})


class _SourceReading:
    """Reads the rows of a source as questions, and counts unreadable rows.

    The source is read twice, so that only drawn questions are in memory.
    """

    def __init__(self, source: QuestionSource, form: str) -> None:
        self._source, self._form = source, form
        self._reasons: dict[str, Unread] = {}
        self._unused: Counter[str] = Counter()
        self._left_out: set[int] = set()
        self.n_rows = 0

    def units(self) -> _Units:
        """Return, for each distinct question text, the rows with this text and the type of the question.

        Rows that cannot be used are left out and counted.
        """
        units: dict[str, tuple[list[int], str]] = {}
        ids: set[str] = set()
        for i, (where, row) in enumerate(self._source.rows(self._form)):
            self.n_rows += 1
            try:
                question = self._question(row, where, self._unused)
            except DataError as error:
                self._count(i, where, str(error).removeprefix(where).lstrip(":, "))
                continue
            if row.get("answerable") is False:
                self._count(i, where, _UNANSWERABLE)
            elif question.question_id in ids:
                is_derived = question.question_id == text_id(question.question)
                self._count(i, where, _REPEATED_TEXT if is_derived else _REPEATED_ID)
            else:
                ids.add(question.question_id)
                units.setdefault(text_hash(question.question), ([], question.type or ""))[0].append(i)
        if not units:
            reason = next(iter(self._reasons.values()), None)
            why = f"; the first, {reason.first}: {reason.reason}" if reason else ""
            raise DataError(f"{self._source.name}: none of its {counted(self.n_rows, 'row')} is a question{why}")
        return units

    def questions(self, wanted: set[int] | None) -> Iterator[tuple[int, Question]]:
        """Yield the questions in the wanted rows; with None, in all readable rows."""
        for i, (where, row) in enumerate(self._source.rows(self._form)):
            if (wanted is None or i in wanted) and i not in self._left_out:
                yield i, self._question(row, where, Counter())

    @property
    def n_left_out(self) -> int:
        """Number of rows that could not be read as questions."""
        return len(self._left_out)

    def unread(self) -> tuple[Unread, ...]:
        return tuple(sorted(self._reasons.values(), key=lambda item: -item.n))

    def notes(self) -> list[str]:
        if not self._unused:
            return []
        unused = cut_list(f"{name} ({n:,})" for name, n in sorted(self._unused.items()))
        return [f"unused fields, with the number of rows that have them: {unused}"]

    def _question(self, row: dict[str, Any], where: str, unused: Counter[str]) -> Question:
        own = row if self._form == OWN_FORM else QUESTION_FORMS[self._form].convert(row, where)
        return question_from(own, where, unused)

    def _count(self, i: int, where: str, reason: str) -> None:
        self._left_out.add(i)
        kind = _DIGITS.sub("", _VALUE.sub("", reason))
        before = self._reasons.get(kind, Unread(reason=reason, n=0, first=where))
        self._reasons[kind] = Unread(reason=before.reason, n=before.n + 1, first=before.first)


def _drawn_rows(
    units: _Units, sizes: Mapping[str, int], seed: int, source: str, *, draw: Draw
) -> tuple[list[list[int]], dict[int, str]]:
    """Draw questions; return their rows in the order of the draw, and the split of each row."""
    n, rows = sum(sizes.values()), sorted(i for listed, _ in units.values() for i in listed)
    there, what = (len(units), " with different texts") if draw == "hashed" else (len(rows), "")
    if n > there:
        raise DataError(f"{source}: {n:,} questions were asked for, and there are {there:,}{what}; ask for fewer")
    owners = [name for name, size in sizes.items() for _ in range(size)]
    if draw == "hashed":
        return _draw(units, owners, seed)
    generator = random.Random(seed)  # noqa: S311 - to draw what another program drew
    if draw == "shuffled":
        generator.shuffle(rows)
        chosen = rows[:n]
    else:
        chosen = generator.sample(rows, n)
    return [[i] for i in chosen], dict(zip(chosen, owners, strict=True))


def _draw(units: _Units, owners: Sequence[str], seed: int) -> tuple[list[list[int]], dict[int, str]]:
    """Draw one text for each entry of `owners`, which are names of splits.

    The n texts of each type are sorted by hash, and the k-th text gets the place (k + 1/2) / n.  Then all texts are
    sorted by place, so that any range of texts keeps the shares of the types.  Return the rows in the order of the
    draw, and the split of each row.
    """
    keys = [*units]
    hashes = dict(zip(keys, hash_places(keys, salt=f"{seed}:").tolist(), strict=True))
    by_type: dict[str, list[str]] = {}
    for key, (_, kind) in units.items():
        by_type.setdefault(kind, []).append(key)
    places = {}
    for listed in by_type.values():
        for k, key in enumerate(sorted(listed, key=lambda key: (hashes[key], key))):
            places[key] = ((k + 0.5) / len(listed), hashes[key], key)
    order = sorted(keys, key=places.__getitem__)[: len(owners)]
    names = {i: name for key, name in zip(order, owners, strict=True) for i in units[key][0]}
    return [units[key][0] for key in order], names


def _in_drawn_order(
    questions: Iterable[tuple[int, Question]], order: Sequence[Sequence[int]]
) -> Iterator[tuple[int, Question]]:
    by_row = dict(questions)
    for rows in order:
        for i in rows:
            yield i, by_row[i]


class _LineWriter:
    """Writes the lines of the output, and counts questions for the summary and its notes."""

    def __init__(self, names: Mapping[int, str], *, with_passages: bool) -> None:
        self._names, self._with_passages = names, with_passages
        self.n = self._bare = self._pools = 0
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in dict.fromkeys(names.values())}
        self.notes: list[str] = []

    def write(self, file: IO[bytes], questions: Iterable[tuple[int, Question]]) -> Iterator[Question]:
        """Write each question; yield the question as `load_questions` will read it."""
        for i, item in questions:
            split = self._names.get(i) or item.split
            line = _line(item, split, with_passages=self._with_passages)
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            self.n += 1
            self._bare += not item.answers
            self._pools += bool(item.passages)
            self.counts.setdefault(split or "", Counter())[item.type or ""] += 1
            yield question_from(line, "", Counter())

    def note_draw(self, n_texts: int, *, has_types: bool) -> None:
        """Add notes on a draw of `n_texts` texts."""
        if self.n > n_texts:
            again = counted(self.n - n_texts, "question")
            self.notes.append(
                f"{again} more than the {n_texts:,} asked for: texts that repeat under another id stay together"
            )
        if not has_types:
            self.notes.append("the questions have no types, so the sample is not stratified")

    def note_python_draw(self, names: Mapping[int, str], units: _Units, *, left_out: int) -> None:
        """Add notes if a draw by Python's generator may differ from another program's, or if splits share texts."""
        if left_out:
            rows = counted(left_out, "row was", "rows were")
            self.notes.append(f"{rows} left out before the draw: another program may have drawn from them, too")
        several = sum(len({names[i] for i in rows if i in names}) > 1 for rows, _ in units.values())
        if several:
            self.notes.append(f"{counted(several, 'text is', 'texts are')} in several splits: the draw is by rows")

    def all_notes(self) -> list[str]:
        """Return all caveats about the questions."""
        bare = (
            [f"{counted(self._bare, 'question')} without a gold answer: EM and F1 will be unknown"]
            if self._bare
            else []
        )
        without = self.n - self._pools
        if without and self._with_passages:
            bare.append(f"{counted(without, 'question')} without passages: record with --corpus")
        return [*bare, *self.notes]


def _line(item: Question, split: str | None, *, with_passages: bool) -> dict[str, Any]:
    """Return a question as a line, without its empty fields."""
    paragraphs = [
        {"title": passage.title, "text": passage.text, "is_supporting": passage.passage_id in item.supporting}
        for passage in (item.passages if with_passages else ())
    ]
    inside = {paragraph["title"] for paragraph in paragraphs if paragraph["is_supporting"]}
    line: dict[str, Any] = {
        "id": item.question_id,
        "question": item.question,
        "answers": list(item.answers),
        "type": item.type,
        "level": item.level,
        "split": split,
        "supporting_titles": sorted(item.supporting_titles - inside),
        "paragraphs": paragraphs,
    }
    return {name: value for name, value in line.items() if value not in (None, "", [])}


@contextmanager
def _packed_lines(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write lines to, which replaces `path` once it is complete.

    Equal lines give equal bytes, also in compressed files.
    """
    with replacing(path) as temporary, temporary.open("wb") as raw:
        if path.name.endswith(".gz"):
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
                yield cast("IO[bytes]", packed)
        else:
            yield raw
