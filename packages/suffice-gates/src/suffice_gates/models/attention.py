"""DRAGIN on a local model: attention and entropy of a reply's tokens, and a query at the first uncertain token."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, ModelError
from suffice.loops.models.sentences import text_of
from suffice.policy.rounds import Cost, Passage, Reply, Token
from suffice.policy.signals.alignment import token_bytes
from suffice_gates.models._transformers_loading import LoadedModel
from suffice_gates.models.rind import NO_CONTENT_WORDS, attended, rind
from suffice_gates.models.transformers_model import TransformersModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyReading:
    """One reply, read again in one pass.

    Attributes:
        entropies: Entropy of each token's distribution over the vocabulary, nats, shape ``(n,)``.
        attention_to_all: Attention of the last layer from reply tokens and the end token to prompt and reply, mean over
            heads, shape ``(n + 1, m + n)``; ``(n, m + n)`` if the reply was cut off.
        cost: Cost of the pass.
    """

    entropies: npt.NDArray[np.float64]
    attention_to_all: npt.NDArray[np.float64]
    cost: Cost

    @property
    def attention(self) -> npt.NDArray[np.float64]:
        """The attention between tokens of the reply, shape ``(n + 1, n)``, or ``(n, n)`` if it was cut off."""
        n = len(self.entropies)
        return self.attention_to_all[:, self.attention_to_all.shape[1] - n :]


def read_reply(model: TransformersModel, question: str, reply: Reply, passages: Sequence[Passage] = ()) -> ReplyReading:
    """Read a reply again for its exact entropies and attentions.

    A system that generates with attentions gets them for free; here they take another pass.

    Raises:
        ModelError: The model returns no attentions.
    """
    return _pass_over(model, *reply_ids(model, question, reply, passages))


def _pass_over(
    model: TransformersModel, prompt: Sequence[int], content: Sequence[int], end: Sequence[int]
) -> ReplyReading:
    """Read the tokens of a prompt, its reply and the end of the reply in one pass."""
    import torch

    began = time.perf_counter()
    tokens = torch.tensor([[*prompt, *content, *end]], device=model.loaded.network.device)
    with torch.inference_mode(), model.loaded.lock, _eager(model.loaded):
        output = model.loaded.network(input_ids=tokens, output_attentions=True, use_cache=False)
    if not output.attentions or output.attentions[-1] is None:
        raise ModelError(
            f"{model.id!r} returns no attentions: load it with options={{'attn_implementation': 'eager'}}, or leave "
            "DRAGIN out"
        )
    n, first = len(content), len(prompt)
    # The logits at position i predict token i + 1, so those of the reply start at the last prompt token.
    logprobs = torch.log_softmax(output.logits[0, first - 1 : first - 1 + n].double(), dim=-1)
    # A probability of 0 has log-probability -inf; the bound makes its term 0 instead of NaN.
    entropies = -(logprobs.exp() * logprobs.clamp(min=-1e4)).sum(-1)
    attention = output.attentions[-1][0].double().mean(0)[first:, : first + n]
    cost = Cost(calls=1.0, uncached_tokens=float(tokens.shape[1]), seconds=time.perf_counter() - began)
    return ReplyReading(entropies=entropies.cpu().numpy(), attention_to_all=attention.cpu().numpy(), cost=cost)


def dragin_scores(
    model: TransformersModel, question: str, reply: Reply, passages: Sequence[Passage] = ()
) -> tuple[npt.NDArray[np.float64], Cost]:
    """Return RIND of each token of a reply, shape ``(n_tokens,)``, and the cost of the pass; see `rind`."""
    reading = read_reply(model, question, reply, passages)
    return _rind_of(reading, reply.tokens or ()), reading.cost


def _rind_of(reading: ReplyReading, tokens: Sequence[Token]) -> npt.NDArray[np.float64]:
    is_content = np.array([_is_content(text_of([token])) for token in tokens], dtype=np.bool_)
    return rind(reading.entropies, reading.attention, is_content)


def _is_content(text: str) -> bool:
    """Return whether a token's text carries content: not just punctuation, an ending such as "'s", or a stop word."""
    word = text.strip().lower()
    if not any(map(str.isalnum, word)) or word.startswith(("'", "\u2019")):
        return False
    return re.sub(r"\A[^\w]+|[^\w]+\Z", "", word) not in NO_CONTENT_WORDS


