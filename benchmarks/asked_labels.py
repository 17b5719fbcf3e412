"""How many labels does a verdict need, if only those are asked that can matter?

`python -m benchmarks.asked_labels [--page]` hides the gold answers of the bundled recordings, decides by the labels that
`suffice decide --ask` asks for, ten at a time until the first advice, and then all that are asked for each candidate.  The
labels are the gold answers.  `--page` also writes docs/results/asked-labels.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import suffice
from suffice import decide
from suffice.cli.console import print_table
from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay.outcomes import outcome
from suffice.policy.normalizers import MATCH
from suffice.recordings import Recording, bundled_recording
from suffice.verdicts.decisions import Labels

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "asked-labels.md"
COMMAND = "python -m benchmarks.asked_labels --page"
ORDERS, BATCH = 20, 10
CASES = (
    ("panel_gsm8k", 0.02),
    ("panel_gsm8k", 0.01),
    ("panel_cruxeval", 0.03),
    ("samples_date", 0.05),
    ("samples_aqua", 0.05),
    ("samples_cruxeval", 0.05),
)


def without_golds(recording: Recording) -> Recording:
    """Return a recording without gold answers and scores, and without rows that failed."""
    hidden = [name for name in ("golds", *recording.names("metric")) if name in recording.table.column_names]
    return Recording(recording.table.drop(hidden), recording.metadata)


def right_answers(recording: Recording) -> dict[str, tuple[str, ...]]:
    """Return the answers of each question that the recording scores as right."""
    scores = outcome(recording, MATCH)
    return {
        name: tuple(dict.fromkeys(str(text) for text, score in zip(row, own, strict=True) if score == 1 and text))
        for name, row, own in zip(recording.question_ids, recording.answers.tolist(), scores.tolist(), strict=True)
    }


def asked(recording: Recording, max_loss: float, *, orders: int = ORDERS, batch: int = BATCH) -> dict[str, Any]:
    """Decide with golds, then with labels as they are asked; return the figures of a row."""
    options: dict[str, Any] = {"max_loss": max_loss, **({"orders": orders} if recording.exchangeable else {})}
    golds, bare, truth = decide(recording, metric=MATCH, **options), without_golds(recording), right_answers(recording)
    given: list[str] = []
    first: dict[str, Any] = {}
    while True:
        labels = Labels(right={name: truth[name] for name in given})
        advice = decide(bare, labels=labels, **options)
        if not first and advice.verdict == "do it":
            assert advice.policy is not None
            first = {"labels": len(given), "questions": advice.n, "policy": advice.policy.label}
            first["saved"] = float(advice.trial.totals.saving(advice.trial.cost)[advice.chosen])
        if not advice.to_label:
            break
        given += advice.to_label if first else advice.to_label[:batch]
    return {
        "questions": len(set(recording.question_ids)),
        "golds": golds,
        "first": first,
        "all": len(given),
        "last": advice,
    }


def _said(advice: Any) -> str:
    return advice.policy.label if advice.policy is not None else str(advice.verdict)


def table(cases: Sequence[tuple[str, float]] = CASES, **options: Any) -> Table:
    """Return a row for each recording and largest loss."""
    rows = []
    for name, max_loss in cases:
        row = asked(bundled_recording(name), max_loss, **options)
        first = row["first"]
        rows.append(
            (
                name,
                100 * max_loss,
                row["questions"],
                _said(row["golds"]),
                first.get("labels", np.nan),
                first.get("questions", np.nan),
                first.get("policy", "no advice"),
                first.get("saved", np.nan),
                row["all"],
                _said(row["last"]),
            )
        )
    columns = (
        Column("recording"),
        Column("largest loss, points", "g"),
        Column("questions", ",.0f"),
        Column("with all golds"),
        Column("labels until advice", ",.0f"),
        Column("questions that judged", ",.0f"),
        Column("first advice"),
        Column("calls saved, %", ".0f", scale=100),
        Column("all that is asked", ",.0f"),
        Column("advice then"),
    )
    return Table(title="Labels of bundled recordings", columns=columns, rows=tuple(rows))


TEXT = """\
# Labels that a verdict needs

Written by `{command}` (suffice {version}, {seconds:.0f} s). The gold answers of bundled recordings are hidden, and given as labels where
[`suffice decide --ask`](../how-to/decide.md#no-gold-answers) asks for them, {batch} at a time in the order of the sheet until the first advice. *Labels until advice* is the
number after which a change is advised for the first time; labels that are given afterwards test cheaper candidates. Thirty in a hundred questions are
tune questions, which choose and need no label. With samples, losses are means over {orders} random orders.

{table}

*With all golds* is the verdict of the same questions if every question has a gold answer, the tune part included, and a policy's name means that it is
advised. 0 labels say that answers differ so seldom that agreement alone rules the loss out. A verdict by labels can differ from that with golds: tune
questions without golds choose the order of candidates by how often answers differ.
"""


def main() -> None:
    """Print the table, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write docs/results/asked-labels.md, too")
    options = parser.parse_args()
    began = time.perf_counter()
    made = table()
    print_table(made)
    if options.page:
        seconds = time.perf_counter() - began
        text = TEXT.format(
            command=COMMAND,
            version=suffice.__version__,
            seconds=seconds,
            batch=BATCH,
            orders=ORDERS,
            table=render([made], "md").strip(),
        )
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
