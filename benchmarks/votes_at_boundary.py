"""How often is a certificate of a vote false?  ``python -m benchmarks.votes_at_boundary`` writes docs/results/votes-at-boundary.md.

Populations of questions whose samples are drawn independently.  What a rule loses against the vote of all samples is summed
over every way in which the samples can fall, and epsilon is exactly that, where a false certificate is most likely.  Each
population is a recording, certified by the code behind `suffice.certify`: losses are means over random orders of each
question's samples.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import suffice
from benchmarks.advice import upper_limit
from suffice import Policy, decide
from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.orders import run_all
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rounds import Floats
from suffice.policy.seen import id_hash
from suffice.recordings.recording import Recording
from suffice.verdicts.certificates import Claim, measure_losses
from suffice.verdicts.certificates.losses import Loss

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "votes-at-boundary.md"
COMMAND = "python -m benchmarks.votes_at_boundary"
POPULATIONS, SEED, DELTA, SAMPLES, ORDERS = 2000, 42, 0.05, 7, 5
SIZES = (50, 150)
POWER_ORDERS = (1, 5, 50)
ADVICE_SIZES = (100, 400)
TOGETHER = 100


def recorded(ids: npt.NDArray[np.int64]) -> Recording:
    """Return samples that gave these answers, of which 0 is right, shape ``(n_questions, n_samples)``."""
    n, width = ids.shape
    table = pa.table(
        {
            "question_id": np.repeat([f"q{q}" for q in range(n)], width),
            "round": np.tile(np.arange(1, width + 1), n),
            "answer": np.array([f"answer {number}" for number in range(int(ids.max()) + 1)])[ids.ravel()],
            "em": (ids == 0).astype(np.float64).ravel(),
        }
    )
    return Recording(table, {"exchangeable": True, "normalizer": "exact"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Kinds of questions, all as likely: how likely each answer is, the right one first.

    Attributes:
        name: Of the population.
        shares: One row for each kind, each of which sums to 1.
        doc: What is special about it.
    """

    name: str
    shares: tuple[tuple[float, ...], ...]
    doc: str

    def draw(self, n: int, rng: np.random.Generator) -> Recording:
        """Return samples of n questions."""
        cumulated = np.cumsum(np.array(self.shares), axis=1)[rng.integers(0, len(self.shares), n)]
        ids = (rng.random((n, SAMPLES))[..., None] > cumulated[:, None, :-1]).sum(axis=2)
        return recorded(ids)

    def loss(self, rule: int, loss: Loss) -> float:
        """Return what a lead of `rule` votes loses, by summing over all sequences of answers."""
        n_answers = len(self.shares[0])
        sequences = np.array([*itertools.product(range(n_answers), repeat=SAMPLES)])
        chance = np.mean([np.prod(np.array(share)[sequences], axis=1) for share in self.shares], axis=0)
        counts = np.cumsum(sequences[..., None] == np.arange(n_answers), axis=1)
        top = np.sort(counts, axis=2)
        stops = (top[..., -1] - top[..., -2] >= rule) | (np.arange(SAMPLES) == SAMPLES - 1)
        tied = counts == top[..., -1:]
        score = tied[..., 0] / tied.sum(axis=2)
        net = score[:, -1] - score[np.arange(len(score)), stops.argmax(axis=1)]
        return float(chance @ (net if loss == "net" else np.maximum(net, 0.0)))


def mixed(*right: float, wrong: int = 1) -> tuple[tuple[float, ...], ...]:
    """Return kinds with these chances of the right answer, and the rest spread evenly over wrong ones."""
    return tuple((p, *((1 - p) / wrong,) * wrong) for p in right)


