"""A tiny Llama that is trained on a small invented world, so that we know what it knows.

It learns three things.  The first is the facts of the world, closed book, each with the number of exposures that the
world prescribes.  The second is to answer vaguely where the world has no fact.  The third is to read: the passages of
the reading lessons state values that are drawn anew each time, so they teach no facts.  Training takes half a minute on
two cores, and the model loads like any other in transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.loops.models.prompts import PREFILLED
from suffice.policy.rounds import Passage
from suffice_papers.cbdr.world import (
    EXPOSURES,
    TITLES,
    VAGUE,
    VAGUE_EXPOSURES,
    Fact,
    World,
    make_world,
    write_questions,
)
from suffice_papers.tiny_llama import OnProgress, require_torch, tiny_llama, train_llama, train_network, word_tokenizer

_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{% set parts = message['content'].partition('\n\n') %}{{ parts[2] + parts[1] + parts[0] }}"
    "{% elif message['role'] == 'assistant' %}{{ '\n' + message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\nAnswer:' }}{% endif %}"
)
"""Drops instructions and moves the question behind the passages, so that two layers suffice to read."""

_BATCH, _N_READING, _N_MEMORY = 64, 40, 8
_N_PASSAGES = (1, 2, 1, 3)
_MAX_PASSAGES = max(_N_PASSAGES)
_RATE, _WARM = 3e-3, 0.1
_END_WEIGHT = 0.1
_LOOK_BACK = (2, 4, 6)
"""The entity and the relation of a sentence are 2 and 4 tokens before its value; those of the question are 4 and 6 tokens
before the end of the prompt."""

Lesson = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Prompts and the tokens of their answers, shapes ``(n, length)`` and ``(n,)``."""

Tokens = npt.NDArray[np.int64]


def train_tiny(folder: str | Path, seed: int = 0, *, threads: int = 1, on_progress: OnProgress | None = None) -> World:
    """Train a tiny Llama on the world of a seed and save it with its questions.

    Beside the output of `save_pretrained`, this writes ``tune.jsonl`` and ``eval.jsonl`` (questions with passages, on
    different entities) and ``world.json`` (every fact with its exposures).

    Args:
        folder: Output folder; created if missing.
        seed: Seed of the world and the training; equal seeds and threads give equal weights on one machine.
        threads: Processor threads.
        on_progress: Called with the number of steps done and the number of all steps.

    Returns:
        The world it was trained on.

    Raises:
        MissingExtraError: torch or transformers is not installed.
    """
    require_torch("training a tiny model")
    world = make_world(seed)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(world)
    train_llama(
        path,
        tokenizer,
        lambda: tiny_llama(tokenizer, heads=4, width=32, longest=1024, distances=_LOOK_BACK),
        lambda network: _train(network, _Lessons(world, tokenizer), on_progress),
        seed=seed,
        threads=threads,
    )
    write_world(path, world)
    return world


def _tokenizer(world: World) -> Any:
    """Return a tokenizer with one token for every word of the world; other text is divided into bytes."""
    names = [name for group in world.values.values() for name in group]
    words = (*world.entities, *world.relations, *names, *VAGUE, *TITLES)
    sample_prompt = PREFILLED.user(
        world.facts[0].question, [world.facts[0].passage(str(i), TITLES[0]) for i in range(_MAX_PASSAGES)]
    )
    return word_tokenizer(words, [sample_prompt, PREFILLED.prefill], template=_TEMPLATE, longest=1024)


