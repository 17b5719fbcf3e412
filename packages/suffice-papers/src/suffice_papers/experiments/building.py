"""Build a cell's model and loop, and list the settings that would change its recordings."""

from __future__ import annotations

import functools
import gc
import hashlib
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.cli.datasets import idf_state
from suffice.cli.drafting import drafting_loop, require_contexts
from suffice.cli.local import json_object
from suffice.common.files import file_sha256, files_hash
from suffice.loops import DraftingLoop, RetrievalLoop, ThinkingLoop
from suffice.loops.models import Answerer, ScriptedModel
from suffice.loops.models.prompts import DRAFTING, prompt
from suffice.loops.retrieval import Question, dataset_hash
from suffice.policy.rounds import Reply
from suffice.policy.session import Policy
from suffice.policy.signals import LOGPROB_NEEDS
from suffice.policy.signals.position import AnswerPosition
from suffice_papers.experiments.choices import DraftOptions, ModelOptions, RivalChoice, ThinkerOptions
from suffice_papers.experiments.fields import toml_name
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_retrieval.methods import QueryLoop
from suffice_retrieval.stores import is_store_address, shown_address

_HARMLESS = frozenset(
    {
        "timeout",
        "api_key_env",
        "judge_api_key_env",
        "critic_api_key_env",
        "cache",
        "prompt",
        "device",
        "batch_size",
        "dense_batch",
    }
)
"""Options of a model that do not change its answers, or that are part of a cell's name."""

_CHANGED_ANSWERS = 0.1
"""Share of a scripted model's rounds whose answer another seed draws anew."""


class Loaded:
    """Holds the model and retriever that were loaded last, for later cells that use the same model or retriever.

    A part is released before the next one of its kind is loaded, so that only one model is in memory.
    """

    def __init__(self) -> None:
        self._parts: dict[str, tuple[Any, Any]] = {}

    def part(self, kind: str, key: Any, load: Callable[[], Any]) -> Any:
        """Return the part of this kind that was loaded last if its key is the same; otherwise load a new part."""
        if kind not in self._parts or self._parts[kind][0] != key:
            if self._parts.pop(kind, None):
                gc.collect()  # models hold cycles
            self._parts[kind] = key, load()
        return self._parts[kind][1]


def retrieval_loop(cell: Cell, experiment: Experiment, loaded: Loaded) -> RetrievalLoop | QueryLoop:
    """Load models and indexes, and return the loop that records a cell of TASR or of a rival."""
    model = _answerer(cell, experiment, loaded)
    tune, rival = experiment.tune_cell(cell), cell.rival
    policy = Policy(
        start_round=0 if has_round_zero(cell, experiment) else 1,
        max_rounds=experiment.max_rounds,
        state=idf_state(tune.data.questions("tune", everything=True)),
        answer_position=getattr(model, "position", AnswerPosition()),
    )
    signals, answering, options = experiment.signals, cell.model.options, cell.retriever.options
    device, cache = answering.device, answering.cache
    retriever = loaded.part("retriever", (options, device, cache), lambda: options.retriever(device, cache))
    if rival is not None:
        gate = rival.gating.build(model, answering, answering.here)
        method: dict[str, Any] = {} if rival.looping.method is None else {"every_round": bool(rival.rule)}
        return rival.looping.build(model, gate, retriever=retriever, policy=policy, **method)
    enrichers = loaded.part("signals", (signals, answering), lambda: signals.enrichers(answering, device))
    return RetrievalLoop(model=model, retriever=retriever, policy=policy, enrichers=(*enrichers, *signals.own(model)))


def has_round_zero(cell: Cell, experiment: Experiment) -> bool:
    """Return whether a cell records round 0, the model without evidence.

    A gate needs round 0; a method without a gate does not have it.
    """
    return experiment.round_zero if cell.rival is None else cell.rival.gating.gate is not None


def _answerer(cell: Cell, experiment: Experiment, loaded: Loaded) -> Answerer:
    choice = cell.model
    if choice.scripted:
        questions = [q for split in cell.data.splits for q in cell.data.questions(split, everything=True)]
        tune = experiment.tune_cell(cell).data
        questions += tune.questions("tune", everything=True)
        return scripted_model(choice.name, choice.scripted, questions, cell.seed)
    options: ModelOptions = replace(_seeded(cell), prompt=cell.prompt)
    layer = None if cell.rival is None else cell.rival.gating.layer
    model: Answerer = loaded.part(
        "model", (options, layer), lambda: options.answerer(options.here, logprobs=options.logprobs, layer=layer)
    )
    return model


def drafts_loop(cell: Cell, experiment: Experiment, _: Loaded) -> DraftingLoop:
    """Return the loop that records drafts of a cell."""
    options: DraftOptions = _seeded(cell)
    panels = options.judge.panels(options)
    if not all(question.passages for split in cell.data.splits for question in cell.data.questions(split)):
        require_contexts(panels, f"{cell.data.name!r} has questions without passages")
    return drafting_loop(Policy(max_rounds=experiment.max_rounds), options, options, panels)


