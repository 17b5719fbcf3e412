"""Marks for the rounds of a recording: every distinct draft once, what was paid for kept, noise beside the result."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.errors import DataError
from suffice.json_text import number_or_none
from suffice.judges.asking import Replies, ask_each
from suffice.judges.marks import SCORE, Draft, Judgement, Panel
from suffice.judges.noise import Noise, noise_of
from suffice.rounds import COST_KINDS, Cost, Passage
from suffice.signals import SIGNALS
from suffice.store import Recording
from suffice.store.schema import cost_column

__all__ = ["GAIN", "Judged", "JudgedPart", "drafts_of", "gains", "judge_recording", "with_columns", "with_marks"]

GAIN = "information_gain"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPart:
    """What became of one mark.

    Attributes:
        mark: Its name, or that of the score.
        mean: Over the rounds where it is defined; NaN if nowhere.
        rounds: Rounds where it is defined, count.
        notes: Why it is undefined elsewhere, with the rounds, count.
        noise: Of the judge, on the sample; None if it was not asked for.
    """

    mark: str
    mean: float
    rounds: int
    notes: Mapping[str, int]
    noise: Noise | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The marks of a recording.

    Attributes:
        columns: By mark (with the score and its gain), and by cost column: one value for each row of the recording's table.
        parts: What became of each mark.
        drafts: Distinct requests, count: drafts by marks.
        asked: Of these, those that went to the endpoint in this run, count.
        repeated: Requests that took more than one reply, since it could not be read, count.
        unreadable: Share of questions of which some mark is undefined, since no reply could be read.
        failed: Messages of calls that may succeed later; the marks are complete only if there is none.
        repeats_cost: What measuring the noise cost; it is in no column.
        metadata: What a recording's file says about it, JSON-ready.
    """

    columns: Mapping[str, Sequence[float]]
    parts: tuple[JudgedPart, ...]
    drafts: int
    asked: int
    repeated: int
    unreadable: float
    failed: tuple[str, ...]
    repeats_cost: Cost
    metadata: Mapping[str, Any] = field(default_factory=dict)


def drafts_of(recording: Recording, passages: Mapping[str, Passage] | None = None) -> list[Draft]:
    """Return what a judge may see of each row of a recording's table, in the table's order.

    Args:
        recording: The recording; its `answer` is the draft, its first gold answer the reference.
        passages: By passage id: recordings hold ids, not texts.  Where one of a round's passages is not among them,
            the round has no contexts: a judge must not mark a draft by half of its evidence.

    Raises:
        DataError: The recording lacks questions or answers.
    """
    table, known = recording.table, passages or {}
    for name in ("question", "answer"):
        if name not in table.column_names:
            raise DataError(f"a judge needs the recording's column {name!r}; there is none")
    drafts = []
    for row in table.select(
        [c for c in ("question", "answer", "golds", "passage_ids") if c in table.column_names]
    ).to_pylist():
        ids, golds = row.get("passage_ids") or [], row.get("golds") or []
        complete = bool(ids) and all(name in known for name in ids)
        drafts.append(
            Draft(
                question=row["question"] or "",
                text=row["answer"],
                contexts=tuple(known[name] for name in ids) if complete else (),
                reference=golds[0] if golds else None,
            )
        )
    return drafts


