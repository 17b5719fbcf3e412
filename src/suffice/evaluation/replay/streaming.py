"""Replay of recordings of any size, read in blocks of whole questions; code and figures are those of `replay`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.processes import over_parts, usable_processors
from suffice.errors import DataError
from suffice.evaluation.replay.baselines import Run, run_policy
from suffice.evaluation.replay.blocks import PieceFacts, RecordingBlock, Source
from suffice.evaluation.replay.charging import LIVE, charging_of
from suffice.evaluation.replay.checks import check_policy, policy_for
from suffice.evaluation.replay.compared import ComparedRuns, Comparison, Replayed, companions, labelled, marked
from suffice.evaluation.replay.joining import joined_run, with_stops_of
from suffice.evaluation.replay.outcomes import MultipleChoice, default_metrics, has_outcome
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.random_twins import Dealt, random_stop
from suffice.evaluation.replay.recorded import Definedness
from suffice.evaluation.replay.references import Available, baseline_runs, fixed_policies, selectors_in_use
from suffice.evaluation.replay.result import ReplayResult
from suffice.evaluation.replay.selected import Selected, seen_by, selected_on
from suffice.evaluation.replay.whole import Facts, Whole
from suffice.evaluation.statistics import Resampling
from suffice.policy.normalizers import MATCH
from suffice.policy.rules import Rule
from suffice.policy.session import Policy
from suffice.recordings.pieces import Piece
from suffice.recordings.recording import Recording

BLOCK_ROWS = 1 << 16
"""Number of rows that are decided at once; memory is proportional to it."""

PIECE_ROWS = 1 << 22
"""Approximate number of rows that one process reads; a smaller file is read by one process."""

Progress = Callable[[int, int], None]


def replay_stream(
    path: str | Path,
    policies: Policy | Rule | str | Sequence[Policy | Rule | str],
    *,
    metrics: str | Sequence[str] | None = None,
    baseline: str | Policy | None = None,
    resampling: Resampling = Resampling(),
    prices: Price | Mapping[str, Price] | None = None,
    margins: Sequence[float] = (0.02,),
    cost: str = "calls",
    ledger: str = LIVE.name,
    wave: int | None = None,
    block_rows: int = BLOCK_ROWS,
    jobs: int | None = 1,
    on_progress: Progress | None = None,
) -> ReplayResult:
    """Replay policies over a recording that need not fit into memory: rows and figures are those of `replay`.

    The rows of a question must follow each other, as a recorder writes them.  The columns that are needed are read
    twice, because the random twin of a policy depends on the stops of all questions.  About a kilobyte stays in memory
    for each question: its name, and its metrics, calls and tokens under every row.

    Args:
        path: The parquet file, or a folder of parts.
        policies: See `replay`, as for the arguments that are not named here.
        metrics: See there.
        baseline: See there.
        resampling: See there.
        prices: See there.
        margins: See there.
        cost: See there.
        ledger: See there.
        wave: See there.
        block_rows: Rows that are decided at once.
        jobs: Number of processes; each reads parts, or ranges of row groups of a large file, see
            `suffice.common.processes.over_parts`.  None = one for every `PIECE_ROWS` rows (a process takes a second to
            start), at most one for each processor.  A recording that a `Recorder` is still writing is read in this
            process.
        on_progress: Called with the number of pieces read, and their total over all passes.

    Raises:
        DataError: The rows of a question do not follow each other, the rounds are independent samples, or as `replay`.
        CensoredError: As `replay`.
        SchemaError: The file is not a recording.
        WorkerDiedError: A process was killed.
    """
    if block_rows < 1:
        raise DataError(f"a block has at least one row, not {block_rows!r}")
    charging_of(ledger)
    source = Source(path)
    head = source.empty()
    if head.exchangeable:
        raise DataError(
            "this recording holds independent samples: figures average over orders of all of them, which a stream cannot draw. "
            "Leave out --stream (in Python: `replay`)"
        )
    if jobs is None:
        jobs = min(usable_processors(), source.n_rows // PIECE_ROWS + 1)
    named = [metrics] if isinstance(metrics, str) else metrics
    plan = _Plan(
        source=source,
        policies=_asked(head, policies),
        metrics=() if named is None else companions(head, named),
        prices=prices,
        ledger=ledger,
        wave=wave,
        block_rows=block_rows,
        jobs=jobs if source.is_on_disk else 1,
        on_progress=on_progress,
    )
    if named is None:
        known = (MATCH,) if MATCH in head.names("metric") else ("f1", "em")
        plan = replace(plan, metrics=known, undecided=True)
    first = plan.first()
    if any(part.n for part in first.facts) and first.highest < int(
        head.index[-1]
    ):  # the highest rounds may belong only to questions that failed
        head = plan.source.empty(first.highest)
        plan = replace(plan, highest=first.highest, policies=_asked(head, policies))
        first = plan.first()
    if named is None:
        choice = reduce(add, (part.choice for part in first.facts), MultipleChoice())
        plan = replace(plan, metrics=companions(head, default_metrics(head, choice)), undecided=False)
    comparison = _Streamed(plan, first, resampling, margins, cost)
    return comparison.compare(baseline).result()


def _asked(head: Recording, policies: Policy | Rule | str | Sequence[Policy | Rule | str]) -> tuple[Policy, ...]:
    """Return the given policies and rules as policies for a recording, of which only the header is known."""
    items = [policies] if isinstance(policies, str | Rule | Policy) else policies
    asked = labelled([item if isinstance(item, Policy) else policy_for(head, item, name=str(item)) for item in items])
    for policy in asked:
        check_policy(policy, head, part=True)
    return tuple(asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """Results of the first pass over some questions; results of other questions can be added.

    Attributes:
        facts: About the questions.
        dealt: The stops of each policy.
        definedness: Counts of defined signals, for each policy.
        selected: Questions that something was fitted on, by block.
        keys: The keys of the questions, failed ones included, by block.
        highest: The highest round of questions that did not fail.
    """

    facts: tuple[Facts, ...] = ()
    dealt: tuple[Dealt, ...] = ()
    definedness: tuple[Definedness, ...] = ()
    selected: tuple[Selected, ...] = ()
    keys: tuple[npt.NDArray[np.uint64], ...] = ()
    highest: int = 0

    def __add__(self, other: _First) -> _First:
        return _First(
            facts=(*self.facts, *other.facts),
            dealt=tuple(map(add, self.dealt, other.dealt)) if self.dealt and other.dealt else self.dealt or other.dealt,
            definedness=tuple(map(add, self.definedness, other.definedness))
            if self.definedness and other.definedness
            else self.definedness or other.definedness,
            selected=(*self.selected, *other.selected),
            keys=(*self.keys, *other.keys),
            highest=max(self.highest, other.highest),
        )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The plan of a streamed replay, which is sent to other processes: source, policies, metrics and options.

    Attributes:
        source: The recording.
        policies: The policies.
        metrics: See `outcome`.
        prices, ledger, wave, block_rows, jobs, on_progress: See `replay_stream`.
        undecided: Whether the metrics are candidates, among which the first pass decides, so that one may be missing.
        highest: The highest round of questions that did not fail; None = the highest recorded one.
    """

    source: Source
    policies: tuple[Policy, ...]
    metrics: tuple[str, ...]
    prices: Price | Mapping[str, Price] | None
    ledger: str
    wave: int | None
    block_rows: int
    jobs: int
    on_progress: Progress | None = None
    undecided: bool = False
    highest: int | None = None

    @property
    def head(self) -> RecordingBlock:
        """The recording without its rows."""
        return self.source.empty(self.highest)

    def prepared(self, block: RecordingBlock) -> PreparedRecording | None:
        """Prepare a block for replay; return None if all its questions failed."""
        if block.failed.all():
            return None
        n_failed = int(block.failed.sum())
        block = block.up_to(self.highest) if self.highest is not None else block
        known = [name for name in self.metrics if has_outcome(block, name) or not self.undecided]
        prepared = PreparedRecording.of(block, known, prices=self.prices, ledger=self.ledger, wave=self.wave)
        return replace(prepared, n_failed=n_failed)

    def check(self, policy: Policy, block: RecordingBlock) -> None:
        """Raise if a policy goes on past the recorded rounds of a block; other checks do not depend on the rows."""
        if policy.max_rounds > self.head.index[-1] and not block.failed.all():
            check_policy(
                policy, block.select(~block.failed) if self.highest is None else block.up_to(self.highest), part=True
            )

    def columns(self, read: Sequence[Policy], more: Sequence[str] = ()) -> list[str]:
        """Return the columns that must be read for policies, and those of `more` that were recorded."""
        signals = {column for policy in read for column in policy.raw_columns}
        fitted = any(map(_is_fitted, read))
        names = self.source.schema.names
        wanted = {*more, "em", "stop_round", *(["question", "cluster"] if fitted else [])}
        if any(name not in names for name in self.metrics):
            wanted.add("golds")  # a metric that was not recorded is computed from these
        if self.source.empty().independent:
            wanted |= {"member", "model"}
        chosen = {*self.source.columns(signals, self.metrics), *wanted}
        return [name for name in names if name in chosen]

    def over(self, function: Callable[[Piece], tuple[Any, PieceFacts]], columns: Sequence[str], done: int) -> list[Any]:
        """Return the results of a function for every piece, and check the pieces against the checksums in the files."""
        pieces = self.source.pieces(columns, PIECE_ROWS)
        progress = self.on_progress

        def shown(part: int, total: int) -> None:
            assert progress is not None
            progress(done * total + part, 2 * total)

        found = list(over_parts(function, pieces, jobs=self.jobs, on_progress=shown if progress else None))
        self.source.check([(piece, facts) for piece, (_, facts) in zip(pieces, found, strict=True)])
        return [each for each, _ in found]

    def first(self) -> _First:
        """Do the first pass."""
        charged = any(name.startswith("cost.retrieval.") for name in self.source.schema.names)
        more = ["question", "cluster", "golds", *([] if charged else ["passage_ids"])]
        columns = self.columns(self.policies, more)
        one = _FirstPass(plan=replace(self, on_progress=None), columns=columns)
        found: _First = reduce(add, self.over(one.of_piece, columns, 0))
        self.source.check_grouped(found.keys, self.block_rows)
        return found


