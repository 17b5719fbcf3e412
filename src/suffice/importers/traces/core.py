"""Group spans by question, sort them, and decide which ones are rounds."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from suffice.common.json_text import load_json
from suffice.errors import DataError, UnsettledError
from suffice.importers.calls.spans import CHAT, About, Log, TraceSpan
from suffice.importers.traces.kinds import not_chosen
from suffice.importers.words.names import GOLDS, last_name, words
from suffice.loops.models._wire import is_cut
from suffice.policy.session.replies import located_in
from suffice.policy.signals import Located
from suffice.policy.signals.position import AnswerPosition

TRACE_ID = "trace_id"
"""The value of `key` that makes each trace one question."""

_CONVERSATION = words(
    "gen_ai.conversation.id conversation.id session.id langfuse.session.id sessionId session_id "
    "conversation_id thread_id mlflow.trace.session traceloop.association.properties.session_id"
)
_SECRET = re.compile(r"authorization|api[-_.]?key|secret|password|cookie|credential", re.IGNORECASE)
ANSWER_TOOLS = ("submit", "submit_answer", "final_answer", "final_result")
_ANSWER_ARGUMENTS = ("answer", "final_answer", "result", "response", "output")
_GOLDS = frozenset(GOLDS) - {*words("label labels ref refs target targets reference references gt gts")}
_QUESTION_CHARS = 60
WHOLE = AnswerPosition("whole")
"""The position of the answer: the whole text without reasoning, as in a live reply."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """A span, and whether it is a round.

    Attributes:
        answer: The answer of the round; None if the span is not a round.
        counts: True if its cost is charged to the next round.
        cut: True if the answer was truncated; the span is then a round without an answer.
        other: True if it is a call, but not of the kind that the user chose as answers.
    """

    span: TraceSpan
    answer: str | None = None
    reason: str = ""
    counts: bool = False
    cut: bool = False
    other: bool = False

    @property
    def is_round(self) -> bool:
        """True if the span is a round."""
        return self.answer is not None or self.cut


@dataclass(slots=True, kw_only=True)
class Conversation:
    """All spans of one question, sorted by start, each with the decision whether it is a round.

    With `by_tool`, answers are the arguments of a tool call.
    """

    key: str
    traces: tuple[str, ...]
    steps: list[TraceStep]
    about: About
    question: str
    by_tool: bool = False
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def calls(self) -> list[TraceStep]:
        """The model calls whose cost counts."""
        return [step for step in self.steps if step.counts or step.answer is not None]

    @property
    def rounds(self) -> list[TraceSpan]:
        """The spans that are rounds."""
        return [step.span for step in self.steps if step.is_round]


def answers_at(item: Conversation, position: AnswerPosition | None) -> list[Located]:
    """Locate the answers in the replies of a conversation's rounds; without a position, each whole reply is the answer.

    Raises:
        DataError: There is a position, but answers are submitted by a tool, so that they are in no reply.
    """
    if position is not None and item.by_tool:
        raise DataError(
            f"the answers of conversation {item.key!r} are what a tool call submits, so they are at no position of a text: leave "
            "answer_position out"
        )
    read = [span.reply for span in item.rounds]
    return [*located_in([reply.text for reply in read], position or WHOLE, [reply.tokens for reply in read])]


def conversations_of(log: Log, key: str | None, where: Mapping[str, str] | None = None) -> list[Conversation]:
    """Group a log by question, and decide for each span if it is a round; see `run_of`."""
    spans, copies = _without_copies(log.spans)
    others = not_chosen([span for span in spans if span.kind == CHAT], where) if where else set[int]()
    keys = _question_keys(spans, key)
    groups: dict[str, list[TraceSpan]] = {}
    for span, own in zip(spans, keys, strict=True):
        groups.setdefault(own, []).append(span)
    conversations = [_conversation(name, members, log.about, others) for name, members in groups.items()]
    conversations = [item for item in conversations if item.steps]
    if copies and conversations:
        conversations[0].notes["spans that were exported more than once, read once"] += copies
    return conversations


def _without_copies(spans: Sequence[TraceSpan]) -> tuple[list[TraceSpan], int]:
    unique: dict[tuple[str, str], TraceSpan] = {}
    for place, span in enumerate(spans):
        unique.setdefault((span.trace, span.span or f"{place} "), span)
    return list(unique.values()), len(spans) - len(unique)


def _question_keys(spans: Sequence[TraceSpan], key: str | None) -> list[str]:
    """Return for each span the id of its question: the id of the span, of an enclosing span, or of the trace."""
    if key == TRACE_ID:
        return [span.trace for span in spans]
    if key is not None and _SECRET.search(key):
        raise DataError(
            f"key {key!r} looks like a secret, and the recording would contain it: choose another attribute"
        )
    names = _CONVERSATION if key is None else (key,)
    by_id = {(span.trace, span.span): span for span in spans if span.span}
    own = [_first_id(span, names) for span in spans]
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
        known = by_trace.get(span.trace, set())
        inherited = value or _inherited(span, by_id, names) or (next(iter(known)) if len(known) == 1 else "")
        if not inherited and key is not None and span.kind == CHAT:
            raise DataError(f"{span.where}: trace {span.trace!r} has no attribute {key!r}; every trace needs it")
        keys.append(inherited or span.trace)
    return keys


def _inherited(span: TraceSpan, by_id: Mapping[tuple[str, str], TraceSpan], names: Sequence[str]) -> str:
    """Return the first id under one of `names` in a span, or in the spans that enclose it, the nearest first; "" if there is no id."""
    return next((name for name in (_first_id(around, names) for around in _around(span, by_id)) if name), "")


def _around(span: TraceSpan, by_id: Mapping[tuple[str, str], TraceSpan]) -> Iterator[TraceSpan]:
    """Yield the spans that enclose this one, the nearest first."""
    ids = {span.span}
    around = by_id.get((span.trace, span.parent))
    while around is not None and around.span not in ids:
        ids.add(around.span)
        yield around
        around = by_id.get((span.trace, around.parent))


def _first_id(span: TraceSpan, names: Iterable[str]) -> str:
    return next((span.ids[name] for name in names if span.ids.get(name)), "")


def _conversation(
    key: str, spans: Sequence[TraceSpan], about: Mapping[str, About], others: Collection[int]
) -> Conversation:
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
    ordered = _spans_in_order(spans, key)
    chats = [span for span in ordered if span.kind == CHAT]
    if len(traces) > 1:
        _refuse_several_questions(key, chats)
    merged.golds = merged.golds or _golds_of_ids(ordered)
    chosen = [span for span in chats if id(span) not in others]
    by_tool = merged.answer_tool or any(call.name in ANSWER_TOOLS for span in chosen for call in span.reply.tools)
    steps = _steps(ordered, notes, others, by_tool=by_tool)
    read = [step.span for step in steps if (step.counts and not step.other) or step.answer is not None]
    merged.question = merged.question or _asked_of_the_loop(ordered, read)
    question = merged.question or _question_text(read) or _question_text(chats)
    _note_oddities(steps, notes)
    return Conversation(
        key=key, traces=traces, steps=steps, about=merged, question=question, by_tool=by_tool, notes=notes
    )


def _golds_of_ids(spans: Sequence[TraceSpan]) -> tuple[str, ...]:
    """Return the gold answer in the attributes or metadata of spans, such as `expected_output`, as a tuple of one text.

    Return an empty tuple if no span has a gold answer, or if spans have different ones.
    """
    values = {value for span in spans for name, value in span.ids.items() if last_name(name) in _GOLDS}
    return tuple(values) if len(values) == 1 else ()


def _spans_in_order(spans: Sequence[TraceSpan], key: str) -> list[TraceSpan]:
    """Sort the spans by start, then by end, then by the size of the model's input."""
    chats = [span for span in spans if span.kind == CHAT]
    missing = next((span for span in chats if span.start is None), None)
    if missing is not None and len(chats) > 1:
        raise DataError(
            f"{missing.where}: a model call of conversation {key!r} has no start time, so its rounds have no order; export the "
            "traces with their times"
        )

    def place(span: TraceSpan) -> tuple[int, int, int]:
        start = span.start if span.start is not None else 0
        return (start, span.end if span.end is not None else start, len(span.messages))

    ordered = sorted(spans, key=place)
    calls = [
        span for span in ordered if span.kind == CHAT and not span.failed and (span.reply.text or span.reply.tools)
    ]
    for one, other in pairwise(calls):
        if place(one) == place(other) and other.parent != one.span and one.parent != other.span:
            raise DataError(
                f"{other.where}: two model calls of conversation {key!r} have the same times, so their order is unknown; log "
                "times with more digits, or remove this conversation from the export"
            )
    return ordered


