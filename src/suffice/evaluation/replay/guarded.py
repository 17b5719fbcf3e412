"""Variants of rules that never stop on a refusal to answer, reported next to the original rules."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from suffice.policy.rules import answer_stable, signal, tasr
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

_log = logging.getLogger(__name__)

_GUARDABLE = (tasr(), answer_stable())


def with_guarded(policies: Sequence[Policy], recording: Recording) -> list[Policy]:
    """Add a variant that never stops on a refusal after each `tasr` and `answer_stable`."""
    reported: list[Policy] = []
    for policy in policies:
        reported.append(policy)
        guarded = policy.rule & (signal("abstained") < 1)
        if policy.rule not in _GUARDABLE or any(guarded == other.rule for other in policies):
            continue
        if "abstained" not in recording.table.column_names:
            _log.warning("no column 'abstained' was recorded: %s is not shown without stops on refusals", policy.label)
            continue
        head, comma, selector = policy.name.partition(", ")
        reported.append(replace(policy, rule=guarded, name=f"{head}_guarded{comma}{selector}" if head else ""))
    return reported
