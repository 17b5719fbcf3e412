"""LlamaIndex workflows: the lines to paste, contexts, and the timeout."""

import asyncio

import pytest
from workflows import Context
from workflows.errors import WorkflowTimeoutError

from suffice.frameworks.llama_index import ended
from tests.frameworks.acceptance import CAPPED, QUESTION, Script, check, check_cap, check_stop, loaded


def complete(script, hangs_after=1000):
    """Return a model that never replies after so many calls."""

    async def reply(question):
        if script.calls == hangs_after:
            await asyncio.Event().wait()
        return script.next()

    return reply


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("llama_index", folder, complete=complete(script))["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    lines = loaded("llama_index", folder, complete=complete(script, hangs_after=3))
    lines["flow"] = lines["Drafting"](timeout=4)  # three replies of a script take no time
    check_cap(script, lines["ask"])


def test_a_timeout_before_the_first_reply_is_the_frameworks_error(folder):
    script = Script()
    lines = loaded("llama_index", folder, complete=complete(script, hangs_after=4))

    async def both():
        flow = lines["Drafting"](timeout=4)
        ctx = Context(flow)
        await ended(flow.run(question=QUESTION, ctx=ctx))
        with pytest.raises(WorkflowTimeoutError):  # not the answer of the question before
            await ended(flow.run(question="Another?", ctx=ctx))

    asyncio.run(both())
    assert script.calls == 4


def test_a_context_that_is_used_again_and_written_down_begins_a_new_question(folder):
    script = Script()
    lines = loaded("llama_index", folder, complete=complete(script))

    async def both():
        ctx = Context(lines["flow"])
        for question in (QUESTION, "Another?"):
            script.rewind()
            result = await ended(lines["flow"].run(question=question, ctx=ctx))
            check_stop(script, result["answer"], result["decision"])
            ctx = Context.from_dict(lines["flow"], ctx.to_dict())

    asyncio.run(both())
