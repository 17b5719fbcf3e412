"""Connections to Postgres: in transactions that can only read, with names and parameters that cannot be SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError

if TYPE_CHECKING:
    from psycopg import AsyncConnection

__all__ = ["SECRET_PARAMETERS", "ReadingPool", "connection_parameters", "fetched_rows", "quoted_name"]

SECRET_PARAMETERS = ("password", "sslpassword")
"""Parameters of a connection that no message shows."""


class ReadingPool:
    """Connections of one event loop, each used by one search at a time.

    Args:
        parameters: What psycopg connects with.
        most: Largest number of connections.
    """

    def __init__(self, parameters: Mapping[str, Any], most: int) -> None:
        self._parameters = dict(parameters)
        self._free = asyncio.Semaphore(most)
        self._idle: list[AsyncConnection] = []

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Give a connection in a transaction that can only read."""
        from psycopg import AsyncConnection, OperationalError

        async with self._free:
            connection = self._idle.pop() if self._idle else None
            if connection is None:
                # Names of prepared statements do not survive a pooler between us and the server.
                connection = await AsyncConnection.connect(**self._parameters, prepare_threshold=None)
                await connection.set_read_only(True)
            try:
                async with connection.transaction():
                    yield connection
            except BaseException as error:
                await connection.close()
                if isinstance(error, OperationalError):  # a server that was restarted has dropped the others, too
                    await self.close()
                raise
            self._idle.append(connection)

    async def close(self) -> None:
        """Close the connections that no search uses."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()


def connection_parameters(conninfo: str) -> dict[str, Any]:
    """Return the parameters of a connection.

    Raises:
        DataError: The text cannot be read; the message does not show it.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    with suppress(ProgrammingError):  # its message repeats the text
        return dict(conninfo_to_dict(conninfo))
    raise DataError(
        "the address of the database cannot be read; it should look like postgresql://host:5432/database (it is not shown, "
        "as it may contain a password)"
    )


def quoted_name(*names: str) -> Any:
    """Return quoted names; psycopg reads a percent sign in a query as a parameter."""
    from psycopg import sql

    return sql.Identifier(*(name.replace("%", "%%") for name in names))


async def fetched_rows(connection: AsyncConnection, query: Any, values: Any = None) -> list[tuple[Any, ...]]:
    """Return the rows of a query with its parameters."""
    cursor = await connection.execute(query, values or {})
    return await cursor.fetchall()
