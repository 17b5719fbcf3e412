"""Watch: the loss of a deployed policy from its log, the alarm, what drifted, and what to do."""

from __future__ import annotations

import itertools
import json
import math
from contextlib import closing
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from suffice import Audit, Calibrator, Policy, Recorder, Round, read_recording
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay import replay
from suffice.evaluation.statistics import Alarm
from suffice.recordings.recording import Recording
from suffice.verdicts.certificates import Claim, certify, measure_losses
from suffice.verdicts.watches import (
    STATUSES,
    Requests,
    UserSignal,
    audited_recording,
    by_request,
    full_width,
    prometheus_text,
    seconds_of,
    watch,
)
from suffice.verdicts.watches.evidence import audits_needed, loss_alarm
from suffice.verdicts.watches.losses import LossClaim, audited_losses
from tests.support.production import BEGIN, MINUTE, POLICY, certified, production_log
from tests.support.shared import recording_of

HALF = 1000


def broken(number: int) -> float:
    return 0.01 if number < HALF else 0.4


@pytest.fixture(scope="module")
def healthy_log() -> Recording:
    return production_log(2 * HALF)


@pytest.fixture(scope="module")
def broken_log() -> Recording:
    return production_log(2 * HALF, loss=broken)


def without(log: Recording, *names: str) -> Recording:
    return Recording(log.table.drop_columns([*names]), log.metadata)


# The verdict


def test_a_policy_that_loses_as_little_as_certified_is_kept(healthy_log):
    result = watch(healthy_log, certified())
    assert result.status == "keep"
    assert result.sentence.startswith("Keep the policy: the harm of em against the full run is 0.")
    assert not result.rang
    assert result.question.source == "certificate"
    assert result.whole.low <= 0.01 * result.n_cut / result.n <= result.whole.high


def test_a_rising_loss_alarms_after_its_rise_and_gives_a_remedy(broken_log):
    result = watch(broken_log, certified())
    assert result.status == "fall back"
    assert result.sentence.startswith(
        "Fall back to full width: the harm of em against the full run was above 3 points for a while."
    )
    assert "the mean since deployment is" in result.sentence
    assert result.alarm.rang is not None
    assert HALF < result.alarm.rang < HALF + 1200
    assert f"request {broken_log.question_ids[result.alarm.rang]}" in result.sentence
    assert abs(result.alarm.after.first - HALF) < 500, "where it seems to have begun"
    assert result.alarm.highest >= 1 / result.risk


def test_without_a_bound_the_sentence_asks_for_one_and_nothing_rings(broken_log):
    result = watch(broken_log, POLICY)
    assert (result.status, result.alarm) == ("re-certify", None)
    assert "--max-loss" in result.sentence
    asked = watch(broken_log, POLICY, max_loss=0.03)
    assert (asked.status, asked.question.source) == ("fall back", "max_loss")


def decided(metric: str, max_loss: object) -> Policy:
    return replace(POLICY, provenance={"decision": {"metric": metric, "max_loss": max_loss}})


def test_the_decision_that_advised_a_policy_gives_the_bound(broken_log):
    result = watch(broken_log, decided("em", 0.03))
    assert (result.question.metric, result.question.bound, result.question.source) == ("em", 0.03, "decision")
    assert result.status == "fall back"
    asked = watch(broken_log, decided("em", 0.03), max_loss=0.5)
    assert (asked.question.bound, asked.question.source) == (0.5, "max_loss")
    assert watch(broken_log, certified(decided("em", 0.2))).question.source == "certificate"
    assert watch(broken_log, decided("em", "much")).question.bound is None


def test_a_decision_about_another_metric_is_named(broken_log):
    result = watch(without(broken_log, "em", "f1"), decided("em", 0.03))
    assert (result.question.metric, result.question.bound) == ("agreement", None)
    assert any("3 points of em" in note and "--max-loss" in note for note in result.notes + result.question.notes)


def test_few_audits_are_not_enough_and_it_says_how_many_more(healthy_log):
    result = watch(healthy_log.select(np.arange(2 * HALF) < 200), certified())
    assert result.status == "not enough audits"
    enough = result.needed + result.n_audited
    assert audits_needed(0.03, 0.0, alpha=result.risk, rise=0.05, before=enough) == enough, (
        "also for a rise that begins late"
    )
    assert f"wait for about {result.needed} more audits" in result.sentence
    words = f"{result.n_audited} audits are too few to notice a harm of em against the full run above 3 points."
    assert words in result.sentence


def test_a_log_without_an_audit_says_how_to_have_one():
    log = production_log(50, rate=lambda _: 1e-12)
    result = watch(log, certified())
    assert (result.status, result.n_audited, result.alarm) == ("not enough audits", 0, None)
    assert any("audit=Audit(rate=0.05" in note for note in result.notes)
    assert math.isnan(result.whole.mean)
    unrated = watch(without(log, "audit_rate", "audited"), certified())
    assert unrated.n_audited == 0
    assert any("50 requests without an audit rate" in note for note in unrated.notes)


def test_a_log_in_which_nothing_was_cut_loses_nothing_and_saves_nothing():
    log = production_log(100, margin=lambda _: -99.0)
    result = watch(log, certified())
    assert (result.status, result.n_cut, result.rounds_saved) == ("keep", 0, 0)
    assert "stopped none of 100 requests early" in result.sentence


def test_a_certificate_about_another_metric_cannot_be_seen_here(healthy_log):
    result = watch(healthy_log, certified(metric="judged"))
    assert result.question.bound is None
    assert any("the certificate is about judged, and this is about f1" in note for note in result.question.notes)
    against = watch(healthy_log, certified(baseline="oracle_best"))
    assert any("does not run in an audit" in note for note in against.question.notes)


