"""Three kinds of context for one question, built without a language model (after CBDR, appendix G).

- **A**: on topic, without the answer: the sentences of the gold passage that do not contain the answer.  If every
  sentence contains it, sentences of the question's other passages are used, in the order of their similarity to the
  question.
- **B**: the gold passage, cut to the sentences around the answer.
- **C**: a passage that does not answer the question: the gold passage of another question.

The paper lets a language model rewrite gold passages into A and B.  This module leaves the text as it is.  So A is less
fluent than in the paper, and B keeps the words of the corpus, where the paper makes B "slightly less like the
question".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffice.errors import DataError
from suffice.loops.retrieval import PoolBM25, Question
from suffice.policy.metrics import normalize_answer
from suffice.policy.rounds import Passage

TYPES = ("A", "B", "C")

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSet:
    """A question with one context of each type.

    Attributes:
        question_id: The question.
        question: Its text.
        contexts: One passage per type, in the order of `TYPES`.
    """

    question_id: str
    question: str
    contexts: tuple[Passage, Passage, Passage]


def sentences(text: str) -> list[str]:
    """Split a text into sentences, at white space after a full stop, question mark or exclamation mark.

    >>> sentences("He wrote it.  In 1977! Did he?")
    ['He wrote it.', 'In 1977!', 'Did he?']
    """
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]


def build_contexts(
    questions: Sequence[Question],
    *,
    rng: np.random.Generator,
    characters: int = 200,
    most: int | None = None,
) -> tuple[list[ContextSet], dict[str, int]]:
    """Return three contexts for each question that allows them; also return the numbers of questions that do not, by reason.

    Args:
        questions: Questions with gold answers, passages, and the ids of supporting passages.
        rng: Draws the irrelevant passage.
        characters: Number of characters to fill with whole sentences (the paper: 200); the first sentence is kept whole
            even if it is longer.
        most: Largest number of sets; None for all.

    Raises:
        DataError: No question allows three contexts, or `characters` is below 1.
    """
    if characters < 1:
        raise DataError(f"characters is {characters!r}; allowed: 1 or more")
    golds = [_gold(question) for question in questions]
    others = [(question, gold[0]) for question, gold in zip(questions, golds, strict=True) if not isinstance(gold, str)]
    sets: list[ContextSet] = []
    left_out: Counter[str] = Counter()
    for question, gold in zip(questions, golds, strict=True):
        if len(sets) == most:
            break
        if isinstance(gold, str):
            left_out[gold] += 1
            continue
        passage, keys = gold
        topic = _without_answer(question, passage, keys)
        foreign = _foreign(question, keys, others, rng)
        if topic is None or foreign is None:
            left_out["no sentence without the answer" if topic is None else "no other question's passage"] += 1
            continue
        title = "" if _contains(passage.title, keys) else passage.title
        parts = sentences(passage.text)
        at = next(i for i, sentence in enumerate(parts) if _contains(sentence, keys))
        contexts = (
            _cut(topic[0], topic[1], 0, characters, f"{question.question_id}#A"),
            _cut(title, parts, at, characters, f"{question.question_id}#B"),
            _cut(foreign.title, sentences(foreign.text), 0, characters, f"{question.question_id}#C"),
        )
        sets.append(ContextSet(question_id=question.question_id, question=question.question, contexts=contexts))
    if not sets:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in left_out.items()) or "there are none"
        raise DataError(
            f"no question allows three contexts ({reasons}): use questions with answers and paragraphs, and mark "
            "those that contain the answer as is_supporting"
        )
    return sets, dict(left_out)


def _gold(question: Question) -> tuple[Passage, list[str]] | str:
    """Return the gold passage and the normalised answers in it, or the reason why no passage contains an answer."""
    keys = [key for key in map(normalize_answer, question.answers) if key]
    if not keys:
        return "no answer"
    supporting = [passage for passage in question.passages if passage.passage_id in question.supporting]
    if not supporting:
        return "no supporting passage"
    for passage in supporting:
        if any(_contains(sentence, keys) for sentence in sentences(passage.text)):
            return passage, keys
    return "no supporting passage with the answer in it"


def _contains(text: str, keys: Sequence[str]) -> bool:
    """Return whether a text contains an answer, as whole words."""
    words = f" {normalize_answer(text)} "
    return any(f" {key} " in words for key in keys)


def _without_answer(question: Question, gold: Passage, keys: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the title of a passage on the topic, and the sentences of this passage that do not contain the answer."""
    ranked = PoolBM25().rank(question.question, pool=question.passages)
    related = [passage for passage in ranked if passage.score > 0 and passage.passage_id != gold.passage_id]
    for passage in (gold, *related):
        remaining = [sentence for sentence in sentences(passage.text) if not _contains(sentence, keys)]
        if remaining:
            return "" if _contains(passage.title, keys) else passage.title, remaining
    return None


def _foreign(
    question: Question,
    keys: Sequence[str],
    others: Sequence[tuple[Question, Passage]],
    rng: np.random.Generator,
) -> Passage | None:
    own = {passage.title for passage in question.passages}
    for i in rng.permutation(len(others)):
        other, passage = others[int(i)]
        is_same = other.question_id == question.question_id or passage.title in own
        if not is_same and not _contains(f"{passage.title} {passage.text}", keys):
            return passage
    return None


def _cut(title: str, parts: Sequence[str], at: int, characters: int, passage_id: str) -> Passage:
    """Return a passage that contains sentence `at`, then as many of the following and preceding sentences as fit."""
    chosen = [at]
    for i in (*range(at + 1, len(parts)), *range(at - 1, -1, -1)):
        if abs(i - chosen[-1]) != 1 and i != at - 1:
            continue  # a gap: leave out what follows it as well
        if len(" ".join(parts[j] for j in (*chosen, i))) > characters:
            continue
        chosen.append(i)
    return Passage(passage_id=passage_id, title=title, text=" ".join(parts[i] for i in sorted(chosen)))
