"""How often is advice false, and how often is there any?  ``python -m benchmarks.advice`` writes docs/results/advice.md.

False advice names a candidate whose true loss is `max_loss` or more.  It is most likely where every candidate loses exactly that.
Each population is divided into tune questions and a verdict part, its candidates are put in order on the first and judged on the
second, by the code behind `suffice.decide`.
"""

from __future__ import annotations

import argparse
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one population."""

    advised: bool
    false: bool


def judged(draw: Draw, n: int, false: tuple[bool, ...], rng: np.random.Generator) -> Outcome:
    """Return what a trial on one population of n questions advises, after any of them."""
    worst, best = draw(rng, n)
    n_tune = max(1, round(TUNE_SHARE * n))
    trial = Trial.declare(
        CANDIDATES,
        units(worst[:, :n_tune], best[:, :n_tune]),
        metric="em",
        max_loss=MAX_LOSS,
        alpha=ALPHA,
        cost="calls",
        baseline="recorded",
        loop=LoopStops(highest=ROUNDS, lowest_cap=ROUNDS, own=False),
        tune=Seen(),
    )
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
        "worse, the more questions it takes to rule out a loss.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the page; return 1 if a row is over its limit."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE, help="where the page goes")
    parser.add_argument("--populations", type=int, default=POPULATIONS, help="fewer are faster")
    options = parser.parse_args(arguments)
    tables = (false_advice(options.populations), power(options.populations))
    options.out.write_text(page(tables, options.populations), encoding="utf-8")
    print(render(tables, "md"))
    return int(any("NO" in row for row in tables[0].rows))


if __name__ == "__main__":
    sys.exit(main())
