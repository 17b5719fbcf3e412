"""Hidden states of a model before its first generated token, and the protocol of their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffice.common.tables import counted
from suffice.errors import DataError, NotFoundError
from suffice.policy.rounds import Cost, Passage, Reply

States = npt.NDArray[np.float32]

QA = "qa"
"""The prompt without passages."""

RAG = "rag"
"""The prompt with passages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of one prompt.

    Attributes:
        values: One vector per layer, shape ``(n_layers, width)``; NaN where the model left it undefined.  Ignored by
            ``==``.
        cost: Cost of the pass: calls, uncached and cached prompt tokens, seconds.
        resume: Continues this pass with generation, so that the reply costs only the decoding. None if the source
            cannot do that. It is called at most once, and keeps the cache of the pass in memory as long as it exists.
    """

    values: States = field(compare=False)
    cost: Cost
    resume: Callable[[], Reply] | None = None


@runtime_checkable
class StateSource(Protocol):
    """Protocol of a source of hidden states, which turns questions into vectors for a probe.

    A probe is trained on one source and one layer, and accepts only states with the same `id`, `revision` and layer.
    """

    @property
    def id(self) -> str:
        """The model's name."""
        ...

    @property
    def revision(self) -> str:
        """Version of the model: a hash of its weights, or a name given by its provider."""
        ...

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers in the order of the states' first axis; 0 is the embedding.

        Empty for a source without layers, which still returns one vector: its states have the shape ``(1, width)``.
        """
        ...

    @property
    def prompts(self) -> tuple[str, ...]:
        """The supported prompts: `qa` (the question alone) and possibly `rag` (with passages)."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """JSON-ready settings that affect the states (model, revision, layers, prompt, precision), without secrets."""
        ...

    def read(self, question: str, passages: Sequence[Passage] = ()) -> State:
        """Read one prompt: the QA prompt without passages, the RAG prompt with them.

        Raises:
            DataError: The question is empty, or there are passages and the source reads questions only.
            ModelError: The model failed, or the prompt is longer than its context.
        """
        ...

    def read_batch(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> States:
        """Read many prompts in as few passes as possible, without generating.

        Args:
            questions: One prompt is read for each.
            passages: The passages of each question; None for the prompt without passages.

        Returns:
            Shape ``(n, n_layers, width)``, in the order of `questions`.

        Raises:
            DataError: A question is empty, or there are passages and the source reads questions only.
            ModelError: The model failed, or a prompt is longer than its context.
        """
        ...


def prompt_id(passages: Sequence[Passage]) -> str:
    """Return the name of the prompt: `rag` with passages, `qa` without.

    >>> prompt_id([]), prompt_id([Passage(passage_id="1", title="", text="x")])
    ('qa', 'rag')
    """
    return RAG if passages else QA


def layer_index(layer: int | str, n_layers: int) -> int:
    """Return the index of a layer in transformers' `hidden_states`: 0 is the embedding, `n_layers` the last output.

    >>> [layer_index(layer, 32) for layer in ("middle", "last", -1, -2, 0, "7")]
    [16, 32, 32, 31, 0, 7]

    Args:
        layer: `middle`, `last`, or a number; -1 is the last one.
        n_layers: Number of layers of the model.

    Raises:
        DataError: The layer does not exist.
    """
    named = {"middle": n_layers // 2, "last": n_layers}
    try:
        index = named[layer] if layer in named else int(layer)
    except ValueError:
        raise DataError(f"unknown layer {layer!r}; allowed: 'middle', 'last', or a number") from None
    if not -n_layers - 1 <= index <= n_layers:
        raise NotFoundError(
            f"layer {layer!r} does not exist: the model has {n_layers} layers; 0 is the embedding and -1 the last"
        )
    return index % (n_layers + 1)


def required_questions(questions: Sequence[str]) -> None:
    """Raise if `questions` is a single text instead of a sequence, or contains a blank text.

    Raises:
        DataError: `questions` is a text, or an element is blank or not a text.
    """
    if isinstance(questions, str):
        raise DataError(f"expected a list of questions, got the text {questions[:80]!r}")
    for number, question in enumerate(questions):
        if not isinstance(question, str) or not question.strip():
            raise DataError(
                f"question {number} is {question!r}; expected a text that is not blank: leave the question out"
            )


def passages_of_each(
    questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None
) -> Sequence[Sequence[Passage]]:
    """Return the passages of each question; an empty tuple for each if `passages` is None.

    Raises:
        DataError: The numbers of questions and of lists of passages differ.
    """
    if passages is None:
        return [()] * len(questions)
    if len(passages) != len(questions):
        raise DataError(
            f"expected one list of passages for each of {counted(len(questions), 'question')}, got {counted(len(passages), 'list')}"
        )
    return passages
