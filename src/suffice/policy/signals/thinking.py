"""Signals of a chain of thought: how long it is, whether it doubts, and whether it still says anything new.

A round of such a loop is a checkpoint in the chain. Its `thinking` is what the model thought since the checkpoint before,
and its `answer` is the trial answer: what the model says if it must stop thinking there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

from suffice.policy.rounds import Round
from suffice.policy.signals.definitions import declare, register_signal
from suffice.policy.signals.from_policy import TRIAL

THINKING = "thinking"
"""The capability of a loop that shows what the model thought."""

HESITATION = frozenset(
    {"actually", "alternatively", "but", "hmm", "hold", "however", "maybe", "okay", "perhaps", "wait"}
)
"""Words with which a model turns back.  Those of Dynasor's program, and the transitions at which DEER looks."""

NOVELTY_WORDS = 4
"""Length of the sequences of words that `thinking_novelty` compares."""

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def share_of_words(text: str | None, listed: Collection[str] = HESITATION) -> float:
    """Return the share of a text's words that are in a list, regardless of case; NaN without words.

    A signal with a list of your own calls it:

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

    NaN if nothing was thought.

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
    """1 if the reply with the trial answer contains a word such as "wait", else 0.

    NaN if it has no words, or without a chain.

    >>> trial_hesitates([Round(index=1, text="42. Wait, no", thinking="6 times 7")])
    1.0
    """
    last = rounds[-1]
    share = share_of_words(last.text) if last.thinking is not None else math.nan
    return share if math.isnan(share) else float(share > 0)


@register_signal("ratio", (0.0, 1.0), THINKING, component="")
def thinking_novelty(rounds: Sequence[Round]) -> float:
    """Share of the stretch's sequences of four words that occur nowhere earlier in the chain.

    It falls when a model goes round in circles.  A sequence that occurs twice within the stretch is new once.  NaN if
    the stretch has fewer than four words.

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
