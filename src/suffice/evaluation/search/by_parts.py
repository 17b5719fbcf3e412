"""Search over the parts of a recording: whatever the number of questions, memory is that of a part and of a few sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from pathlib import Path

import numpy as np
import pyarrow as pa

from suffice.common.processes import process_pool
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay.blocks import RecordingBlock
from suffice.evaluation.replay.front import pareto_front
from suffice.evaluation.replay.outcomes import agreement_text, default_metrics, is_agreement
from suffice.evaluation.search.choosing import (
    Goal,
    chosen_policy,
    empty_notes,
    left_out_notes,
    on_demand_notes,
    space_of,
    wanted_signals,
)
from suffice.evaluation.search.data import refuse_number_shared
from suffice.evaluation.search.equivalent import ThresholdIntervals
from suffice.evaluation.search.estimates import Estimates, Passes, difference_columns_of
from suffice.evaluation.search.explore import Explorer, SearchProgress
from suffice.evaluation.search.fitting import Defined, fit
from suffice.evaluation.search.optimism import Trials
from suffice.evaluation.search.passes import (
    Checks,
    SearchReading,
    defined_in,
    facts_in,
    intervals_in,
    names_in,
    narrowed,
    ranges_in,
    sums_alone_in,
    sums_in,
    tables_in,
)
from suffice.evaluation.search.reading import HASHED, Facts, SearchSource, TuneShare, linked_names
from suffice.evaluation.search.result import SearchResult
from suffice.evaluation.search.space import Literal, Space
from suffice.evaluation.search.sums import FOLDED, RuleSums
from suffice.evaluation.search.thresholds import Locked, open_literals, threshold_trials, with_thresholds
from suffice.evaluation.statistics import Resampling, check_streamed, keys_of
from suffice.policy.rounds import Floats, Positions
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS
from suffice.recordings.opened import run_starts

__all__ = ["search_parts"]

_DECIMALS = 12
"""Decimals by which means are compared: the order in which parts are added changes those beyond."""

_SHOWN_HOW = (
    "over parts the intervals of rules are t intervals of the mean; estimates and tests have bootstrap draws by question, whatever "
    "the parts"
)
_NOT_REPLAYED = "over parts the chosen rule is not set beside fixed and random policies: see `suffice replay --stream` for its costs and stops"


@dataclass(frozen=True, kw_only=True)
class _Intervals:
    """The intervals of thresholds, for which questions are read once more; what was read stays known."""

    passes: Passes
    space: Space
    known: dict[int, ThresholdIntervals] = field(default_factory=dict)

    def __call__(self, numbers: Positions) -> list[ThresholdIntervals]:
        wanted = np.array(sorted({*numbers.tolist()} - self.known.keys()), dtype=np.int64)
        if len(wanted):
            intervals: list[ThresholdIntervals] = []
            for _, part in self.passes.each(intervals_in, self.space, wanted, tune=False):
                intervals = narrowed(intervals, part)
            self.known.update(zip(wanted.tolist(), intervals, strict=True))
        return [self.known[number] for number in numbers.tolist()]


def search_parts(
    path: str | Path,
    space: Space | str = "available",
    *,
    tune: str | Path | None = None,
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
    jobs: int = 1,
) -> SearchResult:
    """Search over the parts of a recording, each in one of several processes; arguments as `suffice.search`.

    Of the rules only sums are in memory, and of the questions one part, two numbers for each, and of tune questions the
    columns that calibrators are fitted to.  Rules, thresholds, means and the choice are those of `search` with all questions
    in memory, whatever the division into parts.

    Raises:
        DataError: As for `search`; also where rows repeat questions, or rounds are independent samples.
        ConfigMismatchError: Also where rounds are of several prompts.
    """
    check_streamed(resampling)
    recordings = tuple(SearchSource(each) for each in (path, tune) if each is not None)
    if tune is None and not 0 < tune_share < 1:
        raise DataError(f"the tune share lies strictly between 0 and 1, as 0.5, not {tune_share!r}")
    reading = SearchReading(
        recordings=recordings,
        share=TuneShare(share=tune_share, seed=resampling.seed) if tune is None else None,
        goal=Goal(metric=metric or "", budget=budget, baseline=baseline),
        resampling=resampling,
        folds=folds,
    )
    if not all(recording.is_on_disk for recording in recordings):
        jobs = 1  # rounds that a recorder has not written yet are in this process alone
    with process_pool(min(jobs, len(reading.pieces(())))) as pool:
        passes = Passes(reading=reading, jobs=jobs, pool=pool, progress=progress)
        return _search_in_passes(passes, space, patience=patience, max_rounds=max_rounds, target=target)


def _search_in_passes(
    passes: Passes,
    space: Space | str,
    *,
    patience: Sequence[int] | None,
    max_rounds: Sequence[int] | None,
    target: str | None,
) -> SearchResult:
    resampling = passes.reading.resampling
    facts = _facts(passes)
    metric = passes.reading.goal.metric or default_metrics(passes.reading.recordings[0].empty(), facts[0].choice)[0]
    goal = replace(passes.reading.goal, metric=metric)
    passes = passes.of(goal=goal, prompt=facts[-1].prompt, share=_linked(passes, facts[0]))

    defined = _defined(passes)
    highest = [int(recording.index[-1]) for recording in passes.reading.recordings]
    spec = space_of(space, defined, patience, max_rounds, highest)
    (signals,) = wanted_signals(spec, defined).values()
    tune_block, policy = _fitted_state(passes, signals, defined[passes.reading.prompt], target)
    # Processes need not be sent the names of all tune questions.
    passes = passes.of(policies=(replace(policy, provenance={}),))
    locked_space, locked = _lock_thresholds(passes, spec)

    (tune_sums, sums), checks = _sums_of_sides(passes, locked_space)
    explorer = _explorer(passes, locked_space)
    on_tune, trials = (_trials(explorer, side, goal.budget) for side in (tune_sums, sums))
    chosen: Policy | None = None
    if on_tune.best is not None:
        seen = _seen(facts[-1], tune_block)
        chosen, _ = chosen_policy(on_tune, on_tune.best, {passes.reading.prompt: policy}, goal, seen)
    estimates = Estimates.of(passes, trials, on_tune, sums)
    intervals = _Intervals(passes=passes, space=locked_space)
    result = SearchResult(
        explorer=explorer,
        intervals=replace(intervals, passes=replace(passes, pool=None)),
        baselines={passes.reading.prompt: sums.baseline_point},
        distinct=trials.distinct,
        columns={
            **trials.means,
            **(difference_columns_of(sums, trials, resampling.level) if resampling.n_resamples else {}),
        },
        front=pareto_front(*(np.round(trials.means[name], _DECIMALS) for name in FOLDED)),
        metric=metric,
        budget=goal.budget,
        baseline=goal.baseline,
        locked=locked,
        named=estimates.named(trials),
        best=trials.best,
        chosen=None if chosen is None else estimates.chosen(chosen, on_tune, goal),
        optimism=estimates.optimism() if resampling.n_resamples else None,
        n_tune=tune_sums.n,
        n=sums.n,
        resampling=resampling,
        data_hash=f"{facts[0].digest:016x}",
        notes=(
            *(left_out_notes(defined) if space == "available" else ()),
            *_notes(passes, facts, checks, sums.n),
            *empty_notes(chosen, trials.best, goal),
            *on_demand_notes(locked_space),
        ),
    )
    shown = [*result.shown, *([] if trials.best is None else [trials.best])]
    intervals(trials.distinct.number[shown])  # what is shown is known to both
    return result


def _facts(passes: Passes) -> list[Facts]:
    """Return what is known of the searched recording, and of the tune recording if there is one.

    Raises:
        ConfigMismatchError: Questions are in both, or their prompts differ.
    """
    reading = passes.reading
    facts = [Facts.none() for _ in reading.recordings]
    metrics = reading.recordings[0].empty().names("metric")
    columns = [*HASHED, "question", "prompt_id", "golds", *metrics]
    for place, some in passes.each(facts_in, columns, columns=columns):
        facts[place.recording] += some
    for each in facts:
        if each.failed.all():
            raise DataError(
                f"all {each.n_failed} recorded questions failed: run `suffice record` again to complete them"
            )
        each.refuse_repeated()
    if len(facts) > 1:
        searched, tune = facts
        same_text = (searched.texts != 0) & np.isin(searched.texts, tune.texts)
        refuse_number_shared(int((np.isin(searched.keys, tune.keys) | same_text).sum()), len(searched.keys))
        if tune.prompt and tune.prompt != searched.prompt:
            raise ConfigMismatchError(
                f"the tune questions were recorded with the prompt {tune.prompt!r}, and the others with "
                f"{searched.prompt!r}: record both with the same prompts"
            )
    return facts


def _linked(passes: Passes, facts: Facts) -> TuneShare | None:
    """Return the division into tune questions and others in which questions of one text are together."""
    share = passes.reading.share
    if share is None or not len(facts.repeated_texts):
        return share
    parts = passes.each(names_in, facts.repeated_texts, columns=["question"])
    questions = (question for _, part in parts for question in part)
    return replace(share, linked=linked_names(questions))


def _defined(passes: Passes) -> dict[str, Defined]:
    empty = passes.reading.recordings[-1].empty()
    names = [name for name in empty.table.column_names if name in SIGNALS or name in empty.names("signal")]
    every = passes.each(defined_in, names, columns=names, tune=True)
    there = [defined for _, defined in every if defined is not None]
    if not there:
        raise _no_division(passes)
    return {passes.reading.prompt: reduce(or_, there)}


def _no_division(passes: Passes) -> DataError:
    return DataError(
        f"the questions of {str(passes.reading.recordings[0].path)!r} cannot be split into tune and eval: give a tune "
        "recording, or record more questions"
    )


def _fitted_state(
    passes: Passes, signals: Sequence[str], defined: Defined, target: str | None
) -> tuple[RecordingBlock, Policy]:
    """Return the tune questions, with the columns that are fitted alone, and the fitted state."""
    reading = passes.reading
    recording, metric = reading.recordings[-1], reading.goal.metric
    wanted = {"question_id", "round", "end", "em", *(defined.columns.get(name, "") for name in signals)}
    for name in filter(None, (metric, target, "em")):
        wanted |= recording.columns_of(name)
    read = [name for name in recording.schema.names if name in wanted]
    every = passes.each(tables_in, read, columns=read, tune=True)
    tables = [table for _, part in every for table in part]
    table = pa.concat_tables(tables).combine_chunks()
    # In the order of their names: what is fitted must not depend on the parts, not even by a rounding.
    table = table.sort_by([("question_id", "ascending"), ("round", "ascending")])
    block = RecordingBlock(table, recording.header, recording.index, run_starts(table.column("question_id")))
    return block, fit(block, signals, target=target, metric=metric, defined=defined)


def _lock_thresholds(passes: Passes, space: Space) -> tuple[Space, tuple[Locked, ...]]:
    """Return the space with all thresholds known; see `suffice.evaluation.search.thresholds.lock`."""
    prompts = [passes.reading.prompt]
    literals = [literal for _, literal in open_literals(space, prompts)]
    if not literals:
        return space, ()
    ends = np.tile([np.inf, -np.inf], (len(literals), 1))
    for _, some in passes.each(ranges_in, literals, tune=True):
        ends = np.column_stack([np.minimum(ends[:, 0], some[:, 0]), np.maximum(ends[:, 1], some[:, 1])])

    def column(_: str, literal: Literal) -> Floats:
        values: Floats = ends[literals.index(literal)]
        return values

    tried = threshold_trials(space, prompts, column)
    spaces = [item.alone for item in tried.values() if item.is_locked]
    sums = [RuleSums.zero(item.count) for item in spaces]
    for _, part in passes.each(sums_alone_in, spaces, tune=True) if spaces else ():
        for total, more in zip(sums, part, strict=True):
            total.add(more)
    means = [total.means(np.arange(item.count)) for total, item in zip(sums, spaces, strict=True)]
    return with_thresholds(space, prompts, tried, means, passes.reading.goal.budget)


def _sums_of_sides(passes: Passes, space: Space) -> tuple[tuple[RuleSums, RuleSums], tuple[Checks, Checks]]:
    """Return the sums of all rules over tune questions, and over searched ones, with what a reader must know."""
    space.check()
    sums = RuleSums.zero(space.count), RuleSums.zero(space.count, passes.reading.folds, more=True)
    checks = Checks(), Checks()
    for _, part in passes.each(sums_in, space):
        for total, check, (more, known) in zip(sums, checks, part, strict=True):
            total.add(more)
            check.add(known)
    if not all(total.n for total in sums):
        raise _no_division(passes)
    return sums, checks


def _explorer(passes: Passes, space: Space) -> Explorer:
    """Return the space on a few searched questions, for all that does not depend on which they are."""
    reading = passes.reading
    for place in reading.pieces(reading.columns, tune=False):
        for questions, _ in reading.questions(place, tune=False):
            return Explorer(space, questions.rows(np.arange(min(len(questions), 1))))
    raise _no_division(passes)


def _trials(explorer: Explorer, sums: RuleSums, budget: float) -> Trials:
    distinct = explorer.distinct_by(sums.hashes)
    return Trials(explorer=explorer, distinct=distinct, means=sums.means(distinct.number), budget=budget)


def _seen(facts: Facts, tune_block: RecordingBlock) -> Seen:
    """Return the tune questions."""
    keys = keys_of(tune_block.question_ids)
    texts = facts.texts[np.isin(facts.keys, keys) & (facts.texts != 0)]
    return Seen(*(frozenset(f"{key:016x}" for key in values.tolist()) for values in (keys, texts)))


def _notes(passes: Passes, facts: Sequence[Facts], checks: tuple[Checks, Checks], n: int) -> list[str]:
    """Return what a reader must know of the questions, `n` of them searched, and what is otherwise with all in memory."""
    reading, (tune, searched) = passes.reading, checks
    metric = reading.goal.metric
    notes = [_SHOWN_HOW, _NOT_REPLAYED]
    failed = sum(each.n_failed for each in facts)
    whole = [each.complete for each in facts]
    if failed:
        notes.append(f"{failed} questions failed while recording and are left out")
    repeated = sum(int(np.isin(each.texts, each.repeated_texts).sum()) for each in whole)
    if repeated and "cluster" not in reading.recordings[0].schema.names:
        notes.append(
            f"{repeated} questions share their text with others; over parts each counts by itself in intervals, in memory they "
            "are one unit"
        )
    notes += [*searched.sentences, *(f"tune: {note}" for note in tune.sentences)]
    if facts[0].choice.note and metric in ("f1", "em"):
        notes.append(facts[0].choice.note)
    if is_agreement(metric):
        notes.append(agreement_text(searched.silent, n))
    return notes
