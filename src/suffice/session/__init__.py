"""Deciding one question: the policy and its live session."""

from suffice.session.policy import CUMULATED, LOOP_COMPONENTS, Policy
from suffice.session.session import Session
from suffice.session.stopping import Stops, stops

__all__ = ["CUMULATED", "LOOP_COMPONENTS", "Policy", "Session", "Stops", "stops"]
