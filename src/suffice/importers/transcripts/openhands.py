"""Read runs of OpenHands: `output.jsonl` of its evaluations, and lists or folders of its events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.importers.calls.objects import fields_of, objects_in
from suffice.importers.calls.payloads import text_of, usage_in
from suffice.importers.files.recognise import Head, head_of
from suffice.importers.transcripts.runs import AgentRun, transcript_importer
from suffice.importers.transcripts.steps import Step, ToolUse, objects_of, price_of, time_of
from suffice.importers.words.names import words
from suffice.policy.rounds import End

_NOT_TOOLS = frozenset({"message", "finish", "reject", "think", "system"})
"""Actions of an agent that call no tool."""

_SILENT = frozenset(
    words(
        "change_agent_state recall condensation condensation_request null agent_state_changed system message "
        "task_tracking ConversationStateUpdateEvent SystemPromptEvent MessageEvent CondensationRequest "
        "PauseEvent Condensation CondensationSummaryEvent TokenEvent LLMCompletionLogEvent "
        "StreamingDeltaEvent"
    )
)
"""Kinds of events that hold no step."""

_NOT_GIVEN = frozenset({"kind", "thought", "hidden", "security_risk", "confirmation_state", "blocking", "cwd"})
"""Arguments that do not determine what a tool does."""

_RESULTS = frozenset({"ObservationEvent", "AgentErrorEvent", "UserRejectObservation"})
_LIMITS = ("maximum iteration", "max_iterations", "maxiterationsreached", "budget")


def _is_event(record: Mapping[str, Any]) -> bool:
    old = record.get("source") in ("agent", "user", "environment") and bool({"action", "observation"} & record.keys())
    new = str(record.get("kind", "")).endswith(("Event", "Condensation")) and "source" in record
    return (old and bool({"args", "extras", "message"} & record.keys())) or new


def _is_openhands(head: Head) -> bool:
    if head.form not in ("json", "jsonl"):
        return False
    return (head.has("instance_id", "history") and bool({"test_result", "metrics"} & {*head.names})) or _is_event(
        head.record
    )


def _runs(files: Sequence[Path]) -> Iterator[AgentRun]:
    apart: dict[Path, list[Mapping[str, Any]]] = {}  # folders with a file for each event
    for file in files:
        records, cut, skipped = objects_of(file)
        if not any(map(_is_event, records)):
            for record in records:
                yield _run(record, str(record.get("instance_id")), cut=cut and record is records[-1])
        elif len(records) == 1 and head_of(file).form == "json":
            apart.setdefault(file.parent, []).extend(records)
        else:
            run = _run({"history": records}, file.name.split(".")[0], cut=cut)
            run.skipped += skipped
            yield run
    for folder, events in apart.items():
        yield _run({"history": events}, (folder.parent if folder.name == "events" else folder).name)


def _run(record: Mapping[str, Any], name: str, *, cut: bool = False) -> AgentRun:
    history = record.get("history")
    pairs = [event for pair in history if isinstance(pair, list) for event in pair] if isinstance(history, list) else []
    events = objects_in(pairs or history)  # earlier versions paired each action with its observation
    settings = fields_of(record.get("metadata"))
    model = fields_of(settings.get("llm_config") or settings.get("llm")).get("model")
    run = AgentRun(name=name, model=model, cut=cut, end="failed" if cut else _end(record, events))
    run.task = str(record.get("instruction") or _task(events))
    report = fields_of(record.get("report") or fields_of(record.get("test_result")).get("report"))
    graded = report.get("resolved", record.get("resolved"))
    run.resolved = float(graded) if isinstance(graded, bool) else None
    run.files.stays = True
    steps = _steps(events, run)
    _charge(steps, fields_of(record.get("metrics")), run)
    run.steps = [*steps.values()]
    return run


def _end(record: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> End:
    error = str(record.get("error") or "") + "".join(
        str(event.get("content") or event.get("error") or event.get("code") or "")
        for event in events[-3:]
        if _is_error(event)
    )
    if any(word in error.lower() for word in _LIMITS):
        return "max_rounds"
    own = [event for event in events if event.get("source") == "agent" and _kind(event) not in _RESULTS]
    last = own[-1] if own else {}
    finished = last.get("action") in ("finish", "message", "reject") or _kind(last) == "MessageEvent"
    finished = finished or str(last.get("tool_name")) == "finish"
    return "exhausted" if finished and not record.get("error") else "failed"


def _is_error(event: Mapping[str, Any]) -> bool:
    return event.get("observation") == "error" or _kind(event) in ("AgentErrorEvent", "ConversationErrorEvent")


def _kind(event: Mapping[str, Any]) -> str:
    return str(event.get("kind") or event.get("observation") or event.get("action"))


def _task(events: Iterable[Mapping[str, Any]]) -> str:
    for event in events:
        if event.get("source") == "user":
            said = fields_of(event.get("args")).get("content") or fields_of(event.get("llm_message")).get("content")
            return text_of(said) or str(event.get("message") or "")
    return ""


def _steps(events: Sequence[Mapping[str, Any]], run: AgentRun) -> dict[str, Step]:
    """Return the model calls by the id of their response, or by that of their event if the response has none."""
    steps: dict[str, Step] = {}
    uses: dict[str, ToolUse] = {}
    spent = 0.0
    for place, event in enumerate(events):
        kind = _kind(event)
        if "observation" in event or kind in _RESULTS:
            _answer(uses, event)
        elif event.get("source") == "agent" and (kind in ("ActionEvent", "MessageEvent") or _is_action(event)):
            response = fields_of(fields_of(event.get("tool_call_metadata")).get("model_response"))
            key = str(event.get("llm_response_id") or response.get("id") or f"event {event.get('id', place)}")
            step = steps.setdefault(
                key, Step(time=time_of(event.get("timestamp")), usage=usage_in(response.get("usage")))
            )
            run.model = run.model or response.get("model")
            in_all = fields_of(event.get("llm_metrics")).get("accumulated_cost")
            if not math.isnan(price_of(in_all)):
                step.dollars = price_of(in_all) - spent + (0.0 if math.isnan(step.dollars) else step.dollars)
                spent = price_of(in_all)
            use = _use(event)
            if use is not None:
                step.uses.append(use)
                for name in ("id", "tool_call_id"):
                    uses[f"{name} {event.get(name)}"] = use
        elif kind not in _SILENT and event.get("source") != "user":
            run.skipped[kind] += 1
    return steps


def _is_action(event: Mapping[str, Any]) -> bool:
    return "action" in event and str(event["action"]) not in _SILENT - {"message", "task_tracking"}


def _use(event: Mapping[str, Any]) -> ToolUse | None:
    name = str(event.get("tool_name") or event.get("action"))
    if name in _NOT_TOOLS or _kind(event) == "MessageEvent":
        return None
    given = fields_of(event.get("action")) or fields_of(event.get("args"))
    return ToolUse(name=name, arguments={own: value for own, value in given.items() if own not in _NOT_GIVEN and value})


def _answer(uses: Mapping[str, ToolUse], event: Mapping[str, Any]) -> None:
    cause = event.get("cause", event.get("action_id"))
    use = uses.get(f"id {cause}") or uses.get(f"tool_call_id {event.get('tool_call_id')}")
    if use is None:
        return
    told = fields_of(event.get("observation")) or fields_of(event.get("extras"))
    code = fields_of(told.get("metadata")).get("exit_code", told.get("exit_code"))
    use.answered = True
    if isinstance(code, int) and code >= 0:
        use.failed = code != 0
    elif _is_error(event) or _kind(event) == "UserRejectObservation":
        use.failed = True
    elif isinstance(told.get("is_error", told.get("error")), bool):
        use.failed = bool(told.get("is_error", told.get("error")))
    elif event.get("observation") == "edit":
        use.failed = str(event.get("content", "")).startswith("ERROR")


def _charge(steps: Mapping[str, Step], metrics: Mapping[str, Any], run: AgentRun) -> None:
    """Charge the calls in the metrics to their steps; calls for summaries, which have no event, are charged to the next step."""
    usages, costs = objects_in(metrics.get("token_usages")), objects_in(metrics.get("costs"))
    prices = [price_of(cost.get("cost")) for cost in costs] if len(costs) == len(usages) else [math.nan] * len(usages)
    owed: list[Step] = []
    charged: set[str] = set()
    for own, price in zip(usages, prices, strict=True):
        owed.append(Step(usage=usage_in(own), dollars=price))
        key = str(own.get("response_id"))
        if key in steps:
            _settle(steps[key], owed, fresh=key not in charged)
            charged.add(key)
    if owed and charged:
        _settle([*steps.values()][-1], owed, fresh=False)
    if all(math.isnan(step.dollars) for step in steps.values()):
        run.total = price_of(metrics.get("accumulated_cost"))


def _settle(step: Step, owed: list[Step], *, fresh: bool) -> None:
    """Charge pending calls to a step.

    If `fresh`, the last pending call is the step's own call: its usage and price replace those in the step's event.
    """
    if fresh:
        own = owed.pop()
        step.usage, step.dollars = own.usage, step.dollars if math.isnan(own.dollars) else own.dollars
    for call in owed:
        step.charge(call)
    owed.clear()


read_openhands = transcript_importer("openhands", _runs, _is_openhands)
