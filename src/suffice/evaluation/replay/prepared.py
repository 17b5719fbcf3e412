"""A recording prepared for replay: metrics, costs and columns that all policies share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.replay.charging import LIVE, Charging, charging_of
from suffice.evaluation.replay.costs import CostTable
from suffice.evaluation.replay.outcomes import outcome
from suffice.evaluation.replay.prices import Price
from suffice.policy.normalizers import ANSWER_ID, NORMALIZERS, Grouping
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules import Selector
from suffice.policy.session import Policy, Stops, stops
from suffice.recordings.recording import Recording

if TYPE_CHECKING:
    from suffice.evaluation.statistics import Draws, Resampling


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedRecording:
    """A recording without its failed questions; metrics, costs and columns are computed once, when they are first read.

    Attributes:
        recording: Recorded rounds without failed questions.
        n_failed: Questions left out because their recording failed.
        metric_names: The metrics of answers, see `outcome`.
        prices: For all language models, or by component; None = money is NaN.
        charging: The convention that says which calls a policy pays for.
        wave: Number of samples requested at once; None = as recorded.
        added: Further columns for policies to read, shape ``(n_questions, n_rounds)``; they replace recorded ones of
            the same name.
    """

    recording: Recording
    n_failed: int = 0
    metric_names: tuple[str, ...] = ()
    prices: Price | Mapping[str, Price] | None = None
    charging: Charging = LIVE
    wave: int | None = None
    added: Mapping[str, Floats] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        recording: Recording,
        metrics: Iterable[str] = (),
        *,
        prices: Price | Mapping[str, Price] | None = None,
        ledger: str = LIVE.name,
        samples: bool = False,
        wave: int | None = None,
    ) -> PreparedRecording:
        """Prepare a recording.

        Args:
            recording: Recorded rounds; failed questions are left out.
            metrics: See `outcome`.
            prices: For all language models, or by component; None = money is NaN.
            ledger: Name of the convention of charging, see `suffice.evaluation.replay.charging`.
            samples: Whether the rounds may be independent samples; the caller must then average over their orders.
            wave: Number of samples requested at once; None = as recorded.

        Raises:
            DataError: All questions failed, an unknown ledger, or independent samples where `samples` is not set.
        """
        if recording.exchangeable and not samples:
            raise DataError(
                "this recording holds independent samples, and the order in which they are stored means nothing. `suffice replay`, "
                "`certify`, `decide` and `search` average over orders; this looks at rounds that follow one another"
            )
        failed = recording.failed
        if failed.all():
            raise DataError(f"all {len(failed)} recorded questions failed: run `suffice record` again to complete them")
        return cls(
            recording=recording.select(~failed) if failed.any() else recording,
            n_failed=int(failed.sum()),
            metric_names=tuple(metrics),
            prices=prices,
            charging=charging_of(ledger),
            wave=wave,
        )

    def with_metrics(self, metrics: Iterable[str]) -> PreparedRecording:
        """Return the same recording with other metrics of its answers."""
        return replace(self, metric_names=tuple(metrics))

    def with_columns(self, columns: Mapping[str, Floats]) -> PreparedRecording:
        """Return the same recording with further columns for policies to read, shape ``(n_questions, n_rounds)``."""
        return replace(self, added={**self.added, **columns})

    @cached_property
    def metrics(self) -> Mapping[str, Floats]:
        """The metrics at every round, by name, shape ``(n_questions, n_rounds)``."""
        return {name: outcome(self.recording, name) for name in self.metric_names}

    @cached_property
    def costs(self) -> CostTable:
        """The recorded costs."""
        return CostTable(self.recording, self.prices, self.wave)

    @cached_property
    def _columns(self) -> dict[str, Floats]:
        return dict(self.added)

    def rounds(self, columns: Iterable[str]) -> Rounds:
        """Return columns in the form that policies read; those that were neither recorded nor can be computed are left out."""
        known = [name for name in columns if name in self._columns or self.recording.gives(name)]
        for name in known:
            if name not in self._columns:
                self._columns[name] = self.recording.column(name)
        return self.recording.view({name: self._columns[name] for name in known})

    def raw(self, policy: Policy) -> Rounds:
        """Return the raw columns of a policy's view; answers are normalised once for all policies with the same normalizer."""
        name = policy.answer_column
        if name is not None and name not in self._columns and "answer" in self.recording.table.column_names:
            self._columns[name] = self.recording.answer_ids(policy.normalizer)
        return self.rounds((*policy.raw_columns, *filter(None, [name])))

    def reordered(self, places: npt.NDArray[np.int64]) -> PreparedRecording:
        """Return the same recording with each question's rounds in another order, see `Recording.reordered`."""
        other = replace(self, recording=self.recording.reordered(places))
        # Grouping normalizers depend on the order of the answers, so their columns cannot be reordered.
        depends = {f"{ANSWER_ID}.{name}" for name, item in NORMALIZERS.items() if isinstance(item, Grouping)}
        vars(other).update(
            _columns={name: moved(column, places) for name, column in self._columns.items() if name not in depends},
            metrics={name: moved(values, places) for name, values in self.metrics.items()},
        )
        return other

    def view(self, policy: Policy) -> Rounds:
        """Return the view of a policy, see `Policy.view`."""
        return policy.view(self.raw(policy))

    def stops(self, policy: Policy) -> Stops:
        """Return the stops of a policy, see `suffice.policy.session.stops`."""
        return stops(policy, self.raw(policy))

    def draws(self, resampling: Resampling) -> Draws:
        """Return the draws of its questions, or of their clusters."""
        return resampling.draws(self.recording.clusters)

    @property
    def n(self) -> int:
        """Questions."""
        return self.recording.shape[0]

    @property
    def highest(self) -> int:
        """The highest recorded round."""
        return int(self.recording.index[-1])

    @property
    def cut(self) -> Mask:
        """Mask of the questions that a rule ended before the recording's highest round, shape ``(n_questions,)``."""
        return self.recording.cut

    def in_view(self, metric: Floats, view: Rounds) -> Floats:
        """Return a metric restricted to the rounds of a view."""
        offset = int(view.index[0] - self.recording.index[0])
        return metric[:, offset : offset + len(view)]

    def expected_values(self, stopped: Stops, selector: Selector) -> dict[str, Floats]:
        """Return the metrics of the answers that a policy returns; the expected value if its selector draws among several."""
        values = self.values(stopped.view, stopped.position, stopped.answer_position)
        shares = selector.shares(stopped.view, stopped.position)
        if shares is None:
            return values
        return {
            name: np.where(
                shares.any(axis=1), _expectation(shares, self.in_view(self.metrics[name], stopped.view)), own
            )
            for name, own in values.items()
        }

    def values(self, view: Rounds, stop: Positions, answer: Positions) -> dict[str, Floats]:
        """Return the metrics of the answers returned by stops at `stop`; see `values_by_stop`."""
        position = np.where(answer >= 0, answer, stop)
        rows = np.arange(len(position))
        return {
            name: np.where(position >= 0, self.in_view(metric, view)[rows, np.maximum(position, 0)], 0.0)
            for name, metric in self.metrics.items()
        }


def moved(column: Floats, places: npt.NDArray[np.int64]) -> Floats:
    """Return a column with each question's rounds in another order, see `Recording.reordered`."""
    out = np.empty_like(column)
    np.put_along_axis(out, places, column, axis=1)
    return out


def _expectation(shares: Floats, metric: Floats) -> Floats:
    """Return the means of a metric over the rounds with these shares, shape ``(n_questions,)``; NaN where one is unknown."""
    return np.asarray(np.where(shares > 0, shares * metric, 0.0).sum(axis=1))
