"""`suffice import`: rounds that somebody else recorded, and what became of their values."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice.adapters import ImportSummary, import_recording, importer, importer_names
from suffice.cli import models
from suffice.cli.console import warn
from suffice.cli.output import Output, Screen
from suffice.errors import DataError, UnsettledError
from suffice.tables import Column, Table, counted

__all__ = ["import_command"]

Pairs = Annotated[
    list[str] | None, typer.Option("--column", help="For tabular files: OURS=THEIRS, for instance round=step.")
]


def import_command(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(importer_names())} ('tabular' is CSV or JSONL).")],
    path: Annotated[Path, typer.Argument(help="The file that somebody recorded.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The recording, a parquet file.")],
    output: Output,
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
    embedder: models.EmbedderName = "minilm",
) -> None:
    """It also reports what became of the values of each column.

    Example: suffice import tabular run.csv -o run.parquet --column round=step
    """
    if kind not in importer_names():
        known = ", ".join(importer_names())
        raise typer.BadParameter(f"{kind!r} is not a known format; there are: {known}", param_hint="KIND")
    settings: dict[str, Any] = {
        "columns": _column_pairs(column, "--column", "OURS=THEIRS", may_be_empty=True),
        "metrics": _column_pairs(metric_column, "--metric-column", "NAME=COLUMN"),
        "labels": _column_pairs(label, "--label", "NAME=COLUMN"),
        "golds": golds,
        "first_round": first_round,
        "ended_early": ended_early,
    }
    arguments = {name: value for name, value in settings.items() if value is not None}
    takes = inspect.signature(importer(kind)).parameters
    wrong = [name for name in arguments if name not in takes]
    if wrong:
        raise typer.BadParameter(
            f"tabular files take {wrong[0].replace('_', '-')}, {kind} files do not", param_hint="KIND"
        )
    used = models.build_embedder(embedder) if embed or "embedder" in takes else None
    if embed and used is None:
        raise DataError("--embed embeds the answers, and --embedder none embeds nothing: leave one of them out")
    interactive = sys.stdin.isatty() and sys.stderr.isatty()
    summary = import_recording(
        path, kind=kind, out=out, embedder=used, settle=_choose if interactive else None, **arguments
    )
    output.show(summary.to_dict(), _import_screen(summary))


def _column_pairs(
    given: Sequence[str] | None, option: str, form: str, *, may_be_empty: bool = False
) -> dict[str, str] | None:
    pairs = [item.partition("=") for item in given or ()]
    if any(not ours or not (theirs or (may_be_empty and sign)) for ours, sign, theirs in pairs):
        raise typer.BadParameter(f"it is given as {form}", param_hint=option)
    return {ours: theirs for ours, _, theirs in pairs} or None


def _choose(error: UnsettledError) -> Any:
    """Return what the user chooses."""
    warn(error.question)
    choices = list(error.choices.items())
    for place, (option, (_, meaning)) in enumerate(choices, start=1):
        warn(f"  {place}. {option}: {meaning}")
    while not 1 <= (chosen := int(typer.prompt("Choose", type=int, err=True))) <= len(choices):
        pass
    return choices[chosen - 1][1][0]


def _import_screen(summary: ImportSummary) -> Screen:
    columns = Table(
        title="Columns",
        columns=(Column("column"), Column(""), Column("defined", "d"), Column("nulled", "d"), Column("clipped", "d")),
        rows=tuple(
            (item.name, "computed" if item.computed else "", item.defined, item.nulled, item.clipped)
            for item in summary.columns
        ),
    )
    rounds = Table(
        title="Rounds: means over the trajectories that have them",
        columns=(
            *(Column(name, "d") for name in ("round", "n", "scored")),
            Column("EM", ".1f", scale=100),
            Column("F1", ".1f", scale=100),
        ),
        rows=tuple((item.round, item.n, item.scored, item.em, item.f1) for item in summary.by_round),
    )
    nulled = [
        f"{item.name}: {item.nulled} of {item.nulled + item.defined} values are undefined in the recording: infinite, or in "
        "rounds in which the signal does not exist"
        for item in summary.columns
        if item.nulled
    ]
    sentence = (
        f"{summary.path}: {counted(summary.trajectories, 'trajectory', 'trajectories')} of "
        f"{counted(summary.clusters, 'question')}, up to {counted(summary.rounds, 'round')}, {summary.censored} censored"
    )
    return Screen(
        sentences=[sentence],
        tables=[columns, rounds],
        notes=[*summary.notes, *nulled],
        then=f"suffice replay {summary.path}",
    )
