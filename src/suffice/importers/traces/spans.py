"""The neutral terms of every trace format: spans, what is known about a conversation, and a log of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from suffice.policy.rounds import End, Token

__all__ = [
    "CHAT",
    "ERROR_CODES",
    "About",
    "Log",
    "LoggedMessage",
    "LoggedReply",
    "ToolCall",
    "TraceSpan",
    "Usage",
    "usage_of",
]

CHAT = "chat"
"""The kind of a span that is one call of a model."""

ERROR_CODES = (2, "2", "STATUS_CODE_ERROR", "ERROR", "StatusCode.ERROR")
"""Status codes of a span that failed, as OpenTelemetry's exporters and those that build on it write them."""


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """What a model was given: a role (`system`, `user`, `assistant`, `tool`) and its text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that a model asked for, with its arguments as JSON text or as an object."""

    name: str
    arguments: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, counts; NaN where the log does not say."""

    uncached: float = math.nan
    cached: float = math.nan
    output: float = math.nan


def usage_of(
    given: float,
    cached: float,
    output: float,
    total: float = math.nan,
    *,
    apart: bool = False,
    written: float = math.nan,
) -> Usage:
    """Return the tokens of a call, its cache reads apart from the other input.

    Emitters disagree whether `given` contains the cache reads.  Where the total says which, it decides.

    >>> usage_of(100, 80, 10, 110)
    Usage(uncached=20, cached=80, output=10)
    >>> usage_of(100, 80, 10, 190)
    Usage(uncached=100, cached=80, output=10)

    Args:
        given: Input tokens as reported.
        cached: Those that were read from a cache; NaN counts as none, an upper bound of what was processed.
        output: Generated tokens.
        total: All tokens; NaN if the log does not say.
        apart: Whether the format defines `given` without the cache reads.
        written: Tokens that were written to a cache, where the format has them apart from `given`.
    """
    cached, written = (0 if math.isnan(value) else value for value in (cached, written))
    if cached and total == given + output:
        apart = False
    elif cached > given or (cached and total in (given + cached + output, given + cached + written + output)):
        apart = True
    uncached = given + written if apart else given - cached
    return Usage(uncached=uncached, cached=math.nan if math.isnan(given) else cached, output=output)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedReply:
    """What a model returned; empty where the log does not say.

    Attributes:
        text: What the assistant said; "" if nothing.
        tools: The tools that it called.
        tokens: Generated tokens with log-probabilities.
        model: Its name.
        usage: Its tokens.
        finish_reason: As the endpoint gives it.
        choices: How many alternatives the call returned; the first one is read.
    """

    text: str = ""
    tools: tuple[ToolCall, ...] = ()
    tokens: tuple[Token, ...] | None = None
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None
    choices: int = 1


@dataclass(slots=True, kw_only=True)
class TraceSpan:
    """One step of a trace.

    Attributes:
        trace: Its trace; spans of several files may share one.
        span: Its id; "" if it has none.
        parent: The id of the span around it; "" at the root.
        name: As the emitter calls it.
        kind: `chat` for one call of a model; anything else names what the step is, and it is left out.
        where: The file, for messages.
        start: Nanoseconds since 1970; None if the log does not say.
        end: The same.
        messages: What the model was given.
        reply: What the model returned.
        failed: Whether the step ended in an error.
        scores: What somebody marked this step with, by name.
        ids: Short values by attribute, among which the id of the conversation is looked up; never written.
    """

    trace: str
    where: str
    kind: str
    span: str = ""
    parent: str = ""
    name: str = ""
    start: int | None = None
    end: int | None = None
    messages: tuple[LoggedMessage, ...] = ()
    reply: LoggedReply = field(default_factory=LoggedReply)
    failed: bool = False
    scores: dict[str, Any] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it took; NaN if the log does not say."""
        return math.nan if self.start is None or self.end is None else (self.end - self.start) / 1e9


@dataclass(slots=True, kw_only=True)
class About:
    """What a file says about a whole trace.

    Attributes:
        question: The question, where the file has it apart from the messages.
        golds: Gold answers.
        scores: What somebody marked its outcome with, by name.
        end: Why it ended, where the file says so.
        cluster: The question's own id, where the file holds several trajectories of it.
        answer_tool: Whether the model was to answer by calling a tool (`submit`).
    """

    question: str = ""
    golds: tuple[str, ...] = ()
    scores: dict[str, Any] = field(default_factory=dict)
    end: End | None = None
    cluster: str = ""
    answer_tool: bool = False


@dataclass(slots=True, kw_only=True)
class Log:
    """What a reader of one format returns: its spans in the order of the file, and what it says about traces by their id."""

    spans: list[TraceSpan] = field(default_factory=list)
    about: dict[str, About] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
