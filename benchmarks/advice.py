"""How often is advice false, and how often is there any?  ``python -m benchmarks.advice`` writes docs/results/advice.md.

False advice names a candidate whose true loss is `max_loss` or more.  It is most likely where every candidate loses exactly that.
Each population is divided into tune questions and a verdict part, its candidates are put in order on the first and judged on the
second, by the code behind `suffice.decide`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

import suffice
from suffice import Policy, fixed_k
from suffice.common.tables import Column, Table, render
from suffice.policy.rounds import Floats
from suffice.policy.seen import Seen
from suffice.verdicts.decisions import SAVABLE, Trial
from suffice.verdicts.decisions.losses import Measured, Totals
from suffice.verdicts.decisions.same_loop import LoopStops

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "advice.md"
COMMAND = "python -m benchmarks.advice"
POPULATIONS, SEED, ALPHA, MAX_LOSS, TUNE_SHARE, ROUNDS = 2000, 42, 0.05, 0.02, 0.3, 5
SIZES = (50, 200, 1000, 5000)
DRIFT_RUNS = 60
POWER_SIZES = (200, 300, 500, 1000, 2000, 5000, 10_000)

Draw = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
"""Returns the largest and the smallest possible loss of each candidate at n questions, shape ``(ROUNDS - 1, n)``."""


def rare(rng, n):
    """Two questions in a hundred lose everything, under every candidate."""
    losses = np.tile((rng.random(n) < MAX_LOSS).astype(float), (ROUNDS - 1, 1))
    return losses, losses


def gains_and_losses(rng, n):
    """Five questions in a hundred turn right, seven wrong, for each candidate others."""
    drawn = rng.random((ROUNDS - 1, n))
    losses = np.where(drawn < 0.05, -1.0, np.where(drawn < 0.1 + MAX_LOSS, 1.0, 0.0))
    return losses, losses


def graded(rng, n):
    """F1: nine questions in ten are tied, the tenth changes by any amount."""
    low, high = 10 * MAX_LOSS - 0.8, 10 * MAX_LOSS + 0.8
    losses = np.where(rng.random((ROUNDS - 1, n)) < 0.1, rng.uniform(low, high, (ROUNDS - 1, n)), 0.0)
    return losses, losses


def nested(rng, n):
    """A question that a candidate loses is lost by all cheaper ones; gains make up for it."""
    lost, gained = rng.random(n), rng.random(n)
    shares = np.array([[0.08], [0.06], [0.04], [0.03]])
    losses = (lost < shares).astype(float) - (gained < shares - MAX_LOSS)
    return losses, losses


def clustered(rng, n):
    """Each question was asked one to five times, with a common effect; the unit is their mean."""
    size = rng.integers(1, 6, n)
    share = np.clip(rng.beta(0.2, 9.8, n), 0, 1)  # mean 0.02
    losses = np.stack([rng.binomial(size, share) / size for _ in range(ROUNDS - 1)])
    return losses, losses


def ragged(rng, n):
    """Half of the questions end by themselves after one round, and cannot lose; the others lose twice as much."""
    losses = (rng.random((ROUNDS - 1, n)) < 2 * MAX_LOSS) & (rng.random(n) < 0.5)
    return losses.astype(float), losses.astype(float)


def censored(rng, n):
    """One outcome in a hundred is unknown, and counts at its worst."""
    losses, _ = gains_and_losses(rng, n)
    unknown = rng.random(losses.shape) < 0.01
    return np.where(unknown, 1.0, losses), np.where(unknown, -1.0, losses)


def mixed(rng, n):
    """The candidates lose 0, 1, 2 and 5 points: only the last two are false advice."""
    drawn = rng.random(n)
    shares = np.array([[0.03], [0.04], [0.05], [0.08]])
    losses = (drawn < shares).astype(float) - (drawn > 0.97)
    return losses, losses


AT_BOUND: tuple[tuple[Draw, tuple[bool, ...]], ...] = (
    *((draw, (True,) * 4) for draw in (rare, gains_and_losses, graded, nested, clustered, ragged, censored)),
    (mixed, (False, False, True, True)),
)
"""Populations, and which candidates lose `MAX_LOSS` or more."""


def changed(share: float) -> Draw:
    """Return populations of a true loss of 0 in which a share of the questions changes, half for the better."""

    def draw(rng, n):
        drawn = rng.random((ROUNDS - 1, n))
        losses = np.where(drawn < share / 2, 1.0, np.where(drawn < share, -1.0, 0.0))
        return losses, losses

    return draw


CANDIDATES = tuple(Policy(rule=fixed_k(k), max_rounds=k) for k in range(ROUNDS - 1, 0, -1))


def units(worst: Floats, best: Floats) -> Measured:
    """Return losses as `decide` measures them; round k costs k calls."""
    n, nothing = worst.shape[-1], np.full(ROUNDS - 1, np.nan)
    calls = np.array([*range(ROUNDS - 1, 0, -1), ROUNDS]) * float(n)
    totals = Totals(
        n=n,
        n_recorded=n,
        losses=worst.sum(axis=-1),
        open=(worst * (worst != best)).sum(axis=-1),
        squares=(worst**2).sum(axis=-1),
        values=np.zeros(ROUNDS),
        costs=dict.fromkeys(SAVABLE, calls),
        twins=nothing,
        gains=nothing,
        squared_gains=nothing,
        unknown=int((worst != best).any(axis=0).sum()),
    )
    return Measured(worst=worst, best=best, order=np.arange(n), totals=totals, unpriced={"calls": 0})


def declared(on_tune: Measured) -> Trial:
    """Return the trial that tune questions declare."""
    return Trial.declare(
        CANDIDATES,
        on_tune,
        metric="em",
        max_loss=MAX_LOSS,
        alpha=ALPHA,
        cost="calls",
        baseline="recorded",
        loop=LoopStops(highest=ROUNDS, lowest_cap=ROUNDS, own=False),
        tune=Seen(),
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one population."""

    advised: bool
    false: bool


