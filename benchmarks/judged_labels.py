"""Do marks of a judge save labels, if a few labels correct them?

`python -m benchmarks.judged_labels [--page]` compares the labels that `suffice decide --ask` needs with those that a
prediction-powered bet needs: a judge marks both answers wherever they differ, a share of these questions is labelled, and the
labels correct the marks, so that the mean is that of the labels whatever the judge does (Angelopoulos et al. 2023; with labels
drawn by their use, Zrnic and Candes 2024).  All figures are exact for the distributions of the table.  `--page` also writes
docs/results/judged-labels.md.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar

import suffice
from suffice.cli.console import print_table
from suffice.common.tables import Column, Table, render
from suffice.policy.rounds import Floats

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "judged-labels.md"
COMMAND = "python -m benchmarks.judged_labels --page"
LEVEL = 0.05
RIGHT = (0.99, 0.95, 0.9, 0.8)
SHARES = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05)
MORE = 1.25


@dataclass(frozen=True, slots=True)
class Changes:
    """Shares of the questions in which the early answer is another one than the full run's.

    Attributes:
        lost: It is wrong, and the full run's is right.
        gained: It is right, and the full run's is wrong.
        equal: Both are wrong.
        bound: The largest loss that one accepts.
    """

    lost: float
    gained: float
    equal: float
    bound: float

    def marked(self, right: float) -> list[tuple[int, int, float]]:
        """Return loss, loss by a judge's marks, and probability, if each mark is right with this probability."""
        kinds = ((1, 0, self.lost), (0, 1, self.gained), (0, 0, self.equal))
        return [
            (
                full - early,
                mark - other,
                share * (right if mark == full else 1 - right) * (right if other == early else 1 - right),
            )
            for full, early, share in kinds
            for mark, other in itertools.product((0, 1), repeat=2)
        ]


CASES = (
    Changes(0.0, 0.0, 0.1, 0.02),
    Changes(0.002, 0.002, 0.05, 0.02),
    Changes(0.005, 0.005, 0.1, 0.02),
    Changes(0.01, 0.02, 0.1, 0.03),
    Changes(0.03, 0.05, 0.1, 0.03),
    Changes(0.03, 0.02, 0.2, 0.03),
    Changes(0.05, 0.06, 0.2, 0.02),
)


def corrected(changes: Changes, right: float, labelled: dict[int, float]) -> tuple[Floats, Floats, float]:
    """Return what one bets on in a question, its probabilities, and the share of the questions that is labelled.

    It is the loss by marks; in a labelled question what the label says more is added, divided by the probability of a label.

    Args:
        changes: Shares of the questions.
        right: The probability that a mark is right.
        labelled: The probability of a label where the marks say that the question is lost (1), equal (0) or gained (-1).
    """
    values, chances, share = [0.0], [1 - changes.lost - changes.gained - changes.equal], 0.0
    for loss, marked, chance in changes.marked(right):
        p = labelled[marked]
        share += chance * p
        values += [marked + (loss - marked) / p, float(marked)]
        chances += [chance * p, chance * (1 - p)]
    return np.array(values), np.array(chances), share


def questions(values: Floats, chances: Floats, bound: float) -> float:
    """Return the number of questions of the constant stake whose capital grows fastest; infinite if none grows."""
    most = 0.99 / (values.max() - bound)  # what is possible counts, not only what happens here

    def shrinks(stake: float) -> float:
        return -float(chances @ np.log1p(stake * (bound - values)))

    growth = -float(minimize_scalar(shrinks, bounds=(0.0, most), method="bounded").fun)
    return float(-np.log(LEVEL) / growth) if growth > 1e-9 else float("inf")


def by_labels(changes: Changes) -> tuple[float, float]:
    """Return questions and labels if every question whose answers differ is labelled."""
    values, chances, share = corrected(changes, 1.0, dict.fromkeys((-1, 0, 1), 1.0))
    n = questions(values, chances, changes.bound)
    return n, n * share


def by_marks(changes: Changes, right: float, more: float = MORE) -> tuple[float, float]:
    """Return questions and labels of the best probabilities of a label that need at most `more` times the questions."""
    n, _ = by_labels(changes)
    found = []
    for shares in itertools.product(SHARES, repeat=3):
        values, chances, share = corrected(changes, right, dict(zip((-1, 0, 1), shares, strict=True)))
        needed = questions(values, chances, changes.bound)
        found += [(needed * share, needed)] if needed <= more * n else []
    labels, needed = min(found)
    return needed, labels


def table(cases: tuple[Changes, ...] = CASES) -> Table:
    """Return a row for each population."""
    rows = []
    for one in cases:
        n, labels = by_labels(one)
        shares = (100 * share for share in (one.lost, one.gained, one.equal, one.bound))
        rows.append((*shares, n, labels, *(by_marks(one, right)[1] for right in RIGHT)))
    columns = (
        *(Column(name, "g") for name in ("lost, %", "gained, %", "both wrong, %", "largest loss, points")),
        Column("questions", ",.0f"),
        Column("labels", ",.0f"),
        *(Column(f"with marks, {100 * right:g} % right", ",.0f") for right in RIGHT),
    )
    return Table(title="Labels until a proof", columns=columns, rows=tuple(rows))


TEXT = """\
# Labels that a judge would save

Written by `{command}` (suffice {version}). [`suffice decide --ask`](../how-to/decide.md#no-gold-answers) asks for a label wherever the early answer is another one
than the full run's. Could a judge mark these answers instead, and labels of a few correct it? A *prediction-powered* bet does that: it takes the loss by
marks, draws some questions for a label, and adds what their labels say more, divided by the probability that a question was drawn. Its mean is the loss by
labels, however wrong the judge is ([Angelopoulos et al. 2023](https://arxiv.org/abs/2301.09633), [Zrnic and Candès 2024](https://arxiv.org/abs/2403.03208)).

{table}

*Lost*, *gained* and *both wrong* are shares of all questions, and the answers of the others are equal. Each mark is right with the probability in the head of its
column, independently of all else. The figures are exact, for the constant stake whose capital grows fastest, and they favour the judge: for each
cell the probabilities of a label (after marks that say lost, equal or gained) are the best of {grid} triples, known beforehand, and {more:.0%} of the questions
are allowed.

**Labels are not saved where verdicts are cheap.** A question that is not labelled must be paid for by those that are: what one bets on ranges as far as one over
the probability of a label, and where hardly anything is lost it is this range that limits the stake, not the variance. With a judge that is right in 80 to
90 % of its marks, which is what is reported of model judges, the first advice would come with as many labels or up to a fifth less, for up to a quarter more
questions. It pays where eight or more in a hundred answers turn right or wrong and the judge hardly errs, and there the judge could be the metric.
So `decide` does not take marks in place of labels. A judge's marks can be judged as a metric of their own (`--metric`), and then the verdict is about that judge.
"""


def main() -> None:
    """Print the table, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write docs/results/judged-labels.md, too")
    options = parser.parse_args()
    made = table()
    print_table(made)
    if options.page:
        text = TEXT.format(
            command=COMMAND,
            version=suffice.__version__,
            table=render([made], "md").strip(),
            grid=len(SHARES) ** 3,
            more=MORE,
        )
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
