"""Convert replies to rounds, with the answer read at the policy's position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from suffice.policy.rounds import Round, Token
from suffice.policy.signals import AnswerPosition, Located


def read_reply(
    reply: Any, position: AnswerPosition | None, seen: Iterable[Round], *, index: int, **others: Any
) -> Round:
    """Return the round of a reply, with the answer at `position`; if nothing is there, the round's answer is None.

    The default position, after `Answer:`, may not be a deliberate choice. So until some reply to the question contains
    this marker, the whole reply after any thinking block counts as the answer.

    >>> read_reply("Oslo", AnswerPosition(), [], index=1).answer
    'Oslo'
    >>> read_reply("Oslo", AnswerPosition("json", "city"), [], index=1).answer is None
    True

    Args:
        reply: The text of the reply, or a client's response, see `Round.from_response`.
        position: The position of the answer; None = the whole text.
        seen: The rounds of the question before this one.
        index: The index of the round.
        **others: Other fields of the round, such as `signals`, `costs` and `feedback`; and `seconds`, the duration of
            the call.

    Raises:
        DataError: The reply is neither text nor a response.
    """
    observed = Round.from_response(reply, index=index, position=position, **others)
    if observed.answer is not None or position is None or not position.is_default or not observed.text.strip():
        return observed
    is_said = any(position.locate(earlier.text).answer for earlier in seen)
    return observed if is_said else Round.from_response(reply, index=index, position=position.whole, **others)


def located_in(
    texts: Sequence[str], position: AnswerPosition, tokens: Sequence[Sequence[Token] | None] = ()
) -> list[Located]:
    """Return the answers of all replies to one question, as `read_reply` reads them one by one.

    >>> [item.answer for item in located_in(["Rome", "Answer: Oslo", "Bern"], AnswerPosition())]
    ['Rome', 'Oslo', None]
    """
    is_said, result = not position.is_default, []
    for text, own in zip(texts, tokens or [None] * len(texts), strict=True):
        located = position.locate(text, own)
        is_said = is_said or located.answer is not None
        result.append(located if is_said else position.whole.locate(text, own))
    return result
