"""Which procedure shares the risk among tested candidates best?

`python -m benchmarks.procedures [--page]` draws questions from bundled recordings with replacement, bets on the candidates
that `suffice decide` tests, and compares procedures that keep the probability of any false proof within 5 %: how many
questions pass until the first advice, and what is saved after 300.  `--page` also writes docs/results/procedures.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import suffice
from suffice import decide
from suffice.cli.console import print_table
from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay import seen_in
from suffice.policy.rounds import Floats, Mask
from suffice.recordings import bundled_recording
from suffice.verdicts.decisions import Wealth
from suffice.verdicts.decisions.fallback import fallback
from suffice.verdicts.decisions.losses import measure_candidates

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "procedures.md"
COMMAND = "python -m benchmarks.procedures --page"
ALPHA, SEED, RUNS, STEP, MOST, LOOK = 0.05, 42, 100, 10, 800, 300
SHARES, SIZES = (0.1, 0.2, 0.3, 0.5), (100, 200, 300, 450)
CASES = (
    ("self_refine_gpt4", "target_sentiment", 0.02),
    ("self_refine_dv3", "target_sentiment", 0.03),
    ("panel_gsm8k", None, 0.02),
    ("panel_cruxeval", None, 0.03),
    ("samples_date", None, 0.05),
    ("samples_aqua", None, 0.05),
    ("samples_cruxeval", None, 0.05),
)

Procedure = Callable[[Floats, Floats], Mask]
"""Return a mask of the proved candidates, given the logarithms of the highest wealth and of the wealth of now, shape ``(n,)``."""


def shared(first: float) -> Procedure:
    """Return the fallback procedure that gives the first candidate a share of the risk and divides the rest evenly."""

    def proved(highest: Floats, _now: Floats) -> Mask:
        n = len(highest)
        shares = (1.0,) if n == 1 else (first, *[(1 - first) / (n - 1)] * (n - 1))
        done = fallback(range(n), shares, ALPHA, lambda place, level: level > 0 and highest[place] >= -np.log(level))
        return np.array([test.passed for test in done])

    return proved


def e_holm(_highest: Floats, now: Floats) -> Mask:
    """Close the tests of averages of e-values: a candidate is proved if every average over a set with it reaches 1 / alpha."""
    values = np.exp(np.minimum(now, 50.0))
    proved = []
    for place in range(len(values)):
        others = np.cumsum(np.concatenate([[0.0], np.sort(np.delete(values, place))]))
        proved.append(((values[place] + others) / np.arange(1, len(values) + 1)).min() >= 1 / ALPHA)
    return np.array(proved)


PROCEDURES: Mapping[str, Procedure] = {
    "fixed sequence": shared(1.0),
    "shared, 0.9 to the first": shared(0.9),
    "shared, 0.8 to the first": shared(0.8),
    "shared, 0.5 to the first": shared(0.5),
    "e-Holm": e_holm,
    "Bonferroni": lambda highest, _now: highest >= -np.log(ALPHA / len(highest)),
}


def of_recording(name: str, metric: str | None, max_loss: float) -> tuple[Wealth, Floats, Floats]:
    """Return the wealth before the first bet, the losses of the tested candidates, shape ``(n, n_questions)``, and what each saves."""
    recording = bundled_recording(name)
    trial = decide(recording, metric=metric, max_loss=max_loss, leave_out_failed=True).trial
    judging = recording.select(seen_in(recording, trial.counted) & ~recording.failed)
    units = measure_candidates(
        judging,
        trial.candidates,
        trial.baseline,
        trial.metric,
        orders=trial.orders,
        start_round=trial.loop.start_round,
    )
    tested = list(trial.sequence)
    wealth = trial.below.begun_anew()
    rows = {field: getattr(wealth, field)[tested] for field in ("log_capital", "log_highest", "squares", "shares")}
    return replace(wealth, **rows), units.worst[tested], units.totals.saving(trial.cost)[tested]


def blocked() -> tuple[Wealth, Floats, Floats]:
    """Return two caps: the first loses 3 points, which tune questions did not show, and the second nothing."""
    losses = np.zeros((2, 1000))
    losses[0, :30] = 1.0
    return Wealth.start(0.02, "below", 2), losses, np.array([0.3, 0.6])


def measured(
    start: Wealth, losses: Floats, saves: Floats, runs: int = RUNS, most: int = MOST
) -> dict[str, tuple[float, float]]:
    """Return the median number of questions until the first advice and the mean saving after 300, by procedure."""
    rng = np.random.default_rng(SEED)
    first = {name: np.full(runs, np.inf) for name in PROCEDURES}
    saved = {name: np.zeros(runs) for name in PROCEDURES}
    for run in range(runs):
        drawn, wealth = losses[:, rng.integers(0, losses.shape[1], most)], start
        for n in range(STEP, most + 1, STEP):
            wealth = wealth.bet(drawn[:, n - STEP : n])
            now = np.log((wealth.shares * np.exp(wealth.log_capital)).sum(axis=-1))
            for name, procedure in PROCEDURES.items():
                proved = procedure(wealth.log_highest, now) & (saves > 0)
                if proved.any():
                    first[name][run] = min(first[name][run], n)
                    if n == LOOK:
                        saved[name][run] = saves[proved].max()
    return {name: (float(np.median(first[name])), float(saved[name].mean())) for name in PROCEDURES}


def tables(cases: tuple[tuple[str, str | None, float], ...] = CASES, runs: int = RUNS, most: int = MOST) -> list[Table]:
    """Return a table of the questions until the first advice, and one of what is saved."""
    worlds = [
        (f"{name}, {100 * max_loss:g} points", of_recording(name, metric, max_loss)) for name, metric, max_loss in cases
    ]
    worlds.append(("a blocked cap, 2 points", blocked()))
    until, saved = [], []
    for label, world in worlds:
        found = measured(*world, runs=runs, most=most)
        until.append((label, len(world[2]), *(found[name][0] for name in PROCEDURES)))
        saved.append((label, len(world[2]), *(found[name][1] for name in PROCEDURES)))
    head = (Column("log and largest loss"), Column("candidates", ".0f"))
    return [
        Table(
            title="Questions until the first advice, median",
            columns=(*head, *(Column(name, ",.0f") for name in PROCEDURES)),
            rows=tuple(until),
        ),
        Table(
            title=f"Calls saved after {LOOK} questions, mean, %",
            columns=(*head, *(Column(name, ".1f", scale=100) for name in PROCEDURES)),
            rows=tuple(saved),
        ),
    ]


def tune_shares(runs: int = 20, sizes: tuple[int, ...] = SIZES) -> Table:
    """Return how often there is advice, and what it saves, by the share of the tune questions."""
    rows = []
    for name, metric, max_loss in CASES[:4]:
        recording = bundled_recording(name)
        n = len(recording.question_ids)
        for size in (size for size in sizes if size < 0.75 * n):
            rng, saved = np.random.default_rng(SEED), np.zeros((len(SHARES), runs))
            for run in range(runs):
                drawn = np.isin(np.arange(n), rng.permutation(n)[:size])
                for at, share in enumerate(SHARES):
                    orders = {"orders": 5} if recording.exchangeable else {}
                    advice = decide(
                        recording.select(drawn),
                        metric=metric,
                        max_loss=max_loss,
                        leave_out_failed=True,
                        tune_share=share,
                        **orders,
                    )
                    if advice.verdict == "do it":
                        saved[at, run] = advice.trial.totals.saving(advice.trial.cost)[advice.chosen]
            rows.append((f"{name}, {100 * max_loss:g} points", size, *saved.mean(axis=-1).tolist()))
    columns = (
        Column("log and largest loss"),
        Column("questions", ".0f"),
        *(Column(f"{share:g}", ".0f", scale=100) for share in SHARES),
    )
    return Table(
        title="Calls saved by advice, mean, %, by the share of the tune questions", columns=columns, rows=tuple(rows)
    )


TEXT = """\
# How candidates share the risk

