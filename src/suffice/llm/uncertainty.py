"""Measures of a local model's knowledge from its own passes: states of samples, directions, triggers in generation.

Each measure follows one paper; those without a pass of their own (entropies) are in `suffice.signals.uncertainty`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, ModelError
from suffice.llm._transformers_loading import LoadedModel
from suffice.llm._transformers_passes import last_states
from suffice.llm.transformers_model import TransformersModel
from suffice.rounds import Cost, Passage, Reply, Token

__all__ = [
    "NO_CONTENT_WORDS",
    "STATEMENTS",
    "Directions",
    "ReplyReading",
    "contrast_directions",
    "dragin_scores",
    "first_sentence",
    "flare_trigger",
    "read_reply",
    "rind",
    "sample_states",
]

_MATRICES = 3
_SENTENCE_ENDS = re.compile(r"[.!?](?=\s|$)|\n")
_BLANK_EDGES = "\u0120\u2581\u010a \t\r\n"

STATEMENTS = (
    "The Earth goes around the Sun.",
    "Fire is cold to the touch.",
    "Water boils when it is heated.",
    "Most birds have four legs.",
    "Paris lies in France.",
    "The Moon is made of wood.",
    "Fish breathe under water.",
    "Winter is warmer than summer.",
)
"""Statements, alternately true and false, that follow both instructions of a contrast."""

_NO_CONTENT_WORDS = """
a an the of in on at to for from by with as and or but not no is are was were be been being it its this that these those
he she they his her their them him i you we my your our who whom which what when where how there here do does did has
have had will would can could may might shall should also then than so such
"""
NO_CONTENT_WORDS = frozenset(_NO_CONTENT_WORDS.split())
"""Words whose tokens never trigger retrieval: they carry no content."""


# Triggers while generating: FLARE and DRAGIN.


def first_sentence(tokens: Sequence[Token]) -> int:
    """Return the number of tokens in the first sentence: up to its full stop or line break, or all of them.

    >>> first_sentence([Token("It"), Token("Ġrained"), Token("."), Token("ĠThen")])
    3
    """
    text = ""
    for number, token in enumerate(tokens, start=1):
        text += token.text.replace("\u0120", " ").replace("\u2581", " ").replace("\u010a", "\n")
        if text.strip() and _SENTENCE_ENDS.search(text.lstrip()):
            return number
    return len(tokens)


def flare_trigger(tokens: Sequence[Token], theta: float) -> int | None:
    """Return where FLARE retrieves: the start of the first sentence with a token of probability below theta.

    From there generation starts again with the retrieved passages.  None: the whole reply is kept.  Source: FLARE (Jiang
    et al., 2023, section 3.2, equation 3).

    >>> sure, unsure = Token("a", math.log(0.9)), Token("b", math.log(0.2))
    >>> flare_trigger([sure, Token(".", -0.01), sure, unsure], 0.5)
    2

    Args:
        tokens: The tokens of a reply.
        theta: Threshold in [0, 1]; 0 never retrieves, 1 nearly always.

    Raises:
        DataError: Theta is not a probability, or a log-probability is missing.
    """
    if not 0.0 <= theta <= 1.0:
        raise DataError(f"FLARE's theta must be in [0, 1], got {theta!r}")
    if any(math.isnan(token.logprob) for token in tokens):
        raise DataError("FLARE needs the probability of every token, but one is missing: request log-probabilities")
    start = 0
    while start < len(tokens):
        end = start + first_sentence(tokens[start:])
        if min(math.exp(token.logprob) for token in tokens[start:end]) < theta:
            return start
        start = end
    return None


def rind(
    entropies: npt.NDArray[np.floating], attention: npt.NDArray[np.floating], is_content: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """Return the need for retrieval at each generated token: ``entropy * strongest later attention * content``.

    Retrieval is triggered at the first token whose value is above a threshold.  Source: DRAGIN (Su et al., 2024,
    section 3.1, equations 1 to 4: RIND).

    Args:
        entropies: Entropies of the tokens' distributions, nats, shape ``(n,)``.
        attention: Attention of token j (row) to token i (column), averaged over heads; shape ``(m, n)`` with ``m >= n``,
            because the end of a reply attends too.
        is_content: False for stop words, shape ``(n,)``.

    Returns:
        Shape ``(n,)``; 0 for the last token.
    """
    n = len(entropies)
    # Below the diagonal: only later tokens count, not a token's attention to itself.
    later = np.tril(np.asarray(attention, dtype=np.float64), k=-1)[:, :n]
    strongest = later.max(axis=0) if len(later) else np.zeros(n)
    scores: npt.NDArray[np.float64] = np.asarray(entropies, dtype=np.float64) * strongest * np.asarray(is_content)
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyReading:
    """One reply, read again in one pass.

    Attributes:
        entropies: Entropy of each token's distribution over the vocabulary, nats, shape ``(n,)``.
        attention: Attention of the last layer between reply tokens and the end token, mean over heads, shape
            ``(n + 1, n)``; ``(n, n)`` if the reply was cut off.
        cost: Cost of the pass.
    """

    entropies: npt.NDArray[np.float64]
    attention: npt.NDArray[np.float64]
    cost: Cost


def read_reply(model: TransformersModel, question: str, reply: Reply, passages: Sequence[Passage] = ()) -> ReplyReading:
    """Read a reply again for its exact entropies and attentions.

    A system that generates with attentions gets them for free; here they take another pass.

    Raises:
        ModelError: The model returns no attentions.
    """
    import torch

    prompt, content, end = _token_ids(model, question, reply, passages)
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
    attention = output.attentions[-1][0].double().mean(0)[first:, first : first + n]
    cost = Cost(calls=1.0, uncached_tokens=float(tokens.shape[1]), seconds=time.perf_counter() - began)
    return ReplyReading(entropies=entropies.cpu().numpy(), attention=attention.cpu().numpy(), cost=cost)


def dragin_scores(
    model: TransformersModel, question: str, reply: Reply, passages: Sequence[Passage] = ()
) -> tuple[npt.NDArray[np.float64], Cost]:
    """Return RIND of each token of a reply, shape ``(n_tokens,)``, and the cost of the pass; see `rind`."""
    reading = read_reply(model, question, reply, passages)
    words = [token.text.strip(_BLANK_EDGES).lower() for token in reply.tokens or ()]
    is_content = np.array([word not in NO_CONTENT_WORDS for word in words], dtype=np.bool_)
    return rind(reading.entropies, reading.attention, is_content), reading.cost


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


# States of samples: SeaKR.


def sample_states(
    model: TransformersModel,
    question: str,
    replies: Sequence[Reply],
    passages: Sequence[Passage] = (),
    *,
    layer: int | None = None,
) -> tuple[npt.NDArray[np.float32], Cost]:
    """Return the state of each reply's last token, for `gram_uncertainty`, and the cost of the passes.

    For an empty reply it is the state of the last prompt token.

    Args:
        model: The model that generated the replies.
        question: The question.
        replies: Samples of its answer.
        passages: The passages in the prompt of the replies.
        layer: Index in transformers' `hidden_states`; None for the last.

    Returns:
        Shape ``(n, width)``, and the cost.
    """
    began = time.perf_counter()
    rows = []
    for reply in replies:
        prompt, content, _ = _token_ids(model, question, reply, passages)
        rows.append([*prompt, *content])
    layers = (model.loaded.n_layers if layer is None else layer,)
    states = last_states(model.loaded, rows, layers)[:, 0]
    tokens = float(sum(map(len, rows)))
    return states, Cost(calls=float(len(rows)), uncached_tokens=tokens, seconds=time.perf_counter() - began)


def _token_ids(
    model: TransformersModel, question: str, reply: Reply, passages: Sequence[Passage]
) -> tuple[list[int], list[int], list[int]]:
    """Return the tokens of the prompt, those of the reply, and the end token if there is one."""
    tokenizer: Any = model.loaded.tokenizer
    if reply.tokens is None:
        raise DataError("a reply without tokens cannot be read again: generate it with the local model")
    prompt = model._ids(question, passages)  # noqa: SLF001 - the same package; a prompt is encoded in one place
    content = [int(token) for token in tokenizer.convert_tokens_to_ids([token.text for token in reply.tokens])]
    end = sorted(model.loaded.ends)[:1] if reply.finish_reason == "stop" else []
    return prompt, content, end


# Directions: CtrlA.


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """One direction per layer that represents an attitude in a model's states.

    Attributes:
        vectors: Unit vectors, shape ``(n_layers, width)``.
        centre: The projection midway between both sides of the contrast, mean over layers.
    """

    vectors: npt.NDArray[np.float64]
    centre: float

    def project(self, states: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Return the mean over layers of the states' projections, minus the centre; above 0 = the positive side.

        Source: CtrlA (Liu et al., 2024, section 3.2: confidence monitoring).

        Args:
            states: Shape ``(n, n_layers, width)``.

        Returns:
            Shape ``(n,)``; NaN where a state is undefined.
        """
        projections: npt.NDArray[np.float64] = np.einsum("nld,ld->nl", states, self.vectors).mean(axis=1) - self.centre
        return projections


