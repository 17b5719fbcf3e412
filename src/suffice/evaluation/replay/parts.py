"""The questions of a replay in blocks: one block for a recording in memory, many for a large file.

The work on a block is a function that is called with the block's prepared questions.  Results are joined in the order
of the blocks.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from suffice.common.processes import over_parts, usable_processors
from suffice.errors import DataError
from suffice.evaluation.replay.blocks import PieceFacts, RecordingBlock, Source
from suffice.evaluation.replay.checks import check_policy
from suffice.evaluation.replay.outcomes import has_outcome
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.selected import seen_by
from suffice.policy.session import Policy
from suffice.recordings.opened import read_again
from suffice.recordings.pieces import Piece
from suffice.recordings.recording import Recording, read_recording
from suffice.recordings.runs import member_columns
from suffice.recordings.schema import SPEND

BLOCK_ROWS = 1 << 16
"""Number of rows of a file that are replayed at once; memory is proportional to it."""

PIECE_ROWS = 1 << 22
"""Approximate number of rows that one process reads; a smaller file is read by one process."""

MEMORY_ROWS = 1 << 20
"""A recording with more rows is read in blocks."""

Progress = Callable[[int, int], None]
Result = TypeVar("Result")
Work = Callable[[PreparedRecording], Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked(Generic[Result]):
    """The result of work on one block of questions.

    Attributes:
        result: The result; None if all questions of the block failed.
        keys: Keys of all questions, see `suffice.recordings.text_keys`; empty for a recording in memory.
    """

    result: Result | None
    n_failed: int
    keys: npt.NDArray[np.uint64]


class Parts(ABC):
    """The questions of a recording, in blocks."""

    @property
    @abstractmethod
    def head(self) -> Recording:
        """The recording without its failed questions; for a file, only the header without rows."""

    @property
    @abstractmethod
    def data_hash(self) -> str:
        """The hash of the recording's data, see `Recording.data_hash`."""

    @abstractmethod
    def over(
        self, work: Work[Result], policies: Sequence[Policy], *, more: Sequence[str] = (), part: int = 0
    ) -> list[Blocked[Result]]:
        """Call `work` on each block and return the results.

        Args:
            work: A function of a block's prepared questions.
            policies: The policies whose columns the work reads.
            more: Further columns that the work reads.
            part: Number of earlier passes, for the report of progress.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryParts(Parts):
    """A recording in memory: one block, whose metrics, costs and columns are computed once for all work.

    Attributes:
        whole: The recording, failed questions included.
    """

    prepared: PreparedRecording
    whole: Recording

    @property
    def head(self) -> Recording:
        """The recording without its failed questions."""
        return self.prepared.recording

    @property
    def data_hash(self) -> str:
        """The hash of the recording's data, see `Recording.data_hash`."""
        return self.whole.data_hash

    def over(
        self,
        work: Work[Result],
        policies: Sequence[Policy],  # noqa: ARG002 - every column is there
        *,
        more: Sequence[str] = (),  # noqa: ARG002
        part: int = 0,  # noqa: ARG002
    ) -> list[Blocked[Result]]:
        """Return the result of work on all questions."""
        keys = np.zeros(0, dtype=np.uint64)
        return [Blocked(result=work(self.prepared), n_failed=self.prepared.n_failed, keys=keys)]


