"""Checks that a policy's signals were recorded: without them a rule never fires, which would look like a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from suffice.common.files import quoted
from suffice.common.tables import counted
from suffice.errors import UnknownSignalError, did_you_mean
from suffice.policy.normalizers import ANSWER_ID, NORMALIZERS
from suffice.policy.rounds import Rounds
from suffice.policy.session import Policy
from suffice.policy.signals import CUMULATED, SIGNALS, VOTES, cost_columns
from suffice.recordings.recording import Recording

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
"""How to get what a signal needs, by the words of `Signal.needs`."""


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
        definedness: The sum over all parts, if `recording` is only their header.
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


class Definedness:
    """Counts of the rounds in which the signals of a policy are defined, added up over parts of a recording."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._defined: Counter[str] = Counter()
        self._possible: Counter[str] = Counter()
        self._rounds: set[int] = set()

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
        """Return a note for each signal that is undefined in some rounds, with their share.

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
    """Return a note if a calibrator is applied to a recording that may be of another model than it was fitted on."""
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
        n_without: Number of questions that ended before its first round, but not by a rule.
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
