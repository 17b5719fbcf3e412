"""Signals that need only the text of the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from suffice.errors import DataError
from suffice.policy.metrics import answer_key, f1, normalize_answer
from suffice.policy.rounds import Round
from suffice.policy.signals.definitions import register_signal

_STABLE_FROM = 2
_COMPARED_CHARACTERS = 1000
_STABILITY_SOURCE = "TASR, section 5.4"
_WORD_EDGES = ".,;:!?\"'()[]{}*_`<>\u2026"

_PATTERNS = """
unknown, the answer is unknown, not known, none, none mentioned, none of the passages *, null, n/a, n.a,
not applicable, unclear, unspecified, undetermined, unanswerable, noanswer, no answer, no answer found *,
no answer available *, no answer is *, no information, no information *, there is no information *,
there is no mention *, insufficient information *, insufficient evidence *, insufficient context *,
not enough information *, not available, not available in *, not available from *, not found, not found in *,
not mentioned *, not specified *, not stated *, not provided *, not given, not given in *, not explicitly *,
not sure, i'm not sure *, i am not sure *, don't know, do not know, i don't know, i do not know,
i don't know the answer *, i do not know the answer *, i don't know based on *, i do not know based on *,
i don't have enough *, i do not have enough *, i cannot answer *, i can't answer *, i cannot determine *,
i can't determine *, i am unable to *, i'm unable to *, unable to determine *, unable to answer *,
impossible to determine *, cannot be determined *, can't be determined *, cannot determine *, cannot answer *,
* cannot be determined *, * is not mentioned *, * are not mentioned *, * is not specified *,
* is not stated *, * is not provided *, the answer is not *, the text does not *, the passage does not *,
the passages do not *, the context does not *, the provided * does not *, the provided * do not *
"""
ABSTAIN_PATTERNS: tuple[str, ...] = tuple(pattern.strip() for pattern in _PATTERNS.split(","))
"""Default patterns of refusals to answer; see `abstained_by` for their syntax."""


def _last_two_answers(rounds: Sequence[Round]) -> tuple[str, str] | None:
    """Return the answers of the last two rounds; None before round 2, or if one of the two answers is missing.

    Round 1 is not compared with round 0, which has no evidence: TASR defines stability from round 2 on.
    """
    last = rounds[-1]
    if last.index < _STABLE_FROM or len(rounds) < _STABLE_FROM or rounds[-2].index != last.index - 1:
        return None
    answer, previous = last.answer, rounds[-2].answer
    if not answer or not previous or answer.isspace() or previous.isspace():
        return None
    return answer, previous


@register_signal("bool", (0.0, 1.0), source="TASR, section 3.2", first_round=_STABLE_FROM, lookback=1, reads={"answer"})
def answer_stable(rounds: Sequence[Round]) -> float:
    """The answer is the previous round's, both normalised.

    1.0 or 0.0; NaN before round 2 and if one of the two answers is missing. Answers are compared by their keys from
    `suffice.policy.metrics.answer_key`.

    >>> answer_stable([Round(index=1, answer="Tempest"), Round(index=2, answer="The Tempest.")])
    1.0
    """
    pair = _last_two_answers(rounds)
    if pair is None:
        return math.nan
    return 1.0 if pair[0] == pair[1] or answer_key(pair[0]) == answer_key(pair[1]) else 0.0


@register_signal("ratio", (0.0, 1.0), source=_STABILITY_SOURCE, first_round=_STABLE_FROM, lookback=1, reads={"answer"})
def answer_f1_previous(rounds: Sequence[Round]) -> float:
    """Token F1 of the answer with the previous round's.

    The signal ranges from 0 (no word in common) to 1 (the same words equally often, in any order). Both answers are
    normalised as for the metric F1. The computation takes linear time, so the signal also suits long drafts. NaN where
    `answer_stable` is NaN.

    >>> earlier, later = (Round(index=r, answer=text) for r, text in ((1, "It lies in Oslo."), (2, "It lies near Oslo.")))
    >>> answer_f1_previous([earlier, later])
    0.75
    """
    pair = _last_two_answers(rounds)
    if pair is None:
        return math.nan
    return 1.0 if answer_key(pair[0]) == answer_key(pair[1]) else f1(pair[0], [pair[1]])


@register_signal("ratio", (0.0, 1.0), source=_STABILITY_SOURCE, first_round=_STABLE_FROM, lookback=1, reads={"answer"})
def answer_similarity_previous(rounds: Sequence[Round]) -> float:
    """Similarity of the answer's characters with the previous round's (difflib).

    Only the first 1,000 characters of the keys that `answer_stable` compares are used, because the ratio takes quadratic
    time. NaN where `answer_stable` is NaN.
    """
    pair = _last_two_answers(rounds)
    if pair is None:
        return math.nan
    answer, previous = (answer_key(text)[:_COMPARED_CHARACTERS] for text in pair)
    if answer == previous:
        return 1.0
    return SequenceMatcher(None, previous, answer, autojunk=False).ratio()


def _stripped_words(text: str) -> list[str]:
    stripped = (word.strip(_WORD_EDGES) for word in text.lower().replace("\u2019", "'").split())
    return [word for word in stripped if word]


def abstained_by(patterns: Iterable[str]) -> Callable[[str | None], float]:
    """Return a function that decides by these patterns if an answer is a refusal to answer.

    A pattern must match the whole answer, so `unknown` does not match "The Unknown Soldier". `*` matches any words, or
    none.  Case, white space and punctuation around words are ignored, and only the first 1,000 characters of the answer
    are compared.  The function returns 1.0 or 0.0; NaN for a missing or empty answer.

    >>> refuses = abstained_by(["unknown", "not mentioned *"])
    >>> refuses("Not mentioned in the text."), refuses("The Unknown Soldier"), refuses(None)
    (1.0, 0.0, nan)

    Args:
        patterns: Patterns of words, in which `*` stands for any words.

    Raises:
        DataError: A pattern contains no word.
    """
    parts = [_parts(pattern) for pattern in patterns]
    whole = frozenset(pattern[0] for pattern in parts if len(pattern) == 1)
    begins = tuple(first for first, *rest in parts if rest == [" "])
    others = [pattern for pattern in parts if pattern[1:] not in ([], [" "])]

    def abstains(answer: str | None) -> float:
        if not answer or answer.isspace():
            return math.nan
        words = _spaced(_stripped_words(answer[:_COMPARED_CHARACTERS]))
        refused = words in whole or words.startswith(begins) or any(_matches(words, pattern) for pattern in others)
        return 1.0 if refused else 0.0

    return abstains


def _parts(pattern: str) -> list[str]:
    """Return the words between the `*` of a pattern, each surrounded by spaces."""
    runs: list[list[str]] = [[]]
    for part in pattern.split():
        if part == "*":
            runs.append([])
        else:
            runs[-1] += _stripped_words(part)
    if not any(runs):
        raise DataError(f"an abstain pattern needs at least one word; {pattern!r} has none and would match anything")
    return [_spaced(run) for run in runs]


def _spaced(words: Sequence[str]) -> str:
    return " ".join(["", *words, ""]) if words else " "


def _matches(words: str, parts: Sequence[str]) -> bool:
    """Return True if a text consists of these parts in order, with anything between them; this takes linear time."""
    first, *middle, last = parts
    if not words.startswith(first):
        return False
    end = len(first) - 1  # neighbouring parts share the space between them
    for part in middle:
        at = words.find(part, end)
        if at < 0:
            return False
        end = at + len(part) - 1
    return words.endswith(last) and len(words) - len(last) >= end


@lru_cache(maxsize=1)
def _by_default() -> Callable[[str | None], float]:
    return abstained_by(ABSTAIN_PATTERNS)  # cached: parsing the patterns takes a millisecond, too long for every import


@register_signal("bool", (0.0, 1.0), reads={"answer"})
def abstained(rounds: Sequence[Round]) -> float:
    """The answer is a refusal to answer, by the policy's pattern list.

    1.0 or 0.0; NaN if the answer is missing. This function uses the patterns in `ABSTAIN_PATTERNS`.

    >>> abstained([Round(index=1, answer="I don't know.")])
    1.0
    """
    return _by_default()(rounds[-1].answer)


@register_signal(
    "bool", (0.0, 1.0), "passages", source="TASR, section 5.3", first_round=1, reads={"answer", "passages"}
)
def answer_in_evidence(rounds: Sequence[Round]) -> float:
    """A revealed passage holds the answer; undefined for yes and no.

    1.0 or 0.0. The normalised answer must occur at word boundaries in the normalised title or text of a passage. NaN at
    round 0, without passages, and if the answer is missing or normalises to nothing. Also NaN for yes and no, since a
    passage that contains the word "no" proves nothing.
    """
    last = rounds[-1]
    answer = normalize_answer(last.answer or "")
    if last.index < 1 or not last.passages or answer in {"", "yes", "no"}:
        return math.nan
    needle = f" {answer} "
    texts = (text for passage in last.passages for text in (passage.title, passage.text))
    return float(any(needle in f" {normalize_answer(text)} " for text in texts))


@register_signal("count", (1.0, math.inf), reads={"answer"})
def answer_length(rounds: Sequence[Round]) -> float:
    """Words of the answer.

    Words are separated by white space. NaN if the answer is missing or empty.
    """
    return float(len((rounds[-1].answer or "").split())) or math.nan
