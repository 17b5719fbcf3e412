import inspect_ai
from inspect_ai.agent import react
from inspect_ai.dataset import Sample

from suffice.hosts.inspect import stop_continue

agent = react(tools=tools, on_continue=stop_continue("policy.json"))


def ask(question):
    (log,) = inspect_ai.eval(
        inspect_ai.Task(dataset=[Sample(input=question)], solver=agent), model=model, turn_limit=10
    )
    output = log.samples[0].output
    return output.completion, output.metadata["suffice"]
