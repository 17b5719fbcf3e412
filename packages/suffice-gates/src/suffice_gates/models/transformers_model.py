"""Any local causal language model of transformers: its answers and hidden states."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.errors import DataError, LogprobsUnavailableError, ModelError
from suffice.loops.models._wire import Completion
from suffice.loops.models.prompted import PromptedModel
from suffice.loops.models.prompts import ANSWER_FIRST, Prompt
from suffice.policy.rounds import Cost, Passage, Reply, Token
from suffice.policy.signals.margins import LOGPROB_NEEDS
from suffice.policy.signals.position import AnswerPosition
from suffice_gates.models._transformers_batches import Batches
from suffice_gates.models._transformers_loading import LoadedModel, load_model
from suffice_gates.models._transformers_passes import (
    Choose,
    GeneratedToken,
    Prefill,
    generate,
    greedy,
    last_states,
    prefill,
    sampling_at,
)
from suffice_gates.models._transformers_prompts import PromptEncoder
from suffice_gates.models._transformers_queue import PromptQueue
from suffice_gates.models.states import QA, RAG, State, States, layer_index, passages_of_each, required_questions

__all__ = ["LoadedModel", "TransformersModel", "load_model"]


def _never() -> bool:
    return False


class TransformersModel(PromptedModel):
    """A causal language model of transformers, both an `Answerer` and a `StateSource`.

    **Answers** are greedy, with log-probabilities of the raw distribution.  The model's generation configuration
    (penalties, sampling) is not applied.  **States** are those of the last prompt token, before the first generated
    token.  States and answers have the same prompts: `qa` without passages, and `rag` with passages.  Layers are
    numbered as in transformers' `hidden_states`.  In a model of n layers, 0 is the embedding, and n is the output of
    the last layer (after the final norm, in most architectures).  Negative numbers count from the end; `middle` is n //
    2, and `last` is n.

    Prompts are never cut: a prompt longer than the context is an error.  If memory runs out, the batch is halved for
    good (see `batch_size`).

    ::

        model = TransformersModel("./llama", layers=("middle", "last"))
        state = model.read("Who wrote The Shining?")
        state.values.shape, state.resume().answer  # (2, 4096), 'Stephen King'

    Args:
        model: A folder, an id of the hub, or a loaded model, which may be shared.
        layers: Layers whose states are read; in the attribute `layers` they are numbers from 0, the embedding.
        prompt: Builds the messages from question and passages.
        rag_prompt: Prompt for questions with passages; None for `prompt`.
        position: Position of the answer in a reply; default: at the start if the prompt is prefilled, else after the
            marker `Answer:`.
        max_tokens: Largest number of tokens to generate.
        top_logprobs: Number of alternatives to return for each token.
        batch_size: Largest number of prompts in a pass.
        max_prompt_tokens: Longest prompt; None for the context of the model.
        chat_template_kwargs: Further variables of the chat template: ``{"enable_thinking": False}`` turns thinking off
            for many models.
        name: Name in reports; default: the model's name.
        **loading: `revision`, `dtype`, `device` and `options` of `load_model`.

    Raises:
        DataError: A parameter is out of range, or a layer does not exist.
        MissingExtraError: torch or transformers is not installed.
        ModelError: The model does not exist or cannot be loaded.
    """

    prompts = (QA, RAG)
    top_logprobs: int

    runs_here = True

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        layers: Sequence[int | str] = ("middle",),
        prompt: Prompt = ANSWER_FIRST,
        rag_prompt: Prompt | None = None,
        position: AnswerPosition | None = None,
        max_tokens: int = 64,
        top_logprobs: int = 5,
        batch_size: int = 16,
        max_prompt_tokens: int | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        **loading: Any,
    ) -> None:
        for what, value in (("max_tokens", max_tokens), ("top_logprobs", top_logprobs), ("batch_size", batch_size)):
            if value < 1:
                raise DataError(f"{what} must be at least 1, got {value!r}")
        self.loaded = model if isinstance(model, LoadedModel) else load_model(model, **loading)
        super().__init__(prompt, position, top_logprobs)
        self.id, self.revision, self.name = self.loaded.id, self.loaded.revision, name or self.loaded.id
        self.rag_prompt, self.max_tokens = rag_prompt or prompt, max_tokens
        self._batches = Batches(self.loaded.id, batch_size)
        self._queue = PromptQueue(self._batches, lambda ids, is_left: self._completions(ids, greedy, is_left))
        limits = [limit for limit in (max_prompt_tokens, self.loaded.context) if limit is not None]
        self._limit = min(limits) if limits else None
        self.layers = tuple(layer_index(layer, self.loaded.n_layers) for layer in layers)
        self._encoder = PromptEncoder(self.loaded.tokenizer, chat_template_kwargs)
        self._ends = self.loaded.ends

    def __repr__(self) -> str:
        return f"TransformersModel({self.loaded.id!r}, layers={self.layers!r}, prompt={self.prompt.prompt_id!r})"

    @property
    def batch_size(self) -> int:
        """Largest number of prompts in a pass; halved whenever memory ran out."""
        return self._batches.size

    def verify(self, needs: frozenset[str]) -> None:
        """Check `needs` against `capabilities`, without a request.

        Raises:
            LogprobsUnavailableError: Log-probabilities are needed, and `top_logprobs` is below 2.
        """
        if LOGPROB_NEEDS & needs - self.capabilities:
            raise LogprobsUnavailableError(
                f"log-probabilities are needed, but top_logprobs is {self.top_logprobs!r}: set it to 2 or more"
            )

    def fingerprint(self) -> Mapping[str, Any]:
        """All settings that affect its replies and states; device and batch size do not."""
        template = json.dumps(self._encoder.describe(), sort_keys=True)
        return {
            "kind": "transformers",
            "model": self.id,
            "revision": self.revision,
            **({} if self.loaded.content is None else {"content": self.loaded.content}),
            "precision": self.loaded.precision,
            "layers": list(self.layers),
            **self._reading_pin(),
            "rag_prompt_sha256": self.rag_prompt.sha256,
            "template_sha256": hashlib.sha256(template.encode()).hexdigest(),
            "max_tokens": self.max_tokens,
            "top_logprobs": self.top_logprobs,
        }

    def answer(self, question: str, passages: Sequence[Passage] = ()) -> Reply:
        """Answer a question; see `Answerer.answer`.

        Raises:
            ModelError: The prompt is longer than the context, or memory runs out.
        """
        return self._reply(self._complete(self._ids(question, passages)))

    async def answer_async(self, question: str, passages: Sequence[Passage] = ()) -> Reply:
        """Like `answer`, without blocking: prompts that wait at the same time share a pass, at most `batch_size` of them.

        The seconds of a batch are divided evenly.  Cancelling ends the generation once nobody waits for its batch.
        """
        ids = await asyncio.to_thread(self._ids, question, passages)
        return self._reply(await self._queue.completion(ids))

    def complete(self, messages: Sequence[Mapping[str, str]]) -> Completion:
        """Continue chat messages and return the unparsed reply; see `Completer.complete`.

        Raises:
            ModelError: The prompt is longer than the context, or memory runs out.
        """
        return self._complete(self.prompt_ids(messages))

    async def complete_async(self, messages: Sequence[Mapping[str, str]]) -> Completion:
        """Like `complete`, without blocking; prompts that wait at the same time share a pass, see `answer_async`."""
        ids = await asyncio.to_thread(self.prompt_ids, messages)
        return await self._queue.completion(ids)

    def answers(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> list[Reply]:
        """Answer many questions in batches; the seconds of a batch are divided evenly.

        The replies equal those of `answer`, up to rounding in the model's precision.

        Args:
            questions: The questions to read.
            passages: The passages of each question; None for the prompt without passages.

        Raises:
            ModelError: A prompt is longer than the context, or memory runs out.
        """
        ids = [self._ids(q, p) for q, p in zip(questions, passages_of_each(questions, passages), strict=True)]
        replies: list[Reply] = [Reply(answer=None)] * len(ids)
        for rows, batch_replies in self._batches.run(ids, lambda chosen: self._replies(chosen, greedy)):
            for row, reply in zip(rows, batch_replies, strict=True):
                replies[row] = reply
        return replies

    def samples(
        self,
        question: str,
        passages: Sequence[Passage] = (),
        *,
        n: int,
        temperature: float = 1.0,
        rng: np.random.Generator,
    ) -> list[Reply]:
        """Sample several answers to one question; the log-probabilities are those at temperature 1.

        Args:
            question: The question.
            passages: Passages in the order in which they were revealed.
            n: Number of answers, at least 1.
            temperature: Sampling temperature, > 0.
            rng: Draws the tokens.

        Raises:
            DataError: `n` or `temperature` is out of range.
            ModelError: The prompt is longer than the context, or memory runs out.
        """
        if n < 1 or not temperature > 0:
            raise DataError(f"n must be at least 1 and temperature above 0, got {n!r} and {temperature!r}")
        ids = self._ids(question, passages)
        choose = sampling_at(temperature, rng)
        batches = self._batches.run([ids] * n, lambda chosen: self._replies(chosen, choose))
        return [reply for _, replies in batches for reply in replies]

    def read(self, question: str, passages: Sequence[Passage] = ()) -> State:
        """Read the states of one prompt; `resume` continues the same pass with the answer, without reading tokens again.

        Raises:
            DataError: The question is empty.
            ModelError: The prompt is longer than the context, memory runs out, or the model returns no states.
        """
        required_questions([question])
        ids = self._ids(question, passages)
        began = time.perf_counter()
        start = self._batches.one(ids, lambda chosen: prefill(self.loaded, chosen, self.layers))
        seconds = time.perf_counter() - began
        cost = Cost(calls=1.0, uncached_tokens=float(len(ids)), seconds=seconds)
        return State(values=start.states[0], cost=cost, resume=_Resume(self, ids, start))

    def read_batch(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> States:
        """Read the states of many prompts in batches of similar length, without running layers above the highest that is read.

        See `StateSource.read_batch`; NaN where the model left a state undefined.

        Raises:
            DataError: A question is empty.
            ModelError: A prompt is longer than the context, memory runs out, or the model returns no states.
        """
        required_questions(questions)
        ids = [self._ids(q, p) for q, p in zip(questions, passages_of_each(questions, passages), strict=True)]
        states = np.zeros((len(ids), len(self.layers), int(self.loaded.config.hidden_size)), dtype=np.float32)
        for rows, batch_states in self._batches.run(ids, lambda chosen: last_states(self.loaded, chosen, self.layers)):
            states[rows] = batch_states
        return states

    def prompt_text(self, question: str, passages: Sequence[Passage] = ()) -> str:
        """Return the text that the model reads, chat template included."""
        return self._encoder.text(self._messages(question, passages))

    def _messages(self, question: str, passages: Sequence[Passage]) -> Any:
        return (self.rag_prompt if passages else self.prompt).messages(question, passages)

    def _ids(self, question: str, passages: Sequence[Passage]) -> list[int]:
        """Return the tokens of a prompt, checked against the limit."""
        what = f"{question[:60]!r} with {len(passages)} passages"
        return self.prompt_ids(self._messages(question, passages), what)

    def prompt_ids(self, messages: Sequence[Mapping[str, str]], what: str = "these messages") -> list[int]:
        """Return the tokens that the model reads for chat messages.

        Args:
            messages: The messages.
            what: Description of the messages, for errors.

        Raises:
            DataError: The messages have no tokens.
            ModelError: The messages are longer than the context.
        """
        ids = self._encoder.ids(messages)
        if not ids:
            raise DataError(f"the prompt of {what} has no tokens: check prompt and chat template of {self.id!r}")
        if self._limit is not None and len(ids) > self._limit:
            raise ModelError(
                f"the prompt of {what} has {len(ids)} tokens, but {self.id!r} reads at most {self._limit}: use fewer or "
                "shorter passages"
            )
        return ids

    def _complete(self, ids: Sequence[int]) -> Completion:
        return self._batches.one(ids, lambda chosen: self._completions(chosen, greedy, _never))[0]

    def _resume(self, start: Prefill, ids: Sequence[int]) -> Reply:
        """Continue a pass over one prompt with generation."""
        began = time.perf_counter()
        (steps,) = self._batches.one(ids, lambda _: self._generate(start, len(ids)))
        return self._reply(self._completion(steps, Cost(calls=1.0, seconds=time.perf_counter() - began)))

    def _replies(
        self, ids: Sequence[Sequence[int]], choose: Choose, is_cancelled: Callable[[], bool] = _never
    ) -> list[Reply]:
        """Answer the prompts of one batch."""
        return [self._reply(completion) for completion in self._completions(ids, choose, is_cancelled)]

    def _completions(
        self, ids: Sequence[Sequence[int]], choose: Choose, is_cancelled: Callable[[], bool]
    ) -> list[Completion]:
        """Continue the prompts of one batch; if their replies may have different lengths, the batch is divided by this length."""
        rooms = [self._room(len(row)) for row in ids]
        if len(set(rooms)) > 1:  # in one batch, the longest prompt would shorten the replies to all others
            by_row: dict[int, Completion] = {}
            for room in set(rooms):
                rows = [row for row, own in enumerate(rooms) if own == room]
                parts = self._completions([ids[row] for row in rows], choose, is_cancelled)
                by_row |= dict(zip(rows, parts, strict=True))
            return [by_row[row] for row in range(len(ids))]
        began = time.perf_counter()
        start = prefill(self.loaded, ids, ())
        steps_by_row = self._generate(start, max(map(len, ids)), choose, is_cancelled)
        seconds = (time.perf_counter() - began) / len(ids)
        return [
            self._completion(steps, Cost(calls=1.0, uncached_tokens=float(len(row)), seconds=seconds))
            for row, steps in zip(ids, steps_by_row, strict=True)
        ]

    def _generate(
        self, start: Prefill, longest: int, choose: Choose = greedy, is_cancelled: Callable[[], bool] = _never
    ) -> list[list[GeneratedToken]]:
        """Generate at most as many tokens as fit into the context after the longest prompt."""
        return generate(
            self.loaded,
            start,
            max_tokens=self._room(longest),
            ends=self._ends,
            n_top=self.top_logprobs,
            choose=choose,
            is_cancelled=is_cancelled,
        )

    def _room(self, length: int) -> int:
        """Return how many tokens may follow a prompt of this length."""
        context = self.loaded.context
        return self.max_tokens if context is None else min(self.max_tokens, context - length + 1)

    def _reply(self, completion: Completion) -> Reply:
        """Read the answer of a completion."""
        return self._read(completion.text, completion.tokens, completion.cost, finish_reason=completion.finish_reason)

    def _completion(self, steps: Sequence[GeneratedToken], cost: Cost) -> Completion:
        """Return generated tokens as a completion."""
        is_ended = bool(steps) and steps[-1].token in self._ends
        content = steps[:-1] if is_ended else steps
        tokenizer = self.loaded.tokenizer
        text = str(
            tokenizer.decode(
                [step.token for step in content], skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )
        tokens = tuple(
            Token(
                text=_vocabulary_token(tokenizer, step.token),
                logprob=step.logprob,
                alternatives=tuple((_vocabulary_token(tokenizer, token), logprob) for token, logprob in step.top),
            )
            for step in content
        )
        return Completion(
            text=text,
            tokens=tokens,
            cost=replace(cost, output_tokens=float(len(steps))),
            finish_reason="stop" if is_ended else "length",
        )


class _Resume:
    """Continues a pass once; further calls return the same reply."""

    def __init__(self, model: TransformersModel, ids: Sequence[int], start: Prefill) -> None:
        self._model, self._ids = model, ids
        self._start: Prefill | None = start
        self._reply: Reply | None = None
        self._lock = threading.Lock()

    def __call__(self) -> Reply:
        with self._lock:
            if self._reply is None:
                start, self._start = self._start, None  # releases the cache of the pass
                if start is None:
                    raise ModelError("an earlier generation from this pass failed: read the question again")
                self._reply = self._model._resume(start, self._ids)  # noqa: SLF001 - a part of that class
            return self._reply


def _vocabulary_token(tokenizer: Any, token: int) -> str:
    """Return the token of an id; `<id N>` for an id beyond the vocabulary, which occurs if the weights are padded."""
    return str(tokenizer.convert_ids_to_tokens(token) or f"<id {token}>")
