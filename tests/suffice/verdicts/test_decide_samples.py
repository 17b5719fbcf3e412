"""Advice on votes: losses are means over orders, and what is advised runs."""

from __future__ import annotations

import numpy as np
import pytest

from suffice import Claim, Policy, Round, Session, decide
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import outcome, policy_for
from suffice.hosts.lines import own_lines
from suffice.recordings import Recording, bundled_recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import measure_losses
from suffice.verdicts.decisions import Advice
from suffice.verdicts.decisions.losses import measure_candidates
from tests.suffice.policy.test_votes import sampled
from tests.support.cli_tools import cli

DATES = "samples_date"


@pytest.fixture(scope="module")
def advice() -> Advice:
    return decide(bundled_recording(DATES), max_loss=0.03, orders=20)


def test_a_vote_that_may_stop_early_is_told_so_in_one_sentence(advice):
    assert advice.verdict == "do it"
    assert advice.policy.label == "lead(2)"
    assert advice.sentence.startswith(
        "Stop asking when one answer leads by 2: with 3.3 of 10 samples a question it saves 67 % of the calls and changes match by"
    )
    assert "rule out a loss of 3 points or more (risk 5 % if the questions are independent)" in advice.sentence
    assert advice.now == "now: 10 samples"
    assert any("20 random orders" in note and "the unit is the question" in note for note in advice.notes)
    again = Advice.from_dict(advice.to_dict())
    assert again.trial.orders == 20
    assert again.trial.loop.samples
    assert again.to_dict() == advice.to_dict()


def test_the_candidates_of_a_vote_are_budgets_and_votes(advice):
    labels = [policy.label for policy in advice.trial.candidates]
    rules = ["settled(10)", *(f"lead({k})" for k in range(2, 7)), "adaptive_consistency", "esc(3)", "esc(5)"]
    assert labels == [*(f"fixed_k({k})" for k in range(1, 10)), *rules]
    assert {str(policy.selector) for policy in advice.trial.candidates} == {"majority_of_samples"}
    assert {policy.normalizer for policy in advice.trial.candidates} == {"date"}