def _user_texts(span: TraceSpan) -> list[str]:
    return [message.text.strip() for message in span.messages if message.role == "user" and message.text.strip()]


def _question_text(chats: Sequence[TraceSpan]) -> str:
    """Return the last user message of the first call; user messages before it are examples, or a previous question."""
    return next((texts[-1] for texts in map(_user_texts, chats) if texts), "")


def _asked_of_the_loop(spans: Sequence[TraceSpan], read: Sequence[TraceSpan]) -> str:
    """Return the input of the outermost span, if the first model call has this text within a longer prompt; else ""."""
    asked = {span.asked for span in spans if span.asked and not span.parent and span.kind != CHAT}
    texts = _user_texts(read[0]) if len(asked) == 1 and read else []
    return next((text for text in asked if any(text in own and text != own for own in texts)), "")


def _refuse_several_questions(key: str, chats: Sequence[TraceSpan]) -> None:
    by_trace: dict[str, list[TraceSpan]] = {}
    for span in chats:
        by_trace.setdefault(span.trace, []).append(span)
    openings = {
        texts[0] for texts in (next(filter(None, map(_user_texts, own)), []) for own in by_trace.values()) if texts
    }
    questions = list(dict.fromkeys(filter(None, map(_question_text, by_trace.values()))))
    if len(openings) > 1 and len(questions) > 1:
        shown = " and ".join(repr(text[:_QUESTION_CHARS]) for text in questions[:2])
        raise UnsettledError(
            f"the id {key!r} names {len(by_trace)} traces about {len(questions)} questions ({shown}); a trajectory has one.",
            "key",
            {"--key trace_id": (TRACE_ID, "each trace is one question")},
        )


