"""The command line as a test calls it, and small files for it."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.cli.main import run
from tests.support.endpoint import prompt_of

CITIES = ("Oslo", "Lima", "Rome", "Cairo")


@dataclass(frozen=True)
class Result:
    """Exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Standard output on one line, however long the lines are that it was wrapped to."""
        return " ".join(self.out.split())

    @property
    def json(self) -> Any:
        """Standard output as strict JSON, and nothing but that."""
        return json.loads(self.out, parse_constant=_refuse)

    @property
    def commands(self) -> list[list[str]]:
        """The arguments of each `suffice` command that stands on a line of its own, in the order of printing."""
        lines = (line.strip() for line in f"{self.err}\n{self.out}".splitlines())
        return [shlex.split(line)[1:] for line in lines if line.startswith("suffice ")]

    def command(self, option: str) -> list[str]:
        """Return the arguments of the first such command that has an option."""
        return next(own for own in self.commands if f" {option} " in f" {shlex.join(own)} ")

    @property
    def error(self) -> str:
        """The one line that a failed command says; no traceback, nothing on standard output."""
        assert self.code in (1, 2), self
        assert "Traceback" not in self.err + self.out, self
        assert "internal error" not in self.err, self
        return self.err


def _refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is not JSON")


def cli(*arguments: object, code: int | None = None) -> Result:
    """Run the command line in this process; where an exit code is given, it must end with that."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run([str(argument) for argument in arguments])
        except SystemExit as left:
            ended = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    result = Result(ended, out.getvalue(), err.getvalue())
    assert code in (None, ended), result
    return result


def question(number: int, passages: int = 5) -> dict[str, Any]:
    """Return one question as a line of a data set."""
    city = CITIES[number % len(CITIES)]
    paragraphs = [
        {"title": f"Tower {number}.{i}", "text": f"The tower {number} stands in {city}." if i == 1 else f"Text {i}."}
        for i in range(passages)
    ]
    return {"id": f"q{number}", "question": f"Where is tower {number}?", "answers": [city], "paragraphs": paragraphs}


def dataset(path: Path, *records: dict[str, Any], n: int = 4) -> Path:
    """Write a data set."""
    lines = records or tuple(question(i) for i in range(n))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def corpus(folder: Path) -> Path:
    """Write a folder of documents."""
    folder.mkdir()
    for number, city in enumerate(CITIES):
        (folder / f"{city}.txt").write_text(f"The tower {number} stands in {city}.")
        (folder / f"about-{city}.md").write_text(f"# {city}\n\n{city} has a tower and a harbour.")
    return folder


def reply(body: dict[str, Any]) -> tuple[str, float]:
    """Answer by a pure function of the prompt; surer and righter with more evidence."""
    prompt = prompt_of(body)
    digits = prompt.split("Where is tower ")[1].split("?")[0] if "Where is tower " in prompt else "0"
    noise = zlib.crc32(prompt.encode())
    right = noise % 6 < 1 + prompt.count("Passage")
    city = CITIES[(int(digits) + (0 if right else 1 + noise % 3)) % len(CITIES)]
    return f"Answer: {city}\nConfidence: {4 if right else 2}", (3.0 if right else 0.5) + noise % 100 / 50
