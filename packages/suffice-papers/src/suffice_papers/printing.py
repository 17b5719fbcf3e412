"""Options and output of the commands that print a paper's tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli.console import print_text, progress_bar
from suffice.cli.output import Screen
from suffice.cli.parameters import Setting
from suffice.common.display.svg import check_charts_extra
from suffice.common.tables import FORMATS, counted, render
from suffice.errors import DataError
from suffice_papers.page import paper_page
from suffice_papers.paper import Paper

SHAPES = ("table", *FORMATS, "json", "html")

FormatOption = Annotated[str, typer.Option("--format", help=f"One of: {', '.join(SHAPES)}.")]


def _figures_folder(folder: Path | None) -> Path | None:
    """Return the folder of the figures; raise if figures cannot be drawn, before anything is computed."""
    if folder is not None:
        check_charts_extra()
    return folder


FiguresOption = Annotated[
    Path | None,
    Setting("papers", "figures", help="Draw the figures as SVG files in this folder.", callback=_figures_folder),
]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file instead of standard output.")]


def checked_form(form: str, out: Path | None) -> str:
    """Return the format; raise if the format or the output file is invalid."""
    if form not in SHAPES:
        raise typer.BadParameter(f"{form!r}; allowed: {', '.join(SHAPES)}", param_hint="--format")
    if out is not None and form == "table":
        raise typer.BadParameter("the format table is for the terminal only; add --format md", param_hint="--out")
    if out is not None and not out.parent.is_dir():
        raise DataError(f"the folder {str(out.parent)!r} does not exist, so {out.name!r} cannot be written")
    return form


@contextmanager
def stage_bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """Show a progress bar if standard error is a terminal."""
    with progress_bar("reading", quiet=False) as move:
        yield None if move is None else lambda name, done, total: move(done, total, name)


def print_paper(
    paper: Paper, form: str, out: Path | None, *, details: bool, then: str, figures: Path | None = None
) -> None:
    """Print a paper on one screen or in full, or write it in another format to a file or standard output.

    Args:
        paper: The tables.
        form: One of `SHAPES`.
        out: The file to write; None for standard output.
        details: True to print every table instead of one screen.
        then: The command to run next, shown on the screen.
        figures: The folder of the figures; None to draw none.
    """
    if figures is not None and not paper.write_figures(figures):
        raise DataError("there are no points for any figure; --details prints what is missing")
    if form == "table":
        # The screen shows only the notes of its own table, and the number of other tables.
        screen = [paper.summary, *(replace(table, notes=()) for table in paper.parts)]
        tables = paper.parts if details else screen
        pictures = {} if figures is None else {counted(len(paper.figures), "figure"): figures}
        Screen(sentences=[paper.headline], tables=tables, files=pictures, then=then).print(details=details)
        return
    text = _paper_text(paper, form)
    if out is None:
        print_text(text)
    else:
        out.write_text(text, encoding="utf-8")


def _paper_text(paper: Paper, form: str) -> str:
    if form == "html":
        return paper_page(paper)
    if form == "json":
        return json.dumps(paper.to_dict(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    heading = f"# {paper.title}\n\n" if form == "md" else ""
    return heading + render(paper.parts, form)
