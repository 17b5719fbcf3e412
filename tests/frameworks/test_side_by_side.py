"""One adapter object, several runs at once: in tasks of one event loop, and in threads."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass

import pytest

from suffice import Recorder, read_recording
from tests.frameworks.acceptance import SCRIPT, Script, check_stop, loaded
from tests.frameworks.test_recorder import ADAPTERS

CURRENT = ContextVar("script")
# A condition of AutoGen serves one team at a time, and an agent of smolagents has one memory.
TOGETHER = sorted(ADAPTERS.keys() - {"autogen", "google_adk", "smolagents"})
ASYNC = {
    "haystack": (
        "agent.run(messages=[ChatMessage.from_user(question)])",
        "(await agent.run_async(messages=[ChatMessage.from_user(question)]))",
    ),
    "langchain": ("agent.invoke(", "await agent.ainvoke("),
    "langgraph": ("app.invoke(", "await app.ainvoke("),
    "openai_agents": ("Runner.run_sync(", "await Runner.run("),
    "pydantic_ai": ("agent.run_sync(", "await agent.run("),
}


@dataclass
class ScriptOfTask(Script):
    """The script of the task or thread that asks."""

    def next(self):
        return CURRENT.get().next()


def run_of(ask, question):
    script = Script()
    CURRENT.set(script)
    value = ask(question)
    if not inspect.isawaitable(value):
        check_stop(script, *value)
        return None

    async def finish():
        CURRENT.set(script)
        check_stop(script, *await value)

    return finish()


def recorded(name, folder, change=("", "")):
    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        yield loaded(name, folder, change, recorder=recorder, **ADAPTERS[name](ScriptOfTask()))["ask"]
    recording = read_recording(folder / "runs.parquet")
    assert recording.answers.tolist() == [list(SCRIPT[:4])] * 5
    assert len(set(recording.clusters.tolist())) == 5


@pytest.mark.parametrize("name", TOGETHER)
def test_tasks_do_not_meet(name, folder):
    async def both(ask):
        await asyncio.gather(*(run_of(ask, f"Which play has {number}?") for number in range(5)))

    for ask in recorded(name, folder, ASYNC.get(name, ("", ""))):
        asyncio.run(both(ask))


def in_a_loop_of_its_own(ask, question):
    value = run_of(ask, question)
    if value is not None:
        asyncio.run(value)


@pytest.mark.parametrize("name", TOGETHER)
def test_threads_do_not_meet(name, folder):
    for ask in recorded(name, folder):
        with ThreadPoolExecutor(5) as pool:
            for future in [pool.submit(in_a_loop_of_its_own, ask, f"Which play has {number}?") for number in range(5)]:
                future.result()
