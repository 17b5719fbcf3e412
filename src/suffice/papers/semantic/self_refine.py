"""Recorded drafts of self-refine's sentiment reversal: JSON lines, gzipped or not, one line for each draft.

``{"record_id", "attempt", "review", "target_sentiment", "transferred_review", "transferred_review_sentiment",
"feedback", "log_probability"}``: a model rewrites a review until it sounds, say, "Very positive"; the same model says
what each draft sounds like and what is still wrong.  Round r is attempt r - 1; the review is the only context.

**Verdict.** The model's verdict is prose ("The review sounds glowing. The sentiment is Very positive").
`target_sentiment` is 1 where it names the target anywhere, which gives the published shares; where "sounds very
positive" and "The sentiment is Positive" disagree, and in a denial, it flatters the draft.  `target_sentiment_stated`
is the stricter reading: 1 only where the target follows "sentiment is".

**End.** The published loop runs a fixed number of attempts and has no stopping rule.  Attempts that are missing were
lost, the files do not say why; drafts behind a gap were written by a history that nobody recorded.  So a trajectory is
cut before its first gap, and one that is not as long as the longest ends by `failed`: every replay leaves it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.adapters.base import ImportedRun, ImportedTrajectory
from suffice.embedding import Embedder, identity
from suffice.errors import DataError, NotFoundError
from suffice.files import json_lines
from suffice.rounds import Cost, Passage, Round
from suffice.signals import EMBEDDER

__all__ = ["read_self_refine", "sentiment_reached", "sentiment_stated", "words_and_marks"]

_TEXTS = ("review", "target_sentiment", "transferred_review", "transferred_review_sentiment", "feedback")
_JUDGE = "judge:target_sentiment"
_STATED = re.compile(r"\bsentiment (?:is|appears to be)\b", re.IGNORECASE)
_COUNTED = re.compile(r"\w+|[^\w\s]")
_NAN = float("nan")

_Record = dict[str, Any]


def read_self_refine(path: str | Path, embedder: Embedder | None = None) -> ImportedRun:
    """Read one file of drafts.

    Args:
        path: The JSON lines file, `.jsonl` or `.jsonl.gz`.
        embedder: Embeds the drafts for `semantic_distance`; None = no distances.

    Raises:
        DataError: A line is no such record, an attempt stands there twice, or no record has its first attempt.
        ModelError: The embedder failed.
    """
    path = Path(path)
    if not path.is_file():
        raise NotFoundError(f"no file {str(path)!r}; give a JSON lines file of self-refine's sentiment reversal.")
    records = _records(path)
    longest = max(max(attempts) for attempts in records.values()) + 1
    kept = {record_id: _until_gap(attempts) for record_id, attempts in records.items()}
    kept = {record_id: drafts for record_id, drafts in kept.items() if drafts}
    if not kept:
        raise DataError(f"{path}: no record has attempt 0; expected at least one whole beginning.")
    flat = [draft for drafts in kept.values() for draft in drafts]
    vectors = [None] * len(flat) if embedder is None else embedder.embed([d["transferred_review"] for d in flat])
    told = len({draft["log_probability"] for draft in flat}) > 1
    trajectories, place = [], 0
    for record_id, drafts in kept.items():
        embedded = vectors[place : place + len(drafts)]
        place += len(drafts)
        trajectories.append(_trajectory(record_id, drafts, embedded, complete=len(drafts) == longest, told=told))
    depends = {} if embedder is None else {EMBEDDER: identity(embedder)}
    notes = _notes(records, kept, longest, told=told)
    return ImportedRun(source="self_refine", trajectories=trajectories, notes=notes, depends=depends)


def sentiment_reached(verdict: str, target: str) -> float:
    """Return 1.0 if the verdict names the target sentiment anywhere, in any case, else 0.0.

    >>> sentiment_reached("The review sounds very positive. The sentiment is Positive", "Very positive")
    1.0
    """
    return float(target.strip().casefold() in verdict.casefold())


def sentiment_stated(verdict: str, target: str) -> float:
    """Return 1.0 if the target follows the verdict's last "sentiment is", else 0.0, also where there is none.

    >>> sentiment_stated("The review sounds very positive. The sentiment is Positive", "Very positive")
    0.0
    """
    parts = _STATED.split(verdict)
    return sentiment_reached(parts[-1], target) if len(parts) > 1 else 0.0


def words_and_marks(text: str) -> int:
    """Return how many words and punctuation marks a text has: the files tell no tokens, and this comes near.

    >>> words_and_marks("Try again, please!")
    5
    """
    return len(_COUNTED.findall(text))


def _records(path: Path) -> dict[str, dict[int, _Record]]:
    """Return the drafts by record and attempt, in the order of the file."""
    records: dict[str, dict[int, _Record]] = {}
    for where, record in json_lines(path):
        attempt = _checked(record, where)
        drafts = records.setdefault(str(record["record_id"]), {})
        if attempt in drafts:
            raise DataError(
                f"{where}: attempt {attempt} of record {record['record_id']!r} was read before; remove one."
            )
        if drafts and next(iter(drafts.values()))["review"] != record["review"]:
            raise DataError(f"{where}: record {record['record_id']!r} has another review than before; ids must differ.")
        drafts[attempt] = record
    if not records:
        raise DataError(f"{path}: no record in this file.")
    return records


def _checked(record: _Record, where: str) -> int:
    """Return the attempt; what is not as expected is refused, an unreadable log-probability made NaN."""
    wrong = [name for name in _TEXTS if not isinstance(record.get(name), str)]
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
    record["log_probability"] = float(value) if number and value is not None else None
    return attempt


def _until_gap(attempts: Mapping[int, _Record]) -> list[_Record]:
    kept: list[_Record] = []
    while len(kept) in attempts:
        kept.append(attempts[len(kept)])
    return kept


def _trajectory(
    record_id: str,
    drafts: Sequence[_Record],
    vectors: Sequence[npt.NDArray[np.float32] | None] | npt.NDArray[np.float32],
    *,
    complete: bool,
    told: bool,
) -> ImportedTrajectory:
    review = Passage(passage_id=record_id, title="", text=drafts[0]["review"])
    rounds = tuple(
        Round(
            index=number,
            answer=draft["transferred_review"] if draft["transferred_review"].strip() else None,
            text=draft["transferred_review"],
            passages=(review,),
            feedback=draft["feedback"],
            signals={"log_probability": _NAN if draft["log_probability"] is None else draft["log_probability"]}
            if told
            else {},
            costs=_costs(draft),
            embedding=vector,
        )
        for number, (draft, vector) in enumerate(zip(drafts, vectors, strict=True), start=1)
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


def _costs(draft: _Record) -> dict[str, Cost]:
    """Return one call of writer, critic and judge; prompts are not in the files, so that inputs are unknown."""
    output = {
        "writer": draft["transferred_review"],
        "critic": draft["feedback"],
        _JUDGE: draft["transferred_review_sentiment"],
    }
    return {
        name: Cost(
            calls=1,
            uncached_tokens=_NAN,
            cached_tokens=_NAN,
            output_tokens=words_and_marks(text),
            seconds=_NAN,
        )
        for name, text in output.items()
    }


def _notes(
    records: Mapping[str, Mapping[int, _Record]],
    kept: Mapping[str, Sequence[_Record]],
    longest: int,
    *,
    told: bool,
) -> list[str]:
    gaps = sum(sorted(attempts) != list(range(len(attempts))) for attempts in records.values())
    short = sum(len(drafts) < longest for drafts in kept.values())
    without = len(records) - len(kept)
    notes = [
        f"{len(kept) - short} of {len(records)} records have all {longest} attempts",
        f"{gaps} records miss attempts in between and were cut there; {without} of them lack the first and are left out",
        f"{short} trajectories are shorter than {longest} rounds, nobody says why: 'failed', left out of every replay",
        "target_sentiment is the recorded verdict of the model itself, drawn once at temperature 0.7: a noisy mark",
        "output tokens are words and punctuation marks of the texts; input tokens and seconds are not in the files",
    ]
    if not told:
        notes.append("log_probability is the same everywhere and was left out")
    return notes
