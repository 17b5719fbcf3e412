"""Estimate the memory of each stage of CBDR's pipeline on the GPU named in the file, or else on this machine's GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.common.tables import Column, Table
from suffice.errors import SufficeError
from suffice.loops.models.prompts import prompt
from suffice.loops.retrieval import Question
from suffice.policy.rounds import Passage
from suffice_gates.training.memory import GIB, device_memory, pass_memory, training_memory
from suffice_gates.training.reranker_trainer import in_parts
from suffice_papers.cbdr.names import display_name
from suffice_papers.experiments.cbdr_cells import all_questions
from suffice_papers.experiments.hub import FoundModel, find_model
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.stages import CellFolder
from suffice_papers.experiments.variance import NOT_KNOWN

CHARACTERS_PER_TOKEN = 3
"""Assumed characters per token, fewer than in English text, so that the longest prompt is not underestimated."""

_SPECIAL_TOKENS = 4
"""Tokens that a cross-encoder adds to a pair."""

_SINGLE = 4
_HALF = 2
"""Bytes of a number in single and in half precision."""

_PAIRS = 32
"""Pairs that a cross-encoder scores at once."""

_TRAINING = "reranker training"
_SMALLER = "in smaller batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """The memory of a stage in bytes; None where it is unknown.

    Attributes:
        stage: Name of the stage.
        models: The models that are in memory.
        weights: Memory of the models' weights.
        states: Memory of gradients, of the optimizer's moments, and of the copy of the weights in half precision.
        activations: Memory that a pass over a whole batch needs.
        parts: The number of equal parts, such as prompts, into which the batch can be cut.
        unknown: The reasons why amounts of memory are unknown.
    """

    stage: str
    models: str
    weights: float | None
    states: float | None
    activations: float | None
    parts: int
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> float | None:
        """The sum of `weights`, `states` and `activations`; None if one of them is unknown."""
        parts = (self.weights, self.states, self.activations)
        return None if None in parts else sum(part or 0.0 for part in parts)

    @property
    def least(self) -> float:
        """The memory that the smallest batch needs; unknown memory counts as 0."""
        return (self.weights or 0.0) + (self.states or 0.0) + (self.activations or 0.0) / self.parts

    def verdict(self, device: float | None) -> str:
        """Return whether the stage fits into a device's memory: `yes`, `no`, `in smaller batches` or `NOT_KNOWN`."""
        if device is not None and self.least > device:
            return "no"
        if self.total is None or device is None:
            return NOT_KNOWN
        return "yes" if self.total <= device else _SMALLER


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The memory that all stages need, and the memory of the device.

    Attributes:
        stages: The memory of each stage of each model.
        device: Name of the device.
        total: Bytes of the device's memory; None if unknown.
        absent: The device named in the file, if this machine does not have it.
    """

    stages: tuple[StageMemory, ...]
    device: str
    total: float | None
    absent: str = ""

    def problems(self) -> Iterator[str]:
        """Yield a problem if this machine lacks the device, and one for each stage whose smallest batch does not fit."""
        if self.absent:
            yield f"the device {self.absent!r} is not here: leave device out, or name one that torch.cuda sees"
        for stage in self.stages:
            if stage.verdict(self.total) == "no":
                remedy = (
                    "write checkpointing = true or fewer passage-tokens in [cbdr.settings.reranker]"
                    if stage.stage == _TRAINING
                    else "write dtype = 'bfloat16' where it is not, or take smaller models"
                )
                yield (
                    f"memory: {stage.stage} with {stage.models} needs at least {stage.least / GIB:,.1f} GiB on {self.device}, and that has "
                    f"{(self.total or 0.0) / GIB:,.1f} GiB (an estimate): {remedy}, or a larger device"
                )

    def table(self) -> Table:
        """Return the table of stages."""
        where = self.device if self.total is None else f"{self.device} ({self.total / GIB:,.0f} GiB)"
        columns = (
            *map(Column, ("stage", "models")),
            *(Column(name, ",.1f", scale=1 / GIB) for name in ("weights", "optimizer", "activations", "all")),
            Column("fits"),
        )
        rows = []
        for item in self.stages:
            states = None if item.states == 0 else item.states if item.states is not None else NOT_KNOWN
            sizes = [NOT_KNOWN if size is None else size for size in (item.weights, item.activations, item.total)]
            rows.append((item.stage, item.models, sizes[0], states, *sizes[1:], item.verdict(self.total)))
        title = f"Memory of each stage on {where}, in GiB, an estimate"
        return Table(title=title, columns=columns, rows=tuple(rows), notes=self._notes())

    def _notes(self) -> tuple[str, ...]:
        why = [part for item in self.stages for part in item.unknown]
        if self.total is None:
            why.append(f"the memory of {self.device}, which memory = 24 (GiB) in [cbdr.gpu] says")
        notes = [f"unknown: {'; '.join(dict.fromkeys(why))}"] if why else []
        notes.append(
            "the memory counts weights in the number type of the stage; activations of one layer, and keys and values of all, for a full batch of the longest "
            f"prompts at {CHARACTERS_PER_TOKEN} characters a token; of training, weights, gradients and moments in fp32 and the longest pairs; "
            "without the device's own half GiB"
        )
        if any(item.verdict(self.total) == _SMALLER for item in self.stages):
            notes.append(f"{_SMALLER}: a batch is halved by itself when memory runs out, which takes longer")
        return tuple(notes)


def plan_memory(
    cells: Sequence[Cell], experiment: Experiment, stages: tuple[StageMemory, ...] | None = None
) -> MemoryPlan:
    """Estimate the memory of each stage of the cells, on the GPU named in the file or else the device of this machine.

    Args:
        cells: Cells whose pipelines have not finished.
        experiment: The experiment.
        stages: The result of `memory_stages`, if it is known.
    """
    gpu = experiment.cbdr.gpu
    stages = memory_stages(cells, experiment) if stages is None else stages
    wanted = next((cell.model.options.device for cell in cells), None)
    name, total = device_memory(wanted) if gpu.memory is None or not runs_anywhere(wanted) else ("", None)
    absent = "" if name or runs_anywhere(wanted) else str(wanted)
    if gpu.memory is not None:
        return MemoryPlan(stages=stages, device=gpu.name or "the GPU", total=gpu.memory * GIB, absent=absent)
    return MemoryPlan(stages=stages, device=gpu.name or name or absent, total=total, absent=absent)


def runs_anywhere(device: str | None) -> bool:
    """Return whether every machine has a device of this name."""
    return device in (None, "cpu", "auto")


def memory_stages(cells: Sequence[Cell], experiment: Experiment) -> tuple[StageMemory, ...]:
    """Estimate the memory of each stage of cells whose pipelines have not finished."""
    stages: list[StageMemory] = []
    for name in dict.fromkeys(cell.model.name for cell in cells):
        stages += _of_model([cell for cell in cells if cell.model.name == name], experiment)
    return (*stages, _of_training(experiment)) if cells else ()


def _of_model(cells: Sequence[Cell], experiment: Experiment) -> list[StageMemory]:
    """Return the memory of the stages of the first cell's model."""
    model, chosen = cells[0].model, experiment.cbdr
    options = model.options
    target, problem = _looked_up(options.model, options.revision)
    weights = None if target is None else target.in_memory(options.dtype)
    number = _number_bytes(target, options.dtype)
    deepest = max(1, *chosen.settings.depths)
    stages = [("hidden states", 0, 0), ("preference data", 1, 0), ("answers", deepest, options.max_tokens)]
    result = []
    largest = 0.0
    for stage, passages, new_tokens in stages:
        tokens = _longest_prompt(cells, experiment, passages)
        activations = None
        if target is not None and tokens is not None:
            activations = pass_memory(
                target.shape, prompts=options.batch_size, tokens=tokens, new_tokens=new_tokens, size=number
            )
        largest = max(largest, activations or 0.0)
        why = [problem] if problem else []
        if tokens is None:
            why.append("the longest prompts, as questions cannot be loaded")
        elif activations is None and not problem:
            why.append(f"the sizes of the layers of {options.model!r}, which its config.json does not contain")
        result.append(
            StageMemory(
                stage=stage,
                models=model.name,
                weights=weights,
                states=0.0,
                activations=activations,
                parts=options.batch_size,
                unknown=tuple(why),
            )
        )
    compared, name, unknown = _largest_reranker(experiment)
    pairs = _pair_memory(experiment, compared)
    is_known = weights is not None and compared is not None and pairs is not None and result[-1].activations is not None
    result.append(
        StageMemory(
            stage="comparison of rerankers",
            models=f"{model.name} + {name}",
            weights=(weights or 0.0) + (compared or (0.0, None))[0] if weights is not None and compared else None,
            states=0.0,
            activations=max(largest, pairs or 0.0) if is_known else None,
            parts=options.batch_size,
            unknown=(*result[-1].unknown, *unknown),
        )
    )
    return result


