"""Decisions on one question: the policy and its live session."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.policy.session.audits import Audit as Audit, Draw as Draw
    from suffice.policy.session.policy import Policy as Policy
    from suffice.policy.session.replies import read_reply as read_reply
    from suffice.policy.session.session import Session as Session
    from suffice.policy.session.stopping import Stops as Stops, stop_positions as stop_positions, stops as stops

__getattr__, __dir__, __all__ = lazy_face(__name__)
