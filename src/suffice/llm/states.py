"""What a model holds of a prompt before it says a word: hidden states, and the seam to whatever reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.rounds import Cost, Passage, Reply

__all__ = [
    "QA",
    "RAG",
    "State",
    "StateSource",
    "States",
    "layer_index",
    "passages_of_each",
    "prompt_id",
    "required_questions",
]

States = npt.NDArray[np.float32]

QA = "qa"
"""The prompt without passages."""

RAG = "rag"
"""The prompt with passages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a source read of one prompt.

    Attributes:
        values: One vector for each layer, shape ``(n_layers, width)``; a row that the model left undefined stays NaN.
            Not compared by ``==``.
        cost: What the pass cost: calls, prompt tokens as uncached or cached, seconds.
        resume: Goes on from this pass's cache into generation; the reply's costs are the decode alone. None where
            the source cannot. It may be called once or not at all, and keeps the pass's cache alive until it is gone.
    """

    values: States = field(compare=False)
    cost: Cost
    resume: Callable[[], Reply] | None = None


@runtime_checkable
class StateSource(Protocol):
    """Whatever turns a question into vectors that a probe reads.

    A probe is trained on one source and one layer, and pins `id`, `revision` and the layer.
    """

    @property
    def id(self) -> str:
        """The model's name."""
        ...

    @property
    def revision(self) -> str:
        """What tells two versions of the model apart: a hash of its weights, or the words of whoever serves it."""
        ...

    @property
    def layers(self) -> tuple[int, ...]:
        """Which layers it reads, in the order of the states' first axis; 0 is the embedding. Empty where there are none.

        A source without layers still gives one vector: its states have the shape ``(1, width)``.
        """
        ...

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompts that it can read: `qa` (the question alone) and perhaps `rag` (with passages)."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that changes its states (model, revision, layers, prompt, precision), JSON-ready, no secrets."""
        ...

    def read(self, question: str, passages: Sequence[Passage] = ()) -> State:
        """Read one prompt: the QA prompt without passages, the RAG prompt with them.

        Raises:
            DataError: The question is empty, or there are passages and the source reads questions only.
            ModelError: The model failed, or the prompt is longer than its context.
        """
        ...

    def read_batch(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> States:
        """Read many prompts, as few passes as fit; nothing is generated.

        Args:
            questions: The questions.
            passages: Those of each question; None for none at all.

        Returns:
            Shape ``(n, n_layers, width)``, in the order of `questions`.

        Raises:
            DataError: A question is empty, or there are passages and the source reads questions only.
            ModelError: The model failed, or a prompt is longer than its context.
        """
        ...


def prompt_id(passages: Sequence[Passage]) -> str:
    """Return which prompt is read with these passages.

    >>> prompt_id([]), prompt_id([Passage(passage_id="1", title="", text="x")])
    ('qa', 'rag')
    """
    return RAG if passages else QA


def layer_index(layer: int | str, n_layers: int) -> int:
    """Return which of transformers' `hidden_states` a layer is: 0 the embedding, `n_layers` what leaves the last layer.

    >>> [layer_index(layer, 32) for layer in ("middle", "last", -1, -2, 0, "7")]
    [16, 32, 32, 31, 0, 7]

    Args:
        layer: `middle`, `last`, or a number; -1 is the last one.
        n_layers: How many layers the model has.

    Raises:
        DataError: The model has no such layer.
    """
    named = {"middle": n_layers // 2, "last": n_layers}
    try:
        found = named[layer] if layer in named else int(layer)
    except ValueError:
        raise DataError(f"there is no layer {layer!r}; give 'middle', 'last', or a number") from None
    if not -n_layers - 1 <= found <= n_layers:
        raise DataError(
            f"there is no layer {layer!r}: the model has {n_layers}, and 0 is the embedding; -1 is the last"
        )
    return found % (n_layers + 1)


def required_questions(questions: Sequence[str]) -> None:
    """Refuse what is no list of questions with words in them.

    Raises:
        DataError: One is empty, or no text, or all of it is one text.
    """
    if isinstance(questions, str):
        raise DataError(f"expected a list of questions, got the text {questions[:80]!r}")
    for number, question in enumerate(questions):
        if not isinstance(question, str) or not question.strip():
            raise DataError(f"question {number} is {question!r}: an empty question has no state. Leave it out")


def passages_of_each(
    questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None
) -> Sequence[Sequence[Passage]]:
    """Return the passages of each question; none of them where `passages` is None.

    Raises:
        DataError: There are passages for another number of questions.
    """
    if passages is None:
        return [()] * len(questions)
    if len(passages) != len(questions):
        raise DataError(f"there are passages for {len(passages)} questions, and {len(questions)} questions")
    return passages
