"""Any model of sentence-transformers as an embedder, with its pooling and the hash of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from suffice.common.files import files_hash
from suffice.common.identities import sha256_of
from suffice.errors import MissingExtraError, ModelError
from suffice.policy.embedding import PieceEmbedder, checked_vectors, pieces_of
from suffice.policy.rounds import Cost

_NO_LIMIT = 10**6


class Encoder(Protocol):
    """An encoder of texts as vectors; `sentence_transformers.SentenceTransformer` is one."""

    def encode(self, sentences: list[str], /) -> Any:
        """Return an array of shape ``(len(sentences), dimension)``, finite numbers of any scale."""
        ...


class SentenceTransformersEmbedder(PieceEmbedder):
    """Embeds texts with a sentence-transformers model, loaded on first use; needs the extra `dense`.

    Texts longer than the model allows are cut into pieces, and the vectors of the pieces are averaged, weighted by their
    tokens.

    Args:
        model: Id or folder of the model.
        revision: Revision to load, if `model` is an id; the revision of a folder is the hash of its files.
        prefix: Text before every piece, for models trained with one.
        device: A torch device; None for the default.
    """

    def __init__(
        self, model: str | Path, *, revision: str | None = None, prefix: str = "", device: str | None = None
    ) -> None:
        self._model, self._revision, self._prefix, self._device = str(model), revision, prefix, device

    def __repr__(self) -> str:
        return f"SentenceTransformersEmbedder({self._model!r})"

    @property
    def id(self) -> str:
        """The model's id, or the last two names of its folder."""
        return model_id(self._model)

    @cached_property
    def revision(self) -> str:
        """The hash of the folder's files; for a model id, the requested revision, or `default` if none was requested."""
        folder = Path(self._model)
        return weights_hash(folder) if folder.is_dir() else self._revision or "default"

    @cached_property
    def pooling(self) -> str:
        """The model's own pooling, its longest piece in tokens, and the prefix; this property loads the model."""
        prefix = f", prefix {self._prefix!r}" if self._prefix else ""
        return f"{pooling_of(self._encoder) or 'unknown'}, pieces of {self._longest}{prefix}"

    def _cut(self, texts: list[str]) -> list[list[str]]:
        return [pieces_of(text, lambda piece: self._tokens(piece) <= self._longest) for text in texts]

    def _embed_pieces(self, pieces: list[str]) -> tuple[npt.NDArray[np.float64], Sequence[float], Cost]:
        weights = [max(1, self._tokens(piece)) for piece in pieces]
        # Texts without words have no pieces; call the model all the same, to learn the width of their zero vectors.
        inputs = [self._prefix + piece for piece in pieces] or ["-"]
        vectors = checked_vectors(self.id, self._encoder.encode(inputs), len(inputs))
        return vectors[: len(pieces)], weights, Cost(calls=float(bool(pieces)), uncached_tokens=float(sum(weights)))

    @cached_property
    def _encoder(self) -> Any:
        return load_encoder(self._model, self._revision, self._device)

    @cached_property
    def _longest(self) -> int:
        return int(getattr(self._encoder, "max_seq_length", None) or _NO_LIMIT)

    def _tokens(self, piece: str) -> int:
        """Return the number of tokens of a piece, with prefix and special tokens."""
        text = self._prefix + piece
        return len(self._encoder.tokenizer(text, truncation=False, verbose=False)["input_ids"])


def load_encoder(model: str, revision: str | None, device: str | None, dtype: str = "auto") -> Encoder:
    """Return a sentence-transformers model.

    Args:
        model: Id or folder.
        revision: Revision to load, if `model` is an id.
        device: A torch device; None for the default.
        dtype: The number type of the weights, as transformers names it; `auto` for the model's own type.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model cannot be loaded.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError("a sentence-transformers model", "dense") from error
    try:
        more = {} if dtype == "auto" else {"model_kwargs": {"dtype": dtype}}
        loaded: Encoder = SentenceTransformer(model, revision=revision, device=device, trust_remote_code=False, **more)
    except Exception as error:  # the type depends on the hub client, the file format and torch
        raise ModelError(
            f"the embedding model {model!r} cannot be loaded ({type(error).__name__}: {error!s:.200}); give the id of a "
            "sentence-transformers model, or a folder that contains one"
        ) from error
    return loaded


def pooling_of(encoder: Encoder) -> str | None:
    """Return the name of a sentence-transformers model's pooling of token vectors; None if unknown."""
    modules = getattr(encoder, "modules", None)
    for module in () if modules is None else modules():
        mode = getattr(module, "pooling_mode", None)  # since sentence-transformers 5
        describe = getattr(module, "get_pooling_mode_str", None)  # before
        if mode is None and describe is not None:
            mode = describe()
        if mode is not None:
            return str(mode)
    return None


def model_id(model: str | Path) -> str:
    """Return the id of a model: the last two names of its folder, or its id at the hub unchanged."""
    folder = Path(model)
    return f"{folder.resolve().parent.name}/{folder.resolve().name}" if folder.is_dir() else str(model)


def weights_hash(folder: Path) -> str:
    """Return the first 16 hexadecimal digits of a hash over a model folder's weights and settings."""
    suffixes = (".safetensors", ".bin", ".json")
    files = [file for file in folder.rglob("*") if file.suffix in suffixes and file.is_file()]
    return files_hash(folder, files, sha256_of)
