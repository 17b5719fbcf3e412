"""Any OpenAI-compatible `/embeddings` endpoint as an embedder of drafts."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.blocking import finished
from suffice.errors import DataError
from suffice.loops.models._clients import MAX_REPLY_BYTES, connect
from suffice.loops.models._endpoints import EndpointCall
from suffice.loops.models._failures import bad_body
from suffice.loops.models._wire import count_of, expected_tokens, mapping_or_empty
from suffice.loops.models.limits import RequestLimits
from suffice.policy.embedding import PieceEmbedder, checked_vectors, pieces_of
from suffice.policy.rounds import Cost


class EndpointEmbedder(PieceEmbedder):
    """Embeds texts with a model behind an OpenAI-compatible `/embeddings` endpoint.

    Endpoints do not report how much of a text their model reads, and some cut the rest silently.  Longer texts are
    therefore sent in pieces of at most `max_chars` characters, and their vectors are averaged, weighted by length:
    choose `max_chars` so that a piece always fits (about three characters per token in English, one in Chinese).

    Args:
        model: The model's name at the endpoint.
        base_url: The endpoint, usually ending with `/v1`, or several, see `ChatModel`; default: `OPENAI_BASE_URL`, then
            OpenAI's.
        api_key: The key; None for `OPENAI_API_KEY`. Local servers need no key: pass an empty text. The key appears in no
            message or fingerprint.
        revision: Version of the model, which endpoints do not report.
        max_chars: Longest piece in characters.
        batch: Largest number of pieces in a request.
        timeout_s: Longest silence of the endpoint, seconds.
        max_retries: Largest number of retries of one call (timeouts, dropped connections, 408, 409, 429 and 5xx).
        default_headers: Further headers of every request.
        extra_body: Further fields of every request, without secrets.
        total_s: Longest time from a request to the end of its reply, seconds; None for ten times `timeout_s`.
        max_reply_bytes: Largest reply in bytes, after decompression.
        limits: Limits on requests a minute and on concurrent requests; models may share them.

    Raises:
        DataError: A parameter is out of range.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | Sequence[str] | None = None,
        api_key: str | None = None,
        revision: str = "unknown",
        max_chars: int = 1500,
        batch: int = 64,
        timeout_s: float = 60.0,
        max_retries: int = 4,
        default_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        total_s: float | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        limits: RequestLimits | None = None,
    ) -> None:
        if max_chars < 1 or batch < 1:
            raise DataError(f"max_chars and batch must be at least 1, got {max_chars!r}, {batch!r}")
        self.id, self.revision, self.max_chars, self.batch = model, revision, max_chars, batch
        self.extra_body = dict(extra_body or {})
        self._connection = connect(
            base_url,
            api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            default_headers=default_headers,
            total_s=total_s,
            max_reply_bytes=max_reply_bytes,
            limits=limits,
        )
        self.endpoint = self._connection.endpoint

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self.id!r}, base_url={self.endpoint!r})"

    @property
    def pooling(self) -> str:
        """A description of the endpoint's pooling, with the length at which texts are cut."""
        return f"by the endpoint, pieces of {self.max_chars} characters"

    def _cut(self, texts: list[str]) -> list[list[str]]:
        return [pieces_of(text, lambda piece: len(piece) <= self.max_chars) for text in texts]

    def _embed_pieces(self, pieces: list[str]) -> tuple[npt.NDArray[np.float64], Sequence[float], Cost]:
        # Texts without words have no pieces; the endpoint is then called to learn the width of the zero vectors.
        vectors, cost = self.vectors(pieces or ["-"])
        return vectors[: len(pieces)], [len(piece) for piece in pieces], cost

    def vectors(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.float64], Cost]:
        """Return one vector for each text, and the cost; texts are not cut, and vectors are not scaled to length 1.

        Args:
            texts: At least one text.

        Returns:
            Shape ``(len(texts), width)``.

        Raises:
            ModelError: The endpoint failed, or returned no usable vectors.
        """
        began = time.perf_counter()
        pieces, batches, tokens = list(texts), 0, 0.0
        rows: list[Any] = []
        for start in range(0, len(pieces), self.batch):
            vectors_of_batch, tokens_of_batch = self._ask(pieces[start : start + self.batch])
            rows, batches, tokens = [*rows, *vectors_of_batch], batches + 1, tokens + tokens_of_batch
        vectors = checked_vectors(self.id, rows, len(texts))
        seconds = time.perf_counter() - began
        return vectors, Cost(calls=float(batches), uncached_tokens=float(tokens), seconds=seconds)

    def close(self) -> None:
        """Close the connections."""
        self._connection.clients.close()

    def _ask(self, pieces: list[str]) -> tuple[list[Any], float]:
        """Return the vectors of some pieces, and the tokens counted by the endpoint."""
        arguments = {
            "model": self.id,
            "input": pieces,
            "encoding_format": "float",
            "extra_body": self.extra_body or None,
        }
        call = EndpointCall(tokens=expected_tokens({"prompt": "".join(pieces)}))
        reply, _ = finished(
            self._connection.request(
                lambda client: client.embeddings.with_raw_response.create(**arguments), call, blocking=True
            )
        )
        vectors, tokens = self._read(self._connection.text_of(reply), len(pieces))
        self._connection.endpoints.limits.settle(call.tokens, tokens)
        return vectors, tokens

    def _read(self, text: str, n: int) -> tuple[list[Any], float]:
        where = self.endpoint
        try:
            body = json.loads(text)
            rows = {item["index"]: item["embedding"] for item in body["data"]}
        except (ValueError, RecursionError, KeyError, TypeError):
            raise bad_body(where, "JSON that is not a list of embeddings", text, retryable=True) from None
        if set(rows) != set(range(n)) or len(body["data"]) != n:
            raise bad_body(where, f"{len(body['data'])} embeddings for {n} texts", text, retryable=False)
        tokens = count_of(mapping_or_empty(body.get("usage")).get("prompt_tokens"))
        return [rows[index] for index in range(n)], tokens
