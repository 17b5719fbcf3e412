"""Transcripts of coding agents: each run does what a seeded draw says, and its states are counted beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.readings import transcripts
from benchmarks.readings.cases import Draw, Log, Loop, shape
from benchmarks.readings.transcripts import ROOT, Turn

_RUNS = 24
_LOOKS = ("ls src", "cat src/a.py", "git diff", "grep -n value src/a.py", "git status --short")

_State = frozenset[tuple[str, tuple[str, ...]]]


def _run(draw: Draw) -> tuple[list[Turn], list[_State | None]]:
    """Return the turns of a run, and after each the files that it has changed, with how they were changed."""
    files: dict[str, tuple[str, ...]] = {}
    turns, states = [], []
    for i in range(draw.random.randint(5, 12)):
        turns.append(_turn(draw, files, i))
        states.append(frozenset(files.items()) or None)
    if not files:
        turns.append(_edit(files, 99))
        states.append(frozenset(files.items()))
    return [*turns, Turn(tokens=(9, 800, 7))], [*states, states[-1]]


def _turn(draw: Draw, files: dict[str, tuple[str, ...]], number: int) -> Turn:
    tokens = (draw.tokens(), 100 * number, draw.tokens())
    choice = draw.random.random()
    if choice < 0.2 and "try.py" not in files:
        text = f"assert {number} > 0\n"
        files["try.py"] = (text,)
        return Turn("write", {"path": f"{ROOT}/try.py", "content": text}, tokens=tokens)
    if choice < 0.4:
        return _edit(files, number)
    if choice < 0.55 and files.pop("try.py", None):
        return Turn("bash", {"command": f"cd {ROOT} && rm try.py"}, tokens=tokens)
    if choice < 0.75:
        return Turn("bash", {"command": "python -m pytest -q"}, failed=draw.random.random() < 0.5, tokens=tokens)
    return Turn("bash", {"command": draw.random.choice(_LOOKS)}, tokens=tokens)


def _edit(files: dict[str, tuple[str, ...]], number: int) -> Turn:
    path = f"src/{'ab'[number % 2]}.py"
    files[path] = (*files.get(path, ()), str(number))
    return Turn("edit", {"path": f"{ROOT}/{path}", "old": f"value{number}", "new": "x"}, tokens=(50, 100, 20))


def _log(draw: Draw, write: Callable[[str, list[Turn], bool], Any], *, graded: bool, folder: bool = True) -> Log:
    """Return the log of several runs; `write` returns the part of one, by its name, its turns and whether it succeeded."""
    parts, loops = {}, []
    for number in range(_RUNS):
        turns, states = _run(draw)
        resolved = draw.random.random() < 0.6
        parts[f"run-{number}"] = write(f"run-{number}", turns, resolved)
        scores = tuple(float(resolved and state == states[-1]) for state in states) if graded else None
        numbers = transcripts.states([state and repr(sorted(state)) for state in states])
        loops.append(Loop(number, tuple(numbers), (), scores))
    return Log(parts if folder else [*parts.values()], loops)


@shape(
    "sessions",
    "23min/copilot-lens: docs/research/claude-code-sessions.md (Claude Code)",
    metric="resolved",
    states=True,
)
def claude_code_sessions(draw: Draw) -> Log:
    """A file for each session; a reply is spread over lines that repeat its usage."""
    log = _log(draw, lambda name, turns, _: transcripts.claude_code(turns, name), graded=False)
    return Log({f"{name}.jsonl": part for name, part in log.content.items()}, log.loops)


@shape("rollouts", "openai/codex: codex-rs/rollout/src/policy.rs", metric="resolved", states=True)
def codex_rollouts(draw: Draw) -> Log:
    """A file for each session; commands in a shell, patches by a tool."""
    log = _log(draw, lambda name, turns, _: transcripts.codex(turns, name), graded=False)
    return Log({f"rollout-{name}.jsonl": part for name, part in log.content.items()}, log.loops)


@shape(
    "output.jsonl", "All-Hands-AI/OpenHands: evaluation/utils/shared.py (EvalOutput)", metric="resolved", states=True
)
def openhands_output(draw: Draw) -> Log:
    """A line for each task, with all its events and the report on its patch."""

    def write(name: str, turns: list[Turn], resolved: bool) -> dict[str, Any]:
        return {**transcripts.openhands(turns, name), "report": {"resolved": resolved}}

    return _log(draw, write, graded=True, folder=False)


@shape("trajectories", "SWE-agent/SWE-agent: docs/usage/trajectories.md", metric="resolved", states=True)
def swe_agent_folder(draw: Draw) -> Log:
    """A file for each task, and the report of SWE-bench beside them."""
    report: dict[str, list[str]] = {"resolved_ids": [], "unresolved_ids": []}

    def write(name: str, turns: list[Turn], resolved: bool) -> dict[str, Any]:
        report["resolved_ids" if resolved else "unresolved_ids"].append(name)
        return transcripts.swe_agent(turns)

    log = _log(draw, write, graded=True)
    return Log({**{f"{name}.traj": part for name, part in log.content.items()}, "results.json": report}, log.loops)


@shape("minis", "SWE-agent/mini-swe-agent: docs/usage/output_files.md", metric="resolved", states=True)
def mini_swe_agent_folder(draw: Draw) -> Log:
    """A file for each task; all edits are commands."""
    log = _log(draw, lambda name, turns, _: transcripts.mini_swe_agent(turns, name), graded=False)
    return Log({f"{name}.traj.json": part for name, part in log.content.items()}, log.loops)


@shape(
    "tools.json",
    "UKGovernmentBEIS/inspect_ai: src/inspect_ai/log/_log.py, src/inspect_ai/event",
    metric="resolved",
    states=True,
)
def inspect_tools(draw: Draw) -> Log:
    """Samples that work with tools, think aloud, and end with one message."""

    def write(name: str, turns: list[Turn], resolved: bool) -> dict[str, Any]:
        log = transcripts.inspect_log(turns, score="C" if resolved else "I", text="Let me see.")
        return {**log["samples"][0], "id": name}

    log = _log(draw, write, graded=True, folder=False)
    return Log({**transcripts.inspect_log([]), "samples": log.content}, log.loops)
