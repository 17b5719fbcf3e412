"""Audits: a random share of the questions continues after the stop, so that the rule can be judged.

The questions are drawn by their ids.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from suffice.common.json_text import as_number
from suffice.errors import DataError

_BYTES = 8
_VALUES = 2 ** (8 * _BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The draw of an audit for one question.

    Attributes:
        question_id: The id by which the draw was made.
        rate: The probability of being drawn, in (0, 1].
        audited: Whether the question was drawn.
    """

    question_id: str
    rate: float
    audited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The share of questions that continue after the stop, up to the policy's last round.

    The draw is a keyed hash (HMAC-SHA256) of the question's id. So an id has the same draw in every process, and nobody
    who lacks the seed can choose an id that will be drawn.  Requests that repeat an id share one draw, so their audits
    are not independent.

    >>> audit = Audit(rate=0.05, seed="a secret text")
    >>> sum(audit.draw(f"q{number}").audited for number in range(1000))
    43

    Attributes:
        rate: The probability of being drawn, in (0, 1].
        seed: The key of the draw, a whole number or a text (7 and "7" are the same key).
    """

    rate: float
    seed: int | str = field(repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.rate, bool) or not 0 < as_number(self.rate) <= 1:
            raise DataError(
                f"the rate of an audit is a probability above 0 and at most 1, such as 0.05, not {self.rate!r}; for none, "
                "leave the audit out"
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | str) or self.seed == "":
            raise DataError(
                "the seed of an audit is a whole number or a text that is not empty, the same in every process, not a "
                f"{type(self.seed).__name__}{' without characters' if self.seed == '' else ''}"
            )

    def draw(self, question_id: str) -> Draw:
        """Draw whether a question is audited.

        Raises:
            DataError: The id is blank, or is not a text.
        """
        if not isinstance(question_id, str) or not question_id.strip():
            raise DataError(
                f"an audit draws a question by its id: give question_id=, a text that names it, not {question_id!r}"
            )
        key, text = (str(part).encode("utf-8", "surrogatepass") for part in (self.seed, question_id))
        number = int.from_bytes(hmac.digest(key, b"suffice.audit:" + text, hashlib.sha256)[:_BYTES])
        return Draw(question_id=question_id, rate=float(self.rate), audited=number < self.rate * _VALUES)
