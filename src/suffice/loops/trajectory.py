"""Record one question; every reply is committed before the next call."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from suffice.errors import ConfigMismatchError
from suffice.loops.course import Call, Course, drive
from suffice.loops.live import LiveLoop
from suffice.loops.measuring import measured, with_reply
from suffice.loops.retrieval import Question
from suffice.loops.rows import reply_from_payload, reply_to_payload, rows_of
from suffice.policy.normalizers import DEFAULT_NORMALIZER
from suffice.policy.rounds import Cost, End, Reply, Round
from suffice.recordings.journal import Journal


class RecordedTrajectory:
    """The rounds of one question, from the journal if it contains them, else from the models."""

    def __init__(
        self,
        loop: LiveLoop,
        question: Question,
        course: Course,
        journal: Journal,
        spent: Callable[[Mapping[str, Cost]], None],
    ) -> None:
        self.loop, self.question, self.course, self.journal, self.spent = loop, question, course, journal, spent
        self.committed: dict[tuple[int, str], dict[str, Any]] = journal.replies(question.question_id)
        self.rounds: dict[int, Round] = {}
        self.times: dict[int, float] = {}

    async def run(self, indices: Sequence[int], *, at_once: int) -> None:
        """Run these rounds in order, `at_once` of them together.

        Raises:
            ConfigMismatchError: A committed reply belongs to another question or other passages.
            ModelError: A call failed; the replies before it are committed.
        """
        for first in range(0, len(indices), at_once):
            if not self.course.has(indices[first]):  # an earlier round ended the loop
                return
            # Rounds run to their end, so that replies are committed before the first failure ends the question.
            together = (self._round(r) for r in indices[first : first + at_once])
            results = await asyncio.gather(*together, return_exceptions=True)
            failure = next((result for result in results if isinstance(result, BaseException)), None)
            if failure is not None:
                raise failure

    async def _round(self, r: int) -> None:
        before = [self.rounds[earlier] for earlier in sorted(self.rounds) if earlier < r]
        result = await drive(self.course.calls(r, before), lambda call: self._reply(r, call))
        if result.error is not None:  # recordings contain only complete rounds; the earlier reply is committed
            raise result.error
        observed = result.observed
        for enricher in self.loop.enrichers:
            payload = self.committed.get((r, enricher.name))
            if payload is None:
                reply = await measured(enricher, self.question.question, [*before, observed])
                payload = self._commit({(r, enricher.name): reply})[r, enricher.name]
            observed = with_reply(observed, reply_from_payload(payload))
        self.rounds[r] = observed

    async def _reply(self, r: int, call: Call) -> Reply:
        """Return the committed reply to a call; if no reply is committed yet, make the call and commit its reply."""
        digest = hashlib.sha256(json.dumps(call.asked).encode()).hexdigest()[:16]
        payload = self.committed.get((r, call.part))
        if payload is None:
            reply = await call.send(False)
            payload = self.committed.get((r, call.part))  # it may have arrived with another round's reply
        if payload is None:
            brought = {(at, call.part): more for at, more in call.brought().items()}
            new = {(r, call.part): reply, **{key: more for key, more in brought.items() if key not in self.committed}}
            payload = self._commit(new, asked=digest)[r, call.part]
        elif payload.get("asked", digest) != digest:
            raise ConfigMismatchError(
                f"round {r} of question {self.question.question_id!r} was asked with another text or other passages "
                f"before the interruption ({str(self.journal.path)!r}): record to another file"
            )
        self.times[r] = float(payload["recorded_at"])
        return reply_from_payload(payload)

    def _commit(self, replies: Mapping[tuple[int, str], Reply], **more: str) -> dict[tuple[int, str], dict[str, Any]]:
        """Commit several replies, by round and part, as one transaction; return their journal entries."""
        now = time.time()
        payloads = {key: {**reply_to_payload(reply, now), **more} for key, reply in replies.items()}
        self.journal.put(self.question.question_id, payloads)
        self.committed |= payloads
        for (r, _), reply in replies.items():
            self.spent({} if reply.from_cache else self.loop.billed(r, reply.costs))
        return payloads

    def rows(self, end: End) -> list[dict[str, Any]]:
        """Return the rows of all rounds before the first missing one."""
        rounds: list[Round] = []
        for r in range(self.loop.policy.start_round, self.loop.policy.max_rounds + 1):
            if r not in self.rounds:
                break
            rounds.append(self.rounds[r])
        return rows_of(
            self.question,
            rounds,
            end,
            state=self.loop.policy.state,
            cells=[self.loop.cells(observed.index) for observed in rounds],
            recorded_at=[self.times[observed.index] for observed in rounds],
            normalizer=self.loop.provenance.get("normalizer", DEFAULT_NORMALIZER),
        )
