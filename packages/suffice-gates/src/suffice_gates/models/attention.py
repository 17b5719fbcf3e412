"""DRAGIN on a local model: entropy and attention of a reply's words, and a query for its first uncertain sentence."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.sentences import sentence_end
from suffice.errors import DataError, ModelError
from suffice.loops.models.sentences import text_of
from suffice.policy.rounds import Cost, Passage, Reply, Token
from suffice_gates.models._transformers_loading import LoadedModel
from suffice_gates.models.rind import is_content, query_words, rind
from suffice_gates.models.transformers_model import TransformersModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyReading:
    """One reply with its entropies and attentions.

    The entropies come from a pass over prompt and reply, the attentions from a pass over the reply alone.

    Attributes:
        entropies: Entropy of each token's distribution over the vocabulary, nats, shape ``(n,)``.
        attention: Attention of the last layer between the tokens of the reply, shape ``(n_heads, n, n)``.
        words: The words of the reply, without white space.
        word_of: The word of each token, shape ``(n,)``.
        sentence_of: The sentence of each word, shape ``(n_words,)``.
        cost: Cost of both passes.
    """

    entropies: npt.NDArray[np.float64]
    attention: npt.NDArray[np.float64]
    words: tuple[str, ...]
    word_of: npt.NDArray[np.int64]
    sentence_of: npt.NDArray[np.int64]
    cost: Cost

    @property
    def rind(self) -> npt.NDArray[np.float64]:
        """The need for retrieval at each word, shape ``(n_words,)``; see `suffice_gates.models.rind.rind`."""
        return rind(self.entropies, self.attention, self.word_of, self.sentence_of, _content(self.words))


def read_reply(model: TransformersModel, question: str, reply: Reply, passages: Sequence[Passage] = ()) -> ReplyReading:
    """Read a reply again for its exact entropies and attentions.

    A system that computes entropies while it generates gets them for free.  This function needs one pass for the
    entropies, and another for the attentions.

    Raises:
        ModelError: The model returns no attentions.
    """
    prompt, content, _ = reply_ids(model, question, reply, passages)
    return _read(model, prompt, content, reply.tokens or ())


def _read(
    model: TransformersModel, prompt: Sequence[int], content: Sequence[int], tokens: Sequence[Token]
) -> ReplyReading:
    entropies, cost = _entropies(model, prompt, content)
    attention, alone = _attention(model, content)
    words, word_of, begins = _words(tokens)
    ends = np.cumsum(_lengths("".join(text_of([token]) for token in tokens)), dtype=np.int64)
    return ReplyReading(
        entropies=entropies,
        attention=attention,
        words=tuple(words),
        word_of=word_of,
        sentence_of=np.searchsorted(ends[:-1], begins, side="right"),
        cost=cost + alone,
    )


def _lengths(text: str) -> list[int]:
    """Return the number of characters of each sentence, with the white space before it."""
    lengths = []
    while text:
        end = sentence_end(text) or len(text)
        lengths.append(end)
        text = text[end:]
    return lengths


def _words(
    tokens: Sequence[Token], special: Collection[int] = ()
) -> tuple[list[str], npt.NDArray[np.int64], list[int]]:
    """Return the words of tokens, the word of each token, and where each word begins in the text.

    A word begins at the first token, and at each token that begins with white space.  A special token is a word of its
    own.
    """
    words: list[str] = []
    word_of, begins, length = [], [], 0
    for place, token in enumerate(tokens):
        piece = text_of([token])
        if not words or place in special or place - 1 in special or piece[:1].isspace():
            words.append("")
            begins.append(length + len(piece) - len(piece.lstrip()))
        words[-1] += piece
        word_of.append(len(words) - 1)
        length += len(piece)
    return [word.strip() for word in words], np.array(word_of, dtype=np.int64), begins


def _content(words: Sequence[str]) -> npt.NDArray[np.bool_]:
    return np.array([is_content(word) for word in words], dtype=np.bool_)


def _entropies(
    model: TransformersModel, prompt: Sequence[int], content: Sequence[int]
) -> tuple[npt.NDArray[np.float64], Cost]:
    """Return the entropy of each token of a reply after its prompt, and the cost of the pass."""
    import torch

    began = time.perf_counter()
    tokens = torch.tensor([[*prompt, *content]], device=model.loaded.network.device)
    with torch.inference_mode(), model.loaded.lock:
        output = model.loaded.network(input_ids=tokens, use_cache=False)
    # The logits at position i predict token i + 1, so those of the reply start at the last prompt token.
    logprobs = torch.log_softmax(output.logits[0, len(prompt) - 1 : -1].double(), dim=-1)
    # A probability of 0 has log-probability -inf; the bound makes its term 0 instead of NaN.
    entropies = -(logprobs.exp() * logprobs.clamp(min=-1e4)).sum(-1)
    cost = Cost(calls=1.0, uncached_tokens=float(tokens.shape[1]), seconds=time.perf_counter() - began)
    return entropies.cpu().numpy(), cost


def _attention(model: TransformersModel, ids: Sequence[int]) -> tuple[npt.NDArray[np.float64], Cost]:
    """Return the last layer's attention between tokens read without a prompt, and the cost of the pass."""
    import torch

    began = time.perf_counter()
    tokens = torch.tensor([list(ids)], device=model.loaded.network.device)
    with torch.inference_mode(), model.loaded.lock, _eager(model.loaded):
        output = model.loaded.network(input_ids=tokens, output_attentions=True, use_cache=False)
    if not output.attentions or output.attentions[-1] is None:
        raise ModelError(
            f"{model.id!r} returns no attentions: load it with options={{'attn_implementation': 'eager'}}, or leave "
            "DRAGIN out"
        )
    cost = Cost(calls=1.0, uncached_tokens=float(tokens.shape[1]), seconds=time.perf_counter() - began)
    return output.attentions[-1][0].double().cpu().numpy(), cost


