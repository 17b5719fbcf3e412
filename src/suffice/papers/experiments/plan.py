"""An experiment as a value: what its file says, and the cells that follow from it."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from suffice.cli.local import LocalRun
from suffice.cli.models import Answering
from suffice.cli.options import Retrieval
from suffice.errors import DataError, NotFoundError, SchemaError, did_you_mean
from suffice.llm.prompts import prompt
from suffice.papers.experiments.fields import check_keys, read_fields, toml_name
from suffice.papers.tasr.cells import SETTINGS
from suffice.retrieval import BUNDLED_QUESTIONS, Question, bundled_path, dataset_hash, load_questions
from suffice.statistics import Resampling

__all__ = [
    "PROTOCOLS",
    "SPLITS",
    "Cell",
    "DataChoice",
    "Experiment",
    "ModelChoice",
    "RetrieverChoice",
    "read_experiment",
]

PROTOCOLS = ("tasr",)
"""Whose tables are made."""

SPLITS = ("tune", "eval")

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_TABLES_OF = {"model": "models", "data": "data", "retriever": "retrievers"}
"""Lists of tables in the file, and the fields of an experiment that hold them."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Answering, LocalRun):
    """A model as `suffice record` takes it: what it is, and how it runs on this machine."""

    @property
    def here(self) -> LocalRun:
        """How it runs on this machine."""
        return LocalRun(**{item.name: getattr(self, item.name) for item in fields(LocalRun)})


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """A model of an experiment.

    Attributes:
        name: Name in tables and folders.
        options: As `suffice record` takes them.
        scripted: No model, but a script drawn by seed: the share of right answers from the first round on.
    """

    name: str
    options: ModelOptions = field(default_factory=ModelOptions)
    scripted: tuple[float, ...] = ()

    @property
    def repeats(self) -> bool:
        """Whether another seed may give another answer: at an endpoint or in a script; what runs here is greedy."""
        return bool(self.scripted) or (not self.options.local and self.options.base_url is not None)


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Questions of an experiment.

    Attributes:
        name: Name in tables and folders.
        tune: Questions to fit and choose on: a bundled set or a file; "" with `calibrate_on`.
        eval: Questions to report on.
        tune_limit: Only the first tune questions.
        eval_limit: Only the first eval questions.
        tune_split: Only tune questions that the file says to be of this split.
        eval_split: Likewise for eval questions.
        setting: Source of the evidence, by which the tables are grouped.
        corpus: Name of the passages' source in the tables; default: the name.
        calibrate_on: Name of the data whose tune questions calibrate this one, too; "" = its own.
        retrievers: Names of the retrievers that are used with it; empty = all.
    """

    name: str
    eval: str
    tune: str = ""
    tune_limit: int | None = None
    eval_limit: int | None = None
    tune_split: str | None = None
    eval_split: str | None = None
    setting: str = "distractor"
    corpus: str = ""
    calibrate_on: str = ""
    retrievers: tuple[str, ...] = ()

    def questions(self, split: str, *, everything: bool = False) -> list[Question]:
        """Return the questions of a split; all of them if limits are to be ignored."""
        return list(self._loaded(split)[0][: None if everything else getattr(self, f"{split}_limit")])

    def hashes(self, split: str) -> dict[str, str]:
        """Return the hash of each question of a split with its gold answers and passages, by id."""
        questions, hashes = self._loaded(split)
        return {q.question_id: h for q, h in zip(self.questions(split), hashes, strict=False)} if questions else {}

    def _loaded(self, split: str) -> _Loaded:
        spec = getattr(self, split)
        path = bundled_path(spec) if spec in BUNDLED_QUESTIONS else Path(spec)
        status = path.stat()
        return _loaded(spec, getattr(self, f"{split}_split"), (status.st_mtime_ns, status.st_size))


_Loaded = tuple[tuple[Question, ...], tuple[str, ...]]


@functools.lru_cache(maxsize=64)
def _loaded(spec: str, split: str | None, version: tuple[int, int]) -> _Loaded:
    """Return questions and their hashes; several cells ask the same."""
    del version  # of the file: it may change while a process runs
    questions = tuple(load_questions(spec, split=split))
    return questions, tuple(dataset_hash([question]) for question in questions)


@dataclass(frozen=True, kw_only=True)
class RetrieverChoice:
    """A retriever of an experiment: its name, and options as `suffice record` takes them."""

    name: str
    options: Retrieval = field(default_factory=Retrieval)


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
        concurrency: Questions in flight.
        prices: USD per million tokens: a file, or `list`; None = money is unknown.
        max_loss: The largest mean loss that a certificate bounds.
        confidence: Of that bound.
        tune_sizes: Tune questions at the points of the learning curve; empty = a quarter, a half, all.
        tune_draws: Drawn sets of tune questions at each point.
        resamples: Bootstrap draws.
        level: Coverage of intervals.
        draw_seed: Seed of everything that is drawn from recordings.
        published: The paper's cell that a configuration repeats, by ``MODEL/DATA/RETRIEVER``.
    """

    path: Path
    models: tuple[ModelChoice, ...]
    data: tuple[DataChoice, ...]
    retrievers: tuple[RetrieverChoice, ...]
    published: Mapping[str, str]
    protocol: str = "tasr"
    prompts: tuple[str, ...] = ("answer_first",)
    seeds: tuple[int, ...] = (0,)
    max_rounds: int = 5
    round_zero: bool = False
    concurrency: int = 8
    prices: Path | None = None
    max_loss: float = 0.02
    confidence: float = 0.95
    tune_sizes: tuple[int, ...] = ()
    tune_draws: int = 20
    resamples: int = 1000
    level: float = 0.95
    draw_seed: int = 42

    def __post_init__(self) -> None:
        _among(self.protocol, PROTOCOLS, f"{self.path}: protocol")
        for name in self.prompts:
            prompt(name)
        for key in ("prompts", "seeds"):
            _once(getattr(self, key), f"{self.path}: {key}")
        for key, least in {"max_rounds": 1, "concurrency": 1, "tune_draws": 1, "resamples": 1}.items():
            _at_least(getattr(self, key), least, f"{self.path}: {toml_name(key)}")
        for listed in (self.models, self.data, self.retrievers):
            _once([item.name for item in listed], f"{self.path}: name")
        names = [item.name for item in self.data]
        for item in self.data:
            where = f"{self.path}: data {item.name!r}"
            _among(item.setting, SETTINGS, f"{where}: setting")
            for name in item.retrievers:
                _among(name, [retriever.name for retriever in self.retrievers], f"{where}: retrievers")
            if item.calibrate_on:
                _among(item.calibrate_on, [name for name in names if name != item.name], f"{where}: calibrate-on")
            if bool(item.calibrate_on) == bool(item.tune):
                raise DataError(f"{where}: give either tune, or calibrate-on with the name of other data")
        known = {cell.configuration.rpartition("/")[0] for cell in self.cells()}
        for key in self.published:
            _among(key, known, f"{self.path}: published")

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
            for seed in (self.seeds if model.repeats else self.seeds[:1])
        )

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
    lists = {key: _list_of(data.pop(key, []), path, key) for key in _TABLES_OF}
    for key in ("model", "data"):
        if not lists[key]:
            raise DataError(f"{path}: an experiment needs at least one [[{key}]] table")
    folder = path.resolve().parent
    given: dict[str, Any] = {
        "path": path,
        "models": tuple(_model(entry, where, folder) for entry, where in lists["model"]),
        "data": tuple(_data(entry, where, folder) for entry, where in lists["data"]),
        "retrievers": tuple(_retriever(entry, where, folder) for entry, where in lists["retriever"])
        or (RetrieverChoice(name="bm25"),),
        "published": _texts(data.pop("published", {}), f"{path}: published"),
    }
    return read_fields(Experiment, data, str(path), folder=folder, **given)