def _of_training(experiment: Experiment) -> StageMemory:
    """Return the memory of the reranker's training, during which the model is not on the device."""
    chosen = experiment.cbdr
    settings, (base, problem) = chosen.settings.reranker, _looked_up(chosen.cross_encoder)
    n = None if base is None else base.parameters()
    tokens = _pair_tokens(experiment, base)
    estimate = None
    if base is not None and n is not None:
        estimate = training_memory(
            base.shape, int(n), tokens, half=settings.precision != "fp32", checkpointing=settings.checkpointing
        )
        if estimate is None:
            problem = f"the sizes of the layers of {chosen.cross_encoder!r}, which its config.json does not contain"
    planned, _ = in_parts(settings, estimate)
    pairs = 1 + settings.negatives + settings.in_batch
    rows = settings.batch // (planned.accumulate or 1)
    weights = None if n is None else n * _SINGLE
    return StageMemory(
        stage=_TRAINING,
        models=display_name(chosen.cross_encoder),
        weights=weights,
        states=None if estimate is None or weights is None else estimate.states - weights,
        activations=None if estimate is None else estimate.total(rows * pairs) - estimate.states,
        parts=rows,
        unknown=(problem,) if problem else (),
    )


def _looked_up(name: str, revision: str | None = None) -> tuple[FoundModel | None, str]:
    """Return the facts about a model, or None and the reason if the size of its weights is unknown."""
    try:
        model = find_model(name, revision)
    except SufficeError:  # it is named with two revisions
        return None, f"the size of {name!r}, which is named with two revisions"
    if not model.problem and model.stored:
        return model, ""
    why = "see its problem"
    if not model.problem:
        why = "the packages that would look it up are not installed, or the hub does not say it"
    elif "HF_HUB_OFFLINE" in model.problem:
        why = "not in the cache, and the hub is offline"
    return None, f"the size of {name!r} ({why})"