AT_BOUNDARY = (
    Kinds(name="easy and hard", shares=mixed(0.6, 0.75, 0.95), doc="two answers; a sample is right in 60, 75 or 95 %"),
    Kinds(
        name="many wrong answers",
        shares=mixed(0.35, 0.6, 0.9, wrong=4),
        doc="four wrong answers share what is left of 35, 60 or 90 %",
    ),
    Kinds(
        name="some hopeless",
        shares=mixed(0.3, 0.55, 0.8),
        doc="two answers; where a sample is right in 30 %, the full vote is mostly wrong, and stopping early gains",
    ),
    Kinds(
        name="rarely lost",
        shares=mixed(*(0.995,) * 9, 0.7),
        doc="nine of ten questions are all but settled by one sample; what is lost, the tenth loses",
    ),
)


def certified(kinds: Kinds, n: int, claim: Claim, rule: int, populations: int) -> float:
    """Return the share of populations of n questions on which a lead of `rule` votes is certified.

    Several populations are measured as one recording, and each is tested by itself, in the order of its bets.
    """
    rng = np.random.default_rng([SEED, n])
    count = 0
    for first in range(0, populations, TOGETHER):
        some = min(TOGETHER, populations - first)
        recording = kinds.draw(some * n, rng)
        measured = measure_losses(recording, [policy_for(recording, f"lead({rule})")], claim)
        number = {id_hash(name): place // n for place, name in enumerate(recording.question_ids)}
        order = np.argsort([number[name] for name in measured.question_ids], kind="stable")
        losses = measured.losses[0][order].reshape(some, n)
        count += int((claim.averaged_over(recording, []).p_values(losses, DELTA) <= DELTA).sum())
    return count / populations


def violations(populations: int, sizes: Sequence[int] = SIZES) -> Table:
    """Return how often a rule is certified that loses exactly epsilon."""
    rows = []
    losses: tuple[Loss, ...] = ("net", "harm")
    for kinds in AT_BOUNDARY:
        for loss in losses:
            epsilon = kinds.loss(1, loss)
            claim = Claim(epsilon=epsilon, confidence=1 - DELTA, metric="em", loss=loss, orders=ORDERS)
            for n in sizes:
                share = certified(kinds, n, claim, 1, populations)
                limit = upper_limit(round(share * populations), populations)
                rows.append(
                    (kinds.name, loss, epsilon, n, share, limit, "yes" if share <= tolerated(populations) else "NO")
                )
                print(*rows[-1], file=sys.stderr, flush=True)
    columns = (
        Column("population"),
        Column("loss"),
        Column("epsilon", ".4f"),
        Column("questions", ".0f"),
        Column("certified %", ".2f", scale=100),
        Column("upper limit %", ".2f", scale=100),
        Column("within the limit"),
    )
    note = f"The limit is delta and three standard errors: {100 * tolerated(populations):.2f} %."
    title = f"lead(1) of {SAMPLES} samples loses exactly epsilon; delta = {DELTA:g}, {populations:,} populations a row"
    return Table(title=title, columns=columns, rows=tuple(rows), notes=(note,))


def tolerated(populations: int) -> float:
    """Return delta and three standard errors of a share."""
    return float(DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / populations))


def power(populations: int, orders: Sequence[int] = POWER_ORDERS, n: int = 150) -> Table:
    """Return how often a rule that loses less is certified, by the number of orders."""
    rows = []
    for kinds in AT_BOUNDARY:
        epsilon, true = 0.05, kinds.loss(2, "net")
        shares: list[Floats | float] = []
        for number in orders:
            claim = Claim(epsilon=epsilon, confidence=1 - DELTA, metric="em", orders=number)
            shares.append(certified(kinds, n, claim, 2, populations))
        rows.append((kinds.name, true, *shares))
        print(*rows[-1], file=sys.stderr, flush=True)
    columns = (
        Column("population"),
        Column("true loss", ".4f"),
        *(Column(f"{number} order{'s' * (number > 1)}, %", ".1f", scale=100) for number in orders),
    )
    title = f"lead(2) against epsilon = 0.05 on {n} questions: certified, in % of {populations:,} populations"
    return Table(title=title, columns=columns, rows=tuple(rows))


