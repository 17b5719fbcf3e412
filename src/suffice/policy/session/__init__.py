"""Deciding one question: the policy and its live session."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.policy.session.audits import Audit as Audit
    from suffice.policy.session.audits import Draw as Draw
    from suffice.policy.session.policy import Policy as Policy
    from suffice.policy.session.replies import read_reply as read_reply
    from suffice.policy.session.session import Session as Session
    from suffice.policy.session.stopping import Stops as Stops
    from suffice.policy.session.stopping import stop_positions as stop_positions
    from suffice.policy.session.stopping import stops as stops

__getattr__, __dir__, __all__ = lazy_face(__name__)
