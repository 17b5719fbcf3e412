"""Trajectories recorded elsewhere, converted to this library's terms by importers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from suffice.common.results import NOT_IN_JSON, UNLESS_EMPTY
from suffice.common.tables import cut_list
from suffice.errors import DataError
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import Cost, End, Round


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrajectory:
    """All recorded rounds of one question by one system.

    Attributes:
        question_id: An id, unique within the run.
        cluster: The id of the question, which is the unit of resampling; it differs from `question_id` if the run has several
        trajectories (agents, logs) of a question.
        question: The question's text; "" if unknown.
        golds: Gold answers; empty if unknown.
        rounds: The rounds by index, from 0 or 1, without gaps.  The answer of a round is None if it is unknown.
        end: The reason why there is no further round; `rule` means censored.
        end_assumed: True if the source gives no reason, so that `rule` is assumed and rounds may be missing.
        metrics: One mapping for each round, from `em`, `f1` and others to [0, 1]; NaN if the answer is unknown.  If
            omitted, every metric is computed from answers and gold answers.
        extras: One mapping for each round, with the other columns of the files.
        labels: Texts that all rounds share: system, data set, agent, log, question type, ...

    Raises:
        DataError: The rounds have a gap, there is not one mapping of `metrics` or `extras` for each round, the end is unknown, or a metric is
            not in [0, 1].
    """

    question_id: str
    cluster: str
    rounds: tuple[Round, ...]
    end: End
    metrics: tuple[Mapping[str, float], ...] = ()
    question: str = ""
    golds: tuple[str, ...] = ()
    extras: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    end_assumed: bool = False

    def __post_init__(self) -> None:
        indices = [item.index for item in self.rounds]
        if not indices or indices[0] not in (0, 1) or indices != [*range(indices[0], indices[0] + len(indices))]:
            raise DataError(
                f"question {self.question_id!r:.80} has the rounds {cut_list(map(str, indices))}; expected 0, 1, 2, ... or 1, 2, ... without gaps "
                "or copies"
            )
        if isinstance(self.golds, str):
            raise DataError(
                f"question {self.question_id!r} has the gold answers {self.golds!r:.80}; expected a tuple of texts: ({self.golds!r:.80},)"
            )
        if not self.metrics:
            object.__setattr__(self, "metrics", tuple(score(item.answer, self.golds) for item in self.rounds))
        if len(self.metrics) != len(indices) or len(self.extras) not in (0, len(indices)):
            raise DataError(
                f"question {self.question_id!r:.80} has {len(indices)} rounds, {len(self.metrics)} metrics and "
                f"{len(self.extras)} extras; expected one of each for each round"
            )
        if self.end not in get_args(End):
            raise DataError(
                f"question {self.question_id!r:.80} has the end {self.end!r:.80}; expected one of {', '.join(get_args(End))}"
            )
        for index, metrics in zip(indices, self.metrics, strict=True):
            for name, value in metrics.items():
                if not 0 <= value <= 1:
                    check_unit(value, name, f"question {self.question_id!r:.80}, round {index}")

    @property
    def metrics_known(self) -> tuple[bool, ...]:
        """For each round, True if at least one metric is known."""
        return tuple(any(not math.isnan(value) for value in metrics.values()) for metrics in self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReading:
    """The meaning given to one column of a file.

    Attributes:
        ours: The name of the recording's column.
        theirs: The file's column or field, or a description of how the column was computed.
        how: The reason: `option`, `its own name`, `usual name`, ...
        sources: The file's columns from which it was computed, if `theirs` describes a computation.
        column: The column's name in options, if `theirs` is a description.
    """

    ours: str
    theirs: str
    how: str
    sources: tuple[str, ...] = field(default=(), metadata=UNLESS_EMPTY)
    column: str = field(default="", metadata=NOT_IN_JSON)

    @property
    def named(self) -> str:
        """The column's name in options; the description for a column that was computed from others."""
        return self.column if self.column and not self.sources else self.theirs

    @property
    def is_guess(self) -> bool:
        """True if the meaning was decided neither by an option nor by a column name of this library."""
        return self.how not in ("option", "its own name")


def score(answer: str | None, golds: Sequence[str]) -> dict[str, float]:
    """Compute every metric of a known answer; NaN without gold answers."""
    return {name: metric(answer, golds) if golds else math.nan for name, metric in METRICS.items()}


def unknown_metrics() -> dict[str, float]:
    """Return every metric as NaN, for a round whose answer is unknown."""
    return dict.fromkeys(METRICS, math.nan)


def one_call() -> Cost:
    """Return the cost of one call whose tokens and seconds are unknown."""
    return Cost(calls=1, uncached_tokens=math.nan, cached_tokens=math.nan, output_tokens=math.nan, seconds=math.nan)


def check_unit(value: float, name: str, where: str) -> float:
    """Return a metric if it is in [0, 1] or NaN; raise a `DataError` otherwise."""
    if not (math.isnan(value) or 0 <= value <= 1):
        raise DataError(f"{where}: {name} is {value!r:.80}; a metric lies in [0, 1], or is empty where unknown")
    return value


def end_of(n_rounds: int, longest: int, shorter: End) -> End:
    """Return the end reason of a trajectory: `max_rounds` if it is as long as the longest one, else `shorter`."""
    return "max_rounds" if n_rounds == longest else shorter


UNSAID = "and lost rows would look the same"
"""What the note on ends that the log does not give says of them."""


def unsaid_ends(n: int, total: int, what: str, longest: int, why: str = "The log does not say so") -> str:
    """Return the note on trajectories that end before the longest one, without a reason in the log.

    Args:
        n: Number of these trajectories.
        total: The number of all trajectories.
        what: The word for trajectories in the note.
        longest: The number of rounds of the longest trajectory.
        why: A sentence on what the log says about the reason.
    """
    return (
        f"{n} of {total} {what} have fewer than {longest} rounds: read as the loop's own stops, with what "
        f"comes later unknown. {why}, {UNSAID}: --ended rule "
        "confirms it, --ended exhausted or --ended max_rounds gives another reason; until then `suffice decide` assumes the worst of their "
        "missing rounds"
    )
