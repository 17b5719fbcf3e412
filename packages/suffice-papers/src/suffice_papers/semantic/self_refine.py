"""Recorded drafts of self-refine's sentiment reversal: JSON lines, gzipped or not, one line for each draft.

The keys are ``{"record_id", "attempt", "review", "target_sentiment", "transferred_review",
"transferred_review_sentiment", "feedback", "log_probability"}``.  A model rewrites a review until it sounds, for
example, "Very positive".  The same model judges the sentiment of each draft and criticises it.  Round r is attempt r -
1; the review is the only context.

**Verdict.** The model's verdict is prose ("The review sounds glowing. The sentiment is Very positive"). The metric
`target_sentiment` is 1 if the verdict contains the target anywhere, which gives the published shares.  It is too
favourable for a denial, and for a verdict that contradicts itself, such as "sounds very positive. The sentiment is
Positive".  The metric `target_sentiment_stated` is stricter: 1 only if the target follows "sentiment is".

**End.** The published loop runs a fixed number of attempts and has no stopping rule.  Some attempts are missing for
unknown reasons, and drafts after a gap follow a history that was not recorded.  So a trajectory is cut before its first
gap.  Trajectories shorter than the longest end by `failed`, so that every replay leaves them out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.files import json_lines
from suffice.errors import DataError
from suffice.importers import ImportedRun, ImportedTrajectory, one_call, recognised_by
from suffice.policy.embedding import Embedder, identity
from suffice.policy.rounds import Cost, Passage, Round
from suffice.policy.signals import EMBEDDER
from suffice_papers.importing import existing

_TEXT_FIELDS = ("review", "target_sentiment", "transferred_review", "transferred_review_sentiment", "feedback")
_JUDGE = "judge:target_sentiment"
_STATED = re.compile(r"\bsentiment (?:is|appears to be)\b", re.IGNORECASE)
_COUNTED = re.compile(r"\w+|[^\w\s]")

_Record = dict[str, Any]


@recognised_by(lambda head: head.has("record_id", "attempt", "transferred_review"))
def read_self_refine(path: str | Path, embedder: Embedder | None = None) -> ImportedRun:
    """Read one file of drafts.

    Args:
        path: The JSON lines file, `.jsonl` or `.jsonl.gz`.
        embedder: Embeds the drafts for `semantic_distance`; None to leave out distances.

    Raises:
        DataError: A line does not have this form, an attempt occurs twice, or no record has its first attempt.
        ModelError: The embedder failed.
    """
    path = existing(path, "a JSON lines file of self-refine's sentiment reversal")
    records = _records(path)
    longest = max(max(attempts) for attempts in records.values()) + 1
    beginnings = {record_id: _until_gap(attempts) for record_id, attempts in records.items()}
    beginnings = {record_id: drafts for record_id, drafts in beginnings.items() if drafts}
    if not beginnings:
        raise DataError(f"{path}: no record has attempt 0; expected at least one record that has.")
    flat = [draft for drafts in beginnings.values() for draft in drafts]
    vectors = [None] * len(flat) if embedder is None else embedder.embed([d["transferred_review"] for d in flat])
    varies = len({draft["log_probability"] for draft in flat}) > 1
    trajectories, place = [], 0
    for record_id, drafts in beginnings.items():
        embedded = vectors[place : place + len(drafts)]
        place += len(drafts)
        signals = [{"log_probability": draft["log_probability"]} if varies else {} for draft in drafts]
        trajectories.append(_drafts_trajectory(record_id, drafts, signals, embedded, complete=len(drafts) == longest))
    depends = {} if embedder is None else {EMBEDDER: identity(embedder)}
    notes = _import_notes(records, beginnings, longest)
    if not varies:
        notes.append("log_probability is the same everywhere and was left out")
    return ImportedRun(source="self_refine", trajectories=trajectories, notes=notes, depends=depends)


def sentiment_reached(verdict: str, target: str) -> float:
    """Return 1.0 if the verdict names the target sentiment anywhere, in upper or lower case, else 0.0.

    >>> sentiment_reached("The review sounds very positive. The sentiment is Positive", "Very positive")
    1.0
    """
    return float(target.strip().casefold() in verdict.casefold())


def sentiment_stated(verdict: str, target: str) -> float:
    """Return 1.0 if the target follows the verdict's last "sentiment is", else 0.0; 0.0 also without that phrase.

    >>> sentiment_stated("The review sounds very positive. The sentiment is Positive", "Very positive")
    0.0
    """
    parts = _STATED.split(verdict)
    return sentiment_reached(parts[-1], target) if len(parts) > 1 else 0.0


def words_and_marks(text: str) -> int:
    """Count the words and punctuation marks of a text, to estimate its tokens, since the files do not contain them.

    >>> words_and_marks("Try again, please!")
    5
    """
    return len(_COUNTED.findall(text))


def _records(path: Path) -> dict[str, dict[int, _Record]]:
    """Return the drafts by record and attempt, in the order of the file."""
    records: dict[str, dict[int, _Record]] = {}
    for where, record in json_lines(path):
        attempt = _attempt_of(record, where)
        drafts = records.setdefault(str(record["record_id"]), {})
        if attempt in drafts:
            raise DataError(
                f"{where}: attempt {attempt} of record {record['record_id']!r} was read before; remove one."
            )
        if drafts and next(iter(drafts.values()))["review"] != record["review"]:
            raise DataError(f"{where}: record {record['record_id']!r} has another review than before; ids must differ.")
        drafts[attempt] = record
    if not records:
        raise DataError(f"{path}: the file contains no record.")
    return records


def _attempt_of(record: _Record, where: str) -> int:
    """Check a record and return the number of its attempt; an unreadable log-probability becomes NaN."""
    wrong = [name for name in _TEXT_FIELDS if not isinstance(record.get(name), str)]
    if wrong:
        raise DataError(f"{where}: {', '.join(wrong)} must be text, as self-refine writes it.")
    if not record["target_sentiment"].strip():
        raise DataError(f"{where}: target_sentiment is empty; every verdict would name it.")
    record_id, attempt = record.get("record_id"), record.get("attempt")
    if isinstance(record_id, bool) or not isinstance(record_id, int | str) or not str(record_id).strip():
        raise DataError(f"{where}: record_id is {record_id!r:.60}; expected a number or a text.")
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 0:
        raise DataError(f"{where}: attempt is {attempt!r:.60}; expected 0, 1, 2, ...")
    value = record.get("log_probability")
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    record["log_probability"] = float(value) if number else math.nan  # type: ignore[arg-type]
    return attempt


def _until_gap(attempts: Mapping[int, _Record]) -> list[_Record]:
    end = next(number for number in range(len(attempts) + 1) if number not in attempts)
    return [attempts[number] for number in range(end)]


def _drafts_trajectory(
    record_id: str,
    drafts: Sequence[_Record],
    signals: Sequence[Mapping[str, float]],
    vectors: Sequence[npt.NDArray[np.float32] | None] | npt.NDArray[np.float32],
    *,
    complete: bool,
) -> ImportedTrajectory:
    review = Passage(passage_id=record_id, title="", text=drafts[0]["review"])
    rounds = tuple(
        Round(
            index=number,
            answer=draft["transferred_review"] if draft["transferred_review"].strip() else None,
            text=draft["transferred_review"],
            passages=(review,),
            feedback=draft["feedback"],
            signals=known,
            costs=_draft_costs(draft),
            embedding=vector,
        )
        for number, (draft, known, vector) in enumerate(zip(drafts, signals, vectors, strict=True), start=1)
    )
    return ImportedTrajectory(
        question_id=record_id,
        cluster=record_id,
        question=review.text,
        rounds=rounds,
        end="max_rounds" if complete else "failed",
        metrics=tuple(_metrics(draft) for draft in drafts),
        extras=tuple({"verdict": draft["transferred_review_sentiment"]} for draft in drafts),
        labels={"target": drafts[0]["target_sentiment"]},
    )


def _metrics(draft: _Record) -> dict[str, float]:
    verdict, target = draft["transferred_review_sentiment"], draft["target_sentiment"]
    return {
        "target_sentiment": sentiment_reached(verdict, target),
        "target_sentiment_stated": sentiment_stated(verdict, target),
    }


def _draft_costs(draft: _Record) -> dict[str, Cost]:
    """Return the costs of a draft: one call each of writer, critic and judge.

    Input tokens are unknown, because the files do not contain the prompts.
    """
    output = {
        "writer": draft["transferred_review"],
        "critic": draft["feedback"],
        _JUDGE: draft["transferred_review_sentiment"],
    }
    return {name: replace(one_call(), output_tokens=words_and_marks(text)) for name, text in output.items()}


def _import_notes(
    records: Mapping[str, Mapping[int, _Record]],
    beginnings: Mapping[str, Sequence[_Record]],
    longest: int,
) -> list[str]:
    gaps = sum(sorted(attempts) != list(range(len(attempts))) for attempts in records.values())
    short = sum(len(drafts) < longest for drafts in beginnings.values())
    without = len(records) - len(beginnings)
    return [
        f"{len(beginnings) - short} of {len(records)} records have all {longest} attempts",
        f"{gaps} records miss attempts in between and were cut there; {without} of them lack the first and are left out",
        f"{short} trajectories are shorter than {longest} rounds, the files do not say why: 'failed', left out of every replay",
        "target_sentiment is the recorded verdict of the model itself, drawn once at temperature 0.7: a noisy mark",
        "output tokens are words and punctuation marks of the texts; input tokens and seconds are not in the files",
    ]