class _Run:
    """The distinct requests of one run, and their answers."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.wanted: dict[str, tuple[str, Draft, int]] = {}
        self.found: dict[str, Judgement] = {}

    def key(self, mark: str, draft: Draft, repeat: int = 0) -> str:
        """Return what tells one request from another; requests that need no call, too."""
        return json.dumps([mark, self.panel.judges[mark].given(draft, repeat=repeat)], sort_keys=True)

    def want(self, mark: str, draft: Draft, repeat: int = 0) -> None:
        self.wanted.setdefault(self.key(mark, draft, repeat), (mark, draft, repeat))

    async def ask(self, concurrency: int, on_progress: Callable[[int, int], None] | None) -> Replies[str, Judgement]:
        judges = self.panel.judges
        requests = {
            key: partial(judges[mark].judge, draft, repeat=repeat) for key, (mark, draft, repeat) in self.wanted.items()
        }
        replies = await ask_each(requests, concurrency=concurrency, on_progress=on_progress)
        self.found = replies.answers | {
            key: Judgement(mark=math.nan, note=f"the endpoint refused: {error}")
            for key, error in replies.refused.items()
        }
        return replies

    @property
    def asked(self) -> int:
        """Requests that the endpoint answered in this run."""
        return sum(said.cost.calls > 0 and not said.from_cache for said in self.found.values())

    @property
    def answered(self) -> bool:
        """Whether the endpoint ever answered one of the requests."""
        return any(said.cost.calls > 0 for said in self.found.values())

    def said(self, mark: str, draft: Draft, repeat: int = 0) -> Judgement:
        """Return what was said of a draft; of a call that failed, that it failed."""
        return self.found.get(self.key(mark, draft, repeat), Judgement(mark=math.nan, note="the call failed"))

    def scored(self, draft: Draft, repeat: int = 0) -> dict[str, float]:
        """Return the marks of a draft, and the score if there is one."""
        return self.panel.scored({mark: self.said(mark, draft, repeat).mark for mark in self.panel.marks})


async def judge_recording(
    recording: Recording,
    panel: Panel,
    *,
    rng: np.random.Generator,
    passages: Mapping[str, Passage] | None = None,
    repeats: int = 1,
    sample: int = 50,
    concurrency: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> Judged:
    """Judge every distinct draft of a recording once, and a sample of them several times.

    A draft that comes back within a trajectory is judged, and paid for, where it comes first; later rounds have its
    mark at no cost.  A reply that cannot be read is asked for again, as often as the panel's model allows.  A call that
    may succeed later is listed in `failed`; what was answered is in the panel's cache.

    Args:
        recording: The recording.
        panel: Which marks.
        rng: Draws the sample.
        passages: By passage id; see `drafts_of`.
        repeats: How often each draft of the sample is judged; 1 measures no noise.
        sample: Most distinct drafts in the sample.
        concurrency: Calls in flight.
        on_progress: Told how many of how many requests are done.

    Raises:
        DataError: A number is out of range, or the recording lacks questions or answers.
        ModelError: The endpoint refused the credentials, or all that it was asked.
    """
    if repeats < 1 or sample < 1 or concurrency < 1:
        raise DataError(
            f"repeats, sample and concurrency must be at least 1, got {repeats!r}, {sample!r}, {concurrency!r}"
        )
    drafts = drafts_of(recording, passages)
    run = _Run(panel)
    for draft in drafts:
        for mark in panel.marks:
            run.want(mark, draft)
    distinct = len(run.wanted)
    chosen = _drafts_to_repeat(drafts, sample, rng) if repeats > 1 else []
    for draft in chosen:
        for mark in panel.marks:
            for repeat in range(1, repeats):
                run.want(mark, draft, repeat)
    replies = await run.ask(concurrency, on_progress)
    if replies.refused and not run.answered:
        raise next(iter(replies.refused.values()))
    extra = Cost()
    for key, (_, _, repeat) in run.wanted.items():
        if repeat and key in run.found:
            extra = extra + run.found[key].cost
    columns = _mark_columns(recording, run, drafts)
    noise = _noise(run, chosen, repeats) if repeats > 1 else {}
    parts = tuple(_judged_part(run, name, drafts, columns[name], noise.get(name)) for name in panel.columns)
    return Judged(
        columns=columns,
        parts=parts,
        drafts=distinct,
        asked=run.asked,
        repeated=sum(said.attempts > 1 for said in run.found.values()),
        unreadable=_unreadable_share(run, recording, drafts),
        failed=tuple(replies.retryable),
        repeats_cost=extra,
        metadata={"fingerprint": dict(panel.fingerprint()), "marks": [_described(part) for part in parts]},
    )


def _drafts_to_repeat(drafts: Sequence[Draft], size: int, rng: np.random.Generator) -> list[Draft]:
    """Return the distinct drafts that are judged again."""
    distinct = [draft for draft in dict.fromkeys(drafts) if (draft.text or "").strip()]
    return [distinct[place] for place in sorted(rng.permutation(len(distinct))[:size].tolist())]


def _noise(run: _Run, chosen: Sequence[Draft], repeats: int) -> dict[str, Noise]:
    """Return the noise of each mark, and of the score."""
    scores = [[run.scored(draft, repeat) for repeat in range(repeats)] for draft in chosen]
    return {
        name: noise_of(np.array([[score[name] for score in row] for row in scores]).reshape(len(chosen), repeats))
        for name in run.panel.columns
    }


def _mark_columns(recording: Recording, run: _Run, drafts: Sequence[Draft]) -> dict[str, list[float]]:
    """Return the marks and the costs of each row; a request is paid for in the first round that makes it."""
    panel = run.panel
    ids = recording.table.column("question_id").to_pylist()
    rounds = recording.table.column("round").to_pylist()
    columns = {name: [math.nan] * len(drafts) for name in panel.columns}
    costs = {kind: [0.0] * len(drafts) for kind in COST_KINDS}
    paid: set[tuple[str, str]] = set()
    for row in sorted(range(len(drafts)), key=lambda row: int(rounds[row])):
        cost = Cost()
        for mark in panel.marks:
            key = run.key(mark, drafts[row])
            if (ids[row], key) not in paid:
                paid.add((ids[row], key))
                cost = cost + run.said(mark, drafts[row]).cost
        for name, value in run.scored(drafts[row]).items():
            columns[name][row] = value
        for kind, values in costs.items():
            values[row] = getattr(cost, kind)
    if panel.has_score:
        columns[GAIN] = gains(columns[SCORE], ids, rounds)
    return columns | {cost_column(panel.name, kind): values for kind, values in costs.items()}


def gains(scores: Sequence[float], ids: Sequence[str], rounds: Sequence[int]) -> list[float]:
    """Return how much the score rose since the previous draft, as the signal of live sessions does."""
    by_round = {(name, int(r)): score for name, r, score in zip(ids, rounds, scores, strict=True)}
    first = SIGNALS[GAIN].first_round
    return [
        by_round[name, int(r)] - by_round.get((name, int(r) - 1), math.nan) if int(r) >= first else math.nan
        for name, r in zip(ids, rounds, strict=True)
    ]


def _judged_part(
    run: _Run, name: str, drafts: Sequence[Draft], column: Sequence[float], noise: Noise | None
) -> JudgedPart:
    seen = [value for value in column if not math.isnan(value)]
    notes: dict[str, int] = {}
    for draft, value in zip(drafts, column, strict=True):
        if math.isnan(value):
            note = "a mark is undefined" if name == SCORE else run.said(name, draft).note.partition(": ")[0]
            notes[note] = notes.get(note, 0) + 1
    mean = math.fsum(seen) / len(seen) if seen else math.nan
    return JudgedPart(mark=name, mean=mean, rounds=len(seen), notes=notes, noise=noise)


def _described(part: JudgedPart) -> dict[str, Any]:
    noise = part.noise
    return {
        "mark": part.mark,
        "mean": number_or_none(part.mean),
        "rounds": part.rounds,
        "undefined": dict(part.notes),
        "noise": None if noise is None else {name: number_or_none(getattr(noise, name)) for name in noise.__slots__},
    }


def _unreadable_share(run: _Run, recording: Recording, drafts: Sequence[Draft]) -> float:
    """Return the share of questions with a mark that no reply gave."""
    ids = recording.table.column("question_id").to_pylist()
    lost = {
        name
        for name, draft in zip(ids, drafts, strict=True)
        for mark in run.panel.marks
        if (said := run.said(mark, draft)).attempts and math.isnan(said.mark)
    }
    return len(lost) / len(set(ids)) if ids else 0.0


def with_columns(table: pa.Table, columns: Mapping[str, Sequence[float]], *, signals: Collection[str] = ()) -> pa.Table:
    """Return a recording's table with metrics, signals and costs in it; columns of these names are replaced.

    Args:
        table: A recording's table.
        columns: By name, one value for each row, NaN where undefined; ``cost.COMPONENT.KIND`` are costs.
        signals: Which of them are signals; the others are metrics.
    """
    for name, values in columns.items():
        is_cost = name.startswith("cost.")
        unit = {"calls": "count", "seconds": "seconds"}.get(name.rsplit(".", 1)[-1], "tokens") if is_cost else "score"
        kind = "cost" if is_cost else "signal" if name in signals else "metric"
        new = pa.field(name, pa.float64(), metadata={"kind": kind, "unit": unit})
        column = pa.array([number_or_none(value) for value in values], type=pa.float64())
        place = table.schema.get_field_index(name)
        table = table.append_column(new, column) if place < 0 else table.set_column(place, new, column)
    return table


def with_marks(recording: Recording, judged: Judged, panel: Panel) -> tuple[pa.Table, dict[str, Any]]:
    """Return a recording's table and metadata with the marks in them; columns of an earlier judging are replaced.

    The marks are metrics.  A rule may read them, too, and then pays for the whole panel: `signal_components` says so.

    Raises:
        DataError: A call failed, so that the marks are not complete.
    """
    if judged.failed:
        raise DataError(f"{len(judged.failed)} calls failed, the first with: {judged.failed[0]}: judge again")
    table = with_columns(recording.table, judged.columns, signals={GAIN})
    before = recording.metadata
    components = dict(before.get("signal_components") or {}) | dict.fromkeys(panel.columns, panel.name)
    judges = dict(before.get("judges") or {}) | {panel.name: dict(judged.metadata)}
    return table, {**before, "signal_components": components, "judges": judges}
