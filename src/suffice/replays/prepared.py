"""A recording with all that its policies share: questions, metrics, costs and the columns that they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.replays.charging import LIVE, Charging, charging_of
from suffice.replays.costs import CostTable
from suffice.replays.outcomes import outcome
from suffice.replays.prices import Price
from suffice.rounds import Floats, Mask, Rounds
from suffice.session import Policy
from suffice.statistics import Draws, Resampling
from suffice.store.recording import Recording

__all__ = ["PreparedRecording", "drop_failed"]

Positions = npt.NDArray[np.int64]


def drop_failed(recording: Recording) -> tuple[Recording, int]:
    """Return the recording without the questions that failed while it was made, and how many those were.

    Raises:
        DataError: All failed.
    """
    failed = np.asarray(recording.ends == "failed", dtype=np.bool_)
    if failed.all():
        raise DataError(f"all {len(failed)} recorded questions failed: run `suffice record` again to complete them")
    return (recording.select(~failed), int(failed.sum())) if failed.any() else (recording, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedRecording:
    """A recording, computed once for all policies that are replayed on it.

    Attributes:
        recording: Recorded rounds without failed questions.
        metrics: Metrics at every round, by name, shape ``(n_questions, n_rounds)``.
        costs: The recorded costs.
        raw: The columns that the policies read.
        charging: Which calls a policy pays for.
        n_failed: Questions left out because their recording failed.
    """

    recording: Recording
    metrics: Mapping[str, Floats]
    costs: CostTable
    raw: Rounds
    charging: Charging = LIVE
    n_failed: int = 0

    @classmethod
    def of(
        cls,
        recording: Recording,
        policies: Iterable[Policy] = (),
        metrics: Iterable[str] = (),
        *,
        columns: Iterable[str] = (),
        prices: Price | Mapping[str, Price] | None = None,
        ledger: str = LIVE.name,
    ) -> PreparedRecording:
        """Prepare a recording.

        Args:
            recording: Recorded rounds; failed questions are left out.
            policies: What reads them.
            metrics: See `outcome`.
            columns: Columns to load besides those that the policies read.
            prices: For all language models, or by component; None = money is NaN.
            ledger: Which calls a policy pays for, see `suffice.replays.charging`.

        Raises:
            DataError: All questions failed, a metric is missing, or an unknown ledger.
        """
        kept, n_failed = drop_failed(recording)
        names = {*columns, *(column for policy in policies for column in policy.raw_columns)}
        return cls(
            recording=kept,
            metrics={name: outcome(kept, name) for name in metrics},
            costs=CostTable(kept, prices),
            raw=kept.rounds(sorted(names)),
            charging=charging_of(ledger),
            n_failed=n_failed,
        )

    def with_columns(self, columns: Mapping[str, Floats]) -> PreparedRecording:
        """Return the same recording with further columns for policies to read, shape ``(n_questions, n_rounds)``."""
        raw = self.raw
        return replace(self, raw=Rounds({**raw.columns, **columns}, raw.index, raw.seen, raw.answers))

    def draws(self, resampling: Resampling) -> Draws:
        """Return the draws of its questions, or of their clusters."""
        return resampling.draws(self.n, self.recording.clusters)

    @property
    def n(self) -> int:
        """Questions."""
        return len(self.recording.question_ids)

    @property
    def components(self) -> Mapping[str, str]:
        """Whose call produces a signal, for signals that the library does not know."""
        return self.recording.metadata.get("signal_components") or {}

    @property
    def highest(self) -> int:
        """The highest recorded round."""
        return int(self.recording.index[-1])

    @cached_property
    def cut(self) -> Mask:
        """Which questions a rule ended before the recording's highest round, shape ``(n_questions,)``."""
        return np.asarray((self.recording.ends == "rule") & ~self.recording.seen[:, -1], dtype=np.bool_)

    def in_view(self, metric: Floats, view: Rounds) -> Floats:
        """Return the part of a metric that belongs to the rounds of a view."""
        offset = int(view.index[0] - self.recording.index[0])
        return metric[:, offset : offset + len(view)]

    def values(self, view: Rounds, stop: Positions, answer: Positions) -> dict[str, Floats]:
        """Return the metrics of the answers returned by stops at `stop`; see `values_by_stop`."""
        position = np.where(answer >= 0, answer, stop)
        rows = np.arange(len(position))
        return {
            name: np.where(position >= 0, self.in_view(metric, view)[rows, np.maximum(position, 0)], 0.0)
            for name, metric in self.metrics.items()
        }
