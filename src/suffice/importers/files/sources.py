"""Open sources that are not plain files of records: zip archives, SQLite and DuckDB databases, and prose.

A source is converted to plain files in a temporary folder.  A query selects the rows of a database, and a pattern the answers
of prose.  Nothing in a source is executed: databases are opened read-only, and pickles are refused.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any
from urllib.parse import quote

from suffice.common.files import decoded, disk_fault, quoted, unpacked
from suffice.errors import DataError, SchemaError, SufficeError, UnsettledError

SQLITE, DUCKDB, _DUCKDB_AT = b"SQLite format 3\x00", b"DUCK", 8
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PICKLED = (".pkl", ".pickle", ".joblib", ".pt", ".pth")
_MOST_BYTES, _MOST_TIMES, _SMALL = 1 << 34, 200, 1 << 26
_MOST_MEMBERS = 1 << 17
_ROWS = 10_000
_SHOWN = 8


def database_form(start: bytes) -> str:
    r"""Return `sqlite` or `duckdb` if the first bytes of a file are those of such a database; otherwise "".

    >>> database_form(b"SQLite format 3\x00"), database_form(b"qid,round")
    ('sqlite', '')
    """
    if start.startswith(SQLITE):
        return "sqlite"
    return "duckdb" if start[_DUCKDB_AT:].startswith(DUCKDB) else ""


def refuse_pickle(path: Path, start: bytes, members: Sequence[str] = ()) -> None:
    """Raise if a file is a pickle, or a zip file with a pickle as PyTorch writes it: reading a pickle executes its content."""
    in_zip = any(name.endswith("data.pkl") for name in members)
    if not in_zip and not _PICKLE.match(start) and path.suffix.lower() not in _PICKLED:
        return
    source, target = json.dumps(str(path)), json.dumps(str(path.with_suffix(".json")))
    module, load = "pickle", f"pickle.loads(pathlib.Path({source}).read_bytes())"
    if in_zip or path.suffix.lower() in (".pt", ".pth"):
        module, load = "torch", f"torch.load({source})"
    elif path.suffix.lower() == ".joblib":
        module, load = "joblib", f"joblib.load({source})"
    code = (
        f"import json, pathlib, {module}; v = {load}; "
        f'pathlib.Path({target}).write_text(v.to_json(orient="records") if hasattr(v, "to_json") else json.dumps(v, default=str))'
    )
    raise SchemaError(
        f"{path} is a pickle, which can run any code when it is read, so it is not read here. If you trust it, convert it: python "
        f"-c {quoted(code)}"
    )


def plain_source(
    path: Path,
    folder: Callable[[], Path],
    *,
    query: str | None,
    pattern: str | None,
    is_archive: Callable[[Path], bool],
) -> Path:
    """Return a file or folder with the records of a source.

    Archives, databases and prose are converted to plain files; any other source is returned as it is.

    Args:
        path: The source.
        folder: Creates an empty folder for plain files.
        query: The query whose rows are the records of a database; None = its only table.
        pattern: The regular expression that reads records from prose; see `prose_rows`.
        is_archive: Returns whether a zip file is an archive of data files, not a format of its own.

    Raises:
        DataError: An option does not fit the source, or a query or pattern cannot be used.
        SchemaError: An archive cannot be unpacked, or is too large.
        UnsettledError: There is no query, and the database has several tables.
    """
    start = b""
    if path.is_file():
        try:
            with path.open("rb") as file:
                start = file.read(len(SQLITE))
        except OSError as error:
            raise disk_fault(path, error) from error
    form = database_form(start)
    if query is not None and not form:
        raise DataError(
            f"{path} is not a SQLite or DuckDB database, so it takes no query; --where filters the rows of a log"
        )
    if form:
        rows = _sqlite_rows(path, query) if form == "sqlite" else _duckdb_rows(path, query)
        return _written(folder() / f"{path.name}.jsonl", rows)
    if pattern is not None:
        if not path.is_file() or start.startswith((b"PK", b"PAR1")):
            raise DataError(f"{path} is not a file of text, so it takes no pattern")
        return _written(folder() / f"{path.name}.jsonl", prose_rows(path, pattern))
    return unzipped(path, folder()) if start.startswith(b"PK\x03\x04") and is_archive(path) else path


def unzipped(path: Path, folder: Path) -> Path:
    """Unpack an archive into a new folder within `folder`, and return this new folder."""
    target = folder / path.name
    try:
        with zipfile.ZipFile(path) as archive:
            members = [item for item in archive.infolist() if not item.is_dir()]
            size, packed = sum(item.file_size for item in members), path.stat().st_size
            if len(members) > _MOST_MEMBERS or size > _MOST_BYTES or size > max(_SMALL, _MOST_TIMES * packed):
                raise SchemaError(
                    f"{path} has {len(members):,} files of {size / 1e6:,.0f} MB in {packed / 1e6:,.1f} MB, which may be a mistake: "
                    "unpack it yourself, and import the folder"
                )
            for item in members:
                archive.extract(item, target)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as error:
        raise SchemaError(f"{path}: cannot be unpacked ({error}); unpack it yourself, and import the folder") from error
    return target


def name_source(error: SufficeError, place: Path, path: Path) -> None:
    """Replace the path of the temporary folder in an error by the path of the source."""
    if place != path:
        hidden = str(place.parent / path.name)
        error.args = tuple(text.replace(hidden, str(path)) if isinstance(text, str) else text for text in error.args)
        if isinstance(error, UnsettledError):
            error.question = error.question.replace(hidden, str(path))


def single_rounds(path: Path, n_questions: int) -> SchemaError:
    """Return the error about a folder in which every question has one round and one run."""
    return SchemaError(
        f"{path}: read file by file, each of {n_questions:,} questions has one round, so that nothing can be stopped earlier. If several "
        "files answer the same questions, --file-is round, model or run says what a file is, and --column question_id=COLUMN by what "
        "the questions are the same"
    )


def _written(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    with file.open("w", encoding="utf-8") as sink:
        for row in rows:
            sink.write(json.dumps(row, ensure_ascii=False, default=_text) + "\n")
    return file


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _sqlite_rows(path: Path, query: str | None) -> Iterator[dict[str, Any]]:
    import sqlite3

    allowed = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as database:
            tables = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            query = query or _only_table(path, database, tables, [*_foreign_keys(database)])
            database.set_authorizer(
                lambda action, *_: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY  # also denies ATTACH
            )
            yield from _rows(path, database.execute(query))
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise DataError(f"{path}: the query cannot be run ({error}); it must be one SELECT") from error


def _duckdb_rows(path: Path, query: str | None) -> Iterator[dict[str, Any]]:
    try:
        import duckdb
    except ImportError:
        raise DataError(
            f"{path} is a DuckDB database, and duckdb is not installed: pip install duckdb, or export the table with COPY ... TO "
            "'rows.parquet' and import that"
        ) from None
    try:
        with closing(duckdb.connect(str(path), read_only=True, config={"enable_external_access": "false"})) as database:
            tables = "SELECT nullif(table_schema, 'main'), table_name FROM information_schema.tables"
            query = query or _only_table(path, database, tables)
            yield from _rows(path, database.execute(query))
    except duckdb.Error as error:
        raise DataError(f"{path}: the query cannot be run ({error}); it must be one SELECT") from error


def _joined(
    database: Any, tables: Sequence[str], declared: Collection[tuple[str, str, str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield queries that join two tables, and the names of both: each row of the first table refers to a row of the second.

    A row refers to another by a foreign key of the schema (`declared`), by a usual name (`question_id` for `questions`), or by a shared
    column that has unique values in the second table.
    """
    columns = {
        name: [item[0] for item in database.execute(f"SELECT * FROM {name} LIMIT 0").description]  # noqa: S608
        for name in tables
    }
    for many, one in permutations(columns, 2):
        keys = [(key, own) for of, key, to, own in declared if (of, to) == (many, one)]
        bare = one.rpartition(".")[2].strip('"')
        key = f"{bare.removesuffix('s')}_id"
        keys += [(key, own) for own in ("id", key) if key in columns[many] and own in columns[one]]
        if not keys:
            both = [name for name in columns[one] if name in columns[many]]
            keys = [(name, name) for name in both if _names_rows(database, many, one, _as_name(name))]
        for key, own in keys[:1]:
            more = "".join(f", {one}.{_as_name(name)}" for name in columns[one] if name not in columns[many])
            on = f"ON {many}.{_as_name(key)} = {one}.{_as_name(own)}"
            yield f"SELECT {many}.*{more} FROM {many} JOIN {one} {on}", f"{many} with {one}"  # noqa: S608


