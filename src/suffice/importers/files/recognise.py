"""Recognise the format of a file or folder by the beginning of the content, not by file names.

Each importer has a test for its format (see `suffice.importers.importers`).  A file that no test accepts is a table.
"""

from __future__ import annotations

import codecs
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from suffice.common.files import decoded, disk_fault, quoted, unpacked
from suffice.common.json_text import array_items, cut_document, values_in
from suffice.common.tables import cut_list
from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.importers.files.literals import load_record
from suffice.importers.files.sources import SQLITE, database_form, refuse_pickle, unzipped
from suffice.importers.words.names import words
from suffice.recordings.schema import META_KEY

_START = 1 << 16
_PIECE = 1 << 20
LARGE_DOCUMENT = 1 << 23
"""Above this size, the items of a JSON array are read one by one."""

_PARQUET, _ZIP = b"PAR1", b"PK\x03\x04"
_IGNORED_NAMES = (".", "_", "~")
_SIDE_FILES = words(
    ".import.json .rounds .rounds-wal .rounds-shm .sqlite .db .lock .tmp .md .rst .txt.license .py .sh "
    ".html .png .pdf .svg .toml .yaml .yml .ipynb"
)
_SIDE_NAMES = words(
    "license licence licenses licences notice readme changelog copying config configuration settings args "
    "hparams metadata gold golds gold_answers ground_truth references"
)
_BESIDE_ARTIFACTS = frozenset({"params", "metrics", "tags"})
OF_RUN = "meta.yaml"
"""The file that MLflow writes into the folder of each run."""

