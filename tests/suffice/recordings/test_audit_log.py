"""The log of a deployed policy: what it decided, what an audit drew, and where shadows stop, beside the rounds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from suffice import Audit, Cost, Policy, Recorder, Reply, Round, decide, import_recording, read_recording, replay, watch
from suffice.errors import ConfigMismatchError, DataError, SchemaError, UnknownSignalError
from suffice.hosts.runs import QuestionRun
from suffice.policy.session import stops
from suffice.policy.session.sources import shadow_policies
from suffice.policy.signals import AnswerPosition
from suffice.recordings.audits import without_audits
from suffice.recordings.round_journal import RoundJournal
from tests.suffice.policy.test_replies import PAYLOADS
from tests.support.strategies import NAN

POLICY = Policy(rule="answer_stable", max_rounds=4, name="deployed")
SHADOWS = (Policy(rule="fixed_k(1)", name="one"), Policy(rule="fixed_k(3)", name="three"), "never()")
ALWAYS, HALF = Audit(rate=1.0, seed=1), Audit(rate=0.5, seed=1)
COST = {"generator": Cost(calls=1.0, output_tokens=10.0)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.parquet"


def logged(path, answers_by_question, *, audit=HALF):
    """Record a loop that runs the rest of each audit at once."""
    recorder = Recorder(path, policy=POLICY, audit=audit, shadow=SHADOWS)
    for name, answers in answers_by_question.items():
        with recorder.question(f"What is {name}?", golds="a", question_id=name) as run:
            while not run.done or run.auditing:
                run.observe(Round(index=run.next_round, answer=answers[len(run.rounds)], costs=COST))
    columns_in_journal = columns(path, "stop_round", "end", "audited")
    recorder.close()
    assert columns(path, "stop_round", "end", "audited") == columns_in_journal


def columns(path, *names):
    """The value of some columns by question; each is the same on every row."""
    recording = read_recording(path)
    values = {}
    for name in names:
        rows = recording.objects(name)
        for q, question_id in enumerate(recording.question_ids):
            seen = set(rows[q][recording.seen[q]].tolist())
            assert len(seen) == 1, (name, question_id, seen)
            values.setdefault(question_id, []).append(seen.pop())
    return values


RNG = np.random.default_rng(5)
ANSWERS = {f"q{i}": [*map(str, RNG.choice(["a", "b", "c"], size=4))] for i in range(40)}


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A log of which the audit draws half of the questions."""
    path = tmp_path_factory.mktemp("half") / "log.parquet"
    logged(path, ANSWERS)
    return path


def test_each_question_has_its_decision_its_draw_and_where_shadows_stop(path):
    logged(path, {"q1": ["b", "a", "a", "c"], "q2": ["a", "b", "c", "d"]}, audit=ALWAYS)
    names = ("policy_digest", "stop_round", "answer_round", "stop_reason", "audit_rate", "audited", "end", "cluster")
    assert columns(path, *names) == {
        "q1": [POLICY_DIGEST, 3, 3, "rule", 1.0, 1.0, "max_rounds", "q1"],
        "q2": [POLICY_DIGEST, 4, 4, "max_rounds", 1.0, 1.0, "max_rounds", "q2"],
    }
    assert columns(path, "shadow.one", "shadow.three", "shadow.never()") == {"q1": [1, 3, 4], "q2": [1, 3, 4]}
    recording = read_recording(path)
    assert recording.seen.all()
    assert set(recording.names("decision")) == {*names[:6], "shadow.one", "shadow.three", "shadow.never()"}
    assert recording.names("label") == ["question_type", "run", "end_inferred"]


def test_who_is_not_drawn_is_censored_and_who_is_has_every_round(half):
    values = columns(half, "audited", "audit_rate", "end", "stop_round", "shadow.three")
    draws = {name: HALF.draw(name).audited for name in ANSWERS}
    assert 0 < sum(draws.values()) < len(draws)
    for name, (audited, rate, end, stop_round, third) in values.items():
        assert (bool(audited), rate) == (draws[name], 0.5)
        assert end == "max_rounds" if draws[name] else end == "rule" or stop_round == 4
        assert third == (3 if draws[name] or stop_round >= 3 else None)


def test_the_log_says_what_a_replay_of_it_says(half):
    recording = read_recording(half)
    for policy, column in (
        (POLICY, "stop_round"),
        *((item, f"shadow.{name}") for name, item in shadow_policies(SHADOWS, POLICY).items()),
    ):
        outcome = stops(policy, recording.rounds())
        unrun = outcome.unrun(recording.ends, policy.max_rounds)
        expected = np.where(unrun, NAN, outcome.rounds)
        np.testing.assert_array_equal(recording.column(column)[:, 0], expected)
    answered = stops(POLICY, recording.rounds()).answer_rounds
    np.testing.assert_array_equal(recording.column("answer_round")[:, 0], answered)


