"""Read trajectories of SWE-agent, `.traj`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.common.shell import shell_commands
from suffice.importers.calls.objects import fields_of, objects_in, unwrapped
from suffice.importers.calls.payloads import text_of
from suffice.importers.files.recognise import Head
from suffice.importers.transcripts.runs import AgentRun, transcript_importer
from suffice.importers.transcripts.steps import Step, ToolUse, objects_of, price_of
from suffice.policy.rounds import End

_STEP = frozenset({"action", "observation", "response", "thought"})
_REFUSED = re.compile(
    r"not applied|No replacement was performed|introduced new syntax error|Invalid `\w+` parameter|already exists at|No file open"
)
_LIMITS = re.compile(r"exit_(?:cost|context|total_execution_time)")


def _is_swe_agent(head: Head) -> bool:
    steps = objects_in(head.record.get("trajectory"))
    return bool(steps) and steps[0].keys() >= _STEP and bool({"state", "execution_time"} & steps[0].keys())


def _runs(files: Sequence[Path]) -> Iterator[AgentRun]:
    for file in files:
        documents, cut, _ = objects_of(file)
        for document in documents:
            attempts = objects_in(document.get("attempts")) or [document]
            for attempt in attempts:
                is_last = attempt is attempts[-1] and document is documents[-1]
                yield _run(file, {**document, **attempt}, cut=cut and is_last)


def _run(file: Path, attempt: Mapping[str, Any], *, cut: bool) -> AgentRun:
    settings = fields_of(unwrapped(attempt.get("replay_config")))
    model = fields_of(fields_of(settings.get("agent")).get("model")).get("name")
    info = fields_of(attempt.get("info"))
    run = AgentRun(name=file.name.split(".traj")[0], end=_end(info), model=model, cut=cut)
    said = (m for m in objects_in(attempt.get("history")) if m.get("role") == "user" and not m.get("is_demo"))
    run.task = text_of(next(said, {}).get("content"))
    run.total = price_of(fields_of(info.get("model_stats")).get("instance_cost"))
    run.files.stays = True
    state: Mapping[str, Any] = {}
    for item in objects_in(attempt.get("trajectory")):
        use = _use(str(item.get("action") or ""), state, str(item.get("observation") or ""))
        state = fields_of(unwrapped(item.get("state")))
        run.files.root = run.files.root or str(state.get("working_dir") or "").rstrip("/")
        run.steps.append(Step(uses=[use] if use else []))
    return run


def _end(info: Mapping[str, Any]) -> End:
    status = str(info.get("exit_status"))
    if _LIMITS.search(status):
        return "max_rounds"
    return "exhausted" if status.startswith("submitted") else "failed"


def _use(action: str, state: Mapping[str, Any], observation: str) -> ToolUse | None:
    """Return an action of the agent as a tool call; the agent writes calls of file tools as commands."""
    commands = shell_commands(action)
    if not commands:
        return None
    program, words = commands[0].program, commands[0].words[1:]
    refused = _REFUSED.search(observation) is not None
    if program in ("str_replace_editor", "edit_anthropic") and len(words) > 1:
        content = words[words.index("--file_text") + 1] if "--file_text" in words[:-1] else ""
        arguments = {"command": words[0], "path": words[1], "change": action, "content": content}
        return ToolUse(name=program, arguments=arguments, failed=refused)
    if program in ("edit", "insert", "undo_edit"):
        return ToolUse(
            name=program, arguments={"path": state.get("open_file") or "*", "change": action}, failed=refused
        )
    if program == "create" and words:
        return ToolUse(name=program, arguments={"path": words[0], "content": "\n"}, failed=refused)
    return ToolUse(name="bash", arguments={"command": action})


read_swe_agent = transcript_importer("swe_agent", _runs, _is_swe_agent)
