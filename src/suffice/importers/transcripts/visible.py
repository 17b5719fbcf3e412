"""The files of a working folder, as far as a transcript shows their changes."""

from __future__ import annotations

import hashlib
import posixpath
import re

from suffice.common.shell import ShellCommand, shell_commands

_ELSEWHERE = "*"
"""The name of the files that a command changes without naming them."""

_NOT_OURS = ("/dev/", "/tmp/", "/var/tmp/", "/proc/", "/sys/")  # noqa: S108 - names in logs, opened by nobody
_ALL_NAMED = frozenset({"tee", "touch", "truncate"})
_LAST_NAMED = frozenset({"cp", "mv", "ln", "install", "rsync"})
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "eval"})
_INTERPRETERS = re.compile(r"(?:python|pypy|node|ruby|perl)[\d.]*")
_IN_PLACE = {
    "sed": re.compile(r"-[a-zA-Z]*i.*|--in-place.*"),
    "perl": re.compile(r"-[a-zA-Z]*i.*"),
    "ruff": re.compile(r"format|--fix"),
    "prettier": re.compile(r"-w|--write"),
    "eslint": re.compile(r"--fix"),
    "gofmt": re.compile(r"-w"),
    "autopep8": re.compile(r"-[a-z]*i[a-z]*|--in-place"),
    "2to3": re.compile(r"-[a-z]*w[a-z]*"),
    "cargo": re.compile(r"fmt|fix"),
    "go": re.compile(r"fmt"),
}
"""Programs that change files only where an argument says so."""
_FORMATTERS = frozenset({"black", "isort", "yapf", "rustfmt", "dos2unix", "ed", "ex"})
_ONLY_SAYS = re.compile(r"--(?:check|check-only|diff|dry-run|stat|numstat|help|version)")
_WHOLE_TREE = frozenset({"am", "merge", "rebase", "pull", "switch", "revert", "cherry-pick"})
_NO_FILES = re.compile(r"-(?:b|B|-orphan|-soft|-mixed|N|-staged)")
_SCRIPTS_OF = {"sed": ("-e", "-f", "--expression", "--file"), "perl": ("-e", "-E")}
_FILE_LIKE = re.compile(r".*[./].*|[A-Z][A-Za-z]+file")
_IN_CODE = re.compile(
    r"(?:open\(\s*(?P<opened>[^,()\n]*(?:\([^()\n]*\))?),\s*(?:mode\s*=\s*)?['\"][^'\"]*[wax+][^'\"]*['\"]"
    r"|(?:Path\(\s*(?P<path>[^()\n]*)\)|\b\w+)\.write_(?:text|bytes)\("
    r"|writeFile(?:Sync)?\(\s*(?P<written>[^,()\n]*)|shutil\.(?:copy\w*|move|rmtree)\(|os\.(?:remove|unlink|rename|replace)\()"
)
_LITERAL = re.compile(r"[rbu]?(['\"])([^'\"{}\n]+)\1")
_PATCHED = re.compile(
    r"^(?:\*\*\* (?P<kind>Add|Update|Delete) File: (?P<file>.+)|\*\*\* Move to: (?P<moved>.+)|\+\+\+ (?:b/)?(?P<diff>[^\t\n]+).*)$",
    re.MULTILINE,
)


