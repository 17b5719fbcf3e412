"""How often is a certificate false?  ``python -m benchmarks.violations`` writes docs/results/violations.md.

The true expected loss is put exactly at epsilon, where a false certificate is most likely; at most a share delta of the
populations may then be certified.  Beside our tests stands the one-sided t-test, which promises this for large n only.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

import suffice
from suffice.common.tables import Column, Table, render
from suffice.policy.rounds import Floats
from suffice.verdicts.certificates import Claim, rejected
from suffice.verdicts.certificates.ltt import PROCEDURES, level_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "violations.md"
COMMAND = "python -m benchmarks.violations"
POPULATIONS, SEED, DELTA = 2000, 42, 0.05
SIZES = (60, 100, 300, 1000)
EPSILONS = (0.02, 0.05)

Draw = Callable[[np.random.Generator, tuple[int, int], float], Floats]


def rare_and_large(rng, shape, epsilon):
    """Lose everything on a share epsilon of the questions, nothing on the others."""
    return (rng.random(shape) < epsilon).astype(np.float64)


def zero_inflated(rng, shape, epsilon):
    """Nine of ten questions lose nothing; the tenth loses between -0.6 and 1, moved to the mean."""
    middle = 10 * epsilon
    width = min(1 - middle, 0.8)
    return np.where(rng.random(shape) < 0.1, rng.uniform(middle - width, middle + width, shape), 0.0)


def symmetric(rng, shape, epsilon):
    """Half of the questions gain and half lose one half, around the mean."""
    return epsilon + rng.choice([-0.5, 0.5], shape)


def gains_and_losses(rng, shape, epsilon):
    """One question in twenty turns from wrong to right, and slightly more from right to wrong."""
    drawn = rng.random(shape)
    return np.where(drawn < 0.05, -1.0, np.where(drawn < 0.1 + epsilon, 1.0, 0.0))


def harm_zero_inflated(rng, shape, epsilon):
    """Nine of ten questions lose nothing; the tenth is uniform around ten times the mean."""
    middle = 10 * epsilon
    width = min(middle, 1 - middle)
    return np.where(rng.random(shape) < 0.1, rng.uniform(middle - width, middle + width, shape), 0.0)


def harm_symmetric(rng, shape, epsilon):
    """Every question loses between nothing and twice the mean."""
    return rng.uniform(0.0, 2 * epsilon, shape)


AT_EPSILON: tuple[tuple[str, str, Draw], ...] = (
    ("net", "rare and large", rare_and_large),
    ("net", "zero-inflated", zero_inflated),
    ("net", "symmetric", symmetric),
    ("net", "gains and losses", gains_and_losses),
    ("harm", "rare and large", rare_and_large),
    ("harm, binary", "rare and large", rare_and_large),
    ("harm", "zero-inflated", harm_zero_inflated),
    ("harm", "symmetric", harm_symmetric),
)
"""Kind of loss, name and distribution of populations whose expected loss is epsilon."""


def claim_of(kind: str, epsilon: float) -> Claim:
    """Return the claim that tests a kind of loss; EM is binary by definition, F1 is not."""
    loss = "net" if kind == "net" else "harm"
    return Claim(epsilon=epsilon, confidence=1 - DELTA, loss=loss, metric="em" if "binary" in kind else "f1")


def limit(populations: int) -> float:
    """Return delta and three standard errors of a share."""
    return DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / populations)


def t_test(losses: Floats, epsilon: float) -> Floats:
    """Return one-sided p-values of Student's t-test; 0 or 1 where the losses do not vary."""
    n = losses.shape[-1]
    delta, error = losses.mean(axis=-1) - epsilon, losses.std(axis=-1, ddof=1) / math.sqrt(n)
    varied = error > 1e-12
    p = stats.t.cdf(delta / np.where(varied, error, 1.0), n - 1)
    return np.where(varied, p, np.where(delta < 0, 0.0, 1.0))


