"""Build the rounds of a session from the JSON of requests."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from suffice.common.json_text import number_from_json
from suffice.errors import DataError
from suffice.evaluation.replay.price_lists import PriceFile
from suffice.evaluation.replay.prices import check_priced
from suffice.hosts.runs import with_spend
from suffice.loops.open_question import check_signal_names
from suffice.policy.rounds import Round
from suffice.policy.session import Session, read_reply

_LOG = logging.getLogger(__name__)
_EMPTY_ROUND = Round(index=0).to_dict()
_FIELDS = frozenset(item.name for item in fields(Round))


def round_of(given: Mapping[str, Any], session: Session, prices: Path | None = None) -> Round:
    """Build the round of a request.

    Args:
        given: A value of the schema `Round`; a value without an index describes the next round.
        session: The session of the question; its policy has the position of the answer in a response, see `read_reply`.
        prices: A file of prices by model; None = no prices.  If the policy reads `spend` and the client does not send
            this signal, `spend` is computed from these prices.

    Raises:
        DataError: The response cannot be read, a field contradicts another, the round has no price, or a log cannot store a
            signal because of its name.
        ConfigMismatchError: The policy compares `spend` in another currency than the prices have.
    """
    check_signal_names(given.get("signals", ()))
    values = {name: value for name, value in given.items() if name in _FIELDS}
    index = int(values.pop("index", session.next_round))
    seen = [earlier for earlier in session.rounds if earlier.index < index]
    written = Round.from_dict({**_EMPTY_ROUND, **values, "index": index})
    if "response" not in given:
        if given.get("seconds") is not None:
            raise DataError("seconds belong to a response: give the costs of a round as costs")
        return _priced(written, session, seen, prices)
    others = {name: getattr(written, name) for name in values}
    seconds = number_from_json(given.get("seconds"))
    position = session.policy.answer_position
    read = read_reply(given["response"], position, seen, index=index, seconds=seconds, **others)
    return _priced(read, session, seen, prices)


def _priced(observed: Round, session: Session, seen: Sequence[Round], prices: Path | None) -> Round:
    if prices is None or "spend" not in session.policy.raw_signals or "spend" in observed.signals:
        return observed
    check_priced(session.policy)
    if observed.reply_model is None:
        raise DataError(
            "the price of a round follows from its model: give reply_model, or a response that names it, or spend"
        )
    return with_spend(seen, observed, _price(prices, observed.reply_model))


@lru_cache(maxsize=1000)
def _price(prices: Path, model: str) -> PriceFile:
    try:
        return PriceFile(prices, model)
    except DataError as error:
        _LOG.warning("%s", error)
        raise DataError(
            f"this server has no price of the model {model[:100]!r}: add it to its file of prices"
        ) from None
