"""LlamaIndex workflows: the lines to paste, contexts, and the timeout."""

import asyncio

import pytest
from workflows import Context
from workflows.errors import WorkflowTimeoutError
from workflows.plugins.basic import InternalAsyncioAdapter

from suffice import Recorder, read_recording
from tests.frameworks.acceptance import CAPPED, QUESTION, SCRIPT, Script, check, check_cap, check_stop, loaded


def complete(script, hangs_after=1000, clock=None):
    """Return a model that never replies after so many calls: it waits until everybody's time is up."""

    async def reply(question):
        if script.calls == hangs_after:
            clock.skipped += 1e6
            await asyncio.Event().wait()
        return script.next()

    return reply


@pytest.fixture
def clock(monkeypatch):
    """The time of event loops and workflows, of which seconds can be skipped."""

    class Clock:
        skipped = 0.0

    class Loop(asyncio.SelectorEventLoop):
        def time(self):
            return super().time() + Clock.skipped

    now = InternalAsyncioAdapter.get_now

    async def skipping(adapter):
        return await now(adapter) + Clock.skipped

    monkeypatch.setattr(asyncio.events, "new_event_loop", Loop)
    monkeypatch.setattr(InternalAsyncioAdapter, "get_now", skipping)
    return Clock


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("llama_index", folder, complete=complete(script))["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder, clock):
    script = Script(CAPPED)
    lines = loaded("llama_index", folder, complete=complete(script, hangs_after=3, clock=clock))
    check_cap(script, lines["ask"])


def test_what_a_timeout_ended_is_recorded_with_that_end(folder, clock):
    script = Script(CAPPED)
    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        model = complete(script, hangs_after=3, clock=clock)
        lines = loaded("llama_index", folder, complete=model, recorder=recorder)
        check_cap(script, lines["ask"])
    recording = read_recording(folder / "runs.parquet")
    assert recording.answers.tolist() == [list(CAPPED[:3])] * 2
    assert recording.ends.tolist() == ["max_rounds"] * 2


def test_a_timeout_before_the_first_reply_is_the_frameworks_error(folder, clock):
    script = Script()
    lines = loaded("llama_index", folder, complete=complete(script, hangs_after=4, clock=clock))

    async def both():
        flow, ended = lines["flow"], lines["stop"].ended
        ctx = Context(flow)
        await ended(flow.run(question=QUESTION, ctx=ctx))
        with pytest.raises(WorkflowTimeoutError):  # not the answer of the question before
            await ended(flow.run(question="Another?", ctx=ctx))

    asyncio.run(both())
    assert script.calls == 4


def test_a_workflow_that_ends_itself_is_exhausted_and_the_next_starts_anew(folder):
    script = Script()
    change = (
        "        return await stop(",
        "        if script.calls == 3:\n            return StopEvent()\n        return await stop(",
    )
    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        names = {"complete": complete(script), "recorder": recorder, "script": script}
        lines = loaded("llama_index", folder, change, **names)

        async def both():
            ctx = Context(lines["flow"])
            for question in (QUESTION, "Another?"):
                script.rewind()
                result = await lines["stop"].ended(lines["flow"].run(question=question, ctx=ctx))
                assert (result["answer"], result["decision"]["reason"]) == ("The Tempest", "exhausted")

        asyncio.run(both())
    recording = read_recording(folder / "runs.parquet")
    assert recording.answers.tolist() == [list(SCRIPT[:2])] * 2
    assert recording.ends.tolist() == ["exhausted"] * 2


def test_a_reused_serialised_context_starts_a_new_question(folder):
    script = Script()
    lines = loaded("llama_index", folder, complete=complete(script))

    async def both():
        ctx = Context(lines["flow"])
        for question in (QUESTION, "Another?"):
            script.rewind()
            result = await lines["stop"].ended(lines["flow"].run(question=question, ctx=ctx))
            check_stop(script, result["answer"], result["decision"])
            ctx = Context.from_dict(lines["flow"], ctx.to_dict())

    asyncio.run(both())
