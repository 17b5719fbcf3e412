"""Signals from words: a critic's praise, and the share of a draft's words that occur in its contexts.

Both are simple counts for choosing among drafts, free and without labels; the complete word lists are below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from suffice.policy.rounds import Passage, Round
from suffice.policy.signals.definitions import register_signal
from suffice.policy.signals.from_policy import CRITIC


def _word_list(words: str) -> frozenset[str]:
    return frozenset(words.split())


PRAISE = _word_list(
    "accurate accurately already approve approved clear clearly complete congratulations correct correctly effective "
    "effectively excellent fine good great indeed nice perfect perfectly successful successfully thorough well"
)
"""Words by which a critic accepts.  Our own list: synonyms of "approved" and "well done", chosen by meaning, not by marks."""

CRITICISM = _word_list(
    "although but could fails however inaccurate incomplete incorrect instead lack lacking lacks misleading missing "
    "more must need needs neither never no nor not omit omits prevent preventing prevents should still though unclear "
    "unless unsupported wrong yet"
)
"""Words by which a critic asks for more: contrast (the Penn Discourse Treebank's connectives of comparison and exception),
negation (the usual cue words), lack, and obligation."""

FUNCTION_WORDS = _word_list(
    "a about above after again against all also am an and any are as at be because been before being below between both "
    "but by can could did do does doing down during each few for from further had has have having he her here hers him "
    "his how i if in into is it its itself just me more most my no nor not of off on once only or other our out over "
    "own same she should so some such than that the their them then there these they this those through to too under "
    "until up very was we were what when where which while who whom why will with would you your"
)
"""English words without content of their own, ignored when counting support."""

_WORD_OR_CONTRACTION = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
_QUOTED = re.compile('"[^"]*"|\u201c[^\u201d]*\u201d')


def _folded(words: Iterable[str]) -> list[str]:
    return [word.replace("\u2019", "'").removesuffix("'s").casefold() for word in words]


def _folded_words(text: str) -> list[str]:
    return _folded(_WORD_OR_CONTRACTION.findall(text))


@register_signal("ratio", (0.0, 1.0), "feedback", component=CRITIC, reads={"feedback"})
def critic_praise(rounds: Sequence[Round]) -> float:
    """Words of praise among those of praise and criticism in the critic's reply.

    Text in double quotes is the draft's wording and is left out; contractions with "n't" count as "not".  NaN without a
    reply, or if it has none of these words.

    >>> critic_praise([Round(index=1, feedback='Good and clear, but "great food" is missing.')])
    0.5
    """
    feedback = rounds[-1].feedback
    if feedback is None:
        return math.nan
    words = ["not" if word.endswith("n't") else word for word in _folded_words(_QUOTED.sub(" ", feedback))]
    praise, criticism = (sum(word in listed for word in words) for listed in (PRAISE, CRITICISM))
    return praise / (praise + criticism) if praise + criticism else math.nan


@register_signal("ratio", (0.0, 1.0), "passages", component="", reads={"answer", "passages"})
def lexical_support(rounds: Sequence[Round]) -> float:
    """Share of the draft's content words that occur in the passages shown.

    Each distinct word counts once, regardless of case.  NaN without passages, or if the draft has no such words.

    >>> shown = Passage(passage_id="1", title="Edvard Munch", text="Munch was born in Loten, Norway.")
    >>> lexical_support([Round(index=1, answer="Munch was born in Sweden.", passages=(shown,))])
    0.6666666666666666
    """
    last = rounds[-1]
    passages: tuple[Passage, ...] = last.passages
    if last.answer is None or not passages:
        return math.nan
    draft_words = set(_folded_words(last.answer)) - FUNCTION_WORDS
    if not draft_words:
        return math.nan
    context = "\n".join(f"{passage.title} {passage.text}" for passage in passages)
    context_words = set(_folded(set(_WORD_OR_CONTRACTION.findall(context))))  # most words occur several times
    return len(draft_words & context_words) / len(draft_words)
