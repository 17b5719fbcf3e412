"""The lines of code to paste for each framework; the frameworks' tests run them."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from suffice.errors import DataError, did_you_mean
from suffice.hosts.runs import REPLY_NEEDS
from suffice.policy.session import Policy
from suffice.policy.signals import EMBEDDER, PROBER, SIGNALS, STEPS

_OF_STATES = frozenset({"since_change", "checks_green_since_change"})
"""Signals that compare the states of files; in recordings of an agent's steps, answers are such states."""

_PLACEHOLDER = '"policy.json"'

_DRAFTS = """from suffice import Session
from suffice.hosts import reply_round


def ask(question):
    session = Session("policy.json")
    reply = None
    while session.decision is None:
        reply = write(question, reply)  # your loop: a text, or the client's response
        session.observe(reply_round(session, reply))
    return session.decision.answer, session.decision
"""
_SAMPLES = """from suffice import Session
from suffice.hosts import reply_round


def ask(question):
    session = Session("policy.json")
    while session.decision is None:
        reply = sample(question)  # your model, at a temperature above 0
        session.observe(reply_round(session, reply))
    return session.decision.answer, session.decision
"""
_GATED = """from suffice import Session
from suffice.hosts import reply_round


def ask(question):
    session = Session("policy.json")
    reply = answer(question)  # round 0: the model alone
    session.observe(reply_round(session, reply{signals}))
    while session.decision is None:
        reply = answer(question, retrieve(question))  # your retrieval, one piece of evidence more each time
        session.observe(reply_round(session, reply{unknown}))
    return session.decision.answer, session.decision
"""
_THOUGHTS = """from suffice import ChatModel, Policy, ThinkingLoop
from suffice.loops.thinking_loop import THINKING_PROMPTS
{imports}
# A server that continues raw text and caches prefixes; its address is in OPENAI_BASE_URL.
model = ChatModel({model!r}, api="completions", temperature={temperature!r})
loop = ThinkingLoop(
    model=model,
    policy=Policy.load("policy.json"),
    prompt={prompt}
    every={every!r},{boundary}
    trial_tokens={trial_tokens!r},{measures}
)


def ask(question):
    outcome = loop.run(question)
    return outcome.answer, outcome.decision
"""
_BUDGET = """from suffice import ChatModel, Policy
from suffice.hosts import check_thinking_budget

BUDGET = {budget}  # tokens of thought, which the server must be told to keep to:
# vllm serve {model!r} --reasoning-parser NAME --reasoning-config '{{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}}'
model = ChatModel(  # the server's address is in OPENAI_BASE_URL
    {model!r},
    temperature={temperature!r},
    max_tokens=BUDGET + {trial_tokens},
    extra_body={{"thinking_token_budget": BUDGET}},
)
policy = Policy.load("policy.json")
TASK = {system!r}


def ask(question):
    reply = model.complete({messages})
    check_thinking_budget(model, reply, BUDGET)  # raises if the server thought on
    cut = reply.finish_reason == "length"
    return None if cut else policy.answer_position.locate(reply.text, None).answer, reply
"""
_SYSTEM_FIRST = '[{"role": "system", "content": TASK}, {"role": "user", "content": question}]'
_TASK_LAST = '[{"role": "user", "content": f"{question}\\n\\n{TASK}"}]'
_STEPS = """from suffice import Round, Session
from suffice.importers.transcripts import VisibleFiles
from suffice.policy.signals import StepSignals


def work(task):
    session, steps, files = Session("policy.json"), StepSignals(), VisibleFiles()
    while session.decision is None:
        done = step(task)  # your agent: what it ran, whether that failed, and what the call of the model cost
        files.run(done.command)
        signals = steps.add(done.command, failed=done.failed, dollars=done.dollars)
        costs = {"generator": done.cost}
        session.observe(Round(index=session.next_round, answer=files.digest, signals=signals, costs=costs))
    return session.decision
"""
_RUNS = """from suffice import Session
from suffice.hosts import reply_round


def work(task):
    session = Session("policy.json")
    while session.decision is None:
        done = step(task)  # your agent: the client's response, and whether the run has ended by itself, with its result
        session.observe(reply_round(session, done.reply{signals}))
    return session.decision
"""
_STOPS = "    return session.decision\n"
_GIVES_UP = """        if done.has_ended:  # by itself: its result counts, whatever the rule says of the last step
            return done.result, session.decision or session.end("exhausted")
    return None, session.decision  # given up: there is no result, and what the run would have done is not paid
"""
_ATTEMPTS = """{imports}from suffice import Session
from suffice.hosts import reply_round

MODELS = {models}  # the cheapest first
{agent}

def ask(question):
    session = Session("policy.json")
    for model in MODELS:
        reply = {call}
        if session.observe(reply_round(session, reply{signals})).stop:
            break
    return session.decision.answer, session.decision
"""
_GRAPH = """

def write(state, config):  # your node: a call of the model of this attempt
    return {"messages": [chat_model(config["configurable"]["model"]).invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("write", write)
graph.add_edge(START, "write")
app = graph.compile()
"""
_ASKED = '{"messages": [("user", question)]}'
_ATTEMPTS_IN = {
    "python": ("", "", "call(model, question)  # your client"),
    "langchain": (
        "from langchain.agents import create_agent\n\n",
        "",
        f'create_agent(model, tools).invoke({_ASKED})["messages"][-1].text',
    ),
    "langgraph": (
        "from langgraph.graph import START, MessagesState, StateGraph\n\n",
        _GRAPH,
        f'app.invoke({_ASKED}, {{"configurable": {{"model": model}}}})["messages"][-1].text',
    ),
    "openai_agents": (
        "from agents import Agent, Runner\n\n",
        "",
        'Runner.run_sync(Agent("writer", model=model, tools=tools), question).final_output',
    ),
    "pydantic_ai": (
        "from pydantic_ai import Agent\n\n",
        "agent = Agent(tools=tools)\n",
        "agent.run_sync(question, model=model).output",
    ),
}
"""For each framework in which an attempt is a run with another model: imports, what is made once, and the run."""
_ESCALATION = """from suffice import ChatModel, EscalationLoop, Policy

MODELS = {models}  # the cheapest first; the address of their server is in OPENAI_BASE_URL
loop = EscalationLoop(
    model=[ChatModel(name) for name in MODELS],
    policy=Policy.load("policy.json"),
    temperature={temperature!r},
)


def ask(question):
    outcome = loop.run(question)
    return outcome.answer, outcome.decision
"""


