"""Signals of a writer/critic loop: distances between drafts, the critic's approval and praise, and marks of a judge.

Semantic Early-Stopping defines the distance between the embeddings e of consecutive drafts as d_t = 1 - cos(e_t,
e_{t-1}), in [0, 2].
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from suffice.common.json_text import as_number
from suffice.errors import DataError
from suffice.policy.metrics import EQUAL_WEIGHTS, information_score as score_of
from suffice.policy.rounds import Passage, Round
from suffice.policy.rules.registered_selectors import DISTANCES
from suffice.policy.signals.definitions import EVERY_ROUND, SIGNALS, declare, register_signal
from suffice.policy.signals.given import CRITIC, WRITERS
from suffice.policy.signals.text import strip_thinking

EMBEDDER = "embedder"
"""The component that embeds drafts."""

JUDGE = "judge:information_score"
"""The component that marks drafts, with all marks of the information score."""

_FROM = 2  # the first round that has an earlier one
_CHANGES = r"change|revision|edit|modif|correction|amend|fix|improve|suggest|condition|reservation|caveat"
_DEPENDS = (
    r"\?|(?:if|once|after|when|until|provided|providing|assuming|pending|subject\s+to|except|unless|only|conditional)\b"
    rf"|with\b(?!\s+no\b)[\w\s,-]{{0,40}}?\b(?:{_CHANGES})"
)
_APPROVAL = re.compile(
    r"[\s*_#>`\"']*approved(?![^\W_])"
    rf"(?![^\S\n]*[*_`\"',;:()\u2013\u2014-]*[^\S\n]*(?:{_DEPENDS}))"  # in the same sentence
    r"(?!\W*(?:but|however)\b)",
    re.IGNORECASE,
)
_SEMANTIC_SOURCE = "Semantic Early-Stopping"


def semantic_distance(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return the cosine distance between two embeddings: 0 = same direction, 1 = unrelated, 2 = opposite.

    A zero vector, the embedding of an empty draft, has the distance 1.0 from every embedding, so an empty draft never
    counts as converged.

    >>> semantic_distance([1.0, 0.0], [0.0, 2.0]), semantic_distance([3.0, 4.0], [3.0, 4.0])
    (1.0, 0.0)
    >>> semantic_distance([0.0, 0.0], [1.0, 0.0]), semantic_distance([float("nan"), 0.0], [1.0, 0.0])
    (1.0, nan)

    Args:
        a: An embedding, shape ``(width,)``, of any norm; NaN = undefined, and infinite values count as NaN.
        b: Another embedding by the same embedder, same shape.

    Returns:
        The distance in [0, 2]; NaN if an embedding has an undefined component.

    Raises:
        DataError: The embeddings are not two vectors of one width.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        raise DataError(
            f"a distance needs two embeddings of the same width, got shapes {first.shape!r} and "
            f"{second.shape!r}: embed both drafts with the same embedder"
        )
    # Divide by the largest component first, so that squares neither overflow nor vanish.
    largest, other_largest = float(np.abs(first).max()), float(np.abs(second).max())
    if not (math.isfinite(largest) and math.isfinite(other_largest)):
        return math.nan
    if largest == 0 or other_largest == 0:
        return 1.0
    first, second = first / largest, second / other_largest
    return _bounded_distance(float(first @ second), float(np.linalg.norm(first) * np.linalg.norm(second)))


def _bounded_distance(dot: float, norms: float) -> float:
    """Return 1 - dot / norms, clipped to [0, 2], which only removes rounding errors (Cauchy-Schwarz)."""
    return min(max(1.0 - dot / norms, 0.0), 2.0)


def _previous(rounds: Sequence[Round]) -> Round | None:
    """Return the last round but one; None if there is only one round."""
    if len(rounds) < _FROM or rounds[-2].index != rounds[-1].index - 1:
        return None
    return rounds[-2]


def _distance_back(back: int, rounds: Sequence[Round]) -> float:
    """Return the distance between the embeddings of the last draft and the draft `back` rounds earlier; NaN if one is missing."""
    if len(rounds) <= back or rounds[-1 - back].index != rounds[-1].index - back:
        return math.nan
    return _distance_between(rounds[-1], rounds[-1 - back])


def embedded_text(observed: Round) -> str | None:
    """Return the text to embed: the draft or, at a checkpoint of a chain, the thinking since the previous checkpoint.

    >>> embedded_text(Round(index=1, answer="Oslo")), embedded_text(Round(index=1, answer="Oslo", thinking="Norway. Oslo?"))
    ('Oslo', 'Norway. Oslo?')
    """
    draft, thought = observed.answer, observed.thinking
    return draft if thought is None else thought or None


def _distance_between(last: Round, earlier: Round) -> float:
    """Return the distance between two rounds' embeddings; NaN if one is missing."""
    if last.embedding is None or earlier.embedding is None or None in (embedded_text(last), embedded_text(earlier)):
        return math.nan
    now, then = np.asarray(last.embedding), np.asarray(earlier.embedding)  # a host may give lists of numbers
    if now.ndim != 1 or not now.size or now.shape != then.shape:
        return math.nan
    return semantic_distance(now, then)


