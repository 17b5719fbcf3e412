"""Baselines of a replay: their selectors, and the baseline that each policy is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from suffice.errors import CensoredError, DataError, RuleSyntaxError
from suffice.evaluation.replay.baselines import (
    RECORDED,
    Run,
    closed_book,
    fixed_policy,
    oracle_best,
    oracle_earliest,
    recorded_run,
    single_policies,
)
from suffice.evaluation.replay.checks import policy_for
from suffice.evaluation.replay.outcomes import measured_metrics, other_metrics, outcome
from suffice.evaluation.replay.panels import best_single_run
from suffice.evaluation.replay.prepared import PreparedRecording, answering_like
from suffice.policy.rounds import Mask
from suffice.policy.rules import Rule, parse_rule
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.recordings.runs import ALONE, attempts_of

_DEFAULT = "fixed_k(3)"

RunOf = Callable[[Policy, str], Run]
"""A function that replays a policy, given the kind of the run as text; it raises if the policy cannot be replayed."""


class Questions(Protocol):
    """Protocol of the facts that baselines need about all questions.

    `suffice.evaluation.replay.whole.Whole` has these facts.
    """

    @property
    def recording(self) -> Recording:
        """The recording."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the questions."""

    @property
    def cut(self) -> Mask:
        """Mask of the questions that a rule ended."""

    @property
    def highest(self) -> int:
        """The highest recorded round."""

    def is_measured_at_the_end_alone(self, metric: str, /) -> bool:
        """Return whether a metric was measured only in the last round of questions."""


def selectors_in_use(policies: Sequence[Policy]) -> dict[str, Policy]:
    """Return one policy for each selector in use (see `answering_like`), by the selector's name.

    Selectors with the same text and different fitted state are numbered.  Without policies, the only selector is `last`.
    """
    selectors: dict[str, Policy] = {}
    for policy in policies or [Policy()]:
        like = answering_like(policy)
        text = str(policy.selector)
        same = [other for name, other in selectors.items() if name.partition(" #")[0] == text]
        if any(replace(other, name=like.name) == like for other in same):
            continue
        number = f" #{len(same) + 1}" if same else ""
        selectors[text + number] = replace(like, name=like.name + number)
    return selectors


def selector_names(policies: Sequence[Policy]) -> list[str]:
    """Return the name of each policy's selector, unique among all policies; see `selectors_in_use`."""
    selectors = selectors_in_use(policies)
    likes = map(answering_like, policies)
    return [next(name for name, other in selectors.items() if replace(other, name=like.name) == like) for like in likes]


def baseline_policy(recording: Recording, rule: str | Rule, like: Policy) -> Policy:
    """Return a policy with this rule and the selector of `like`, as the baseline of policies with that selector.

    With another selector, the difference would partly be due to the selectors.
    """
    like = answering_like(like)
    alone = {policy.name: policy for policy in single_policies(attempts_of(recording), like)}
    if (known := alone.get(f"{rule}{like.name}")) is not None:
        return known
    fitted = {"calibrators": like.calibrators, "state": like.state, "normalizer": like.normalizer}
    return policy_for(recording, rule, name=f"{rule}{like.name}", selector=like.selector, **fitted)


