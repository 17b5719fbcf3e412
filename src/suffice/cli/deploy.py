"""`suffice deploy`: the policy that a decision advises, and the lines to paste into a loop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli import models, options
from suffice.cli.advice import in_plain_words
from suffice.cli.console import say
from suffice.cli.options import POLICY
from suffice.cli.output import Output, Screen
from suffice.common.files import quoted
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay.prices import spend_currency
from suffice.hosts import frameworks, snippet
from suffice.hosts.budgets import budget_of
from suffice.hosts.lines import (
    attempt_lines,
    attempts_in,
    budget_lines,
    gives_up,
    is_of_steps,
    is_of_thoughts,
    own_lines,
)
from suffice.hosts.runs import REPLY_NEEDS
from suffice.policy.session import Policy
from suffice.policy.signals import REMEDIES, SIGNALS
from suffice.recordings.schema import CHECKPOINTS, DOLLAR
from suffice.verdicts.certificates import metric_of
from suffice.verdicts.decisions import Advice
from suffice.verdicts.decisions.advice import FORMAT

_VLLM = "vllm"
_LATER = "keep some questions on the old cap, to decide again later: otherwise there is nothing to compare with"


def _is_decision(path: Path) -> bool:
    """Return True if a file is a decision.

    Any other file is later read as a policy, which raises if the file is not a policy.
    """
    try:
        return bool(json.loads(path.read_text("utf-8")).get("format") == FORMAT)
    except FileNotFoundError:
        raise NotFoundError(
            f"the decision {str(path)!r} does not exist: suffice decide RECORDING -o {quoted(path)} writes one"
        ) from None
    except (OSError, ValueError, AttributeError):
        return False


def _check(policy: Policy) -> None:
    """Raise if a policy cannot decide live."""
    if CHECKPOINTS in policy.depends:
        raise DataError(
            f"this cannot be deployed: its checkpoints are {policy.depends[CHECKPOINTS]}, which is known only when the chain has ended. "
            "Record checkpoints that count from the beginning (suffice think record), and decide on these"
        )
    policy.check()


def deploy_command(
    path: Annotated[Path, typer.Argument(metavar="DECISION", help="A decision, or a policy file.")],
    output: Output,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help=f"Whose lines to print: python (your own loop), vllm (a budget of thought in each request), {', '.join(frameworks())}.",
        ),
    ] = "python",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file for the decision's policy; default: policy.json.")
    ] = None,
    answer_position: Annotated[
        str | None,
        typer.Option(
            "--answer-position",
            help=f"The place of the answer in your replies: {models.PLACES}; default: the policy's.",
        ),
    ] = None,
) -> None:
    """A decision that advises no change has nothing to deploy, and says why.

    Example: suffice deploy decision.json --to langgraph
    """
    options.allowed(to, ["python", _VLLM, *frameworks()], "--to")
    advice = Advice.load(path) if _is_decision(path) else None
    if advice is not None:
        if advice.policy is None:
            raise DataError(f"there is nothing to deploy. {in_plain_words(advice.sentence, advice.trial.metric)}")
        policy, sentence, target = advice.policy, advice.sentence, out or POLICY
        then = f"suffice decide FRESH.parquet --continue {quoted(path)}{options.where_words(advice.where)}"
        notes = [_LATER]
    else:
        policy = options.load_policy(path)
        sentence, target = f"{policy.label}: {policy.rule}, at most {policy.max_rounds} rounds.", out or path
        then = f"suffice replay FRESH.parquet --policy {quoted(target)}{options.metric_words(metric_of(policy))}"
        notes = []
    _check(policy)
    position = models.answer_position(answer_position)
    if position is not None:  # the form of answers follows the log, even if their position in replies is given
        position = replace(position, form=position.form or policy.answer_position.form)
    if position is not None and position != policy.answer_position:
        if out is None and target == path:
            raise DataError(f"{path} reads answers elsewhere: give -o NEW.json, to which the changed policy is written")
        policy = replace(policy, answer_position=position)
    if target.suffix != ".json":
        raise DataError(
            f"{target} must end in .json, by which the lines know a policy file from the text of a rule: give -o"
        )
    if target != path:
        before = Policy.load(target) if target.exists() else policy  # raises if another kind of file would be replaced
        if out is None and before != policy:
            raise DataError(f"{target} is another policy: give -o {target} to replace it, or another name")
        policy.save(target)
    _check_target(policy, to)
    lines = _lines(policy, target, to)
    notes += _position_notes(policy, is_given=position is not None) + _needed_notes(policy) + _money_notes(policy)
    notes += _sampling_notes(policy) if to == _VLLM else []
    files = {} if target == path else {"policy": target}
    plain = sentence if advice is None else in_plain_words(sentence, advice.trial.metric)
    screen = Screen(sentences=[plain], notes=notes, files=files, then=then)
    output.show({"policy": str(target), "to": to, "lines": lines, "needs": notes, "sentence": sentence}, screen)
    if not output.as_json:
        say(f"\n{lines}")


def _lines(policy: Policy, target: Path, to: str) -> str:
    """Return the lines to paste."""
    if to == "python":
        return own_lines(policy, target)
    if to == _VLLM:
        return budget_lines(policy, target)
    return attempt_lines(policy, target, to) if attempts_in(policy) else snippet(to, target)


def _check_target(policy: Policy, to: str) -> None:
    """Raise if a framework does not provide the data that the policy reads."""
    if to == "python":
        return
    if to == _VLLM:
        budget_of(policy)  # raises if the policy is more than a budget
        return
    if gives_up(policy):
        raise DataError(
            f"the policy gives runs up, which then have no result, and an agent of {to} returns its last reply at a stop: leave out --to, for "
            "a loop of its own, which returns None for a run that is given up"
        )
    if is_of_thoughts(policy):
        raise DataError(
            f"the policy stops inside a chain of thought, which {to} does not show: leave out --to, for a loop of its own, or "
            "serve the policy (suffice serve)"
        )
    if is_of_steps(policy) and set(policy.raw_signals) - {"spend"}:
        raise DataError(
            f"the policy reads {', '.join(policy.raw_signals)}, for which a loop must show its commands and files, and {to} shows "
            "replies: leave out --to, for a loop of its own"
        )


def _position_notes(policy: Policy, *, is_given: bool) -> list[str]:
    """Return a note on the answer position.

    A policy that gives up runs gets a note on the value that the lines return instead. Policies on thoughts or steps get
    no note.
    """
    if gives_up(policy):
        return ["the lines return None for a run that is given up, and its own result for one that has ended by itself"]
    return [] if is_of_thoughts(policy) or is_of_steps(policy) else [_position_note(policy, is_given=is_given)]


def _money_notes(policy: Policy) -> list[str]:
    """Return a note if the policy compares money in a currency that is not the currency of prices."""
    currency = spend_currency(policy)
    note = (
        f"the policy compares spend in {currency}, like its log: give what was spent in {currency} (dollars= in the lines takes any currency; in a "
        f"framework, measure=). Prices of tokens are in {DOLLAR}, so a loop that is given prices refuses this policy"
    )
    return [] if currency == DOLLAR else [note]


def _sampling_notes(policy: Policy) -> list[str]:
    """Return a note if a server would sample the final answer, although trial answers were judged at temperature 0."""
    temperature = policy.depends.get("temperature")
    note = (
        f"the policy was judged on trial answers at temperature 0, and a server samples the answer, like the chain, at {temperature!r}: "
        "some answers will differ. The loop (leave out --to) asks as judged"
    )
    return [] if temperature == 0 else [note]


def _position_note(policy: Policy, *, is_given: bool) -> str:
    """Return a note on the answer position that the lines use, and on replies that have no answer at this position."""
    position = policy.answer_position
    form = f", written as {position.form}" if position.form else ""
    if position.kind == "whole":
        return f"the lines read the whole reply as the answer{form}, after any thinking block"
    where = {
        "json": "field {} of a JSON reply",
        "tool": "field {} of a tool call",
        "start": "start of a reply",
        "regex": "match of {}",
        "boxed": "last \\boxed of a reply",
        "last-number": "last number of a reply",
        "letter": "letter of the option that a reply names",
        "code-block": "last block of code in a reply",
    }
    place = where.get(position.kind, "text after {}").format(repr(position.text))
    if not position.is_default:
        return f"the lines read the answer at the {place}{form}; a reply without it is a round without an answer"
    advice = (
        "" if is_given else "; if your answers are elsewhere, give --answer-position (json:FIELD, marker:TEXT, whole)"
    )
    return f"the lines read the answer at the {place}{form}; until a reply to a question has that, they read whole replies{advice}"


def _needed_notes(policy: Policy) -> list[str]:
    """Return a note for each signal that a loop must provide in addition to the text of its replies."""
    notes = []
    own = is_of_thoughts(policy) or is_of_steps(policy)  # the lines for these loops measure all signals
    for name in () if own else policy.raw_signals:
        known = SIGNALS.get(name)
        needs = sorted(known.needs) if known else ["measure="]
        if needs:
            advice = next((REMEDIES[need] for need in needs if need in REMEDIES), "")
            what = f"needs {', '.join(needs)}" if known else "is a signal of your own: give its value in each round"
            by_lines = gives_up(policy) or bool(attempts_in(policy))
            way = "" if REPLY_NEEDS.issuperset(needs) or by_lines else "; in a framework, with measure="
            notes.append(f"the policy reads {name}, which {what}{way}{'. ' * bool(advice)}{advice}")
    return notes
