"""Read the pieces of a search block by block.

Each block is divided by prompt, and into tune and searched questions.  Independent samples appear in random orders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.evaluation.replay.blocks import PieceFacts, RecordingBlock
from suffice.evaluation.replay.orders import drawn_orders
from suffice.evaluation.search.choosing import Goal
from suffice.evaluation.search.data import Questions, by_prompt, policy_of_baseline
from suffice.evaluation.search.facts import TuneShare
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
from suffice.recordings.opened import run_starts
from suffice.recordings.pieces import Piece
from suffice.recordings.recording import Recording


def ordered_metadata(metadata: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Return the metadata of a recording whose questions appear in `n` orders."""
    kept = {name: value for name, value in metadata.items() if name != "exchangeable"}
    return {**kept, "independent": True, "orders": n}


def in_orders(recording: Recording, n: int, seed: int) -> RecordingBlock:
    """Return each question in `n` orders of its samples; the orders of a question form one cluster, drawn as a whole."""
    units = np.array([str(unit) for unit in recording.clusters.tolist()], dtype=object)[recording.row_question]
    tables = []
    for number, places in enumerate(drawn_orders(recording, n, seed), 1):
        table = recording.reordered(places).table
        ids = [f"{name} (order {number})" for name in table.column("question_id").to_pylist()]
        for name, values in (("question_id", ids), ("cluster", units.tolist())):
            column = pa.array(values, type=pa.string())
            if name in table.column_names:
                place = table.column_names.index(name)
                table = table.set_column(place, table.schema.field(place), column)
            else:
                table = table.append_column(pa.field(name, pa.string(), metadata={"kind": "identity"}), column)
        tables.append(table)
    table = pa.concat_tables(tables).combine_chunks()
    starts = run_starts(table.column("question_id"))
    return RecordingBlock(table, ordered_metadata(recording.metadata, n), recording.index, starts)


PIECE_ROWS = 1 << 19
"""Approximate number of rows of a large file that one process reads at a time; each piece returns sums of all rules."""

_FOLD_SEED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPiece:
    """A piece and the recording that it belongs to.

    Attributes:
        is_together: Whether the piece consists of the recording's questions in `SearchReading.together`.
    """

    recording: int
    piece: Piece
    is_together: bool = False

    def __str__(self) -> str:
        return str(self.piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReading:
    """The settings for reading every piece of a search.

    Attributes:
        recordings: The searched recording, then the tune recording if there is one.
        share: The choice of tune questions; None if the tune questions have a recording of their own.
        folds: Number of folds of the cross-fitted estimate.
        orders: Number of random orders of each question's independent samples; 1 = rounds follow one another.
        several: For each recording, whether its rounds have several prompts.
        policies: A policy for each prompt, with the fitted state and a rule that reads every signal of the search;
            empty before fitting.
        apart: For each recording, the sorted keys of questions to skip when its pieces are read.
        together: The skipped questions, held in memory.  They share units with other questions, and the parts of a file
            might split a unit.
        facts: Facts of the pieces read so far, to compare with the headers of their files.
        kept: Cache of the prepared questions of pieces in memory, by piece and side.
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
        """Return the pieces with tune questions, or with searched ones.

        Args:
            columns: The columns to be read.
            tune: True for pieces with tune questions, False for searched ones, None for all.
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
        """A copy to send to other processes, without data that they do not need."""
        return replace(self, together={}, kept={})

    def stored(self, place: PlacedPiece, columns: Iterable[str]) -> Iterator[RecordingBlock]:
        """Yield the questions of a piece in blocks, except those that are held in memory already."""
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
        """Yield the tune or searched questions of a piece, without failed ones; samples appear in all orders."""
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
            for recording in self.recordings:  # one recording may lack columns of the other
                read |= {*policy_of_baseline(recording.empty(), policy, self.goal.baseline).raw_columns}
        for recording in self.recordings:
            read |= columns_of_metric(recording.schema, self.goal.metric) | cost_columns(recording.empty())
            if recording.header.get("fitted") or recording.header.get("state"):
                read.add(
                    "question"
                )  # questions that the recording's own models have seen are also recognised by their text
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
        """Prepare a block's questions for a search; None if it has no rounds of the prompts that rules read."""
        parts, (first, *others) = self.by_prompt(place, block), self.policies
        if not others and not first and len(parts) == 1 and not self.several[place.recording]:
            parts = {first: next(iter(parts.values()))}  # the only prompt counts under any name
        there = {prompt: parts[prompt] for prompt in self.policies if prompt in parts}
        if not there:
            return None
        goal = self.goal
        if len(there) < len(self.policies):  # no question of this block has every prompt
            clusters = {name for part in there.values() for name in unit_names(part)}
            none = np.empty(0, dtype=np.uint64)
            names = np.empty(0, dtype=object)
            return Questions(sides={}, clusters=names, keys=none, units=none, left_out=len(clusters))
        recorded = self.recordings[place.recording].empty().names("metric")
        return Questions.of(there, self.policies, metric=goal.metric, baseline=goal.baseline, recorded=recorded)

    def searched_sums(self, n_rules: int) -> RuleSums:
        """Return empty sums of rules for searched questions.

        If there are no draws, the sums are not divided by fold, and the sums for standard errors are left out.
        """
        draws = self.resampling.n_resamples > 0
        return RuleSums.zero(n_rules, self.folds if draws else 1, tokens=True, errors=draws)

    def fold(self, units: Keys) -> Positions:
        """Return the fold of each unit."""
        numbers = keyed_numbers(units, 1, seed=self.resampling.seed + _FOLD_SEED)[:, 0]
        return (numbers % np.uint64(self.folds)).astype(np.int64)

    def weights(self, units: Keys) -> Floats:
        """Return the number of times each unit is drawn in each resample; one resample if resampling is off."""
        return poisson_weights(units, max(1, self.resampling.n_resamples), seed=self.resampling.seed)
