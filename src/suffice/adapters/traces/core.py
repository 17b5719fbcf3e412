"""From the spans of any format to trajectories: which spans are rounds, of which question, at what cost, and why they ended."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.adapters.base import ImportedRun, ImportedTrajectory, end_of, score
from suffice.adapters.traces.spans import CHAT, About, Log, Span
from suffice.errors import DataError, UnsettledError
from suffice.json_text import load_json
from suffice.metrics import METRICS
from suffice.rounds import Cost, End, Round
from suffice.seen import one_name_per_text
from suffice.signals import SIGNALS
from suffice.signals._align import tokens_of_span
from suffice.store.schema import column_kind

__all__ = ["TRACE_ID", "Conversation", "Step", "conversations_of", "run_of"]

TRACE_ID = "trace_id"
"""The value of `key` that makes each trace one question."""

_CONVERSATION = (
    "gen_ai.conversation.id",
    "conversation.id",
    "session.id",
    "langfuse.session.id",
    "sessionId",
    "session_id",
    "conversation_id",
    "thread_id",
    "mlflow.trace.session",
    "traceloop.association.properties.session_id",
)
_SECRET = re.compile(r"authorization|api[-_.]?key|secret|password|cookie|credential", re.IGNORECASE)
_ANSWER_TOOLS = ("submit", "submit_answer", "final_answer", "final_result")
_ANSWER_ARGUMENTS = ("answer", "final_answer", "result", "response", "output")
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Step:
    """A span as it was understood.

    Attributes:
        span: The span.
        answer: What is read as the answer of a round; None if the span is not one.
        reason: Why it is not.
        counts: Whether its cost is charged to the next round.
    """

    span: Span
    answer: str | None = None
    reason: str = ""
    counts: bool = False


@dataclass(slots=True, kw_only=True)
class Conversation:
    """All spans of one question, in order of start, as they were understood."""

    key: str
    traces: tuple[str, ...]
    steps: list[Step]
    about: About
    question: str
    notes: Counter[str] = field(default_factory=Counter)


def run_of(log: Log, source: str, *, key: str | None = None, ended_early: End | None = None) -> ImportedRun:
    """Return the trajectories of a log.

    Args:
        log: What a reader made of the files.
        source: The format.
        key: The attribute whose value names the question that a trace belongs to; `trace_id` = each trace is one.
            None = the id of the conversation or session where there is one, else the trace.
        ended_early: Why trajectories are shorter than the longest one, where the file does not say: None = `rule`.

    Raises:
        DataError: There are no rounds, spans cannot be ordered, or no span has the attribute `key`.
        UnsettledError: One id names conversations about different questions.
    """
    conversations = conversations_of(log, key)
    notes = Counter[str]()
    for item in conversations:
        notes.update(item.notes)
    usable = [item for item in conversations if any(step.answer is not None for step in item.steps)]
    if not usable:
        raise DataError(_nothing(source, log, conversations))
    if len(usable) < len(conversations):
        notes["conversations without any answer, left out"] += len(conversations) - len(usable)
    rounds = [_rounds_of(item) for item in usable]
    longest = max(map(len, rounds))
    metrics, refused = _metric_names(usable)
    clusters = one_name_per_text(
        [item.about.cluster or item.key for item in usable], [item.question for item in usable]
    )
    trajectories = [
        ImportedTrajectory(
            question_id=item.key,
            cluster=cluster,
            question=item.question,
            golds=item.about.golds,
            rounds=tuple(own),
            end=item.about.end or _end(item, len(own), longest, ended_early),
            metrics=_metrics(item, own, metrics),
            labels={"model": _model(item)},
        )
        for item, cluster, own in zip(usable, clusters, rounds, strict=True)
    ]
    depends, models = _models(trajectories)
    return ImportedRun(
        source=source,
        trajectories=trajectories,
        notes=[*_length_notes(rounds, trajectories, ended_early), *log.notes, *_counted(notes), *refused, *models],
        depends=depends,
    )


def conversations_of(log: Log, key: str | None) -> list[Conversation]:
    """Return the questions of a log with their spans as they were understood; see `run_of`."""
    spans, copies = _without_copies(log.spans)
    keys = _keys(spans, key)
    groups: dict[str, list[Span]] = {}
    for span, own in zip(spans, keys, strict=True):
        groups.setdefault(own, []).append(span)
    conversations = [_conversation(name, members, log.about) for name, members in groups.items()]
    conversations = [item for item in conversations if item.steps]
    if copies and conversations:
        conversations[0].notes["spans that were exported more than once, read once"] += copies
    return conversations


def _without_copies(spans: Sequence[Span]) -> tuple[list[Span], int]:
    unique: dict[tuple[str, str], Span] = {}
    for place, span in enumerate(spans):
        unique.setdefault((span.trace, span.span or f"{place} "), span)
    return list(unique.values()), len(spans) - len(unique)


def _keys(spans: Sequence[Span], key: str | None) -> list[str]:
    """Return for each span the id of its question: its own, that of a span around it, the trace's only one, or the trace."""
    if key == TRACE_ID:
        return [span.trace for span in spans]
    if key is not None and _SECRET.search(key):
        raise DataError(f"key {key!r} looks like a secret, and the recording would contain it: choose another attribute")
    names = _CONVERSATION if key is None else (key,)
    by_id = {(span.trace, span.span): span for span in spans if span.span}
    own = [_named(span, names) for span in spans]
    by_trace: dict[str, set[str]] = {}
    for span, value in zip(spans, own, strict=True):
        if value:
            by_trace.setdefault(span.trace, set()).add(value)
    if key is not None and not by_trace:
        there = Counter(name for span in spans for name in span.ids if not _SECRET.search(name))
        listed = ", ".join(sorted(name for name, _ in there.most_common(20)))
        raise DataError(f"no span has the attribute {key!r}; some that they have: {listed or 'none'}")
    keys = []
    for span, value in zip(spans, own, strict=True):
        around: Span | None = span
        seen = set()
        while not value and around is not None and around.parent and around.parent not in seen:
            seen.add(around.parent)
            around = by_id.get((span.trace, around.parent))
            value = _named(around, names) if around is not None else ""
        known = by_trace.get(span.trace, set())
        if not value and len(known) == 1:
            value = next(iter(known))
        if not value and key is not None and span.kind == CHAT:
            raise DataError(f"{span.where}: trace {span.trace!r} has no attribute {key!r}; every trace needs it")
        keys.append(value or span.trace)
    return keys


