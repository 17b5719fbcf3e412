"""Runtime of the bundled models: ONNX on one CPU thread."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from suffice.errors import DataError, MissingExtraError


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxModel:
    """A model in memory.

    Attributes:
        revision: SHA-256 of the weights, first 16 hex digits.
        tokenizer: A `tokenizers.Tokenizer`.
        session: An `onnxruntime.InferenceSession`.
        settings: The model's own settings, as the argument `read` of `load_onnx` returned them.
    """

    revision: str
    tokenizer: Any
    session: Any
    settings: Any = None


def load_onnx(
    path: str | Path | None, name: str, what: str, *, read: Callable[[Path], Any] = lambda _folder: None
) -> OnnxModel:
    """Load the model of a folder with `model.onnx` and `tokenizer.json`.

    Args:
        path: The folder; None for the model `name` in the package.
        name: Name of the model in the package.
        what: Description of the expected contents, for messages.
        read: Reads the model's own settings from the folder.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        DataError: The folder does not contain such a model.
    """
    try:
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError(f"{what} (onnxruntime and tokenizers)", distribution="suffice-reader") from error
    folder = Path(path) if path is not None else Path(str(files("suffice_reader") / "models" / name))
    try:
        weights = (folder / "model.onnx").read_bytes()
        settings = read(folder)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime and tokenizers raise bare Exceptions
        raise DataError(
            f"{str(folder)!r} does not contain {what} ({error}): expected model.onnx, tokenizer.json and, for a reader, "
            "config.json"
        ) from error
    revision = hashlib.sha256(weights).hexdigest()[:16]
    return OnnxModel(revision=revision, tokenizer=tokenizer, session=session, settings=settings)
