"""Recordings: parquet files on disk, dense arrays in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.files import place, reaching
from suffice.common.results import Displayed
from suffice.common.tables import CAUTION, Table, cut_list, facts_table
from suffice.errors import DataError, SchemaError, UnknownSignalError, did_you_mean
from suffice.policy.normalizers import normalizer_of
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.seen import one_name_per_text
from suffice.policy.signals import answer_ids, clean_column
from suffice.recordings.opened import OpenFile, OpenRecording, open_file, read_again, write_recording
from suffice.recordings.runs import keep_where, single_labels, unsure_runs
from suffice.recordings.schema import (
    ASSUMED_END,
    PINNED_LABELS,
    SPEND,
    check_ends,
    checked_rounds,
    column_kind,
    column_values,
    is_computed,
    reordered_totals,
    stated_kind,
    with_values,
)

if TYPE_CHECKING:
    from suffice.common.display.table_html import Library

__all__ = [
    "Recording",
    "is_recording",
    "open_recording",
    "read_recording",
    "write_recording",
]

_FEW = 1000


class Recording(Displayed):
    """Recorded rounds of many questions; every array has the shape ``(n_questions, n_rounds)``.

    Args:
        table: One row for each question and round, in any order.
        metadata: Metadata of the file.

    Attributes:
        row_question: Index in `question_ids` of each row's question, shape ``(n_rows,)``.

    Raises:
        SchemaError: The columns of question and round are missing or have another type.
        DataError: There are no rows, a round of a question is repeated or missing, or an `end` is unknown.
    """

    def __init__(self, table: pa.Table, metadata: Mapping[str, Any] | None = None) -> None:
        if table.num_rows == 0:
            raise DataError("the recording has no rounds")
        for name in ("question_id", "round"):
            if name not in table.column_names:
                raise SchemaError(f"a recording needs the column {name!r}; it has: {cut_list(table.column_names)}")
        self.table = table
        self.metadata: dict[str, Any] = dict(metadata or {})
        rounds = checked_rounds(table)
        if (
            rounds.max() > table.num_rows + _FEW
        ):  # smaller gaps are reported with their question later; the array for this one would be too large
            raise DataError(
                f"round {rounds.max()} appears in a table of {table.num_rows} rows: rounds must have no gaps"
            )
        ids = table.column("question_id").to_numpy(zero_copy_only=False)
        order: dict[str, int] = {}
        self.row_question = np.fromiter((order.setdefault(q, len(order)) for q in ids), dtype=np.int64, count=len(ids))
        self.question_ids: list[str] = list(order)
        self.index: npt.NDArray[np.int64] = np.arange(int(rounds.min()), int(rounds.max()) + 1, dtype=np.int64)
        self._column = rounds - self.index[0]
        self._check_rows(ids, rounds)

    def _check_rows(self, ids: npt.NDArray[Any], rounds: npt.NDArray[np.int64]) -> None:
        if self.index[0] not in (0, 1):
            raise DataError(f"rounds must start at 0 or 1, not at {int(self.index[0])}")
        counts_by_round = np.zeros(self.shape, dtype=np.int64)
        np.add.at(counts_by_round, (self.row_question, self._column), 1)
        if (counts_by_round > 1).any():
            row = int(np.argmax(counts_by_round[self.row_question, self._column] > 1))
            raise DataError(
                f"question {ids[row]!r} has round {int(rounds[row])} more than once: remove the repeated rows"
            )
        self.seen: Mask = counts_by_round > 0
        first_rounds = np.argmax(self.seen, axis=1)
        counts, last = self.seen.sum(axis=1), len(self.index) - np.argmax(self.seen[:, ::-1], axis=1)
        # Either all questions have a closed-book round or none.
        gap = (first_rounds > 0) | (counts != last)
        if gap.any():
            q = int(np.argmax(gap))
            missing = sorted(set(self.index[: int(last[q])].tolist()) - set(self.index[self.seen[q]].tolist()))
            raise DataError(f"question {self.question_ids[q]!r} lacks round {missing[0]}: rounds must have no gaps")
        check_ends(self.ends.tolist())

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_questions, n_rounds)``."""
        return len(self.question_ids), len(self.index)

    def names(self, kind: str) -> list[str]:
        """Return the columns of a kind: `signal`, `cost`, `metric`, `label`, `decision`, `identity`, `happened`, `provenance`."""
        return [name for name, stated in self._kinds.items() if kind == (stated or column_kind(name))]

    @cached_property
    def _kinds(self) -> dict[str, str | None]:
        """The kind of each column as stated in the file; cached, because arrow builds column names anew at each access."""
        return {field.name: stated_kind(field) for field in self.table.schema}

    def column(self, name: str) -> Floats:
        """Return a numeric column; NaN where undefined and past the end of a trajectory.

        A registered signal without a column is computed from the recorded rounds, see `suffice.recordings.computed`.

        Raises:
            UnknownSignalError: The column is missing, and cannot be computed.
            DataError: The column contains text.
        """
        if name not in self._kinds and is_computed(name):
            if name not in self._computed:
                from suffice.recordings.computed import compute_column

                self._computed[name] = compute_column(self, name)
            return self._computed[name]
        column = self._arrow(name)
        if column.null_count == len(column):  # a custom signal without any value may be stored as text
            return np.full(self.shape, np.nan)
        if not (
            pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)
        ):
            raise DataError(f"the column {name!r} contains {column.type}, not numbers")
        return clean_column(name, self._dense(column_values(column.cast(pa.float64()))))

    def gives(self, name: str) -> bool:
        """Return True if `column` can return a column of this name, whether stored or computed from the recorded rounds."""
        return name in self._kinds or is_computed(name)

    @cached_property
    def _computed(self) -> dict[str, Floats]:
        return {}

    def _dense(self, values: Floats) -> Floats:
        dense = np.full(self.shape, np.nan)
        dense[self.row_question, self._column] = values
        return dense

    def objects(self, name: str) -> npt.NDArray[np.object_]:
        """Return a text or list column; None where missing.

        Raises:
            UnknownSignalError: The column is missing.
        """
        dense = np.full(self.shape, None, dtype=object)
        values = np.empty(self.table.num_rows, dtype=object)
        values[:] = self._arrow(name).to_pylist()
        dense[self.row_question, self._column] = values
        return dense

    def _arrow(self, name: str) -> pa.ChunkedArray:
        if name not in self._kinds:
            raise UnknownSignalError(
                f"the recording has no column {name!r}.{did_you_mean(name, self.table.column_names)} There are: "
                f"{cut_list(sorted(self.table.column_names))}"
            )
        return self.table.column(name)

    def per_question(self, name: str, default: Sequence[Any]) -> npt.NDArray[np.object_]:
        """Return a column's value at each question's first round, shape ``(n_questions,)``; `default` if the column is missing."""
        out = np.empty(len(self.question_ids), dtype=object)
        out[:] = self.objects(name)[:, 0].tolist() if name in self._kinds else list(default)
        return out

    @property
    def exchangeable(self) -> bool:
        """True if the rounds of a question are independent samples, so that all orders of them are equally likely."""
        return bool(self.metadata.get("exchangeable"))

    @property
    def independent(self) -> bool:
        """True if the rounds of a question are independent answers that vote: samples, or the members of a panel in fixed order."""
        return self.exchangeable or bool(self.metadata.get("independent"))

    @property
    def reading_notes(self) -> tuple[str, ...]:
        """Notes on doubts that arose when the log was imported or recorded, and that still apply."""
        reading = self.metadata.get("reading") or {}
        doubts = [*reading.get("cautions", {}).values()]
        doubts += [f"{text} (said to be right)" for text in reading.get("expected", {}).values()]
        read = [f"as the log was read, {'; '.join(doubts)}"] if doubts else []
        of_proxy = {"conversation", "key"} <= {*self.table.column_names}
        return tuple(f"{CAUTION}{note}" for note in (*read, *(unsure_runs(self) if of_proxy else ())))

    @property
    def signal_components(self) -> dict[str, str]:
        """A map from signals that are not in `SIGNALS` to the component whose call produces them."""
        return self.metadata.get("signal_components") or {}

    @cached_property
    def ends(self) -> npt.NDArray[np.object_]:
        """The reason why each trajectory has no further round, shape ``(n_questions,)``."""
        return self.per_question("end", ["max_rounds"] * len(self.question_ids))

    @property
    def failed(self) -> Mask:
        """Mask of the questions without an answer because their recording failed, shape ``(n_questions,)``."""
        return np.asarray(self.ends == "failed", dtype=np.bool_)

    @cached_property
    def cut(self) -> Mask:
        """Mask of the questions that a rule ended before the highest round, shape ``(n_questions,)``."""
        return np.asarray((self.ends == "rule") & ~self.seen[:, -1], dtype=np.bool_)

    @cached_property
    def unexplained(self) -> Mask:
        """Mask of the questions that may lack rounds: they have fewer rounds than the longest question, for no known reason.

        An import assumes that a `rule` ended these questions, unless `--ended` or an `end` in the log states the
        reason.
        """
        assumed = self.per_question(ASSUMED_END, [None] * len(self.question_ids))
        return np.asarray((assumed == 1) & (self.ends == "rule"), dtype=np.bool_)

    @cached_property
    def texts(self) -> list[str | None] | None:
        """The texts of the questions, with None for a missing text; None instead of a list if no text was recorded."""
        if "question" not in self.table.column_names:
            return None
        texts = self.per_question("question", [None] * len(self.question_ids)).tolist()
        return texts if any(texts) else None

    @cached_property
    def clusters(self) -> npt.NDArray[np.object_]:
        """The resampling unit of each question, shape ``(n_questions,)``; the question itself if no unit is recorded.

        Without a column of clusters, questions with the same text form one unit.
        """
        known = "cluster" in self._kinds
        units = self.per_question("cluster", () if known else one_name_per_text(self.question_ids, self.texts))
        units[:] = [own if name is None else name for name, own in zip(units, self.question_ids, strict=True)]
        return units

    @cached_property
    def answers(self) -> npt.NDArray[np.object_]:
        """The answers; None where an answer is missing."""
        return self.objects("answer")

    def answer_ids(self, normalizer: str) -> Floats:
        """Number each question's distinct answers, and return each round's number.

        See `suffice.policy.signals.answer_ids`.

        Args:
            normalizer: Name of the normalizer that decides which answers are the same.
        """
        if normalizer not in self._answer_ids:
            self._answer_ids[normalizer] = answer_ids(self.answers, normalizer_of(normalizer))
        return self._answer_ids[normalizer]

    @cached_property
    def _answer_ids(self) -> dict[str, Floats]:
        return {}

    def rounds(self, columns: Iterable[str] | None = None) -> Rounds:
        """Return the stored columns that a policy reads.

        Args:
            columns: The columns to load; None = all recorded signals and costs. Missing columns are left out; a policy
                that reads such a column raises an error that names it.

        Raises:
            UnknownSignalError: A registered signal needs a part of the round that was not recorded.
        """
        names = self.names("signal") + self.names("cost") if columns is None else list(columns)
        return self.view({name: self.column(name) for name in names if self.gives(name)})

    def view(self, columns: Mapping[str, Floats]) -> Rounds:
        """Return `Rounds` with these columns and the recorded answers, which are loaded on first use."""
        answers = (lambda: self.answers) if "answer" in self.table.column_names else None
        return Rounds(columns, self.index, self.seen, answers)

    def tables(self) -> list[Table]:
        """Return a summary of the recording as one table."""
        ends = self.ends.tolist()
        kinds = ("metric", "signal", "cost", "label", *(["decision"] if self.names("decision") else []))
        facts = {
            "questions": f"{self.shape[0]:,}",
            "rounds": f"{int(self.index[0])} to {int(self.index[-1])}, {self.table.num_rows:,} rows",
            **{f"{kind} columns": ", ".join(self.names(kind)) for kind in kinds},
            "censored": f"{ends.count('rule'):,} questions that a rule ended",
            "failed": f"{ends.count('failed'):,} questions",
            "data hash": self.data_hash,
        }
        return [facts_table("Recording", facts)]

    def to_frame(self, library: Library | None = None, *, table: int = 0) -> Any:  # noqa: ARG002 - there is one
        """Return the recorded rows as a data frame, one row for each question and round."""
        from suffice.common.display.table_html import frame_of

        return frame_of(self.table, library)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)

    def select(self, keep: npt.NDArray[np.bool_]) -> Recording:
        """Return a recording of the questions for which the mask `keep`, shape ``(n_questions,)``, is True."""
        return Recording(self.table.filter(pa.array(keep[self.row_question])), self.metadata)

    def where(self, **labels: Any) -> Recording:
        """Return the questions with these values of labels as a recording, such as the questions of one model or prompt.

        >>> recording = Recording(pa.table({"question_id": ["a", "b"], "round": [1, 1], "model": ["small", "large"]}))
        >>> recording.where(model="large").question_ids
        ['b']

        Args:
            labels: Values by column.  If a loop asks several models in turn, the value lists all of them: ``small +
                large``.

        Raises:
            NotFoundError: There is no such column, or no question has these values.
        """
        part = self.select(keep_where(self, labels))
        values = {
            name: value for name, value in single_labels(part).items() if name in labels and name in PINNED_LABELS
        }
        if values:
            part.metadata["depends"] = {**values, **(part.metadata.get("depends") or {})}
        return part

    def reordered(self, places: npt.NDArray[np.int64]) -> Recording:
        """Return the recording with the rounds of each question in a new order, or in several new orders.

        Running totals of costs follow the new order; the costs of each round itself stay the same.

        Args:
            places: The new position of each round, shape ``(n_orders * n_questions, n_rounds)``: each row permutes a
                question's rounds. With several orders, each question appears once per order, under the same id.
        """
        n = len(places) // self.shape[0]
        row = (self.row_question + self.shape[0] * np.arange(n)[:, None]).ravel()
        column = places[row, np.tile(self._column, n)]
        table = self.table if n == 1 else pa.concat_tables([self.table] * n)
        numbers = pa.chunked_array([pa.array(column + self.index[0])])
        if SPEND in table.column_names:
            table = with_values(table, SPEND, reordered_totals(self.column(SPEND), places)[row, column])
        other = object.__new__(Recording)
        vars(other).update(
            table=table.set_column(table.column_names.index("round"), "round", numbers),
            metadata=self.metadata,
            index=self.index,
            question_ids=[*self.question_ids] * n,
            seen=np.tile(self.seen, (n, 1)),
            ends=np.tile(self.ends, n),
            row_question=row,
            _column=column,
        )
        return other

    @cached_property
    def data_hash(self) -> str:
        """A short hash of identities, answers and metrics; it depends on the order of the rows."""
        digest = hashlib.sha256()
        for name in ("question_id", "round", "answer", *self.names("metric")):
            if name in self.table.column_names:
                digest.update(json.dumps(self.table.column(name).to_pylist()).encode())
        return digest.hexdigest()[:16]


