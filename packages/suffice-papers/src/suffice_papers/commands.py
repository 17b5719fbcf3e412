"""`suffice paper tasr` and `suffice paper semantic`: the tables of a paper, compared with the published figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suffice.cli import options
from suffice.cli.console import warn
from suffice.cli.groups import command_line
from suffice.cli.output import Output
from suffice.cli.parameters import Setting
from suffice_papers.printing import FiguresOption, FormatOption, OutOption, checked_form, print_paper, stage_bar
from suffice_papers.semantic.semantic_tables import paper_semantic
from suffice_papers.tasr.cells import TasrCell, read_cells
from suffice_papers.tasr.tasr_tables import paper_tasr
from suffice_reader.demo.bundled import record_bundled

_CORPORA = {"hotpotqa": "HotpotQA distractor", "2wiki": "2WikiMultiHopQA distractor"}


def tasr_command(
    context: typer.Context,
    resampling: options.ResamplingOptions,
    output: Output,
    cells: Annotated[
        Path | None,
        typer.Option("--cells", help="A list of cells (TOML); default: the bundled questions with the span reader."),
    ] = None,
    form: FormatOption = "table",
    out: OutOption = None,
    figures: FiguresOption = None,
    folder: Annotated[
        Path, Setting("papers", "recordings", help="Without --cells: the folder of the recordings, made if missing.")
    ] = Path("suffice-demo"),
) -> None:
    """Compute Tables 1-6 and the figures of TASR.

    Table 1 is printed, with --details all of them, beside the published figures.

    Example: suffice paper tasr --cells cells.toml --format md -o tasr.md
    """
    form = checked_form("json" if output.as_json else form, out)
    listed = bundled_cells(folder, quiet=output.as_json) if cells is None else read_cells(cells)
    with stage_bar() as report:
        paper = paper_tasr(
            listed,
            resampling=resampling.value,
            command=command_line(context, "folder", "out", "figures", "details", "as_json"),
            on_progress=report,
        )
    then = "suffice paper tasr --cells cells.toml"
    print_paper(paper, form, out, details=output.details, then=then, figures=figures)
    for name, why in paper.not_made.items():
        warn(f"not made: {name}: {why}")


def semantic_command(
    output: Output,
    form: FormatOption = "table",
    out: OutOption = None,
    figures: FiguresOption = None,
) -> None:
    """Recompute the published figures of Semantic Early-Stopping.

    All figures follow from the published ones; no model is run.

    Example: suffice paper semantic --details
    """
    form = checked_form("json" if output.as_json else form, out)
    print_paper(
        paper_semantic(),
        form,
        out,
        details=output.details,
        then="suffice paper protocol self_refine_gpt4 --metric target_sentiment",
        figures=figures,
    )


def bundled_cells(folder: Path, *, quiet: bool = True) -> list[TasrCell]:
    """Return two cells that answer bundled questions with the span reader; record them first if necessary."""
    for dataset in _CORPORA:
        for split in ("tune", "eval"):
            record_bundled(dataset, split, folder, quiet=quiet)
    return [
        TasrCell(
            name=f"{dataset}_span",
            model="span-reader",
            retriever="BM25 over the question's paragraphs",
            corpus=corpus,
            setting="distractor",
            tune=folder / f"{dataset}_tune.parquet",
            eval=folder / f"{dataset}_eval.parquet",
        )
        for dataset, corpus in _CORPORA.items()
    ]
