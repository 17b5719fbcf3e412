"""Judge the rounds of a recording, each distinct draft once, and measure the judge's noise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.json_text import number_or_none
from suffice.common.results import jsonable
from suffice.errors import DataError
from suffice.loops.judges.endpoint import Replies, ask_each
from suffice.loops.judges.marks import SCORE, Draft, Judgement, Panel
from suffice.loops.judges.prompts import VERDICTS
from suffice.policy.rounds import COST_KINDS, Cost, Passage
from suffice.policy.signals import SIGNALS
from suffice.recordings import Recording
from suffice.recordings.schema import cost_column
from suffice.recordings.shards import Shard

GAIN = "information_gain"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkSummary:
    """The summary of one mark.

    Attributes:
        mean: Mean over rounds where the mark is defined; NaN if it is undefined in all rounds.
        notes: Number of rounds where the mark is undefined, by reason.
        noise: Noise of the judge on the sample; None if it was not measured.
    """

    mark: str
    mean: float
    rounds: int
    notes: Mapping[str, int]
    noise: Noise | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingMarks:
    """The marks of a recording.

    Attributes:
        columns: Columns by name, with one value for each row of the recording's table: marks, the score and its gain, costs.
        parts: One summary per mark.
        drafts: Number of distinct requests (drafts times marks).
        requests_sent: Number of requests sent to the endpoint in this run.
        repeated: Number of requests that were sent again because a reply could not be read.
        unreadable: Share of questions with a mark for which no reply could be read.
        failed: Messages of failed calls that may succeed later.  If there are any, the marks are incomplete.
        repeats_cost: Cost of measuring the noise, which is not in the columns.
        metadata: JSON-ready metadata for the recording's file.
    """

    columns: Mapping[str, Sequence[float]]
    parts: tuple[MarkSummary, ...]
    drafts: int
    requests_sent: int
    repeated: int
    unreadable: float
    failed: tuple[str, ...]
    repeats_cost: Cost
    metadata: Mapping[str, Any] = field(default_factory=dict)


def drafts_of(recording: Recording, passages: Mapping[str, Passage] | None = None) -> list[Draft]:
    """Return one draft for each row of a recording's table, as a judge sees it.

    Args:
        recording: The recording; a row's `answer` is the draft, and the first gold answer is the reference.
        passages: Passages by id, because recordings contain ids and not texts.  If a passage of a round is missing,
            the round has no contexts: a judge must not mark a draft by a part of its evidence.

    Raises:
        DataError: The recording lacks questions or answers.
    """
    table, known = recording.table, passages or {}
    for name in ("question", "answer"):
        if name not in table.column_names:
            raise DataError(f"the recording has no column {name!r}, which a judge needs")
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
    """The distinct requests of one run, and their outcomes."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.requests: dict[str, tuple[str, Draft, int]] = {}
        self.judgements: dict[str, Judgement] = {}

    def key(self, mark: str, draft: Draft, repeat: int = 0) -> str:
        """Return the key of a request; a mark with missing inputs, for which no request is sent, has a key too."""
        return json.dumps([mark, self.panel.judges[mark].inputs(draft, repeat=repeat)], sort_keys=True)

    def add(self, mark: str, draft: Draft, repeat: int = 0) -> None:
        self.requests.setdefault(self.key(mark, draft, repeat), (mark, draft, repeat))

    async def ask(
        self, concurrency: int, on_progress: Callable[[int, int], None] | None, shard: Shard | None
    ) -> Replies[str, Judgement]:
        judges = self.panel.judges
        requests = {
            key: partial(judges[mark].judge, draft, repeat=repeat)
            for key, (mark, draft, repeat) in self.requests.items()
            if shard is None or shard.takes(key)
        }
        replies = await ask_each(requests, concurrency=concurrency, on_progress=on_progress)
        self.judgements = replies.answers | {
            key: Judgement(mark=math.nan, note=f"the endpoint refused: {error}")
            for key, error in replies.refused.items()
        }
        return replies

    @property
    def requests_sent(self) -> int:
        """Number of requests that the endpoint answered in this run."""
        return sum(item.cost.calls > 0 and not item.from_cache for item in self.judgements.values())

    @property
    def answered(self) -> bool:
        """True once the endpoint has answered any request."""
        return any(item.cost.calls > 0 for item in self.judgements.values())

    def judgement(self, mark: str, draft: Draft, repeat: int = 0) -> Judgement:
        """Return the judgement of a draft; undefined with a note if the call failed."""
        return self.judgements.get(self.key(mark, draft, repeat), Judgement(mark=math.nan, note="the call failed"))

    def scored(self, draft: Draft, repeat: int = 0) -> dict[str, float]:
        """Return the marks of a draft and, for a panel of several marks, the information score."""
        return self.panel.scored({mark: self.judgement(mark, draft, repeat).mark for mark in self.panel.marks})


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
    shard: Shard | None = None,
) -> RecordingMarks:
    """Judge every distinct draft of a recording once, and a sample of them several times.

    A repeated draft of a trajectory is judged and paid for in its first round; later rounds get its mark for free.
    Unreadable replies are requested again, as often as the panel's model allows.  Calls that may succeed later are listed
    in `failed`; all replies are in the panel's cache.

    Args:
        recording: The recording.
        panel: The marks.
        rng: Draws the sample.
        passages: Passages by id; see `drafts_of`.
        repeats: Number of judgements of each draft in the sample; 1 measures no noise.
        sample: Largest number of distinct drafts in the sample.
        concurrency: Number of concurrent calls.
        on_progress: Called with the number of requests done and their total.
        shard: Make only this share of the requests, to put their replies into the panel's cache; other marks are undefined.

    Raises:
        DataError: A number is out of range, or the recording lacks questions or answers.
        ModelError: The endpoint refused the credentials, or all requests.
    """
    if repeats < 1 or sample < 1 or concurrency < 1:
        raise DataError(
            f"repeats, sample and concurrency must be at least 1, got {repeats!r}, {sample!r}, {concurrency!r}"
        )
    drafts = drafts_of(recording, passages)
    run = _Run(panel)
    for draft in drafts:
        for mark in panel.marks:
            run.add(mark, draft)
    distinct = len(run.requests)
    chosen = _drafts_to_repeat(drafts, sample, rng) if repeats > 1 else []
    for draft in chosen:
        for mark in panel.marks:
            for repeat in range(1, repeats):
                run.add(mark, draft, repeat)
    replies = await run.ask(concurrency, on_progress, shard)
    if replies.refused and not run.answered:
        raise next(iter(replies.refused.values()))
    repeated = [key for key, (_, _, repeat) in run.requests.items() if repeat and key in run.judgements]
    columns = _mark_columns(recording, run, drafts)
    noise = _noise(run, chosen, repeats) if repeats > 1 else {}
    parts = tuple(_mark_summary(run, name, drafts, columns[name], noise.get(name)) for name in panel.columns)
    return RecordingMarks(
        columns=columns,
        parts=parts,
        drafts=distinct,
        requests_sent=run.requests_sent,
        repeated=sum(item.attempts > 1 for item in run.judgements.values()),
        unreadable=_unreadable_share(run, recording, drafts),
        failed=tuple(replies.retryable),
        repeats_cost=sum((run.judgements[key].cost for key in repeated), Cost()),
        metadata={"fingerprint": dict(panel.fingerprint()), "marks": [_described(part) for part in parts]},
    )