def test_the_rounds_of_an_audit_are_no_cost_of_the_policy(half):
    recording = read_recording(half)
    recording = recording.select(recording.column("audited")[:, 0] == 1)
    assert recording.seen.all()
    rows = {row.label: row for row in replay(recording, [POLICY], metrics="em").rows}
    stop_rounds = recording.column("stop_round")[:, 0]
    assert rows["deployed"].calls.mean == pytest.approx(stop_rounds.mean())
    assert rows["deployed"].calls.mean < 4


def test_audits_cost_their_share_of_the_saved_calls(half):
    recording = read_recording(half)
    stop_rounds = recording.column("stop_round")[:, 0]
    drawn = recording.column("audited")[:, 0] == 1
    assert recording.seen.sum() == (stop_rounds + drawn * (4 - stop_rounds)).sum()


def test_without_audits_a_log_shows_what_the_loop_did(half):
    recording = read_recording(half)
    rows = {row.label: row for row in replay(recording, [POLICY], metrics="em").rows}
    assert rows["recorded"].calls.mean == pytest.approx(rows["deployed"].calls.mean)
    assert rows["recorded"].metrics["em"] == pytest.approx(rows["deployed"].metrics["em"])
    cut = without_audits(recording)
    stop_rounds = recording.column("stop_round")[:, 0]
    np.testing.assert_array_equal(cut.seen.sum(axis=1), stop_rounds)
    assert set(cut.ends[stop_rounds < 4].tolist()) == {"rule"}
    assert without_audits(cut) is cut
    advice, without = (decide(log, metric="em") for log in (recording, cut))
    assert str(advice.sentence) == str(without.sentence)
    assert advice.tables()[0] == without.tables()[0]


def test_audited_questions_are_judged_by_anything_and_censored_ones_stay_unknown(half):
    recording = read_recording(half)
    audited = recording.select(recording.column("audited")[:, 0] == 1)
    assert replay(audited, [POLICY, "never()"], metrics="em").rows
    assert audited.ends.tolist() == ["max_rounds"] * audited.shape[0]
    assert not audited.cut.any()
    others = recording.select(recording.column("audited")[:, 0] == 0)
    assert others.cut.tolist() == (others.column("stop_round")[:, 0] < 4).tolist()
    advice = decide(audited, metric="em", baseline="full")
    assert advice.trial.baseline == "full"
    assert any("fixed_k(3)" in str(row) for row in advice.tables()[0].rows)


def test_the_draw_and_the_decision_are_on_disk_before_the_next_round(path):
    recorder = Recorder(path, policy=POLICY, audit=ALWAYS, shadow=SHADOWS)
    run = recorder.question("one", question_id="q1")
    for answer in "aa":
        run.observe(answer)
    assert (run.done, run.auditing, run.decision.stop_round) == (True, True, 2)
    assert columns(path, "stop_round", "audited", "audit_rate", "end", "shadow.one", "shadow.three") == {
        "q1": [2, 1, 1.0, "rule", 1, None]
    }
    decision = run.decision
    run.observe("b")
    assert columns(path, "stop_round", "end", "shadow.three") == {"q1": [2, "rule", 3]}
    recorder.save()  # what goes on stays in the journal
    assert not path.exists()
    assert run.observe("b") is decision
    assert (run.auditing, run.done) == (False, True)
    recorder.close()
    assert columns(path, "stop_round", "end", "shadow.never()") == {"q1": [2, "max_rounds", 4]}
    with pytest.raises(DataError, match="has ended"):
        run.observe("b")


@pytest.mark.parametrize("n_before", [1, 2, 3])
def test_a_round_whose_commit_failed_may_come_again_and_is_decided_once(path, monkeypatch, n_before):
    """Round 2 stops the loop, round 3 belongs to its audit, round 4 ends it."""
    recorder = Recorder(path, policy=POLICY, audit=ALWAYS, shadow=SHADOWS)
    run = recorder.question("one", question_id="q1")
    for answer in "aaab"[:n_before]:
        run.observe(answer)
    with monkeypatch.context() as full:
        full.setattr(RoundJournal, "commit", _raise_full)
        with pytest.raises(DataError, match="disk is full"):
            run.observe("aaab"[n_before])
    assert (len(run.rounds), run.next_round) == (n_before, n_before + 1)
    for answer in "aaab"[n_before:]:
        run.observe(answer)
    recorder.close()
    assert columns(path, "stop_round", "audited", "end", "shadow.three") == {"q1": [2, 1, "max_rounds", 3]}


