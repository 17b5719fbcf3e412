"""The candidates for advice, and the defaults of declared options.

Candidates are all fixed budgets, and all rules whose signals were recorded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.common.files import quoted
from suffice.common.tables import counted, cut_list
from suffice.errors import DataError, SufficeError, UnsettledError
from suffice.evaluation.replay import check_policy, policy_for
from suffice.evaluation.replay.baselines import single_policies
from suffice.evaluation.replay.outcomes import AGREEMENT, abandoned, has_outcome, measured_qualities
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.policy.metrics import METRICS
from suffice.policy.rules import NAMED_RULES, MajorityOfSamples, Rule, Selector, fixed_k, parse_rule, signal
from suffice.policy.rules.algebra import Threshold
from suffice.policy.rules.named import WINDOWS, adaptive_consistency, esc, rasc, settled
from suffice.policy.rules.registered_selectors import RascAnswer
from suffice.policy.session import Policy
from suffice.policy.signals import TRIAL
from suffice.recordings.recording import Recording
from suffice.recordings.runs import (
    ALONE,
    ATTEMPTS,
    attempts_of,
    begins_closed_book,
    column_of_attempts,
    is_of_steps,
    refuse_untried,
)
from suffice.recordings.schema import RETURNED, cost_column
from suffice.verdicts.decisions.gates import (
    RETRIEVALS,
    gate_of,
    gate_rules,
    give_up_rules,
)
from suffice.verdicts.decisions.steps import LEAST_SAVING, knows_spending, spent_by_step, step_rules

CHECK_ERROR = "check_error"
"""The signal of loops whose drafts a check reads."""
_OPTIONAL_SIGNALS = ("answer_stable", "answer_margin", "critic_approved", "semantic_distance")
"""Signals of candidates that a log may lack."""
_PROBABILITIES = (0.5, 0.7, 0.9)
"""Thresholds for probabilities: of a correct answer, or of knowing the answer without evidence."""
_LEADS = range(2, 7)
_WINDOWS = (3, 5)
"""Leads, and windows of early-stopping self-consistency, for votes."""
_BUDGETS = (0.25, 0.5, 0.75)
"""Budgets of thought as quantiles over the checkpoints of tune questions."""
_CONFIDENCES = (0.9, 0.95)
"""Geometric mean probabilities of a trial answer's tokens."""
_CHECKED = (2, 3, 5)
"""Caps of loops that stop when their check finds nothing more."""
_SCORES = 6
"""The most scores that a question offers."""
_NEARLY_ALL, _TWO = 0.98, 2
_RASC = "rasc"
"""The rule that reads the reasoning of samples, for recordings with their texts; its own selector answers."""
_PUBLISHED = {
    adaptive_consistency(): "one answer wins with posterior probability 0.95",
    rasc(): "the reasoning of 5 answers has a score of 0.5",
}
_LabelledRule = tuple[str, Rule]
_LONG_NUMBER = re.compile(r"-?\d*\.\d{5,}(?:e-?\d+)?")
_QUANTILES = (0.25, 0.5)
"""Thresholds for the drafts' distance as quantiles over the rounds of tune questions, since its scale depends on the embedder."""


def declared_defaults(recording: Recording, metric: str | None, *, priced: bool) -> dict[str, Any]:
    """Return the default of each declared option.

    Args:
        recording: The logged loop.
        metric: The metric that the user names; None = no metric named.
        priced: Whether prices are given.

    Raises:
        DataError: The models of an escalation did not answer the same questions.
    """
    result: dict[str, Any] = {
        "max_loss": 0.02,
        "alpha": 0.05,
        "cost": "calls",
        "baseline": "recorded",
        "selector": usual_selector(recording),
        "leave_out_failed": False,
        "label_noise": 0.0,
        "min_saving": 0.0,
    }
    if is_of_steps(recording) or abandoned(metric or ""):
        result["min_saving"] = LEAST_SAVING
    if is_of_steps(recording) and (priced or knows_spending(recording)):
        result["cost"] = "money"
    if attempts := attempts_of(recording):
        refuse_untried(recording, recording.failed)
        result |= {"cost": "money", "baseline": f"{attempts[-1]}{ALONE}"}
    of_thoughts = cost_column(TRIAL, "calls") in recording.names("cost")
    if of_thoughts and _has_priced_trials(recording):  # a chain is one call, however long it is
        result["cost"] = "tokens"
    if begins_closed_book(recording) and int(recording.index[-1]) == 1:  # only retrieval can be saved
        result["cost"] = RETRIEVALS
    return result


