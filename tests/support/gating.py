"""A scripted model with a gate in front: one pass decides, and the same pass can go on into the answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from suffice import Cost, ScriptedModel
from suffice.loops.models import Verdict
from suffice.policy.seen import Seen


class ScriptedGate:
    """Tells `p_known` by question; its pass goes on into the model's own closed-book answer, decode costs alone.

    Args:
        known: The probability by question, or an exception to raise instead.
        model: Whose pass it is; None for a gate of another kind, whose pass cannot go on.
        failures: What to raise, by the number of the call, the first being 1.
        seen: The questions that it was fitted on; None if that is not on record.
    """

    def __init__(
        self, known: Mapping[str, Any], model: ScriptedModel | None = None, failures=None, seen: Seen | None = None
    ) -> None:
        self.known, self.source = known, model
        self.failures: Mapping[int, Exception] = failures or {}
        self.seen = seen
        self.asked: list[str] = []
        self.resumed: list[str] = []
        self.name, self.capabilities = "scripted gate", frozenset({"p_known"})

    def fingerprint(self) -> Mapping[str, Any]:
        return {"kind": "scripted", "known": {q: str(p) for q, p in self.known.items()}}

    def decide(self, question: str) -> Verdict:
        self.asked.append(question)
        failure = self.failures.get(len(self.asked))
        if failure is not None:
            raise failure
        resume: Callable | None = None
        if self.source is not None:

            def resume():
                self.resumed.append(question)
                reply = self.source.answer(question, ())
                cost = replace(reply.costs["generator"], uncached_tokens=0.0)
                return replace(reply, costs={"generator": cost})

        words = float(len(question.split()))
        cost = Cost(calls=1.0, uncached_tokens=words, seconds=0.25)
        return Verdict(signals={"p_known": self.known.get(question, math.nan)}, cost=cost, resume=resume)

    async def decide_async(self, question: str) -> Verdict:
        await asyncio.sleep(0)
        return self.decide(question)
