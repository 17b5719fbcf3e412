"""Convert the conversations of a log to trajectories: rounds with their cost, metrics, and the reason for the end."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from suffice.errors import DataError
from suffice.importers.answers.imported import ImportedRun
from suffice.importers.answers.reply_answers import counts_of, position_note
from suffice.importers.calls.spans import CHAT, Log, TraceSpan
from suffice.importers.files.recognise import Head
from suffice.importers.importers import reads_traces, recognised_by
from suffice.importers.rounds.trajectories import ImportedTrajectory, end_of, score, unsaid_ends
from suffice.importers.traces.core import Conversation, answers_at, conversations_of
from suffice.importers.traces.explain import trace_readings
from suffice.importers.traces.kinds import OTHER_CALLS, refuse_several_kinds
from suffice.importers.words.names import MOST_SPEAKERS
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import Cost, End, Round
from suffice.policy.seen import one_name_per_text
from suffice.policy.signals import SIGNALS, AnswerPosition, Located
from suffice.recordings.schema import column_kind

_MARK_CHARS = 60
_SAME = 0.9


def trace_importer(
    source: str, log_of: Callable[[str | Path], Log], recognises: Callable[[Head], bool]
) -> Callable[..., ImportedRun]:
    """Return the importer of a format of traces; see `read` for its arguments.

    Args:
        source: The format.
        log_of: Reads the spans of a file or folder.
        recognises: Returns True if a file has the format.
    """

    @recognised_by(recognises)
    @reads_traces(log_of)
    def read(
        path: str | Path,
        *,
        key: str | None = None,
        ended: End | None = None,
        answer_position: AnswerPosition | None = None,
        where: Mapping[str, str] | None = None,
        expected: Collection[str] = (),
    ) -> ImportedRun:
        """Read the traces of a file or folder.

        Args:
            path: A file, or a folder.
            key: The attribute, field or metadata that identifies the question; `trace_id` = each trace is one question.
            None = the id of the conversation, session or thread, otherwise the trace.
            ended: The reason why trajectories are shorter than the longest one; None = the loop's own rule.
            answer_position: The position of the answer in a reply; None = the whole reply.
            where: The calls that are answers: by `span_name`, `system`, `prompt`, `reply` or an attribute; None = all.
            expected: Alarms to accept; `other-calls` = calls of several kinds are answers.

        Raises:
            DataError: The file cannot be read, or has no answers.
        """
        position = answer_position
        return run_of(
            log_of(path), source, key=key, ended=ended, answer_position=position, where=where, expected=expected
        )

    read.__name__ = read.__qualname__ = f"read_{source}"
    return read


def run_of(
    log: Log,
    source: str,
    *,
    key: str | None = None,
    ended: End | None = None,
    answer_position: AnswerPosition | None = None,
    where: Mapping[str, str] | None = None,
    expected: Collection[str] = (),
) -> ImportedRun:
    """Convert a log of traces to trajectories.

    Args:
        log: The result of a reader of traces.
        source: The format.
        key: The attribute whose value identifies a trace's question; `trace_id` = each trace is one question.  None = the id of
        the conversation or session if there is one, otherwise the trace.
        ended: The reason why some trajectories are shorter than the longest, if the file gives no reason; None = `rule`.
        answer_position: The position of the answer in a reply; None = the whole reply.
        where: The calls that are answers, by attribute; the cost of the other calls is charged to the next answer.  None = all.
        expected: Alarms to accept; `other-calls` = calls of several kinds are answers.

    Raises:
        DataError: There are no rounds, spans cannot be ordered, no span has the attribute `key`, or no reply has an answer at
            the position.
        UnsettledError: Conversations with one id have different questions, or calls of several kinds may be rounds.
    """
    conversations = conversations_of(log, key, where)
    notes = Counter[str]()
    for item in conversations:
        notes.update(item.notes)
    if not any(step.answer is not None for item in conversations for step in item.steps):
        raise DataError(_no_answer_message(source, log))
    usable = [item for item in conversations if item.calls]
    if len(usable) < len(conversations):
        notes["traces without a call of a model, left out"] += len(conversations) - len(usable)
    if not (where or OTHER_CALLS in expected):
        refuse_several_kinds(log.spans, [item.rounds for item in usable])
    rounds = [_rounds_of(item, answer_position) for item in usable]
    said = [own for listed in rounds for own in listed]
    at = answer_position and position_note(
        answer_position, counts_of((own.text for own in said), (own.answer for own in said))
    )
    silent = sum(all(own.answer is None for own in listed) for listed in rounds)
    if silent:
        notes["conversations without any answer (one round, wrong where the gold answer is known)"] += silent
    metrics, refused = _metric_names(usable)
    trajectories = _trajectories(usable, rounds, metrics, ended)
    depends, models = _models(trajectories)
    return ImportedRun(
        source=source,
        trajectories=trajectories,
        notes=[
            *_length_notes(rounds, trajectories),
            *_usage_notes(rounds),
            *_cluster_notes(trajectories),
            *log.notes,
            *(f"{text}: {number}" for text, number in notes.items()),
            *refused,
            *_mark_disagreements(trajectories, usable, metrics),
            *models,
            *([at] if at else []),
        ],
        readings=trace_readings(usable, key, metrics, log.number),
        depends=depends,
    )


def _trajectories(
    items: Sequence[Conversation], rounds: Sequence[Sequence[Round]], metrics: Mapping[str, str], ended: End | None
) -> list[ImportedTrajectory]:
    longest = max(map(len, rounds))
    clusters = one_name_per_text([item.about.cluster or item.key for item in items], [item.question for item in items])
    return [
        ImportedTrajectory(
            question_id=item.key,
            cluster=cluster,
            question=item.question,
            golds=item.about.golds,
            rounds=tuple(own),
            end=item.about.end or _conversation_end(item, len(own), longest, ended),
            end_assumed=_assumes_end(item, len(own), longest, ended),
            metrics=_round_metrics(item, own, metrics),
            labels={"model": _model(item)},
            extras=tuple({"span_name": name} for name in called),
        )
        for item, cluster, own, called in zip(items, clusters, rounds, _called(items, rounds), strict=True)
    ]


def _rounds_of(item: Conversation, position: AnswerPosition | None) -> list[Round]:
    """Return the rounds of a conversation.

    Calls without an answer are charged to the next round.  At the end of a conversation, they form a last round of their own.
    But if the last call is of a kind that the user did not choose, such as a grade, they are charged to the round before.
    """
    located = iter(answers_at(item, position))
    rounds: list[Round] = []
    cost: Cost | None = None
    last: TraceSpan | None = None
    calls = item.calls
    for step in calls:
        own = _span_cost(step.span)
        if step.other and calls[-1].other and rounds and cost is None:
            rounds[-1] = replace(rounds[-1], costs={"generator": rounds[-1].costs["generator"] + own})
            continue
        cost = own if cost is None else cost + own
        last = step.span
        if step.is_round:
            found = next(located)
            answer = step.answer if position is None or step.cut else found.answer
            rounds.append(_round(len(rounds) + 1, step.span, answer, cost, found))
            cost = None
    if cost is not None and last is not None:
        rounds.append(_round(len(rounds) + 1, last, None, cost, Located()))
    return rounds


def _round(index: int, span: TraceSpan, answer: str | None, cost: Cost, located: Located) -> Round:
    return Round(
        index=index,
        answer=answer,
        text=span.reply.text,
        answer_tokens=located.answer_tokens if answer is not None and answer == located.answer else None,
        costs={"generator": cost},
        finish_reason=span.reply.finish_reason,
    )


def _span_cost(span: TraceSpan) -> Cost:
    unknown = 0.0 if span.failed else math.nan  # a refused call is not billed

    def known(value: float) -> float:
        return unknown if math.isnan(value) else value

    return Cost(
        calls=1,
        **{kind: known(value) for kind, value in span.reply.usage.costs.items()},
        seconds=span.seconds,
    )


def _conversation_end(item: Conversation, n_rounds: int, longest: int, ended: End | None) -> End:
    if item.calls and item.calls[-1].span.failed:
        return "failed"
    return end_of(n_rounds, longest, ended or "rule")


def _assumes_end(item: Conversation, n_rounds: int, longest: int, ended: End | None) -> bool:
    """Return whether a conversation is shorter than the longest one and the log gives no reason."""
    said = item.about.end is not None or ended is not None
    return not said and _conversation_end(item, n_rounds, longest, ended) == "rule"


def _unit_mark(value: Any) -> float | None:
    """Return a grade if it is a number in [0, 1]; else None."""
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
    """Map the names of scores in the log to this library's names of metrics; also return notes about scores."""
    values: dict[str, list[Any]] = {}
    at_the_end: set[str] = set()
    for item in items:
        for holder in (item.about.scores, *(step.span.scores for step in item.steps)):
            for name, value in holder.items():
                values.setdefault(name, []).append(value)
        at_the_end |= item.about.scores.keys()
    metrics, notes = {}, []
    for name, listed in values.items():
        if all(_unit_mark(value) is not None for value in listed):
            metrics[name] = _metric_name(name)
            where = "at the last round only, so it cannot judge earlier stops" if name in at_the_end else "where marked"
            notes.append(f"the score {name!r} is the metric {metrics[name]!r}, known {where}; more must mean better")
        else:
            odd = next(value for value in listed if _unit_mark(value) is None)
            notes.append(f"the score {name!r} is left out: {str(odd)[:_MARK_CHARS]!r} is not a number in [0, 1]")
    return metrics, notes


