"""Search a table of Postgres by vectors of pgvector, or by Postgres' own full-text search."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from suffice.errors import AuthenticationFailedError, DataError, SufficeError
from suffice.loops.retrieval.retriever import ScoreKind
from suffice_retrieval.stores.checks import checked_choice, no_passage, not_among
from suffice_retrieval.stores.filters import SQL_BOUNDS
from suffice_retrieval.stores.kinds import StoreAddress, StoreKind, boolean
from suffice_retrieval.stores.postgres_connections import (
    SECRET_PARAMETERS,
    ReadingPool,
    connection_parameters,
    fetched_rows,
    quoted_name,
)
from suffice_retrieval.stores.records import SCORE_OF, Content, Distance, Fields, Hit, StoreOptions
from suffice_retrieval.stores.store import Store

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.sql import Composable

_VECTOR_OPERATORS = {"cosine": "<=>", "dot": "<#>", "l2": "<->"}
_VECTOR_TYPES = ("vector", "halfvec")
_MOST_ROWS = 2**62
_MOST_EF = 1000
"""Largest `hnsw.ef_search` that pgvector allows."""

Counted = Literal["rows", "text", "none"]


class PostgresStore(Store):
    """A table, or a view, of Postgres.

    With an embedder the table is searched by vectors (pgvector, columns of type `vector` or `halfvec`). Without an
    embedder it is searched by words, and rows that match are scored by `ts_rank_cd`. Names are quoted as identifiers,
    and values are sent as parameters. Every search is a read-only transaction.

    Args:
        conninfo: `postgresql://host/database` or `host=... dbname=...`, as for libpq.  Values that are not given come
            from `PGHOST`, `PGUSER`, `PGPASSWORD`, `PGSERVICE`, `~/.pgpass` and so on, which are the best places for a
            password.
        table: The table or view.
        schema: Schema of the table; None for the search path.
        passage_id: Column of the id, which must be unique.
        title: Column of the title; None to use the id as the title.
        text: Column of the text.
        vector: Column of the vectors; used only with an embedder.
        distance: The distance between vectors; an index of vectors is used only if it was made for the same distance.
        exact: True to ignore approximate indexes.
        tsvector: Column of type `tsvector` for a search by words; None to compute its values from title and text of
            every row in each search, which is slow for large tables.
        language: The text search configuration of Postgres.
        operator: `or` to find rows that contain any word of the question; `and` to find rows that match
            `websearch_to_tsquery`, which requires all words, and reads quotes, `or` and `-` as search engines do.
        content: The fingerprint's facts on the passages. `rows` is their number. `text` is a hash over id, title and
            text of all rows; it also reveals changed rows, but the whole table is read. `none` is for tables that
            change, or are too large to be counted within `timeout_s`.
        connections: Largest number of connections.
        common: See `StoreOptions`.

    Raises:
        MissingExtraError: psycopg is not installed.
        DataError: A parameter is out of range.
    """

    name = "postgres"
    library, extra = "psycopg", "postgres"

    def __init__(
        self,
        conninfo: str = "",
        *,
        table: str,
        schema: str | None = None,
        passage_id: str = "id",
        title: str | None = "title",
        text: str = "text",
        vector: str = "embedding",
        distance: Distance = "cosine",
        exact: bool = False,
        tsvector: str | None = None,
        language: str = "english",
        operator: Literal["or", "and"] = "or",
        content: Counted = "rows",
        connections: int = 8,
        **common: Unpack[StoreOptions],
    ) -> None:
        self.require_library()
        self._parameters = connection_parameters(conninfo)
        fields = Fields(
            passage_id=passage_id, title=title, text=text, vector=vector if common.get("embedder") else None
        )
        self.table, self.schema, self.distance, self.exact = table, schema, distance, exact
        self.tsvector, self.language, self.operator = tsvector, language, operator
        self.content, self.connections = content, connections
        named = table if schema is None else f"{schema}.{table}"
        super().__init__(
            f"the Postgres table {named!r}",
            fields,
            secrets=[*(self._parameters.get(name) for name in SECRET_PARAMETERS), os.environ.get("PGPASSWORD")],
            **common,
        )
        checked_choice(distance, "distance", get_args(Distance))
        checked_choice(operator, "operator", ("or", "and"))
        checked_choice(content, "content", get_args(Counted))
        if connections < 1:
            raise DataError(f"connections is {connections!r}; allowed: 1 or more")

    @property
    def is_pinned(self) -> bool:
        """True if the fingerprint identifies the passages, by a hash of all passages or by a `version`."""
        return self.content == "text" or super().is_pinned

    def settings(self) -> dict[str, Any]:
        """See `Store.settings`."""
        named = {"table": self.table, **({} if self.schema is None else {"schema": self.schema})}
        if self.embedder is not None:
            return {**named, "distance": self.distance, "exact": self.exact}
        return {**named, "tsvector": self.tsvector, "language": self.language, "operator": self.operator}

    async def open_client(self) -> ReadingPool:
        """See `Store.open_client`."""
        return ReadingPool({"application_name": "suffice", **self._parameters}, self.connections)

    async def look(self, client: ReadingPool) -> Content:
        """See `Store.look`."""
        from psycopg import sql

        table = self._table().as_string().replace("%%", "%")
        async with client.reading() as connection:
            columns = await fetched_rows(connection, _TABLE_COLUMNS, [table])
            if not columns:
                not_among(
                    "the Postgres table", self.table, [name for (name,) in await fetched_rows(connection, _TABLE_NAMES)]
                )
            types = {name: (kind, schema, size) for name, kind, schema, size in columns}
            self._require_fields("column", types, self.tsvector if self.embedder is None else None)
            counted: Composable = sql.SQL("*")
            details: dict[str, Any] = {}
            dimension, score_kind = None, "text_rank"
            if self.fields.vector is not None:
                counted, score_kind = quoted_name(self.fields.vector), SCORE_OF[self.distance]
                details = await self._vectors(connection, *types[self.fields.vector])
                dimension = details["dimension"]
            else:  # only plan the query, which checks the language and the type of the column of words
                words, asked = self._by_words("words")
                await fetched_rows(connection, sql.SQL("EXPLAIN {}").format(words), {**asked, "k": 1})
            where, values = self._where()
            # Without counting, only check that the table is not empty.
            table_or_row = sql.SQL("(SELECT * FROM {} WHERE true{}{}) AS t").format(
                self._table(), where, sql.SQL(" LIMIT 1" if self.content == "none" else "")
            )
            query = sql.SQL("SELECT count(*), count({}) FROM {}").format(counted, table_or_row)
            ((rows, usable),) = await fetched_rows(connection, query, values)
            facts: dict[str, Any] = {"rows": rows} if self.content == "rows" else {}
            if self.content == "text":
                hashed = sql.SQL(_HASH).format(sql.SQL(", ").join(self._columns()), table_or_row)
                ((digest,),) = await fetched_rows(connection, hashed, values)
                facts = {"rows": rows, "text_hash": digest}
        if not rows:
            no_passage(self.place, self.filters)
        if self.content == "none":
            rows = _MOST_ROWS
        else:
            facts |= self._with_vector(usable, rows)
        kind: ScoreKind = SCORE_OF[self.distance] if score_kind != "text_rank" else "text_rank"
        return Content(facts=facts, rows=rows, score_kind=kind, dimension=dimension, details=details)

    async def _vectors(self, connection: AsyncConnection, kind: str, schema: str, size: int) -> dict[str, Any]:
        """Check the column of the vectors, and return the facts that a search needs."""
        from psycopg import sql

        versions = await fetched_rows(connection, "SELECT extversion FROM pg_extension WHERE extname = 'vector'")
        if not versions:
            raise DataError(
                f"{self.place}: the extension pgvector is not installed in this database; run  CREATE EXTENSION vector  in it, "
                "or search by words (without an embedder)"
            )
        assert self.fields.vector is not None
        if kind not in _VECTOR_TYPES:
            raise DataError(
                f"{self.place}: the column {self.fields.vector!r} is of type {kind!r}; allowed: {', '.join(_VECTOR_TYPES)}"
            )
        if size < 0:  # the column's type allows vectors of any size
            column = quoted_name(self.fields.vector)
            measure = sql.SQL("SELECT {}.vector_dims({}) FROM {} WHERE {} IS NOT NULL LIMIT 1").format(
                quoted_name(schema), column, self._table(), column
            )
            sizes = await fetched_rows(connection, measure)
            size = sizes[0][0] if sizes else -1
        version = tuple(int(part) for part in versions[0][0].split(".")[:2])
        return {"dimension": size, "type": quoted_name(schema, kind), "schema": schema, "version": version}

    async def find(
        self, client: ReadingPool, content: Content, question: str, vector: npt.NDArray[np.float64] | None, k: int
    ) -> list[Hit]:
        """See `Store.find`."""
        query, values = self._by_words(question) if vector is None else self._by_vector(content, vector)
        async with client.reading() as connection:
            for name, value in self._local(content, k).items():
                await connection.execute("SELECT set_config(%s, %s, true)", [name, value])
            rows = await fetched_rows(connection, query, {**values, "k": k})
        # Sort, since an approximate index may return hits only nearly in order; NaN, the cosine of a zero vector, comes last.
        return sorted(rows, key=lambda row: (math.isnan(row[3]), -row[3]))

    async def look_up(self, client: ReadingPool, ids: list[str]) -> list[Hit]:
        """See `Store.look_up`."""
        from psycopg import sql

        names = [f"id{i}" for i in range(len(ids))]
        query = sql.SQL("SELECT {}, 'NaN'::float8 FROM {} WHERE {} IN ({})").format(
            sql.SQL(", ").join(self._columns()),
            self._table(),
            quoted_name(self.fields.passage_id or ""),
            sql.SQL(", ").join(map(sql.Placeholder, names)),
        )
        async with client.reading() as connection:
            return await fetched_rows(connection, query, dict(zip(names, ids, strict=True)))

    def _local(self, content: Content, k: int) -> dict[str, str]:
        """Return settings for one transaction with which an approximate index visits at least `k` rows.

        Without these settings the index may return fewer than `k` rows.
        """
        local = {"statement_timeout": str(int(self.timeout_s * 1000))}
        if self.embedder is None:
            return local
        if self.exact:
            return local | {"enable_indexscan": "off"}
        local |= {"hnsw.ef_search": str(min(max(k, 40), _MOST_EF))}
        if content.details["version"] >= (0, 8):
            local |= {"hnsw.iterative_scan": "strict_order", "ivfflat.iterative_scan": "relaxed_order"}
        return local

    def _by_vector(self, content: Content, vector: npt.NDArray[np.float64]) -> tuple[Composable, dict[str, Any]]:
        from pgvector import Vector
        from psycopg import sql

        assert self.fields.vector is not None
        where, values = self._where()
        distance = sql.SQL("{} OPERATOR({}.{}) {}::{}").format(
            quoted_name(self.fields.vector),
            quoted_name(content.details["schema"]),
            sql.SQL(_VECTOR_OPERATORS[self.distance]),
            sql.Placeholder("vector"),
            content.details["type"],
        )
        score = sql.SQL("1 - ({})" if self.distance == "cosine" else "-({})").format(distance)
        # Sort ties by id, since their order in a table or an index changes with every update.
        query = sql.SQL("SELECT {}, {} FROM {} WHERE {} IS NOT NULL{} ORDER BY {}, {} LIMIT {}").format(
            sql.SQL(", ").join(self._columns()),
            score,
            self._table(),
            quoted_name(self.fields.vector),
            where,
            distance,
            quoted_name(self.fields.passage_id or ""),
            sql.Placeholder("k"),
        )
        return query, {**values, "vector": Vector(vector).to_text()}

    def _by_words(self, question: str) -> tuple[Composable, dict[str, Any]]:
        from psycopg import sql

        where, values = self._where()
        words = [question] if self.operator == "and" else question.split()
        values |= {f"word{i}": word for i, word in enumerate(words)}
        language = sql.SQL("{}::regconfig").format(sql.Literal(self.language.replace("%", "%%")))
        read = sql.SQL("websearch_to_tsquery" if self.operator == "and" else "plainto_tsquery")
        tsquery = sql.SQL(" || ").join(
            sql.SQL("{}({}, {})").format(read, language, sql.Placeholder(f"word{i}")) for i in range(len(words))
        )
        document: Composable
        if self.tsvector is None:
            parts = [self.fields.title, self.fields.text]
            joined = sql.SQL(" || ' ' || ").join(
                sql.SQL("coalesce({}::text, '')").format(quoted_name(part)) for part in parts if part
            )
            document = sql.SQL("to_tsvector({}, {})").format(language, joined)
        else:
            document = quoted_name(self.tsvector)
        query = sql.SQL(
            "SELECT {}, ts_rank_cd({}, asked) AS score FROM {}, (SELECT {} AS asked) AS question "
            "WHERE {} @@ asked{} ORDER BY score DESC, {} LIMIT {}"
        ).format(
            sql.SQL(", ").join(self._columns()),
            document,
            self._table(),
            tsquery,
            document,
            where,
            quoted_name(self.fields.passage_id or ""),
            sql.Placeholder("k"),
        )
        return query, values

    def _where(self) -> tuple[Composable, dict[str, Any]]:
        from psycopg import sql

        parts: list[Composable] = []
        values: dict[str, Any] = {}
        for i, condition in enumerate(self.conditions):
            names = [f"filter{i}_{j}" for j in range(len(condition.values))]
            values |= dict(zip(names, condition.values, strict=True))
            listed = sql.SQL(", ").join(map(sql.Placeholder, names))
            operator = SQL_BOUNDS.get(condition.comparison)
            form = " AND {} IN ({})" if operator is None else f" AND {{}} {operator} {{}}"
            parts.append(sql.SQL(form).format(quoted_name(condition.field), listed))
        return sql.Composed(parts), values

    def _columns(self) -> list[Composable]:
        from psycopg import sql

        return [sql.SQL("NULL") if name is None else quoted_name(name) for name in self.fields.parts]

    def _table(self) -> Any:
        return quoted_name(*([] if self.schema is None else [self.schema]), self.table)

    def failure_of(self, error: Exception) -> SufficeError:
        """See `Store.failure_of`."""
        import psycopg

        if isinstance(error, psycopg.errors.QueryCanceled):
            return self._too_slow("raise timeout_s, make an index, or leave out the count of rows (content='none')")
        said = self._said(error)
        if isinstance(
            error, psycopg.errors.InsufficientPrivilege | psycopg.errors.InvalidAuthorizationSpecification
        ) or (
            isinstance(error, psycopg.OperationalError) and ("authentication failed" in said or "no password" in said)
        ):
            return AuthenticationFailedError(
                f"{self.place} refused the user ({said}): check PGUSER and PGPASSWORD, and the rights of the user"
            )
        if isinstance(error, psycopg.errors.InvalidCatalogName) or "does not exist" in said:
            return DataError(f"{self.place} cannot be searched ({said})")
        if isinstance(error, psycopg.OperationalError | OSError):
            return self._unreachable(error)
        if isinstance(error, psycopg.ProgrammingError | psycopg.DataError):
            return DataError(f"{self.place} cannot be searched ({said}): check filters, columns and settings")
        return self._failed(error)


_TABLE_COLUMNS = """
SELECT a.attname, t.typname, n.nspname, a.atttypmod
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

