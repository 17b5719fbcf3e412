"""What a search computes of one part of a recording, in whatever process: each result adds up over parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add, or_
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from suffice.evaluation.replay.blocks import PieceFacts, RecordingBlock
from suffice.evaluation.replay.outcomes import is_agreement, unanswered
from suffice.evaluation.replay.recorded import Definedness
from suffice.evaluation.replay.selected import Selected
from suffice.evaluation.search.choosing import Goal
from suffice.evaluation.search.data import Questions, policy_of_baseline, seen_before
from suffice.evaluation.search.equivalent import ThresholdIntervals, equivalent_intervals
from suffice.evaluation.search.explore import Explorer
from suffice.evaluation.search.fitting import Defined
from suffice.evaluation.search.reading import Facts, SearchSource, TuneShare, complete, facts_of, questions_with_texts
from suffice.evaluation.search.space import Literal, Space
from suffice.evaluation.search.sums import RuleSums, slices
from suffice.evaluation.statistics import DrawnSums, Keys, Resampling, keyed_numbers, keys_of, poisson_weights
from suffice.policy.rounds import Floats, Positions
from suffice.policy.rules import tasr
from suffice.policy.session import Policy
from suffice.recordings.pieces import Piece

__all__ = [
    "Checks",
    "ComparisonSums",
    "Comparisons",
    "PlacedPiece",
    "SearchReading",
    "comparisons_in",
    "defined_in",
    "facts_in",
    "family_in",
    "intervals_in",
    "names_in",
    "ranges_in",
    "sums_alone_in",
    "sums_in",
    "tables_in",
    "with_facts",
]

PIECE_ROWS = 1 << 19
"""Rows of a large file that one process reads at a time, about; the sums of all rules come back for each piece."""

_FOLD_SEED = 1_000
_DRAWN_AT_ONCE = 4_096
"""Questions whose draws are in memory: 32 MB of 1,000 draws."""

_OfPiece = TypeVar("_OfPiece")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPiece:
    """A piece, and which recording it is of: the position in `SearchReading.recordings`."""

    recording: int
    piece: Piece

    def __str__(self) -> str:
        return str(self.piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReading:
    """How every piece is read.

    Attributes:
        recordings: The one that is searched; with a tune recording of its own, that is the second.
        share: Which questions are for tuning; None where these have a recording of their own.
        goal: What is looked for.
        resampling: How questions are drawn.
        folds: Of the cross-fitted estimate.
        prompt: The prompt of all rounds.
        policies: The fitted state, with a rule that reads every signal of the search; none before anything is fitted.
        facts: What was read of a piece, to be compared with what its file says of itself; added to as it is read.
    """

    recordings: tuple[SearchSource, ...]
    share: TuneShare | None
    goal: Goal
    resampling: Resampling
    folds: int
    prompt: str = ""
    policies: tuple[Policy, ...] = ()
    facts: list[PieceFacts] = field(default_factory=list)

    def pieces(self, columns: Iterable[str], *, tune: bool | None = None) -> list[PlacedPiece]:
        """Return the pieces that have tune questions, or those that have searched ones.

        Args:
            columns: What will be read of them.
            tune: Which; None = all.
        """
        return [
            PlacedPiece(recording=i, piece=piece)
            for i, recording in enumerate(self.recordings)
            if tune is None or self.share is not None or tune == (i == 1)
            for piece in recording.pieces([*columns], PIECE_ROWS)
        ]

    def stored(self, place: PlacedPiece, columns: Iterable[str]) -> Iterator[RecordingBlock]:
        """Yield the questions of a piece."""
        reader = self.recordings[place.recording].reader(place.piece, columns)
        yield from reader
        self.facts.append(reader.facts)

    def blocks(self, place: PlacedPiece, columns: Iterable[str], *, tune: bool) -> Iterator[RecordingBlock]:
        """Yield the tune questions of a piece, or the searched ones, without those that failed."""
        if self.share is None and tune != (place.recording == 1):
            return
        for block in filter(None, map(complete, self.stored(place, columns))):
            mine = np.ones(block.shape[0], dtype=np.bool_) if self.share is None else self.share.of(block) == tune
            if mine.any():
                yield block if mine.all() else block.select(mine)

    @property
    def columns(self) -> set[str]:
        """The columns that a search reads once everything is fitted."""
        (policy,), goal = self.policies, self.goal
        read = {*policy.raw_columns, "answer"}
        for recording in self.recordings:  # one may lack columns that the other has
            read.update(policy_of_baseline(recording.empty(), policy, goal.baseline).raw_columns)
            read |= recording.columns_of(goal.metric) | recording.cost_columns
            if recording.header.get("fitted") or recording.header.get("state"):
                read.add("question")  # what the recording's own models have seen is also known by its text
        return read

    def questions(self, place: PlacedPiece, *, tune: bool) -> Iterator[tuple[Questions, Keys]]:
        """Yield the questions ready for a search, with their keys."""
        (policy,), goal = self.policies, self.goal
        for block in self.blocks(place, self.columns, tune=tune):
            recordings, policies = {self.prompt: block}, {self.prompt: policy}
            questions = Questions.of(recordings, policies, metric=goal.metric, baseline=goal.baseline, part=True)
            yield questions, keys_of(block.question_ids)

    def fold(self, keys: Keys) -> Positions:
        """Return the fold of each question."""
        numbers = keyed_numbers(keys, 1, seed=self.resampling.seed + _FOLD_SEED)[:, 0]
        return (numbers % np.uint64(self.folds)).astype(np.int64)

    def weights(self, keys: Keys) -> Floats:
        """Return the draws of questions; without any, one, which shows no spread."""
        return poisson_weights(keys, max(1, self.resampling.n_resamples), seed=self.resampling.seed)


def with_facts(
    function: Callable[..., _OfPiece], reading: SearchReading, arguments: Sequence[Any], place: PlacedPiece
) -> tuple[_OfPiece, list[PieceFacts]]:
    """Return what a function returns of a piece, and what must match what the file says of itself."""
    mine = replace(reading, facts=[])
    return function(mine, *arguments, place), mine.facts


def facts_in(reading: SearchReading, columns: Sequence[str], place: PlacedPiece) -> Facts:
    """Return what is known of all questions of a piece."""
    return reduce(add, map(facts_of, reading.stored(place, columns)), Facts.none())


def names_in(reading: SearchReading, texts: Keys, place: PlacedPiece) -> list[tuple[str, str]]:
    """Return name and text of the questions that have one of some texts."""
    blocks = reading.stored(place, {"question"})  # those that failed as well: they link others in `split`, too
    return [question for block in blocks for question in questions_with_texts(block, texts)]


def defined_in(reading: SearchReading, columns: Sequence[str], place: PlacedPiece) -> Defined | None:
    """Return what tune questions have of the columns of signals; None if there are none."""
    there = [Defined.of(block) for block in reading.blocks(place, columns, tune=True)]
    return reduce(or_, there) if there else None


def tables_in(reading: SearchReading, columns: Sequence[str], place: PlacedPiece) -> list[pa.Table]:
    """Return some columns of the tune questions, to fit what needs all of them at once."""
    return [block.table.select([*columns]) for block in reading.blocks(place, columns, tune=True)]


def ranges_in(reading: SearchReading, literals: Sequence[Literal], place: PlacedPiece) -> Floats:
    """Return the smallest and the largest value that each literal reads on tune, shape ``(n_literals, 2)``."""
    ends = np.tile([np.inf, -np.inf], (len(literals), 1))
    for questions, _ in reading.questions(place, tune=True):
        for i, literal in enumerate(literals):
            column = questions.sides[reading.prompt].of(gated=literal.is_gate).view.columns[literal.signal]
            known = column[np.isfinite(column)]
            ends[i] = min(ends[i, 0], known.min(initial=np.inf)), max(ends[i, 1], known.max(initial=-np.inf))
    return ends


def sums_alone_in(reading: SearchReading, spaces: Sequence[Space], place: PlacedPiece) -> list[RuleSums]:
    """Return the sums of several spaces over tune questions."""
    sums = [RuleSums.zero(space.count) for space in spaces]
    for questions, keys in reading.questions(place, tune=True):
        for space, total in zip(spaces, sums, strict=True):
            total.add_questions(space, questions, keys)
    return sums


@dataclass(slots=True, kw_only=True, eq=False)
class Checks:
    """What a reader must know of the questions of one side; parts are added.

    Attributes:
        notes: In words.
        definedness: By start round, in how many rounds each signal is defined.
        selected: Which questions the recording's own models have seen.
        silent: Questions in which no round has an answer, if the metric compares answers.
    """

    notes: dict[str, None] = field(default_factory=dict)
    definedness: dict[int, Definedness] = field(default_factory=dict)
    selected: list[Selected] = field(default_factory=list)
    silent: int = 0

    def add(self, other: Checks) -> None:
        """Add what is known of other questions."""
        self.notes |= other.notes
        for start, counts in other.definedness.items():
            if start in self.definedness:
                self.definedness[start].merge(counts)
            else:
                self.definedness[start] = counts
        self.selected += other.selected
        self.silent += other.silent

    def add_questions(self, questions: Questions, metric: str) -> None:
        """Add what is known of questions."""
        self.notes |= dict.fromkeys(questions.notes)
        for side in questions.sides.values():
            for start, of in ((1, side), (0, side.gated)):
                if of is not None:
                    counts = Definedness(of.policy)
                    counts.add(of.view)
                    self.add(Checks(definedness={start: counts}))
            self.selected.append(seen_before((side.gated or side).policy, side.recording))
            self.silent += unanswered(side.recording) if is_agreement(metric) else 0

    @property
    def sentences(self) -> list[str]:
        """All of it in words.

        Raises:
            UnknownSignalError: A signal is undefined in every round.
        """
        undefined = {start: self.definedness[start].checked() for start in sorted(self.definedness, reverse=True)}
        plain = undefined.get(1, ())
        gated = [f"{note} (from round 0 on)" for note in undefined.get(0, ()) if note not in plain]
        return [*self.notes, *plain, *gated, *(Selected.joined(self.selected).notes if self.selected else ())]


def sums_in(
    reading: SearchReading, space: Space, place: PlacedPiece
) -> tuple[tuple[RuleSums, Checks], tuple[RuleSums, Checks]]:
    """Return the sums of every rule over tune questions, and over searched ones, with what a reader must know."""
    tune = RuleSums.zero(space.count), Checks()
    searched = RuleSums.zero(space.count, reading.folds, more=True), Checks()
    for is_tune, (sums, checks) in ((True, tune), (False, searched)):
        for questions, keys in reading.questions(place, tune=is_tune):
            sums.add_questions(space, questions, keys, None if is_tune else reading.fold(keys))
            checks.add_questions(questions, reading.goal.metric)
    return tune, searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """What is compared with the baseline question by question.

    Attributes:
        rules: By a name, the number of a rule.
        by_fold: The number of the rule that each fold counts with; empty = not compared.
        named: Whether `tasr` is compared.
    """

    rules: dict[str, int]
    by_fold: tuple[int, ...]
    named: bool

    @property
    def names(self) -> list[str]:
        """Names of all that is compared."""
        return [*self.rules, *(["cross-fitted"] if self.by_fold else []), *(["tasr"] if self.named else [])]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComparisonSums:
    """What is compared, over some questions; parts are added.

    Attributes:
        quality: Sums of the metric, shape ``(n_compared,)``.
        calls: Sums of calls, same shape.
        deltas: Differences of the metric to the baseline, and their draws.
        hash: Of the stops of `tasr`.
    """

    quality: Floats
    calls: Floats
    deltas: DrawnSums
    hash: int

    def __add__(self, other: ComparisonSums) -> ComparisonSums:
        return ComparisonSums(
            quality=self.quality + other.quality,
            calls=self.calls + other.calls,
            deltas=self.deltas + other.deltas,
            hash=(self.hash + other.hash) % 2**64,
        )


def comparisons_in(
    reading: SearchReading, space: Space, comparisons: Comparisons, place: PlacedPiece
) -> ComparisonSums | None:
    """Return what is compared over the searched questions of a part; None if there are none."""
    total: ComparisonSums | None = None
    for questions, keys in reading.questions(place, tune=False):
        for rows in slices(np.arange(len(keys)), _DRAWN_AT_ONCE):
            sums = _comparison_sums(reading, space, comparisons, questions.rows(rows), keys[rows])
            total = sums if total is None else total + sums
    return total


def _comparison_sums(
    reading: SearchReading, space: Space, comparisons: Comparisons, questions: Questions, keys: Keys
) -> ComparisonSums:
    explorer, side = Explorer(space, questions, keys), questions.sides[reading.prompt]
    order = np.unique([*comparisons.rules.values(), *comparisons.by_fold]).astype(np.int64)
    of_rules = {name: np.empty((len(order), len(keys))) for name in ("quality", "calls")}
    for part, _, outcome in explorer.outcomes(order):
        for name, values in of_rules.items():
            values[part] = outcome(name)
    places = np.searchsorted(order, [*comparisons.rules.values()]).astype(np.int64)
    every = {name: [*matrix[places]] for name, matrix in of_rules.items()}
    if comparisons.by_fold:
        mine = np.searchsorted(order, comparisons.by_fold)[reading.fold(keys)]
        for name, matrix in of_rules.items():
            every[name].append(matrix[mine, np.arange(len(keys))])
    number = 0
    if comparisons.named:
        position, number = explorer.of_rule(tasr(), reading.prompt)
        for name, rows in every.items():
            rows.append(side.tables[name][np.arange(len(keys)), position])
    quality, calls = (np.array(every[name]).reshape(-1, len(keys)) for name in ("quality", "calls"))  # or nothing
    return ComparisonSums(
        quality=quality.sum(axis=1),
        calls=calls.sum(axis=1),
        deltas=DrawnSums.of(quality - side.baseline["quality"], reading.weights(keys)),
        hash=number,
    )


def family_in(reading: SearchReading, space: Space, numbers: Positions, place: PlacedPiece) -> tuple[Floats, Floats]:
    """Return the sums of the differences of many rules in every draw, and the questions of every draw."""
    n_resamples = reading.resampling.n_resamples
    drawn, sizes = np.zeros((len(numbers), n_resamples)), np.zeros(n_resamples)
    for questions, keys in reading.questions(place, tune=False):
        for rows in slices(np.arange(len(keys)), _DRAWN_AT_ONCE):
            weights = reading.weights(keys[rows])
            sizes += weights.sum(axis=1)
            for part, deltas in Explorer(space, questions.rows(rows)).deltas(numbers):
                drawn[part] += deltas["quality"] @ weights.T
    return drawn, sizes


def intervals_in(
    reading: SearchReading, space: Space, numbers: Positions, place: PlacedPiece
) -> list[ThresholdIntervals]:
    """Return how far the thresholds of some rules can move before a searched question of the part stops elsewhere."""
    intervals: list[ThresholdIntervals] = []
    for questions, keys in reading.questions(place, tune=False):
        for rows in slices(np.arange(len(keys)), _DRAWN_AT_ONCE):
            intervals = narrowed(intervals, equivalent_intervals(Explorer(space, questions.rows(rows)), numbers))
    return intervals


def narrowed(first: Sequence[ThresholdIntervals], second: Sequence[ThresholdIntervals]) -> list[ThresholdIntervals]:
    """Return the thresholds that are in both intervals, rule by rule; all if one has no questions."""
    if not first or not second:
        return [*(first or second)]
    return [
        {name: (max(low, other[name][0]), min(high, other[name][1])) for name, (low, high) in one.items()}
        for one, other in zip(first, second, strict=True)
    ]
