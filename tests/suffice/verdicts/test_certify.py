"""Certificates: what is compared, which family, what is refused, and when a certificate is void."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from suffice import Policy, calibrate, parse_rule
from suffice.errors import CensoredError, ConfigMismatchError, DataError, NotFittedError, RuleSyntaxError, SchemaError
from suffice.evaluation.replay import replay, tuned_on
from suffice.evaluation.replay.outcomes import outcome
from suffice.evaluation.statistics import Resampling, betting_p_value, hoeffding_bentkus_p_value
from suffice.policy.rules import parse_selector
from suffice.policy.seen import id_hash
from suffice.policy.session import stops
from suffice.recordings import Recording
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import (
    Certificate,
    Claim,
    arranged,
    certify,
    listed,
    measure_losses,
    path_values,
    questions_needed,
    threshold_path,
)
from suffice.verdicts.certificates.ltt import MOST_QUESTIONS
from tests.support.certify_tools import planted, rows

EASY = Claim(epsilon=0.05)


@pytest.fixture(scope="module")
def tune():
    return planted(80, seed=1, prefix="tune")


@pytest.fixture(scope="module")
def fresh():
    """Certification questions: 1 in 100 is a trap."""
    return planted(300, seed=2, prefix="cert", traps=0.01)


@pytest.fixture(scope="module")
def policy(tune):
    return calibrate(tune, rule="tasr")[0]


@pytest.fixture(scope="module")
def family(policy, tune):
    return threshold_path(policy, "p_correct", path_values(policy, "p_correct", tune))


@pytest.fixture(scope="module")
def certified(fresh, family, tune):
    return certify(fresh, family, EASY, tune=tune)


def altered(recording, **changes):
    """The recording with other cells: a value, or a function of the row."""
    table = recording.table.to_pylist()
    for row in table:
        for name, change in changes.items():
            row[name] = change(row) if callable(change) else change
    return Recording(build_table(table), recording.metadata)


# The whole


def test_a_planted_recording_certifies_the_cheapest_policy_that_passes(certified, fresh):
    assert certified.policy is not None
    certificate = certified.certificate
    calls = certified.measured.costs["calls"].mean(axis=1)
    assert certified.certified.any()
    assert calls[certificate.position] == calls[certified.certified].min()
    assert certificate.p_value <= certificate.level == 0.05
    assert certificate.figures["calls"] < 0.75 * certificate.figures["baseline_calls"]
    assert certificate.n == 300
    assert certificate.data_hash == fresh.data_hash
    assert certificate.question_ids == tuple(sorted(map(id_hash, fresh.question_ids)))
    assert certified.policy.certified
    assert "selected here" in certified.headline.lower()
    assert "selected here" in " ".join(certified.table().notes)


def test_figures_are_those_of_replay(certified, fresh):
    row = replay(fresh, [replace(certified.policy, name="ours")], metrics=("f1",), baseline="full").row("ours")
    figures = certified.certificate.figures
    assert figures["value"] == pytest.approx(row.metrics["f1"])
    assert figures["loss"] == pytest.approx(-row.deltas["f1"].delta)
    assert figures["calls"] == pytest.approx(row.calls.mean)
    assert figures["tokens"] == pytest.approx(row.costs["tokens"])


def test_the_certificate_belongs_to_the_chosen_policy_wherever_it_stands(fresh, policy):
    found = certify(fresh, listed(["fixed_k(4)", policy], policy), EASY)
    assert found.certificate.position == 1
    assert found.policy.rule == policy.rule
    assert found.policy.certified


def test_every_certified_policy_passed_and_so_did_all_before_it(certified):
    passed = certified.p_values <= 0.05
    assert certified.certified.tolist() == np.logical_and.accumulate(passed).tolist()


def test_bonferroni_divides_delta_and_needs_no_order(fresh, family, tune):
    found = certify(fresh, family, EASY, procedure="bonferroni", tune=tune)
    assert found.level == pytest.approx(0.05 / len(found.family.policies))
    assert found.certified.tolist() == (found.p_values <= found.level).tolist()


def test_the_cheapest_may_be_chosen_by_tokens(fresh, family):
    found = certify(fresh, family, EASY, cheapest="tokens")
    tokens = found.measured.costs["tokens"].mean(axis=1)
    assert tokens[found.certificate.position] == tokens[found.certified].min()


def test_the_answer_does_not_depend_on_the_order_of_the_rows(fresh, family, certified, tune):
    table = fresh.table.to_pylist()
    np.random.default_rng(5).shuffle(table)
    found = certify(Recording(build_table(table), fresh.metadata), family, EASY, tune=tune)
    assert found.p_values.tolist() == certified.p_values.tolist()


def test_the_betting_order_follows_from_question_names(fresh, policy, certified):
    names = np.array([id_hash(f"certify, order:{name}") for name in fresh.question_ids])
    expected = [id_hash(fresh.question_ids[place]) for place in np.argsort(names)]
    assert list(certified.measured.question_ids) == expected
    assert "seed" not in certified.to_dict()["claim"]
    assert "seed" not in certified.certificate.to_dict()
    assert ("questions", f"300 (recording {fresh.data_hash}), order of betting: hash of their names") in [
        row[:2] for row in certified.certificate.table().rows
    ]
    renamed = altered(fresh, question_id=lambda row: f"other {row['question_id']}")
    family = listed([policy], policy)
    assert certify(renamed, family, EASY).p_values != certify(fresh, family, EASY).p_values


def test_a_certificate_with_a_seed_from_an_earlier_release_still_loads(certified, tmp_path):
    stored = {**certified.certificate.to_dict(), "seed": 42, "n_failed": 3}
    del stored["leave_out_failed"]
    replace(certified.policy, certificate=stored).save(tmp_path / "old.json")
    old = Certificate.of(Policy.load(tmp_path / "old.json"))
    assert (old.seed, old.leave_out_failed) == (42, True)
    assert "3 questions failed while recording and are left out, so it says nothing about such" in old.statement
    assert "order of betting: seed 42" in dict(row[:2] for row in old.table().rows)["questions"]
    assert old.to_dict() == {**stored, "leave_out_failed": True}


def test_a_certification_is_json(certified, fresh, family, tune):
    data = json.loads(json.dumps(certified.to_dict(), allow_nan=False))
    assert data["certified"] is True
    assert data["certificate"]["policy_digest"] == certified.policy.digest
    poor = certify(planted(20, seed=3, prefix="few"), family, EASY, tune=tune).to_dict()
    assert json.loads(json.dumps(poor, allow_nan=False))["certificate"] is None


# Losses


def test_losses_equal_plain_loops(fresh, policy):
    claims = {kind: Claim(epsilon=0.1, loss=kind, baseline="fixed_k(2)") for kind in ("net", "harm")}
    found = {kind: measure_losses(fresh, [policy], claim) for kind, claim in claims.items()}
    metric = outcome(fresh, "f1")
    rounds = stops(policy, fresh.rounds(policy.raw_columns)).rounds
    expected = {}
    for q, question_id in enumerate(fresh.question_ids):
        expected[id_hash(question_id)] = metric[q, 1] - metric[q, rounds[q] - 1]
    for kind, measured in found.items():
        wanted = [expected[item] for item in measured.question_ids]
        assert measured.losses[0].tolist() == (wanted if kind == "net" else [max(0.0, loss) for loss in wanted])
        assert measured.baseline == "fixed_k(2)"
        assert set(measured.baseline_costs["calls"].tolist()) == {2.0}
    assert (found["net"].losses < 0).any()


def test_harm_is_never_below_net_and_graded_harm_is_tested_by_betting(fresh, policy):
    family = listed([policy], policy)
    net, harm = (certify(fresh, family, Claim(epsilon=0.05, loss=kind)) for kind in ("net", "harm"))
    assert (harm.measured.losses >= net.measured.losses).all()
    ordered = harm.measured.losses
    assert harm.p_values.tolist() == betting_p_value(ordered, 0.05, level=harm.level).tolist()
    binary = certify(fresh, family, Claim(epsilon=0.05, loss="harm", metric="em"))
    assert binary.p_values.tolist() == binary.reference.tolist()
    assert net.p_values[0] < net.reference[0]


def test_any_baseline_that_replay_knows(fresh, policy):
    family = listed([policy], policy)
    for baseline in (
        "full",
        "fixed_k(2)",
        "answer_stable",
        "oracle_best",
        "oracle_earliest",
        replace(policy, name="p"),
    ):
        found = certify(fresh, family, Claim(epsilon=0.5, baseline=baseline))
        name = baseline if isinstance(baseline, str) else "p"
        assert found.measured.baseline == name
        assert name in found.certificate.statement
    itself = certify(fresh, family, Claim(epsilon=0.5, baseline=policy))
    assert not itself.measured.losses.any()
    with pytest.raises(ConfigMismatchError, match="round 0"):
        certify(fresh, family, Claim(epsilon=0.5, baseline="closed_book"))
    with pytest.raises(RuleSyntaxError):
        certify(fresh, family, Claim(epsilon=0.5, baseline="random(tasr)"))
    with pytest.raises(DataError, match="em"):
        certify(without(fresh, "em"), family, Claim(epsilon=0.5, baseline="oracle_earliest"))


def without(recording, name):
    return Recording(recording.table.drop_columns([name]), recording.metadata)


def test_the_closed_book_is_a_baseline_where_it_was_recorded(policy):
    table = rows(40, seed=4, prefix="c")
    table += [{**row, "round": 0, "answer": "no idea", "em": 0.0, "f1": 0.0} for row in table if row["round"] == 1]
    recording = Recording(build_table(table))
    found = certify(recording, listed([policy], policy), Claim(epsilon=0.5, baseline="closed_book"))
    assert found.measured.losses.max() <= 0
    assert "nothing to lose" in " ".join(found.measured.notes)


def test_rows_that_repeat_a_question_count_once_with_their_mean(fresh, policy):
    table = [{**row, "cluster": row["question_id"]} for row in fresh.table.to_pylist()]
    again = [{**row, "question_id": f"{row['question_id']}@2", "answer": "x", "em": 0.0, "f1": 0.0} for row in table]
    family = listed([policy], policy)
    found, alone = (certify(Recording(build_table(rows)), family, EASY) for rows in (table + again, table))
    assert found.n == 300
    assert found.measured.question_ids == alone.measured.question_ids
    np.testing.assert_allclose(found.measured.losses, alone.measured.losses / 2)  # the second row never loses
    np.testing.assert_allclose(found.measured.values, alone.measured.values / 2)
    assert "600 rows repeat 300 questions" in found.measured.notes[0]
    assert set(map(id_hash, (row["question_id"] for row in table + again))) == set(found.certificate.question_ids)


@pytest.mark.whole
def test_no_order_of_rows_of_a_question_makes_a_false_certificate():
    rng, runs, n, reruns = np.random.default_rng(2), 40, 150, 3
    certified = 0
    for _ in range(runs):  # a true loss of epsilon, and the rerun that loses last in the file
        chance = rng.choice([0, 0.25], n, p=[0.8, 0.2])
        lost = np.sort(rng.random((n, reruns)) < chance[:, None], axis=1).ravel()
        ids = [f"{value:x}" for value in rng.integers(1 << 60, size=n * reruns)]
        rows = [
            {
                "question_id": name,
                "round": r,
                "answer": "a",
                "score": 1.0 - (loss and r == 1),
                "cluster": f"{place // 3}",
            }
            for place, (name, loss) in enumerate(zip(ids, lost, strict=True))
            for r in (1, 2)
        ]
        recording = Recording(build_table(rows, {"score": "metric"}))
        certified += certify(recording, ["fixed_k(1)"], Claim(epsilon=0.05, metric="score")).policy is not None
    assert certified <= 7  # two are expected at most; of forty first rows all certified


def test_means_of_rows_get_no_test_for_losses_of_0_and_1(fresh, policy):
    table = fresh.table.to_pylist()
    again = [{**row, "question_id": f"{row['question_id']}@2", "cluster": row["question_id"]} for row in table]
    doubled = Recording(build_table([{**row, "cluster": row["question_id"]} for row in table] + again))
    claim = Claim(epsilon=0.1, metric="em", loss="harm")
    methods = [
        certify(each, listed([policy], policy), claim).certificate.method
        for each in (Recording(build_table(table)), doubled)
    ]
    assert ["binary" in method for method in methods] == [True, False]


def test_a_question_under_two_ids_counts_once(fresh, policy):
    told = [{**row, "question": f"Which of {row['question_id']}?"} for row in fresh.table.to_pylist()]
    again = [{**r, "question_id": f"again {r['question_id']}", "question": f"  {r['question'].upper()} "} for r in told]
    kinds = dict.fromkeys(fresh.names("signal"), "signal")
    doubled = Recording(build_table([*told, *again], kinds=kinds), fresh.metadata)
    found = certify(doubled, listed([policy], policy), Claim(epsilon=0.05, metric="em"))
    assert found.n == len(fresh.question_ids)
    assert any("by cluster or text" in note for note in found.measured.notes)


def with_failures(recording, n):
    """The recording, in which the first n questions failed."""
    failed = set(recording.question_ids[:n])
    return altered(recording, end=lambda row: "failed" if row["question_id"] in failed else "max_rounds")


def test_failed_questions_count_as_lost_and_the_sentence_says_so(fresh, policy):
    easy = replace(EASY, epsilon=0.2)
    found = certify(with_failures(fresh, 7), listed([policy], policy), easy)
    assert (found.n, found.certificate.n_failed) == (300, 7)
    assert (found.measured.losses == 1).sum() >= 7
    alone = certify(with_failures(fresh, 7), listed([policy], policy), replace(easy, leave_out_failed=True))
    assert found.measured.losses.sum() == pytest.approx(alone.measured.losses.sum() + 7)
    assert found.certificate.figures["calls"] == alone.certificate.figures["calls"]
    words = "7 questions failed while recording and count as lost"
    assert words in found.headline
    assert words in found.certificate.statement
    assert words in " ".join(found.certificate.notes)
    assert "leave-out-failed" in " ".join(found.certificate.notes)
    assert found.to_dict()["failed"] == 7
    poor = certify(with_failures(fresh, 60), listed([policy], policy), EASY)
    assert poor.policy is None
    assert "60 questions failed while recording and count as lost" in poor.headline
    assert Certificate.from_dict(found.certificate.to_dict()) == found.certificate


def test_failed_questions_are_left_out_where_that_is_declared(fresh, policy):
    found = certify(with_failures(fresh, 7), listed([policy], policy), replace(EASY, leave_out_failed=True))
    assert (found.certificate.n, found.certificate.n_failed, found.certificate.leave_out_failed) == (293, 7, True)
    assert "7 questions failed while recording and are left out, so it says nothing about such" in found.headline
    assert "does not cover such questions" in " ".join(found.certificate.notes)


def test_long_questions_that_failed_make_no_false_certificate():
    rng, certified = np.random.default_rng(1), 0
    for _ in range(60):  # a true loss of 5 points, bounded by 4; most of the questions that lose failed
        late = rng.random(300) < 0.05
        failed = late & (rng.random(300) < 0.9)
        ids = [f"{value:x}" for value in rng.integers(1 << 60, size=300)]
        rows = [
            {
                "question_id": name,
                "round": r,
                "answer": "a",
                "score": float(r == 3 or not lost),
                "end": "failed" if fails else "max_rounds",
            }
            for name, lost, fails in zip(ids, late, failed, strict=True)
            for r in (1, 2, 3)
        ]
        recording = Recording(build_table(rows, {"score": "metric"}))
        certified += certify(recording, ["fixed_k(1)"], Claim(epsilon=0.04, metric="score")).policy is not None
    assert certified <= 9  # three are expected at most, and of those that failed were left out more than 50


def test_agreement_needs_no_gold_answers_and_says_what_it_is(fresh, policy):
    bare = without(without(fresh, "em"), "f1")
    found = certify(bare, listed([policy], policy), Claim(epsilon=0.2, metric="agreement", loss="harm"))
    assert found.measured.baseline_values.all()
    assert "sameness" in " ".join(found.certificate.notes)
    assert "binary" in found.certificate.method


@pytest.mark.parametrize(
    ("metric", "binary"),
    [("em", True), ("contains", True), ("agreement", True), ("f1 > 0.5", True), ("f1", False), ("agreement_f1", False)],
)
def test_only_metrics_that_are_binary_by_definition_get_the_exact_tail(metric, binary):
    claim = Claim(epsilon=0.1, metric=metric, loss="harm")
    assert claim.binary == binary
    losses = np.zeros((1, 40))
    losses[0, 0] = 1.0
    expected = hoeffding_bentkus_p_value(1 / 40, 40, 0.1, binary=True) if binary else betting_p_value(losses, 0.1)
    assert claim.p_values(losses, 0.05).item() == pytest.approx(np.asarray(expected).item())


def test_a_column_that_borrows_the_name_of_a_binary_metric_is_refused(fresh, policy):
    graded = altered(fresh, em=lambda row: 0.5 * row["em"])
    with pytest.raises(DataError, match="another name"):
        certify(graded, listed([policy], policy), Claim(epsilon=0.1, metric="em", loss="harm"))


# Families


@pytest.mark.parametrize("comparison", [">", ">=", "<", "<="])
def test_a_path_runs_from_conservative_to_cheap(fresh, policy, comparison):
    varied = replace(policy, rule=parse_rule(f"(answer_stable >= 1) | (p_correct {comparison} 0.5)"))
    path = threshold_path(varied, "p_correct", [0.9, 0.0, 0.4, 0.4, 1.0, 0.7])
    calls = measure_losses(fresh, path.policies, EASY).costs["calls"].mean(axis=1)
    assert len(path.policies) == 5
    assert (np.diff(calls) <= 0).all()
    assert calls[0] > calls[-1]


def test_path_values_span_what_tune_questions_take(policy, tune):
    values = path_values(policy, "p_correct", tune, 9)
    view = policy.view(tune.rounds(policy.raw_columns))["p_correct"]
    assert len(values) == 9
    assert (values[0], values[-1]) == pytest.approx((np.nanmin(view), np.nanmax(view)), rel=1e-3)


def test_what_is_idle_on_tune_questions_is_left_out(tune, policy):
    path = threshold_path(policy, "p_correct", [-1.0, 0.5, 0.5001, 2.0])
    kept = arranged(path, tune, EASY)
    measured = measure_losses(tune, kept.policies, EASY)
    assert all(measured.costs["calls"].mean(axis=1) < 5)
    assert len({row.tobytes() for row in measured.costs["calls"]}) == len(kept.policies) < 4
    assert "p_correct > 2" not in " ".join(member.label for member in kept.policies)
    assert set(map(id_hash, tune.question_ids)) <= kept.seen.ids
    with pytest.raises(DataError, match="saves calls"):
        arranged(threshold_path(policy, "p_correct", [2.0]), tune, EASY)


def test_a_list_is_ordered_by_tune_p_values_or_as_given(tune, policy):
    texts = ["fixed_k(1)", "tasr", "fixed_k(3)", "fixed_k(4)"]
    family = listed(texts, policy)
    assert [member.label for member in family.policies] == texts
    kept = arranged(family, tune, EASY)
    p = EASY.p_values(measure_losses(tune, kept.policies, EASY).losses, 0.05)
    assert (np.diff(p) >= 0).all()
    assert kept.policies[-1].label == "fixed_k(1)"


def test_a_list_holds_policies_and_rules_and_none_twice(policy):
    other = replace(policy, rule=parse_rule("fixed_k(2)"), name="")
    family = listed([policy, "fixed_k(3)", parse_rule("fixed_k(4)")], policy)
    assert family.policies[1].calibrators == policy.calibrators
    assert family.policies[2].label == "round >= 4"
    with pytest.raises(DataError, match="twice"):
        listed([other, "round >= 2"], policy)
    with pytest.raises(DataError, match="no policies"):
        listed([], policy)
    with pytest.raises(DataError, match="no values"):
        threshold_path(policy, "p_correct", [])


# What is refused


def test_questions_that_were_used_before_are_refused(tune, fresh, policy, family, certified):
    with pytest.raises(ConfigMismatchError, match="of the 80"):
        certify(tune, listed([policy], policy), EASY)
    mixed = Recording(build_table(tune.table.to_pylist()[:15] + fresh.table.to_pylist()))
    with pytest.raises(ConfigMismatchError, match="of the 303"):
        certify(mixed, family, EASY, tune=planted(20, seed=9, prefix="other"))
    with pytest.raises(ConfigMismatchError, match="of the 300"):
        certify(fresh, listed(["fixed_k(3)"], Policy()), EASY, tune=fresh)
    with pytest.raises(ConfigMismatchError, match="of the 300"):  # a certificate has chosen on them
        certify(fresh, listed([certified.policy], policy), EASY)
    with pytest.raises(ConfigMismatchError, match="of the 80"):  # the baseline was fitted there
        certify(tune, listed(["fixed_k(3)"], Policy()), Claim(epsilon=0.1, baseline=policy))


def test_a_question_under_another_row_id_is_still_the_same_question(tune, policy):
    recording = altered(tune, cluster=lambda row: row["question_id"], question_id=lambda row: f"{row['question_id']}@b")
    with pytest.raises(ConfigMismatchError, match="of the 80"):
        certify(recording, listed([policy], policy), EASY)


def test_fitted_state_of_unknown_origin_is_refused(fresh, policy):
    stray = replace(policy, provenance={})
    with pytest.raises(ConfigMismatchError, match="tune_ids"):
        certify(fresh, listed([stray], stray), EASY)
    with pytest.raises(NotFittedError, match="p_correct"):
        certify(altered(fresh, p_correct=0.5), listed(["tasr"], Policy()), EASY)
    recording = Recording(fresh.table, {"depends": {"model": "a"}})
    with pytest.raises(ConfigMismatchError, match="model"):
        certify(recording, listed([replace(policy, depends={"model": "b"})], policy), EASY)


def test_beyond_a_cut_baselines_are_refused_and_policies_lose(fresh):
    cut = set(fresh.question_ids[:5])
    table = [row for row in fresh.table.to_pylist() if row["question_id"] not in cut or row["round"] <= 4]
    for row in table:
        row["end"] = "rule" if row["question_id"] in cut else "max_rounds"
    recording = Recording(build_table(table))
    family = listed(["fixed_k(3)"], Policy())
    with pytest.raises(CensoredError, match="5 of 300"):
        certify(recording, family, EASY)
    assert certify(recording, family, Claim(epsilon=0.3, baseline="fixed_k(4)")).policy is not None
    beyond = certify(recording, listed(["never()"], Policy()), Claim(epsilon=0.3, baseline="fixed_k(2)"))
    whole = certify(fresh, listed(["never()"], Policy()), Claim(epsilon=0.3, baseline="fixed_k(2)"))
    places = [beyond.measured.question_ids.index(id_hash(name)) for name in cut]
    second = outcome(fresh, "f1")[[fresh.question_ids.index(name) for name in cut], 1]
    assert beyond.measured.losses[0, places].tolist() == second.tolist()
    others = np.setdiff1d(np.arange(300), places)
    assert (beyond.measured.losses[0, others] == whole.measured.losses[0, others]).all()
    assert any("goes on past what was recorded in 5 questions" in note for note in beyond.measured.notes)


def test_metrics_outside_their_range_or_missing_are_refused(fresh, policy):
    family = listed([policy], policy)
    table = altered(fresh, score=lambda row: 5.0 * row["f1"])
    with pytest.raises(DataError, match="rescale"):
        certify(table, family, Claim(epsilon=0.1, metric="score"))
    with pytest.raises(DataError, match="'bleu'"):
        certify(fresh, family, Claim(epsilon=0.1, metric="bleu"))


def test_an_unknown_outcome_counts_at_its_worst_and_equal_answers_lose_nothing(fresh):
    family = listed(["fixed_k(2)"], Policy())
    lost = {name for name in fresh.question_ids if int(name.removeprefix("cert")) % 10 == 0}
    holes = altered(fresh, f1=lambda row: None if row["question_id"] in lost else row["f1"])
    measured = {recording: certify(recording, family, EASY).measured for recording in (fresh, holes)}
    kept = np.array([name not in {id_hash(name) for name in lost} for name in measured[holes].question_ids])
    losses = measured[holes].losses[0]
    assert (losses[kept] == measured[fresh].losses[0, kept]).all()
    answers = {id_hash(name): row for name, row in zip(fresh.question_ids, fresh.answers.tolist(), strict=True)}
    rows = [answers[name] for name, known in zip(measured[holes].question_ids, kept, strict=True) if not known]
    assert losses[~kept].tolist() == [float(row[1] != row[-1]) for row in rows]
    assert set(losses[~kept]) == {0.0, 1.0}
    assert (measured[holes].open[0, ~kept] == losses[~kept]).all()
    assert not measured[holes].open[0, kept].any()
    found = certify(holes, family, EASY)
    points = 100 * measured[holes].open[0].mean()
    assert f"{points:.1f} points of that loss are outcomes that are unknown" in found.headline
    assert any("an outcome is unknown, and counts at its worst" in note for note in found.measured.notes)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, math.nan])
def test_a_bound_of_nothing_or_everything_is_refused(epsilon):
    with pytest.raises(DataError, match="largest loss"):
        Claim(epsilon=epsilon)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_a_confidence_outside_0_and_1_is_refused(confidence):
    with pytest.raises(DataError, match="confidence"):
        Claim(epsilon=0.1, confidence=confidence)


def test_an_unknown_loss_or_cost_is_refused(fresh, policy):
    with pytest.raises(DataError, match="net, harm"):
        Claim(epsilon=0.1, loss="gross")  # type: ignore[arg-type]
    columns = altered(fresh, **{"cost.generator.uncached_tokens": math.nan})
    with pytest.raises(DataError, match="tokens"):
        certify(columns, listed([policy], policy), EASY, cheapest="tokens")
    assert certify(columns, listed([policy], policy), EASY).certificate.figures["tokens"] is None


# Nothing to certify


def test_one_question_is_not_enough_and_says_how_many_would_do(policy):
    found = certify(planted(1, seed=6, prefix="one"), listed([policy], policy), Claim(epsilon=0.02, loss="harm"))
    assert found.policy is None
    assert found.certificate is None
    assert found.need.questions == 153
    assert "not certifiable with n = 1 at eps = 0.02" in found.headline
    assert "about 153 questions needed" in found.headline


@pytest.mark.parametrize("hopeless", [0.0, 1.0])
def test_all_right_or_all_wrong_loses_nothing(policy, hopeless):
    recording = planted(200, seed=7, prefix="same", hopeless=hopeless)
    found = certify(altered(recording, f1=1.0 - hopeless, em=1.0 - hopeless), listed([policy], policy), EASY)
    assert found.policy is not None
    assert found.certificate.figures["loss"] == 0
    assert ("nothing to lose" in " ".join(found.certificate.notes)) == bool(hopeless)


def test_a_policy_that_loses_too_much_says_that_no_number_would_do(fresh):
    found = certify(fresh, listed(["fixed_k(1)"], Policy()), EASY)
    assert found.policy is None
    assert found.need.questions is None
    assert "no number of questions would do" in found.headline
    assert "not below epsilon" in found.headline


def test_the_first_that_fails_is_what_a_fixed_sequence_waits_for(fresh, policy):
    family = listed([policy, "fixed_k(1)", "fixed_k(4)"], policy)
    found = certify(fresh, family, EASY)
    assert found.certified.tolist() == [True, False, False]
    assert found.need.rule == "round >= 1"
    freely = certify(fresh, family, EASY, procedure="bonferroni")
    assert freely.certified.tolist() == [True, False, True]
    assert freely.certificate.position == 0  # fixed_k(1) is cheaper, and not certified


def test_bonferroni_waits_for_the_smallest_p_value():
    recording = planted(60, seed=8, prefix="b", traps=0.02)
    found = certify(
        recording, listed(["fixed_k(1)", "fixed_k(3)"], Policy()), Claim(epsilon=0.04), procedure="bonferroni"
    )
    assert found.need.rule == "round >= 3"


@pytest.mark.parametrize("claim", [Claim(epsilon=0.04), Claim(epsilon=0.06, loss="harm")], ids=["net", "harm"])
def test_with_the_number_of_questions_needed_four_of_five_succeed(claim):
    losses = np.repeat([0.0, 1.0, -1.0], [94, 3, 3])
    own = losses if claim.loss == "net" else np.maximum(losses, 0)
    needed = questions_needed(own, claim, 0.05)
    rng = np.random.default_rng(3)

    def rate(n):
        return (claim.p_values(rng.choice(own, (1000, n)), 0.05) <= 0.05).mean()

    assert 0.72 < rate(needed) < 0.9, needed
    assert rate(needed // 2) < 0.6


def test_a_loss_just_below_epsilon_needs_more_questions_than_anyone_has():
    losses = np.repeat([0.0499999, 0.9499999, -0.8500001], [94, 3, 3])
    assert losses.mean() < 0.05
    assert questions_needed(losses, Claim(epsilon=0.05), 0.05) is None
    assert questions_needed(losses, Claim(epsilon=0.2), 0.05) < MOST_QUESTIONS


def test_a_need_beyond_reason_is_said_to_be_one(fresh, policy, monkeypatch):
    monkeypatch.setattr("suffice.verdicts.certificates.ltt.MOST_QUESTIONS", 40)
    monkeypatch.setattr("suffice.verdicts.certificates.procedure.MOST_QUESTIONS", 40)
    found = certify(planted(20, seed=2, prefix="s"), listed([policy], policy), Claim(epsilon=0.01))
    assert "more than 40 questions needed" in found.headline


# The certificate in the policy


def test_a_certificate_survives_the_file_and_a_new_name(certified, tmp_path):
    named = replace(certified.policy, name="ours", provenance={**certified.policy.provenance, "note": "x"})
    named.save(tmp_path / "p.json")
    loaded = Policy.load(tmp_path / "p.json")
    assert loaded == named
    assert loaded.certified
    assert Certificate.of(loaded) == certified.certificate
    assert Certificate.of(loaded).holds_for(loaded)


@pytest.mark.parametrize(
    "change",
    [
        {"rule": parse_rule("answer_stable")},
        {"selector": parse_selector("majority")},
        {"max_rounds": 4},
        {"start_round": 0},
        {"calibrators": ()},
        {"depends": {"model": "other"}},
        {"abstain_patterns": ("pass",)},
    ],
)
def test_a_change_of_anything_that_decides_voids_it(certified, change):
    changed = replace(certified.policy, **change)
    assert not changed.certified
    assert not Certificate.of(changed).holds_for(changed)


def test_a_policy_without_a_certificate_has_none_and_old_files_load(policy, tmp_path):
    assert Certificate.of(policy) is None
    assert not policy.certified
    data = policy.to_dict()
    del data["certificate"]
    assert Policy.from_dict(data) == policy
    with pytest.raises(SchemaError, match="certificate"):
        Policy.from_dict({**data, "certificate": [1]})


@pytest.mark.parametrize(
    "change", [{"surprise": 1}, {"epsilon": "0.1"}, {"n": 1.5}, {"family_size": True}, {"sequence": 3}, {"figures": []}]
)
def test_a_certificate_with_anything_unexpected_is_refused(certified, change):
    with pytest.raises(SchemaError):
        Certificate.from_dict({**certified.certificate.to_dict(), **change})


def test_a_certificate_with_something_missing_is_refused(certified):
    data = certified.certificate.to_dict()
    del data["epsilon"]
    with pytest.raises(SchemaError, match="'epsilon'"):
        Certificate.from_dict(data)
    with pytest.raises(SchemaError):
        Certificate.from_dict([])


def test_what_was_certified_on_a_set_is_selected_there(certified, fresh, tune, policy):
    assert tuned_on(certified.policy, fresh) == 300
    assert tuned_on(certified.policy, tune) == 80
    assert tuned_on(policy, fresh) == 0
    ordered = certify(fresh, listed(["fixed_k(4)"], Policy()), EASY, tune=tune).policy
    assert tuned_on(ordered, tune) == 80


def test_a_dominating_baseline_is_named_in_headline_table_and_json(fresh, policy):
    found = certify(fresh, listed(["fixed_k(5)"], policy), Claim(epsilon=0.3, confidence=0.8))
    rival = replay(fresh, ["fixed_k(5)"], resampling=Resampling(n_resamples=2)).rows[0].dominated_by
    assert rival is not None
    assert found.dominated_by == rival
    assert f"dominated by {rival}, which gives at least as much for no more calls" in found.headline
    assert found.table().texts()[0][-1] == rival
    assert found.to_dict()["dominated_by"] == found.to_dict()["sequence"][0]["dominated_by"] == rival


def test_an_undominated_certified_policy_names_its_cheapest_equal(fresh, policy):
    found = certify(fresh, listed(["fixed_k(1)"], policy), Claim(epsilon=0.95))
    row = replay(fresh, ["fixed_k(1)"], resampling=Resampling(n_resamples=2)).rows[0]
    assert found.dominated_by is row.dominated_by is None
    assert f"cheapest fixed or random policy of at least this f1 here: {row.cheapest_match}" in found.headline
    assert found.to_dict()["sequence"][0]["cheapest_match"] == row.cheapest_match
    nothing = certify(fresh, listed(["fixed_k(1)"], policy), Claim(epsilon=0.001))
    assert (nothing.policy, nothing.dominated_by) == (None, None)


def test_the_chart_shows_what_each_policy_loses_and_costs_beside_epsilon(certified, fresh, family):
    spec = certified.plot().spec
    points = spec["data"]["values"]
    assert [(point["loss"], point["calls"]) for point in points] == [
        (losses.mean(), calls.mean())
        for losses, calls in zip(certified.measured.losses, certified.measured.costs["calls"], strict=True)
    ]
    states = [point["state"] for point in points]
    assert states[certified.certificate.position] == "chosen"
    assert [state != "not certified" for state in states] == certified.certified.tolist()
    assert spec["layer"][0]["data"]["values"][0]["epsilon"] == EASY.epsilon
    assert {entry["name"] for entry in spec["usermeta"]["legend"]} == set(states)
    assert certified.certificate.plot() == certified.plot()
    nothing = certify(fresh, family, replace(EASY, epsilon=0.0001))
    assert {point["state"] for point in nothing.plot().spec["data"]["values"]} == {"not certified"}
