"""Thinking budgets that a server enforces for each question: the tokens that a policy allows, and a check of the replies."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from suffice.errors import DataError, ModelError
from suffice.loops.models._wire import is_cut
from suffice.policy.rules import Never, Threshold
from suffice.policy.rules.selectors import Last
from suffice.policy.session import Policy

if TYPE_CHECKING:
    from suffice.loops.models import ChatModel, Completion

_BEGIN, _END = re.compile(r"<think>|\[THINK\]"), re.compile(r"</think>|\[/THINK\]")
"""Marks of thoughts in a reply from which the server does not separate them."""

_FORCED = 16
"""Most tokens that a server adds to end the thoughts, and may count among them."""

_START = (
    "Start it with a reasoning configuration: vllm serve MODEL --reasoning-parser NAME --reasoning-config "
    '\'{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}\''
)
_INSTEAD = "leave out --to, for a loop that asks at checkpoints, or serve the policy (suffice serve)"


def budget_of(policy: Policy) -> int:
    """Return the number of thinking tokens at which a policy for chains of thought stops.

    A policy stops at the first checkpoint with enough tokens, so its budget is a multiple of `every`.

    >>> made_for = {"every": 256, "trial_tokens": 512, "prompt_id": "chatml_thinking_continued@1"}
    >>> budget_of(Policy(rule="token_budget(1000)", max_rounds=32, depends=made_for))
    1024

    Raises:
        DataError: The policy decides by more than a number of tokens.  Or the policy was evaluated on trial answers to a
            cue; a server gives no cue when it cuts the thoughts, so these answers do not represent the server's answers.
    """
    from suffice.loops.boundaries import TOKENS
    from suffice.loops.thinking_loop import THINKING_PROMPTS

    if not {"every", "trial_tokens"} <= set(policy.depends):
        raise DataError(
            "a budget of thought is for policies of recorded chains: leave out --to, or record chains (suffice think record)"
        )
    for name in ("every", "trial_tokens"):
        value = policy.depends[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise DataError(
                f"the policy was made for {name} = {value!r}, and a chain has a whole number of tokens, at least 1: is its file damaged?"
            )
    every, boundary = int(policy.depends["every"]), policy.depends.get("boundary", TOKENS)
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
    """Return the checkpoint at which the rule stops; None if the rule reads more than the number of tokens or rounds."""
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
    """Return an upper bound of the thinking tokens of a reply; raise if the server exceeded the budget.

    Some releases of vLLM silently ignore `thinking_token_budget` if they were started without a reasoning configuration.
    They may then report 0 thinking tokens for a reply that shows thoughts.  Thoughts in the reply are therefore counted
    with the endpoint's tokenizer.  The server's own count is trusted only if the reply shows no thoughts; and a count of 0
    is not trusted for a reply that was cut.

    Args:
        model: The endpoint that replied.
        reply: The reply.
        budget: The budget of the request, in tokens.

    Raises:
        ModelError: The reply has more thinking tokens than the budget, or they cannot be counted.
    """
    limit, reported, output = budget + _FORCED, reply.reasoning_tokens, reply.cost.output_tokens
    shown = _shown_thoughts(reply)
    if not shown and (reported > 0 or (reported == 0 and not is_cut(reply.finish_reason))):
        thought = reported
    elif output <= limit:
        thought = output  # an upper bound
    elif shown:
        thought = max(_counted(model, reply, shown), 0.0 if math.isnan(reported) else reported)
    else:
        thought = _hidden(model, reply, limit)
    if thought > limit:
        raise ModelError(
            f"{model.name!r} thought {thought:,.0f} tokens, and the budget is {budget:,}: the server ignores thinking_token_budget. {_START}"
        )
    return int(thought)


def _shown_thoughts(reply: Completion) -> str:
    """Return the thoughts in a reply: its separate reasoning, and its text up to the last end mark of thoughts.

    If a block of thoughts is still open at the end, the whole text counts as thoughts.
    """
    last = max((match.end() for match in _END.finditer(reply.text)), default=0)
    is_open = _BEGIN.search(reply.text, last) is not None
    return (reply.reasoning or "") + (reply.text if is_open else reply.text[:last])


def _hidden(model: ChatModel, reply: Completion, limit: int) -> float:
    """Return the thinking tokens of a long reply in which the thoughts are neither marked nor counted.

    Output tokens that are not in the text were thoughts.  If the reply was cut, the text itself may be thoughts without
    an end mark.  The returned number exceeds the limit.

    Raises:
        ModelError: It is unknown whether the thoughts exceed the limit.
    """
    output = reply.cost.output_tokens
    if math.isnan(output):
        raise ModelError(f"{_unchecked(model, reply)} neither shows thoughts nor reports its output tokens. {_START}")
    text = _counted(model, reply, reply.text)
    thought = max(output - text, text if is_cut(reply.finish_reason) else 0.0)
    if thought <= limit:
        raise ModelError(
            f"{_unchecked(model, reply)} does not mark thoughts in a reply of {output:,.0f} tokens, which is longer than the budget. {_START}"
        )
    return thought


def _counted(model: ChatModel, reply: Completion, text: str) -> float:
    """Count the tokens of a part of a reply with the endpoint's tokenizer."""
    try:
        return float(len(model.tokenize(text, begins=False))) if text else 0.0
    except ModelError as error:
        raise ModelError(f"{_unchecked(model, reply)} does not divide texts into tokens ({error})") from error


def _unchecked(model: ChatModel, reply: Completion) -> str:
    number = f"{reply.reasoning_tokens:,.0f}" if reply.reasoning_tokens > 0 else "no"
    return f"it cannot be checked whether {model.name!r} kept to the budget of thought: it counts {number} reasoning tokens, and"
