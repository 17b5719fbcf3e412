"""The log of the service: every stop before it is handed out, audits round by round, and nothing lost where it is killed."""

import errno
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
from benchmarks.serve_soak import soak

from suffice import Audit, Policy
from suffice.common.processes import start_python
from suffice.errors import DataError, NotFoundError, SchemaError, WorkerDiedError
from suffice.recordings import parts_compaction, parts_writing, read_recording
from suffice.recordings.group_commit import Writers
from suffice.verdicts.watches import watch
from suffice_server.serve import watching
from suffice_server.serve.answers import RefusedError
from suffice_server.serve.guard import Limits
from suffice_server.serve.log import DecisionLog, audit_seed, question_names
from suffice_server.serve.policies import PolicyFolder
from suffice_server.serve.service import Service
from suffice_server.serve.sessions import SessionStore
from suffice_server.serve.watching import LogWatch
from tests.support.serving import watching_here

STABLE = Policy(rule="answer_stable", max_rounds=4)
ALL = Audit(rate=1.0, seed="key")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "policies"
    path.mkdir()
    STABLE.save(path / "stable.json")
    return tmp_path


STORES = []


@pytest.fixture(autouse=True)
def _closed():
    yield
    while STORES:
        STORES.pop().close()


def served(folder, audit=None, **limits):
    """Return a service on the sessions and the log of a folder, as another process would open them."""
    store = SessionStore(folder / "sessions.sqlite", Limits(**limits))
    STORES.append(store)
    return Service(PolicyFolder(folder / "policies"), store, DecisionLog(folder / "log", audit))


def logged(folder):
    """Return the rows of the log by request."""
    path = folder / "log" / f"stable-{STABLE.digest}"
    rows = {}
    for row in read_recording(path).table.to_pylist() if path.exists() else ():
        rows.setdefault(row["question_id"], []).append(row)
    return rows


def question(name="q", **others):
    return {"policy": "stable", "question": f"Where is {name}?", "question_id": name, **others}


def rounds(*answers):
    return [{"index": r, "answer": answer} for r, answer in enumerate(answers, 1)]


def opened(service, *answers, name="q"):
    """Return the name of a session after some rounds, and what was said at the last."""
    session = service.open_session(question(name))["id"]
    decided = [service.observe(session, observed) for observed in rounds(*answers)]
    return session, decided[-1] if decided else None


def test_stops_of_both_ways_are_logged_before_they_are_returned(folder):
    service = served(folder)
    service.decide(question("a", rounds=rounds("Oslo")))
    assert logged(folder) == {}
    service.decide(question("a", rounds=rounds("Oslo", "Oslo")))
    session, decided = opened(service, "Oslo", "Bergen", "Narvik", "Vardø", name="b")
    assert decided["reason"] == "max_rounds"
    assert decided["audit"] is False
    ended, _ = opened(service, "Oslo", name="c")
    service.end(ended, {"reason": "exhausted"})
    empty, _ = opened(service, name="none")
    assert service.end(empty, {"reason": "exhausted"})["reason"] == "failed"
    other, _ = opened(service, "Oslo", name="d")
    service.close_session(other)
    rows = logged(folder)
    facts = {name: [(len(of), of[0]["stop_round"], of[0]["stop_reason"], of[0]["end"])] for name, of in rows.items()}
    assert facts == {
        "a": [(2, 2, "rule", "rule")],
        "b": [(4, 4, "max_rounds", "max_rounds")],
        "c": [(1, 1, "exhausted", "exhausted")],
        "d": [(1, 1, "cancelled", "failed")],
    }
    reply = {"choices": [{"message": {"content": "Oslo"}}], "model": "m-1", "system_fingerprint": "f"}
    service.decide(question("e", rounds=[{"response": reply}, {"answer": "Oslo", "reply_model": "m-2"}]))
    assert [(row["reply_model"], row["system_fingerprint"]) for row in logged(folder)["e"]] == [
        ("m-1", "f"),
        ("m-2", None),
    ]
    first = rows["a"][0]
    assert (first["question"], first["policy_digest"], first["answer_round"]) == ("Where is a?", STABLE.digest, 2)
    assert (first["audit_rate"], first["audited"]) == (None, None)
    with pytest.raises(DataError, match="round 4"):
        service.observe(session, {"answer": "Oslo"})


