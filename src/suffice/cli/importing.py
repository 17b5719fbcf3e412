"""`suffice import`: rounds that somebody else recorded, and what became of their values."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice._version import __version__
from suffice.adapters import ImportedRun, importer, importer_names
from suffice.adapters.base import with_embeddings
from suffice.adapters.summary import ColumnCount, RoundMeans, column_counts, round_means
from suffice.cli import options
from suffice.cli.show import console, errors, number, print_json, table
from suffice.embedding import Embedder
from suffice.errors import DataError, UnsettledError
from suffice.replays.result import jsonable
from suffice.store import read_recording, write_recording

__all__ = ["import_command"]

_FORMATS = importer_names()

Pairs = Annotated[
    list[str] | None, typer.Option("--column", help="For tabular files: OURS=THEIRS, for instance round=step.")
]


def import_command(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(_FORMATS)} ('tabular' is CSV or JSONL).")],
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
    """Turn a run recorded elsewhere into a recording, and say what became of its values."""
    if kind not in _FORMATS:
        raise typer.BadParameter(f"{kind!r} is no known format; there are: {', '.join(_FORMATS)}", param_hint="KIND")
    settings: dict[str, Any] = {
        "columns": _pairs(column, "--column", "OURS=THEIRS"),
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
    run = _read(kind, path, given, used)
    rows = run.rows()
    metadata = {"source": run.source, "notes": run.notes, "depends": dict(run.depends), "suffice": __version__}
    write_recording(out, rows, metadata, run.kinds())
    _show(out, run, column_counts(run, rows), round_means(rows), as_json=as_json)


def _pairs(given: Sequence[str] | None, option: str, form: str) -> dict[str, str] | None:
    pairs = [item.partition("=") for item in given or ()]
    if any(not ours or not theirs for ours, _, theirs in pairs):
        raise typer.BadParameter(f"it is given as {form}", param_hint=option)
    return {ours: theirs for ours, _, theirs in pairs} or None


def _read(kind: str, path: Path, given: dict[str, Any], embedder: Embedder | None) -> ImportedRun:
    """Read the file; on a terminal, ask about what can be read in several ways."""
    read = importer(kind)
    if "embedder" in inspect.signature(read).parameters:
        return read(path, embedder)
    while True:
        try:
            run = read(path, **given)
        except UnsettledError as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            given[error.parameter] = _asked(error)
        else:
            return run if embedder is None else with_embeddings(run, embedder)


def _asked(error: UnsettledError) -> Any:
    """Return what the user chooses."""
    errors.print(error.question, markup=False, soft_wrap=True)
    choices = list(error.choices.items())
    for place, (option, (_, meaning)) in enumerate(choices, start=1):
        errors.print(f"  {place}. {option}: {meaning}", markup=False, soft_wrap=True)
    while not 1 <= (chosen := int(typer.prompt("Choose", type=int, err=True))) <= len(choices):
        pass
    return choices[chosen - 1][1][0]


def _show(
    out: Path, run: ImportedRun, columns: Sequence[ColumnCount], rounds: Sequence[RoundMeans], *, as_json: bool
) -> None:
    recording = read_recording(out)
    n, width = recording.shape
    censored = sum(end == "rule" for end in recording.ends.tolist())
    clusters = len(set(recording.clusters.tolist()))
    if as_json:
        print_json(
            jsonable(
                {
                    "path": str(out),
                    "trajectories": n,
                    "clusters": clusters,
                    "rounds": width,
                    "censored": censored,
                    "columns": [asdict(item) for item in columns],
                    "by_round": [asdict(item) for item in rounds],
                    "notes": run.notes,
                }
            )
        )
        return
    console.print(
        f"{out}: {n} trajectories of {clusters} questions, up to {width} rounds, {censored} censored",
        markup=False,
        soft_wrap=True,
    )
    lost = [
        f"{item.name}: {item.nulled} of {item.nulled + item.defined} values are undefined in the recording: infinite, or in "
        "rounds in which the signal does not exist"
        for item in columns
        if item.nulled
    ]
    for note in [*run.notes, *lost]:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    console.print()
    cells = [
        [item.name, "computed" if item.computed else "", str(item.defined), str(item.nulled), str(item.clipped)]
        for item in columns
    ]
    console.print(table("Columns", ["column", "", "defined", "nulled", "clipped"], cells, left=2))
    console.print()
    means = [
        [str(item.round), str(item.n), str(item.scored), number(100 * item.em, 1), number(100 * item.f1, 1)]
        for item in rounds
    ]
    console.print(
        table("Rounds: means over the trajectories that have them", ["round", "n", "scored", "EM", "F1"], means)
    )
