"""The request of a call to an endpoint's model, the cache that may answer the call, and counts of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Cache(Protocol):
    """A response cache, such as `suffice.recordings.cache.ResponseCache`."""

    def get(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the stored response to a request; None if the cache does not contain one."""
        ...

    def put(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        """Store a response durably."""
        ...


@dataclass(slots=True)
class ChatStats:
    """Counts of a model's calls since its creation.

    Attributes:
        requests_sent: Calls sent to the endpoint, without retries of the client.
        cache_hits: Calls answered from the response cache.
        failures: Calls that ended with a `ModelError`.
    """

    requests_sent: int = 0
    retries: int = 0
    cache_hits: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheableCall:
    """The request of one call, its cache keys (one for each endpoint), and the cache that may answer the call."""

    body: Mapping[str, Any]
    requests: Sequence[Mapping[str, Any]]
    cache: Cache | None
    wants_logprobs: bool

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for the client.

        Model, messages and prompt have arguments of their own; the client sends all other fields (`extra_body`) unchanged.
        """
        known = {name: self.body[name] for name in ("model", "messages", "prompt") if name in self.body}
        others = {name: value for name, value in self.body.items() if name not in known}
        if not isinstance(known.get("prompt", ""), str):
            # Of tokens the client would try every kind of prompt with each, for milliseconds; further fields it only forwards.
            others["prompt"], known["prompt"] = known["prompt"], ""
        return known | {"extra_body": others}
