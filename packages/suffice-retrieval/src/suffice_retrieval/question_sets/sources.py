"""Read the rows of published question sets from files, folders or the hub, and recognise their form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from suffice.common.files import file_sha256
from suffice.common.tables import counted, cut_list
from suffice.errors import DataError, MissingExtraError, NotFoundError, SchemaError, UnsettledError
from suffice.importers.files.recognise import data_files
from suffice.importers.files.records import file_rows
from suffice.loops.retrieval.fields import object_of
from suffice.loops.retrieval.forms import QUESTION_FORMS, forms_of

PlacedRows = Iterator[tuple[str, dict[str, Any]]]
"""Rows, each with its place for messages."""

PASSAGE_IDS = ("id", "_id", "docid", "doc_id", "pid", "passage_id")
"""Fields with the id of a passage."""

PASSAGE_TEXTS = ("text", "contents", "passage")
"""Fields with the text of a passage."""

CORPUS_FORM = "corpus"
"""The name of the form of passages, without questions."""

OWN_FORM = "suffice"
"""The name of the form that `load_questions` describes."""

_ALL = "all"
_HUB_SHARD = re.compile(r"(?P<split>.+?)-\d{5}-of-(?P<total>\d{5})\.")
_SPLIT_NAMES = frozenset({"train", "validation", "valid", "val", "dev", "test"})
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_DATA_FILE = re.compile(r"\.(jsonl?|parquet|csv|tsv)(\.gz)?$")
_WITHOUT_SCRIPT = "refs/convert/parquet"
"""The revision in which the hub keeps sets whose authors wrote a script, which the library does not run any more."""

_HEAD = 100
"""The number of rows from which a form is recognised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSource:
    """The origin of a question set's rows.

    Attributes:
        name: The path, or the id on the hub.
        split: The split that was chosen; None if the source has a single split without a name.
        config: The configuration that was chosen; None if there is only one.
        revision: The revision on the hub; None for files.
        files: The files with their SHA-256; empty for the hub.
        dataset: The data set on the hub; None for files.
        only: Name of a split: only rows with this name in the field `split` are read; None to read all rows.
    """

    name: str
    split: str | None = None
    config: str | None = None
    revision: str | None = None
    files: tuple[Path, ...] = ()
    dataset: Any = None
    only: str | None = None

    def rows(self, form: str) -> PlacedRows:
        """Yield the rows in the order of the files; rows with the same claim of FEVER are joined."""
        rows = (pair for pair in self._all() if self.only is None or pair[1].get("split") == self.only)
        return _claims(rows) if form == "fever" else rows

    def _all(self) -> PlacedRows:
        for file in self.files:
            for where, row in file_rows(file, _document_rows):
                yield where, dict(row)
        for number, row in enumerate(self.dataset or (), start=1):
            yield f"{self.name}, row {number}", dict(row)

    def check_apart(self, out: Path) -> None:
        """Raise a `DataError` if the output would replace a file of the source."""
        if out.resolve() in {file.resolve() for file in self.files}:
            raise DataError(f"{str(out)!r} is a file of the source, which would be lost: write to another file")

    def to_dict(self) -> dict[str, Any]:
        """Return the source's entry in a card."""
        hashes = {file.name: file_sha256(file).hex() for file in self.files}
        fingerprint = getattr(self.dataset, "_fingerprint", None)
        known = {"split": self.split, "config": self.config, "revision": self.revision, "fingerprint": fingerprint}
        return {"name": self.name, "sha256": hashes, **{name: value for name, value in known.items() if value}}


def open_source(
    source: str | Path, *, split: str | None = None, config: str | None = None, revision: str | None = None
) -> QuestionSource:
    """Find the files or hub set of a question set.

    Args:
        source: A file, a folder of files, or the id of a set on the hub such as ``hotpotqa/hotpot_qa``.
        split: The split to read; needed if there are several.
        config: The configuration; needed if there are several.  It is a subfolder, or a name on the hub; ``all`` takes
            every subfolder.
        revision: The commit of a set on the hub, so that the rows stay the same.

    Raises:
        NotFoundError: There is no such file.
        UnsettledError: There are several splits or configurations, and none was chosen.
        MissingExtraError: The id of a set is given, and the library `datasets` is not installed.
        DataError: The hub has no such set, or cannot be reached.
    """
    path = Path(source)
    if path.exists():
        if revision is not None:
            raise DataError(f"a revision belongs to the id of a set on the hub, and {str(path)!r} is on this disk")
        return _source_files(path, split, config)
    if not _HUB_ID.fullmatch(str(source)) or _DATA_FILE.search(str(source)):
        raise NotFoundError(
            f"there is no file or folder {str(source)!r}; give one, or the id of a set on the hub, as hotpotqa/hotpot_qa"
        )
    return _hub(str(source), split, config, revision)


