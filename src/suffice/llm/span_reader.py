"""The embedded extractive reader: real answers and real margins, offline, on two CPU cores.

A passage is encoded *alone* with the question, `[CLS] question [SEP] yes no . title : text [SEP]`, and every span of it
(plus the words `yes` and `no`) gets one logit.  All spans of all revealed passages then compete in one softmax.  So the
scores of a passage never depend on its neighbours: round r pays for its new passage only, and reading the same
passages again, in any order and in any batch, gives the same margin.

The training code (`training/`) imports `passage_spans` and `decode` from here and `Featurizer` from `_span_windows`:
one implementation of what the model sees and of how an answer is chosen.  Only numpy is imported with this module; onnxruntime and
tokenizers are imported by the constructor of `SpanReader`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, MissingExtraError
from suffice.llm._span_windows import NO, TITLE, YES, Featurizer, ReaderConfig, Window, clean
from suffice.metrics import answer_key

__all__ = ["Reading", "SpanReader"]

MARGIN_RANGE = (0.0, 30.0)
"""Range of `answer_margin` [nats]; a difference outside is clipped."""

NULL_LOGIT = 0.0
"""Logit of "the answer is not here", a constant of the training objective: span logits are log-odds against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the reader makes of one question and its passages.

    Attributes:
        answer: Text of the best span, `yes` or `no`.  Empty only where no passage has any text.
        answer_margin: Log-probability of the best span minus that of the best span with a *different* normalised
            answer [nats], in [0, 30].  "The answer is not here" is such a different answer, so a best span that is
            less likely than that has margin 0.  NaN (undefined) where no passage has any text.
        answer_probability: Probability mass of all spans with the best span's normalised answer, among all spans and
            "the answer is not here", in [0, 1].  NaN where no passage has any text.
        passage_index: Which passage the best span came from, from 0; -1 where no passage has any text.
        new_tokens: Tokens encoded for this reading, questions and separators included.
        cached_tokens: Tokens whose encoding was remembered from an earlier reading.
    """

    answer: str
    answer_margin: float
    answer_probability: float
    passage_index: int
    new_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class PassageSpans:
    """All that the softmax needs of one passage.

    Attributes:
        logits: Of the best spans, descending, float64, shape (n,).
        answers: Their texts, length n.
        keys: Their normalised forms (`suffice.metrics.answer_key`), length n.
        log_normaliser: Log of the summed exponentials of *all* spans' logits; -inf without spans.
        tokens: Tokens that the encoder read.
    """

    logits: NDArray[np.float64]
    answers: tuple[str, ...]
    keys: tuple[str, ...]
    log_normaliser: float
    tokens: int


def passage_spans(
    windows: Sequence[Window], logits: Sequence[NDArray[np.float32]], title: str, text: str, limit: int
) -> PassageSpans:
    """Keep the best spans of one passage and the normaliser over all of them.

    Args:
        windows: The passage's windows.
        logits: One array per window, shape (t, max_span): element (i, l) scores tokens i..i+l.
        title: The passage's title, from which spans are read back.
        text: The passage's text.
        limit: Spans to keep.
    """
    scores = [_allowed_logits(window, array) for window, array in zip(windows, logits, strict=True)]
    flat = np.concatenate([score.ravel() for score in scores]) if scores else np.zeros(0)
    best = np.argsort(-flat, kind="stable")[:limit]
    best = best[np.isfinite(flat[best])]
    bounds = np.cumsum([0, *(score.size for score in scores)])
    answers = []
    for index in best:
        which = int(np.searchsorted(bounds, index, side="right")) - 1
        start, extra = divmod(int(index - bounds[which]), scores[which].shape[1])
        answers.append(_span_text(windows[which], start, start + extra, title, text))
    tokens = sum(len(window.ids) for window in windows)
    keys = tuple(answer_key(answer) for answer in answers)
    return PassageSpans(flat[best], tuple(answers), keys, _logsumexp(flat), tokens)


def _allowed_logits(window: Window, logits: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.where(window.allowed, logits.astype(np.float64), -np.inf)


def _span_text(window: Window, first: int, last: int, title: str, text: str) -> str:
    segment = int(window.segment[first])
    if segment in {YES, NO}:
        return "yes" if segment == YES else "no"
    source = title if segment == TITLE else text
    found = source[int(window.offsets[first, 0]) : int(window.offsets[last, 1])].strip()
    return clean(found, len(found))


def _logsumexp(logits: NDArray[np.float64]) -> float:
    finite = logits[np.isfinite(logits)]
    if not finite.size:
        return -np.inf
    top = float(finite.max())
    return top + float(np.log(np.exp(finite - top).sum()))


def decode(passages: Sequence[PassageSpans]) -> tuple[str, float, float, int]:
    """Choose the answer among all spans of all passages.

    "The answer is not here" competes too, with the fixed logit that it had in training: it is never returned, but it
    takes its share of the probability, and it counts as a different answer in the margin.

    Returns:
        answer, answer_margin [nats], answer_probability, passage_index, as in `Reading`.
    """
    spans = [
        (float(logit), -index, answer, key)  # of equal logits the earlier passage's wins
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
    """Reads answers out of passages with the model shipped in the package, or with one of your own.

    The model is `model.onnx`, `tokenizer.json` and `config.json` in one folder, as `training/export_reader.py` writes
    them.  Every window runs as a batch of one: its scores are the same whatever else is read, and `threads` windows run
    side by side, which on a CPU is faster than a batch.

    Args:
        path: Folder of the model; by default the one shipped with Suffice.
        threads: Windows encoded at the same time.
        cache_size: (question, passage) pairs whose spans are remembered, about 5 KB each.  0 remembers none.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        DataError: The folder does not hold a model.
    """

    revision: str
    """SHA-256 of the weights, first 16 hex digits."""

    def __init__(self, path: str | Path | None = None, *, threads: int = 2, cache_size: int = 4096) -> None:
        if threads < 1 or cache_size < 0:
            raise DataError(f"threads={threads!r}, cache_size={cache_size!r}: need threads >= 1 and cache_size >= 0")
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("the span reader (onnxruntime and tokenizers)", "reader") from error
        folder = Path(path) if path is not None else Path(str(files("suffice") / "models" / "span_reader"))
        try:
            weights = (folder / "model.onnx").read_bytes()
            settings = json.loads((folder / "config.json").read_text("utf-8"))
            self.config = ReaderConfig(**settings["reader"])
            self._featurizer = Featurizer(Tokenizer.from_file(str(folder / "tokenizer.json")), self.config)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            self._session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime and tokenizers raise bare Exceptions
            raise DataError(
                f"{str(folder)!r} holds no span reader ({error}): expected model.onnx, tokenizer.json and config.json"
            ) from error
        self.revision = hashlib.sha256(weights).hexdigest()[:16]
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="span-reader")
        self._cache: OrderedDict[bytes, PassageSpans] = OrderedDict()
        self._cache_size = cache_size
        self._lock = threading.Lock()

    def read(self, question: str, passages: Sequence[tuple[str, str]]) -> Reading:
        """Answer `question` from `passages`; thread-safe.

        Args:
            question: Its first 64 tokens are read.
            passages: (title, text) in any order.  A long text is read in overlapping windows, up to about 1,000 tokens.

        Raises:
            DataError: There is no passage: the reader cannot answer closed book.
        """
        read, new_tokens = self._spans(question, passages)
        answer, margin, probability, index = decode(read)
        return Reading(
            answer=answer,
            answer_margin=margin,
            answer_probability=probability,
            passage_index=index,
            new_tokens=new_tokens,
            cached_tokens=sum(passage.tokens for passage in read) - new_tokens,
        )

    def spans(self, question: str, passages: Sequence[tuple[str, str]]) -> list[PassageSpans]:
        """Return the best spans of each passage: `decode` of any subset is what `read` would say of it.

        Raises:
            DataError: There is no passage.
        """
        return self._spans(question, passages)[0]

    def _spans(self, question: str, passages: Sequence[tuple[str, str]]) -> tuple[list[PassageSpans], int]:
        """The spans of each passage, and how many tokens were encoded for them now."""
        if not passages:
            raise DataError("the span reader answers from passages and got none: give at least one (title, text)")
        keys = [_cache_key(question, title, text) for title, text in passages]
        known: dict[bytes, PassageSpans] = {}
        with self._lock:
            for key in keys:
                if key in self._cache:
                    self._cache.move_to_end(key)
                    known[key] = self._cache[key]
        # A passage given twice is encoded once.
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


def _cache_key(*texts: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()