def test_an_audit_takes_further_rounds_and_the_decision_stays(folder):
    service = served(folder, ALL)
    session, decided = opened(service, "Oslo", "Oslo")
    assert (decided["stop"], decided["audit"]) == (True, True)
    assert logged(folder)["q"][0]["audited"] == 1
    third = service.observe(session, {"index": 3, "answer": "Bergen"})
    assert third == decided
    assert service.observe(session, {"index": 3, "answer": "Bergen"}) == decided
    assert service.session(session)["audit"] is True
    assert service.observe(session, {"index": 4, "answer": "Narvik"}) == {**decided, "audit": False}
    rows = logged(folder)["q"]
    assert [row["answer"] for row in rows] == ["Oslo", "Oslo", "Bergen", "Narvik"]
    assert {(row["stop_round"], row["audited"], row["audit_rate"], row["end"]) for row in rows} == {
        (2, 1, 1.0, "max_rounds")
    }
    with pytest.raises(DataError, match="after the stop"):
        service.observe(session, {"index": 5, "answer": "Oslo"})
    assert b'suffice_audits_total{policy="stable"} 1.0' in service.metrics.text()


def test_a_decision_without_a_session_gets_one_for_its_audit(folder):
    service = served(folder, ALL)
    decided = service.decide(question(rounds=rounds("Oslo", "Oslo", "Bergen")))
    assert (decided["stop_round"], decided["audit"]) == (2, True)
    assert service.observe(decided["session"], {"index": 4, "answer": "Oslo"})["audit"] is False
    assert [row["answer"] for row in logged(folder)["q"]] == ["Oslo", "Oslo", "Bergen", "Oslo"]
    assert not service.decide(question("r", rounds=rounds("a", "b", "c", "d")))["audit"]


def test_an_audit_continues_in_its_log_under_another_policy_name(folder):
    session, _ = opened(served(folder, ALL), "Oslo", "Oslo")
    (folder / "policies" / "stable.json").rename(folder / "policies" / "renamed.json")
    service = served(folder, ALL)
    for index in (3, 4):
        service.observe(session, {"index": index, "answer": "Bergen"})
    assert [row["answer"] for row in logged(folder)["q"]] == ["Oslo", "Oslo", "Bergen", "Bergen"]


@pytest.mark.parametrize("give_up", ["close_session", "end"])
def test_an_audit_that_is_given_up_is_a_lost_one(folder, give_up):
    service = served(folder, ALL)
    session, _ = opened(service, "Oslo", "Oslo")
    getattr(service, give_up)(session, *([{"reason": "failed"}] if give_up == "end" else []))
    assert {(row["audited"], row["end"]) for row in logged(folder)["q"]} == {(1, "rule")}


def test_audits_are_drawn_by_question_and_the_folders_key(folder):
    seed = audit_seed(folder / "log")
    assert audit_seed(folder / "log") == seed
    assert (folder / "log" / "audit.seed").stat().st_mode & 0o77 == 0
    assert [path.name for path in (folder / "log").iterdir()] == ["audit.seed"]
    audit = Audit(rate=0.5, seed=seed)
    service = served(folder, audit)
    for number in range(12):
        decided = service.decide(question(f"q{number}", rounds=rounds("Oslo", "Oslo")))
        assert decided["audit"] == audit.draw(f"q{number}").audited
    drawn = {name: rows[0]["audited"] for name, rows in logged(folder).items()}
    assert drawn == {f"q{number}": audit.draw(f"q{number}").audited for number in range(12)}


def test_a_question_without_a_name_is_one_of_its_own():
    assert question_names({"question": " Where? "}) == question_names({"question": "Where?"})
    assert question_names({"question": "Where?", "question_id": "q"}) == {"question": "Where?", "question_id": "q"}
    assert question_names({}) != question_names({})


class Killed(BaseException):
    """The process ends here."""


def killing(monkeypatch, target, name, *, after=False, calls=1):
    """Let the process end at a call of a method, before or after what it does."""
    method, left = getattr(target, name), [calls]

    def killed(*arguments, **options):
        left[0] -= 1
        if left[0] == 0 and not after:
            raise Killed
        result = method(*arguments, **options)
        if left[0] == 0:
            raise Killed
        return result

    monkeypatch.setattr(target, name, killed)


STEPS_OF_A_STOP = [("store", "put", False), ("store", "put", True), ("log", "write", False), ("log", "write", True)]


