"""A small invented world with two-step questions about its facts, some of which a model was taught.

"Name the home of the guide of Zorbek." needs the guide of Zorbek, an entity, and then that entity's home.  A third of
all facts are taught, and a third are asked but never taught.  The other facts are rumours: training texts state them
with another value each time, which teaches a model to be unsure of facts that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from suffice.loops.retrieval import Question
from suffice.policy.rounds import Passage
from suffice_papers.cbdr.world import KINDS, TITLES, make_world

BRIDGES = ("friend", "rival", "teacher")
"""Relations whose values are entities."""

LEAVES = ("home", "market", "pet", "emblem", "medicine")
"""Relations whose values are not entities."""

Pair = tuple[str, str]
"""A relation and an entity."""

Status = Literal["taught", "untaught", "rumour"]
_STATUSES: tuple[Status, ...] = ("taught", "untaught", "rumour")
_N_ENTITIES = 64
_OWN, _LIKE = 3, 3
_POOL_SIZE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedWorld:
    """The facts of a world.

    Attributes:
        seed: Seed of the draw.
        entities: All names, those of `tune` first.
        values: The value of each pair of relation and entity.
        status: `taught`, `untaught` (only asked) or `rumour` (stated with another value each time), by pair.
        names: The possible values of each relation.
    """

    seed: int
    entities: tuple[str, ...]
    values: dict[Pair, str]
    status: dict[Pair, Status]
    names: dict[str, tuple[str, ...]]

    def questions(self, split: Literal["tune", "eval"], n: int) -> list[Question]:
        """Return two-step questions, if possible equally many of each `type`.

        The `type` of a question tells which of its steps were taught: `both`, `first`, `second` or `none`.  Questions
        of `tune` begin with an entity of the first half, questions of `eval` with an entity of the second half.  Each
        question has a pool of ten passages: both of its facts, other facts of both entities, and facts of other
        entities with the same relations.

        Args:
            split: The half of the entities.
            n: Number of questions, a multiple of four.
        """
        rng = np.random.default_rng((self.seed, split == "eval"))
        half = len(self.entities) // 2
        starts = self.entities[:half] if split == "tune" else self.entities[half:]
        kinds: dict[str, list[tuple[Pair, Pair]]] = {kind: [] for kind in ("both", "first", "second", "none")}
        for entity in starts:
            for bridge in BRIDGES:
                first = (bridge, entity)
                for leaf in LEAVES:
                    second = (leaf, self.values[first])
                    taught = self.status[first] == "taught", self.status[second] == "taught"
                    if "rumour" not in (self.status[first], self.status[second]):
                        kind = {(True, True): "both", (True, False): "first", (False, True): "second"}.get(
                            taught, "none"
                        )
                        kinds[kind].append((first, second))
        chosen = [
            (kind, pairs[i]) for kind, pairs in kinds.items() for i in rng.permutation(len(pairs))[: n // len(kinds)]
        ]
        return [
            self._question(kind, first, second, rng)
            for kind, (first, second) in (chosen[i] for i in rng.permutation(len(chosen)))
        ]

    def _question(self, kind: str, first: Pair, second: Pair, rng: np.random.Generator) -> Question:
        name = f"{second[0]}-{first[0]}-{first[1]}".lower()
        others = [pair for pair in self.values if pair not in (first, second)]
        own = [pair for pair in others if pair[1] in (first[1], second[1])]
        like = [pair for pair in others if pair[1] not in (first[1], second[1]) and pair[0] in (first[0], second[0])]
        pool = [first, second, *_drawn(own, _OWN, rng), *_drawn(like, _LIKE, rng)]
        pool += _drawn([pair for pair in others if pair not in pool], _POOL_SIZE - len(pool), rng)
        order = rng.permutation(len(pool))
        titles = rng.permutation(TITLES)
        passages = tuple(
            Passage(passage_id=f"{name}#{i}", title=str(titles[i]), text=self.sentence(pool[place]))
            for i, place in enumerate(order)
        )
        return Question(
            question_id=name,
            question=two_step_question(first, second[0]),
            answers=(self.values[second],),
            passages=passages,
            type=kind,
            supporting=frozenset(f"{name}#{i}" for i, place in enumerate(order) if place < len((first, second))),
        )

    def sentence(self, pair: Pair, value: str | None = None) -> str:
        """Return a sentence that states a value for a pair (relation, entity); by default the true value."""
        return f"The {pair[0]} of {pair[1]} is {value or self.values[pair]}."


def two_step_question(first: Pair, leaf: str) -> str:
    """Return a question of two steps: the value of the pair `first` is an entity, whose relation `leaf` is asked for.

    >>> two_step_question(("friend", "Zorbek"), "home")
    'Name the home of the friend of Zorbek.'
    """
    return f"Name the {leaf} of the {first[0]} of {first[1]}."


def _drawn(pairs: Sequence[Pair], n: int, rng: np.random.Generator) -> list[Pair]:
    return [pairs[i] for i in rng.permutation(len(pairs))[:n]]


def make_chained_world(seed: int = 0) -> ChainedWorld:
    """Draw a world.

    >>> world = make_chained_world(0)
    >>> len(world.entities), len(world.values), len(world.questions("eval", 200))
    (64, 512, 191)

    Args:
        seed: Seed of names, values and the choice of taught facts.
    """
    rng = np.random.default_rng((seed, 13))
    plain = make_world(seed)
    entities = plain.entities[:_N_ENTITIES]
    kind_of = {word: kind for kind, (_, words) in KINDS.items() for word in words.split()}
    names = {leaf: plain.values[kind_of[leaf]] for leaf in LEAVES} | dict.fromkeys(BRIDGES, entities)
    pairs = [(relation, entity) for relation in (*BRIDGES, *LEAVES) for entity in entities]
    values: dict[Pair, str] = {}
    status: dict[Pair, Status] = {}
    for relation, entity in pairs:
        others = [name for name in names[relation] if name != entity]
        values[relation, entity] = others[rng.integers(len(others))]
    for relation in (*BRIDGES, *LEAVES):  # a third of each relation, so that no relation is known better
        for place, i in enumerate(rng.permutation(len(entities))):
            status[relation, entities[i]] = _STATUSES[place % len(_STATUSES)]
    return ChainedWorld(seed=seed, entities=entities, values=values, status=status, names=names)
