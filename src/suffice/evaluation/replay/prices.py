"""Prices in USD per million tokens: the user's own, or dated list prices that are bundled as data."""

from __future__ import annotations

import json
import logging
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.common.tables import Column, Table
from suffice.errors import ConfigMismatchError, DataError, NotFoundError, SchemaError
from suffice.evaluation.replay.model_names import listed_name, price_in
from suffice.policy.rounds import PRICED_KINDS, WRITTEN_KINDS, Cost, Floats, Mask
from suffice.policy.session import Policy
from suffice.policy.signals import EMBEDDING, GATE, LOOP_COMPONENTS, QUERY, TRIAL, member_component
from suffice.recordings.recording import Recording
from suffice.recordings.runs import MODEL_NAMES, attempts_of, single_labels
from suffice.recordings.schema import CURRENCY, DOLLAR, SPEND, cost_column

_log = logging.getLogger(__name__)

LIST_PRICES = "list"
"""The word that stands for the bundled list prices in place of a file of prices."""

BATCH_FACTOR = 0.5
"""The default price of requests in batches, as a share of the normal price: OpenAI's discount of 50 %."""

_TOKEN_PRICES = ("uncached", "cached", "output")
_WRITE_PRICES = ("written", "written_1h")
_BATCH = "batch"
_FEW = 10
_WRITE_TITLES = {"written": "cache write", "written_1h": "for an hour"}
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
        for name in (*_TOKEN_PRICES, *_WRITE_PRICES, _BATCH):
            value = getattr(self, name)
            if name in _WRITE_PRICES and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                kind = "share of the price" if name == _BATCH else "number of USD per million tokens"
                raise DataError(f"the price {name} must be a {kind} >= 0, not {value!r}")

    @property
    def in_batches(self) -> Price:
        """The prices of batched requests.

        >>> Price(uncached=3.0, cached=1.5, output=12.0).in_batches.output
        6.0
        """
        prices = {name: getattr(self, name) for name in (*_TOKEN_PRICES, *_WRITE_PRICES)}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """A model's price as listed by a provider, with its date.

    Attributes:
        model: The provider's name of the model.
        price: USD per million tokens, with its date.
        provider: The provider of the model.
        page: Address of the provider's price page.
        cached_listed: Whether the page lists a price for cached input; if not, the price of uncached input is used.
        source: The source of the figures.
    """

    model: str
    price: Price
    provider: str
    page: str
    cached_listed: bool
    source: str


@cache
def list_prices() -> Mapping[str, ListPrice]:
    """Return the bundled list prices by model, each with its date, since providers change them without notice.

    >>> list_prices()["gpt-4o-mini"].price.output
    0.6
    """
    data = tomllib.loads(files("suffice.data").joinpath("prices.toml").read_text(encoding="utf-8"))
    prices = {}
    for model, entry in data["models"].items():
        kinds = [kind for kind in (*_TOKEN_PRICES, *_WRITE_PRICES) if kind in entry]
        price = Price(**{kind: entry[kind] for kind in kinds}, as_of=data["date"])
        rest = {name: entry[name] for name in ("provider", "page", "cached_listed")}
        prices[model] = ListPrice(model=model, price=price, source=data["source"], **rest)
    return prices


def list_price(model: str) -> ListPrice:
    """Return the bundled list price of a model, whose name may also contain a provider or a date, see `listed_name`.

    >>> list_price("gpt-4o-2024-08-06").price.taken
    "'gpt-4o' for 'gpt-4o-2024-08-06'"

    Raises:
        DataError: No list price of the model is bundled; the message names similar models.
    """
    known = list_prices()
    name = listed_name(model, {name: listed.price for name, listed in known.items()})
    if name is None:
        near = ", ".join(get_close_matches(model, known, n=3)) or "`suffice data prices` lists all"
        raise NotFoundError(f"no list price of {model!r} is bundled; similar: {near}. Give your own with --prices FILE")
    listed = known[name]
    return listed if name == model else replace(listed, price=replace(listed.price, taken=f"{name!r} for {model!r}"))


