"""`suffice search`: evaluate every rule of a space on recorded rounds, without a call."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from suffice.cli import options
from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import progress_bar
from suffice.cli.groups import RecordingPath, command_line
from suffice.cli.options import Where, chosen_loop, chosen_questions
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.files import quoted
from suffice.errors import DataError
from suffice.evaluation.search import PRESETS, Chosen, SearchResult, read_space, search, write_rules
from suffice.recordings import read_recording


@dataclass(frozen=True, kw_only=True)
class _Resampling(options.ResamplingOptions):
    """Options for intervals by resampling."""

    resamples: Annotated[int, Setting("statistics", "resamples", min=0, help="Bootstrap draws; 0 = no intervals.")] = (
        1000
    )


@dataclass(frozen=True, kw_only=True)
class _Tried:
    """Options for the rules to try."""

    panel: ClassVar[str] = "The rules to try"

    space: Annotated[
        str, typer.Option("--space", help=f"{', '.join(PRESETS)}, available, or a TOML file that describes one.")
    ] = "available"
    max_rounds: Annotated[
        list[int] | None,
        typer.Option("--max-rounds", min=1, help="Try every rule with this highest round; may be repeated."),
    ] = None
    patience: Annotated[
        list[int] | None,
        Setting("search", "patience", min=1, help="Try every rule with this many rounds in a row; may be repeated."),
    ] = None
    target: Annotated[
        str | None, typer.Option("--target", help="The outcome that calibrators predict; default: em.")
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the given options as arguments of the search."""
        return {
            "space": read_space(self.space) if self.space.endswith(".toml") else self.space,
            "max_rounds": self.max_rounds or None,
            "patience": self.patience or None,
            "target": self.target,
        }


def search_command(
    context: typer.Context,
    path: Annotated[
        RecordingPath, typer.Argument(metavar="RECORDING", help="Recorded rounds of the questions to search.")
    ],
    tried: _Tried,
    tune: options.TuneQuestions,
    resampling: _Resampling,
    cluster: ClusterOptions,
    output: Output,
    where: Where = None,
    budget: Annotated[float, typer.Option("--budget", min=0, help="The most mean calls of the selected rule.")] = 3.0,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", help="f1 (default; em for multiple choice), em, contains, agreement, or a column in [0, 1]."
        ),
    ] = None,
    baseline: Annotated[str, typer.Option("--baseline", help="A rule's text or 'full'.")] = "fixed_k(3)",
    orders: Annotated[
        int | None,
        Setting("statistics", "orders", min=1, help="For independent samples: orders of each question; default: 10."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            help="Read the recording part by part in this many processes, each with one part in memory.",
        ),
    ] = None,
    folds: Annotated[int, Setting("search", "folds", min=2, help="Folds of the cross-fitted estimate.")] = 5,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="All rules as parquet, one row for those that stop alike.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Write the rule selected on tune as a policy.")
    ] = None,
) -> None:
    """Thresholds and the choice come from tune questions, figures from the others.

    Example: suffice search run.parquet --budget 3 --policy policy.json
    """
    jobs = context.with_resource(cluster.parts(jobs))  # kept open: intervals read the parts when printed
    with progress_bar("parts", quiet=output.as_json) as progress:
        result = search(
            chosen_questions(path, where) if jobs else chosen_loop(read_recording(path), where),
            **tried.given(),
            **(tune.given_paths() if jobs else tune.given()),
            metric=metric,
            budget=budget,
            baseline=baseline,
            resampling=resampling.value,
            folds=folds,
            orders=orders,
            jobs=jobs or 1,
            progress=progress,
        )
    if out is not None:
        with progress_bar("rows", quiet=output.as_json) as progress:
            write_rules(result, out, progress)
    if policy is not None:
        _chosen(result, budget).policy.save(policy)
    sentences = [] if result.chosen is None else [f"selected on tune: {result.chosen.headline}"]
    then = "" if result.chosen is None else f"{command_line(context, 'details', folders=True)} --policy policy.json"
    if policy is not None:
        then = f"suffice certify FRESH.parquet --max-loss 0.02 --policy {quoted(policy)}{options.metric_words(metric)}"
    screen = Screen(sentences=sentences, tables=result.tables(), files={"rules": out, "policy": policy}, then=then)
    output.show(result.to_dict(), screen)


def _chosen(result: SearchResult, budget: float) -> Chosen:
    """Return the rule that was selected on tune questions; raise if no rule was selected."""
    if result.chosen is None:
        raise DataError(
            f"no rule needs at most {budget:g} mean calls on tune, so there is no policy to write: raise --budget"
        )
    return result.chosen
