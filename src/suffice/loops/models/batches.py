"""The interface from which models take their replies while a recording runs in batches."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from suffice.loops.models._clients import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """A model's request that a batch may answer.

    Attributes:
        request: The JSON that identifies the request, as in the response cache.
        url: The path of the interface, `/v1/chat/completions` or `/v1/completions`.
    """

    request: Mapping[str, Any]
    url: str
    body: Mapping[str, Any]
    connection: Connection


class BatchReplies(Protocol):
    """Protocol of a source of replies from batches; models read from it instead of asking the endpoint."""

    def reply(self, request: BatchRequest) -> str:
        """Return the body of the reply.

        Raises:
            PendingReplyError: A batch will contain the reply later.
            ModelError: The batches ended without the reply.
        """
        ...


BATCHES: ContextVar[BatchReplies | None] = ContextVar("suffice_batches", default=None)
"""The replies that models of the running recording read; None = they ask their endpoints."""
