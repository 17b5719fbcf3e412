"""Gates judged offline: laws, plain loops, planted knowledge, real answers, and bad input."""

from __future__ import annotations

import gzip
import json
import math
from itertools import combinations

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from suffice.common.tables import render
from suffice.errors import DataError, SchemaError, UnknownSignalError
from suffice.evaluation.replay import policy_for, replay
from suffice.evaluation.statistics import Resampling, area_under_roc
from suffice.importers import read_tabular
from suffice.policy.metrics import METRICS
from suffice.policy.rules import parse_rule, tasr
from suffice.policy.session import Policy
from suffice.presentation import Settings, make_report, render_html
from suffice.recordings import Recording, read_recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import Claim, certify, threshold_path
from suffice_gates.gates import (
    FEATURES,
    Answered,
    GateEvaluation,
    GatePrice,
    ScoredGate,
    adaptive_labels,
    answered_recording,
    choose_beta,
    column_gate,
    compare_gates,
    comparison_table,
    even_betas,
    fit_gate,
    gate_rule,
    held_out_gates,
    knowledge_table,
    load_answered,
    points_table,
    question_features,
    question_folds,
    question_gates,
    question_only as question_only_module,
    rates_table,
    transitions,
    transitions_table,
    with_scores,
)
from suffice_gates.gates.threshold import BothWays, cross_fit
from suffice_gates.report import gate_part
from suffice_papers.cbdr.ceiling import headroom

RIGHT, WRONG = "Oslo", "Bergen"


def answered(direct, retrieved, *, prefix="q"):
    """Return questions whose answers are right where the masks say so."""
    return [
        Answered(
            question_id=f"{prefix}{i}",
            question=f"Where is place {prefix}{i}?",
            golds=(RIGHT,),
            closed_book=RIGHT if a else WRONG,
            retrieved=RIGHT if b else WRONG,
        )
        for i, (a, b) in enumerate(zip(direct, retrieved, strict=True))
    ]


def bench_of(direct, retrieved, scores=None, **settings_):
    recording = answered_recording(answered(direct, retrieved), scores)
    return GateEvaluation(recording, **{"resampling": Resampling(n_resamples=50), **settings_})


def random_world(seed, n=60):
    rng = np.random.default_rng(seed)
    return rng.random(n) < 0.4, rng.random(n) < 0.6, rng.random(n)


@st.composite
def worlds(draw, least=4):
    n = draw(st.integers(least, 25))
    masks = [draw(st.lists(st.booleans(), min_size=n, max_size=n)) for _ in range(2)]
    score = st.one_of(st.floats(0, 1, width=16), st.just(math.nan), st.sampled_from([0.25, 0.5, 0.75]))
    scores = st.lists(score, min_size=n, max_size=n).filter(lambda drawn: not all(map(math.isnan, drawn)))
    return *(np.array(mask) for mask in masks), np.array(draw(scores))  # one without any score is refused, see below


# Laws


@settings(max_examples=40, deadline=None)
@given(worlds(), st.floats(-0.1, 1.1))
def test_a_gate_is_what_plain_loops_say_and_nan_retrieves(world, beta):
    direct, retrieved, scores = world
    evaluation = bench_of(direct, retrieved, {"p_known": scores})
    point = evaluation.point(gate_rule("p_known", beta), beta)
    asked, right = 0, 0
    for a, b, score in zip(direct, retrieved, scores, strict=True):
        answers_directly = score > beta  # False for NaN
        asked += not answers_directly
        right += a if answers_directly else b
    assert point.retrieval_rate == pytest.approx(asked / len(scores))
    for metric in ("contains", "em", "f1"):
        assert point.metrics[metric] == pytest.approx(right / len(scores))
    assert point.costs["calls"] == 1.0  # a question-only gate answers once either way
    assert point.costs["retrievals"] == pytest.approx(asked / len(scores))


@settings(max_examples=40, deadline=None)
@given(worlds(), st.floats(-0.1, 1.1))
def test_no_gate_beats_the_perfect_one(world, beta):
    direct, retrieved, scores = world
    evaluation = bench_of(direct, retrieved, {"p_known": scores})
    perfect = evaluation.reference("perfect")
    assert perfect.metrics["contains"] >= evaluation.point(gate_rule("p_known", beta), beta).metrics["contains"] - 1e-12
    assert perfect.metrics["contains"] >= max(
        evaluation.reference(kind).metrics["contains"] for kind in ("never", "always")
    )
    assert perfect.retrieval_rate == pytest.approx(np.mean(~direct & retrieved))


def test_a_gate_without_any_score_is_refused():
    evaluation = bench_of(np.array([True, False]), np.array([True, True]), {"p_known": np.full(2, np.nan)})
    with pytest.raises(UnknownSignalError, match="undefined"):
        evaluation.point(gate_rule("p_known", 0.5), 0.5)


@settings(max_examples=30, deadline=None)
@given(worlds())
def test_a_random_gate_at_rate_0_never_and_at_1_always_retrieves(world):
    direct, retrieved, _ = world
    evaluation = bench_of(direct, retrieved)
    for rate, kind in ((0.0, "never"), (1.0, "always")):
        blind, reference = evaluation.random(rate), evaluation.reference(kind)
        assert blind.metrics == reference.metrics
        for cost in ("calls", "retrievals"):
            assert blind.costs[cost] == reference.costs[cost]


