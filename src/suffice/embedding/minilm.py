"""The embedder that comes with the package: all-MiniLM-L6-v2 on onnxruntime, without torch."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffice.embedding.base import Vectors, pooled, required_texts
from suffice.errors import DataError, MissingExtraError
from suffice.rounds import Cost

__all__ = ["MAX_TOKENS", "MiniLM"]

MAX_TOKENS = 256
"""Longest chunk in tokens with [CLS] and [SEP], as in training."""

WIDTH = 384
"""Numbers of an embedding."""

_LONGEST_WORD = re.compile(r"\w{100}")  # longer words would all become the unknown token
_CLS, _SEP = 101, 102


class MiniLM:
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
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("the embedded embedder (onnxruntime and tokenizers)", "reader") from error
        folder = Path(path) if path is not None else Path(str(files("suffice") / "models" / "minilm"))
        try:
            weights = (folder / "model.onnx").read_bytes()
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            self._session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime and tokenizers raise bare Exceptions
            raise DataError(
                f"{str(folder)!r} does not contain an embedder ({error}): expected model.onnx and tokenizer.json"
            ) from error
        self.revision = hashlib.sha256(weights).hexdigest()[:16]
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="embedder")

    def __repr__(self) -> str:
        return f"MiniLM(revision={self.revision!r})"

    def chunks(self, text: str) -> list[npt.NDArray[np.int64]]:
        """Return the token ids of a text's chunks, each of shape ``(t,)`` with 3 <= t <= 256; none without words."""
        return self._chunks(required_texts([text]))[0]

    def _chunks(self, texts: list[str]) -> list[list[npt.NDArray[np.int64]]]:
        split = [_LONGEST_WORD.sub(r"\g<0> ", text) for text in texts]
        room = MAX_TOKENS - 2
        return [
            [np.array([_CLS, *ids[start : start + room], _SEP], np.int64) for start in range(0, len(ids), room)]
            for ids in (encoding.ids for encoding in self._tokenizer.encode_batch(split, add_special_tokens=False))
        ]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors, shape ``(len(texts), 384)``; zero for a text without words.

        Raises:
            DataError: `texts` is not a list of texts.
        """
        return self.embed_costed(texts)[0]

    def embed_costed(self, texts: Sequence[str]) -> tuple[Vectors, Cost]:
        """Like `embed`, with the cost: one call, tokens, seconds.

        Raises:
            DataError: `texts` is not a list of texts.
        """
        began = time.perf_counter()
        distinct = list(dict.fromkeys(required_texts(texts)))
        chunks = self._chunks(distinct)
        flat = [chunk for of_text in chunks for chunk in of_text]
        means = list(self._pool.map(self._mean, flat) if len(flat) > 1 else map(self._mean, flat))
        lengths = [len(chunk) for chunk in flat]
        stacked = np.array(means, np.float64).reshape(len(flat), WIDTH)
        vectors = pooled(stacked, lengths, [len(of_text) for of_text in chunks])
        index = {text: row for row, text in enumerate(distinct)}
        rows = [index[text] for text in required_texts(texts)]
        seconds = time.perf_counter() - began
        return vectors[rows], Cost(calls=float(bool(flat)), uncached_tokens=float(sum(lengths)), seconds=seconds)

    def _mean(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        mean: npt.NDArray[np.float32] = self._session.run(["mean"], {"ids": ids[None]})[0][0]
        return mean
