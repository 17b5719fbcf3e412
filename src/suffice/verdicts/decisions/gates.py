"""Candidates that read a confidence: answer from round 0, accept an attempt of an escalation, or give a run up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffice.common.tables import cut_list
from suffice.errors import DataError, did_you_mean
from suffice.evaluation.replay import reads_round_0
from suffice.evaluation.replay.outcomes import outcome
from suffice.policy.rounds import Floats
from suffice.policy.rules import AllOf, Rule, fixed_k, signal
from suffice.policy.rules.algebra import Patience
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS
from suffice.recordings.recording import Recording
from suffice.recordings.runs import attempts_of, begins_closed_book
from suffice.recordings.schema import is_confidence_name, is_measure_name

RETRIEVALS = "retrievals"
"""The cost that these candidates save: one for every round after round 0."""

_USUAL = ("p_known", "answer_margin", "verbal_confidence")
"""Signals that gate round 0 without being named."""

_OF_ATTEMPTS = (*_USUAL, "verifier_score", "information_score")
"""Signals that accept an attempt without being named."""

_OF_ROUNDS = (0.25, 0.5, 0.75)
"""Shares of the rounds of tune questions in which the confidences of a loop's rounds are high enough to stop."""

_GIVEN_UP = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Shares of the steps before the last in which a rule that gives up fires."""

_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the tune questions that a gate's thresholds answer from round 0."""

_DIGITS = 3
_NAMED = 5
"""The most columns that a note names."""
_AT_ROUND_0 = signal("round") < 1


def gate_rules(tune: Recording, metric: str, named: Sequence[str]) -> list[tuple[str, Rule]]:
    """Return rules that stop at round 0, each with its label.

    One rule always stops there; the other rules stop there if a confidence is high.

    In an escalation, no rule always stops at round 0, and the rules may accept the answer of any attempt. In a loop
    without round 0, they may stop at any round.  The direction of a confidence and its thresholds are fitted on tune
    questions: high values count as confident, unless worse answers have higher values.

    Raises:
        DataError: A named column does not exist, is not numeric, or has fewer than two different values in the rounds
            where the rule reads it.
    """
    attempts = attempts_of(tune)
    if not (attempts or begins_closed_book(tune)):
        return _round_rules(tune, metric, named)
    rules = [] if attempts else [("closed_book", fixed_k(0))]
    usual = [name for name in (_OF_ATTEMPTS if attempts else _USUAL) if name in tune.names("signal")]
    for name in dict.fromkeys([*named, *usual, *own_confidences(tune)]):
        values = _confidence(tune, name, required=name in named)
        known = np.isfinite(values)
        if len(np.unique(values[known])) > 1:
            rules += [(str(rule), rule) for rule in _thresholds(tune, metric, name, values)]
        elif name in named:
            raise _one_value(name, f"at round {tune.index[0]}", is_known=bool(known.any()))
    return rules


def own_confidences(recording: Recording) -> list[str]:
    """Return the log's own signals whose names mark them as a confidence.

    They are tried even if the user does not name them.
    """
    own = [name for name in recording.names("signal") if name not in SIGNALS or name == "verbal_confidence"]
    return [name for name in own if is_confidence_name(name)]


def _round_rules(tune: Recording, metric: str, named: Sequence[str]) -> list[tuple[str, Rule]]:
    """Return the rules that stop at the first round in which a confidence is high, each with its label."""
    if tune.independent:
        if named:
            raise DataError(
                f"{named[0]!r} cannot stop independent samples, which have no order and are put to a vote: leave --signal out (signals=())"
            )
        return []
    rules, scores = [], outcome(tune, metric)
    for name in dict.fromkeys([*named, *own_confidences(tune)]):
        _confidence(tune, name, required=name in named)
        values = np.where(tune.seen, tune.column(name).astype(np.float64), np.nan)
        known = values[np.isfinite(values)]
        if len(np.unique(known)) > 1:
            rules += [(str(rule), rule) for rule in _beyond(name, known, _OF_ROUNDS, falls=_falls(values, scores))]
        elif name in named:
            raise _one_value(name, "in all rounds", is_known=known.size > 0)
    return rules


def _one_value(name: str, where: str, *, is_known: bool) -> DataError:
    return DataError(
        f"{name!r} has {'one value only' if is_known else 'no value'} {where} of the tune questions, so it cannot tell the questions apart: "
        "name another column"
    )