def _raise_full(*_):
    raise DataError("the disk is full")


@pytest.mark.parametrize(
    ("reason", "end", "never"),
    [
        ("max_rounds", "max_rounds", 3),
        ("exhausted", "exhausted", 3),
        ("failed", "rule", None),
        ("cancelled", "rule", None),
    ],
)
def test_an_audit_that_ends_early_is_whole_or_lost(path, reason, end, never):
    with Recorder(path, policy=POLICY, audit=ALWAYS, shadow=SHADOWS) as recorder:
        with recorder.question("one", question_id="q1") as run:
            for answer in "aab":
                run.observe(answer)
            assert run.end(reason).reason == "rule"
        with pytest.raises(DataError, match="ended already"):
            run.end(reason)
    assert columns(path, "stop_reason", "stop_round", "audited", "end", "shadow.never()") == {
        "q1": ["rule", 2, 1, end, never]
    }
    assert read_recording(path).metadata["failed"] == {}


def test_an_error_ends_an_audit_but_leaving_the_block_does_not(path):
    recorder = Recorder(path, policy=POLICY, audit=ALWAYS)
    run = recorder.question("one", question_id="q1")
    for answer in "aa":
        run.observe(answer)
    with pytest.raises(DataError), run:
        run.observe(None)
    with recorder.question("two", question_id="q2") as run:
        for answer in "aa":
            run.observe(answer)
    assert run.auditing
    for answer in "bb":
        run.observe(answer)
    recorder.close()
    assert columns(path, "end", "audited") == {"q1": ["rule", 1], "q2": ["max_rounds", 1]}


def test_an_audit_goes_on_in_another_process_under_another_policy(path):
    recorder = Recorder(path, policy=POLICY, audit=ALWAYS, shadow=SHADOWS, labels={"model": "m"})
    run = recorder.question("one", question_id="q1", golds="b", labels={"team": "x"})
    for answer in "aa":
        run.observe(answer)
    state = json.loads(json.dumps(run.to_state()))
    recorder.close()
    other = Recorder(path, policy=Policy(rule="fixed_k(1)"), audit=ALWAYS, labels={"model": "m"})
    again = other.resume(state)
    assert (again.decision, again.auditing, again.next_round) == (run.decision, True, 3)
    for answer in "bb":
        again.observe(answer)
    other.close()
    assert columns(path, "policy_digest", "end", "shadow.three", "team") == {
        "q1": [POLICY_DIGEST, "max_rounds", 3, "x"]
    }
    assert read_recording(path).column("em").tolist() == [[0, 0, 1, 1]]
    with pytest.raises(DataError, match="elsewhere"):
        other.resume(state)


@pytest.mark.parametrize("machine", [None, "0" * 8])
def test_an_audit_continues_only_in_its_own_folder_and_machine(tmp_path, monkeypatch, machine):
    log = tmp_path / "log"
    recorder = Recorder(log, policy=POLICY, audit=ALWAYS, shadow=SHADOWS)
    run = recorder.question("one", question_id="q1")
    for answer in "aa":
        run.observe(answer)
    recorder.close()
    assert columns(log, "end", "audited") == {"q1": ["rule", 1]}
    if machine is not None:
        monkeypatch.setattr("suffice.recordings.parts_writing._machine", lambda: machine)
    with Recorder(log, policy=POLICY, audit=ALWAYS, shadow=SHADOWS) as other:
        again = other.resume(run.to_state())
        for answer in "bb":
            again.observe(answer)
    assert columns(log, "stop_round", "end", "audited", "shadow.three") == {"q1": [2, "max_rounds", 1, 3]}
    assert read_recording(log).seen.tolist() == [[True] * 4]


def test_two_workers_cannot_both_run_one_audit(path):
    recorder = Recorder(path, policy=POLICY, audit=ALWAYS)
    run = recorder.question("one", question_id="q1")
    for answer in "aa":
        run.observe(answer)
    first, second = (recorder.resume(run.to_state()) for _ in range(2))
    first.observe("b")
    with pytest.raises(DataError, match="recorded already"):
        second.observe("b")
    with pytest.raises(DataError, match="elsewhere"):
        recorder.resume(run.to_state())
    recorder.close()