@dataclass(frozen=True, kw_only=True)
class _FirstPass:
    plan: _Plan
    columns: list[str]

    def of_piece(self, piece: Piece) -> tuple[_First, PieceFacts]:
        """Do the first pass over the questions that begin in a piece."""
        plan = self.plan
        reader = plan.source.blocks(piece, self.columns, plan.block_rows)
        found = _First()
        for block in reader:
            for policy in plan.policies:
                plan.check(policy, block)
            found += self._of(block)
        return found, reader.facts

    def _of(self, block: RecordingBlock) -> _First:
        prepared = self.plan.prepared(block)
        if prepared is None:
            return _First(facts=(Facts(n_failed=block.shape[0]),), keys=(block.keys,))
        dealt, definedness = [], []
        for policy in self.plan.policies:
            stopped = prepared.stops(policy)
            dealt.append(Dealt.of(prepared, policy, stopped))
            definedness.append(Definedness(policy))
            definedness[-1].add(stopped.view)
        return _First(
            facts=(Facts.of(prepared, self.plan.metrics),),
            dealt=tuple(dealt),
            definedness=tuple(definedness),
            selected=(selected_on(self.plan.policies, prepared.recording),),
            keys=(block.keys,),
            highest=int(prepared.recording.index[prepared.recording.seen.any(axis=0)][-1]),
        )