def dragin_query(
    model: TransformersModel,
    messages: Sequence[Mapping[str, str]],
    reply: Reply,
    texts: Sequence[str],
    *,
    theta: float,
    n: int,
) -> Reply:
    """Return the query at the first token of a reply whose RIND is above theta.

    Args:
        model: The model that wrote the reply.
        messages: The messages of the prompt.
        reply: Its reply, with tokens.
        texts: Parts of the messages whose words a query may use, in addition to the reply's: question and chain, but
            neither instructions nor passages.
        theta: Threshold of RIND.
        n: Number of tokens in a query.

    Returns:
        A reply whose answer is the query, or None if no token is above theta; its text is the reply before that token, or
        all of it; its signal `rind` is the largest value, and its cost that of the pass.

    Raises:
        ModelError: The model returns no attentions.
    """
    tokens = reply.tokens or ()
    if not tokens:
        return Reply(text=reply.text, signals={"rind": 0.0})
    prompt = model.prompt_ids(messages)
    reading = _pass_over(model, prompt, *_content_ids(model, reply))
    scores = _rind_of(reading, tokens)
    costs, signals = {"query": reading.cost}, {"rind": float(scores.max())}
    above = np.flatnonzero(scores > theta)
    if not above.size:
        return Reply(text=reply.text, signals=signals, costs=costs)
    place = int(above[0])
    read = [Token(str(text)) for text in model.loaded.tokenizer.convert_ids_to_tokens(prompt)]
    words, numbers = _words_of_tokens([*read, *tokens[:place]], len(read), texts)
    chosen = attended(reading.attention_to_all[place, : len(read) + place], numbers, n)
    query = " ".join(words[number] for number in chosen)
    return Reply(answer=query, text=text_of(tokens[:place]), signals=signals, costs=costs)


def _words_of_tokens(
    tokens: Sequence[Token], n_prompt: int, texts: Sequence[str]
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the words that tokens spell, and the index of each token's word; -1 outside `texts` and the reply.

    Args:
        tokens: The tokens of the prompt, followed by those of the reply.
        n_prompt: Number of tokens of the prompt.
        texts: The parts of the prompt that count; of repeated ones, the last occurrence.
    """
    pieces = [token_bytes(token) for token in tokens]
    whole = b"".join(pieces)
    bounds = np.cumsum([0, *map(len, pieces)])
    spans = [(int(bounds[n_prompt]), len(whole))]
    for text in texts:
        begin = whole[: bounds[n_prompt]].rfind(text.strip().encode("utf-8", "replace"))
        if begin >= 0 and text.strip():
            spans.append((begin, begin + len(text.strip().encode("utf-8", "replace"))))
    matches = list(re.finditer(rb"\S+", whole))
    numbers = np.full(len(tokens), -1, dtype=np.int64)
    for place, (begin, end) in enumerate(pairwise(bounds)):
        inside = any(begin < last and end > first for first, last in spans)
        touched = [number for number, match in enumerate(matches) if match.start() < end and match.end() > begin]
        if inside and touched:
            numbers[place] = touched[0]
    return [match[0].decode("utf-8", "replace") for match in matches], numbers


@contextmanager
def _eager(model: LoadedModel) -> Iterator[None]:
    """Switch to the attention implementation that returns its weights, and back afterwards."""
    config = model.network.config
    usual = getattr(config, "_attn_implementation", None)
    if usual in {None, "eager"} or not hasattr(model.network, "set_attn_implementation"):
        yield
        return
    model.network.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.network.set_attn_implementation(usual)


def reply_ids(
    model: TransformersModel, question: str, reply: Reply, passages: Sequence[Passage]
) -> tuple[list[int], list[int], list[int]]:
    """Return the tokens of the prompt, those of the reply, and the end token if there is one."""
    prompt = model._ids(question, passages)  # noqa: SLF001 - the same package; a prompt is encoded in one place
    return prompt, *_content_ids(model, reply)


def _content_ids(model: TransformersModel, reply: Reply) -> tuple[list[int], list[int]]:
    if reply.tokens is None:
        raise DataError("a reply without tokens cannot be read again: generate it with the local model")
    tokenizer: Any = model.loaded.tokenizer
    content = [int(token) for token in tokenizer.convert_tokens_to_ids([token.text for token in reply.tokens])]
    return content, sorted(model.loaded.ends)[:1] if reply.finish_reason == "stop" else []
