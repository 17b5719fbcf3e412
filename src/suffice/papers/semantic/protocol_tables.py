"""The tables of the protocol, in the shape of the paper, with what the paper lacks beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from suffice.papers.semantic.chance import Chance
from suffice.papers.semantic.comparisons import PolicyComparison, PolicyDifference
from suffice.papers.semantic.convergence import Convergence
from suffice.papers.semantic.data import Drafts
from suffice.papers.semantic.policies import CELLS, MAIN, Replayed
from suffice.papers.semantic.tuning import Tuned
from suffice.replays import ReplayResult
from suffice.statistics import holm
from suffice.tables import Column, Table, figure

__all__ = [
    "ablations_table",
    "chance_table",
    "conjecture_table",
    "margins_table",
    "policies_table",
    "rounds_table",
    "tests_table",
]

_MAIN_MARGIN = 0.02


def named(label: str, tuned: Tuned) -> str:
    """Return a policy's label with the parameters of convergence, where it has them."""
    return f"{label} (eps {tuned.eps:g}, {tuned.patience})" if "convergence" in CELLS.get(label, ()) else label


def shown(replayed: Replayed) -> list[str]:
    """Return the labels of Table 1: the fixed budgets first, then the policies, random stopping and the oracle."""
    kinds = {label: run.kind for label, run in replayed.runs.items()}
    others = [label for label, kind in kinds.items() if kind in ("random", "oracle")]
    return [
        *(label for label, kind in kinds.items() if kind == "fixed"),
        *(label for label in MAIN if label in kinds),
        *others,
    ]


