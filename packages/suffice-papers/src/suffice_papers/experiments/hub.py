"""Look up models without loading them: in a folder, in the hub's cache, or at the hub."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from suffice.cli.local import hub_name

_PATIENCE_S = 5.0
_WEIGHTS = (".safetensors", ".bin", ".onnx")
"""Endings of files with weights, the preferred one first; of several kinds only one is loaded."""

_DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "float": 4}
_ON = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """The facts about a model that can be known without loading it.

    Attributes:
        problem: The reason why the model cannot be loaded, with a remedy; "" if no such reason is known.
        stored: Bytes of its weights as stored; None if unknown.
        download: Bytes that still have to be downloaded.
        config: The content of its `config.json`; empty if unknown.
    """

    problem: str = ""
    stored: int | None = None
    download: int = 0
    config: Mapping[str, Any] | None = None

    @property
    def needs_code(self) -> bool:
        """True if it can only be loaded with code of its repository."""
        return bool((self.config or {}).get("auto_map"))

    @property
    def shape(self) -> SimpleNamespace:
        """The sizes of the language model's layers, as attributes with the names that they have in the configuration."""
        config = dict(self.config or {})
        text = config.get("text_config")  # of a model that reads images, too
        return SimpleNamespace(**{**config, **(text if isinstance(text, dict) else {})})

    @property
    def width(self) -> int | None:
        """Width of a hidden state, and thus of the vector of a text; None if unknown."""
        value = (self.config or {}).get("hidden_size")
        return value if isinstance(value, int) else None

    def parameters(self) -> float | None:
        """Estimate the number of weights from their bytes and number type; None if unknown."""
        config = self.config or {}
        own = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
        return None if self.stored is None else self.stored / _DTYPE_BYTES.get(own, 4)

    def in_memory(self, dtype: str) -> float | None:
        """Estimate the bytes of the weights in a number type; `auto` keeps the stored type."""
        n = self.parameters()
        return self.stored if dtype == "auto" or n is None else n * _DTYPE_BYTES.get(dtype, 4)


def is_offline() -> bool:
    """Return whether the environment forbids requests to the hub."""
    return any(os.environ.get(name, "").lower() in _ON for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def find_model(name: str, revision: str | None = None) -> FoundModel:
    """Look up a model, given as a folder, `ID` or `ID@REVISION`; only its `config.json` is read."""
    model, own = hub_name(name, revision)
    folder = Path(model)
    if folder.is_dir():
        return _in_folder(folder, "")
    if folder.is_absolute() or model.startswith(".") or model.count("/") > 1:
        return FoundModel(problem=f"the folder {model!r} does not exist: give the folder or the hub id of a model")
    return at_hub(model, own, is_offline(), os.environ.get("HF_ENDPOINT"))


def _in_folder(folder: Path, remedy: str) -> FoundModel:
    """Return the facts about a model in a folder; without weights in the folder, `problem` is set."""
    sizes = {file.name: file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()}
    stored = _weights(sizes)
    if not stored:
        return FoundModel(problem=f"the folder {str(folder)!r} contains no weights{remedy}")
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        config = None
    return FoundModel(stored=stored, config=config if isinstance(config, dict) else None)


def _weights(sizes: Mapping[str, int | None]) -> int:
    """Return the total bytes of a model's weight files; if there are files of several kinds, only the preferred kind counts."""
    for ending in _WEIGHTS:
        if total := sum(size or 0 for name, size in sizes.items() if name.endswith(ending)):
            return total
    return 0


@cache
def at_hub(model: str, revision: str | None, offline: bool, endpoint: str | None) -> FoundModel:
    """Look up a hub id: first in the local cache, and then at the hub unless `offline` is true.

    Results are cached, since cells share models; clear the cache before a new check.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:  # the missing extra is reported elsewhere
        return FoundModel()
    try:
        folder = Path(snapshot_download(model, revision=revision, local_files_only=True))
    except (OSError, ValueError):  # not in the cache, or not a valid id, which the request to the hub will report
        folder = None
    if folder is not None and not (cached := _in_folder(folder, "")).problem:
        return cached
    if offline:
        return FoundModel(
            problem=f"{_named(model, revision)} is not in the cache, and HF_HUB_OFFLINE is set: unset it, or fetch the model with "
            f"`hf download {model}` where there is a network, and give its folder"
        )
    return _asked(model, revision, endpoint)


def _asked(model: str, revision: str | None, endpoint: str | None) -> FoundModel:
    """Ask the hub about a model; only its description and its `config.json` are read."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    api, named = HfApi(endpoint=endpoint), _named(model, revision)
    try:
        info = api.model_info(model, revision=revision, files_metadata=True, timeout=_PATIENCE_S)
        if info.gated:
            api.auth_check(model)
        files = {file.rfilename: file.size for file in info.siblings or ()}
        config = None
        if "config.json" in files:
            with TemporaryDirectory() as folder:
                read = hf_hub_download(model, "config.json", revision=revision, endpoint=endpoint, local_dir=folder)
                config = json.loads(Path(read).read_text("utf-8"))
    except GatedRepoError:
        return FoundModel(
            problem=f"{named} is gated: accept its terms at https://huggingface.co/{model}, and log in with `hf auth login`"
        )
    except RevisionNotFoundError:
        return FoundModel(problem=f"the hub has {model!r}, but not its revision {revision!r}: give one that exists")
    except (RepositoryNotFoundError, HFValidationError):
        return FoundModel(
            problem=f"the hub has no {model!r} that you may read: check the spelling, or log in with `hf auth login` if it is private"
        )
    except Exception as error:  # noqa: BLE001 - the hub's client has changed its library for requests, and so the errors
        return FoundModel(
            problem=f"{named} is not in the cache, and the hub cannot be reached ({type(error).__name__}: {error!s:.120}): connect, or "
            "give the folder of the model"
        )
    stored = _weights(files)
    return FoundModel(stored=stored or None, download=stored, config=config if isinstance(config, dict) else None)


def _named(model: str, revision: str | None) -> str:
    return repr(model if revision is None else f"{model}@{revision}")
