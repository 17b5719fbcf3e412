"""Printing of a paper's tables: format, progress bar and output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.progress import Progress

from suffice.cli.console import errors, print_table, print_text
from suffice.errors import DataError
from suffice.papers.tasr.tables import Paper
from suffice.tables import FORMATS, render

__all__ = ["SHAPES", "checked_form", "print_paper", "stage_bar"]

SHAPES = ("table", *FORMATS, "json")


def checked_form(form: str, out: Path | None) -> str:
    """Return the format, or raise if it or the output file is invalid."""
    if form not in SHAPES:
        raise typer.BadParameter(f"{form!r}; allowed: {', '.join(SHAPES)}", param_hint="--format")
    if out is not None and form == "table":
        raise typer.BadParameter("the format table is for the terminal only; add --format md", param_hint="--out")
    if out is not None and not out.parent.is_dir():
        raise DataError(f"the folder {str(out.parent)!r} does not exist, so {out.name!r} cannot be written")
    return form


@contextmanager
def stage_bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """Show a progress bar on standard error if it is a terminal."""
    if not errors.is_terminal:
        yield None
        return
    with Progress(console=errors, transient=True) as progress:
        task = progress.add_task("reading")

        def tell(name: str, done: int, total: int) -> None:
            progress.update(task, description=name, completed=done, total=total)

        yield tell


def print_paper(paper: Paper, form: str, out: Path | None, title: str) -> None:
    """Print tables on the terminal, or write them in another format to a file or standard output."""
    if form == "table":
        for table in paper.tables:
            print_table(table)
        return
    text = _text(paper, form, title)
    if out is None:
        print_text(text)
    else:
        out.write_text(text, encoding="utf-8")


def _text(paper: Paper, form: str, title: str) -> str:
    if form == "json":
        return json.dumps(paper.to_dict(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    heading = f"# {title}\n\n" if form == "md" else ""
    return heading + render(paper.tables, form)