@pytest.mark.parametrize("selector", ["last", "max_answer_margin"])
@pytest.mark.parametrize("baseline", ["full", "fixed_k(2)"])
def test_a_certificate_that_was_given_to_questions_is_what_must_hold(selector, baseline):
    policy = replace(POLICY, selector=selector)
    questions = production_log(200, loss=lambda _: 0.0, rate=lambda _: 1.0, policy=policy)
    claim = Claim(epsilon=0.1, metric="em", loss="harm", baseline=baseline)
    given = certify(audited_recording(questions, policy), [policy], claim).policy
    assert given is not None
    question = watch(production_log(100, policy=policy), given).question
    assert (question.source, question.bound, question.baseline) == ("certificate", 0.1, baseline)


def test_agreement_may_gain_if_the_full_run_selects_another_answer():
    result = watch(production_log(100), POLICY, metric="agreement", max_loss=0.1)
    assert (result.question.lowest, result.question.text) == (0.0, "share of answers that differ from the full run's")
    policy = replace(POLICY, selector="max_answer_margin")
    other = watch(production_log(100, policy=policy), policy, metric="agreement", max_loss=0.1).question
    assert (other.lowest, other.text) == (-1.0, "loss of agreement against the full run")


def test_a_void_certificate_is_none(healthy_log):
    void = watch(healthy_log, certified(policy_digest="another"))
    assert void.status == "re-certify"
    assert any("void" in note for note in void.notes)


# The loss


@pytest.mark.parametrize("kind", ["net", "harm"])
@pytest.mark.parametrize("baseline", ["full", "fixed_k(2)"])
def test_where_every_request_is_audited_the_loss_is_that_of_a_certificate(kind, baseline):
    log = production_log(300, loss=lambda _: 0.3, rate=lambda _: 1.0)
    requests = Requests.of(log, POLICY)
    mine = audited_losses(requests, LossClaim(metric="em", kind=kind, baseline=baseline))
    theirs = measure_losses(log, [POLICY], Claim(epsilon=0.1, metric="em", loss=kind, baseline=baseline))
    assert len(mine) == 300
    assert mine.values.mean() == pytest.approx(theirs.losses.mean())


def test_rates_that_vary_weigh_each_audited_loss_without_bias():
    rates = [0.1, 0.5]
    totals = []
    for seed in range(8):
        log = production_log(500, loss=lambda _: 0.5, rate=lambda number: rates[number % 2], seed=seed)
        losses = audited_losses(Requests.of(log, POLICY), LossClaim(metric="em"))
        assert (losses.least_rate, losses.largest, len(losses)) == (0.1, 10.0, 500)
        totals.append(losses.values.mean())
    full = [
        audited_losses(
            Requests.of(production_log(500, loss=lambda _: 0.5, rate=lambda _: 1.0, seed=seed), POLICY),
            LossClaim(metric="em"),
        ).values.mean()
        for seed in range(8)
    ]
    assert np.mean(totals) == pytest.approx(np.mean(full), abs=0.06)
    log = production_log(3000, loss=lambda _: 0.5, rate=lambda number: rates[number % 2])
    result = watch(log, POLICY, max_loss=0.03)
    assert result.rang
    assert any("audit rates vary (0.1 to 0.5)" in note for note in result.notes)
    assert result.n_audited == Requests.of(log, POLICY).drawn.sum()


@pytest.mark.parametrize(("kind", "least"), [("net", -1.0), ("harm", 0.0)])
def test_a_lost_audit_is_bounded_by_what_its_answer_scores(kind, least):
    log = production_log(600, loss=lambda _: 0.5, rate=lambda _: 1.0, lost=lambda number: number % 2 == 0)
    requests = Requests.of(log, POLICY)
    losses = audited_losses(requests, LossClaim(metric="em", kind=kind))
    scores = log.column("em")[np.arange(600), requests.stop - 1]
    right, wrong = losses.lost & (scores == 1), losses.lost & (scores == 0)
    assert min(right.sum(), wrong.sum()) > 0
    assert (set(losses.loss[right]), set(losses.most[right])) == ({least}, {0.0})
    assert (set(losses.loss[wrong]), set(losses.most[wrong])) == ({0.0}, {1.0})
    agreement = audited_losses(requests, LossClaim(metric="agreement", full_agrees=True))
    assert (set(agreement.loss[agreement.lost]), set(agreement.most[agreement.lost])) == ({0.0}, {1.0})


def test_a_lost_audit_is_known_where_the_baseline_had_stopped():
    log = production_log(600, loss=lambda _: 0.5, rate=lambda _: 1.0, lost=lambda number: number % 2 == 0)
    losses = audited_losses(Requests.of(log, POLICY), LossClaim(metric="em", baseline="fixed_k(1)"))
    assert losses.n_lost > 0
    assert losses.known.all()


def test_lost_audits_are_no_evidence_and_are_asked_for():
    log = production_log(1000, loss=lambda number: 1.0 - number % 2, lost=lambda number: number % 2 == 0)
    result = watch(log, certified())
    cut = [number for number in range(1000) if number % 2 == 0 and log.seen[number].sum() < 3]
    drawn = log.column("audited")[:, 0] == 1
    assert result.n_lost == result.n_unknown == sum(drawn[number] for number in cut) > 0
    assert result.n_audited + result.n_unknown == result.n_drawn
    assert result.whole.mean == result.whole.low == 0.0
    assert result.whole.high > result.n_lost / result.n_drawn
    assert result.status == "lost audits"
    assert f"{result.n_lost} audits of {result.n_drawn} never ran to the end" in result.sentence
    assert "risk" not in result.sentence
    assert any(f"{result.n_lost} audits of {result.n_drawn}" in note for note in result.notes)
    young = watch(log, certified(), deadline=1e9, now=BEGIN + MINUTE * 1000)
    first = next(number for number in cut if drawn[number])
    assert (young.n_lost, young.n_audited) == (0, drawn[:first].sum()), "an audit may still run: those after it wait"
    assert any(f"the audit of q{first} may still run" in note for note in young.notes)
    later = watch(log, certified(), deadline=100 * MINUTE, now=BEGIN + MINUTE * 1000)
    first = next(number for number in cut if drawn[number] and number > 900)
    assert later.n_audited + later.n_unknown == drawn[:first].sum()


