"""Read corpora in their published forms, which are recognised by the content.

- JSON lines, each with one passage, which is not split.  The fields are ``id``, ``title`` and ``text``; only the text
  is required.  BEIR's ``_id``, ``title`` and ``text`` are read, too, and so are Pyserini's ``id`` and ``contents``,
  where the first line of the contents is the title.  The id may also be called ``docid``, ``doc_id``, ``pid`` or
  ``passage_id``.
- Tables with tabs between the fields: those of DPR have a heading ``id``, ``text``, ``title`` and quotes as in CSV;
  those of MS MARCO have id and text, without a heading.
- Folders with a ``corpus.jsonl``, or with files of one of these forms; every file may be gzipped.
- Data sets of the library `datasets`: a folder that the library saved, or ``hf:NAME[:CONFIG[:SPLIT]][@REVISION]``,
  which is streamed from the hub.  Their rows have the fields above.
- Folders of text and Markdown documents, see `suffice_retrieval.indexes.documents`.
- Folders of an index, whose passages are read.

The library `datasets` is used only for its hub and for folders that it saved.  Other files are read by this module.  It
reads 100,000 passages as JSON lines in 0.9 s of processor time and 46 MB.  With `datasets` 5.2 this takes 3.0 s, 317 MB
and a cached copy of 52 MB, and error messages do not name a line.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from suffice.common.files import decoded, json_lines, unpacked
from suffice.common.identities import sha256_of
from suffice.errors import DataError, MissingExtraError, NotFoundError
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes.documents import Decoding, corpus_files, documents, log_skipped, read_documents
from suffice_retrieval.indexes.passages import PASSAGE_WORDS
from suffice_retrieval.indexes.storage import is_index, open_passages
from suffice_retrieval.question_sets.sources import PASSAGE_IDS, PASSAGE_TEXTS

HUB = "hf:"
"""The prefix of the name of a data set on the hub."""

_Placed = Iterator[tuple[str, Passage]]
"""Passages, each with its place for messages."""

_EXPECTED = (
    "an object with a string 'text' (id, title, text), with BEIR's _id and text, or with Pyserini's id and contents"
)


@dataclass(frozen=True, slots=True)
class _RowForm:
    """A form of rows with named fields.

    Attributes:
        name: The form's name.
        id: The field with the id of a passage.
        text: The field with the text of a passage.
        needs_id: True if each row must have an id.
    """

    name: str
    id: str = "id"
    text: str = "text"
    needs_id: bool = True


_OWN = _RowForm("JSON lines of id, title and text", needs_id=False)
_BEIR = _RowForm("BEIR", id="_id")
_CONTENTS = "contents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A corpus whose form is known.

    Attributes:
        name: The path or name of the corpus, for messages.
        form: The name of its form, for messages.
        placed: Function that yields the passages, each with its place (such as file and line) for messages; it may be
            called several times.
        source: Function that returns a hash of the corpus's content and of the settings for reading it.
        has_own_ids: True if the ids come from the corpus itself, so that an id may repeat.
    """

    name: str
    form: str
    placed: Callable[[], _Placed]
    source: Callable[[], str]
    has_own_ids: bool = True

    def passages(self) -> Iterator[Passage]:
        """Yield its passages.

        Raises:
            DataError: There is no passage, or an id repeats; repeats are detected only after the last passage.  See
                `read_corpus`.
        """
        hashes = array("q")  # hashes of ids, since millions of texts would take gigabytes
        for _, passage in self.placed():
            hashes.append(hash(passage.passage_id))
            yield passage
        if not hashes:
            raise DataError(f"{self.name}: there are no passages: nothing in it has a text")
        if self.has_own_ids:
            self._check_distinct(hashes)

    def _check_distinct(self, hashes: array[int]) -> None:
        values = np.frombuffer(hashes, np.int64)
        values.sort()
        repeated = set(values[1:][values[1:] == values[:-1]].tolist())
        first: dict[str, str] = {}
        for where, passage in self.placed() if repeated else ():
            name = passage.passage_id
            if hash(name) not in repeated:
                continue
            if name in first:
                file, _, line = first[name].rpartition(", ")
                place = line if where.startswith(f"{file}, ") else first[name]
                raise DataError(f"{where}: id {name!r} was already used on {place}; each passage needs its own id")
            first[name] = where