def _named(span: Span, names: Iterable[str]) -> str:
    return next((span.ids[name] for name in names if span.ids.get(name)), "")


def _conversation(key: str, spans: Sequence[Span], about: Mapping[str, About]) -> Conversation:
    traces = tuple(dict.fromkeys(span.trace for span in spans))
    notes = Counter[str]()
    known = [about[trace] for trace in traces if trace in about]
    merged = About(
        question=next((item.question for item in known if item.question), ""),
        golds=tuple(dict.fromkeys(gold for item in known for gold in item.golds)),
        scores={name: value for item in known for name, value in item.scores.items()},
        end=known[-1].end if known else None,
        cluster=next((item.cluster for item in known if item.cluster), ""),
        answer_tool=any(item.answer_tool for item in known),
    )
    ordered = _in_order(spans, key)
    chats = [span for span in ordered if span.kind == CHAT]
    question = merged.question or _question(chats)
    if len(traces) > 1:
        _refuse_several_questions(key, chats)
    steps = _steps(ordered, merged, notes)
    _note_oddities(steps, notes)
    return Conversation(key=key, traces=traces, steps=steps, about=merged, question=question, notes=notes)


def _in_order(spans: Sequence[Span], key: str) -> list[Span]:
    """Return the spans by start, then by end, then by how much the model was given.

    Raises:
        DataError: Two calls of a model cannot be ordered.
    """
    chats = [span for span in spans if span.kind == CHAT]
    missing = next((span for span in chats if span.start is None), None)
    if missing is not None and len(chats) > 1:
        raise DataError(
            f"{missing.where}: a model call of conversation {key!r} has no start time, so its rounds have no order; export the "
            "traces with their times"
        )

    def place(span: Span) -> tuple[int, int, int]:
        start = span.start if span.start is not None else 0
        return (start, span.end if span.end is not None else start, len(span.messages))

    ordered = sorted(spans, key=place)
    calls = [span for span in ordered if span.kind == CHAT and not span.failed and (span.text or span.tools)]
    for one, other in zip(calls, calls[1:], strict=False):
        if place(one) == place(other) and other.parent != one.span and one.parent != other.span:
            raise DataError(
                f"{other.where}: two model calls of conversation {key!r} have the same times, so their order is unknown; log "
                "times with more digits, or remove this conversation from the export"
            )
    return ordered


