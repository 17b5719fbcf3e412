"""Turn rounds into a recording's table: join gold answers, compute metrics and signals, and order the columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.importers.answers.golds import GoldAnswers
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.rounds.summary import ColumnCount, is_counted
from suffice.importers.rounds.trajectories import score
from suffice.importers.words.names import OUTCOME_NAMES, plain_name
from suffice.policy.embedding import Embedder
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import COST_KINDS, WRITTEN_KINDS, Floats, Mask
from suffice.policy.signals import LOOP_COMPONENTS, SIGNALS, Signal, clean_column
from suffice.recordings.schema import (
    ASSUMED_END,
    EMBEDDING,
    REPLY_COLUMNS,
    column_kind,
    cost_column,
    table_of_columns,
)

_FIRST = (
    *("question_id", "round", "cluster", "end", ASSUMED_END, "question", "golds"),
    *("answer", "text", "passage_ids", "finish_reason", "feedback", *REPLY_COLUMNS, EMBEDDING),
)
"""The columns of a recording that come before its numbers."""

_KINDS = ("metric", "signal", "cost")
_REMEMBERED = 10_000
"""Rounds that are kept for the signals that read the same fields of them, and for the next round."""


def join_golds(columns: RoundColumns, answers: GoldAnswers) -> None:
    """Replace gold answers by those of another file, and recompute the metrics of the questions that the file contains.

    If a question had no gold answers before, the metrics that the source recorded for the question are kept.
    """
    answers.find([*columns.question_ids, *columns.clusters], columns.questions)
    other = [*map(answers.of, columns.question_ids, columns.clusters, columns.questions)]
    joined = columns.spread(np.array([new is not None for new in other]))
    had = columns.spread(np.array([bool(own) for own in columns.golds]))
    columns.golds = [old if new is None else new for old, new in zip(columns.golds, other, strict=True)]
    if not joined.any():
        return
    scores = _scores(columns)
    for name in scores:
        given = columns.metrics.get(name)
        if given is not None:
            scores[name] = np.where(joined & (had | np.isnan(given)), scores[name], given)
        elif columns.is_scored:
            scores[name] = np.where(joined, scores[name], math.nan)
    columns.metrics = {**scores, **{name: own for name, own in columns.metrics.items() if name not in scores}}


def score_rounds(columns: RoundColumns) -> None:
    """Compute from gold answers the metrics that the source lacks.

    Without a column of answers, these metrics are unknown (NaN).
    """
    if not columns.is_scored and any(columns.golds):
        columns.metrics = {**_scores(columns), **columns.metrics}
    columns.is_scored = True


def _scores(columns: RoundColumns) -> dict[str, Floats]:
    """Compute all metrics of each round, comparing each distinct pair of answer and gold answers once."""
    known = columns.golds if columns.has_answers else [()] * len(columns.golds)
    places: dict[Any, int] = {}
    pairs = zip(columns.texts["answer"], columns.each_round(known), strict=True)
    codes = [places.setdefault(pair if pair[1] else (None, ()), len(places)) for pair in pairs]
    values = [score(answer, own) for answer, own in places]
    return {name: np.array([value[name] for value in values], dtype=np.float64)[codes] for name in METRICS}


def embed_answers(columns: RoundColumns, embedder: Embedder) -> None:
    """Add embeddings of the answers to rounds, for `semantic_distance`."""
    answers = columns.texts["answer"]
    texts = list(dict.fromkeys(filter(None, answers)))
    if texts:
        vectors = dict(zip(texts, embedder.embed(texts), strict=True))
        columns.objects[EMBEDDING] = [vectors.get(answer or "") for answer in answers]


def recording_part(
    columns: RoundColumns, texts: Collection[str] = (), *, computes: bool = True
) -> tuple[pa.Table, list[ColumnCount]]:
    """Build a recording's table from scored rounds, and count removed, clipped and computed values.

    Args:
        columns: The rounds.
        texts: Columns of the source to store as text even if all values here are numbers, since other parts contain text.
        computes: Whether to compute the signals that were not measured.
    """
    score_rounds(columns)
    seen = _Seen(columns)
    names = _signal_names(columns) if computes else columns.signals
    signals = {name: _signal_column(columns, name, seen) for name in names}
    named: dict[str, Any] = {**_said(columns), **columns.metrics, **signals, **_costs(columns)}
    named |= {
        name if name not in named else f"imported_{name}": columns.each_round(values)
        for name, values in columns.labels.items()
    }
    renamed = {}
    for name, values in columns.extras.items():
        # A column of the source must not be mistaken for one of this library.
        is_ours = name in named or not (column_kind(name) == "label" or name in REPLY_COLUMNS)
        renamed[f"imported_{name}" if is_ours else name] = _comparable(name, values)
    named |= renamed
    kinds = columns.kinds
    ordered = {name: named[name] for name in ordered_names(named, kinds)}
    both = {name for own in texts for name in (own, f"imported_{own}")}
    table = table_of_columns(ordered, kinds, both)
    return table, _counts(columns, table, kinds)


def _comparable(name: str, values: list[Any]) -> list[Any]:
    """Convert a column of truth values to 1 and 0, so that rules can compare them.

    Columns named like outcomes, such as `success`, stay as they are, since no rule reads outcomes.
    """
    is_boolean = plain_name(name.rpartition(".")[2]) not in OUTCOME_NAMES and {bool} <= set(map(type, values)) <= {
        bool,
        type(None),
    }
    return [None if value is None else float(value) for value in values] if is_boolean else values


def ordered_names(names: Collection[str], kinds: Mapping[str, str]) -> list[str]:
    """Sort a recording's columns: texts and other facts come first, then metrics, then signals, then costs, then all others."""
    known = dict.fromkeys((*_FIRST, *METRICS, *SIGNALS))  # `round` is a signal, too, but comes first
    first = dict(zip(known, range(len(known)), strict=True))

    def place(name: str) -> tuple[int, int]:
        kind = kinds.get(name) or column_kind(name)
        group = 0 if name in _FIRST else 1 + _KINDS.index(kind) if kind in _KINDS else 1 + len(_KINDS)
        return group, first.get(name, len(first))

    return sorted(names, key=place)


