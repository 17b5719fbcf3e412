"""The gate of CBDR's pipeline: every threshold of every probe beside what knows nothing, in every order of passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from suffice.gates import GateBench, GatePoint, gate_rule
from suffice.gates.point import ALWAYS, NEVER
from suffice.statistics import holm, permutation_tests

__all__ = ["gate_points", "probe_signal"]

At = tuple[int, int]
"""A probe's layer and epochs."""


def probe_signal(layer: int, epochs: int) -> str:
    """Return what a probe's probability is called."""
    return f"p_known_layer{layer}_epochs{epochs}"


def gate_points(
    benches: Mapping[int, GateBench],
    others: Mapping[str, Mapping[int, GateBench]],
    probes: Sequence[At],
    *,
    best: At,
    betas: Sequence[float],
    seed: int,
) -> dict[int, tuple[GatePoint, ...]]:
    """Return by depth: never, every gate, random gates at the rates of the best probe's, always, and perfect.

    Differences of gates to always retrieving have a p-value adjusted by Holm over all probes, betas and depths.  What
    dominates a point is looked for in every order: a gate that knows nothing may do better before other passages.

    Args:
        benches: By depth, the test questions with the reranker whose gate it is, and every probe's probability.
        others: By the name of another order of the same passages and depth, the same questions.
        probes: Layer and epochs of each probe.
        best: Those of the probe that the random gates stand beside.
        betas: Thresholds.
        seed: Of the random signs of the tests.
    """
    tried = [(depth, at, beta) for depth in benches for at in probes for beta in betas]
    gates = _tested(benches, tried, seed)
    found = {}
    for depth, bench in benches.items():
        orders = {name: by_depth[depth] for name, by_depth in others.items()}
        listed = {(at, beta): gates[depth, at, beta] for at in probes for beta in betas}
        rates = dict.fromkeys(listed[best, beta].retrieval_rate for beta in betas)
        found[depth] = (
            bench.reference("never"),
            *(_rivalled(point, bench, orders) for point in listed.values()),
            *(bench.random(rate) for rate in rates if 0 < rate < 1),
            _rivalled(bench.reference("always"), bench, orders),
            *(bench.beside(other, f"{ALWAYS}, {name}") for name, other in orders.items()),
            bench.reference("perfect"),
        )
    return found


def _tested(
    benches: Mapping[int, GateBench], tried: Sequence[tuple[int, At, float]], seed: int
) -> dict[tuple[int, At, float], GatePoint]:
    """Return the points of all gates, with p-values of their differences to always retrieving, adjusted for all."""
    points, deltas = [], []
    for depth, (layer, epochs), beta in tried:
        bench = benches[depth]
        rule = gate_rule(probe_signal(layer, epochs), beta)
        run, _ = bench.run(rule)
        first = bench.metrics[0]
        deltas.append(run.values[first] - bench.always.values[first])
        points.append(bench.point(rule, beta, label=f"CBDR beta={beta:.2f}, layer {layer}, {epochs} epochs"))
    first = bench.metrics[0]
    tests = permutation_tests(np.stack(deltas), rng=seed, clusters=bench.recording.clusters)
    adjusted = holm([test.p for test in tests])
    return {
        at: replace(
            point,
            against_always={
                **point.against_always,
                first: replace(point.against_always[first], p=test.p, p_holm=float(p), test=test.test),
            },
        )
        for at, point, test, p in zip(tried, points, tests, adjusted, strict=True)
    }


def _rivalled(point: GatePoint, bench: GateBench, orders: Mapping[str, GateBench]) -> GatePoint:
    """Return a point with the label-blind gate of the lowest retrieval rate that dominates it, in whatever order."""
    rivals = [(point.label_blind_rate, point.dominated_by)]
    for name, other in orders.items():
        needed, label = other.label_blind(point.metrics[bench.metrics[0]], point.retrieval_rate)
        rivals.append((needed, label if label in (None, NEVER) else f"{label}, {name}"))
    reached = [rate for rate, _ in rivals if rate is not None]
    dominating = [(rate, label) for rate, label in rivals if rate is not None and label is not None]
    return replace(
        point,
        label_blind_rate=min(reached, default=None),
        dominated_by=min(dominating)[1] if dominating else None,
    )