def give_up_rules(tune: Recording, success: str, named: Sequence[str]) -> list[tuple[str, Rule]]:
    """Return rules that give a run up after one or two steps in a row with a low confidence, each with its label.

    Args:
        tune: Recorded tune questions.
        success: The metric of a run at its end.
        named: Columns that are a confidence in success.

    Raises:
        DataError: A named column does not exist, or is not numeric.
    """
    at_end = np.arange(tune.shape[1]) == tune.seen.sum(axis=1, keepdims=True) - 1
    succeeded = np.nansum(np.where(at_end, outcome(tune, success), 0.0), axis=1)
    rules = []
    for name in dict.fromkeys(named):
        _confidence(tune, name, required=True)
        values = np.where(at_end, np.nan, tune.column(name).astype(np.float64))
        known = np.isfinite(values)
        weight = np.broadcast_to(succeeded[:, None], values.shape)[known]
        falls = bool(known.sum() > 1 and np.cov(values[known], weight)[0, 1] < 0)
        for limit in _limits(values[known], _GIVEN_UP, falls=falls) if known.any() else ():
            rule = signal(name) >= limit if falls else signal(name) <= limit
            rules += [(str(one), one) for one in (rule, Patience(rule, 2))]
    return rules


def gate_of(policy: Policy) -> Rule | None:
    """Return the rule by which a policy stops at round 0; None if it has no such rule.

    The condition "at round 0" is left out of the rule.
    """
    if policy.start_round != 0:
        return None
    if isinstance(policy.rule, AllOf) and policy.rule.rules[1:] == (_AT_ROUND_0,):
        return policy.rule.rules[0]
    return policy.rule if policy.max_rounds == 1 or reads_round_0(policy.rule) else None


def gate_notes(recording: Recording, named: Sequence[str]) -> list[str]:
    """Return a note on numeric columns that vary at round 0 and may be a confidence, but are not read as one.

    Columns named as costs, times or counts are not mentioned.
    """
    own = [name for name in recording.names("signal") if name not in SIGNALS]
    known = {*named, *own_confidences(recording)}
    names = [
        name
        for name in [*own, *recording.names("label")]
        if name not in known and not is_measure_name(name) and _varies(recording, name)
    ]
    if not names:
        return []
    what = "the answer of an attempt" if attempts_of(recording) else "round 0's answer"
    others = f" (or {', '.join(names[1:_NAMED])})" if names[1:] else ""
    return [f"if the log has a confidence in {what}, --signal {names[0]}{others} tries thresholds of it, too"]


def _varies(recording: Recording, name: str) -> bool:
    if not _is_number(recording, name):
        return False
    values = recording.column(name)[:, 0]
    return len(np.unique(values[np.isfinite(values)])) > 1


def _is_number(recording: Recording, name: str) -> bool:
    from pyarrow import types

    of = recording.table.schema.field(name).type
    return bool(types.is_floating(of) or types.is_integer(of) or types.is_boolean(of))


def _confidence(tune: Recording, name: str, *, required: bool) -> Floats:
    """Return a column at round 0, shape ``(n_questions,)``."""
    if required and (name not in tune.table.column_names or not _is_number(tune, name)):
        numeric = [other for other in tune.names("label") if _varies(tune, other)]
        there_are = f"; those of its own that vary: {cut_list(numeric)}" if numeric else ""
        theirs = name if name in tune.names("label") else "COLUMN"
        raise DataError(
            f"{name!r} is not a numeric column of this recording{there_are}.{did_you_mean(name, numeric)} If the log has it as a number, or as true and false, "
            f"import the log again with --column {name}={theirs}, beside the options of before"
        )
    if required and name in tune.names("metric"):
        raise DataError(f"{name!r} is a metric, which is not known when the loop decides: name a column that is")
    values: Floats = tune.column(name)[:, 0].astype(np.float64)
    return values


def _thresholds(tune: Recording, metric: str, name: str, values: Floats) -> list[Rule]:
    """Return a rule for each threshold of a confidence.

    The rules fire above the thresholds, or below them if worse answers have higher values on tune questions.
    """
    scores = outcome(tune, metric)[:, 0]
    rules = _beyond(name, values[np.isfinite(values)], _SHARES, falls=_falls(values, scores))
    if not attempts_of(tune) and int(tune.index[-1]) > 1 and np.isfinite(tune.column(name)[:, 1:]).any():
        rules = [rule & _AT_ROUND_0 for rule in rules]  # the gate decides at round 0 alone
    return rules


def _falls(values: Floats, scores: Floats) -> bool:
    """Return True if worse answers have higher values of a signal."""
    both = np.isfinite(values) & np.isfinite(scores)
    return bool(both.sum() > 1 and np.cov(values[both], scores[both])[0, 1] < 0)


def _beyond(name: str, known: Floats, shares: Sequence[float], *, falls: bool) -> list[Rule]:
    """Return a rule for each threshold of a signal; a threshold that every value reaches is left out."""
    reached_by_all = known.max() if falls else known.min()
    limits = [limit for limit in _limits(known, shares, falls=falls) if limit != reached_by_all]
    return [signal(name) <= limit if falls else signal(name) >= limit for limit in limits]


def _limits(known: Floats, shares: Sequence[float], *, falls: bool) -> list[float]:
    """Return the rounded quantiles of a signal at `shares`.

    If the signal falls as the outcome rises, the quantiles are counted from its high end.
    """
    levels = np.quantile(-known if falls else known, shares, method="inverted_cdf")
    return sorted({float(f"{(-level if falls else level):.{_DIGITS}g}") for level in levels.tolist()})