def _question(chats: Sequence[Span]) -> str:
    """Return the first user message."""
    for span in chats:
        for message in span.messages:
            if message.role == "user" and message.text.strip():
                return message.text.strip()
    return ""


def _refuse_several_questions(key: str, chats: Sequence[Span]) -> None:
    by_trace: dict[str, list[Span]] = {}
    for span in chats:
        by_trace.setdefault(span.trace, []).append(span)
    questions = list(dict.fromkeys(filter(None, map(_question, by_trace.values()))))
    if len(questions) > 1:
        shown = " and ".join(repr(text[:_SHOWN]) for text in questions[:2])
        raise UnsettledError(
            f"the id {key!r} names {len(by_trace)} traces about {len(questions)} questions ({shown}); a trajectory has one.",
            "key",
            {"--key trace_id": (TRACE_ID, "each trace is one question")},
        )


def _steps(ordered: Sequence[Span], about: About, notes: Counter[str]) -> list[Step]:
    nested = _repeats(ordered)
    by_tool = about.answer_tool or any(
        call.name in _ANSWER_TOOLS for span in ordered if span.kind == CHAT for call in span.tools
    )
    if by_tool:
        notes["conversations whose answers are those that the model submitted by a tool; its other texts are not"] += 1
    steps = []
    for span in ordered:
        if span.kind != CHAT:
            steps.append(Step(span, reason=f"it is not a call of a model ({span.kind or 'unknown'})"))
        elif id(span) in nested:
            steps.append(Step(span, reason=nested[id(span)]))
            notes["model calls that were logged twice, one inside the other, read once"] += 1
        elif span.failed:
            steps.append(Step(span, reason="it failed", counts=True))
            notes["failed model calls, left out; their cost counts to the next round"] += 1
        else:
            answer = _submitted(span) if by_tool else span.text.strip() or None
            reason = "" if answer is not None else _no_answer(span, by_tool=by_tool)
            steps.append(Step(span, answer=answer, reason=reason, counts=answer is None))
            if answer is None:
                notes["model calls without an answer (tool calls); their cost counts to the next round"] += 1
    return steps


def _no_answer(span: Span, *, by_tool: bool) -> str:
    called = f"it calls {', '.join(call.name for call in span.tools)}" if span.tools else "it has no text"
    return called if not by_tool or span.tools else "it submits no answer"


def _repeats(spans: Sequence[Span]) -> dict[int, str]:
    """Return the model calls that repeat another one inside or around them, by `id`, with the reason."""
    by_id = {(span.trace, span.span): span for span in spans if span.span}
    repeats: dict[int, str] = {}
    inner: dict[int, list[Span]] = {}
    for span in spans:
        if span.kind != CHAT:
            continue
        seen: set[str] = set()
        parent = span.parent
        while parent and parent not in seen:
            seen.add(parent)
            around = by_id.get((span.trace, parent))
            if around is None:
                break
            if around.kind == CHAT:
                inner.setdefault(id(around), []).append(span)
                break
            parent = around.parent
    chats = {id(span): span for span in spans}
    for outer, members in inner.items():
        if any(span.text or span.tools for span in members) or not chats[outer].text:
            repeats[outer] = "it repeats the model calls inside it"
        else:
            repeats |= {id(span): "it repeats the model call around it" for span in members}
    return repeats


