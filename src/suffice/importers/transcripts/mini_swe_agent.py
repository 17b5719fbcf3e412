"""Read trajectories of mini-swe-agent, `.traj.json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from suffice.importers.calls.objects import fields_of, objects_in
from suffice.importers.calls.payloads import first, text_of, usage_in
from suffice.importers.files.recognise import Head
from suffice.importers.transcripts.runs import AgentRun, transcript_importer
from suffice.importers.transcripts.steps import Step, ToolUse, objects_of, price_of
from suffice.policy.rounds import End

_COMMAND = re.compile(r"```(?:bash|sh|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
_RETURN_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_ENDS: Mapping[str, End] = {"Submitted": "exhausted", "LimitsExceeded": "max_rounds"}


def _is_mini_swe_agent(head: Head) -> bool:
    return str(head.record.get("trajectory_format", "")).startswith("mini-swe-agent")


def _runs(files: Sequence[Path]) -> Iterator[AgentRun]:
    for file in files:
        documents, cut, _ = objects_of(file)
        for document in documents:
            name = str(document.get("instance_id") or file.name.split(".")[0])
            status = str(fields_of(document.get("info")).get("exit_status"))
            run = AgentRun(name=name, end=_ENDS.get(status, "failed"), cut=cut and document is documents[-1])
            messages = objects_in(document.get("messages"))[: -1 if run.cut else None]  # the last one may be incomplete
            run.task = next((text_of(item.get("content")) for item in messages if item.get("role") == "user"), "")
            for place, item in enumerate(messages):
                if item.get("role") == "assistant":
                    replies = takewhile(lambda reply: reply.get("role") != "assistant", messages[place + 1 :])
                    _add(run, item, replies)
            yield run


def _add(run: AgentRun, message: Mapping[str, Any], replies: Iterable[Mapping[str, Any]]) -> None:
    extra = fields_of(message.get("extra"))
    response = fields_of(extra.get("response"))
    usage = fields_of(response.get("usage"))
    run.model = run.model or response.get("model")
    dollars = price_of(first({**extra, **usage}, ("cost",)))
    run.steps.append(Step(uses=[*_uses(message, replies)], usage=usage_in(usage), dollars=dollars))


def _uses(message: Mapping[str, Any], replies: Iterable[Mapping[str, Any]]) -> Iterator[ToolUse]:
    """Yield the commands of a message.

    Older versions write one command in the text, later ones use tool calls.
    """
    actions = objects_in(fields_of(message.get("extra")).get("actions"))
    commands = [str(action["command"]) for action in actions if action.get("command")]
    if not commands:
        commands = _COMMAND.findall(text_of(message.get("content")))[:1]
    following = [*islice(replies, len(commands))]
    for place, command in enumerate(commands):
        failed = _failed(following[place]) if place < len(following) else None
        yield ToolUse(name="bash", arguments={"command": command}, failed=failed)


def _failed(reply: Mapping[str, Any]) -> bool | None:
    """Return whether a command failed, from the return code in the message after it."""
    code = fields_of(reply.get("extra")).get("returncode")
    if not isinstance(code, int):
        found = _RETURN_CODE.search(text_of(reply.get("content")))
        code = int(found[1]) if found else None
    return None if code is None else code != 0


read_mini_swe_agent = transcript_importer("mini_swe_agent", _runs, _is_mini_swe_agent)
