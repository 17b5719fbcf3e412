"""Search a table of LanceDB by vectors, or by its full-text search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, SufficeError
from suffice.loops.retrieval.retriever import ScoreKind
from suffice_retrieval.stores.checks import checked_choice, no_passage, not_among, require_folder
from suffice_retrieval.stores.filters import SQL_BOUNDS, Condition, Scalar
from suffice_retrieval.stores.kinds import StoreAddress, StoreKind, boolean
from suffice_retrieval.stores.records import SCORE_OF, Content, Distance, Fields, Hit, StoreOptions
from suffice_retrieval.stores.store import Store

if TYPE_CHECKING:
    from lancedb import AsyncConnection, AsyncTable


class LanceDBStore(Store):
    """A table of LanceDB; searches read the version of the table at the time of opening.

    With an embedder the table is searched by vectors; without an embedder, by words, with LanceDB's BM25 over one
    column.

    Args:
        uri: Folder of the database, or a URL of an object store; without user and password.
        table: The table.
        passage_id: Column of the id, which must be unique.
        title: Column of the title; None to use the id as the title.
        text: Column of the text, which a search by words reads.
        vector: Column of the vectors; used only with an embedder.
        distance: The distance between vectors; if there is an index of vectors, it must have the same distance.
        exact: True to ignore an approximate index.
        operator: `or` to find rows that contain any word of the question; `and` to find rows that contain all words.
        options: Further arguments of `lancedb.connect_async`, such as `storage_options`; fingerprints do not contain
            these arguments.
        common: See `StoreOptions`.

    Raises:
        MissingExtraError: lancedb is not installed.
        DataError: A parameter is out of range.
    """

    name = "lancedb"
    library = extra = "lancedb"

    def __init__(
        self,
        uri: str | Path,
        *,
        table: str,
        passage_id: str = "id",
        title: str | None = "title",
        text: str = "text",
        vector: str = "vector",
        distance: Distance = "cosine",
        exact: bool = False,
        operator: Literal["or", "and"] = "or",
        options: Mapping[str, Any] | None = None,
        **common: Unpack[StoreOptions],
    ) -> None:
        arguments = dict(options or {})
        super().__init__(
            f"the LanceDB table {table!r}",
            Fields(passage_id=passage_id, title=title, text=text, vector=vector if common.get("embedder") else None),
            secrets=[arguments.get("api_key"), *(arguments.get("storage_options") or {}).values()],
            **common,
        )
        checked_choice(distance, "distance", get_args(Distance))
        checked_choice(operator, "operator", ("or", "and"))
        self.table, self.distance, self.exact, self.operator = table, distance, exact, operator
        self._uri, self._options = str(uri), arguments

    def settings(self) -> dict[str, Any]:
        """See `Store.settings`."""
        if self.embedder is None:
            return {"table": self.table, "operator": self.operator}
        return {"table": self.table, "distance": self.distance, "exact": self.exact}

    async def open_client(self) -> tuple[AsyncConnection, AsyncTable]:
        """See `Store.open_client`."""
        import lancedb

        require_folder(self.place, self._uri)
        database = await lancedb.connect_async(self._uri, **self._options)
        try:
            return database, await database.open_table(self.table)
        except ValueError:
            known = await _tables(database)
            database.close()
            if self.table in known:
                raise
        return not_among("the LanceDB table", self.table, known)

    @staticmethod
    async def close_client(client: tuple[AsyncConnection, AsyncTable]) -> None:
        """See `Store.close_client`."""
        database, table = client
        table.close()
        database.close()

    async def look(self, client: tuple[AsyncConnection, AsyncTable]) -> Content:
        """See `Store.look`."""
        _, table = client
        schema = await table.schema()
        self._require_fields("column", schema.names)
        score_kind: ScoreKind = "bm25"
        dimension = None
        if self.fields.vector is not None:
            score_kind = SCORE_OF[self.distance]
            column = schema.field(self.fields.vector).type
            dimension = getattr(column, "list_size", None)
            if not dimension:
                raise DataError(
                    f"{self.place}: the column {self.fields.vector!r} is of type {column}, not vectors of one size"
                )
        elif not any(_is_words_index(index, self.fields.text) for index in await table.list_indices()):
            raise DataError(
                f"{self.place} has no full-text index of the column {self.fields.text!r}, without which words of another case "
                f"are not found: run  table.create_index({self.fields.text!r}, config=FTS())  or search by vectors (with an "
                "embedder)"
            )
        where = self._where()
        rows = await table.count_rows(where)
        if not rows:
            no_passage(self.place, self.filters)
        facts = {"rows": rows, "table_version": await table.version()}
        if self.fields.vector is not None:
            filled = f"{_name_in_sql(self.fields.vector)} IS NOT NULL"
            facts |= self._with_vector(await table.count_rows(" AND ".join(filter(None, (where, filled)))), rows)
        return Content(facts=facts, rows=rows, score_kind=score_kind, dimension=dimension)

    async def find(
        self,
        client: tuple[AsyncConnection, AsyncTable],
        content: Content,
        question: str,
        vector: npt.NDArray[np.float64] | None,
        k: int,
    ) -> list[Hit]:
        """See `Store.find`."""
        from lancedb.query import FullTextOperator, MatchQuery

        del content
        _, table = client
        query: Any = table.query()
        if vector is None:
            operator = FullTextOperator.AND if self.operator == "and" else FullTextOperator.OR
            query = query.nearest_to_text(MatchQuery(question, self.fields.text, operator=operator))
        else:
            query = query.nearest_to(vector.astype(np.float32)).column(self.fields.vector).distance_type(self.distance)
            query = query.bypass_vector_index() if self.exact else query
        where = self._where()
        query = query if where is None else query.where(where)
        scored = "_score" if vector is None else "_distance"
        rows = await query.select([*self.fields.read, scored]).limit(k).to_list()
        return [(*self._read(row), self._score(row[scored])) for row in rows]

    async def look_up(self, client: tuple[AsyncConnection, AsyncTable], ids: list[str]) -> list[Hit]:
        """See `Store.look_up`."""
        _, table = client
        column = (await table.schema()).field(self.fields.passage_id).type
        values = tuple(map(int, ids)) if str(column).lstrip("u").startswith("int") else tuple(ids)
        where = _sql_of(Condition(str(self.fields.passage_id), "in", values))
        rows = await table.query().where(where).select(self.fields.read).to_list()
        return [(*self._read(row), math.nan) for row in rows]

    def _read(self, row: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        passage_id, title, text = (None if name is None else row[name] for name in self.fields.parts)
        return passage_id, title, text

    def _score(self, value: float) -> float:
        if self.embedder is None:
            return value
        return -math.sqrt(max(value, 0.0)) if self.distance == "l2" else 1.0 - value  # LanceDB squares l2

    def _where(self) -> str | None:
        return " AND ".join(map(_sql_of, self.conditions)) or None

    def failure_of(self, error: Exception) -> SufficeError:
        """See `Store.failure_of`."""
        if isinstance(error, ValueError):
            return DataError(
                f"{self.place} cannot be searched ({self._said(error)}): check filters, columns and settings"
            )
        if isinstance(error, OSError):
            return self._unreachable(error)
        return self._failed(error)


def _is_words_index(index: Any, column: str) -> bool:
    return list(index.columns) == [column] and str(index.index_type).upper() in ("FTS", "INVERTED")


async def _tables(database: AsyncConnection) -> list[str]:
    if hasattr(database, "list_tables"):
        names: list[str] = (await database.list_tables()).tables
        return names
    return list(await database.table_names())  # before lancedb 0.27


def _name_in_sql(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _sql_of(condition: Condition) -> str:
    """Return a condition as SQL with quoted names and texts, because LanceDB accepts conditions in no other form."""
    name = _name_in_sql(condition.field)
    values = ", ".join(map(_literal, condition.values))
    compared = SQL_BOUNDS.get(condition.comparison)
    return f"{name} IN ({values})" if compared is None else f"{name} {compared} {values}"


def _literal(value: Scalar) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _at_address(address: StoreAddress) -> LanceDBStore:
    table, folder = address.required("table"), address.parts.netloc + unquote(address.parts.path)
    uri = f"{address.carrier}://{folder}" if address.carrier else folder
    return LanceDBStore(uri, table=table, **address.arguments)


LANCEDB = StoreKind(
    name="lancedb",
    form="lancedb://FOLDER?table=NAME",
    build=_at_address,
    parameters={**{name: (name, str) for name in ("table", "distance", "operator")}, "exact": ("exact", boolean)},
    carriers=None,
    credentials="set the variables of the object store, or LANCEDB_API_KEY",
    variables=("LANCEDB_API_KEY",),
)