def _has_priced_trials(recording: Recording) -> bool:
    """Return True if both the tokens of thinking and the tokens of trial answers were recorded at checkpoints."""
    for component in ("generator", TRIAL):
        names = [cost_column(component, kind) for kind in ("uncached_tokens", "output_tokens")]
        asked = recording.seen & ~recording.failed[:, None] & (recording.column(cost_column(component, "calls")) > 0)
        if not {*names} <= {*recording.names("cost")} or any(
            np.isnan(recording.column(name)[asked]).any() for name in names
        ):
            return False
    return True


def refuse_cheaper_last(recording: Recording, prices: Price | Mapping[str, Price] | None) -> None:
    """Raise a `DataError` if the last model of an escalation is not the most expensive one.

    The last model is the default baseline.
    """
    models = attempts_of(recording)
    recording = PreparedRecording.of(recording).recording  # without questions that failed
    spent, unit = spent_by_step(recording, prices)
    if spent is None or unit == "tokens":
        return
    each = {name: float(spent[:, place][recording.seen[:, place]].mean()) for place, name in enumerate(models)}
    order = sorted(each, key=lambda name: each[name])
    if each[models[-1]] < each[order[-1]]:
        option = f"--column {quoted('round=' + column_of_attempts(recording) + ':' + ','.join(order))}"
        alone = ", ".join(f"{name} {1000 * each[name]:.3g}" for name in models)
        raise DataError(
            f"the models were declared in the order {', '.join(models)}, and the last is not the dearest: alone they cost {alone} {unit} per "
            f"1,000 questions. Import the log in the order of cost ({option}), or compare with a model that you name "
            f"(baseline='{order[-1]}{ALONE}', --baseline '{order[-1]}{ALONE}')"
        )


def only_quality(recording: Recording) -> str:
    """Return the metric to use if the user names none.

    It is the score of answers if the log allows one; else the log's only score; else agreement.

    Raises:
        UnsettledError: The log has several scores, and each may prefer different rounds.
    """
    names = measured_qualities(recording)
    if len(names) > 1:
        raise UnsettledError(
            f"the log has several scores of its own ({cut_list(names)}), and what loses nothing by one may lose much by another: which of them "
            "judges?",
            "metric",
            {f"--metric {name}": (name, f"{name!r} judges") for name in names[:_SCORES]},
        )
    return next(iter(names), AGREEMENT[0])


