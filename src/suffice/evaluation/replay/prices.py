"""Prices in USD per million tokens: the user's own, or dated list prices that are bundled as data."""

from __future__ import annotations

import json
import logging
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.common.tables import Column, Table
from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.policy.rounds import Floats
from suffice.policy.signals import EMBEDDING, GATE, LOOP_COMPONENTS, QUERY, TRIAL, member_component
from suffice.recordings.recording import Recording
from suffice.recordings.runs import MODEL_NAMES, attempts_of, single_labels
from suffice.recordings.schema import cost_column

_log = logging.getLogger(__name__)

LIST_PRICES = "list"
"""The word that stands for the bundled list prices in place of a file of prices."""

BATCH_FACTOR = 0.5
"""The default price of requests in batches, as a share of the normal price: OpenAI's discount of 50 %."""

_TOKEN_PRICES = ("uncached", "cached", "output")
_BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The prices of a model's tokens.

    >>> import numpy as np
    >>> price = Price(uncached=0.15, cached=0.075, output=0.6)
    >>> price.of(np.array([1e6]), np.array([0.0]), np.array([1e6])).tolist()
    [0.75]

    Attributes:
        uncached: Input tokens that are processed, USD per million; those that are written to a cache have this price, too.
        cached: Input tokens read from a prefix cache, USD per million.
        output: Generated tokens, USD per million.
        as_of: The date of a bundled list price; empty for the user's own.
        batch: Price of batched requests, as a share of these prices.
    """

    uncached: float
    cached: float
    output: float
    as_of: str = ""
    batch: float = BATCH_FACTOR

    def __post_init__(self) -> None:
        for name in (*_TOKEN_PRICES, _BATCH):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                kind = "share of the price" if name == _BATCH else "number of USD per million tokens"
                raise DataError(f"the price {name} must be a {kind} >= 0, not {value!r}")

    @property
    def in_batches(self) -> Price:
        """The prices of batched requests.

        >>> Price(uncached=3.0, cached=1.5, output=12.0).in_batches.output
        6.0
        """
        return replace(self, **{name: self.batch * getattr(self, name) for name in _TOKEN_PRICES}, batch=1.0)

    def of(self, uncached_tokens: Floats, cached_tokens: Floats, output_tokens: Floats) -> Floats:
        """Return the price of these tokens, USD, shape of the arguments; NaN where a count is unknown."""
        return (self.uncached * uncached_tokens + self.cached * cached_tokens + self.output * output_tokens) / 1e6


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
        price = Price(**{kind: entry[kind] for kind in _TOKEN_PRICES}, as_of=data["date"])
        rest = {name: entry[name] for name in ("provider", "page", "cached_listed")}
        prices[model] = ListPrice(model=model, price=price, source=data["source"], **rest)
    return prices


def list_price(model: str) -> ListPrice:
    """Return the bundled list price of a model.

    Raises:
        DataError: No list price of the model is bundled; the message names similar models.
    """
    known = list_prices()
    if model not in known:
        near = ", ".join(get_close_matches(model, known, n=3)) or "`suffice data prices` lists all"
        raise NotFoundError(f"no list price of {model!r} is bundled; similar: {near}. Give your own with --prices FILE")
    return known[model]


def price_table(prices: Iterable[ListPrice]) -> Table:
    """Return list prices as a table."""
    listed = list(prices)
    usd = [Column(name, ".4g") for name in ("uncached input", "cached input", "output")]
    rows = tuple(
        (p.model, p.provider, p.price.uncached, p.price.cached if p.cached_listed else math.nan, p.price.output)
        for p in listed
    )
    about = sorted({f"list prices as of {p.price.as_of}, from {p.source}; override with --prices FILE" for p in listed})
    notes = [] if all(p.cached_listed for p in listed) else ["- no cached price listed: billed as uncached input"]
    if any(p.provider == "anthropic" for p in listed):
        notes.append(
            "what is written to a cache is billed as uncached input; Anthropic charges 1.25 times that (2 for an hour)"
        )
    title = "USD per million tokens"
    return Table(title=title, columns=(Column("model"), Column("provider"), *usd), rows=rows, notes=(*about, *notes))


def load_prices(path: str | Path) -> dict[str, Price]:
    """Read prices by model (or component) from JSON or TOML.

    The file is a table of tables, each with `uncached`, `cached` and `output`, in USD per million tokens, and optionally
    `batch`, the share of these prices that requests in batches cost (0.5 if it is left out)::

        ["my-model"]
        uncached = 0.15
        cached = 0.075
        output = 0.60
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
        if not isinstance(entry, dict) or set(entry) - {_BATCH} != set(_TOKEN_PRICES):
            raise SchemaError(
                f"the price of {model!r} needs uncached, cached and output, and may have batch, but it is {entry!r}"
            )
        prices[str(model)] = Price(**entry)
    return prices


