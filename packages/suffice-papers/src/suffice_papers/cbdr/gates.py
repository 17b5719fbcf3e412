"""The gates of CBDR's pipeline, one for each probe and threshold, compared with label-blind gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from suffice.evaluation.statistics import holm, permutation_tests
from suffice_gates.gates import GateEvaluation, GatePoint, gate_rule
from suffice_gates.gates.point import ALWAYS, NEVER

At = tuple[int, int]
"""A probe's layer and epochs."""


def probe_signal(layer: int, epochs: int) -> str:
    """Return the name of the signal of a probe, from its layer and its number of epochs."""
    return f"p_known_layer{layer}_epochs{epochs}"


def gate_points(
    benches: Mapping[int, GateEvaluation],
    others: Mapping[str, Mapping[int, GateEvaluation]],
    probes: Sequence[At],
    *,
    best: At,
    betas: Sequence[float],
    seed: int,
) -> dict[int, tuple[GatePoint, ...]]:
    """Return the points for each depth: never retrieve, every gate, random gates, always retrieve, and a perfect gate.

    The differences between gates and always retrieving have p-values adjusted by Holm over all probes, betas and
    depths. Each gate is compared with label-blind gates in every order of passages, because a label-blind gate may be
    better in another order than in the gate's own.

    Args:
        benches: Evaluations on the test questions by depth, with the order of the gate's own reranker and the
            probability of every probe.
        others: Evaluations of the same questions with other orders of the passages, by name of the order and by depth.
        probes: Layer and epochs of each probe.
        best: Layer and epochs of the best probe; the random gates have the retrieval rates of this probe's gates.
        betas: Thresholds of the gate.
        seed: Seed of the random signs of the tests.
    """
    configurations = [(depth, at, beta) for depth in benches for at in probes for beta in betas]
    gates = _tested_gates(benches, configurations, seed)
    points = {}
    for depth, evaluation in benches.items():
        orders = {name: by_depth[depth] for name, by_depth in others.items()}
        own_gates = {(at, beta): gates[depth, at, beta] for at in probes for beta in betas}
        rates = dict.fromkeys(own_gates[best, beta].retrieval_rate for beta in betas)
        points[depth] = (
            evaluation.reference("never"),
            *(_rivalled(point, evaluation, orders) for point in own_gates.values()),
            *(evaluation.random(rate) for rate in rates if 0 < rate < 1),
            _rivalled(evaluation.reference("always"), evaluation, orders),
            *(evaluation.beside(other, f"{ALWAYS}, {name}") for name, other in orders.items()),
            evaluation.reference("perfect"),
        )
    return points


def _tested_gates(
    benches: Mapping[int, GateEvaluation], configurations: Sequence[tuple[int, At, float]], seed: int
) -> dict[tuple[int, At, float], GatePoint]:
    """Return the points of all gates; their p-values against always retrieving are adjusted over all gates."""
    points, deltas = [], []
    for depth, (layer, epochs), beta in configurations:
        evaluation = benches[depth]
        rule = gate_rule(probe_signal(layer, epochs), beta)
        outcome, _ = evaluation.run(rule)
        first = evaluation.metrics[0]
        deltas.append(outcome.values[first] - evaluation.always.values[first])
        points.append(evaluation.point(rule, beta, label=f"CBDR beta={beta:.2f}, layer {layer}, {epochs} epochs"))
    first = evaluation.metrics[0]
    tests = permutation_tests(np.stack(deltas), rng=seed, clusters=evaluation.recording.clusters)
    adjusted = holm([test.p for test in tests])
    return {
        at: replace(
            point,
            against_always={
                **point.against_always,
                first: replace(point.against_always[first], p=test.p, p_holm=float(p), test=test.test),
            },
        )
        for at, point, test, p in zip(configurations, points, tests, adjusted, strict=True)
    }


def _rivalled(point: GatePoint, evaluation: GateEvaluation, orders: Mapping[str, GateEvaluation]) -> GatePoint:
    """Return a point after comparing it with the label-blind gates in all orders of passages.

    `dominated_by` then names, among the gates that dominate the point, the one with the lowest rate.
    """
    rivals = [(point.label_blind_rate, point.dominated_by)]
    for name, other in orders.items():
        needed, label = other.label_blind(point.metrics[evaluation.metrics[0]], point.retrieval_rate)
        rivals.append((needed, label if label in (None, NEVER) else f"{label}, {name}"))
    reached = [rate for rate, _ in rivals if rate is not None]
    dominating = [(rate, label) for rate, label in rivals if rate is not None and label is not None]
    return replace(
        point,
        label_blind_rate=min(reached, default=None),
        dominated_by=min(dominating)[1] if dominating else None,
    )
