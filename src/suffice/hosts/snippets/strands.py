from strands import Agent
from strands.hooks import AfterModelCallEvent, AfterToolsEvent

from suffice.hosts import QuestionRun


def observe(event: AfterModelCallEvent):
    run = event.invocation_state["run"]
    if event.stop_response and run.decision is None:
        run.observe("".join(part.get("text", "") for part in event.stop_response.message["content"]))


def decide(event: AfterToolsEvent):
    run = event.invocation_state["run"]
    if run.decision:
        event.end_turn = run.text


agent = Agent(model=model, tools=tools, hooks=[observe, decide], callback_handler=None)


def ask(question):
    run = QuestionRun("policy.json", question)
    result = agent(question, invocation_state={"run": run}, limits={"turns": 10})
    run.end("cancelled" if result.stop_reason == "limit_turns" else "exhausted")
    return run.text, run.metadata()
