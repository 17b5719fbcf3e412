"""Read the records of CSV, TSV, JSON, JSON lines and parquet files, gzipped or not, and of folders of them."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from suffice.common.files import PACKED, decoded, json_lines, unpacked
from suffice.common.tables import cut_list
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.importers.files.file_names import said_by_names
from suffice.importers.files.literals import as_json, load_record
from suffice.importers.files.recognise import (
    OF_RUN,
    data_files,
    head_of,
    is_beside_run,
    is_large_array,
    json_array,
    json_document,
)
from suffice.importers.words.choices import Choices, of_columns
from suffice.importers.words.names import (
    ANSWERS,
    GOLDS,
    IDS,
    QUESTIONS,
    is_round_name,
    numbered,
    plain_name,
    rounds_in_order,
    words,
)

_NOT_OF_JSON = ("timestamp", "date", "time", "decimal", "binary", "duration")
"""Words in the names of Arrow types whose values JSON cannot express."""

_PROSE = (
    "If it is prose, --pattern reads it by a regular expression: --pattern 'Q: (?P<question>.+)|Round (?P<round>[0-9]+): "
    "(?P<answer>.+)'"
)
_DELIMITERS = ",\t;|"
_CONTAINERS = words("records data results rows items entries questions examples trajectories runs logs")

_MOST_ROUNDS = 20
"""Longer lists under plural names, such as `preds` and `golds`, are columns of questions, and not the rounds of one."""

_OFFERED = 4
"""The most lists that a message offers as those of rounds."""

_ARTIFACTS = "artifacts"
_Key = TypeVar("_Key", bound=Hashable)

_OfDocument = Callable[[Path, Any], Iterator[tuple[str, Mapping[str, Any]]]]
"""Yields the rows of a JSON document from its value, each with its place for messages."""

ROUND_LISTS = words(
    "rounds steps iterations attempts trials drafts turns samples tries hops revisions refinements "
    "generations candidates choices trajectory history chat_history messages conversation conversations "
    "chat dialog dialogue"
)
"""Usual names of fields that contain the rounds of a question as a list, the clearest first."""


@dataclass(slots=True)  # not frozen: creating a frozen one takes four times as long, and there are millions
class Record:
    """One row of a table or one object of a JSON file.

    Attributes:
        where: File and line, for messages.
        file: The file's name in its folder without extension, which distinguishes files.
        number: The record's number among all records, from 1.
    """

    where: str
    file: str
    number: int
    values: Mapping[str, Any]

    def having(self, values: Mapping[str, Any]) -> Record:
        """Return the record with additional values, which take precedence."""
        return replace(self, values={**self.values, **values})


def column_names(records: Iterable[Record]) -> list[str]:
    """Return the column names of records or rows, in order of first appearance."""
    return [*dict.fromkeys(chain.from_iterable(item.values for item in records))]


def places_of(keys: Iterable[_Key]) -> dict[_Key, list[int]]:
    """Group the positions of rows by their key, such as the question, run or agent.

    >>> places_of(["a", "b", "a"])
    {'a': [0, 2], 'b': [1]}
    """
    result: dict[_Key, list[int]] = {}
    for place, key in enumerate(keys):
        result.setdefault(key, []).append(place)
    return result


def with_column(rows: Iterable[Record], name: str, cells: Iterable[Any]) -> list[Record]:
    """Return rows with a new column, or with new values of an existing one."""
    return [row.having({name: cell}) for row, cell in zip(rows, cells, strict=True)]


def records_of(path: Path, file_is: str | None = None, rounds: str | None = None) -> Iterator[Record]:
    """Yield the records of a file, or of all data files of a folder in the order of their names.

    Args:
        path: The file or folder.
        file_is: The meaning of file names, such as `round`; each record then gets a column `round`.  None = no such column.
        rounds: The field that the user names as the list of rounds.  A JSON document with this field is one record.  None = the
            fields of the document decide if it is one record.

    Raises:
        NotFoundError: There is no such file or folder, or no file in the folder.
        DataError: A file cannot be read; the message names file and line.
        SchemaError: A file is empty or not of a known kind, or its object contains several lists of records.
    """
    number = 0
    files = [file for file in data_files(path) if path in (file, file.parent) or not is_beside_run(file)]
    names = _file_names(path, files)
    said = said_by_names(path, names, file_is) if file_is is not None else {}
    for file, name in zip(files, names, strict=True):
        params = _params_of_run(file)
        for where, own in _rows_of(file, path, partial(_json_records, rounds=rounds, is_one_of=len(files) > 1)):
            number += 1
            values = {**params, **own} if params else own
            if said and not said[name].keys().isdisjoint(values):
                raise DataError(
                    f"{where}: there is a column {next(iter(said[name]))!r} already, so leave out --file-is {file_is}"
                )
            yield Record(where, name, number, {**said[name], **values} if said else values)


def _rows_of(file: Path, path: Path, of_document: _OfDocument) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a file; the error for a text without columns suggests a pattern only if the file is not in a folder."""
    try:
        yield from file_rows(file, of_document)
    except SchemaError as error:
        if file == path or not str(error).endswith(_PROSE):
            raise
        raise SchemaError(
            f"{file} is a text without columns, and the files of a folder are one table: move it out of {path}, or import the files that "
            "have columns one by one, or from a folder of their own"
        ) from None