def test_the_sentence_says_of_how_many_audits_the_loss_is_unknown():
    log = production_log(1000, loss=lambda _: 0.5, lost=lambda number: number % 50 < 2)
    result = watch(log, certified())
    assert (result.status, result.n_unknown > 0) == ("fall back", True)
    assert f"(of {result.n_unknown} more it is unknown, and the interval has room for the worst)" in result.sentence
    assert result.sentence.count(f"{result.n_lost} audits of {result.n_drawn} got lost") == 1


@pytest.mark.parametrize("policy", ["no bound", "suspended"])
def test_lost_audits_alone_are_not_said_to_be_none(policy):
    log = production_log(300, loss=lambda _: 1.0, lost=lambda _: True)
    result = watch(log.select(log.seen.sum(axis=-1) < 3), certified())  # the others ran to the end by themselves
    assert (result.n_audited, result.n_unknown > 0) == (0, True)
    bare = replace(result, question=replace(result.question, bound=None))
    other = bare if policy == "no bound" else replace(result, suspended="a reason")
    assert f"the outcome of each audit so far ({result.n_unknown}) is unknown" in other.sentence
    assert "no request was audited" not in other.sentence


def test_golds_that_are_missing_are_counted_and_asked_for_without_a_risk():
    log = without_gold(production_log(400, loss=lambda number: 1.0 - number % 2), lambda number: number % 2 == 0)
    result = watch(log, certified())
    assert result.n_unknown == result.n_missing > 0
    assert result.n_audited + result.n_missing == result.n_drawn
    assert result.status == "missing golds"
    assert (
        f"em is unknown in {result.n_missing} of {result.n_drawn} audits after the gold deadline of 168 hours"
        in result.sentence
    )
    assert "--metric agreement" in result.sentence
    assert "risk" not in result.sentence
    assert any("em is unknown in" in note for note in result.notes)


def test_an_answer_that_is_that_of_the_full_run_needs_no_gold():
    log = production_log(400, loss=lambda number: 1.0 - number % 2)
    whole = watch(without_gold(log, lambda number: number % 2 == 1), certified())
    assert (whole.n_missing, whole.n_audited) == (0, whole.n_drawn)
    assert whole.whole.mean == watch(log, certified()).whole.mean > 0


def test_without_gold_answers_agreement_with_the_full_run_is_judged(broken_log):
    log = without(broken_log, "em", "f1")
    result = watch(log, POLICY, max_loss=0.03)
    assert (result.question.metric, result.question.lowest) == ("agreement", 0.0)
    assert result.status == "fall back"
    marked = recording_of(
        [["a", "b"], ["a", "a"]], mark=[[0.5, 1.0], [1.0, 1.0]], policy_digest=POLICY.digest, stop_round=1.0,
        answer_round=1.0, stop_reason="rule", audit_rate=1.0, audited=1.0, answer_margin=2.0,
    )  # fmt: skip
    assert watch(marked, POLICY, metric="mark", max_loss=0.1).whole.mean == pytest.approx(0.25)


def test_every_interval_is_valid_at_every_look_of_a_true_loss():
    missed = 0
    for seed in range(8):
        result = watch(production_log(400, loss=lambda _: 0.3, seed=seed), POLICY, max_loss=0.5, window=100)
        truth = 0.3 * result.n_cut / result.n
        missed += not result.whole.low <= truth <= result.whole.high
    assert missed <= 2


# What users say


def test_a_user_signal_counts_after_its_deadline_in_request_order(healthy_log):
    log = healthy_log.select(np.arange(2 * HALF) < 1000)
    ids, now = log.question_ids, BEGIN + MINUTE * 1000
    complaints = [
        UserSignal(request=name, value=1.0, time=BEGIN + MINUTE * number + 30) for number, name in enumerate(ids)
    ]
    late = UserSignal(request=ids[0], value=1.0, time=now)
    result = watch(log, certified(), signal=[*complaints[500:][::-1], late, UserSignal(request="?", value=1.0, time=now)],
                   deadline=100 * MINUTE, now=now, max_loss=0.1)  # fmt: skip
    assert result.n_audited == 901, "the last 99 are still before the deadline"
    assert result.whole.mean == pytest.approx(401 / 901)
    assert 500 < result.alarm.rang < 560
    assert any("1 signal came after the deadline" in note for note in result.notes)
    assert any("99 requests still before the deadline" in note for note in result.notes)
    assert any("1 signal of requests that are not judged here" in note for note in result.notes)
    silent = watch(log, POLICY, signal=[], deadline=60, now=now)
    assert (silent.status, silent.whole.mean) == ("re-certify", 0.0)


def test_signals_read_from_records_and_refuse_what_they_are_not(healthy_log):
    assert by_request([{"question_id": "a", "time": "2026-01-01T01:00:00+01:00", "value": "0.5"}]) == [
        UserSignal(request="a", value=0.5, time=BEGIN)
    ]
    assert seconds_of("2026-01-01") == BEGIN
    for record, words in (
        ({"time": 1}, "question_id"),
        ({"question_id": "a"}, "time"),
        ({"question_id": "a", "time": "soon"}, "ISO 8601"),
        ({"question_id": "a", "time": 1, "value": "bad"}, "0 to 1"),
    ):
        with pytest.raises(DataError, match=words):
            by_request([record])
    with pytest.raises(DataError, match="0 to 1"):
        watch(healthy_log, POLICY, signal=[UserSignal(request="q0", value=5.0, time=0.0)])
    with pytest.raises(DataError, match="recorded_at"):
        watch(without(healthy_log, "recorded_at"), POLICY, signal=[])
    with pytest.raises(DataError, match="instead"):
        watch(healthy_log, POLICY, signal=[], metric="em")