def _round_metrics(
    item: Conversation, rounds: Sequence[Round], names: Mapping[str, str]
) -> tuple[dict[str, float], ...]:
    marked = [span.scores for span in item.rounds]
    metrics = []
    for place, own in enumerate(rounds):
        scores = dict(marked[place]) if place < len(marked) else {}
        if place == len(rounds) - 1:
            scores |= item.about.scores
        values = {ours: _unit_mark(scores.get(theirs)) for theirs, ours in names.items()}
        known = {name: math.nan if value is None else value for name, value in values.items()}
        metrics.append({**score(own.answer, item.about.golds), **known})
    return tuple(metrics)


def _mark_disagreements(
    trajectories: Sequence[ImportedTrajectory], items: Sequence[Conversation], names: Mapping[str, str]
) -> list[str]:
    """Return notes on scores that often differ from exact match: answers may then contain more than the gold answer."""
    notes = []
    for theirs, ours in names.items():
        pairs = [
            (item.metrics[-1][ours], item.metrics[-1]["em"])
            for item, about in zip(trajectories, items, strict=True)
            if theirs in about.about.scores and item.golds
        ]
        known = [(mark, em) for mark, em in pairs if not math.isnan(mark)]
        same = sum(mark == em for mark, em in known)
        if known and same < _SAME * len(known):
            notes.append(
                f"the score {theirs!r} and em agree in {same} of {len(known)} last rounds, so em may not measure what the score "
                "marks: look at contains, too"
            )
    return notes