@register_signal(
    "score",
    (0.0, 2.0),
    "embedding",
    name="semantic_distance",
    reads={"answer", "embedding", "thinking"},
    source=_SEMANTIC_SOURCE,
    component=EMBEDDER,
    first_round=_FROM,
    lookback=1,
)
def draft_distance(rounds: Sequence[Round]) -> float:
    """Cosine distance between the embeddings of this draft and the previous one.

    NaN at the first draft and where an embedding is missing.  At checkpoints of a chain of thought, the thinking since the
    previous checkpoint is embedded instead of a draft.

    >>> drafts = [Round(index=i, answer=str(i), embedding=np.array(e)) for i, e in enumerate(([1, 0], [1, 1]), 1)]
    >>> round(draft_distance(drafts), 3)
    0.293
    """
    return _distance_back(1, rounds)


for _back, _name in enumerate(DISTANCES[1:], 2):
    declare(
        _name,
        f"Cosine distance between the embeddings of this draft and that {_back} rounds earlier.",
        "score",
        (0.0, 2.0),
        "embedding",
        compute=partial(_distance_back, _back),
        reads={"answer", "embedding", "thinking"},
        component=EMBEDDER,
        first_round=_back + 1,
        lookback=_back,
    )


@register_signal(
    "score",
    (0.0, 2.0),
    "embedding",
    reads={"answer", "embedding", "thinking"},
    component=EMBEDDER,
    first_round=_FROM,
    lookback=EVERY_ROUND,
)
def semantic_novelty(rounds: Sequence[Round]) -> float:
    """Cosine distance from this draft, or stretch of thought, to the most similar earlier one.

    The distance is low where a model repeats something from any earlier round. NaN at the first round, without a text,
    and where an embedding is missing.

    >>> thoughts = [Round(index=i, thinking="so", embedding=np.array(e)) for i, e in enumerate(([1, 0], [0, 1], [2, 0]), 1)]
    >>> semantic_novelty(thoughts[:2]), semantic_novelty(thoughts)
    (1.0, 0.0)
    """
    *earlier, last = rounds
    distances = [_distance_between(last, other) for other in earlier if embedded_text(other) is not None]
    return min(distances) if distances and not any(map(math.isnan, distances)) else math.nan


@register_signal(
    "bool",
    (0.0, 1.0),
    "feedback",
    source=_SEMANTIC_SOURCE,
    component=CRITIC,
    first_round=_FROM,
    reads={"feedback"},
)
def critic_approved(rounds: Sequence[Round]) -> float:
    """The critic's reply begins with APPROVED.

    1.0 or 0.0, regardless of case; NaN without a reply. A thinking block, white space and markup before the word are
    ignored, and a longer word does not count. "APPROVED, with a note" approves. "NOT APPROVED" and "Approved?" do not
    approve, nor does approval that depends on changes, as in "APPROVED with changes" or "Approved, but ...".

    >>> said = ("Approved.", "**APPROVED** - no changes", "Not approved", "Approved? No.", "APPROVED with minor edits: ...")
    >>> [critic_approved([Round(index=2, feedback=text)]) for text in said]
    [1.0, 1.0, 0.0, 0.0, 0.0]
    """
    feedback = rounds[-1].feedback
    return math.nan if feedback is None else float(_APPROVAL.match(strip_thinking(feedback)[1]) is not None)


_MARKS = frozenset(f"signals.{name}" for name in ("information_score", *EQUAL_WEIGHTS))


@register_signal(
    "score",
    (0.0, 1.0),
    "information_score",
    source=_SEMANTIC_SOURCE,
    component=JUDGE,
    first_round=1,
    reads=_MARKS,
)
def information_score(rounds: Sequence[Round]) -> float:
    """A judge's weighted mean mark of the draft: faithfulness, answer relevancy, context precision and recall.

    The signal is computed from the marks in `Round.signals`, with equal weights; NaN if a mark is missing. A judge whose
    weights are not equal puts `information_score` itself into `Round.signals`.
    """
    signals = rounds[-1].signals
    if "information_score" in signals:
        return as_number(signals["information_score"])
    return score_of({name: as_number(signals[name]) for name in EQUAL_WEIGHTS if name in signals})


@register_signal(
    "score",
    (-1.0, 1.0),
    "information_score",
    source=_SEMANTIC_SOURCE,
    component=JUDGE,
    first_round=_FROM,
    lookback=1,
    reads=_MARKS,
)
def information_gain(rounds: Sequence[Round]) -> float:
    """Rise of information_score since the previous draft."""
    previous = _previous(rounds)
    if previous is None:
        return math.nan
    clean = SIGNALS["information_score"].clean
    return clean(information_score(rounds)) - clean(information_score([previous]))


@register_signal("count", (0.0, math.inf), "costs", component="", reads={"costs"})
def draft_tokens(rounds: Sequence[Round]) -> float:
    """Tokens that the writer wrote in this round.

    In a loop without a writer, the signal counts the tokens of the generator. NaN where the number is unknown.
    """
    costs = rounds[-1].costs
    return next((costs[name].output_tokens for name in reversed(WRITERS) if name in costs), math.nan)


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

    Text in double quotes is taken from the draft, so it is left out. Contractions with "n't" count as "not". NaN
    without a reply, or if the reply has no word of praise or criticism.

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

    Each distinct word counts once, regardless of case. NaN without passages, or if the draft has no content words.

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
