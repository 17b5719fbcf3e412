"""`suffice search`: every rule of a space on recorded rounds, without a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from suffice.cli import options
from suffice.cli.console import errors, present, print_json, say
from suffice.errors import DataError
from suffice.searches import PRESETS, SearchResult, read_space, search, write_rules
from suffice.searches.explore import SearchProgress
from suffice.store import read_recording

__all__ = ["search_command"]


@dataclass(frozen=True, kw_only=True)
class _Resampling(options.ResamplingOptions):
    """How intervals are drawn, if they are."""

    resamples: Annotated[int, typer.Option("--resamples", min=0, help="Bootstrap draws; 0 = no intervals.")] = 1000


def search_command(
    path: Annotated[Path, typer.Argument(metavar="RECORDING", help="Recorded rounds of the questions to search.")],
    resampling: _Resampling,
    space: Annotated[
        str, typer.Option("--space", help=f"{', '.join(PRESETS)}, available, or a TOML file that describes one.")
    ] = "available",
    tune: Annotated[
        Path | None,
        typer.Option("--tune", help="A recording of tune questions; without it the questions are split by id hash."),
    ] = None,
    tune_share: Annotated[
        float, typer.Option("--tune-share", help="Share of tune questions in that split, between 0 and 1.")
    ] = 0.5,
    budget: Annotated[float, typer.Option("--budget", min=0, help="Most mean calls of what is selected.")] = 3.0,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", help="f1 (default; em for multiple choice), em, contains, agreement, or a column in [0, 1]."
        ),
    ] = None,
    baseline: Annotated[str, typer.Option("--baseline", help="A rule's text or 'full'.")] = "fixed_k(3)",
    max_rounds: Annotated[
        list[int] | None,
        typer.Option("--max-rounds", min=1, help="Try every rule with this highest round; may be repeated."),
    ] = None,
    patience: Annotated[
        list[int] | None,
        typer.Option("--patience", min=1, help="Try every rule with this many rounds in a row; may be repeated."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="What calibrators are fitted to on tune; default: em.")
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Of the cross-fitted estimate.")] = 5,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="All rules as parquet, one row for those that stop alike.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Where to write the rule that tune selects, as a policy.")
    ] = None,
    details: options.Details = False,
    as_json: options.AsJson = False,
) -> None:
    """Thresholds and the choice come from tune questions, figures from the others.

    Example: suffice search run.parquet --budget 3 --policy policy.json
    """
    if not 0 < tune_share < 1:
        raise typer.BadParameter(f"{tune_share!r}; allowed: between 0 and 1", param_hint="--tune-share")
    with _progress(quiet=as_json) as progress:
        result = search(
            read_recording(path),
            read_space(space) if space.endswith(".toml") else space,
            patience=patience or None,
            max_rounds=max_rounds or None,
            tune=None if tune is None else read_recording(tune),
            tune_share=tune_share,
            metric=metric,
            budget=budget,
            baseline=baseline,
            target=target,
            resampling=resampling.value,
            folds=folds,
            progress=progress("rules"),
        )
        if out is not None:
            write_rules(result, out, progress("rows"))
    if policy is not None:
        if result.chosen is None:
            raise DataError(
                f"no rule needs at most {budget:g} mean calls on tune, so there is no policy to write: raise --budget"
            )
        result.chosen.policy.save(policy)
    if as_json:
        print_json(result.to_dict())
    else:
        _show(result, out, policy, details=details)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str], SearchProgress | None]]:
    """Show a bar for each step on standard error, if it is a terminal; yields what starts one."""
    if quiet or not errors.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as bars:

        def started(what: str) -> SearchProgress:
            task = bars.add_task(what)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield started


def _show(result: SearchResult, out: Path | None, policy: Path | None, *, details: bool) -> None:
    sentences = [] if result.chosen is None else [f"selected on tune: {result.chosen.headline}"]
    present(sentences, result.tables(), details=details)
    for what, path in (("rules", out), ("policy", policy)):
        if path is not None:
            say(f"{what} written to {path}")