_DATA_FILES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
_OWN_FORMAT = re.compile(rb'\s*\{\s*"format":\s*"suffice')


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of a file, used to recognise its format.

    Attributes:
        path: The file.
        form: `json` (one document), `jsonl`, `parquet`, `zip`, `sqlite`, `duckdb` or `text`.
        record: The first object: a JSON document, the first object of a list, or the first JSON line; empty for
        other forms.
        names: Names of columns (parquet), members (zip) or fields of the first object.
        text: The first characters of a text.
        metadata: Keys of a parquet file's metadata.
        cut: Whether the end of a JSON document is missing.
    """

    path: Path
    form: str
    record: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    text: str = ""
    metadata: frozenset[str] = frozenset()
    cut: bool = False

    def has(self, *names: str) -> bool:
        """Return whether the file has columns, members or fields of all these names."""
        return set(names) <= set(self.names)

    @property
    def item(self) -> Mapping[str, Any]:
        """The first object of the file or, if this is a page of an API, the first item of its list."""
        for name in ("data", "spans", "runs", "traces", "post"):
            listed = self.record.get(name)
            if isinstance(listed, list) and listed and isinstance(listed[0], dict):
                return listed[0]
        return self.record


OF_AGENTS = "of_agents"
"""The attribute of a test that accepts transcripts of agents."""

_Tests = Mapping[str, Callable[[Head], bool]]


def recognise(path: str | Path, tests: _Tests, of_traces: _Tests, elsewhere: str = "") -> str:
    """Return the format of a file, or the common format of a folder's files.

    Args:
        path: The file or folder.
        tests: Tests by format; at most one may accept the file.
        of_traces: Tests of trace formats, tried in this order if no other test accepts the file.
        elsewhere: End of the message about an unknown format, with the formats that other packages read.

    Raises:
        NotFoundError: There is no such file, or no file in the folder.
        SchemaError: The format is unknown, the files of a folder have different formats, or the file is already a recording.
    """
    kinds: dict[str, Path] = {}
    files = data_files(path)
    heads, unread = heads_of([file for file in files if file.stat().st_size] or files)
    for head in heads:
        file = head.path
        if file == Path(path) and is_archive(head, tests, of_traces):
            with TemporaryDirectory() as folder:
                return recognise(unzipped(file, Path(folder)), tests, of_traces, elsewhere)
        kinds.setdefault(_kind_of(head, tests, of_traces, elsewhere), file)
    of_agents = [kind for kind in kinds if getattr(tests.get(kind), OF_AGENTS, False)]
    if len(of_agents) == 1 and kinds.keys() <= {of_agents[0], "tabular"}:
        return of_agents[
            0
        ]  # reports, indexes and damaged files lie beside transcripts; their importer says what it leaves out
    if unread:
        raise next(iter(unread.values()))
    if kinds.keys() == {"tabular"}:
        _refuse_other_files(Path(path), heads)
    if len(kinds) > 1:
        several = cut_list(f"{kind} ({file.name})" for kind, file in kinds.items())
        raise SchemaError(
            f"{path} contains files of several formats: {several}; import each format from a folder of its own, or file by file"
        )
    return next(iter(kinds))


def _refuse_other_files(folder: Path, heads: Sequence[Head]) -> None:
    """Raise if one subfolder has several tables with the same columns, and all files outside it have other columns."""
    heads = [head for head in heads if not is_beside_run(head.path)]
    groups: dict[Path, list[Head]] = {}
    for head in heads:
        groups.setdefault(head.path.parent, []).append(head)
    alike = {
        place: own
        for place, own in groups.items()
        if place != folder and len(own) > 1 and len({_columns_of(head) for head in own}) == 1 and _columns_of(own[0])
    }
    if len(alike) != 1 or len(groups) == 1:
        return
    (place, own), *_ = alike.items()
    others = [head.path for head in heads if head.path.parent != place]
    if all(_columns_of(head) != _columns_of(own[0]) for head in heads if head.path in others):
        shown = cut_list(str(other.relative_to(folder)) for other in others)
        raise SchemaError(
            f"{folder} contains files of several kinds: {len(own)} tables with the same columns in {place.relative_to(folder)}, and "
            f"{shown}. Import the tables alone: suffice import {quoted(place)}"
        )


def _columns_of(head: Head) -> frozenset[str]:
    """Return the column names of a table, or the fields of its first record; empty for a text without columns."""
    if head.form != "text":
        return frozenset(head.names)
    first, *_ = head.text.splitlines() or [""]
    return frozenset(re.split(r"[,;\t|]", first)) if re.search(r"[,;\t|]", first) else frozenset()


def is_beside_run(file: Path) -> bool:
    """Return whether a file is a parameter, metric or tag of an MLflow run: such files are stored beside the artifacts of the run."""
    return file.parent.name in _BESIDE_ARTIFACTS and (file.parent.parent / OF_RUN).is_file()


def is_archive(head: Head, *tests: _Tests) -> bool:
    """Return whether a file is a zip archive of data files; formats that are zip files themselves do not count."""
    if head.form != "zip" or any(test(head) for group in tests for test in group.values()):
        return False
    paths = [(name, Path(name).parts) for name in head.names if not name.endswith("/")]
    own = [name for name, parts in paths if not _is_hidden(parts) and not _is_beside(parts)]
    return bool(own) and all(name.removesuffix(".gz").endswith(_DATA_FILES) for name in own)


def _kind_of(head: Head, tests: _Tests, of_traces: _Tests, elsewhere: str) -> str:
    if META_KEY.decode() in head.metadata:
        raise SchemaError(f"{head.path} is a recording already: suffice decide {quoted(head.path)}")
    if str(head.record.get("format", "")).startswith("suffice"):
        raise SchemaError(f"{head.path} is a file that Suffice wrote ({head.record['format']}), not a log of rounds")
    if head.form == "zip" and head.has("[Content_Types].xml"):
        raise SchemaError(f"{head.path} is a workbook of Excel: save the sheet as CSV (UTF-8), and import that")
    claims = [name for name, test in tests.items() if test(head)]
    if len(claims) > 1:
        raise SchemaError(
            f"{head.path} may be in the formats {' and '.join(map(repr, claims))}, whose importers both recognise it: choose "
            "one with --kind"
        )
    claims = claims or [name for name, test in of_traces.items() if test(head)]
    if not claims and head.form == "zip":
        raise SchemaError(
            f"{head.path}: the format is not known (zip with {', '.join(head.names[:8])}; unpack it, and import its folder); choose "
            f"one with --kind, or convert it to CSV or JSON lines with one row for each question and round{elsewhere}"
        )
    return claims[0] if claims else "tabular"


def data_files(path: str | Path) -> list[Path]:
    """Return the file itself, or all data files of a folder and its subfolders, sorted by name (`round_9` before `round_10`).

    Hidden files, files that projects keep beside their data, and files that this library wrote are left out.

    Raises:
        NotFoundError: There is no file or folder of that name, or no data file in the folder.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise NotFoundError(f"there is no file or folder {str(path)!r}")
    files = _files_by_use(path)
    if not files[True]:
        others = f" beside {', '.join(file.name for file in files[False][:5])}" if files[False] else ""
        raise NotFoundError(f"the folder {str(path)!r} contains no data files{others}")
    return files[True]


