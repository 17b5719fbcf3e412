"""The result of every importer: trajectories recorded elsewhere, in the terms of this library."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from suffice.common.json_text import number_or_none
from suffice.errors import DataError
from suffice.loops.rows import cost_names, fill_costs, measured_columns, said_columns
from suffice.policy.embedding.base import Embedder, identity
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import Cost, End, Round
from suffice.policy.signals import EMBEDDER, SIGNALS
from suffice.recordings.schema import ASSUMED_END, REPLY_COLUMNS, column_kind

__all__ = [
    "ColumnReading",
    "ImportedRun",
    "ImportedTrajectory",
    "check_unit",
    "end_of",
    "one_call",
    "score",
    "unknown_metrics",
    "with_embeddings",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrajectory:
    """All recorded rounds of one question by one system.

    Attributes:
        question_id: Unique within the run.
        cluster: The question itself, where the run holds several trajectories of it (agents, logs): what resampling
            draws.  Equal to `question_id` otherwise.
        question: The question's text; "" if unknown.
        golds: Gold answers; empty if unknown.
        rounds: In order of their index, from 0 or 1, without gaps.  The answer of a round
            is None if it is unknown.
        end: Why there is no further round; `rule` means censored.
        end_assumed: Whether nothing says why, so that `rule` is assumed and rounds may be missing.
        metrics: One mapping for each round, `em`, `f1` and others to [0, 1]; NaN where the answer is unknown.
        extras: One mapping for each round: the other columns of the files.
        labels: The same for all rounds: system, data set, agent, log, question type, ...

    Raises:
        DataError: The rounds have a gap, or the other sequences another length.
    """

    question_id: str
    cluster: str
    rounds: tuple[Round, ...]
    end: End
    metrics: tuple[Mapping[str, float], ...]
    question: str = ""
    golds: tuple[str, ...] = ()
    extras: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    end_assumed: bool = False

    def __post_init__(self) -> None:
        indices = [item.index for item in self.rounds]
        if not indices or indices[0] not in (0, 1) or indices != [*range(indices[0], indices[0] + len(indices))]:
            raise DataError(
                f"question {self.question_id!r} has the rounds {indices}; expected 0, 1, 2, ... or 1, 2, ... without gaps "
                "or copies"
            )
        if len(self.metrics) != len(indices) or len(self.extras) not in (0, len(indices)):
            raise DataError(
                f"question {self.question_id!r} has {len(indices)} rounds, {len(self.metrics)} metrics and "
                f"{len(self.extras)} extras; expected one of each for each round"
            )

    @property
    def metrics_known(self) -> tuple[bool, ...]:
        """For each round, whether at least one metric is known."""
        return tuple(any(not math.isnan(value) for value in metrics.values()) for metrics in self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReading:
    """What one column of a file was read as.

    Attributes:
        ours: The column here.
        theirs: The file's column or field, or what it was made from.
        how: Why: `option`, `its own name`, `usual name`, ...
    """

    ours: str
    theirs: str
    how: str

    @property
    def is_guess(self) -> bool:
        """Whether neither the user nor a name of ours says so."""
        return self.how not in ("option", "its own name")


@dataclass(slots=True, kw_only=True)
class ImportedRun:
    """A recorded run.

    Attributes:
        source: The format it came in: `tasr`, `tabular`, `ircot`, `debate`, `reflexion` or `self_refine`.
        trajectories: In the order of the files.
        notes: Caveats for results: what was cut, left out, repaired, or is unknown.
        depends: What the signals depend on (`embedder`: id, revision and pooling), which policies pin.
        readings: What the columns of the files were read as, where that was guessed or said.
    """

    source: str
    trajectories: list[ImportedTrajectory]
    notes: list[str] = field(default_factory=list)
    readings: list[ColumnReading] = field(default_factory=list)
    depends: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids: set[str] = set()
        for trajectory in self.trajectories:
            if trajectory.question_id in ids:
                raise DataError(
                    f"question id {trajectory.question_id!r} occurs twice in this {self.source} run; each trajectory needs "
                    "its own"
                )
            ids.add(trajectory.question_id)

    @property
    def ends(self) -> Mapping[str, int]:
        """How many trajectories ended how."""
        return Counter(item.end for item in self.trajectories)

    def texts(self, name: Literal["answer", "golds"]) -> list[str]:
        """Return the distinct answers, or gold answers, in order; blank ones left out."""
        if name == "golds":
            texts: Iterable[str | None] = (gold for item in self.trajectories for gold in item.golds)
        else:
            texts = (row.answer for item in self.trajectories for row in item.rounds)
        return [text for text in dict.fromkeys(texts) if text and text.strip()]

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping for each question and round, ready for `suffice.recordings.write_recording`.

        Signals that follow from the answers (`answer_stable`, ...) are computed where the files lack them.
        """
        rows = [row for trajectory in self.trajectories for row in _trajectory_rows(trajectory)]
        fill_costs(rows, cost_names(rows))
        return rows

    def kinds(self) -> dict[str, str]:
        """Return the kind of each column whose name does not say it, for `suffice.recordings.write_recording`."""
        kinds: dict[str, str] = {}
        for trajectory in self.trajectories:
            kinds |= {name: "signal" for item in trajectory.rounds for name in item.signals if name not in SIGNALS}
            kinds |= {name: "metric" for metrics in trajectory.metrics for name in metrics if name not in METRICS}
        return kinds