def frameworks() -> dict[str, str]:
    """Return the lines to paste for each framework, by its name; they load the policy from `policy.json`.

    >>> "langgraph" in frameworks()
    True
    """
    folder = files("suffice.hosts").joinpath("snippets")
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".py"))
    return {name.removesuffix(".py"): folder.joinpath(name).read_text("utf-8") for name in names}


def snippet(name: str, policy: str | Path = "policy.json") -> str:
    """Return the lines to paste for one framework.

    >>> print(snippet("langchain", "rule.json").splitlines()[4])
    agent = create_agent(model, tools, middleware=[stop_middleware("rule.json")])

    Args:
        name: The framework, see `frameworks`.
        policy: The policy file that the lines load.

    Raises:
        DataError: There are no lines for this framework.
    """
    known = frameworks()
    if name not in known:
        raise DataError(f"unknown framework {name!r}.{did_you_mean(name, known)} There are: {', '.join(known)}")
    return _with_policy(known[name], policy)


def own_lines(policy: Policy, path: str | Path) -> str:
    """Return the lines to paste into a user's own loop.

    The loop draws samples if the policy counts votes.  If the policy starts at round 0, the loop first asks the model without
    evidence.  If the policy gives up runs, the loop returns None for such a run.
    """
    from suffice.verdicts.decisions.candidates import is_vote

    if gives_up(policy):
        steps = _steps(policy) if is_of_steps(policy) else _RUNS.replace("{signals}", _given(policy, "task, done"))
        return _with_policy(steps.replace(_STOPS, _GIVES_UP), path)
    if is_of_thoughts(policy):
        return _with_policy(_thoughts(policy), path)
    if is_of_steps(policy):
        return _with_policy(_steps(policy), path)
    if attempts_in(policy):
        return _with_policy(_escalation(policy) or attempt_lines(policy, path), path)
    if policy.start_round == 0:
        return _with_policy(_gated(policy), path)
    return _with_policy(_SAMPLES if is_vote(policy) else _DRAFTS, path)


def _steps(policy: Policy) -> str:
    """Return the lines for the steps of an agent, with a comment on the currency if the policy's spend is not in dollars."""
    from suffice.evaluation.replay.prices import spend_currency  # loads pyarrow
    from suffice.recordings.schema import DOLLAR

    currency = spend_currency(policy)
    given = "dollars=done.dollars)"
    return _STEPS if currency == DOLLAR else _STEPS.replace(given, f"{given}  # in {currency}, like the log")


def gives_up(policy: Policy) -> bool:
    """Return whether a policy was made to give up runs, so that a stopped run has no result."""
    from suffice.evaluation.replay.outcomes import abandoned  # loads pyarrow
    from suffice.verdicts.certificates import metric_of

    return bool(abandoned(metric_of(policy) or ""))


