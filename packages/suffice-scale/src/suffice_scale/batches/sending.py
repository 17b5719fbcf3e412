"""Submit files of requests once, poll them, and store their replies."""

from __future__ import annotations

import filecmp
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.common.files import quoted, replacing
from suffice.common.tables import counted
from suffice.errors import AuthenticationFailedError, DataError, ModelError
from suffice.loops.models._clients import Connection
from suffice.loops.models._wire import count_of
from suffice.loops.progress import BatchProgress
from suffice_scale.batches.api import ENDED, BatchApi, rows_of_output
from suffice_scale.batches.state import BatchState, SentBatch

_NO_ROOM = "token_limit_exceeded"
_CREATIONS = 4


class BatchSender:
    """Submits one recording's batches to their endpoints or, if `file` is given, to files for an engine.

    Every step is stored on disk before the next one.
    """

    def __init__(self, state: BatchState, folder: Path, file: Path | None, pauses: tuple[float, float]) -> None:
        self.state, self.folder, self.file = state, folder, file
        self._first_pause_s, self._longest_pause_s = pauses
        self.connections: dict[str, Connection] = {}
        self._brought = False  # True once a batch brought replies since the last submission
        if any(batch.step == "created" and (batch.batch_id is None) != (file is not None) for batch in self.waiting):
            raise DataError(
                f"the requests of {str(folder)!r} were {'submitted' if file else 'written into files'}: go on with "
                f"{'--batch' if file else '--batch-file'}, as it was begun"
            )

    @property
    def waiting(self) -> list[SentBatch]:
        """The batches that have not ended."""
        return [batch for batch in self.state.batches() if batch.step != "ended"]

    def input_path(self, batch: SentBatch) -> Path:
        """Return the file of a batch's requests; the file exists until the batch is submitted."""
        return self.folder / f"input-{batch.number:04}.jsonl"

    def submit(self) -> None:
        """Submit every written batch to its endpoint; each step is on disk before the next."""
        self._brought = False
        for batch in self.waiting:
            if self.file is not None:
                self._hand_over(batch)
                continue
            api = BatchApi(self._connection(batch))
            if batch.step == "written":
                batch = self._put(batch, file_id=api.upload(self.input_path(batch)), step="uploaded")  # noqa: PLW2901
            if batch.step in ("uploaded", "creating"):
                self._create(api, batch)

    def _create(self, api: BatchApi, batch: SentBatch) -> None:
        """Create a batch at the endpoint.

        If an earlier attempt has already created the batch, and only the endpoint's reply was lost, use the existing batch.
        """
        file_id = str(batch.file_id)
        failure: ModelError | None = None
        for attempt in range(_CREATIONS):
            about = api.batch_of(file_id) if batch.step == "creating" else None
            if about is None:
                batch = self._put(batch, step="creating")
                try:
                    about = api.create(file_id, batch.url)
                except ModelError as error:
                    if not error.retryable:
                        raise
                    failure = error
                    time.sleep(min(self._first_pause_s * 2.0**attempt, self._longest_pause_s))
                    continue
            if not isinstance(about.get("id"), str):
                raise ModelError(f"{batch.endpoint} created a batch without an id: {dict(about)!r:.200}")
            self._put(batch, step="created", batch_id=about["id"], status=str(about.get("status", "")))
            self.input_path(batch).unlink(missing_ok=True)
            return
        assert failure is not None
        raise failure

    def _hand_over(self, batch: SentBatch) -> None:
        """Move the file of requests to the path that the user gave."""
        if batch.step == "written":
            handed, output = self.handed(batch), self.output(batch)
            if output.exists() or (handed.exists() and not filecmp.cmp(handed, self.input_path(batch), shallow=False)):
                other = output if output.exists() else handed
                raise DataError(
                    f"{str(other)!r} is there already, with other requests: move it away, or name another file"
                )
            with replacing(handed) as partial:
                shutil.copyfile(self.input_path(batch), partial)
            self._put(batch, step="created", status="written", file_id=str(handed.absolute()))
            self.input_path(batch).unlink(missing_ok=True)

    def handed(self, batch: SentBatch) -> Path:
        """Return the path of a batch's requests for an engine.

        It is the path given by the user; from the second batch on, a number is added to the name.
        """
        assert self.file is not None
        first = min(other.number for other in self.state.batches())
        nth = batch.number - first + 1
        path = self.file if nth == 1 else self.file.with_name(f"{self.file.stem}-{nth}{self.file.suffix}")
        return (
            path if batch.file_id is None or path.exists() else Path(batch.file_id)
        )  # the user gave another path at that time

    def output(self, batch: SentBatch) -> Path:
        """Return the path at which the engine's output for a batch is expected."""
        path = self.handed(batch)
        return path.with_name(f"{path.stem}.output{path.suffix}")

    def collect(self) -> bool:
        """Poll the batches, store the replies of ended batches, and return whether all batches have ended."""
        for batch in self.waiting:
            if batch.step != "created":
                continue
            if self.file is not None:
                if self.output(batch).exists():
                    self._read_output(batch)
                continue
            try:
                self._look_at(batch)
            except ModelError as error:
                if error.retryable or isinstance(error, AuthenticationFailedError):
                    raise
                raise ModelError(
                    f"{error}. If the endpoint no longer has batch {batch.batch_id}, remove {str(self.folder)!r}: what was "
                    "not collected is then submitted, and paid for, again"
                ) from None
        return not self.waiting

    def _read_output(self, batch: SentBatch) -> None:
        """Store the replies in an engine's output."""
        output = self.output(batch)
        if not any(self.state.request(row.custom_id) for row in rows_of_output(output, batch.endpoint)):
            raise DataError(
                f"{str(output)!r} answers none of the requests in {str(self.handed(batch))!r}: the engine wrote nothing yet, or "
                "it is the output of another file. Move it away"
            )
        self._take(batch, [output], "the engine's output has no row for it", counts=True)

    def _look_at(self, batch: SentBatch) -> None:
        api = BatchApi(self._connection(batch))
        about = api.retrieve(str(batch.batch_id))
        counts = about.get("request_counts")
        done = batch.done
        if isinstance(counts, dict):
            done = int(sum(np.nan_to_num([count_of(counts.get(name)) for name in ("completed", "failed")])))
        batch = self._put(batch, status=str(about.get("status", "")), done=done)
        if batch.status in ENDED:
            self._end(api, batch, about)

    def _end(self, api: BatchApi, batch: SentBatch, about: Mapping[str, Any]) -> None:
        files = []
        for name in ("output_file_id", "error_file_id"):
            if isinstance(about.get(name), str) and about[name]:
                files.append(self.folder / f"{name.partition('_')[0]}-{batch.number:04}.jsonl")
                api.download(about[name], files[-1])
        errors = about.get("errors")
        listed = errors.get("data") if isinstance(errors, dict) else None
        said = [f"{error.get('code')}: {error.get('message')}" for error in listed or () if isinstance(error, dict)]
        reason = f"{batch.endpoint}: batch {batch.batch_id} {batch.status} without a reply to it"
        if said:
            reason += f" ({'; '.join(said[:3])})"
        # Without room for one more batch, those before it must end first.
        waits = any(_NO_ROOM in text for text in said) and (self._brought or len(self.waiting) > 1)
        self._brought = self._brought or bool(files)
        self._take(batch, files, reason, counts=not waits)
        for file in files:
            file.unlink()

    def _take(self, batch: SentBatch, files: list[Path], error: str, *, counts: bool) -> None:
        ended = replace(batch, step="ended", done=batch.requests)
        with self.state.ending(ended, error, counts=counts) as state:
            for file in files:
                for row in rows_of_output(file, batch.endpoint):
                    if row.body is not None:
                        state.take_reply(row.custom_id, row.body)
                    else:
                        state.take_error(batch.number, row.custom_id, row.error, is_final=not row.retryable)

    def _put(self, batch: SentBatch, **changes: Any) -> SentBatch:
        changed = replace(batch, **changes)
        self.state.put(changed)
        return changed

    def _connection(self, batch: SentBatch) -> Connection:
        connection = self.connections.get(batch.endpoint)
        if connection is None:
            raise DataError(
                f"{str(self.folder)!r} has a batch at {batch.endpoint}, which this recording does not ask: go on with the "
                "options that it was begun with, or record to another file"
            )
        return connection

    def progress(self) -> BatchProgress:
        """Return the progress of the batches."""
        batches = self.state.batches()
        left = [batch for batch in batches if batch.step != "ended"]
        return BatchProgress(
            batches=len(batches),
            ended=len(batches) - len(left),
            requests=sum(batch.requests for batch in left),
            done=sum(batch.done for batch in left),
        )

    def notes(self) -> tuple[str, ...]:
        """Return notes on the batches that have not ended, and on the user's next step."""
        if self.file is None:
            progress = self.progress()
            batches = counted(progress.batches - progress.ended, "batch", "batches")
            text = f"{counted(progress.requests, 'request')} in {batches}, {progress.done:,} answered"
            return (f"{text}: run the same command again to collect the replies",)
        return tuple(
            f"{counted(batch.requests, 'request')} to {batch.model} in {self.handed(batch)}: run "
            f"`vllm run-batch -i {quoted(self.handed(batch))} -o {quoted(self.output(batch))} --model {batch.model}`, or another "
            "engine that reads such files, then this command again"
            for batch in self.waiting
        )
