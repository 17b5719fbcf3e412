"""A step of an agent in a transcript: one model call, and the tools that it called."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffice.common.files import decoded, unpacked
from suffice.common.json_text import cut_document, load_json
from suffice.errors import DataError
from suffice.importers.calls.objects import nanoseconds
from suffice.importers.calls.payloads import first
from suffice.importers.calls.spans import Usage
from suffice.importers.transcripts.visible import VisibleFiles
from suffice.importers.words.names import words
from suffice.policy.rounds import Cost

_SHELLS = frozenset(
    words(
        "bash shell sh run execute_bash execute_command exec_command shell_command exec terminal local_shell "
        "run_shell_command run_command cmd powershell bash_session"
    )
)
_PROGRAMS = frozenset({"python", "ipython", "run_ipython", "execute_ipython_cell", "execute_python", "notebook"})
_PATCHES = frozenset({"apply_patch", "patch"})
_WRITES = frozenset({"write", "create", "write_file", "create_file", "new_file"})
_EDITS = frozenset(words("edit multiedit notebookedit str_replace insert undo_edit edit_file replace replace_in_file"))
_EDITORS = frozenset(
    {"text_editor", "str_replace_editor", "str_replace_based_edit_tool", "file_editor", "edit_anthropic"}
)
_PATHS = ("path", "file_path", "notebook_path", "filename", "file")
_SCRIPTS = ("command", "cmd", "script", "code", "input")
_CONTENTS = ("content", "file_text", "contents", "text")


@dataclass(slots=True, kw_only=True)
class ToolUse:
    """A tool that an agent called.

    Attributes:
        name: The tool.
        arguments: Its arguments by name.
        failed: Whether it failed; None if unknown.
        answered: Whether the transcript has its result.
        folder: The folder in which it runs; "" if unknown.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    failed: bool | None = None
    answered: bool = False
    folder: str = ""

    @property
    def kind(self) -> str:
        """The tool's name in its usual form: `mcp__files__Write` is `write`."""
        return re.split(r"__|\.|/", self.name)[-1].lower()

    @property
    def script(self) -> str | None:
        """The script that a shell runs; None if the tool is no shell."""
        if self.kind not in _SHELLS:
            return None
        given = first(self.arguments, _SCRIPTS)
        if not isinstance(given, list):
            return str(given or "")
        words = [str(word) for word in given]
        return words[-1] if re.fullmatch(r"-\w*c", "".join(words[-2:-1])) else shlex.join(words)

    @property
    def works(self) -> bool:
        """True if the tool runs programs or changes files."""
        return self.kind in _SHELLS | _PROGRAMS | _PATCHES | _WRITES | _EDITS | _EDITORS

    @property
    def text(self) -> str:
        """The call as text, by which repeated calls and checks are recognised."""
        script = self.script
        return (
            script if script is not None else f"{self.name} {json.dumps(self.arguments, sort_keys=True, default=str)}"
        )

    def note(self, files: VisibleFiles) -> None:
        """Apply the call's changes to the files.

        A failed call of a file tool changes nothing, while a failed program may have changed files.
        """
        script, text = self.script, str(first(self.arguments, ("input", "patch", *_SCRIPTS)) or "")
        if script is not None:
            files.run(script, self.folder)
        elif self.kind in _PROGRAMS:
            files.code(text)
        elif self.failed:
            return
        elif self.kind in _PATCHES:
            files.patch(text)
        else:
            path, verb = first(self.arguments, _PATHS), str(self.arguments.get("command") or self.kind)
            content = first(self.arguments, _CONTENTS)
            if isinstance(path, str) and verb in _WRITES:
                files.edit(path, str(content), makes=True)
            elif isinstance(path, str) and verb in _EDITS:
                own = {name: value for name, value in self.arguments.items() if name not in _PATHS}
                files.edit(path, json.dumps(own, sort_keys=True, default=str))


@dataclass(slots=True, kw_only=True)
class Step:
    """One model call with the tools that it called.

    Attributes:
        uses: The tools, in the order of the calls.
        usage: The tokens of the call.
        dollars: Its price, USD; NaN if unknown.
        calls: Number of calls, including those of subagents and for summaries that were charged to it.
        seconds: Duration of the calls, seconds; NaN if unknown.
        time: The start of the call, nanoseconds since 1970; None if unknown.
        answer: The reply's text if it is an answer; else None.  It counts as the answer while the run has changed no files.
    """

    uses: list[ToolUse] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    dollars: float = math.nan
    calls: float = 1.0
    seconds: float = math.nan
    time: int | None = None
    answer: str | None = None

    @property
    def cost(self) -> Cost:
        """The cost of the calls."""
        return Cost(calls=self.calls, seconds=self.seconds, **self.usage.costs)

    def charge(self, other: Step) -> None:
        """Charge another call to this step, such as a subagent's: its cost, and the tools that it called."""
        self.uses += other.uses
        self.usage += other.usage
        self.dollars += other.dollars
        self.calls += other.calls
        self.seconds += other.seconds


def charge_subagent(steps: Sequence[Step], others: Iterable[Step]) -> None:
    """Charge each step of a subagent to the main agent's last step that began before it."""
    for other in others:
        before = [step for step in steps if other.time is None or step.time is None or step.time <= other.time]
        (before[-1] if before else steps[0]).charge(other)


def price_of(value: Any) -> float:
    """Return a price in USD; NaN for anything but a number of at least 0."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return float(value) if known else math.nan


def time_of(value: Any) -> int | None:
    """Return a time in nanoseconds since 1970; None if it is missing or cannot be parsed."""
    with suppress(DataError):
        return nanoseconds(value, "")
    return None


def objects_of(file: Path) -> tuple[list[dict[str, Any]], bool, Counter[str]]:
    """Return the objects in a JSON document or in JSON lines.

    Returns:
        The objects, True if the file is truncated, and the number of other values by kind.

    Raises:
        DataError: The file has no object.
    """
    skipped = Counter[str]()
    text = decoded(b"".join(unpacked(file)), str(file), errors="replace")
    cut = False
    try:
        values = [load_json(text)]
    except ValueError:
        values = [_line(line) for line in text.split("\n") if line.strip()]
        cut = not values or isinstance(values[-1], ValueError)
        if cut and isinstance(values[0], ValueError):
            values = [cut_document(text)]
    values = [item for value in values for item in (value if isinstance(value, list) else [value])]
    records = [value for value in values if isinstance(value, dict)]
    for value in values[: -1 if cut else None]:
        if not isinstance(value, dict):
            skipped[
                "lines that are not JSON"
                if isinstance(value, ValueError)
                else f"values of the type {type(value).__name__}"
            ] += 1
    if not records:
        raise DataError(f"{file}: no JSON objects, which transcripts consist of; copy the file again")
    return records, cut, skipped


def _line(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError as error:
        return error
