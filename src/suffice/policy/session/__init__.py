"""Deciding one question: the policy and its live session."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.policy.session.audits import Audit, Draw
    from suffice.policy.session.policy import Policy
    from suffice.policy.session.replies import read_reply
    from suffice.policy.session.session import Session
    from suffice.policy.session.stopping import Stops, stop_positions, stops

__all__ = ["Audit", "Draw", "Policy", "Session", "Stops", "read_reply", "stop_positions", "stops"]

__getattr__, __dir__ = lazy_face(
    __name__,
    {
        "audits": ("Audit", "Draw"),
        "policy": ("Policy",),
        "replies": ("read_reply",),
        "session": ("Session",),
        "stopping": ("Stops", "stop_positions", "stops"),
    },
)