def _submitted(span: Span) -> str | None:
    """Return the answer that a tool call hands in; None if no call does."""
    for call in span.tools:
        if call.name not in _ANSWER_TOOLS:
            continue
        arguments = call.arguments
        if isinstance(arguments, str):
            try:
                arguments = load_json(arguments)
            except ValueError:
                return arguments.strip()
        if isinstance(arguments, dict):
            values = [arguments[name] for name in _ANSWER_ARGUMENTS if name in arguments] or list(arguments.values())
            arguments = values[0] if values else ""
        return arguments.strip() if isinstance(arguments, str) else str(arguments)
    return None


def _note_oddities(steps: Sequence[Step], notes: Counter[str]) -> None:
    rounds = [step.span for step in steps if step.answer is not None]
    talking = sum(bool(span.text.strip() and span.tools) for span in rounds)
    if talking and all(step.answer == step.span.text.strip() for step in steps if step.answer is not None):
        notes["rounds whose text comes with a tool call: the model's words on the way, read as its answer so far"] += talking
    several = sum(span.choices > 1 for span in rounds)
    if several:
        notes["model calls with several alternatives, of which the first one is read"] += several
    if any(
        one.end is not None and other.start is not None and other.start < one.end
        for one, other in zip(rounds, rounds[1:], strict=False)
    ):
        notes["conversations whose model calls overlap in time: they are read as rounds in order of start"] += 1
    asked = {next((m.text for m in reversed(span.messages) if m.role == "user"), "") for span in rounds if span.messages}
    if len(asked) > 1:
        notes[
            "conversations in which a user's message comes between rounds: feedback of the loop, or a new question that "
            "does not belong to the same trajectory"
        ] += 1


def _rounds_of(item: Conversation) -> list[Round]:
    """Return the rounds; calls without an answer are charged to the next one, and those after the last one are a round."""
    rounds: list[Round] = []
    cost: Cost | None = None
    last: Span | None = None
    for step in item.steps:
        if not (step.counts or step.answer is not None):
            continue
        own = _cost(step.span)
        cost = own if cost is None else cost + own
        last = step.span
        if step.answer is not None:
            rounds.append(_round(len(rounds) + 1, step.span, step.answer, cost))
            cost = None
    if cost is not None and last is not None and rounds:
        rounds.append(_round(len(rounds) + 1, last, None, cost))
    return rounds


def _round(index: int, span: Span, answer: str | None, cost: Cost) -> Round:
    text = span.text
    tokens = None
    if answer is not None and span.tokens and answer == text.strip():
        start = len(text) - len(text.lstrip())
        tokens = tokens_of_span(text, span.tokens, start, start + len(answer))
    return Round(
        index=index,
        answer=answer,
        text=text,
        answer_tokens=tokens,
        costs={"generator": cost},
        finish_reason=span.finish_reason,
    )


def _cost(span: Span) -> Cost:
    unknown = 0.0 if span.failed else math.nan  # a refused call is not billed

    def known(value: float) -> float:
        return unknown if math.isnan(value) else value

    return Cost(
        calls=1,
        uncached_tokens=known(span.usage.uncached),
        cached_tokens=known(span.usage.cached),
        output_tokens=known(span.usage.output),
        seconds=span.seconds,
    )


def _end(item: Conversation, n_rounds: int, longest: int, ended_early: End | None) -> End:
    calls = [step for step in item.steps if step.counts or step.answer is not None]
    if calls and calls[-1].span.failed:
        return "failed"
    return end_of(n_rounds, longest, ended_early or "rule")