def _params_of_run(file: Path) -> dict[str, str | None]:
    """Return the parameters of the MLflow run that has the file among its artifacts; empty if there is no such run."""
    run = _run_of(file)
    if run is None:
        return {}
    params = [own for own in sorted((run / "params").glob("*")) if own.is_file()]
    return {own.name: own.read_text("utf-8", errors="replace").strip() or None for own in params}


def _run_of(file: Path) -> Path | None:
    run = next((folder.parent for folder in file.parents if folder.name == _ARTIFACTS), None)
    return run if run is not None and (run / OF_RUN).is_file() else None


def empty_parameter(where: str, name: str) -> str:
    """Return a remark to append to an error if the parameter of an MLflow run has no value; else "".

    Args:
        where: The location of a record in the run's artifacts.
        name: The parameter.
    """
    run = _run_of(Path(where.rpartition(", ")[0]))
    file = Path() if run is None else run / "params" / name
    is_empty = file.is_file() and not file.read_text("utf-8", errors="replace").strip()
    return (
        f". The parameter file {file} is empty: write its value there, or take the run's folder out" if is_empty else ""
    )


def _file_names(path: Path, files: Sequence[Path]) -> list[str]:
    """Return the names of files within a folder, without extensions if all names are still different."""
    whole = [file.name if file == path else file.relative_to(path).as_posix() for file in files]
    bare = [(name.rpartition(".")[0] if name.endswith(PACKED) else name).rpartition("/") for name in whole]
    short = [f"{folder}{slash}{name.rpartition('.')[0] or name}" for folder, slash, name in bare]
    return short if len(set(short)) == len(short) else whole


def file_rows(path: Path, of_document: _OfDocument) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of one file, each with its place for messages.

    Args:
        path: The file.
        of_document: Yields the rows of a JSON document, given its value or, for a long list, an iterator of its items.

    Raises:
        DataError: The file cannot be read; the message names file and line.
        SchemaError: The file is empty or not of a known kind.
    """
    head = head_of(path)
    if head.form == "parquet":
        return parquet_rows(path)
    if head.form == "text":
        return csv_rows(path, max(_DELIMITERS, key=head.text.partition("\n")[0].count))
    if head.form == "jsonl":
        return json_lines(path, load=load_record)
    if head.form == "json":
        is_array = is_large_array(path, head.text)
        return of_document(path, json_array(path) if is_array else json_document(path))
    raise SchemaError(
        f"{path} is a {head.form} file; what is read is CSV, TSV, JSON, JSON lines or parquet: convert it"
    )


def csv_rows(path: Path, delimiter: str = ",") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a CSV file with a header, each with its place for messages; an empty field is None."""
    limit = csv.field_size_limit(sys.maxsize)  # a passage or draft may have a megabyte
    try:
        lines = (decoded(raw, f"{path}, line {number}") for number, raw in enumerate(unpacked(path), start=1))
        table = csv.reader(lines, strict=True, delimiter=delimiter)
        header = next(table, [])
        twice = next((name for name, n in Counter(header).items() if n > 1 and name), None)
        if twice is not None:
            raise DataError(
                f"{path}: two columns are called {twice!r}; rename one of them, or, if the first line is no header, put one above it, "
                f"such as id{delimiter}round{delimiter}answer{delimiter}gold"
            )
        if sum(map(bool, header)) == 1 < len(header) - 1:
            raise DataError(
                f"{path}: the first line names one of {len(header)} columns, {''.join(header)!r:.60}, so it may be a title: delete the "
                "lines above the names of the columns, and import the file again"
            )
        names = [name or "unnamed" for name in header]  # a data frame's index has no name
        several = names.count("unnamed") > 1
        for fields in filter(None, table):
            where = f"{path}, line {table.line_num}"
            if len(names) == len(fields) == 1:
                raise SchemaError(f"{path} is a text without columns. {_PROSE}")
            if len(fields) != len(names):
                hint = f". {_PROSE}" if path.suffix.lower() not in (".csv", ".tsv") else ""
                raise DataError(f"{where}: expected {len(names)} fields, as in the header{hint}")
            if (
                several
                and len(unnamed := [own for own, name in zip(fields, header, strict=True) if own and not name]) > 1
            ):
                raise DataError(
                    f"{where}: columns without a name have values, such as {unnamed[0]!r:.40} and {unnamed[1]!r:.40}. Name each in the first "
                    "line; if this line has the names, as below merged cells, write both into one line, such as 'round 1 answer'"
                )
            # An empty field is a missing value: CSV writes both in the same way.
            yield where, dict(zip(names, [field or None for field in fields], strict=True))
    except csv.Error as error:
        raise DataError(f"{path}: not CSV ({error}).") from error
    finally:
        csv.field_size_limit(limit)


