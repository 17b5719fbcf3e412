"""Figures of drafts as columns of a recording: likeness to gold answers, and preference over the last draft."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from suffice.errors import DataError, NotFoundError
from suffice.judges.asking import ask_each
from suffice.judges.marks import SCORE, Draft
from suffice.judges.pairwise import Comparison, PairwiseJudge
from suffice.judges.recording import GAIN, drafts_of, gains
from suffice.judges.reference import Embed, embedding_similarity, rouge_l, token_f1
from suffice.rounds import COST_KINDS, Cost, Passage
from suffice.store import Recording
from suffice.store.schema import cost_column

__all__ = ["PREFERRED", "REFERENCES", "Preference", "gold_score", "prefer_to_last", "reference_columns"]

REFERENCES = ("token_f1", "rouge_l", "embedding_similarity")
"""What `reference_columns` can measure."""

PREFERRED = "preferred_to_last"
"""The column of `prefer_to_last`: 1 better than the last draft, 0.5 neither, 0 worse."""

_SCORES = {"first": 1.0, "tie": 0.5, "order_dependent": 0.5, "second": 0.0, "undefined": math.nan}


def reference_columns(
    recording: Recording, names: Sequence[str] = REFERENCES, *, embed: Embed | None = None
) -> dict[str, list[float]]:
    """Return how near each draft is to its gold answers, by name, one value for each row of the table, in [0, 1].

    An `embedding_similarity` below zero is 0: no likeness.  NaN without a gold answer.

    Args:
        recording: The recording.
        names: Which of `REFERENCES`.
        embed: Texts to vectors; needed for `embedding_similarity`, and called once for all texts.

    Raises:
        DataError: An unknown name, no embedder, or a recording without answers or gold answers.
    """
    unknown = [name for name in names if name not in REFERENCES]
    if unknown or not names:
        raise NotFoundError(
            f"a likeness to gold answers is one of {', '.join(REFERENCES)}, not {(unknown or ['none'])[0]!r}"
        )
    for column in ("answer", "golds"):
        if column not in recording.table.column_names:
            raise DataError(f"the recording has no column {column!r}: record questions with gold answers")
    drafts = recording.table.column("answer").to_pylist()
    golds = [found or [] for found in recording.table.column("golds").to_pylist()]
    columns: dict[str, list[float]] = {}
    for name in names:
        measure: Callable[[str | None, Sequence[str]], float] = token_f1 if name == "token_f1" else rouge_l
        if name == "embedding_similarity":
            measure = _similarity(drafts, golds, embed)
        columns[name] = [measure(draft, wanted) for draft, wanted in zip(drafts, golds, strict=True)]
    return columns


def gold_score(recording: Recording, values: Sequence[float]) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Return a likeness to gold answers as the information score, with its gain, and the recording's metadata.

    A rule that reads such a gain is an **oracle**: it decides with the gold answer, which no live run has.  The metadata
    says so (`oracles`), and the protocol labels every policy that reads it.

    Args:
        recording: The recording.
        values: One of `reference_columns`.
    """
    ids = recording.table.column("question_id").to_pylist()
    rounds = recording.table.column("round").to_pylist()
    metadata = {**recording.metadata, "oracles": [SCORE, GAIN]}
    return {SCORE: list(values), GAIN: gains(values, ids, rounds)}, metadata


