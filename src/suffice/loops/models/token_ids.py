"""Get the token ids of texts from an endpoint's tokenizer, and the ids of generated tokens from its replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suffice.common.json_text import load_json
from suffice.errors import ModelError
from suffice.loops.models._clients import Connection
from suffice.loops.models._endpoints import EndpointCall
from suffice.loops.models._failures import bad_body
from suffice.loops.models._wire import Completion, ids_or_none, is_cut

ASKED_FOR_IDS: Mapping[str, Any] = {"return_token_ids": True}
"""What vLLM must be asked for; llama.cpp sends the ids of generated tokens with their log-probabilities."""

_MOST_TEXTS = 4096


class EndpointTokenizer:
    """Converts texts to token ids with the endpoint's `/tokenize`, which llama.cpp and vLLM offer next to `/v1`."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model
        self._known: dict[tuple[str, bool], tuple[int, ...]] = {}

    async def ids(self, text: str, *, begins: bool, blocking: bool) -> tuple[int, ...]:
        """Return the token ids of a text.

        Args:
            text: The text.
            begins: True if a prompt begins with the text, so that the server adds its beginning-of-sequence token, if any.
            blocking: Whether to block the thread instead of suspending.

        Raises:
            ModelError: The endpoint failed, or has no tokenizer.
        """
        if not text and not begins:
            return ()
        known = self._known.get((text, begins))
        if known is not None:
            return known
        body = {
            "model": self._model,
            "content": text,
            "prompt": text,
            "add_special": begins,
            "add_special_tokens": begins,
        }
        raw = {"headers": {"X-Stainless-Raw-Response": "true"}}
        reply, _ = await self._connection.request(
            lambda client: client.post("/tokenize", cast_to=object, body=body, options=raw),
            EndpointCall(beside=True),
            blocking=blocking,
        )
        sent = self._connection.text_of(reply)
        try:
            ids = ids_or_none(load_json(sent)["tokens"])
        except (ValueError, KeyError, TypeError):
            ids = None
        if ids is None:
            raise bad_body(self._connection.endpoint, "no token ids of a text", sent, retryable=False)
        if len(self._known) >= _MOST_TEXTS:
            self._known.clear()
        self._known[text, begins] = ids
        return ids


def are_exchanged(model: Any) -> bool:
    """Test with two short requests whether an endpoint takes token ids as a prompt and returns those that it generates.

    Any failure of `/tokenize` counts as False, since some endpoints answer an unknown path with a server error.

    Raises:
        ModelError: The endpoint could not be asked for a completion.
    """
    if model.api != "completions":
        return False
    try:
        ids = model.tokenize("One, two,", begins=True)
    except ModelError:
        return False
    try:
        reply = model.complete(ids, use_cache=False, max_tokens=2, extra_body=with_ids(model))
    except ModelError as error:
        if error.retryable:
            raise
        return False  # it refuses token ids
    return reply.token_ids is not None


def with_ids(model: Any) -> dict[str, Any]:
    """Return the extra fields of a request that asks for the ids of the generated tokens."""
    return {**model.fingerprint()["extra_body"], **ASKED_FOR_IDS}


def ids_of_text(completion: Completion) -> tuple[int, ...] | None:
    """Return the ids of the tokens that make up a completion's text; None if the tokens do not spell the text.

    A cut completion keeps all its ids, although its text may end before an incomplete character.  Ids of a stop word, which the
    server generated but left out of the text, are removed.
    """
    ids, tokens = completion.token_ids, completion.tokens
    if ids is None or is_cut(completion.finish_reason):
        return ids
    text, spelled = completion.text.encode(), b""
    for n, token in enumerate([*(tokens or ()), None]):
        if spelled == text:
            return ids[:n] if n <= len(ids) else None
        if token is not None:
            spelled += token.text.encode() if token.raw is None else token.raw
    return None
