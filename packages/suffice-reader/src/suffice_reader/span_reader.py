"""The embedded extractive reader: real answers and real margins, offline, on two CPU cores.

Each passage is encoded *alone* with the question, as `[CLS] question [SEP] yes no . title : text [SEP]`.  Every span of the
passage, and each of the words `yes` and `no`, gets one logit.  All spans of all revealed passages then compete in one softmax.  The
scores of a passage therefore do not depend on other passages: each round encodes only its new passage, and the same
passages give the same margin in any order and any batch.

The training code (`training/`) imports `passage_spans` and `decode` from here and `Featurizer` from `_span_windows`, so
input and choice of the answer have one implementation.  This module imports only numpy; the constructor of `SpanReader`
imports onnxruntime and tokenizers.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError
from suffice.policy.metrics import answer_key
from suffice_reader._span_windows import NO, TITLE, YES, Featurizer, ReaderConfig, Window, clean
from suffice_reader.onnx import load_onnx

MARGIN_RANGE = (0.0, 30.0)
"""Range of `answer_margin` [nats]; a difference outside is clipped."""

NULL_LOGIT = 0.0
"""Logit of "the answer is not here", a constant in training: span logits are log-odds against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The answer of the reader to one question with its passages.

    Attributes:
        answer: Text of the best span, `yes` or `no`; empty only if no passage has text.
        answer_margin: Log-probability of the best span minus that of the best span with a *different* normalised
            answer, nats, in [0, 30].  "The answer is not here" counts as a different answer; if it is more likely than
            the best span, the margin is 0.  NaN if no passage has text.
        answer_probability: Probability mass of all spans with the best span's normalised answer, among all spans and
            "the answer is not here", in [0, 1].  NaN if no passage has text.
        passage_index: Index of the passage with the best span; -1 if no passage has text.
        new_tokens: Tokens encoded for this reading, including questions and separators.
        cached_tokens: Tokens whose encoding was cached by an earlier reading.
    """

    answer: str
    answer_margin: float
    answer_probability: float
    passage_index: int
    new_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class PassageSpans:
    """The values of one passage for the softmax.

    Attributes:
        logits: Logits of the best spans, descending, float64, shape (n,).
        answers: Texts of these spans, length n.
        keys: Normalised texts of these spans (`suffice.policy.metrics.answer_key`), length n.
        log_normaliser: Log of the summed exponentials of *all* spans' logits; -inf without spans.
        tokens: Number of tokens encoded.
    """

    logits: NDArray[np.float64]
    answers: tuple[str, ...]
    keys: tuple[str, ...]
    log_normaliser: float
    tokens: int


def passage_spans(
    windows: Sequence[Window], logits: Sequence[NDArray[np.float32]], title: str, text: str, limit: int
) -> PassageSpans:
    """Return the best spans of one passage, and the log-normaliser over all spans of the passage.

    Args:
        windows: The passage's windows.
        logits: One array per window, shape (t, max_span); element (i, l) is the logit of the span of tokens i to i + l.
        title: The passage's title, from which the texts of spans in the title are taken.
        text: The passage's text.
        limit: Number of spans to return.
    """
    scores = [np.where(w.allowed, array.astype(np.float64), -np.inf) for w, array in zip(windows, logits, strict=True)]
    flat = np.concatenate([score.ravel() for score in scores]) if scores else np.zeros(0)
    best = np.argsort(-flat, kind="stable")[:limit]
    best = best[np.isfinite(flat[best])]
    # The spans of all windows are in one flat array; bounds[w], the offset of window w, converts an index back.
    bounds = np.cumsum([0, *(score.size for score in scores)])
    answers = []
    for index in best:
        window_index = int(np.searchsorted(bounds, index, side="right")) - 1
        start, extra = divmod(int(index - bounds[window_index]), scores[window_index].shape[1])
        answers.append(_span_text(windows[window_index], start, start + extra, title, text))
    tokens = sum(len(window.ids) for window in windows)
    keys = tuple(answer_key(answer) for answer in answers)
    return PassageSpans(flat[best], tuple(answers), keys, _logsumexp(flat), tokens)


def _span_text(window: Window, first: int, last: int, title: str, text: str) -> str:
    segment = int(window.segment[first])
    if segment in {YES, NO}:
        return "yes" if segment == YES else "no"
    source = title if segment == TITLE else text
    span = source[int(window.offsets[first, 0]) : int(window.offsets[last, 1])].strip()
    return clean(span, len(span))


def _logsumexp(logits: NDArray[np.float64]) -> float:
    finite = logits[np.isfinite(logits)]
    if not finite.size:
        return -np.inf
    top = float(finite.max())
    return top + float(np.log(np.exp(finite - top).sum()))


def decode(passages: Sequence[PassageSpans]) -> tuple[str, float, float, int]:
    """Choose the answer among all spans of all passages.

    "The answer is not here" competes with a fixed logit from training.  It is never returned, but it takes a share of the
    probability and counts as a different answer in the margin.

    Returns:
        The first four attributes of `Reading`: answer, answer_margin, answer_probability and passage_index.
    """
    spans = [
        (float(logit), -index, answer, key)  # among equal logits, the earlier passage wins
        for index, passage in enumerate(passages)
        for logit, answer, key in zip(passage.logits, passage.answers, passage.keys, strict=True)
    ]
    if not spans:
        return "", np.nan, np.nan, -1
    total = _logsumexp(np.array([NULL_LOGIT, *(passage.log_normaliser for passage in passages)]))
    best, negative_index, answer, key = max(spans, key=lambda span: span[:2])
    same = np.array([logit for logit, _, _, other in spans if other == key])
    different = max((logit for logit, _, _, other in spans if other != key), default=-np.inf)
    margin = float(np.clip(best - max(different, NULL_LOGIT), *MARGIN_RANGE))
    probability = min(1.0, float(np.exp(_logsumexp(same) - total)))
    return answer, margin, probability, -negative_index


class SpanReader:
    """Reads answers from passages with the model in the package, or with your own.

    The model is a folder with `model.onnx`, `tokenizer.json` and `config.json`, as written by `training/export_reader.py`.
    Every window is a batch of its own, so that the scores of a window never depend on other windows.  `threads` windows run
    in parallel, which is faster than a batch on a CPU.

    Args:
        path: Folder of the model; default: the one in the package.
        threads: Windows encoded at the same time.
        cache_size: Pairs of question and passage whose spans are cached, about 5 KB each; 0 turns the cache off.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        DataError: The folder does not contain a span reader.
    """

    revision: str
    """SHA-256 of the weights, first 16 hex digits."""

    def __init__(self, path: str | Path | None = None, *, threads: int = 2, cache_size: int = 4096) -> None:
        if threads < 1 or cache_size < 0:
            raise DataError(f"threads={threads!r}, cache_size={cache_size!r}: need threads >= 1 and cache_size >= 0")
        model = load_onnx(path, "span_reader", "a span reader", read=_reader_config)
        self.revision, self.config, self._session = model.revision, model.settings, model.session
        self._featurizer = Featurizer(model.tokenizer, self.config)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="span-reader")
        self._cache: OrderedDict[bytes, PassageSpans] = OrderedDict()
        self._cache_size = cache_size
        self._lock = threading.Lock()

    def read(self, question: str, passages: Sequence[tuple[str, str]]) -> Reading:
        """Answer `question` from `passages`; thread-safe.

        Args:
            question: The question; its first 64 tokens are read.
            passages: (title, text) in any order.  A long text is read in overlapping windows, up to about 1,000 tokens.

        Raises:
            DataError: `passages` is empty; the reader cannot answer closed book.
        """
        spans, new_tokens = self._spans(question, passages)
        answer, margin, probability, index = decode(spans)
        return Reading(
            answer=answer,
            answer_margin=margin,
            answer_probability=probability,
            passage_index=index,
            new_tokens=new_tokens,
            cached_tokens=sum(passage.tokens for passage in spans) - new_tokens,
        )

    def spans(self, question: str, passages: Sequence[tuple[str, str]]) -> list[PassageSpans]:
        """Return the best spans of each passage.

        `decode` of the spans of some passages gives the same answer as `read` with these passages.

        Raises:
            DataError: `passages` is empty.
        """
        return self._spans(question, passages)[0]

    def _spans(self, question: str, passages: Sequence[tuple[str, str]]) -> tuple[list[PassageSpans], int]:
        """Return the spans of each passage, and the number of tokens encoded in this call."""
        if not passages:
            raise DataError("the span reader cannot answer without passages: give at least one (title, text)")
        keys = [_cache_key(question, title, text) for title, text in passages]
        known: dict[bytes, PassageSpans] = {}
        with self._lock:
            for key in keys:
                if key in self._cache:
                    self._cache.move_to_end(key)
                    known[key] = self._cache[key]
        # Repeated passages are encoded once.
        missing = {key: passage for key, passage in zip(keys, passages, strict=True) if key not in known}
        new = dict(zip(missing, self._encode(question, list(missing.values())), strict=True))
        with self._lock:
            self._cache.update(new)
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        known.update(new)
        return [known[key] for key in keys], sum(passage.tokens for passage in new.values())

    def _encode(self, question: str, passages: Sequence[tuple[str, str]]) -> list[PassageSpans]:
        windows = [self._featurizer.windows(question, title, text) for title, text in passages]
        flat = [window for group in windows for window in group]
        scores = iter(self._pool.map(self._score, flat) if len(flat) > 1 else map(self._score, flat))
        return [
            passage_spans(group, [next(scores) for _ in group], title, text, self.config.candidates)
            for group, (title, text) in zip(windows, passages, strict=True)
        ]

    def _score(self, window: Window) -> NDArray[np.float32]:
        inputs = {"ids": window.ids[None], "types": window.types[None]}
        logits: NDArray[np.float32] = self._session.run(["span_logits"], inputs)[0][0]
        return logits


def _reader_config(folder: Path) -> ReaderConfig:
    return ReaderConfig(**json.loads((folder / "config.json").read_text("utf-8"))["reader"])


def _cache_key(*texts: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()