def judged(draw: Draw, n: int, false: tuple[bool, ...], rng: np.random.Generator) -> Outcome:
    """Return what a trial on one population of n questions advises, after any of them."""
    worst, best = draw(rng, n)
    n_tune = max(1, round(TUNE_SHARE * n))
    trial = declared(units(worst[:, :n_tune], best[:, :n_tune]))
    proved = trial.extended(units(worst[:, n_tune:], best[:, n_tune:]), Seen()).proved_once
    return Outcome(bool(proved.any()), bool((proved & np.array(false)).any()))


def upper_limit(count: int, populations: int) -> float:
    """Return the one-sided 97.5 % limit of a binomial share (Clopper and Pearson)."""
    return 1.0 if count == populations else float(stats.beta.ppf(0.975, count + 1, populations - count))


def false_advice(populations: int = POPULATIONS, sizes: tuple[int, ...] = SIZES) -> Table:
    """Return how often advice is false where candidates lose exactly what is just too much."""
    rows = []
    for draw, false in AT_BOUND:
        for n in sizes:
            rng = np.random.default_rng(SEED)
            outcomes = [judged(draw, n, false, rng) for _ in range(populations)]
            count = sum(outcome.false for outcome in outcomes)
            limit = upper_limit(count, populations)
            advised = sum(outcome.advised for outcome in outcomes) / populations
            name = draw.__name__.replace("_", " ")
            rows.append((name, n, count / populations, limit, advised, "yes" if limit <= ALPHA else "NO"))
    columns = (
        Column("population"),
        Column("questions", ",.0f"),
        Column("false advice %", ".2f", scale=100),
        Column("upper limit %", ".2f", scale=100),
        Column("any advice %", ".1f", scale=100),
        Column("at most 5 %"),
    )
    title = f"False advice, max_loss = {MAX_LOSS:g}, alpha = {ALPHA:g}, {populations:,} populations a row"
    return Table(title=title, columns=columns, rows=tuple(rows))


def power(populations: int = POPULATIONS, sizes: tuple[int, ...] = POWER_SIZES) -> Table:
    """Return how often there is advice where nothing is lost."""
    rows = []
    for share in (0.0, 0.02, 0.05, 0.1, 0.2):
        advised = []
        for n in sizes:
            rng = np.random.default_rng(SEED)
            advised.append(
                sum(judged(changed(share), n, (False,) * 4, rng).advised for _ in range(populations)) / populations
            )
        enough = next((n for n, found in zip(sizes, advised, strict=True) if found >= 0.8), None)
        rows.append((f"{100 * share:g} %", *advised, f"{enough:,}" if enough else f"more than {sizes[-1]:,}"))
    columns = (
        Column("answers that change"),
        *(Column(f"{n:,}", ".0f", scale=100) for n in sizes),
        Column("enough for 80 %"),
    )
    title = f"Advice in % of populations whose true loss is 0, by questions; {populations:,} populations a cell"
    return Table(title=title, columns=columns, rows=tuple(rows))


