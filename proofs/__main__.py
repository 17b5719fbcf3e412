"""Check every claim and print the table: `python -m proofs`.

Exit code 1 if a claim fails; why stands on standard error.
"""

from __future__ import annotations

import sys

from proofs import rules, scores, sessions
from proofs.claims import Claim, Verdict, settle
from suffice.common.tables import Column, Table, render

__all__ = ["CLAIMS", "main", "table"]

CLAIMS: tuple[Claim, ...] = (*sessions.CLAIMS, *rules.CLAIMS, *scores.CLAIMS)


def table(verdicts: list[Verdict]) -> Table:
    """Return what became of the claims, one row each."""
    return Table(
        title="Machine-checked claims",
        columns=(Column("claim"), Column("method"), Column("over"), Column("status")),
        rows=tuple((v.claim.name, v.claim.method, v.claim.scope, v.status) for v in verdicts),
    )


def main(claims: tuple[Claim, ...] = CLAIMS) -> int:
    """Check the claims, print the table and return the exit code."""
    verdicts = []
    for claim in claims:
        verdicts.append(settle(claim))
        print(f"{verdicts[-1].seconds:6.1f} s  {claim.name}", file=sys.stderr, flush=True)
    print(render([table(verdicts)], "md"))
    failed = [verdict for verdict in verdicts if verdict.failure is not None]
    for verdict in failed:
        print(f"FAILS: {verdict.claim.name}\n  {verdict.failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
