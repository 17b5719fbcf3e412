"""Plain loops written from the definitions (SEMANTICS, METHODS section 1): slow, and easy to check by eye.

A trajectory is a list of rows, one for each round from the policy's start on; a row maps signal names to numbers
(NaN = undefined) and has `round`, `answer` and the metrics.
"""

from __future__ import annotations

import itertools
import math
from statistics import fmean

import numpy as np

from suffice.policy.metrics import answer_key
from suffice.policy.rules import AllOf, AnyOf, FirstOf, KOf, Never, Patience, Rule, Threshold, WeightedSum

COMPARE = {">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b}


def fires(rule: Rule, rows: list[dict], t: int) -> bool:
    """Whether `rule` fires at position t, from rows 0..t alone."""
    return evaluate(rule, rows, t)[0]


def reads(rule: Rule, rows: list[dict], t: int) -> set[str]:
    """The signals that a lazy, ordered evaluation of `rule` reads at position t.

    What patience looks back on must be measured in every round, also in one where an earlier member has settled it.
    """
    names = evaluate(rule, rows, t)[1]
    for patient in patient_members(rule):
        names |= reads(patient.rule, rows, t)
    return names


def patient_members(rule: Rule) -> list[Patience]:
    """Every `Patience` over several rounds within `rule`."""
    if isinstance(rule, Patience):
        return ([rule] if rule.n > 1 else []) + patient_members(rule.rule)
    return [found for member in getattr(rule, "rules", ()) for found in patient_members(member)]


def evaluate(rule: Rule, rows: list[dict], t: int) -> tuple[bool, set[str]]:  # noqa: PLR0911, PLR0912  # one branch for each kind of rule
    if isinstance(rule, Threshold):
        return COMPARE[rule.comparison](rows[t][rule.name], rule.value), {rule.name}
    if isinstance(rule, WeightedSum):
        total = 0.0
        for weight, name in rule.terms:
            if weight != 0:
                total += weight * rows[t][name]
        return COMPARE[rule.comparison](total, rule.value), {name for weight, name in rule.terms if weight != 0}
    if isinstance(rule, Never):
        return False, set()
    if isinstance(rule, AllOf):
        seen: set[str] = set()
        for member in rule.rules:
            held, names = evaluate(member, rows, t)
            seen |= names
            if not held:
                return False, seen
        return True, seen
    if isinstance(rule, AnyOf | FirstOf):
        seen = set()
        for member in rule.rules:
            held, names = evaluate(member, rows, t)
            seen |= names
            if held:
                return True, seen
        return False, seen
    if isinstance(rule, KOf):
        seen, votes = set(), 0
        for done, member in enumerate(rule.rules):
            if votes >= rule.k or votes + len(rule.rules) - done < rule.k:
                break
            held, names = evaluate(member, rows, t)
            seen |= names
            votes += held
        return votes >= rule.k, seen
    if isinstance(rule, Patience):
        if t + 1 < rule.n:
            return False, reads(rule.rule, rows, t)
        return all(fires(rule.rule, rows, t - back) for back in range(rule.n)), reads(rule.rule, rows, t)
    raise TypeError(rule)


def stop(rule: Rule, rows: list[dict]) -> tuple[int, bool]:
    """The position of the stop and whether the rule fired there; (-1, False) without rows."""
    for t in range(len(rows)):
        if fires(rule, rows, t):
            return t, True
    return len(rows) - 1, False


def select(selector: str, rows: list[dict], stopped: int) -> int:  # noqa: PLR0911
    """The position of the returned answer among rows 0..stopped; -1 where none has an answer."""
    keys = [answer_key(row["answer"]) if row["answer"] is not None else "" for row in rows[: stopped + 1]]
    given = [t for t, key in enumerate(keys) if key]
    if not given:
        return -1
    if selector == "last":
        return given[-1]
    if selector == "first":
        return given[0]
    if selector in {"majority", "weighted_majority"}:
        votes: dict[str, float] = {}
        voters: list[int] = []
        for t in given:
            weight = 1.0 if selector == "majority" else rows[t]["p_correct"]
            if not math.isnan(weight):
                votes[keys[t]] = votes.get(keys[t], 0.0) + weight
                voters.append(t)
        if not voters:
            return given[-1]
        most = max(votes.values())
        return max(t for t in voters if votes[keys[t]] == most)
    name = selector.removeprefix("max_")
    usable = [t for t in given if not math.isnan(rows[t][name])]
    if not usable:
        return given[-1]
    best = max(rows[t][name] for t in usable)
    return max(t for t in usable if rows[t][name] == best)


def scored(rows: list[dict], stopped: int, chosen: int, metric: str) -> float:
    """The metric of a policy's answer; what was measured at the stop where there is no answer; 0 without rows."""
    if stopped < 0:
        return 0.0
    return rows[chosen if chosen >= 0 else stopped][metric]


def random_expectation(stops: list[int], value_at: list[list[float]]) -> list[float]:
    """Each question's expected value over all permutations of the stop positions, by enumeration.

    `value_at[q][k]` is the value of question q if it stops at position k, or at its last round if that comes first.
    """
    totals = [0.0] * len(stops)
    count = 0
    for dealt in itertools.permutations(stops):
        count += 1
        for q, k in enumerate(dealt):
            totals[q] += value_at[q][min(k, len(value_at[q]) - 1)]
    return [total / count for total in totals]


def oracle_earliest(rows: list[dict]) -> int:
    """The first position with EM = 1, else the start."""
    for t, row in enumerate(rows):
        if row["em"] == 1:
            return t
    return 0 if rows else -1


def oracle_best(rows: list[dict], metric: str) -> int:
    """The position with the largest metric, the earliest among ties."""
    best = -1
    for t, row in enumerate(rows):
        if best < 0 or row[metric] > rows[best][metric]:
            best = t
    return best


def judge_rounds(
    rule: Rule, rows: list[dict], stopped: int, signals: dict[str, tuple[int, int]], selector_reads: set[str]
) -> set[int]:
    """The positions at which a judge is called, whose signals are `{name: (first_round, lookback)}`."""
    called: set[int] = set()
    for t in range(stopped + 1):
        for name in reads(rule, rows, t) | selector_reads:
            if name in signals:
                first, back = signals[name]
                if rows[t]["round"] >= first:
                    called |= {t - step for step in range(back + 1) if t - step >= 0}
    return called


def dominated(point: tuple[float, float], rivals: dict[str, tuple[float, float]]) -> set[str]:
    """The rivals (quality, calls) that are at least as good and as cheap, and strictly better in one."""
    quality, calls = point
    return {
        label
        for label, (q, c) in rivals.items()
        if q >= quality - 1e-12 and c <= calls + 1e-12 and (q > quality + 1e-12 or c < calls - 1e-12)
    }


def best_mixture(budgets: dict[str, tuple[float, float]], most: float) -> float:
    """The largest quality of a coin between any two budgets (quality, calls) whose mean cost is at most `most`; -inf without."""
    best = -math.inf
    for cheap in budgets.values():
        for dear in budgets.values():
            if cheap[1] <= most:
                share = min(1.0, (most - cheap[1]) / (dear[1] - cheap[1])) if dear[1] > cheap[1] else 0.0
                best = max(best, (1 - share) * cheap[0] + share * dear[0])
    return best


def mean(values: list[float]) -> float:
    return fmean(values)


def bootstrap_weights(n_units: int, n_resamples: int = 1000, *, rng) -> np.ndarray:
    """Draw n of n units, as `scipy.stats.bootstrap` does with the same generator; one unit has NaN."""
    drawn = np.random.default_rng(rng).integers(0, n_units, size=(n_resamples, n_units))
    counts = np.stack([np.bincount(row, minlength=n_units) for row in drawn]).astype(float)
    return counts if n_units > 1 else np.full_like(counts, np.nan)
