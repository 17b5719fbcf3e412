"""An experiment as a value: the checked content of its file, and its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Option

from suffice.cli.local import json_object
from suffice.cli.models import Signals
from suffice.errors import DataError, RuleSyntaxError, SufficeError
from suffice.evaluation.statistics import Resampling
from suffice.loops.models.prompts import prompt
from suffice.policy.rules import Never, parse_rule
from suffice.policy.rules.algebra import find_threshold
from suffice.policy.signals import SIGNALS
from suffice.verdicts.certificates import Claim
from suffice_papers.experiments.choices import (
    MODEL_OPTIONS,
    CbdrChoice,
    DataChoice,
    ModelChoice,
    ModelOptions,
    RetrieverChoice,
    RivalChoice,
    SemanticChoice,
    ThinkingChoice,
)
from suffice_papers.experiments.fields import among
from suffice_papers.published import published_tasr
from suffice_papers.tasr.cells import SETTINGS

FEWEST_TUNE = 2
"""Smallest number of tune questions; one is not enough to fit anything."""

PROTOCOLS = tuple(MODEL_OPTIONS)
"""The protocols of the papers whose tables are made."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A combination of model, data, retriever, prompt and seed, with a tune and an eval recording.

    The cell of a rival has only an eval recording.
    """

    model: ModelChoice
    data: DataChoice
    retriever: RetrieverChoice
    prompt: str
    seed: int
    rival: RivalChoice | None = None

    @property
    def configuration(self) -> str:
        """The name of the cell without its seed; cells that differ only in the seed are runs of one configuration."""
        way = "" if self.rival is None else f"/{self.rival.name}"
        return f"{self.model.name}/{self.data.name}/{self.retriever.name}{way}/{self.prompt}"

    @property
    def plain(self) -> Cell:
        """The cell of the plain loop that a rival is compared with."""
        return replace(self, rival=None)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits for which the cell has recordings."""
        return self.data.splits if self.rival is None else ("eval",)

    @property
    def name(self) -> str:
        """The full name of the cell, and of its folder."""
        return f"{self.configuration}/seed-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The content of an experiment's file.

    Attributes:
        path: The file.
        protocol: The paper whose tables are made.
        models: The models.
        data: The data sets.
        retrievers: The retrievers; default: BM25 over each question's own passages.
        rivals: Other ways of asking for evidence, compared with the plain loop.
        prompts: Ids of the prompts.
        seeds: Seeds; a model whose answers depend on the seed has a run for each.
        max_rounds: The highest round R.
        round_zero: True to record also round 0, the model without evidence.
        concurrency: Number of questions answered at the same time. None for the default: the batch size of a local
            model, or 8 for any other model.
        prices: Prices in USD per million tokens: a file, or `list` for list prices; None if unknown.
        max_loss: The largest mean loss that a certificate bounds.
        confidence: Confidence of that bound.
        tune_sizes: Numbers of tune questions at the points of the learning curve; if empty, a quarter, a half and all
            of them.
        tune_draws: Number of random sets of tune questions at each point.
        resamples: Bootstrap draws.
        level: Coverage of intervals.
        draw_seed: Seed of everything that is drawn from recordings.
        published: The name of the published cell that each configuration reproduces, by the configuration's
            ``MODEL/DATA/RETRIEVER``.
        signals: Signals of TASR that cost calls of their own: a judge, and a cross-encoder for `rerank_score`.
        semantic: Settings of the protocol of Semantic Early-Stopping.
        cbdr: Settings of CBDR's pipeline.
        thinking: Settings of chains of thought.
        absent: A message for each file that does not exist, if the experiment was read with `check_files=False`.
    """

    path: Path
    models: tuple[ModelChoice, ...]
    data: tuple[DataChoice, ...]
    retrievers: tuple[RetrieverChoice, ...]
    published: Mapping[str, str]
    rivals: tuple[RivalChoice, ...] = ()
    protocol: str = "tasr"
    prompts: tuple[str, ...] = ("answer_first",)
    seeds: tuple[int, ...] = (0,)
    max_rounds: Annotated[int, Option(min=1)] = 5
    round_zero: bool = False
    concurrency: Annotated[int | None, Option(min=1)] = None
    prices: Path | None = None
    max_loss: float = 0.02
    confidence: float = 0.95
    tune_sizes: tuple[int, ...] = ()
    tune_draws: Annotated[int, Option(min=1)] = 20
    resamples: Annotated[int, Option(min=1)] = 1000
    level: float = 0.95
    draw_seed: Annotated[int, Option(min=0)] = 42
    signals: Signals = field(default_factory=Signals)
    semantic: SemanticChoice = field(default_factory=SemanticChoice)
    cbdr: CbdrChoice = field(default_factory=CbdrChoice)
    thinking: ThinkingChoice = field(default_factory=ThinkingChoice)
    absent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        among(self.protocol, PROTOCOLS, f"{self.path}: protocol")
        for key in ("prompts", "seeds"):
            _no_repeats(getattr(self, key), f"{self.path}: {key}")
        for name in self.prompts:
            prompt(name)
        _no_repeats(self.tune_sizes or (None,), f"{self.path}: tune-sizes")
        if small := [size for size in self.tune_sizes if size < FEWEST_TUNE]:
            raise DataError(f"{self.path}: tune-sizes: {small[0]!r}; allowed: {FEWEST_TUNE} or more")
        lists: list[Sequence[Any]] = [self.models, self.data, self.retrievers, *([self.rivals] if self.rivals else [])]
        for listed in lists:
            _no_repeats([item.name for item in listed], f"{self.path}: name")
            _no_repeats([item.name.lower() for item in listed], f"{self.path}: name, in small letters")
        for model in self.models:
            self._check_body(model, f"{self.path}: model {model.name!r}: extra-body")
        self._check_tables()
        own = {"semantic": self.semantic != SemanticChoice(), "cbdr": self.cbdr != CbdrChoice()}
        own["thinking"] = self.thinking != ThinkingChoice()
        self._check_used({key: used and key != self.protocol for key, used in own.items()})
        if self.protocol != "tasr":
            self._check_plain()
        for rule in self.thinking.rules:
            parse_rule(rule)
        pairs = [f"{model.name}/{data.name}" for model, data in product(self.models, self.data)]
        for name in self.cbdr.compare_aligned:
            among(name, pairs, f"{self.path}: cbdr: compare-aligned")
        known = {cell.configuration.rpartition("/")[0] for cell in self.cells() if cell.rival is None}
        for place, theirs in self.published.items():
            among(place, known, f"{self.path}: published")
            among(theirs, published_tasr().cells, f"{self.path}: published: {place!r}")
        self.resampling, self.claim  # noqa: B018 - both check their values

    def _check_tables(self) -> None:
        for item in self.data:
            self._check_data(item, f"{self.path}: data {item.name!r}")
        for retriever in self.retrievers:
            if all(item.retrievers and retriever.name not in item.retrievers for item in self.data):
                raise DataError(
                    f"{self.path}: retriever {retriever.name!r} is used by no data: name it in their 'retrievers', or leave it out"
                )
        for rival in self.rivals:
            self._check_rival(rival, f"{self.path}: rival {rival.name!r}")

    def _check_body(self, model: ModelChoice, where: str) -> None:
        """Raise if a model's extra-body is not a JSON object, or contains a seed, which would make all runs the same."""
        body = getattr(model.options, "extra_body", None)
        if body is None:
            return
        try:
            is_seeded = "seed" in json_object(body)
        except BadParameter as error:
            raise DataError(f"{where}: {error.message}") from None
        if is_seeded:
            raise DataError(
                f"{where} has a seed: write it as seeds = [...] at the top, which every request of a run sends"
            )

    def _check_data(self, item: DataChoice, where: str) -> None:
        among(item.setting, SETTINGS, f"{where}: setting")
        for name in item.retrievers:
            among(name, [retriever.name for retriever in self.retrievers], f"{where}: retrievers")
        if item.calibrate_on:
            others = [other.name for other in self.data if other.name != item.name and other.tune]
            among(item.calibrate_on, others, f"{where}: calibrate-on")
        if bool(item.calibrate_on) == bool(item.tune) and self.protocol != "cbdr":
            raise DataError(f"{where}: give either tune, or calibrate-on with the name of other data")

    def _check_rival(self, rival: RivalChoice, where: str) -> None:
        for name in rival.models:
            among(name, [model.name for model in self.models], f"{where}: models")
        try:
            method, rule = rival.looping.method, parse_rule(rival.rule) if rival.rule else None
        except SufficeError as error:
            raise DataError(f"{where}: {error}") from None
        gated = rival.gating.gate is not None
        if method is not None and gated:
            raise DataError(f"{where}: a method decides itself when to retrieve: leave out 'loop' or 'gate'")
        if rule is None and (gated or method is None):
            raise DataError(
                f"{where}: give the key 'rule', as rule = \"adaptive_rag\", which says what the gate decides"
                if gated
                else f"{where}: give 'loop', 'gate' with 'rule', or 'rule'"
            )
        if rival.threshold_of:
            try:
                find_threshold(Never() if rule is None else rule, rival.threshold_of)
            except RuleSyntaxError as error:
                raise DataError(f"{where}: threshold-of: {error}") from None
        read = sorted(rule.signals) if rule is not None else []
        fitted = [f"reads {name!r}, which is fitted" for name in read if name in SIGNALS and SIGNALS[name].fitted]
        fitted += ["has a threshold that is chosen"] * bool(rival.threshold_of)
        if fitted and rival.is_recorded:
            raise DataError(
                f"{where}: the rule {fitted[0]} on tune questions, and only the plain loop records these: use another rule"
            )

    def _check_plain(self) -> None:
        """Raise if the file has settings of TASR that the protocol of the file does not use."""
        plain = (RetrieverChoice(name="bm25"),)
        given = {
            "retriever": self.retrievers != plain,
            "rival": bool(self.rivals),
            "published": bool(self.published),
            "scripted": any(model.scripted for model in self.models),
            "round-zero": self.round_zero,
            "signals": self.signals != Signals(),
            "prompts": self.protocol in ("semantic", "thinking") and self.prompts != ("answer_first",),
            "calibrate-on": self.protocol == "cbdr" and any(item.calibrate_on for item in self.data),
        }
        self._check_used(given)

    def _check_used(self, given: Mapping[str, bool]) -> None:
        wrong = next((key for key, used in given.items() if used), None)
        if wrong is not None:
            raise DataError(f"{self.path}: {wrong!r} has no meaning for the protocol {self.protocol!r}: leave it out")

    @property
    def claim(self) -> Claim:
        """The claim that a certificate is about."""
        return Claim(epsilon=self.max_loss, confidence=self.confidence)

    @property
    def resampling(self) -> Resampling:
        """Draws, seed and level of the intervals."""
        return Resampling(n_resamples=self.resamples, seed=self.draw_seed, level=self.level)

    def cells(self) -> tuple[Cell, ...]:
        """Return all cells in the order of the file.

        Runs of one configuration are adjacent, and rivals come after the plain loop.
        """
        return tuple(
            Cell(model=model, data=data, retriever=retriever, prompt=prompt_name, seed=seed, rival=rival)
            for model, data, retriever, prompt_name in product(self.models, self.data, self.retrievers, self.prompts)
            if not data.retrievers or retriever.name in data.retrievers
            for rival in (None, *(rival for rival in self.rivals_of(model) if rival.is_recorded))
            for seed in (self.seeds if self.repeats(model) else self.seeds[:1])
        )

    def rivals_of(self, model: ModelChoice) -> tuple[RivalChoice, ...]:
        """Return the rivals that are tried with a model."""
        return tuple(rival for rival in self.rivals if not rival.models or model.name in rival.models)

    def at_once(self, model: ModelChoice) -> int:
        """Return the number of questions that a model answers at the same time."""
        if self.concurrency is not None:
            return self.concurrency
        options = model.options
        return options.batch_size if isinstance(options, ModelOptions) and options.local else 8

    def repeats(self, model: ModelChoice) -> bool:
        """Return whether the seed may change a model's cells.

        It may change them for models at an endpoint, for scripts, and in the protocol of CBDR, which trains models.
        """
        return self.protocol == "cbdr" or bool(model.scripted) or model.is_remote

    def aligned_before(self, cell: Cell) -> dict[str, Cell]:
        """Return the earlier cells whose aligned rerankers are compared in a cell of CBDR, by ``MODEL/DATA``."""
        cells = self.cells()
        before = cells[: cells.index(cell)]
        return {
            name: other
            for name in self.cbdr.compare_aligned
            for other in before
            if name == f"{other.model.name}/{other.data.name}"
            and (other.prompt, other.seed) == (cell.prompt, cell.seed)
        }

    def tune_cell(self, cell: Cell) -> Cell:
        """Return the cell whose tune recording calibrates a cell: the same cell, unless calibration is transferred."""
        cell = cell.plain
        if not cell.data.calibrate_on:
            return cell
        data = next(item for item in self.data if item.name == cell.data.calibrate_on)
        named = cell.retriever.name
        allowed = data.retrievers or tuple(item.name for item in self.retrievers)
        retriever = next(r for r in self.retrievers if r.name == (named if named in allowed else allowed[0]))
        return self.tune_cell(replace(cell, data=data, retriever=retriever))


def _no_repeats(values: Sequence[Any], where: str) -> None:
    if not values:
        raise DataError(f"{where} is empty; expected at least one")
    repeated = next((value for value in values if values.count(value) > 1), None)
    if repeated is not None:
        raise DataError(f"{where}: {repeated!r} occurs twice")
