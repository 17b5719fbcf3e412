"""Adapters for agent frameworks, and the lines to paste into a loop.

A loop of another framework enters; it ends with the best answer and the reason, by the same session as everywhere.
"""

from suffice.hosts.lines import frameworks, snippet
from suffice.hosts.runs import QuestionRun, call_cost, chat_reply, opener, reply_round
from suffice.hosts.tracing import trace_decision

__all__ = [
    "QuestionRun",
    "call_cost",
    "chat_reply",
    "frameworks",
    "opener",
    "reply_round",
    "snippet",
    "trace_decision",
]
