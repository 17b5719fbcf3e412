"""`suffice paper protocol`: every policy of Semantic Early-Stopping on the same recorded drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from suffice.cli import options
from suffice.cli.console import status
from suffice.cli.groups import RecordingPath, command_line
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting, from_file
from suffice.common.display import Chart
from suffice.common.files import quoted, write_file
from suffice.common.tables import FORMATS, render
from suffice.evaluation.replay import LEDGERS
from suffice.policy.rules.named import BGE_PATIENCE
from suffice.recordings import Recording, read_recording
from suffice.recordings.bundled import BUNDLED_RECORDINGS, bundled_recording
from suffice_papers.printing import FiguresOption
from suffice_papers.semantic import (
    MARGINS,
    SemanticProtocol,
    Tuned,
    given,
    published,
    semantic_protocol,
    split_drafts,
    tune,
)
from suffice_papers.semantic.data import marked, metric_of
from suffice_papers.semantic.page import protocol_page, protocol_part

_PRESETS = ("bge",)
_PAGES = ("html", "htm")


@dataclass(frozen=True, kw_only=True)
class _Selection:
    """Options for the parameters of convergence: selected on other questions, given, or as published."""

    panel: ClassVar[str] = "How eps and patience are chosen"

    dev: Annotated[
        RecordingPath | None,
        typer.Option("--dev", help="A recording of other questions, for selecting eps and patience."),
    ] = None
    dev_share: Annotated[
        float, Setting("papers", "dev-share", help="Without --dev: the share of questions to select on, by id hash.")
    ] = 0.25
    eps: Annotated[
        float | None,
        Setting("papers", "eps", help="A threshold of the distance, fixed beforehand instead of selected."),
    ] = None
    patience: Annotated[
        int | None, Setting("papers", "patience", min=1, help="With eps: number of rounds in a row; default 2.")
    ] = None
    preset: Annotated[
        str | None, Setting("papers", "preset", help="'bge': the published 0.06 and 2, for bge-small-en-v1.5 only.")
    ] = None
    tolerance: Annotated[
        float, Setting("papers", "tolerance", help="Largest accepted loss of mean quality on dev.")
    ] = 0.02

    def check(self) -> None:
        """Raise if options contradict each other."""
        options.allowed(self.preset or "bge", _PRESETS, "preset")
        if sum(choice is not None for choice in (self.dev, self.eps, self.preset)) > 1:
            raise typer.BadParameter(
                "choose one: --dev selects, eps fixes, preset takes the published", param_hint="eps"
            )
        if self.patience is not None and self.eps is None and not from_file("patience"):
            raise typer.BadParameter("it goes with eps; otherwise it is selected", param_hint="patience")

    def typed(self) -> _Selection:
        """Return the options; if the command line sets a parameter, all parameters from `suffice.toml` are ignored."""
        eps, preset = None if from_file("eps") else self.eps, None if from_file("preset") else self.preset
        is_typed = any(choice is not None for choice in (self.dev, eps, preset))
        return replace(self, eps=eps, preset=preset) if is_typed else self

    def tuned(self, recording: Recording, metric: str | None) -> tuple[Recording, Tuned]:
        """Return the test questions, and the parameters: given, published, or selected on dev questions."""
        if self.eps is not None:
            return recording, given(self.eps, self.patience or BGE_PATIENCE)
        if self.preset is not None:
            return recording, published(recording)
        dev = None if self.dev is None else _named_recording(self.dev)
        test, other = split_drafts(recording, self.dev_share) if dev is None else (recording, dev)
        return test, tune(other, metric_of(recording, metric), tolerance=self.tolerance)


def protocol_command(
    context: typer.Context,
    path: Annotated[
        RecordingPath,
        typer.Argument(
            metavar="RECORDING",
            help=f"Recorded drafts with distances, at full width; or bundled: {', '.join(BUNDLED_RECORDINGS)}.",
        ),
    ],
    selection: _Selection,
    resampling: options.ResamplingOptions,
    output: Output,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="The quality: a column in [0, 1], or agreement; default: information_score."),
    ] = None,
    margin: Annotated[
        list[float] | None,
        Setting("statistics", "margin", help="Margin of non-inferiority and equivalence; may be repeated."),
    ] = None,
    ledger: Annotated[
        str,
        Setting(
            "statistics",
            "ledger",
            help="'live' charges judges if the rule reads them; 'published' as Semantic Early-Stopping does.",
        ),
    ] = "live",
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Write the judge-free policy to this JSON file, to deploy it.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help=f"Write a page (.html), or tables (.{', .'.join(FORMATS)}), there."),
    ] = None,
    figures: FiguresOption = None,
) -> None:
    """Compare every policy of Semantic Early-Stopping.

    All of them run on identical drafts: fixed_k first, then the cascade and its parts. Where a judge gave the metric, its
    rise is the cascade's third member. Table 1 is printed, with --details all tables.

    Example: suffice paper protocol self_refine_gpt4 --metric target_sentiment
    """
    options.allowed(ledger, LEDGERS, "ledger")
    selection = selection.typed()
    selection.check()
    _check_ending(out)
    with status("replaying"):
        recording = _named_recording(path)
        recording = recording if metric is None else marked(recording, metric)
        test, tuned = selection.tuned(recording, metric)
        protocol = semantic_protocol(
            test,
            tuned,
            metric=metric,
            margins=tuple(margin or MARGINS),
            resampling=resampling.value,
            ledger=ledger,
            command=command_line(context, "policy", "out", "figures", "details", "as_json"),
        )
        _write_files(protocol, path.stem, policy=policy, figures=figures, out=out)
    files = {"policy": policy, "page or tables": out, "figures": figures}
    _show(protocol, output, files, path, f"{command_line(context, 'details', folders=True)} -o page.html")


def _show(
    protocol: SemanticProtocol, output: Output, files: Mapping[str, Path | None], path: Path, page_command: str
) -> None:
    """Print the protocol's tables, or its JSON, with the files that were written and the next command."""
    policy, out = files["policy"], files["page or tables"]
    then = page_command
    if policy is not None:
        then = f"suffice replay {quoted(path)} --policy {quoted(policy)}"
    elif out is not None:
        then = f"suffice replay {quoted(path)} --rule semantic_bge"
    tables = protocol.tables()
    if not output.details:
        tables = [protocol.summary(), *(replace(table, notes=()) for table in tables[1:])]
    screen = Screen(
        sentences=[*protocol.headlines(), protocol.tuned.sentence()],
        tables=tables,
        notes=protocol.notes,
        files=files,
        then=then,
    )
    output.show({"out": out, "policy": policy, "figures": files["figures"], **protocol.to_dict()}, screen)


