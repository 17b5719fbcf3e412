"""Compute columns about drafts: similarity to gold answers, and preference over the last draft."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from suffice.errors import DataError, NotFoundError
from suffice.loops.judges.endpoint import ask_each
from suffice.loops.judges.marks import SCORE, Draft
from suffice.loops.judges.pairwise import Comparison, PairwiseJudge
from suffice.loops.judges.recording import GAIN, drafts_of, gains, request_cost_columns
from suffice.policy.metrics import f1
from suffice.policy.rounds import Passage
from suffice.recordings import Recording
from suffice.recordings.shards import Shard

REFERENCES = ("token_f1", "rouge_l", "embedding_similarity")
"""The measures of `reference_columns`."""

PREFERRED = "preferred_to_last"
"""The column of `prefer_to_last`: 1 better than the last draft, 0.5 neither, 0 worse."""

_SCORES = {"first": 1.0, "tie": 0.5, "order_dependent": 0.5, "second": 0.0, "undefined": math.nan}


def reference_columns(
    recording: Recording, names: Sequence[str] = REFERENCES, *, embed: Embed | None = None
) -> dict[str, list[float]]:
    """Return similarities of drafts to gold answers by name, with one value in [0, 1] for each row of the table.

    A negative `embedding_similarity` becomes 0.  NaN without a gold answer.

    Args:
        recording: The recording.
        names: Some of `REFERENCES`.
        embed: Maps texts to vectors; required for `embedding_similarity` and called once for all texts.

    Raises:
        DataError: A name is unknown, the embedder is missing, or the recording lacks answers or gold answers.
    """
    unknown = [name for name in names if name not in REFERENCES]
    if unknown or not names:
        raise NotFoundError(f"unknown similarity {(unknown or ['none'])[0]!r}; allowed: {', '.join(REFERENCES)}")
    for column in ("answer", "golds"):
        if column not in recording.table.column_names:
            raise DataError(f"the recording has no column {column!r}: record questions with gold answers")
    drafts = recording.table.column("answer").to_pylist()
    golds = [answers or [] for answers in recording.table.column("golds").to_pylist()]
    columns: dict[str, list[float]] = {}
    for name in names:
        measure: Callable[[str | None, Sequence[str]], float] = token_f1 if name == "token_f1" else rouge_l
        if name == "embedding_similarity":
            measure = _similarity(drafts, golds, embed)
        columns[name] = [measure(draft, draft_golds) for draft, draft_golds in zip(drafts, golds, strict=True)]
    return columns


def gold_score(recording: Recording, values: Sequence[float]) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Return two signals that measure the similarity to gold answers, and the recording's metadata.

    The signals are the information score, which is the similarity, and the information gain, which is the increase of
    the similarity since the previous draft.  A rule that reads one of them is an **oracle**, because it uses the gold
    answer, which no live run has.  The metadata list both signals under `oracles`, and replays label every policy that
    reads one of them.

    Args:
        recording: The recording.
        values: A column of `reference_columns`.
    """
    ids = recording.table.column("question_id").to_pylist()
    rounds = recording.table.column("round").to_pylist()
    metadata = {**recording.metadata, "oracles": [SCORE, GAIN]}
    return {SCORE: list(values), GAIN: gains(values, ids, rounds)}, metadata