def true_losses(kinds: Kinds, policies: Sequence[Policy]) -> Floats:
    """Return what policies lose, by a replay of all sequences of answers, weighted by how likely each is."""
    n_answers = len(kinds.shares[0])
    sequences = np.array([*itertools.product(range(n_answers), repeat=SAMPLES)])
    chance = np.mean([np.prod(np.array(share)[sequences], axis=1) for share in kinds.shares], axis=0)
    recording = recorded(sequences)
    full = policy_for(recording, "full")
    runs, _ = run_all(PreparedRecording.of(recording, ["em"], samples=True), [*policies, full], 1, SEED)
    values = np.stack([run.values["em"] for run in runs])
    return np.asarray((values[-1] - values[:-1]) @ chance)


def false_advice(populations: int, sizes: Sequence[int] = ADVICE_SIZES) -> Table:
    """Return how often `decide` advises what loses the largest loss that one would accept, or more."""
    rows = []
    for kinds in AT_BOUNDARY:
        max_loss = kinds.loss(1, "net")
        losses: Floats | None = None
        for n in sizes:
            rng = np.random.default_rng([SEED, n])
            count = advised = 0
            for _ in range(populations):
                trial = decide(kinds.draw(n, rng), metric="em", max_loss=max_loss, orders=ORDERS).trial
                losses = true_losses(kinds, trial.candidates) if losses is None else losses
                count += bool((trial.proved_once & (losses >= max_loss - 1e-12)).any())
                advised += bool(trial.proved_once.any())
            within = "yes" if count / populations <= tolerated(populations) else "NO"
            limit = upper_limit(count, populations)
            rows.append((kinds.name, max_loss, n, count / populations, limit, advised / populations, within))
            print(*rows[-1], file=sys.stderr, flush=True)
    columns = (
        Column("population"),
        Column("max_loss", ".4f"),
        Column("questions", ".0f"),
        Column("false advice %", ".2f", scale=100),
        Column("upper limit %", ".2f", scale=100),
        Column("any advice %", ".1f", scale=100),
        Column("within the limit"),
    )
    note = (
        "Advice is false if the candidate loses max_loss or more, as one answer alone does. The limit is "
        f"{100 * tolerated(populations):.2f} %."
    )
    title = f"`suffice decide`, max_loss is what one answer alone loses; alpha = {DELTA:g}, {populations:,} populations a row"
    return Table(title=title, columns=columns, rows=tuple(rows), notes=(note,))


def page(tables: Sequence[Table]) -> str:
    """Return docs/results/votes-at-boundary.md."""
    shapes = "\n".join(f"- **{kinds.name}**: {kinds.doc}." for kinds in AT_BOUNDARY)
    return (
        "<!-- Written by benchmarks/votes_at_boundary.py; edit that. -->\n\n"
        "# How often a certificate of a vote is false\n\n"
        f"Command: `{COMMAND}`. Seed {SEED}. Suffice {suffice.__version__}, numpy "
        f"{np.__version__}.\n\n"
        "A vote that stops early loses something against the vote of all samples. Here that is *exactly* epsilon, summed over every\n"
        "way in which the samples can fall, so every certificate is false, and at most 5 % of the populations may get one. The loss\n"
        f"of a question is its mean over {ORDERS} random orders of its samples; tied answers count in expectation. `harm` counts an order\n"
        "in which the rule loses, whatever it gains in others.\n\n"
        f"{shapes}\n\n"
        + render(tables, "md")
        + "\nOrders say more about a question, not about more questions: a mean over many of them varies less from question to\n"
        "question than one stored order does, so a rule that loses little is certified more often.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the page; return 1 if a row is over its limit."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE, help="where the page goes")
    parser.add_argument("--populations", type=int, default=POPULATIONS, help="fewer are faster")
    options = parser.parse_args(arguments)
    tables = (
        violations(options.populations),
        false_advice(options.populations // 4),
        power(options.populations // 20),
    )
    options.out.write_text(page(tables), encoding="utf-8")
    print(render(tables, "md"))
    return int(any("NO" in row for table in tables for row in table.rows))


if __name__ == "__main__":
    sys.exit(main())