def candidates(
    tune: Recording,
    metric: str,
    selector: Selector,
    *,
    highest: int,
    start_round: int = 1,
    signals: Sequence[str] = (),
) -> tuple[tuple[Policy, ...], tuple[str, ...]]:
    """Return the policies that may be advised, and notes on rules that lack recorded signals.

    The policies depend only on the recorded columns and on tune questions, where calibrators and thresholds are fitted.

    Args:
        tune: Recorded tune questions.
        metric: The metric to keep.  Calibrated signals are fitted to this metric, or to exact match if the metric
            scores answers.
        selector: The selector of all candidates.
        highest: The highest round of all questions; tune questions alone may be shorter.
        start_round: The first round of the loop.
        signals: Columns that hold a confidence in an answer or in the success of a run; see `gate_rules` and
            `give_up_rules`.
    """
    models = attempts_of(tune)
    policies = [
        policy_for(tune, fixed_k(k), max_rounds=k, start_round=start_round, selector=selector, name=f"fixed_k({k})")
        for k in range(2 if models else 1, highest)
    ]
    if models:
        alone = single_policies(models[:highest], Policy(selector=selector))
        policies += [
            policy_for(
                tune, one.rule, max_rounds=one.max_rounds, start_round=one.start_round, selector=selector, name=one.name
            )
            for one in alone
        ]
    success = abandoned(metric)
    read = give_up_rules(tune, success, signals) if success else gate_rules(tune, metric, signals)
    first = 1 if success or models else 0 if begins_closed_book(tune) else start_round
    policies += [
        policy_for(tune, rule, max_rounds=highest, start_round=first, selector=selector, name=label)
        for label, rule in read
    ]
    untried: dict[str, list[str]] = {}
    known = {name for name in tune.names("signal") if np.isfinite(tune.column(name)).any()}
    for label, rule in _votes(tune, highest) if tune.independent else _rules(tune, known):
        own = RascAnswer() if label == _RASC and selector == MajorityOfSamples() else selector
        try:
            policies.append(_fitted_policy(tune, (label, rule), metric, own, start_round))
        except SufficeError as error:
            untried.setdefault(str(error).split(":", maxsplit=1)[0].rstrip("."), []).append(label)
    notes = [f"not tried: {', '.join(rules)}, because {reason}" for reason, rules in untried.items()]
    lacking = [name for name in _OPTIONAL_SIGNALS if name not in known]
    if lacking and not (tune.independent or is_of_steps(tune)):
        notes.append(f"rules whose signals the log lacks were not tried. These are: {', '.join(lacking)}")
    return tuple(policies), tuple(notes)


def change_text(policy: Policy, highest: int | None) -> str:
    """Return how a policy would change the loop, as text beginning with a verb.

    >>> change_text(Policy(rule=fixed_k(3), max_rounds=3), 5), change_text(Policy(rule=fixed_k(3), max_rounds=3), None)
    ('lower the cap from 5 to 3', 'lower the cap to 3')
    >>> change_text(Policy(rule="answer_stable"), 5), change_text(Policy(rule="tasr", name="tasr"), 5)
    ('stop when answer_stable >= 1', 'stop by tasr')
    >>> change_text(Policy(rule="lead(3)", selector="majority_of_samples"), 10)
    'stop asking when one answer leads by 3'
    >>> change_text(Policy(rule=fixed_k(3), max_rounds=3, depends={"every": 256, "trial_tokens": 32}), 5)
    'lower the budget of thought to 768 tokens'

    Args:
        policy: A candidate.
        highest: The present cap; None if the baseline is not the logged loop.
    """
    if ATTEMPTS in policy.depends or is_vote(policy):
        return _escalation_change(policy) if ATTEMPTS in policy.depends else _vote_change(policy, highest)
    if is_closed_book(policy):
        return "never retrieve, and answer from round 0"
    if is_fixed_budget(policy):
        every, is_counted = policy.depends.get("every"), policy.depends.get("boundary", "tokens") == "tokens"
        if (
            "trial_tokens" in policy.depends and is_counted and isinstance(every, int)
        ):  # checkpoints every so many tokens
            return f"lower the budget of thought to {policy.max_rounds * every:,} tokens"
        return f"lower the cap{'' if highest is None else f' from {highest}'} to {policy.max_rounds}"
    gate = gate_of(policy)
    if gate is not None:
        return f"answer from round 0, without retrieval, when {gate}"
    return f"stop by {policy.label}" if policy.label.isidentifier() else f"stop when {rounded_rule(policy.rule)}"


def rounded_rule(rule: Rule) -> str:
    """Return a rule as text for sentences, with long numbers rounded to four digits.

    >>> from suffice.policy.rules import signal
    >>> rounded_rule(signal("answer_logprob_mean") > -0.10536051565782628), rounded_rule(signal("tokens") >= 12345)
    ('answer_logprob_mean > -0.1054', 'tokens >= 12345')
    """
    return _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.4g}", str(rule))


def _escalation_change(policy: Policy) -> str:
    """Return `change_text` for a candidate that accepts an attempt of an escalation."""
    if policy.name.endswith(ALONE):
        return f"ask {policy.name}"
    if is_fixed_budget(policy):
        return f"ask {policy.max_rounds} models, and return the last answer"
    return f"accept an answer {'by' if policy.label.isidentifier() else 'when'} {policy.label}"