class VisibleFiles:
    r"""The changes of files that a transcript shows, in order.

    Two states have the same digest if every file was changed by the same commands.  A file that the run created and then
    removed does not count, nor does a change that git reverts.  Files that a program writes without naming them are not seen,
    temporary files (``/tmp``) are ignored, and a formatter run counts as a change even if nothing changed.

    >>> files = VisibleFiles()
    >>> files.run("grep -n name src/a.py"), files.digest
    (False, None)
    >>> files.run("sed -i s/old/new/ src/a.py"), files.run("cat > try.py <<'EOF'\nprint(1)\nEOF"), files.run("python try.py")
    (True, True, False)
    >>> before = files.digest
    >>> files.run("cd src && rm ../try.py"), files.digest == before
    (True, False)

    Args:
        root: The working folder, with which absolute paths may begin; "" = the first folder that a command changes to.
        stays: True if a command starts in the folder where the previous one ended, as in a persistent shell.
    """

    def __init__(self, root: str = "", *, stays: bool = False) -> None:
        self.root = root.rstrip("/")
        self.stays = stays
        self._folder = ""
        self._changes: dict[str, str] = {}
        self._made: set[str] = set()
        self._stashed: list[dict[str, str]] = []
        self._committed = False

    @property
    def digest(self) -> str | None:
        """A short text that identifies the state; None before the first change."""
        if not self._changes:
            return None
        return _hash(repr(sorted(self._changes.values())))[:12]

    @property
    def changed(self) -> frozenset[str]:
        """The files that differ from their first state; `*` stands for files that a command changes without naming them."""
        return frozenset(self._changes)

    def edit(self, path: str, change: str, *, makes: bool = False) -> None:
        """Record that a tool changed a file.

        Args:
            path: The file.
            change: All that determines the change: the tool's arguments.
            makes: True if the result is independent of the previous content.
        """
        name = self._name(path)
        if name.startswith(_NOT_OURS):
            return
        if makes and name not in self._changes:
            self._made.add(name)
        self._changes[name] = _hash(posixpath.basename(name), "" if makes else self._changes.get(name, ""), change)

    def remove(self, path: str) -> None:
        """Record that a file, or a folder with its content, was removed."""
        name = self._name(path)
        made = {own for own in self._made if own == name or own.startswith(f"{name}/")}
        for own in made:
            self._changes.pop(own, None)
        self._made -= made
        if not made and not name.startswith(_NOT_OURS) and name != _ELSEWHERE:
            self._changes[name] = _hash("removed", name)

    def patch(self, text: str) -> None:
        """Record the changes of a patch in the form of `apply_patch` or `diff`."""
        places = [*_PATCHED.finditer(text)]
        for place, match in enumerate(places):
            end = places[place + 1].start() if match is not places[-1] else len(text)
            change = text[match.end() : end].strip()
            if match["kind"] == "Delete":
                self.remove(match["file"].strip())
            elif match["moved"]:
                before = places[place - 1]["file"] or ""
                self._move(before.strip(), match["moved"].strip())
                self.edit(match["moved"].strip(), change)
            else:
                path = (match["file"] or match["diff"]).strip()
                self.edit(path, change, makes=match["kind"] == "Add")
        if not places:
            self.edit(_ELSEWHERE, text)

    def run(self, command: str, folder: str = "") -> bool:
        """Record the changes of a shell command, as far as its text shows them; return whether it changes anything.

        Args:
            command: A command, or a script of several commands.
            folder: The folder in which it runs; "" = the working folder, or the one where the previous command ended.
        """
        before = dict(self._changes)
        self._folder = folder or (self._folder if self.stays else "")
        self._script(command)
        return self._changes != before

    def code(self, text: str) -> bool:
        """Record the changes of a program text, such as a notebook cell; return whether it changes anything."""
        before = dict(self._changes)
        for match in _IN_CODE.finditer(text):
            literal = _LITERAL.fullmatch((match["opened"] or match["path"] or match["written"] or "").strip())
            self.edit(literal[2] if literal else _ELSEWHERE, text)
        return self._changes != before

    def _name(self, path: str) -> str:
        """Return the path of a file relative to the working folder, in whatever way the path is written."""
        if path == _ELSEWHERE:
            return path
        if path.startswith("~"):
            path = f"/{path}"
        name = posixpath.normpath(posixpath.join(self._folder, path)) if path else _ELSEWHERE
        if self.root and name.startswith(f"{self.root}/"):
            return name[len(self.root) + 1 :]
        return "." if name == self.root else name

    def _script(self, script: str) -> None:
        for command in shell_commands(script):
            own = " ".join(command.words) + (f"\0{command.given}" if command.given is not None else "")
            for target, appends in command.writes:
                told = command.given if command.program == "cat" and command.given is not None else own
                self.edit(target, told, makes=not appends)
            if command.words:
                self._program(command, own)

    def _program(self, command: ShellCommand, own: str) -> None:  # noqa: C901 - one branch for each kind of program
        program, words = command.program, command.words[1:]
        named = [word for word in words if not word.startswith("-")]
        if program == "cd":
            self._go(named[0] if named else "")
        elif program in _SHELLS:
            self._shell(program, words, command.given)
        elif _INTERPRETERS.fullmatch(program) and not _in_place(program, words):
            self._interpreter(words, command.given)
        elif program == "git":
            self._git(named, words, own, command.given)
        elif program in ("patch", "apply_patch", "applypatch"):
            if not any(map(_ONLY_SAYS.fullmatch, words)):
                self.patch(command.given if command.given is not None else " ".join(words))
        elif program == "rm":
            for path in named:
                self.remove(path)
        elif program == "find" and ("-exec" in words or "-delete" in words):
            self._program(ShellCommand(words=words[words.index("-exec") + 1 :] if "-exec" in words else ["black"]), own)
        elif program in _ALL_NAMED or program in _LAST_NAMED:
            self._write(program, words, named, own)
        elif program in ("curl", "wget") and {"-o", "-O", "--output"} & {*words[:-1]}:
            place = next(place for place, word in enumerate(words) if word in ("-o", "-O", "--output"))
            self.edit(words[place + 1], own, makes=True)
        elif _in_place(program, words) or (program in _FORMATTERS and not any(map(_ONLY_SAYS.fullmatch, words))):
            self._edit_named(program, words, own)

    def _go(self, folder: str) -> None:
        self._folder = posixpath.normpath(posixpath.join(self._folder, folder))
        if self._folder.startswith("/") and not self.root and not f"{self._folder}/".startswith(_NOT_OURS):
            self.root = self._folder
            self._changes = {self._name(name): change for name, change in self._changes.items()}
            self._made = {self._name(name) for name in self._made}

    def _shell(self, program: str, words: list[str], given: str | None) -> None:
        place = next((place for place, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word)), None)
        if program == "eval":
            self._script(" ".join(words))
        elif place is not None and place + 1 < len(words):
            self._script(words[place + 1])
        elif given is not None:
            self._script(given)

    def _interpreter(self, words: list[str], given: str | None) -> None:
        if "-m" in words[:-1]:
            rest = words[words.index("-m") + 1 :]
            self._program(ShellCommand(words=rest), " ".join(rest))
            return
        place = next((place for place, word in enumerate(words) if word in ("-c", "-e", "-E")), None)
        self.code(words[place + 1] if place is not None and place + 1 < len(words) else given or "")

    def _write(self, program: str, words: list[str], named: list[str], own: str) -> None:
        if program == "mv" and len(named) > 1:
            self._move(named[0], named[-1])
        elif program == "cp" and len(named) > 1:
            self._copy(named[0], named[-1])
        elif program == "touch":
            for path in named:
                if self._name(path) not in self._changes:
                    self.edit(path, "", makes=True)
        else:
            for path in named if program in _ALL_NAMED else named[-1:]:
                self.edit(path, own, makes=program == "tee" and "-a" not in words)

    def _copy(self, source: str, target: str) -> None:
        """Record that a file has the content of another one; a copy of the original content undoes earlier changes."""
        held = self._changes.get(self._name(source), _hash("as before", self._name(source)))
        name = self._name(target)
        if target.endswith("/") or name in (".", ".."):
            name = self._name(posixpath.join(target, posixpath.basename(source)))
        if held == _hash("as before", name):
            self._changes.pop(name, None)
        elif not name.startswith(_NOT_OURS):
            if name not in self._changes:
                self._made.add(name)
            self._changes[name] = held

    def _move(self, source: str, target: str) -> None:
        self._copy(source, target)
        self.remove(source)

    def _edit_named(self, program: str, words: list[str], own: str) -> None:
        """Record that a command, such as `sed -i`, edits the files among its arguments.

        If it names no file, or only a pattern, unnamed files count as edited.
        """
        scripts = _SCRIPTS_OF.get(program, ())
        skipped = {place + 1 for place, word in enumerate(words) if word in scripts}
        named = [word for place, word in enumerate(words) if place not in skipped and not word.startswith("-")]
        if program == "sed" and not skipped:
            named = named[1:]
        files = named if program in _SCRIPTS_OF else [word for word in named if re.search(r"\w\.\w+$", word)]
        known = [path for path in files if not re.search(r"[$*?{]|^\\?;$|^\+$", path)]
        for path in known:
            self.edit(path, own)
        if not known or len(known) < len([path for path in files if path not in (";", "+", "\\;")]):
            self.edit(_ELSEWHERE, own)

    def _git(self, named: list[str], words: list[str], own: str, given: str | None) -> None:
        verb, paths = (named[0], named[1:]) if named else ("", [])
        if verb == "stash":
            self._stash(paths[0] if paths else "push")
        elif verb == "commit":
            self._committed = True
        elif verb == "apply" and not any(map(_ONLY_SAYS.fullmatch, words)):
            self.patch(given if given is not None else own)
        elif verb == "clean" and not {"-n", "--dry-run"} & {*words}:
            self._changes = {name: change for name, change in self._changes.items() if name not in self._made}
            self._made.clear()
        elif verb == "rm" and "--cached" not in words:
            for path in paths:
                self.remove(path)
        elif verb == "mv" and len(paths) > 1:
            self._move(paths[0], paths[-1])
        elif verb in ("checkout", "restore", "reset"):
            self._take_back(verb, paths, words, own)
        elif verb in _WHOLE_TREE:
            self.edit(_ELSEWHERE, own)

    def _take_back(self, verb: str, paths: list[str], words: list[str], own: str) -> None:
        if any(map(_NO_FILES.fullmatch, words)) or (verb == "reset" and "--hard" not in words):
            return
        before, _, after = (list(part) for part in _divided(words[1:], "--"))
        files = after or [path for path in paths if verb == "restore" or _FILE_LIKE.fullmatch(path)]
        other = [word for word in before if word not in files and word != "HEAD" and not word.startswith("-")]
        if self._committed or other or (verb == "checkout" and not files):
            self.edit(_ELSEWHERE, own)
        elif verb == "reset" or any(self._name(path) in (".", ":/") for path in files):
            self._changes = {name: change for name, change in self._changes.items() if name in self._made}
        else:
            for path in files:
                name = self._name(path)
                for known in [own for own in self._changes if own == name or own.startswith(f"{name}/")]:
                    if known not in self._made:
                        del self._changes[known]

    def _stash(self, verb: str) -> None:
        if verb in ("push", "save"):
            self._stashed.append({name: change for name, change in self._changes.items() if name not in self._made})
            self._changes = {name: change for name, change in self._changes.items() if name in self._made}
        elif verb in ("pop", "apply") and self._stashed:
            self._changes |= self._stashed[-1]
            del self._stashed[len(self._stashed) - (verb == "pop") :]
        elif verb in ("drop", "clear"):
            del self._stashed[-1:]


def _in_place(program: str, words: list[str]) -> bool:
    return (
        program in _IN_PLACE
        and any(map(_IN_PLACE[program].fullmatch, words))
        and not any(map(_ONLY_SAYS.fullmatch, words))
    )


def _divided(words: list[str], at: str) -> tuple[list[str], list[str], list[str]]:
    place = words.index(at) if at in words else len(words)
    return words[:place], words[place : place + 1], words[place + 1 :]


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
