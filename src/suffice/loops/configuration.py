"""What changes a recording: a journal and a file of another configuration are refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from suffice.loops.live import LiveLoop

__all__ = ["configuration_of"]


def configuration_of(loop: LiveLoop, parallel_rounds: bool) -> dict[str, Any]:
    """Return all values that change a recording."""
    policy = loop.policy
    return {
        **loop.configuration(),
        "enrichers": {enricher.name: dict(enricher.fingerprint()) for enricher in loop.enrichers},
        "start_round": policy.start_round,
        "max_rounds": policy.max_rounds,
        "answer_position": policy.answer_position.to_dict(),
        "state": {name: _state_hash(fitted.to_dict()) for name, fitted in policy.state.items()},
        "parallel_rounds": parallel_rounds,
    }


def _state_hash(state: Mapping[str, Any]) -> str:
    """Return the hash of a state without its fitting questions, which do not change a recording."""
    deciding = {key: value for key, value in state.items() if key != "seen"}
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]