@pytest.mark.parametrize("step", STEPS_OF_A_STOP)
@pytest.mark.parametrize("asks_again", [True, False])
def test_a_kill_during_a_stop_leaves_one_row_or_an_open_question(folder, monkeypatch, step, asks_again):
    part, method, after = step
    service = served(folder, ALL)
    session, _ = opened(service, "Oslo")
    killing(monkeypatch, getattr(service, part), method, after=after)
    with pytest.raises(Killed):
        service.observe(session, {"index": 2, "answer": "Oslo"})
    service = served(folder, ALL)
    if asks_again:
        decided = service.observe(session, {"index": 2, "answer": "Oslo"})
        assert (decided["stop_round"], decided["audit"]) == (2, True)
    else:
        monkeypatch.setattr("suffice_server.serve.sessions._LATE_S", -1.0)
        service.log_pending()
        service.log_pending()
    rows = logged(folder)
    copies = 2 if (part, after) == ("log", True) else 1  # between the log and its mark
    stored = asks_again or (part, after) != ("store", False)
    assert len(rows) == (copies if stored else 0)
    assert {(of[0]["stop_round"], of[0]["audited"]) for of in rows.values()} <= {(2, 1)}


@pytest.mark.parametrize(
    ("part", "method", "after"), [("log", "change", False), ("log", "change", True), ("store", "put", True)]
)
def test_a_kill_at_any_point_of_an_audit_records_each_round_once(folder, monkeypatch, part, method, after):
    service = served(folder, ALL)
    session, decided = opened(service, "Oslo", "Oslo")
    for index in (3, 4):
        killing(monkeypatch, getattr(service, part), method, after=after)
        with pytest.raises(Killed):
            service.observe(session, {"index": index, "answer": "Bergen"})
        service = served(folder, ALL)
        again = service.observe(session, {"index": index, "answer": "Bergen"})
        assert again == {**decided, "audit": index == 3}
    rows = logged(folder)
    assert [row["answer"] for row in rows["q"]] == ["Oslo", "Oslo", "Bergen", "Bergen"]
    assert {row["end"] for row in rows["q"]} == {"max_rounds"}
    assert len(rows) == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commit", [1, 2])
def test_a_kill_in_an_audits_last_round_loses_no_audit(folder, monkeypatch, commit, after):
    """The round was once committed before its end, and whoever came between made a lost audit of one that had ended."""
    service = served(folder, ALL)
    session, decided = opened(service, "Oslo", "Oslo")
    service.observe(session, {"index": 3, "answer": "Bergen"})
    with monkeypatch.context() as patched, suppress(Killed):
        killing(patched, Writers, "commit", after=after, calls=commit)
        service.observe(session, {"index": 4, "answer": "Bergen"})
    service = served(folder, ALL)
    assert service.observe(session, {"index": 4, "answer": "Bergen"}) == {**decided, "audit": False}
    rows = logged(folder)["q"]
    assert [row["answer"] for row in rows] == ["Oslo", "Oslo", "Bergen", "Bergen"]
    assert {row["end"] for row in rows} == {"max_rounds"}


def test_a_decision_that_cannot_be_logged_is_not_handed_out(folder, caplog):
    service = served(folder)
    session, _ = opened(service, "Oslo")
    (folder / "log").write_text("a file where the folder should be")
    with pytest.raises(RefusedError, match="be written") as refused:
        service.observe(session, {"index": 2, "answer": "Oslo"})
    assert (refused.value.status, refused.value.retry_after) == (503, 5)
    assert str(folder) not in str(refused.value)
    with pytest.raises(RefusedError, match="be written"):
        service.decide(question("r", rounds=rounds("Oslo", "Oslo")))
    (folder / "log").unlink()
    assert service.observe(session, {"index": 2, "answer": "Oslo"})["stop"]
    assert len(logged(folder)["q"]) == 2
    assert "cannot be written" in caplog.text


def test_a_server_that_cannot_write_its_log_is_not_ready(folder, monkeypatch):
    service = served(folder)
    service.check_log()
    assert service.ready() == {"ready": True, "policies": 1, "broken": [], "fault": None}
    assert [*(folder / "log").iterdir()] == []

    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        service.check_log()
    assert (service.ready()["ready"], service.ready()["fault"]) == (
        False,
        "the log cannot be written: No space left on device",
    )
    (folder / "log").rmdir()
    (folder / "log").write_text("a file where the folder should be")
    service.check_log()
    assert not service.ready()["ready"]
    assert str(folder) not in service.ready()["fault"]
    (folder / "log").unlink()
    service.check_log()
    assert service.ready()["ready"]


