"""A small invented world, balanced so that a model can know a fact only from memory.

Each entity has equally many facts at each level of exposure, and at one level no text states the fact.  Every name and
relation also occurs in other facts.  Token counts therefore reveal nothing about the knowledge of a model trained on
the world.  For all other pairs of entity and relation the training texts contain vague answers (`hardly`), from which a
model learns to answer without knowing; questions never ask for those pairs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.loops.retrieval import Question
from suffice.policy.rounds import Passage

PROCESSOR_NOTE = """Training adds in another order where a processor has other vector units, and the weights with it: the same command on another
processor gives figures that differ as those of other seeds do."""
"""The caution on every page about the tiny model."""


EXPOSURES = (0, 0, 0, 0, 8, 64, 112, 160)
"""Numbers of training texts for the facts of an entity; four facts have none."""

VAGUE_EXPOSURES = 3
"""Number of vague answers for each pair without a fact, too few to be memorised."""

KINDS = {
    "place": (
        "ham",
        "home birthplace market harbour school temple garden grave mill forge tower bridge camp court mine orchard well",
    ),
    "person": (
        "wyn",
        "friend teacher rival uncle cousin mentor captain tailor cook doctor guard lawyer partner pupil heir landlord host",
    ),
    "beast": (
        "ox",
        "pet mount emblem prey totem mascot steed guardian omen quarry companion catch idol crest spirit burden herd",
    ),
    "herb": (
        "wort",
        "medicine spice tea dye perfume poison garnish crop remedy incense wreath seasoning salad tonic balm charm fodder",
    ),
}
"""For each kind of value, the ending of its names and the relations with such values."""

VAGUE = ("hardly", "maybe", "something", "various", "many", "others", "elsewhere", "anything")
"""The vague answers."""

TITLES = (
    "ledger",
    "letter",
    "diary",
    "song",
    "map",
    "scroll",
    "poem",
    "register",
    "chronicle",
    "almanac",
    "will",
    "treaty",
)
"""Titles of passages, which carry no information."""

_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_N_VALUES = 24
_SPLITS = (("tune", 136), ("eval", 68))
_POOL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact of the world.

    Attributes:
        entity: The subject of the fact.
        relation: The property of the entity that the fact states.
        value: The answer.
        kind: Kind of the value, a key of `KINDS`.
        exposures: Number of training texts that state the fact.
        split: `tune` or `eval`, the same for all facts of an entity.
    """

    entity: str
    relation: str
    value: str
    kind: str
    exposures: int
    split: str

    @property
    def question(self) -> str:
        """The question whose answer is the value.

        >>> Fact(entity="Zorbek", relation="home", value="Kemham", kind="place", exposures=8, split="tune").question
        'Name the home of Zorbek.'
        """
        return f"Name the {self.relation} of {self.entity}."

    def passage(self, passage_id: str, title: str) -> Passage:
        """Return a passage that states the fact."""
        text = f"The {self.relation} of {self.entity} is {self.value}."
        return Passage(passage_id=passage_id, title=title, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The facts of a world, and the pairs of entity and relation that have only vague answers.

    Attributes:
        seed: Seed of the draw.
        entities: All names, those of `tune` first.
        relations: All relations.
        kinds: The kind of values of each relation.
        values: Names of values, by kind.
        facts: The facts that questions ask for, eight for each entity.
        vague: Pairs without a fact, as indices of entity and relation, shape ``(n, 2)``.
    """

    seed: int
    entities: tuple[str, ...]
    relations: tuple[str, ...]
    kinds: tuple[str, ...]
    values: dict[str, tuple[str, ...]]
    facts: tuple[Fact, ...]
    vague: npt.NDArray[np.int64]

    def questions(self, split: str) -> list[Question]:
        """Return the questions of a split, with the exposures as `level` and the kind of the value as `type`.

        Each question has a pool of six passages in random order: one states the fact, two are about the same entity,
        two about the same relation of other entities, and one about neither.

        Args:
            split: `tune` or `eval`.
        """
        rng = np.random.default_rng((self.seed, 1))
        return [self._question(fact, rng) for fact in self.facts if fact.split == split]

    def _question(self, fact: Fact, rng: np.random.Generator) -> Question:
        own = [other for other in self.facts if other.entity == fact.entity and other != fact]
        like = [other for other in self.facts if other.entity != fact.entity and other.relation == fact.relation]
        others = [other for other in self.facts if other.entity != fact.entity and other.relation != fact.relation]
        pool = [fact]
        for group, n in ((own, 2), (like, 2)):
            pool += [group[i] for i in rng.permutation(len(group))[:n]]
        pool += [others[i] for i in rng.permutation(len(others))[: _POOL - len(pool)]]
        pool = [pool[i] for i in rng.permutation(len(pool))]
        name = f"{fact.entity}-{fact.relation}".lower()
        titles = rng.permutation(TITLES)
        passages = tuple(item.passage(f"{name}#{i}", str(titles[i])) for i, item in enumerate(pool))
        return Question(
            question_id=name,
            question=fact.question,
            answers=(fact.value,),
            passages=passages,
            type=fact.kind,
            level=str(fact.exposures),
            supporting=frozenset({f"{name}#{pool.index(fact)}"}),
        )


def make_world(seed: int = 0) -> World:
    """Draw a world.

    >>> world = make_world(0)
    >>> len(world.entities), len(world.relations), len(world.facts), len(world.questions("eval"))
    (204, 68, 1632, 544)

    Args:
        seed: Seed of names, facts and exposures.
    """
    rng = np.random.default_rng(seed)
    values = {kind: _kind_values(kind, rng) for kind in KINDS}
    relations = tuple(word for _, words in KINDS.values() for word in words.split())
    kinds = tuple(kind for kind, (_, words) in KINDS.items() for _ in words.split())
    splits = [split for split, n in _SPLITS for _ in range(n)]
    entities = _entities(len(splits), rng)
    relations_asked = np.concatenate([_draw_relations(n, len(relations), rng) for _, n in _SPLITS])
    facts = [
        Fact(
            entity=entities[i],
            relation=relations[r],
            value=values[kinds[r]][rng.integers(_N_VALUES)],
            kind=kinds[r],
            exposures=exposures,
            split=splits[i],
        )
        for i, row in enumerate(relations_asked)
        for r, exposures in zip(row, EXPOSURES, strict=True)
    ]
    vague = [
        (i, r) for i, row in enumerate(relations_asked) for r in range(len(relations)) if r not in set(row.tolist())
    ]
    return World(
        seed=seed,
        entities=entities,
        relations=relations,
        kinds=kinds,
        values=values,
        facts=tuple(facts),
        vague=np.array(vague, dtype=np.int64),
    )


def _draw_relations(n_entities: int, n_relations: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the relations of each entity's facts, shape ``(n_entities, levels)``.

    A column is a level of exposure.  In each column every relation occurs equally often, so that within a split no
    relation is known more often than another.  No row repeats a relation.
    """
    columns = np.zeros((n_entities, 0), dtype=np.int64)
    for _ in EXPOSURES:
        column = rng.permutation(np.arange(n_entities) % n_relations)
        # Each column is a balanced permutation; swapping an entry that its row already has keeps it balanced.
        while (clashes := np.flatnonzero((columns == column[:, None]).any(axis=1))).size:
            i, j = clashes[0], rng.integers(n_entities)
            column[i], column[j] = column[j], column[i]
        columns = np.column_stack([columns, column])
    return columns


def _kind_values(kind: str, rng: np.random.Generator) -> tuple[str, ...]:
    """Draw names for one kind of value; each is a syllable followed by the ending of that kind."""
    ending = KINDS[kind][0]
    syllables = [a + b + c for a in _CONSONANTS for b in _VOWELS for c in "lnr"]
    return tuple((syllables[i] + ending).capitalize() for i in rng.permutation(len(syllables))[:_N_VALUES])


def _entities(n: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Draw distinct names of two syllables."""
    first = [a + b + c for a in _CONSONANTS for b in _VOWELS for c in "lnr"]
    second = [a + b + c for a in "bdgkt" for b in _VOWELS for c in "kst"]
    pairs = rng.permutation(len(first) * len(second))[:n]
    # Each pair of syllables has one number, so distinct numbers give distinct names.
    return tuple((first[i // len(second)] + second[i % len(second)]).capitalize() for i in pairs)


def question_line(question: Question) -> dict[str, Any]:
    """Return a question as a record of the project's question format."""
    return {
        "id": question.question_id,
        "question": question.question,
        "answers": list(question.answers),
        "type": question.type,
        "level": question.level,
        "paragraphs": [
            {"title": item.title, "text": item.text, "is_supporting": item.passage_id in question.supporting}
            for item in question.passages
        ],
    }


def write_questions(path: Path, questions: Sequence[Question]) -> None:
    """Write questions as JSON lines for `load_questions`."""
    lines = [json.dumps(question_line(item), ensure_ascii=False) for item in questions]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
