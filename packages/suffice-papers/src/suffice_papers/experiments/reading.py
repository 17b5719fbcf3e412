"""Read the file of an experiment; errors name the key, the value and what is allowed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from suffice.cli.datasets import Retrieval
from suffice.cli.gating import GateOptions
from suffice.cli.querying import LoopOptions
from suffice.errors import DataError, NotFoundError, SchemaError, did_you_mean
from suffice.loops.retrieval import BUNDLED_QUESTIONS
from suffice_papers.experiments.choices import (
    MODEL_OPTIONS,
    SPLITS,
    DataChoice,
    ModelChoice,
    ModelOptions,
    RetrieverChoice,
    RivalChoice,
)
from suffice_papers.experiments.fields import among, check_keys, missing_file, read_fields, toml_name
from suffice_papers.experiments.plan import PROTOCOLS, Experiment
from suffice_retrieval.commands.stores import is_engine
from suffice_retrieval.indexes.corpus_forms import HUB

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_TABLES_OF = {"model": "models", "data": "data", "retriever": "retrievers", "rival": "rivals"}
"""Lists of tables in the file, and the fields of an experiment that hold them."""


def read_experiment(path: str | Path, *, check_files: bool = True) -> Experiment:
    """Read the file of an experiment; paths in the file are relative to the folder of the file.

    Args:
        path: The file.
        check_files: True to raise if a file named in the experiment does not exist; False to list all such files in
            `Experiment.absent`.

    Raises:
        NotFoundError: The file, or a file named in it, does not exist.
        SchemaError: The file is not TOML, or has an unknown key.
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
    nested, absent = ("path", "absent", *_TABLES_OF.values()), None if check_files else list[str]()
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
        "models": tuple(
            _read_model(entry, where, folder, MODEL_OPTIONS[protocol], absent) for entry, where in lists["model"]
        ),
        "data": tuple(_read_data(entry, where, path, absent) for entry, where in lists["data"]),
        "retrievers": tuple(_read_retriever(entry, where, folder, absent) for entry, where in lists["retriever"])
        or (RetrieverChoice(name="bm25"),),
        "rivals": tuple(_read_rival(entry, where, folder, absent) for entry, where in lists["rival"]),
        "published": _texts(data.pop("published", {}), f"{path}: published"),
    }
    experiment: Experiment = read_fields(Experiment, data, str(path), folder=folder, absent=absent, **given)
    chosen = experiment.cbdr
    others = tuple(str(folder / name) if (folder / name).exists() else name for name in chosen.others)
    experiment = replace(experiment, signals=_located(experiment.signals, ("rerank_signal",), folder))
    experiment = replace(experiment, absent=tuple(absent or ()))
    return replace(experiment, cbdr=_located(replace(chosen, others=others), ("cross_encoder",), folder))


def _tables_at(entries: Any, path: Path, key: str) -> list[tuple[dict[str, Any], str]]:
    """Return the tables in a TOML array, each with its place in the file for messages."""
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


def _read_model(entry: dict[str, Any], where: str, folder: Path, group: Any, absent: list[str] | None) -> ModelChoice:
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
    options = read_fields(group, entry, where, folder=folder, left_out=("prompt",), absent=absent)
    if isinstance(options, ModelOptions) and not options.local:
        options.here.refuse_unused(f"write local = true ({where})", "device")
    return ModelChoice(name=name, options=_located(options, ("model",) if options.local else (), folder))


def _read_data(entry: dict[str, Any], where: str, path: Path, absent: list[str] | None) -> DataChoice:
    folder = path.resolve().parent
    if "source" in entry:
        raise SchemaError(
            f"{where}: 'source' is no key of an experiment: write the questions to a file once, as in suffice convert {entry['source']} "
            "-o FILE --splits tune=100,eval=300, and give tune = FILE, tune-split, eval = FILE and eval-split"
        )
    choice = read_fields(DataChoice, entry, where, folder=folder, absent=absent)
    files: dict[str, Any] = {}
    for split in SPLITS:
        spec = getattr(choice, split)
        if not spec or spec in BUNDLED_QUESTIONS:
            continue
        files[split] = str(folder / spec)
        if not Path(files[split]).is_file():
            near = did_you_mean(spec, BUNDLED_QUESTIONS)
            missing_file(
                files[split],
                f"{where}: {split} is {spec!r}, and there is no file {files[split]!r}.{near} Bundled sets: {', '.join(BUNDLED_QUESTIONS)}. `suffice convert` writes a file of questions",
                absent,
            )
    return replace(choice, **files, corpus=choice.corpus or choice.name)


def _read_retriever(entry: dict[str, Any], where: str, folder: Path, absent: list[str] | None) -> RetrieverChoice:
    name = entry.pop("name")
    options = read_fields(Retrieval, entry, where, folder=folder, absent=absent)
    corpus = options.corpus
    if corpus is not None and not is_engine(corpus) and not corpus.startswith(HUB):
        path = folder / corpus
        if not path.exists():
            missing_file(
                path,
                f"{where}: {str(path)!r} does not exist; paths are relative to the file of the experiment. `suffice convert` writes a published corpus",
                absent,
            )
        options = replace(options, corpus=str(path.resolve()))
    return RetrieverChoice(name=name, options=_located(options, ("dense", "question_encoder", "reranker"), folder))


def _read_rival(entry: dict[str, Any], where: str, folder: Path, absent: list[str] | None) -> RivalChoice:
    groups: dict[str, Any] = {"looping": LoopOptions, "gating": GateOptions}
    keys = {name: [toml_name(item.name) for item in fields(group)] for name, group in groups.items()}
    check_keys(entry, ["name", "rule", "threshold-of", "models", *keys["looping"], *keys["gating"]], where)
    parts = {name: {key: entry.pop(key) for key in listed if key in entry} for name, listed in keys.items()}
    given = {
        name: read_fields(group, parts[name], where, folder=folder, absent=absent) for name, group in groups.items()
    }
    given["gating"] = _located(given["gating"], ("gate_model",), folder)
    rival: RivalChoice = read_fields(RivalChoice, entry, where, folder=folder, absent=absent, **given)
    return rival


def _located(options: Any, names: Sequence[str], folder: Path) -> Any:
    """Resolve options that may be a hub id or a path: a value that exists beside the file becomes a path."""
    paths = {name: folder / value for name in names if (value := getattr(options, name)) is not None}
    return replace(options, **{name: str(path) for name, path in paths.items() if path.exists()})


def _texts(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise DataError(f"{where} is {value!r:.80}; expected texts by MODEL/DATA/RETRIEVER")
    return dict(value)
