"""`suffice import`: rounds that somebody else recorded, and what became of their values."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice.adapters import ImportSummary, import_recording, importer, importer_names
from suffice.cli import options
from suffice.cli.console import console, number, print_json, say, table, warn
from suffice.errors import DataError, UnsettledError
from suffice.tables import counted

__all__ = ["import_command"]

Pairs = Annotated[
    list[str] | None, typer.Option("--column", help="For tabular files: OURS=THEIRS, for instance round=step.")
]


def import_command(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(importer_names())} ('tabular' is CSV or JSONL).")],
    path: Annotated[Path, typer.Argument(help="The file that somebody recorded.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The recording, a parquet file.")],
    column: Pairs = None,
    metric_column: Annotated[
        list[str] | None,
        typer.Option("--metric-column", help="For tabular files: NAME=COLUMN, a metric of your own in [0, 1]."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="For tabular files: NAME=COLUMN, a text; policies depend on a 'model'."),
    ] = None,
    golds: Annotated[
        bool | None,
        typer.Option(
            "--golds/--no-golds", help="For tabular files: whether gold answers equal to the last ones are right."
        ),
    ] = None,
    first_round: Annotated[
        int | None,
        typer.Option(
            "--first-round", help="What the lowest round is: 0 (the model alone) or 1 (first draft or evidence)."
        ),
    ] = None,
    ended_early: Annotated[
        str | None,
        typer.Option(
            "--ended-early", help="For tabular files: why some have fewer rounds: rule (censored) or exhausted."
        ),
    ] = None,
    embed: Annotated[bool, typer.Option("--embed", help="Embed the answers, for semantic_distance.")] = False,
    embedder: options.EmbedderName = "minilm",
    as_json: options.AsJson = False,
) -> None:
    """It also reports what became of the values of each column.

    Example: suffice import tabular run.csv -o run.parquet --column round=step
    """
    if kind not in importer_names():
        known = ", ".join(importer_names())
        raise typer.BadParameter(f"{kind!r} is not a known format; there are: {known}", param_hint="KIND")
    settings: dict[str, Any] = {
        "columns": _pairs(column, "--column", "OURS=THEIRS", may_be_empty=True),
        "metrics": _pairs(metric_column, "--metric-column", "NAME=COLUMN"),
        "labels": _pairs(label, "--label", "NAME=COLUMN"),
        "golds": golds,
        "first_round": first_round,
        "ended_early": ended_early,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    takes = inspect.signature(importer(kind)).parameters
    wrong = [name for name in given if name not in takes]
    if wrong:
        raise typer.BadParameter(
            f"tabular files take {wrong[0].replace('_', '-')}, {kind} files do not", param_hint="KIND"
        )
    used = options.build_embedder(embedder) if embed or "embedder" in takes else None
    if embed and used is None:
        raise DataError("--embed embeds the answers, and --embedder none embeds nothing: leave one of them out")
    interactive = sys.stdin.isatty() and sys.stderr.isatty()
    summary = import_recording(path, kind=kind, out=out, embedder=used, settle=_asked if interactive else None, **given)
    if as_json:
        print_json(summary.to_dict())
    else:
        _show(summary)


def _pairs(given: Sequence[str] | None, option: str, form: str, *, may_be_empty: bool = False) -> dict[str, str] | None:
    pairs = [item.partition("=") for item in given or ()]
    if any(not ours or not (theirs or (may_be_empty and sign)) for ours, sign, theirs in pairs):
        raise typer.BadParameter(f"it is given as {form}", param_hint=option)
    return {ours: theirs for ours, _, theirs in pairs} or None


def _asked(error: UnsettledError) -> Any:
    """Return what the user chooses."""
    warn(error.question)
    choices = list(error.choices.items())
    for place, (option, (_, meaning)) in enumerate(choices, start=1):
        warn(f"  {place}. {option}: {meaning}")
    while not 1 <= (chosen := int(typer.prompt("Choose", type=int, err=True))) <= len(choices):
        pass
    return choices[chosen - 1][1][0]


def _show(summary: ImportSummary) -> None:
    say(
        f"{summary.path}: {counted(summary.trajectories, 'trajectory', 'trajectories')} of "
        f"{counted(summary.clusters, 'question')}, up to {counted(summary.rounds, 'round')}, {summary.censored} censored"
    )
    lost = [
        f"{item.name}: {item.nulled} of {item.nulled + item.defined} values are undefined in the recording: infinite, or in "
        "rounds in which the signal does not exist"
        for item in summary.columns
        if item.nulled
    ]
    for note in [*summary.notes, *lost]:
        say(f"note: {note}")
    console.print()
    cells = [
        [item.name, "computed" if item.computed else "", str(item.defined), str(item.nulled), str(item.clipped)]
        for item in summary.columns
    ]
    console.print(table("Columns", ["column", "", "defined", "nulled", "clipped"], cells, left=2))
    console.print()
    means = [
        [str(item.round), str(item.n), str(item.scored), number(100 * item.em, 1), number(100 * item.f1, 1)]
        for item in summary.by_round
    ]
    console.print(
        table("Rounds: means over the trajectories that have them", ["round", "n", "scored", "EM", "F1"], means)
    )