def contrast_directions(positive: npt.NDArray[np.floating], negative: npt.NDArray[np.floating]) -> Directions:
    """Return the first principal direction of the differences between paired states, pointing to the positive side.

    The differences are not centred, because their common part is the direction.  Source: CtrlA (Liu et al., 2024, section
    3.1: honesty and confidence features by principal components of contrasted states), after Zou et al. (2023).

    Args:
        positive: States under the instruction (be honest, be confident), shape ``(n, n_layers, width)``.
        negative: States of the same statements under its opposite, same shape.

    Raises:
        DataError: The shapes differ, there are no pairs, or a state is undefined.
    """
    if positive.shape != negative.shape or positive.ndim != _MATRICES or not len(positive):
        raise DataError(
            f"a contrast needs pairs of states, both of shape (n, n_layers, width); got {positive.shape!r} and "
            f"{negative.shape!r}"
        )
    above, below = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    if not (np.isfinite(above).all() and np.isfinite(below).all()):
        raise DataError("a contrast needs finite states, but some are NaN or infinite: read them in float32")
    vectors = []
    for layer in range(above.shape[1]):
        differences = above[:, layer] - below[:, layer]
        first = np.linalg.svd(differences, full_matrices=False)[2][0]
        # The sign of a singular vector is arbitrary: turn it so that the mean difference points along it.
        vectors.append(first if differences.mean(axis=0) @ first >= 0 else -first)
    plain = Directions(vectors=np.stack(vectors), centre=0.0)
    centre = (plain.project(above).mean() + plain.project(below).mean()) / 2
    return Directions(vectors=plain.vectors, centre=float(centre))