@dataclass(frozen=True, slots=True)
class Drifting:
    """A loop that begins to lose.

    Attributes:
        good: Number of questions of the verdict part before the change, in which nothing is lost on average.
        gained: Share of the questions that turn right under the candidates, before and after; before, as many turn wrong.
        lost: Mean loss after the change.
    """

    good: int
    gained: float
    lost: float

    def draw(self, rng: np.random.Generator, n: int, loss: float) -> Floats:
        """Return the losses of all candidates in n questions; each loses alike."""
        drawn = rng.random(n)
        losses = np.where(drawn < self.gained, -1.0, np.where(drawn < 2 * self.gained + loss, 1.0, 0.0))
        return np.tile(losses, (ROUNDS - 1, 1))

    def taken_back(self, rng: np.random.Generator, visit: int = 50, most: int = 4000) -> tuple[float, float] | None:
        """Return the number of questions after the change until advice is taken back, and until the mean of all would do it.

        Both are infinite if later than `most` questions; None if nothing was advised before the change.
        """
        first = self.draw(rng, self.good // 3, 0.0)
        trial = declared(units(*[self.draw(rng, 100, 0.0)] * 2)).extended(units(first, first), Seen())
        for _ in range(self.good // 3, self.good, visit):
            losses = self.draw(rng, visit, 0.0)
            trial = trial.extended(units(losses, losses), Seen())
        if not trial.proved.any():
            return None
        by_mean = back = math.inf
        for n in range(visit, most + 1, visit):
            losses = self.draw(rng, visit, self.lost)
            trial = trial.extended(units(losses, losses), Seen())
            back = min(back, n if trial.taken_back else math.inf)
            if trial.lost_more.any():
                by_mean = n
                break
        return back, by_mean


DRIFTS = tuple(
    Drifting(good, gained, lost) for lost in (0.05, 0.1) for gained in (0.0, 0.02) for good in (300, 1000, 3000)
)


def drifts(runs: int = DRIFT_RUNS) -> Table:
    """Return how many questions it takes to take advice back, where a loop that lost nothing begins to lose."""
    rows = []
    for case in DRIFTS:
        rng = np.random.default_rng(SEED)
        ended = np.array([both for _ in range(runs) if (both := case.taken_back(rng)) is not None]).reshape(-1, 2)
        half, most = (np.quantile(ended, share, axis=0, method="inverted_cdf") for share in (0.5, 0.9))
        rows.append((100 * case.lost, 200 * case.gained, case.good, len(ended), half[1], half[0], most[0]))
    columns = (
        Column("loss, points", ".0f"),
        Column("answers that change before %", ".0f"),
        Column("questions before", ",.0f"),
        Column("advised", ",.0f"),
        Column("half, by the mean of all", ",.0f"),
        Column("half", ",.0f"),
        Column("nine tenths", ",.0f"),
    )
    title = f"Questions until advice is taken back, by the loss from some question on; {runs} loops a row, visits of 50 questions"
    return Table(title=title, columns=columns, rows=tuple(rows))


def page(tables: tuple[Table, ...], populations: int) -> str:
    """Return docs/results/advice.md."""
    shapes = "\n".join(
        f"- **{draw.__name__.replace('_', ' ')}**: {(draw.__doc__ or '').strip()}" for draw, _ in AT_BOUND
    )
    return (
        "<!-- Written by benchmarks/advice.py; edit that. -->\n\n"
        "# How often advice is false, and how often there is any\n\n"
        f"Command: `{COMMAND}`. Seed {SEED}, {populations:,} populations for each figure. Suffice {suffice.__version__}, numpy "
        f"{np.__version__}.\n\n"
        "`suffice decide` advises a change only if a loss of `max_loss` or more is ruled out. Here every candidate truly loses\n"
        f"exactly {100 * MAX_LOSS:g} points, the hardest case, so that any advice is false; in `mixed`, two of four do. {100 * TUNE_SHARE:g} % of the questions\n"
        "are tune questions. The bets may be looked at after each question, so a row of 5,000 questions includes every earlier\n"
        "look at the same log.\n\n"
        f"{shapes}\n\n" + render(tables, "md") + "\n"
        "Certainty that may be looked at every week costs questions: the more answers change, even evenly for better and for\n"
        "worse, the more questions it takes to rule out a loss.\n\n"
        "If a loop begins to lose after a proof, the mean of all questions reaches the largest accepted loss the later, the longer all was\n"
        "well. The alarm, which begins its bets anew at each question from the second visit on, depends on that by its logarithm only. What\n"
        "comes first takes the advice back. Where many answers change, a rise of three points above the bound shows slowly by any test.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the page; return 1 if a row is over its limit."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE, help="where the page goes")
    parser.add_argument("--populations", type=int, default=POPULATIONS, help="fewer are faster")
    options = parser.parse_args(arguments)
    tables = (
        false_advice(options.populations),
        power(options.populations),
        drifts(min(DRIFT_RUNS, options.populations)),
    )
    options.out.write_text(page(tables, options.populations), encoding="utf-8")
    print(render(tables, "md"))
    return int(any("NO" in row for row in tables[0].rows))


if __name__ == "__main__":
    sys.exit(main())