def test_a_question_goes_on_from_its_state_before_the_stop(path):
    recorder = Recorder(path, policy=POLICY, audit=ALWAYS, shadow=SHADOWS, missing="error")
    run = recorder.question("one", question_id="q1")
    for answer in "aabb":
        run = recorder.resume(json.loads(json.dumps(run.to_state())))
        run.observe(answer)
    recorder.close()
    assert columns(path, "stop_round", "shadow.three", "end") == {"q1": [2, 3, "max_rounds"]}
    state = recorder.question("two").to_state()
    with pytest.raises(ConfigMismatchError, match="belongs"):
        Recorder(path, policy=Policy(rule="fixed_k(1)")).resume(state)


def test_a_question_without_a_policy_goes_on_from_its_state(path):
    with Recorder(path) as recorder:
        run = recorder.question("one", question_id="q1")
        for answer in "ab":
            run = recorder.resume(json.loads(json.dumps(run.to_state())))
            assert run.observe(answer) is None
        run.end("exhausted")
    assert columns(path, "end") == {"q1": ["exhausted"]}
    assert not read_recording(path).names("decision")


def test_what_a_round_lacked_is_not_reported_again_after_a_state(path):
    recorder = Recorder(path, policy="own > 0.5")
    run = recorder.question("one")
    with pytest.raises(UnknownSignalError):
        run.observe("a")
    assert not recorder.resume(run.to_state()).observe("b").stop
    recorder.close()


@pytest.mark.parametrize("state", [None, [], {}, {"run": 1}, "run"])
def test_what_is_no_state_of_a_question_is_refused(path, state):
    with pytest.raises(SchemaError, match="the state"):
        Recorder(path).resume(state)


def test_the_requests_of_a_question_share_its_draw_unless_they_have_names(path):
    with Recorder(path, policy=POLICY, audit=HALF) as recorder:
        for request in range(12):
            for request_id in (None, f"r{request}"):
                with recorder.question("What?", question_id="q1", request_id=request_id) as run:
                    while not run.done:
                        run.observe("a")
                assert request_id or run.auditing is HALF.draw("q1").audited
    draws = [name for name, (audited,) in columns(path, "audited").items() if audited]
    assert 12 * HALF.draw("q1").audited < len(draws) < 12 + 12 * HALF.draw("q1").audited
    assert set(read_recording(path).clusters.tolist()) == {"q1"}


def test_a_rule_stopping_before_judged_answers_is_judged_by_later_ones(path):
    policy = Policy(rule="fixed_k(1)", max_rounds=3)
    with Recorder(path, policy=policy, audit=ALWAYS) as recorder:
        for number in range(30):
            with recorder.question(f"What is {number}?", golds="a") as run:
                for answer in ("", "a", "a"):
                    run.observe(answer)
        with recorder.question("failed", golds="a", question_id="failed") as run:
            run.end("failed")
    assert columns(path, "stop_reason", "end")[read_recording(path).question_ids[0]] == ["failed", "max_rounds"]
    result = watch(read_recording(path), policy, metric="em", max_loss=0.05)
    assert result.status == "fall back"


def test_ends_from_outside_are_logged_with_the_answer_that_was_given(path):
    with Recorder(path, policy=POLICY, audit=ALWAYS) as recorder:
        for reason in ("exhausted", "failed", "cancelled"):
            with recorder.question(reason, question_id=reason) as run:
                run.observe("a")
                assert run.end(reason).answer == "a"
        with recorder.question("left", question_id="left") as run:
            run.observe("a")
    assert columns(path, "stop_round", "answer_round", "stop_reason", "end") == {
        "exhausted": [1, 1, "exhausted", "exhausted"],
        "failed": [1, 1, "failed", "failed"],
        "cancelled": [1, 1, "cancelled", "failed"],
        "left": [1, 1, "cancelled", "rule"],
    }


def test_a_question_that_has_not_stopped_has_no_decision(path):
    recorder = Recorder(path, policy=POLICY, audit=ALWAYS, shadow="fixed_k(1)")
    recorder.question("one", question_id="q1").observe("a")
    recorder.question("two", question_id="q2").observe("a")
    assert columns(path, "end") == {"q1": ["failed"], "q2": ["failed"]}
    assert not read_recording(path).names("decision")
    recorder.close()


def test_shadows_follow_a_loop_with_a_cap_before_anything_is_deployed(path):
    longer = Policy(rule="never()", max_rounds=5, name="longer")
    recorder = Recorder(path, max_rounds=3, shadow=["fixed_k(2)", "fixed_k(4)", longer])
    with recorder, recorder.question("one", question_id="q1") as run:
        while not run.done:
            run.observe("a")
    names = ("shadow.round >= 2", "shadow.round >= 4", "shadow.longer", "end")
    assert columns(path, *names) == {"q1": [2, 3, None, "max_rounds"]}
    assert len(read_recording(path).names("decision")) == 3


