from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent

from suffice.hosts.llama_index import stop_step

stop = stop_step("policy.json")


class Again(Event):
    question: str


class Drafting(Workflow):
    @step
    async def write(self, ctx: Context, ev: StartEvent | Again) -> Again | StopEvent:
        reply = await complete(ev.question)  # your call of the model
        return await stop(ctx, reply, ev.question) or Again(question=ev.question)


flow = Drafting(timeout=600)


async def ask(question):
    result = await stop.ended(flow.run(question=question))
    return result["answer"], result["decision"]
