"""How often does the alarm of a deployed rule ring falsely, and how late rightly?  ``python -m benchmarks.watch_alarms`` writes a page.

Beside the alarm is what people use: an interval looked at every day, and a CUSUM.  What is simulated is in `benchmarks.watched`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scipy import stats

import suffice
from benchmarks.watched import (
    A_DAY,
    ALPHA,
    CHUNK,
    EPSILON,
    FEW,
    QUESTIONS,
    RECORDED,
    RUNS,
    SEED,
    USUAL,
    Change,
    cusum,
    cusum_delays,
    cusum_threshold,
    delays,
    looked_at,
    population,
)
from suffice.common.tables import Column, Table, render
from suffice.evaluation.statistics import Alarm, ConfidenceSequence, window_sequences
from suffice.policy.rounds import Floats

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "watch.md"
COMMAND = "python -m benchmarks.watch_alarms"
FOLLOWED = 1_000_000
RATES, DROPS, AGES = (0.01, 0.05, 0.2), (0.01, 0.02, 0.05), (0, 1_000, 10_000, 100_000, 1_000_000)
CHANGE, BLOCK = 20_000, 100


# False alarms


def false_alarms(runs: int = RUNS, questions: int = QUESTIONS) -> Table:
    """Return how often anything rings where the loss is always exactly at the bound."""
    cases = [(place, rate, questions) for place in range(len(RECORDED)) for rate in RATES]
    cases.append((USUAL, 0.05, 10 * questions))
    rows = [(population(place).name, rate, n, *rings(place, rate, n, runs)) for place, rate, n in cases]
    columns = (
        Column("losses of"),
        Column("audit rate", ".2f"),
        Column("questions", ",.0f"),
        Column("alarm %", ".1f", scale=100),
        Column("interval, every day %", ".1f", scale=100),
        Column("interval of ten days, every day %", ".1f", scale=100),
        Column("CUSUM %", ".1f", scale=100),
    )
    title = f"False alarms, loss always {100 * EPSILON:g} points, {runs:,} runs"
    return Table(
        title=title,
        columns=columns,
        rows=tuple(rows),
        notes=(
            f"The limit is {100 * limit(runs):.1f} %: alpha and three standard errors. It holds for the alarm however long it runs.",
        ),
    )


def rings(place: int, rate: float, questions: int, runs: int) -> tuple[float, ...]:
    """Return the shares of runs in which the alarm, the two intervals and the CUSUM ever ring with the loss at the bound."""
    rng, threshold, shares = np.random.default_rng(SEED), cusum_threshold(rate), []
    for first in range(0, runs, BLOCK):
        losses = population(place).draw(rng, (min(BLOCK, runs - first), round(rate * questions)), EPSILON)
        alarm = Alarm.start(EPSILON, ALPHA, shape=losses.shape[:1]).observe(losses)
        intervals = (looked_at(losses, round(rate * A_DAY), days) for days in (None, 10))
        shares.append([alarm.rings, *intervals, (cusum(losses) >= threshold).any(axis=-1)])
    return tuple(np.concatenate(shares, axis=-1).mean(axis=-1).tolist())


def limit(runs: int) -> float:
    """Return alpha and three standard errors of a share."""
    return ALPHA + 3 * (ALPHA * (1 - ALPHA) / runs) ** 0.5


# Delays


def spread(questions: Floats, followed: int) -> tuple[str, str, str]:
    """Return the 10, 50 and 90 % points of delays as text."""
    points = np.quantile(questions, (0.1, 0.5, 0.9), method="inverted_cdf")
    return tuple(f"{two_digits(point):,}" if np.isfinite(point) else f"> {followed:,}" for point in points)


def two_digits(number: float) -> int:
    """Return a number with two significant digits, which is what a simulation knows of it."""
    return int(float(f"{number:.1e}"))


def delay_row(change: Change, runs: int, followed: int, *first):
    """Return a row of the tables of delays."""
    questions, before = delays(change, runs, followed)
    soon = float((questions <= QUESTIONS).mean())
    theirs = spread(cusum_delays(change, runs, followed), followed)[1] if change.low < 0 else None
    return (*first, before, soon, *spread(questions, followed), theirs)


DELAY_COLUMNS = (
    Column("before %", ".1f", scale=100),
    Column(f"within {QUESTIONS:,} %", ".0f", scale=100),
    Column("first tenth"),
    Column("half"),
    Column("nine tenths"),
    Column("half, CUSUM"),
)


def planted_drops(runs: int = 400, followed: int = FOLLOWED) -> Table:
    """Return the delays of the planted drops at every rate, from the bound on."""
    rows = []
    for rate in RATES:
        for drop in DROPS:
            change = Change(EPSILON, EPSILON + drop, CHANGE, rate)
            rows.append(delay_row(change, runs, followed, rate, 100 * drop))
    columns = (Column("audit rate", ".2f"), Column("drop, points", ".0f"), *DELAY_COLUMNS)
    title = f"Questions until the alarm rings, the loss rises from {100 * EPSILON:g} points at question {CHANGE:,}; losses of {population(USUAL).name}, {runs:,} runs"
    return Table(title=title, columns=columns, rows=tuple(rows))


def other_losses(runs: int = 400, followed: int = FOLLOWED) -> Table:
    """Return the delays for other losses, for `harm`, and from a rule that lost nothing before."""
    rows = []
    cases = [
        *(
            (population(place).name, Change(EPSILON, EPSILON + 0.02, CHANGE, 0.05, place))
            for place in range(len(RECORDED))
        ),
        (f"{population(USUAL).name}, as harm", Change(EPSILON, EPSILON + 0.02, CHANGE, 0.05, USUAL, 0.0)),
        *(
            (f"{population(USUAL).name}, nothing lost before", Change(0.0, after, CHANGE, 0.05))
            for after in (0.01, 0.02, 0.05)
        ),
    ]
    for name, change in cases:
        rows.append(delay_row(change, runs, followed, name, 100 * change.before, 100 * change.after))
    columns = (Column("losses of"), Column("from", ".0f"), Column("to", ".0f"), *DELAY_COLUMNS)
    title = f"The same at audit rate 0.05 for other losses, points before and after question {CHANGE:,}, {runs:,} runs"
    return Table(title=title, columns=columns, rows=tuple(rows))


def ages(runs: int = 400, followed: int = FOLLOWED) -> Table:
    """Return the delays of changes at different ages."""
    rows = []
    for age in AGES:
        change = Change(0.0, EPSILON + 0.05, age, 0.05)
        rows.append(delay_row(change, runs, followed, age))
    columns = (Column("change at question", ",.0f"), *DELAY_COLUMNS)
    title = f"Does it slow with age? Loss from 0 to {100 * (EPSILON + 0.05):g} points at audit rate 0.05, {runs:,} runs"
    return Table(title=title, columns=columns, rows=tuple(rows))


# Rates, and intervals at every look


def rated(rng, shape, means, varying: bool, rate: float = 0.05):
    """Return losses and rates; if they vary, one question in five is hard: six times the mean loss of others, ten times their rate."""
    if not varying:
        return population(USUAL).draw(rng, shape, means), np.full(shape, rate)
    hard = rng.random(shape) < 0.2
    # Three times the mean of all, others half of it.
    return population(USUAL).draw(rng, shape, np.where(hard, 3.0, 0.5) * means), np.where(hard, 4 * rate, 0.4 * rate)


def weighted_alarms(runs: int = 200, questions: int = QUESTIONS) -> Table:
    """Return false alarms and delays of both ways to bet, with rates that do and do not depend on the question."""
    rows = []
    for varying in (False, True):
        for weighted in (False, True):
            rng = np.random.default_rng(SEED)
            least = (0.02 if varying else 0.05) if weighted else None
            quiet = Alarm.start(EPSILON, ALPHA, least_rate=least, shape=(runs,))
            changed = quiet
            for _ in range(0, questions, 10 * CHUNK):
                for loss in (EPSILON, EPSILON + 0.05):
                    losses, rates = rated(rng, (runs, 10 * CHUNK), loss, varying)
                    audited = rng.random(rates.shape) < rates
                    if loss == EPSILON:
                        quiet = quiet.observe(losses, audited=audited, rates=rates)
                    else:
                        changed = changed.observe(losses, audited=audited, rates=rates)
            late = np.where(changed.rings, changed.rang_at, np.inf)
            rows.append(
                (
                    "by question" if varying else "constant",
                    "all, weighted" if weighted else "audited",
                    float(quiet.rings.mean()),
                    *spread(late, questions),
                )
            )
    columns = (
        Column("rate"),
        Column("questions that bet"),
        Column("false alarms %", ".1f", scale=100),
        *DELAY_COLUMNS[2:5],
    )
    title = f"Weighted or audited alone: false alarms over {questions:,} questions at the bound, and questions until a loss of 7 points from the start rings; {runs:,} runs"
    return Table(title=title, columns=columns, rows=tuple(rows))


def coverage(runs: int = 200, questions: int = QUESTIONS, rate: float = 0.05) -> Table:
    """Return how often any interval of a run misses the running mean of what was to be expected."""
    rows = []
    wave = EPSILON + 0.025 * np.sin(np.arange(questions) / 5000)
    step = np.where(np.arange(questions) < questions // 2, 0.0, EPSILON + 0.05)
    drifts = (("constant", np.full(questions, EPSILON)), ("a wave", wave), ("a step", step))
    for name, means in drifts:
        for varying in (False, True):
            rng = np.random.default_rng(SEED)
            missed, windows, theirs, width, their_width = *np.zeros((3, runs), bool), [], []
            for run in range(runs):
                losses, rates = rated(rng, questions, means, varying)
                audited = rng.random(questions) < rates
                if varying:
                    values, least, truth = np.where(audited, losses / rates, 0.0), rates.min(), means
                else:
                    values, least, truth = losses[audited], 1.0, means[audited]
                start = ConfidenceSequence.start(-1 / least, 1 / least, ALPHA, predictions=(-0.25, 0.25))
                looks = start.looks(values)
                running = np.cumsum(truth) / looks.n
                low, high = looks.low_end, looks.high_end
                missed[run] = ((low > running) | (high < running)).any()
                length = round(10 * A_DAY * (1 if varying else rate))
                for place, window in enumerate(
                    window_sequences(values, np.diff([*range(0, len(values), length), len(values)]).tolist(), start)
                ):
                    truth_there = truth[place * length : (place + 1) * length].mean()
                    windows[run] |= not window.low_end <= truth_there <= window.high_end
                error = np.sqrt(np.maximum(np.cumsum(values**2) / looks.n - looks.mean**2, 1e-12) / looks.n)
                far = np.abs(looks.mean - running) > stats.norm.ppf(1 - ALPHA / 2) * error
                theirs[run] = (far & (np.cumsum(values != 0) >= FEW)).any()
                width.append((high - low)[-1] / 2)
                their_width.append(stats.norm.ppf(1 - ALPHA / 2) * error[-1])
            rows.append(
                (
                    name,
                    "by question" if varying else "constant",
                    float(missed.mean()),
                    float(windows.mean()),
                    float(theirs.mean()),
                    float(np.median(width)),
                    float(np.median(their_width)),
                )
            )
    columns = (
        Column("mean loss"),
        Column("rate"),
        Column("runs with a miss %", ".1f", scale=100),
        Column("windows of ten days %", ".1f", scale=100),
        Column("normal interval %", ".1f", scale=100),
        Column("half width at the end", ".2f", scale=100),
        Column("normal", ".2f", scale=100),
    )
    title = f"Runs in which any interval misses, looked at after every observation of {questions:,} questions; audit rate {rate:g} on average, {runs:,} runs"
    return Table(title=title, columns=columns, rows=tuple(rows))


def page(tables: tuple[Table, ...], seconds: float) -> str:
    """Return docs/results/watch.md."""
    alarms, drops, others, aged, weighted, intervals = tables
    slow = {(row[0], row[1]): row for row in drops.rows}
    rare, usual = slow[0.01, 1.0], slow[0.05, 2.0]
    return (
        "<!-- Written by benchmarks/watch_alarms.py; edit that. -->\n\n"
        "# How often the alarm of a deployed rule is false, and how late it rings\n\n"
        f"Command: `{COMMAND}`. Seed {SEED}, {seconds:.0f} s. Suffice {suffice.__version__}, numpy {np.__version__}.\n\n"
        "A deployed rule goes on to the full width for a random share of questions, the audits, and these show what stopping lost. The alarm\n"
        "bets that the mean loss is above the bound of the certificate, here 2 points, and may ring falsely in at most 5 % of\n"
        "deployments, however long they run ([why it must bet](../explanation/deployed-rule.md)). Losses are those of rules on bundled recordings:\n"
        f"{recorded_text()} To move their mean, losing becomes more or less frequent; gains stay as they\n"
        "are. Questions are drawn anew each time, and audits fall by chance; a delay is counted in questions, audited or not.\n\n"
        "## False alarms\n\n"
        + render((alarms,), "md")
        + "\nThe loss is exactly at the bound all the time, the hardest case. The alarm keeps its promise for every kind of loss. An ordinary\n"
        "95 % interval that somebody looks at every day does not: it is right on each day, and wrong on some day in many runs. With the\n"
        "last ten days alone it is worse, since every day is a new chance to be wrong. The CUSUM has a threshold that is right (5 %) for the\n"
        f"losses of {population(USUAL).name} over {QUESTIONS:,} questions, as one sets it by simulation. It is not right over ten times as many\n"
        "questions, nor for losses that vary more.\n\n"
        "## Delays\n\n"
        + render((drops,), "md")
        + f"\n*Before* is the share of runs that rang before the change: false alarms, at most 5 %. The next column and the last four are about the others. At audit rate 0.01 and a drop of one point, {100 * rare[3]:.0f} %\n"
        f"of the runs ring within {QUESTIONS:,} questions, and half take {rare[5]}: at that rate such a drop is practically\n"
        f"never noticed in time. Two points at rate 0.05 take {usual[5]} questions in half of the runs. The CUSUM, which knows these losses and how\n"
        f"long it will run, needs {usual[7]}; not having to know either costs about a factor of two. The rest is in the losses: one point is small beside\n"
        f"losses of -1, 0 and 1, and a single look planned beforehand would need {planned():,} audits to see it four times in five. What helps is a\n"
        "higher rate; four times the audits see half the drop.\n\n"
        + render((others,), "md")
        + "\nThe more losses vary, the later. `harm` counts only losses, so that it varies less than `net`, but gains do not help to meet its bound. A rule\n"
        "that lost nothing before may lose up to the bound: one or two points break no promise, and nothing rings.\n\n"
        + render((aged,), "md")
        + f"\nThe delay grows with the logarithm of the age: after a million questions half of the runs take {aged.rows[-1][4]}, from the start {aged.rows[0][4]}. The\n"
        "CUSUM does not age, and in return its false alarms are certain in the long run.\n\n"
        "## Rates\n\n"
        + render((weighted,), "md")
        + "\nA question in five is hard; if rates depend on the question, hard ones lose six times as much and are audited ten times as often. Audited\n"
        "questions alone then show a loss that is not there. Weighted by the rate, they are right, and slower.\n"
        "At a constant rate both are valid, and hardly differ, since what unaudited questions cost is small beside a loss of 1.\n\n"
        "## Intervals\n\n"
        + render((intervals,), "md")
        + "\nThe confidence sequence is about the mean of what was to be expected so far, and holds at every look while that drifts; a miss in more than 5 % of\n"
        "the runs would break its promise. *Windows* are ten in a row that share 5 %. The price is the width: 1.7 to 1.8 times that of\n"
        "the interval of normal theory, which is right for one look only (here from the 30th loss that is not 0 on). Where rates depend on the\n"
        "question, each audited loss is divided by its rate, and the mean is over all questions.\n\n"
        "## What this does not show\n\n"
        "Losses were drawn independently, and every audit returned. A loss that nobody can measure, such as agreement where the metric is truth, is not made\n"
        "better by an alarm; and a drop that lasts for fewer questions than the delay is over before it can be seen.\n"
    )


def planned() -> int:
    """Return how many audits a one-sided 5 % test needs for a drop of one point, with a power of 80 %."""
    losses = population(USUAL).draw(np.random.default_rng(SEED), 1_000_000, EPSILON + 0.01)
    return two_digits(float((stats.norm.ppf(1 - ALPHA) + stats.norm.ppf(0.8)) ** 2 * losses.var() / 0.01**2))


def recorded_text() -> str:
    """Return how often the recorded losses were not 0."""
    parts = []
    for place, (name, rule, _) in enumerate(RECORDED):
        source = population(place)
        parts.append(
            f"`{rule}` on `{name}` (gains in {100 * source.gained:.1f} % of questions, losses in {100 * source.lost(EPSILON):.1f} % at the bound)"
        )
    return "; ".join(parts) + "."


def main(arguments: list[str] | None = None) -> int:
    """Write the page; return 1 if the alarm or the intervals break their promise."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE, help="where the page goes")
    out = parser.parse_args(arguments).out
    began = time.perf_counter()
    tables = (false_alarms(), planted_drops(), other_losses(), ages(), weighted_alarms(), coverage())
    out.write_text(page(tables, time.perf_counter() - began), encoding="utf-8")
    print(render(tables, "md"))
    return int(any(share > limit(RUNS) for share in promised(tables[0], tables[-1])))


def promised(alarms: Table, intervals: Table) -> list[float]:
    """Return the shares that must not pass 5 %."""
    return [row[3] for row in alarms.rows] + [share for row in intervals.rows for share in row[2:4]]


if __name__ == "__main__":
    sys.exit(main())
