"""States of a local model during its reply: one for each token, and their mean for a probe (Probing-RAG)."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.errors import ModelError
from suffice.policy.rounds import Cost, Passage, Reply, total_cost
from suffice_gates.models._transformers_passes import position_states
from suffice_gates.models.states import State, States, passages_of_each, required_questions
from suffice_gates.models.transformers_model import TransformersModel

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReading:
    """The states of a text that a model read after a prompt, as if it had generated it.

    Attributes:
        states: States of its tokens in the model's layers, shape ``(n_tokens, n_layers, width)``.
        words: The lowercased word that contains each token; "" for a token without letters and digits.
        cost: Cost of the pass; nothing for an empty text.
    """

    states: States
    words: tuple[str, ...]
    cost: Cost


def read_text(model: TransformersModel, question: str, text: str, passages: Sequence[Passage] = ()) -> TextReading:
    """Read the states of a reply after its prompt, in one pass.

    Args:
        model: The model; its `layers` are read.
        question: The question of the prompt.
        text: The reply as text, which is encoded again.
        passages: The passages of the prompt.

    Raises:
        ModelError: The tokenizer does not report the characters of its tokens, or prompt and text exceed the context.
    """
    began = time.perf_counter()
    prompt = model._ids(question, passages)  # noqa: SLF001 - the same package; a prompt is encoded in one place
    tokens, spans = _encoded(model, text)
    check_context(model, question, len(prompt) + len(tokens))
    if not tokens:
        empty = np.zeros((0, len(model.layers), int(model.loaded.config.hidden_size)), dtype=np.float32)
        return TextReading(states=empty, words=(), cost=Cost())
    ids = [*prompt, *tokens]
    states = position_states(model.loaded, ids, model.layers, range(len(prompt), len(ids)))
    words = words_of(text)
    cost = Cost(calls=1.0, uncached_tokens=float(len(ids)), seconds=time.perf_counter() - began)
    return TextReading(states=states, words=tuple(_word_at(words, *span) for span in spans), cost=cost)


def words_of(text: str) -> list[tuple[int, int, str]]:
    """Return (start, end, word) for each lowercased word of a text.

    >>> words_of("Stephen King's It")
    [(0, 7, 'stephen'), (8, 14, "king's"), (15, 17, 'it')]
    """
    return [(match.start(), match.end(), match[0].lower()) for match in _WORD.finditer(text)]


def check_context(model: TransformersModel, question: str, n: int) -> None:
    """Raise a `ModelError` if `n`, the number of tokens of prompt and reply, exceeds the context of the model."""
    context = model.loaded.context
    if context is not None and n > context:
        raise ModelError(
            f"prompt and reply of {question[:60]!r} have {n} tokens, but {model.id!r} reads at most {context}: use fewer or "
            "shorter passages"
        )


def _encoded(model: TransformersModel, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the tokens of a text, and the range of characters that each token covers."""
    tokenizer: Any = model.loaded.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"the tokenizer of {model.id!r} does not report the characters of its tokens: load its fast version"
        )
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return [int(token) for token in encoded["input_ids"]], [(int(a), int(b)) for a, b in encoded["offset_mapping"]]


def _word_at(words: Sequence[tuple[int, int, str]], start: int, end: int) -> str:
    return next((word for first, last, word in words if start < last and end > first), "")


class ReplyStates:
    """The mean state of a model's own reply, scaled to length one, as Probing-RAG's prober reads it (Baek et al., 2025).

    Reading a question takes two passes: the model answers with its prompt, then reads its reply.  The answer is kept,
    so that it need not be generated again after the gate's decision.  The paper's prompt asks for a chain of thought:
    give the model such a prompt, and enough tokens.

    It is a `StateSource`: its states can be stored, and used for probes and gates, like states of questions.

    Args:
        model: The model that answers, read in its `layers`.
    """

    def __init__(self, model: TransformersModel) -> None:
        self.model = model
        self.id, self.revision, self.layers, self.prompts = model.id, model.revision, model.layers, model.prompts

    def __repr__(self) -> str:
        return f"ReplyStates({self.model!r})"

    def fingerprint(self) -> Mapping[str, Any]:
        """The fingerprint of the model, and the largest number of tokens of a reply."""
        return {**self.model.fingerprint(), "kind": "reply states", "reply_tokens": self.model.max_tokens}

    def read(self, question: str, passages: Sequence[Passage] = ()) -> State:
        """Answer one prompt and read the reply; `resume` returns that reply at no further cost.

        Raises:
            DataError: The question is empty.
            ModelError: A pass failed, or prompt and reply exceed the context.
        """
        required_questions([question])
        reply = self.model.answer(question, passages)
        values, cost = self.of_text(question, reply.text, passages)
        paid = replace(reply, costs=dict.fromkeys(reply.costs, Cost()))
        return State(values=values, cost=total_cost({**reply.costs, "reading": cost}), resume=lambda: paid)

    def read_batch(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> States:
        """Answer many prompts in batches and read each reply; see `StateSource.read_batch`.

        Raises:
            DataError: A question is empty.
            ModelError: A pass failed, or a prompt and its reply exceed the context.
        """
        required_questions(questions)
        given = passages_of_each(questions, passages)
        replies: list[Reply] = self.model.answers(questions, given)
        rows = [self.of_text(q, reply.text, p)[0] for q, reply, p in zip(questions, replies, given, strict=True)]
        return np.stack(rows) if rows else np.zeros((0, len(self.layers), 0), dtype=np.float32)

    def of_text(self, question: str, text: str, passages: Sequence[Passage] = ()) -> tuple[States, Cost]:
        """Return the mean state of a reply in each layer, shape ``(n_layers, width)``, and the cost of the pass.

        NaN for a reply without tokens.

        Raises:
            ModelError: The pass failed, or prompt and reply exceed the context.
        """
        reading = read_text(self.model, question, text, passages)
        if not len(reading.states):
            return np.full(reading.states.shape[1:], np.nan, dtype=np.float32), reading.cost
        mean = reading.states.astype(np.float64).mean(axis=0)
        length = np.linalg.norm(mean, axis=1, keepdims=True)
        return np.divide(mean, length, out=mean, where=length > 0).astype(np.float32), reading.cost
