"""Loading a transformers model: what goes wrong there, and what tells two models apart."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffice.errors import MissingExtraError, ModelError

__all__ = ["LoadedModel", "folder_revision", "load_model"]

_PINNED = frozenset({".safetensors", ".bin", ".json", ".model", ".jinja", ".txt"})
_UNBOUNDED = 10**9
"""Tokenizers that know no limit say 10**30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A causal language model in memory, with its tokenizer.

    Several `TransformersModel`s may share one, with other layers or prompts: the weights are held once.

    Attributes:
        network: A transformers causal language model, in evaluation mode.
        tokenizer: Its tokenizer.
        id: The model's name.
        revision: What tells two versions of its weights apart.
        lock: One pass at a time: the layers are read by hooks.
    """

    network: Any
    tokenizer: Any
    id: str
    revision: str
    lock: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    @property
    def config(self) -> Any:
        """The configuration of the text model, also where the model reads images too."""
        config = self.network.config
        return config.get_text_config() if hasattr(config, "get_text_config") else config

    @property
    def n_layers(self) -> int:
        """How many layers it has.

        Raises:
            ModelError: Its configuration does not tell.
        """
        count = getattr(self.config, "num_hidden_layers", None)
        if not isinstance(count, int) or count < 1:
            raise ModelError(
                f"the configuration of {self.id!r} names no num_hidden_layers, got {count!r}: its hidden states cannot "
                "be told apart. Use a model of the causal-language-model kind, or EncoderStates"
            )
        return count

    @property
    def context(self) -> int | None:
        """Most tokens of prompt and reply together: the model's word, else its tokenizer's; None without a limit."""
        limits = (
            getattr(self.config, "max_position_embeddings", None),
            getattr(self.tokenizer, "model_max_length", None),
        )
        known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < _UNBOUNDED]
        return known[0] if known else None

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end a reply, as the model's generation configuration names them, else its tokenizer."""
        settings = getattr(self.network, "generation_config", None)
        for given in (getattr(settings, "eos_token_id", None), self.tokenizer.eos_token_id):
            if given is not None:
                return frozenset(given if isinstance(given, list | tuple) else [given])
        return frozenset()

    @property
    def precision(self) -> str:
        """How its weights are held: the type of its numbers, and the method where they are quantised.

        Quantised weights give the hidden states of the quantised model: others than those of the full one.
        """
        dtype = str(self.network.dtype).removeprefix("torch.")
        quantization = getattr(self.network.config, "quantization_config", None)
        if quantization is None:
            return dtype
        given = quantization if isinstance(quantization, Mapping) else vars(quantization)
        method = given.get("quant_method", "unknown")
        return f"{dtype}, quantised by {getattr(method, 'value', method)}"


def load_model(
    model: str | Path,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Load a causal language model and its tokenizer; no code that comes with the model is executed.

    Args:
        model: A folder that holds both, or an id of the Hugging Face hub.
        revision: Which revision of an id to load.
        dtype: `auto` (as the weights are stored), `float32`, `bfloat16` or `float16`.
        device: As torch names it, or `auto` to spread the model over all there are; None for the first GPU, else the
            processor.
        options: Further arguments of `from_pretrained` (`attn_implementation`, `quantization_config`).

    Raises:
        MissingExtraError: torch or transformers is not installed.
        ModelError: There is no such model, or it cannot be loaded.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError("a local language model", "torch") from error
    folder = Path(model)
    placed = device or ("cuda" if torch.cuda.is_available() else "cpu")
    place = {} if placed == "cpu" else {"device_map": placed if placed == "auto" else {"": placed}}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(model), revision=revision, trust_remote_code=False)
        network = transformers.AutoModelForCausalLM.from_pretrained(
            str(model), revision=revision, dtype=dtype, **place, **{"trust_remote_code": False, **(options or {})}
        ).eval()
    except Exception as error:  # what it raises depends on the hub client, the file format and torch
        raise ModelError(_why(str(model), error)) from error
    if folder.is_dir():
        resolved = folder.resolve()
        return LoadedModel(
            network=network,
            tokenizer=tokenizer,
            id=f"{resolved.parent.name}/{resolved.name}",
            revision=folder_revision(folder),
        )
    found = getattr(network.config, "_commit_hash", None) or revision or "default"
    return LoadedModel(network=network, tokenizer=tokenizer, id=str(model), revision=str(found))


def folder_revision(folder: Path) -> str:
    """Return the first 16 hexadecimal digits of a hash over a model folder's weights, settings and tokenizer.

    Files in folders below it do not count: checkpoints and probes may lie there.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in _PINNED and file.is_file():
            digest.update(file.name.encode() + b"\x00")
            with file.open("rb") as handle:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()[:16]


def _why(model: str, error: Exception) -> str:
    """Return what went wrong and what to do."""
    said = f"{type(error).__name__}: {error!s:.300}"
    folder = Path(model)
    if folder.is_dir():
        return (
            f"the model in {model!r} cannot be loaded ({said}). The folder must hold what save_pretrained writes: "
            "config.json, weights (*.safetensors) and the tokenizer's files"
        )
    if folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        return f"there is no folder {model!r}: give the folder that save_pretrained wrote, or an id of the hub"
    return (
        f"the model {model!r} cannot be loaded: it is no folder here, and the hub gives no such model, or cannot be "
        f"reached and the local cache does not hold it ({said}). Without a network pass the path of a folder that "
        "holds it, or fetch it where there is one with  hf download  and set HF_HOME to its cache"
    )