def _source_files(path: Path, split: str | None, config: str | None) -> QuestionSource:
    root = path if path.is_dir() else path.parent
    files, split, only = _of_split(path, root, split)
    shards: dict[str, list[Path]] = {}
    for file in files:
        if _HUB_SHARD.match(file.name):
            shards.setdefault(file.parent.relative_to(root).as_posix(), []).append(file)
    if config is None and len(shards) > 1:
        choices = {name: len(listed) for name, listed in shards.items()} | {_ALL: len(files)}
        raise _several("configurations", path, "config", choices)
    if config not in (None, _ALL):
        files = [file for file in files if config in file.relative_to(root).parts[:-1]]
        if not files:
            raise DataError(f"{path}: there is no folder {config!r} with such files; there are: {cut_list(shards)}")
    if path.is_dir():
        _check_shards(files)
    return QuestionSource(name=str(path), split=split, config=config, files=tuple(files), only=only)


def _check_shards(files: Sequence[Path]) -> None:
    """Raise if file names such as ``-00000-of-00002`` show that files of the set are missing."""
    shards = [(file, shard) for file in files if (shard := _HUB_SHARD.match(file.name)) is not None]
    sizes = Counter((file.parent, shard["split"], shard["total"]) for file, shard in shards)
    for (folder, name, total), n in sizes.items():
        if n < int(total):
            raise DataError(
                f"{folder}: {n} of the {int(total)} files of {name!r} are there: fetch the others, or give one file by its name"
            )


def _of_split(path: Path, root: Path, split: str | None) -> tuple[list[Path], str | None, str | None]:
    """Return the files of a split, the split's name, and the split by which rows must be filtered.

    Rows are filtered only if a split is requested and no file is named after a split; the last value is otherwise None.
    """
    by_split: dict[str, list[Path]] = {}
    for file in data_files(path):
        by_split.setdefault(_split_of(file.relative_to(root)), []).append(file)
    if split is None:
        if len(by_split) > 1:
            counts = {name or "(none)": len(listed) for name, listed in by_split.items()}
            raise _several("splits", path, "split", counts)
        split, files = next(iter(by_split.items()))
        return files, split or None, None
    if split in by_split:
        return by_split[split], split, None
    if [*by_split] == [""]:
        return by_split[""], split, split
    raise DataError(f"{path}: there is no split {split!r}; there are: {cut_list(sorted(filter(None, by_split)))}")


def _split_of(path: Path) -> str:
    """Return the split in a file's name or folder; empty if neither names a split.

    >>> [_split_of(Path(name)) for name in ("fullwiki/validation-00000-of-00002.parquet", "hotpot_dev_v1.json", "q.jsonl")]
    ['validation', 'dev', '']
    """
    shard = _HUB_SHARD.match(path.name)
    if shard is not None:
        return shard["split"]
    for part in reversed(path.parts):
        names = [word for word in re.split(r"[^a-z]+", part.lower()) if word in _SPLIT_NAMES]
        if names:
            return names[0]
    return ""


