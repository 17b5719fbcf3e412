"""Adapters for agent frameworks, and lines of code to paste into a loop.

The framework runs the loop; a session of `suffice.policy` ends the loop with the best answer and the reason.
"""

from suffice.hosts.budgets import check_thinking_budget
from suffice.hosts.lines import frameworks, snippet
from suffice.hosts.runs import QuestionRun, chat_reply, opener, reply_round
from suffice.hosts.tracing import trace_decision
from suffice.hosts.usage import call_cost, usage_cost

__all__ = [
    "QuestionRun",
    "call_cost",
    "chat_reply",
    "check_thinking_budget",
    "frameworks",
    "opener",
    "reply_round",
    "snippet",
    "trace_decision",
    "usage_cost",
]
