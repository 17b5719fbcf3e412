"""The search: choose thresholds and a rule on tune questions and report on others, in passes over parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from suffice.common.processes import process_pool
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay.blocks import RecordingBlock
from suffice.evaluation.replay.front import pareto_front
from suffice.evaluation.replay.orders import n_orders, order_note
from suffice.evaluation.replay.outcomes import agreement_text, default_metrics, is_agreement
from suffice.evaluation.search.choosing import (
    Goal,
    chosen_policy,
    compared_labels,
    empty_notes,
    left_out_notes,
    on_demand_notes,
    space_of,
    wanted_signals,
)
from suffice.evaluation.search.data import by_prompt, refuse_shared
from suffice.evaluation.search.equivalent import ThresholdIntervals
from suffice.evaluation.search.estimates import Estimates, Passes, difference_columns_of
from suffice.evaluation.search.explore import Explorer, SearchProgress
from suffice.evaluation.search.facts import HASHED, Facts, TuneShare, linked_names
from suffice.evaluation.search.fitting import Defined, fit
from suffice.evaluation.search.optimism import Trials
from suffice.evaluation.search.passes import (
    Checks,
    defined_in,
    facts_in,
    intervals_in,
    names_in,
    narrowed,
    ranges_in,
    rows_in,
    sums_alone_in,
    sums_in,
    tables_in,
)
from suffice.evaluation.search.reading import SearchReading, ordered_metadata
from suffice.evaluation.search.result import SearchResult
from suffice.evaluation.search.sources import (
    MemorySource,
    SearchSource,
    check_jobs,
    columns_of_metric,
    is_clustered,
    source_of,
    unit_names,
)
from suffice.evaluation.search.space import Literal, Space
from suffice.evaluation.search.sums import FOLDED, RuleSums
from suffice.evaluation.search.thresholds import Locked, open_literals, threshold_trials, with_thresholds
from suffice.evaluation.statistics import Resampling, check_streamed, keys_of
from suffice.policy.rounds import Floats, Positions
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS
from suffice.recordings.opened import run_starts
from suffice.recordings.recording import Recording
from suffice.recordings.stored_loops import refuse_loops_of

_ORDERS = 10
_DECIMALS = 12
"""Decimals to which means are compared; later ones depend on the order in which parts are added."""

_SHOWN_HOW = "the intervals of rules are t intervals of the mean; those of estimates, and p-values, are by bootstrap"


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
    """Try every rule of a space on recorded rounds: choose on tune questions, and report on the others.

    Calibrators and thresholds are fitted on tune questions.  A rule returns the answer of its stop round; for independent
    samples, it returns the majority answer.  Only calls and tokens of the loop are counted.  A file is read part by part
    in `jobs` processes, with the same figures; memory holds the sums for the rules, and the questions of one part.

    >>> from suffice import Resampling, search
    >>> from suffice.evaluation.search import Block, Literal, Space
    >>> from suffice.recordings import bundled_recording
    >>> distances = Literal(signal="semantic_distance", comparison="<", thresholds=(0.02, 0.05, 0.1))
    >>> space = Space(name="distances", blocks=(Block(form="or", literals=(distances,)),), patience=(1, 2))
    >>> recording, few = bundled_recording("self_refine_dv3"), Resampling(n_resamples=20)
    >>> result = search(recording, space, metric="target_sentiment", budget=8.0, resampling=few)
    >>> result.n_rules, str(result.chosen.policy.rule)
    (6, 'semantic_distance < 0.02')

    Args:
        recording: The searched questions; it is divided into tune and searched questions if `tune` is None.
        space: A space, the name of a preset, or `available`.
        tune: Tune questions, recorded in the same way; None = a share of the recording, by id hash and seed.
        tune_share: Share of the tune questions, in (0, 1).
        patience: Replaces the patience of the space; None = keep it.
        max_rounds: Replaces the highest rounds of the space; None = keep them.
        metric: The quality: a column in [0, 1] or `agreement`; None = `f1`, or `em` for multiple choice.
        budget: The largest mean number of calls of a locked threshold, and of the selected rule.
        baseline: The baseline of differences: a rule's text or `full`.
        target: The outcome that calibrators predict; None = `em`, or `metric` if that needs no gold answers.
        resampling: Settings of intervals.  With 0 resamples, there are no intervals and no estimates of optimism.  The
            seed also determines the folds and the tune questions.
        folds: Number of folds of the cross-fitted estimate.
        progress: Called with the number of finished parts and the number of all parts, in each pass over the parts.
        orders: Number of random orders of each question's samples; None = 10.  These orders form one cluster.
        jobs: Number of processes that read the parts of a path.

    Raises:
        DataError: The space has no rules or too many, the metric is missing, or a question's rows are not adjacent.
        CensoredError: A rule ended questions before the recording's highest round.
        UnknownSignalError: The recording lacks columns that the space reads.
        ConfigMismatchError: A tune question is also a searched question, or a prompt was not recorded.
        RuleSyntaxError: The baseline is not a rule.
        UnsettledError: The recording holds loops of several models, prompts or systems that the space does not compare.
    """
    check_streamed(resampling)
    refuse_loops_of(recording, tune, apart=compared_labels(space))
    recordings = tuple(source_of(each) for each in (recording, tune) if each is not None)
    is_on_disk = all(each.is_on_disk for each in recordings)
    check_jobs(recordings, jobs)
    if folds < 1:
        raise DataError(f"the cross-fitted estimate needs folds, not {folds!r}; allowed: >= 2")
    exchangeable = recordings[0].empty().exchangeable
    reading = SearchReading(
        recordings=recordings,
        share=TuneShare(share=tune_share, seed=resampling.seed) if tune is None else None,
        goal=Goal(metric=metric or "", budget=budget, baseline=baseline),
        resampling=resampling,
        folds=folds,
        orders=n_orders(recordings[0].empty(), _ORDERS if orders is None and exchangeable else orders, []),
    )
    jobs = jobs if is_on_disk else 1  # rounds that a recorder has not written yet exist only in this process
    with process_pool(min(jobs, len(reading.pieces(())))) as pool:
        passes = Passes(reading=reading, jobs=jobs, pool=pool, progress=progress)
        return _search_in_passes(passes, space, patience=patience, max_rounds=max_rounds, target=target)


@dataclass(frozen=True, kw_only=True)
class _Intervals:
    """The intervals of equivalent thresholds, computed on demand by one more pass over the questions, and cached."""

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


def _search_in_passes(
    passes: Passes,
    space: Space | str,
    *,
    patience: Sequence[int] | None,
    max_rounds: Sequence[int] | None,
    target: str | None,
) -> SearchResult:
    passes, facts = _facts(passes)
    reading = passes.reading
    goal, resampling, orders = reading.goal, reading.resampling, reading.orders
    defined = _defined(passes)
    highest = [int(recording.index[-1]) for recording in reading.recordings]
    spec = space_of(space, defined, patience, max_rounds, highest)
    wanted = wanted_signals(spec, defined)
    _check_prompts(facts, [*wanted])
    tune_block, policies = _fitted_state(passes, wanted, defined, target)
    n_orders(reading.recordings[0].empty(), orders, [*policies.values()])  # raises for signals that look back
    # The names of all tune questions need not be sent to other processes.
    passes = passes.of(policies={prompt: replace(policy, provenance={}) for prompt, policy in policies.items()})
    locked_space, locked = _lock_thresholds(passes, spec)

    (tune_sums, sums), checks = _sums_of_sides(passes, locked_space)
    explorer = _explorer(passes, locked_space)
    on_tune, trials = (_trials(explorer, side, goal.budget) for side in (tune_sums, sums))
    estimates = Estimates.of(passes, trials, on_tune, sums)
    chosen = None
    if on_tune.best is not None:
        policy, prompt = chosen_policy(on_tune, on_tune.best, policies, goal, _seen(facts[-1], tune_block))
        chosen = estimates.chosen(policy, prompt, on_tune, goal)
    intervals = _Intervals(passes=passes, space=locked_space)
    columns = dict(trials.means)
    if resampling.n_resamples:
        columns |= difference_columns_of(sums, trials, resampling.level)
    result = SearchResult(
        explorer=explorer,
        intervals=replace(intervals, passes=replace(passes, pool=None)),
        baselines=sums.baselines,
        distinct=trials.distinct,
        columns=columns,
        front=pareto_front(*(np.round(trials.means[name], _DECIMALS) for name in FOLDED)),
        metric=goal.metric,
        budget=goal.budget,
        baseline=goal.baseline,
        locked=locked,
        named=estimates.named(trials),
        best=trials.best,
        chosen=chosen,
        optimism=estimates.optimism() if resampling.n_resamples else None,
        n_tune=tune_sums.n // orders,
        n=sums.n // orders,
        resampling=resampling,
        data_hash=f"{facts[0].digest:016x}",
        notes=(
            *([order_note(orders, resampling.seed)] if orders > 1 else []),
            *(left_out_notes(defined) if space == "available" else ()),
            *_notes(passes, facts, checks, sums.n),
            *empty_notes(chosen, trials.best, goal),
            *on_demand_notes(locked_space, policies.values(), reading.recordings[0].empty()),
        ),
    )
    shown = [*result.shown, *([] if trials.best is None else [trials.best])]
    intervals(trials.distinct.number[shown])  # intervals of rules that the result shows are computed now
    return result


def _facts(passes: Passes) -> tuple[Passes, list[Facts]]:
    """Collect facts about the searched recording, and the tune recording if given; also return the updated passes."""
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
        refuse_shared(int(facts[0].seen_in(facts[1]).sum()), len(facts[0].keys))
    metric = reading.goal.metric or default_metrics(reading.recordings[0].empty(), facts[0].choice)[0]
    passes = passes.of(
        goal=replace(reading.goal, metric=metric),
        several=tuple(each.several_prompts for each in facts),
        share=_linked(passes, facts[0]),
    )
    return _together(passes, facts), facts


def _linked(passes: Passes, facts: Facts) -> TuneShare | None:
    """Return a division into tune and searched questions that keeps questions with the same text together."""
    share = passes.reading.share
    if share is None or not len(facts.repeated_texts):
        return share
    parts = passes.each(names_in, facts.repeated_texts, columns=["question"])
    questions = (question for _, part in parts for question in part)
    return replace(share, linked=linked_names(questions))


def _together(passes: Passes, facts: Sequence[Facts]) -> Passes:
    """Load the units that have several questions into memory, since the parts of a file might split such a unit."""
    reading = passes.reading
    apart = {
        i: each.together(is_clustered=is_clustered(recording.schema))
        for i, (recording, each) in enumerate(zip(reading.recordings, facts, strict=True))
        if isinstance(recording, SearchSource)
    }
    apart = {i: keys for i, keys in apart.items() if len(keys)}
    if not apart:
        return passes
    kinds = ("signal", "cost", "metric", "label", "identity", "decision")
    of_kinds = {name for of in reading.recordings for kind in kinds for name in of.empty().names(kind)}
    names = sorted({*of_kinds, "question", "answer", "golds", "model"})
    tables: dict[int, list[pa.Table]] = {i: [] for i in apart}
    for place, some in passes.each(rows_in, names, apart, columns=names):
        if place.recording in tables:
            tables[place.recording] += some
    together = {}
    for i, parts in tables.items():
        source = reading.recordings[i]
        together[i] = MemorySource(pa.concat_tables(parts), source.header, source.index)
    return passes.of(apart=apart, together=together)


def _check_prompts(facts: Sequence[Facts], prompts: Sequence[str]) -> None:
    """Raise a `ConfigMismatchError` if the searched questions lack a prompt of the tune questions."""
    there = sorted(name or ("unnamed" if facts[0].several_prompts else "") for name in facts[0].prompts)
    for prompt in prompts:
        if prompt not in there and (prompt or len(there) > 1):
            raise ConfigMismatchError(
                f"the tune questions were recorded with the prompt {prompt!r}, and the others with "
                f"{', '.join(map(repr, there))}: record both with the same prompts"
            )


def _defined(passes: Passes) -> dict[str, Defined]:
    empty = passes.reading.recordings[-1].empty()
    names = [name for name in empty.table.column_names if name in SIGNALS or name in empty.names("signal")]
    there: dict[str, Defined] = {}
    columns = [*names, "prompt_id"]
    for _, part in passes.each(defined_in, columns, columns=columns, tune=True):
        for prompt, defined in part.items():
            there[prompt] = there[prompt] | defined if prompt in there else defined
    if not there:
        raise _no_division(passes)
    return dict(sorted(there.items()))


def _no_division(passes: Passes) -> DataError:
    recording = passes.reading.recordings[0]
    which = "" if isinstance(recording, MemorySource) else f" of {str(recording.path)!r}"
    return DataError(
        f"the questions{which} cannot be split into tune and eval: give a tune recording, or record more questions"
    )


def _fitted_state(
    passes: Passes, wanted: Mapping[str, Sequence[str]], defined: Mapping[str, Defined], target: str | None
) -> tuple[RecordingBlock, dict[str, Policy]]:
    """Return the tune questions with the columns to fit on, and the fitted state by prompt."""
    reading = passes.reading
    recording, metric = reading.recordings[-1], reading.goal.metric
    columns = {"question_id", "round", "end", "em", "cluster", "prompt_id"}
    for prompt, signals in wanted.items():
        columns |= {defined[prompt].columns.get(name, "") for name in signals}
    for name in filter(None, (metric, target, "em")):
        columns |= columns_of_metric(recording.schema, name)
    if recording.empty().independent:
        columns |= {"answer", "model"}
    # Several orders of a question's samples form a cluster, even if the recording has no such column.
    read = [*recording.schema.names, *([] if is_clustered(recording.schema) else ["cluster"])]
    read = [name for name in read if name in columns]
    tables = [table for _, part in passes.each(tables_in, read, columns=read, tune=True) for table in part]
    table = pa.concat_tables(tables).combine_chunks()
    # Sorted by name, so that fits do not depend on the parts, not even by rounding.
    table = table.sort_by([("question_id", "ascending"), ("round", "ascending")])
    header = ordered_metadata(recording.header, reading.orders) if recording.empty().exchangeable else recording.header
    block = RecordingBlock(table, header, recording.index, run_starts(table.column("question_id")))
    parts = by_prompt(block, several=reading.several[-1])
    return block, {
        prompt: fit(parts[prompt], signals, target=target, metric=metric, defined=defined[prompt])
        for prompt, signals in wanted.items()
    }


def _lock_thresholds(passes: Passes, space: Space) -> tuple[Space, tuple[Locked, ...]]:
    """Choose the thresholds of the space that are still open; see `with_thresholds`."""
    prompts = [*passes.reading.policies]
    literals = open_literals(space, prompts)
    if not literals:
        return space, ()
    ends = np.tile([np.inf, -np.inf], (len(literals), 1))
    for _, some in passes.each(ranges_in, literals, tune=True):
        ends = np.column_stack([np.minimum(ends[:, 0], some[:, 0]), np.maximum(ends[:, 1], some[:, 1])])

    def column(prompt: str, literal: Literal) -> Floats:
        values: Floats = ends[literals.index((prompt, literal))]
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
    """Return the sums of all rules over tune questions and over searched ones, with checks of both."""
    space.check()
    sums = RuleSums.zero(space.count), passes.reading.searched_sums(space.count)
    checks = Checks(), Checks()
    for _, part in passes.each(sums_in, space):
        for total, check, (more, known) in zip(sums, checks, part, strict=True):
            total.add(more)
            check.add(known)
    if not all(total.n for total in sums):
        several = any(check.left_out for check in checks)
        if not several:
            raise _no_division(passes)
        prompts = ", ".join(map(repr, passes.reading.policies))
        raise DataError(f"the prompts {prompts} share no questions: give the runs of one question the same 'cluster'")
    return sums, checks


def _explorer(passes: Passes, space: Space) -> Explorer:
    """Return an explorer on the first block of searched questions; it serves to look up rules, such as their texts."""
    reading = passes.reading
    for place in reading.pieces(reading.columns, tune=False):
        for questions in reading.questions(place, tune=False):
            if len(questions):
                return Explorer(space, questions)
    raise _no_division(passes)


def _trials(explorer: Explorer, sums: RuleSums, budget: float) -> Trials:
    distinct = explorer.distinct_by(sums.hashes)
    return Trials(explorer=explorer, distinct=distinct, means=sums.means(distinct.number), budget=budget)


def _seen(facts: Facts, tune_block: RecordingBlock) -> Seen:
    """Return the identities of the tune questions: their names, units and texts."""
    units = keys_of(unit_names(tune_block))
    in_orders = "orders" in tune_block.metadata  # each order of the samples has ids of its own
    names = np.unique(units if in_orders else np.concatenate([units, keys_of(tune_block.question_ids)]))
    mine = np.isin(facts.units if in_orders else facts.keys, names)
    texts = np.unique(facts.texts[mine & (facts.texts != 0)])
    return Seen(*(frozenset(f"{key:016x}" for key in values.tolist()) for values in (names, texts)))


def _notes(passes: Passes, facts: Sequence[Facts], checks: tuple[Checks, Checks], n: int) -> Iterable[str]:
    """Yield the notes on the questions, of which `n` rows are searched."""
    reading, (tune, searched) = passes.reading, checks
    metric = reading.goal.metric
    if reading.resampling.n_resamples:
        yield _SHOWN_HOW
    failed = sum(each.n_failed for each in facts)
    if failed:
        yield f"{failed} questions failed while recording and are left out"
    yield from searched.sentences
    yield from (f"tune: {note}" for note in tune.sentences)
    if facts[0].choice.note and metric in ("f1", "em"):
        yield facts[0].choice.note
    if is_agreement(metric):
        yield agreement_text(searched.silent // reading.orders, n // reading.orders)
