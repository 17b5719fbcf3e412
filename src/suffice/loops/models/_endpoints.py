"""One or several endpoints of the same model, one of which is chosen for each request.

A request goes to the healthy endpoint with the fewest requests in flight.  Requests about one question have a common beginning,
which the prefix cache of an endpoint holds.  They therefore stay at one endpoint while it is healthy and not much busier than the
others.  An endpoint that fails gets no requests for a time, which grows with each failure.  Then it gets one request at a time
until it replies.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from suffice.common.recent import RecentTexts
from suffice.loops.models._wire import Asked, are_ids
from suffice.loops.models.limits import RequestLimits, pause

_ENDPOINTS_LOG = logging.getLogger(__name__)
_FIRST_OUTAGE_S, _LONGEST_OUTAGE_S = 1.0, 60.0
_LONGEST_WAIT_S = 60.0
"""What `Retry-After` may ask of requests besides the one that got it: beyond this, they fail by themselves."""
_NOTED_FAILURES = 3
_TOO_MANY = 429
_FAILED_STATUS = frozenset({408, _TOO_MANY})
_FIRST_SERVER_ERROR = 500
_REMEMBERED_QUESTIONS = 1 << 16
_AFFINITY_CHARACTERS = 200
_VERSION = re.compile(r"[-@:_.](?:\d{3,}|latest|preview|q\d|gguf|b?f16|fp\d|int\d|awq|gptq)")
"""The beginning of what may follow a model's name in a reply: a date, the form of the weights, or the type of the file."""


@dataclass(slots=True)
class EndpointCall:
    """One call of a model; all HTTP requests of the call share this object.

    Attributes:
        affinity: A text shared by requests that should go to the same endpoint; empty = no preference.
        tokens: The expected number of tokens of a request.
        waited_s: Time that the call's requests waited for the limits, seconds.
        beside: True if the path of the request replaces the `/v1` of the address (`http://host/tokenize`), False if it
            follows the `/v1` (`http://host/v1/completions`).
        leaves: Called just before each request is sent, after the wait for the limits.
    """

    affinity: str = ""
    tokens: float = 0.0
    waited_s: float = 0.0
    endpoint: str = ""
    beside: bool = False
    leaves: Callable[[], None] = lambda: None


CALL: ContextVar[EndpointCall | None] = ContextVar("suffice_endpoint_call", default=None)
"""The call that is being made."""