def violations(populations: int = POPULATIONS, sizes: tuple[int, ...] = SIZES) -> Table:
    """Return the share of populations at epsilon that a test certifies."""
    rows = []
    for kind, name, draw in AT_EPSILON:
        for epsilon in EPSILONS:
            claim = claim_of(kind, epsilon)
            for n in sizes:
                rng = np.random.default_rng(SEED)
                losses = draw(rng, (populations, n), epsilon)
                ours = float((claim.p_values(losses, DELTA) <= DELTA).mean())
                theirs = float((t_test(losses, epsilon) <= DELTA).mean())
                rows.append((kind, name, epsilon, n, ours, theirs, "yes" if ours <= limit(populations) else "NO"))
    columns = (
        Column("loss"),
        Column("population"),
        Column("epsilon", ".2f"),
        Column("n", ".0f"),
        Column("certified %", ".2f", scale=100),
        Column("t-test %", ".2f", scale=100),
        Column("within the limit"),
    )
    title = f"True loss exactly at epsilon, delta = {DELTA:g}, {populations:,} populations"
    return Table(title=title, columns=columns, rows=tuple(rows), notes=(_limit_note(populations),))


def _limit_note(populations: int) -> str:
    return f"The limit is delta and three standard errors: {100 * limit(populations):.2f} %."


SHARES = (0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.2, 1.5, 2.0, 3.0)
"""Expected losses of a family, in units of epsilon, from conservative to cheap: the fifth and later ones are false."""


def family_losses(rng, shape: tuple[int, int], epsilon: float, kind: str) -> Floats:
    """Return losses of a family on the same questions, shape ``(populations, members, questions)``.

    A cheaper policy loses wherever a more conservative one does; for net losses one question in twenty gains, the same
    under every policy, and as many more lose.
    """
    lost, gained = rng.random((shape[0], 1, shape[1])), rng.random((shape[0], 1, shape[1]))
    shares = np.array(SHARES)[None, :, None] * epsilon
    if kind == "net":
        return (lost < shares + 0.05).astype(np.float64) - (gained < 0.05)
    return (lost < shares).astype(np.float64)


def family_wise(populations: int = POPULATIONS, sizes: tuple[int, ...] = (100, 300, 1000)) -> Table:
    """Return how often a whole Learn-then-Test run certifies any policy that it must not."""
    rows = []
    false = np.array(SHARES) >= 1
    for kind in ("net", "harm", "harm, binary"):
        for procedure in PROCEDURES:
            for n in sizes:
                claim = claim_of(kind, 0.1)
                losses = family_losses(np.random.default_rng(SEED), (populations, n), claim.epsilon, kind)
                p = claim.p_values(losses, level_of(procedure, len(SHARES), DELTA))
                found = rejected(p, DELTA, procedure)
                wrong = float((found & false).any(axis=-1).mean())
                right = float((found & ~false).sum(axis=-1).mean())
                within = "yes" if wrong <= limit(populations) else "NO"
                rows.append((kind, procedure, n, wrong, float(found.any(axis=-1).mean()), right, within))
    columns = (
        Column("loss"),
        Column("procedure"),
        Column("n", ".0f"),
        Column("any false certificate %", ".2f", scale=100),
        Column("any certificate %", ".1f", scale=100),
        Column("true ones of 4", ".2f"),
        Column("within the limit"),
    )
    title = (
        f"A family of ten policies, losses of 0.2 to 3 epsilon = 0.1, delta = {DELTA:g}, {populations:,} populations"
    )
    return Table(title=title, columns=columns, rows=tuple(rows), notes=(_limit_note(populations),))