@settings(max_examples=30, deadline=None)
@given(worlds(), st.floats(0, 1))
def test_the_random_gate_is_the_random_twin_of_replay(world, beta):
    direct, retrieved, scores = world
    evaluation = bench_of(direct, retrieved, {"p_known": scores})
    policy = policy_for(evaluation.recording, gate_rule("p_known", beta), start_round=0, name="gate")
    twin = replay(
        evaluation.recording,
        [policy],
        metrics=("contains",),
        baseline="closed_book",
        resampling=Resampling(n_resamples=5),
    ).row("random(gate)")
    point = evaluation.point(gate_rule("p_known", beta), beta)
    assert evaluation.random(point.retrieval_rate).metrics["contains"] == pytest.approx(twin.metrics["contains"])


@settings(max_examples=40, deadline=None)
@given(worlds(), st.booleans())
def test_the_chosen_threshold_is_best_and_retrieves_least_among_equals(world, low):
    direct, retrieved, scores = world
    if np.isnan(scores).all():
        return
    never, always = direct.astype(float), retrieved.astype(float)

    def outcome(beta):
        chosen = scores < beta if low else scores > beta
        return np.where(chosen, never, always).mean(), 1 - chosen.mean()

    beta = choose_beta(scores, BothWays(never, always), low=low)
    tried = [-1.0, 2.0, *(value + step for value in scores[~np.isnan(scores)] for step in (-1e-9, 0.0, 1e-9))]
    best = max(outcome(value)[0] for value in tried)
    quality, rate = outcome(beta)
    assert quality == pytest.approx(best)
    assert rate <= min(outcome(value)[1] for value in tried if outcome(value)[0] >= best - 1e-12) + 1e-12


@settings(max_examples=40, deadline=None)
@given(worlds(), st.floats(0, 1))
def test_dominated_means_a_blind_gate_is_as_good_and_no_dearer(world, beta):
    direct, retrieved, scores = world
    evaluation = bench_of(direct, retrieved, {"p_known": scores})
    point = evaluation.point(gate_rule("p_known", beta), beta)
    rate, quality = point.retrieval_rate, point.metrics["contains"]
    never, always = direct.mean(), retrieved.mean()
    rivals = [(p, (1 - p) * never + p * always) for p in np.linspace(0, 1, 2001)]
    matching = [p for p, q in rivals if q >= quality - 1e-9]
    if point.label_blind_rate is None:
        assert not matching
    else:
        assert point.label_blind_rate == pytest.approx(min(matching), abs=1e-3)
    better = [p for p, q in rivals if p <= rate and q >= quality and (p < rate - 1e-3 or q > quality + 1e-3)]
    assert (point.dominated_by is not None) or not better


@settings(max_examples=25, deadline=None)
@given(worlds())
def test_transitions_name_exactly_the_questions_that_change_sides(world):
    direct, retrieved, scores = world
    evaluation = bench_of(direct, retrieved, {"p_known": scores})
    betas = [0.75, 0.2, 0.5]
    steps = transitions(evaluation, "p_known", betas)
    for step, (low, high) in zip(steps, [(0.2, 0.5), (0.5, 0.75)], strict=True):
        assert (step.low, step.high) == (low, high)
        moved = [i for i, score in enumerate(scores) if low < score <= high]
        gained = [f"q{i}" for i in moved if retrieved[i] and not direct[i]]
        lost = [f"q{i}" for i in moved if direct[i] and not retrieved[i]]
        assert [item.question_id for item in step.gained] == gained
        assert [item.question_id for item in step.lost] == lost
        assert step.same == len(moved) - len(gained) - len(lost)
        assert all((item.direct, item.retrieved) == (WRONG, RIGHT) for item in step.gained)
    before, after = (evaluation.point(gate_rule("p_known", beta), beta) for beta in (0.2, 0.75))
    change = sum(len(step.gained) - len(step.lost) for step in steps) / evaluation.n
    assert after.metrics["contains"] - before.metrics["contains"] == pytest.approx(change)


def test_uncertainty_answers_directly_where_it_is_low():
    direct, retrieved, scores = random_world(1)
    evaluation = bench_of(direct, retrieved, {"sure": scores, "unsure": 1 - scores})
    one = evaluation.point(gate_rule("sure", 0.6), 0.6)
    other = evaluation.point(gate_rule("unsure", 0.4, low=True), 0.4)
    assert one.metrics == other.metrics
    steps = transitions(evaluation, "unsure", [0.1, 0.4, 0.9], low=True)
    assert [(step.low, step.high) for step in steps] == [(0.9, 0.4), (0.4, 0.1)]


def test_even_betas_go_from_answering_all_to_retrieving_for_all():
    evaluation = bench_of(*random_world(2)[:2], {"p_known": random_world(2)[2]})
    betas = even_betas(random_world(2)[2])
    rates = [evaluation.point(gate_rule("p_known", beta), beta).retrieval_rate for beta in betas]
    assert rates == pytest.approx(np.linspace(0, 1, 11), abs=0.02)
    assert even_betas([math.nan]) == []
    assert len(even_betas([0.5] * 9)) == 2