def _write_files(
    protocol: SemanticProtocol, name: str, *, policy: Path | None, figures: Path | None, out: Path | None
) -> None:
    if policy is not None:
        protocol.replayed.policies["judge_free"].save(policy)
    if figures is not None:
        for chart, (spec, _) in protocol_part(protocol).charts.items():
            Chart(spec).save(figures / f"{chart}.svg")
    if out is not None:
        write_file(out, _page_or_tables(protocol, out, name))


def _named_recording(path: Path) -> Recording:
    """Read a recording by its path, or a bundled one by its name."""
    name = str(path)
    return bundled_recording(name) if name in BUNDLED_RECORDINGS and not path.exists() else read_recording(path)


def _page_or_tables(protocol: SemanticProtocol, out: Path, name: str) -> str:
    form = out.suffix.removeprefix(".")
    if form in _PAGES:
        return protocol_page(protocol, name)
    tables = render(protocol.tables(), form)
    if form != "md":
        return tables
    sentences = (*protocol.headlines(), protocol.tuned.sentence())
    return f"# Semantic early stopping: {name}\n\n" + "".join(f"{sentence}\n\n" for sentence in sentences) + tables


def _check_ending(out: Path | None) -> None:
    if out is not None and out.suffix.removeprefix(".") not in (*_PAGES, *FORMATS):
        raise typer.BadParameter(
            f"{out.name!r}; allowed endings: .{', .'.join((*_PAGES, *FORMATS))}", param_hint="--out"
        )
