"""`suffice stream`: one policy over a recording of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suffice.cli import options
from suffice.cli.show import print_json, print_table
from suffice.errors import DataError
from suffice.replays.prices import list_price, load_prices
from suffice.replays.streaming import replay_stream
from suffice.session import Policy

__all__ = ["stream_command"]


def stream_command(
    path: Annotated[Path, typer.Argument(metavar="RECORDING", help="Recorded rounds, question after question.")],
    rule: Annotated[str | None, typer.Option("--rule", help="A rule: a name or its text.")] = None,
    policy: Annotated[Path | None, typer.Option("--policy", help="A policy file, instead of a rule.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="A column in [0, 1]; may be repeated. Default: f1; em for multiple choice."),
    ] = None,
    baseline: Annotated[str, typer.Option("--baseline", help="A rule to compare with.")] = "fixed_k(3)",
    level: Annotated[float, typer.Option("--level", min=0.5, max=0.9999, help="Coverage of intervals.")] = 0.95,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="USD per million tokens by component (TOML or JSON).")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Price every language model as this one of the list prices.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Replay one policy over a recording that need not fit into memory, beside one fixed budget."""
    if (rule is None) == (policy is None):
        raise DataError("give --rule or --policy, one of the two")
    if prices is not None and model is not None:
        raise DataError("--prices and --model both say what tokens cost: give one of them")
    chosen = str(rule) if policy is None else Policy.load(policy)
    result = replay_stream(
        path,
        chosen,
        metrics=metric,
        baseline=baseline,
        level=level,
        prices=list_price(model).price if model is not None else None if prices is None else load_prices(prices),
    )
    if as_json:
        print_json(result.to_dict())
    else:
        print_table(result.table())