# Chance


def test_the_p_value_against_random_decisions_is_the_exact_one():
    direct = np.array([1, 1, 0, 0, 0, 0, 1, 0], dtype=bool)
    retrieved = np.array([1, 0, 1, 1, 1, 0, 1, 0], dtype=bool)
    scores = np.array([0.9, 0.8, 0.1, 0.2, 0.3, 0.7, 0.05, 0.0])
    point = bench_of(direct, retrieved, {"p_known": scores}).point(gate_rule("p_known", 0.5), 0.5)
    gain = direct.astype(int) - retrieved.astype(int)
    sums = np.array([sum(gain[list(chosen)]) for chosen in combinations(range(8), 3)])
    observed = gain[scores > 0.5].sum()
    exact = np.mean(abs(sums - sums.mean()) >= abs(observed - sums.mean()) - 1e-9)
    assert point.p_random == pytest.approx(exact, abs=0.02)


def test_a_score_of_pure_noise_is_rarely_called_informed():
    found = []
    for seed in range(60):
        direct, retrieved, scores = random_world(seed, n=80)
        found.append(bench_of(direct, retrieved, {"s": scores}).point(gate_rule("s", 0.5), 0.5).p_random)
    assert np.mean(np.array(found) < 0.05) <= 0.12
    assert np.mean(np.array(found) < 0.5) == pytest.approx(0.5, abs=0.2)


def test_knowledge_that_is_planted_is_found_and_its_reverse_does_harm():
    direct, retrieved, _ = random_world(3, n=200)
    needed = (~direct & retrieved).astype(float)
    evaluation = bench_of(direct, retrieved)
    half = {"tune": np.arange(200) % 2 == 0, "eval": np.arange(200) % 2 == 1}
    tune, evaluation = (
        GateEvaluation(evaluation.recording.select(half[name]), resampling=Resampling(n_resamples=100))
        for name in ("tune", "eval")
    )
    knows = ScoredGate(name="knows", tune=1 - needed[half["tune"]], evaluation=1 - needed[half["eval"]])
    misled = ScoredGate(name="misled", tune=needed[half["tune"]], evaluation=needed[half["eval"]], beta=0.5)
    found = compare_gates(evaluation, [knows, misled], tune)
    assert [len(table.rows) for table in found.tables()] == [5, 2]
    good, bad = found.rows
    assert good.point.metrics == pytest.approx(found.perfect.metrics)
    assert good.point.dominated_by is None
    assert good.not_needed.value == 1.0
    assert bad.point.against_random["contains"].delta < 0
    assert bad.point.dominated_by is not None
    assert "better than a random gate of the same retrieval rate: knows; worse than one: misled" in found.headline
    assert found.headline.startswith("2 gates: better than always retrieving in contains: knows")


def test_the_area_under_the_curve_is_sklearns_and_its_interval_covers():
    rng = np.random.default_rng(5)
    scores, labels = np.round(rng.normal(size=80), 1), rng.random(80) < 0.4
    assert area_under_roc(scores, labels).value == pytest.approx(roc_auc_score(labels, scores))
    holes = scores.copy()
    holes[:7] = np.nan
    area = area_under_roc(holes, labels)
    assert (area.n, area.value) == (73, pytest.approx(roc_auc_score(labels[7:], scores[7:])))
    covered = 0
    for _ in range(300):
        drawn = area_under_roc(np.concatenate([rng.normal(1, 1, 30), rng.normal(0, 1, 40)]), [1] * 30 + [0] * 40)
        covered += drawn.low <= 0.7602 <= drawn.high  # Phi(1 / sqrt(2))
    assert 0.92 <= covered / 300 <= 0.98
    assert math.isnan(area_under_roc([1.0, 2.0], [1, 1]).value)
    assert math.isnan(area_under_roc([0.0, 1.0], [0, 1]).low)
    with pytest.raises(DataError, match="0 or 1"):
        area_under_roc([0.1, 0.2], [0, 0.5])
    with pytest.raises(DataError, match="shape"):
        area_under_roc([0.1], [0, 1])


# Fitted on questions


def test_a_fitted_gate_is_sklearns_applied_by_numpy():
    questions = [item.question for item in load_answered("hotpotqa_llama31_tune")[:200]]
    labels = np.random.default_rng(0).integers(0, 2, 200)
    values = question_features(questions)
    for wanted in (0, 1):
        fitted = fit_gate(question_features, questions, labels, np.arange(200) % 5, wanted=wanted)
        gate = fitted.gate
        spread = values.std(axis=0)
        scaled = (values - values.mean(axis=0))[:, spread > 0] / spread[spread > 0]
        model = LogisticRegression(C=gate.strength, max_iter=2000).fit(scaled, labels)
        odds = model.decision_function(scaled) * (1 if wanted else -1)
        assert gate.raw(values) == pytest.approx(odds, abs=1e-3)
        assert ((gate.scores(questions) >= 0) & (gate.scores(questions) <= 1)).all()
        assert fitted.n_labels == 200