# Drift


def test_a_moving_signal_is_noticed_in_its_window_and_needs_calibration():
    log = production_log(3000, margin=lambda number: 0.0 if number < 1500 else -1.0)
    tune = production_log(1000, rate=lambda _: 1.0, seed=5)
    result = watch(log, certified(), tune=tune)
    assert result.status == "recalibrate"
    assert result.sentence.startswith("Recalibrate the policy: answer_margin")
    moved = {item.name: item for item in result.drifts.moved}
    assert moved["answer_margin"].since == 1500
    assert {"stop round", "calls"} <= set(moved)
    assert watch(production_log(3000, seed=6), certified(), tune=tune).drifts.moved == []


def test_without_tune_questions_the_logs_start_is_the_reference():
    result = watch(production_log(1500, margin=lambda number: 0.0 if number < 1000 else 1.0), certified())
    assert result.drifts.reference == "the first 500 requests of the log"
    assert result.drifts.of_rule[0].since == 1000
    short = watch(production_log(100), certified())
    assert any("900 more requests until the first whole window" in note for note in short.drifts.notes)


def test_a_trifle_is_no_alarm_however_many_requests_show_it():
    tune = production_log(3000, rate=lambda _: 1.0, seed=5)
    log = production_log(3000, margin=lambda _: 0.15, rate=lambda _: 0.01)
    drifts = watch(log, certified(), tune=tune, window=3000).drifts
    moved = next(item for item in drifts.movements if item.name == "answer_margin")
    assert moved.p < 1e-6
    assert (moved.moved, moved.since) == (False, None)
    assert watch(log, certified(), tune=tune, window=3000, effect=0.02).drifts.moved


def test_requests_that_repeat_a_question_are_no_new_values():
    tune = production_log(300, rate=lambda _: 1.0, seed=5)
    kept = watch(production_log(1000, cluster=[f"c{number % 25}" for number in range(1000)]), certified(), tune=tune)
    assert all(item.p > 0.5 for item in kept.drifts.movements)
    assert any("975 requests repeat a question" in note for note in kept.notes)


def test_requests_that_share_the_draw_of_their_question_count_once():
    log = production_log(800, loss=lambda _: 0.5)
    drawn = log.column("audited")[:400, 0]
    names = [f"c{number % 400}" for number in range(800)]
    twice = production_log(800, loss=lambda _: 0.5, cluster=names, audited=[*drawn, *drawn])
    result = watch(twice, certified())
    assert result.n == 800
    assert result.n_audited == drawn.sum()
    assert any("400 requests repeat a question of the log and share its draw" in note for note in result.notes)
    shadowed = production_log(
        800, loss=lambda _: 0.5, cluster=names, audited=[*drawn, *drawn], **{"shadow.late": [3.0] * 800}
    )
    complete = Requests.of(shadowed, POLICY).complete
    assert watch(shadowed, certified()).shadows[0].n_audited == complete[:400].sum() < complete.sum()
    alone = production_log(800, loss=lambda _: 0.5, cluster=names, audit_unit=["request"] * 800)
    assert watch(alone, certified()).n_audited == log.column("audited")[:, 0].sum(), "each drawn by itself"


def test_a_signal_that_ceases_to_be_defined_moves():
    margins = production_log(1500).column("answer_margin")
    log = production_log(1500)
    cells = [
        [None if number >= 1000 else float(margins[number, r]) for r in range(int(log.seen[number].sum()))]
        for number in range(1500)
    ]
    moved = {item.name for item in watch(production_log(1500, answer_margin=cells), certified()).drifts.moved}
    assert "answer_margin undefined" in moved


def test_a_new_model_asks_for_certification_and_a_fingerprint_is_a_mark(healthy_log):
    models = ["m-1"] * HALF + ["m-2"] * HALF
    log = production_log(2 * HALF, reply_model=models, system_fingerprint=["f1", "f2"] * HALF)
    result = watch(log, certified())
    assert result.status == "re-certify"
    assert f"m-2 replies since request q{HALF}" in result.sentence
    assert [(item.column, item.place, item.n) for item in result.changes] == [
        ("system_fingerprint", 1, HALF),
        ("reply_model", HALF, HALF),
    ]
    assert "reply_model m-2" in result.plot().svg()
    assert watch(log, POLICY, max_loss=0.03).status == "recalibrate", "nothing was certified"
    fingerprints = production_log(2 * HALF, system_fingerprint=["f1", "f2"] * HALF, reply_model=[None] * 2 * HALF)
    assert watch(fingerprints, certified()).status == "keep"


def test_probabilities_that_do_not_fit_ask_for_calibration():
    tune = production_log(400, rate=lambda _: 1.0, seed=3)
    right = np.where(tune.column("answer_margin") > 2, 1.0, 0.0)
    calibrator = Calibrator(per_round=False).fit(tune.column("answer_margin"), right, index=tune.index)
    policy = Policy(rule="p_correct >= 0.99", calibrators=(calibrator,), max_rounds=3)
    log = production_log(2000, policy=policy)
    result = watch(log, certified(policy))
    assert result.off == ["p_correct"]
    assert result.status == "recalibrate"
    assert "p_correct says" in result.sentence
    assert any(table.title.startswith("p_correct on audited requests") for table in result.tables())


def test_shadows_are_judged_beside_the_policy_where_the_rounds_ran():
    log = production_log(600, loss=lambda _: 0.4, **{"shadow.careful": [3.0] * 600, "shadow.hasty": [1.0] * 600})
    figures = {item.name: item for item in watch(log, certified()).shadows}
    assert figures["careful"].loss[0] == 0.0
    assert figures["careful"].stop == 3.0
    assert figures["hasty"].loss[0] >= figures["hasty"].own_loss[0] > 0
    assert figures["careful"].difference[0] == pytest.approx(-figures["careful"].own_loss[0])
    unknown = production_log(600, **{"shadow.late": [None] * 600})
    assert watch(unknown, certified()).shadows[0].unknown == 600


