"""Cells of Semantic Early-Stopping: they apply the protocol to recorded drafts, with a threshold from tune questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from suffice.common.tables import Table
from suffice.errors import SufficeError
from suffice.recordings import read_recording
from suffice_papers.experiments.plan import Experiment
from suffice_papers.experiments.stages import CellFolder, write_result
from suffice_papers.experiments.variance import RunValues, Shown, runs_tables
from suffice_papers.paper import Paper, PaperFigure, not_made_table, origin_table
from suffice_papers.semantic import SemanticProtocol, semantic_protocol, tune
from suffice_papers.semantic.page import protocol_part
from suffice_papers.semantic.protocol_tables import summary_table

_POLICY = "judge_free"
"""The policy whose runs are compared: it asks no judge."""


def _protocol(folder: CellFolder, command: str = "") -> SemanticProtocol:
    """Return the protocol on a cell's eval questions."""
    settings, experiment = folder.experiment.semantic, folder.experiment
    tuned = tune(read_recording(folder.recording("tune")), settings.metric, tolerance=settings.tolerance)
    return semantic_protocol(
        read_recording(folder.recording("eval")),
        tuned,
        metric=settings.metric,
        margins=settings.margins,
        resampling=experiment.resampling,
        command=command,
    )


def semantic_paper(
    folders: Sequence[CellFolder],
    experiment: Experiment,
    *,
    command: str,
    on_table: Callable[[str, int, int], None] | None,
) -> Paper:
    """Return the protocol's tables of the first run of each configuration, and tables of means over all runs.

    Raises:
        SufficeError: The protocol is possible in no cell; the error is that of the first cell.
    """
    runs: dict[str, list[SemanticProtocol]] = {}
    not_made: dict[str, str] = {}
    errors: list[SufficeError] = []
    for number, folder in enumerate(folders):
        if on_table is not None:
            on_table(folder.cell.name, number, len(folders))
        one = write_result(folder.file("protocol.json"), partial(_protocol, folder, command))
        if isinstance(one, SufficeError):
            not_made[folder.cell.name] = str(one)
            errors.append(one)
        else:
            runs.setdefault(folder.cell.configuration, []).append(one)
    if not runs:
        raise errors[0]
    first = {name: protocols[0] for name, protocols in runs.items()}
    summary = summary_table([(name, one.compared, one.result) for name, one in first.items()])
    parts = [table for name, one in first.items() for table in _titled(one.tables()[:-1], name, several=len(first) > 1)]
    facts = (("command", command or "run_experiment"), ("draws", experiment.resampling.text))
    lead = next(iter(first.values()))
    return Paper(
        title=f"Semantic early stopping: {experiment.path.stem}",
        headline=f"{next(iter(first))}: {lead.headlines()[0]}",
        summary=summary,
        parts=(
            origin_table(facts, tuple(dict.fromkeys(note for one in first.values() for note in one.notes))),
            summary,
            *_protocol_runs(runs, experiment),
            *parts,
            *not_made_table(not_made),
        ),
        not_made=not_made,
        figures=tuple(figure for name, one in first.items() for figure in _protocol_figures(one, name)),
    )


def _protocol_figures(protocol: SemanticProtocol, name: str) -> list[PaperFigure]:
    charts = protocol_part(protocol).charts
    return [
        PaperFigure(name=f"{name.replace('/', '-')}-{key}", spec=spec, caption=f"{name}. {caption}")
        for key, (spec, caption) in charts.items()
    ]


def _titled(tables: Sequence[Table], name: str, *, several: bool) -> list[Table]:
    return [replace(table, title=f"{name}. {table.title}") for table in tables] if several else list(tables)


def _protocol_runs(runs: dict[str, list[SemanticProtocol]], experiment: Experiment) -> list[Table]:
    """Tabulate means over runs and questions for the judge-free policy.

    They are its quality, its difference to the full width, and its rounds.
    """
    values = {name: [_run_values(protocol) for protocol in protocols] for name, protocols in runs.items()}
    metric = experiment.semantic.metric
    shown = {
        "quality": Shown(heading=f"{metric} of {_POLICY}", scale=100),
        "delta": Shown(heading=f"difference of {_POLICY} to the full width", spec="+.2f", scale=100),
        "rounds": Shown(heading=f"rounds of {_POLICY}"),
    }
    return runs_tables(values, shown, experiment.resampling)


def _run_values(protocol: SemanticProtocol) -> RunValues:
    replayed, metric = protocol.replayed, protocol.drafts.metric
    quality = replayed.runs[_POLICY].values[metric]
    recording = protocol.drafts.prepared.recording
    return RunValues(
        values={
            "quality": quality,
            "delta": quality - replayed.runs[protocol.compared.baseline].values[metric],
            "rounds": replayed.rounds[_POLICY].astype(float),
        },
        questions=tuple(recording.question_ids),
        clusters=recording.clusters,
    )
