"""Prices in USD per million tokens, and the currency of a recording's amounts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.errors import ConfigMismatchError, DataError
from suffice.policy.rounds import PRICED_KINDS, WRITTEN_KINDS, Cost, Floats, Mask
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.recordings.schema import CURRENCY, DOLLAR, SPEND, cost_column

BATCH_FACTOR = 0.5
"""The default price of requests in batches, as a share of the normal price: OpenAI's discount of 50 %."""

TOKEN_PRICES = ("uncached", "cached", "output")
WRITE_PRICES = ("written", "written_1h")
BATCH = "batch"
"""Fields of a price, and of its entry in a price list."""

_NO_WRITES: Floats = np.zeros(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The prices of a model's tokens.

    >>> import numpy as np
    >>> price = Price(uncached=0.15, cached=0.075, output=0.6)
    >>> price.of(np.array([1e6]), np.array([0.0]), np.array([1e6])).tolist()
    [0.75]

    Attributes:
        uncached: Input tokens that are processed, USD per million.
        cached: Input tokens read from a prefix cache, USD per million.
        output: Generated tokens, USD per million.
        written: Input tokens that are written to a cache, USD per million.  None = unknown; such tokens are then charged as
            uncached input.
        written_1h: Input tokens that are written to a cache for an hour, USD per million; None as for `written`.
        as_of: The date of a bundled list price; empty for the user's own.
        batch: Price of batched requests, as a share of these prices.
        taken: If the price is listed under another name than the model's, a text with both names; see `listed_name`.
    """

    uncached: float
    cached: float
    output: float
    written: float | None = field(default=None, repr=False)
    written_1h: float | None = field(default=None, repr=False)
    as_of: str = ""
    batch: float = BATCH_FACTOR
    taken: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in (*TOKEN_PRICES, *WRITE_PRICES, BATCH):
            value = getattr(self, name)
            if name in WRITE_PRICES and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                kind = "share of the price" if name == BATCH else "number of USD per million tokens"
                raise DataError(f"the price {name} must be a {kind} >= 0, not {value!r}")

    @property
    def in_batches(self) -> Price:
        """The prices of batched requests.

        >>> Price(uncached=3.0, cached=1.5, output=12.0).in_batches.output
        6.0
        """
        prices = {name: getattr(self, name) for name in (*TOKEN_PRICES, *WRITE_PRICES)}
        shares: dict[str, Any] = {name: self.batch * price for name, price in prices.items() if price is not None}
        return replace(self, **shares, batch=1.0)

    def of(
        self,
        uncached_tokens: Floats,
        cached_tokens: Floats,
        output_tokens: Floats,
        written_tokens: Floats = _NO_WRITES,
        written_1h_tokens: Floats = _NO_WRITES,
    ) -> Floats:
        """Return the price of these tokens, USD, shape of the arguments; NaN where a count is unknown.

        >>> price = Price(uncached=3.0, cached=0.3, output=15.0, written=3.75, written_1h=6.0)
        >>> float(price.of(*map(np.array, (1e6, 0.0, 0.0, 4e5, 1e5))))  # 0.5 * 3 + 0.4 * 3.75 + 0.1 * 6
        3.6

        Args:
            uncached_tokens: Input tokens that were processed, including those that were written to a cache.
            cached_tokens: Input tokens read from a cache.
            output_tokens: Generated tokens.
            written_tokens: The uncached tokens that were written to a cache.
            written_1h_tokens: The uncached tokens that were written to a cache for an hour.
        """
        paid = self.uncached * uncached_tokens + self.cached * cached_tokens + self.output * output_tokens
        for price, tokens in ((self.written, written_tokens), (self.written_1h, written_1h_tokens)):
            if price is not None:
                paid = paid + (price - self.uncached) * tokens
        return paid / 1e6

    def of_cost(self, cost: Cost) -> float:
        """Return the price of the tokens in a cost, USD; NaN where a count is unknown."""
        return float(self.of(*(np.array(getattr(cost, kind)) for kind in PRICED_KINDS)))

    def unpriced(self, cost: Cost) -> float:
        """Count the tokens that were written to a cache and are charged as uncached input, for lack of a price."""
        prices = zip((self.written, self.written_1h), WRITTEN_KINDS, strict=True)
        return sum(float(getattr(cost, kind)) for price, kind in prices if price is None)


Prices = Price | Mapping[str, Price] | None
"""One price for all language models, or prices by component; None = none are given."""


def taken_notes(prices: Iterable[Price | None]) -> list[str]:
    """Return a note on the prices whose entry has a name that is not exactly the model's; empty without such prices."""
    taken = sorted({price.taken for price in prices if price and price.taken})
    return [f"prices without provider or date of a model's name: that of {', '.join(taken)}"] if taken else []


def currency_of(recording: Recording, prices: Prices) -> str:
    """Return the currency of money: dollars if prices are given, else the currency of the recording's log."""
    return DOLLAR if prices is not None else str(recording.metadata.get(CURRENCY) or DOLLAR)


def currency_note(recording: Recording, prices: Prices) -> tuple[str, ...]:
    """Return a note if money and the log's signal `spend` are in different currencies.

    Money is in dollars if prices are given, while `spend` keeps the currency of the log.
    """
    log, money = currency_of(recording, None), currency_of(recording, prices)
    said = f"money is in {money}, at the prices given; 'spend', and rules on it, are in {log}, as the log says"
    return () if log == money else (said,)


def spend_currency(policy: Policy) -> str:
    """Return the currency in which a policy compares `spend`.

    This is the currency of the log that the policy was made for, by default US dollars.
    """
    return str(policy.depends.get(CURRENCY, DOLLAR)) if SPEND in policy.raw_signals else DOLLAR


def check_priced(policy: Policy) -> None:
    """Raise if a policy compares `spend` in a currency other than dollars, the currency of token prices.

    Raises:
        ConfigMismatchError: The policy was made for a log with another currency than dollars, see `policy_for`.
    """
    if (currency := spend_currency(policy)) != DOLLAR:
        raise ConfigMismatchError(
            f"the policy {policy.label!r} compares 'spend' in {currency}, like the log that it was made for, and prices of tokens are in "
            f"{DOLLAR}: give each round what was spent so far in {currency} (signals={{'spend': ...}}, in a framework measure=) and no "
            f"prices, or make the policy on a log in {DOLLAR}"
        )


def with_priced_spend(recording: Recording, prices: Prices) -> Recording:
    """Compute the signal `spend` from prices in each trajectory for which the log lacks the cost of some step.

    Other trajectories keep the amounts of the log, so that a trajectory has the same money in any part of a recording.
    The recording is returned unchanged if it has no signal `spend`, if no value of `spend` is missing, or if its log
    is in another currency than dollars.

    Args:
        recording: The recording.
        prices: One price for all language models, or prices by component; None = unknown.
    """
    price = prices.get("generator") if isinstance(prices, Mapping) else prices
    tokens = [cost_column("generator", kind) for kind in PRICED_KINDS]
    known = {*recording.names("cost")}
    if price is None or SPEND not in recording.names("signal") or {*tokens[:-2]} - known:
        return recording
    logged = recording.column(SPEND)
    lacking: Mask = np.any(~np.isfinite(logged) & recording.seen, axis=1)
    if currency_of(recording, None) != DOLLAR or not lacking.any():
        return recording
    written = [np.nan_to_num(recording.column(name)) if name in known else _NO_WRITES for name in tokens[-2:]]
    spent = np.cumsum(price.of(*map(recording.column, tokens[:-2]), *written), axis=1)
    spent = np.where(lacking[:, None], spent, logged)
    places = recording.table.column("round").to_numpy().astype(np.int64) - recording.index[0]
    values = pa.array(spent[recording.row_question, places], pa.float64(), from_pandas=True)
    table, at = recording.table, recording.table.schema.get_field_index(SPEND)
    return Recording(table.set_column(at, table.schema.field(at).with_type(pa.float64()), values), recording.metadata)
