"""Answers with partial credit by F1: their number, and their commonest kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from suffice.importers.rounds.own_columns import Part
from suffice.policy.metrics import METRICS, normalize_answer

_FEW = 0.02
"""The largest share of answers with part of a point that needs no word."""

_LOOKED_AT = 5_000
"""The most answers among which the commonest kind is looked for."""


@dataclass(slots=True)
class PartialCredit:
    """Counts of answers with partial credit by F1.

    Attributes:
        answers: Answers that F1 scores.
        partly: Of these, those with an F1 strictly between 0 and 1.
        kinds: The number of these answers by the kind of the answer and of its closest gold answer. All numbers are one kind.
        first: For each such pair of kinds: the first answer, its closest gold answer, and its F1.
    """

    answers: int = 0
    partly: int = 0
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    first: dict[tuple[str, str], tuple[str, str, float]] = field(default_factory=dict)

    def add(self, part: Part, golds: Sequence[Sequence[str] | None]) -> None:
        """Count the answers of a part, given the gold answers of each trajectory."""
        scores = part.metrics["f1"]
        self.answers += int((part.has_answer & ~np.isnan(scores)).sum())
        places = np.flatnonzero(part.has_answer & (scores > 0) & (scores < 1))
        self.partly += len(places)
        owners = np.searchsorted(part.starts, places, side="right") - 1
        for place, owner in zip(places.tolist(), owners.tolist(), strict=True):
            answer, own = part.answers[place], golds[owner]
            if self.kinds.total() >= _LOOKED_AT or answer is None or not own:
                return
            gold = max(own, key=lambda gold, answer=answer: METRICS["f1"](answer, [gold]))  # type: ignore[misc]
            kind = _kind(answer), _kind(gold)
            self.kinds[kind] += 1
            self.first.setdefault(kind, (answer, gold, float(scores[place])))

    @property
    def note(self) -> str:
        """A note on answers with partial credit, with an example; "" if they are few."""
        if self.partly <= _FEW * self.answers or not self.kinds:
            return ""
        answer, gold, score = self.first[max(self.kinds, key=self.kinds.__getitem__)]
        return (
            f"F1 gives part of a point to {self.partly / self.answers:.0%} of the answers, such as {score:.2f} to {answer!r:.60} beside "
            f"{gold!r:.60}: `suffice decide --metric em` gives a point to whole answers alone"
        )


def _kind(text: str) -> str:
    return re.sub(r"\d+", "0", normalize_answer(text))
