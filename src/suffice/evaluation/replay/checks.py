"""Checks that a policy fits a recording, and that the policy's signals were recorded: without them a rule never fires."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from suffice.common.files import quoted
from suffice.common.identities import aligned
from suffice.common.tables import counted
from suffice.errors import CensoredError, ConfigMismatchError, NotFittedError, UnknownSignalError, did_you_mean
from suffice.evaluation.replay.prices import currency_of
from suffice.policy.normalizers import ANSWER_ID, NORMALIZERS
from suffice.policy.rounds import Rounds
from suffice.policy.rules import MajorityOfSamples, Rule, answer_stable, parse_rule, signal, tasr
from suffice.policy.rules.selectors import CALIBRATED, Best
from suffice.policy.session import Policy
from suffice.policy.signals import CUMULATED, SIGNALS, VOTES, AnswerPosition, Idf, cost_columns, state_from_dict
from suffice.recordings.recording import Recording
from suffice.recordings.schema import CURRENCY, DOLLAR, SPEND

_SIGNAL_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "embedding": "embed the drafts, or the stretches of a chain (`suffice draft record`, `suffice think record`; --set embedder=minilm)",
        "feedback": "record with a critic (`suffice draft record`)",
        "information_score": "let judges mark the drafts (`suffice judge drafts`)",
        "sufficiency": "let a judge decide on the evidence (`suffice judge drafts --set marks=context_sufficient`)",
        "judge": "let a judge mark the rounds (`suffice record --judge-model NAME`)",
        "thinking": "record a chain of thought (`suffice think record`)",
        "logprobs": "record with an endpoint that gives log-probabilities (`suffice doctor` tests one)",
        "token_logprobs": "record with an endpoint that gives log-probabilities (`suffice doctor` tests one)",
        "complexity": "record round 0 behind a classifier of questions (`suffice record --round-zero --gate FOLDER`)",
        "p_enough": "record with probes that read the replies (enrichers=(ReplyProbes(...),))",
        "p_settled": "record with a probe on the states of the chain (`suffice think record --probe FOLDER`)",
        "p_retrieve": "record round 0 behind a model with Self-RAG's tokens (gate=ReflectionGate(...))",
        "critique_score": "record with a model that has Self-RAG's tokens (`suffice record --local --set own-signal=critique_score`)",
        "sample_spread": "record with samples of a local model (`suffice record --local --set own-signal=sample_spread`)",
        "new_confidence": "record with the states of a local model (`suffice record --local --set own-signal=new_confidence`)",
        "p_known": "record round 0 behind a gate (`suffice record --round-zero --gate PROBE`)",
        "reranker": "record with a reranker (`suffice record --set rerank-signal=MODEL`)",
        "verbal_confidence": "record with a prompt that asks for a confidence (`suffice record --prompt NAME`)",
    }
)
"""Remedies for signals that were not recorded, by the entries of `Signal.needs`."""


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
    """Build a policy from a rule, with the recording's rounds, answer position, normalizer, currency and dependencies.

    For independent samples and panels, the policy returns the majority answer.

    The policy starts at round 1, or at round 0 if the rule reads a signal that is only known there (`p_known`).

    Args:
        recording: Recorded rounds.
        rule: A rule or its text; `full` is the rule that uses the whole budget.
        changes: Fields of the policy besides its rule, such as `start_round`, `selector` or `calibrators`.

    Raises:
        RuleSyntaxError: The text is not a rule.
    """
    if isinstance(rule, str):
        changes.setdefault("name", rule)
        rule = parse_rule("never()" if rule == "full" else rule)
    currency = currency_of(recording, None)
    defaults: dict[str, Any] = {
        "max_rounds": max(1, int(recording.index[-1])),
        "depends": dict(recording.metadata.get("depends") or {}) | ({} if currency == DOLLAR else {CURRENCY: currency}),
    }
    if recording.independent:
        defaults["selector"] = MajorityOfSamples()
    if recording.metadata.get("normalizer"):
        defaults["normalizer"] = recording.metadata["normalizer"]
    if recording.metadata.get("fitted"):
        defaults["provenance"] = {"fitted": recording.metadata["fitted"]}
    if position := _recorded_position(recording):
        defaults["answer_position"] = AnswerPosition.from_dict({**AnswerPosition().to_dict(), **position})
    selector = changes.get("selector")
    if isinstance(selector, Best) or (isinstance(selector, str) and selector.strip() == "best"):
        names = recording.names("signal")
        if recording.table.num_rows:  # a header does not say which signals have values
            names = [name for name in names if np.isfinite(recording.column(name)).any()]
        changes["selector"] = Best().by({*names, *(item.output for item in changes.get("calibrators", ()))})
    if int(recording.index[0]) == 0 and reads_round_0(rule):
        defaults["start_round"] = 0
    return Policy(rule=rule, **{**defaults, **changes})


_AS_WRITTEN = {"form": ""}
"""The answer position of recordings whose answers are used as they are written."""


def _recorded_position(recording: Recording) -> dict[str, Any]:
    """Return the fields of the recorded answer position; empty if unknown.

    If the log had answers but no replies, only the field `form` is known.
    """
    position = (recording.metadata.get("config") or {}).get("answer_position")
    return dict(position) if isinstance(position, Mapping) else {}


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
        definedness: Counts of defined signals over all questions, if they were added up over parts.

    Raises:
        ConfigMismatchError: The policy starts or ends outside the recorded rounds, or its model, retriever, answer
            position or fitted state differs from the recording's.
        NotFittedError: The policy reads a calibrated signal, has no calibrator for it, and the recording has no such
            column.
        UnknownSignalError: The policy reads a signal that was not recorded or that is undefined in every recorded round.
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
    of_money = _check_currency(policy, recording)
    position = _recorded_position(recording)
    ours = policy.answer_position.to_dict() if position else {}
    if position and {**ours, **_AS_WRITTEN, **position} != {**_AS_WRITTEN, **ours}:
        raise ConfigMismatchError(
            f"the policy {policy.label!r} reads answers at {ours!r}, the recording was made "
            f"at {position!r}: give the policy the recording's answer position, or record again"
        )
    theirs = recording.metadata.get("normalizer", policy.normalizer)
    compared = f"the policy compares answers as {policy.normalizer!r}, and the recording was imported to compare them as {theirs!r}"
    return (
        *([] if theirs == policy.normalizer else [compared]),
        *of_money,
        *(_check_fitted(policy, recording) if policy.state or CALIBRATED.keys() & {*policy.signals} else ()),
        *check_recorded(policy, recording, part=part, definedness=definedness),
    )


def _check_currency(policy: Policy, recording: Recording) -> tuple[str, ...]:
    """Raise if a policy reads `spend` in a currency other than the recording's.

    A policy that does not name a currency gets a note, unless the recording is in US dollars.
    """
    theirs, own = policy.depends.get(CURRENCY), currency_of(recording, None)
    if SPEND not in policy.raw_signals or theirs == own or (theirs is None and own == DOLLAR):
        return ()
    if theirs is None:
        return (f"the policy does not name the currency of 'spend', and this recording's is {own}",)
    raise ConfigMismatchError(
        f"the policy {policy.label!r} compares 'spend' in {theirs}, and this recording has it in {own}: make the policy on a log in "
        f"{own}, or import this log with its amounts in {theirs}"
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


def check_recorded(
    policy: Policy, recording: Recording, *, part: bool = False, definedness: Definedness | None = None
) -> tuple[str, ...]:
    """Raise if a policy reads signals that were not recorded; return notes on signals that are partly undefined.

    A signal that is undefined in every round can never make a rule fire or a selector choose.

    Args:
        policy: The policy.
        recording: Recorded rounds.
        part: Whether `recording` holds only some of the questions.  Then only columns are checked, since a signal may
            be defined in other questions; `Definedness` adds up the parts.
        definedness: Counts added up over all parts, if `recording` has only the header and no rows.
    """
    _check_columns(policy, recording)
    of_models = _unknown_models(policy, recording) if policy.calibrators else ()
    if definedness is not None:
        known = recording if recording.table.num_rows else None
        return (*definedness.checked(known), *of_models)
    definedness = Definedness(policy)
    if not part:
        raw = recording.rounds(policy.raw_columns)
        if policy.answer_column is not None and raw.answers is not None:
            raw.columns = {**raw.columns, policy.answer_column: recording.answer_ids(policy.normalizer)}
        definedness.add(policy.view(raw))
    return (*definedness.checked(recording), *of_models)


_UNDEFINED_MEANS: Mapping[str, str] = MappingProxyType(
    {ANSWER_ID: ": no vote, since the answer is missing or the policy's normalizer cannot read it"}
)
"""The consequences of an undefined signal, for signals where it changes a figure."""


@dataclass(slots=True, eq=False)
class Definedness:
    """Counts of the rounds in which the signals of a policy are defined, added up over parts of a recording."""

    policy: Policy
    _defined: Counter[str] = field(default_factory=Counter, init=False)
    _possible: Counter[str] = field(default_factory=Counter, init=False)
    _rounds: set[int] = field(default_factory=set, init=False)

    def __add__(self, other: Definedness) -> Definedness:
        both = Definedness(self.policy)
        both._defined, both._possible = self._defined + other._defined, self._possible + other._possible
        both._rounds = self._rounds | other._rounds
        return both

    def add(self, view: Rounds) -> None:
        """Count the defined values in the rounds of a policy's view, shape ``(n_questions, n_rounds)``."""
        first = view.seen[:1]  # usually the first question already has all rounds
        some = first.all() if first.size else False
        self._rounds.update((view.index if some else view.index[view.seen.any(axis=0)]).tolist())
        for name in self.policy.signals:
            known = SIGNALS.get(self.policy.raw_of(name))
            possible = view.seen & np.array([known is None or known.may_exist(r) for r in view.index.tolist()])
            self._possible[name] += int(np.count_nonzero(possible))
            self._defined[name] += int(np.count_nonzero(possible & ~np.isnan(view[name])))

    def checked(self, recording: Recording | None = None) -> tuple[str, ...]:
        """Return a note for each signal that is undefined in some rounds, with the share of these rounds.

        Args:
            recording: The recording, to check for values before the policy's first round; None = not checked.

        Raises:
            UnknownSignalError: A signal is undefined in every round, or the rule reads a signal that cannot exist in
                these rounds.
        """
        policy = self.policy
        names = policy.signals if self._rounds else ()
        outside = [name for name in names if not self._possible[name] and name in policy.rule.signals]
        if outside:
            raise UnknownSignalError(self._outside(outside[0], recording))
        never = [name for name in names if self._possible[name] and not self._defined[name]]
        if never:
            raise UnknownSignalError(
                f"the policy {policy.label!r} reads {', '.join(_with_source(policy, name) for name in never)}, undefined in every recorded round "
                f"from round {policy.start_round} on, so it cannot decide by that: {self._remedy(never[0], recording)}, or use a "
                "policy without it"
            )
        return tuple(
            f"{name} is undefined in {100 * (1 - self._defined[name] / self._possible[name]):.2g} % of rounds "
            f"({self._possible[name] - self._defined[name]:,} of {self._possible[name]:,})"
            + _UNDEFINED_MEANS.get(name, "")
            for name in names
            if self._defined[name] < self._possible[name]
        )

    def _remedy(self, name: str, recording: Recording | None) -> str:
        raw = self.policy.raw_of(name)
        if raw in VOTES:
            return (
                f"the normalizer {self.policy.normalizer!r} reads none of the answers, so nobody votes. Choose another one "
                f"({', '.join(NORMALIZERS)})"
            )
        earlier = recording is not None and self.policy.start_round > int(recording.index[0])
        if recording is not None and earlier and not np.isnan(recording.column(raw)[:, 0]).all():
            return "it has values at round 0, so start there (`--set start-round=0`)"
        return _remedy(self.policy, name)

    def _outside(self, name: str, recording: Recording | None) -> str:
        known = SIGNALS[self.policy.raw_of(name)]
        exists = f"from round {known.first_round} on" if known.last_round is None else f"up to round {known.last_round}"
        remedy = "record more rounds" if known.last_round is None else self._remedy(name, recording)
        return (
            f"the policy {self.policy.label!r} reads {name!r}, which exists {exists}, and runs over rounds "
            f"{min(self._rounds)} to {max(self._rounds)} here: {remedy}, or use a rule without it"
        )


