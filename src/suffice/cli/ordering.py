"""`suffice sample order`: choose the order in which a panel's models are asked, on tune questions."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from suffice.cli import options
from suffice.cli.groups import RecordingPath
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.tables import counted
from suffice.evaluation.replay import order_panel
from suffice.evaluation.replay.prices import load_prices
from suffice.recordings import read_recording, write_recording


def order_command(
    path: options.Recorded,
    out: Annotated[RecordingPath, Option("--out", "-o", help="The other questions in this order, a parquet file.")],
    output: Output,
    by: Annotated[
        str, Setting("sampling", "by", help="'accuracy', the most often right first, or 'price', the cheapest first.")
    ] = ("accuracy"),
    metric: Annotated[
        str | None, Option("--metric", help="The metric of accuracy, a column in [0, 1]; default: the recording's own.")
    ] = None,
    tune_share: Annotated[
        float,
        Setting("statistics", "tune-share", help="Share of the questions that choose the order and are left out."),
    ] = 0.3,
    prices: options.Prices = None,
) -> None:
    """Questions used to choose the order are excluded from the results.

    Example: suffice sample order panel.parquet -o ordered.parquet
    """
    panel = order_panel(
        read_recording(path),
        by=options.allowed(by, ("accuracy", "price"), "by"),
        metric=metric,
        tune_share=tune_share,
        prices=None if prices is None else load_prices(prices),
    )
    write_recording(out, panel.recording.table, panel.recording.metadata)
    first, *others = (member.name for member in panel.members)
    sentence = (
        f"{out}: {counted(len(panel.recording.question_ids), 'question')} with {first} first, then {counted(len(others), 'other model')}; "
        f"the best single model on {counted(panel.n_tune, 'tune question')} is {panel.best}"
    )
    outcome = {
        "file": str(out),
        "by": panel.by,
        "metric": panel.metric,
        "best_single": panel.best,
        "n_tune": panel.n_tune,
        "order": [{"model": item.name, "score": item.score, "price": item.price} for item in panel.members],
    }
    then = options.replay_step(out, panel.recording, "best_single")
    screen = Screen(sentences=[sentence], tables=panel.tables(), then=then)
    output.show(outcome, screen)
