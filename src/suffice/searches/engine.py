"""Search: thresholds and the choice of a rule on tune questions, figures on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import ConfigMismatchError, DataError
from suffice.replays import dividing_names, reads_round_0, replay, seen_from
from suffice.replays.checks import require_whole
from suffice.replays.front import pareto_front
from suffice.replays.outcomes import choice_note, default_metrics, is_agreement
from suffice.rounds import Floats
from suffice.rules import tasr
from suffice.searches.data import Questions, by_prompt, check_disjoint, find_prompt, fit, fitted_columns
from suffice.searches.explore import Distinct, Explorer, Progress
from suffice.searches.optimism import Estimate, Optimism, best_within, cross_fitted, lead_p_values
from suffice.searches.presets import available, preset
from suffice.searches.result import Chosen, Named, SearchResult
from suffice.searches.space import Literal, Space
from suffice.searches.thresholds import lock
from suffice.session import Policy
from suffice.statistics import Draws, Resampling, hash_places
from suffice.store.recording import Recording

__all__ = ["differences", "search", "split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Goal:
    """What a search looks for: the best metric within a budget of calls, against a baseline."""

    metric: str
    budget: float
    baseline: str


def search(
    recording: Recording,
    space: Space | str = "available",
    *,
    tune: Recording | None = None,
    tune_share: float = 0.5,
    patience: Sequence[int] | None = None,
    max_rounds: Sequence[int] | None = None,
    metric: str | None = None,
    budget: float = 3.0,
    baseline: str = "fixed_k(3)",
    target: str | None = None,
    resampling: Resampling = Resampling(),
    folds: int = 5,
    progress: Progress | None = None,
) -> SearchResult:
    """Try every rule of a space on recorded rounds.

    Calibrators, locked thresholds and the choice of a rule come from tune questions; the figures of all rules, and of
    the chosen one, from the others.  Answers are those of the stop round (selector `last`), and calls and tokens those
    of the loop itself: what a judge or reranker costs depends on a rule's order, and `replay` charges it.

    >>> from suffice import Resampling, search
    >>> from suffice.searches import Block, Literal, Space
    >>> from suffice.store import bundled_recording
    >>> distances = Literal(signal="semantic_distance", comparison="<", thresholds=(0.02, 0.05, 0.1))
    >>> space = Space(name="distances", blocks=(Block(form="or", literals=(distances,)),), patience=(1, 2))
    >>> quality, few = "target_sentiment", Resampling(n_resamples=20)
    >>> recording = bundled_recording("self_refine_dv3")
    >>> result = search(recording, space, metric=quality, budget=8.0, resampling=few)
    >>> result.n_rules, str(result.chosen.policy.rule)
    (6, 'semantic_distance < 0.02')

    Args:
        recording: The questions that are searched; also the tune questions where `tune` is None.
        space: A space, the name of a preset, or `available`.
        tune: Tune questions, recorded alike; None = `tune_share` of the recording's, drawn by id hash and seed.
        tune_share: In (0, 1).
        patience: In place of the space's; None = as the space says.
        max_rounds: The same for its highest rounds.
        metric: What quality means: a column in [0, 1] or `agreement`; None = `f1`, and `em` for multiple choice.
        budget: Most mean calls of a locked threshold and of what is selected.
        baseline: What differences are taken against: a rule's text or `full`.
        target: What calibrators are fitted to, if any are; None = `em`, or `metric` where that needs no gold answers.
        resampling: How intervals are made; with 0 resamples there are none, and no optimism.  Its seed also draws the
            folds and the split.
        folds: Of the cross-fitted estimate.
        progress: Called with rules done and rules in all.

    Raises:
        DataError: The space has no rules or too many, or the metric is missing.
        CensoredError: A rule ended questions before the recording's highest round.
        UnknownSignalError: The recording lacks columns that the space reads.
        ConfigMismatchError: Tune questions are among those searched, or a prompt was not recorded.
        RuleSyntaxError: The baseline is no rule.
    """
    metric, data_hash = metric or default_metrics(recording)[0], recording.data_hash
    if tune is None:
        tune, recording = split(recording, tune_share, resampling.seed)
    check_disjoint(tune, recording)
    for of in (tune, recording):
        require_whole(of, "a search tries rules that stop later")
    goal = _Goal(metric=metric, budget=budget, baseline=baseline)
    spec = _space(space, by_prompt(tune))
    spec = replace(
        spec,
        patience=spec.patience if patience is None else tuple(patience),
        max_rounds=spec.max_rounds if max_rounds is None else tuple(max_rounds),
    )
    spec.check()
    policies = _policies(spec, by_prompt(tune), target, metric)
    on_tune, questions = (_questions(of, policies, goal) for of in (tune, recording))
    locked_space, locked = lock(spec, on_tune, budget=budget)
    explorer = Explorer(locked_space, questions)
    distinct = explorer.distinct(progress)
    columns: dict[str, Floats] = explorer.means(distinct.number)
    draws = resampling.draws(len(questions), questions.clusters) if resampling.n_resamples else None
    if draws is not None:
        columns |= differences(explorer, distinct, draws, progress)
    best = best_within(columns["quality"], columns["calls"], budget)
    chosen, picked = _chosen(
        Explorer(locked_space, on_tune), on_tune, questions, policies, goal=goal, resampling=resampling
    )
    optimism = None
    if draws is not None and best is not None:
        optimism = _optimism(explorer, distinct, columns, best, picked=picked, draws=draws, budget=budget, folds=folds)
    return SearchResult(
        explorer=explorer,
        distinct=distinct,
        columns=columns,
        front=pareto_front(columns["quality"], columns["calls"]),
        metric=metric,
        budget=budget,
        baseline=baseline,
        locked=locked,
        named=_named(explorer, distinct, draws),
        best=best,
        chosen=chosen,
        optimism=optimism,
        n_tune=len(on_tune),
        n=len(questions),
        resampling=resampling,
        data_hash=data_hash,
        notes=_notes(explorer, on_tune, chosen, best, goal),
    )


def split(recording: Recording, share: float, seed: int) -> tuple[Recording, Recording]:
    """Return tune questions and the rest, by the hash of each cluster's name and the seed: the same in every file.

    Raises:
        DataError: A share outside (0, 1), or a side without questions.
    """
    if not 0 < share < 1:
        raise DataError(f"the tune share lies strictly between 0 and 1, as 0.5, not {share!r}")
    tune: npt.NDArray[np.bool_] = hash_places(dividing_names(recording), salt=f"{seed}:") < share
    if tune.all() or not tune.any():
        raise DataError(
            f"a recording of {len(set(recording.clusters.tolist()))} questions cannot be split into tune and eval: give "
            "a tune recording, or record more questions"
        )
    return recording.select(tune), recording.select(~tune)


def _space(space: Space | str, tune: Mapping[str, Recording]) -> Space:
    if isinstance(space, Space):
        return space
    if space != "available":
        return preset(space)
    if len(tune) > 1:
        names = ", ".join(map(repr, tune))
        raise DataError(
            f"the space 'available' is for rounds of one prompt, and the recording holds several ({names}): select one "
            "(Recording.select), or describe a space whose blocks name their prompts"
        )
    return available(fitted_columns(next(iter(tune.values()))))


def _questions(recording: Recording, policies: Mapping[str, Policy], goal: _Goal) -> Questions:
    parts = by_prompt(recording)
    read = {prompt: _part(parts, prompt) for prompt in policies}
    return Questions.of(read, policies, metric=goal.metric, baseline=goal.baseline)


def _part(parts: Mapping[str, Recording], prompt: str) -> Recording:
    if prompt in parts:
        return parts[prompt]
    if len(parts) == 1 and not prompt:
        return next(iter(parts.values()))
    raise ConfigMismatchError(
        f"the tune questions were recorded with the prompt {prompt!r}, and the others with "
        f"{', '.join(map(repr, parts))}: record both with the same prompts"
    )


def _policies(space: Space, tune: Mapping[str, Recording], target: str | None, metric: str) -> dict[str, Policy]:
    """Return by prompt a policy that reads every signal of the space there, and those of `tasr` where it can."""
    named = [block.prompt for block in space.blocks]
    wanted: dict[str, dict[str, None]] = {}
    for block in space.blocks:
        prompt = find_prompt(block.prompt, tune, named)
        wanted.setdefault(prompt, {}).update(dict.fromkeys(literal.signal for literal in block.literals))
    policies = {}
    for prompt, signals in wanted.items():
        there = fitted_columns(tune[prompt])
        extra = [name for name in sorted(tasr().signals) if name not in signals]
        if all(name in there for name in extra):
            signals.update(dict.fromkeys(extra))
        policies[prompt] = fit(tune[prompt], list(signals), target=target, metric=metric)
    return policies


def differences(
    explorer: Explorer, distinct: Distinct, draws: Draws, progress: Progress | None = None
) -> dict[str, Floats]:
    """Return mean differences to the baseline with intervals, for quality and (with a prefix) calls."""
    columns = {f"{of}{name}": np.empty(len(distinct)) for of in ("", "calls_") for name in ("delta", "low", "high")}
    for part, deltas in explorer.deltas(distinct.number):
        for of, outcome in (("", "quality"), ("calls_", "calls")):
            found = draws.intervals(deltas[outcome])
            for name in ("delta", "low", "high"):
                columns[f"{of}{name}"][part] = getattr(found, name)
        if progress is not None:
            progress(part.stop, len(distinct))
    return columns


def _chosen(
    on_tune: Explorer,
    tune: Questions,
    questions: Questions,
    policies: Mapping[str, Policy],
    *,
    goal: _Goal,
    resampling: Resampling,
) -> tuple[Chosen | None, npt.NDArray[np.int64]]:
    """Return what tune selects, with its figures on the searched questions, and its number in the space."""
    tried = on_tune.distinct()
    means = on_tune.means(tried.number)
    best = best_within(means["quality"], means["calls"], goal.budget)
    if best is None:
        return None, np.empty(0, dtype=np.int64)
    number = tried.number[[best]]
    (prompt,), (highest,) = on_tune.settings(number)
    policy = policies[prompt]
    policy = replace(
        policy,
        rule=on_tune.rules(number)[0],
        start_round=0 if reads_round_0(on_tune.rules(number)[0]) else 1,
        max_rounds=highest,
        name="",
        calibrators=tuple(c for c in policy.calibrators if c.output in on_tune.rules(number)[0].signals),
        state={name: state for name, state in policy.state.items() if name in on_tune.rules(number)[0].signals},
        provenance={**policy.provenance, "search": _provenance(on_tune.space, len(tried), goal), **_ids(tune)},
    )
    side = questions.sides[prompt]
    result = replay(
        side.recording,
        [policy],
        metrics=(goal.metric,),
        baseline=goal.baseline,
        resampling=replace(resampling, n_resamples=max(1, resampling.n_resamples)),
    )
    found = Chosen(
        policy=policy,
        prompt=prompt,
        quality=float(means["quality"][best]),
        calls=float(means["calls"][best]),
        row=result.row(policy.label),
        headline=result.headline(policy.label),
    )
    return found, number


def _ids(tune: Questions) -> dict[str, Any]:
    return reduce(or_, (seen_from(side.recording) for side in tune.sides.values())).to_dict()


def _provenance(space: Space, n_distinct: int, goal: _Goal) -> dict[str, Any]:
    return {
        "space": space.name,
        "n_rules": space.count,
        "n_distinct": n_distinct,
        "metric": goal.metric,
        "budget": goal.budget,
        "selected_on": "tune",
    }


def _optimism(
    explorer: Explorer,
    distinct: Distinct,
    columns: Mapping[str, Floats],
    best: int,
    *,
    picked: npt.NDArray[np.int64],
    draws: Draws,
    budget: float,
    folds: int,
) -> Optimism:
    within = np.flatnonzero(columns["calls"] <= budget + 1e-12)
    raw, corrected = lead_p_values(explorer, distinct.number[within], int(np.searchsorted(within, best)), draws)
    estimates = [_estimate("naive", explorer, distinct.number[[best]], draws)]
    if len(picked):
        estimates.append(_estimate("nested", explorer, picked, draws))
    crossed = cross_fitted(
        explorer,
        distinct.number,
        budget=budget,
        folds=folds,
        draws=draws,
    )
    return Optimism(
        estimates=(*estimates, *([crossed] if crossed is not None else [])),
        n_rules=explorer.space.count,
        n_distinct=len(distinct),
        n_within=len(within),
        p_raw=raw,
        p_corrected=corrected,
    )


def _estimate(how: str, explorer: Explorer, number: npt.NDArray[np.int64], draws: Draws) -> Estimate:
    means = explorer.means(number)
    _, deltas = next(explorer.deltas(number))
    return Estimate(
        how=how,
        rules=(str(explorer.rules(number)[0]),),
        quality=float(means["quality"][0]),
        calls=float(means["calls"][0]),
        delta=draws.paired(deltas["quality"][0]),
    )


def _named(explorer: Explorer, distinct: Distinct, draws: Draws | None) -> tuple[Named, ...]:
    """Return `tasr` on every prompt that has its columns."""
    found = []
    for prompt, side in explorer.questions.sides.items():
        if not tasr().signals <= set(side.view.columns):
            continue
        position, hashed = explorer.of_rule(tasr(), prompt)
        rows = np.arange(len(position))
        alike = distinct.members[distinct.hash == hashed]
        quality = side.tables["quality"][rows, position]
        delta = None
        if draws is not None:
            delta = draws.paired(quality - side.baseline["quality"])
        found.append(
            Named(
                name="tasr" if len(explorer.questions.sides) == 1 else f"tasr  [{prompt}]",
                prompt=prompt,
                quality=float(quality.mean()),
                calls=float(side.tables["calls"][rows, position].mean()),
                delta=delta,
                members=int(alike.sum()),
            )
        )
    return tuple(found)


def _notes(
    explorer: Explorer, tune: Questions, chosen: Chosen | None, best: int | None, goal: _Goal
) -> tuple[str, ...]:
    notes = [*explorer.questions.notes, *(f"tune: {note}" for note in tune.notes)]
    choices = (choice_note(side.recording) for side in explorer.questions.sides.values())
    notes += dict.fromkeys(note for note in choices if note and goal.metric in ("f1", "em"))
    if is_agreement(goal.metric):
        notes.append("agreement measures sameness with the full-budget run's answer, not truth")
    if chosen is None:
        notes.append(f"no rule needs at most {goal.budget:g} mean calls on tune: nothing was selected there")
    if best is None:
        notes.append(f"no rule needs at most {goal.budget:g} mean calls here")
    asked = sorted({signal for block in explorer.space.blocks for signal in map(_signal, block.literals)} & _ON_DEMAND)
    if asked:
        notes.append(f"calls are the loop's own: what {', '.join(asked)} costs is charged by replay, rule by rule")
    return tuple(notes)


_ON_DEMAND = frozenset({"critic_approved", "judge_entailment", "rerank_score"})


def _signal(literal: Literal) -> str:
    return literal.signal