def _called(items: Sequence[Conversation], rounds: Sequence[Sequence[Round]]) -> list[list[str]]:
    """Return the span name of each round, by conversation.

    All lists are empty if no conversation has different names after its first round, or if the log has many different names.
    """
    names = [[span.name for span in item.rounds] for item in items]
    differ = any(len({*own[1:]}) > 1 for own in names) and len({*chain(*names)}) <= MOST_SPEAKERS
    fits = all(len(own) == len(listed) for own, listed in zip(names, rounds, strict=True))
    return names if differ and fits else [[] for _ in names]


def _model(item: Conversation) -> str | None:
    """Return the models that replied, as one text.

    Failed calls are ignored, since they may name an alias or a model that was tried before.
    """
    calls = [step for step in item.calls if not step.span.failed] or item.calls
    names = list(dict.fromkeys(step.span.reply.model for step in calls if step.span.reply.model))
    return ", ".join(names) or None


def _models(trajectories: Sequence[ImportedTrajectory]) -> tuple[dict[str, Any], list[str]]:
    names = {item.labels["model"] for item in trajectories}
    if names == {None}:
        return {}, []
    if len(names) > 1:
        return {}, [f"{len(names)} different models: `suffice decide --where model=NAME` judges one of them alone"]
    name = names.pop()
    return {"model": name}, [f"policies fitted on this recording depend on model {name!r}"]


def _length_notes(rounds: Sequence[Sequence[Round]], trajectories: Sequence[ImportedTrajectory]) -> list[str]:
    lengths = Counter(len(own) for own in rounds)
    longest = max(lengths)
    notes = []
    if longest == 1:
        notes.append(
            "every trace has one round, so there is nothing to stop earlier and nothing to decide; if several traces are the rounds of one "
            "question, --key names the attribute that they share. Else log each draft or step as a model call"
        )
    elif len(lengths) == 1:
        notes.append(f"every question has {longest} rounds: read as the loop's cap")
    elif n := sum(item.end_assumed for item in trajectories):
        what = "runs" if len({item.cluster for item in trajectories}) < len(trajectories) else "questions"
        notes.append(unsaid_ends(n, len(trajectories), what, longest))
    return notes


def _usage_notes(rounds: Sequence[Sequence[Round]]) -> list[str]:
    costs = [cost for own in rounds for item in own for cost in item.costs.values()]
    known = sum(not math.isnan(cost.uncached_tokens + cost.cached_tokens + cost.output_tokens) for cost in costs)
    if known == len(costs):
        return []
    return [
        f"tokens are unknown in {len(costs) - known:,} of {len(costs):,} rounds: what is saved is counted in calls alone"
    ]


def _cluster_notes(trajectories: Sequence[ImportedTrajectory]) -> list[str]:
    questions = len({item.cluster for item in trajectories})
    if questions == len(trajectories):
        return []
    return [f"{len(trajectories)} trajectories of {questions} questions: those that ask the same are one cluster"]


def _no_answer_message(source: str, log: Log) -> str:
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
