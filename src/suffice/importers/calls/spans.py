"""Classes shared by all trace formats: spans, facts about a conversation, and a log with both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from suffice.policy.rounds import PRICED_KINDS, End, Token

CHAT = "chat"
"""The kind of a span that is one call of a model."""

ERROR_CODES = (2, "2", "STATUS_CODE_ERROR", "ERROR", "StatusCode.ERROR")
"""Status codes of a span that failed, as OpenTelemetry's exporters and those that build on it write them."""


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """A message to a model: a role (`system`, `user`, `assistant`, `tool`) and its text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call requested by a model, with its arguments as JSON text or as an object."""

    name: str
    arguments: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Numbers of tokens of one call; NaN where the log gives none.

    Attributes:
        uncached: Input tokens that were processed.
        cached: Input tokens that were read from a cache.
        output: Generated tokens.
        written: Uncached tokens that were written to a cache for five minutes or an unknown time.
        written_1h: Uncached tokens that were written to a cache for an hour.
    """

    uncached: float = math.nan
    cached: float = math.nan
    output: float = math.nan
    written: float = 0.0
    written_1h: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    @property
    def costs(self) -> dict[str, float]:
        """The numbers of tokens by the field names of `Cost`."""
        return dict(zip(PRICED_KINDS, astuple(self), strict=True))


def usage_of(
    given: float,
    cached: float,
    output: float,
    total: float = math.nan,
    *,
    apart: bool = False,
    written: float = math.nan,
    for_an_hour: float = math.nan,
) -> Usage:
    """Return the tokens of a call, with cache reads separated from the other input.

    Logs differ in whether `given` includes cache reads.  If the total is known, it decides.

    >>> usage_of(100, 80, 10, 110)
    Usage(uncached=20, cached=80, output=10, written=0, written_1h=0)
    >>> usage_of(100, 80, 10, 190)
    Usage(uncached=100, cached=80, output=10, written=0, written_1h=0)

    Args:
        given: Input tokens as reported.
        cached: Input tokens that were read from a cache; NaN counts as 0, which gives an upper bound for the processed
        input.
        output: Generated tokens.
        total: All tokens; NaN if unknown.
        apart: Whether the format defines `given` as excluding cache reads.
        written: Tokens that were written to a cache; `given` excludes them if it excludes cache reads.
        for_an_hour: The part of the written tokens that is cached for an hour.
    """
    cached, written, hour = (0 if math.isnan(value) else value for value in (cached, written, for_an_hour))
    written = max(written, hour)
    if (cached or written) and total == given + output and cached + written <= given:
        apart = False
    elif max(cached, written) > given or (
        cached and total in (given + cached + output, given + cached + written + output)
    ):
        apart = True
    uncached = given + written if apart else given - cached
    kept = math.nan if math.isnan(given) else cached
    return Usage(uncached=uncached, cached=kept, output=output, written=written - hour, written_1h=hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedReply:
    """A model's reply; fields that the log lacks are empty.

    Attributes:
        text: The assistant's text; may be empty.
        reasoning: The model's reasoning, if the log contains it separately from the text.
        tokens: Generated tokens with log-probabilities.
        finish_reason: The reason for the reply's end, in the endpoint's words.
        choices: Number of alternative replies that the call returned; the first one is read.
    """

    text: str = ""
    reasoning: str = ""
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
        trace: The id of the trace; spans of several files may share one.
        span: The id of the span; "" if it has none.
        parent: The id of the enclosing span; "" at the root.
        name: The name of the step, as given by its emitter.
        kind: `chat` for one call of a model; steps of other kinds are left out.
        where: The file, for messages.
        start: Start time in nanoseconds since 1970; None if unknown.
        end: End time, like `start`.
        asked: The input of the step, if it is not a model call.
        ids: Short values by attribute, which may contain the id of the conversation; not stored.
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
    asked: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Duration in seconds; NaN if unknown."""
        return math.nan if self.start is None or self.end is None else (self.end - self.start) / 1e9


@dataclass(slots=True, kw_only=True)
class About:
    """Facts about a whole trace, as given in a file.

    Attributes:
        question: The question, if the file contains it separately from the messages.
        scores: Scores of the outcome, by name.
        end: The reason why the trace ended, if the file gives one.
        cluster: The id of the question, if the file contains several trajectories of the same question.
        answer_tool: True if the model had to answer by calling a tool (`submit`).
    """

    question: str = ""
    golds: tuple[str, ...] = ()
    scores: dict[str, Any] = field(default_factory=dict)
    end: End | None = None
    cluster: str = ""
    answer_tool: bool = False


@dataclass(slots=True, kw_only=True)
class Log:
    """The result of reading one format: spans in file order, and facts about traces by their id.

    If request ids number the rounds, `number` is their word for a round, and the start of a span is its round number.
    """

    spans: list[TraceSpan] = field(default_factory=list)
    about: dict[str, About] = field(default_factory=dict)
    number: str = ""
    notes: list[str] = field(default_factory=list)
