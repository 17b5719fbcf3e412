"""Going on after an interruption with fewer, more or other questions: nothing paid for is lost, nothing is mixed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suffice import Passage, record
from suffice.errors import AuthenticationFailedError, ConfigMismatchError, ModelError
from suffice.loops import RetrievalLoop
from suffice.recordings import read_recording
from tests.support.recording import scripted

STOP = AuthenticationFailedError("401")


def test_a_rerun_of_fewer_questions_keeps_failed_ones_and_paid_replies(tmp_path):
    questions, loop = scripted(failures={5: ModelError("broke")})
    path = tmp_path / "r.parquet"
    record(questions, loop, path, concurrency=1)
    record(questions[:1], loop, path)
    recording = read_recording(path)
    assert set(recording.question_ids) == {q.question_id for q in questions}
    assert recording.metadata["failed"] == {"q1": "broke"}
    calls = loop.model.calls
    record(questions, loop, path)
    assert loop.model.calls == calls + 2  # its first round is not paid for again
    assert set(read_recording(path).ends) == {"max_rounds"}
    assert not (tmp_path / "r.parquet.journal").exists()


def test_a_rerun_of_fewer_questions_after_a_kill_keeps_the_journal(tmp_path):
    questions, loop = scripted(failures={11: STOP})
    path = tmp_path / "r.parquet"
    with pytest.raises(AuthenticationFailedError):
        record(questions, loop, path, concurrency=1)
    assert not path.exists()
    record(questions[:1], loop, path)
    assert read_recording(path).question_ids == ["q0", "q1", "q2"]  # all that was finished
    calls = loop.model.calls
    record(questions, loop, path)
    assert loop.model.calls == calls + 8  # q3 has one round, q4 and q5 none
    assert read_recording(path).shape == (6, 3)


def other_text(question):
    return replace(question, question="What is 9?")


def other_passage(question):
    changed = Passage(passage_id="x", title="t0", text="another")
    return replace(question, passages=(changed, *question.passages[1:]))


@pytest.mark.parametrize("changed", [other_text, other_passage])
def test_committed_replies_never_answer_another_question_of_the_same_id(changed, tmp_path):
    questions, loop = scripted(failures={5: STOP})
    path = tmp_path / "r.parquet"
    with pytest.raises(AuthenticationFailedError):
        record(questions, loop, path, concurrency=1)
    calls = loop.model.calls
    swapped = [*questions[:1], changed(questions[1]), *questions[2:]]
    with pytest.raises(ConfigMismatchError, match="'q1'"):
        record(swapped, loop, path, concurrency=1)
    assert loop.model.calls == calls
    record(questions, loop, path)
    assert read_recording(path).shape == (6, 3)


def test_a_finished_question_is_not_mistaken_for_another_with_its_id(tmp_path):
    questions, loop = scripted(failures={5: STOP})
    path = tmp_path / "r.parquet"
    with pytest.raises(AuthenticationFailedError):
        record(questions, loop, path, concurrency=1)
    with pytest.raises(ConfigMismatchError, match="'q0'"):
        record([other_text(questions[0]), *questions[1:]], loop, path)


def test_a_judge_that_failed_is_asked_again_and_the_model_is_not(tmp_path):
    from tests.suffice.loops.test_loop import Judge

    questions, loop = scripted(n=1)
    judge = Judge(failures=(2,))
    loop = RetrievalLoop(model=loop.model, retriever=loop.retriever, policy=loop.policy, enrichers=(judge,))
    summary = record(questions, loop, tmp_path / "r.parquet")
    assert dict(summary.failed) == {"q0": "the judge is down"}
    assert read_recording(tmp_path / "r.parquet").seen.tolist() == [[True]]
    judge.failures = ()
    record(questions, loop, tmp_path / "r.parquet")
    assert (loop.model.calls, judge.asked) == (3, [1, 2, 2, 3])
