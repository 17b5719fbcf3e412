"""The embedder that comes with the package: all-MiniLM-L6-v2 on onnxruntime, without torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.embedding import PieceEmbedder, required_texts
from suffice.policy.rounds import Cost
from suffice_reader.onnx import load_onnx

MAX_TOKENS = 256
"""Longest chunk in tokens with [CLS] and [SEP], as in training."""

WIDTH = 384
"""Dimensions of an embedding."""

_LONGEST_WORD = re.compile(r"\w{100}")  # longer words would all become the unknown token
_CLS, _SEP = 101, 102


class MiniLM(PieceEmbedder):
    """Embeds texts with all-MiniLM-L6-v2 in 384 dimensions; thread-safe, offline, deterministic.

    A text is cut into chunks of 254 tokens; its vector is the mean over the tokens of all chunks, scaled to length 1.
    Every chunk is encoded alone, so that the vector of a draft does not depend on other texts.

    Args:
        path: Folder of the model; default: the one in the package.
        threads: Chunks encoded at the same time.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        DataError: The folder does not contain the model.
    """

    id = "sentence-transformers/all-MiniLM-L6-v2 (int8 weights)"
    pooling = f"mean over tokens, chunks of {MAX_TOKENS}"

    revision: str
    """SHA-256 of the weights, first 16 hex digits."""

    def __init__(self, path: str | Path | None = None, *, threads: int = 2) -> None:
        if threads < 1:
            raise DataError(f"threads must be at least 1, not {threads!r}")
        model = load_onnx(path, "minilm", "an embedder")
        self.revision, self._tokenizer, self._session = model.revision, model.tokenizer, model.session
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="embedder")

    def __repr__(self) -> str:
        return f"MiniLM(revision={self.revision!r})"

    def chunks(self, text: str) -> list[npt.NDArray[np.int64]]:
        """Return the token ids of a text's chunks, each of shape ``(t,)`` with 3 <= t <= 256; empty for a text without words."""
        return self._cut(required_texts([text]))[0]

    def _cut(self, texts: list[str]) -> list[list[npt.NDArray[np.int64]]]:
        split = [_LONGEST_WORD.sub(r"\g<0> ", text) for text in texts]
        room = MAX_TOKENS - 2
        return [
            [np.array([_CLS, *ids[start : start + room], _SEP], np.int64) for start in range(0, len(ids), room)]
            for ids in (encoding.ids for encoding in self._tokenizer.encode_batch(split, add_special_tokens=False))
        ]

    def _embed_pieces(self, pieces: list[Any]) -> tuple[npt.NDArray[np.float64], Sequence[float], Cost]:
        means = list(self._pool.map(self._mean, pieces) if len(pieces) > 1 else map(self._mean, pieces))
        lengths = [len(chunk) for chunk in pieces]
        vectors = np.array(means, np.float64).reshape(len(pieces), WIDTH)
        return vectors, lengths, Cost(calls=float(bool(pieces)), uncached_tokens=float(sum(lengths)))

    def _mean(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        mean: npt.NDArray[np.float32] = self._session.run(["mean"], {"ids": ids[None]})[0][0]
        return mean
