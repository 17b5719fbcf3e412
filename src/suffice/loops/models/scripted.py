"""A test double of a model that answers from a script."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from suffice.errors import DataError, LogprobsUnavailableError, ModelError
from suffice.loops.models._wire import Completion
from suffice.policy.rounds import Cost, Passage, Reply
from suffice.policy.signals import LOGPROB_NEEDS

_Line = str | Reply | None
_Script = Mapping[str, Sequence[_Line]] | Callable[[str, Sequence[Passage]], _Line]
_Failures = Mapping[int, Exception] | Callable[[int], Exception | None]


class ScriptedModel:
    """A model that answers from a script, offline and deterministic, and records its calls.

    The script is a mapping or a function.  A mapping contains a list of lines for each question: the first line is for no
    passages (closed book), the second for one passage, and so on; the last line is also used for more passages.  A function
    gets question and passages, and returns a line.  A line is an answer, None for no answer, or a complete `Reply`.

    A line without costs is charged one call, one input token per word of question and passages (cached where an earlier
    round contained the word), one output token per word of the answer, and the latency.

    >>> model = ScriptedModel({"Who wrote it?": [None, "King", "Stephen King"]})
    >>> model.answer("Who wrote it?", []).answer, model.answer("Who wrote it?", [Passage(passage_id="1", title="", text="")]).answer
    (None, 'King')
    >>> model.calls
    2

    Args:
        script: The lines.
        name: Name in reports.
        capabilities: The capabilities that the model claims, as named in `Signal.needs`.
        latency_s: Duration of each call, seconds.
        failures: The exceptions that calls raise, by the number of the call (from 1); or a function that takes the number
            and returns the exception or None.
    """

    def __init__(
        self,
        script: _Script,
        *,
        name: str = "scripted",
        capabilities: frozenset[str] | Sequence[str] = frozenset(),
        latency_s: float = 0.0,
        failures: _Failures | None = None,
    ) -> None:
        if not callable(script):
            empty = [question for question, lines in script.items() if isinstance(lines, str) or not lines]
            if empty:
                raise DataError(
                    f"the script of {empty[0]!r} must be a list of at least one line, got {script[empty[0]]!r}"
                )
        self.latency_s = latency_s
        self.requests: list[tuple[str, tuple[Passage, ...]]] = []
        # Copy the script: a later change by the caller would change replies but not the fingerprint.
        self._script = script if callable(script) else {question: tuple(lines) for question, lines in script.items()}
        self.name, self.capabilities = name, frozenset(capabilities)
        self._failures = failures or {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ScriptedModel(name={self.name!r}, calls={self.calls})"

    @property
    def calls(self) -> int:
        """Number of calls, including failed and cancelled ones."""
        return len(self.requests)

    def verify(self, needs: frozenset[str]) -> None:
        """Check `needs` against `capabilities`.

        Raises:
            LogprobsUnavailableError: Log-probabilities are needed but not claimed.
        """
        missing = sorted(LOGPROB_NEEDS & needs - self.capabilities)
        if missing:
            raise LogprobsUnavailableError(f"{self!r} returns no log-probabilities: add {missing} to its capabilities")

    def fingerprint(self) -> Mapping[str, Any]:
        """Name, capabilities and a hash of the script; a function is identified by its name only."""
        return {
            "kind": "scripted",
            "name": self.name,
            "capabilities": sorted(self.capabilities),
            "script_sha256": self._script_sha256,
        }

    @cached_property
    def _script_sha256(self) -> str:
        """Return the hash of the script; cached, since each recorded row asks for it and scripts may be long."""
        script = self._script
        if callable(script):
            text = getattr(script, "__qualname__", type(script).__qualname__)
        else:
            text = json.dumps(script, default=repr)  # a whole `Reply` is not JSON
        return hashlib.sha256(text.encode()).hexdigest()

    def answer(self, question: str, passages: Sequence[Passage] = ()) -> Reply:
        """Return the script's reply to `question` with these passages.

        Raises:
            ModelError: The script has no such question.
            Exception: The exception in `failures` for this call.
        """
        failure = self._count(question, passages)
        if self.latency_s:
            time.sleep(self.latency_s)
        return self._say(question, passages, failure)

    async def answer_async(self, question: str, passages: Sequence[Passage] = ()) -> Reply:
        """Like `answer`, without blocking the event loop."""
        failure = self._count(question, passages)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        return self._say(question, passages, failure)

    def complete(self, messages: Sequence[Mapping[str, str]]) -> Completion:
        """Return the script's reply to the text of the last message; a script for chains is a function of that text.

        Raises:
            ModelError: The script has no such text.
            Exception: The exception in `failures` for this call.
        """
        return _as_completion(self.answer(messages[-1]["content"], ()))

    async def complete_async(self, messages: Sequence[Mapping[str, str]]) -> Completion:
        """Like `complete`, without blocking the event loop."""
        return _as_completion(await self.answer_async(messages[-1]["content"], ()))

    def _count(self, question: str, passages: Sequence[Passage]) -> Exception | None:
        with self._lock:
            self.requests.append((question, tuple(passages)))
            number = len(self.requests)
        return self._failures(number) if callable(self._failures) else self._failures.get(number)

    def _say(self, question: str, passages: Sequence[Passage], failure: Exception | None) -> Reply:
        if failure is not None:
            raise failure
        line = self._line(question, passages)
        reply = line if isinstance(line, Reply) else Reply(answer=line, text=line or "")
        if reply.costs:
            return reply
        return replace(reply, costs={"generator": self._cost(question, passages, reply)})

    def _line(self, question: str, passages: Sequence[Passage]) -> _Line:
        if callable(self._script):
            return self._script(question, passages)
        lines = self._script.get(question)
        if lines is None:
            raise ModelError(
                f"the script does not contain the question {question!r}; it has {len(self._script)} others"
            )
        return lines[min(len(passages), len(lines) - 1)]

    def _cost(self, question: str, passages: Sequence[Passage], reply: Reply) -> Cost:
        cached = _count_words(question, *(passage.text for passage in passages[:-1])) if passages else 0
        return Cost(
            calls=1.0,
            uncached_tokens=float(_count_words(question, *(passage.text for passage in passages)) - cached),
            cached_tokens=float(cached),
            output_tokens=float(_count_words(reply.answer or "")),
            seconds=self.latency_s,
        )


def _as_completion(reply: Reply) -> Completion:
    cost = reply.costs["generator"]
    text = reply.text or reply.answer or ""
    return Completion(text=text, tokens=reply.tokens, cost=cost, finish_reason=reply.finish_reason)


def _count_words(*texts: str) -> int:
    return sum(len(text.split()) for text in texts)