# Wrong inputs


def test_rows_of_other_policies_are_counted_and_not_judged():
    other = replace(POLICY, max_rounds=4)
    digests = [POLICY.digest] * 300 + [other.digest] * 100
    result = watch(production_log(400, policy_digest=digests), certified())
    assert result.n == 300
    assert any(f"100 requests of the policy {other.digest}" in note for note in result.notes)
    with pytest.raises(DataError, match=f"{POLICY.digest}"):
        watch(production_log(400, policy_digest=digests), replace(POLICY, max_rounds=5))


def test_requests_that_no_policy_decided_are_left_out_and_counted():
    reasons, ends = ["failed", "cancelled"] + ["max_rounds"] * 98, ["failed", "rule"] + ["max_rounds"] * 98
    result = watch(production_log(100, stop_reason=reasons, end=ends), certified())
    assert result.n == 98
    assert any("1 request that ended as failed" in note for note in result.notes)
    with pytest.raises(DataError, match="cancelled"):
        watch(production_log(5, stop_reason=["failed"] * 5, end=["failed"] * 5), certified())


def test_what_is_not_a_log_of_decisions_is_refused():
    log = production_log(20)
    with pytest.raises(DataError, match="audit=Audit"):
        watch(without(log, "stop_reason"), POLICY)
    for rate, words in ((0.0, "audit rate 0"), (1.5, "audit rate 1.5"), (None, "is missing")):
        with pytest.raises(DataError, match=words):
            watch(production_log(20, audit_rate=[rate] * 20, audited=[1.0] * 20), POLICY)
    with pytest.raises(DataError, match="between"):
        watch(log, POLICY, max_loss=2)
    with pytest.raises(NotFoundError, match="'nothing'"):
        watch(log, POLICY, metric="nothing")
    with pytest.raises(DataError, match="one request"):
        watch(log, POLICY, window=0)
    with pytest.raises(DataError, match="late"):
        watch(log, POLICY, since=BEGIN * 2)


def test_a_log_in_any_order_is_read_in_the_order_of_time(broken_log):
    rows = np.random.default_rng(0).permutation(broken_log.table.num_rows)
    shuffled = watch(Recording(broken_log.table.take(rows)), certified())
    assert shuffled.to_dict() == watch(broken_log, certified()).to_dict()
    timeless = watch(without(broken_log, "recorded_at"), certified())
    assert timeless.alarm == watch(broken_log, certified()).alarm
    assert any("recorded_at is missing" in note for note in timeless.notes)
    late = watch(broken_log, certified(), since=BEGIN + MINUTE * HALF)
    assert late.n == HALF
    assert any(f"{HALF:,} requests before the time" in note for note in late.notes)


def test_tune_questions_that_the_log_asks_again_are_said(healthy_log):
    log = healthy_log.select(np.arange(2 * HALF) < 600)
    result = watch(log, certified(), tune=log.select(np.arange(600) < 100))
    assert any("selected here: 100 requests ask a question of the tune recording" in note for note in result.notes)


# From the recorder to the verdict


def asked(recorder: Recorder, number: int, *, is_broken: bool) -> None:
    """Let a loop answer a question: a high margin says that the answer is final, until the field is broken."""
    rng = np.random.default_rng(number)
    final = int(rng.integers(1, 4))
    with recorder.question(f"what is {number}?", golds="a") as run:
        while not run.done or run.auditing:
            is_final = run.next_round >= final
            margin = rng.normal(3.0 if is_final or is_broken else 0.0, 0.1)
            run.observe(
                Round(
                    index=run.next_round,
                    answer="a" if is_final else "b",
                    signals={"answer_margin": float(margin)},
                    reply_model="m-1",
                )
            )


def test_what_a_recorder_logs_is_watched_from_a_folder(tmp_path):
    policy = certified(Policy(rule="answer_margin >= 1", max_rounds=3))
    tmp_path.joinpath("log").mkdir()
    audit = Audit(rate=0.8, seed=7)
    with closing(Recorder(tmp_path / "log", policy=policy, audit=audit, shadow=["fixed_k(2)"])) as recorder:
        for number in range(40):
            asked(recorder, number, is_broken=number >= 8)
    log = read_recording(tmp_path / "log")
    result = watch(log, policy, window=50)
    assert result.status == "fall back"
    assert result.alarm.rang >= 8
    assert (result.n, result.n_drawn) == (40, (log.column("audited")[:, 0] == 1).sum())
    assert [item.name for item in result.shadows] == ["round >= 2"]
    assert result.shadows[0].loss[0] < result.shadows[0].own_loss[0]
    assert audited_recording(log, policy).seen.all()


# What comes out


def test_the_result_is_json_tables_and_a_chart(broken_log):
    result = watch(broken_log, certified())
    values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (values["status"], values["sentence"]) == (result.status, result.sentence)
    assert values["alarm"]["rang"] == result.alarm.rang
    assert values["rang_at"]["request"] == broken_log.question_ids[result.alarm.rang]
    assert "ids" not in values
    table = result.table()
    assert [row[0] for row in table.rows[:2]] == ["all", "latest"]
    assert "2 older" not in str(table.notes)
    svg = result.plot().svg()
    assert "alarm" in svg
    assert "at most 3 points" in svg
    assert "The log" in [table.title for table in result.tables()]


