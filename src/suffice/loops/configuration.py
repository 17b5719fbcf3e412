"""The configuration that a recording depends on; a journal or file of another configuration is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from suffice.loops.live import LiveLoop


def configuration_of(loop: LiveLoop, parallel_rounds: bool) -> dict[str, Any]:
    """Return all settings that a recording depends on."""
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
    """Return the hash of a signal's state; the questions it was fitted on are left out, as they do not change a recording."""
    deciding = {key: value for key, value in state.items() if key != "seen"}
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]