def is_fixed_budget(policy: Policy) -> bool:
    """Return True if a candidate only lowers the loop's cap, or never retrieves.

    >>> is_fixed_budget(Policy(rule=fixed_k(3), max_rounds=3)), is_fixed_budget(Policy(rule="tasr"))
    (True, False)
    """
    return policy.rule == fixed_k(policy.max_rounds) or is_closed_book(policy)


def is_closed_book(policy: Policy) -> bool:
    """Return True if a policy always answers from round 0."""
    return policy.start_round == 0 and policy.rule == fixed_k(0)


def is_vote(policy: Policy) -> bool:
    """Return True if a candidate returns the majority of independent samples.

    >>> is_vote(Policy(rule="lead(3)", selector="majority_of_samples")), is_vote(Policy(rule="tasr"))
    (True, False)
    """
    return isinstance(policy.selector, MajorityOfSamples)


def _vote_change(policy: Policy, highest: int | None) -> str:
    rule = policy.rule
    if is_fixed_budget(policy):
        return f"ask for {counted(policy.max_rounds, 'sample')}{'' if highest is None else f' instead of {highest}'}"
    if rule in {settled(policy.max_rounds), settled(highest or policy.max_rounds)}:
        return "stop asking when the samples that are left cannot change the answer"
    if rule in _PUBLISHED:
        return f"stop asking when {_PUBLISHED[rule]}"
    if isinstance(rule, Threshold) and rule.name == "vote_lead":
        return f"stop asking when one answer leads by {rule.value:g}"
    windows = [size for size in WINDOWS if rule == esc(size)]
    if windows:
        return f"stop asking when {windows[0]} answers in a row are the same, looking after each {windows[0]}"
    return f"stop asking when {rule}"


def _named(name: str, *numbers: float) -> _LabelledRule:
    """Return a named rule with these arguments, as a pair of its text and the rule.

    >>> _named("lead", 3)[0], _named("margin", 0.5)[0]
    ('lead(3)', 'margin(0.5)')
    """
    arguments = ", ".join(f"{number:d}" if isinstance(number, int) else f"{number:g}" for number in numbers)
    return f"{name}({arguments})" if numbers else name, NAMED_RULES[name].build(*map(float, numbers))


def _votes(tune: Recording, highest: int) -> Iterator[_LabelledRule]:
    """Yield the rules that stop a vote among at most `highest` samples."""
    yield _named("settled", highest)
    yield from (_named("lead", k) for k in _LEADS if k < highest)
    yield _named("adaptive_consistency")
    yield from (_named("esc", size) for size in _WINDOWS if size < highest)
    if "text" in tune.table.column_names:
        yield _named(_RASC)


def _rules(tune: Recording, columns: Collection[str]) -> Iterator[_LabelledRule]:
    """Yield each candidate rule whose signals are in `columns`, the columns with a value in some round."""
    if is_of_steps(tune):
        yield from ((text, parse_rule(text)) for text in step_rules(tune))
        return
    if "answer_stable" in columns:
        yield _named("answer_stable")
        yield _named("stable_twice")
    yield from [_named("similar")] if "answer_f1_previous" in columns else []
    if "answer_margin" in columns:
        if "answer_stable" in columns:
            yield _named("tasr")
        yield from (_named("margin", threshold) for threshold in _PROBABILITIES)
    if "thinking_tokens" in columns:
        yield from _thinking_rules(tune, columns)
    if "critic_approved" in columns:
        yield _named("critic_only")
    if CHECK_ERROR in columns:
        yield f"{CHECK_ERROR} <= 0", signal(CHECK_ERROR) <= 0
        yield from (_named("checked", k) for k in _CHECKED)
        yield _named("loopgain", 0)
    if "semantic_distance" in columns:
        distances = tune.column("semantic_distance")
        quantiles = np.quantile(distances[np.isfinite(distances)], _QUANTILES)
        thresholds = sorted({float(f"{value:.3g}") for value in quantiles})
        yield from (_named("semantic", threshold, 1) for threshold in thresholds if threshold > 0)
    if "p_known" in columns and int(tune.index[0]) == 0:
        yield from ((f"p_known > {threshold}", signal("p_known") > threshold) for threshold in _PROBABILITIES)


