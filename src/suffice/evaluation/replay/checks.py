"""Checks that a policy and a recording belong together, and variants of rules that never stop on a refusal."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.common.identities import aligned
from suffice.errors import CensoredError, ConfigMismatchError, NotFittedError
from suffice.evaluation.replay.recorded import Definedness, check_recorded
from suffice.policy.calibration import CALIBRATED
from suffice.policy.rules import MajorityOfSamples, Rule, answer_stable, parse_rule, signal, tasr
from suffice.policy.rules.selectors import Best
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS, AnswerPosition, Idf, state_from_dict
from suffice.recordings.recording import Recording


def require_whole(recording: Recording, why: str) -> None:
    """Raise a `CensoredError` if a rule ended questions before the recording's highest round.

    Args:
        recording: Recorded rounds.
        why: The reason why every round is needed, worded to follow "and".
    """
    cut = recording.cut
    if cut.any():
        raise CensoredError(
            f"a rule ended {int(cut.sum())} of {len(cut)} recorded questions early, and {why}: what the rounds that never "
            "ran would have given is unknown. Record at full width, without a rule; `suffice replay` gives bounds for "
            "single policies"
        )


def policy_for(recording: Recording, rule: str | Rule, **changes: Any) -> Policy:
    """Return a rule as a policy with the recording's rounds, answer position, normalizer and dependencies.

    For independent samples and panels it returns the answer of the majority.

    It starts at round 1, or at round 0 if the rule reads a signal that is only known there (`p_known`).

    Args:
        recording: Recorded rounds.
        rule: A rule or its text, `full` for the whole budget.
        changes: Other fields of the policy, `start_round`, `selector`, `calibrators` for instance.

    Raises:
        RuleSyntaxError: The text is not a rule.
    """
    if isinstance(rule, str):
        changes.setdefault("name", rule)
        rule = parse_rule("never()" if rule == "full" else rule)
    defaults: dict[str, Any] = {
        "max_rounds": max(1, int(recording.index[-1])),
        "depends": dict(recording.metadata.get("depends") or {}),
    }
    if recording.independent:
        defaults["selector"] = MajorityOfSamples()
    if recording.metadata.get("normalizer"):
        defaults["normalizer"] = recording.metadata["normalizer"]
    if recording.metadata.get("fitted"):
        defaults["provenance"] = {"fitted": recording.metadata["fitted"]}
    position = (recording.metadata.get("config") or {}).get("answer_position")
    if isinstance(position, Mapping):
        defaults["answer_position"] = AnswerPosition.from_dict(position)
    selector = changes.get("selector")
    if isinstance(selector, Best) or (isinstance(selector, str) and selector.strip() == "best"):
        names = recording.names("signal")
        if recording.table.num_rows:  # a header does not say which signals have values
            names = [name for name in names if np.isfinite(recording.column(name)).any()]
        changes["selector"] = Best().by({*names, *(item.output for item in changes.get("calibrators", ()))})
    if int(recording.index[0]) == 0 and reads_round_0(rule):
        defaults["start_round"] = 0
    return Policy(rule=rule, **{**defaults, **changes})


def reads_round_0(rule: Rule) -> bool:
    """Return whether a rule reads a signal that is known only at round 0 (`p_known`).

    >>> reads_round_0(parse_rule("p_known > 0.5")), reads_round_0(parse_rule("tasr"))
    (True, False)
    """
    return any(name in SIGNALS and SIGNALS[name].last_round == 0 for name in rule.signals)


def check_policy(
    policy: Policy, recording: Recording, *, part: bool = False, definedness: Definedness | None = None
) -> tuple[str, ...]:
    """Raise if a policy does not fit a recording or cannot decide on it; return notes for the reader.

    Args:
        policy: The policy.
        recording: Recorded rounds.
        part: Whether `recording` holds only some of the recorded questions, see `check_recorded`.
        definedness: The definedness of the policy's signals in all questions, if it was summed over parts.

    Raises:
        ConfigMismatchError: The policy starts or ends outside the recorded rounds, or depends on another model,
            retriever, answer position or fitted state.
        NotFittedError: The policy reads a calibrated signal, has no calibrator for it, and the recording has no such
            column.
        UnknownSignalError: The policy reads a signal that was not recorded, or is undefined in every recorded round.
    """
    _check_policy_rounds(policy, recording)
    recorded = recording.metadata.get("depends") or {}
    depends = policy.depends if policy.depends == recorded else aligned(policy.depends, recorded)
    for key in sorted(set(depends) & set(recorded)):
        if depends[key] != recorded[key]:
            raise ConfigMismatchError(
                f"the policy {policy.label!r} was made for {key} {depends[key]!r}, the recording has "
                f"{recorded[key]!r}: its fitted state does not carry over. Run `suffice calibrate` on a recording of "
                "tune questions made the same way"
            )
    position = (recording.metadata.get("config") or {}).get("answer_position")
    if isinstance(position, Mapping) and policy.answer_position.to_dict() != dict(position):
        raise ConfigMismatchError(
            f"the policy {policy.label!r} reads answers at {policy.answer_position.to_dict()!r}, the recording was made "
            f"at {dict(position)!r}: give the policy the recording's answer position, or record again"
        )
    theirs = recording.metadata.get("normalizer", policy.normalizer)
    compared = f"the policy compares answers as {policy.normalizer!r}, and the recording was imported to compare them as {theirs!r}"
    return (
        *([] if theirs == policy.normalizer else [compared]),
        *_check_fitted(policy, recording),
        *check_recorded(policy, recording, part=part, definedness=definedness),
    )


def _check_policy_rounds(policy: Policy, recording: Recording) -> None:
    lowest, highest = int(recording.index[0]), int(recording.index[-1])
    if policy.start_round < lowest:
        raise ConfigMismatchError(
            f"the policy {policy.label!r} starts at round {policy.start_round}, the recording at round {lowest}: "
            "record with round 0, or use start_round=1"
        )
    if policy.start_round > highest:
        raise ConfigMismatchError(
            f"the policy {policy.label!r} starts at round {policy.start_round}, and the recording ends at round "
            f"{highest}: record rounds with evidence"
        )
    # If every trajectory ended because no evidence was left, a higher budget would not have changed anything.
    if policy.max_rounds > highest and (recording.ends == "max_rounds").any():
        raise ConfigMismatchError(
            f"the policy {policy.label!r} runs to round {policy.max_rounds}, the recording only to round {highest}: "
            f"use max_rounds={highest}, or record more rounds"
        )


def _check_fitted(policy: Policy, recording: Recording) -> tuple[str, ...]:
    fitted = {calibrator.output for calibrator in policy.calibrators}
    columns = set(recording.table.column_names)
    notes = []
    for name in policy.signals:
        if name in CALIBRATED and name not in fitted:
            if name not in columns:
                raise NotFittedError(
                    f"the policy {policy.label!r} reads {name!r} and has no calibrator, and the recording has no such "
                    "column: run `suffice calibrate` on a recording of tune questions, or use a rule without it"
                )
            notes.append(f"{name} is read from the recording: without a calibrator the policy cannot run live")
    states = recording.metadata.get("state") or {}
    for name, state in policy.state.items():
        if (
            name in policy.signals
            and isinstance(state, Idf)
            and name in states
            and state != state_from_dict(states[name])
        ):
            raise ConfigMismatchError(
                f"the policy {policy.label!r} computes {name!r} with other fitted state than the recording was made "
                "with: record with the policy's state, or calibrate on this recorder's tune questions"
            )
    return tuple(notes)


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