def thinking_loop(cell: Cell, experiment: Experiment, _: Loaded) -> ThinkingLoop:
    """Return the loop that records chains of thought of a cell."""
    options: ThinkerOptions = _seeded(cell)
    return options.loop(Policy(max_rounds=experiment.max_rounds))


def _seeded(cell: Cell) -> Any:
    """Return the options of a cell's model; for a model at an endpoint, they put the seed into each request."""
    options = cell.model.options
    if not cell.model.is_remote:
        return options
    return replace(options, extra_body=json.dumps({"seed": cell.seed, **json_object(options.extra_body)}))


def scripted_model(name: str, shares: tuple[float, ...], questions: list[Question], seed: int) -> ScriptedModel:
    """Return a model that answers from a script, with margins.

    At each round, a given share of the answers is right.  Each question has a difficulty that does not depend on the
    seed. With another seed, all margins and a tenth of the rounds are drawn anew.  A wrong answer is the gold answer of
    another question.  The margin is about 4 nats for a right answer and 2 for a wrong one.

    Args:
        name: Name in reports.
        shares: Share of right answers at each round, from the first; the last share holds for all further rounds.
        questions: All questions that may be asked.
        seed: Seed of the run.
    """
    golds = [question.answers[0] for question in questions if question.answers]
    script: dict[str, list[Reply]] = {}
    for question in questions:
        difficulty = _draws(question.question, "difficulty").random()
        wrong = _draws(question.question, "wrong").choice(golds) if golds else "unknown"
        rng = _draws(question.question, str(seed))
        lines = []
        for share in shares:
            hard = rng.random() if rng.random() < _CHANGED_ANSWERS else difficulty
            right = hard < share and bool(question.answers)
            answer = question.answers[0] if right else str(wrong)
            margin = max(0.0, rng.normal(4.0 if right else 2.0, 1.0))
            lines.append(Reply(answer=answer, text=f"Answer: {answer}", signals={"answer_margin": margin}))
        script[question.question] = [lines[0], *lines]  # round 0, without evidence, answers as round 1 does
    return ScriptedModel(script, name=name, capabilities=LOGPROB_NEEDS)


def _draws(text: str, salt: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{salt}\n{text}".encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def cell_settings(cell: Cell, experiment: Experiment) -> dict[str, Any]:
    """Return the JSON-ready settings that a cell's recordings depend on, with hashes of the files named in them."""
    choice = cell.model
    model: dict[str, Any] = {"scripted": list(choice.scripted)} if choice.scripted else stated_options(choice.options)
    if experiment.repeats(choice):
        model["seed"] = cell.seed
    shared = {"model": model, "max-rounds": experiment.max_rounds}
    if experiment.protocol == "semantic":
        return {**shared, "prompt": DRAFTING.pin}
    if experiment.protocol == "thinking":
        return shared
    tune = experiment.tune_cell(cell).data
    return {
        **shared,
        "prompt": prompt(cell.prompt).pin,
        "retriever": stated_options(cell.retriever.options),
        "round-zero": has_round_zero(cell, experiment),
        **({"signals": stated_options(experiment.signals)} if cell.rival is None else _rival_settings(cell.rival)),
        "overlap fitted on": dataset_hash(tune.questions("tune", everything=True)),
        **({"script drawn from": _script_hash(cell)} if choice.scripted else {}),
    }


def _rival_settings(rival: RivalChoice) -> dict[str, Any]:
    """Return the settings on which a rival's recordings depend.

    Recordings do not depend on the rule itself, but on whether there is one, since a rule needs an answer in every
    round.
    """
    if rival.looping.method is None:
        return {"gate": stated_options(rival.gating)}
    return {"loop": str(rival.looping.method), "every-round": bool(rival.rule)}


def _script_hash(cell: Cell) -> str:
    return dataset_hash([q for split in cell.data.splits for q in cell.data.questions(split, everything=True)])


def stated_options(options: Any) -> dict[str, Any]:
    """Return the options that differ from their defaults, with a hash of each file and folder named in an option."""
    assert is_dataclass(options)
    stated = {}
    for item in fields(options):
        value = getattr(options, item.name)
        if is_dataclass(value):
            stated[toml_name(item.name)] = stated_options(value)
        elif item.name not in _HARMLESS and (value != item.default or item.name == "model"):
            stated[toml_name(item.name)] = content_of(value)
    return stated


def content_of(value: Any) -> Any:
    """Return a setting as a JSON-ready value; an existing file or folder becomes its name with a hash of its content."""
    if isinstance(value, str) and is_store_address(value):
        return shown_address(value)
    path = Path(value) if isinstance(value, str | Path) and str(value).strip() else None
    if path is None or not (isinstance(value, Path) or path.is_absolute()) or not path.exists():
        return str(value) if isinstance(value, Path) else value
    return {"name": path.name, "content": _hash_of(path.resolve())}


@functools.cache
def _hash_of(path: Path) -> str:
    if path.is_file():
        return file_sha256(path).hex()[:16]
    return files_hash(path, [file for file in path.rglob("*") if file.is_file() and ".suffice-index" not in str(file)])
