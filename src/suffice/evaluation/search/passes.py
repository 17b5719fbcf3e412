"""Functions of a search that run on one part of a recording, in any process; their results can be added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from suffice.evaluation.replay.blocks import PieceFacts
from suffice.evaluation.replay.checks import Definedness
from suffice.evaluation.replay.outcomes import is_agreement, unanswered
from suffice.evaluation.replay.selected import Selected
from suffice.evaluation.search.data import Questions, seen_before
from suffice.evaluation.search.equivalent import ThresholdIntervals, equivalent_intervals
from suffice.evaluation.search.explore import Explorer, outcome_at
from suffice.evaluation.search.facts import Facts, facts_of, questions_with_texts
from suffice.evaluation.search.fitting import Defined
from suffice.evaluation.search.reading import PlacedPiece, SearchReading
from suffice.evaluation.search.space import Literal, Space
from suffice.evaluation.search.sums import RuleSums, UnitSums, slices, whole_units
from suffice.evaluation.statistics import Keys, keys_of
from suffice.policy.rounds import Floats, Positions
from suffice.policy.rules import tasr

_DRAWN_AT_ONCE = 4_096
"""Number of questions whose draws are in memory at once: 32 MB for 1,000 draws."""

_OfPiece = TypeVar("_OfPiece")


def with_facts(
    function: Callable[..., _OfPiece], reading: SearchReading, arguments: Sequence[Any], place: PlacedPiece
) -> tuple[_OfPiece, list[PieceFacts]]:
    """Run a function on one piece; also return the facts to check against the file header."""
    mine = replace(reading, facts=[])
    return function(mine, *arguments, place), mine.facts


def facts_in(reading: SearchReading, columns: Sequence[str], place: PlacedPiece) -> Facts:
    """Return facts about all questions of a piece."""
    return reduce(add, map(facts_of, reading.stored(place, columns)), Facts.none())


def names_in(reading: SearchReading, texts: Keys, place: PlacedPiece) -> list[tuple[str, str]]:
    """Return unit and text of the questions whose text is in `texts`."""
    blocks = reading.stored(place, {"question"})  # failed questions count too, since they also link others in `split`
    return [question for block in blocks for question in questions_with_texts(block, texts)]


def rows_in(
    reading: SearchReading, columns: Sequence[str], keys: Mapping[int, Keys], place: PlacedPiece
) -> list[pa.Table]:
    """Return the rows of some questions of a piece: those whose keys are listed in `keys` for the piece's recording."""
    tables = []
    for block in reading.stored(place, columns):
        mine = np.isin(keys_of(block.question_ids), keys.get(place.recording, []))
        if mine.any():
            tables.append(block.select(mine).table)
    return tables


def defined_in(reading: SearchReading, columns: Sequence[str], place: PlacedPiece) -> dict[str, Defined]:
    """Return, by prompt, the signals among `columns` that tune questions have."""
    there: dict[str, Defined] = {}
    for block in reading.blocks(place, columns, tune=True):
        for prompt, part in reading.by_prompt(place, block).items():
            defined = Defined.of(part)
            there[prompt] = there[prompt] | defined if prompt in there else defined
    return there


def tables_in(reading: SearchReading, columns: Sequence[str], place: PlacedPiece) -> list[pa.Table]:
    """Return columns of the tune questions, for fits that need all questions at once."""
    blocks = reading.blocks(place, columns, tune=True)
    return [block.table.select([name for name in columns if name in block.table.column_names]) for block in blocks]


def ranges_in(reading: SearchReading, literals: Sequence[tuple[str, Literal]], place: PlacedPiece) -> Floats:
    """Return the smallest and the largest value that each literal reads on tune questions, shape ``(n_literals, 2)``."""
    ends = np.tile([np.inf, -np.inf], (len(literals), 1))
    for questions in reading.questions(place, tune=True):
        for i, (prompt, literal) in enumerate(literals if questions.sides else ()):
            column = questions.sides[prompt].of(gated=literal.is_gate).view.columns[literal.signal]
            known = column[np.isfinite(column)]
            ends[i] = min(ends[i, 0], known.min(initial=np.inf)), max(ends[i, 1], known.max(initial=-np.inf))
    return ends