def fixed_policies(whole: Questions, selectors: Mapping[str, Policy]) -> list[tuple[str, Policy]]:
    """Return the fixed budgets, and the single models of an escalation, once for every selector.

    Each item is the name of a selector and a policy that uses this selector.
    """
    budgets, models = range(1, whole.highest + 1), attempts_of(whole.recording)
    return [
        (name, policy)
        for name, like in selectors.items()
        for policy in [*(fixed_policy(k, like) for k in budgets), *single_policies(models[: whole.highest], like)]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """The baselines that are available on all questions together.

    Attributes:
        closed_book: Whether round 0 was recorded.
        earliest: Whether the oracle of the earliest right answer is available.
        best: Whether the oracle of the best answer is available.
    """

    closed_book: bool
    recorded: bool
    recorded_from: int
    earliest: bool
    best: bool


def baseline_runs(
    prepared: PreparedRecording,
    selectors: Mapping[str, Policy],
    metrics: Sequence[str],
    available: Available,
    start: int,
) -> list[Run]:
    """Return every available baseline except fixed budgets, in the order of the table."""
    runs = [closed_book(prepared)] if available.closed_book else []
    if available.recorded:
        runs += [
            replace(recorded_run(prepared, like, start_round=available.recorded_from), selector=name)
            for name, like in selectors.items()
        ]
    runs += filter(None, [best_single_run(prepared)])
    if available.earliest:
        runs.append(oracle_earliest(prepared, outcome(prepared.recording, "em"), start))
    if available.best:
        runs.append(oracle_best(prepared, prepared.metrics[metrics[0]], start, name=metrics[0]))
    return runs


def with_references(
    whole: Questions,
    runs: list[Run],
    selectors: Mapping[str, Policy],
    *,
    baseline: str | Policy | None,
    metrics: Sequence[str],
    run_of: RunOf,
) -> tuple[list[Run], list[Run]]:
    """Add the baseline to the runs if it is missing; return all runs, and for each run the baseline's run.

    If the baseline is a rule (`fixed_k(3)`, `full`), each run is compared with this rule and the run's own selector, see
    `baseline_policy`.  If it is a policy or the label of a policy, it is the same for all runs.  `run_of` replays a
    baseline that has no run yet.

    Raises:
        CensoredError: The baseline needs rounds that were not recorded.
    """
    if baseline is None:
        models = attempts_of(whole.recording)
        baseline = RECORDED if whole.cut.any() else f"{models[-1]}{ALONE}" if models else _DEFAULT
    if isinstance(baseline, Policy):
        references = dict.fromkeys(
            selectors, _reference_run(whole, runs, baseline, (str(baseline.selector), baseline), run_of)
        )
    else:
        references = {item[0]: _reference_run(whole, runs, baseline, item, run_of) for item in selectors.items()}
    for run in references.values():
        refuse_unmeasured(whole, run, metrics)
        _refuse_unknown(whole, run)
        if all(run is not other for other in runs):
            runs = [*runs, run]
    first = next(iter(references.values()))
    return runs, [references.get(run.selector, first) for run in runs]


def _reference_run(
    whole: Questions, runs: Sequence[Run], baseline: str | Policy, like: tuple[str, Policy], run_of: RunOf
) -> Run:
    name, answering = like
    if isinstance(baseline, Policy):
        label, policy = baseline.label, baseline
        same = [run for run in runs if run.label == label and run.policy == policy]
    else:
        full = baseline == "full" or (baseline == RECORDED and not whole.cut.any())
        label = f"fixed_k({whole.highest})" if full else baseline
        same = [run for run in runs if run.label == label + answering.name and run.selector in (name, "")]
        same = same or [run for run in runs if run.label == label]
        same = same or [run for run in runs if run.kind == "random" and _spelt(run.label) == _spelt(label)]
        if not same:
            policy = replace(baseline_policy(whole.recording, baseline, answering), name=label + answering.name)
    if same:
        return same[0]
    twice = any(run.label == policy.label for run in runs)
    kind = "fixed" if policy.rule.signals <= {"round"} else "rule"
    run = run_of(policy, kind)
    return replace(run, selector=name, label=f"{policy.label} (baseline)" if twice else run.label)


def _spelt(label: str) -> str:
    """Normalise the rule in a random twin's label: `random(x>1)` becomes `random(x > 1)`."""
    try:
        return f"random({parse_rule(label.removeprefix('random(').removesuffix(')'))})"
    except RuleSyntaxError:
        return label


def refuse_unmeasured(whole: Questions, run: Run, metrics: Sequence[str]) -> None:
    """Raise if a run returns an answer whose metric was not measured."""
    for name in metrics:
        unknown = np.isnan(run.worst[name])
        if not unknown.any():
            continue
        q = int(np.argmax(unknown))
        stop = "" if run.rounds is None else f" at round {int(run.rounds[q])}"
        what = (
            f"{run.label!r} stops at rounds whose {name!r} was not measured in {int(unknown.sum())} of {len(unknown)} "
            f"questions (question {whole.ids[q]!r}{stop})"
        )
        if whole.is_measured_at_the_end_alone(name):
            raise CensoredError(
                f"{what}: answers exist only at the last round of this recording, so an earlier stop has no answer to "
                "score. Replay stops and costs alone with metrics=(), or record answers at every round"
            )
        use = "Use" if unknown.all() else "Drop those questions (Recording.select), or use"
        raise DataError(f"{what}. {use} another metric: {other_metrics(measured_metrics(whole.recording), name)}")


def _refuse_unknown(whole: Questions, run: Run) -> None:
    if not run.exact:
        other = "closed_book" if int(whole.recording.index[0]) == 0 else "fixed_k(1)"
        raise CensoredError(
            f"the baseline {run.label!r} goes on past what was recorded in {int(run.unrun.sum())} of {len(run.unrun)} "
            f"questions, because a rule ended their recording: what it would have answered there is unknown, and so is "
            f"every difference to it. Compare with 'recorded', where that rule stopped, or with {other!r}, or record "
            "those questions at full width, without a rule"
        )
