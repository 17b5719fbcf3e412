"""Is any log misread?  ``python -m benchmarks.readings`` imports each log of the benchmark, and says what came of it.

`--drawn N` also draws N logs at random, from `--seed` on; `--page` draws 300 and writes docs/results/readings.md; `--json` prints one
JSON document instead of tables.  Exit code 1 if a log is misread.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import suffice
from benchmarks.readings.classes import ASKED, CLASSES, MISREAD, NO_WAY, NOTHING, OPTION, PLAIN, Outcome, outcome
from benchmarks.readings.drawn import ANSWERS, KINDS, SHAPES, drawn_outcome
from benchmarks.readings.known import CASES, KNOWN
from suffice.cli.console import print_table
from suffice.common.tables import Column, Table, render

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "readings.md"
COMMAND = "python -m benchmarks.readings"
DRAWN = 300
"""Logs that are drawn for the page."""

READABLE = (PLAIN, OPTION, ASKED, NO_WAY, MISREAD)
"""Classes of logs that hold something to stop, if nothing is misread."""

MARKS = {
    PLAIN: "no option",
    OPTION: "one option",
    ASKED: "asked",
    NOTHING: "refused",
    NO_WAY: "no way",
    MISREAD: "MISREAD",
}


def of_name(name: str) -> Outcome:
    """Return the outcome of one case, in a folder of its own."""
    case = next(case for case in CASES if case.name == name)
    with tempfile.TemporaryDirectory() as folder:
        return outcome(case, Path(folder))


def outcomes(names: Sequence[str] | None = None, workers: int = 2) -> list[Outcome]:
    """Return the outcome of each case, in processes of their own."""
    names = [case.name for case in CASES] if names is None else names
    with ProcessPoolExecutor(workers) as pool:
        return [*pool.map(of_name, names, chunksize=4)]


def of_seed(seed: int) -> Outcome:
    """Return the outcome of a drawn log, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return drawn_outcome(seed, Path(folder))


def drawn_outcomes(n: int, seed: int, workers: int = 2) -> list[Outcome]:
    """Return the outcomes of `n` drawn logs, with seeds from `seed` on."""
    with ProcessPoolExecutor(workers) as pool:
        return [*pool.map(of_seed, range(seed, seed + n), chunksize=4)]


def drawn_by_class(results: Sequence[Outcome]) -> Table:
    """Return how many drawn logs there are of each class."""
    counts = Counter(item.kind for item in results)
    rows = tuple((kind, counts[kind]) for kind in READABLE)
    return Table(
        title=f"{len(results)} logs drawn at random", columns=(Column("the log is"), Column("logs", "d")), rows=rows
    )


def by_class(results: Sequence[Outcome]) -> Table:
    """Return how many logs there are of each class, in the shapes of public projects and in our own."""
    counts = [Counter(item.kind for item in results if bool(item.source) is public) for public in (True, False)]
    rows = [(kind, counts[0][kind], counts[1][kind], counts[0][kind] + counts[1][kind]) for kind in CLASSES]
    columns = (Column("the log is"), *(Column(name, "d") for name in ("public shapes", "our shapes", "all")))
    return Table(title=f"{len(results)} logs by what came of them", columns=columns, rows=tuple(rows))


def by_log(results: Sequence[Outcome]) -> Table:
    """Return a row for each log."""
    rows = [(item.log, item.source, MARKS[item.kind], item.typed) for item in results]
    columns = (Column("log"), Column("shape of"), Column("read with"), Column("typed"))
    return Table(title="Each log", columns=columns, rows=tuple(rows))


def page(results: Sequence[Outcome], drawn: Sequence[Outcome], seed: int) -> str:
    """Return docs/results/readings.md."""
    known = "".join(f"- `{item.log}`: {KNOWN.get(item.log, item.said)}\n" for item in results if item.kind == MISREAD)
    readable = [item for item in results if item.kind in READABLE]
    plain = sum(item.kind == PLAIN for item in readable)
    n_public = sum(bool(item.source) for item in results)
    return (
        "<!-- Written by benchmarks/readings; edit that. -->\n\n"
        "# Is any log misread?\n\n"
        f"Command: `{COMMAND} --page --seed {seed}`. Suffice {suffice.__version__}. {len(results)} logs, {n_public} of them in the shapes of files that public\n"
        "projects write. A seeded function makes the values of each; no data is copied. Its right reading is made from the same\n"
        "values: questions, rounds, answers, gold answers, runs, and the score of every answer. A recording that differs in any of\n"
        "them is a misreading, whatever its columns are called.\n\n"
        "**The authors of the importer wrote these logs and their right readings.** They know what it looks for, and mended it by\n"
        "them. Logs drawn at random, below, say more about logs that nobody has seen.\n\n"
        + render((by_class(results),), "md")
        + f"\nOf the {len(readable)} logs that hold something to stop, {plain} ({100 * plain / len(readable):.0f} %) are read right with no option. "
        "*Refused with the command that works*: the\nimport asks which of two readings is right, and one of the commands that it prints, typed as printed, "
        "reads the log right.\n*Rightly refused*: one answer a question, partial texts, or votes of people; such logs are refused, or\n"
        "imported as a single round or without answers, so that no verdict follows.\n\n"
        "## Drawn at random\n\n"
        f"`{COMMAND} --drawn {len(drawn)} --seed {seed}`: one of {len(KINDS)} kinds of answers and {len(SHAPES)} shapes, names of columns from lists of up to {len(ANSWERS)},\n"
        "what judges the answers, columns beside them, and whether loops stop early are drawn for each log, so nobody chose what meets what.\n"
        "Seeds below 5000 were read while the importer was mended; others were drawn afterwards.\n"
        "*Refused without a way* counts logs that three printed commands in a row do not read.\n\n"
        + render((drawn_by_class(drawn),), "md")
        + "\n## Misread\n\n"
        + (known or "None.\n")
        + "\n"
        + render((by_log(results),), "md")
    )


def main(arguments: list[str] | None = None) -> int:
    """Import all logs; return 1 if one is misread."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("name", nargs="*", help="only these cases")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="also draw this many logs at random")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first drawn log (1)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument("--page", action="store_true", help="also write docs/results/readings.md")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    results = outcomes(options.name or None)
    drawn = drawn_outcomes(options.drawn or DRAWN * options.page, options.seed)
    seconds = round(time.perf_counter() - began, 1)
    misread = [item for item in (*results, *drawn) if item.kind == MISREAD]
    if options.page:
        PAGE.write_text(page(results, drawn, options.seed), encoding="utf-8")
    if options.json:
        logs = [
            {"log": i.log, "shape_of": i.source, "class": i.kind, "typed": i.typed, "said": i.said}
            for i in (*results, *drawn)
        ]
        counts = {kind: sum(item.kind == kind for item in results) for kind in CLASSES}
        print(json.dumps({"logs": logs, "counts": counts, "took_s": seconds}))
    else:
        for table in (by_log(results), by_class(results), *([drawn_by_class(drawn)] if drawn else [])):
            print_table(table)
        for item in (*results, *drawn):
            if item.kind in {MISREAD, NO_WAY}:
                print(f"{item.kind}: {item.log}: {item.said.strip():.300}")
        print(
            json.dumps(
                {"benchmark": "readings", "logs": len(results) + len(drawn), "misread": len(misread), "took_s": seconds}
            )
        )
    return int(bool(misread))


if __name__ == "__main__":
    sys.exit(main())
