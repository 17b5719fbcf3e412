"""Search: thresholds and the choice of a rule on tune questions, figures on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import dividing_names, replay, seen_from
from suffice.evaluation.replay.checks import require_whole
from suffice.evaluation.replay.front import pareto_front
from suffice.evaluation.replay.orders import in_orders, n_orders, order_note
from suffice.evaluation.replay.outcomes import agreement_note, choice_note, default_metrics, is_agreement
from suffice.evaluation.search.by_parts import search_parts
from suffice.evaluation.search.choosing import (
    Goal,
    chosen_policy,
    empty_notes,
    left_out_notes,
    on_demand_notes,
    space_of,
    wanted_signals,
)
from suffice.evaluation.search.data import Questions, by_prompt, refuse_shared
from suffice.evaluation.search.equivalent import equivalent_intervals
from suffice.evaluation.search.explore import Explorer, SearchProgress
from suffice.evaluation.search.fitting import Defined, fit
from suffice.evaluation.search.optimism import Trials, measure_optimism
from suffice.evaluation.search.result import Chosen, Named, SearchResult
from suffice.evaluation.search.space import Space
from suffice.evaluation.search.thresholds import lock
from suffice.evaluation.statistics import Draws, Resampling, hash_places
from suffice.policy.rounds import Floats
from suffice.policy.rules import tasr
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

__all__ = ["difference_columns", "search", "split"]

_ORDERS = 10


def search(
    recording: Recording | str | Path,
    space: Space | str = "available",
    *,
    tune: Recording | str | Path | None = None,
    tune_share: float = 0.5,
    patience: Sequence[int] | None = None,
    max_rounds: Sequence[int] | None = None,
    metric: str | None = None,
    budget: float = 3.0,
    baseline: str = "fixed_k(3)",
    target: str | None = None,
    resampling: Resampling = Resampling(),
    folds: int = 5,
    progress: SearchProgress | None = None,
    orders: int | None = None,
    jobs: int = 1,
) -> SearchResult:
    """Try every rule of a space on recorded rounds.

    A path is searched part by part, in `jobs` processes: of the rules sums are in memory, and of the questions one part at a
    time.  Rules, thresholds, means and what tune chooses are the same; the notes say what is computed otherwise.

    Calibrators, locked thresholds and the choice of a rule come from tune questions; the figures of all rules, and of
    the chosen one, from the others.  Answers are those of the stop round (selector `last`), and calls and tokens those
    of the loop itself: what a judge or reranker costs depends on a rule's order, and `replay` charges it.  Of independent
    samples the answer is their majority, and `available` means votes.

    >>> from suffice import Resampling, search
    >>> from suffice.evaluation.search import Block, Literal, Space
    >>> from suffice.recordings import bundled_recording
    >>> distances = Literal(signal="semantic_distance", comparison="<", thresholds=(0.02, 0.05, 0.1))
    >>> space = Space(name="distances", blocks=(Block(form="or", literals=(distances,)),), patience=(1, 2))
    >>> quality, few = "target_sentiment", Resampling(n_resamples=20)
    >>> recording = bundled_recording("self_refine_dv3")
    >>> result = search(recording, space, metric=quality, budget=8.0, resampling=few)
    >>> result.n_rules, str(result.chosen.policy.rule)
    (6, 'semantic_distance < 0.02')

    Args:
        recording: The questions that are searched, in memory or as the path of a file or of a folder of parts; also the
            tune questions where `tune` is None.
        space: A space, the name of a preset, or `available`.
        tune: Tune questions, recorded alike, a path if `recording` is one; None = `tune_share` of the recording's, drawn by id hash and seed.
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
        progress: Called with rules done and rules in all; of a path with parts done and parts in all, in each pass.
        orders: Of independent samples, in how many random orders each question counts, as one cluster; None = 10.
        jobs: Processes that read the parts of a path.

    Raises:
        DataError: The space has no rules or too many, or the metric is missing.  Of a path: rows repeat questions, or
            rounds are independent samples.
        CensoredError: A rule ended questions before the recording's highest round.
        UnknownSignalError: The recording lacks columns that the space reads.
        ConfigMismatchError: Tune questions are among those searched, or a prompt was not recorded.
        RuleSyntaxError: The baseline is not a rule.
    """
    if not isinstance(recording, Recording):
        if isinstance(tune, Recording) or orders is not None:
            raise DataError("a path is searched part by part: give tune questions as a path, too, and no orders")
        return search_parts(
            recording,
            space,
            tune=tune,
            tune_share=tune_share,
            patience=patience,
            max_rounds=max_rounds,
            metric=metric,
            budget=budget,
            baseline=baseline,
            target=target,
            resampling=resampling,
            folds=folds,
            progress=progress,
            jobs=jobs,
        )
    if not isinstance(tune, Recording | None) or jobs != 1:
        raise DataError(
            "a recording in memory is searched in this process: give its path to search its parts in several"
        )
    metric, data_hash = metric or default_metrics(recording)[0], recording.data_hash
    n = n_orders(recording, _ORDERS if orders is None and recording.exchangeable else orders, [])
    original = recording
    recording = in_orders(recording, n, resampling.seed) if recording.exchangeable else recording
    if tune is not None and tune.exchangeable:
        tune = in_orders(tune, n, resampling.seed)
    if tune is None:
        tune, recording = split(recording, tune_share, resampling.seed)
    refuse_shared(tune, recording)
    for of in (tune, recording):
        require_whole(of, "a search tries rules that stop later")
    goal = Goal(metric=metric, budget=budget, baseline=baseline)
    parts = by_prompt(tune)
    defined = {prompt: Defined.of(part) for prompt, part in parts.items()}
    spec = space_of(space, defined, patience, max_rounds, [int(of.index[-1]) for of in (tune, recording)])
    policies = {
        prompt: fit(parts[prompt], signals, target=target, metric=metric)
        for prompt, signals in wanted_signals(spec, defined).items()
    }
    n_orders(original, n, [*policies.values()])  # refuses signals that look back
    on_tune, questions = (_prepare_questions(of, policies, goal) for of in (tune, recording))
    locked_space, locked = lock(spec, on_tune, budget=budget)
    trials = Trials.of(Explorer(locked_space, questions), budget, progress)
    chosen, number = _select_on_tune(
        Trials.of(Explorer(locked_space, on_tune), budget), questions, policies, goal, resampling
    )
    columns, optimism, draws = dict(trials.means), None, None
    if resampling.n_resamples:
        draws = resampling.draws(len(questions), questions.clusters)
        columns |= difference_columns(trials, draws, progress)
        optimism = measure_optimism(trials, number, draws, folds)
    sides = questions.sides.items()
    return SearchResult(
        explorer=trials.explorer,
        intervals=partial(equivalent_intervals, trials.explorer),
        baselines={prompt: _baseline_point(side.baseline) for prompt, side in sides},
        distinct=trials.distinct,
        columns=columns,
        front=pareto_front(columns["quality"], columns["calls"]),
        metric=metric,
        budget=budget,
        baseline=baseline,
        locked=locked,
        named=_named(trials, draws),
        best=trials.best,
        chosen=chosen,
        optimism=optimism,
        n_tune=len(on_tune) // n,
        n=len(questions) // n,
        resampling=resampling,
        data_hash=data_hash,
        notes=(
            *([order_note(n, resampling.seed)] if n > 1 else []),
            *(left_out_notes(defined) if space == "available" else ()),
            *_search_notes(trials, on_tune, chosen, goal),
        ),
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


def _baseline_point(baseline: Mapping[str, Floats]) -> tuple[float, float]:
    return float(baseline["quality"].mean()), float(baseline["calls"].mean())


def _prepare_questions(recording: Recording, policies: Mapping[str, Policy], goal: Goal) -> Questions:
    parts = by_prompt(recording)
    read = {prompt: _recorded_with(parts, prompt) for prompt in policies}
    return Questions.of(read, policies, metric=goal.metric, baseline=goal.baseline)


def _recorded_with(parts: Mapping[str, Recording], prompt: str) -> Recording:
    if prompt in parts:
        return parts[prompt]
    if len(parts) == 1 and not prompt:
        return next(iter(parts.values()))
    raise ConfigMismatchError(
        f"the tune questions were recorded with the prompt {prompt!r}, and the others with "
        f"{', '.join(map(repr, parts))}: record both with the same prompts"
    )


def difference_columns(trials: Trials, draws: Draws, progress: SearchProgress | None = None) -> dict[str, Floats]:
    """Return mean differences to the baseline with intervals, for quality and (with a prefix) calls."""
    n = len(trials.distinct)
    columns = {f"{of}{name}": np.empty(n) for of in ("", "calls_") for name in ("delta", "low", "high")}
    for part, deltas in trials.explorer.deltas(trials.distinct.number):
        for of, outcome in (("", "quality"), ("calls_", "calls")):
            intervals = draws.intervals(deltas[outcome])
            for name in ("delta", "low", "high"):
                columns[f"{of}{name}"][part] = getattr(intervals, name)
        if progress is not None:
            progress(part.stop, n)
    return columns


def _select_on_tune(
    trials: Trials, questions: Questions, policies: Mapping[str, Policy], goal: Goal, resampling: Resampling
) -> tuple[Chosen | None, npt.NDArray[np.int64]]:
    """Return what tune selects, with its figures on the searched questions, and its number in the space."""
    best, explorer = trials.best, trials.explorer
    if best is None:
        return None, np.empty(0, dtype=np.int64)
    number = trials.distinct.number[[best]]
    seen = reduce(or_, (seen_from(side.recording) for side in explorer.questions.sides.values()))
    policy, prompt = chosen_policy(trials, best, policies, goal, seen)
    result = replay(
        questions.sides[prompt].recording,
        [policy],
        metrics=(goal.metric,),
        baseline=goal.baseline,
        resampling=replace(resampling, n_resamples=max(1, resampling.n_resamples)),
    )
    chosen = Chosen(
        policy=policy,
        prompt=prompt,
        quality=float(trials.means["quality"][best]),
        calls=float(trials.means["calls"][best]),
        replayed=result.row(policy.label),
        headline=result.headline(policy.label),
    )
    return chosen, number


def _named(trials: Trials, draws: Draws | None) -> tuple[Named, ...]:
    """Return `tasr` on every prompt that has its columns."""
    named, sides = [], trials.explorer.questions.sides
    for prompt, side in sides.items():
        if not tasr().signals <= set(side.view.columns):
            continue
        position, stops_hash = trials.explorer.of_rule(tasr(), prompt)
        rows = np.arange(len(position))
        quality = side.tables["quality"][rows, position]
        named.append(
            Named(
                name="tasr" if len(sides) == 1 else f"tasr  [{prompt}]",
                prompt=prompt,
                quality=float(quality.mean()),
                calls=float(side.tables["calls"][rows, position].mean()),
                delta=None if draws is None else draws.paired(quality - side.baseline["quality"]),
                members=int(trials.distinct.members[trials.distinct.hash == stops_hash].sum()),
            )
        )
    return tuple(named)


def _search_notes(trials: Trials, tune: Questions, chosen: Chosen | None, goal: Goal) -> tuple[str, ...]:
    questions = trials.explorer.questions
    notes = [*questions.notes, *(f"tune: {note}" for note in tune.notes)]
    choices = (choice_note(side.recording) for side in questions.sides.values())
    notes += dict.fromkeys(note for note in choices if note and goal.metric in ("f1", "em"))
    if is_agreement(goal.metric):
        notes.append(agreement_note(next(iter(questions.sides.values())).recording))
    notes += [*empty_notes(chosen, trials.best, goal), *on_demand_notes(trials.explorer.space)]
    return tuple(notes)
