"""`suffice data prices` and `suffice data costs`: list prices, and what each round of a recording costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suffice.cli import options
from suffice.cli.console import print_json, print_table
from suffice.cli.offline import prices_for
from suffice.errors import DataError
from suffice.replays import Price, list_price, list_prices
from suffice.replays.costs_by_round import round_costs
from suffice.replays.prices import price_table
from suffice.store import read_recording

__all__ = ["costs_command", "prices_command"]


def prices_command(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="One model's name at its provider; default: all.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """In USD per million tokens, each with its date and source.

    Example: suffice data prices gpt-4o-mini
    """
    listed = list(list_prices().values()) if model is None else [list_price(model)]
    if as_json:
        print_json({"prices": [price.to_dict() for price in listed]})
    else:
        print_table(price_table(listed))


def costs_command(
    path: Annotated[Path, typer.Argument(metavar="RECORDING", help="Recorded rounds.")],
    prices: Annotated[
        Path | None,
        typer.Option("--prices", help="USD per million tokens by model or component (TOML or JSON), or 'list'."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Price every language model as this one of the list prices.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """As recorded, without a prefix cache, and as if every shared prefix had been cached.

    Example: suffice data costs run.parquet
    """
    if prices is not None and model is not None:
        raise DataError("--prices and --model both say what tokens cost: give one of them")
    recording = read_recording(path)
    by_model: Price | None = None if model is None else list_price(model).price
    result = round_costs(recording, by_model or prices_for(prices, recording))
    if as_json:
        print_json(result.to_dict())
    else:
        print_table(result.table())