def test_a_policy_with_code_has_no_digest_and_says_what_it_decided(path):
    policy = Policy(rule="fixed_k(1)", answer_position=AnswerPosition("callable", span=lambda text: (0, len(text))))
    with Recorder(path, policy=policy) as recorder, recorder.question("one", question_id="q1") as run:
        run.observe("a")
    assert columns(path, "policy_digest", "stop_round", "audit_rate", "audited") == {"q1": [None, 1, None, None]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"audit": ALWAYS}, "no policy"),
        ({"audit": ALWAYS, "max_rounds": 3}, "no policy"),
        ({"shadow": ["fixed_k(1)"]}, "max_rounds="),
        ({"policy": POLICY, "audit": 0.05}, r"Audit\(rate=0\.05"),
        ({"policy": POLICY, "shadow": ["fixed_k(1)", "fixed_k(1)"]}, "two shadow"),
        ({"policy": POLICY, "labels": {"stop_round": "x"}}, "label"),
    ],
)
def test_what_cannot_be_audited_or_followed_is_refused_at_once(path, arguments, message):
    with pytest.raises(DataError, match=message):
        Recorder(path, **arguments)


def test_a_framework_that_ends_at_the_stop_takes_no_audit(path):
    recorder = Recorder(path, policy="fixed_k(1)", audit=ALWAYS)
    with pytest.raises(DataError, match="be lost"):
        QuestionRun("fixed_k(1)", "one", recorder=recorder)
    shadowed = Recorder(path, policy="fixed_k(1)", shadow="fixed_k(2)")
    assert QuestionRun("fixed_k(1)", "one", recorder=shadowed).observe("a").stop
    (values,) = columns(path, "stop_round", "shadow.round >= 2", "end").values()
    assert values == [1, None, "rule"]
    recorder.close()
    shadowed.close()


def test_rounds_say_which_model_replied_where_the_endpoint_does(path):
    reply = {**PAYLOADS["openai_chat"], "model": "gpt-x-2026-01-01", "system_fingerprint": "fp_1"}
    recorder = Recorder(path, max_rounds=3, labels={"prompt_id": "p1"})
    with recorder, recorder.question("one", question_id="q1") as run:
        for response in (reply, Reply(answer="a", text="a"), "a"):
            run.observe(response)
    recording = read_recording(path)
    assert recording.objects("reply_model").tolist() == [["gpt-x-2026-01-01", None, None]]
    assert recording.objects("system_fingerprint").tolist() == [["fp_1", None, None]]
    assert recording.metadata["depends"] == {"prompt_id": "p1"}
    with Recorder(path.with_name("plain.parquet"), max_rounds=1) as recorder, recorder.question("one") as run:
        run.observe("a")
    assert "reply_model" not in read_recording(path.with_name("plain.parquet")).table.column_names


def test_an_imported_log_keeps_its_reply_facts_under_standard_names(tmp_path):
    says = {"answer": "a", "reply_model": "m1", "system_fingerprint": "fp", "audited": 1}
    rows = [{"qid": f"q{i}", "round": r, **says} for i in range(3) for r in (1, 2)]
    source = tmp_path / "log.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_recording(source, out=tmp_path / "imported.parquet", columns={"question_id": "qid"})
    recording = read_recording(tmp_path / "imported.parquet")
    assert recording.objects("reply_model").tolist() == [["m1", "m1"]] * 3
    assert {"system_fingerprint", "imported_audited"} <= set(recording.table.column_names)
    assert not recording.names("decision")


def test_a_shadow_that_lacks_a_signal_says_so_and_breaks_nothing(path):
    recorder = Recorder(path, policy=POLICY, audit=ALWAYS, shadow=["own > 0.5", "fixed_k(1)"])
    run = recorder.question("one", question_id="q1")
    run.observe("a")
    with pytest.warns(UserWarning, match="decides nothing"):
        assert run.observe("a").answer == "a"
    for _ in range(2):
        run.observe("a")
    recorder.close()
    names = ("shadow.own > 0.5", "shadow.round >= 1", "stop_round", "end")
    assert columns(path, *names) == {"q1": [None, 1, 2, "max_rounds"]}


def test_shadows_of_samples_compare_answers_as_the_recorder_says(path):
    recorder = Recorder(path, max_rounds=3, samples=True, normalizer="number", shadow=["lead(2)"])
    with recorder, recorder.question("one", question_id="q1") as run:
        for answer in ("5", "5.0", "7"):
            run.observe(answer)
    (name,) = read_recording(path).names("decision")
    assert columns(path, name) == {"q1": [2]}


POLICY_DIGEST = POLICY.digest