def sums_alone_in(reading: SearchReading, spaces: Sequence[Space], place: PlacedPiece) -> list[RuleSums]:
    """Return the sums of several spaces over tune questions."""
    sums = [RuleSums.zero(space.count) for space in spaces]
    for questions in reading.questions(place, tune=True):
        for space, total in zip(spaces, sums, strict=True):
            total.add_questions(space, questions)
    return sums


@dataclass(slots=True, kw_only=True, eq=False)
class Checks:
    """Checks of some questions, and notes on them; the checks of several parts can be added.

    Attributes:
        definedness: Counts of defined signals, by prompt and start round.
        selected: Questions that the recording's own models have seen.
        silent: Questions in which no round has an answer, if the metric compares answers.
        left_out: Number of units that some prompt lacks.
    """

    notes: dict[str, None] = field(default_factory=dict)
    definedness: dict[tuple[str, int], Definedness] = field(default_factory=dict)
    selected: list[Selected] = field(default_factory=list)
    silent: int = 0
    left_out: int = 0

    def add(self, other: Checks) -> None:
        """Add the checks of other questions."""
        self.notes |= other.notes
        for key, counts in other.definedness.items():
            if key in self.definedness:
                self.definedness[key] += counts
            else:
                self.definedness[key] = counts
        self.selected += other.selected
        self.silent += other.silent
        self.left_out += other.left_out

    def add_questions(self, questions: Questions, metric: str) -> None:
        """Check questions and add the results."""
        self.notes |= dict.fromkeys(questions.notes)
        self.left_out += questions.left_out
        for number, (prompt, side) in enumerate(questions.sides.items()):
            for start, of in ((1, side), (0, side.gated)):
                if of is not None:
                    counts = Definedness(of.policy)
                    counts.add(of.view)
                    self.add(Checks(definedness={(prompt, start): counts}))
            self.selected.append(seen_before((side.gated or side).policy, side.recording))
            self.silent += unanswered(side.recording) if is_agreement(metric) and not number else 0

    @property
    def sentences(self) -> list[str]:
        """Return all notes in words."""
        plain: dict[str, None] = {}
        gated: dict[str, None] = {}
        for (_, start), counts in sorted(self.definedness.items(), key=lambda item: -item[0][1]):
            for note in counts.checked():
                if start == 1:
                    plain[note] = None
                elif note not in plain:
                    gated[f"{note} (from round 0 on)"] = None
        out = f"{self.left_out} questions are left out: they were not recorded with every prompt"
        selected = Selected.joined(self.selected).notes if self.selected else ()
        return [*self.notes, *plain, *gated, *([out] if self.left_out else []), *selected]


