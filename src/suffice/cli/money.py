"""`suffice data prices` and `suffice data costs`: show list prices, and the cost of each round of a recording."""

from __future__ import annotations

from typing import Annotated

import typer

from suffice.cli import options
from suffice.cli.output import Output, Screen
from suffice.common.results import jsonable
from suffice.evaluation.replay import list_price, list_prices
from suffice.evaluation.replay.costs_by_round import round_costs
from suffice.evaluation.replay.prices import price_table
from suffice.recordings import read_recording


def prices_command(
    output: Output,
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="One model's name at its provider; default: all.")
    ] = None,
) -> None:
    """In USD per million tokens, each with its date and source.

    Example: suffice data prices gpt-4o-mini
    """
    prices = list(list_prices().values()) if model is None else [list_price(model)]
    screen = Screen(tables=[price_table(prices)], then="suffice data prices MODEL" if model is None else "")
    output.show({"prices": jsonable(prices)}, screen)


def costs_command(
    path: options.Recorded,
    pricing: options.Pricing,
    output: Output,
) -> None:
    """As recorded, without a prefix cache, and as if every shared prefix had been cached.

    Example: suffice data costs run.parquet
    """
    pricing.price()  # raises if there are two prices, of which neither would be right
    recording = read_recording(path)
    result = round_costs(recording, pricing.of(recording))
    output.show(result.to_dict(), Screen(tables=result.tables(), then=options.replay_step(path, recording)))
