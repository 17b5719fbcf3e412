"""A tiny Llama that learns facts of a `ChainedWorld`, and reasoning in the formats of the methods.

It learns four things:

- to write chains of two sentences, Self-Ask's follow-up questions, and FLARE's questions;
- a third of the facts of its world, from chains without passages;
- to be unsure of all other facts, because rumours have another value each time;
- to read passages, whose values are drawn anew each time, so that they teach no facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from suffice.loops.models.prompts import Prompt
from suffice.policy.rounds import Passage
from suffice_papers.cbdr.world import TITLES, write_questions
from suffice_papers.rivals.chained_world import (
    BRIDGES,
    LEAVES,
    ChainedWorld,
    Pair,
    make_chained_world,
    two_step_question,
)
from suffice_papers.tiny_llama import (
    END_TOKEN,
    OnProgress,
    require_torch,
    tiny_llama,
    train_llama,
    train_network,
    word_tokenizer,
)
from suffice_retrieval.methods import ChainPrompt

_PLAIN: dict[str, Any] = {"version": 1, "system": "", "question": "{question}", "passage": "\n\n{text}"}
TINY_CHAIN = ChainPrompt(name="tiny_chain", chain="\n\n= {chain}", asking="\n< {span}", **_PLAIN)
"""Prompt with which the tiny model continues a chain, for IRCoT, FLARE and DRAGIN."""

TINY_SELF_ASK = ChainPrompt(name="tiny_self_ask", chain="\n\n? {chain}", **_PLAIN)
"""Prompt with which the tiny model continues Self-Ask's text."""

READER = Prompt(name="tiny_reader", prefill="=", **_PLAIN)
"""Prompt with which the tiny model answers by writing a whole chain at once."""

ASKING_LENGTH = 16
"""Tokens of a step: a sentence of the chain, or an intermediate answer and the next follow-up question."""

STEPS = 1400
"""Training steps."""

_CHAIN_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{% set parts = message['content'].split('\n\n') %}"
    "{% set is_chain = parts | length > 1 and parts[-1][0] in '=?' %}"
    "{% for part in parts[1:-1] %}{{ part + '\n' }}{% endfor %}"
    "{% if parts | length > 1 and not is_chain %}{{ parts[-1] + '\n' }}{% endif %}"
    "{{ parts[0] }}{% if is_chain %}{{ '\n' + parts[-1] }}{% endif %}"
    "{% elif message['role'] == 'assistant' %}{{ '\n' + message['content'] }}{% endif %}{% endfor %}"
)
"""Drops instructions and moves the question behind the passages, so that a sentence copies from fixed distances."""

_UNAIDED, _READING, _ASKING = 28, 16, 2
_MOST_PASSAGES = 6
_SHOWN_SHARE = 0.85
_SELF_ASK_SHARE = 0.3
_RATE, _WARM = 3e-3, 0.1
_TAUGHT_SHARE = 0.5
_LOOK_BACK = (1, 2, 3, 4, 6, 8, 16, 23)
"""Distances, in tokens, to the words that a sentence repeats: its own entity and relation, those before the value in a
passage, and those of the question and of the previous step in each format."""

_Drawn = TypeVar("_Drawn")


def train_chains(
    folder: str | Path,
    seed: int = 0,
    *,
    steps: int = STEPS,
    threads: int = 1,
    n_questions: tuple[int, int] = (120, 200),
    on_progress: OnProgress | None = None,
) -> ChainedWorld:
    """Train a tiny Llama on the chained world of a seed and save it with its questions.

    Beside the output of `save_pretrained`, this writes ``tune.jsonl``, ``eval.jsonl``, and ``facts.json`` with the status of
    each fact.

    Args:
        folder: Output folder; created if missing.
        seed: Seed of world and training; equal seeds and threads give equal weights on one machine.
        steps: Training steps.
        threads: Processor threads.
        n_questions: Number of questions of `tune` and `eval`.
        on_progress: Called with the number of steps done and the number of all steps.

    Raises:
        MissingExtraError: torch or transformers is not installed.
    """
    require_torch("teaching a tiny model the methods")
    world = make_chained_world(seed)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = _chain_tokenizer(world)
    train_llama(
        path,
        tokenizer,
        lambda: tiny_llama(tokenizer, heads=8, width=32, longest=512, distances=_LOOK_BACK),
        lambda network: _train_chains(network, tokenizer, _ChainLessons(world), steps, on_progress),
        seed=seed,
        threads=threads,
    )
    write_questions(path / "tune.jsonl", world.questions("tune", n_questions[0]))
    write_questions(path / "eval.jsonl", world.questions("eval", n_questions[1]))
    facts = [[*pair, value, world.status[pair]] for pair, value in world.values.items()]
    (path / "facts.json").write_text(
        json.dumps({"seed": seed, "steps": steps, "facts": facts}, indent=1) + "\n", "utf-8"
    )
    return world


