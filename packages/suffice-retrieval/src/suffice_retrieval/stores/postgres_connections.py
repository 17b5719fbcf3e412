"""Connect to Postgres in read-only transactions, with names and values that cannot inject SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError

if TYPE_CHECKING:
    from psycopg import AsyncConnection

SECRET_PARAMETERS = ("password", "sslpassword")
"""Parameters of a connection that messages must not show."""


class ReadingPool:
    """A pool of read-only connections for one event loop; each connection serves one search at a time.

    Args:
        parameters: Arguments of psycopg's `connect`.
        most: Largest number of connections.
    """

    def __init__(self, parameters: Mapping[str, Any], most: int) -> None:
        self._parameters = dict(parameters)
        self._free = asyncio.Semaphore(most)
        self._idle: list[AsyncConnection] = []

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a read-only transaction."""
        from psycopg import AsyncConnection, OperationalError

        async with self._free:
            connection = self._idle.pop() if self._idle else None
            if connection is None:
                # Do not prepare statements: their names do not survive a pooler in front of the server.
                connection = await AsyncConnection.connect(**self._parameters, prepare_threshold=None)
                await connection.set_read_only(True)
            try:
                async with connection.transaction():
                    yield connection
            except BaseException as error:
                await connection.close()
                if isinstance(
                    error, OperationalError
                ):  # if the server was restarted, the other connections are dropped, too
                    await self.close()
                raise
            self._idle.append(connection)

    async def close(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()


def connection_parameters(conninfo: str) -> dict[str, Any]:
    """Parse the parameters of a connection.

    Raises:
        DataError: The text cannot be read; the message does not show it.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    with suppress(ProgrammingError):  # its message would show the text
        return dict(conninfo_to_dict(conninfo))
    raise DataError(
        "the address of the database cannot be read; it should look like postgresql://host:5432/database (it is not shown, "
        "as it may contain a password)"
    )


def quoted_name(*names: str) -> Any:
    """Return quoted names; percent signs are doubled, since psycopg reads a single percent sign as a parameter."""
    from psycopg import sql

    return sql.Identifier(*(name.replace("%", "%%") for name in names))


async def fetched_rows(connection: AsyncConnection, query: Any, values: Any = None) -> list[tuple[Any, ...]]:
    """Run a query with values for its parameters, and return its rows."""
    cursor = await connection.execute(query, values or {})
    return await cursor.fetchall()
