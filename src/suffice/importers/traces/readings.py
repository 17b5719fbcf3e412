"""Describe how the spans of traces were read, so that a user can check and correct it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from suffice.importers.traces.core import Conversation
from suffice.importers.trajectories import ColumnReading

_OF_TRACE = "id of the trace, sample or request"


def trace_readings(
    conversations: Sequence[Conversation], key: str | None, metrics: Mapping[str, str]
) -> list[ColumnReading]:
    """Return the sources of ids, rounds, answers, questions, gold answers, costs and metrics.

    Args:
        conversations: Those with a call of a model.
        key: The attribute that the user gave for the question; None = found by usual names.
        metrics: Scores that are metrics, with their names here.
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
        ("round", "calls of a model that said something", "in order of start"),
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
    """Return the attribute whose value is the id of a conversation."""
    if item.key in item.traces:
        return _OF_TRACE
    ids = (step.span.ids for step in item.steps)
    return next((name for values in ids for name, value in values.items() if value == item.key), _OF_TRACE)
