"""Logs of agents: the candidates that read steps, and the spending of the recorded runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError
from suffice.evaluation.replay.costs import TOKEN_KINDS
from suffice.evaluation.replay.outcomes import has_outcome, outcome
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price, currency_of
from suffice.policy.rounds import Floats, Mask
from suffice.recordings.recording import Recording
from suffice.recordings.runs import is_of_steps
from suffice.recordings.schema import DOLLAR

if TYPE_CHECKING:
    from suffice.verdicts.decisions.dollars import Worth
    from suffice.verdicts.decisions.trial import Trial

LEAST_SAVING = 0.05
"""The share of the cost that a change of an agent has to save to be worth it, unless one says otherwise."""

_UNCHANGED = (5, 10, 15, 20, 25, 30, 40, 50)
"""Steps without a change of the result."""
_TENTHS = 10
_SPENT = (0.5, 0.75, 0.9)
"""Limits of what a run may spend, as quantiles of what the runs of tune questions spent."""


def knows_spending(recording: Recording) -> bool:
    """Return True if the dollars of each step were recorded."""
    return "spend" in recording.names("signal") and bool(np.isfinite(recording.column("spend")[recording.seen]).all())


def refuse_states(recording: Recording) -> None:
    """Raise if the recorded answers are states of files, because nobody can label them."""
    if is_of_steps(recording):
        raise DataError(
            "the answers of an agent's steps stand for the files that it changed, so nobody can label them: leave out --ask "
            "(labels=None), or import the grades of the runs (suffice import --outcomes FILE)"
        )


def step_rules(tune: Recording) -> Iterator[str]:
    """Yield the rules that read steps.

    They stop after some steps without a change (also together with passed checks or a repeated command), or at a
    spending limit.
    """
    columns = tune.names("signal")
    yield from (f"since_change >= {k}" for k in _UNCHANGED)
    if "check_passed" in columns:
        yield from (f"(checks_green_since_change >= {n}) & (since_change >= {k})" for n in (1, 2) for k in (2, 5, 10))
    yield from (f"(command_repeated >= 1) & (since_change >= {k})" for k in (5, 10, 20))
    if knows_spending(tune):
        totals = np.nanmax(np.where(tune.seen, tune.column("spend"), np.nan), axis=1)
        for limit in dict.fromkeys(f"{value:.2g}" for value in np.quantile(totals, _SPENT)):
            yield f"spend > {limit}"
            yield f"(spend > {limit}) & (since_change >= 5)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The spending of recorded runs: the total, and shares of the total in [0, 1]; None where unknown.

    Attributes:
        unit: The currency, or `tokens` where no step has a price.
        runs: Number of runs.
        total: The total that the runs spent, in `unit`.
        after_change: Share that was spent after the last change of the result.
        failed: Share that was spent on runs whose result is graded below one half.
        repeated: Share that was spent on steps whose command had been run before in the same run.
        by_tenth: Share that was spent in each tenth of a run's steps.
        savable: Share that was spent after a run had first reached the grade that it had at its end. A rule that never
            lowers a grade cannot save more. The share is only known in hindsight. A failed run counts as if it could
            end at its first step.
    """

    unit: str
    runs: int
    total: float
    after_change: float
    failed: float | None
    repeated: float
    by_tenth: tuple[float, ...]
    savable: float | None = None

    @property
    def sentence(self) -> str:
        """A sentence with the total, the share after the last change, and the most that a rule could save, if runs are graded."""
        text = f"{self._amount(1.0)} went into {counted(self.runs, 'run')}, and {100 * self.after_change:.0f} % of it after the last change to the result."
        if self.savable is None:
            return text
        return (
            f"{text} In hindsight, a rule that lowers no grade could save {100 * self.savable:.0f} % at most, by ending "
            "failed runs at their first step and others once they were right."
        )

    def table(self) -> Table:
        """Return the table "where the money went"."""
        rows: list[tuple[str, float, str]] = [("after the last change to the result", *self._share(self.after_change))]
        if self.failed is not None:
            rows.append(("in runs whose result is not right", *self._share(self.failed)))
        rows.append(("on commands that the run had run before", *self._share(self.repeated)))
        for place in range(0, _TENTHS, 2):
            share = sum(self.by_tenth[place : place + 2])
            rows.append((f"steps from {10 * place} to {10 * place + 20} % of the run", *self._share(share)))
        return Table(
            title="Where the tokens went" if self.unit == "tokens" else "Where the money went",
            columns=(Column(""), Column("share", ".0f", scale=100), Column(self.unit)),
            rows=tuple(rows),
        )

    def _share(self, share: float) -> tuple[float, str]:
        return share, self._amount(share)

    def _amount(self, share: float) -> str:
        if self.unit == "tokens":
            return f"{self.total * share:,.0f} tokens"
        return f"{'$' if self.unit == DOLLAR else f'{self.unit} '}{self.total * share:,.2f}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {**asdict(self), "by_tenth": list(self.by_tenth)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spending:
        """Return the figures that `to_dict` wrote."""
        return cls(**{**data, "by_tenth": tuple(data["by_tenth"])})

    @classmethod
    def of(
        cls, recording: Recording, metric: str, prices: Price | Mapping[str, Price] | None = None
    ) -> Spending | None:
        """Measure a recording of steps; return None if neither prices nor tokens are known.

        Args:
            recording: Recorded runs.
            metric: The grade of a run; `failed` and `savable` are None if a run has no grade.
            prices: Prices to use instead of the amounts in the log.
        """
        spent, unit = spent_by_step(recording, prices)
        if spent is None:
            return None
        total, seen = float(spent.sum()), recording.seen
        last = seen.sum(axis=1) - 1
        graded = has_outcome(recording, metric) and metric in recording.names("metric")
        by_step = outcome(recording, metric) if graded else np.full(seen.shape, np.nan)
        grades = by_step[np.arange(len(last)), last]
        known = bool(np.isfinite(grades).all())
        as_good = np.maximum.accumulate(
            np.nan_to_num(by_step) >= grades[:, None], axis=1
        )  # an unknown grade counts at its worst
        beyond = np.column_stack([np.zeros(len(last), dtype=np.bool_), as_good[:, :-1]])
        tenth = np.where(seen, np.arange(seen.shape[1]) * _TENTHS // np.maximum(last + 1, 1)[:, None], -1)
        return cls(
            unit=unit,
            runs=len(last),
            total=total,
            after_change=float(spent[_after_last_change(recording)].sum() / total),
            failed=float(spent[grades < 0.5].sum() / total) if known else None,  # noqa: PLR2004
            repeated=float(spent[recording.column("command_repeated") >= 1].sum() / total),
            by_tenth=tuple(float(spent[tenth == place].sum() / total) for place in range(_TENTHS)),
            savable=float(spent[beyond].sum() / total) if known else None,
        )


def worth_of(trial: Trial, price: float | None) -> Worth | None:
    """Return the worth of giving up runs, given the price of a success in the currency of the trial; None without a price."""
    if price is None:
        return None
    from suffice.verdicts.decisions.dollars import Worth

    return Worth(trial=trial, price=price)


def spent_by_step(recording: Recording, prices: Price | Mapping[str, Price] | None) -> tuple[Floats | None, str]:
    """Return the cost of each step, shape ``(n_questions, n_rounds)``, and the unit; None and "" if unknown."""
    table = PreparedRecording.of(recording, prices=prices).costs
    zeros = np.zeros(recording.seen.shape)
    money = sum((table.money_of(name, table.columns[name]) for name in table.loop), zeros)
    tokens = sum((table.columns[name][kind] for name in table.loop for kind in TOKEN_KINDS), zeros)
    for spent, unit in ((money, currency_of(recording, prices)), (tokens, "tokens")):
        known = np.where(recording.seen, spent, 0.0)
        if np.isfinite(known).all() and known.sum() > 0:
            return known, unit
    return None, ""


def _after_last_change(recording: Recording) -> Mask:
    """Return a mask of the steps after the one at which the final answer appeared, shape ``(n_questions, n_rounds)``."""
    answers, seen = recording.objects("answer"), recording.seen
    after = np.zeros(seen.shape, dtype=np.bool_)
    for row, length in enumerate(seen.sum(axis=1).tolist()):
        last = length - 1
        while last > 0 and answers[row, last - 1] == answers[row, length - 1]:
            last -= 1
        after[row, last + 1 : length] = answers[row, length - 1] is not None
    return after
