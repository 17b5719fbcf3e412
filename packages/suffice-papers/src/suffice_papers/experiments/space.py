"""Compare the estimated needs of disk and memory of an experiment's open cells with the disk and memory of this machine."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from suffice.cli.local import hub_name
from suffice.common.tables import counted
from suffice_gates.training.memory import STATES_BYTES, device_memory
from suffice_papers.experiments.cbdr_memory import memory_stages, plan_memory, runs_anywhere
from suffice_papers.experiments.hub import FoundModel, find_model
from suffice_papers.experiments.parts import TRAINED, ModelPart, model_parts, place_of
from suffice_papers.experiments.plan import Cell, Experiment

_START = 1 << 20
_VECTOR_BYTES = 4
_SMALL = 1e9
"""Bytes that fit into any device: below this size, torch is not loaded to look up the memory."""

_LINES = (".jsonl", ".ndjson", ".tsv", ".csv")
"""Endings of corpora with a passage in each line."""


def space_problems(cells: Iterable[Cell], experiment: Experiment, out: Path) -> Iterator[str]:
    """Yield a problem for each need of disk or memory that this machine cannot meet; unknown sizes count as 0."""
    cells = list(cells)
    yield from _disk_problems(cells, experiment, out)
    if experiment.protocol == "cbdr":
        own = memory_stages(cells, experiment)
        is_small = all(stage.least < _SMALL for stage in own)
        if not (is_small and all(runs_anywhere(cell.model.options.device) for cell in cells)):
            yield from plan_memory(cells, experiment, own).problems()
        return
    stages: dict[tuple[str, str], dict[str, tuple[ModelPart, float]]] = defaultdict(dict)
    for cell in cells:
        for part in model_parts(cell, experiment):
            size = _bytes_in_memory(part)
            if size is not None:
                stages[cell.model.name, part.stage][part.where + part.name] = part, size
    for (model, stage), listed in stages.items():
        yield from _memory_problems(model, stage, [*listed.values()])


def space_notes(cells: Iterable[Cell], experiment: Experiment) -> list[str]:
    """Return notes on the known bytes of downloads, and of indexes that are written beside corpora."""
    cells = list(cells)
    notes = []
    for what, parts in (
        ("downloads of models", _downloads(cells, experiment)),
        ("indexes beside corpora", _indexes(cells)),
    ):
        if parts:
            listed = ", ".join(f"{name} {size / 1e9:,.1f} GB" for name, size, _ in parts.values())
            notes.append(
                f"{what} take about {sum(size for _, size, _ in parts.values()) / 1e9:,.1f} GB of disk: {listed}"
            )
    return notes


def _disk_problems(cells: list[Cell], experiment: Experiment, out: Path) -> Iterator[str]:
    place = place_of(out)
    if not os.access(place, os.W_OK):
        yield f"the folder {str(place)!r}, in which the results are to lie, cannot be written: give another --out"
    needs: dict[int, list[tuple[str, float, Path]]] = defaultdict(list)
    for what, size, place in {**_downloads(cells, experiment), **_indexes(cells)}.values():
        needs[place.stat().st_dev].append((what, size, place))
    for listed in needs.values():
        place = listed[0][2]
        needed, free = sum(size for _, size, _ in listed), shutil.disk_usage(place).free
        if needed > free:
            largest = sorted(listed, key=lambda item: -item[1])
            named = ", ".join(f"{what} {size / 1e9:,.1f} GB" for what, size, _ in largest[:4])
            more = f" and {len(largest) - 4} more" if largest[4:] else ""
            yield (
                f"disk: {counted(len(largest), 'part')} need about {needed / 1e9:,.1f} GB where {str(place)!r} lies ({named}{more}), and "
                f"{free / 1e9:,.1f} GB are free (an estimate): free space, move the corpora to another disk, or set HF_HOME to one"
            )


def _downloads(cells: list[Cell], experiment: Experiment) -> dict[str, tuple[str, float, Path]]:
    """Return the models that are still to be downloaded, with their names, bytes, and the folder of the hub's cache."""
    result = {}
    for cell in cells:
        for part in model_parts(cell, experiment):
            model = _found(part)
            if model is not None and model.download:
                from huggingface_hub.constants import HF_HUB_CACHE

                result[part.name] = part.name, float(model.download), place_of(Path(HF_HUB_CACHE))
    return result


def _indexes(cells: list[Cell]) -> dict[str, tuple[str, float, Path]]:
    """Return the indexes that are still to be written beside corpora, with their names, estimated bytes and folders."""
    result = {}
    for cell in cells:
        options = cell.retriever.options
        corpus = Path(options.corpus or "")
        if not options.corpus or not corpus.is_file():
            continue
        name, size = cell.retriever.name, float(corpus.stat().st_size)
        ending = "*.suffice-index" if options.dense else "suffice-index"
        if any(corpus.parent.glob(f"{corpus.name}.{ending}/suffice-index.json")):
            continue  # an index exists; only opening it would show whether it is of this encoder
        if options.dense:
            model = find_model(options.dense)
            if model.width is None or corpus.suffix not in _LINES:
                continue
            size += passages_in(corpus) * model.width * _VECTOR_BYTES
        result[f"{corpus}/{options.dense}"] = f"the index of {name!r}", size, corpus.parent
    return result


def passages_in(corpus: Path) -> float:
    """Estimate the number of lines of a corpus from its beginning."""
    with corpus.open("rb") as file:
        start = file.read(_START)
    return corpus.stat().st_size * start.count(b"\n") / len(start) if start else 0.0


def _found(part: ModelPart) -> FoundModel | None:
    """Return the facts about a part; None if its name is invalid."""
    with suppress(ValueError):
        return find_model(part.name, part.revision)
    return None


def _bytes_in_memory(part: ModelPart) -> float | None:
    """Estimate the bytes of a part in memory, with gradients and moments if it is trained; None if unknown."""
    model = _found(part)
    if model is None or model.problem:
        return None
    if part.kind == TRAINED:
        n = model.parameters()
        return None if n is None else n * STATES_BYTES
    return model.in_memory(part.dtype)


def _memory_problems(model: str, stage: str, parts: list[tuple[ModelPart, float]]) -> Iterator[str]:
    """Yield a problem if the parts of a stage do not fit into the memory of their device."""
    for device in dict.fromkeys(part.device for part, _ in parts):
        own = [(part, size) for part, size in parts if part.device == device]
        needed = sum(size for _, size in own)
        if needed < _SMALL and device in (None, "cpu"):
            continue
        name, total = device_memory(device)
        if name == "":
            yield f"{own[0][0].where}: the device {device!r} is not here: leave device out, or name one that torch.cuda sees"
            continue
        if total is not None and needed > total:
            listed = ", ".join(f"{hub_name(part.name)[0]} {size / 1e9:,.1f} GB" for part, size in own)
            yield (
                f"memory: {stage} with {model!r} needs at least {needed / 1e9:,.1f} GB on {name} for weights alone ({listed}), and "
                f"that has {total / 1e9:,.1f} GB (an estimate from parameters and number type): set dtype to bfloat16, or take a smaller "
                "model or a larger device"
            )