def test_the_three_way_classifier_scores_the_log_odds_of_its_class():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(150, 4))
    labels = np.argmax(values[:, :3] + rng.normal(size=(150, 3)), axis=1)
    fitted = fit_gate(
        lambda texts: values[[int(t) for t in texts]],
        [str(i) for i in range(150)],
        labels,
        np.arange(150) % 5,
        wanted=0,
    )
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    p = LogisticRegression(C=fitted.gate.strength, max_iter=2000).fit(scaled, labels).predict_proba(scaled)[:, 0]
    assert fitted.gate.raw(values) == pytest.approx(np.log(p / (1 - p)), abs=1e-3)
    assert area_under_roc(fitted.cross_fitted, labels == 0).value > 0.7


def test_adaptive_rags_labels_are_the_cheapest_way_that_worked():
    direct, retrieved = [1, 1, 0, 0], [1, 0, 1, 0]
    assert adaptive_labels(direct, retrieved).tolist() == [0, 0, 1, 2]


def test_no_question_helps_to_make_its_own_cross_fitted_score(monkeypatch):
    monkeypatch.setattr(question_only_module, "_REGULARISATIONS", (0.1,))
    monkeypatch.setattr(question_only_module, "fit_platt", lambda raw, target, weights: Identity())
    rng = np.random.default_rng(2)
    values, labels = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    texts, folds = [str(i) for i in range(60)], np.arange(60) % 5

    def scores(given):
        return fit_gate(lambda asked: values[[int(t) for t in asked]], texts, given, folds).cross_fitted

    other = labels.copy()
    other[folds == 3] = 1 - other[folds == 3]
    same = scores(labels) == scores(other)
    assert same[folds == 3].all()
    assert not same[folds != 3].any()


class Identity:
    def predict(self, values):
        return values

    def to_dict(self):
        return {}


def test_a_held_out_threshold_never_sees_its_own_fold():
    rng = np.random.default_rng(4)
    scores, never, always = rng.random(50), rng.integers(0, 2, 50) * 1.0, rng.integers(0, 2, 50) * 1.0
    folds = np.arange(50) % 5

    def margins(n, a):
        return cross_fit(folds, lambda rows: (scores[rows], lambda rest: scores[rest]), BothWays(n, a))

    above, ranks = margins(never, always)
    assert ranks.tolist() == scores.tolist()
    changed = np.where(folds == 2, 1 - never, never)
    again, _ = margins(changed, always)
    assert (again == above)[folds == 2].all()
    assert not (again == above).all()


def test_question_gates_read_questions_alone_and_cost_no_call():
    direct, retrieved, _ = random_world(6, n=120)
    tune = bench_of(direct[:60], retrieved[:60])
    evaluation = GateEvaluation(
        answered_recording(answered(direct[60:], retrieved[60:], prefix="e")), resampling=Resampling(n_resamples=50)
    )

    def embed(texts):
        return np.array([[len(text), text.count("1")] for text in texts], dtype=float)

    gates = question_gates(tune, evaluation, embed)
    assert len(gates) == 5
    found = compare_gates(evaluation, gates, tune)
    for row in found.rows:
        assert row.point.costs["calls"] == 1.0
        assert row.price.n_labels == 60
        assert row.price.seconds > 0
        assert (
            row.tune.metrics["contains"]
            >= max(tune.reference(k).metrics["contains"] for k in ("never", "always")) - 1e-12
        )
    crossed = compare_gates(tune, held_out_gates(tune, embed))
    assert crossed.n_tune == 0
    assert all(row.tune is None and row.point.beta == 0 for row in crossed.rows)
    for comparison in (found, crossed):
        text = render([comparison_table(comparison), knowledge_table(comparison)], "md")
        assert "always retrieve" in text
        json.dumps(comparison.to_dict(), allow_nan=False)


def test_features_are_finite_whatever_the_text():
    texts = ["", "?!", "Who?", "x" * 5000, "“Quoted” 1999, or 2,001?", "ÅÄÖ ñandú's", "Is it?"]
    rows = question_features(texts)
    assert rows.shape == (7, len(FEATURES))
    assert np.isfinite(rows).all()
    assert question_features([]).shape == (0, len(FEATURES))
    named = dict(zip(FEATURES, rows[4], strict=True))
    assert (named["quotes"], named["numbers"], named["has_year"], named["has_or"]) == (1, 2, 1, 1)
    assert dict(zip(FEATURES, rows[6], strict=True))["polar"] == 1


# Columns, costs and other recordings


def rounds_recording(n=40, **columns):
    """Return rounds 0 to 3 with a signal at every round and a gate's at round 0."""
    rng = np.random.default_rng(7)
    rows = []
    for q in range(n):
        for r in range(4):
            right = rng.random() < 0.3 + 0.15 * r
            rows.append(
                {
                    "question_id": f"q{q}",
                    "round": r,
                    "end": "max_rounds",
                    "question": f"Which one is number {q}?",
                    "golds": [RIGHT],
                    "answer": RIGHT if right else WRONG,
                    "contains": float(right),
                    "em": float(right),
                    "f1": float(right),
                    "p_known": rng.random() if r == 0 else None,
                    "answer_margin": rng.random(),
                    "answer_stable": float(rng.random() < 0.4) if r > 1 else None,
                    "cost.generator.calls": 1.0,
                    "cost.generator.output_tokens": 5.0,
                    "cost.gate.calls": 1.0 if r == 0 else 0.0,
                    "cost.retrieval.calls": 1.0 if r == 1 else 0.0,
                }
            )
    return Recording(build_table(rows))


