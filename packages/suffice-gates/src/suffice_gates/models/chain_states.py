"""States of a local model at the checkpoints of a chain of thought, read from the token ids or the text of the chain."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from suffice.errors import DataError
from suffice.loops.thinking_loop import ThinkingPrompt
from suffice.policy.rounds import Cost, Passage, Round
from suffice_gates.models._transformers_passes import position_states
from suffice_gates.models.reply_states import check_context
from suffice_gates.models.states import State, States, required_questions
from suffice_gates.models.transformers_model import TransformersModel

THOUGHTS = "thoughts"
"""The prompt of a chain of thought, up to a checkpoint."""


class ChainStates:
    """The state of the last token of a chain of thought at a checkpoint, before any text that ends the thinking.

    It is a `StateSource` of the prompt `thoughts`.  A chain is read from the token ids that the model generated.  If
    the rounds do not contain token ids, it is read from its text.

    Args:
        model: The model that thinks, read in its `layers`.
        prompt: The raw text around the model's chains, as in the `ThinkingLoop`.
    """

    prompts = (THOUGHTS,)

    def __init__(self, model: TransformersModel, prompt: ThinkingPrompt) -> None:
        self.model, self.prompt = model, prompt
        self.id, self.revision, self.layers = model.id, model.revision, model.layers

    def __repr__(self) -> str:
        return f"ChainStates({self.model!r}, {self.prompt.prompt_id!r})"

    def fingerprint(self) -> Mapping[str, Any]:
        """The model, revision, layers and precision, and a hash of the text around the chains; other prompts do not count."""
        own = self.model.fingerprint()
        kept = {name: own[name] for name in ("model", "revision", "content", "precision", "layers") if name in own}
        return {**kept, "kind": "chain states", "thinking_prompt_sha256": self.prompt.sha256}

    def read(self, question: str, passages: Sequence[Passage] = ()) -> State:
        """Read the state before the first thought.

        Raises:
            DataError: The question is empty, or there are passages.
            ModelError: The pass failed.
        """
        if passages:
            raise DataError("a chain of thought has no place for passages: put them into the question")
        required_questions([question])
        values, cost = self.of_chain(question, [])
        return State(values=values, cost=cost)

    def read_batch(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> States:
        """Read the states of many questions before the first thought; see `read`."""
        given = [()] * len(questions) if passages is None else passages
        rows = [self.read(question, shown).values for question, shown in zip(questions, given, strict=True)]
        return np.stack(rows) if rows else np.zeros((0, len(self.layers), 0), dtype=np.float32)

    def of_chain(self, question: str, rounds: Sequence[Round]) -> tuple[States, Cost]:
        """Return the state after the last checkpoint of `rounds`, shape ``(n_layers, width)``, and the pass's cost.

        Raises:
            ModelError: The pass failed, or the chain exceeds the context.
        """
        began = time.perf_counter()
        ids, places = self._tokens(question, rounds)
        states = position_states(self.model.loaded, ids, self.layers, places[-1:])
        cost = Cost(calls=1.0, uncached_tokens=float(len(ids)), seconds=time.perf_counter() - began)
        return states[0], cost

    def of_checkpoints(self, question: str, rounds: Sequence[Round]) -> States:
        """Return the state after each checkpoint in `rounds`, shape ``(n_rounds, n_layers, width)``.

        If the token ids are known, one pass reads all checkpoints.  Otherwise there is one pass for each checkpoint,
        because the tokenizer may divide the start of a longer text into other tokens.
        """
        if any(observed.thinking_ids is None for observed in rounds):
            return np.stack([self.of_chain(question, rounds[: r + 1])[0] for r in range(len(rounds))])
        ids, places = self._tokens(question, rounds)
        return position_states(self.model.loaded, ids, self.layers, places[1:])

    def _tokens(self, question: str, rounds: Sequence[Round]) -> tuple[list[int], list[int]]:
        """Return the tokens of prompt and chain, and the last position of the prompt and of each checkpoint."""
        tokenizer: Any = self.model.loaded.tokenizer
        start, stretches = self.prompt.text(question), [observed.thinking_ids for observed in rounds]
        if any(stretch is None for stretch in stretches):
            ids = [int(token) for token in tokenizer(start + "".join(r.thinking or "" for r in rounds))["input_ids"]]
            lengths = [len(ids)]
        else:
            own = [[int(token) for token in stretch or ()] for stretch in stretches]
            ids = [int(token) for token in tokenizer(start)["input_ids"]]
            lengths = [len(ids), *map(len, own)]
            ids += [token for stretch in own for token in stretch]
        check_context(self.model, question, len(ids))
        return ids, [end - 1 for end in accumulate(lengths)]
