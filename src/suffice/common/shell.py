"""Read scripts of a shell: the simple commands in them, with words, redirections and here-documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

_TOKEN = re.compile(
    r"(?P<blank>[^\S\n]+|\\\n)"
    r"|(?P<comment>(?<![^\s;(])#[^\n]*)"
    r"|(?P<redirect>\d*(?:<<<|<<|<&|>>|>&|>\||<|>)|&>>?)"
    r"|(?P<operator>;;|&&|\|\||\|&|[\n;|&()`])"
    r"|(?P<word>(?:\\[^\n]|'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s;|&<>()`'\"\\]|['\"\\])+)",
    re.DOTALL,
)
_QUOTED = re.compile(r"\\(.)|'([^']*)'|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)
_PREFIXES = frozenset(
    (
        *("sudo", "env", "time", "timeout", "command", "builtin", "exec", "nohup", "nice", "stdbuf", "xargs"),
        *("npx", "bunx", "then", "do", "else", "elif", "if", "while", "until", "!", "{"),
    )
)
"""Words that may stand before a program; some have options or a duration, as in `timeout 60`."""
_RUNNERS = frozenset({"uv run", "poetry run", "pdm run", "pipenv run", "hatch run", "rye run", "bundle exec"})
_ASSIGNMENT = re.compile(r"\w+\+?=.*", re.DOTALL)
_DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?|-n\d*|-k|-oL|-eL")


@dataclass(slots=True, kw_only=True)
class ShellCommand:
    """A simple command.

    Attributes:
        words: The program and its arguments, without quotes.  Assignments and words before the program, such as `sudo`
            or `timeout 60`, are left out.
        writes: The files to which the command's output goes, each with True if the output is appended.
        given: The here-document or here-string that the command reads, even through a pipe; None if it reads neither.
        after: The operator before the next command: `&&`, `||`, `;`, `|` or `&`; "" at the end of the script.
    """

    words: list[str] = field(default_factory=list)
    writes: list[tuple[str, bool]] = field(default_factory=list)
    given: str | None = None
    after: str = ""

    @property
    def program(self) -> str:
        """The name of the program without its folder; "" if the command is a redirection alone."""
        return self.words[0].rpartition("/")[2] if self.words else ""


def shell_commands(script: str) -> list[ShellCommand]:
    r"""Return the simple commands of a script, in the order in which they are written.

    The commands of loops, conditions, subshells and unquoted `$(...)` are among them.  Every script is accepted: an
    unclosed here-document is read up to the end.

    >>> [command.words for command in shell_commands("cd src && FOO=1 timeout 60 grep 'a > b' x.py | head -5")]
    [['cd', 'src'], ['grep', 'a > b', 'x.py'], ['head', '-5']]
    >>> shell_commands("cat <<'EOF' > a.py\nprint(1)\nEOF")[0].writes, shell_commands("make 2>&1")[0].writes
    ([('a.py', False)], [])
    """
    commands = [*_simple(script)]
    for command, later in pairwise(commands):
        if command.after == "|" and later.given is None and command.words[:1] in (["cat"], ["echo"]):
            later.given = command.given if command.words[0] == "cat" else " ".join(command.words[1:])
    for command in commands:
        command.words = _without_prefixes(command.words)
    commands = [command for command in commands if command.words or command.writes]
    if commands and commands[-1].after == ";":
        commands[-1].after = ""
    return commands


def _simple(script: str) -> Iterator[ShellCommand]:
    command, redirect, place = ShellCommand(), "", 0
    awaited: list[tuple[ShellCommand, str]] = []
    while (match := _TOKEN.match(script, place)) is not None:
        kind, text, place = match.lastgroup, match[0], match.end()
        if kind == "redirect":
            redirect = text.lstrip("0123456789")
        elif kind == "word" and redirect:
            _redirect(command, redirect, unquoted(text), awaited)
            redirect = ""
        elif kind == "word":
            command.words.append(unquoted(text))
        elif kind == "operator":
            redirect = ""
            if text == "\n":
                place = _read_documents(script, place, awaited)
            if command.words or command.writes:
                command.after = ";" if text in "\n;;()`" else text
                yield command
                command = ShellCommand()
    yield command


def _redirect(command: ShellCommand, redirect: str, target: str, awaited: list[tuple[ShellCommand, str]]) -> None:
    """Store a redirection of a command; ignore redirected descriptors such as `2>&1`."""
    if redirect == "<<":
        awaited.append((command, target.removeprefix("-")))
    elif redirect == "<<<":
        command.given = target
    elif ">" in redirect and "[[" not in command.words and not (redirect == ">&" and target.rstrip("-").isdigit()):
        command.writes.append((target, ">>" in redirect))


def _read_documents(script: str, place: int, awaited: list[tuple[ShellCommand, str]]) -> int:
    """Store the here-documents that begin at `place` in their commands; return the position after them."""
    for command, mark in awaited:
        end = re.compile(rf"^[ \t]*{re.escape(mark)}[ \t]*$", re.MULTILINE).search(script, place)
        command.given = script[place : end.start() if end else len(script)].removesuffix("\n")
        place = end.end() if end else len(script)
    awaited.clear()
    return place


def _without_prefixes(words: list[str]) -> list[str]:
    """Return a command's words from the program on; words before it, such as `sudo` or an assignment, are left out."""
    place = 0
    while place < len(words):
        is_runner = " ".join(words[place : place + 2]) in _RUNNERS
        if not (is_runner or words[place] in _PREFIXES or _ASSIGNMENT.fullmatch(words[place])):
            break
        options = words[place] in _PREFIXES or is_runner
        place += 1 + is_runner
        while options and place < len(words) and (words[place].startswith("-") or _DURATION.fullmatch(words[place])):
            place += 1
    return words[place:]


def unquoted(word: str) -> str:
    r"""Return a word without its quotes.

    >>> unquoted("'a b'.py"), unquoted(r'"a \"b\""'), unquoted(r"a\ b")
    ('a b.py', 'a "b"', 'a b')
    """
    return _QUOTED.sub(lambda match: match[1] or match[2] or re.sub(r"\\([\"\\$`])", r"\1", match[3] or ""), word)