def _drafts_to_repeat(drafts: Sequence[Draft], size: int, rng: np.random.Generator) -> list[Draft]:
    """Draw the distinct drafts that are judged several times."""
    distinct = [draft for draft in dict.fromkeys(drafts) if (draft.text or "").strip()]
    return [distinct[i] for i in sorted(rng.permutation(len(distinct))[:size].tolist())]


def _noise(run: _Run, chosen: Sequence[Draft], repeats: int) -> dict[str, Noise]:
    """Return the noise of each mark, and of the score."""
    scores = [[run.scored(draft, repeat) for repeat in range(repeats)] for draft in chosen]
    return {
        name: noise_of(np.array([[score[name] for score in row] for row in scores]).reshape(len(chosen), repeats))
        for name in run.panel.columns
    }


def _mark_columns(recording: Recording, run: _Run, drafts: Sequence[Draft]) -> dict[str, list[float]]:
    """Return the marks and the costs of each row.

    If several rounds of a question need the same request, the first of them is charged for the request.
    """
    panel = run.panel
    scores = [run.scored(draft) for draft in drafts]
    columns = {name: [score[name] for score in scores] for name in panel.columns}
    if panel.has_score:
        table = recording.table
        columns[GAIN] = gains(
            columns[SCORE], table.column("question_id").to_pylist(), table.column("round").to_pylist()
        )
    keys = [[run.key(mark, draft) for mark in panel.marks] for draft in drafts]
    costs = {key: judgement.cost for key, judgement in run.judgements.items()}
    return columns | request_cost_columns(recording, panel.name, keys, costs)