def test_prometheus_reads_the_figures_of_several_policies(broken_log, healthy_log):
    results = watch(broken_log, certified()), watch(healthy_log, replace(certified(), name="other"))
    families = {item.name: item for item in text_string_to_metric_families(prometheus_text(*results))}
    alarms = {sample.labels["policy"]: sample.value for sample in families["suffice_alarm"].samples}
    assert alarms == {POLICY.label: 1.0, "other": 0.0}
    losses = {
        sample.labels["bound"]: sample.value
        for sample in families["suffice_audited_loss"].samples
        if sample.labels["policy"] == POLICY.label
    }
    assert tuple(losses[name] for name in ("mean", "low", "high")) == results[0].whole.interval
    stops = [sample.value for sample in families["suffice_log_stops"].samples if sample.labels["policy"] == "other"]
    assert sum(stops) == 2 * HALF
    saved = next(sample.value for sample in families["suffice_log_rounds_saved"].samples)
    assert saved == results[0].rounds_saved


def test_audited_requests_are_a_full_width_recording_for_calibration(healthy_log):
    audited = audited_recording(healthy_log, POLICY)
    assert audited.seen.all()
    assert {"policy_digest", "audit_rate", "stop_round"}.isdisjoint(audited.table.column_names)
    rows = {row.label: row for row in replay(audited, ["answer_margin >= 1"]).rows}
    assert rows["fixed_k(3)"].metrics["em"] == 1.0
    with pytest.raises(DataError, match="certify on"):
        audited_recording(production_log(50, rate=lambda _: 1e-12), POLICY)


def test_the_fallback_policy_never_stops_early_and_answers_as_before():
    safe = full_width(replace(certified(), selector="max_answer_margin"))
    assert safe.certificate is None
    assert (str(safe.rule), str(safe.selector), safe.max_rounds) == ("never()", "max_answer_margin", 3)
    row = replay(production_log(50, rate=lambda _: 1.0), [safe]).rows[0]
    assert row.costs["calls"] == 3.0


def test_gains_hide_losses_and_take_more_audits():
    plain = audits_needed(0.02, -1.0, alpha=0.05, rise=0.02)
    hidden = [audits_needed(0.02, -1.0, alpha=0.05, rise=0.02, gained=gained) for gained in (0.01, 0.05, 0.2, 0.9)]
    assert [plain, *hidden] == sorted([plain, *hidden])
    assert 3 < hidden[1] / plain < 10
    assert audits_needed(0.02, -1.0, alpha=0.05, rise=0.0005, gained=0.4) > 10_000
    assert 0 < audits_needed(0.5, 0.0, alpha=0.05, rise=0.9) < 20


# What is missing, cut off, changed or already said


def without_gold(log: Recording, lacks) -> Recording:
    """Return a log in which some questions have no gold answer."""
    table = log.table
    for name in ("em", "f1"):
        cells = [
            None if lacks(int(q)) else v for q, v in zip(log.row_question, table.column(name).to_pylist(), strict=True)
        ]
        table = table.set_column(table.column_names.index(name), table.schema.field(name), [cells])
    return Recording(table, log.metadata)


