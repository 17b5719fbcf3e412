"""The tables of the protocol, in the form of the paper, with further tests and baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table, figure
from suffice.evaluation.replay import ReplayResult
from suffice.evaluation.statistics import MarginTest, holm
from suffice_papers.semantic.chance import Chance
from suffice_papers.semantic.comparisons import PolicyComparison, PolicyDifference
from suffice_papers.semantic.convergence import Convergence
from suffice_papers.semantic.policies import CELLS, MEMBERS, Replayed

_PolicyOf = tuple[str, PolicyComparison, ReplayResult, str]

_MAIN_MARGIN = 0.02

_LACKS = {
    "critic": "a critic's replies (critic_approved)",
    "convergence": "distances (semantic_distance)",
    "gain": "a judge's marks at consecutive rounds (information_gain)",
}


def policies_table(compared: PolicyComparison, result: ReplayResult) -> Table:
    """Return Table 1: first every fixed_k, then all other policies."""
    replayed, resampling = compared.replayed, compared.resampling
    drafts, runs, tokens = replayed.drafts, replayed.runs, replayed.tokens_name
    margins = [margin for tests in compared.margins.values() for margin in tests]
    margin = _MAIN_MARGIN if _MAIN_MARGIN in margins else margins[0]
    rounds = {label: differences.get("rounds") for label, differences in compared.differences.items()}

    def passes(label: str, *, both: bool) -> str:
        tests = compared.margins.get(label, {}).get(margin)
        if tests is None or runs[label].kind in ("oracle", "random"):
            return "-"
        return _passed(tests.equivalent if both else tests.non_inferior)

    return Table.of(
        f"Table 1. Policies on identical drafts, {drafts.n} questions; differences to {compared.baseline}",
        replayed.shown(),
        {
            Column("policy"): replayed.marked,
            Column("n", ",d"): lambda _: drafts.n,
            Column("rounds", ".3f"): lambda label: float(replayed.rounds[label].mean()),
            Column(tokens, ",.0f"): lambda label: float(replayed.spent(label).mean()),
            Column(f"{tokens} saved, %", "+.1f", scale=100, interval=True): compared.saved,
            Column(drafts.metric, ".2f", scale=100): lambda label: float(runs[label].values[drafts.metric].mean()),
            Column("difference", "+.2f", scale=100, interval=True): lambda label: _triple(compared.quality(label)),
            Column("verdict"): lambda label: _policy_verdict(label, compared, result),
            Column("rounds: p (t)", ".3g"): lambda label: getattr(rounds.get(label), "p", math.nan),
            Column("rounds: d_z", ".2f"): lambda label: getattr(rounds.get(label), "d_z", math.nan),
            Column(f"non-inferior at {100 * margin:g}"): lambda label: passes(label, both=False),
            Column(f"equivalent at {100 * margin:g}"): lambda label: passes(label, both=True),
        },
        (
            (
                f"{drafts.metric} in points (times 100); {100 * resampling.level:g} % bootstrap intervals over "
                f"{compared.n_clusters} questions, {resampling.n_resamples:,} draws, seed {resampling.seed}."
            ),
            "Tokens are operational: what the policy would have paid live"
            + ("" if result.ledger == "live" else f"; ledger: {result.ledger}")
            + ".",
            (
                "random(...) deals a policy's own stops out to the questions at random, random_round draws a round uniformly: "
                "both are exact expectations, of which random seeds are draws. The oracle picks the best round by its mark."
            ),
            (
                "Non-inferior: one-sided, by paired t and bootstrap, before correction (what the paper calls TOST). "
                "Equivalent: both sides (TOST)."
            ),
        ),
    )


def summary_table(parts: Sequence[tuple[str, PolicyComparison, ReplayResult]]) -> Table:
    """Tabulate the policies of one or several recordings without tests, for one screen."""
    _, first, _ = parts[0]
    metric, baseline = first.replayed.drafts.metric, first.baseline
    rows = [(*part, label) for part in parts for label in part[1].replayed.shown()]
    names: dict[Column, Callable[[_PolicyOf], Any]] = {Column("model"): lambda row: row[0]}
    shares: dict[Column, Callable[[_PolicyOf], Any]] = {
        Column("saved, %", "+.0f", scale=100): lambda row: (row[1].saved(row[3]) or (math.nan,))[0]
    }
    several = len(parts) > 1
    return Table.of(
        f"Policies on identical drafts: {metric}, %, and its difference to {baseline} in points",
        rows,
        {
            **(names if several else {}),
            Column("policy"): lambda row: row[3],
            Column("rounds", ".2f"): lambda row: float(row[1].replayed.rounds[row[3]].mean()),
            **({} if several else shares),
            Column("quality", ".1f", scale=100): lambda row: float(row[1].replayed.runs[row[3]].values[metric].mean()),
            Column("difference", "+.1f", scale=100, interval=True): lambda row: _triple(row[1].quality(row[3])),
            Column("verdict"): lambda row: _policy_verdict(row[3], row[1], row[2]),
        },
        () if several else (f"saved: {first.replayed.tokens_name}, of those of {baseline}",),
    )


def _policy_verdict(label: str, compared: PolicyComparison, result: ReplayResult) -> str:
    rival = next((row.dominated_by for row in result.rows if row.label == label), None)
    if rival is not None:
        return f"dominated by {rival}"
    kind = compared.replayed.runs[label].kind
    return {"oracle": "not reachable", "rule": "not dominated"}.get(kind, "the baseline" * (label == compared.baseline))


def _triple(difference: PolicyDifference | None) -> tuple[float, float, float] | None:
    return None if difference is None else (difference.delta, difference.low, difference.high)


def _passed(test: MarginTest) -> str:
    return "yes" if test.passed and test.passed_bootstrap else "no"


def chance_table(chance: Mapping[str, Chance], replayed: Replayed) -> Table:
    """Compare each main policy with its own stops, permuted over questions.

    Permuted stops have the same rounds, but do not depend on signals.
    """
    n = max((one.n_resamples for one in chance.values()), default=0)
    adjusted = dict(zip(chance, holm([one.p for one in chance.values()]).tolist(), strict=True))
    return Table.of(
        f"Do the signals know where to stop? {replayed.drafts.metric} against the policy's own stops, dealt out at random",
        chance,
        {
            Column("policy"): replayed.named,
            Column("difference", "+.2f", scale=100, interval=True): lambda label: (
                chance[label].delta,
                chance[label].low,
                chance[label].high,
            ),
            Column("p (permutations)", ".3g"): lambda label: chance[label].p,
            Column("p (Holm)", ".3g"): adjusted.get,
        },
        (
            (
                f"{n:,} permutations of the stops over the questions, as many bootstrap draws. Positive: the policy stops "
                "where that is better. It may be dominated all the same: what it knows can be worth less than a fixed number "
                "of rounds."
            ),
        ),
    )


def _switch(member: str, label: str) -> str:
    return "on" if member in CELLS[label] else "off"


def ablations_table(replayed: Replayed) -> Table:
    """Return Table 2: every set of members, with the cells that have the same stops by construction or coincidence."""
    drafts, runs, missing = replayed.drafts, replayed.runs, replayed.missing
    notes = [
        f"{why} on these questions: switching that member on or off changes no stop" for why in replayed.silent.values()
    ]
    if missing:
        without = [label for label, members in CELLS.items() if set(members) & set(missing)]
        lacking = ", ".join(_LACKS[member] for member in missing)
        notes.append(f"left out, for the recording lacks {lacking}: {', '.join(without)}")
    return Table.of(
        f"Table 2. Ablations: each member of the cascade on or off, max_rounds always on; {drafts.n} questions",
        replayed.policies,
        {
            Column("ablation"): replayed.marked,
            **{Column(member): partial(_switch, member) for member in MEMBERS},
            Column("n", ",d"): lambda _: drafts.n,
            Column("rounds", ".3f"): lambda label: float(replayed.rounds[label].mean()),
            Column(replayed.tokens_name, ",.0f"): lambda label: float(replayed.spent(label).mean()),
            Column(drafts.metric, ".2f", scale=100): lambda label: float(runs[label].values[drafts.metric].mean()),
            Column("same stops by construction"): lambda label: ", ".join(replayed.equal_by_construction(label)) or "-",
            Column("same stops here"): lambda label: ", ".join(replayed.same_stops(label)) or "-",
        },
        notes,
    )


def tests_table(compared: PolicyComparison) -> Table:
    """Return the paired tests of every policy against the full width: quality, rounds and tokens."""
    differences = compared.differences
    quantities = dict.fromkeys(name for by_name in differences.values() for name in by_name)
    order = [label for label in compared.replayed.shown() if label in differences]
    lines = [(name, label) for name in quantities for label in order if name in differences[label]]
    figures = {
        "difference": ("+,.4g", "delta"),
        "low": ("+,.4g", "low"),
        "high": ("+,.4g", "high"),
        "d_z": (".2f", "d_z"),
        "p (t)": (".3g", "p"),
        "p (t, Holm)": (".3g", "p_holm"),
        "p (Wilcoxon)": (".3g", "p_wilcoxon"),
        "p (Wilcoxon, Holm)": (".3g", "p_wilcoxon_holm"),
        "p (exact)": (".3g", "p_exact"),
    }
    return Table(
        title=f"Paired tests against {compared.baseline}; Holm's correction over {len(compared.family)} policies",
        columns=(
            Column("quantity"),
            Column("policy"),
            *(Column(name, spec) for name, (spec, _) in figures.items()),
        ),
        rows=tuple(
            (
                name,
                compared.replayed.named(label),
                *(getattr(differences[label][name], attribute) for _, attribute in figures.values()),
            )
            for name, label in lines
        ),
        notes=(
            (
                f"The family: {', '.join(compared.family)}; random stopping, the oracle and what is equal to another "
                "by construction are outside of it. One family "
                "for each quantity and test. A dash: not in the family, no variation, or enough pairs differ."
            ),
            *_warnings(compared, lines),
        ),
    )


def _warnings(compared: PolicyComparison, lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return each warning about intervals and tests once, with the lines of the table to which the warning applies."""
    places: dict[str, list[str]] = {}
    for name, label in lines:
        warning = compared.differences[label][name].warning
        if warning:
            places.setdefault(warning, []).append(f"{label} ({name})")
    return [f"{', '.join(where)}: {warning}" for warning, where in places.items()]