@dataclass(frozen=True, kw_only=True)
class _RunsPass:
    """The second pass: replays every row of the table on some questions."""

    plan: _Plan
    columns: list[str]
    dealt: tuple[Dealt, ...]
    available: Available
    start: int

    def of_piece(self, piece: Piece) -> tuple[list[list[Run]], PieceFacts]:
        """Return the runs of policies, twins, other baselines and fixed budgets on the questions that begin in a piece."""
        reader = self.plan.source.blocks(piece, self.columns, self.plan.block_rows)
        found = [self._of(prepared) for prepared in map(self.plan.prepared, reader) if prepared is not None]
        return _joined(found), reader.facts

    def _of(self, prepared: PreparedRecording) -> list[list[Run]]:
        plan, recording = self.plan, prepared.recording
        selectors = selectors_in_use(plan.policies)
        runs, twins = [], []
        for policy, dealt in zip(plan.policies, self.dealt, strict=True):
            run, stopped = run_policy(prepared, policy)
            runs.append(run)
            twins.append(random_stop(prepared, policy, stopped, dealt))
        fixed = [
            replace(run_policy(prepared, policy, kind="fixed")[0], selector=name)
            for name, policy in fixed_policies(prepared.highest, selectors)
        ]
        others = baseline_runs(prepared, selectors, plan.metrics, self.available, self.start)
        return [[marked(run, recording) for run in some] for some in (runs, twins, others, fixed)]


