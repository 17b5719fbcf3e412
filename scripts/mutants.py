"""Change a room of the core in small ways and count the changes that its tests notice: mutation testing with mutmut.

    python scripts/mutants.py [ROOM...]

Works in a copy of the tracked files, one change at a time, on the tests of that room that `make check` runs.  Messages of
errors are left alone.  Prints a row for each room; the changes that no test noticed are listed in the file it names.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "rules": "rules selectors own_rules baseline_selectors draft_selectors ranker session session_missing policy semantics_replay "
    "replay semantic_signals sweep cascade diagnose_stops paper_published options judged",
    "session": "session session_missing policy streaming semantics_replay replay loop loop_replay own_rules start_round "
    "cascade recorded_signals agreement",
    "signals": "signals_answers signals_base signals_evidence signals_margins signals_text semantic_signals "
    "semantic_scores position uncertainty recorded_signals session_missing",
    "replays": "replay semantics_replay costs prices streaming sweep agreement censored start_round statistics_replay "
    "recorded_signals calibrate choice baseline_selectors ledger",
    "certificates": "certify certify_pvalues certify_cli",
}
"""The tests of each room: files of tests/, without `test_`."""
CONFIG = """
[tool.mutmut]
source_paths = ["src/"]
only_mutate = ["src/suffice/{room}/*"]
do_not_mutate_patterns = ['raise [A-Z]\\w+\\(']
also_copy = ["docs", "README.md", "examples", "proofs", "benchmarks", "scripts", "training"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "-m", "not whole", "--hypothesis-profile", "mutants"]
pytest_add_cli_args_test_selection = {tests}
"""


def row(room: str, folder: Path, children: int) -> str:
    """Test a room's mutants in a copy of the tracked files and return its row of the table."""
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, tracked):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    tests = [f"tests/test_{name}.py" for name in ROOMS[room].split()]
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as config:
        config.write(CONFIG.format(room=room, tests=json.dumps(tests)))
    mutmut = [sys.executable, "-m", "mutmut"]
    began = time.perf_counter()
    with (folder / "log").open("w", encoding="utf-8") as log:
        subprocess.run(
            [*mutmut, "run", "--max-children", str(children)], cwd=folder, stdout=log, stderr=log, check=True
        )
        subprocess.run([*mutmut, "export-cicd-stats"], cwd=folder, stdout=log, stderr=log, check=True)
    seconds = time.perf_counter() - began
    counts = json.loads((folder / "mutants" / "mutmut-cicd-stats.json").read_text("utf-8"))
    noticed = counts["killed"] + counts["timeout"] + counts["suspicious"] + counts["segfault"]
    left = subprocess.check_output([*mutmut, "results"], cwd=folder, text=True)
    (folder / "survived.txt").write_text(left, encoding="utf-8")
    return f"| {room} | {counts['total']} | {noticed} | {noticed / counts['total']:.1%} | {seconds / 60:.0f} |"


def main() -> None:
    """Test the rooms that were asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of: {', '.join(ROOMS)}; all of them by default")
    parser.add_argument("--children", type=int, default=2, help="mutants that are tested at the same time")
    settings = parser.parse_args()
    if unknown := set(settings.rooms) - set(ROOMS):
        parser.error(f"there is no room {sorted(unknown)}: choose of {', '.join(ROOMS)}")
    print("| Room | Mutants | Killed | Score | Minutes |\n|---|---|---|---|---|", flush=True)
    for room in settings.rooms or ROOMS:
        folder = Path(tempfile.mkdtemp(prefix=f"suffice-mutants-{room}-"))
        print(row(room, folder, settings.children), flush=True)
        print(f"survivors of {room}: {folder / 'survived.txt'}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
