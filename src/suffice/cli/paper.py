"""`suffice paper`: the tables of a paper from recordings, beside the published ones."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from suffice.cli import options
from suffice.cli.bundled import record_bundled
from suffice.cli.show import errors, print_table
from suffice.errors import DataError
from suffice.report.paper.cells import Cell, read_cells
from suffice.report.paper.semantic import TITLE, paper_semantic
from suffice.report.paper.tasr import Paper, paper_tasr
from suffice.tables import FORMATS, render

__all__ = ["app", "semantic_command", "tasr_command"]

app = typer.Typer(no_args_is_help=True, help="The tables of a paper from recordings, beside the published figures.")

_OWN = {"hotpotqa": "HotpotQA distractor", "2wiki": "2WikiMultiHopQA distractor"}
_DEFAULTS = {"--cells": None, "--format": "table", "--resamples": 1000, "--seed": 42, "--level": 0.95}
_SHAPES = ("table", *FORMATS, "json")


@app.callback()
def papers() -> None:
    """Name the paper: `suffice paper tasr`, `suffice paper semantic`."""


@app.command("tasr")
def tasr_command(
    cells: Annotated[
        Path | None,
        typer.Option("--cells", help="A list of cells (TOML); default: the bundled questions with the span reader."),
    ] = None,
    form: Annotated[str, typer.Option("--format", help=f"One of: {', '.join(_SHAPES)}.")] = "table",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write there instead of standard output.")] = None,
    folder: Annotated[
        Path, typer.Option("--recordings", help="Without --cells: where the recordings are, or go.")
    ] = Path("suffice-demo"),
    resamples: Annotated[int, typer.Option("--resamples", min=1, help="Bootstrap draws.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="Of the draws.")] = 42,
    level: Annotated[float, typer.Option("--level", min=0.5, max=0.9999, help="Coverage of intervals.")] = 0.95,
    as_json: options.AsJson = False,
) -> None:
    """Make Tables 1-6 and the data of figures 2-5 of TASR, beside the published figures."""
    form = _checked("json" if as_json else form, out)
    listed = own_cells(folder, quiet=as_json) if cells is None else read_cells(cells)
    given = {"--cells": cells, "--format": form, "--resamples": resamples, "--seed": seed, "--level": level}
    changed = {name: value for name, value in given.items() if value != _DEFAULTS.get(name)}
    words = ["suffice", "paper", "tasr", *(str(word) for pair in changed.items() for word in pair)]
    with _bar() as tell:
        paper = paper_tasr(
            listed, n_resamples=resamples, seed=seed, level=level, command=shlex.join(words), on_progress=tell
        )
    _print(paper, form, out, "The tables of TASR")
    for name, why in paper.not_made.items():
        errors.print(f"not made: {name}: {why}", markup=False, soft_wrap=True)


@app.command("semantic")
def semantic_command(
    form: Annotated[str, typer.Option("--format", help=f"One of: {', '.join(_SHAPES)}.")] = "table",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write there instead of standard output.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Recompute the per-policy figures of Semantic Early-Stopping from what it published; nothing is run."""
    form = _checked("json" if as_json else form, out)
    _print(paper_semantic(), form, out, TITLE)


def _checked(form: str, out: Path | None) -> str:
    """Return the format, or say what is wrong with it or with the file."""
    if form not in _SHAPES:
        raise typer.BadParameter(f"{form!r}; allowed: {', '.join(_SHAPES)}", param_hint="--format")
    if out is not None and form == "table":
        raise typer.BadParameter("tables for the terminal go to the terminal; add --format md", param_hint="--out")
    if out is not None and not out.parent.is_dir():
        raise DataError(f"there is no folder {str(out.parent)!r} to write {out.name!r} to")
    return form


def own_cells(folder: Path, *, quiet: bool = True) -> list[Cell]:
    """Return the bundled questions with the span reader as two cells, recording them first where that is not done."""
    for dataset in _OWN:
        for split in ("tune", "eval"):
            record_bundled(dataset, split, folder, quiet=quiet)
    return [
        Cell(
            name=f"{dataset}_span",
            model="span-reader",
            retriever="BM25 over the question's paragraphs",
            corpus=corpus,
            setting="distractor",
            tune=folder / f"{dataset}_tune.parquet",
            eval=folder / f"{dataset}_eval.parquet",
        )
        for dataset, corpus in _OWN.items()
    ]


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """Show what is being made on standard error, if it is a terminal."""
    if not errors.is_terminal:
        yield None
        return
    with Progress(console=errors, transient=True) as progress:
        task = progress.add_task("reading")

        def tell(name: str, done: int, total: int) -> None:
            progress.update(task, description=name, completed=done, total=total)

        yield tell


def _print(paper: Paper, form: str, out: Path | None, title: str) -> None:
    if form == "table":
        for table in paper.tables:
            print_table(table)
        return
    text = _text(paper, form, title)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")


def _text(paper: Paper, form: str, title: str) -> str:
    if form == "json":
        return json.dumps(paper.to_dict(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    heading = f"# {title}\n\n" if form == "md" else ""
    return heading + render(paper.tables, form)