def policies_table(
    drafts: Drafts, replayed: Replayed, compared: PolicyComparison, result: ReplayResult, tuned: Tuned
) -> Table:
    """Return Table 1: every policy, the whole fixed_k frontier first."""
    metric = drafts.metric
    margin = _MAIN_MARGIN if any(_MAIN_MARGIN in m for m in compared.margins.values()) else _first(compared)
    verdicts = {row.label: row.dominated_by for row in result.rows}
    rows = []
    for label in shown(replayed):
        run, found = replayed.runs[label], compared.differences.get(label, {})
        quality, rounds = found.get(metric), found.get("rounds")
        at = compared.margins.get(label, {}).get(margin)
        rows.append(
            (
                named(label, tuned) + replayed.oracle(label),
                drafts.n,
                float(replayed.rounds[label].mean()),
                float(replayed.spent(label).mean()),
                saved(replayed, compared, label),
                float(run.values[metric].mean()),
                _interval(quality),
                _verdict(label, run.kind, verdicts, compared.baseline),
                _of(rounds, "p_t"),
                _of(rounds, "d_z"),
                _yes(at is not None and at.non_inferior, run.kind),
                _yes(at is not None and at.equivalent, run.kind),
            )
        )
    return Table(
        title=f"Table 1. Policies on identical drafts, {drafts.n} questions; differences to {compared.baseline}",
        columns=(
            Column("policy"),
            Column("n", ",d"),
            Column("rounds", ".3f"),
            Column(replayed.tokens_name, ",.0f"),
            Column(f"{replayed.tokens_name} saved, %", "+.1f", scale=100, interval=True),
            Column(metric, ".2f", scale=100),
            Column("difference", "+.2f", scale=100, interval=True),
            Column("verdict"),
            Column("rounds: p (t)", ".3g"),
            Column("rounds: d_z", ".2f"),
            Column(f"non-inferior at {100 * margin:g}"),
            Column(f"equivalent at {100 * margin:g}"),
        ),
        rows=tuple(rows),
        notes=(
            (
                f"{metric} in points (times 100); {100 * compared.resampling.level:g} % bootstrap intervals over {compared.n_clusters} "
                f"questions, {compared.resampling.n_resamples:,} draws, seed {compared.resampling.seed}."
            ),
            "Tokens are operational: what the policy would have paid live" + _ledger(result) + ".",
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


def saved(replayed: Replayed, compared: PolicyComparison, label: str) -> tuple[float, float, float] | None:
    """Return the tokens that a policy saves as a share of the full width's, with interval; None where unknown."""
    found = compared.differences.get(label, {}).get(replayed.tokens_name)
    whole = float(replayed.spent(compared.baseline).mean())
    if found is None or not whole > 0:
        return None
    return 0.0 - found.delta / whole, 0.0 - found.high / whole, 0.0 - found.low / whole


def chance_table(found: Mapping[str, Chance], tuned: Tuned, metric: str) -> Table:
    """Return each main policy against its own stops dealt out at random: the same rounds, no information."""
    n = max((chance.n_resamples for chance in found.values()), default=0)
    return Table(
        title=f"Do the signals know where to stop? {metric} against the policy's own stops, dealt out at random",
        columns=(
            Column("policy"),
            Column("difference", "+.2f", scale=100, interval=True),
            Column("p (permutations)", ".3g"),
            Column("p (Holm)", ".3g"),
        ),
        rows=tuple(
            (named(label, tuned), (c.delta, c.low, c.high), c.p, p_holm)
            for (label, c), p_holm in zip(found.items(), holm([c.p for c in found.values()]).tolist(), strict=True)
        ),
        notes=(
            (
                f"{n:,} permutations of the stops over the questions, as many bootstrap draws. Positive: the policy stops "
                "where that is better. It may be dominated all the same: what it knows can be worth less than a fixed number "
                "of rounds."
            ),
        ),
    )


def ablations_table(drafts: Drafts, replayed: Replayed, tuned: Tuned) -> Table:
    """Return Table 2: every set of members, with the cells that stop alike by construction or by chance."""
    rows = []
    for label in replayed.policies:
        run = replayed.runs[label]
        built, chance = replayed.equal_by_construction(label), replayed.same_stops(label)
        rows.append(
            (
                named(label, tuned) + replayed.oracle(label),
                *("on" if member in CELLS[label] else "off" for member in ("critic", "convergence", "gain")),
                drafts.n,
                float(replayed.rounds[label].mean()),
                float(replayed.spent(label).mean()),
                float(run.values[drafts.metric].mean()),
                ", ".join(built) or "-",
                ", ".join(chance) or "-",
            )
        )
    notes = [
        f"{why} on these questions: switching that member on or off changes no stop" for why in replayed.silent.values()
    ]
    if replayed.missing:
        without = [label for label, members in CELLS.items() if set(members) & set(replayed.missing)]
        notes.append(
            f"left out, for the recording lacks {', '.join(_LACKS[m] for m in replayed.missing)}: {', '.join(without)}"
        )
    return Table(
        title=f"Table 2. Ablations: each member of the cascade on or off, max_rounds always on; {drafts.n} questions",
        columns=(
            Column("ablation"),
            Column("critic"),
            Column("convergence"),
            Column("gain"),
            Column("n", ",d"),
            Column("rounds", ".3f"),
            Column(replayed.tokens_name, ",.0f"),
            Column(drafts.metric, ".2f", scale=100),
            Column("same stops by construction"),
            Column("same stops here"),
        ),
        rows=tuple(rows),
        notes=tuple(notes),
    )


_LACKS = {
    "critic": "a critic's replies (critic_approved)",
    "convergence": "distances (semantic_distance)",
    "gain": "a judge's marks at consecutive rounds (information_gain)",
}


def tests_table(replayed: Replayed, compared: PolicyComparison, tuned: Tuned) -> Table:
    """Return the paired tests of every policy against the full width: quality, rounds and tokens."""
    order = [label for label in shown(replayed) if label in compared.differences]
    quantities = list(dict.fromkeys(name for found in compared.differences.values() for name in found))
    lines = [
        (label, name, compared.differences[label][name])
        for name in quantities
        for label in order
        if name in compared.differences[label]
    ]
    return Table(
        title=f"Paired tests against {compared.baseline}; Holm's correction over {len(compared.family)} policies",
        columns=(
            Column("quantity"),
            Column("policy"),
            Column("difference", "+,.4g"),
            Column("low", "+,.4g"),
            Column("high", "+,.4g"),
            Column("d_z", ".2f"),
            Column("p (t)", ".3g"),
            Column("p (t, Holm)", ".3g"),
            Column("p (Wilcoxon)", ".3g"),
            Column("p (Wilcoxon, Holm)", ".3g"),
            Column("p (exact)", ".3g"),
        ),
        rows=tuple(
            (
                name,
                named(label, tuned),
                *(d.delta, d.low, d.high, d.d_z, d.p_t, d.p_t_holm, d.p_wilcoxon, d.p_wilcoxon_holm, d.p_exact),
            )
            for label, name, d in lines
        ),
        notes=(
            (
                f"The family: {', '.join(compared.family)}; random stopping, the oracle and what is equal to another "
                "by construction are outside of it. One family "
                "for each quantity and test. A dash: not in the family, no variation, or enough pairs differ."
            ),
            *_warnings(lines),
        ),
    )


def _warnings(lines: list[tuple[str, str, PolicyDifference]]) -> list[str]:
    found: dict[str, list[str]] = {}
    for label, name, difference in lines:
        if difference.warning:
            found.setdefault(difference.warning, []).append(f"{label} ({name})")
    return [f"{', '.join(where)}: {warning}" for warning, where in found.items()]


def margins_table(replayed: Replayed, compared: PolicyComparison, tuned: Tuned, metric: str) -> Table:
    """Return non-inferiority and equivalence of quality at every margin, for the policies of the family."""
    rows = []
    for label in shown(replayed):
        if label not in compared.margins or replayed.runs[label].kind not in ("fixed", "rule"):
            continue
        for margin, found in compared.margins[label].items():
            one, both = found.non_inferior, found.equivalent
            rows.append(
                (
                    named(label, tuned),
                    margin,
                    one.delta,
                    one.low,
                    one.low_bootstrap,
                    one.p,
                    found.p_non_inferior,
                    "yes" if one.passed and one.passed_bootstrap else "no",
                    both.p,
                    found.p_equivalent,
                    "yes" if both.passed and both.passed_bootstrap else "no",
                )
            )
    return Table(
        title=f"Is the loss of {metric} against {compared.baseline} within a margin?",
        columns=(
            Column("policy"),
            Column("margin", ".1f", scale=100),
            Column("difference", "+.2f", scale=100),
            Column("lower bound, t", "+.2f", scale=100),
            Column("lower bound, bootstrap", "+.2f", scale=100),
            Column("non-inferior: p", ".3g"),
            Column("p, Holm", ".3g"),
            Column("non-inferior"),
            Column("equivalent: p", ".3g"),
            Column("its p, Holm", ".3g"),
            Column("equivalent"),
        ),
        rows=tuple(rows),
        notes=(
            (
                f"Bounds of one-sided confidence {100 * compared.resampling.level:g} %. Yes: by paired t and by bootstrap, before Holm's "
                "correction over the family at each margin."
            ),
        ),
    )


def rounds_table(found: Convergence, eps: float) -> Table:
    """Return the distances between consecutive drafts, by round."""
    return Table(
        title="Distance of each draft to the one before",
        columns=(
            Column("round"),
            Column("questions", ",d"),
            Column("mean", ".4f", interval=True),
            Column("median", ".4f"),
            Column(f"below {eps:g}", ".0%"),
        ),
        rows=tuple((str(r.round_index), r.n, (r.mean, r.low, r.high), r.median, r.below) for r in found.rounds),
    )


def conjecture_table(found: Convergence) -> Table:
    """Return the conjecture: over trajectories, and as it was published."""
    pooled = found.pooled
    over = f"{found.n_usable} trajectories with two distances or more, of {found.n}"
    rows = [
        ("share whose distance never increases", over, (found.monotone, math.nan, math.nan), math.nan),
        ("share with a negative slope", over, (found.falling, math.nan, math.nan), math.nan),
        (
            "mean slope per round; Wilcoxon over trajectories",
            over,
            (found.slope, found.low, found.high),
            found.p_wilcoxon,
        ),
        ("the same; t test over trajectories", over, (found.slope, found.low, found.high), found.p_t),
        (
            "mean step; Wilcoxon, one-sided: published method (pools dependent steps)",
            f"{pooled.n_steps} steps",
            (pooled.mean_step, math.nan, math.nan),
            pooled.p_decreasing,
        ),
    ]
    notes = [f"{found.verdict}; d_z {figure(found.d_z, '.2f')}" if np.isfinite(found.d_z) else found.verdict]
    notes.append(
        f"all distances: mean {figure(found.mean, '.4f')}, median {figure(found.median, '.4f')}, {figure(found.below, '.0f', 100)} % below the threshold"
    )
    notes.append("Measured, not assumed: no contraction and no limit of the drafts is claimed.")
    return Table(
        title="The conjecture: distances do not increase as rounds go on",
        columns=(
            Column("what"),
            Column("over"),
            Column("value", "+.4f"),
            Column("low", "+.4f"),
            Column("high", "+.4f"),
            Column("p", ".3g"),
        ),
        rows=tuple((what, where, *triple, p) for what, where, triple, p in rows),
        notes=(*notes, *([found.warning] if found.warning else [])),
    )


def _verdict(label: str, kind: str, verdicts: Mapping[str, str | None], baseline: str) -> str:
    by = verdicts.get(label)
    if by is not None:
        return f"dominated by {by}"
    return {"oracle": "not reachable", "rule": "not dominated"}.get(kind, "the baseline" if label == baseline else "")


def _ledger(result: ReplayResult) -> str:
    return "" if result.ledger == "live" else f"; ledger: {result.ledger}"


def _first(compared: PolicyComparison) -> float:
    return next(iter(next(iter(compared.margins.values()))))


def _interval(found: PolicyDifference | None) -> tuple[float, float, float] | None:
    return None if found is None else (found.delta, found.low, found.high)


def _of(found: PolicyDifference | None, name: str) -> float:
    return math.nan if found is None else float(getattr(found, name))


def _yes(test: object, kind: str) -> str:
    if kind in ("oracle", "random") or not hasattr(test, "passed"):
        return "-"
    return "yes" if test.passed and test.passed_bootstrap else "no"  # type: ignore[attr-defined]
