"""Read rollouts of Codex, the JSON lines of `~/.codex/sessions`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from suffice.importers.calls.objects import fields_of, unwrapped
from suffice.importers.calls.payloads import count, first, text_of
from suffice.importers.calls.spans import Usage, usage_of
from suffice.importers.files.recognise import Head
from suffice.importers.transcripts.runs import AgentRun, transcript_importer
from suffice.importers.transcripts.steps import Step, ToolUse, charge_subagent, objects_of, time_of
from suffice.importers.words.names import words

_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_SILENT = frozenset(
    words(
        "session_meta turn_context compacted agent_message agent_reasoning agent_reasoning_raw_content "
        "user_message task_started turn_started task_complete turn_complete context_compacted patch_apply_end "
        "web_search_end mcp_tool_call_end entered_review_mode exited_review_mode item_completed "
        "thread_rolled_back thread_goal_updated compaction ghost_snapshot world_state "
        "inter_agent_communication"
    )
)
"""Types of lines that hold no step."""

_ANSWERED_ELSEWHERE = frozenset({"web_search_call", "tool_search_call"})
_TYPES = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_EXIT = re.compile(r"(?:Exit code:|exited with code)\s*(-?\d+)", re.IGNORECASE)
_SETTINGS = ("<environment_context>", "<user_instructions>", "# AGENTS.md", "<permissions", "<INSTRUCTIONS>")


@dataclass(slots=True)
class _Session:
    """A rollout, as far as it was read.

    `counts` says if a token count comes before or after the items of its call.
    """

    run: AgentRun
    counts: Literal["before", "after", "nowhere"]
    meta: Mapping[str, Any] = field(default_factory=dict)
    uses: dict[str, ToolUse] = field(default_factory=dict)
    is_open: bool = False
    total: Mapping[str, Any] = field(default_factory=dict)
    owed: list[Usage] = field(default_factory=list)

    def step(self, time: int | None) -> Step:
        """Return the step to which an item belongs: a new one if a token count or a tool result has ended the last step."""
        if not self.is_open:
            self.run.steps.append(Step(time=time))
            self.is_open = True
            self.charge()
        return self.run.steps[-1]

    def charge(self) -> None:
        """Charge the pending calls to the last step.

        They are the step's own call, and calls without items, such as one for a summary.
        """
        for usage in self.owed:
            step = self.run.steps[-1]
            if math.isnan(step.usage.output):
                step.usage = usage
            else:
                step.charge(Step(usage=usage))
        self.owed.clear()

    def count(self, usage: Usage) -> None:
        """Add the tokens of a call to the pending calls."""
        self.owed.append(usage)
        self.is_open = False
        if self.counts == "after" and self.run.steps:
            self.charge()


def _is_codex(head: Head) -> bool:
    record = head.record
    is_line = record.get("type") in _TYPES and isinstance(record.get("payload"), dict) and head.has("timestamp")
    return is_line or (head.has("id", "timestamp", "instructions") and '"type":"message"' in head.text.replace(" ", ""))


def _runs(files: Sequence[Path]) -> Iterator[AgentRun]:
    sessions = [*map(_session, files)]
    by_id = {session.run.name: session.run for session in sessions if session.run.steps}
    for session in sessions:
        parent = by_id.get(_parent(session.meta))
        if parent is not None and parent is not session.run:
            charge_subagent(parent.steps, session.run.steps)
    for session in sessions:
        if by_id.get(_parent(session.meta), session.run) is session.run:
            session.run.close()
            yield session.run


def _parent(meta: Mapping[str, Any]) -> str:
    """Return the id of the session that started this one as its subagent; "" if none did."""
    spawned = fields_of(fields_of(fields_of(meta.get("source")).get("subagent")).get("thread_spawn"))
    return str(spawned.get("parent_thread_id") or "")


def _session(file: Path) -> _Session:
    records, cut, skipped = objects_of(file)
    parts = [(record, fields_of(record.get("payload", record))) for record in records]
    order = [kind for _, part in parts if (kind := _order(part))]
    counts: Any = "nowhere" if "count" not in order else "before" if order[0] == "count" else "after"
    session = _Session(AgentRun(name=file.stem, cut=cut, skipped=skipped), counts)
    for record, part in parts:
        _read(session, str(record.get("type", "session_meta")), part, time_of(record.get("timestamp")))
    if session.run.steps:
        session.charge()
    return session


def _order(part: Mapping[str, Any]) -> str:
    """Classify a line: "count" for a token count, "item" for an item of a call, or ""."""
    if part.get("type") == "token_count" and fields_of(part.get("info")):
        return "count"
    return "item" if part.get("type") in _CALLS or part.get("role") == "assistant" else ""


def _read(session: _Session, line: str, part: Mapping[str, Any], time: int | None) -> None:
    kind = str(part.get("type") or line)
    if line == "session_meta" and not session.meta:
        session.meta, session.run.name = part, str(part.get("id") or session.run.name)
        session.run.files.root = str(part.get("cwd") or "").rstrip("/")
    elif line == "turn_context":
        session.run.model = session.run.model or part.get("model")
    elif kind == "token_count":
        info = fields_of(part.get("info"))
        total = fields_of(info.get("total_token_usage"))
        if total and total != session.total:  # the same count is repeated at each change of the rate limits
            session.count(_usage(info.get("last_token_usage") or _difference(total, session.total)))
            session.total = total
    elif kind in _CALLS:
        use = use_of(kind, part)
        session.step(time).uses.append(use)
        session.uses[str(part.get("call_id") or part.get("id"))] = use
    elif kind in _RESULTS:
        _answer(session, part)
    elif kind in ("message", "reasoning"):
        _message(session, part, time)
    elif kind == "turn_aborted":
        session.run.end = "failed"
    elif line not in _SILENT and kind not in _SILENT:
        session.run.skipped[kind] += 1


def _usage(counts: Any) -> Usage:
    own = fields_of(counts)
    return usage_of(*(count(own.get(name)) for name in ("input_tokens", "cached_input_tokens", "output_tokens")))


def _difference(total: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, float]:
    return {name: count(value) - (count(before.get(name, 0))) for name, value in total.items()}


def _message(session: _Session, part: Mapping[str, Any], time: int | None) -> None:
    if part.get("role") == "user":
        text = text_of(part.get("content")).strip()
        session.run.task = session.run.task or ("" if text.startswith(_SETTINGS) else text)
        session.run.end = "exhausted"
    elif part.get("role") == "assistant" or part.get("type") == "reasoning":
        session.step(time)


def use_of(kind: str, part: Mapping[str, Any]) -> ToolUse:
    """Return the tool call in a response item of the given type."""
    if kind == "local_shell_call":
        arguments: Any = fields_of(part.get("action"))
        name = "local_shell"
    else:
        arguments, name = unwrapped(first(part, ("arguments", "input", "action"))), str(part.get("name") or kind)
    arguments = arguments if isinstance(arguments, dict) else {"input": arguments}
    words = arguments.get("command")
    if isinstance(words, list) and words[:1] == ["apply_patch"]:
        name, arguments = "apply_patch", {"input": "\n".join(map(str, words[1:]))}
    folder = first(arguments, ("workdir", "working_directory"))
    answered = kind in _ANSWERED_ELSEWHERE
    return ToolUse(name=name, arguments=arguments, folder=str(folder or ""), answered=answered)


def _answer(session: _Session, part: Mapping[str, Any]) -> None:
    use = session.uses.get(str(part.get("call_id")))
    if use is None:
        session.run.skipped["results of unknown calls"] += 1
        return
    output = unwrapped(part.get("output"))
    told = fields_of(output)
    code = fields_of(told.get("metadata")).get("exit_code")
    if not isinstance(code, int):
        found = _EXIT.search(text_of(output)[:400] or str(told.get("output", ""))[:400])
        code = int(found[1]) if found else None
    success = told.get("success")
    use.answered = True
    use.failed = code != 0 if code is not None else (not success if isinstance(success, bool) else None)
    session.is_open = session.is_open and session.counts != "nowhere"


read_codex = transcript_importer("codex", _runs, _is_codex)