def _as_name(text: str) -> str:
    """Quote a name for SQL."""
    return '"' + text.replace('"', '""') + '"'


def _names_rows(database: Any, many: str, one: str, name: str) -> bool:
    """Return whether a column is unique in table `one` and repeats in table `many`, and each value in `many` also occurs in `one`."""
    n, n_values = _one_row(database, f"count({name}), count(DISTINCT {name}) FROM {one}")
    n_many, n_used = _one_row(database, f"count({name}), count(DISTINCT {name}) FROM {many}")
    if not 1 < n == n_values or n_many == n_used:
        return False
    return _one_row(database, f"count(*) FROM {many} WHERE {name} NOT IN (SELECT {name} FROM {one})") == (0,)  # noqa: S608


def _adds_columns(database: Any, query: str) -> bool:
    """Return whether a join only adds columns: it keeps each row of the first table once, and the second table is smaller."""
    joined = query.partition(" FROM ")[2]
    many, one = joined.partition(" ON ")[0].split(" JOIN ")
    sizes = [_one_row(database, f"count(*) FROM {name}")[0] for name in (many, one, joined)]
    return sizes[2] == sizes[0] > sizes[1]


def _one_row(database: Any, query: str) -> tuple[int, ...]:
    (row,) = database.execute(f"SELECT {query}").fetchall()
    return tuple(row)


