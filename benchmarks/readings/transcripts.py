"""Transcripts of one invented run of an agent in the formats of several tools, and what is right about it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

ROOT = "/testbed"
TASK = "The parser drops the last line: mend it."
NAN = math.nan


@dataclass(frozen=True, slots=True)
class Turn:
    """A step: a tool with its arguments, whether it failed, and the tokens of its call."""

    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    failed: bool = False
    tokens: tuple[int, int, int] = (0, 0, 0)
    """Uncached input, cached input, output."""


TURNS = (
    Turn("bash", {"command": "ls src"}, tokens=(900, 0, 11)),
    Turn(
        "write",
        {"path": f"{ROOT}/repro.py", "content": "import parser\nassert parser.lines('a\\nb')\n"},
        tokens=(40, 900, 12),
    ),
    Turn("bash", {"command": "python repro.py"}, failed=True, tokens=(50, 940, 13)),
    Turn("edit", {"path": f"{ROOT}/src/parser.py", "old": "[:-1]", "new": ""}, tokens=(60, 990, 14)),
    Turn("bash", {"command": "cd /testbed && python repro.py"}, tokens=(70, 1050, 15)),
    Turn("bash", {"command": "rm repro.py"}, tokens=(80, 1120, 16)),
    Turn(tokens=(90, 1200, 17)),
)
STATES = (None, "A", "A", "B", "B", "C", "C")
"""The files after each step, as a person reads the turns: a script, then the change, then the change alone."""

SINCE_CHANGE = (NAN, 0, 1, 0, 1, 0, 1)
CHECKS = (NAN, NAN, 0, NAN, 1, NAN, NAN)
FAILED = (0, 0, 1, 0, 0, 0, NAN)
GREEN = (NAN, 0, 0, 0, 1, 0, 0)


def states(answers: Any) -> list[str | None]:
    """Return answers as letters in the order of their first occurrence, so that runs can be compared by their states."""
    names: dict[str, str] = {}
    return [None if answer is None else names.setdefault(answer, "ABCDEFGHIJ"[len(names)]) for answer in answers]


def lines(records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def claude_code(turns: Any = TURNS, session: str = "s1", **common: Any) -> list[dict[str, Any]]:
    """A session; each reply comes in two lines that share its id and repeat its usage."""
    base = {
        "sessionId": session,
        "cwd": ROOT,
        "isSidechain": False,
        "userType": "external",
        "version": "2.0.1",
        **common,
    }
    records: list[dict[str, Any]] = [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False},
        {"parentUuid": None, "type": "user", "message": {"role": "user", "content": TASK}, "uuid": "u0", **base},
    ]
    names = {"bash": "Bash", "write": "Write", "edit": "Edit"}
    for i, turn in enumerate(turns):
        given = {"file_path" if name == "path" else name: value for name, value in turn.arguments.items()}
        given = {{"old": "old_string", "new": "new_string"}.get(name, name): value for name, value in given.items()}
        use = {
            "type": "tool_use",
            "id": f"toolu_{session}_{i}",
            "name": names.get(turn.tool, turn.tool),
            "input": given,
        }
        text = {"type": "text", "text": f"Step {i}."}
        uncached, cached, output = turn.tokens
        usage = {
            "input_tokens": 4,
            "cache_creation_input_tokens": uncached - 4,
            "cache_read_input_tokens": cached,
            "output_tokens": output,
        }
        when = {"timestamp": f"2026-02-01T10:{i:02}:00.000Z"}
        message = {
            "id": f"msg_{session}_{i}",
            "role": "assistant",
            "model": "claude-x",
            "usage": usage,
            "type": "message",
        }
        first = {**message, "content": [text], "usage": {**usage, "output_tokens": 1}}
        records.append(
            {"parentUuid": f"u{i}", "type": "assistant", "message": first, "requestId": f"r{i}", **when, **base}
        )
        if turn.tool:
            second = {**message, "content": [use]}
            result = {"type": "tool_result", "tool_use_id": use["id"], "content": "ok", "is_error": turn.failed}
            records += [
                {"parentUuid": "a", "type": "assistant", "message": second, "requestId": f"r{i}", **when, **base},
                {"parentUuid": "b", "type": "user", "message": {"role": "user", "content": [result]}, **when, **base},
            ]
        else:
            first["usage"] = usage
    return records


def codex(turns: Any = TURNS, session: str = "c1", *, first: bool = False) -> list[dict[str, Any]]:
    """A rollout; `first` = the counts of tokens precede the items of their call, as older versions write them."""
    total = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    parts: list[tuple[str, dict[str, Any]]] = [
        (
            "session_meta",
            {"id": session, "cwd": ROOT, "originator": "codex_exec", "cli_version": "0.90.0", "source": "exec"},
        ),
        ("response_item", _said("user", "<environment_context>\n  <cwd>/testbed</cwd>\n</environment_context>")),
        ("response_item", _said("user", TASK)),
        ("event_msg", {"type": "user_message", "message": TASK}),
        ("turn_context", {"cwd": ROOT, "model": "gpt-x", "effort": "high"}),
        ("event_msg", {"type": "token_count", "info": None, "rate_limits": {}}),
    ]
    for i, turn in enumerate(turns):
        uncached, cached, output = turn.tokens
        last = {"input_tokens": uncached + cached, "cached_input_tokens": cached, "output_tokens": output}
        total = {name: value + last.get(name, 0) for name, value in total.items()}
        total["total_tokens"] = total["input_tokens"] + total["output_tokens"]
        info = {"total_token_usage": total, "last_token_usage": last, "model_context_window": 258400}
        counted = ("event_msg", {"type": "token_count", "info": info, "rate_limits": {"primary": {"used_percent": i}}})
        items: list[tuple[str, dict[str, Any]]] = [
            ("response_item", {"type": "reasoning", "summary": [], "encrypted_content": "x"})
        ]
        if not turn.tool:
            items.append(("response_item", _said("assistant", "Done.")))
        result = []
        if turn.tool:
            items.append(("response_item", _codex_call(turn, f"call_{i}")))
            kind = "custom_tool_call_output" if turn.tool in ("edit", "write") else "function_call_output"
            told = json.dumps({"output": "x", "metadata": {"exit_code": int(turn.failed), "duration_seconds": 0.1}})
            result = [("response_item", {"type": kind, "call_id": f"call_{i}", "output": told})]
        parts += [counted, *items, *result] if first else [*items, counted, *result, counted]
    return [
        {"timestamp": f"2026-02-01T10:00:{place:02}.000Z", "type": kind, "payload": part}
        for place, (kind, part) in enumerate(parts)
    ]


def _said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _codex_call(turn: Turn, call: str) -> dict[str, Any]:
    if turn.tool == "bash":
        given = {"command": ["bash", "-lc", turn.arguments["command"]], "workdir": ROOT}
        return {"type": "function_call", "name": "shell", "arguments": json.dumps(given), "call_id": call}
    path = turn.arguments["path"].removeprefix(f"{ROOT}/")
    body = f"*** Update File: {path}\n@@\n-{turn.arguments.get('old')}\n+{turn.arguments.get('new')}"
    if turn.tool == "write":
        body = f"*** Add File: {path}\n" + "".join(f"+{line}\n" for line in turn.arguments["content"].splitlines())
    patch = f"*** Begin Patch\n{body}\n*** End Patch"
    return {"type": "custom_tool_call", "status": "completed", "name": "apply_patch", "call_id": call, "input": patch}


def openhands(turns: Any = TURNS, task: str = "repo__repo-1") -> dict[str, Any]:
    """A record of `output.jsonl`, in the form of earlier versions."""
    history: list[dict[str, Any]] = [
        {
            "id": 0,
            "source": "user",
            "action": "message",
            "args": {"content": TASK},
            "message": TASK,
            "timestamp": "2026-02-01T10:00:00",
        }
    ]
    usages, costs = [], []
    for i, turn in enumerate(turns):
        action, given = _openhands_action(turn)
        call = {
            "function_name": turn.tool,
            "tool_call_id": f"c{i}",
            "model_response": {"id": f"resp-{i}", "model": "m-x"},
        }
        history.append(
            {"id": 2 * i + 1, "source": "agent", "action": action, "args": given, "tool_call_metadata": call}
        )
        if turn.tool:
            told = {"id": 2 * i + 2, "source": "agent", "cause": 2 * i + 1, "content": "x"}
            extras = {"metadata": {"exit_code": int(turn.failed)}} if action == "run" else {}
            history.append({**told, "observation": action, "extras": extras, "message": ""})
        uncached, cached, output = turn.tokens
        usages.append({"prompt_tokens": uncached + cached, "cache_read_tokens": cached, "cache_write_tokens": 0})
        usages[-1] |= {"completion_tokens": output, "response_id": f"resp-{i}", "model": "m-x"}
        costs.append({"model": "m-x", "cost": 0.01 * (i + 1), "timestamp": 1.0 * i})
    return {
        "instance_id": task,
        "instruction": TASK,
        "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "m-x"}, "max_iterations": 50},
        "history": history,
        "metrics": {"accumulated_cost": sum(c["cost"] for c in costs), "costs": costs, "token_usages": usages},
        "test_result": {"git_patch": "diff --git a/src/parser.py b/src/parser.py"},
        "error": None,
    }


def _openhands_action(turn: Turn) -> tuple[str, dict[str, Any]]:
    if not turn.tool:
        return "finish", {"final_thought": "Done.", "outputs": {}}
    if turn.tool == "bash":
        return "run", {**turn.arguments, "thought": "Next.", "blocking": False, "hidden": False}
    path = turn.arguments["path"]
    if turn.tool == "write":
        return "edit", {
            "path": path,
            "command": "create",
            "file_text": turn.arguments["content"],
            "old_str": None,
            "start": 1,
        }
    return "edit", {
        "path": path,
        "command": "str_replace",
        "old_str": turn.arguments["old"],
        "new_str": turn.arguments["new"],
    }


def openhands_events(turns: Any = TURNS) -> list[dict[str, Any]]:
    """The events of a conversation, in the form of the newer versions."""
    events: list[dict[str, Any]] = [
        {"kind": "SystemPromptEvent", "id": "e-s", "source": "agent", "timestamp": "2026-02-01T10:00:00"},
        {
            "kind": "MessageEvent",
            "id": "e-u",
            "source": "user",
            "timestamp": "2026-02-01T10:00:01",
            "llm_message": _said("user", TASK),
        },
    ]
    for i, turn in enumerate(turns):
        name, action = "finish", {"kind": "FinishAction", "message": "Done."}
        if turn.tool:
            _, given = _openhands_action(turn)
            name = "terminal" if turn.tool == "bash" else "file_editor"
            keep = ("command", "path", "file_text", "old_str", "new_str")
            action = {"kind": "TerminalAction", **{own: given.get(own) for own in keep if own in given}}
        when = {"timestamp": f"2026-02-01T10:01:{i:02}"}
        call = {"tool_call_id": f"c{i}", "llm_response_id": f"resp-{i}", "tool_name": name, "thought": []}
        events.append({"kind": "ActionEvent", "id": f"e{i}", "source": "agent", "action": action, **call, **when})
        told = (
            {"kind": "TerminalObservation", "exit_code": int(turn.failed)}
            if turn.tool == "bash"
            else {"is_error": turn.failed}
        )
        result = {
            "id": f"o{i}",
            "source": "environment",
            "action_id": f"e{i}",
            "tool_call_id": f"c{i}",
            "tool_name": name,
        }
        events.append({"kind": "ObservationEvent", "observation": told, **result, **when})
    return events


def mini_swe_agent(turns: Any = TURNS, task: str = "repo__repo-1") -> dict[str, Any]:
    """A trajectory whose only tool is the shell."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Help."}, {"role": "user", "content": TASK}]
    for i, turn in enumerate(turns):
        uncached, cached, output = turn.tokens
        usage = {
            "prompt_tokens": uncached + cached,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        extra = {"response": {"model": "m-x", "usage": {**usage, "cost": 0.01 * (i + 1)}}}
        command = as_command(turn) or "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        messages.append({"role": "assistant", "content": f"THOUGHT: so.\n\n```bash\n{command}\n```", "extra": extra})
        messages.append(
            {"role": "user", "content": f"<returncode>{int(turn.failed)}</returncode>\n<output>\n</output>"}
        )
    info = {"exit_status": "Submitted", "submission": "x", "model_stats": {"api_calls": len(turns)}}
    return {"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1", "instance_id": task}


def as_command(turn: Turn) -> str:
    """Return what a turn does as a command of a shell; "" if it calls no tool."""
    if turn.tool == "write":
        return f"cat <<'EOF' > {turn.arguments['path']}\n{turn.arguments['content']}EOF"
    if turn.tool == "edit":
        return f"sed -i 's/{turn.arguments['old']}/{turn.arguments['new']}/' {turn.arguments['path']}"
    return str(turn.arguments.get("command", ""))


def swe_agent(turns: Any = TURNS, status: str = "submitted") -> dict[str, Any]:
    """A trajectory; the price of the whole run is all that it says of costs."""
    steps = []
    for turn in turns:
        action = turn.arguments.get("command", "submit")
        if turn.tool == "write":
            action = (
                f"str_replace_editor create {turn.arguments['path']} --file_text '{turn.arguments['content']}'".replace(
                    "'a\\nb'", "x"
                )
            )
        elif turn.tool == "edit":
            action = f"str_replace_editor str_replace {turn.arguments['path']} --old_str '[:-1]' --new_str ''"
        step = {"action": action, "observation": "x", "response": "y", "thought": "z", "execution_time": 0.5}
        steps.append({**step, "state": {"working_dir": ROOT, "diff": ""}, "query": [], "extra_info": {}})
    return {
        "environment": "main",
        "trajectory": steps,
        "history": [
            {"role": "system", "content": "You are an assistant.", "message_type": "system_prompt"},
            {"role": "user", "content": "A demonstration.", "is_demo": True},
            {"role": "user", "content": [{"type": "text", "text": TASK}], "message_type": "observation"},
        ],
        "info": {
            "exit_status": status,
            "submission": "diff --git a/src/parser.py b/src/parser.py",
            "model_stats": {"instance_cost": 0.28, "tokens_sent": 9000, "tokens_received": 98, "api_calls": len(steps)},
        },
        "replay_config": json.dumps({"agent": {"model": {"name": "m-x"}}}),
    }


def inspect_log(turns: Any = TURNS, *, score: str = "C", epochs: int = 1, text: str = "") -> dict[str, Any]:
    """A log whose samples work with tools; their last reply is all that they say."""
    samples = []
    for epoch in range(1, epochs + 1):
        events: list[dict[str, Any]] = [{"event": "sample_init", "timestamp": "2026-02-01T10:00:00"}]
        for i, turn in enumerate(turns):
            name = {"bash": "bash", "": ""}.get(turn.tool, "text_editor")
            _, given = _openhands_action(turn)
            call = {"id": f"t{epoch}-{i}", "function": name, "arguments": given, "type": "function"}
            message = {"role": "assistant", "content": text if turn.tool else "Done.", "source": "generate"}
            message |= {"tool_calls": [call]} if turn.tool else {}
            uncached, cached, output = turn.tokens
            usage = {"input_tokens": uncached, "input_tokens_cache_read": cached, "output_tokens": output}
            usage["total_tokens"] = sum(turn.tokens)
            said = {
                "model": "m-x",
                "choices": [{"message": message, "stop_reason": "stop"}],
                "usage": usage,
                "time": 1.5,
            }
            when = {"timestamp": f"2026-02-01T10:{i:02}:00"}
            events.append({"event": "model", "model": "m-x", "input": [], "output": said, **when})
            if turn.tool:
                error = {"type": "unknown", "message": "x"} if turn.failed else None
                events.append(
                    {"event": "tool", "id": call["id"], "function": name, "result": "x", "error": error, **when}
                )
        samples.append(
            {
                "id": "p1",
                "epoch": epoch,
                "input": TASK,
                "target": "",
                "events": events,
                "scores": {"tests": {"value": score}},
            }
        )
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "mend", "config": {"epochs": epochs}},
        "samples": samples,
    }
