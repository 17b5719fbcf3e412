"""A real recording that a rule cut, on which every false figure is known: a coin as the gate of real answers.

Real questions, answered without and with retrieval.  The coin `p_known` knows nothing; where it came up above .5,
round 1 was never run and is not in the recording.  A figure that takes what never ran for a zero makes the coin win by
some sixteen points; in truth it loses five against always retrieving.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table

RULE = "p_known > 0.5"


@dataclass(frozen=True)
class Coin:
    """The recording as it was cut, the same questions at full width, and the truth about the coin.

    Attributes:
        cut: Without the rounds that the coin saved.
        whole: With them.
        heads: Where the coin saved retrieval, shape ``(n_questions,)``.
        truth: The coin's EM minus that of always retrieving, in points: negative.
        false_gain: The same if rounds that never ran scored 0: positive, the figure that must not appear anywhere.
    """

    cut: Recording
    whole: Recording
    heads: np.ndarray
    truth: float
    false_gain: float

    @property
    def numbers(self) -> tuple[str, ...]:
        """The false figures as a table would print them: the gain, and what always retrieving would seem to reach."""
        em = self.whole.column("em")
        seeming = 100 * np.where(self.heads, 0.0, em[:, 1]).mean()
        return f"{self.false_gain:+.1f}", f"{seeming:.1f}"


def coin(n: int = 500, seed: int = 7) -> Coin:
    """Return real questions under a gate that is a coin."""
    from suffice_gates.gates.answered import answered_recording, load_answered

    questions = load_answered("hotpotqa_llama31_eval")[:n]
    scores = np.random.default_rng(seed).random(len(questions))
    whole = answered_recording(questions, {"p_known": scores})
    heads = {question.question_id for question, score in zip(questions, scores, strict=True) if score > 0.5}
    rows = [
        {**row, "end": "rule" if row["question_id"] in heads else row["end"]}
        for row in whole.table.to_pylist()
        if not (row["question_id"] in heads and row["round"] == 1)
    ]
    cut = Recording(build_table(rows, kinds={"p_known": "signal"}), whole.metadata)
    em = whole.column("em")
    saved = np.array([name in heads for name in whole.question_ids])
    gated = np.where(saved, em[:, 0], em[:, 1])
    return Coin(
        cut=cut,
        whole=whole,
        heads=saved,
        truth=100 * float((gated - em[:, 1]).mean()),
        false_gain=100 * float((gated - np.where(saved, 0.0, em[:, 1])).mean()),
    )


def no_false_gain(coin: Coin, text: str) -> None:
    """Refuse a text with the false gain, or with a mean that counts what never ran as wrong (as a bound it may)."""
    gain, seeming = coin.numbers
    assert gain not in text
    assert not re.search(rf"(?<![\d.-]){re.escape(seeming)}(?! \.\.| and )(?!\d)", text)