def _number_bytes(model: FoundModel | None, dtype: str) -> int:
    """Return the bytes of one weight in memory; if they are unknown, the bytes of a weight in half precision."""
    n = None if model is None else model.parameters()
    size = None if model is None else model.in_memory(dtype)
    return _HALF if not n or not size else max(1, round(size / n))


def _largest_reranker(experiment: Experiment) -> tuple[tuple[float, FoundModel] | None, str, tuple[str, ...]]:
    """Return the reranker whose weights need the most memory for scoring, its name, and the reasons for unknown sizes.

    The aligned reranker counts in single precision, as it was trained.  If any size is unknown, None is returned in
    place of the reranker.
    """
    chosen = experiment.cbdr
    found: list[tuple[float, FoundModel, str]] = []
    why = []
    for name, dtype in ((chosen.cross_encoder, "float32"), *((other, "auto") for other in chosen.others)):
        model, problem = _looked_up(name)
        size = None if model is None else model.in_memory(dtype)
        if model is None or size is None:
            why.append(problem)
        else:
            found.append((size, model, display_name(name)))
    if not found or why:
        return None, "rerankers", tuple(why)
    size, model, name = max(found, key=lambda item: item[0])
    return (size, model), name, ()


def _pair_memory(experiment: Experiment, reranker: tuple[float, FoundModel] | None) -> float | None:
    """Return the bytes of activations for scoring a batch of the longest pairs."""
    if reranker is None:
        return None
    size, model = reranker
    number = max(1, round(size / (model.parameters() or size)))
    prompts = max(_PAIRS, experiment.cbdr.settings.reranker.batch)
    return pass_memory(model.shape, prompts=prompts, tokens=_pair_tokens(experiment, model), size=number)


def _pair_tokens(experiment: Experiment, reranker: FoundModel | None) -> int:
    """Return the tokens of the longest pair that a reranker reads."""
    settings = experiment.cbdr.settings.reranker
    longest = settings.query_tokens + settings.passage_tokens + _SPECIAL_TOKENS
    most = None if reranker is None else getattr(reranker.shape, "max_position_embeddings", None)
    return min(longest, most) if isinstance(most, int) else longest


def _longest_prompt(cells: Sequence[Cell], experiment: Experiment, passages: int) -> int | None:
    """Estimate the tokens of the longest prompt with this number of passages; None if questions cannot be loaded."""
    if any(cell.data.problem is not None for cell in cells):
        return None
    characters = []
    for cell in {(cell.data.name, cell.prompt): cell for cell in cells}.values():
        questions = all_questions(CellFolder(Path(), cell, experiment))
        longest = max(questions, key=lambda question: _length(question, passages))
        chosen = sorted(longest.passages, key=_characters)[max(0, len(longest.passages) - passages) :]
        messages: Any = prompt(cell.prompt).messages(longest.question, chosen)
        characters.append(sum(len(message["content"]) for message in messages))
    return math.ceil(max(characters) / CHARACTERS_PER_TOKEN)


def _length(question: Question, passages: int) -> int:
    """Return the number of characters of a question with its longest passages."""
    sizes = sorted(map(_characters, question.passages))
    return len(question.question) + sum(sizes[max(0, len(sizes) - passages) :])


def _characters(passage: Passage) -> int:
    return len(passage.title) + len(passage.text)