def test_a_recorded_column_is_a_gate_and_pays_for_what_it_reads():
    recording = rounds_recording()
    evaluation = GateEvaluation(recording, resampling=Resampling(n_resamples=50))
    half = np.arange(40) % 2 == 0
    tune, evaluation = (
        GateEvaluation(recording.select(rows), resampling=Resampling(n_resamples=50)) for rows in (half, ~half)
    )
    found = compare_gates(
        evaluation, [column_gate("p_known", evaluation, tune), column_gate("answer_margin:low", evaluation, tune)], tune
    )
    cheap, dear = found.rows
    # The recorded gate: its pass, then the answer or three rounds.  The margin: the answer, then perhaps three rounds.
    assert cheap.point.costs["calls"] == pytest.approx(1 + 1 + 2 * cheap.point.retrieval_rate)
    assert dear.point.costs["calls"] == pytest.approx(1 + 3 * dear.point.retrieval_rate)
    alone = compare_gates(evaluation, [column_gate("answer_margin:low", evaluation, None)])
    assert alone.rows[0].name == "answer_margin, cross-fitted"
    assert alone.rows[0].point.costs["calls"] == pytest.approx(1 + 3 * alone.rows[0].point.retrieval_rate)
    crossed = compare_gates(evaluation, [column_gate("p_known", evaluation, None)]).rows[0].point
    assert crossed.costs["calls"] == pytest.approx(1 + 1 + 2 * crossed.retrieval_rate)
    # The margin of later rounds stops nothing: a gate decides at round 0.
    assert evaluation.run(gate_rule("answer_margin", 0.0))[1].sum() == 0
    assert set(evaluation.run(gate_rule("answer_margin", 2.0))[0].stop_rounds) == {3}


def test_calls_are_the_same_through_json_lines_and_through_import(tmp_path):
    """A table that brings a gate's score and no costs is charged as the same answers in JSON lines are."""
    direct, retrieved, score = random_world(3)
    questions = answered(direct, retrieved)
    golds = json.dumps([RIGHT])
    lines = [
        {
            "question_id": item.question_id,
            "round": r,
            "answer": answer,
            "golds": golds,
            "p_known": score[i] if r == 0 else None,
        }
        for i, item in enumerate(questions)
        for r, answer in enumerate((item.closed_book, item.retrieved))
    ]
    path = tmp_path / "table.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    run = read_tabular(path, first_round=0)
    write_recording(tmp_path / "table.parquet", run.rows(), {}, run.kinds())
    given, imported = answered_recording(questions, {"p_known": score}), read_recording(tmp_path / "table.parquet")
    for rule in ("p_known > 0.5", "p_known < 0.25", "fixed_k(1)"):
        policy = Policy(rule=parse_rule(rule), start_round=0, max_rounds=1)
        one, other = (
            replay(item, [policy], resampling=Resampling(n_resamples=20)).rows[0] for item in (given, imported)
        )
        assert other.calls.mean == one.calls.mean, rule
    benches = [GateEvaluation(item, resampling=Resampling(n_resamples=20)) for item in (given, imported)]
    one, other = (
        compare_gates(evaluation, [column_gate("p_known", evaluation, None)]).rows[0].point for evaluation in benches
    )
    assert other.costs["calls"] == one.costs["calls"] == 1.0


def test_a_gate_other_than_the_recorded_one_does_not_pay():
    """A pass that goes on into the answer is part of the answer then; an encoder's in front of it is nobody's."""
    score = np.linspace(0, 1, 40)
    gate = ScoredGate(name="other", tune=score, evaluation=score, beta=0.5)
    for calls, direct in ((0.0, 1.0), (1.0, 1.0)):  # of the answer at round 0: resumed, or made from the start
        recording = rounds_recording()
        column = np.where(np.array(recording.table.column("round")) == 0, calls, 1.0)
        place = recording.table.column_names.index("cost.generator.calls")
        table = recording.table.set_column(place, recording.table.schema.field(place), [column])
        evaluation = GateEvaluation(Recording(table), resampling=Resampling(n_resamples=20))
        point = compare_gates(evaluation, [gate]).rows[0].point
        assert point.costs["calls"] == pytest.approx(direct + (3 - direct) * point.retrieval_rate)
        assert evaluation.ungated().reference("never").costs["calls"] == direct
        assert evaluation.reference("never").costs["calls"] == 1.0 + calls


