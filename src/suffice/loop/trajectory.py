"""One question of a recording: every reply is committed before the next call goes out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffice.errors import ConfigMismatchError
from suffice.loop.evidence import Evidence
from suffice.loop.retrieval import RetrievalLoop, round_of
from suffice.loop.rows import reply_from_payload, reply_to_payload, rows_of
from suffice.retrieval import Question
from suffice.rounds import Cost, End, Passage, Reply, Round
from suffice.store.journal import Journal

__all__ = ["RecordedTrajectory"]


class RecordedTrajectory:
    """The rounds of one question, from the journal where they are there, else from the model.

    Args:
        loop: Model, enrichers, and a policy that gives the rounds and fitted signal state.
        question: The question.
        evidence: Its ranked passages.
        journal: Where replies are committed before anything else happens.
        spent: Told the costs of every call that went out.
    """

    def __init__(
        self,
        loop: RetrievalLoop,
        question: Question,
        evidence: Evidence,
        journal: Journal,
        spent: Callable[[Mapping[str, Cost]], None],
    ) -> None:
        self.loop, self.question, self.evidence, self.journal, self.spent = loop, question, evidence, journal, spent
        self.committed: Mapping[tuple[int, str], Mapping[str, Any]] = journal.replies(question.question_id)
        self.replies: dict[int, tuple[Reply, float]] = {}

    async def run(self, wanted: Sequence[int], *, parallel: bool) -> None:
        """Get these rounds, one after the other or all together.

        Raises:
            ConfigMismatchError: A committed reply belongs to another question or other passages.
            ModelError: A call failed; the replies before it are committed.
        """
        if not parallel:
            for r in wanted:
                await self._round(r)
            return
        # Every round gets its chance: what was paid for is committed before the first failure ends the question.
        results = await asyncio.gather(*(self._round(r) for r in wanted), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _round(self, r: int) -> None:
        passages = self.evidence.reveal(r) or ()
        asked = _digest(self.question.question, passages)
        payload = self.committed.get((r, "generator"))
        if payload is None:
            fresh = await self.loop.model.answer_async(self.question.question, passages)
            payload = self._commit(r, "generator", fresh, asked=asked)
        elif payload.get("asked", asked) != asked:
            raise ConfigMismatchError(
                f"round {r} of question {self.question.question_id!r} was asked with another text or other passages "
                f"before the interruption ({str(self.journal.path)!r}): record to another file"
            )
        reply = reply_from_payload(payload)
        for enricher in self.loop.enrichers:
            part = self.committed.get((r, enricher.name))
            if part is None:
                found = await enricher.measure(self.question.question, passages, reply)
                part = self._commit(r, enricher.name, Reply(answer=None, signals=found.signals, costs=found.costs))
            added = reply_from_payload(part)
            reply = replace(reply, signals={**reply.signals, **added.signals}, costs={**reply.costs, **added.costs})
        self.replies[r] = (reply, float(payload["recorded_at"]))

    def _commit(self, r: int, part: str, reply: Reply, **more: str) -> Mapping[str, Any]:
        payload = {**reply_to_payload(reply, time.time()), **more}
        self.journal.put(self.question.question_id, r, part, payload)
        self.spent({} if reply.from_cache else reply.costs)
        return payload

    def rows(self, end: End) -> list[dict[str, Any]]:
        """Return the rows of the rounds before the first gap."""
        rounds: list[Round] = []
        times = []
        for r in range(self.loop.policy.start_round, self.loop.policy.max_rounds + 1):
            if r not in self.replies:
                break
            reply, recorded_at = self.replies[r]
            rounds.append(round_of(r, self.evidence, reply))
            times.append(recorded_at)
        cells = {"model": self.loop.model.name, "retriever": self.loop.retriever.name}
        prompt = self.loop.model.fingerprint().get("prompt_id")
        if prompt is not None:
            cells["prompt_id"] = str(prompt)
        return rows_of(self.question, rounds, end, state=self.loop.policy.state, cells=cells, recorded_at=times)


def _digest(question: str, passages: Sequence[Passage]) -> str:
    """Return a hash of what a round asks."""
    asked = [question, *([passage.passage_id, passage.title, passage.text] for passage in passages)]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