def _with_source(policy: Policy, name: str) -> str:
    source = policy.raw_of(name)
    return repr(name) if name == source else f"{name!r} (from {source!r})"


def _remedy(policy: Policy, name: str) -> str:
    raw = policy.raw_of(name)
    needs = SIGNALS[raw].needs if raw in SIGNALS else frozenset[str]()
    usual = (
        f"fit it on tune questions (`suffice calibrate TUNE.parquet --rule {quoted(policy.label)}`)"
        if policy.unfitted(name)
        else f"record or import {raw!r}"
    )
    return next((_SIGNAL_REMEDIES[need] for need in sorted(needs) if need in _SIGNAL_REMEDIES), usual)


def _check_columns(policy: Policy, recording: Recording) -> None:
    columns = set(recording.table.column_names)
    missing = [name for name in policy.raw_signals if not recording.gives(name)]
    if missing:
        name = missing[0]
        table = recording.table
        recorded = {"round", *(s for s in recording.names("signal") if table.column(s).null_count < max(len(table), 1))}
        recorded |= {name for name in CUMULATED if columns.intersection(cost_columns(name))}
        raise UnknownSignalError(
            f"the policy {policy.label!r} reads {', '.join(map(repr, missing))}, and the recording has no such column."
            f"{did_you_mean(name, recorded | (set() if name in SIGNALS else set(SIGNALS)))} "
            f"There are: {', '.join(sorted(recorded))}. To have it, {_remedy(policy, name)}, or use a policy without it"
        )
    costs = set(policy.raw_columns) - set(policy.raw_signals)
    if costs and not costs & columns:
        summed = [name for name in policy.signals if name in CUMULATED]
        raise UnknownSignalError(
            f"the policy {policy.label!r} reads {', '.join(map(repr, summed))}, which adds up recorded costs, and the "
            f"recording has none of them ({', '.join(sorted(costs))}): record or import them, or use a policy without it"
        )


