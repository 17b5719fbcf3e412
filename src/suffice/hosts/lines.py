"""The lines of code to paste for each framework; the frameworks' tests run them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from suffice.errors import DataError, did_you_mean
from suffice.hosts.runs import REPLY_NEEDS
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS, STEPS

_OF_STATES = frozenset({"since_change", "checks_green_since_change"})
"""Signals of the answers of steps, which stand for states of files."""

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

# A server that continues raw text and caches prefixes; its address is in OPENAI_BASE_URL.
model = ChatModel({model!r}, api="completions", temperature={temperature!r})
loop = ThinkingLoop(
    model=model,
    policy=Policy.load("policy.json"),
    prompt={prompt}
    every={every!r},{boundary}
    trial_tokens={trial_tokens!r},
)


def ask(question):
    outcome = loop.run(question)
    return outcome.answer, outcome.decision
"""
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
_ATTEMPTS = """from suffice import Session
from suffice.hosts import reply_round

MODELS = {models}  # the cheapest first


def ask(question):
    session = Session("policy.json")
    for model in MODELS:
        reply = call(model, question)  # your client
        if session.observe(reply_round(session, reply{signals})).stop:
            break
    return session.decision.answer, session.decision
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

    They draw samples if the policy counts votes, and ask the model alone first if it starts at round 0.  Those of a policy that gives
    runs up return None for a run that is given up.
    """
    from suffice.recordings.runs import ATTEMPTS  # loads pyarrow, as what follows
    from suffice.verdicts.decisions.candidates import is_vote

    if gives_up(policy):
        steps = _STEPS if is_of_steps(policy) else _RUNS.replace("{signals}", _given(policy, "task, done"))
        return _with_policy(steps.replace(_STOPS, _GIVES_UP), path)
    if is_of_thoughts(policy):
        return _with_policy(_thoughts(policy), path)
    if is_of_steps(policy):
        return _with_policy(_STEPS, path)
    if ATTEMPTS in policy.depends:
        return _with_policy(_attempts(policy, policy.depends[ATTEMPTS]), path)
    if policy.start_round == 0:
        return _with_policy(_gated(policy), path)
    return _with_policy(_SAMPLES if is_vote(policy) else _DRAFTS, path)


def gives_up(policy: Policy) -> bool:
    """Return whether a policy was made to give runs up, so that to stop means to have no result."""
    from suffice.evaluation.replay.outcomes import abandoned  # loads pyarrow
    from suffice.verdicts.certificates import metric_of

    return bool(abandoned(metric_of(policy) or ""))


def is_of_thoughts(policy: Policy) -> bool:
    """Return whether a policy was made for recorded chains of thought."""
    return "trial_tokens" in policy.depends


def is_of_steps(policy: Policy) -> bool:
    """Return whether a policy reads what only the steps of an agent show: states of files, commands, and what was spent.

    >>> is_of_steps(Policy(rule="since_change >= 20")), is_of_steps(Policy(rule="answer_stable"))
    (True, False)
    """
    read = set(policy.raw_signals)
    return bool(read & _OF_STATES) or any(name in SIGNALS and STEPS in SIGNALS[name].needs for name in read)


def _thoughts(policy: Policy) -> str:
    """Return the lines of a loop with the checkpoints and trials that the policy was made for."""
    from suffice.loops.boundaries import TOKENS
    from suffice.loops.thinking_loop import THINKING_PROMPTS

    made_for = dict(policy.depends)
    named = {prompt.prompt_id: f"THINKING_PROMPTS[{name!r}]," for name, prompt in THINKING_PROMPTS.items()}
    own = str(made_for["prompt_id"])
    boundary = made_for.get("boundary", TOKENS)
    made_for["boundary"] = "" if boundary == TOKENS else f"\n    boundary={boundary!r},"
    return _THOUGHTS.format(**made_for, prompt=named.get(own, f"PROMPT,  # your ThinkingPrompt {own}"))


def _attempts(policy: Policy, attempts: Sequence[str]) -> str:
    """Return the lines of a loop over the models that the policy may ask, with the signals that nobody else measures."""
    models = [*attempts][policy.start_round - 1 : policy.max_rounds]
    given = _given(policy, "question, reply")
    return _ATTEMPTS.replace("{models}", json.dumps(models)).replace("{signals}", given)


def _given(policy: Policy, of: str) -> str:
    """Return the argument with the signals that replies do not bring; empty if there are none."""
    own = [name for name in policy.raw_signals if name not in SIGNALS or not SIGNALS[name].needs <= REPLY_NEEDS]
    return f", signals={{{', '.join(_measured(name, of) for name in own)}}}" if own else ""


def _measured(name: str, of: str = "question, reply") -> str:
    """Return an item that measures a signal by a function of the same name."""
    return f'"{name}": {name.replace(".", "_").replace("-", "_")}({of})'


def _gated(policy: Policy) -> str:
    """Return the lines of a loop with a gate at round 0, which takes the signals that nobody else measures."""
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
