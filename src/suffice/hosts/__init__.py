"""Adapters for agent frameworks: a loop of theirs ends with the best answer and the reason."""

from suffice.hosts.lines import frameworks, snippet
from suffice.hosts.runs import QuestionRun, call_cost, opener, reply_round
from suffice.hosts.tracing import trace_decision

__all__ = ["QuestionRun", "call_cost", "frameworks", "opener", "reply_round", "snippet", "trace_decision"]
