"""Any OpenAI-compatible `/embeddings` endpoint as an embedder of drafts."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.embedding.base import Vectors, checked_vectors, pieces_of, pooled, required_texts
from suffice.errors import DataError
from suffice.llm._clients import MAX_REPLY_BYTES, connect
from suffice.llm._failures import bad_body, failure_of
from suffice.llm._wire import count_of
from suffice.rounds import Cost

__all__ = ["EndpointEmbedder"]


class EndpointEmbedder:
    """Embeds texts with a model behind an OpenAI-compatible `/embeddings` endpoint.

    An endpoint does not tell how much of a text its model reads, and some cut the rest off in silence.  So a longer
    text is sent in pieces of at most `max_chars` characters, and their vectors are averaged, weighted by length: choose
    `max_chars` so that a piece always fits (about three characters a token in English, one in Chinese).

    Args:
        model: The model's name at the endpoint.
        base_url: The endpoint, usually ending with `/v1`; else `OPENAI_BASE_URL`, else OpenAI's.
        api_key: The key; None for that of `OPENAI_API_KEY`, empty for none: local servers need none. It is in no message and no fingerprint.
        revision: What tells two versions of the model apart; an endpoint does not say it.
        max_chars: Most characters of one piece.
        batch: Most pieces of one request.
        timeout_s: Longest silence of the endpoint, seconds.
        max_retries: Most retries of one call, by the client: timeouts, dropped connections, 408, 409, 429 and 5xx.
        default_headers: Further headers of every request.
        extra_body: Further fields of every request, as the endpoint names them; no secrets.
        total_s: Longest time from a request to the end of its reply, seconds; None for ten times `timeout_s`.
        max_reply_bytes: Most bytes of one reply, unpacked.

    Raises:
        DataError: A parameter is out of range.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
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
    ) -> None:
        if max_chars < 1 or batch < 1:
            raise DataError(f"max_chars and batch must be at least 1, got {max_chars!r}, {batch!r}")
        self.id, self.revision, self.max_chars, self.batch = model, revision, max_chars, batch
        self.extra_body = dict(extra_body or {})
        self._timeout_s = timeout_s
        self._connection = connect(
            base_url,
            api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            default_headers=default_headers,
            total_s=total_s,
            max_reply_bytes=max_reply_bytes,
        )

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self.id!r}, base_url={self._connection.endpoint!r})"

    @property
    def endpoint(self) -> str:
        """Where it asks."""
        return self._connection.endpoint

    @property
    def pooling(self) -> str:
        """The endpoint's own pooling, and how a long text is cut."""
        return f"by the endpoint, pieces of {self.max_chars} characters"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors, shape ``(len(texts), width)``; zero for a text without words.

        Raises:
            DataError: `texts` is no list of texts.
            ModelError: The endpoint failed, or gave no usable vectors.
        """
        return self.embed_costed(texts)[0]

    def embed_costed(self, texts: Sequence[str]) -> tuple[Vectors, Cost]:
        """Like `embed`, with what it cost: calls, the tokens that the endpoint counts (NaN if it does not), seconds."""
        began = time.perf_counter()
        distinct = list(dict.fromkeys(required_texts(texts)))
        cut = [pieces_of(text, lambda piece: len(piece) <= self.max_chars) for text in distinct]
        # Without a piece the endpoint is asked all the same, for the width of the zero vectors.
        pieces = [piece for of_text in cut for piece in of_text]
        asked = pieces or ["-"]
        vectors, cost = self.vectors(asked)
        made = pooled(vectors[: len(pieces)], [len(piece) for piece in pieces], [len(of_text) for of_text in cut])
        place = {text: row for row, text in enumerate(distinct)}
        rows = [place[text] for text in required_texts(texts)]
        return made[rows], replace(cost, seconds=time.perf_counter() - began)

    def vectors(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.float64], Cost]:
        """Return what the endpoint gives for whole texts, neither cut nor scaled, and what it cost.

        Args:
            texts: At least one.

        Returns:
            Shape ``(len(texts), width)``.

        Raises:
            ModelError: The endpoint failed, or gave no usable vectors.
        """
        began = time.perf_counter()
        found, tokens = zip(*self._batches(list(texts)), strict=True)
        vectors = checked_vectors(self.id, [row for rows in found for row in rows], len(texts))
        seconds = time.perf_counter() - began
        return vectors, Cost(calls=float(len(found)), uncached_tokens=float(sum(tokens)), seconds=seconds)

    def close(self) -> None:
        """Close the connections."""
        self._connection.clients.close()

    def _batches(self, pieces: list[str]) -> Iterator[tuple[list[Any], float]]:
        for start in range(0, len(pieces), self.batch):
            yield self._ask(pieces[start : start + self.batch])

    def _ask(self, pieces: list[str]) -> tuple[list[Any], float]:
        """Return the rows of some pieces, and the tokens that the endpoint counted."""
        connection = self._connection
        resource = connection.clients.sync().embeddings.with_raw_response
        try:
            reply = resource.create(
                model=self.id, input=pieces, encoding_format="float", extra_body=self.extra_body or None
            )
        except Exception as error:  # noqa: BLE001 - whatever the client raises becomes one of our errors
            failure = failure_of(
                error, connection.endpoint, connection.redact, timeout_s=self._timeout_s, asked_logprobs=False
            )
        else:
            return self._read(connection.text_of(reply), len(pieces))
        # Raised out here, so that no upstream error with a request, and its key, hangs on ours as its context.
        raise failure

    def _read(self, text: str, n: int) -> tuple[list[Any], float]:
        where = self._connection.endpoint
        try:
            body = json.loads(text)
            rows = {item["index"]: item["embedding"] for item in body["data"]}
        except (ValueError, RecursionError, KeyError, TypeError):
            raise bad_body(where, "something that is no list of embeddings", text, retryable=True) from None
        if set(rows) != set(range(n)) or len(body["data"]) != n:
            raise bad_body(where, f"{len(body['data'])} embeddings for {n} texts", text, retryable=False)
        usage = body.get("usage")
        tokens = count_of(usage.get("prompt_tokens")) if isinstance(usage, dict) else math.nan
        return [rows[index] for index in range(n)], tokens