def is_of_thoughts(policy: Policy) -> bool:
    """Return whether a policy was made for recorded chains of thought."""
    return "trial_tokens" in policy.depends


def is_of_steps(policy: Policy) -> bool:
    """Return whether a policy reads signals of an agent's steps: states of files, commands, or the money spent.

    >>> is_of_steps(Policy(rule="since_change >= 20")), is_of_steps(Policy(rule="answer_stable"))
    (True, False)
    """
    read = set(policy.raw_signals)
    return bool(read & _OF_STATES) or any(name in SIGNALS and STEPS in SIGNALS[name].needs for name in read)


def _thoughts(policy: Policy) -> str:
    """Return the lines of a loop with the checkpoints and trials that the policy was made for."""
    from suffice.loops.boundaries import TOKENS
    from suffice.loops.thinking_loop import THINKING_PROMPTS

    made_for = _made_for(policy)
    named = {prompt.prompt_id: f"THINKING_PROMPTS[{name!r}]," for name, prompt in THINKING_PROMPTS.items()}
    own = str(made_for["prompt_id"])
    prompt = named.get(own, f"PROMPT,  # your ThinkingPrompt {own!r}")
    boundary = made_for.get("boundary", TOKENS)
    made_for["boundary"] = "" if boundary == TOKENS else f"\n    boundary={boundary!r},"
    imports, measures = _chain_measures(policy, prompt.partition(",")[0])
    return _THOUGHTS.format(**made_for, prompt=prompt, imports=imports, measures=measures)


def _chain_measures(policy: Policy, prompt: str) -> tuple[str, str]:
    """Return the imports and the argument `enrichers` for the signals of the chain itself that the policy reads."""
    components = {SIGNALS[name].component for name in policy.raw_signals if name in SIGNALS}
    imports, measures = "", []
    if EMBEDDER in components:
        imports += "from suffice.policy.embedding import DraftEmbedder\n"
        embedder = dict(policy.depends.get(EMBEDDER, {})).get("id", "")
        measures.append(f"DraftEmbedder(EMBEDDER),  # your embedder {embedder!r}")
    if PROBER in components:
        imports += "from suffice_gates.models import ChainStates, TransformersModel\nfrom suffice_gates.probes import Probe, SettledProbe\n"
        measures.append(_settled_probe(dict(policy.depends.get(PROBER, {})), prompt))
    listed = "".join(f"\n        {item}" for item in measures)
    return imports, f"\n    enrichers=({listed}\n    )," if measures else ""


def _settled_probe(pin: dict[str, Any], prompt: str) -> str:
    """Return the code of an enricher that loads the policy's probe from a folder, or several probes that vote."""
    pins = [dict(each) for each in pin.get("probes", [pin])]
    layers = tuple(dict.fromkeys(each.get("layer") for each in pins))
    model = f"TransformersModel({pins[0].get('model')!r}, layers={layers!r})"
    folders = ["probe"] if len(pins) == 1 else [f"probe{number}" for number in range(1, len(pins) + 1)]
    loaded = ", ".join(f'Probe.load("{folder}")' for folder in folders)
    if len(pins) == 1:
        return f"SettledProbe({loaded}, ChainStates({model}, {prompt})),  # the folder of your probe"
    of = ", ".join(repr(each.get("layer")) for each in pins)
    return f"SettledProbe([{loaded}], ChainStates({model}, {prompt})),  # the folders of your probes of layers {of}"


def _made_for(policy: Policy) -> dict[str, Any]:
    """Return the configuration of the chains that a policy was made for.

    Raises:
        DataError: The policy's file lacks a part of the configuration.
    """
    lacking = [
        name for name in ("model", "temperature", "prompt_id", "every", "trial_tokens") if name not in policy.depends
    ]
    if lacking:
        raise DataError(
            f"the policy does not say for which {lacking[0]!r} it was made, so its file is damaged: save it anew"
        )
    return dict(policy.depends)


def budget_lines(policy: Policy, path: str | Path) -> str:
    """Return the lines that request a reply from vLLM within the policy's thinking budget, and check the reply.

    Args:
        policy: The policy, which is a budget of tokens.
        path: The policy file that the lines load.

    Raises:
        DataError: The policy has no such budget, see `suffice.hosts.budgets.budget_of`.
    """
    from suffice.hosts.budgets import budget_of
    from suffice.loops.thinking_loop import THINKING_PROMPTS

    budget, made_for = budget_of(policy), _made_for(policy)
    (prompt,) = (prompt for prompt in THINKING_PROMPTS.values() if prompt.prompt_id == made_for["prompt_id"])
    own_turn = prompt.start.index("{system}") < prompt.start.index("{question}")
    turns = _SYSTEM_FIRST if own_turn else _TASK_LAST
    lines = _BUDGET.format(
        budget=budget,
        model=made_for["model"],
        temperature=made_for["temperature"],
        trial_tokens=made_for["trial_tokens"],
        system=prompt.system,
        messages=turns,
    )
    return _with_policy(lines, path)


