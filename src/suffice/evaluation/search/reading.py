"""How every piece of a search is read: block by block, each question on its side of the split, prompt by prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suffice.evaluation.replay.blocks import PieceFacts, RecordingBlock
from suffice.evaluation.search.choosing import Goal
from suffice.evaluation.search.data import Questions, by_prompt, policy_of_baseline
from suffice.evaluation.search.facts import TuneShare
from suffice.evaluation.search.orders import in_orders
from suffice.evaluation.search.sources import (
    MemorySource,
    SearchSource,
    columns_of_metric,
    complete,
    cost_columns,
    unit_names,
)
from suffice.evaluation.search.sums import RuleSums
from suffice.evaluation.statistics import Keys, Resampling, keyed_numbers, keys_of, poisson_weights
from suffice.policy.rounds import Floats, Positions
from suffice.policy.session import Policy
from suffice.recordings.pieces import Piece

PIECE_ROWS = 1 << 19
"""Rows of a large file that one process reads at a time, about; the sums of all rules come back for each piece."""

_FOLD_SEED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPiece:
    """A piece, and which recording it is of.

    Attributes:
        recording: The position in `SearchReading.recordings`.
        piece: The piece.
        is_together: Whether it is the questions of that recording in `SearchReading.together`.
    """

    recording: int
    piece: Piece
    is_together: bool = False

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
        orders: In how many orders each question of independent samples counts; 1 = rounds follow one another.
        several: Of each recording, whether its rounds are of several prompts.
        policies: By prompt, the fitted state with a rule that reads every signal of the search; none before anything is
            fitted.
        apart: By recording, the sorted keys of the questions of a file that its pieces are read without.
        together: Those questions, which belong to units of several: in memory, for parts might divide a unit.
        facts: What was read of a piece, to be compared with what its file says of itself; added to as it is read.
        kept: The prepared questions of what is in memory, by piece and side: they are read in every pass.
    """

    recordings: tuple[SearchSource | MemorySource, ...]
    share: TuneShare | None
    goal: Goal
    resampling: Resampling
    folds: int
    orders: int = 1
    several: tuple[bool, ...] = ()
    policies: Mapping[str, Policy] = field(default_factory=dict)
    apart: Mapping[int, Keys] = field(default_factory=dict)
    together: Mapping[int, MemorySource] = field(default_factory=dict)
    facts: list[PieceFacts] = field(default_factory=list)
    kept: dict[tuple[PlacedPiece, bool], list[Questions]] = field(default_factory=dict)

    def pieces(self, columns: Iterable[str], *, tune: bool | None = None) -> list[PlacedPiece]:
        """Return the pieces that have tune questions, or those that have searched ones.

        Args:
            columns: What will be read of them.
            tune: Which; None = all.
        """
        names = [*columns]
        places = []
        for i, recording in enumerate(self.recordings):
            if tune is None or self.share is not None or tune == (i == 1):
                places += [PlacedPiece(recording=i, piece=piece) for piece in recording.pieces(names, PIECE_ROWS)]
                if i in self.together:
                    (piece,) = self.together[i].pieces(names, PIECE_ROWS)
                    places.append(PlacedPiece(recording=i, piece=piece, is_together=True))
        return places

    def _source(self, place: PlacedPiece) -> SearchSource | MemorySource:
        return self.together[place.recording] if place.is_together else self.recordings[place.recording]

    def is_in_memory(self, place: PlacedPiece) -> bool:
        """Return whether a piece is in the memory of this process."""
        return isinstance(self._source(place), MemorySource)

    @property
    def sent(self) -> SearchReading:
        """What other processes need of it."""
        return replace(self, together={}, kept={})

    def stored(self, place: PlacedPiece, columns: Iterable[str]) -> Iterator[RecordingBlock]:
        """Yield the questions of a piece; of a file, without those that are kept together."""
        reader = self._source(place).reader(place.piece, columns)
        apart = None if place.is_together else self.apart.get(place.recording)
        for block in reader:
            if apart is None or not len(apart):
                yield block
                continue
            here = ~np.isin(keys_of(block.question_ids), apart)
            if here.any():
                yield block.select(here)
        self.facts.append(reader.facts)

    def blocks(self, place: PlacedPiece, columns: Iterable[str], *, tune: bool) -> Iterator[RecordingBlock]:
        """Yield the tune questions of a piece, or the searched ones, without those that failed; samples in every order."""
        if self.share is None and tune != (place.recording == 1):
            return
        for block in filter(None, map(complete, self.stored(place, columns))):
            mine = np.ones(block.shape[0], dtype=np.bool_) if self.share is None else self.share.of(block) == tune
            if mine.any():
                chosen = block if mine.all() else block.select(mine)
                yield in_orders(chosen, self.orders, self.resampling.seed) if chosen.exchangeable else chosen

    def by_prompt(self, place: PlacedPiece, block: RecordingBlock) -> dict[str, RecordingBlock]:
        """Return the block of each prompt."""
        parts: dict[str, Any] = by_prompt(block, several=self.several[place.recording])
        return parts

    @property
    def columns(self) -> set[str]:
        """The columns that a search reads once everything is fitted."""
        read = {"answer", "prompt_id"}
        for policy in self.policies.values():
            read |= {*policy.raw_columns}
            for recording in self.recordings:  # one may lack columns that the other has
                read |= {*policy_of_baseline(recording.empty(), policy, self.goal.baseline).raw_columns}
        for recording in self.recordings:
            read |= columns_of_metric(recording.schema, self.goal.metric) | cost_columns(recording.empty())
            if recording.header.get("fitted") or recording.header.get("state"):
                read.add("question")  # what the recording's own models have seen is also known by its text
        return read

    def questions(self, place: PlacedPiece, *, tune: bool) -> Iterator[Questions]:
        """Yield the questions ready for a search."""
        key = place, tune
        if key in self.kept:
            yield from self.kept[key]
            return
        made = (self._prepared(place, block) for block in self.blocks(place, self.columns, tune=tune))
        some = (questions for questions in made if questions is not None)
        if self.is_in_memory(place):
            self.kept[key] = [*some]
            yield from self.kept[key]
        else:
            yield from some

    def _prepared(self, place: PlacedPiece, block: RecordingBlock) -> Questions | None:
        """Return the questions of a block for a search; None where it has no rounds of the prompts that rules read."""
        parts, (first, *others) = self.by_prompt(place, block), self.policies
        if not others and not first and len(parts) == 1 and not self.several[place.recording]:
            parts = {first: next(iter(parts.values()))}  # the only prompt, whatever its name
        there = {prompt: parts[prompt] for prompt in self.policies if prompt in parts}
        if not there:
            return None
        goal = self.goal
        if len(there) < len(self.policies):  # in this block no question has every prompt
            clusters = {name for part in there.values() for name in unit_names(part)}
            none = np.empty(0, dtype=np.uint64)
            names = np.empty(0, dtype=object)
            return Questions(sides={}, clusters=names, keys=none, units=none, left_out=len(clusters))
        return Questions.of(there, self.policies, metric=goal.metric, baseline=goal.baseline)

    def searched_sums(self, n_rules: int) -> RuleSums:
        """Return the sums of rules over no searched questions; folds and errors belong to draws."""
        draws = self.resampling.n_resamples > 0
        return RuleSums.zero(n_rules, self.folds if draws else 1, tokens=True, errors=draws)

    def fold(self, units: Keys) -> Positions:
        """Return the fold of each unit."""
        numbers = keyed_numbers(units, 1, seed=self.resampling.seed + _FOLD_SEED)[:, 0]
        return (numbers % np.uint64(self.folds)).astype(np.int64)

    def weights(self, units: Keys) -> Floats:
        """Return the draws of units; without any, one, which shows no spread."""
        return poisson_weights(units, max(1, self.resampling.n_resamples), seed=self.resampling.seed)
