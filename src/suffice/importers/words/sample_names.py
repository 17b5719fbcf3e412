"""Names of independent samples, and of answers that may be either samples or rounds."""

from __future__ import annotations

import re
from typing import Literal

from suffice.importers.words.names import (
    ORDER_WORDS,
    REPEATS,
    ROUND_WORDS,
    last_name,
    numbered,
    plain_name,
    single_name,
)

_LISTS = frozenset(
    {"samples", "generations", "completions", "candidates", "votes", "rollouts", "resps", "filtered_resps"}
)
"""Names of lists whose items are independent samples as often as rounds."""

_COUNTER = re.compile("(?:sample|generation|completion|candidate|vote)(?:_(?:id|idx|index|no|nr|num|number))?|epoch")
_COLUMNS = frozenset({"sample", "generation", "gen", "completion", "candidate", "vote", "rollout"})
"""Words in the names of numbered columns that have a sample each."""

_RUNS = frozenset({*REPEATS, "run", "seed", "rep", "draw"})
"""Words in the names of numbered columns that have a run each, which may be a sample or a round."""

_EITHER = frozenset(
    {"answer", "ans", "pred", "prediction", "predicted", "label", "class", "text"}
    | {"response", "output", "reply", "solution", "generated", "reward"}
)
"""Last words of the names, in the singular, of answers that may be either, as their values show."""

_IN_ORDER = re.compile(r"(?:^|[\W_])(?:r|t|v|it|ver|version)[\W_]?\d")
"""Marks of numbers of rounds and versions."""

_OF_EACH = re.compile(rf"_(?:by|per|of|in|at)_(?:each_)?(?:{'|'.join(ROUND_WORDS)})s?$", re.IGNORECASE)

Said = Literal["samples", "either", "rounds"]


def without_each(name: str) -> str:
    """Remove words such as "by round" from a list's name.

    >>> without_each("answers_by_round"), without_each("cost_per_step"), without_each("answers")
    ('answers', 'cost', 'answers')
    """
    return _OF_EACH.sub("", name)


def said_by_list(name: str) -> Said:
    """Return what a list's name implies about its items.

    >>> said_by_list("generations"), said_by_list("model_answers"), said_by_list("attempts")
    ('samples', 'either', 'rounds')
    """
    if last_name(name) in _LISTS:
        return "samples"
    return "either" if single_name(last_name(name)).rpartition("_")[2] in _EITHER else "rounds"


def said_by_counter(name: str) -> Said:
    """Return what a column's name implies about the rows that it numbers.

    >>> said_by_counter("sample_idx"), said_by_counter("trial"), said_by_counter("attempt")
    ('samples', 'either', 'rounds')
    """
    if _COUNTER.fullmatch(last_name(name)):
        return "samples"
    return "either" if last_name(name).startswith(REPEATS) else "rounds"


def said_by_columns(name: str) -> Said:
    """Return what the name of one of several numbered columns implies about their values.

    >>> [said_by_columns(name) for name in ("sample_1", "Vote 2", "answer[3]", "trial_1_answer", "attempt_1", "answer_v2")]
    ['samples', 'samples', 'either', 'either', 'rounds', 'rounds']
    """
    place, plain = numbered(name), plain_name(name)
    own = {*map(single_name, re.split(r"[\W\d_]+", plain))}
    if place is None or not own.isdisjoint(ORDER_WORDS) or _IN_ORDER.search(plain):
        return "rounds"
    if not own.isdisjoint(_COLUMNS):
        return "samples"
    is_either = re.split(r"[\W_]+", place[0])[-1] in _EITHER or not own.isdisjoint(_RUNS)
    return "either" if is_either else "rounds"