def _foreign_keys(database: Any) -> Iterator[tuple[str, str, str, str]]:
    """Yield the foreign keys in a SQLite schema that have a single column, as (table, column, other table, other column)."""
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for name in names:
        keys: dict[int, list[tuple[str, str, str | None]]] = {}
        for number, _, to, key, own, *_ in database.execute(f"PRAGMA foreign_key_list({_as_name(name)})"):
            keys.setdefault(number, []).append((to, key, own))
        for to, key, own in [parts[0] for parts in keys.values() if len(parts) == 1]:
            primary = [row[1] for row in database.execute(f"PRAGMA table_info({_as_name(to)})") if row[5]]
            if own or len(primary) == 1:
                yield _as_name(name), key, _as_name(to), own or primary[0]


def _only_table(path: Path, database: Any, listing: str, declared: Collection[tuple[str, str, str, str]] = ()) -> str:
    """Return the query for the only table of a database; if there are several tables, raise and offer queries that join them.

    The query `listing` selects the parts of the tables' names (schema and name), of which some may be missing.
    """
    rows = database.execute(listing).fetchall()
    tables = sorted([*filter(None, row)] for row in rows if not str(row[-1]).startswith("sqlite_"))
    names = [*map(".".join, tables)]
    quoted_names = [".".join(map(_as_name, parts)) for parts in tables]
    queries = [f"SELECT * FROM {name}" for name in quoted_names]  # noqa: S608 - names of the database itself
    if not names:
        raise DataError(f"{path} has no tables")
    if len(names) > 1:
        joined = [*_joined(database, quoted_names[:_SHOWN], declared)][:_SHOWN]
        choices = {
            f"--query {quoted(query)}": (query, f"the rows of {what}")
            for query, what in [*joined, *zip(queries, map(repr, names[:_SHOWN]), strict=False)]
        }
        # a join that keeps each row of its first table once only adds columns
        is_sure = len(names) == len(("rows", "facts")) and len(joined) == 1 and _adds_columns(database, joined[0][0])
        raise UnsettledError(
            f"{path} has the tables {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}",
            "query",
            choices,
            next(iter(choices)) if is_sure else "",
        )
    return queries[0]


def _rows(path: Path, cursor: Any) -> Iterator[dict[str, Any]]:
    names = [item[0] for item in cursor.description or ()]
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    if twice is not None or not names:
        raise DataError(
            f"{path}: the query returns {f'two columns {twice!r}: rename one with AS' if names else 'no rows'}"
        )
    while rows := cursor.fetchmany(_ROWS):
        for row in rows:
            yield dict(zip(names, row, strict=True))


def prose_rows(path: Path, pattern: str) -> Iterator[dict[str, str]]:
    """Yield a record for each answer that a pattern reads in a text.

    Named groups become columns.  `answer` is required; `question` (or an id), `round`, `gold` and others keep their values until
    the next question.  So one pattern with alternatives (`|`) can read a heading for each question and a line for each answer.
    """
    try:
        regex = re.compile(pattern, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        raise DataError(f"the pattern is not a regular expression ({error}): {pattern!r:.80}") from error
    if "answer" not in regex.groupindex:
        raise DataError(
            f"the pattern needs a group 'answer', such as 'Q(?P<question>.+)|Round (?P<round>[0-9]+): (?P<answer>.+)'; it has "
            f"{', '.join(regex.groupindex) or 'none'}"
        )
    heads = {name for name in ("question", "question_id", "id", "qid") if name in regex.groupindex}
    kept: dict[str, str] = {}
    n = 0
    for match in regex.finditer(decoded(b"".join(unpacked(path)), str(path))):
        groups = {name: text.strip() for name, text in match.groupdict().items() if text is not None}
        if heads & groups.keys():
            kept.clear()
        kept |= groups
        if "answer" in groups:
            n += 1
            yield dict(kept)
    if not n:
        raise DataError(f"{path}: the pattern matches no answer: {pattern!r:.80}")
