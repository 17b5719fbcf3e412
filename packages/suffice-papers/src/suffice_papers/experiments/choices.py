"""The models, questions, retrievers and protocol settings that the file of an experiment names."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

from typer import Option

from suffice.cli.datasets import Retrieval
from suffice.cli.drafting import Critic, PanelOptions, Writer
from suffice.cli.gating import GateOptions
from suffice.cli.local import LocalRun
from suffice.cli.models import Answering
from suffice.cli.querying import LoopOptions
from suffice.cli.thinking import Thinker
from suffice.errors import DataError, SufficeError
from suffice.loops.retrieval import BUNDLED_QUESTIONS, Question, bundled_path, dataset_hash, load_questions
from suffice_papers.cbdr.plan import CbdrSettings

SPLITS = ("tune", "eval")


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Answering, LocalRun):
    """Options of a model, as in `suffice record`, including those for local models."""

    @property
    def here(self) -> LocalRun:
        """The options for running the model on this machine."""
        return LocalRun(**{item.name: getattr(self, item.name) for item in fields(LocalRun)})

    @property
    def is_remote(self) -> bool:
        """True if the model is at an endpoint."""
        return not self.local and (self.base_url is not None or self.model != "span-reader")


@dataclass(frozen=True, kw_only=True)
class DraftOptions(Writer, Critic):
    """Options of a writer, a critic and judges, as in `suffice draft record`."""

    panel: ClassVar[str] = "Model"
    judge: PanelOptions = field(default_factory=PanelOptions)
    is_remote: ClassVar[bool] = True
    logprobs: ClassVar[bool] = False
    local: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class ProbedOptions(LocalRun):
    """Options of a local model whose hidden states are read, as in `suffice paper cbdr`."""

    is_remote: ClassVar[bool] = False
    logprobs: ClassVar[bool] = False
    local: ClassVar[bool] = True

    model: str
    max_tokens: Annotated[int, Option(min=1)] = 64


@dataclass(frozen=True, kw_only=True)
class ThinkerOptions(Thinker):
    """Options of a model that thinks, as in `suffice think record`."""

    is_remote: ClassVar[bool] = True
    logprobs: ClassVar[bool] = False
    local: ClassVar[bool] = False


MODEL_OPTIONS: dict[str, Any] = {
    "tasr": ModelOptions,
    "semantic": DraftOptions,
    "cbdr": ProbedOptions,
    "thinking": ThinkerOptions,
}
"""The options of a model, by protocol."""


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """A model of an experiment.

    Attributes:
        name: Name in tables and folders.
        options: Its options, an object of the class that `MODEL_OPTIONS` contains for the protocol.
        scripted: Shares of right answers by round, for a script that answers in place of a model.
    """

    name: str
    options: Any = field(default_factory=ModelOptions)
    scripted: tuple[float, ...] = ()

    @property
    def is_remote(self) -> bool:
        """True if the model is at an endpoint."""
        return not self.scripted and bool(self.options.is_remote)

    @property
    def url(self) -> str | None:
        """The address of the model's endpoint; None for the address of OpenAI."""
        return self.options.base_url or os.environ.get("OPENAI_BASE_URL")


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Questions of an experiment.

    Attributes:
        name: Name in tables and folders.
        tune: Questions for fitting and choosing, as a bundled set or a file; "" with `calibrate_on`.
        eval: Questions for all reported figures.
        tune_limit: Number of tune questions, counted from the first; None for all.
        eval_limit: Number of eval questions, counted from the first; None for all.
        tune_split: Use only the tune questions that the file assigns to this split.
        eval_split: Use only the eval questions that the file assigns to this split.
        setting: Source of the evidence, by which the tables are grouped.
        corpus: Name of the source of the passages, in the tables; default: the name of the questions.
        calibrate_on: Name of another entry, whose tune questions are used for calibration; "" to calibrate on the tune
            questions of this entry.
        retrievers: Names of the retrievers that are used with these questions; empty for all.
    """

    name: str
    eval: str
    tune: str = ""
    tune_limit: Annotated[int | None, Option(min=1)] = None
    eval_limit: Annotated[int | None, Option(min=1)] = None
    tune_split: str | None = None
    eval_split: str | None = None
    setting: str = "distractor"
    corpus: str = ""
    calibrate_on: str = ""
    retrievers: tuple[str, ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits with questions."""
        return tuple(split for split in SPLITS if getattr(self, split))

    @property
    def exists(self) -> bool:
        """True if the files of its questions exist."""
        specs = [getattr(self, split) for split in self.splits]
        return all(spec in BUNDLED_QUESTIONS or Path(spec).is_file() for spec in specs)

    @property
    def problem(self) -> str | None:
        """The reason why the questions cannot be loaded; None if they can be loaded."""
        if not self.exists:
            return "a file of its questions does not exist"
        try:
            for split in self.splits:
                self._loaded(split)
        except SufficeError as error:
            return str(error)
        return None

    def questions(self, split: str, *, everything: bool = False) -> list[Question]:
        """Return the questions of a split, up to the split's limit; all of them if `everything` is true."""
        return list(self._loaded(split)[0][: None if everything else getattr(self, f"{split}_limit")])

    def hashes(self, split: str) -> dict[str, str]:
        """Return a hash of each question with its gold answers and passages, by question id."""
        return dict(zip((q.question_id for q in self.questions(split)), self._loaded(split)[1], strict=False))

    def _loaded(self, split: str) -> _Loaded:
        spec = getattr(self, split)
        path = bundled_path(spec) if spec in BUNDLED_QUESTIONS else Path(spec)
        status = path.stat()
        return _loaded(spec, getattr(self, f"{split}_split"), (status.st_mtime_ns, status.st_size))


