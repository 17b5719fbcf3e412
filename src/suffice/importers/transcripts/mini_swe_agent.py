"""Read trajectories of mini-swe-agent, `.traj.json`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from suffice.importers.recognise import Head
from suffice.importers.traces.files import documents, fields_of, objects_in
from suffice.importers.traces.payloads import usage_in
from suffice.importers.transcripts.runs import AgentRun, transcript_importer
from suffice.policy.rounds import End

_COMMAND = re.compile(r"```(?:bash|sh|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
_RETURN_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_ENDS: Mapping[str, End] = {"Submitted": "exhausted", "LimitsExceeded": "max_rounds"}


def _is_mini_swe_agent(head: Head) -> bool:
    return str(head.record.get("trajectory_format", "")).startswith("mini-swe-agent")


def _runs(path: Path) -> Iterator[AgentRun]:
    for where, document in documents(path):
        info = fields_of(document.get("info"))
        name = document.get("instance_id") or Path(where.split(", ")[0]).name.split(".")[0]
        run = AgentRun(name=str(name), end=_ENDS.get(str(info.get("exit_status")), "failed"))
        messages = objects_in(document.get("messages"))
        run.task = str(next((item.get("content") for item in messages if item.get("role") == "user"), ""))
        for item, reply in zip(messages, [*messages[1:], {}], strict=True):
            if item.get("role") == "assistant":
                _add(run, item, reply if reply.get("role") != "assistant" else {})
        yield run


def _add(run: AgentRun, message: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
    response = fields_of(fields_of(message.get("extra")).get("response"))
    usage = fields_of(response.get("usage"))
    run.model = run.model or response.get("model")
    price = usage.get("cost")
    run.add(
        _command(message),
        usage=usage_in(usage),
        failed=_failed(reply),
        dollars=float(price) if isinstance(price, int | float) else math.nan,
    )


def _command(message: Mapping[str, Any]) -> str | None:
    """Return the command of a message: in its text, or in the calls of tools of later versions."""
    actions = [action.get("command") for action in objects_in(fields_of(message.get("extra")).get("actions"))]
    if any(actions):
        return "\n".join(str(action) for action in actions if action)
    content = message.get("content")
    text = content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in objects_in(content))
    found = _COMMAND.search(text)
    return found[1] if found else None


def _failed(reply: Mapping[str, Any]) -> bool | None:
    """Return whether a command failed, by the return code in the message after it."""
    code = fields_of(reply.get("extra")).get("returncode")
    if not isinstance(code, int):
        found = _RETURN_CODE.search(str(reply.get("content", "")))
        code = int(found[1]) if found else None
    return None if code is None else code != 0


read_mini_swe_agent = transcript_importer("mini_swe_agent", _runs, _is_mini_swe_agent)