def price_table(prices: Iterable[ListPrice]) -> Table:
    """Return list prices as a table."""
    listed = list(prices)
    known = [kind for kind in _WRITE_PRICES if any(getattr(p.price, kind) is not None for p in listed)]
    names = ["uncached input", "cached input", "output", *(_WRITE_TITLES[kind] for kind in known)]
    usd = [Column(name, ".4g") for name in names]
    rows = tuple(
        (
            *(p.model, p.provider, p.price.uncached, p.price.cached if p.cached_listed else math.nan, p.price.output),
            *(math.nan if (price := getattr(p.price, kind)) is None else price for kind in known),
        )
        for p in listed
    )
    about = sorted({f"list prices as of {p.price.as_of}, from {p.source}; override with --prices FILE" for p in listed})
    about += taken_notes(p.price for p in listed)
    notes = [] if all(p.cached_listed for p in listed) else ["- no cached price listed: billed as uncached input"]
    title = "USD per million tokens"
    return Table(title=title, columns=(Column("model"), Column("provider"), *usd), rows=rows, notes=(*about, *notes))


def taken_notes(prices: Iterable[Price | None]) -> list[str]:
    """Return a note on prices that were taken from an entry with another name; empty if there are none."""
    taken = sorted({price.taken for price in prices if price and price.taken})
    return [f"prices without provider or date of a model's name: that of {', '.join(taken)}"] if taken else []


