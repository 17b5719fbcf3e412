"""An experiment as a value: what its file says, and the cells that follow from it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Option

from suffice.certificates import Claim
from suffice.cli.local import json_object
from suffice.cli.models import Signals
from suffice.cli.options import Retrieval
from suffice.errors import DataError, NotFoundError, SchemaError, did_you_mean
from suffice.llm.prompts import prompt
from suffice.papers.experiments.choices import (
    MODEL_OPTIONS,
    SPLITS,
    CbdrChoice,
    DataChoice,
    ModelChoice,
    ModelOptions,
    RetrieverChoice,
    SemanticChoice,
)
from suffice.papers.experiments.fields import among, check_keys, read_fields, toml_name
from suffice.papers.published import published_tasr
from suffice.papers.tasr.cells import SETTINGS
from suffice.retrieval import BUNDLED_QUESTIONS
from suffice.statistics import Resampling

__all__ = ["PROTOCOLS", "Cell", "Experiment", "read_experiment"]

FEWEST_TUNE = 2
"""Tune questions: with one there is nothing to fit."""

PROTOCOLS = tuple(MODEL_OPTIONS)
"""Whose tables are made."""

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_TABLES_OF = {"model": "models", "data": "data", "retriever": "retrievers"}
"""Lists of tables in the file, and the fields of an experiment that hold them."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A model, a data set, a retriever, a prompt and a seed: two recordings."""

    model: ModelChoice
    data: DataChoice
    retriever: RetrieverChoice
    prompt: str
    seed: int

    @property
    def configuration(self) -> str:
        """The cell without its seed: cells of one configuration are its runs."""
        return f"{self.model.name}/{self.data.name}/{self.retriever.name}/{self.prompt}"

    @property
    def name(self) -> str:
        """Everything that makes up the cell; also its folder."""
        return f"{self.configuration}/seed-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What an experiment's file says.

    Attributes:
        path: The file.
        protocol: Whose tables are made.
        models: The models.
        data: The data sets.
        retrievers: The retrievers; default: BM25 over each question's own passages.
        prompts: Ids of the prompts.
        seeds: One run each, of models whose answers depend on it.
        max_rounds: The highest round R.
        round_zero: Record the model alone as round 0, too.
        concurrency: Questions in flight; None = 8, or as many as a model that runs here takes at once.
        prices: USD per million tokens: a file, or `list`; None = money is unknown.
        max_loss: The largest mean loss that a certificate bounds.
        confidence: Of that bound.
        tune_sizes: Tune questions at the points of the learning curve; empty = a quarter, a half, all.
        tune_draws: Drawn sets of tune questions at each point.
        resamples: Bootstrap draws.
        level: Coverage of intervals.
        draw_seed: Seed of everything that is drawn from recordings.
        published: The paper's cell that a configuration repeats, by ``MODEL/DATA/RETRIEVER``.
        signals: Signals of TASR that cost calls of their own: a judge, and a cross-encoder for `rerank_score`.
        semantic: Settings of the protocol of Semantic Early-Stopping.
        cbdr: Settings of CBDR's pipeline.
    """

    path: Path
    models: tuple[ModelChoice, ...]
    data: tuple[DataChoice, ...]
    retrievers: tuple[RetrieverChoice, ...]
    published: Mapping[str, str]
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

    def __post_init__(self) -> None:
        among(self.protocol, PROTOCOLS, f"{self.path}: protocol")
        for key in ("prompts", "seeds"):
            _no_repeats(getattr(self, key), f"{self.path}: {key}")
        for name in self.prompts:
            prompt(name)
        _no_repeats(self.tune_sizes or (None,), f"{self.path}: tune-sizes")
        if small := [size for size in self.tune_sizes if size < FEWEST_TUNE]:
            raise DataError(f"{self.path}: tune-sizes: {small[0]!r}; allowed: {FEWEST_TUNE} or more")
        for listed in (self.models, self.data, self.retrievers):
            _no_repeats([item.name for item in listed], f"{self.path}: name")
            _no_repeats([item.name.lower() for item in listed], f"{self.path}: name, in small letters")
        for model in self.models:
            self._check_body(model, f"{self.path}: model {model.name!r}: extra-body")
        for item in self.data:
            self._check_data(item, f"{self.path}: data {item.name!r}")
        own = {"semantic": self.semantic != SemanticChoice(), "cbdr": self.cbdr != CbdrChoice()}
        self._check_used({key: used and key != self.protocol for key, used in own.items()})
        if self.protocol != "tasr":
            self._check_plain()
        known = {cell.configuration.rpartition("/")[0] for cell in self.cells()}
        for place, theirs in self.published.items():
            among(place, known, f"{self.path}: published")
            among(theirs, published_tasr().cells, f"{self.path}: published: {place!r}")
        assert self.resampling  # checks its values
        assert self.claim

    def _check_body(self, model: ModelChoice, where: str) -> None:
        """Raise if what a model's requests contain is no JSON object, or would make all of its runs the same."""
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

    def _check_plain(self) -> None:
        """Raise if the file sets what only TASR's protocol has."""
        plain = (RetrieverChoice(name="bm25"),)
        given = {
            "retriever": self.retrievers != plain,
            "published": bool(self.published),
            "scripted": any(model.scripted for model in self.models),
            "round-zero": self.round_zero,
            "signals": self.signals != Signals(),
            "prompts": self.protocol == "semantic" and self.prompts != ("answer_first",),
            "calibrate-on": self.protocol == "cbdr" and any(item.calibrate_on for item in self.data),
        }
        self._check_used(given)

    def _check_used(self, given: Mapping[str, bool]) -> None:
        wrong = next((key for key, used in given.items() if used), None)
        if wrong is not None:
            raise DataError(f"{self.path}: {wrong!r} has no meaning for the protocol {self.protocol!r}: leave it out")

    @property
    def claim(self) -> Claim:
        """What a certificate claims."""
        return Claim(epsilon=self.max_loss, confidence=self.confidence)

    @property
    def resampling(self) -> Resampling:
        """How intervals are made."""
        return Resampling(n_resamples=self.resamples, seed=self.draw_seed, level=self.level)

    def cells(self) -> tuple[Cell, ...]:
        """Return all cells, in the order of the file; runs of one configuration follow each other."""
        return tuple(
            Cell(model=model, data=data, retriever=retriever, prompt=prompt_name, seed=seed)
            for model, data, retriever, prompt_name in product(self.models, self.data, self.retrievers, self.prompts)
            if not data.retrievers or retriever.name in data.retrievers
            for seed in (self.seeds if self.repeats(model) else self.seeds[:1])
        )

    def at_once(self, model: ModelChoice) -> int:
        """Return how many questions of a model are in flight."""
        if self.concurrency is not None:
            return self.concurrency
        options = model.options
        return options.batch_size if isinstance(options, ModelOptions) and options.local else 8

    def repeats(self, model: ModelChoice) -> bool:
        """Return whether another seed may change a cell: at an endpoint, in a script, and in training."""
        return self.protocol == "cbdr" or bool(model.scripted) or model.is_remote

    def tune_cell(self, cell: Cell) -> Cell:
        """Return the cell whose tune recording calibrates a cell: itself, unless its calibration is transferred."""
        if not cell.data.calibrate_on:
            return cell
        data = next(item for item in self.data if item.name == cell.data.calibrate_on)
        named = cell.retriever.name
        allowed = data.retrievers or tuple(item.name for item in self.retrievers)
        retriever = next(r for r in self.retrievers if r.name == (named if named in allowed else allowed[0]))
        return self.tune_cell(replace(cell, data=data, retriever=retriever))


