"""Record in batches: the recorder runs as it does live, but takes replies from batches.

A run of the recorder uses the replies that have arrived and writes every other request into files.  The files are submitted
as batches.  Once the batches have ended, the recorder runs again, until no request is open.  Submissions and replies are
saved on disk before and after each step, so a killed process submits nothing twice.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from suffice.errors import DataError, ModelError, PendingReplyError, SufficeError
from suffice.loops.models.batches import BATCHES, BatchRequest
from suffice.loops.models.chat import ChatModel
from suffice.loops.plan import RecordingPlan
from suffice.loops.progress import BatchProgress, RecordSummary
from suffice.loops.record_run import RecordRun
from suffice.policy.rounds import Cost, added_costs
from suffice.recordings.cache import request_key
from suffice.recordings.journal import Journal
from suffice.recordings.schema import BATCH_NOTE
from suffice_scale.batches.api import input_line
from suffice_scale.batches.sending import BatchSender
from suffice_scale.batches.state import BatchState, SentBatch

_STATE_FILE = "state.sqlite"
_FAILED_LOOKS = 20


@dataclass(slots=True)
class _InputFile:
    """An input file of requests that is being written."""

    batch: SentBatch
    file: IO[str]
    size: int = 0
    keys: int = 0


@dataclass(kw_only=True, eq=False)
class BatchQueue:
    """The requests of one recording, in batches of an endpoint (`/v1/batches`) or in files for an engine.

    Submitted requests and their replies are in a folder beside the recording, `*.parquet.batches`, until the recording
    is complete.

    Args:
        wait: Whether to wait for the batches.  If not, `record` returns once they are submitted, and the same call
            later collects the replies.
        file: Write the requests to this `.jsonl` file instead, for an engine without the interface (`vllm run-batch`). The
            engine's output is expected beside the file, as `.output.jsonl`.
        on_progress: Called while batches are awaited.
        most_requests: The largest number of requests in a batch.
        most_bytes: The largest size of an input file, bytes.
        attempts: Number of batches that may contain a request; if all of them leave it unanswered, the question fails.
        first_poll_s: The first interval between polls of the batches, seconds; the intervals grow.
        longest_poll_s: The longest interval between polls, seconds.

    Raises:
        DataError: `file` has another ending.
    """

    wait: bool = True
    file: str | Path | None = None
    on_progress: Callable[[BatchProgress], None] | None = None
    most_requests: int = 50_000
    most_bytes: int = 200_000_000
    attempts: int = 3
    first_poll_s: float = 1.0
    longest_poll_s: float = 60.0

    def __post_init__(self) -> None:
        if self.file is not None and Path(self.file).suffix != ".jsonl":
            raise DataError(f"requests are written to a file that ends in .jsonl, not to {str(self.file)!r}")
        self._sender: BatchSender | None = None
        self._open: dict[tuple[str, str, str], _InputFile] = {}
        self._numbers = 0

    async def run(self, plan: RecordingPlan) -> RecordSummary:
        """Run a plan until all replies have arrived; without `wait`, only until the batches are submitted.

        Raises:
            DataError: The loop of the plan makes requests that no batch can contain.
        """
        if not plan.loop.independent_rounds:
            raise DataError(
                "these rounds depend on each other, so no batch can contain them: record without --batch (batches)"
            )
        asked = getattr(plan.loop, "models", None) or [getattr(plan.loop, "model", None)]
        if not any(isinstance(model, ChatModel) for model in asked):
            raise DataError(
                "batches are sent to an endpoint: give a model there (--model, ChatModel), or leave out --batch"
            )
        plan = replace(plan, parallel_rounds=True, notes=(*plan.notes, BATCH_NOTE))
        folder = plan.files.batches
        try:
            self.open(folder)
            return await self._run(plan)
        except Exception:
            if not folder.exists():  # nothing was submitted; an empty journal would still refuse other settings
                with suppress(SufficeError):
                    Journal(plan.files.journal, plan.config).release()
            raise

    async def _run(self, plan: RecordingPlan) -> RecordSummary:
        """Run a plan, wait for its batches, and repeat this until no reply is pending.

        Return the last outcome with the costs of all runs.  Without `wait`, return once the batches are submitted.
        """
        spent: dict[str, Cost] = {}
        try:
            while True:
                with self.gathering():
                    summary = await RecordRun(plan).run()
                spent = added_costs(spent, summary.costs)
                if not summary.pending:
                    self.delete()
                    return replace(summary, costs=spent)
                await asyncio.to_thread(self.sender.submit)
                if self.wait and self.file is None:
                    await self.until_ended()
                elif not await asyncio.to_thread(self.sender.collect):
                    return replace(summary, costs=spent, notes=self.sender.notes())
        except Exception:
            if self.is_unsent:  # with the folder gone, a recording without batches need not wait for any
                self.delete()
            raise
        finally:
            self.close()

    def open(self, folder: Path) -> None:
        """Lock a folder of batches and use its batches; create the folder if it is missing."""
        file = None if self.file is None else Path(self.file)
        pauses = (self.first_poll_s, self.longest_poll_s)
        self._sender = BatchSender(BatchState(folder / _STATE_FILE), folder, file, pauses)
        if not self._sender.waiting:
            self.state.forget_failures()

    @property
    def sender(self) -> BatchSender:
        """The sender of the current recording's batches."""
        assert self._sender is not None
        return self._sender

    @property
    def state(self) -> BatchState:
        """The submitted requests and the replies received so far."""
        return self.sender.state

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Within this block, answer model calls with replies from batches, and write all other requests into files."""
        known = self.state.batches()
        self._numbers = max((batch.number for batch in known), default=0)
        for leftover in set(self.sender.folder.glob("input-*.jsonl")) - {
            self.sender.input_path(batch) for batch in known
        }:
            leftover.unlink()
        self.state.begin()
        token = BATCHES.set(self)
        try:
            yield
            for opened in self._open.values():
                self._finish(opened)
            self.state.commit()
        except BaseException:
            for opened in self._open.values():
                opened.file.close()
            with suppress(Exception):
                self.state.roll_back()
            raise
        finally:
            BATCHES.reset(token)
            self._open = {}

    def reply(self, request: BatchRequest) -> str:
        """Return the body of a request's reply, or write the request into a file; see `BatchReplies`."""
        key = request_key(request.request)
        self.sender.connections[request.connection.endpoint] = request.connection
        body = self.state.reply(key)
        if body is not None:
            return request.connection.redact_reply(body)
        known = self.state.request(key)
        if known is None or not (known.is_sent or known.is_final or known.attempts >= self.attempts):
            self._write(key, request)
        elif not known.is_sent:
            tried = "" if known.attempts == 1 else f" (in {known.attempts} batches)"
            raise ModelError(f"{known.error}{tried}", retryable=not known.is_final)
        raise PendingReplyError("the reply comes with a batch")

    def _write(self, key: str, request: BatchRequest) -> None:
        line = input_line(key, request)
        size = len(line.encode())
        group = (request.connection.endpoint, request.url, str(request.body.get("model")))
        opened = self._open.get(group)
        is_full = opened is not None and (opened.keys >= self.most_requests or opened.size + size > self.most_bytes)
        if opened is not None and is_full and self.file is None:
            self._finish(opened)
            opened = None
        if opened is None:
            if self.file is not None and self._open:
                raise PendingReplyError("a file for an engine has one model: this request goes into the next one")
            self._numbers += 1
            batch = SentBatch(self._numbers, *group, requests=0)
            opened = self._open[group] = _InputFile(batch, self.sender.input_path(batch).open("w", encoding="utf-8"))
        opened.file.write(line)
        opened.size, opened.keys = opened.size + size, opened.keys + 1
        self.state.add(key, opened.batch.number)

    def _finish(self, opened: _InputFile) -> None:
        opened.file.flush()
        os.fsync(opened.file.fileno())
        opened.file.close()
        self.state.put(replace(opened.batch, requests=opened.keys))

    def _report(self) -> None:
        if self.on_progress is not None:
            self.on_progress(self.sender.progress())

    async def until_ended(self) -> None:
        """Wait until all batches have ended, and store their replies."""
        pause_s, failures = self.first_poll_s, 0
        while True:
            try:
                if await asyncio.to_thread(self.sender.collect):
                    break
                failures = 0
            except ModelError as error:  # the batches go on without us
                failures += 1
                if not error.retryable or failures > _FAILED_LOOKS:
                    raise
            self._report()
            await asyncio.sleep(pause_s)
            pause_s = min(1.5 * pause_s, self.longest_poll_s)
        self._report()

    def close(self) -> None:
        """Release the folder's lock."""
        if self._sender is not None:
            self._sender.state.close()
            self._sender = None

    @property
    def is_unsent(self) -> bool:
        """True if nothing was submitted to an endpoint or written for an engine, so that the folder can be removed."""
        return all(batch.step == "written" for batch in self.state.batches())

    def delete(self) -> None:
        """Remove the folder.

        Call this only if every reply is in the recording or its journal, or if nothing was submitted.
        """
        folder = self.sender.folder
        self.close()
        shutil.rmtree(folder)
