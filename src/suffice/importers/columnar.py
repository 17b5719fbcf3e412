"""Rows of a long table as a table of a recording, column by column: what `grid` and `base` make of them round by round."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.errors import DataError
from suffice.importers.base import check_unit, end_of, score
from suffice.importers.golds import GoldAnswers
from suffice.importers.grid import (
    END_NAMES,
    OWN_COLUMNS,
    Grid,
    cell_number,
    cell_text,
    gold_texts,
    is_cost,
    signal_cell,
)
from suffice.importers.records import Record
from suffice.importers.summary import ColumnCount, is_counted
from suffice.importers.tally import Tally
from suffice.policy.metrics import EQUAL_WEIGHTS, METRICS
from suffice.policy.rounds import COST_KINDS, Floats, Positions, Round
from suffice.policy.signals import SIGNALS, clean_column, compute_signals
from suffice.policy.signals.from_policy import WRITERS
from suffice.recordings.schema import ASSUMED_END, REPLY_COLUMNS, column_kind, cost_column, table_of_columns

__all__ = ["RecordingPart", "columnar_part"]

_ABSENT = frozenset({"embedding", "logprobs", "passages", "pool_scores", "token_logprobs"})
"""What no table has of a round: signals that need it are undefined."""

_BY_CELLS: Mapping[str, tuple[tuple[str, ...], Callable[[Any], list[Round]]]] = {
    "pair": (
        ("answer_stable", "answer_f1_previous", "answer_similarity_previous"),
        lambda pair: [Round(index=r, answer=answer) for r, answer in enumerate(pair, start=1)],
    ),
    "answer": (("abstained", "answer_length"), lambda answer: [Round(index=1, answer=answer)]),
    "text": (("verbal_confidence",), lambda text: [Round(index=1, text=text or "")]),
    "feedback": (("critic_approved", "critic_praise"), lambda feedback: [Round(index=2, feedback=feedback)]),
}
"""Signals by the cells that they are computed from, and rounds with these cells."""

_SAME = ("same", "same")
"""What equal answers are compared as: the signals of such a pair are the same for all texts."""

_MARKED = ("information_score", "information_gain")

_Cells = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingPart:
    """Some questions of a recording.

    Attributes:
        table: Their rounds.
        counts: What happened to the values, by column.
    """

    table: pa.Table
    counts: list[ColumnCount]


def columnar_part(
    rows: Sequence[Record],
    grid: Grid,
    formulas: Mapping[str, Callable[[Record], Any]],
    *,
    tally: Tally,
    cluster_of: Callable[[str, str], str],
    golds: GoldAnswers | None = None,
    texts: Collection[str] = (),
) -> RecordingPart | None:
    """Return what `group_trajectories` and `ImportedRun.rows` make of rows; None where those say what is wrong, or must compute it.

    Args:
        rows: All rows of some questions.
        grid: How they are read; it has `lowest` and `longest`.
        formulas: Columns that are computed from others, by name.
        tally: Counts the trajectories.
        cluster_of: Returns the cluster of a question's id and text, where the table has none.
        golds: Gold answers from elsewhere.
        texts: Columns that contain text in another part.
    """
    part = _Part(rows, grid, formulas)
    try:
        if not part.group() or not part.read():
            return None
    except DataError:
        return None
    part.tally(tally)
    part.join(cluster_of, golds)
    return part.table(part.columns(), texts)


class _Part:
    """The columns of some rows; lists and arrays have one item for each row, unless said otherwise."""

    def __init__(self, rows: Sequence[Record], grid: Grid, formulas: Mapping[str, Callable[[Record], Any]]) -> None:
        self.rows, self.grid, self.formulas = rows, grid, formulas
        self.kinds: dict[str, str] = {}
        self.counts: dict[str, ColumnCount] = {}

    def cells(self, theirs: str) -> _Cells:
        formula = self.formulas.get(theirs)
        return [row.values.get(theirs) for row in self.rows] if formula is None else [*map(formula, self.rows)]

    def _texts(self, ours: str, theirs: str | None) -> list[str | None]:
        if theirs is None:
            return [None] * len(self.rows)
        return [v if v is None or type(v) is str else cell_text(v, ours, "") for v in self.cells(theirs)]

    def _numbers(self, ours: str, theirs: str) -> Floats:
        cells = self.cells(theirs)
        try:
            return np.array([math.nan if value is None else float(value) for value in cells])
        except (TypeError, ValueError, OverflowError):
            return np.array([cell_number(value, ours, "") for value in cells])

    def group(self) -> bool:
        """Put the rows of a question one after another, in the order of their rounds; return whether none is wrong."""
        columns, grid = self.grid.columns, self.grid
        ids = self._texts("question_id", columns["question_id"])
        numbers = self._numbers("round", columns["round"])
        if not all(ids) or not (np.isfinite(numbers) & (numbers >= 0) & (numbers % 1 == 0)).all():
            return False
        places: dict[str | None, int] = {}
        codes = np.array([places.setdefault(name, len(places)) for name in ids])
        order = np.lexsort((numbers, codes))
        codes, numbers = codes[order], numbers[order]
        self.rows = [self.rows[i] for i in order]
        self.ids = [str(name) for name in places]
        self.starts: Positions = np.flatnonzero(np.diff(codes, prepend=-1))
        self.lengths: Positions = np.diff(self.starts, append=len(codes))
        lowest = int(numbers.min()) if grid.lowest is None else grid.lowest
        self.rounds: Positions = numbers.astype(np.int64) + (
            0 if grid.first_round is None else grid.first_round - lowest
        )
        self.place: Positions = np.arange(len(codes)) - self.spread(self.starts)
        first = self.rounds[self.starts]
        return bool(((first == 0) | (first == 1)).all() and (self.rounds == self.spread(first) + self.place).all())

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return an item for each row, from one for each question."""
        return np.repeat(values, self.lengths)

    def firsts(self, values: Sequence[Any]) -> list[Any]:
        """Return an item for each question: that of its first row."""
        return [values[start] for start in self.starts]

    def read(self) -> bool:
        """Read every column; return whether the rows of a question agree."""
        grid, columns = self.grid, self.grid.columns
        self.own = {
            name: self._texts(name, columns.get(name))
            for name in ("end", "cluster", "question", "answer", "text", "feedback", "finish_reason")
        }
        if not {end for end in self.own["end"] if end} <= {*END_NAMES}:
            return False
        longest = int(self.lengths.max()) if grid.longest is None else grid.longest
        self.ends = [
            end or end_of(int(length), longest, grid.ended or "rule")
            for end, length in zip(self.firsts(self.own["end"]), self.lengths, strict=True)
        ]
        self.assumed = [
            grid.assumes_end(end, int(length), longest)
            for end, length in zip(self.firsts(self.own["end"]), self.lengths, strict=True)
        ]
        self.labels = {name: self._texts(name, theirs) for name, theirs in grid.labels.items()}
        self.metrics = {
            name: self._numbers(name, theirs)
            for name, theirs in [*((name, columns[name]) for name in columns if name in METRICS), *grid.metrics.items()]
        }
        for name, values in self.metrics.items():
            check_unit(float(np.nanmin(values, initial=0)), name, "")
            check_unit(float(np.nanmax(values, initial=0)), name, "")
        others = [name for name in columns if name not in OWN_COLUMNS and name not in METRICS]
        self.costs = {name: self._numbers(name, columns[name]) for name in others if is_cost(name)}
        self.signals = {name: self._numbers(name, columns[name]) for name in others if not is_cost(name)}
        for name, values in self.signals.items():
            finite = values[np.isfinite(values)]
            for value in (finite.min(initial=math.inf), finite.max(initial=-math.inf)) if len(finite) else ():
                signal_cell(float(value), name, columns[name], "", strict=grid.strict)
        agree = all(
            values == [value for value, n in zip(self.firsts(values), self.lengths, strict=True) for _ in range(n)]
            for values in self.labels.values()
        )
        return agree and self._name_others() and self._read_golds()

    def _name_others(self) -> bool:
        """Name the columns that are kept as they are; return whether all names differ, and no signal is computed from rounds."""
        mapped = {theirs for _, theirs in self.grid.pairs()}
        names = dict.fromkeys(chain.from_iterable(row.values for row in self.rows))
        self.extras = [name for name in names if name not in mapped]
        given = self.signals.keys()
        computed = {name for names, _ in _BY_CELLS.values() for name in names} | {"draft_tokens"}
        absent = {*_MARKED} if not given & {*EQUAL_WEIGHTS, *_MARKED} else set()
        known = given | computed | absent
        taken = {*self.labels, *self.metrics, *given}
        return (
            len(taken) == len(self.labels) + len(self.metrics) + len(given)
            and taken.isdisjoint(self.extras)
            and all(
                name in known or signal.compute is None or signal.fitted or signal.needs & _ABSENT
                for name, signal in SIGNALS.items()
            )
        )

    def _read_golds(self) -> bool:
        """Read the gold answers of each question; return whether its rows agree."""
        name = self.grid.columns.get("golds")
        self.golds: list[tuple[str, ...]] = [()] * len(self.starts)
        if name is None:
            return True
        cells, listed, as_one = self.cells(name), self.grid.listed_golds, self.grid.list_answers
        texts = {value: gold_texts(value, "", listed=listed) for value in {v for v in cells if type(v) is str}}
        by_row = [texts[v] if type(v) is str else gold_texts(v, "", listed=listed, as_one=as_one) for v in cells]
        for q, (start, length) in enumerate(zip(self.starts.tolist(), self.lengths.tolist(), strict=True)):
            different = [*dict.fromkeys(filter(None, by_row[start : start + length]))]
            self.golds[q] = tuple(dict.fromkeys(chain.from_iterable(different)))
            first = {*self.golds[q][:1], *by_row[start]}
            if any(not first & {*golds} for golds in different[1:]):
                return False
        return True

    def tally(self, tally: Tally) -> None:
        """Count the trajectories."""
        tally.add_extras(self.extras)
        tally.add_rounds(self.own["answer"])
        known = {**self.metrics, **self.costs}
        tally.known.update({name: int((~np.isnan(values)).sum()) for name, values in known.items()})
        labels = {name: self.firsts(values) for name, values in self.labels.items()}
        for q, (start, length) in enumerate(zip(self.starts.tolist(), self.lengths.tolist(), strict=True)):
            own = {name: values[q] for name, values in labels.items()}
            answers = self.own["answer"][start : start + length]
            tally.count(int(self.rounds[start]), self.ends[q], own, answers, self.golds[q])

    def join(self, cluster_of: Callable[[str, str], str], golds: GoldAnswers | None) -> None:
        """Name the clusters, and take the gold answers from elsewhere."""
        self.questions: list[str] = [text or "" for text in self.firsts(self.own["question"])]
        if "cluster" in self.grid.columns:
            own = self.firsts(self.own["cluster"])
            self.clusters: list[str] = [cluster or name for cluster, name in zip(own, self.ids, strict=True)]
        else:
            self.clusters = [*map(cluster_of, self.ids, self.questions)]
        self.joined = np.zeros(len(self.starts), dtype=np.bool_)
        self.had_golds = np.array([bool(own) for own in self.golds])
        if golds is not None:
            other = [*map(golds.of, self.ids, self.clusters, self.questions)]
            self.joined = np.array([answers is not None for answers in other])
            self.golds = [old if new is None else new for old, new in zip(self.golds, other, strict=True)]

    def columns(self) -> dict[str, Any]:
        """Return the columns of the recording in their order."""
        by_question = pa.array(np.repeat(np.arange(len(self.starts)), self.lengths))
        columns: dict[str, Any] = {
            "question_id": pa.array(self.ids).take(by_question),
            "round": self.rounds,
            "cluster": pa.array(self.clusters).take(by_question),
            "end": pa.array(self.ends).take(by_question),
            "question": pa.array([text or None for text in self.questions], pa.string()).take(by_question),
            "golds": pa.array([*map(list, self.golds)], pa.list_(pa.string())).take(by_question),
            "answer": self.own["answer"],
            "text": [text or None for text in self.own["text"]],
            "passage_ids": pa.array([[]], pa.list_(pa.string())).take(pa.array(np.zeros(len(self.rows), np.int8))),
            "finish_reason": self.own["finish_reason"],
            "feedback": self.own["feedback"],
        }
        late = {}
        if any(self.assumed):
            assumed = self.spread(np.where(self.assumed, 1.0, math.nan))
            columns = _inserted(columns, "end", ASSUMED_END, assumed)
            late[ASSUMED_END] = int(np.argmax(~np.isnan(assumed)))
        for name, (values, first) in self._metric_columns().items():
            columns[name] = values
            late[name] = first
        columns |= self._signal_columns()
        for name in self.costs:
            component = name.split(".", 2)[1]
            for kind in COST_KINDS:
                cost = cost_column(component, kind)
                columns[cost] = self.costs.get(cost, np.full(len(self.rows), math.nan))
        columns |= self.labels
        for name in self.extras:
            is_ours = name in columns or not (column_kind(name) == "label" or name in REPLY_COLUMNS)
            target = f"imported_{name}" if is_ours else name
            columns[target] = self.cells(name)
            late[target] = next(i for i, row in enumerate(self.rows) if name in row.values)
        return {name: columns[name] for name in sorted(columns, key=lambda name: late.get(name, 0))}

    def _metric_columns(self) -> dict[str, tuple[Floats, int]]:
        """Return each metric and the first row that has it: the table's, or computed where there are gold answers."""
        joined, had = self.spread(self.joined), self.spread(self.had_golds)
        has_golds = self.spread(np.array([bool(own) for own in self.golds]))
        result = {}
        answers, is_known = self.own["answer"], "answer" in self.grid.columns
        golds = [own for own, n in zip(self.golds, self.lengths, strict=True) for _ in range(n)]
        keys = [
            (answer, own if is_known or new else ()) if own else None
            for answer, own, new in zip(answers, golds, joined.tolist(), strict=True)
        ]
        computed = METRICS if has_golds.any() else ()
        scores = _by_key(keys, computed, lambda key: score(*key or (None, ())))
        for name in dict.fromkeys([*computed, *self.metrics] if had[0] else [*self.metrics, *computed]):
            given = self.metrics.get(name)
            if name not in METRICS:
                self.kinds[name] = "metric"
            if name not in computed:
                result[name] = self.metrics[name], 0
                continue
            if given is None:
                result[name] = scores[name], int(np.argmax(has_golds))
            else:
                result[name] = np.where(joined & (had | np.isnan(given)), scores[name], given), 0
        return result

    def _signal_columns(self) -> dict[str, Floats]:
        """Return the given and the computed signals."""
        own, undefined = self.own, np.full(len(self.rows), math.nan)
        pairs = [
            (None, None)
            if not place
            else _SAME
            if answer == previous and (answer or "").strip()
            else (previous, answer)
            for place, previous, answer in zip(self.place.tolist(), [None, *own["answer"]], own["answer"], strict=False)
        ]
        keys: dict[str, list[Any]] = {**own, "pair": pairs}
        computed: dict[str, Floats] = {}
        for cells, (names, rounds_of) in _BY_CELLS.items():
            free = [name for name in names if name not in self.signals]
            computed |= _by_key(keys[cells], free, lambda key: compute_signals(rounds_of(key), free, state={}))  # noqa: B023
        computed["draft_tokens"] = self._draft_tokens()
        columns: dict[str, Floats] = {}
        for name, signal in SIGNALS.items():
            if name in self.signals:
                columns[name] = self._cleaned(name)
            elif signal.compute is not None and not signal.fitted:
                columns[name] = clean_column(name, computed.get(name, undefined), index=self.rounds)
        for name in self.signals:
            if name not in SIGNALS:
                columns[name] = self._cleaned(name)
                self.kinds[name] = "signal"
        return columns

    def _cleaned(self, name: str) -> Floats:
        """Return a signal of the table as the recording has it, and count what changed."""
        before = self.signals[name]
        values = clean_column(name, before, index=self.rounds)
        known, defined = ~np.isnan(before), ~np.isnan(values)
        self.counts[name] = ColumnCount(
            name=name,
            defined=int(defined.sum()),
            nulled=int((known & ~defined).sum()),
            clipped=int((defined & (values != before)).sum()),
        )
        return values

    def _draft_tokens(self) -> Floats:
        writers = [name.split(".", 2)[1] for name in self.costs]
        writer = next((name for name in reversed(WRITERS) if name in writers), "")
        return self.costs.get(cost_column(writer, "output_tokens"), np.full(len(self.rows), math.nan))

    def table(self, columns: Mapping[str, Any], texts: Collection[str]) -> RecordingPart:
        """Return the columns as a table, with what happened to their values."""
        table = table_of_columns(columns, self.kinds, texts)
        for name in table.column_names:
            kind = self.kinds.get(name) or column_kind(name)
            if name in self.counts or not is_counted(name, kind):
                continue
            column = table.column(name)
            defined = len(column) - column.null_count
            if name == "golds":
                defined = int(sum(length for length, own in zip(self.lengths, self.golds, strict=True) if own))
            if defined:
                self.counts[name] = ColumnCount(name=name, defined=defined, computed=kind == "signal")
        return RecordingPart(table=table, counts=[*self.counts.values()])


def _inserted(columns: Mapping[str, Any], before: str, name: str, values: Floats) -> dict[str, Any]:
    """Return columns with another one after the one `before`."""
    names = [*columns]
    names.insert(names.index(before) + 1, name)
    return {own: values if own == name else columns[own] for own in names}


def _by_key(
    keys: Iterable[Hashable], names: Iterable[str], compute: Callable[[Any], Mapping[str, float]]
) -> dict[str, Floats]:
    """Return values for each key, by name, computed once for keys that are equal."""
    if not names:
        return {}
    places: dict[Hashable, int] = {}
    codes = [places.setdefault(key, len(places)) for key in keys]
    values = [compute(key) for key in places]
    return {name: np.array([value[name] for value in values], dtype=np.float64)[codes] for name in names}
