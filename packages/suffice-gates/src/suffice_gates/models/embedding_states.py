"""States that are embeddings, from an endpoint or from a sentence encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from suffice.errors import DataError
from suffice.loops.models.embeddings import EndpointEmbedder
from suffice.loops.models.prompts import ANSWER_FIRST, Prompt, filled
from suffice.policy.embedding import Embedder, identity, required_texts
from suffice.policy.rounds import Passage
from suffice_gates.models.states import QA, RAG, State, States, passages_of_each, required_questions

RAW = "{system}\n\n{user}\n\n{prefill}"
"""The prompt as a text for models without a chat template."""


class _EmbedderStates:
    """States without layers: one vector from an embedder, whose id and revision identify the states."""

    prompts: tuple[str, ...]
    """The supported prompts."""

    layers: tuple[int, ...] = ()
    """Empty, because there are no layers to choose from."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.embedder!r})"

    @property
    def id(self) -> str:
        """The name of the embedder's model."""
        return self.embedder.id

    @property
    def revision(self) -> str:
        """The version of the embedder's model; for an endpoint, the version that its user gave."""
        return self.embedder.revision


class EndpointStates(_EmbedderStates):
    r"""Reads the state of the last prompt token from an OpenAI-compatible embeddings endpoint.

    The endpoint must serve the model that answers, and pool by the last token (llama.cpp: ``--embeddings --pooling
    last``).  It returns the output of the last layer only, and generation cannot continue from it.  Most endpoints
    scale vectors to length one, so a probe fits only the endpoint that it was trained on.

    An embeddings endpoint does not apply a chat template. Give the model's chat template as `template`, for instance
    ``"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{prefill}"``.

    Args:
        embedder: Model and endpoint; prompts are sent whole, so the embedder's `max_chars` is ignored.
        prompt: The prompt of the model whose answers are gated.
        template: The text for a prompt; `{system}`, `{user}` and `{prefill}` are replaced by the messages.

    Raises:
        DataError: The template does not contain `{user}`.
    """

    prompts = (QA, RAG)
    embedder: EndpointEmbedder

    def __init__(self, embedder: EndpointEmbedder, *, prompt: Prompt = ANSWER_FIRST, template: str = RAW) -> None:
        if "{user}" not in template:
            raise DataError(f"the template must contain {{user}} for question and passages; got {template!r}")
        super().__init__(embedder)
        self.prompt, self.template = prompt, template

    def fingerprint(self) -> Mapping[str, Any]:
        """Endpoint, model, prompt and template."""
        return {
            "kind": "endpoint states",
            "endpoint": self.embedder.endpoint,
            "model": self.id,
            "revision": self.revision,
            **self.prompt.pin,
            "template": self.template,
            "extra_body": dict(self.embedder.extra_body),
        }

    def prompt_text(self, question: str, passages: Sequence[Passage] = ()) -> str:
        """Return the prompt as the text to send."""
        values = {"system": self.prompt.system, "user": self.prompt.user(question, passages)}
        return filled(self.template, values | {"prefill": self.prompt.prefill})

    def read(self, question: str, passages: Sequence[Passage] = ()) -> State:
        """Read one prompt; the state cannot be resumed.

        Raises:
            DataError: The question is empty.
            ModelError: The endpoint failed, or returned no usable vector.
        """
        required_questions([question])
        vectors, cost = self.embedder.vectors(required_texts([self.prompt_text(question, passages)]))
        return State(values=vectors.astype(np.float32), cost=cost)

    def read_batch(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> States:
        """Read many prompts; see `StateSource.read_batch`.

        Raises:
            DataError: A question is blank, or the list of questions is empty.
            ModelError: The endpoint failed, or returned no usable vectors.
        """
        required_questions(questions)
        if not questions:
            raise DataError(
                "questions is empty: give at least one, because the width of the states comes from the reply"
            )
        texts = [self.prompt_text(q, p) for q, p in zip(questions, passages_of_each(questions, passages), strict=True)]
        return self.embedder.vectors(required_texts(texts))[0].astype(np.float32)[:, None, :]


class EncoderStates(_EmbedderStates):
    """A sentence encoder's vector of the question, for gates of models whose states are not accessible.

    It represents the question, not the knowledge of a model: a probe on it learns which questions a model tends to know.

    Args:
        embedder: Any embedder: MiniLM, sentence-transformers, an endpoint.
    """

    prompts = (QA,)

    def fingerprint(self) -> Mapping[str, Any]:
        """Id, revision and pooling of the encoder."""
        return {"kind": "encoder states", **identity(self.embedder)}

    def read(self, question: str, passages: Sequence[Passage] = ()) -> State:
        """Encode one question; the state cannot be resumed.

        Raises:
            DataError: The question is empty, or there are passages.
            ModelError: The encoder failed.
        """
        self._check([question], [passages])
        vectors, cost = self.embedder.embed_costed([question])
        return State(values=vectors, cost=cost)

    def read_batch(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> States:
        """Encode many questions, shape ``(n, 1, width)``.

        Raises:
            DataError: A question is empty, or there are passages.
            ModelError: The encoder failed.
        """
        self._check(questions, passages)
        return self.embedder.embed(list(questions))[:, None, :]

    def _check(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None) -> None:
        required_questions(questions)
        if any(passages or ()):
            raise DataError(f"the encoder {self.id!r} reads only questions, not passages: use hidden states of a model")