def is_recording(path: str | Path) -> bool:
    """Return True if a path is a recording (parquet or a folder of parts) rather than a file of questions or labels."""
    return place(path).suffix == ".parquet" or place(path).is_dir()


def open_recording(path: str | Path, *, keep: bool = False) -> OpenRecording:
    """Open a recording, a file or a folder of parts, without reading its rows.

    Rounds that a `Recorder` is still adding are included.

    Args:
        path: The recording.
        keep: Whether all rows will be read at once anyway, so that they may stay in memory.

    Raises:
        DataError: The file does not exist.
        SchemaError: The file is corrupt or truncated, not a recording, of another version, or its header is damaged.
    """
    with reaching(path):
        path = place(path)
        if not path.is_dir():
            return open_file(path, OpenFile)
        from suffice.recordings.parts import open_folder

        return open_folder(path, keep=keep)


def read_recording(path: str | Path) -> Recording:
    """Read a recording and compare its checksums; read a folder of parts again if it is compacted meanwhile.

    Raises:
        DataError: The file is missing, or its rows contradict each other.
        SchemaError: The file is corrupt, truncated or damaged, not a recording, or of another version.
    """

    def read() -> Recording:
        with open_recording(path, keep=True) as opened, reaching(path):
            return Recording(opened.table(), opened.metadata)

    return read_again(read)