def read_experiment(path: str | Path) -> Experiment:
    """Read the file of an experiment; paths in it are relative to it.

    Raises:
        NotFoundError: The file, or one that it names, does not exist.
        SchemaError: It is not TOML, or has an unknown key.
        DataError: A value is invalid; the message names the key, the value and what is allowed.
    """
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"the experiment {str(path)!r} does not exist: give a TOML file") from None
    except OSError as error:
        raise NotFoundError(f"the experiment {str(path)!r} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path} is not TOML: {error}") from None
    nested = ("path", *_TABLES_OF.values())
    own = [toml_name(item.name) for item in fields(Experiment) if item.name not in nested]
    check_keys(data, [*own, *_TABLES_OF], str(path))
    lists = {key: _tables_at(data.pop(key, []), path, key) for key in _TABLES_OF}
    for key in ("model", "data"):
        if not lists[key]:
            raise DataError(f"{path}: an experiment needs at least one [[{key}]] table")
    folder = path.resolve().parent
    protocol = among(data.get("protocol", "tasr"), PROTOCOLS, f"{path}: protocol")
    given: dict[str, Any] = {
        "path": path,
        "models": tuple(_read_model(entry, where, folder, MODEL_OPTIONS[protocol]) for entry, where in lists["model"]),
        "data": tuple(_read_data(entry, where, folder) for entry, where in lists["data"]),
        "retrievers": tuple(_read_retriever(entry, where, folder) for entry, where in lists["retriever"])
        or (RetrieverChoice(name="bm25"),),
        "published": _texts(data.pop("published", {}), f"{path}: published"),
    }
    experiment: Experiment = read_fields(Experiment, data, str(path), folder=folder, **given)
    chosen = experiment.cbdr
    others = tuple(str(folder / name) if (folder / name).exists() else name for name in chosen.others)
    experiment = replace(experiment, signals=_located(experiment.signals, ("rerank_signal",), folder))
    return replace(experiment, cbdr=_located(replace(chosen, others=others), ("cross_encoder",), folder))


