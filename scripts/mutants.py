"""Change a room of the core in small ways and count the changes that its tests notice: mutation testing with mutmut.

    python scripts/mutants.py [ROOM...] [--sample N --seed S] [--children N]

Works in a copy of the tracked files, one change at a time, on the tests of that room that are not marked `whole`.  Messages of
errors are left alone.  With `--sample`, N changes of each room are drawn, and laws are tested with 10 examples: a few
minutes a room instead of hours.  Prints a row for each room; the changes that no test noticed are in the file it names.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "rules": "rules selectors own_rules baseline_selectors draft_selectors ranker session session_missing policy semantics_replay "
    "replay semantic_signals sweep cascade diagnose_stops paper_published options judged",
    "session": "session session_missing policy streaming semantics_replay replay loop loop_replay own_rules start_round "
    "cascade recorded_signals agreement",
    "signals": "signals_answers signal_definitions signals_evidence signals_margins signals_text semantic_signals "
    "semantic_scores position uncertainty recorded_signals session_missing",
    "replays": "replay semantics_replay costs prices streaming sweep agreement censored start_round statistics_replay "
    "recorded_signals calibrate choice baseline_selectors ledger",
    "certificates": "certify certify_pvalues certify_cli",
}
"""The tests of each room: names of files below tests/, without `test_`."""
PLACES = {
    "rules": "policy/rules",
    "session": "policy/session",
    "signals": "policy/signals",
    "replays": "evaluation/replay",
    "certificates": "verdicts/certificates",
}
"""The folder of each room in src/suffice."""
CONFIG = """
[tool.mutmut]
source_paths = ["src/"]
only_mutate = ["src/suffice/{place}/*"]
do_not_mutate_patterns = ['raise [A-Z]\\w+\\(']
also_copy = ["packages", "docs", "README.md", "examples", "proofs", "benchmarks", "scripts", "training"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "-m", "not whole", "--hypothesis-profile", "mutants"]
pytest_add_cli_args_test_selection = {tests}
"""
SURVIVING = ("survived", "no tests")


def copy_of_project(room: str, folder: Path, *, few_examples: bool) -> None:
    """Copy the tracked files, with the configuration of mutmut; laws draw 10 examples if `few_examples` is set."""
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, tracked):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for path in (folder / "tests").rglob("*.py") if few_examples else ():
        path.write_text(re.sub(r"max_examples=\d+", "max_examples=10", path.read_text("utf-8")), encoding="utf-8")
    tests = [
        str(path.relative_to(ROOT)) for name in ROOMS[room].split() for path in ROOT.glob(f"tests/**/test_{name}.py")
    ]
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as config:
        config.write(CONFIG.format(place=PLACES[room], tests=json.dumps(tests)))


def outcomes(room: str, folder: Path) -> dict[str, str]:
    """Return the outcome of each mutant of a room by its name."""
    mutmut = [sys.executable, "-m", "mutmut", "results", "--all", "true"]
    lines = subprocess.check_output(mutmut, cwd=folder, text=True).splitlines()
    results = (line.strip().rpartition(": ") for line in lines if f"suffice.{PLACES[room].replace('/', '.')}." in line)
    return {name: outcome for name, _, outcome in results}


def row(room: str, folder: Path, settings: argparse.Namespace) -> str:
    """Test a room's mutants in a copy of the tracked files and return its row of the table."""
    copy_of_project(room, folder, few_examples=settings.sample > 0)
    mutmut = [sys.executable, "-m", "mutmut", "run", "--max-children", str(settings.children)]
    began = time.perf_counter()
    names: list[str] = []
    with (folder / "log").open("w", encoding="utf-8") as log:
        if settings.sample:
            # The mutants have names once mutmut has made them, which it does before it refuses this one.
            subprocess.run([*mutmut, "none"], cwd=folder, stdout=log, stderr=log, check=False)
            every = sorted(outcomes(room, folder))
            names = random.Random(settings.seed).sample(every, min(settings.sample, len(every)))  # noqa: S311
        subprocess.run([*mutmut, *names], cwd=folder, stdout=log, stderr=log, check=True)
    minutes = (time.perf_counter() - began) / 60
    results = outcomes(room, folder)
    tested = {name: results[name] for name in names or results}
    counts = Counter(tested.values())
    noticed = len(tested) - counts["survived"] - counts["no tests"]
    survivors = "".join(f"{name}: {outcome}\n" for name, outcome in tested.items() if outcome in SURVIVING)
    (folder / "survived.txt").write_text(survivors, encoding="utf-8")
    return f"| {room} | {len(tested)} of {len(results)} | {noticed} | {noticed / len(tested):.0%} | {minutes:.0f} |"


def main() -> None:
    """Test the rooms that were asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of: {', '.join(ROOMS)}; all of them by default")
    parser.add_argument("--sample", type=int, default=0, help="mutants of each room that are drawn; 0 for all")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--children", type=int, default=2, help="mutants that are tested at the same time")
    settings = parser.parse_args()
    if unknown := set(settings.rooms) - set(ROOMS):
        parser.error(f"there is no room {sorted(unknown)}: choose of {', '.join(ROOMS)}")
    print("| Room | Mutants tested | Noticed | Score | Minutes |\n|---|---|---|---|---|", flush=True)
    for room in settings.rooms or ROOMS:
        folder = Path(tempfile.mkdtemp(prefix=f"suffice-mutants-{room}-"))
        print(row(room, folder, settings), flush=True)
        print(f"survivors of {room}: {folder / 'survived.txt'}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