def test_a_gate_stands_in_front_of_a_stopping_rule():
    recording = rounds_recording()
    evaluation = GateEvaluation(
        recording, Policy(rule=tasr().rules[0], max_rounds=3), resampling=Resampling(n_resamples=50)
    )
    assert evaluation.always.label == "always retrieve"
    policy = evaluation.gated(gate_rule("p_known", 0.5))
    assert str(policy.rule) == "((p_known > 0.5) & (round < 1)) | (answer_stable >= 1)"
    assert policy.start_round == 0
    run, asked = evaluation.run(gate_rule("p_known", 0.5))
    assert asked.tolist() == (recording.column("p_known")[:, 0] <= 0.5).tolist()
    assert np.array_equal(run.rounds[asked], evaluation.always.rounds[asked])
    assert set(evaluation.always.rounds.tolist()) == {2, 3}
    with pytest.raises(UnknownSignalError):
        GateEvaluation(
            Recording(recording.table.drop_columns(["p_known"])), resampling=Resampling(n_resamples=50)
        ).point(gate_rule("p_known", 0.5), 0.5)


def test_what_certify_and_replay_save_may_be_retrievals():
    direct, retrieved, _ = random_world(8, n=400)
    direct, retrieved = direct | (np.arange(400) < 200), retrieved | (np.arange(400) < 200)
    scores = np.where(np.arange(400) < 200, 0.9, 0.1)
    tune = answered_recording(answered(direct, retrieved), {"p_known": scores})
    fresh = answered_recording(answered(direct, retrieved, prefix="e"), {"p_known": scores})
    policy = policy_for(fresh, gate_rule("p_known"), start_round=0)
    claim = Claim(epsilon=0.05, metric="contains")
    found = certify(
        fresh, threshold_path(policy, "p_known", [0.5, 0.05, 0.95]), claim, tune=tune, cheapest="retrievals"
    )
    assert found.policy is not None
    assert str(found.policy.rule) == "(p_known > 0.5) & (round < 1)"
    assert "0.50 retrievals against 1.00 (-50.0 %)" in found.headline
    assert "retrievals" in render([found.table()], "md")
    result = replay(
        fresh,
        [policy],
        metrics=("contains",),
        baseline="fixed_k(1)",
        resampling=Resampling(n_resamples=20),
        cost="retrievals",
    )
    assert result.rows[0].costs["retrievals"] == pytest.approx(0.5)
    assert "0.50 retrievals" in result.headline(result.rows[0].label)
    bare = Recording(fresh.table.drop_columns(["cost.retrieval.calls"]))
    with pytest.raises(DataError, match="are unknown"):
        replay(
            bare,
            [policy],
            metrics=("contains",),
            baseline="fixed_k(1)",
            resampling=Resampling(n_resamples=20),
            cost="retrievals",
        )
    with pytest.raises(DataError, match="not recorded"):
        certify(bare, threshold_path(policy, "p_known", [0.5]), claim, cheapest="retrievals")
    with pytest.raises(DataError, match="unknown cost"):
        certify(fresh, threshold_path(policy, "p_known", [0.5]), claim, cheapest="luck")


def test_scores_survive_a_file(tmp_path):
    recording = answered_recording(answered([1, 0], [0, 1]), {"p_known": [0.9, math.nan]})
    write_recording(tmp_path / "r.parquet", recording.table, recording.metadata)
    again = read_recording(tmp_path / "r.parquet")
    assert again.metadata["signal_components"] == {"p_known": "gate"}
    assert again.column("p_known")[:, 0].tolist()[0] == 0.9
    assert np.isnan(again.column("p_known")).sum() == 3


# Real answers


HEADROOM = {  # never, always, perfect, needed, harmed: percent of questions
    ("hotpotqa_llama31_eval", "contains"): (30.1, 44.1, 49.5, 19.4, 5.5),
    ("hotpotqa_llama31_eval", "em"): (29.5, 39.5, 45.7, 16.2, 6.2),
    ("hotpotqa_llama31_tune", "contains"): (29.8, 42.9, 49.1, None, None),
    ("2wiki_llama31_tune", "contains"): (28.2, 46.2, 50.8, 22.6, 4.6),
}


@pytest.mark.parametrize("name", ["hotpotqa_llama31_eval", "hotpotqa_llama31_tune", "2wiki_llama31_tune"])
def test_the_headroom_of_the_real_answers_is_as_measured(name):
    questions = load_answered(name)
    evaluation = GateEvaluation(answered_recording(questions), resampling=Resampling(n_resamples=10))
    assert len(questions) == evaluation.n == {"hotpotqa_llama31_eval": 438, "hotpotqa_llama31_tune": 450}.get(name, 500)
    for (source, metric), figures in HEADROOM.items():
        if source == name:
            found = headroom(evaluation)[metric]
            told = (found.never, found.always, found.perfect, found.needed, found.harmed)
            for value, expected in zip(told, figures, strict=True):
                assert expected is None or round(100 * value, 1) == expected
    for metric, function in METRICS.items():  # plain loops over the file
        direct = [function(item.closed_book, item.golds) for item in questions]
        asked = [function(item.retrieved, item.golds) for item in questions]
        assert headroom(evaluation)[metric].perfect == pytest.approx(np.mean(np.maximum(direct, asked)))


