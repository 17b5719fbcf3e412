"""Read sessions of Claude Code, the JSON lines of `~/.claude/projects`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffice.importers.calls.objects import fields_of, objects_in
from suffice.importers.calls.payloads import text_of, usage_in
from suffice.importers.files.recognise import Head
from suffice.importers.transcripts.runs import AgentRun, transcript_importer
from suffice.importers.transcripts.steps import Step, ToolUse, charge_subagent, objects_of, price_of, time_of
from suffice.importers.words.names import words

_SILENT = frozenset(
    words(
        "summary system progress queue-operation file-history-snapshot custom-title ai-title tag mode "
        "last-prompt agent-name pr-link permission-mode attachment result"
    )
)
"""Types of lines that hold no step."""


@dataclass(slots=True)
class _Session:
    """A session as read from its files so far: its run, and the replies by id, including those of subagents."""

    run: AgentRun
    main: dict[str, Step] = field(default_factory=dict)
    side: dict[str, Step] = field(default_factory=dict)
    uses: dict[str, ToolUse] = field(default_factory=dict)


def _is_claude_code(head: Head) -> bool:
    if head.form not in ("json", "jsonl"):
        return False
    is_line = head.has("type", "sessionId") and '"parentUuid"' in head.text
    return is_line or head.has("type", "leafUuid", "summary") or head.has("type", "snapshot", "messageId")


def _runs(files: Sequence[Path]) -> Iterator[AgentRun]:
    sessions: dict[str, _Session] = {}
    owners: dict[str, str] = {}  # a continued session repeats the messages of the first one
    for file in files:
        records, cut, skipped = objects_of(file)
        ids = {str(fields_of(record.get("message")).get("id") or "") for record in records} - {""}
        name = str(next((record["sessionId"] for record in records if record.get("sessionId")), file.stem))
        name = next((owners[own] for own in sorted(ids) if own in owners), name)
        owners |= dict.fromkeys(ids, name)
        session = sessions.setdefault(name, _Session(AgentRun(name=name)))
        session.run.cut |= cut
        session.run.skipped += skipped
        for record in records:
            _read(session, record)
    for session in sessions.values():
        main, side = [*session.main.values()], [*session.side.values()]
        session.run.steps = main or side  # a subagent's file by itself is a separate run
        charge_subagent(session.run.steps, side if main else [])
        session.run.files.stays = True
        session.run.close()
        yield session.run


def _read(session: _Session, record: Mapping[str, Any]) -> None:
    kind, message = record.get("type"), fields_of(record.get("message"))
    session.run.files.root = session.run.files.root or str(record.get("cwd") or "").rstrip("/")
    if kind == "assistant" and message:
        _read_reply(session, record, message)
    elif kind == "user":
        content = message.get("content")
        for part in objects_in(content):
            use = session.uses.get(str(part.get("tool_use_id")))
            if part.get("type") == "tool_result" and use is not None:
                use.failed, use.answered = part.get("is_error") is True, True
        text = text_of(content).strip()
        if text and not (record.get("isSidechain") or record.get("isMeta") or record.get("isCompactSummary")):
            session.run.task = session.run.task or (
                "" if text.startswith(("<command", "<local-command", "Caveat:")) else text
            )
            session.run.end = "failed" if text.startswith("[Request interrupted by user") else "exhausted"
    elif kind not in _SILENT:
        session.run.skipped[str(kind)] += 1


def _read_reply(session: _Session, record: Mapping[str, Any], message: Mapping[str, Any]) -> None:
    """Read a line with a part of a reply; all lines of a reply have the same id, and each repeats the usage."""
    if record.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        session.run.end = "failed"
        return
    session.run.end = "exhausted"
    steps = session.side if record.get("isSidechain") else session.main
    key = str(message.get("id") or record.get("requestId") or record.get("uuid") or len(steps))
    if steps is session.main:
        session.run.model = session.run.model or message.get("model")
    step = steps.setdefault(key, Step(time=time_of(record.get("timestamp"))))
    usage = usage_in(message.get("usage"), apart=True)
    if not step.usage.output >= usage.output:  # the last line has all generated tokens
        step.usage = usage
    step.dollars = price_of(record.get("costUSD")) if record.get("costUSD") is not None else step.dollars
    for part in objects_in(message.get("content")):
        if part.get("type") == "tool_use" and str(part.get("id")) not in session.uses:
            use = ToolUse(name=str(part.get("name")), arguments=fields_of(part.get("input")))
            session.uses[str(part.get("id"))] = use
            step.uses.append(use)


read_claude_code = transcript_importer("claude_code", _runs, _is_claude_code)