def with_embeddings(run: ImportedRun, embedder: Embedder) -> ImportedRun:
    """Return the run with its answers embedded, for `semantic_distance`, and the embedder among what it depends on.

    Raises:
        ModelError: The embedder failed.
    """
    texts = list(dict.fromkeys(r.answer for item in run.trajectories for r in item.rounds if r.answer))
    vectors = dict(zip(texts, embedder.embed(texts), strict=True)) if texts else {}
    trajectories = [
        replace(item, rounds=tuple(replace(r, embedding=vectors.get(r.answer or "")) for r in item.rounds))
        for item in run.trajectories
    ]
    return replace(run, trajectories=trajectories, depends={**run.depends, EMBEDDER: identity(embedder)})


def _trajectory_rows(trajectory: ImportedTrajectory) -> Iterable[dict[str, Any]]:
    for i, item in enumerate(trajectory.rounds):
        row: dict[str, Any] = {
            "question_id": trajectory.question_id,
            "round": item.index,
            "cluster": trajectory.cluster,
            "end": trajectory.end,
            **({ASSUMED_END: 1.0} if trajectory.end_assumed else {}),
            "question": trajectory.question or None,
            "golds": list(trajectory.golds),
            **said_columns(item),
            "text": item.text or None,
            **{name: number_or_none(value) for name, value in trajectory.metrics[i].items()},
            **measured_columns(trajectory.rounds[: i + 1], {}),
        }
        extras = trajectory.extras[i] if trajectory.extras else {}
        for name, value in {**trajectory.labels, **extras}.items():
            # A foreign column must not be mistaken for one of this library; an importer knows the meaning of its labels.
            is_ours = name in row or not (column_kind(name) == "label" or name in {*trajectory.labels, *REPLY_COLUMNS})
            row[f"imported_{name}" if is_ours else name] = value
        yield row


def score(answer: str | None, golds: Sequence[str]) -> dict[str, float]:
    """Return every metric of an answer that is known; NaN without gold answers."""
    return {name: metric(answer, golds) if golds else math.nan for name, metric in METRICS.items()}


def unknown_metrics() -> dict[str, float]:
    """Return every metric as NaN, for a round whose answer is unknown."""
    return dict.fromkeys(METRICS, math.nan)


def one_call() -> Cost:
    """Return the cost of one call whose tokens and seconds are unknown."""
    return Cost(calls=1, uncached_tokens=math.nan, cached_tokens=math.nan, output_tokens=math.nan, seconds=math.nan)


def check_unit(value: float, name: str, where: str) -> float:
    """Return a metric that lies in [0, 1] or is NaN.

    Raises:
        DataError: It does not.
    """
    if not (math.isnan(value) or 0 <= value <= 1):
        raise DataError(f"{where}: {name} is {value!r}; a metric lies in [0, 1], or is empty where unknown")
    return value


def end_of(n_rounds: int, longest: int, shorter: End) -> End:
    """Return `max_rounds` for a trajectory as long as the longest, `shorter` for another."""
    return "max_rounds" if n_rounds == longest else shorter
