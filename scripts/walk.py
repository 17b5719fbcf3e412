"""Count what one `suffice decide` passes through: the walk of a newcomer from a log to its sentence.

    python -m scripts.walk              print modules, files and functions by room
    python -m scripts.walk --details    list the functions of each module, too

The log is the bundled recording of self-refine.  A module counts if it is imported, a file if one of its functions runs,
and a function if it runs at least once other than during an import (which registers signals, rules and the like).
Comprehensions, lambdas and the methods that dataclasses generate are not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "suffice"
RECORDING = ROOT / "src" / "suffice" / "data" / "recorded" / "self_refine_gpt4.parquet"
METRIC = "target_sentiment"


def walked() -> dict[str, list[str]]:
    """Run `suffice decide` in a new process; return the functions that ran in each imported module of the package."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(RECORDING, Path(folder) / "log.parquet")
        command = [sys.executable, "-c", "from scripts.walk import count_here; count_here()"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    functions: dict[str, list[str]] = json.loads(done.stdout)
    return functions


def count_here() -> None:
    """Run the command in this process, a new one, and print what `walked` returns as JSON."""
    ran: set[tuple[str, int, str]] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        place = (code.co_filename, code.co_firstlineno, code.co_name)
        if event == "call" and "<" not in code.co_name and place not in ran and not _is_importing(frame):
            ran.add(place)

    threading.setprofile(watch)
    sys.setprofile(watch)
    from suffice.cli.main import run

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        run(["decide", "log.parquet", "--metric", METRIC])
    sys.setprofile(None)
    if not Path("decision.json").exists():
        raise SystemExit("`suffice decide` wrote no decision")
    loaded = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGE}
    functions: dict[str, list[str]] = {name: [] for name in sorted(loaded)}
    by_file = {module.__file__: name for name, module in loaded.items()}
    for file, line, name in sorted(ran):
        if file in by_file:
            functions[by_file[file]].append(f"{name}:{line}")
    print(json.dumps(functions))


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether code runs because a module of the package is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
            return True
        frame = frame.f_back
    return False


def by_room(functions: Mapping[str, Sequence[str]]) -> list[tuple[str, int, int, int]]:
    """Return the modules, files and functions of each room and of all, largest first.

    >>> by_room({"suffice.errors": [], "suffice.cli.main": ["run:1"]})
    [('all', 2, 1, 1), ('cli', 1, 1, 1), ('errors', 1, 0, 0)]

    Args:
        functions: The functions that ran, by module, as `walked` returns them.
    """
    rooms: dict[str, list[Sequence[str]]] = {"all": list(functions.values())}
    for module, ran in functions.items():
        rooms.setdefault([*module.split("."), "itself"][1], []).append(ran)
    rows = [(room, len(each), sum(map(bool, each)), sum(map(len, each))) for room, each in rooms.items()]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def main(words: Sequence[str] | None = None) -> None:
    """Print the walk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--details", action="store_true", help="list the functions of each module")
    details, functions = parser.parse_args(words).details, walked()
    for room, modules, files, ran in by_room(functions):
        print(f"{room:16}{modules:4} modules{files:4} files{ran:5} functions")
    for module, names in functions.items() if details else ():
        print(f"{module} ({len(names)}): {' '.join(names)}")


if __name__ == "__main__":
    main()