def dragin_scores(
    model: TransformersModel, question: str, reply: Reply, passages: Sequence[Passage] = ()
) -> tuple[npt.NDArray[np.float64], Cost]:
    """Return the RIND of each word of a reply, shape ``(n_words,)``, and the cost of the passes; see `rind`."""
    reading = read_reply(model, question, reply, passages)
    return reading.rind, reading.cost


def dragin_query(
    model: TransformersModel,
    messages: Sequence[Mapping[str, str]],
    reply: Reply,
    texts: Sequence[str],
    *,
    theta: float,
    n: int,
) -> Reply:
    """Return a query for the first sentence of a reply that contains a word with RIND above theta.

    Args:
        model: The model that wrote the reply.
        messages: The messages of the prompt.
        reply: Its reply, with tokens.
        texts: Texts whose words a query may use besides the words of the reply: the question, then the chain. They must
            not contain instructions or passages.
        theta: Threshold of RIND.
        n: Number of words in a query.

    Returns:
        A new reply. Its answer is the query, or None if no word is above theta. Its text is the part of `reply` before
        the uncertain sentence; if no word is above theta, it is the whole text of `reply`. Its signal `rind` is the
        largest RIND, and its costs are those of the passes.

    Raises:
        ModelError: The model returns no attentions.
    """
    tokens = reply.tokens or ()
    if not tokens:
        return Reply(text=reply.text, signals={"rind": 0.0})
    reading = _read(model, model.prompt_ids(messages), _content_ids(model, reply)[0], tokens)
    scores, cost = reading.rind, reading.cost
    signals = {"rind": float(scores.max())}
    above = np.flatnonzero(scores > theta)
    if not above.size:
        return Reply(text=reply.text, signals=signals, costs={"query": cost})
    sentence = np.flatnonzero(reading.sentence_of == reading.sentence_of[above[0]])
    kept = text_of(tokens[: int(np.searchsorted(reading.word_of, sentence[0]))])
    spelled = [place for place in sentence if reading.words[place]]
    hits = np.flatnonzero(scores[spelled] > theta)
    query, more = _query(model, [*texts, kept], [reading.words[place] for place in spelled], hits, n)
    return Reply(answer=query, text=kept, signals=signals, costs={"query": cost + more})


def _query(
    model: TransformersModel, texts: Sequence[str], sentence: Sequence[str], hits: npt.NDArray[np.int64], n: int
) -> tuple[str, Cost]:
    """Return a query: the `n` words to which the hits attend most; also return the cost of the pass.

    The hits are places of words in `sentence`. The model reads `texts` and then the sentence, without a prompt.
    """
    tokenizer: Any = model.loaded.tokenizer
    text = " ".join([*filter(None, (text.strip() for text in texts)), *sentence])
    ids = [int(one) for one in tokenizer(text)["input_ids"]]
    special = {place for place, one in enumerate(ids) if one in tokenizer.all_special_ids}
    words, word_of, _ = _words([Token(str(text)) for text in tokenizer.convert_ids_to_tokens(ids)], special)
    content = _content(words)
    content[[int(word_of[place]) for place in special]] = False
    first = len(words) - len(sentence) - (len(ids) - 1 in special)
    attention, cost = _attention(model, ids)
    chosen = query_words(attention.mean(axis=0), word_of, hits + first, content, n)
    return " ".join(words[place] for place in chosen), cost


@contextmanager
def _eager(model: LoadedModel) -> Iterator[None]:
    """Switch temporarily to the attention implementation that returns attention weights."""
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
    """Return three lists: the tokens of the prompt, the tokens of the reply, and the end token.

    The last list is empty if the reply has no end token.
    """
    prompt = model._ids(question, passages)  # noqa: SLF001 - the same package; a prompt is encoded in one place
    return prompt, *_content_ids(model, reply)


def _content_ids(model: TransformersModel, reply: Reply) -> tuple[list[int], list[int]]:
    if reply.tokens is None:
        raise DataError("a reply without tokens cannot be read again: generate it with the local model")
    tokenizer: Any = model.loaded.tokenizer
    content = [int(token) for token in tokenizer.convert_tokens_to_ids([token.text for token in reply.tokens])]
    return content, sorted(model.loaded.ends)[:1] if reply.finish_reason == "stop" else []
