"""The gates of CBDR's pipeline on made-up answers: what stands beside them, and what dominates them."""

from types import SimpleNamespace
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from suffice.common.display import Chart
from suffice.evaluation.statistics import Resampling, holm
from suffice_gates.gates import GateEvaluation, transitions
from suffice_gates.gates.answered import Answered, answered_recording
from suffice_papers.cbdr.cbdr_tables import published_cbdr
from suffice_papers.cbdr.figures import cbdr_charts
from suffice_papers.cbdr.gates import gate_points, probe_signal

N = 80
PROBES = ((1, 5), (2, 5))
BETAS = (0.3, 0.7, 1.0)


def evaluation(share_right, seed=0):
    """A bench whose closed-book answers are right for half, and whose retrieved ones are for a share."""
    rng = np.random.default_rng(seed)
    known = np.arange(N) < N // 2
    scores = {probe_signal(*at): np.clip(0.5 * known + rng.uniform(0, 0.5, N), 0, 1) for at in PROBES}
    right = np.arange(N) % 100 < 100 * share_right
    answers = [
        Answered(
            question_id=f"q{i}",
            question=f"Who is {i}?",
            golds=("gold",),
            closed_book="gold" if known[i] else "tin",
            retrieved="gold" if right[(7 * i) % N] else "lead",
        )
        for i in range(N)
    ]
    return GateEvaluation(answered_recording(answers, scores), metrics=("em",), resampling=Resampling(n_resamples=200))


def points(**others):
    orders = {name.replace("_", " "): {1: evaluation(share)} for name, share in others.items()}
    return gate_points({1: evaluation(0.2)}, orders, PROBES, best=PROBES[1], betas=BETAS, seed=0)[1]


def test_gates_stand_between_the_references():
    labels = [point.label for point in points(BM25_order=0.7)]
    assert labels[0] == "never retrieve"
    assert [label for label in labels if label.startswith("CBDR")] == [
        f"CBDR beta={beta:.2f}, layer {layer}, {epochs} epochs" for layer, epochs in PROBES for beta in BETAS
    ]
    assert labels[-3:] == ["always retrieve", "always retrieve, BM25 order", "perfect gate"]
    rates = [point.retrieval_rate for point in points() if point.kind == "random"]
    assert rates
    assert rates == [p.retrieval_rate for p in points() if "layer 2" in p.label and 0 < p.retrieval_rate < 1]


def test_a_gate_can_be_dominated_by_a_better_ordered_blind_one():
    def best(found):
        return max((point for point in found if point.kind == "gate"), key=lambda point: point.metrics["em"])

    alone, beside = best(points()), best(points(BM25_order=1.0))
    assert alone.against_always["em"].low > 0
    assert alone.dominated_by is None
    quality, rate = beside.metrics["em"], beside.retrieval_rate
    assert (quality, rate) == (alone.metrics["em"], alone.retrieval_rate)
    needed = (quality - 0.5) / (1.0 - 0.5)
    assert beside.label_blind_rate == pytest.approx(needed)
    assert needed < rate
    assert beside.dominated_by == f"a random gate at {100 * needed:.1f} %, BM25 order"
    assert f"dominated by {beside.dominated_by}" in beside.headline("em")


def test_another_order_is_compared_question_by_question_with_the_gates_own():
    other = next(point for point in points(BM25_order=1.0) if point.kind == "other")
    assert other.metrics["em"] == 1.0
    assert other.against_always["em"].delta == pytest.approx(1 - evaluation(0.2).always.values["em"].mean())


def test_p_values_are_adjusted_over_all_gates():
    found = [point.against_always["em"] for point in points() if point.kind == "gate"]
    assert [one.p_holm for one in found] == pytest.approx(holm([one.p for one in found]).tolist())
    assert all(one.p_holm >= one.p for one in found)
    assert found[2].p == 1.0, "beta = 1 is always retrieving"


def test_figure_8_has_the_best_probes_gates_beside_the_published_points():
    bench = evaluation(0.2)
    run = SimpleNamespace(
        best=PROBES[1],
        gates={depth: points() for depth in (1, 2)},
        changes={1: transitions(bench, probe_signal(*PROBES[1]), BETAS), 2: ()},
    )
    first, steps, second = cbdr_charts(run, published_cbdr().tables["table3"])
    assert [figure.name for figure in (first, steps, second)] == ["figure8-top1", "section5.4-top1", "figure8-top2"]
    own = [point for point in points() if point.kind == "gate" and "layer 2" in point.label]
    drawn = [(row["beta"], row["quality"], row["rate"]) for row in first.spec["data"]["values"]]
    assert drawn == [(point.beta, 100 * point.metrics["em"], 100 * point.retrieval_rate) for point in own]
    theirs = first.spec["layer"][-1]["data"]["values"]
    assert {"beta": 0.9, "percent": pytest.approx(60.6), "what": "published, accuracy"} in theirs
    assert {"beta": 0.9, "percent": pytest.approx(74.9), "what": "published, retrieves"} in theirs
    assert len(second.spec["layer"]) == len(first.spec["layer"]) - 1, "nothing was published for top-2"
    for figure in (first, steps, second):
        ET.fromstring(Chart(figure.spec).svg())
