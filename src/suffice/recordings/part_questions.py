"""Resolve questions that are in several parts of a folder: one copy of each run counts, and it gets a unique name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import DataError
from suffice.recordings.merging import AMENDED, INFERRED, LEFT_OUT, RUN, UNFINISHED, RunNames
from suffice.recordings.opened import OpenFile, run_starts
from suffice.recordings.text_keys import text_keys

_IDENTITY_COLUMNS = ("question_id", "cluster", "end", "recorded_at", RUN, INFERRED, LEFT_OUT, AMENDED)
_CUT_ENDS = ("rule", "failed")
_NUMBERED = r"#\d+$"


@dataclass(slots=True)
class PartQuestions:
    """The questions of one part that count in the recording of all parts, with their names.

    Attributes:
        dropped: The names of questions of which the copy in a different part counts.
        names: A map from names in the part to new names, for renamed questions.
        is_shorter: True if a different part has longer questions. Then questions of this part whose end was inferred did
            not reach the cap.
    """

    dropped: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    is_shorter: bool = False

    def applied(self, table: pa.Table) -> pa.Table:
        """Return the rows of the part that count, with the names and ends that hold for the whole recording."""
        ids = table.column("question_id")
        if self.dropped:
            table = table.filter(pc.invert(pc.is_in(ids, pa.array(sorted(self.dropped), pa.string()))))
            ids = table.column("question_id")
        if self.names and table.num_rows:
            known = pc.index_in(ids, pa.array(list(self.names), pa.string()))
            renamed = pa.array(list(self.names.values()), pa.string()).take(known.combine_chunks())
            table = _with_column(table, "question_id", pc.coalesce(renamed, ids))
        if self.is_shorter and "end" in table.column_names:
            inferred = pc.equal(table.column(INFERRED), 1.0)
            table = _with_column(table, "end", pc.if_else(inferred, pa.scalar("rule"), table.column("end")))
        return table


def _with_column(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, table.schema.field(name), values.cast(table.schema.field(name).type))


class _Question(NamedTuple):
    """One question of one part; questions sort by time.

    Of several copies of a run, the copy with the greatest `weight` counts.
    """

    time: float
    run: str
    part: int
    name: str
    cluster: str
    weight: tuple[bool, bool, int, float]


def part_questions(parts: Sequence[OpenFile]) -> list[PartQuestions]:
    """Return for each part the questions that count in the whole recording, and their names there.

    Memory holds the identities of one part at a time, and two hashes for each question. More is kept only for questions
    that were recorded several times.
    """
    result = [PartQuestions() for _ in parts]
    hashes: list[npt.NDArray[np.uint64]] = []
    clusters: list[npt.NDArray[np.uint64]] = []
    numbered: list[bool] = []
    longest: list[int] = []
    for part in parts:
        identities = _Identities(part)
        hashes.append(np.unique(identities.run_hashes))
        clusters.append(identities.cluster_hashes)
        numbered.append(bool(identities.numbered().any()))
        longest.append(identities.longest)
    repeated = _repeated(np.concatenate(hashes)), _repeated(np.concatenate(clusters))
    questions: list[_Question] = []
    for i, part in enumerate(parts):
        if numbered[i] or np.isin(hashes[i], repeated[0]).any() or np.isin(clusters[i], repeated[1]).any():
            questions += _Identities(part).questions(i, *repeated)
    names = RunNames(set())
    for question in sorted(_each_once(questions, parts, result)):
        name = names.new(question.cluster)
        if name != question.name:
            result[question.part].names[question.name] = name
    for item, own in zip(result, longest, strict=True):
        item.is_shorter = 0 < own < max(longest)
    return result


def _each_once(
    questions: Sequence[_Question], parts: Sequence[OpenFile], result: Sequence[PartQuestions]
) -> list[_Question]:
    """Keep the best copy of each run and mark its other copies as dropped.

    A copy that ended is better than a copy that did not end. If this does not decide, the longer copy is better. Of two
    equally long copies, the copy that was amended later is better.
    """
    best: dict[str, _Question] = {}
    for question in questions:
        other = best.get(question.run)
        if other is not None and other.part == question.part:
            continue  # the same part: the question's rows are not contiguous
        if other is not None and RUN not in parts[question.part].schema.names:
            raise DataError(
                f"question {question.name!r} is in {str(parts[other.part].path)!r} and in {parts[question.part].path.name!r}: "
                "leave it out of one of them, since two runs of one question under one prompt are no more questions"
            )
        if other is None:
            best[question.run] = question
            continue
        worse, better = sorted((question, other), key=lambda item: (item.weight, -item.part))
        best[question.run] = better
        result[worse.part].dropped.add(worse.name)
    return [*best.values()]


class _Identities:
    """The identities of a part's questions, in the order of the part's rows."""

    def __init__(self, part: OpenFile) -> None:
        names = [name for name in _IDENTITY_COLUMNS if name in part.schema.names]
        table = pa.concat_tables(part.tables(columns=names))
        starts = run_starts(table.column("question_id"))
        self._part = part
        self._first = table.take(pa.array(starts))
        self._lengths = np.diff(starts, append=table.num_rows)
        if LEFT_OUT in names:
            rounds = self._first.column(LEFT_OUT).to_numpy()
            self._lengths = np.where(np.isnan(rounds), self._lengths, rounds).astype(np.int64)
        self._has_runs = RUN in names
        ids = self._first.column("question_id")
        self._clusters = pc.coalesce(self._first.column("cluster"), ids) if "cluster" in names else ids
        self.run_hashes = text_keys(self._first.column(RUN) if self._has_runs else ids)
        self.cluster_hashes = text_keys(self._clusters) if self._has_runs else np.zeros(0, dtype=np.uint64)

    def numbered(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the questions whose name was numbered (``NAME#2``), or whose cluster has a name of this form."""
        if not self._has_runs:
            return np.zeros(len(self.run_hashes), dtype=np.bool_)
        other = pc.not_equal(self._first.column("question_id"), self._clusters)
        return np.asarray(pc.or_(other, pc.match_substring_regex(self._clusters, _NUMBERED)))

    @property
    def longest(self) -> int:
        """The largest number of rounds of any question that did not fail; 0 if the part has no inferred ends."""
        if INFERRED not in self._first.column_names:
            return 0
        valid = pc.not_equal(self._first.column("end"), "failed").to_numpy()
        return int(self._lengths[valid].max(initial=0))

    def questions(
        self, place: int, repeated_runs: npt.NDArray[np.uint64], repeated_clusters: npt.NDArray[np.uint64]
    ) -> list[_Question]:
        """Return the questions to compare with those of other parts: possible copies, and questions that may need a new name."""
        some = np.isin(self.run_hashes, repeated_runs) | self.numbered()
        if self._has_runs:
            some |= np.isin(self.cluster_hashes, repeated_clusters)
        failed = self._part.metadata.get("failed") or {}
        rows = self._first.append_column("_cluster", self._clusters).filter(pa.array(some)).to_pylist()
        return [
            _Question(
                time=-math.inf if row.get("recorded_at") is None else row["recorded_at"],
                run=row.get(RUN, row["question_id"]),
                part=place,
                name=row["question_id"],
                cluster=row["_cluster"] if self._has_runs else row["question_id"],
                weight=(
                    failed.get(row["question_id"]) != UNFINISHED,
                    row.get("end") not in _CUT_ENDS,
                    int(rounds),
                    row.get(AMENDED) or 0.0,
                ),
            )
            for row, rounds in zip(rows, self._lengths[some], strict=True)
        ]


def _repeated(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    values, counts = np.unique(hashes, return_counts=True)
    return np.asarray(values[counts > 1])