def _tables_at(entries: Any, path: Path, key: str) -> list[tuple[dict[str, Any], str]]:
    """Return the tables of a list, each with its place for messages."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SchemaError(f"{path}: {key} is {entries!r:.80}; write [[{key}]], then one key per line")
    listed = []
    for number, entry in enumerate(entries, start=1):
        name = entry.get("name")
        where = f"{path}: {key} {name!r}" if isinstance(name, str) else f"{path}: {key} {number}"
        if not isinstance(name, str) or _FOLDER_NAME.fullmatch(name) is None:
            raise DataError(
                f"{where}: name is {name!r}; expected letters, digits, '.', '+' and '-': it also names a folder"
            )
        listed.append((dict(entry), where))
    return listed


def _read_model(entry: dict[str, Any], where: str, folder: Path, group: Any) -> ModelChoice:
    name, scripted = entry.pop("name"), entry.pop("scripted", None)
    if scripted is not None:
        if entry:
            raise SchemaError(
                f"{where}: {next(iter(entry))!r} has no meaning beside 'scripted', which stands for the model"
            )
        shares = scripted if isinstance(scripted, list) else [scripted]
        if not shares or not all(
            isinstance(s, int | float) and not isinstance(s, bool) and 0 <= s <= 1 for s in shares
        ):
            raise DataError(
                f"{where}: scripted is {scripted!r}; expected shares of right answers by round, as [0.2, 0.4]"
            )
        return ModelChoice(name=name, scripted=tuple(float(share) for share in shares))
    if "model" not in entry:
        raise DataError(
            f"{where}: the key 'model' is missing: 'span-reader', a model's name at base-url, or with local a folder or hub id"
        )
    options = read_fields(group, entry, where, folder=folder, left_out=("prompt",))
    if isinstance(options, ModelOptions) and not options.local:
        options.here.refuse_unused(f"write local = true ({where})", "device")
    return ModelChoice(name=name, options=_located(options, ("model",) if options.local else (), folder))


def _read_data(entry: dict[str, Any], where: str, folder: Path) -> DataChoice:
    choice = read_fields(DataChoice, entry, where, folder=folder)
    files: dict[str, Any] = {}
    for split in SPLITS:
        spec = getattr(choice, split)
        if not spec or spec in BUNDLED_QUESTIONS:
            continue
        files[split] = str(folder / spec)
        if not Path(files[split]).is_file():
            near = did_you_mean(spec, BUNDLED_QUESTIONS)
            raise NotFoundError(
                f"{where}: {split} is {spec!r}, and there is no file {files[split]!r}.{near} Bundled sets: {', '.join(BUNDLED_QUESTIONS)}"
            )
    return replace(choice, **files, corpus=choice.corpus or choice.name)


def _read_retriever(entry: dict[str, Any], where: str, folder: Path) -> RetrieverChoice:
    name = entry.pop("name")
    options = read_fields(Retrieval, entry, where, folder=folder)
    return RetrieverChoice(name=name, options=_located(options, ("dense", "question_encoder", "reranker"), folder))


def _located(options: Any, names: Sequence[str], folder: Path) -> Any:
    """Return options in which an id or path is the path if there is one, relative to the file of the experiment."""
    paths = {name: folder / value for name in names if (value := getattr(options, name)) is not None}
    return replace(options, **{name: str(path) for name, path in paths.items() if path.exists()})


def _texts(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise DataError(f"{where} is {value!r:.80}; expected texts by MODEL/DATA/RETRIEVER")
    return dict(value)


def _no_repeats(values: Sequence[Any], where: str) -> None:
    if not values:
        raise DataError(f"{where} is empty; expected at least one")
    repeated = next((value for value in values if values.count(value) > 1), None)
    if repeated is not None:
        raise DataError(f"{where}: {repeated!r} occurs twice")
