"""How often is a claim false?  ``python -m benchmarks.referee`` runs each attack, and says how often it succeeds.

`--page` also writes docs/results/referee.md, `--json` prints one JSON document instead of a table.  Exit code 1 if an attack succeeds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import suffice
from benchmarks.referee import certifying, deciding, measuring, watching
from benchmarks.referee.attack import FAILS, LEVEL, Withstood, withstood
from suffice.cli.console import print_table
from suffice.common.tables import Column, Table, render

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "referee.md"
COMMAND = "python -m benchmarks.referee"
SEED = 42
ATTACKS = (*deciding.ATTACKS, *certifying.ATTACKS, *watching.ATTACKS, *measuring.ATTACKS)

KNOWN: dict[str, str] = {}
"""Attacks that succeed, with what is to be done about each."""


def results(wanted: Sequence[str] = (), *, share: float = 1.0, on_each=None) -> list[Withstood]:
    """Run attacks.

    Args:
        wanted: Names, or beginnings of names; none = all.
        share: Share of the repetitions.
        on_each: Called with each result and the seconds that it took.
    """
    chosen = [one for one in ATTACKS if not wanted or any(one.name.startswith(name) for name in wanted)]
    ended = []
    for attack in chosen:
        began = time.perf_counter()
        ended.append(withstood(attack, SEED, share=share, n_attacks=len(ATTACKS)))
        if on_each is not None:
            on_each(ended[-1], time.perf_counter() - began)
    return ended


def table(ended: Sequence[Withstood]) -> Table:
    """Return a row for each attack."""
    rows = [
        (one.attack.item, one.attack.claim, one.attack.nominal, one.rate, one.low, one.high, one.n, one.verdict)
        for one in ended
    ]
    columns = (
        Column("of"),
        Column("false if"),
        Column("may be %", ".0f", scale=100),
        Column("is %", ".1f", scale=100),
        Column("at least %", ".1f", scale=100),
        Column("at most %", ".1f", scale=100),
        Column("runs", ",d"),
        Column("the claim"),
    )
    return Table(title=f"{len(ended)} attacks", columns=columns, rows=tuple(rows))


def page(ended: Sequence[Withstood]) -> str:
    """Return docs/results/referee.md."""
    failing = [one for one in ended if one.verdict == FAILS]
    listed = "".join(f"- {one.attack.claim}: {KNOWN.get(one.attack.name, 'not explained')}\n" for one in failing)
    return (
        "<!-- Written by benchmarks/referee; edit that. -->\n\n"
        "# Does any claim break under attack?\n\n"
        f"Command: `{COMMAND} --page`. Seed {SEED}. Suffice {suffice.__version__}, numpy {np.__version__}.\n\n"
        "A referee who wants to be told something false makes recordings whose truth is known: losses that are exactly what is\n"
        "accepted, copies of questions, rows that are missing where they would hurt, golds that come late. Each row counts how often\n"
        "the claim was false. The bounds (Clopper and Pearson) hold for all rows together, with a risk of "
        f"{100 * LEVEL:g} %. A claim *holds* if its\nmeasured rate is compatible with the rate at which it may be false, which wide "
        "bounds show less than narrow ones. *Refused*: nothing was\nsaid in any run. *Warns*: it is false more often, and the sentence or a note "
        "says so; runs without the warning are compatible.\n\n"
        + render((table(ended),), "md")
        + "\n## Attacks that succeed\n\n"
        + (listed or "None.\n")
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the attacks; return 1 if one succeeds."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("name", nargs="*", help="only the attacks whose names begin so")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--page", action="store_true", help="also write docs/results/referee.md")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the repetitions")
    options = parser.parse_args(arguments)
    began = time.perf_counter()

    def tell(one: Withstood, seconds: float) -> None:
        print(f"{one.attack.name}: {one.verdict}, {one.n_false} of {one.n}, {seconds:.1f} s", file=sys.stderr)

    ended = results(options.name, share=0.05 if options.quick else 1.0, on_each=tell)
    failing = [one for one in ended if one.verdict == FAILS]
    if options.page:
        PAGE.write_text(page(ended), encoding="utf-8")
    if options.json:
        attacks = [
            {
                "name": one.attack.name,
                "nominal": one.attack.nominal,
                "false": one.n_false,
                "runs": one.n,
                "bounds": [one.low, one.high],
            }
            | {"verdict": one.verdict, "said": one.said}
            for one in ended
        ]
        print(json.dumps({"attacks": attacks, "took_s": round(time.perf_counter() - began, 1)}))
    else:
        print_table(table(ended))
    return int(bool(failing))


if __name__ == "__main__":
    sys.exit(main())
