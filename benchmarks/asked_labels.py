"""How many labels does a verdict need, if only those are asked that can matter?

`python -m benchmarks.asked_labels [--page]` hides the gold answers of the bundled recordings, decides by the labels that
`suffice decide --ask` asks for, ten at a time until the first advice, and then all that are asked for each candidate.  The
labels are the gold answers.  A second table draws the questions in other orders and says how many labels and how many questions
the first advice needs in half and in four fifths of them, beside what it needs with a gold answer of every question.  `--page` also
writes docs/results/asked-labels.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
DRAWS, SEED, STEP, DRAWN_ORDERS = 15, 42, 10, 5
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


def drawn(recording: Recording, n: int, draw: int) -> Recording:
    """Return n questions under new names, so that a hash of them orders and splits them anew.

    The text of a question, from which the order comes where there is one, is left out.  A longer list begins with the shorter one.
    """
    rng = np.random.default_rng([SEED, draw])
    names = list(dict.fromkeys(recording.question_ids))
    order = {names[place]: f"{draw}-{number}" for number, place in enumerate(rng.permutation(len(names))[:n])}
    kept = recording.select(np.array([name in order for name in recording.question_ids]))
    renamed = [order[name] for name in kept.table["question_id"].to_pylist()]
    place = kept.table.column_names.index("question_id")
    table = kept.table.set_column(place, "question_id", [renamed])
    return Recording(table.drop([name for name in ("question",) if name in table.column_names]), kept.metadata)


def fewest(is_enough: Callable[[int], bool], most: int) -> float:
    """Return the fewest questions that are enough, in steps of ten; infinite if `most` are not.

    By bisection, so it is the fewest where more questions never undo a proof.
    """
    low, high = 0, -(-most // STEP)
    if not is_enough(most):
        return float("inf")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle * STEP) else (middle, high)
    return float(min(high * STEP, most))


@dataclass(frozen=True, slots=True)
class Needed:
    """Numbers until the first advice, the tune part included; infinite if all questions do not suffice.

    Attributes:
        golds: Questions if each has a gold answer.
        questions: Questions if labels are asked.
        labels: Labels of these questions.
    """

    golds: float
    questions: float
    labels: float


def needed(recording: Recording, max_loss: float, draw: int) -> Needed:
    """Return how many questions and labels the first advice needs if the questions come in this order."""
    options: dict[str, Any] = {"max_loss": max_loss, **({"orders": DRAWN_ORDERS} if recording.exchangeable else {})}
    most = len(set(recording.question_ids))

    def by_golds(n: int) -> bool:
        return decide(drawn(recording, n, draw), metric=MATCH, **options).verdict == "do it"

    def by_labels(n: int) -> bool:
        some = drawn(recording, n, draw)
        return decide(without_golds(some), labels=Labels(right=right_answers(some)), **options).verdict == "do it"

    golds, questions = fewest(by_golds, most), fewest(by_labels, most)
    if np.isinf(questions):
        return Needed(golds, questions, questions)
    some = drawn(recording, int(questions), draw)
    bare, truth = without_golds(some), right_answers(some)
    given: list[str] = []
    while (
        advice := decide(bare, labels=Labels(right={name: truth[name] for name in given}), **options)
    ).verdict != "do it":
        given += advice.to_label[:BATCH]
    return Needed(golds, questions, float(len(given)))


def quantiles(cases: Sequence[tuple[str, float]] = CASES, draws: int = DRAWS) -> Table:
    """Return how much the first advice needs in half and in four fifths of the orders."""
    rows = []
    for name, max_loss in cases:
        every = [needed(bundled_recording(name), max_loss, draw) for draw in range(draws)]
        cells = []
        for field in ("golds", "questions", "labels"):
            values = [float(getattr(one, field)) for one in every]
            cells += [np.quantile(values, share, method="higher") for share in (0.5, 0.8)]
        rows.append((name, 100 * max_loss, *cells))
    columns = (
        Column("recording"),
        Column("largest loss, points", "g"),
        *(
            Column(f"{what}, {share}", ",.0f")
            for what in ("questions with golds", "questions with labels", "labels")
            for share in ("half", "80 %")
        ),
    )
    return Table(
        title=f"Until the first advice, in {draws} random orders of the questions", columns=columns, rows=tuple(rows)
    )


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

{quantiles}

Half of the orders need at most the first number, and four fifths at most the second; *inf* says that all questions do not suffice. All numbers of
questions include the tune part, and every candidate is tested. *With golds*, each of these questions has a gold answer: compare *questions with golds*,
which is then the number of labels, too, with *labels*. Found by bisection in steps of ten questions, seed {seed}, means over {drawn_orders} random orders
of samples.
"""


def main() -> None:
    """Print the table, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write docs/results/asked-labels.md, too")
    options = parser.parse_args()
    began = time.perf_counter()
    made, numbers = table(), quantiles()
    print_table(made)
    print_table(numbers)
    if options.page:
        seconds = time.perf_counter() - began
        text = TEXT.format(
            command=COMMAND,
            version=suffice.__version__,
            seconds=seconds,
            batch=BATCH,
            orders=ORDERS,
            table=render([made], "md").strip(),
            quantiles=render([numbers], "md").strip(),
            seed=SEED,
            drawn_orders=DRAWN_ORDERS,
        )
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
