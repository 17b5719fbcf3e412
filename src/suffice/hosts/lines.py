"""The lines of code to paste for each framework; the frameworks' tests run them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from suffice.errors import DataError, did_you_mean
from suffice.policy.session import Policy

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
    """Return the lines to paste into a user's own loop; it draws samples if the policy counts votes."""
    from suffice.verdicts.decisions.candidates import is_vote

    return _with_policy(_SAMPLES if is_vote(policy) else _DRAFTS, path)


def _with_policy(lines: str, policy: str | Path) -> str:
    """Replace `policy.json` in lines of code by another policy file."""
    quoted = str(policy).replace("\\", "\\\\").replace('"', '\\"')
    return lines.replace(_PLACEHOLDER, f'"{quoted}"')