def test_tune_and_eval_answers_share_no_question():
    tune, evaluation = (load_answered(f"hotpotqa_llama31_{split}") for split in ("tune", "eval"))
    assert not {item.question_id for item in tune} & {item.question_id for item in evaluation}
    assert not {item.question.lower() for item in tune} & {item.question.lower() for item in evaluation}


# Bad input


def test_what_is_no_question_answered_twice_is_refused(tmp_path):
    good = {"id": "a", "question": "Q?", "answers": ["x"], "no_retrieval": "x", "one_retrieval": None}
    path = tmp_path / "a.jsonl"

    def load(*rows):
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        return load_answered(path)

    assert load(good)[0].retrieved is None
    evaluation = GateEvaluation(
        answered_recording(load(good, {**good, "id": "b", "one_retrieval": "x"})), resampling=Resampling(n_resamples=5)
    )
    assert evaluation.always.values["em"].tolist() == [0.0, 1.0]  # a missing answer scores 0
    for change, message in [
        ({"answers": []}, "no gold"),
        ({"answers": "x"}, "list of texts"),
        ({"id": 3}, "must be text"),
        ({"no_retrieval": 3}, "or null"),
    ]:
        with pytest.raises((DataError, SchemaError), match=message):
            load({**good, **change})
    with pytest.raises(SchemaError, match="line 1.*one_retrieval"):
        load({"id": "a"})
    with pytest.raises(DataError, match="twice"):
        load(good, good)
    with pytest.raises(DataError, match="no questions"):
        load()
    with pytest.raises(DataError, match="bundled are"):
        load_answered("hotpotqa")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"{}")[:-3])
    with pytest.raises(DataError, match="gzip"):
        load_answered(tmp_path / "b.jsonl.gz")


def test_a_recording_without_both_sides_is_refused():
    rows = [{"question_id": "a", "round": r, "answer": "x", "em": 1.0} for r in (0, 1, 2)]
    with pytest.raises(DataError, match="rounds 1"):
        GateEvaluation(Recording(build_table(rows[1:])), metrics=("em",))
    with pytest.raises(DataError, match="rounds 0"):
        GateEvaluation(Recording(build_table(rows[:1])), metrics=("em",))
    unknown = [{**rows[0], "em": None}, *rows[1:]]
    with pytest.raises(DataError, match="both ways"):
        GateEvaluation(Recording(build_table(unknown)), metrics=("em",))
    with pytest.raises(DataError, match="one metric"):
        GateEvaluation(Recording(build_table(rows)), metrics=())


def test_labels_of_one_class_and_other_nonsense_are_refused():
    texts, folds = [str(i) for i in range(20)], np.arange(20) % 5
    with pytest.raises(DataError, match="both outcomes"):
        fit_gate(question_features, texts, np.ones(20), folds)
    with pytest.raises(DataError, match="label 2"):
        fit_gate(question_features, texts, np.arange(20) % 2, folds, wanted=2)
    with pytest.raises(DataError, match="too few"):
        fit_gate(question_features, texts, np.arange(20) == 3, folds)
    with pytest.raises(DataError, match="one of each"):
        fit_gate(question_features, texts, [0, 1], folds)
    evaluation = bench_of([1] * 20, [0] * 20)
    with pytest.raises(DataError, match="both outcomes"):
        held_out_gates(evaluation, question_features)


def test_a_rare_outcome_that_a_fold_lacks_is_tolerated():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 2))
    labels = (values[:, 0] > 0).astype(int)
    labels[7] = 2  # the others of its fold have none
    texts = [str(i) for i in range(60)]
    fitted = fit_gate(lambda asked: values[[int(text) for text in asked]], texts, labels, np.arange(60) % 5)
    scores = fitted.cross_fitted
    assert np.isfinite(scores).all()
    assert scores[labels == 1].mean() > 0.7
    assert scores[labels == 0].mean() < 0.3


def test_scores_without_a_threshold_a_name_or_a_question_are_refused():
    direct, retrieved, scores = random_world(9, n=20)
    evaluation = bench_of(direct, retrieved, {"p_known": scores})
    gate = ScoredGate(name="g", tune=scores, evaluation=scores)
    with pytest.raises(DataError, match="differ"):
        compare_gates(evaluation, [gate, gate])
    with pytest.raises(DataError, match="threshold"):
        compare_gates(evaluation, [gate])
    with pytest.raises(DataError, match="tune questions"):
        compare_gates(evaluation, [gate], evaluation)
    with pytest.raises(DataError, match="single defined"):
        choose_beta(np.full(3, np.nan), BothWays(np.ones(3), np.ones(3)))
    with pytest.raises(DataError, match="retrieval rate"):
        choose_beta(scores, BothWays(direct * 1.0, retrieved * 1.0), rate=1.5)
    with pytest.raises(DataError, match="NAME:low"):
        column_gate("p_known:high", evaluation, None)
    with pytest.raises(DataError, match="one score"):
        with_scores(evaluation.recording, {"other": [1.0]})
    with pytest.raises(DataError, match="already"):
        with_scores(evaluation.recording, {"p_known": scores})


