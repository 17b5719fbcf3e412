"""A small invented world: who is asked about whom is balanced, so that only memory tells which facts a model knows.

Each entity has the same number of facts at each level of exposure, among them facts that no text tells, and every
name and every relation occurs in other facts.  So counts of tokens say nothing about what a model that was trained on
the world knows.  About all other pairs of entity and relation the world's people say vague things (`hardly`), which
teaches a model how one talks without knowing; the questions ask for none of those pairs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.retrieval import Question
from suffice.rounds import Passage

__all__ = ["EXPOSURES", "KINDS", "TITLES", "VAGUE", "Fact", "World", "make_world", "question_line", "write_questions"]

EXPOSURES = (0, 0, 0, 0, 8, 64, 112, 160)
"""How often each of an entity's facts is told in training: four never."""

VAGUE_EXPOSURES = 3
"""How often a pair without a fact is asked and answered vaguely: too seldom to be learned by heart."""

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
"""By kind of value: the ending of such values' names, and the relations that lead to them."""

VAGUE = ("hardly", "maybe", "something", "various", "many", "others", "elsewhere", "anything")
"""What people say who do not know."""

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
"""Titles of passages: where one may have read it; they tell nothing."""

_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_N_VALUES = 24
_SPLITS = (("tune", 136), ("eval", 68))
_POOL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact of the world.

    Attributes:
        entity: Whom it is about.
        relation: What it tells of the entity.
        value: The answer.
        kind: What sort of value it is, a key of `KINDS`.
        exposures: How often training texts tell it, count.
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
        """The question that it answers.

        >>> Fact(entity="Zorbek", relation="home", value="Kemham", kind="place", exposures=8, split="tune").question
        'Name the home of Zorbek.'
        """
        return f"Name the {self.relation} of {self.entity}."

    def passage(self, passage_id: str, title: str) -> Passage:
        """Return a passage that states it."""
        text = f"The {self.relation} of {self.entity} is {self.value}."
        return Passage(passage_id=passage_id, title=title, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Facts, and how often each is told.

    Attributes:
        seed: What it was drawn with.
        entities: All names, those of `tune` first.
        relations: All relations.
        kinds: The kind of each relation's values.
        values: By kind, the names of its values.
        facts: Those that questions ask for, eight for each entity.
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
        """Return the questions of a split; a question's `level` is its fact's exposures, its `type` the value's kind.

        Each has a pool of six passages in random order: one states the fact, two tell of the same entity, two of the
        same relation or kind of another entity, one of anything.

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
        seed: Of names, facts and exposures.
    """
    rng = np.random.default_rng(seed)
    values = {kind: _values(kind, rng) for kind in KINDS}
    relations = tuple(word for _, words in KINDS.values() for word in words.split())
    kinds = tuple(kind for kind, (_, words) in KINDS.items() for _ in words.split())
    splits = [split for split, n in _SPLITS for _ in range(n)]
    entities = _entities(len(splits), rng)
    asked = np.concatenate([_asked(n, len(relations), rng) for _, n in _SPLITS])
    facts = [
        Fact(
            entity=entities[i],
            relation=relations[r],
            value=values[kinds[r]][rng.integers(_N_VALUES)],
            kind=kinds[r],
            exposures=exposures,
            split=splits[i],
        )
        for i, row in enumerate(asked)
        for r, exposures in zip(row, EXPOSURES, strict=True)
    ]
    vague = [(i, r) for i, row in enumerate(asked) for r in range(len(relations)) if r not in set(row.tolist())]
    return World(
        seed=seed,
        entities=entities,
        relations=relations,
        kinds=kinds,
        values=values,
        facts=tuple(facts),
        vague=np.array(vague, dtype=np.int64),
    )


def _asked(n_entities: int, n_relations: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the relations of each entity's facts, shape ``(n_entities, levels)``.

    In each column every relation occurs equally often, so within a split none is known more often; in a row none twice.
    """
    columns = np.zeros((n_entities, 0), dtype=np.int64)
    for _ in EXPOSURES:
        column = rng.permutation(np.arange(n_entities) % n_relations)
        while (clashes := np.flatnonzero((columns == column[:, None]).any(axis=1))).size:
            i, j = clashes[0], rng.integers(n_entities)
            column[i], column[j] = column[j], column[i]
        columns = np.column_stack([columns, column])
    return columns


def _values(kind: str, rng: np.random.Generator) -> tuple[str, ...]:
    """Return the names of one kind of value: a syllable and the ending of the kind."""
    ending = KINDS[kind][0]
    syllables = [a + b + c for a in _CONSONANTS for b in _VOWELS for c in "lnr"]
    return tuple((syllables[i] + ending).capitalize() for i in rng.permutation(len(syllables))[:_N_VALUES])


def _entities(n: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Return names of two syllables, no two alike."""
    first = [a + b + c for a in _CONSONANTS for b in _VOWELS for c in "lnr"]
    second = [a + b + c for a in "bdgkt" for b in _VOWELS for c in "kst"]
    pairs = rng.permutation(len(first) * len(second))[:n]
    return tuple((first[i // len(second)] + second[i % len(second)]).capitalize() for i in pairs)


def question_line(question: Question) -> dict[str, Any]:
    """Return a question as one line of the project's format of questions."""
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
    """Write questions as JSON lines, which `load_questions` reads."""
    lines = [json.dumps(question_line(item), ensure_ascii=False) for item in questions]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
