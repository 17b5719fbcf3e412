"""Budgets of thought that a server keeps for each question: the tokens that a policy allows, and a check that a reply kept to them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from suffice.errors import DataError, ModelError
from suffice.policy.rules import Never, Threshold
from suffice.policy.rules.selectors import Last
from suffice.policy.session import Policy

if TYPE_CHECKING:
    from suffice.loops.models import ChatModel, Completion

_END_OF_THINKING = "</think>"
_FORCED = 16
"""Most tokens that a server adds to end the thoughts, and may count among them."""

_INSTEAD = "leave out --to, for a loop that asks at checkpoints, or serve the policy (suffice serve)"


def budget_of(policy: Policy) -> int:
    """Return the tokens of thought after which a policy of chains stops, if nothing but their number decides.

    A policy stops at the first checkpoint with enough tokens, so its budget is a whole number of stretches.

    >>> made_for = {"every": 256, "trial_tokens": 512, "prompt_id": "chatml_thinking_continued@1"}
    >>> budget_of(Policy(rule="token_budget(1000)", max_rounds=32, depends=made_for))
    1024

    Raises:
        DataError: The policy is not a budget of tokens, or was judged on other answers than those after a server's cut.
    """
    from suffice.loops.boundaries import TOKENS
    from suffice.loops.thinking_loop import THINKING_PROMPTS

    every, boundary = policy.depends.get("every"), policy.depends.get("boundary", TOKENS)
    if "trial_tokens" not in policy.depends or not isinstance(every, int):
        raise DataError(
            "a budget of thought is for policies of recorded chains: leave out --to, or record chains (suffice think record)"
        )
    stretches = _stretches(policy, every)
    if stretches is None or boundary != TOKENS or policy.selector != Last():
        raise DataError(
            f"a server can only stop after a number of tokens, but the policy stops by {policy.rule} and returns by {policy.selector}, at "
            f"checkpoints by {boundary}: {_INSTEAD}"
        )
    prompts = {prompt.prompt_id: prompt for prompt in THINKING_PROMPTS.values()}
    prompt_id = str(policy.depends.get("prompt_id"))
    if prompt_id not in prompts or prompts[prompt_id].cue:
        raise DataError(
            f"after its budget a server lets the model answer by itself, and the policy was judged on other answers (template {prompt_id}): "
            f"record with --set template=chatml_continued or deepseek_r1_continued, or {_INSTEAD}"
        )
    return int(min(stretches, policy.max_rounds) * every)


def _stretches(policy: Policy, every: int) -> float | None:
    """Return the checkpoint at which the rule stops; None if that depends on more than its number."""
    rule = policy.rule
    if isinstance(rule, Never):
        return policy.max_rounds
    if not isinstance(rule, Threshold) or rule.name not in ("thinking_tokens", "round"):
        return None
    least = rule.value / (every if rule.name == "thinking_tokens" else 1)
    if rule.comparison not in (">", ">="):
        return None
    return max(1, math.ceil(least) if rule.comparison == ">=" else math.floor(least) + 1)


def check_thinking_budget(model: ChatModel, reply: Completion, budget: int) -> int:
    """Return the tokens that a reply thought, at most; raise if the server did not keep to the budget.

    vLLM takes `thinking_token_budget`, but some releases ignore it without a word if they were started without a reasoning
    configuration.  Where the server does not count thoughts itself, it is asked to divide them into tokens.

    Args:
        model: The endpoint that replied.
        reply: The reply.
        budget: The budget of the request, in tokens.

    Raises:
        ModelError: The reply has more thoughts than the budget, or they cannot be counted.
    """
    thought = reply.reasoning_tokens
    if math.isnan(thought):
        thought = reply.cost.output_tokens  # an upper limit
    if not thought <= budget + _FORCED and math.isnan(reply.reasoning_tokens):
        thought = _counted(model, reply)
    if thought > budget + _FORCED:
        raise ModelError(
            f"{model.name!r} thought {thought:,.0f} tokens, and the budget is {budget:,}: the server ignores thinking_token_budget. Start it "
            "with a reasoning configuration: vllm serve MODEL --reasoning-parser NAME --reasoning-config "
            '\'{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}\''
        )
    return int(thought)


def _counted(model: ChatModel, reply: Completion) -> float:
    """Return the tokens of a reply's thoughts, as the endpoint divides them; of hidden ones, those that the reply does not show."""
    before, end, _ = reply.text.partition(_END_OF_THINKING)
    thoughts = reply.reasoning or (before if end or reply.finish_reason == "length" else "")
    try:
        shown = float(len(model.tokenize(thoughts or reply.text, begins=False)))
    except ModelError as error:
        raise ModelError(f"{_unchecked(model)} does not divide texts into tokens ({error})") from error
    counted = shown if thoughts else reply.cost.output_tokens - shown
    if math.isnan(counted):
        raise ModelError(f"{_unchecked(model)} neither shows thoughts nor reports its output tokens")
    return max(counted, 0.0)


def _unchecked(model: ChatModel) -> str:
    return (
        f"it cannot be checked whether {model.name!r} kept to the budget of thought: it counts no reasoning tokens, and"
    )