def _unknown_models(policy: Policy, recording: Recording) -> tuple[str, ...]:
    """Return a note if a calibrator may have been fitted on another model than the recording's."""
    fitted = sorted({calibrator.output for calibrator in policy.calibrators} & set(policy.signals))
    theirs, ours = policy.depends.get("model"), (recording.metadata.get("depends") or {}).get("model")
    if not fitted or (theirs is not None and ours is not None):
        return ()
    of, to = (f"the model {name!r}" if name is not None else "a model that is not named" for name in (theirs, ours))
    note = (
        f"{', '.join(fitted)} was fitted on {of} and is applied to {to}: whether the fit carries over is unknown "
        "(`suffice diagnose` compares predicted and observed)"
    )
    return (note,)


def run_notes(policy: Policy, n_without: int) -> tuple[str, ...]:
    """Return the notes on a policy's figures.

    Args:
        policy: The policy.
        n_without: Number of questions that ended before the policy's first round and were not ended by a rule.
    """
    notes = []
    if "seconds" in policy.signals:
        notes.append("not exactly replayable: the rule reads seconds, which differ from run to run")
    if n_without:
        notes.append(
            f"{counted(n_without, 'recorded question')} ended before round {policy.start_round} and not by a rule: no answer "
            "here, which counts as wrong and costs nothing. Where a rule did end them, import with --ended rule"
        )
    return tuple(notes)


_log = logging.getLogger(__name__)

_GUARDABLE = (tasr(), answer_stable())


def with_guarded(policies: Sequence[Policy], recording: Recording) -> list[Policy]:
    """Insert, after each policy with the rule `tasr` or `answer_stable`, a variant that never stops on a refusal."""
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