@dataclass(frozen=True, kw_only=True)
class _BaselinePass:
    """A further pass: replays one more baseline on some questions."""

    plan: _Plan
    columns: list[str]
    policy: Policy
    kind: str

    def of_piece(self, piece: Piece) -> tuple[tuple[list[list[Run]], Definedness], PieceFacts]:
        """Return the baseline's run on the questions that begin in a piece, and the definedness of its signals."""
        reader = self.plan.source.blocks(piece, self.columns, self.plan.block_rows)
        definedness, runs = Definedness(self.policy), []
        for block in reader:
            self.plan.check(self.policy, block)
            prepared = self.plan.prepared(block)
            if prepared is not None:
                run, stopped = run_policy(prepared, self.policy, kind=self.kind)
                definedness.add(stopped.view)
                runs.append([[marked(run, prepared.recording)]])
        return (_joined(runs), definedness), reader.facts


def _joined(parts: Sequence[list[list[Run]]]) -> list[list[Run]]:
    """Join the groups of runs of all parts; parts without questions have no runs."""
    known = [part for part in parts if part]
    return [
        [joined_run([part[group][place] for part in known]) for place in range(len(known[0][group]))]
        for group in range(len(known[0]) if known else 0)
    ]


class _Streamed(Comparison):
    """The comparison of policies on questions that are read part by part."""

    def __init__(self, plan: _Plan, first: _First, resampling: Resampling, margins: Sequence[float], cost: str) -> None:
        self._plan, self._first = plan, first
        self.metrics, self.ledger = plan.metrics, plan.ledger
        self.resampling, self.margins, self.cost = resampling, tuple(margins), cost
        self.data_hash = _data_hash(plan.source, plan.block_rows)

    @cached_property
    def whole(self) -> Whole:
        """All questions."""
        return Whole(
            recording=self._plan.head,
            facts=self._first.facts,
            charging=charging_of(self.ledger),
            metrics=self.metrics,
        )

    def compare(self, baseline: str | Policy | None) -> ComparedRuns:
        """Replay every row and compare."""
        plan, first, whole = self._plan, self._first, self.whole
        head = plan.head
        notes = {
            policy.label: check_policy(policy, head, definedness=known)
            for policy, known in zip(plan.policies, first.definedness, strict=True)
        }
        start = min((policy.start_round for policy in plan.policies), default=1)
        columns = plan.columns(plan.policies)
        rows = _RunsPass(
            plan=replace(plan, on_progress=None),
            columns=columns,
            dealt=first.dealt,
            available=whole.available(start),
            start=start,
        )
        runs, twins, others, fixed = _joined(plan.over(rows.of_piece, columns, 1))
        return self.compared(
            plan.policies,
            Replayed(
                policies=runs,
                twins=[with_stops_of(twin, run) for twin, run in zip(twins, runs, strict=True)],
                others=others,
                fixed=fixed,
            ),
            baseline,
            notes=notes,
            run_of=self._run_of,
            selected=Selected.joined(first.selected),
        )

    def _run_of(self, policy: Policy, kind: str) -> Run:
        plan, head = self._plan, self._plan.head
        check_policy(policy, head, part=True)
        columns = plan.columns([policy])
        one = _BaselinePass(plan=replace(plan, on_progress=None), columns=columns, policy=policy, kind=kind)
        found = plan.over(one.of_piece, columns, 1)
        check_policy(policy, head, definedness=reduce(add, (definedness for _, definedness in found)))
        return _joined([runs for runs, _ in found])[0][0]


def _is_fitted(policy: Policy) -> bool:
    """Return whether the policy records the questions that it was fitted on, so that texts must be read to compare."""
    return bool(seen_by(policy) or policy.state or policy.provenance.get("fitted"))


def _data_hash(source: Source, rows: int) -> str:
    """Return `Recording.data_hash`, column by column."""
    digest = hashlib.sha256()
    for name in ("question_id", "round", "answer", *source.empty().names("metric")):
        if name in source.schema.names:
            between = b"["
            for table in source.tables(rows, name):
                if table.num_rows:
                    digest.update(between + json.dumps(table.column(name).to_pylist()).encode()[1:-1])
                    between = b", "
            digest.update(b"]")
    return digest.hexdigest()[:16]