def left_out(path: str | Path) -> list[Path]:
    """Return the files of a folder that `data_files` leaves out, except hidden ones; empty for a single file."""
    return _files_by_use(Path(path))[False] if Path(path).is_dir() else []


def _files_by_use(folder: Path) -> dict[bool, list[Path]]:
    """Return the files of a folder, without hidden ones: data files under True, others under False."""
    result: dict[bool, list[Path]] = {True: [], False: []}
    for file in sorted(folder.rglob("*"), key=lambda file: [*map(_name_order, file.relative_to(folder).parts)]):
        parts = file.relative_to(folder).parts
        if file.is_file() and not _is_hidden(parts):
            result[not (_is_beside(parts) or _is_ours(file))].append(file)
    return result


def _is_hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(_IGNORED_NAMES) for part in parts)


def _is_beside(parts: Sequence[str]) -> bool:
    """Return whether a path in a folder looks like a file that projects keep beside their data."""
    return parts[-1].endswith(_SIDE_FILES) or any(Path(part).stem.lower() in _SIDE_NAMES for part in parts)


def _name_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that compares the numbers in names as numbers.

    >>> sorted(["round_10", "round_9", "round_1"], key=_name_order)
    ['round_1', 'round_9', 'round_10']
    """
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts)] + [(-2, name)]


def _is_ours(file: Path) -> bool:
    """Return whether a file is a recording, a policy, a decision or another file of this library."""
    try:
        with file.open("rb") as opened:
            start = opened.read(64)
    except OSError:  # its reader says what is wrong
        return False
    if start.startswith(_PARQUET):
        try:
            return META_KEY.decode() in _parquet_head(file).metadata
        except SchemaError:  # its reader says what is wrong
            return False
    return _OWN_FORMAT.match(start) is not None


def heads_of(files: Iterable[Path]) -> tuple[list[Head], dict[Path, DataError]]:
    """Return the heads of the readable files, and the errors of the others."""
    heads, unread = [], {}
    for file in files:
        try:
            heads.append(head_of(file))
        except DataError as error:
            unread[file] = error
    return heads, unread


def head_of(path: Path) -> Head:
    """Return the head of a file."""
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE))
    except OSError as error:
        raise disk_fault(path, error) from error
    if start.startswith(_PARQUET):
        return _parquet_head(path)
    if start.startswith(_ZIP):
        return _zip_head(path)
    if database_form(start):
        return Head(path=path, form=database_form(start))
    refuse_pickle(path, start)
    start = next(unpacked(path, _START), b"")
    if not start.strip():
        raise SchemaError(f"{path} is empty")
    text = decoded(_whole_characters(start), str(path), errors="replace")  # readers report bytes that are not UTF-8
    if text.lstrip()[:1] not in ("{", "["):
        return Head(path=path, form="text", text=text)
    if is_large_array(path, text):
        record: Mapping[str, Any] = next((item for item in json_array(path) if isinstance(item, dict)), {})
        return Head(path=path, form="json", record=record, names=tuple(record), text=text)
    form, record, cut = _first_object(path)
    return Head(path=path, form=form, record=record, names=tuple(record), text=text, cut=cut)


def is_large_array(path: Path, text: str) -> bool:
    """Return whether a file is a large JSON array of objects, to be read item by item; `text` is the beginning of the file."""
    return path.stat().st_size >= LARGE_DOCUMENT and re.match(r"\s*\[\s*\{", text) is not None


def in_one_piece(head: Head) -> bool:
    """Return whether a file is a large JSON document that must be read as a whole."""
    is_large = head.form == "json" and head.path.stat().st_size >= LARGE_DOCUMENT
    return is_large and not is_large_array(head.path, head.text)


def json_array(path: Path) -> Iterator[Any]:
    """Yield the items of a JSON array, gzipped or not; only one piece of the file is in memory at a time."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    number = 0
    try:
        for number, item in enumerate(array_items(map(decoder.decode, unpacked(path, _PIECE))), start=1):  # noqa: B007
            yield item
    except ValueError as error:
        raise DataError(f"{path}: not JSON after record {number} ({error})") from error


