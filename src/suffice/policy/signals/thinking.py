"""Signals of chains of thought and of rationales: their length, their doubts, and the novelty of their text.

A round of such a loop is a checkpoint in the chain. Its `thinking` is the text since the previous checkpoint, and its
`answer` is the trial answer, which the model gives if it must stop thinking there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from suffice.policy.rounds import Round
from suffice.policy.signals.definitions import declare, register_signal
from suffice.policy.signals.given import TRIAL
from suffice.policy.signals.state import overlap_tokens

THINKING = "thinking"
"""The capability of a loop that shows what the model thought."""

HESITATION = frozenset(
    {"actually", "alternatively", "but", "hmm", "hold", "however", "maybe", "okay", "perhaps", "wait"}
)
"""Words with which a model turns back.  Those of Dynasor's program, and the transitions at which DEER looks."""

DOUBT = frozenset({"but", "hmm", "hold", "okay", "wait"})
"""Words with which a trial answer doubts itself: those of Dynasor's program, without "no", which answers many questions."""

NOVELTY_WORDS = 4
"""Length of the sequences of words that `thinking_novelty` compares."""

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def share_of_words(text: str | None, listed: Collection[str] = HESITATION) -> float:
    """Return the share of a text's words that are in `listed`, regardless of case; NaN if the text has no words.

    Use it in a signal with your own list of words:

    >>> share_of_words("Wait, it is Oslo. Hmm.", {"wait", "hmm"})
    0.4

    Args:
        text: A text; None = unknown.
        listed: Words in lower case.
    """
    words = _words(text or "")
    return sum(word in listed for word in words) / len(words) if words else math.nan


declare(
    "thinking_tokens",
    "Tokens of the chain of thought up to the checkpoint.",
    "count",
    (0.0, math.inf),
    THINKING,
    component="",
    source="s1 (Muennighoff et al., 2025)",
)


declare(
    "thinking_ended",
    "1 if the model has ended its chain of thought by itself, else 0.",
    "bool",
    (0.0, 1.0),
    THINKING,
    component="",
)


@register_signal("ratio", (0.0, 1.0), THINKING, component="", reads={"thinking"})
def thinking_hesitation(rounds: Sequence[Round]) -> float:
    """Share of words such as "wait" and "hmm" in what was thought since the checkpoint before.

    NaN if there is no thinking since the previous checkpoint.

    >>> thinking_hesitation([Round(index=1, thinking="Wait, that is not right.")])
    0.2
    """
    return share_of_words(rounds[-1].thinking)


@register_signal(
    "bool",
    (0.0, 1.0),
    THINKING,
    component=TRIAL,
    reads={"text", "thinking"},
    source="Dynasor-CoT (Fu et al., 2025)",
)
def trial_hesitates(rounds: Sequence[Round]) -> float:
    """1 if the reply with the trial answer contains a word such as "wait" or "but", else 0.

    NaN without a reply, or if rounds are not checkpoints of a chain.

    >>> trial_hesitates([Round(index=1, text="42. Wait, no", thinking="6 times 7")])
    1.0
    """
    last = rounds[-1]
    if last.thinking is None or not last.text.strip():
        return math.nan
    return float(not DOUBT.isdisjoint(_words(last.text)))


@register_signal("ratio", (0.0, 1.0), THINKING, component="")
def thinking_novelty(rounds: Sequence[Round]) -> float:
    """Share of the stretch's sequences of four words that occur nowhere earlier in the chain.

    A stretch is the thinking since the previous checkpoint. The share falls when a model goes round in circles. A
    sequence that occurs twice within the stretch is new only once. NaN if the stretch has fewer than four words.

    >>> thoughts = ["two and two is four", "two and two is four or five"]
    >>> thinking_novelty([Round(index=i, thinking=thought) for i, thought in enumerate(thoughts, start=1)])
    0.5
    """
    *earlier, last = (_sequences(observed.thinking) for observed in rounds)
    known = set().union(*earlier)
    new = 0
    for sequence in last:
        new += sequence not in known
        known.add(sequence)
    return new / len(last) if last else math.nan


def _sequences(thinking: str | None) -> list[tuple[str, ...]]:
    words = _words(thinking or "")
    return [tuple(words[i : i + NOVELTY_WORDS]) for i in range(len(words) - NOVELTY_WORDS + 1)]


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
    """Split a rationale into its numbered steps; if no step is numbered, split it into sentences and lines."""
    parts = _NUMBERED.split(text)[1:] or _SENTENCE_END.split(text)
    return [part for part in parts if part.strip()]


def shared_words(first: str, second: str) -> float:
    """Return the share of the distinct words of two texts that occur in both, in [0, 1]; 0 if neither has words.

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