def sums_in(
    reading: SearchReading, space: Space, place: PlacedPiece
) -> tuple[tuple[RuleSums, Checks], tuple[RuleSums, Checks]]:
    """Return the sums of every rule over tune questions and over searched ones, with checks of both."""
    tune, searched = (RuleSums.zero(space.count), Checks()), (reading.searched_sums(space.count), Checks())
    for is_tune, (sums, checks) in ((True, tune), (False, searched)):
        for questions in reading.questions(place, tune=is_tune):
            fold = None if is_tune or not reading.resampling.n_resamples else reading.fold(questions.units)
            sums.add_questions(space, questions, fold)
            checks.add_questions(questions, reading.goal.metric)
    return tune, searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """The rules that are compared with the baseline, question by question.

    Attributes:
        rules: The number of each compared rule in the space, by the rule's name.
        by_fold: The number of the rule that is evaluated on each fold; empty = not compared.
        named: The name under which `tasr` is compared, by prompt.
    """

    rules: dict[str, int]
    by_fold: tuple[int, ...]
    named: dict[str, str]

    @property
    def names(self) -> list[str]:
        """Names of all compared rules."""
        return [*self.rules, *(["cross-fitted"] if self.by_fold else []), *self.named.values()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComparisonSums:
    """Sums of the compared rules over some questions; sums of other parts can be added.

    Attributes:
        quality: Sums of the metric, shape ``(n_compared,)``.
        calls: Sums of calls, same shape.
        deltas: Differences of the metric to the baseline, and their draws.
        hashes: Hash of the stops of `tasr`, for each prompt.
    """

    quality: Floats
    calls: Floats
    deltas: UnitSums
    hashes: tuple[int, ...]

    def __add__(self, other: ComparisonSums) -> ComparisonSums:
        return ComparisonSums(
            quality=self.quality + other.quality,
            calls=self.calls + other.calls,
            deltas=self.deltas + other.deltas,
            hashes=tuple((one + more) % 2**64 for one, more in zip(self.hashes, other.hashes, strict=True)),
        )


def comparisons_in(
    reading: SearchReading, space: Space, comparisons: Comparisons, place: PlacedPiece
) -> ComparisonSums | None:
    """Return the sums of the compared rules over a part's searched questions; None if the part has no such question."""
    total: ComparisonSums | None = None
    for questions in reading.questions(place, tune=False):
        for rows in whole_units(np.argsort(questions.units, kind="stable"), questions.units, _DRAWN_AT_ONCE):
            sums = _comparison_sums(reading, space, comparisons, questions.rows(rows))
            total = sums if total is None else total + sums
    return total


def _comparison_sums(
    reading: SearchReading, space: Space, comparisons: Comparisons, questions: Questions
) -> ComparisonSums:
    explorer, rows = Explorer(space, questions), np.arange(len(questions))
    order = np.unique([*comparisons.rules.values(), *comparisons.by_fold]).astype(np.int64)
    of_rules = {name: np.empty((len(order), len(rows))) for name in ("quality", "calls", "delta")}
    for part, side, outcome in explorer.outcomes(order):
        for name in ("quality", "calls"):
            of_rules[name][part] = outcome(name)
        of_rules["delta"][part] = of_rules["quality"][part] - side.baseline["quality"]
    places = np.searchsorted(order, [*comparisons.rules.values()]).astype(np.int64)
    every = {name: [*matrix[places]] for name, matrix in of_rules.items()}
    if comparisons.by_fold:
        mine = np.searchsorted(order, comparisons.by_fold)[reading.fold(questions.units)]
        for name, matrix in of_rules.items():
            every[name].append(matrix[mine, rows])
    hashes = []
    for prompt in comparisons.named:
        side = questions.sides[prompt]
        outcomes, number = explorer.of_rule(tasr(), prompt)
        hashes.append(number)
        for name in ("quality", "calls"):
            every[name].append(outcome_at(side, outcomes, name)[0])
        every["delta"].append(every["quality"][-1] - side.baseline["quality"])
    quality, calls, deltas = (np.array(values).reshape(-1, len(rows)) for values in every.values())  # may be empty
    return ComparisonSums(
        quality=quality.sum(axis=1),
        calls=calls.sum(axis=1),
        deltas=UnitSums.of(deltas, questions.units, reading.weights),
        hashes=tuple(hashes),
    )


def family_in(reading: SearchReading, space: Space, numbers: Positions, place: PlacedPiece) -> tuple[Floats, Floats]:
    """Return, for each bootstrap draw, the summed difference of each rule in `numbers`, and the number of rows."""
    n_resamples = reading.resampling.n_resamples
    drawn, sizes = np.zeros((len(numbers), n_resamples)), np.zeros(n_resamples)
    for questions in reading.questions(place, tune=False):
        for rows in slices(np.arange(len(questions)), _DRAWN_AT_ONCE):
            some = questions.rows(rows)
            weights = reading.weights(some.units)  # all rows of a unit have the same weights
            sizes += weights.sum(axis=1)
            for part, deltas in Explorer(space, some).deltas(numbers):
                drawn[part] += deltas["quality"] @ weights.T
    return drawn, sizes


def intervals_in(
    reading: SearchReading, space: Space, numbers: Positions, place: PlacedPiece
) -> list[ThresholdIntervals]:
    """Return the intervals in which thresholds of some rules can vary without changing a stop in the part."""
    intervals: list[ThresholdIntervals] = []
    for questions in reading.questions(place, tune=False):
        for rows in slices(np.arange(len(questions)), _DRAWN_AT_ONCE):
            intervals = narrowed(intervals, equivalent_intervals(Explorer(space, questions.rows(rows)), numbers))
    return intervals


def narrowed(first: Sequence[ThresholdIntervals], second: Sequence[ThresholdIntervals]) -> list[ThresholdIntervals]:
    """Intersect two lists of intervals rule by rule; if one list is empty (no questions), return the other."""
    if not first or not second:
        return [*(first or second)]
    return [
        {name: (max(low, other[name][0]), min(high, other[name][1])) for name, (low, high) in one.items()}
        for one, other in zip(first, second, strict=True)
    ]