def _similarity(
    drafts: Sequence[str | None], golds: Sequence[Sequence[str]], embed: Embed | None
) -> Callable[[str | None, Sequence[str]], float]:
    """Return the measure by embedding, from vectors of all texts that are made at once."""
    if embed is None:
        raise DataError("embedding_similarity needs an embedder")
    given = (*drafts, *(gold for found in golds for gold in found))
    texts = list(dict.fromkeys(text for text in given if text and text.strip()))
    vectors = dict(zip(texts, np.asarray(embed(texts)), strict=True)) if texts else {}

    def measure(draft: str | None, wanted: Sequence[str]) -> float:
        found = embedding_similarity(draft, wanted, lambda asked: np.array([vectors[text] for text in asked]))
        return max(found, 0.0) if found == found else found  # noqa: PLR0124 - NaN stays

    return measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """What a pairwise judge said of every draft against the last one of its trajectory.

    Attributes:
        columns: `PREFERRED` and its cost columns, one value for each row of the recording's table.
        verdicts: Pairs by verdict, count; equal drafts, which nobody is asked about, are not among them.
        pairs: Distinct pairs that were asked about, count.
        failed: Messages of calls that may succeed later; the columns are complete only if there is none.
        metadata: What a recording's file says about it, JSON-ready.
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
) -> Preference:
    """Ask of every distinct draft whether it is better than the last one of its trajectory, in both orders.

    As a metric of a replay it is what stopping early gives away or wins against the whole budget, without a gold
    answer: the last round has 0.5 by construction.  A verdict that depends on the order counts as neither.

    Args:
        recording: The recording.
        judge: Compares two drafts.
        passages: By passage id; see `drafts_of`.
        concurrency: Pairs in flight.
        on_progress: Told how many of how many pairs are done.

    Raises:
        DataError: The recording lacks questions or answers.
        ModelError: The endpoint refused the credentials, or everything that it was asked.
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
    }
    replies = await ask_each(requests, concurrency=concurrency, on_progress=on_progress)
    found, refused = replies.answers, replies.refused
    if refused and not found:
        raise next(iter(refused.values()))
    name = f"judge:{PREFERRED}"
    verdicts = Counter(comparison.verdict for comparison in found.values())
    return Preference(
        columns=_preference_columns(recording, drafts, last, found, name),
        verdicts=dict(verdicts) | ({"refused": len(refused)} if refused else {}),
        pairs=len(pairs),
        failed=tuple(replies.retryable),
        metadata={"fingerprint": {"judge": judge.model.fingerprint(), "prompt_id": judge.prompt.prompt_id}},
    )


def _draft_text(draft: Draft | None) -> str:
    return "" if draft is None else (draft.text or "").strip()


def _drafts_differ(draft: Draft, end: Draft | None) -> bool:
    """Return whether there are two drafts to compare."""
    return _draft_text(draft) not in ("", _draft_text(end)) and end is not None


def _pair_key(draft: Draft, end: Draft | None) -> tuple[Any, ...]:
    """Return what tells one pair from another."""
    return draft.question, _draft_text(draft), _draft_text(end), () if end is None else end.contexts


def _last_drafts(recording: Recording, drafts: Sequence[Draft]) -> list[Draft | None]:
    """Return for each row the last draft of its trajectory that is not blank; None if it has none."""
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
    found: Mapping[tuple[Any, ...], Comparison],
    component: str,
) -> dict[str, list[float]]:
    """Return the column and its costs; a pair is paid for in the first round of a question that needs it."""
    ids = recording.table.column("question_id").to_pylist()
    rounds = recording.table.column("round").to_pylist()
    values = [math.nan] * len(drafts)
    costs = {kind: [0.0] * len(drafts) for kind in COST_KINDS}
    paid: set[Any] = set()
    for row in sorted(range(len(drafts)), key=lambda row: int(rounds[row])):
        if not _drafts_differ(drafts[row], last[row]):
            values[row] = 0.5 if _draft_text(drafts[row]) else math.nan
            continue
        key = _pair_key(drafts[row], last[row])
        comparison = found.get(key)
        if comparison is None:
            continue
        values[row] = _SCORES[comparison.verdict]
        spent = Cost() if (ids[row], key) in paid else comparison.cost
        paid.add((ids[row], key))
        for kind, column in costs.items():
            column[row] = getattr(spent, kind)
    return {PREFERRED: values} | {cost_column(component, kind): column for kind, column in costs.items()}
