"""Rounds of the session, built from the JSON of requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from suffice.common.json_text import number_from_json
from suffice.errors import DataError
from suffice.loops.open_question import check_signal_names
from suffice.policy.rounds import Round
from suffice.policy.session import Session, read_reply

_EMPTY_ROUND = Round(index=0).to_dict()
_FIELDS = frozenset(item.name for item in fields(Round))


def round_of(given: Mapping[str, Any], session: Session) -> Round:
    """Build the round of a request.

    Args:
        given: A value of the schema `Round`; without an index it is the next round.
        session: The session of the question; its policy has the answer's position in a response, see `read_reply`.

    Raises:
        DataError: The response cannot be read, a field contradicts another, or a signal has a name that a log cannot hold.
    """
    check_signal_names(given.get("signals", ()))
    values = {name: value for name, value in given.items() if name in _FIELDS}
    index = int(values.pop("index", session.next_round))
    written = Round.from_dict({**_EMPTY_ROUND, **values, "index": index})
    if "response" not in given:
        if given.get("seconds") is not None:
            raise DataError("seconds belong to a response: give the costs of a round as costs")
        return written
    others = {name: getattr(written, name) for name in values}
    seconds = number_from_json(given.get("seconds"))
    seen = [earlier for earlier in session.rounds if earlier.index < index]
    position = session.policy.answer_position
    return read_reply(given["response"], position, seen, index=index, seconds=seconds, **others)