def _said(columns: RoundColumns) -> dict[str, Any]:
    """Return the columns of texts and other facts, including the values that all rounds of a question share."""
    texts = columns.texts
    named: dict[str, Any] = {
        "question_id": columns.each_round(columns.question_ids),
        "round": columns.index,
        "cluster": columns.each_round(columns.clusters),
        "end": columns.each_round(columns.ends),
        "question": columns.each_round([text or None for text in columns.questions]),
        "golds": columns.each_round([*map(list, columns.golds)]),
    }
    if any(columns.assumed):
        named[ASSUMED_END] = columns.spread(np.where(columns.assumed, 1.0, math.nan))
    named["answer"] = texts["answer"]
    named["text"] = [text or None for text in texts["text"]]
    passages = columns.objects.get("passages", [()] * len(columns))
    named["passage_ids"] = [[passage.passage_id for passage in own] for own in passages]
    named |= {name: texts[name] for name in ("finish_reason", "feedback")}
    named |= {name: texts[name] for name in REPLY_COLUMNS if any(text is not None for text in texts.get(name, ()))}
    if EMBEDDING in columns.objects:
        named[EMBEDDING] = [None if own is None else own.tolist() for own in columns.objects[EMBEDDING]]
    return named


def _costs(columns: RoundColumns) -> dict[str, Floats]:
    """Return the cost columns.

    If the calls of a round are known, a component that was not called in this round costs 0.
    """
    undefined = np.full(len(columns), math.nan)
    calls = [columns.costs.get(cost_column(name, "calls"), undefined) for name in LOOP_COMPONENTS]
    counted = ~np.isnan(calls).all(axis=0)
    result = {}
    for component in columns.components:
        called = columns.was_called(component)
        written = [kind for kind in WRITTEN_KINDS if cost_column(component, kind) in columns.costs]
        for kind in (*COST_KINDS, *written):
            name = cost_column(component, kind)
            values = columns.costs.get(name, undefined)
            result[name] = values if called.all() else np.where(~called & counted, 0.0, values)
    return result


