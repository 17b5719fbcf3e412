"""Features of a sample's reasoning, from which RASC learns how much its answer is worth (Wan et al., 2024).

They need no model, and none depends on other samples, so they are the same in every order of the samples.  Each is a
column only where a policy reads it; the rule `rasc` does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from suffice.policy.rounds import Round
from suffice.policy.signals.definitions import declare, register_signal
from suffice.policy.signals.state import overlap_tokens

RATIONALE_SCORE = "rationale_score"
"""The signal by which RASC stops and weighs votes."""

RELEVANCE = "question_relevance"
"""The feature that reads the question, which only a loop knows."""

TEXT_FEATURES = ("rationale_steps", "rationale_coherence", "rationale_doubt")
"""The features that are computed from the text of a sample."""

FEATURES = (*TEXT_FEATURES, RELEVANCE, "vote_repeats", "vote_joins")
"""What RASC is fitted to; `question_relevance` only where it was recorded."""

_SOURCE = "RASC, Wan et al. (2024), section 3.1"
_NUMBERED = re.compile(r"\bstep\s{1,3}\d{1,3}\s{0,3}[:.)]", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?]\s|\n")
_DOUBT = re.compile(r"\b(?:a mistake|an error|not solvable|not enough information|apologi[sz]e)\b", re.IGNORECASE)


def _steps(text: str) -> list[str]:
    """Return the steps of a reasoning: those it numbers, else its sentences and lines."""
    parts = _NUMBERED.split(text)[1:] or _SENTENCE_END.split(text)
    return [part for part in parts if part.strip()]


def shared_words(first: str, second: str) -> float:
    """Return the share of two texts' distinct words that both have, in [0, 1]; 0 if neither has any.

    >>> shared_words("Ann has two apples.", "Two apples are left.")
    0.3333333333333333
    """
    one, other = overlap_tokens(first), overlap_tokens(second)
    return len(one & other) / len(one | other) if one or other else 0.0


@register_signal("count", (0.0, math.inf), source=_SOURCE, component="", on_demand=True, reads={"text"})
def rationale_steps(rounds: Sequence[Round]) -> float:
    r"""Number of steps in the reply: those that it numbers ("Step 1:"), else its sentences and lines.

    NaN without a text.

    >>> rationale_steps([Round(index=1, text="Step 1: Two and two.\nStep 2: That is four.")])
    2.0
    """
    text = rounds[-1].text
    return float(len(_steps(text))) if text else math.nan


@register_signal("ratio", (0.0, 1.0), source=_SOURCE, component="", on_demand=True, reads={"text"})
def rationale_coherence(rounds: Sequence[Round]) -> float:
    """Mean share of words that neighbouring steps of the reply have in common; 0 with fewer than two steps.

    NaN without a text.

    >>> rationale_coherence([Round(index=1, text="Ann has two apples. Two apples are left.")])
    0.3333333333333333
    """
    text = rounds[-1].text
    if not text:
        return math.nan
    steps = _steps(text)
    shares = [shared_words(first, second) for first, second in pairwise(steps)]
    return sum(shares) / len(shares) if shares else 0.0


@register_signal("bool", (0.0, 1.0), source=_SOURCE, component="", on_demand=True, reads={"text"})
def rationale_doubt(rounds: Sequence[Round]) -> float:
    """1 if the reply admits an error, or says that the question cannot be answered, else 0.

    NaN without a text.

    >>> rationale_doubt([Round(index=1, text="I apologize, that was wrong.")])
    1.0
    """
    text = rounds[-1].text
    return float(_DOUBT.search(text) is not None) if text else math.nan


declare(
    RELEVANCE,
    "Share of distinct words that the question and the sample's reply have in common.",
    "ratio",
    (0.0, 1.0),
    RELEVANCE,
    source=_SOURCE,
    component="",
)
declare(
    RATIONALE_SCORE,
    "P(correct) of a sample by its reasoning and the votes before it, as fitted on tune questions; for rasc.",
    "probability",
    (0.0, 1.0),
    source=_SOURCE,
    component="",
    fitted=True,
    on_demand=True,
)
