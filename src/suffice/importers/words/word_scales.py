"""Words of usual ratings and verdicts, ordered from worst to best."""

from __future__ import annotations

from collections.abc import Collection

from suffice.importers.words.names import plain_name, words, words_in

EQUAL = "|"
"""What joins words of equal worth in a scale."""

TEMPLATE = ":WORST,...,BEST"
"""The ending of an option for words whose order the user has to say; as it stands it is refused."""

PLACEHOLDERS = frozenset(("WORST", "...", "BEST"))

_SCALES = (
    "terrible awful, bad, poor, fair, good, very_good, excellent, perfect",
    "terrible awful, bad, poor, ok okay, good, great, excellent, perfect",
    "bad, poor, average, good, very_good, excellent, perfect",
    "bad, poor unacceptable, acceptable, good, very_good, excellent, perfect",
    "unsatisfactory, satisfactory, good, very_good, excellent",
    "bad, mixed, good",
    "fail failed, partial partially_passed, pass passed",
    "fail failed failure failing gave_up given_up abandoned aborted timeout timed_out, partial partially partial_success, success successful succeeded",
    "ko nok not_ok fail failed, ok okay pass passed",
    "✗ ✘ ❌ x, ✓ ✔ ✅",
    "wrong incorrect, partial partially_correct partly_correct, correct right",
    "reject rejected, major_revision, revise revision needs_revision, minor_revision, accept accepted approve approved",
    "wa tle mle ole re rte ce pe wrong_answer time_limit_exceeded memory_limit_exceeded runtime_error compilation_error, ac accepted",
    "negative, neutral, positive",
    "worse, same equal tie, better",
    "down thumbs_down thumbsdown 👎, up thumbs_up thumbsup 👍",
    "dislike, like",
    "unhelpful, somewhat_helpful, helpful, very_helpful",
    "sehr_schlecht, schlecht, mittel mittelmäßig, gut, sehr_gut",
    "ungenügend, mangelhaft, ausreichend, befriedigend, gut, sehr_gut",
    "falsch inkorrekt, teilweise_richtig teilweise_korrekt teils_richtig, correct",  # `plain_name` translates "richtig"
    "abgelehnt, angenommen akzeptiert",
    "très_mauvais, mauvais, moyen passable, bon, très_bon, excellent",
    "faux incorrect, partiellement_correct, correct",
)
"""Scales in the form of `plain_name`, a comma between the steps, and a space between words of the same step."""

_OF_NAMES = (
    "false no n, partly partially partial somewhat, true yes y",
    "very_low, low, medium moderate, high, very_high",
    "nein, teilweise, ja",
    "non, partiellement, oui",
)
"""Scales whose better end only the column's name can tell."""

_VAGUE = frozenset(words("critic critique feedback note annotation vote votes reward comet"))
"""Words of names that do not tell it."""

_TURNED = frozenset(
    words(
        "hallucination hallucinations hallucinated need needs needed require requires required revise revision change changes more "
        "issue issues bug bugs flaw flaws problem problems error errors mistake mistakes violation violations fail fails failed "
        "failure failures wrong false incorrect bad risk harm harmful toxic toxicity refused refusal not no non un lack lacks missing"
    )
)
"""Words of names of columns whose high or true values may be the worst."""


def order_of_words(name: str, values: Collection[str]) -> str:
    """Return a column's words from worst to best, in the syntax of an option; "" if no usual scale contains all of them.

    Args:
        name: The column.
        values: Its distinct words.

    >>> order_of_words("quality", ["poor", "excellent", "Good"]), order_of_words("verdict", ["AC", "WA", "TLE"])
    ('poor,Good,excellent', 'TLE|WA,AC')
    >>> order_of_words("critic", ["ok", "too vague"]), order_of_words("critic", ["yes", "no"])
    ('', '')
    >>> order_of_words("is_correct", ["yes", "no"]), order_of_words("hallucination", ["yes", "no"])
    ('no,yes', '')
    """
    if not _TURNED.isdisjoint(words_in(name)) or any("," in value or EQUAL in value for value in values):
        return ""
    plain = {value: plain_name(value) for value in sorted(values)}
    of_names = _OF_NAMES if _VAGUE.isdisjoint(words_in(name)) else ()
    for scale in (*_SCALES, *of_names):
        steps = [*map(words, scale.split(", "))]
        if {*plain.values()} <= {word for step in steps for word in step}:
            said = [EQUAL.join(value for value in plain if plain[value] in step) for step in steps]
            return ",".join(filter(None, said)) if sum(map(bool, said)) > 1 else ""
    return ""
