"""Read samples of Inspect logs in which the model calls tools and gives at most one answer: each model call is a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from suffice.importers.calls.objects import fields_of, objects_in
from suffice.importers.calls.payloads import messages_of, usage_in
from suffice.importers.calls.spans import Log
from suffice.importers.transcripts.runs import AgentRun
from suffice.importers.transcripts.steps import Step, ToolUse, price_of, time_of
from suffice.importers.words.names import words
from suffice.policy.rounds import End

_SILENT = frozenset(
    words(
        "sample_init sample_limit sandbox state store approval compaction input score score_edit error logger "
        "info span_begin span_end step subtask"
    )
)
"""Kinds of events that hold no step."""


def has_steps_alone(log: Log, answer_tools: Collection[str]) -> bool:
    """Return whether samples use tools, and none of them gives several answers."""
    answers = dict.fromkeys(log.about, 0)
    works = False
    for span in log.spans:
        names = {tool.name for tool in span.reply.tools}
        works |= any(ToolUse(name=name).works for name in names)
        by_tool = log.about[span.trace].answer_tool
        answers[span.trace] += bool(names & {*answer_tools}) if by_tool else bool(span.reply.text and not names)
    return works and max(answers.values()) <= 1


def run_of_sample(sample: Mapping[str, Any], name: str, end: End | None, grades: Mapping[str, Any]) -> AgentRun:
    """Return a sample as a run of an agent.

    Args:
        sample: The sample, with attachments inserted.
        name: The sample's id, which all of its epochs share.
        end: The reason for the end of the run; None = the agent ended it.
        grades: The scorers' grades by name; the first number in [0, 1] is the run's grade.
    """
    run = AgentRun(name=name, end=end or "exhausted")
    question = sample.get("input")
    run.task = (
        question if isinstance(question, str) else next((m.text for m in messages_of(question) if m.role == "user"), "")
    )
    marks = [mark for mark in grades.values() if isinstance(mark, int | float) and 0 <= mark <= 1]
    run.resolved = float(marks[0]) if marks else None
    uses: dict[str, ToolUse] = {}
    for event in objects_in(sample.get("events")):
        kind = str(event.get("event"))
        output = fields_of(event.get("output"))
        if kind == "model" and (event.get("error") or not output.get("choices")):
            run.skipped["failed calls of the model"] += 1
        elif kind == "model":
            run.model = run.model or output.get("model") or event.get("model")
            run.steps.append(_step(event, output, uses))
        elif kind == "tool":
            use = uses.get(str(event.get("id")))
            if use is not None:  # a shell's result does not include its exit status
                use.failed = True if event.get("error") else None if use.script is not None else False
        elif kind not in _SILENT:
            run.skipped[kind] += 1
    return run


def _step(event: Mapping[str, Any], output: Mapping[str, Any], uses: dict[str, ToolUse]) -> Step:
    usage = fields_of(output.get("usage"))
    seconds = price_of(output.get("time"))
    step = Step(usage=usage_in(usage, apart=True), dollars=price_of(usage.get("total_cost")), seconds=seconds)
    step.time = time_of(event.get("timestamp"))
    message = fields_of(objects_in(output.get("choices"))[0].get("message"))
    for call in objects_in(message.get("tool_calls")):
        use = ToolUse(name=str(call.get("function")), arguments=fields_of(call.get("arguments")))
        uses[str(call.get("id"))] = use
        step.uses.append(use)
    return step