def affinity_of(messages: Asked) -> str:
    r"""Return the text shared by requests about one question: the beginning of the user's first message.

    >>> affinity_of([{"role": "system", "content": "Answer."}, {"role": "user", "content": "Question: Who?\n\nPassage 1"}])
    'Question: Who?'
    """
    if are_ids(messages):
        return " ".join(map(str, messages[: _AFFINITY_CHARACTERS // 4]))
    text = (
        messages
        if isinstance(messages, str)
        else next((message["content"] for message in messages if message["role"] == "user"), "")
    )
    return text[:_AFFINITY_CHARACTERS].split("\n\n", 1)[0]


def _may_be_one_model(asked: str, replied: str) -> bool:
    """Return whether the name of the requested model and the name in the reply may belong to the same model.

    The names may differ by an organisation, a folder, a version or date, or the suffix of a file.

    >>> _may_be_one_model("gpt-4o", "gpt-4o-2024-08-06"), _may_be_one_model("openai/gpt-4o", "gpt-4o-mini")
    (True, False)
    >>> _may_be_one_model("org/Model-7B", "/models/model-7b.Q4_K_M.gguf"), _may_be_one_model("a", "b")
    (True, False)
    """
    one, other = sorted((re.split(r"[/\\]", name.strip().casefold())[-1] for name in (asked, replied)), key=len)
    rest = other.removeprefix(one)
    return one == other or (bool(one) and rest != other and _VERSION.match(rest) is not None)


@dataclass(slots=True, eq=False)
class _EndpointHealth:
    """The state of one endpoint.

    Attributes:
        in_flight: Number of requests that the endpoint has not answered yet.
        turn: Sequence number of the endpoint's last request among the requests to all endpoints.
        out_until: Time at which the endpoint is tried again after failures.
        busy_until: Time before which the endpoint does not want further requests, as it stated in `Retry-After`.
    """

    url: str
    in_flight: int = 0
    turn: int = 0
    failures: int = 0
    out_until: float = 0.0
    busy_until: float = 0.0

    def is_ready(self, now: float) -> bool:
        return now >= max(self.out_until, self.busy_until) and (self.failures == 0 or self.in_flight == 0)


@dataclass(slots=True)
class Endpoints:
    """The endpoints of one model.

    Attributes:
        urls: The normalised addresses, sorted.
        limits: The limits on requests to all endpoints together.
        refused: Number of requests that were refused with status 429 (rate limit).
    """

    urls: tuple[str, ...]
    limits: RequestLimits = field(default_factory=RequestLimits)
    clock: Callable[[], float] = time.monotonic
    _places: list[_EndpointHealth] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _by_question: OrderedDict[str, _EndpointHealth] = field(default_factory=OrderedDict)
    _models: dict[str, str] = field(default_factory=dict)
    _ids: RecentTexts = field(default_factory=RecentTexts)
    _noted: set[str] = field(default_factory=set)
    _turns: int = 0
    refused: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._places = [_EndpointHealth(url) for url in self.urls]

    @property
    def name(self) -> str:
        """All addresses, for messages and fingerprints; their order does not matter."""
        return ", ".join(self.urls)

    async def send(self, request: Any, exchange: Callable[[Any], Awaitable[Any]], *, blocking: bool) -> Any:
        """Send a request to one endpoint and, while it fails, to the other endpoints in turn; return the last response.

        Args:
            request: The request, addressed to the first endpoint.
            exchange: Sends the request unchanged and returns the response.
            blocking: Whether to block the thread instead of suspending.

        Raises:
            Exception: The error of `exchange` at the last endpoint.
        """
        call = CALL.get() or EndpointCall()
        began = self.clock()
        ticket = await self.limits.enter(blocking=blocking)
        try:
            call.waited_s += self.clock() - began
            return await self._sent(request, exchange, call, blocking=blocking)
        finally:
            self.limits.leave(ticket)

    async def _sent(
        self, request: Any, exchange: Callable[[Any], Awaitable[Any]], call: EndpointCall, *, blocking: bool
    ) -> Any:
        tried: list[_EndpointHealth] = []
        while True:
            place = await self._place(call, tried, blocking=blocking)
            _readdress(request, self.urls[0], place.url.removesuffix("/v1") if call.beside else place.url)
            sent_at, response, error = self.clock(), None, None
            call.leaves()
            try:
                response = await exchange(request)
            except Exception as raised:  # noqa: BLE001 - raised again unless another endpoint replies
                error = raised
            finally:
                with self._lock:
                    place.in_flight -= 1
            call.endpoint = place.url
            is_failure = self._is_failure(place, response, sent_at)
            tried.append(place)
            with self._lock:
                is_last = not is_failure or self._ready(call, tried) is None
            if error is not None and is_last:
                raise error
            if is_last:
                return response
            if response is not None:
                await (_after_closing(response.close()) if blocking else response.aclose())

    def note_reply(self, url: str, asked: str, model: str | None, completion_id: str | None) -> None:
        """Check the model and the id of a reply, and warn of three faults, each only once.

        The faults are a reply from another model than the requested one, an id that an earlier reply had, and endpoints
        that reply from different models.

        Args:
            url: The endpoint.
            asked: The model that was asked for.
            model: The model that the reply names; None if it names none.
            completion_id: The id of the reply; None if it has none.
        """
        with self._lock:
            is_repeated = completion_id is not None and self._ids.add(completion_id)
            is_other = model is not None and not _may_be_one_model(asked, model)
            new = {kind for kind, is_so in (("id", is_repeated), ("model", is_other)) if is_so} - self._noted
            self._noted |= new
        if "id" in new:
            _ENDPOINTS_LOG.warning(
                "%s gave the id %.80r to two replies: a cache or proxy may have sent an earlier reply again, for another request. Switch its cache "
                "off, and record again what was affected",
                url,
                completion_id,
            )
        if "model" in new:
            _ENDPOINTS_LOG.warning(
                "%s was asked for the model %.80r and replied as %.80r: the answers are of the second one. Name it (--model), or correct the "
                "routing",
                url,
                asked,
                model,
            )
        self._compare_models(url, model)

    def _compare_models(self, url: str, model: str | None) -> None:
        if model is None or len(self.urls) == 1 or url in self._models:
            return
        with self._lock:
            others = {other: name for other, name in self._models.items() if name != model}
            self._models[url] = model
        for other, name in others.items():
            _ENDPOINTS_LOG.warning(
                "%s replies as model %r and %s as %r: several endpoints must serve the same model, or the rounds of a "
                "recording are those of several",
                url,
                model,
                other,
                name,
            )

    async def _place(
        self, call: EndpointCall, tried: Collection[_EndpointHealth], *, blocking: bool
    ) -> _EndpointHealth:
        """Return the endpoint for the next request, after waiting for limits and for pauses of endpoints."""
        while True:
            while (wait := self._until_asked(call, tried)) > 0:
                await pause(wait, blocking=blocking)
            began = self.clock()
            await self.limits.turn(call.tokens, blocking=blocking)
            call.waited_s += self.clock() - began
            with self._lock:
                place = self._chosen(call, tried)
                if place.busy_until <= self.clock():
                    place.in_flight += 1
                    self._turns += 1
                    place.turn = self._turns
                    return place

    def _until_asked(self, call: EndpointCall, tried: Collection[_EndpointHealth]) -> float:
        """Return the seconds until the end of the pause that the chosen endpoint asked for; <= 0 without a pause."""
        with self._lock:
            return self._chosen(call, tried).busy_until - self.clock()

    def _chosen(self, call: EndpointCall, tried: Collection[_EndpointHealth]) -> _EndpointHealth:
        """Return the endpoint to use now; if all endpoints are paused, return the one whose pause ends first."""
        left = [place for place in self._places if place not in tried] or self._places
        return self._ready(call, tried) or min(left, key=lambda place: max(place.out_until, place.busy_until))

    def _ready(self, call: EndpointCall, tried: Collection[_EndpointHealth]) -> _EndpointHealth | None:
        """Return the healthy endpoint with the fewest requests in flight; None if none is healthy.

        The endpoint that served the question before is preferred, unless it is much busier.
        """
        now = self.clock()
        ready = [place for place in self._places if place not in tried and place.is_ready(now)]
        if len(self._places) == 1 or not ready:
            return ready[0] if ready else None
        place = min(ready, key=lambda place: (place.in_flight, place.turn))
        if not call.affinity:
            return place
        usual = self._by_question.get(call.affinity)
        if usual in ready and usual.in_flight <= 2 * place.in_flight + 2:
            place = usual
        self._by_question[call.affinity] = place
        self._by_question.move_to_end(call.affinity)
        while len(self._by_question) > _REMEMBERED_QUESTIONS:
            self._by_question.popitem(last=False)
        return place

    def _is_failure(self, place: _EndpointHealth, response: Any, sent_at: float) -> bool:
        """Record the success or failure of an endpoint, and return True if it failed."""
        status = None if response is None else response.status_code
        now = self.clock()
        with self._lock:
            self.refused += status == _TOO_MANY
            if status is not None and status < _FIRST_SERVER_ERROR and status not in _FAILED_STATUS:
                place.failures, place.out_until = 0, 0.0
                return False
            wait = _retry_after(response)
            if wait and wait <= _LONGEST_WAIT_S:
                place.busy_until = max(place.busy_until, now + wait)
            elif sent_at >= place.out_until:  # requests that were sent together fail together, and count once
                place.failures += 1
                place.out_until = now + min(_FIRST_OUTAGE_S * 2.0 ** (place.failures - 1), _LONGEST_OUTAGE_S)
                if place.failures == _NOTED_FAILURES and len(self._places) > 1:
                    why = "cannot be reached, or is silent" if status is None else f"answers {status}"
                    _ENDPOINTS_LOG.warning(
                        "%s %s again and again: its requests go to the other endpoints", place.url, why
                    )
            return True


async def _after_closing(result: None) -> None:
    """Do nothing, so that the blocking `close` of a response can be awaited."""


def _retry_after(response: Any) -> float | None:
    """Return the seconds in the header `Retry-After`; None without it, or if it is a date."""
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (AttributeError, KeyError, ValueError):
        return None


def _readdress(request: Any, first: str, url: str) -> None:
    """Change the address of a request that was built for another endpoint."""
    path = request.extensions.setdefault("suffice.path", request.url.raw_path[len(urlsplit(first).path) :])
    address = type(request.url)(url + path.decode("ascii"))
    if address != request.url:
        request.url = address
        request.headers["host"] = address.netloc.decode("ascii")
