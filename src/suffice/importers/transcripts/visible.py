"""The files of a working folder, as far as a transcript shows how they change."""

from __future__ import annotations

import hashlib
import re

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n(.*?)\n[ \t]*\2[ \t]*(?=\n|$)", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_PARTS = re.compile(r"&&|\|\||[;\n|]")
_REDIRECT = re.compile(r"(?<![<>&\d=-])(?:1|&)?>{1,2}\|?\s*([^\s&|;<>()]+)")
_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_BEFORE_WORDS = frozenset({"sudo", "env", "time", "command", "exec", "nohup", "then", "do", "else", "{", "("})
_TOUCHING = {"tee": 0, "touch": 0, "truncate": 0, "cp": -1, "mv": -1, "ln": -1, "install": -1, "rsync": -1}
"""Programs that write files: all that they name (0), or the last."""
_INPLACE = {
    "sed": re.compile(r"-\w*i(?:\..*)?|--in-place.*"),
    "perl": re.compile(r"-\w*i(?:\..*)?"),
    "ruff": re.compile(r"format|--fix"),
}
_OF_GIT = frozenset(
    {
        "apply",
        "am",
        "checkout",
        "restore",
        "reset",
        "stash",
        "revert",
        "rm",
        "mv",
        "clean",
        "merge",
        "rebase",
        "pull",
        "switch",
    }
)
_ANY = frozenset(
    {"patch", "ed", "ex", "black", "isort", "autopep8", "prettier", "gofmt", "rustfmt", "dos2unix", "2to3"}
)
_IN_CODE = re.compile(
    r"open\([^)\n]*,\s*(?:mode\s*=\s*)?['\"][^'\"]*[wax+]|\.write_(?:text|bytes)\(|writeFile|shutil\.(?:copy|move|rmtree)|os\.(?:remove|rename|replace)"
)
_ELSEWHERE = "*"
"""The name of the files that a command changes without naming them."""


class VisibleFiles:
    r"""The changes of files that a transcript shows, in the order in which they were made.

    Two moments of a run have one digest if every file was changed by the same commands.  A file that the run wrote first and
    then removed counts as never there.  What a program writes without saying so is not seen, and a formatter that finds
    nothing to change counts as a change.

    >>> files = VisibleFiles()
    >>> files.run("grep -n name src/a.py"), files.digest
    (False, None)
    >>> files.run("sed -i s/old/new/ src/a.py"), files.run("cat > try.py <<'EOF'\nprint(1)\nEOF"), files.run("python try.py")
    (True, True, False)
    >>> before = files.digest
    >>> files.run("rm try.py"), files.digest == before
    (True, False)
    """

    def __init__(self) -> None:
        self._changes: dict[str, str] = {}
        self._made: set[str] = set()

    @property
    def digest(self) -> str | None:
        """A short text that stands for the state; None before the first change."""
        if not self._changes:
            return None
        return hashlib.sha256(repr(sorted(self._changes.items())).encode()).hexdigest()[:12]

    def edit(self, path: str, change: str, *, makes: bool = False) -> None:
        """Note that a tool changed a file.

        Args:
            path: The file.
            change: All that determines the change: the tool's arguments.
            makes: Whether the change does not depend on what the file held before.
        """
        name = path.removeprefix("./") or _ELSEWHERE
        if makes and name not in self._changes:
            self._made.add(name)
        before = "" if makes else self._changes.get(name, "")
        self._changes[name] = hashlib.sha256(f"{before}\0{change}".encode()).hexdigest()

    def remove(self, path: str) -> None:
        """Note that a file was removed."""
        name = path.removeprefix("./")
        if name in self._made:
            self._made.discard(name)
            self._changes.pop(name, None)
        else:
            self._changes[name] = "removed"

    def run(self, command: str) -> bool:
        """Note what a command of a shell changes, as far as its text shows; return whether it changes anything.

        Args:
            command: One command, or several of a script.
        """
        bodies = [match[4] for match in _HEREDOC.finditer(command)]
        plain = _HEREDOC.sub(lambda match: f" {match[3]}\n", command)
        before = dict(self._changes)
        for part in _PARTS.split(_QUOTED.sub(_kept_quotes, plain)):
            self._run_one(part, command)
        code = [*bodies, *_QUOTED.findall(plain)] if re.search(r"\b(?:python[\d.]*|node|ruby|perl)\b", plain) else []
        if any(_IN_CODE.search(text) for text in code):
            self.edit(_ELSEWHERE, command)
        return self._changes != before

    def _run_one(self, part: str, command: str) -> None:
        for target in _REDIRECT.findall(part):
            if _unquoted(target) not in _NOWHERE:
                self.edit(_unquoted(target), command, makes=">>" not in part)
        words = [_unquoted(word) for word in _REDIRECT.sub("", part).split()]
        while words and (words[0] in _BEFORE_WORDS or re.fullmatch(r"\w+=.*", words[0])):
            del words[0]
        if words:
            program, named = words[0].rpartition("/")[2], [word for word in words[1:] if not word.startswith("-")]
            self._run_program(program, named, words[1:], command)

    def _run_program(self, program: str, named: list[str], words: list[str], command: str) -> None:
        """Note what a program changes, by the files that it names."""
        in_place = program in _INPLACE and any(map(_INPLACE[program].fullmatch, words))
        if program == "rm":
            for path in named:
                self.remove(path)
        elif program in _TOUCHING and named:
            for path in named if _TOUCHING[program] == 0 else named[-1:]:
                self.edit(path, command, makes=program in ("cp", "touch"))
            if program == "mv":
                self.remove(named[0])
        elif in_place and named:
            self.edit(named[-1], command)
        elif in_place or program in _ANY or (program == "git" and named and named[0] in _OF_GIT):
            self.edit(_ELSEWHERE, command)


def _kept_quotes(match: re.Match[str]) -> str:
    """Return a quoted text without what separates commands, so that its words stay one word."""
    return re.sub(r"[\s;|&<>()]", "_", match[0])


def _unquoted(word: str) -> str:
    return word.strip("'\"")