Written by `{command}` (suffice {version}, {seconds:.0f} s). `suffice decide` tests several candidates, and the probability that *any* of them is
advised though it loses too much must stay within 5 %. Procedures that keep it differ in how fast they get to advice. Questions are drawn from
the verdict part of bundled recordings with replacement ({runs} runs, seed {seed}); one looks after every {step} questions, up to {most}.

{tables}

A *fixed sequence* tests from the most cautious candidate to the cheapest, each with all of the risk, and ends at the first one that is not proved:
a single neighbour that changes much blocks all cheaper candidates for ever (last row; inf means that half of the runs get no advice). With *shares*
the first candidate has most of the risk and the others divide the rest evenly; one that is proved passes its part on to the next, so that
the last of a proved sequence has all of it (Wiens 2003). That costs hardly any questions and cannot be blocked. *e-Holm* needs no order, and averages the
wealth of now over sets of candidates; *Bonferroni* divides evenly. `suffice decide` gives {first} of the risk to the first candidate.

## The tune questions

{shares}

All questions of a log count here, those of the tune part included; no advice saves nothing (20 runs, without replacement). Fewer tune questions leave more for the proof, and choose
worse stakes and candidates: between a tenth and three tenths neither wins (a tenth on the drafts, three tenths on the panel of CRUXEval), and `--set tune-share` stays at 0.3. To choose with every question, each part of
the questions would have to judge what the others chose. The wealth of such parts cannot be multiplied, because each would depend on outcomes that the
others bet on; it can only be averaged, which needs about as many questions in each part as otherwise in all.
"""


def main() -> None:
    """Print the tables, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write docs/results/procedures.md, too")
    options = parser.parse_args()
    began = time.perf_counter()
    made, shares = tables(), tune_shares()
    for table in (*made, shares):
        print_table(table)
    if options.page:
        text = TEXT.format(
            command=COMMAND,
            version=suffice.__version__,
            seconds=time.perf_counter() - began,
            runs=RUNS,
            seed=SEED,
            step=STEP,
            most=MOST,
            first="0.8",
            shares=render([shares], "md").strip(),
            tables=render(made, "md").strip(),
        )
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
