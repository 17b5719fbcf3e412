"""Explain how traces are read: the sources of columns, and the spans of one trace that are rounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError
from suffice.importers.importers import importer_names, log_reader
from suffice.importers.rounds.trajectories import ColumnReading
from suffice.importers.traces.core import Conversation, TraceStep, answers_at, conversations_of
from suffice.policy.signals.position import AnswerPosition

_CELL_WIDTH = 44
_OF_TRACE = "id of the trace, sample or request"


def explain_trace(
    path: str | Path,
    kind: str,
    *,
    key: str | None = None,
    answer_position: AnswerPosition | None = None,
    where: Mapping[str, str] | None = None,
) -> Table:
    """Show how `suffice import` reads the longest conversation of a trace export, span by span.

    Args:
        path: A file, or a folder.
        kind: The format, one of the trace formats.
        key: As for the import: the attribute that identifies the question.
        answer_position: As for the import: the position of the answer in a reply.
        where: As for the import: the calls that are answers.

    Raises:
        DataError: The format is not one of traces, the file cannot be read or has no spans, or its answers have no position.
    """
    log_of = log_reader(kind)
    if log_of is None:
        traces = ", ".join(filter(log_reader, importer_names()))
        raise DataError(f"only traces can be explained ({traces}); files of the format {kind!r} are tables")
    conversations = conversations_of(log_of(path), key, where)
    if not conversations:
        raise DataError(f"{path}: there are no spans; export the traces again")
    chosen = max(conversations, key=lambda item: sum(step.answer is not None for step in item.steps))
    return _table(chosen, len(conversations), answer_position)


def _table(item: Conversation, n_conversations: int, position: AnswerPosition | None) -> Table:
    starts = [step.span.start for step in item.steps if step.span.start is not None]
    first = min(starts, default=0)
    rows, index, located = [], 0, answers_at(item, position)
    for step in item.steps:
        said = step.answer
        if step.is_round:
            said = said if position is None or step.cut else located[index].answer
            index += 1
        elif said is None:
            said = step.reason
        rows.append(_step_cells(step, index, first, f"no answer at {position}" if said is None else said))
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


def _step_cells(step: TraceStep, index: int, first: int, said: str) -> tuple[str | float, ...]:
    span = step.span
    used = "left out"
    if step.is_round:
        used = f"round {index}"
    elif step.counts:
        used = "cost of an answer" if step.other else "cost of the next round"
    said = " ".join(said.split())
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


def trace_readings(
    conversations: Sequence[Conversation], key: str | None, metrics: Mapping[str, str], number: str = ""
) -> list[ColumnReading]:
    """Return the sources of ids, rounds, answers, questions, gold answers, costs and metrics.

    `number` is the word for a round in the ids of requests; "" if these have no round number.
    """
    by_tool = any(item.by_tool for item in conversations)
    stated = sum(bool(item.about.question) for item in conversations)
    golds = sum(bool(item.about.golds) for item in conversations)
    usage = [step.span.reply.usage for item in conversations for step in item.steps if step.answer is not None]
    counts = [name for name in ("uncached", "cached", "output") if any(not math.isnan(getattr(u, name)) for u in usage)]
    known = sum(not math.isnan(own.output) for own in usage)
    ids = Counter(_id_source(item) for item in conversations)
    readings = [
        (
            "question_id",
            " or ".join(ids),
            "option" if key is not None else "usual name" if [*ids] != [_OF_TRACE] else "",
        ),
        ("round", number or "calls of a model that said something", "" if number else "in order of start"),
        ("answer", "what a tool call hands in" if by_tool else "text of the reply", ""),
        ("question", "the file's own input" if stated else "last message of the user in the first call", ""),
        ("golds", f"the file's targets, in {golds} of {len(conversations)} questions" if golds else "", ""),
        (
            "cost.generator.*",
            f"usage of {known} of {len(usage)} calls: {', '.join(counts)} tokens" if counts else "",
            "",
        ),
        *((f"{ours} (metric)", f"score {theirs!r}", "all in [0, 1]") for theirs, ours in metrics.items()),
    ]
    return [
        ColumnReading(ours=ours, theirs=theirs, how=how or "trace format") for ours, theirs, how in readings if theirs
    ]


def _id_source(item: Conversation) -> str:
    """Return the name of the attribute whose value is the conversation's id."""
    if item.key in item.traces:
        return _OF_TRACE
    ids = (step.span.ids for step in item.steps)
    return next((name for values in ids for name, value in values.items() if value == item.key), _OF_TRACE)