def _thinking_rules(tune: Recording, columns: Collection[str]) -> Iterator[_LabelledRule]:
    """Yield the rules that stop a chain of thought.

    Token budgets are left out if all questions have the same number of tokens at a checkpoint, since they would then
    equal round budgets.
    """
    tokens = tune.column("thinking_tokens")
    ended = np.arange(tokens.shape[1]) == tune.seen.sum(axis=1)[:, None] - 1
    inside = np.where(ended, np.nan, tokens)
    known = inside[:, np.isfinite(inside).any(axis=0)]
    if known.size and (np.nanmax(known, axis=0) > np.nanmin(known, axis=0)).any():
        budgets = np.quantile(known[np.isfinite(known)], _BUDGETS)
        yield from (_named("token_budget", round(budget)) for budget in dict.fromkeys(budgets.tolist()))
    if {"answer_stable", "trial_hesitates"} <= set(columns):
        yield from (_named("dynasor", n) for n in (2, 3))
    if "answer_logprob_mean" in columns:
        yield from (_named("deer", confidence) for confidence in _CONFIDENCES)
    if "p_settled" in columns:
        yield from (_named("lynx", confidence) for confidence in _CONFIDENCES)


def _fitted_policy(
    tune: Recording, labelled: _LabelledRule, metric: str, selector: Selector, start_round: int
) -> Policy:
    """Return a rule as a policy with all fitted state, fitted on tune questions."""
    label, rule = labelled
    draft = policy_for(tune, rule, name=label, selector=selector)
    if any(map(draft.unfitted, draft.signals)):
        from suffice.evaluation.replay import calibrate

        # The defaults of `calibrate`, so that a rule with the same name is the same policy everywhere.
        target = "em" if metric in METRICS and has_outcome(tune, "em") else metric
        draft, _ = calibrate(tune, rule=label, target=target, selector=selector)
        # The trial stores the tune questions once for all candidates, so the policies need not.
        draft = replace(draft, provenance={})
    draft = replace(draft, start_round=min(draft.start_round, start_round))
    check_policy(draft, tune)
    return draft


def usual_selector(recording: Recording) -> str:
    """Return the selector that a loop uses by itself.

    It returns the round that the log marks as returned; else the majority of samples; else the checked draft with the
    fewest faults; else the last round.

    If the marked sample always has the highest or lowest value of a column, the selector reads that column, because
    this also works with fewer samples.
    """
    known = {RETURNED: f"max_{RETURNED}", CHECK_ERROR: f"min_{CHECK_ERROR}"}
    if recording.independent:
        known = {RETURNED: _chooser(recording) if RETURNED in recording.names("signal") else ""}
    usual = "majority_of_samples" if recording.independent else "last"
    return next((selector for name, selector in known.items() if name in recording.names("signal")), usual)


def _chooser(recording: Recording) -> str:
    """Return a selector that reads a column and chooses nearly all marked answers; else the selector that reads the mark."""
    mark = recording.column(RETURNED)
    marked = np.nansum(mark, axis=1) == 1
    chosen = np.nan_to_num(mark[marked]) == 1
    others = {RETURNED, *recording.names("metric")}
    numbers = [field.name for field in recording.table.schema if pa.types.is_floating(field.type)]
    own = [name for name in numbers if name.isidentifier() and name not in others]  # a selector cannot name a cost
    for name in own if marked.any() else ():
        values = recording.column(name)[marked]
        if len(np.unique(values)) <= _TWO:
            continue
        for word, best, worst in (("max", np.max, -np.inf), ("min", np.min, np.inf)):
            filled = np.where(np.isnan(values), worst, values)
            is_best = filled == best(filled, axis=1, keepdims=True)
            if np.all(is_best == chosen, axis=1).mean() >= _NEARLY_ALL:
                return f"{word}_{name}"
    return f"max_{RETURNED}"