_Loaded = tuple[tuple[Question, ...], tuple[str, ...]]


@functools.lru_cache(maxsize=64)
def _loaded(spec: str, split: str | None, version: tuple[int, int]) -> _Loaded:
    """Load questions with their hashes; cached, since several cells have the same questions."""
    del version  # only a part of the cache's key: the file may change while a process runs
    questions = tuple(load_questions(spec, split=split))
    return questions, tuple(dataset_hash([question]) for question in questions)


@dataclass(frozen=True, kw_only=True)
class RetrieverChoice:
    """A retriever of an experiment: its name, and its options as in `suffice record`."""

    name: str
    options: Retrieval = field(default_factory=Retrieval)


@dataclass(frozen=True, kw_only=True)
class RivalChoice:
    """A rival of the plain loop: another way to retrieve evidence, which is compared on the eval questions.

    Without a rule, a method answers once, when it ends by itself, as published.  With a rule, it answers in every
    round.

    Attributes:
        name: Name in tables and folders.
        looping: A method that asks for its own evidence.
        gating: A gate in front of the plain loop.
        rule: The stopping rule; "" to let the method end by itself. If there is neither a method nor a gate, the rule
            stops the plain loop.
        threshold_of: Signal whose threshold in the rule is chosen on tune questions: the threshold with the most right
            answers; among ties, the one with the fewest calls. "" keeps the rule's threshold.
        models: Names of the models with which the rival is tried; empty for all.
    """

    name: str
    looping: LoopOptions = field(default_factory=LoopOptions)
    gating: GateOptions = field(default_factory=GateOptions)
    rule: str = ""
    threshold_of: str = ""
    models: tuple[str, ...] = ()

    @property
    def is_recorded(self) -> bool:
        """True if the rival has its own recordings.

        A rival that is only a rule is replayed on the recordings of the plain loop.
        """
        return self.looping.method is not None or self.gating.gate is not None

    @property
    def kind(self) -> str:
        """The kind of the rival, as the tables name it."""
        what = "method" if self.looping.method else "gate" if self.gating.gate else ""
        how = "own end" if not self.rule else "rule by tune" if self.threshold_of else "rule"
        return how if not what else what if what == "gate" else f"{what}, {how}"


@dataclass(frozen=True, kw_only=True)
class SemanticChoice:
    """Settings of the protocol of Semantic Early-Stopping.

    Attributes:
        metric: The measure of quality: a column in [0, 1], or `agreement`.
        tolerance: Largest accepted loss of mean quality on tune questions when a threshold is selected.
        margins: Margins of non-inferiority and equivalence.
    """

    metric: str = "information_score"
    tolerance: float = 0.02
    margins: tuple[float, ...] = (0.01, 0.02, 0.05)


@dataclass(frozen=True, kw_only=True)
class ThinkingChoice:
    """Settings of experiments with chains of thought.

    Attributes:
        rules: The rules to judge, which are fixed before the first question is asked.
    """

    rules: tuple[str, ...] = ("dynasor(2)", "dynasor(3)", "deer(0.9)", "deer(0.95)")


@dataclass(frozen=True, kw_only=True)
class GpuChoice:
    """The GPU for which a run is planned, if it is not this machine's GPU.

    Attributes:
        name: Its name in tables.
        memory: Its memory in GiB; None for the memory of the device that torch finds.
        usd_per_hour: Its price; None = unknown.
    """

    name: str = ""
    memory: float | None = None
    usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        for key in ("memory", "usd_per_hour"):
            value = getattr(self, key)
            if value is not None and not 0 < value < math.inf:
                raise DataError(f"cbdr: gpu: {key.replace('_', '-')} is {value!r}; allowed: a number above 0")


@dataclass(frozen=True, kw_only=True)
class CbdrChoice:
    """Settings of CBDR's pipeline.

    Attributes:
        cross_encoder: Id or folder of the reranker to align.
        others: Further cross-encoders to compare without training.
        compare_aligned: Cells, as ``MODEL/DATA``, whose aligned rerankers are also compared in all later cells, with
            other models or on other data.
        layers: Layers of the probes: `middle`, `last`, or numbers as text.
        gpu: The GPU for which the run is planned; used only for estimates.
        settings: Settings of the pipeline, whose seed is replaced by the cell's seed.
    """

    cross_encoder: str = "BAAI/bge-reranker-v2-m3"
    others: tuple[str, ...] = ()
    compare_aligned: tuple[str, ...] = ()
    layers: tuple[str, ...] = ("middle", "last")
    gpu: GpuChoice = field(default_factory=GpuChoice)
    settings: CbdrSettings = field(default_factory=CbdrSettings, metadata={"left_out": ("seed", "resampling")})