def corpus_of(path: str | Path, errors: Decoding = "skip") -> Corpus:
    """Open a corpus by its path or its name on the hub, and recognise its form; the module's docstring lists the forms.

    Raises:
        NotFoundError: There is no such file or folder.
        DataError: The form is not known, or files of several forms are mixed.
        MissingExtraError: The corpus needs the library `datasets`, which is not installed.
    """
    if str(path).startswith(HUB):
        return _hub(str(path))
    path = Path(path)
    if is_index(path):
        return Corpus(
            name=str(path),
            form="an index",
            placed=lambda: ((f"{path}, passage {i}", passage) for i, passage in enumerate(open_passages(path)[0])),
            source=lambda: open_passages(path)[1],
            has_own_ids=False,
        )
    if not path.exists():
        raise NotFoundError(
            f"the corpus {str(path)!r} does not exist; give a folder of .txt and .md files, a file of passages (.jsonl or .tsv, "
            "also .gz), a folder of them, hf:NAME, or an index of `suffice index`"
        )
    if not path.is_dir():
        return _of_files([path], None, errors)
    if (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file():
        return _saved(path)
    whole = [path / name for name in ("corpus.jsonl", "corpus.jsonl.gz") if (path / name).is_file()]
    files = whole[:1] or sorted(file for file in corpus_files(path) if _ending(file) in {".jsonl", ".tsv"})
    texts = documents(path)
    if texts and not (files and _is_of_passages(files[0], errors)):
        log_skipped(path)
        return Corpus(
            name=str(path),
            form="documents",
            placed=lambda: ((passage.passage_id, passage) for passage in read_documents(path, errors)),
            source=lambda: _hash_of(texts, path, errors),
            has_own_ids=False,
        )
    if texts and not whole:
        raise DataError(
            f"{path}: contains passages ({files[0].name}) and documents ({texts[0].relative_to(path)}); give the file of "
            "passages, or move one of them to a folder of its own"
        )
    if not files:
        raise DataError(f"{path}: the folder contains no .txt or .md file, and no .jsonl or .tsv file of passages")
    return _of_files(files, path, errors)


def _ending(file: Path) -> str:
    """Return the ending of a file name in lower case, ignoring `.gz`."""
    return Path(file.name.lower().removesuffix(".gz")).suffix


def _is_of_passages(file: Path, errors: Decoding) -> bool:
    try:
        next(_of_files([file], None, errors).placed(), None)
    except DataError:
        return False
    return True


def _hash_of(files: list[Path], root: Path | None, errors: Decoding) -> str:
    digest = hashlib.sha256(f"1 {errors} {PASSAGE_WORDS}".encode())
    for file in files:
        name = "" if root is None else file.relative_to(root).as_posix()
        digest.update(json.dumps([name, sha256_of(file).hex()]).encode())
    return digest.hexdigest()


def _of_files(files: list[Path], root: Path | None, errors: Decoding) -> Corpus:
    """Return a corpus of files that all have one form, which is recognised by the first line."""
    handling = "strict" if errors == "skip" else errors
    nothing = files[0], b""
    file, first = next(((file, line) for file in files for line in unpacked(file) if line.strip()), nothing)
    start = decoded(first, f"{file}, line 1", errors=handling).rstrip("\r\n")
    fields = start.split("\t")
    if not first or start.lstrip()[:1] in {"{", "["}:
        form = _row_form(next(iter(json_lines(file, _EXPECTED, errors=handling)), ("", {"text": ""})))
        name = form.name
        read: Callable[[Path], _Placed] = partial(_read_lines, form=form, errors=handling)
    elif fields == ["id", "text", "title"]:
        name, read = "DPR tsv", partial(_read_dpr, errors=handling)
    elif len(fields) == len(("id", "text")):
        name, read = "tsv of id and text", partial(_read_pairs, errors=handling)
    else:
        raise DataError(
            f"{file}, line 1: {start!r:.80} is not a passage; expected {_EXPECTED}; DPR's heading id, text, title; or id and "
            "text with a tab between them"
        )
    return Corpus(
        name=str(root or files[0]),
        form=name,
        placed=lambda: (pair for file in files for pair in read(file)),
        source=lambda: _hash_of(files, root, errors),
    )


def _row_form(placed: tuple[str, Mapping[str, Any]]) -> _RowForm:
    """Return the form of the first row."""
    where, row = placed
    if "text" in row and "contents" in row:
        raise DataError(
            f"{where}: has 'text' and 'contents', and only one of them can be the passage; remove the other"
        )
    if "id" in row and "_id" in row and row["id"] != row["_id"]:
        raise DataError(f"{where}: has an 'id' and another '_id'; remove one of them")
    name = next((name for name in PASSAGE_IDS if name in row), "id")
    if isinstance(row.get(_CONTENTS), str):
        return _RowForm("Pyserini", id=name, text=_CONTENTS)
    if isinstance(row.get("text"), str):
        known = {"id": _OWN, "_id": _BEIR}
        return known.get(name) or _RowForm(f"JSON lines of {name}, title and text", id=name)
    raise DataError(f"{where}: got {dict(row)!r:.80}; expected {_EXPECTED}")


def _read_lines(file: Path, form: _RowForm, errors: str) -> _Placed:
    for where, row in json_lines(file, _EXPECTED, errors=errors):
        yield where, _row_passage(row, int(where.rpartition(" ")[2]), where, form)


def _row_passage(row: Mapping[str, Any], number: int, where: str, form: _RowForm) -> Passage:
    text, title = row.get(form.text), row.get("title")
    name = row.get(form.id) if form.needs_id else row.get(form.id, number)
    if not isinstance(text, str):
        raise DataError(f"{where}: got {dict(row)!r:.80}; expected an object with a string {form.text!r} ({form.name})")
    if isinstance(name, bool) or not isinstance(name, str | int) or not isinstance(title, str | None):
        raise DataError(
            f"{where}: {form.id} is {name!r:.40}, title is {title!r:.40}; expected strings ({form.id} may be a number)"
        )
    if form.text == _CONTENTS and not title:
        title, text = title_and_text(text)
    # Use the id as a missing title, so that prompts name every passage.
    return Passage(passage_id=str(name), title=title or str(name), text=text)


def title_and_text(contents: str) -> tuple[str, str]:
    r"""Return the title and the text in Pyserini's ``contents``; if there are several lines, the first is the title.

    >>> title_and_text('"Oslo"\nA city.'), title_and_text("A city.")
    (('Oslo', 'A city.'), ('', 'A city.'))
    """
    title, has_title, text = contents.partition("\n")
    return (title.strip().strip('"'), text) if has_title else ("", contents)


def _table_rows(file: Path, errors: str, columns: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    for number, raw in enumerate(unpacked(file), start=1):
        where = f"{file}, line {number}"
        fields = decoded(raw, where, errors=errors).rstrip("\r\n").split("\t")
        if fields == [""]:
            continue
        if len(fields) != len(columns) or not fields[0].strip():
            raise DataError(
                f"{where}: {len(fields)} fields ({fields!r:.60}); expected {', '.join(columns)} with tabs between them"
            )
        yield where, fields


def _read_dpr(file: Path, errors: str) -> _Placed:
    for where, fields in islice(_table_rows(file, errors, ("id", "text", "title")), 1, None):
        name, text, title = (_unquoted(field, where) for field in fields)
        yield where, Passage(passage_id=name, title=title or name, text=text)


def _unquoted(field: str, where: str) -> str:
    """Remove CSV quotes from a field, if there are any."""
    if not field.startswith('"'):
        return field
    inner = field[1:-1].replace('""', "")
    if len(field) == 1 or not field.endswith('"') or '"' in inner:
        raise DataError(f"{where}: {field!r:.60} begins with a quote that does not end; expected quotes as in CSV")
    return field[1:-1].replace('""', '"')


def _read_pairs(file: Path, errors: str) -> _Placed:
    for number, (where, (name, text)) in enumerate(_table_rows(file, errors, ("id", "text"))):
        if number or name not in PASSAGE_IDS or text not in PASSAGE_TEXTS:  # else a heading
            yield where, Passage(passage_id=name, title=name, text=text)


def _saved(folder: Path) -> Corpus:
    """Return the corpus of a folder that the library `datasets` saved."""
    library = _datasets(str(folder))
    try:
        loaded = library.load_from_disk(str(folder))
    except Exception as error:  # the type depends on the file that is missing or damaged
        raise DataError(
            f"{folder} could not be read as a data set that the library datasets saved ({type(error).__name__}: {error}): save "
            "it again, or give its file of passages"
        ) from error
    if hasattr(loaded, "keys"):
        splits = ", ".join(str(folder / name) for name in loaded)
        raise DataError(f"{folder} contains several splits; give one of them: {splits}")
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return _of_rows(str(folder), loaded, lambda: _hash_of(files, folder, "strict"))


def _hub(name: str) -> Corpus:
    """Return the corpus of a data set on the hub."""
    place, _, revision = name.removeprefix(HUB).partition("@")
    place, _, rest = place.partition(":")
    config, _, split = rest.partition(":")
    library = _datasets(name)
    try:
        builder = library.load_dataset_builder(place, config or None, revision=revision or None)
        splits = list(
            builder.info.splits or library.get_dataset_split_names(place, config or None, revision=revision or None)
        )
        if not split and len(splits) == 1:
            split = splits[0]
        if split in splits:
            rows = library.load_dataset(place, config or None, split=split, revision=revision or None, streaming=True)
    except Exception as error:
        raise DataError(
            f"{name} could not be read: {type(error).__name__}: {error}. Give hf:NAME:CONFIG:SPLIT@REVISION as the hub names "
            "them, and check the connection; or download its files and give their folder"
        ) from error
    if split not in splits:
        listed = ", ".join(f"{HUB}{place}:{config}:{item}" for item in splits)
        raise DataError(
            f"{name}: no split {split!r}; give one of {listed}" if split else f"{name} has several splits: {listed}"
        )
    described = json.dumps([place, builder.config.name, split, revision, str(builder.hash)])
    return _of_rows(name, rows, lambda: hashlib.sha256(described.encode()).hexdigest())


def _datasets(name: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError(
            f"a corpus that the library datasets reads ({name})", "datasets", "suffice-retrieval"
        ) from None
    return datasets


def _of_rows(name: str, rows: Any, source: Callable[[], str]) -> Corpus:
    """Return a corpus of rows; the rows must allow several iterations."""
    head = next(iter(rows), None)
    if head is None:
        raise DataError(f"{name}: no passages")
    form = _row_form((f"{name}, row 1", head))
    return Corpus(
        name=name,
        form=f"a data set of {form.id}, title and {form.text}"
        if form.text == "text"
        else f"a data set of {form.id} and {form.text}",
        placed=lambda: (
            (f"{name}, row {number}", _row_passage(row, number, f"{name}, row {number}", form))
            for number, row in enumerate(rows, start=1)
        ),
        source=source,
    )