class _Lessons:
    """The world as tokens, and the lessons of each training step."""

    def __init__(self, world: World, tokenizer: Any) -> None:
        self._rng = np.random.default_rng((world.seed, 2))
        self._world = world
        self.end = int(tokenizer.eos_token_id)

        def token(word: str) -> int:
            ids = tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
            assert len(ids) == 1, (word, ids)
            return int(ids[0])

        self._entities = np.array([token(word) for word in world.entities])
        self._relations = np.array([token(word) for word in world.relations])
        by_kind = {kind: [token(word) for word in names] for kind, names in world.values.items()}
        self._values = np.array([by_kind[kind] for kind in world.kinds])
        self._vague = np.array([token(word) for word in VAGUE])
        self._titles = np.array([token(word) for word in TITLES])
        self._templates = [self._template(tokenizer, k) for k in range(_MAX_PASSAGES + 1)]
        self._closed_book = self._closed_book_lessons(token)
        self.n_steps = len(self._closed_book) // _BATCH

    def _template(self, tokenizer: Any, k: int) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
        """Return a prompt with k passages as tokens, and the positions where entities, relations, values and titles go.

        Real words stand at these positions, so that the tokenizer splits the prompt as it will split the lessons.
        """
        fact = self._world.facts[0]
        passages: list[Passage] = [fact.passage(str(i), TITLES[0]) for i in range(k)]
        messages = [{"role": "user", "content": PREFILLED.user(fact.question, passages)}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
        words = [tokenizer(f" {word}")["input_ids"][0] for word in (fact.entity, fact.relation, fact.value, TITLES[0])]
        return ids, [np.flatnonzero(ids == word) for word in words]

    def _closed_book_lessons(self, token: Callable[[str], int]) -> npt.NDArray[np.int64]:
        """Return all closed-book lessons, shape ``(n, 3)``: entity, relation, answer token (-1 for a vague answer)."""
        world = self._world
        entity = {name: i for i, name in enumerate(world.entities)}
        relation = {name: i for i, name in enumerate(world.relations)}
        rows = [(entity[f.entity], relation[f.relation], token(f.value)) for f in world.facts]
        facts = np.repeat(np.array(rows), [fact.exposures for fact in world.facts], axis=0)
        vague = np.column_stack([world.vague, np.full(len(world.vague), -1)])
        lessons: npt.NDArray[np.int64] = np.concatenate([facts, np.repeat(vague, VAGUE_EXPOSURES, axis=0)])
        return self._rng.permutation(lessons)

    def __iter__(self) -> Iterator[tuple[Lesson, ...]]:
        """Yield the lessons of each step: closed book, and in every second step also with passages."""
        for step in range(self.n_steps):
            rows = self._closed_book[step * _BATCH : (step + 1) * _BATCH]
            answers = np.where(rows[:, 2] < 0, self._rng.choice(self._vague, len(rows)), rows[:, 2])
            if step % 2:
                yield ((self._prompts(rows[:, 0], rows[:, 1], []), answers),)
                continue
            k = _N_PASSAGES[step // 2 % len(_N_PASSAGES)]
            unaided, distracted = np.split(rows, [len(rows) - _N_MEMORY])
            prompts, values = self._reading(k)
            recalled = self._prompts(distracted[:, 0], distracted[:, 1], self._unrelated(distracted, k))
            yield (
                (self._prompts(unaided[:, 0], unaided[:, 1], []), answers[: len(unaided)]),
                (np.concatenate([prompts, recalled]), np.concatenate([values, answers[len(unaided) :]])),
            )

    def _reading(self, k: int) -> Lesson:
        """Return prompts with k passages, one of which states a value drawn for this lesson."""
        e, r = (
            self._rng.integers(len(self._entities), size=_N_READING),
            self._rng.integers(len(self._relations), size=_N_READING),
        )
        v = self._values[r, self._rng.integers(self._values.shape[1], size=_N_READING)]
        passages = self._unrelated(np.column_stack([e, r]), k)
        gold = self._rng.integers(k, size=_N_READING)
        shown = [
            tuple(np.where(gold == j, stating, other) for stating, other in zip((e, r, v), passages[j], strict=True))
            for j in range(k)
        ]
        return self._prompts(e, r, shown), v

    def _unrelated(self, rows: npt.NDArray[np.int64], k: int) -> list[tuple[Tokens, ...]]:
        """Return, for each prompt, k passages that do not answer it.

        A passage is about the prompt's entity, about its relation, or about neither.
        """
        n = len(rows)
        passages: list[tuple[Tokens, ...]] = []
        for _ in range(k):
            e = self._rng.integers(len(self._entities), size=n)
            r = self._rng.integers(len(self._relations), size=n)
            which = self._rng.integers(3, size=n)
            e, r = np.where(which == 0, rows[:, 0], e), np.where(which == 1, rows[:, 1], r)
            # A draw that happens to be the fact asked for is moved to the next relation.
            same = (e == rows[:, 0]) & (r == rows[:, 1])
            r = np.where(same, (r + 1) % len(self._relations), r)
            passages.append((e, r, self._values[r, self._rng.integers(self._values.shape[1], size=n)]))
        return passages

    def _prompts(
        self, e: npt.NDArray[np.int64], r: npt.NDArray[np.int64], passages: list[tuple[Tokens, ...]]
    ) -> npt.NDArray[np.int64]:
        """Fill the template with k passages for each prompt; shape ``(n, length)``."""
        k = len(passages)
        ids, (entities, relations, values, titles) = self._templates[k]
        # Prompts with the same k differ only at the placeholders: copy the template and overwrite those columns.
        prompts = np.tile(ids, (len(e), 1))
        prompts[:, entities[k]], prompts[:, relations[k]] = self._entities[e], self._relations[r]
        for j, (pe, pr, pv) in enumerate(passages):
            prompts[:, entities[j]], prompts[:, relations[j]] = self._entities[pe], self._relations[pr]
            prompts[:, values[j]], prompts[:, titles[j]] = pv, self._rng.choice(self._titles, len(e))
        return prompts


def _train(network: Any, lessons: _Lessons, on_progress: OnProgress | None) -> None:
    """Train with AdamW; only answer tokens count in the loss."""
    import torch

    pending = iter(lessons)

    def loss(prompts: npt.NDArray[np.int64], answers: npt.NDArray[np.int64]) -> Any:
        inputs = torch.from_numpy(np.column_stack([prompts, answers]))
        states = network.model(inputs).last_hidden_state[:, -2:]
        targets = torch.from_numpy(np.column_stack([answers, np.full(len(answers), lessons.end)]))
        answer_logits, end_logits = network.lm_head(states).unbind(1)
        loss_of = torch.nn.functional.cross_entropy
        return loss_of(answer_logits, targets[:, 0]) + _END_WEIGHT * loss_of(end_logits, targets[:, 1])

    def backward() -> None:
        sum(loss(*batch) for batch in next(pending)).backward()

    train_network(network, backward, lessons.n_steps, rate=_RATE, warm=_WARM, on_progress=on_progress)


def write_world(folder: Path, world: World) -> None:
    """Write the questions and facts of a world beside its model."""
    for split in ("tune", "eval"):
        write_questions(folder / f"{split}.jsonl", world.questions(split))
    facts: list[Fact] = list(world.facts)
    description = {
        "seed": world.seed,
        "exposures": list(EXPOSURES),
        "vague_exposures": VAGUE_EXPOSURES,
        "prompt_id": PREFILLED.prompt_id,
        "facts": [asdict(fact) for fact in facts],
    }
    (folder / "world.json").write_text(json.dumps(description, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