def _similarity(
    drafts: Sequence[str | None], golds: Sequence[Sequence[str]], embed: Embed | None
) -> Callable[[str | None, Sequence[str]], float]:
    """Embed all texts in one call, and return a function that measures `embedding_similarity`."""
    if embed is None:
        raise DataError("embedding_similarity needs an embedder")
    all_texts = (*drafts, *(gold for answers in golds for gold in answers))
    texts = list(dict.fromkeys(text for text in all_texts if text and text.strip()))
    vectors = dict(zip(texts, np.asarray(embed(texts)), strict=True)) if texts else {}

    def measure(draft: str | None, draft_golds: Sequence[str]) -> float:
        similarity = embedding_similarity(draft, draft_golds, lambda batch: np.array([vectors[text] for text in batch]))
        return max(similarity, 0.0) if similarity == similarity else similarity  # noqa: PLR0124 - NaN stays

    return measure


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceColumns:
    """The verdicts of a pairwise judge on every draft against the last draft of its trajectory.

    Attributes:
        columns: `PREFERRED` and its cost columns, one value for each row of the recording's table.
        verdicts: Number of pairs by verdict; equal drafts are not judged and not counted.
        pairs: Number of distinct pairs judged (in the shard, if there is one).
        failed: Messages of failed calls that may succeed later.  If there are any, the columns are incomplete.
        metadata: JSON-ready metadata for the recording's file.
    """

    columns: Mapping[str, Sequence[float]]
    verdicts: Mapping[str, int]
    pairs: int
    failed: tuple[str, ...]
    metadata: Mapping[str, Any]


async def prefer_to_last(
    recording: Recording,
    judge: PairwiseJudge,
    *,
    passages: Mapping[str, Passage] | None = None,
    concurrency: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
    shard: Shard | None = None,
) -> PreferenceColumns:
    """Compare every distinct draft with the last draft of its trajectory, in both orders.

    In a replay, this preference is a metric that needs no gold answers.  It measures the loss or gain of stopping early
    against using the whole budget; the last round has 0.5 by construction.  A verdict that depends on the order of the
    drafts counts as a tie.

    Args:
        recording: The recording.
        judge: Compares two drafts.
        passages: Passages by id; see `drafts_of`.
        concurrency: Number of concurrent pairs.
        on_progress: Called with the number of pairs done and their total.
        shard: Compare only this share of the pairs, to put their replies into the judge's cache; values of other pairs
            are undefined.

    Raises:
        DataError: The recording lacks questions or answers.
        ModelError: The endpoint refused the credentials, or all requests.
    """
    drafts = drafts_of(recording, passages)
    last = _last_drafts(recording, drafts)
    pairs = {
        _pair_key(draft, end): (draft, end)
        for draft, end in zip(drafts, last, strict=True)
        if _drafts_differ(draft, end)
    }
    requests = {
        key: partial(
            judge.compare, draft.question, _draft_text(draft), _draft_text(end), () if end is None else end.contexts
        )
        for key, (draft, end) in pairs.items()
        if shard is None or shard.takes("\n".join(key[:3]))
    }
    replies = await ask_each(requests, concurrency=concurrency, on_progress=on_progress)
    comparisons, refused = replies.answers, replies.refused
    if refused and not comparisons:
        raise next(iter(refused.values()))
    name = f"judge:{PREFERRED}"
    verdicts = Counter(comparison.verdict for comparison in comparisons.values())
    return PreferenceColumns(
        columns=_preference_columns(recording, drafts, last, comparisons, name),
        verdicts=dict(verdicts) | ({"refused": len(refused)} if refused else {}),
        pairs=len(requests),
        failed=tuple(replies.retryable),
        metadata={"fingerprint": {"judge": judge.model.fingerprint(), "prompt_id": judge.prompt.prompt_id}},
    )


def _draft_text(draft: Draft | None) -> str:
    return "" if draft is None else (draft.text or "").strip()


def _drafts_differ(draft: Draft, end: Draft | None) -> bool:
    """Return whether both drafts exist and differ."""
    return _draft_text(draft) not in ("", _draft_text(end)) and end is not None


def _pair_key(draft: Draft, end: Draft | None) -> tuple[Any, ...]:
    return draft.question, _draft_text(draft), _draft_text(end), () if end is None else end.contexts


def _last_drafts(recording: Recording, drafts: Sequence[Draft]) -> list[Draft | None]:
    """Return, for each row, the last non-blank draft of the row's trajectory; None if all its drafts are blank."""
    ids = recording.table.column("question_id").to_pylist()
    rounds = recording.table.column("round").to_pylist()
    last: dict[str, tuple[int, Draft]] = {}
    for name, r, draft in zip(ids, rounds, drafts, strict=True):
        if _draft_text(draft) and (name not in last or int(r) > last[name][0]):
            last[name] = (int(r), draft)
    return [last[name][1] if name in last else None for name in ids]


