"""Price lists: the bundled list prices, users' files of prices, and the search for a model's entry in a list.

A model's name in a log or reply may also contain a provider, a gateway or a date.
"""

from __future__ import annotations

import json
import logging
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from suffice.common.tables import Column, Table
from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.evaluation.replay.prices import BATCH, TOKEN_PRICES, WRITE_PRICES, Price, taken_notes
from suffice.policy.rounds import Cost
from suffice.policy.signals import EMBEDDING, GATE, LOOP_COMPONENTS, QUERY, TRIAL, member_component
from suffice.recordings.recording import Recording
from suffice.recordings.runs import MODEL_NAMES, attempts_of, single_labels

_log = logging.getLogger(__name__)
LIST_PRICES = "list"
"""The word that stands for the bundled list prices in place of a file of prices."""
_FEW = 10
_WRITE_TITLES = {"written": "cache write", "written_1h": "for an hour"}
_PROVIDERS = re.compile(
    r"^(?:(?:openai|anthropic|azure|azure_ai|bedrock|bedrock_converse|converse|vertex_ai|gemini|google|google-gla|google-vertex|models"
    r"|groq|mistral|mistralai|cohere|deepseek|moonshot|moonshotai|openrouter|litellm|litellm_proxy)/)+"
)
_BEDROCK = re.compile(
    r"^(?:(?:us|us-gov|eu|apac|jp|au|global)\.)?(?:anthropic|openai|meta|mistral|cohere|deepseek)\.(?P<name>.+?)(?:-v\d+)?(?::\d+)?$"
)
_DATED = re.compile(r"[-@](?:20\d{6}|20\d{2}-\d{2}-\d{2})$")
_LATEST = re.compile(r"[-@]latest$")


def listed_name(model: str, prices: Mapping[str, Price]) -> str | None:
    """Return the name under which a model appears in a list of prices; None if the list does not contain the model.

    An entry with exactly the model's name is preferred.  The second choice is an entry that differs only in the provider
    (`openai/`, `us.anthropic.`).  The third choice may also lack the model's date, or have `latest` in its place.  An
    entry with another date is another model.

    >>> listed_name("openai/gpt-4o-2024-08-06", {"gpt-4o": ..., "gpt-4o-2024-05-13": ...})
    'gpt-4o'
    >>> listed_name("us.anthropic.claude-3-5-haiku-20241022-v1:0", {"claude-3-5-haiku-latest": ...})
    'claude-3-5-haiku-latest'
    >>> listed_name("gpt-4o-mini", {"gpt-4o": ...})

    Args:
        model: The model's name in a log or a reply.
        prices: The prices by name.

    Raises:
        DataError: Several entries fit equally well, and their prices differ.
    """
    bare = _without_provider(model)
    undated = _LATEST.sub("", _DATED.sub("", bare))
    by_bare = {name: _without_provider(name) for name in prices}
    own = [name for name in (model, bare) if name in prices][:1]
    own = own or [name for name, other in by_bare.items() if other == bare]
    own = own or [name for name in prices if name == undated]
    own = own or [name for name, other in by_bare.items() if other == undated]
    own = own or [name for name, other in by_bare.items() if _LATEST.sub("", other) == undated]
    if len({prices[name] for name in own}) > 1:
        raise DataError(
            f"the price of {model!r} may be that of {' or '.join(map(repr, own))}, which differ: give the file of --prices an entry "
            f"{model!r} with the right one"
        )
    return own[0] if own else None


def price_in(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return a model's price from a list of prices; None if no entry fits.

    If the entry has another name than the model, the price's field `taken` states both names.

    Args:
        prices: The prices by name.
        model: The model's name, see `listed_name`.

    Raises:
        DataError: Several entries fit equally well, and their prices differ.
    """
    name = listed_name(model, prices)
    if name is None or name == model:
        return None if name is None else prices[name]
    return replace(prices[name], taken=f"{name!r} for {model!r}")


def _without_provider(model: str) -> str:
    name = _PROVIDERS.sub("", model)
    bedrock = _BEDROCK.match(name)
    return bedrock["name"] if bedrock else name


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
        kinds = [kind for kind in (*TOKEN_PRICES, *WRITE_PRICES) if kind in entry]
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
    known = [kind for kind in WRITE_PRICES if any(getattr(p.price, kind) is not None for p in listed)]
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
        if not isinstance(entry, dict) or set(entry) - {BATCH, *WRITE_PRICES} != set(TOKEN_PRICES):
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
