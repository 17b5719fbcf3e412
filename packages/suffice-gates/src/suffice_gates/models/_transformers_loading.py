"""Load a transformers model, explain failures to load, and identify its version."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffice.common.files import files_hash
from suffice.common.identities import hub_folder, model_content, sha256_of
from suffice.errors import MissingExtraError, ModelError
from suffice.loops.models.sentence_transformers import model_id
from suffice_gates.models._transformers_batches import release_memory

_LOG = logging.getLogger(__name__)

_PINNED_SUFFIXES = frozenset({".safetensors", ".bin", ".json", ".model", ".jinja", ".txt"})
_UNBOUNDED = 10**9
"""Tokenizers without a limit report 10**30."""

_SINGLE = 4
"""Bytes of a number in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A causal language model in memory, with its tokenizer.

    Several `TransformersModel`s with different layers or prompts may share one `LoadedModel`, so that the weights are
    in memory only once.

    Attributes:
        network: A transformers causal language model, in evaluation mode.
        tokenizer: Its tokenizer.
        id: The model's name.
        revision: Identifies the version of its weights: the commit of the hub, or a hash of all files in a folder.
        content: A hash of the loaded files, the same for a copy in another folder; None if the files are unknown.
        lock: Allows one pass at a time, because the hooks that read the layers belong to the whole model.
    """

    network: Any
    tokenizer: Any
    id: str
    revision: str
    content: str | None = None
    lock: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    @property
    def config(self) -> Any:
        """The configuration of the text model; in a model that also reads images, this is only a part of the configuration."""
        config = self.network.config
        return config.get_text_config() if hasattr(config, "get_text_config") else config

    @property
    def n_layers(self) -> int:
        """The number of layers.

        Raises:
            ModelError: The configuration does not contain it.
        """
        count = getattr(self.config, "num_hidden_layers", None)
        if not isinstance(count, int) or count < 1:
            raise ModelError(
                f"the configuration of {self.id!r} has no valid num_hidden_layers, got {count!r}, so its hidden states "
                "cannot be read: use a causal language model, or EncoderStates"
            )
        return count

    @property
    def context(self) -> int | None:
        """The largest number of tokens in prompt and reply, from the model or its tokenizer; None without a limit."""
        limits = (
            getattr(self.config, "max_position_embeddings", None),
            getattr(self.tokenizer, "model_max_length", None),
        )
        known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < _UNBOUNDED]
        return known[0] if known else None

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end a reply, from the generation configuration or else the tokenizer."""
        settings = getattr(self.network, "generation_config", None)
        for token in (getattr(settings, "eos_token_id", None), self.tokenizer.eos_token_id):
            if token is not None:
                return frozenset(token if isinstance(token, list | tuple) else [token])
        return frozenset()

    @property
    def precision(self) -> str:
        """The number type of the weights, with a remark if they were quantised, or cast after loading.

        A quantised model has other hidden states than the unquantised one. So has a model that was loaded in float32
        and then cast to fewer bits, because the cast rounds the frequencies of the position encoding. Loading with
        ``dtype=`` does not round them.
        """
        dtype = str(self.network.dtype).removeprefix("torch.")
        buffers = self.network.named_buffers()
        if any(name.endswith("inv_freq") and buffer.itemsize < _SINGLE for name, buffer in buffers):
            dtype += ", cast after loading"
        quantization = getattr(self.network.config, "quantization_config", None)
        if quantization is None:
            return dtype
        fields = quantization if isinstance(quantization, Mapping) else vars(quantization)
        method = fields.get("quant_method", "unknown")
        return f"{dtype}, quantised by {getattr(method, 'value', method)}"


@contextmanager
def off_the_device(model: LoadedModel) -> Iterator[None]:
    """Move the weights to the machine's memory while a `with` block runs, to free the GPU.

    A model on the CPU stays where it is.  A model that cannot be moved (quantised, or spread over devices) also stays,
    and a warning is given.
    """
    network, device = model.network, model.network.device
    places = getattr(network, "hf_device_map", None) or {}
    if device.type == "cpu" and not places:
        yield
        return
    if getattr(network.config, "quantization_config", None) is not None or len(set(places.values())) > 1:
        _LOG.warning("%r stays on its device: it is quantised, or spread over several", model.id)
        yield
        return
    with model.lock:
        network.to("cpu")
        release_memory()
        try:
            yield
        finally:
            release_memory()
            network.to(device)


def load_model(
    model: str | Path,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Load a causal language model and its tokenizer without executing code that comes with the model.

    Args:
        model: A folder with the model and its tokenizer, or an id of the Hugging Face hub.
        revision: Revision of an id to load.
        dtype: `auto` (the number type of the stored weights), `float32`, `bfloat16` or `float16`.
        device: A torch device, or `auto` to spread the model over all devices; None for the first GPU, else the CPU.
        options: Further arguments of `from_pretrained` (`attn_implementation`, `quantization_config`).

    Raises:
        MissingExtraError: torch or transformers is not installed.
        ModelError: The model does not exist or cannot be loaded.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError("a local language model", "torch", "suffice-gates") from error
    folder = Path(model)
    target = device or ("cuda" if torch.cuda.is_available() else "cpu")
    placement = {} if target == "cpu" else {"device_map": target if target == "auto" else {"": target}}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(model), revision=revision, trust_remote_code=False)
        network = transformers.AutoModelForCausalLM.from_pretrained(
            str(model), revision=revision, dtype=dtype, **placement, **{"trust_remote_code": False, **(options or {})}
        ).eval()
    except Exception as error:  # the type of error depends on the hub client, the file format and torch
        raise ModelError(_why(str(model), error)) from error
    commit = getattr(network.config, "_commit_hash", None) or revision or "default"
    version = folder_revision(folder) if folder.is_dir() else str(commit)
    place = folder if folder.is_dir() else hub_folder(str(model), str(commit))
    content = None if place is None else model_content(place)
    return LoadedModel(network=network, tokenizer=tokenizer, id=model_id(model), revision=version, content=content)


def folder_revision(folder: Path) -> str:
    """Return 16 hexadecimal digits of a hash of the weights, settings and tokenizer in a model's folder.

    Files in subfolders do not count, because checkpoints and probes may be there.
    """
    return files_hash(folder, [f for f in folder.iterdir() if f.suffix in _PINNED_SUFFIXES and f.is_file()], sha256_of)


def _why(model: str, error: Exception) -> str:
    """Explain why a model cannot be loaded, with advice."""
    cause = f"{type(error).__name__}: {error!s:.300}"
    folder = Path(model)
    if folder.is_dir():
        return (
            f"the model in {model!r} cannot be loaded ({cause}): the folder must contain the output of save_pretrained, "
            "i.e. config.json, weights (*.safetensors) and the tokenizer's files"
        )
    if folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        return f"the folder {model!r} does not exist: give a folder written by save_pretrained, or an id of the hub"
    return (
        f"the model {model!r} cannot be loaded ({cause}): it is not a local folder, and the hub does not have it, or the "
        "hub cannot be reached and the local cache does not contain it. Without a network, give the path of a folder, or "
        "fetch the model elsewhere with  hf download  and set HF_HOME to that cache"
    )
