"""Money: USD per million tokens, as data that the user overrides."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.errors import DataError, SchemaError
from suffice.rounds import Floats

__all__ = ["PRICES", "Price", "component_prices", "load_prices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model's tokens cost.

    >>> import numpy as np
    >>> price = Price(uncached=0.15, cached=0.075, output=0.6)
    >>> price.of(np.array([1e6]), np.array([0.0]), np.array([1e6])).tolist()
    [0.75]

    Attributes:
        uncached: Input tokens that are processed, USD per million.
        cached: Input tokens read from a prefix cache, USD per million.
        output: Generated tokens, USD per million.
    """

    uncached: float
    cached: float
    output: float

    def __post_init__(self) -> None:
        for name in ("uncached", "cached", "output"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise DataError(f"the price {name} must be a number of USD per million tokens >= 0, not {value!r}")

    def of(self, uncached_tokens: Floats, cached_tokens: Floats, output_tokens: Floats) -> Floats:
        """Return the money that these tokens cost, USD, shape of the arguments; NaN where one is unknown."""
        return (self.uncached * uncached_tokens + self.cached * cached_tokens + self.output * output_tokens) / 1e6


PRICES: Mapping[str, Price] = {}
"""Bundled prices by model: none.  List prices change without notice, and a stale default is worse than none."""


def load_prices(path: str | Path) -> dict[str, Price]:
    """Read prices by model (or component) from JSON or TOML.

    The file is a table of tables, each with exactly `uncached`, `cached` and `output`, in USD per million tokens::

        ["my-model"]
        uncached = 0.15
        cached = 0.075
        output = 0.60

    Args:
        path: Ends in ``.json`` or ``.toml``.

    Raises:
        DataError: The file cannot be read, or a price is not a number >= 0.
        SchemaError: It is of another form.
    """
    source = Path(path)
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
        if not isinstance(entry, dict) or set(entry) != {"uncached", "cached", "output"}:
            raise SchemaError(f"the price of {model!r} needs exactly uncached, cached and output, not {entry!r}")
        prices[str(model)] = Price(**entry)
    return prices


def component_prices(path: str | Path, models: Mapping[str, str]) -> dict[str, Price]:
    """Read the price of each component: by the component's own name, else by its model's.

    Args:
        path: The file, see `load_prices`.
        models: The name of the model behind each component that costs money; "" if unknown.

    Raises:
        DataError: A component has no price.
        SchemaError: The file does not read.
    """
    prices = load_prices(path)
    found = {}
    for component, model in models.items():
        name = component if component in prices else model
        if name not in prices:
            raise DataError(
                f"{str(path)!r} prices neither {component!r} nor its model {model or 'unknown'!r}; it has: "
                f"{', '.join(prices)}"
            )
        found[component] = prices[name]
    return found