def test_what_is_advised_is_deployed_with_its_normalizer_and_runs(advice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    advice.save("decision.json")
    done = cli("deploy", "decision.json", code=0)
    lines = own_lines(Policy.load("policy.json"), "policy.json")
    assert "sample(question)" in lines
    assert lines in done.out
    session = Session(Policy.load("policy.json"))
    texts = iter(["05/01/2021", "no idea", "May 1, 2021", "06/01/2021"])
    while session.decision is None:
        session.observe(draft=next(texts))
    assert (session.decision.stop_round, session.decision.reason) == (3, "rule")
    assert next(texts) == "06/01/2021"


def test_the_loss_of_a_question_is_that_of_its_certificate():
    recording = bundled_recording(DATES)
    policies = [policy_for(recording, rule) for rule in ("lead(2)", "fixed_k(3)")]
    for baseline in ("recorded", "full", "fixed_k(9)"):
        units = measure_candidates(recording, policies, baseline, "match", orders=7, with_twins=[0])
        reference = "full" if baseline == "recorded" else baseline
        claim = Claim(epsilon=0.1, metric="match", orders=7, baseline=reference)
        measured = measure_losses(recording, policies, claim)
        np.testing.assert_allclose(np.sort(units.worst), np.sort(measured.losses), atol=1e-12)
        np.testing.assert_allclose(units.totals.costs["calls"][:-1], measured.costs["calls"].sum(axis=1))
        np.testing.assert_array_equal(units.worst, units.best)
        assert np.isfinite(units.totals.twins[0])


def test_more_questions_are_added_and_other_loops_refused(advice):
    recording = bundled_recording(DATES)
    half = np.arange(len(recording.question_ids)) % 2 == 0
    first = decide(recording.select(half), max_loss=0.03, orders=5)
    both = decide(recording.select(~half), previous=first)
    assert both.n > first.n
    assert both.trial.orders == 5
    with pytest.raises(ConfigMismatchError, match="orders"):
        decide(recording.select(~half), previous=first, orders=6)
    follow = Recording(recording.table, {**recording.metadata, "exchangeable": False})
    with pytest.raises(ConfigMismatchError, match="independent"):
        decide(follow, previous=advice)
    with pytest.raises(DataError, match="follow"):
        decide(follow, orders=5)


def test_samples_ended_by_a_rule_count_in_their_order():
    recording = bundled_recording(DATES)
    policy = policy_for(recording, "lead(4)")
    by_question: dict[str, list[dict]] = {}
    for row in recording.table.to_pylist():
        one = {name: row[name] for name in ("question_id", "round", "answer", "match")}
        by_question.setdefault(one["question_id"], []).append(one)
    kept = []
    for part in by_question.values():
        session, end = Session(policy), "max_rounds"
        for n, row in enumerate(part, 1):
            decision = session.observe(Round(index=row["round"], answer=row["answer"]))
            if decision.stop:
                end = "rule" if n < len(part) else "max_rounds"
                kept += [{**one, "end": end} for one in part[:n]]
                break
    cut = Recording(build_table(kept, {"match": "metric"}), recording.metadata)
    assert cut.cut.any()
    advice = decide(cut, max_loss=0.05)
    assert advice.trial.orders == 1
    assert any("in the order in which they came" in note for note in advice.notes)
    assert advice.now == "now: 4 to 10 samples"
    with pytest.raises(DataError, match="a rule ended"):
        decide(cut, max_loss=0.05, orders=10)


def test_without_gold_answers_samples_are_compared_with_their_majority():
    recording = sampled([["a", "b", "a", None], ["a", "b", "c", "c"], ["b", "b", "a", "a"], [None, " ", None, None]])
    np.testing.assert_array_equal(
        outcome(recording, "agreement"), [[1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
    )
    with pytest.raises(DataError, match="many count"):
        outcome(recording, "agreement_f1")
    rng = np.random.default_rng(0)
    texts = rng.choice(["a", "b"], size=(80, 6), p=[0.8, 0.2]).tolist()
    unscored = sampled(texts, [[float("nan")] * 6] * 80)
    advice = decide(unscored, max_loss=0.2, orders=5)
    assert advice.trial.metric == "agreement"
    assert any("majority of all recorded samples" in note for note in advice.notes)


def test_the_command_takes_orders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recording = bundled_recording(DATES)
    write_recording("dates.parquet", recording.table, recording.metadata)
    told = cli("decide", "dates.parquet", "--set=orders=5", "--max-loss", "0.05", "--details", code=0)
    assert "Stop asking when " in told.out
    assert "5 random orders" in told.words


def _texts(n_alone, n=80, width=4):
    """Return samples without gold answers; in the first `n_alone` questions no two are the same."""
    return [[f"reply {q} {r if q < n_alone else r // 3}" for r in range(width)] for q in range(n)]


def test_samples_of_which_no_two_are_the_same_cannot_be_judged():
    advice = decide(sampled(_texts(80)), metric="agreement", max_loss=0.05)
    assert advice.verdict == "cannot be judged"
    assert "no answer occurs twice in 100 % of the questions" in advice.sentence
    assert "any sample would pass for the majority" in advice.sentence


def test_a_few_questions_without_a_majority_are_counted_in_a_note():
    advice = decide(sampled(_texts(10)), metric="agreement", max_loss=0.05)
    assert advice.verdict != "cannot be judged"
    assert any("questions no two samples are the same, and each counts" in note for note in advice.notes), advice.notes


def test_drafts_of_which_no_two_are_the_same_cannot_be_judged():
    advice = decide(sampled(_texts(80), exchangeable=False), metric="agreement", max_loss=0.05)
    assert "agreement compares their wording" in advice.sentence
    words = decide(sampled(_texts(80), exchangeable=False), metric="agreement_f1", max_loss=0.05)
    assert words.verdict != "cannot be judged"