def json_document(path: Path) -> Any:
    """Return the value of a document in JSON or Python syntax; several objects in a row become a list."""
    text = decoded(b"".join(unpacked(path)), str(path))
    try:
        return load_record(text)
    except ValueError as error:
        with suppress(ValueError):
            objects = [*values_in(text)]  # several objects, as jq prints them
            if len(objects) > 1 and all(isinstance(item, dict) for item in objects):
                return objects
        raise DataError(f"{path}: not JSON ({error})") from error


def _first_object(path: Path) -> tuple[str, Mapping[str, Any], bool]:
    """Return the form (`jsonl` or `json`) of a file, its first object, and whether a JSON document is truncated."""
    lines = (line for line in unpacked(path) if line.strip())
    first = decoded(next(lines), f"{path}, line 1")
    try:
        value = load_record(first)
    except ValueError:
        value, cut = _first_value(path)
    else:
        cut = False
        if next(lines, None) is not None:
            return "jsonl", value if isinstance(value, dict) else {}, cut
    items = value if isinstance(value, list) else [value]
    return "json", next((item for item in items if isinstance(item, dict)), {}), cut


def _first_value(path: Path) -> tuple[Any, bool]:
    """Return a JSON document, or the first of several in a row (as OpenTelemetry prints spans), and whether it is truncated."""
    text = decoded(b"".join(unpacked(path)), str(path))
    with suppress(ValueError):
        return next(values_in(text)), False
    try:
        return load_record(text), False
    except ValueError as error:
        value = cut_document(text)  # a transcript is read up to there; other readers report the missing end
        if value and isinstance(value, dict | list):
            return value, True
        raise DataError(f"{path}: not JSON ({error})") from error


def _whole_characters(start: bytes) -> bytes:
    """Drop the last character if only some of its bytes were read."""
    if len(start) < _START:
        return start
    for cut in range(1, 4):
        if start[-cut] >= 0xC0:  # noqa: PLR2004 - the first byte of a character of several bytes
            return start[:-cut]
        if start[-cut] < 0x80:  # noqa: PLR2004
            return start
    return start


def _parquet_head(path: Path) -> Head:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: cannot be read as parquet (corrupt or truncated?): {error}") from error
    keys = frozenset(key.decode(errors="replace") for key in schema.metadata or {})
    return Head(path=path, form="parquet", names=tuple(schema.names), metadata=keys)


def _zip_head(path: Path) -> Head:
    try:
        with zipfile.ZipFile(path) as archive:
            names = tuple(archive.namelist())
        refuse_pickle(path, b"", names)
        return Head(path=path, form="zip", names=names)
    except (zipfile.BadZipFile, OSError) as error:
        raise SchemaError(f"{path}: cannot be read as a zip file ({error}); fetch it again") from error