def _signal_names(columns: RoundColumns) -> list[str]:
    """Return the signals that are measured or can be computed."""
    known = [
        name
        for name, signal in SIGNALS.items()
        if name in columns.signals
        or (
            _is_computed(signal) and not signal.on_demand and "thinking" not in signal.needs
        )  # no log has the model's thoughts by round
    ]
    return known + [name for name in columns.signals if name not in SIGNALS]


def _is_computed(signal: Signal) -> bool:
    return signal.compute is not None and not signal.fitted


class _Seen:
    """Facts about rounds that several signals need, computed once, since most signals read the same fields as another."""

    def __init__(self, columns: RoundColumns) -> None:
        self.place = columns.place
        self.longest = int(self.place.max(initial=0))
        self.round_at = lru_cache(_REMEMBERED)(columns.round_at)
        self.codes = cache(columns.codes)


def _signal_column(columns: RoundColumns, name: str, seen: _Seen) -> Floats:
    """Return a signal's values: measured where possible, else computed.  Values outside the signal's range are clipped."""
    signal, measured = SIGNALS.get(name), columns.was_measured(name)
    values = columns.signals.get(name, np.full(len(columns), math.nan))
    if signal is not None and _is_computed(signal) and not measured.all():
        values = np.where(measured, values, _computed(columns, signal, ~measured, seen))
    return clean_column(name, values, index=columns.index)


def _exists(columns: RoundColumns, signal: Signal) -> Mask:
    """Return a mask of the rounds in which a signal may be defined."""
    last = math.inf if signal.last_round is None else signal.last_round
    result: Mask = (columns.index >= signal.first_round) & (columns.index <= last)
    return result


def _computed(columns: RoundColumns, signal: Signal, wanted: Mask, seen: _Seen) -> Floats:
    """Compute a signal in the wanted rounds; rounds with equal inputs share one computation."""
    place, result = seen.place, np.full(len(columns), math.nan)
    rows = np.flatnonzero(wanted & _exists(columns, signal))
    codes = seen.codes(signal.reads, min(signal.lookback, seen.longest))[rows] if signal.reads else np.arange(len(rows))
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    values: list[float] = []
    for i in rows[first].tolist():
        back = min(signal.lookback, int(place[i])) if signal.reads else int(place[i])
        rounds = [seen.round_at(j, signal.reads) for j in range(i - back, i + 1)]
        values.append(math.nan if signal.compute is None else signal.clean(signal.compute(rounds)))
    result[rows] = np.array(values, dtype=np.float64)[inverse.reshape(-1)]
    return result


def _counts(columns: RoundColumns, table: pa.Table, kinds: Mapping[str, str]) -> list[ColumnCount]:
    """Count the defined, removed, clipped and computed values of each column for the summary."""
    counts = []
    for name in table.column_names:
        kind = kinds.get(name) or column_kind(name)
        if not is_counted(name, kind):
            continue
        column = table.column(name)
        defined = len(column) - column.null_count
        if name == "golds":
            defined = int(columns.lengths[np.array([bool(own) for own in columns.golds])].sum())
        if name in columns.signals:
            before, after = columns.signals[name], column.to_numpy()
            known = columns.was_measured(name) & ~np.isnan(before)
            nulled = int((known & np.isnan(after)).sum())
            clipped = int((known & ~np.isnan(after) & (after != before)).sum())
            counts.append(ColumnCount(name=name, defined=defined, nulled=nulled, clipped=clipped))
        elif defined:
            counts.append(ColumnCount(name=name, defined=defined, computed=kind == "signal"))
    return counts