def test_a_nan_score_retrieves_and_all_nan_is_refused():
    direct, retrieved, scores = random_world(10, n=20)
    evaluation = bench_of(direct, retrieved)
    nearly = np.array([0.1, *[np.nan] * 19])
    found = compare_gates(evaluation, [ScoredGate(name="lost", tune=scores, evaluation=nearly, beta=0.5)])
    assert found.rows[0].point.retrieval_rate == 1.0
    assert found.rows[0].n_undefined == 19
    with pytest.raises(DataError, match="'lost'"):
        compare_gates(evaluation, [ScoredGate(name="lost", tune=scores, evaluation=np.full(20, np.nan), beta=0.5)])
    assert math.isnan(found.rows[0].known.value)
    assert "the same as always retrieve" in render([comparison_table(found)], "md")


def test_a_gate_chosen_by_rate_reaches_it_on_tune():
    direct, retrieved, scores = random_world(11, n=100)
    never, always = direct * 1.0, retrieved * 1.0
    for rate in (0.0, 0.25, 0.5, 1.0):
        assert np.mean(~(scores > choose_beta(scores, BothWays(never, always), rate=rate))) == pytest.approx(rate)
    tune = bench_of(direct, retrieved)
    evaluation = GateEvaluation(
        answered_recording(answered(direct, retrieved, prefix="e")), resampling=Resampling(n_resamples=20)
    )
    gate = ScoredGate(name="g", tune=scores, evaluation=scores, price=GatePrice(calls=1.0))
    at = {rate: compare_gates(evaluation, [gate], tune, rate=rate) for rate in (0.25, 0.75)}
    assert [row.point.retrieval_rate for item in at.values() for row in item.rows] == pytest.approx([0.25, 0.75])
    assert "rate asked" in render([rates_table("t", at)], "md")
    text = render([points_table("t", [evaluation.reference("always"), at[0.25].rows[0].point], ("contains",))], "md")
    assert "tokens" not in text  # unknown for all
    evaluation = evaluation.with_scores({"p_known": scores})
    assert "wrong -> right" in render([transitions_table("t", transitions(evaluation, "p_known", [0.2, 0.6]))], "md")


def test_a_gain_of_one_question_in_a_thousand_decides_the_threshold():
    scores = np.arange(1000.0)
    never, always = np.zeros(1000), np.ones(1000)
    never[900:], always[900:950] = 1.0, 0.0
    assert choose_beta(scores, BothWays(never, always)) == 899.0  # above it retrieval helps nobody, and 50 lose
    never[899] = always[898] = 1.0
    always[899] = 0.0
    assert choose_beta(scores, BothWays(never, always)) == 898.0


def test_folds_follow_the_ids():
    ids = [f"q{i}" for i in range(500)]
    folds = question_folds(ids)
    assert folds.tolist() == question_folds(ids[::-1]).tolist()[::-1]
    assert min(np.bincount(folds, minlength=5)) > 60


# The report


def test_a_report_shows_the_sweep_over_p_known_and_who_changes_sides():
    direct, retrieved, scores = random_world(12, n=80)
    recording = answered_recording(answered(direct, retrieved), {"p_known": scores})
    (part,) = gate_part(
        recording, ("contains", "em"), resampling=Resampling(n_resamples=50, seed=1, level=0.9), margin=0.02
    )
    assert set(part.charts) == {"gate", "gate-transitions"}
    shown = part.charts["gate"][0]["data"]["values"]
    evaluation = GateEvaluation(
        recording, metrics=("contains", "em"), resampling=Resampling(n_resamples=50, seed=1, level=0.9)
    )
    for row in shown:
        point = evaluation.point(gate_rule("p_known", row["beta"]), row["beta"])
        assert row["quality"] == pytest.approx(100 * point.metrics["contains"])
        assert row["rate"] == pytest.approx(100 * point.retrieval_rate)
        assert row["blind"] == pytest.approx(100 * evaluation.random(point.retrieval_rate).metrics["contains"])
    steps = part.charts["gate-transitions"][0]["data"]["values"]
    up, down = (sum(row["questions"] for row in steps if (row["questions"] > 0) == side) for side in (True, False))
    assert up == (~direct & retrieved).sum()
    assert down == -(direct & ~retrieved).sum()
    report = make_report(
        {"r": recording},
        [policy_for(recording, "full")],
        settings=Settings(metrics=("contains",), baseline="fixed_k(1)", resampling=Resampling(n_resamples=50)),
    )
    assert [found.title for found in report.cells[0].parts] == ["Should this loop change?", "The gate"]
    page = render_html(report)
    assert "The gate" in page
    assert "gate-transitions" in page


def test_a_report_without_p_known_or_round_0_has_no_such_part():
    settings_ = {"resampling": Resampling(n_resamples=5, seed=1, level=0.9), "margin": 0.02}
    recording = answered_recording(answered([1, 0], [0, 1]))
    assert gate_part(recording, ("em",), **settings_) == ()
    assert gate_part(with_scores(recording, {"p_known": [math.nan] * 2}), ("em",), **settings_) == ()
    later = rounds_recording()
    later = Recording(later.table.filter(pc.greater(later.table.column("round"), 0)))
    assert gate_part(later, ("em",), **settings_) == ()
    (part,) = gate_part(rounds_recording(), ("agreement",), **settings_)
    assert part.charts