def _list_of(entries: Any, path: Path, key: str) -> list[tuple[dict[str, Any], str]]:
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


def _model(entry: dict[str, Any], where: str, folder: Path) -> ModelChoice:
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
    options = read_fields(ModelOptions, entry, where, folder=folder, left_out=("prompt",))
    if not options.local:
        options.here.refuse_unused(f"write local = true ({where})", "device")
    return ModelChoice(name=name, options=_located(options, ("model",) if options.local else (), folder))


def _data(entry: dict[str, Any], where: str, folder: Path) -> DataChoice:
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
    for key in ("tune_limit", "eval_limit"):
        if getattr(choice, key) is not None:
            _at_least(getattr(choice, key), 1, f"{where}: {toml_name(key)}")
    return replace(choice, **files, corpus=choice.corpus or choice.name)


def _retriever(entry: dict[str, Any], where: str, folder: Path) -> RetrieverChoice:
    name = entry.pop("name")
    options = read_fields(Retrieval, entry, where, folder=folder)
    return RetrieverChoice(name=name, options=_located(options, ("dense", "reranker"), folder))


def _located(options: Any, names: Sequence[str], folder: Path) -> Any:
    """Return options in which an id or path is the path if there is one, relative to the file of the experiment."""
    paths = {name: folder / value for name in names if (value := getattr(options, name)) is not None}
    return replace(options, **{name: str(path) for name, path in paths.items() if path.exists()})


def _texts(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise DataError(f"{where} is {value!r:.80}; expected texts by MODEL/DATA/RETRIEVER")
    return dict(value)


def _among(value: str, known: Iterable[str], where: str) -> None:
    allowed = list(dict.fromkeys(known))
    if value not in allowed:
        raise DataError(f"{where} is {value!r}.{did_you_mean(value, allowed)} Allowed: {', '.join(allowed) or 'none'}")


def _once(values: Sequence[Any], where: str) -> None:
    repeated = next((value for value in values if values.count(value) > 1), None)
    if repeated is not None:
        raise DataError(f"{where}: {repeated!r} occurs twice")


def _at_least(value: float, least: float, where: str) -> None:
    if value < least:
        raise DataError(f"{where} is {value!r}; allowed: {least:g} or more")
