"""The batch interface of OpenAI-compatible endpoints, which answers files of requests within a day at a lower price."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.common.blocking import finished
from suffice.common.files import json_lines
from suffice.common.json_text import load_json
from suffice.common.redaction import shortened
from suffice.errors import DataError, ModelError
from suffice.loops.models._clients import Connection
from suffice.loops.models._endpoints import EndpointCall
from suffice.loops.models._failures import bad_body, status_failure
from suffice.loops.models.batches import BatchRequest

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
"""The final states of a batch."""

_NO_SUCH_ROUTE = frozenset({404, 405, 501})
_STATUS_OK = 200
_PAGES, _PAGE = 50, 100


def input_line(custom_id: str, request: BatchRequest) -> str:
    """Return a request as a line of an input file."""
    line = {"custom_id": custom_id, "method": "POST", "url": request.url, "body": dict(request.body)}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A line of an output or error file.

    Attributes:
        custom_id: The id of the request that this line answers.
        body: The body of the reply, as JSON; None for an error.
        retryable: True if the same request may succeed later.
    """

    custom_id: str
    body: str | None
    error: str = ""
    retryable: bool = False


def rows_of_output(path: Path, where: str) -> Iterator[BatchRow]:
    """Yield the rows of an output or error file, in the order of the file.

    Raises:
        DataError: A line is not JSON with a `custom_id`, because the file is incomplete or of another kind.
    """
    for place, line in json_lines(path):
        if not isinstance(line.get("custom_id"), str):
            raise DataError(f"{place}: not a line of a batch's output, which has a custom_id")
        yield _read_row(line, where)


def _read_row(line: Mapping[str, Any], where: str) -> BatchRow:
    response, error = line.get("response"), line.get("error")
    body = response.get("body") if isinstance(response, dict) else None
    status = response.get("status_code", _STATUS_OK) if isinstance(response, dict) else None
    if isinstance(body, dict) and status == _STATUS_OK and not error:
        return BatchRow(custom_id=line["custom_id"], body=json.dumps(body))
    if isinstance(status, int) and status != _STATUS_OK:
        failure = status_failure(where, status, json.dumps(body or error), wants_logprobs=True, retry_after=None)
        return BatchRow(custom_id=line["custom_id"], body=None, error=str(failure), retryable=failure.retryable)
    details = error if isinstance(error, dict) else {"message": error or "the row has neither a response nor an error"}
    words = ": ".join(str(details[name]) for name in ("code", "message") if details.get(name))
    return BatchRow(custom_id=line["custom_id"], body=None, error=f"{where}: {shortened(words)}", retryable=True)


class BatchApi:
    """The files and batches of one endpoint.

    Raises:
        DataError: Several endpoints are given, but a batch exists at only one of them.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        if len(connection.endpoints.urls) > 1:
            raise DataError(
                f"a batch is kept by the endpoint that it was sent to, and there are several ({connection.endpoint}): "
                "name one in --base-url (base_url)"
            )

    def upload(self, path: Path) -> str:
        """Upload an input file, and return its id."""

        def send(client: Any) -> Any:
            with path.open("rb") as file:
                return client.files.with_raw_response.create(file=(path.name, file), purpose="batch")

        return self._text("id", self._ask(send))

    def create(self, file_id: str, url: str) -> Mapping[str, Any]:
        """Create a batch, without retries, since each batch costs money."""
        return self._ask(
            lambda client: client.with_options(max_retries=0).batches.with_raw_response.create(
                input_file_id=file_id, endpoint=url, completion_window="24h"
            )
        )

    def batch_of(self, file_id: str) -> Mapping[str, Any] | None:
        """Return the batch that was created from an input file; None if no batch was created from it."""
        after: dict[str, Any] = {}
        for _ in range(_PAGES):
            page = self._ask(lambda client: client.batches.with_raw_response.list(limit=_PAGE, **after))  # noqa: B023
            data = [batch for batch in page.get("data") or () if isinstance(batch, dict)]
            for batch in data:
                if batch.get("input_file_id") == file_id:
                    return batch
            if not page.get("has_more") or not data:
                return None
            after = {"after": self._text("id", data[-1])}
        return None

    def retrieve(self, batch_id: str) -> Mapping[str, Any]:
        """Return the present state of a batch."""
        about = self._ask(lambda client: client.batches.with_raw_response.retrieve(batch_id))
        self._text("status", about)  # a server that answers anything to everything would otherwise be polled forever
        return about

    def download(self, file_id: str, path: Path) -> None:
        """Write the content of a file to `path`."""

        def receive(client: Any) -> None:
            with client.files.with_streaming_response.content(file_id) as response, path.open("wb") as file:
                for chunk in response.iter_bytes():
                    file.write(chunk)

        finished(self._connection.request(receive, EndpointCall(), blocking=True))

    def _ask(self, send: Callable[[Any], Any]) -> Mapping[str, Any]:
        import openai

        def unless_missing(client: Any) -> Any:
            try:
                return send(client)
            except openai.APIStatusError as error:
                if error.status_code not in _NO_SUCH_ROUTE:
                    raise
                return None

        reply, _ = finished(self._connection.request(unless_missing, EndpointCall(), blocking=True))
        where = self._connection.endpoint
        if reply is None:
            raise ModelError(
                f"{where} has no batch interface (or does not know this file or batch): record without --batch, or let "
                "--batch-file write the requests for `vllm run-batch` or another engine"
            )
        text = self._connection.text_of(reply)
        try:
            body = load_json(text)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise bad_body(where, "JSON that is not an object", text, retryable=True)
        return body

    def _text(self, name: str, body: Mapping[str, Any]) -> str:
        value = body.get(name)
        if not isinstance(value, str) or not value:
            raise bad_body(self._connection.endpoint, f"no {name}", json.dumps(body), retryable=False)
        return value