def policy_margins_table(compared: PolicyComparison) -> Table:
    """Tabulate non-inferiority and equivalence of quality at every margin, for the policies of the family."""
    replayed = compared.replayed
    labels = [label for label in replayed.shown() if replayed.runs[label].kind in ("fixed", "rule")]
    lines = [(label, margin, test) for label in labels for margin, test in compared.margins.get(label, {}).items()]
    return Table.of(
        f"Is the loss of {replayed.drafts.metric} against {compared.baseline} within a margin?",
        lines,
        {
            Column("policy"): lambda line: replayed.named(line[0]),
            Column("margin", ".1f", scale=100): lambda line: line[1],
            Column("difference", "+.2f", scale=100): lambda line: line[2].non_inferior.delta,
            Column("lower bound, t", "+.2f", scale=100): lambda line: line[2].non_inferior.low,
            Column("lower bound, bootstrap", "+.2f", scale=100): lambda line: line[2].non_inferior.low_bootstrap,
            Column("non-inferior: p", ".3g"): lambda line: line[2].non_inferior.p,
            Column("p, Holm", ".3g"): lambda line: line[2].p_non_inferior,
            Column("non-inferior"): lambda line: _passed(line[2].non_inferior),
            Column("equivalent: p", ".3g"): lambda line: line[2].equivalent.p,
            Column("its p, Holm", ".3g"): lambda line: line[2].p_equivalent,
            Column("equivalent"): lambda line: _passed(line[2].equivalent),
        },
        (
            (
                f"Bounds of one-sided confidence {100 * compared.resampling.level:g} %. Yes: by paired t and by bootstrap, "
                "before Holm's correction over the family at each margin."
            ),
        ),
    )