def test_questions_without_gold_leave_the_loss_as_it_is_where_rates_vary():
    log = production_log(4000, loss=lambda _: 0.5, rate=lambda number: (0.2, 0.25)[number // 2 % 2])
    all_gold = watch(log, certified()).whole.mean
    half = watch(without_gold(log, lambda number: number % 2), certified())
    assert half.whole.mean == pytest.approx(all_gold, abs=0.02), "not half of it"
    assert any("em is unknown in" in note for note in half.notes)
    drawn = log.column("audited")[:, 0] == 1
    judged = watch(without_gold(log, lambda number: not drawn[number]), certified())
    assert judged.whole.mean == pytest.approx(all_gold), "measured on audited requests alone"
    last = log.table.column("em").to_pylist()
    cut = [None if r == 3 and q % 5 == 0 else v
           for q, r, v in zip(log.row_question, log.table.column("round").to_pylist(), last, strict=True)]  # fmt: skip
    table = log.table.set_column(log.table.column_names.index("em"), log.table.schema.field("em"), [cut])
    unmeasured = watch(Recording(table, log.metadata), certified())
    whole = unmeasured.whole
    assert whole.mean == pytest.approx(all_gold, abs=0.02)
    known = watch(log, certified()).whole
    assert whole.low < known.low, "none is evidence"
    assert whole.high >= known.high, "each may be a loss"


def test_where_rates_vary_audited_requests_alone_are_weighted_too():
    log = production_log(400, loss=lambda n: 1.0 if n % 2 else 0.0, rate=lambda n: (0.5, 1.0)[n % 2], audited=[1.0] * 400,
                         end=["max_rounds"] * 400, policy=replace(POLICY, rule="answer_margin >= -9"))  # fmt: skip
    losses = audited_losses(Requests.of(log, replace(POLICY, rule="answer_margin >= -9")), LossClaim(metric="em"))
    assert losses.least_rate == 0.5
    assert losses.values.tolist() == (losses.loss / losses.rates).tolist()


def test_a_grown_logs_evidence_starts_with_its_earlier_evidence():
    log = production_log(
        1200, loss=lambda _: 0.2, rate=lambda number: 0.3 if number < 600 else 0.1 if number < 900 else 0.4
    )
    whole = watch(log, certified())
    paths = []
    for n in (600, 800, 1200):
        requests = Requests.of(log.select(np.arange(1200) < n), POLICY)
        losses = audited_losses(requests, LossClaim(metric="em", kind="harm"))
        path = loss_alarm(losses, 0.03, n, alpha=0.05)[1]
        paths.append(dict(zip(losses.places.tolist(), path.tolist(), strict=True)))
    for earlier, later in itertools.pairwise(paths):
        assert [later[place] for place in earlier] == pytest.approx([*earlier.values()])
    assert whole.alarm.e_value == pytest.approx(math.exp(paths[-1][max(paths[-1])]))
    assert any("each time that it falls they begin anew" in note for note in whole.notes)


def test_a_window_without_audits_has_no_loss_where_rates_vary():
    result = watch(
        production_log(1200, rate=lambda number: 0.001 if number >= 600 else 0.5, seed=2), certified(), window=600
    )
    latest = result.windows[0]
    assert (latest.n_audited, latest.low, latest.high) == (0, 0.0, 1.0)
    assert math.isnan(latest.mean)


def test_a_running_audit_delays_later_requests_until_its_deadline():
    log = production_log(1000, loss=lambda _: 0.0, lost=lambda number: number >= 940)
    end = BEGIN + MINUTE * 1000
    result = watch(log, certified(), now=end)
    assert (result.n_lost, result.status) == (0, "keep")
    pending = [n for n in range(940, 1000) if log.column("audited")[n, 0] == 1 and log.seen[n].sum() < 3]
    assert result.n_audited == (log.column("audited")[: pending[0], 0] == 1).sum()
    assert any(f"the audit of q{pending[0]} may still run" in note for note in result.notes)
    for later in (watch(log, certified(), now=end + 3600), watch(log, certified(), now=end, deadline=0.0)):
        assert later.n_lost == len(pending)


def test_draws_that_the_rates_do_not_explain_are_said():
    log = production_log(1000)
    drawn = log.column("audited")[:, 0] == 1
    assert not any("no chance" in note for note in watch(log, certified()).notes)
    few = watch(log.select(~drawn | (np.arange(1000) < 300)), certified())
    assert any("Audited requests are missing from the log" in note for note in few.notes)
    many = watch(log.select(drawn), certified())
    assert any("Requests that were not drawn are missing" in note for note in many.notes)
    with pytest.raises(DataError, match="drawn"):
        watch(without(log, "audited"), certified())


def test_a_suspended_certificate_is_never_kept(healthy_log):
    suspended = certified().suspended_because("it rang in May")
    result = watch(healthy_log, suspended)
    assert result.status == "re-certify"
    assert result.sentence.startswith("Certify again: the certificate is suspended: it rang in May.")
    assert "suspended" in watch(healthy_log, suspended, metric="f1").sentence


def test_signals_that_cannot_say_anything_are_refused_or_said(healthy_log):
    log = healthy_log.select(np.arange(2 * HALF) < 100)
    now, first = BEGIN + MINUTE * 100, log.question_ids[0]

    def judged(*signal: UserSignal, deadline: float | None = 600.0):
        return watch(log, POLICY, signal=signal, deadline=deadline, now=now, max_loss=0.1)

    for deadline in (None, 0.0):
        with pytest.raises(DataError, match="deadline"):
            judged(UserSignal(request=first, value=1.0, time=BEGIN + 1), deadline=deadline)
    with pytest.raises(DataError, match="'session-1'"):
        judged(UserSignal(request="session-1", value=1.0, time=BEGIN + 1))
    for time in (math.nan, math.inf, 1000 * BEGIN):
        with pytest.raises(DataError, match="milliseconds"):
            judged(UserSignal(request=first, value=1.0, time=time))
    early = judged(UserSignal(request=first, value=1.0, time=BEGIN - 7200))
    assert any("1 signal came before the request" in note for note in early.notes)
    assert any("the last signal came at 2025-12-31 22:00 UTC" in note for note in early.notes)
    silent = judged()
    assert any("no signal at all" in note for note in silent.notes)
    assert "requests past their deadline" in silent.sentence


def test_a_signal_may_name_the_run_of_a_repeated_question(tmp_path):
    with closing(Recorder(tmp_path / "log", policy="answer_stable")) as recorder:
        runs = []
        for _ in range(2):
            with recorder.question("Where is the tower?") as run:
                while not run.done:
                    run.observe("Oslo")
            runs.append(run.run)
    log, policy = read_recording(tmp_path / "log"), recorder.policy
    times = log.column("recorded_at")[:, 0]

    def judged(name: str):
        signal = [UserSignal(request=name, value=1.0, time=float(times[1]) + 1)]
        return watch(log, policy, signal=signal, deadline=3600.0, now=float(times[1]) + 7200, max_loss=0.5, window=1)

    for place, name in enumerate(runs):
        result = judged(name)
        assert [window.mean for window in reversed(result.windows)] == [place == 0, place == 1]
        assert not any("give its run" in note for note in result.notes)
    assert any(
        "1 signal of a question that was asked several times" in note for note in judged(log.question_ids[1]).notes
    )


# Golds that come late


def late_golds(n: int, *, loss: float, days: float, seed: int, now: float, per_day: int = 40):
    """Return a log in which the golds of losses come at once, and those of all others some days later.

    Every request is audited and stopped before the last round; of two answers that differ the full run's is right.
    """
    rng = np.random.default_rng(seed)
    lost, due = rng.random(n) < loss, rng.exponential(days, n)
    times = BEGIN + np.arange(n) * 86_400.0 / per_day
    due = np.where(lost, times, times + 86_400.0 * due)
    shown = np.flatnonzero(times < now)
    return recording_of(
        [["b" if lost[i] else "a", "a", "a"] for i in shown],
        kinds={"answer_margin": "signal"},
        em=[[None] * 3 if due[i] > now else [1.0 - lost[i], 1.0, 1.0] for i in shown],
        answer_margin=2.0,
        policy_digest=POLICY.digest,
        stop_round=1.0,
        answer_round=1.0,
        stop_reason="rule",
        audit_rate=1.0,
        audited=1.0,
        end="max_rounds",
        recorded_at=times[shown].tolist(),
    )


def looks_at(seed: int, *, loss: float, days: float, n: int = 1200, kind: str = "net"):
    """Return what a watch says every twenty days of a log whose golds come late."""
    policy = replace(certified(), certificate=None) if kind == "net" else certified()
    end = int(n / 40)
    for day in range(10, end + 1, 20):
        now = BEGIN + day * 86_400.0 + 90_000.0
        log = late_golds(n, loss=loss, days=days, seed=seed, now=now)
        yield watch(log, policy, metric="em", max_loss=0.03, now=now)


@cache
def rung_at(seed, *, loss, days, kind):
    """Return whether the alarm rang at each look."""
    return [result.rang for result in looks_at(seed, loss=loss, days=days, kind=kind)]


def test_losses_whose_golds_come_first_do_not_alarm_at_the_bound():
    rang = sum(any(rung_at(seed, loss=0.03, days=15.0, kind="net")) for seed in range(6))
    assert rang <= 1


@pytest.mark.parametrize(("loss", "days"), [(0.03, 15.0), (0.15, 3.0)])
def test_an_alarm_that_has_rung_stays_so_whatever_golds_come_later(loss, days):
    for kind, seed in itertools.product(("net", "harm"), range(2)):
        rang = rung_at(seed, loss=loss, days=days, kind=kind)
        assert rang == sorted(rang)
        assert rang[-1] == (loss > 0.1)


def test_a_missing_gold_delays_later_requests_until_its_deadline():
    log = production_log(
        600, loss=lambda number: float(number == 400), rate=lambda _: 1.0, margin=lambda number: 2.0 * (number == 400)
    )
    lacking = without_gold(log, lambda number: number == 400)
    end = BEGIN + 600 * MINUTE
    waits = watch(lacking, certified(), metric="em", now=end)
    assert (waits.n_audited, waits.n_missing) == (400, 0)
    assert any("200 audited requests not used yet: q400 has no gold or mark yet" in note for note in waits.notes)
    for later in (
        watch(lacking, certified(), metric="em", now=end + 7 * 86_400),
        watch(lacking, certified(), metric="em", now=end, gold_deadline=0.0),
    ):
        assert (later.n_audited, later.n_missing) == (599, 1)
        known = watch(log, certified(), metric="em")
        assert later.alarm.highest <= known.alarm.highest
        assert later.whole.low == known.whole.low == 0.0
        assert later.whole.high == known.whole.high, "it may be a loss"
        assert later.whole.mean == 1 / 600, "no other answer differs"
        assert later.status == "keep"
    assert watch(lacking, POLICY, metric="agreement", max_loss=0.03, now=end).n_audited == 600, (
        "agreement needs no gold"
    )
    with pytest.raises(DataError, match="gold_deadline"):
        watch(log, certified(), gold_deadline=math.nan)


def test_a_missing_gold_is_least_for_alarms_and_worst_for_intervals():
    log = production_log(400, loss=lambda _: 0.3, rate=lambda _: 1.0)
    lacking = without_gold(log, lambda number: number % 5 == 2)
    for kind, least in (("net", -1.0), ("harm", 0.0)):
        losses = audited_losses(Requests.of(lacking, POLICY), LossClaim(metric="em", kind=kind))
        missing = ~losses.known
        differs = log.answers[:, 0] != log.answers[:, 2]
        assert losses.n_missing == missing.sum() == (differs & (np.arange(400) % 5 == 2)).sum() > 0
        assert set(losses.loss[missing]) == {least}
        assert set(losses.most[missing]) == {1.0}


# Audits whose seed was changed


def test_a_changed_seed_of_the_audit_lets_no_question_count_twice():
    names = [f"c{number % 400}" for number in range(800)]
    log = production_log(800, loss=lambda _: 0.5, cluster=names)
    drawn = log.column("audited")[:, 0] == 1
    assert (drawn[:400] != drawn[400:]).any(), "as after a new key"
    assert watch(log, certified()).n_audited == drawn[:400].sum()


def test_a_recorder_says_which_requests_it_drew_by_themselves(tmp_path):
    audit = Audit(rate=0.5, seed=3)
    with closing(Recorder(tmp_path / "log", policy="answer_stable", audit=audit)) as recorder:
        for number in range(12):
            with recorder.question("Where is the tower?", request_id=str(number) if number % 2 else None) as run:
                while not run.done or run.auditing:
                    run.observe("Oslo")
    log = read_recording(tmp_path / "log")
    units = log.per_question("audit_unit", [])
    assert units.tolist() == [None, "request"] * 6
    requests = Requests.of(log, recorder.policy)
    assert requests.counting.tolist() == [number % 2 == 1 or number == 0 for number in range(12)]


# What the latest audits would have shown


def test_a_late_rise_needs_more_audits_as_the_sentence_says():
    result = watch(production_log(4000, rate=lambda _: 1.0), certified())
    early, late = (audits_needed(0.03, 0.0, alpha=result.risk, rise=0.05, before=before) for before in (0, 4000))
    assert early < late
    assert (result.status, result.noticed) == ("keep", late)
    assert f"A loss of 8 points that has lasted for the latest {late} audits would have rung" in result.sentence
    assert "a younger one may not show yet" in result.sentence
    assert "would have been noticed" not in STATUSES["keep"]


@pytest.mark.parametrize(("bound", "low", "gained"), [(0.02, 0.0, 0.0), (0.05, -1.0, 0.05)])
def test_the_named_number_of_audits_notices_four_of_five_rises(bound, low, gained):
    rng = np.random.default_rng(1)
    before, n_logs = 2000, 60
    n = audits_needed(bound, low, alpha=0.05, rise=0.05, gained=gained, before=before)

    def losses(size: int, share: float) -> np.ndarray:
        draws = rng.random((n_logs, size))
        return np.where(draws < share + gained, 1.0, np.where(draws > 1 - gained, -1.0, 0.0))

    alarm = Alarm.start(bound, 0.05, low=low, shape=(n_logs,)).observe(losses(before, bound / 4))
    assert alarm.observe(losses(n, bound + 0.05)).rings.mean() > 0.75


def test_a_watch_repeats_what_was_doubtful_when_the_log_was_imported():
    log = production_log(100)
    reading = {"cautions": {"drafts": "no answer occurs twice"}, "expected": {}}
    doubtful = Recording(log.table, {**log.metadata, "reading": reading})
    notes = watch(doubtful, POLICY, max_loss=0.1).notes
    assert any("no answer occurs twice" in note for note in notes)
    assert not any("no answer occurs twice" in note for note in watch(log, POLICY, max_loss=0.1).notes)