def load_prices(path: str | Path) -> dict[str, Price]:
    """Read prices by model (or component) from JSON or TOML.

    The file has one table for each model.  The table must contain `uncached`, `cached` and `output`, in USD per million
    tokens.  It may contain `written` and `written_1h`, for tokens written to a cache.  It may also contain `batch`, the
    price of batched requests as a share of the other prices (default 0.5)::

        ["my-model"]
        uncached = 0.15
        cached = 0.075
        output = 0.60
        written = 0.1875
        batch = 0.5

    Args:
        path: A file that ends in ``.json`` or ``.toml``; or the word ``list`` for the bundled list prices.

    Raises:
        DataError: The file cannot be read, or a price is not a number >= 0.
        SchemaError: The file is not a table of prices.
    """
    source = Path(path)
    if str(path) == LIST_PRICES:
        return {model: listed.price for model, listed in list_prices().items()}
    try:
        text = source.read_text(encoding="utf-8")
        data: Any = tomllib.loads(text) if source.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise DataError(f"the prices {str(path)!r} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise SchemaError(f"the prices {str(path)!r} are neither JSON nor TOML: {error}") from None
    if not isinstance(data, dict):
        raise SchemaError(f"the prices {str(path)!r} must be a table by model, not {type(data).__name__}")
    prices = {}
    for model, entry in data.items():
        if not isinstance(entry, dict) or set(entry) - {_BATCH, *_WRITE_PRICES} != set(_TOKEN_PRICES):
            raise SchemaError(
                f"the price of {model!r} needs uncached, cached and output, and may have written, written_1h and batch, but it is {entry!r}"
            )
        prices[str(model)] = Price(**entry)
    return prices


class PriceFile:
    """A model's price from a file of prices; the file is read again whenever it changes, also while loops run.

    Args:
        path: The file, see `load_prices`.
        model: The name of the model in the file.

    Raises:
        DataError: The file cannot be read, or has no price of the model.
        SchemaError: The file is not a table of prices.
    """

    def __init__(self, path: str | Path, model: str) -> None:
        self.path, self.model = Path(path), model
        self._seen = self._stamp()
        self._price = self._read()

    @property
    def price(self) -> Price:
        """The current price; if the changed file cannot be read, the last known price, with a warning."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._price = self._read()
            except DataError as error:
                _log.warning("the last price of %r stays: %s", self.model, error)
        return self._price

    def of_cost(self, cost: Cost) -> float:
        """Return the price of the tokens in a cost now, USD; NaN where a count is unknown."""
        return self.price.of_cost(cost)

    def unpriced(self, cost: Cost) -> float:
        """Count the tokens that were written to a cache and have no price of their own; see `Price.unpriced`."""
        return self.price.unpriced(cost)

    def _read(self) -> Price:
        return component_prices(self.path, {self.model: self.model})[self.model]

    def _stamp(self) -> tuple[int, int] | None:
        try:
            about = self.path.stat()
        except OSError:
            return None
        return about.st_mtime_ns, about.st_size


def component_prices(path: str | Path, models: Mapping[str, str]) -> dict[str, Price]:
    """Read the price of each component.

    The price is looked up by the component's name first, then by its model's name (see `listed_name`).

    Args:
        path: The file, see `load_prices`.
        models: The name of the model behind each component that costs money; "" if unknown.

    Raises:
        DataError: A component has no price, or several prices that differ.
        SchemaError: The file is not a table of prices.
    """
    prices, by_component = load_prices(path), {}
    for component, model in models.items():
        price = prices.get(component) or price_in(prices, model)
        if price is None:
            near = get_close_matches(model, prices, n=3) or [*prices][:_FEW]
            more = f", ... ({len(prices)} in all)" if len(prices) > len(near) else ""
            raise DataError(
                f"{str(path)!r} prices neither {component!r} nor its model {model or 'unknown'!r}; it has: {', '.join(near)}{more}. Give "
                f"--prices FILE with an entry {model or component!r}"
            )
        by_component[component] = price
    return by_component


def prices_of(path: str | Path | None, recording: Recording) -> dict[str, Price] | None:
    """Return the prices of the recorded components; a component whose model is not recorded is looked up by its own name.

    The model of an imported log is the one that all of its runs name.

    Args:
        path: The file, see `load_prices`; None = no prices.
        recording: The recording, which names the models.

    Raises:
        DataError: A component has no price.
        SchemaError: The file is not a table of prices.
    """
    if path is None:
        return None
    config = recording.metadata.get("config", {})
    names = {column.split(".")[1]: "" for column in recording.names("cost")}
    names |= {component: about.get("model", "") for component, about in config.get("enrichers", {}).items()}
    models = {about["name"]: about["model"] for about in config.get("models", ())}
    models = models or {name: name for name in attempts_of(recording)}
    panel = {member_component(name): model for name, model in models.items()} if len(models) > 1 else {}
    if panel:
        names = {**{name: model for name, model in names.items() if name != "generator"}, **panel}
    else:
        recorded = config.get("model", {}).get("model", "")
        names["generator"] = next(iter(models.values()), recorded or _logged_model(recording))
        names |= {component: names["generator"] for component in (QUERY, TRIAL) if component in names}
    if EMBEDDING in names:
        names[EMBEDDING] = config.get("retriever", {}).get("embedder", {}).get("id", "")
    priced = {*LOOP_COMPONENTS, TRIAL, GATE, EMBEDDING, *panel}
    prices = load_prices(path)
    priced |= {component for component, model in names.items() if component in prices or listed_name(model, prices)}
    return component_prices(path, {c: n for c, n in names.items() if c in priced or c.startswith("judge:")})


def _logged_model(recording: Recording) -> str:
    """Return the model that all runs of a log name; "" if the runs name no model or several."""
    labels = single_labels(recording)
    return next((value for name, value in labels.items() if name.removeprefix("imported_") in MODEL_NAMES), "")


def currency_of(recording: Recording, prices: Price | Mapping[str, Price] | None) -> str:
    """Return the currency of money: dollars if prices are given, else the currency of the recording's log."""
    return DOLLAR if prices is not None else str(recording.metadata.get(CURRENCY) or DOLLAR)


def currency_note(recording: Recording, prices: Price | Mapping[str, Price] | None) -> tuple[str, ...]:
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


def with_priced_spend(recording: Recording, prices: Price | Mapping[str, Price] | None) -> Recording:
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
