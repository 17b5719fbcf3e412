"""Explain how a trace is read: the spans that are rounds, and the reasons why others are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError
from suffice.importers.traces.core import Conversation, TraceStep, conversations_of
from suffice.importers.traces.inspect_ai import inspect_log
from suffice.importers.traces.langfuse import langfuse_log
from suffice.importers.traces.langsmith import langsmith_log
from suffice.importers.traces.mlflow import mlflow_log
from suffice.importers.traces.openai_files import openai_log
from suffice.importers.traces.otel import openinference_log, otlp_log
from suffice.importers.traces.spans import Log

TRACE_FORMATS: dict[str, Callable[[str | Path], Log]] = {
    "inspect": inspect_log,
    "langfuse": langfuse_log,
    "langsmith": langsmith_log,
    "mlflow": mlflow_log,
    "openai": openai_log,
    "openinference": openinference_log,
    "otlp": otlp_log,
}
"""The reader of each trace format, from files to spans."""

_CELL_WIDTH = 44


def explain_trace(path: str | Path, kind: str, *, key: str | None = None) -> Table:
    """Show how `suffice import` reads the longest conversation of a trace export, span by span.

    Args:
        path: A file, or a folder.
        kind: Its format, one of `TRACE_FORMATS`.
        key: As for the import: the attribute that names the question.

    Raises:
        DataError: The format is not one of traces, the file cannot be read, or it has no spans.
    """
    if kind not in TRACE_FORMATS:
        raise DataError(
            f"only traces can be explained ({', '.join(TRACE_FORMATS)}); files of the format {kind!r} are tables"
        )
    conversations = conversations_of(TRACE_FORMATS[kind](path), key)
    if not conversations:
        raise DataError(f"{path}: there are no spans; export the traces again")
    chosen = max(conversations, key=lambda item: sum(step.answer is not None for step in item.steps))
    return _table(chosen, len(conversations))


def _table(item: Conversation, n_conversations: int) -> Table:
    starts = [step.span.start for step in item.steps if step.span.start is not None]
    first = min(starts, default=0)
    rows, index = [], 0
    for step in item.steps:
        index += step.is_round
        rows.append(_step_cells(step, index, first))
    what = f"{item.question!r:.80}" if item.question else "no question in its messages"
    notes = (
        f"conversation {item.key!r} of {n_conversations}, {counted(len(item.traces), 'trace')}; question: {what}",
        *(f"{text}: {number}" for text, number in item.notes.items()),
    )
    columns = (
        Column("s", ".2f"),
        Column("span"),
        Column("read as"),
        Column("answer, or why not"),
        Column("in", ",.0f"),
        Column("out", ",.0f"),
    )
    return Table(title="One trace as it was understood", columns=columns, rows=tuple(rows), notes=notes)


def _step_cells(step: TraceStep, index: int, first: int) -> tuple[str | float, ...]:
    span = step.span
    used = "left out"
    if step.is_round:
        used = f"round {index}"
    elif step.counts:
        used = "cost of the next round"
    said = " ".join((step.answer if step.answer is not None else step.reason).split())
    seconds = math.nan if span.start is None else (span.start - first) / 1e9
    shown = said if len(said) <= _CELL_WIDTH else f"{said[: _CELL_WIDTH - 3]}..."
    return (
        seconds,
        span.name[:_CELL_WIDTH] or span.kind,
        used,
        shown,
        span.reply.usage.uncached + span.reply.usage.cached,
        span.reply.usage.output,
    )