def _number(value: Any) -> float | None:
    """Return a mark in [0, 1], or None."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    return None


def _metric_name(name: str) -> str:
    plain = re.sub(r"\W+", "_", name).strip("_").lower() or "score"
    plain = plain if plain.isidentifier() else f"score_{plain}"
    taken = plain in METRICS or plain in SIGNALS or plain in ("round", "golds", "question", "cluster", "end", "text")
    return f"score_{plain}" if taken or column_kind(plain) != "label" else plain


def _metric_names(items: Sequence[Conversation]) -> tuple[dict[str, str], list[str]]:
    """Return the scores that are metrics, with their names here, and what must be known about scores."""
    values: dict[str, list[Any]] = {}
    at_the_end: set[str] = set()
    for item in items:
        for holder in (item.about.scores, *(step.span.scores for step in item.steps)):
            for name, value in holder.items():
                values.setdefault(name, []).append(value)
        at_the_end |= item.about.scores.keys()
    metrics, notes = {}, []
    for name, listed in values.items():
        if all(_number(value) is not None for value in listed):
            metrics[name] = _metric_name(name)
            where = "at the last round only, so it cannot judge earlier stops" if name in at_the_end else "where marked"
            notes.append(f"the score {name!r} is the metric {metrics[name]!r}, known {where}; more must mean better")
        else:
            odd = next(value for value in listed if _number(value) is None)
            notes.append(f"the score {name!r} is left out: {str(odd)[:_SHOWN]!r} is not a number in [0, 1]")
    return metrics, notes


def _metrics(item: Conversation, rounds: Sequence[Round], names: Mapping[str, str]) -> tuple[dict[str, float], ...]:
    marked = [step.span.scores for step in item.steps if step.answer is not None]
    metrics = []
    for place, own in enumerate(rounds):
        scores = dict(marked[place]) if place < len(marked) else {}
        if place == len(rounds) - 1:
            scores |= item.about.scores
        values = {ours: _number(scores.get(theirs)) for theirs, ours in names.items()}
        known = {name: math.nan if value is None else value for name, value in values.items()}
        metrics.append({**score(own.answer, item.about.golds), **known})
    return tuple(metrics)


def _model(item: Conversation) -> str | None:
    names = list(dict.fromkeys(step.span.model for step in item.steps if step.answer is not None and step.span.model))
    return ", ".join(names) or None


def _models(trajectories: Sequence[ImportedTrajectory]) -> tuple[dict[str, Any], list[str]]:
    names = {item.labels["model"] for item in trajectories}
    if names == {None}:
        return {}, []
    if len(names) > 1:
        return {}, [f"{len(names)} different models: a policy fitted on this recording pins none of them"]
    name = names.pop()
    return {"model": name}, [f"policies fitted on this recording depend on model {name!r}"]


def _length_notes(
    rounds: Sequence[Sequence[Round]], trajectories: Sequence[ImportedTrajectory], ended_early: End | None
) -> list[str]:
    lengths = Counter(len(own) for own in rounds)
    longest = max(lengths)
    notes = []
    if longest == 1:
        notes.append("every trace has one round, so there is nothing to decide: log a loop's drafts or steps as model calls")
    elif len(lengths) == 1:
        notes.append(f"every trajectory has {longest} rounds: read as the loop's cap (end: max_rounds)")
    elif ended_early is None and any(item.end == "rule" for item in trajectories):
        notes.append(
            f"trajectories have {min(lengths)} to {longest} rounds: shorter ones are read as the loop's own stops (end: rule), "
            "beyond which nothing is known"
        )
    if len(rounds) == 1:
        notes.append("one question: a decision needs many")
    return notes


def _counted(notes: Counter[str]) -> list[str]:
    return [f"{number} {text}" for text, number in notes.items()]


def _nothing(source: str, log: Log, conversations: Sequence[Conversation]) -> str:
    kinds = Counter(span.kind or "unknown" for span in log.spans)
    listed = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common(6))
    if not kinds[CHAT]:
        return (
            f"no model call in this {source} export (spans: {listed or 'none'}); export the traces with the spans of the model "
            "calls, or choose another format with --kind"
        )
    failed = sum(span.failed for span in log.spans if span.kind == CHAT)
    return (
        f"none of the {kinds[CHAT]} model calls has an answer's text ({failed} failed): switch on that your instrumentation "
        "captures message content, and export again"
    )