def _document_rows(path: Path, value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the questions of a JSON document.

    The document is a list of questions, a single question, or an object. An object contains either a list of questions,
    or questions by id.
    """
    if isinstance(value, dict):
        lists = [items for items in value.values() if isinstance(items, list) and items and isinstance(items[0], dict)]
        if len(lists) == 1 and not ("question" in value or forms_of(value)):
            value = lists[0]
        elif value and all(isinstance(item, dict) for item in value.values()):
            value = [{"id": key, **item} for key, item in value.items()]
        else:
            value = [value]
    if not isinstance(value, list | Iterator):
        raise SchemaError(
            f"{path} contains {value!r:.60}; expected a list of questions, or an object with one list of them"
        )
    for number, row in enumerate(value, start=1):
        yield f"{path}, item {number}", object_of(row, f"{path}, item {number}", "a question")


def _several(what: str, where: str | Path, parameter: str, counts: Mapping[str, int]) -> UnsettledError:
    choices = {f"--{parameter} {name}": (name, counted(n, "file") if n else "on the hub") for name, n in counts.items()}
    return UnsettledError(f"{where} contains several {what}", parameter, choices)


def _hub(name: str, split: str | None, config: str | None, revision: str | None) -> QuestionSource:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError(
            f"a question set by its id on the hub ({name})", "datasets", "suffice-retrieval"
        ) from None
    try:
        configs = datasets.get_dataset_config_names(name, revision=revision)
        config = _only_name(configs, config, "configurations", name)
        split = _only_name(datasets.get_dataset_split_names(name, config, revision=revision), split, "splits", name)
        rows = datasets.load_dataset(name, config, split=split, revision=revision)
    except UnsettledError:
        raise
    except Exception as error:
        own = (
            f" The hub may have a copy without its script: --revision {_WITHOUT_SCRIPT}."
            if "script" in str(error)
            else ""
        )
        raise DataError(
            f"{name} could not be read from the hub: {type(error).__name__}: {error}.{own} Check the id, --config, --split and "
            "the connection; or download its files and give their folder"
        ) from error
    return QuestionSource(name=name, split=split, config=config, revision=revision, dataset=rows)


def _only_name(names: Sequence[str], name: str | None, what: str, where: str) -> str:
    """Return the given name if it exists; without a given name, return the only existing name."""
    if name is None and len(names) != 1:
        raise _several(what, where, what.removesuffix("s").replace("uration", ""), dict.fromkeys(names, 0))
    return name or names[0]


def _claims(rows: Iterable[tuple[str, dict[str, Any]]]) -> PlacedRows:
    """Join the rows of one claim, since FEVER on the hub has a row for each piece of evidence."""
    for (_, claim), group in groupby(rows, key=lambda pair: (pair[1].get("id"), pair[1].get("claim"))):
        (where, first), *others = group
        if claim is None or "evidence_wiki_url" not in first:
            yield where, first
            yield from others
            continue
        pages = [row.get("evidence_wiki_url") for row in (first, *(row for _, row in others))]
        yield where, {**first, "evidence_wiki_url": [page for page in pages if isinstance(page, str) and page]}


def is_passage(row: Mapping[str, Any]) -> bool:
    """Return whether a row is a passage of a corpus: it has a text, it has an id or a title, and it has no question."""
    has_text = any(isinstance(row.get(name), str) for name in PASSAGE_TEXTS)
    named = any(name in row for name in (*PASSAGE_IDS, "title"))
    return has_text and named and not {"question", "query", "claim", "answer", "answers"} & row.keys()


def check_form(form: str) -> None:
    """Raise a `DataError` for a form that is not known."""
    if form not in (*QUESTION_FORMS, OWN_FORM, CORPUS_FORM):
        known = ", ".join((*QUESTION_FORMS, OWN_FORM, CORPUS_FORM))
        raise DataError(f"the form {form!r} is not known; there are: {known}")


def _check_alike(source: QuestionSource, form: str) -> None:
    """Raise if the first rows of a file do not have the form `form`, since answers would be read from the wrong fields."""
    for file in source.files:
        others = [forms_of(dict(row)) for _, row in islice(file_rows(file, _document_rows), _HEAD)]
        if form in QUESTION_FORMS and any(others) and not any(form in names for names in others):
            name = next(filter(None, others))[0]
            raise DataError(
                f"{file} has the fields of {QUESTION_FORMS[name].title}, and other files those of "
                f"{QUESTION_FORMS[form].title}: convert each set by itself"
            )


def form_of(source: QuestionSource) -> str:
    """Return the name of the form that the first rows have."""
    head = [row for _, (_, row) in zip(range(_HEAD), source.rows(""), strict=False)]
    kinds = Counter(tuple(forms_of(row)) or ((OWN_FORM,) if "question" in row else ()) for row in head)
    kinds.pop((), None)
    if not head:
        raise DataError(f"{source.name}: no rows to read")
    if not kinds and all(map(is_passage, head)):
        return CORPUS_FORM
    if not kinds:
        raise SchemaError(
            f"{source.name}: the fields {cut_list(sorted({*head[0]}))} are not those of a known form. Name the question's field "
            f"'question' and that of its gold answers 'answers', or say which form it is (--as): {', '.join(QUESTION_FORMS)}"
        )
    (names, n), *_ = kinds.most_common(1)
    if len(names) == 1 and 2 * n > kinds.total():
        _check_alike(source, names[0])
        return names[0]
    titles = {
        name: QUESTION_FORMS[name].title if name in QUESTION_FORMS else "fields of load_questions"
        for row in kinds
        for name in row
    }
    raise UnsettledError(
        f"{source.name}: the first rows have fields of {len(titles)} forms",
        "form",
        {f"--as {name}": (name, title) for name, title in titles.items()},
    )