_TABLE_NAMES = """
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
"""

_HASH = "SELECT sum(hashtextextended(ROW({})::text, 0))::text FROM {}"
"""SQL of a hash over all rows; it is a sum, which does not depend on their order."""

_LIBPQ = (
    "host",
    "port",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "service",
    "target_session_attrs",
    "connect_timeout",
)
"""Parameters of libpq that an address may contain."""


def _at_address(address: StoreAddress) -> PostgresStore:
    PostgresStore.require_library()
    from psycopg.conninfo import make_conninfo

    table, parts, arguments = address.required("table"), address.parts, address.arguments
    given = {
        "host": parts.hostname,
        "port": parts.port,
        "dbname": address.path,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        **{name: arguments.pop(name) for name in _LIBPQ if name in arguments},
    }
    conninfo = make_conninfo(**{name: value for name, value in given.items() if value})
    return PostgresStore(conninfo, table=table, **arguments)


POSTGRES = StoreKind(
    name="postgres",
    form="postgres://HOST/DATABASE?table=NAME",
    build=_at_address,
    parameters={
        **{
            name: (name, str) for name in ("table", "schema", "tsvector", "language", "content", "distance", "operator")
        },
        "connections": ("connections", int),
        "exact": ("exact", boolean),
        **{name: (name, str) for name in _LIBPQ},
    },
    has_login=True,
    credentials="set PGPASSWORD, or write ~/.pgpass",
    variables=("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSERVICE", "PGPASSFILE"),
)