@dataclass(frozen=True, kw_only=True, eq=False)
class FileParts(Parts):
    """A recording on disk, read in blocks of whole questions; the rows of a question must be adjacent.

    Attributes:
        block_rows: Number of rows that are replayed at once.
        undecided: Whether `metrics` are candidates among which the first pass chooses.  A candidate may then be missing
            from the file.
        highest: The highest round of questions that did not fail; None = the highest recorded one.
        models: The models of all questions that did not fail; None = each block uses the models in its own rows.
    """

    source: Source
    metrics: tuple[str, ...]
    prices: Price | Mapping[str, Price] | None
    ledger: str
    wave: int | None
    block_rows: int
    jobs: int
    on_progress: Progress | None
    undecided: bool = False
    highest: int | None = None
    models: tuple[str, ...] | None = None

    @cached_property
    def head(self) -> RecordingBlock:
        """The recording without its rows."""
        return self.source.empty(self.highest)

    @property
    def data_hash(self) -> str:
        """The hash of the recording's data, computed column by column, see `Recording.data_hash`."""
        digest = hashlib.sha256()
        for name in ("question_id", "round", "answer", *self.source.empty().names("metric")):
            if name in self.source.schema.names:
                between = b"["
                for table in self.source.tables(self.block_rows, name):
                    if table.num_rows:
                        digest.update(between + json.dumps(table.column(name).to_pylist()).encode()[1:-1])
                        between = b", "
                digest.update(b"]")
        return digest.hexdigest()[:16]

    def over(
        self, work: Work[Result], policies: Sequence[Policy], *, more: Sequence[str] = (), part: int = 0
    ) -> list[Blocked[Result]]:
        """Call `work` on each block and return the results; check the data against the checksums in the files."""
        columns = self._columns(policies, more)
        pieces, progress = self.source.pieces(columns, PIECE_ROWS), self.on_progress

        def shown(done: int, total: int) -> None:
            assert progress is not None
            progress(part * total + done, 2 * total)

        # Neither the progress bar nor the header that was read goes to other processes.
        one = _OfPiece(parts=replace(self, on_progress=None), columns=columns, work=work, policies=tuple(policies))
        done = list(over_parts(one, pieces, jobs=self.jobs, on_progress=shown if progress else None))
        self.source.check([(piece, facts) for piece, (_, facts) in zip(pieces, done, strict=True)])
        return [blocked for results, _ in done for blocked in results]

    def prepared(self, block: RecordingBlock) -> PreparedRecording:
        """Prepare the questions of a block that did not fail; there must be at least one."""
        n_failed = int(block.failed.sum())
        block = block.up_to(self.highest) if self.highest is not None else block
        metrics = [name for name in self.metrics if has_outcome(block, name) or not self.undecided]
        prepared = PreparedRecording.of(
            block, metrics, prices=self.prices, ledger=self.ledger, samples=True, wave=self.wave
        )
        return replace(prepared, n_failed=n_failed, models=self.models)

    def check(self, policy: Policy, block: RecordingBlock) -> None:
        """Raise if a policy needs rounds that the block's questions do not have; no other check depends on the rows."""
        if policy.max_rounds > self.head.index[-1] and not block.failed.all():
            kept = block.select(~block.failed) if self.highest is None else block.up_to(self.highest)
            check_policy(policy, kept, part=True)

    def _columns(self, read: Sequence[Policy], more: Sequence[str]) -> list[str]:
        """Return the columns that must be read for policies, and the columns in `more` that were recorded."""
        signals = {column for policy in read for column in policy.raw_columns}
        names, header = self.source.schema.names, self.source.header
        wanted = {*more, "em", "stop_round"}
        if header.get("fitted") or header.get("state") or any(map(_is_fitted, read)):
            wanted |= {"question", "cluster"}  # to find questions that some part was fitted on
        if any(name not in names for name in (*self.metrics, "em")):
            wanted.add("golds")  # a metric that was not recorded is computed from these
        if self.head.independent:
            wanted.update(member_columns(names))
        if self.prices is None:
            wanted.add(SPEND)  # the money
        chosen = {*self.source.columns(signals, self.metrics), *wanted}
        return [name for name in names if name in chosen]


@dataclass(frozen=True, kw_only=True)
class _OfPiece(Generic[Result]):
    """Work on the questions that begin in a piece; it can run in any process."""

    parts: FileParts
    columns: list[str]
    work: Work[Result]
    policies: tuple[Policy, ...]

    def __call__(self, piece: Piece) -> tuple[list[Blocked[Result]], PieceFacts]:
        """Return the results by block, and the facts to compare with the file."""
        reader = self.parts.source.blocks(piece, self.columns, self.parts.block_rows)
        return [self._of(block) for block in reader], reader.facts

    def _of(self, block: RecordingBlock) -> Blocked[Result]:
        for policy in self.policies:
            self.parts.check(policy, block)
        failed = block.failed
        result = None if failed.all() else self.work(self.parts.prepared(block))
        return Blocked(result=result, n_failed=int(failed.sum()), keys=block.keys)


def _is_fitted(policy: Policy) -> bool:
    """Return whether the policy names its tune questions, so that texts must be read to find them in the recording."""
    return bool(seen_by(policy) or policy.state or policy.provenance.get("fitted"))


def opened(path: str | Path, *, in_blocks: bool = False) -> Recording | Source:
    """Read a small recording into memory; open a large one to be read in blocks.

    Args:
        path: The parquet file, or a folder of parts.
        in_blocks: Whether to read even a small recording in blocks; several processes can only read blocks.
    """

    def read() -> Recording | Source:
        source = Source(path)
        return source if in_blocks or source.n_rows > MEMORY_ROWS else read_recording(path)

    return read_again(read)


def usable_jobs(jobs: int | None, source: Source) -> int:
    """Return the number of processes that read a recording."""
    if jobs is None:
        jobs = min(usable_processors(), source.n_rows // PIECE_ROWS + 1)
    return jobs if source.is_on_disk else 1


def check_block_rows(rows: int) -> None:
    """Raise a `DataError` if `rows` is below 1."""
    if rows < 1:
        raise DataError(f"a block has at least one row, not {rows!r}")