class PriceFile:
    """The price of a model in a file of prices, which is read again whenever the file changes, while loops run.

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
        """The price of now; if the changed file cannot be read, the last one, and a warning says so."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._price = self._read()
            except DataError as error:
                _log.warning("the last price of %r stays: %s", self.model, error)
        return self._price

    def of(self, uncached_tokens: Floats, cached_tokens: Floats, output_tokens: Floats) -> Floats:
        """Return the price of these tokens now, USD, see `Price.of`."""
        return self.price.of(uncached_tokens, cached_tokens, output_tokens)

    def _read(self) -> Price:
        return component_prices(self.path, {self.model: self.model})[self.model]

    def _stamp(self) -> tuple[int, int] | None:
        try:
            about = self.path.stat()
        except OSError:
            return None
        return about.st_mtime_ns, about.st_size


def component_prices(path: str | Path, models: Mapping[str, str]) -> dict[str, Price]:
    """Read the price of each component: by the component's name, else by its model's name.

    Args:
        path: The file, see `load_prices`.
        models: The name of the model behind each component that costs money; "" if unknown.

    Raises:
        DataError: A component has no price.
        SchemaError: The file is not a table of prices.
    """
    prices, by_component = load_prices(path), {}
    for component, model in models.items():
        name = component if component in prices else model
        if name not in prices:
            raise DataError(
                f"{str(path)!r} prices neither {component!r} nor its model {model or 'unknown'!r}; it has: "
                f"{', '.join(prices)}"
            )
        by_component[component] = prices[name]
    return by_component


def prices_of(path: str | Path | None, recording: Recording) -> dict[str, Price] | None:
    """Return the prices of the recorded components; a component whose model is not recorded is looked up by its own name.

    The model of an imported log is the only one that its runs name.

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
    priced |= {component for component, model in names.items() if {component, model} & load_prices(path).keys()}
    return component_prices(path, {c: n for c, n in names.items() if c in priced or c.startswith("judge:")})


def _logged_model(recording: Recording) -> str:
    """Return the model that all runs of a log name; "" if they name none."""
    labels = single_labels(recording)
    return next((value for name, value in labels.items() if name.removeprefix("imported_") in MODEL_NAMES), "")


def with_priced_spend(recording: Recording, prices: Price | Mapping[str, Price] | None) -> Recording:
    """Return a recording whose signal `spend` is computed from prices, if the log does not say what its steps cost.

    Args:
        recording: The recording; one without that signal, or with all of its values, is returned as it is.
        prices: One price for all language models, or prices by component; None = unknown.
    """
    price = prices.get("generator") if isinstance(prices, Mapping) else prices
    tokens = [cost_column("generator", kind) for kind in ("uncached_tokens", "cached_tokens", "output_tokens")]
    if price is None or "spend" not in recording.names("signal") or {*tokens} - {*recording.names("cost")}:
        return recording
    if np.isfinite(recording.column("spend")[recording.seen]).all():
        return recording
    spent = np.cumsum(price.of(*map(recording.column, tokens)), axis=1)
    places = recording.table.column("round").to_numpy().astype(np.int64) - recording.index[0]
    values = pa.array(spent[recording.row_question, places], pa.float64(), from_pandas=True)
    table, at = recording.table, recording.table.schema.get_field_index("spend")
    return Recording(table.set_column(at, table.schema.field(at).with_type(pa.float64()), values), recording.metadata)