def distances_table(convergence: Convergence, eps: float) -> Table:
    """Return the distances between consecutive drafts, by round."""
    return Table.of(
        "Distance of each draft to the one before",
        convergence.rounds,
        {
            Column("round"): lambda row: str(row.round_index),
            Column("questions", ",d"): "n",
            Column("mean", ".4f", interval=True): lambda row: (row.mean, row.low, row.high),
            Column("median", ".4f"): "median",
            Column(f"below {eps:g}", ".0%"): "below",
        },
    )


def conjecture_table(convergence: Convergence) -> Table:
    """Tabulate the tests of the conjecture, over trajectories and by the published method."""
    pooled = convergence.pooled
    over = f"{convergence.n_usable} trajectories with two distances or more, of {convergence.n}"
    slope, unknown = (convergence.slope, convergence.low, convergence.high), (math.nan, math.nan)
    published = "mean step; Wilcoxon, one-sided: published method (pools dependent steps)"
    verdict = convergence.verdict
    d_z = f"; d_z {figure(convergence.d_z, '.2f')}" if np.isfinite(convergence.d_z) else ""
    distances = (
        f"all distances: mean {figure(convergence.mean, '.4f')}, median {figure(convergence.median, '.4f')}, "
        f"{figure(convergence.below, '.0f', 100)} % below the threshold"
    )
    notes = (
        f"{verdict}{d_z}",
        distances,
        "Measured, not assumed: no contraction and no limit of the drafts is claimed.",
    )
    return Table(
        title="The conjecture: distances do not increase as rounds go on",
        columns=(
            Column("what"),
            Column("over"),
            *(Column(name, "+.4f") for name in ("value", "low", "high")),
            Column("p", ".3g"),
        ),
        rows=(
            ("share whose distance never increases", over, convergence.monotone, *unknown, math.nan),
            ("share with a negative slope", over, convergence.falling, *unknown, math.nan),
            ("mean slope per round; Wilcoxon over trajectories", over, *slope, convergence.p_wilcoxon),
            ("the same; t test over trajectories", over, *slope, convergence.p_t),
            (published, f"{pooled.n_steps} steps", pooled.mean_step, *unknown, pooled.p_decreasing),
        ),
        notes=(*notes, *([convergence.warning] if convergence.warning else [])),
    )