def parquet_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a parquet file, each with its place for messages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        number, file = 0, pq.ParquetFile(path)
        has_other_types = any(word in str(kind) for kind in file.schema_arrow.types for word in _NOT_OF_JSON)
        for batch in file.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", as_json(row) if has_other_types else row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: cannot be read as parquet (corrupt or truncated?): {error}") from error


def _json_records(
    path: Path, value: Any, rounds: str | None = None, *, is_one_of: bool = False
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the records of a JSON document: a list of objects, an object with one such list, or an object whose values are records.

    Args:
        path: The file.
        value: Its JSON document.
        rounds: The list of rounds that the user names.
        is_one_of: Whether there are several files; then each document may be the record of one question.
    """
    shared: dict[str, Any] = {}
    if isinstance(value, dict) and (_are_objects(value.get(rounds or "")) or (is_one_of and _is_record(value))):
        value = [value]
    elif isinstance(value, dict):
        settings, value = _beside_settings(value)
        shared, value = _listed(path, value)
        shared = {**settings, **shared}
    if not isinstance(value, list | Iterator):
        raise DataError(f"{path} contains {value!r:.60}; expected an object or a list of objects")
    value = _of_lists(value) if isinstance(value, list) else value
    for number, record in enumerate(value, start=1):
        where = f"{path}, record {number}"
        item = {"rounds": record} if _are_objects(record) else record
        if not isinstance(item, dict):
            raise DataError(f"{where} is {item!r:.60}; expected an object, or a list of objects")
        yield where, {**shared, **item}


def _is_record(value: Mapping[str, Any]) -> bool:
    """Return whether a document is the record of one question: it has single values, and a short list of items without question ids."""
    lists = [name for name, items in value.items() if _are_objects(items)]
    if len(lists) != 1 or lists[0].lower() in _CONTAINERS or all(isinstance(v, list | dict) for v in value.values()):
        return False
    items = value[lists[0]]
    names = {plain_name(name) for item in items for name in item}
    return len(items) <= _MOST_ROUNDS and names.isdisjoint((*IDS, *QUESTIONS))


def _of_lists(value: list[Any]) -> list[Any]:
    """Return the records of a list of lists; without a header row, each list contains the answers to one question.

    >>> _of_lists([["id", "answer"], ["q1", "Oslo"]]), _of_lists([["Oslo", "Lima"], ["Rome", "Rome"]])
    ([{'id': 'q1', 'answer': 'Oslo'}], [{'answers': ['Oslo', 'Lima']}, {'answers': ['Rome', 'Rome']}])
    """
    if not value or not all(isinstance(row, list) and row and isinstance(row[0], str | int | float) for row in value):
        return value
    header = value[0]
    if all(isinstance(name, str) for name in header) and any(plain_name(name) in (*IDS, *ANSWERS) for name in header):
        return [dict(zip(header, row, strict=False)) for row in value[1:]]
    return [{"answers": answers} for answers in value]


def _beside_settings(value: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the single values of a document, such as settings, and its container of records by key (`{"results": {"q1": ...}}`).

    The container must be the only one and have a usual name; else return an empty object and the whole document.
    """
    inner = [item for name, item in value.items() if name.lower() in _CONTAINERS and isinstance(item, dict)]
    listed = [name for name in inner[0] if _are_objects(inner[0][name])] if len(inner) == 1 else []
    if {*map(str.lower, listed)} - {"prompts"} == {"results"} and not any(map(_are_objects, value.values())):
        name = next(name for name in listed if name.lower() == "results")
        return {}, {
            name: inner[0][name]
        }  # {"results": {"results": [...], "prompts": [...], "stats": ...}, "config": ...}
    settings = {name: item for name, item in value.items() if not isinstance(item, list | dict)}
    objects = [item for name, item in value.items() if name not in settings and name.lower() in _CONTAINERS]
    is_keyed = len(objects) == 1 == len(value) - len(settings) and isinstance(objects[0], dict) and len(objects[0]) > 1
    if settings and is_keyed and all(isinstance(item, dict | list) for item in objects[0].values()):
        return settings, objects[0]
    return {}, value


def _several_lists(path: Path, lists: Sequence[str], *, is_question: bool) -> DataError:
    """Return the error about a document with several lists of records; for one question, it asks which list contains the rounds."""
    several = f"{path} contains several lists of records: {cut_list(lists)}"
    if not is_question:
        return SchemaError(f"{several}; save the one with the rounds as a file of its own")
    if len(lists) > _OFFERED:
        return SchemaError(f"{several}; --column rounds=LIST names the one with the rounds")
    choices: Choices = {}
    for name in lists:
        choices |= of_columns({"rounds": name}, f"{name!r} has the rounds of one question")
    return UnsettledError(f"{several}: which has the rounds?", "columns", choices)


def _listed(path: Path, value: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return the fields that all records of a document share, and the list of records."""
    table = _data_frame(value)
    if table is None:
        table = _by_round(value)
    if table is not None:
        return {}, table
    lists = [name for name, items in value.items() if _are_objects(items)]
    scalars = {name: item for name, item in value.items() if not isinstance(item, list | dict)}
    rounds = [name for name in lists if name.lower() in ROUND_LISTS]
    if rounds and (scalars or rounds[0].lower() != "samples"):
        return {}, [value]  # one question with its rounds
    if (
        len(lists) > 1
        and len(lists) == len(value)
        and not any(name in item for name in IDS for item in value[lists[0]])
    ):
        return {}, [{"key": key, "rounds": items} for key, items in value.items()]
    if lists:
        named = [name for name in lists if name.lower() in _CONTAINERS] if len(lists) > 1 else lists
        if len(named) != 1:
            raise _several_lists(path, lists, is_question=bool(scalars))
        return scalars, value[named[0]]
    alone = {key: _only_item(item) for key, item in value.items()}
    value = alone if any(alone.values()) and _is_answers_by_id(alone) else value
    keyed = [(key, item) for key, item in value.items() if isinstance(item, dict | list)]
    if len(keyed) == len(value) > 1 or (keyed and not scalars and len(value) == 1 and isinstance(keyed[0][1], dict)):
        return {}, [
            {"key": key, **item}
            if isinstance(item, dict) and rounds_in_order(item) is None
            else {"key": key, "rounds": item}
            for key, item in keyed
        ]
    by_id = [{"key": key, "answer": answer} for key, answer in value.items()]
    return {}, by_id if _is_answers_by_id(value) else [dict(value)]


def _by_round(value: Mapping[str, Any]) -> list[Any] | None:
    """Return the records of a document whose keys are names of rounds, such as `round_1`; else None.

    Each round contains one object, with the answers by question id or with the answer to the only question.
    """
    rounds = rounds_in_order(value)
    if rounds is None or not all(isinstance(item, dict) for item in rounds) or all(key.isdecimal() for key in value):
        return None  # bare numbers as keys are ids, or an index
    keys = list(dict.fromkeys(chain(*rounds)))
    if any(plain_name(key) in ANSWERS for key in keys):
        return [{"rounds": rounds}]
    return [{"key": key, "rounds": [item[key] for item in rounds if key in item]} for key in keys]


def _only_item(value: Any) -> Any:
    """Return the only item of a list, None for an empty list, and any other value unchanged."""
    return next(iter(value), None) if isinstance(value, list) and len(value) <= 1 else value


def _is_answers_by_id(value: Mapping[str, Any]) -> bool:
    """Return whether a document maps several ids to answers (texts or numbers); a key named like a usual column is not an id."""
    usual = {*IDS, *ANSWERS, *QUESTIONS, *GOLDS}
    return (
        len(value) > 1
        and all(isinstance(item, str | int | float | None) for item in value.values())
        and not any(plain_name(key) in usual or is_round_name(key) or numbered(key) == ("", 1) for key in value)
    )


def _data_frame(value: Mapping[str, Any]) -> list[Any] | None:
    """Return the rows of a document that stores a data frame, for example column by column; None for other documents."""
    names, cells = value.get("columns"), value.get("data")
    if isinstance(names, list) and isinstance(cells, list) and all(isinstance(row, list) for row in cells):
        return [dict(zip(map(str, names), row, strict=False)) for row in cells]
    plurals = sum(plain_name(name).removesuffix("s") in (*ANSWERS, *QUESTIONS, *GOLDS) for name in value)
    is_plural = plurals > 1 and all(isinstance(item, list) and len(item) > _MOST_ROUNDS for item in value.values())
    if not (is_plural or any(plain_name(name) in (*IDS, *ANSWERS) or is_round_name(name) for name in value)):
        return None
    columns = list(value.values())
    if len(columns) > 1 and all(isinstance(column, dict) for column in columns):
        return [{name: column.get(row) for name, column in value.items()} for row in dict.fromkeys(chain(*columns))]
    if len(columns) > 1 and all(isinstance(column, list) for column in columns) and len(set(map(len, columns))) == 1:
        return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
    return None


def _are_objects(items: Any) -> bool:
    return isinstance(items, list) and bool(items) and all(isinstance(item, dict) for item in items)