@pytest.mark.parametrize("removed", ["log", "log/stable-*"])
def test_a_log_removed_while_serving_is_named_and_not_begun_anew(folder, removed):
    service = served(folder)
    session, _ = opened(service, "Oslo")
    service.observe(session, {"index": 2, "answer": "Oslo"})
    (path,) = folder.glob(removed)
    shutil.move(path, folder / "elsewhere")
    other, _ = opened(service, "Oslo")
    for _ in range(2):
        with pytest.raises(RefusedError, match="was removed"):
            service.observe(other, {"index": 2, "answer": "Oslo"})
        service.check_log()
        assert "was removed or replaced" in service.ready()["fault"]
    assert not path.exists()
    shutil.move(folder / "elsewhere", path)
    service.check_log()
    assert service.ready()["ready"]
    assert service.observe(other, {"index": 2, "answer": "Oslo"})["stop"]


def test_parts_removed_while_serving_are_named_in_the_servers_log(folder, caplog):
    service = served(folder)
    for number in range(2):
        session, _ = opened(service, "Oslo")
        service.observe(session, {"index": 2, "answer": "Oslo"})
        for part in (folder / "log").glob("*/part-*"):
            part.unlink()
        assert ("was removed while questions were recorded to it" in caplog.text) == (number == 1)


def test_a_stop_is_counted_once_also_if_the_log_is_written_later(folder):
    service = served(folder)
    session, _ = opened(service, "Oslo")
    (folder / "log").write_text("a file where the folder should be")
    with pytest.raises(RefusedError, match="be written"):
        service.observe(session, {"index": 2, "answer": "Oslo"})
    (folder / "log").unlink()
    for _ in range(2):
        assert service.observe(session, {"index": 2, "answer": "Oslo"})["stop"]
    assert b'suffice_stops_total{policy="stable",reason="rule"} 1.0' in service.metrics.text()


def test_a_refused_decision_leaves_no_session_that_would_be_a_lost_audit(folder):
    service = served(folder, ALL, ttl=5)
    (folder / "log").write_text("a file where the folder should be")
    with pytest.raises(RefusedError, match="be written"):
        service.decide(question(rounds=rounds("Oslo", "Oslo")))
    (folder / "log").unlink()
    assert service.store.count() == 0
    assert service.store.pending() == []
    assert service.decide(question(rounds=rounds("Oslo", "Oslo")))["audit"]
    service.log_pending()
    assert set(logged(folder)) == {"q"}


@pytest.mark.parametrize(
    "name", ["question_id", "round", "answer", "stop_round", "embedding", "cost.model.calls", "f1"]
)
def test_a_signal_cannot_take_the_place_of_another_column_of_the_log(folder, name):
    """One such request made the log of all others unreadable."""
    service = served(folder)
    service.decide(question("fine", rounds=rounds("Oslo", "Oslo")))
    session, _ = opened(service, "Oslo")
    odd = {"answer": "Oslo", "signals": {name: 7.0}}
    with pytest.raises(DataError, match="of a signal"):
        service.observe(session, odd)
    with pytest.raises(DataError, match="of a signal"):
        service.decide(question("odd", rounds=[odd, odd]))
    assert service.observe(session, {"answer": "Oslo"})["stop"]
    service.log.close()
    assert {key: len(rows) for key, rows in logged(folder).items()} == {"fine": 2, "q": 2}


def test_a_log_that_is_closed_is_compacted_and_reads_the_same(folder):
    service = served(folder, ALL)
    opened(service, "Oslo", "Oslo", name="a")
    opened(service, "Oslo", "Bergen", "Bergen", name="b")
    before = logged(folder)
    service.log.close()
    assert logged(folder) == before
    service = served(folder, ALL)
    service.decide(question("c", rounds=rounds("Oslo", "Oslo")))
    assert set(logged(folder)) == {"a", "b", "c"}


