"""The bench of the golden comparison: a folder in which the installed `suffice` runs on small files of the repository."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import suffice

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("examples", "tests/data/logs", "tests/data/imports", "tests/data/traces")
"""The folders of small files that cases read."""


@dataclass(frozen=True)
class Bench:
    """A folder in which cases run, and the recordings that they share.

    Attributes:
        folder: The current folder of all commands.
        made: The results of the imports so far, by the name of the recording.
    """

    folder: Path
    made: dict[str, Any] = field(default_factory=dict)

    def run(self, *words: object) -> tuple[int, str, str]:
        """Run a command; return its exit code, standard output and standard error."""
        (script,) = entry_points(group="console_scripts", name="suffice")
        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(self.folder):
            try:
                script.load()([str(word) for word in words])
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        return code, out.getvalue(), err.getvalue()

    def json(self, *words: object, optional: Sequence[str] = ()) -> Any:
        """Return the JSON that a command prints, or what its failure says.

        Args:
            words: The command.
            optional: Options that a later release need not know; then the command runs without them.
        """
        code, out, err = self.run(*words, *optional, "--json")
        unknown = any(said in err.lower() for said in ("no such option", "is no option any more"))
        if optional and code == 2 and unknown:  # noqa: PLR2004 - wrong usage
            return self.json(*words)
        return json.loads(out) if out.startswith(("{", "[")) else {"exit": code, "said": err.strip().splitlines()[-1:]}

    def take(self, name: str) -> str:
        """Copy a file or folder of the repository into the folder; return its name there."""
        found = [ROOT / source / name for source in SOURCES if (ROOT / source / name).exists()]
        found += [path for house in ("src", "packages") for path in ROOT.glob(f"{house}/**/recorded/{name}")]
        if not found:
            raise FileNotFoundError(f"{name} is in none of {', '.join(SOURCES)}, nor among the bundled recordings")
        there = self.folder / name
        if found[0].is_dir():
            shutil.copytree(found[0], there, dirs_exist_ok=True)
        else:
            shutil.copyfile(found[0], there)
        return name

    def imported(self, name: str, *options: str, out: str = "") -> str:
        """Import a file, once; return the name of the recording."""
        recording = out or f"{Path(name).stem}.parquet"
        if recording not in self.made:
            self.made[recording] = self._import(name, recording, options)
        return recording

    def _import(self, name: str, recording: str, options: Sequence[str]) -> Any:
        command = ["import", self.take(name), "-o", recording, "--yes", *options]
        code, out, err = self.run(*command, "--json")
        printed = re.findall(r"^ +suffice (.*)$", err, flags=re.MULTILINE)
        asked = len(printed) if code == 2 else 0  # noqa: PLR2004 - it asks, and prints a command for each reply
        if asked:
            code, out, err = self.run(*shlex.split(printed[0]))
        if code or not (self.folder / recording).exists():
            return {"exit": code, "asked": asked}
        report = json.loads(out)
        report["columns"] = [item for item in report["columns"] if not item["computed"] or item["clipped"]]
        return {"asked": asked, "report": report, "recording": recording_facts(self.folder / recording)}


def recording_facts(path: Path) -> dict[str, Any]:
    """Return what a recording contains: its metadata, and of each column the type, a checksum and the first value."""
    table = pq.read_table(path)
    metadata = json.loads(table.schema.metadata[b"suffice"])
    columns = {}
    for item in table.schema:
        values = table[item.name].to_pylist()
        kept = [value for value in values if value is not None and value != []]
        if kept:
            units = [text.decode() for _, text in sorted((item.metadata or {}).items())]
            columns[item.name] = {
                "type": " ".join([str(item.type), *units]),
                "defined": len(kept),
                "checksum": checksum([round(v, 9) if isinstance(v, float) else v for v in values]),
            }
            if isinstance(kept[0], str):
                columns[item.name]["first"] = kept[0][:60]
    return {"metadata": metadata, "rows": table.num_rows, "columns": columns}


def checksum(values: Sequence[Any]) -> str:
    """Return eight hexadecimal digits that tell whether values are the same."""
    return f"{zlib.crc32(json.dumps(values, sort_keys=True, default=str).encode()):08x}"


def recorded_rounds(path: Path) -> Iterator[tuple[str, list[suffice.Round]]]:
    """Yield each question of a recording with its rounds, as a live loop would give them."""
    table = pq.read_table(path)
    kinds = {item.name: (item.metadata or {}).get(b"kind", b"").decode() for item in table.schema}
    questions: dict[str, list[suffice.Round]] = {}
    for row in table.to_pylist():
        signals = {name: row[name] for name, kind in kinds.items() if kind == "signal" and row[name] is not None}
        made = suffice.Round(
            index=row["round"],
            answer=row["answer"],
            text=row["text"] or "",
            feedback=row["feedback"],
            signals=signals,
            costs={"generator": suffice.Cost(calls=1)},
        )
        questions.setdefault(row["question_id"], []).append(made)
    yield from questions.items()


def decisions(policy: suffice.Policy, questions: Sequence[list[suffice.Round]]) -> list[Any]:
    """Return the decision of each question, which is observed round by round."""
    found = []
    for rounds in questions:
        session = suffice.Session(policy, missing="ignore")
        for observed in rounds:
            if session.decision is None:
                session.observe(observed)
        found.append((session.decision or session.end("exhausted")).to_dict())
    return found