def power(populations: int = POPULATIONS) -> Table:
    """Return how often a policy that is well below epsilon is certified; the first row of each loss is the easy case."""
    cases: tuple[tuple[str, str, float, int, Callable[..., Floats]], ...] = (
        ("net", "no change in 95 %, else half gain half lose 1: mean 0", 0.05, 500, _even),
        ("net", "the same", 0.02, 500, _even),
        ("net", "the same", 0.02, 1000, _even),
        ("harm", "every question loses a little: mean 0.01", 0.02, 450, _little),
        ("harm", "4 in 100 questions lose a part: mean 0.01", 0.02, 600, _parts),
        ("harm", "1 in 100 questions loses 1: mean 0.01", 0.05, 300, _one_in_hundred),
        ("harm, binary", "the same", 0.05, 300, _one_in_hundred),
        ("harm", "the same", 0.02, 1000, _one_in_hundred),
        ("harm, binary", "the same", 0.02, 1000, _one_in_hundred),
        ("harm", "nothing is ever lost", 0.02, 153, _nothing),
        ("harm, binary", "nothing is ever lost", 0.02, 149, _nothing),
        ("net", "nothing is ever lost", 0.02, 160, _nothing),
    )
    rows = []
    for kind, name, epsilon, n, draw in cases:
        claim = claim_of(kind, epsilon)
        losses = draw(np.random.default_rng(SEED), (populations, n))
        found = float((claim.p_values(losses, DELTA) <= DELTA).mean())
        reference = float((claim.reference_p_values(losses) <= DELTA).mean())
        rows.append((kind, name, epsilon, n, found, reference))
    columns = (
        Column("loss"),
        Column("population"),
        Column("epsilon", ".2f"),
        Column("n", ".0f"),
        Column("certified %", ".1f", scale=100),
        Column("by Hoeffding-Bentkus %", ".1f", scale=100),
    )
    title = f"Power: policies below epsilon, delta = {DELTA:g}, {populations:,} populations"
    return Table(title=title, columns=columns, rows=tuple(rows))


def _even(rng, shape):
    drawn = rng.random(shape)
    return np.where(drawn < 0.025, 1.0, np.where(drawn < 0.05, -1.0, 0.0))


def _one_in_hundred(rng, shape):
    return (rng.random(shape) < 0.01).astype(np.float64)


def _parts(rng, shape):
    return np.where(rng.random(shape) < 0.04, rng.beta(1, 3, shape), 0.0)


def _little(rng, shape):
    return rng.beta(0.2, 19.8, shape)


def _nothing(rng, shape):
    del rng
    return np.zeros(shape)


def page(tables: tuple[Table, ...]) -> str:
    """Return docs/results/violations.md."""
    return (
        "<!-- Written by benchmarks/violations.py; edit that. -->\n\n"
        "# How often a certificate is false\n\n"
        f"Command: `{COMMAND}`. Seed {SEED}, {POPULATIONS:,} populations for each row. Suffice {suffice.__version__}, numpy "
        f"{np.__version__}.\n\n"
        "A certificate says that the expected loss is at most epsilon. Here the true expected loss is *exactly* epsilon, the\n"
        "hardest case; a test with confidence 95 % may certify at most 5 % of such populations, whatever their shape. `net` is\n"
        "tested by betting, and so is `harm`, but for metrics of 0 and 1, where the exact binomial tail is used\n"
        "([what the methods are](../how-to/certify.md)). The t-test stands beside them for comparison: on rare and large\n"
        "losses it certifies whatever it has not seen fail.\n\n"
        + render(tables, "md")
        + "\nThe price of a promise that holds for every distribution and every n is power. Hoeffding-Bentkus on (L + 1) / 2,\n"
        "the reference for net losses, hardly ever certifies at these sizes: it cannot use that most differences are zero.\n"
        "For `harm` of a graded metric betting is far better where losses are parts, and worse where each is the whole score.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the page; return 1 if a row is over its limit."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE, help="where the page goes")
    out = parser.parse_args(arguments).out
    tables = (violations(), family_wise(), power())
    out.write_text(page(tables), encoding="utf-8")
    print(render(tables, "md"))
    return int(any("NO" in row for table in tables for row in table.rows))


if __name__ == "__main__":
    sys.exit(main())