def test_the_log_is_watched_and_prometheus_sees_it(folder, monkeypatch):
    watching_here(monkeypatch)
    service = served(folder, ALL)
    with pytest.raises(NotFoundError, match="'stable'"):
        service.watched("stable")
    sessions = [opened(service, "Oslo", "Oslo", name=f"q{number}")[0] for number in range(4)]
    early = service.watched("stable")
    assert (early["requests"], early["audited"], early["loss"]["mean"]) == (4, 0, None), (
        "an audit has as long as a session"
    )
    for number, session in enumerate(sessions):
        for index, answer in ((3, "Oslo"), (4, "Oslo" if number else "Bergen")):
            service.observe(session, {"index": index, "answer": answer})
    service._watch.seconds = 0.0
    service.watch_again()
    service._watch.seconds = 60.0
    seen = service.watched(STABLE.digest)
    result = watch(read_recording(folder / "log" / f"stable-{STABLE.digest}"), STABLE)
    assert (seen["sentence"], seen["status"]) == (result.sentence, result.status)
    assert (seen["requests"], seen["audited"], seen["loss"]["mean"], seen["alarm"]) == (4, 4, 0.25, False)
    assert b'suffice_audited_loss{bound="mean",metric="agreement",policy="' in service.metrics.text()
    opened(service, "Oslo", "Oslo", name="new")
    assert service.watched("stable")["requests"] == 4  # it is looked at again after a while
    clock = time.time() - 86_400
    monkeypatch.setattr(time, "time", lambda: clock)  # which a clock that is set back does not delay
    monkeypatch.setattr(service._watch, "seconds", 0)
    assert service.watched("stable")["requests"] == 5
    with pytest.raises(NotFoundError, match="--log FOLDER"):
        Service(service.policies, service.store).watched("stable")


@pytest.mark.whole
def test_a_log_is_watched_in_a_process_of_its_own(folder, monkeypatch):
    service = served(folder, ALL)
    for number in range(4):
        opened(service, "Oslo", "Oslo", "Oslo", "Oslo", name=f"q{number}")
    seen = service.watched("stable")
    watching_here(monkeypatch)
    other = served(folder, ALL).watched("stable")
    assert {**seen, "seconds_ago": 0} == {**other, "seconds_ago": 0}
    assert seen["audited"] == 4
    monkeypatch.undo()
    (part,) = (folder / "log" / f"stable-{STABLE.digest}").glob("*.rounds")
    content = part.read_bytes()
    part.write_bytes(b"damaged" + content)
    service = served(folder, ALL)
    with pytest.raises(SchemaError, match="is damaged"):
        service.watched("stable")
    part.write_bytes(content)
    monkeypatch.setattr(watching, "start_python", lambda *_, **settings: start_python("-c", "exit(9)", **settings))
    with pytest.raises(WorkerDiedError, match="the status 9"):
        service.watched("stable")


def test_one_look_at_a_time_and_nobody_waits_for_it(folder, monkeypatch):
    service = served(folder, ALL)
    opened(service, "Oslo", "Oslo")
    said = []

    def look(_, task):
        with pytest.raises(RefusedError, match="try again") as refused:  # as another request sees it
            service.watched("stable")
        said.append(refused.value.status)
        return task.result()

    monkeypatch.setattr(LogWatch, "_elsewhere", look)
    first = service.watched("stable")
    service._watch.seconds = 0
    monkeypatch.setattr(
        LogWatch, "_elsewhere", lambda _, task: (said.append(service.watched("stable")["requests"]), task.result())[1]
    )
    opened(service, "Oslo", "Oslo", name="r")
    assert (first["requests"], service.watched("stable")["requests"], said) == (1, 2, [503, 1])


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users on this system, so nothing is joined")
def test_the_parts_of_earlier_servers_are_joined(folder, monkeypatch):
    monkeypatch.setattr(parts_compaction, "_MANY_PARTS", 2)
    monkeypatch.setattr(
        parts_writing, "_run_elsewhere", lambda _, words: parts_compaction.join_many_parts(Path(*words))
    )
    for name in "abcd":
        service = served(folder, ALL)
        opened(service, "Oslo", "Oslo", "Oslo", "Oslo", name=name)
        service.log.close()
    assert len([*(folder / "log" / f"stable-{STABLE.digest}").glob("part-*")]) == 2


def test_policies_under_one_name_share_the_risk_of_false_alarms(folder, monkeypatch):
    watching_here(monkeypatch)
    service = served(folder, ALL)
    opened(service, "Oslo", "Oslo", name="q1")
    assert service.watched("stable")["risk"] == pytest.approx(0.0205, abs=1e-4)
    (folder / "log" / f"stable-{'0' * 16}").mkdir()  # of a policy without a request
    later = Policy(rule="answer_stable", max_rounds=3)
    later.save(folder / "policies" / "stable.json")
    service = served(folder, ALL)
    opened(service, "Oslo", "Oslo", name="q2")
    assert service.watched(later.digest)["risk"] == pytest.approx(0.0057, abs=1e-4)


@pytest.mark.whole
def test_servers_that_are_killed_and_clients_that_misbehave_lose_nothing(tmp_path):
    counts = soak(tmp_path, seconds=2, every=0.5, clients=2, rate=0.3, seed=1)
    assert counts["questions"] >= 4
    assert counts["kills"] >= 1