def _chain_tokenizer(world: ChainedWorld) -> Any:
    """Return a tokenizer with one token for every word of the world."""
    words = {*world.entities, *BRIDGES, *LEAVES, *TITLES, *(name for leaf in LEAVES for name in world.names[leaf])}
    lesson = _ChainLessons(world)
    samples = ["".join(lesson.unaided()) for _ in range(20)] + ["".join(lesson.asking()) for _ in range(5)]
    return word_tokenizer(sorted(words), samples, template=_CHAIN_TEMPLATE, longest=512)


@dataclass(frozen=True, slots=True)
class _Hop:
    """One step of a lesson: a pair of relation and entity, and the value that the chain states for the pair."""

    pair: Pair
    value: str


class _ChainLessons:
    """The training texts: prompts, each with the text that the model must write after it."""

    def __init__(self, world: ChainedWorld) -> None:
        self._world = world
        self._rng = np.random.default_rng((world.seed, 17))
        told = [pair for pair in world.values if world.status[pair] != "untaught"]
        self._asked = {leaf: [entity for relation, entity in told if relation == leaf] for leaf in LEAVES}
        bridges = [pair for pair in told if pair[0] in BRIDGES]
        self._rumours = [pair for pair in bridges if world.status[pair] == "rumour"]
        self._leading: dict[str, list[Pair]] = {}
        for pair in bridges:
            if world.status[pair] == "taught":
                self._leading.setdefault(world.values[pair], []).append(pair)

    def batches(self) -> Iterator[list[tuple[str, str]]]:
        """Yield the lessons of one training step in two batches: short lessons without passages, then lessons with passages."""
        yield [self.unaided() for _ in range(_UNAIDED)] + [self.asking() for _ in range(_ASKING)]
        yield [self.reading() for _ in range(_READING)]

    def _one_of(self, names: Sequence[_Drawn]) -> _Drawn:
        return names[int(self._rng.integers(len(names)))]

    def _recalled(self, pair: Pair) -> str:
        """Return the value that the model should write without a passage: the taught value, or a random one for a rumour."""
        return (
            self._world.values[pair]
            if self._world.status[pair] == "taught"
            else self._one_of(self._world.names[pair[0]])
        )

    def unaided(self) -> tuple[str, str]:
        """Return a lesson without passages, on facts that are taught and on rumours."""
        leaf = self._one_of(LEAVES)
        middle = self._one_of(self._asked[leaf])
        firsts = self._leading.get(middle, [])
        first = self._one_of(firsts) if firsts and self._rng.random() < _TAUGHT_SHARE else self._one_of(self._rumours)
        second = (leaf, middle)
        return self._written([_Hop(first, middle), _Hop(second, self._recalled(second))], [])

    def reading(self) -> tuple[str, str]:
        """Return a lesson with passages of newly drawn values; a step without a passage must be remembered."""
        hops, shown = [], []
        entity = self._one_of(self._world.entities)
        for relation in (self._one_of(BRIDGES), self._one_of(LEAVES)):
            pair = (relation, entity)
            if self._rng.random() < _SHOWN_SHARE or self._world.status[pair] == "untaught":
                hops.append(_Hop(pair, self._one_of(self._world.names[relation])))
                shown.append(hops[-1])
            else:
                hops.append(_Hop(pair, self._recalled(pair)))
            entity = hops[-1].value
        return self._written(hops, self._passages(shown, hops))

    def _passages(self, shown: Sequence[_Hop], hops: Sequence[_Hop]) -> list[str]:
        """Return the sentences of the steps `shown`, mixed with similar sentences about other pairs."""
        world, n = self._world, int(self._rng.integers(max(1, len(shown)), _MOST_PASSAGES + 1))
        pairs = {hop.pair for hop in hops}
        sentences = [world.sentence(hop.pair, hop.value) for hop in shown]
        while len(sentences) < n:
            relation, entity = hops[int(self._rng.integers(len(hops)))].pair
            kind = int(self._rng.integers(3))
            relation = relation if kind == 0 else self._one_of((*BRIDGES, *LEAVES))
            entity = entity if kind == 1 else self._one_of(world.entities)
            if (relation, entity) not in pairs:
                pairs.add((relation, entity))
                sentences.append(world.sentence((relation, entity), self._one_of(world.names[relation])))
        return [sentences[i] for i in self._rng.permutation(len(sentences))]

    def asking(self) -> tuple[str, str]:
        """Return a lesson in which the model writes FLARE's question about a value in a sentence."""
        bridge, leaf = self._one_of(BRIDGES), self._one_of(LEAVES)
        first, middle = (bridge, self._one_of(self._world.entities)), self._one_of(self._world.entities)
        second, value = (leaf, middle), self._one_of(self._world.names[leaf])
        chain = self._world.sentence(first, middle)
        relation, entity, span = *first, middle
        if self._rng.random() < 0.5:  # noqa: PLR2004 - a half
            chain = f"{chain} {self._world.sentence(second, value)}"
            relation, entity, span = *second, value
        messages = TINY_CHAIN.questioning(two_step_question(first, leaf), chain, span)
        return rendered(messages), f" {relation} of {entity}{END_TOKEN}"

    def _written(self, hops: Sequence[_Hop], sentences: Sequence[str]) -> tuple[str, str]:
        """Return a prompt and the text after it, as a chain or in Self-Ask's format."""
        question = two_step_question(hops[0].pair, hops[1].pair[0])
        passages = [Passage(passage_id=str(i), title="", text=text) for i, text in enumerate(sentences)]
        if self._rng.random() < _SELF_ASK_SHARE:
            lines = [
                line
                for hop in hops
                for line in (
                    f"Follow up: {hop.pair[0]} of {hop.pair[1]}",
                    f"Intermediate answer: {hop.value}",
                )
            ]
            text = "\n".join([*lines, f"So the answer is: {hops[-1].value}"])
            return rendered(TINY_SELF_ASK.continuing(question, passages, "")), f" {text}{END_TOKEN}"
        parts = [self._world.sentence(hop.pair, hop.value) for hop in hops]
        text = " ".join([*parts, f"So the answer is: {hops[-1].value}."])
        return rendered(TINY_CHAIN.continuing(question, passages, "")), f" {text}{END_TOKEN}"