def _steps(
    ordered: Sequence[TraceSpan], notes: Counter[str], others: Collection[int], *, by_tool: bool
) -> list[TraceStep]:
    nested = _repeats(ordered)
    if by_tool:
        notes["conversations whose answers are what the model submitted by a tool, not its other texts"] += 1
    steps = []
    for span in ordered:
        if span.kind != CHAT:
            steps.append(TraceStep(span, reason=f"no model call: {span.kind or 'unknown'}"))
        elif id(span) in nested:
            steps.append(TraceStep(span, reason=nested[id(span)]))
            notes["model calls that were logged twice, one inside the other, read once"] += 1
        elif span.failed:
            steps.append(TraceStep(span, reason="it failed", counts=True))
            notes["failed model calls, left out, whose cost counts to the next round"] += 1
        elif id(span) in others:
            steps.append(TraceStep(span, reason="not chosen by --where", counts=True, other=True))
            notes[
                "model calls that --where does not choose, whose cost counts to the next answer, or to the one before if they end the conversation"
            ] += 1
        else:
            answer = _submitted(span) if by_tool else WHOLE.locate(span.reply.text, None).answer
            if answer is not None and is_cut(span.reply.finish_reason):
                reason = f"it was cut ({span.reply.finish_reason})"
                steps.append(TraceStep(span, reason=reason, counts=True, cut=True))
                notes["model calls that were cut (length, content_filter, ...), rounds without an answer"] += 1
                continue
            reason = "" if answer is not None else _no_answer(span, by_tool=by_tool)
            steps.append(TraceStep(span, answer=answer, reason=reason, counts=answer is None))
            if answer is None:
                notes["model calls without an answer (tool calls), whose cost counts to the next round"] += 1
    return steps


def _no_answer(span: TraceSpan, *, by_tool: bool) -> str:
    called = f"it calls {', '.join(call.name for call in span.reply.tools)}" if span.reply.tools else "it has no text"
    return called if not by_tool or span.reply.tools else "it submits no answer"


def _repeats(spans: Sequence[TraceSpan]) -> dict[int, str]:
    """Find model calls that were logged twice: as a span, and as another span inside it.

    Return the reason for leaving out one of the two spans, by its `id`.
    """
    by_id = {(span.trace, span.span): span for span in spans if span.span}
    repeats: dict[int, str] = {}
    inner: dict[int, list[TraceSpan]] = {}
    for span in spans:
        if span.kind != CHAT:
            continue
        outer = next((around for around in _around(span, by_id) if around.kind == CHAT), None)
        if outer is not None:
            inner.setdefault(id(outer), []).append(span)
    chats = {id(span): span for span in spans}
    for place, members in inner.items():
        if any(span.reply.text or span.reply.tools for span in members) or not chats[place].reply.text:
            repeats[place] = "it repeats the model calls inside it"
        else:
            repeats |= {id(span): "it repeats the model call around it" for span in members}
    return repeats


def _submitted(span: TraceSpan) -> str | None:
    """Return the answer that a tool call of a span submits; None if there is no such call."""
    for call in span.reply.tools:
        if call.name not in ANSWER_TOOLS:
            continue
        arguments: Any = call.arguments
        if isinstance(arguments, str):
            try:
                arguments = load_json(arguments)
            except ValueError:
                return str(arguments).strip()
        if isinstance(arguments, dict):
            named = [arguments[name] for name in _ANSWER_ARGUMENTS if name in arguments]
            values = named or list(arguments.values())
            arguments = values[0] if named or len(values) == 1 else json.dumps(arguments, ensure_ascii=False)
        return str(arguments).strip()
    return None


def _note_oddities(steps: Sequence[TraceStep], notes: Counter[str]) -> None:
    rounds = [step.span for step in steps if step.answer is not None]
    talking = sum(bool(span.reply.tools and not _submitted(span)) for span in rounds)
    if talking:
        notes["rounds whose text comes with a tool call (the model's words on the way, read as its answer so far)"] += (
            talking
        )
    several = sum(span.reply.choices > 1 for span in rounds)
    if several:
        notes["model calls with several alternatives, of which the first one is read"] += several
    if any(
        one.end is not None and other.start is not None and other.start < one.end for one, other in pairwise(rounds)
    ):
        notes["conversations whose model calls overlap in time, read as rounds in order of start"] += 1
    questions = {
        next((m.text for m in reversed(span.messages) if m.role == "user"), "") for span in rounds if span.messages
    }
    if len(questions) > 1:
        notes[
            "conversations whose calls have other last messages of a user (prompts or feedback of the loop; if they are other questions, "
            "--key names what makes a question)"
        ] += 1