def attempt_lines(policy: Policy, path: str | Path, name: str = "python") -> str:
    """Return the lines of a loop over the models that the policy of an escalation may ask.

    Each attempt is a separate run that sees only the question.  A signal that replies do not contain is computed by a function
    that the user writes.

    Args:
        policy: The policy, which names the models of the attempts.
        path: The policy file that the lines load.
        name: `python`, or a framework whose agent can run with another model.

    Raises:
        DataError: An agent of this framework cannot change its model.
    """
    if name not in _ATTEMPTS_IN:
        raise DataError(
            f"the policy goes through {', '.join(attempts_in(policy))}, and an agent of {name} keeps its model: give --to "
            f"{', '.join(list(_ATTEMPTS_IN)[:-1])} or {list(_ATTEMPTS_IN)[-1]}, or ask the models by EscalationLoop"
        )
    imports, agent, call = _ATTEMPTS_IN[name]
    parts = {"imports": imports, "models": _models(policy), "agent": agent, "call": call}
    lines = _ATTEMPTS
    for part, text in {**parts, "signals": _given(policy, "question, reply")}.items():
        lines = lines.replace(f"{{{part}}}", text)
    return _with_policy(lines, path)


def attempts_in(policy: Policy) -> list[str]:
    """Return the model of each attempt if a policy was made for an escalation; empty for other policies."""
    from suffice.recordings.runs import ATTEMPTS  # loads pyarrow

    return [*map(str, policy.depends.get(ATTEMPTS, ()))]


def _models(policy: Policy) -> str:
    """Return the list of the models that the policy may ask."""
    return json.dumps(attempts_in(policy)[policy.start_round - 1 : policy.max_rounds])


def _escalation(policy: Policy) -> str:
    """Return the lines of an `EscalationLoop`; "" if such a loop does not suit the policy.

    The loop suits if it asks models as they were asked for the policy's recording, and measures all signals of the policy.
    """
    from suffice.loops.models.prompts import ANSWER_FIRST
    from suffice.recordings.schema import CURRENCY  # loads pyarrow

    made_for, names = dict(policy.depends), attempts_in(policy)
    temperature, _ = made_for.pop("temperature", None), made_for.pop(CURRENCY, None)
    own = {"model": " + ".join(dict.fromkeys(names)), "prompt_id": ANSWER_FIRST.prompt_id, "attempts": names}
    if made_for != own or policy.start_round != 1 or len(names) < 2 or _given(policy, ""):  # noqa: PLR2004
        return ""
    return _ESCALATION.format(models=json.dumps(names), temperature=temperature)


def _given(policy: Policy, of: str) -> str:
    """Return the code of an argument `signals` with the signals that replies do not contain; "" without such signals."""
    own = [name for name in policy.raw_signals if name not in SIGNALS or not SIGNALS[name].needs <= REPLY_NEEDS]
    return f", signals={{{', '.join(_measured(name, of) for name in own)}}}" if own else ""


def _measured(name: str, of: str = "question, reply") -> str:
    """Return the code of a dict item that computes a signal by a function of the same name."""
    return f'"{name}": {name.replace(".", "_").replace("-", "_")}({of})'


def _gated(policy: Policy) -> str:
    """Return the lines of a loop with a gate at round 0.

    A signal that nothing else measures is computed by a function that the user writes.
    """
    own = [
        name for name in policy.signals if name != "round" and (name not in SIGNALS or SIGNALS[name].last_round == 0)
    ]
    given = ", ".join(map(_measured, own))
    unknown = ", ".join(f'"{name}": float("nan")' for name in own if name not in SIGNALS)
    lines = _GATED.replace("{signals}", f", signals={{{given}}}" if own else "")
    return lines.replace("{unknown}", f", signals={{{unknown}}}" if unknown else "")


def _with_policy(lines: str, policy: str | Path) -> str:
    """Replace `policy.json` in lines of code by another policy file."""
    quoted = str(policy).replace("\\", "\\\\").replace('"', '\\"')
    return lines.replace(_PLACEHOLDER, f'"{quoted}"')
