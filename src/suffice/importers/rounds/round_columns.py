"""Rounds of questions in columns: the common form of all importers before rounds are scored and written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.json_text import as_number
from suffice.importers.rounds.trajectories import ImportedTrajectory
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import ABSENT_COSTS, Cost, End, Floats, Mask, Positions, Round
from suffice.policy.signals import SIGNALS
from suffice.recordings.schema import cost_column

_TEXTS = ("answer", "text", "feedback", "finish_reason", "reply_model", "system_fingerprint")
_OBJECTS = tuple(item.name for item in fields(Round) if item.name not in ("index", "signals", "costs", *_TEXTS))
_SIGNAL = "signals."
"""Prefix in `Signal.reads` for a single signal of `Round.signals`."""


@dataclass(slots=True, kw_only=True)
class RoundColumns:
    """Rounds of some questions as columns.

    Columns of rounds have a value for each round, in the order of questions, then of the round's index.  Columns of questions (or
    of their runs) have a value for each question, in the same order.

    Attributes:
        questions: Texts of the questions; "" if unknown.
        golds: Gold answers of each question; empty if unknown.
        ends: The reason why each question has no further round.
        assumed: Mask of the questions whose end reason is assumed, since the source gives none.
        lengths: The number of rounds of each question.
        labels: Texts of each question that all of its rounds share, by name.
        index: The index of each round.
        texts: Texts of each round by field of `Round`; None where missing.
        objects: Other values by field of `Round`, if any round has them: passages, tokens, scores, embeddings.
        metrics: Metrics by name, in [0, 1]; NaN = unknown.
        signals: Measured values by name; NaN = undefined.
        measured: Mask of the rounds in which a signal was measured, by name; without an entry for signals measured in all
        rounds.
        costs: Costs by column of the recording; NaN = unknown.
        called: Mask of the rounds in which a component was called, by name; without an entry for components called in all
        rounds.
        extras: The other columns of the files, by name.
        is_scored: True if the metrics are complete; otherwise missing metrics are computed from gold answers.
        has_answers: True if a missing answer means that the round had none; False if answers are unknown.
    """

    question_ids: list[str]
    clusters: list[str]
    questions: list[str]
    golds: list[tuple[str, ...]]
    ends: list[End]
    assumed: list[bool]
    lengths: Positions
    labels: dict[str, list[Any]]
    index: Positions
    texts: dict[str, list[str | None]]
    objects: dict[str, list[Any]] = field(default_factory=dict)
    metrics: dict[str, Floats]
    signals: dict[str, Floats]
    measured: dict[str, Mask] = field(default_factory=dict)
    costs: dict[str, Floats]
    called: dict[str, Mask] = field(default_factory=dict)
    extras: dict[str, list[Any]]
    is_scored: bool = False
    has_answers: bool = True

    def __len__(self) -> int:
        return len(self.index)

    @property
    def starts(self) -> Positions:
        """The position of each question's first round."""
        ends: Positions = np.cumsum(self.lengths)
        return ends - self.lengths

    @property
    def place(self) -> Positions:
        """The position of each round within its question, from 0."""
        result: Positions = np.arange(len(self)) - self.spread(self.starts)
        return result

    @property
    def kinds(self) -> dict[str, str]:
        """For each signal or metric with a name unknown to this library: "signal" or "metric"."""
        own = {name: "signal" for name in self.signals if name not in SIGNALS}
        return own | {name: "metric" for name in self.metrics if name not in METRICS}

    @property
    def components(self) -> list[str]:
        """The components with costs."""
        return list(dict.fromkeys(name.split(".", 2)[1] for name in self.costs))

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat a value of each question for each of its rounds, as an array."""
        return np.repeat(values, self.lengths)

    def each_round(self, values: Iterable[Any]) -> list[Any]:
        """Repeat a value of each question for each of its rounds, as a list."""
        return [value for value, n in zip(values, self.lengths.tolist(), strict=True) for _ in range(n)]

    def by_question(self) -> Iterable[tuple[int, slice]]:
        """Yield each question's position, and the positions of its rounds."""
        ends = [*accumulate(self.lengths.tolist())]
        return enumerate(map(slice, [0, *ends[:-1]], ends))

    def only(self, mask: Mask) -> RoundColumns:
        """Return only the rounds in a mask.

        The mask must have at least one round of each question.
        """
        places = np.flatnonzero(mask).tolist()

        def listed(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
            return {name: [values[i] for i in places] for name, values in columns.items()}

        def chosen(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
            return {name: values[mask] for name, values in columns.items()}

        lists = {name: listed(getattr(self, name)) for name in ("texts", "objects", "extras")}
        arrays = {name: chosen(getattr(self, name)) for name in ("metrics", "signals", "measured", "costs", "called")}
        lengths = np.add.reduceat(mask.astype(np.int64), self.starts)
        return replace(self, lengths=lengths, index=self.index[mask], **lists, **arrays)  # type: ignore[arg-type]

    def was_measured(self, name: str) -> Mask:
        """Return a mask of the rounds in which a signal was measured."""
        if name not in self.signals:
            return np.zeros(len(self), dtype=np.bool_)
        return self.measured.get(name, np.ones(len(self), dtype=np.bool_))

    def was_called(self, component: str) -> Mask:
        """Return a mask of the rounds in which a component was called."""
        return self.called.get(component, np.ones(len(self), dtype=np.bool_))

    def round_at(self, i: int, reads: AbstractSet[str] = frozenset()) -> Round:
        """Return the round at a position.

        With `reads`, only the fields named in it are set: fields of `Round`, or ``signals.<name>`` for a single signal.
        """
        texts = {name: values[i] for name, values in self.texts.items() if not reads or name in reads}
        if texts.get("text", "") is None:
            texts["text"] = ""
        signals = [name for name in self.signals if not reads or "signals" in reads or f"{_SIGNAL}{name}" in reads]
        components = self.components if not reads or "costs" in reads else []
        return Round(
            index=int(self.index[i]),
            **texts,  # type: ignore[arg-type]
            **{name: values[i] for name, values in self.objects.items() if not reads or name in reads},
            signals={name: float(self.signals[name][i]) for name in signals if _has(self.measured, name, i)},
            costs={name: self._cost(name, i) for name in components if _has(self.called, name, i)},
        )

    def _cost(self, component: str, i: int) -> Cost:
        known = {kind: self.costs.get(cost_column(component, kind)) for kind in ABSENT_COSTS}
        return Cost(
            **{kind: ABSENT_COSTS[kind] if values is None else float(values[i]) for kind, values in known.items()}
        )

    def codes(self, reads: Iterable[str], lookback: int) -> Positions:
        """Number the rounds so that two rounds have the same number if and only if they and their previous rounds are equal.

        Args:
            reads: The fields of `Round` that are compared, or ``signals.<name>`` for a single signal.
            lookback: The number of previous rounds that are compared.
        """
        own = [codes for name in sorted(reads) if (codes := self._field_codes(name)) is not None]
        place = self.place
        result: Positions = np.minimum(place, lookback)
        for back in range(min(lookback, int(place.max(initial=0))) + 1):
            for codes in own:
                earlier = np.where(place >= back, np.roll(codes, back), 0)
                result = np.unique(result * (int(earlier.max()) + 1) + earlier, return_inverse=True)[1].reshape(-1)
        return result

    def _field_codes(self, name: str) -> Positions | None:
        """Number the distinct values of a field, and return each round's number; None if no round has a value."""
        if name == "costs":
            return self._number_codes([*self.costs.values(), *self.called.values()])
        if name == "signals":
            return self._number_codes([*self.signals.values(), *self.measured.values()])
        if name.startswith(_SIGNAL):
            signal = name.removeprefix(_SIGNAL)
            return self._number_codes(
                [columns[signal] for columns in (self.signals, self.measured) if signal in columns]
            )
        values: Iterable[Any] = self.texts.get(name, ())
        if name in self.objects:
            values = map(
                id, self.objects[name]
            )  # tokens and vectors cannot be compared, so each is distinct; all missing ones are equal
        elif name not in self.texts:
            return None
        places: dict[Any, int] = {}
        return np.array([places.setdefault(value, len(places)) for value in values], dtype=np.int64)

    @staticmethod
    def _number_codes(columns: Sequence[npt.NDArray[Any]]) -> Positions | None:
        result: Positions | None = None
        for values in columns:
            codes = np.unique(values, return_inverse=True)[1].reshape(-1)  # treats all NaN as one value
            if result is not None:
                codes = np.unique(result * (int(codes.max()) + 1) + codes, return_inverse=True)[1].reshape(-1)
            result = codes
        return result


def _has(masks: Mapping[str, Mask], name: str, i: int) -> bool:
    return name not in masks or bool(masks[name][i])


def columns_of(trajectories: Sequence[ImportedTrajectory]) -> RoundColumns:
    """Return trajectories as columns."""
    rounds = [item for trajectory in trajectories for item in trajectory.rounds]
    signals, measured = _numbers([item.signals for item in rounds])
    called = {name: np.array([name in item.costs for item in rounds]) for item in rounds for name in item.costs}
    costs = {
        cost_column(name, kind): np.array(
            [getattr(r.costs[name], kind) if name in r.costs else math.nan for r in rounds]
        )
        for name in called
        for kind in dict.fromkeys(kind for r in rounds if name in r.costs for kind in r.costs[name].kinds)
    }
    metrics = [own for trajectory in trajectories for own in trajectory.metrics]
    extras = [own for item in trajectories for own in item.extras or ({},) * len(item.rounds)]
    labels = dict.fromkeys(name for item in trajectories for name in item.labels)
    texts = {name: [getattr(item, name) for item in rounds] for name in _TEXTS}
    objects = {name: [getattr(item, name) for item in rounds] for name in _OBJECTS}
    return RoundColumns(
        question_ids=[item.question_id for item in trajectories],
        clusters=[item.cluster for item in trajectories],
        questions=[item.question for item in trajectories],
        golds=[tuple(item.golds) for item in trajectories],
        ends=[item.end for item in trajectories],
        assumed=[item.end_assumed for item in trajectories],
        lengths=np.array([len(item.rounds) for item in trajectories], dtype=np.int64),
        labels={name: [item.labels.get(name) for item in trajectories] for name in labels},
        index=np.array([item.index for item in rounds], dtype=np.int64),
        texts=texts,
        objects={
            name: values
            for name, values in objects.items()
            if any(value is not None and len(value) for value in values)
        },
        metrics=_numbers(metrics)[0],
        signals=signals,
        measured={name: mask for name, mask in measured.items() if not mask.all()},
        costs=costs,
        called={name: mask for name, mask in called.items() if not mask.all()},
        extras={name: [own.get(name) for own in extras] for name in dict.fromkeys(chain.from_iterable(extras))},
        is_scored=True,
    )


def _numbers(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Floats], dict[str, Mask]]:
    """Return two mappings by name: arrays of the values, NaN in rows that lack the value, and masks of the rows that have it."""
    names = dict.fromkeys(chain.from_iterable(rows))
    values = {name: np.array([as_number(row.get(name)) for row in rows], dtype=np.float64) for name in names}
    return values, {name: np.array([name in row for row in rows], dtype=np.bool_) for name in names}


def trajectories_of(columns: RoundColumns) -> list[ImportedTrajectory]:
    """Return columns as trajectories."""
    rounds = [*map(columns.round_at, range(len(columns)))]

    def rows(named: Mapping[str, Any], own: slice, convert: Callable[[Any], Any]) -> tuple[dict[str, Any], ...]:
        return tuple({name: convert(values[i]) for name, values in named.items()} for i in range(own.start, own.stop))

    return [
        ImportedTrajectory(
            question_id=columns.question_ids[q],
            cluster=columns.clusters[q],
            question=columns.questions[q],
            golds=columns.golds[q],
            rounds=tuple(rounds[own]),
            end=columns.ends[q],
            end_assumed=columns.assumed[q],
            metrics=rows(columns.metrics, own, float),
            extras=rows(columns.extras, own, lambda value: value),
            labels={name: values[q] for name, values in columns.labels.items()},
        )
        for q, own in columns.by_question()
    ]