def _preference_columns(
    recording: Recording,
    drafts: Sequence[Draft],
    last: Sequence[Draft | None],
    comparisons: Mapping[tuple[Any, ...], Comparison],
    component: str,
) -> dict[str, list[float]]:
    """Return the column of preferences, and the columns of the judge's costs.

    If several rounds of a question need the same pair, the first of them is charged for the pair.
    """
    keys = [
        [_pair_key(draft, end)] if _drafts_differ(draft, end) else [] for draft, end in zip(drafts, last, strict=True)
    ]
    values = [0.5 if _draft_text(draft) else math.nan for draft in drafts]
    for row, [key] in ((row, key) for row, key in enumerate(keys) if key):
        values[row] = _SCORES[comparisons[key].verdict] if key in comparisons else math.nan
    costs = request_cost_columns(recording, component, keys, {key: item.cost for key, item in comparisons.items()})
    return {PREFERRED: values} | costs


_OTHER = re.compile(r"[^a-z0-9]+")

Embed = Callable[[list[str]], Any]
"""An embedder that maps texts to an array of shape ``(n_texts, width)``."""


def token_f1(draft: str | None, golds: Sequence[str]) -> float:
    """Return the best token F1 of the official HotpotQA scorer, in [0, 1]; NaN without a gold answer.

    >>> round(token_f1("1979 film The Tempest", ["The Tempest"]), 3)
    0.5
    """
    return f1(draft, golds) if golds else math.nan


def rouge_l(draft: str | None, golds: Sequence[str]) -> float:
    """Return the best ROUGE-L F-measure against a gold answer (Lin, 2004), in [0, 1].

    It uses the longest common subsequence of words, like the package `rouge-score` without stemming.  As in that package,
    words are runs of ASCII letters and digits, so text in other scripts has no words.  A missing draft scores 0.

    >>> rouge_l("the cat sat on the mat", ["the cat is on the mat"]) == 5 / 6
    True

    Returns:
        The score; NaN where no gold answer has a word.
    """
    gold_words = [words for words in map(_lower_words, golds) if words]
    if not gold_words:
        return math.nan
    words = _lower_words(draft or "")
    return max(2 * _common_subsequence(words, gold) / (len(words) + len(gold)) for gold in gold_words)


def _lower_words(text: str) -> list[str]:
    return _OTHER.sub(" ", text.lower()).split()


def _common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, by a bit-parallel algorithm that is fast (Hyyro, 2004)."""
    positions: dict[str, int] = {}
    for position, word in enumerate(a):
        positions[word] = positions.get(word, 0) | 1 << position
    all_bits = (1 << len(a)) - 1
    free = all_bits
    # Bit i of `free` is cleared once word i of a extends the subsequence; the carry of the sum picks the next free match.
    for word in b:
        matched = free & positions.get(word, 0)
        free = (free + matched) | (free - matched)
    return len(a) - (free & all_bits).bit_count()


def embedding_similarity(draft: str | None, golds: Sequence[str], embed: Embed) -> float:
    """Return the largest cosine between the embeddings of the draft and of a gold answer, in [-1, 1].

    Args:
        draft: The draft.
        golds: The gold answers.
        embed: Any embedder.

    Returns:
        The cosine; NaN without a draft or a gold answer, and where an embedding is zero or not finite.

    Raises:
        DataError: The embedder does not return one vector per text.
    """
    usable = [gold for gold in golds if gold.strip()]
    if not (draft or "").strip() or not usable:
        return math.nan
    texts = [draft or "", *usable]
    vectors = np.asarray(embed(texts), dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts):  # noqa: PLR2004
        raise DataError(
            f"the embedder returned an array of shape {vectors.shape} for {len(texts)} texts; expected one vector per text"
        )
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(vectors).all() or not (lengths > 0).all():
        return math.nan
    unit = vectors / lengths[:, None]
    return float(np.clip(unit[1:] @ unit[0], -1.0, 1.0).max())
