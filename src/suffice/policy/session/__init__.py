"""Deciding one question: the policy and its live session."""

from suffice.session.audits import Audit, Draw
from suffice.session.policy import Policy
from suffice.session.replies import read_reply
from suffice.session.session import Session
from suffice.session.stopping import Stops, stop_positions, stops

__all__ = ["Audit", "Draw", "Policy", "Session", "Stops", "read_reply", "stop_positions", "stops"]