def rendered(messages: Sequence[Mapping[str, str]]) -> str:
    """Return one user message as text, in the form of the chat template; a test compares both forms."""
    first, *others = messages[-1]["content"].split("\n\n")
    chain = others.pop() if others and others[-1][0] in "=?" else None
    return "\n".join([*others, first, *([] if chain is None else [chain])])


def _train_chains(
    network: Any, tokenizer: Any, lessons: _ChainLessons, steps: int, on_progress: OnProgress | None
) -> None:
    """Train with AdamW; only tokens after the prompt count in the loss."""
    import torch

    def loss(ids: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> Any:
        states = network.model(torch.from_numpy(ids)).last_hidden_state[:, :-1]
        wanted = torch.from_numpy(targets[:, 1:])
        mask = wanted != _NOT_LEARNED
        return torch.nn.functional.cross_entropy(network.lm_head(states[mask]), wanted[mask])

    def backward() -> None:
        for batch in lessons.batches():
            loss(*_padded_lessons(tokenizer, batch)).backward()

    train_network(network, backward, steps, rate=_RATE, warm=_WARM, on_progress=on_progress)


_NOT_LEARNED = -1
"""Target of tokens that are ignored in the loss: prompt and padding."""


def _padded_lessons(
    tokenizer: Any, lessons: Sequence[tuple[str, str]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the tokens of lessons, padded on the right, and their targets."""
    prompts = tokenizer([prompt for prompt, _ in lessons], add_special_tokens=False)["input_ids"]
    texts = tokenizer([text for _, text in lessons], add_special_tokens=False)["input_ids"]
    longest = max(len(prompt) + len(text) for prompt, text in zip(prompts, texts, strict=True))
    ids = np.full((len(lessons), longest), tokenizer.pad_token_id, dtype=np.int64)
    targets = np.full((len(lessons), longest), _NOT_LEARNED, dtype=np.int64)
    for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        ids[row, : len(prompt) + len(text)] = [*prompt, *text]
        targets[row, len(prompt) : len(prompt) + len(text)] = text
    return ids, targets
