"""The pilot of a cell of CBDR: its measurements are in a file of the cell, and valid while the settings stay the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from suffice.common.files import write_file
from suffice.common.results import jsonable
from suffice.loops.models.prompts import prompt
from suffice_gates.training.memory import device_name
from suffice_papers.cbdr.pilot import Measured, pilot_cbdr
from suffice_papers.cbdr.work import answer_of
from suffice_papers.experiments.building import content_of, stated_options
from suffice_papers.experiments.cbdr_cells import (
    all_questions,
    is_finished,
    open_target,
    pipeline_settings,
    rerankers_by_name,
    rerankers_device,
)
from suffice_papers.experiments.stages import CellFolder, StageOutcome, json_of

_FILE = "pilot.json"
_OF_TRAINING = (
    "batch",
    "accumulate",
    "memory",
    "checkpointing",
    "query_tokens",
    "passage_tokens",
    "negatives",
    "in_batch",
    "precision",
)
"""Settings on which the duration of a step of the reranker depends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """The measurements of a pilot on a cell.

    Attributes:
        questions: Number of questions.
        device: The name of the device on which the measurements were taken.
        measured: The cost of units of work, by the names of `suffice_papers.cbdr.work`.
    """

    questions: int
    device: str
    measured: Mapping[str, Measured]


def pilot_cbdr_cell(folder: CellFolder, n: int, report: Callable[[str, int, int], None] | None) -> StageOutcome:
    """Measure the work of a cell on `n` questions.

    Do nothing if the cell is finished, or was already measured on as many questions.

    Args:
        folder: The cell.
        n: Number of questions.
        report: Called with the name of a measurement, the number of measurements done, and the number of all
            measurements.
    """
    known = read_pilot(folder)
    if is_finished(folder) or (known is not None and known.questions >= n):
        return StageOutcome(cell=folder.cell.name, stage="pilot", done=False)
    target = open_target(folder)
    measured = pilot_cbdr(
        all_questions(folder),
        target,
        folder.experiment.cbdr.cross_encoder,
        n=n,
        others=rerankers_by_name(folder, is_pilot=True),
        settings=pipeline_settings(folder),
        device=rerankers_device(folder),
        on_progress=report,
    )
    stored = {
        "settings": _settings(folder),
        "questions": n,
        "device": device_name(target.loaded.network.device),
        "measured": {what: item.to_dict() for what, item in measured.items()},
    }
    write_file(folder.file(_FILE), json.dumps(jsonable(stored), indent=1, sort_keys=True) + "\n")
    depths = {0, 1, *folder.experiment.cbdr.settings.depths}
    calls = sum(measured[answer_of(depth)].n for depth in depths)
    return StageOutcome(cell=folder.cell.name, stage="pilot", done=True, calls=calls)


def read_pilot(folder: CellFolder) -> Pilot | None:
    """Return the measurements of a cell; None if nothing was measured, or if the settings have changed since."""
    path = folder.file(_FILE)
    stored = json_of(path) if path.is_file() else None
    if not isinstance(stored, dict) or stored.get("settings") != jsonable(_settings(folder)):
        return None
    measured = {what: Measured.from_dict(item) for what, item in stored["measured"].items()}
    return Pilot(questions=stored["questions"], device=stored["device"], measured=measured)


def _settings(folder: CellFolder) -> dict[str, Any]:
    """Return the settings on which the measurements depend, JSON-ready."""
    options, chosen = folder.cell.model.options, folder.experiment.cbdr
    training = asdict(chosen.settings.reranker)
    return {
        "model": stated_options(options),
        "running": [options.device, options.dtype, options.batch_size],
        "prompt": prompt(folder.cell.prompt).pin,
        "questions": _digest(folder),
        "cross-encoders": [content_of(name) for name in (chosen.cross_encoder, *chosen.others)],
        "compared": [*folder.experiment.aligned_before(folder.cell)],
        "layers": list(chosen.layers),
        "reranker": {name: training[name] for name in _OF_TRAINING},
        "probe": [list(chosen.settings.probe.hidden), chosen.settings.probe.batch_size],
    }


def _digest(folder: CellFolder) -> str:
    """Return a hash of all questions of a cell."""
    data = folder.cell.data
    hashes = [digest for split in data.splits for digest in data.hashes(split).values()]
    return sha256("".join(hashes).encode()).hexdigest()[:16]