def request_cost_columns(
    recording: Recording, component: str, keys: Sequence[Sequence[Hashable]], costs: Mapping[Any, Cost]
) -> dict[str, list[float]]:
    """Return cost columns, in which each question pays for a request once.

    If several rounds of a question need the request, the first of them is charged.
    """
    ids = recording.table.column("question_id").to_pylist()
    rounds = recording.table.column("round").to_pylist()
    columns = {cost_column(component, kind): [0.0] * len(ids) for kind in COST_KINDS}
    charged: set[tuple[str, Hashable]] = set()
    for row in sorted(range(len(ids)), key=lambda row: int(rounds[row])):
        cost = Cost()
        for key in keys[row]:
            if (ids[row], key) not in charged:
                charged.add((ids[row], key))
                cost = cost + costs.get(key, Cost())
        for kind in COST_KINDS:
            columns[cost_column(component, kind)][row] = getattr(cost, kind)
    return columns


def gains(scores: Sequence[float], ids: Sequence[str], rounds: Sequence[int]) -> list[float]:
    """Return the increase of the score since the previous draft, as live sessions compute it."""
    by_round = {(name, int(r)): score for name, r, score in zip(ids, rounds, scores, strict=True)}
    first = SIGNALS[GAIN].first_round
    return [
        by_round[name, int(r)] - by_round.get((name, int(r) - 1), math.nan) if int(r) >= first else math.nan
        for name, r in zip(ids, rounds, strict=True)
    ]


def _mark_summary(
    run: _Run, name: str, drafts: Sequence[Draft], column: Sequence[float], noise: Noise | None
) -> MarkSummary:
    defined = [value for value in column if not math.isnan(value)]
    notes: dict[str, int] = {}
    for draft, value in zip(drafts, column, strict=True):
        if math.isnan(value):
            note = "a mark is undefined" if name == SCORE else run.judgement(name, draft).note.partition(": ")[0]
            notes[note] = notes.get(note, 0) + 1
    mean = math.fsum(defined) / len(defined) if defined else math.nan
    return MarkSummary(mark=name, mean=mean, rounds=len(defined), notes=notes, noise=noise)


def _described(part: MarkSummary) -> dict[str, Any]:
    return {
        "mark": part.mark,
        "mean": number_or_none(part.mean),
        "rounds": part.rounds,
        "undefined": dict(part.notes),
        "noise": jsonable(part.noise),
    }


def _unreadable_share(run: _Run, recording: Recording, drafts: Sequence[Draft]) -> float:
    """Return the share of questions for which at least one mark could not be read."""
    ids = recording.table.column("question_id").to_pylist()
    lost = {
        name
        for name, draft in zip(ids, drafts, strict=True)
        for mark in run.panel.marks
        if (judgement := run.judgement(mark, draft)).attempts and math.isnan(judgement.mark)
    }
    return len(lost) / len(set(ids)) if ids else 0.0


def with_columns(table: pa.Table, columns: Mapping[str, Sequence[float]], *, signals: Collection[str] = ()) -> pa.Table:
    """Add metrics, signals and costs to a recording's table, replacing columns of the same names.

    Args:
        table: A recording's table.
        columns: Values by name, one per row, NaN where undefined; ``cost.COMPONENT.KIND`` are costs.
        signals: Names of signals; the others are metrics.
    """
    for name, values in columns.items():
        is_cost = name.startswith("cost.")
        unit = {"calls": "count", "seconds": "seconds"}.get(name.rsplit(".", 1)[-1], "tokens") if is_cost else "score"
        kind = "cost" if is_cost else "signal" if name in signals else "metric"
        new = pa.field(name, pa.float64(), metadata={"kind": kind, "unit": unit})
        column = pa.array([number_or_none(value) for value in values], type=pa.float64())
        index = table.schema.get_field_index(name)
        table = table.append_column(new, column) if index < 0 else table.set_column(index, new, column)
    return table


def with_marks(recording: Recording, marks: RecordingMarks, panel: Panel) -> tuple[pa.Table, dict[str, Any]]:
    """Return a recording's table and metadata with the marks; marks of an earlier run are replaced.

    Marks become metrics, and verdicts on the evidence become signals.  A rule may read either; it then pays for the whole
    panel, as the metadata entry `signal_components` records.

    Raises:
        DataError: A call failed, so the marks are incomplete.
    """
    if marks.failed:
        raise DataError(f"{len(marks.failed)} calls failed, the first with: {marks.failed[0]}: judge again")
    table = with_columns(recording.table, marks.columns, signals={GAIN, *VERDICTS})
    before = recording.metadata
    components = dict(before.get("signal_components") or {}) | dict.fromkeys(panel.columns, panel.name)
    judges = dict(before.get("judges") or {}) | {panel.name: dict(marks.metadata)}
    return table, {**before, "signal_components": components, "judges": judges}


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Agreement of a judge with itself on a sample of drafts.

    Attributes:
        drafts: Number of drafts with at least two marks.
        repeats: Number of judgements per draft.
        equal: Share of equal pairs among the pairs of two marks for the same draft, in [0, 1].
        difference: Mean absolute difference between two marks for the same draft, in [0, 1].
        sd: Standard deviation of a mark around its draft's mean, pooled over drafts, in the mark's unit.
        undefined: Share of requested marks that are undefined.
    """

    drafts: int
    repeats: int
    equal: float
    difference: float
    sd: float
    undefined: float


def noise_of(marks: npt.ArrayLike) -> Noise:
    """Measure the noise of repeated marks; pairs are averaged within a draft first, so that each draft counts once.

    >>> noise_of([[0.5, 0.5], [1.0, 0.5]])
    Noise(drafts=2, repeats=2, equal=0.5, difference=0.25, sd=0.25, undefined=0.0)

    Args:
        marks: Shape ``(n_drafts, n_repeats)``, NaN where undefined; drafts with fewer than two marks are ignored.

    Returns:
        The noise; NaN if no draft has two marks.

    Raises:
        DataError: There are fewer than two repeats.
    """
    table = np.asarray(marks, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:  # noqa: PLR2004
        raise DataError(f"noise needs marks of shape (n_drafts, n_repeats) with two repeats, got {table.shape}")
    equal, difference, squares, freedom = [], [], 0.0, 0
    for row in table:
        defined = row[~np.isnan(row)]
        if len(defined) < 2:  # noqa: PLR2004
            continue
        # All pairs of marks of one draft: the differences above the diagonal.
        gaps = np.abs(defined[:, None] - defined[None, :])[np.triu_indices(len(defined), 1)]
        equal.append(float((gaps == 0).mean()))
        difference.append(float(gaps.mean()))
        # Pooled variance: squares and degrees of freedom are summed over drafts and divided once.
        squares += float(((defined - defined.mean()) ** 2).sum())
        freedom += len(defined) - 1
    return Noise(
        drafts=len(equal),
        repeats=table.shape[1],
        equal=math.fsum(equal) / len(equal) if equal else math.nan,
        difference=math.fsum(difference) / len(difference) if equal else math.nan,
        sd=math.sqrt(squares / freedom) if freedom else math.nan,
        undefined=float(np.isnan(table).mean()) if table.size else math.nan,
    )
