"""Compute the columns that a rule reads: measured columns, and columns derived from them and from the answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from suffice.errors import DataError
from suffice.policy.embedding import (  # noqa: F401 - the normalizer `meaning` is known where policies are
    MeaningClusters,
)
from suffice.policy.normalizers import ANSWER_ID, DEFAULT_NORMALIZER, normalizer_of
from suffice.policy.rounds import Floats, Rounds
from suffice.policy.signals import CUMULATED, SIGNALS, abstained_by, clean_column, cost_columns
from suffice.policy.signals.state import DIFFICULTY, Allocation, FittedState, RationaleScore, ZScore
from suffice.policy.signals.votes import VOTES, WEIGHT, RunningVotes, answer_ids, vote_signal, weights_of

if TYPE_CHECKING:
    from suffice.policy.calibration import Calibrator


class Derivation:
    """Base class of `Policy`, which turns raw columns into the columns that the rule and the selector read."""

    calibrators: tuple[Calibrator, ...]
    state: Mapping[str, FittedState]
    normalizer: str
    abstain_patterns: tuple[str, ...] | None

    @property
    @abstractmethod
    def signals(self) -> tuple[str, ...]:
        """The signals that the rule and the selector read, sorted."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The name of the policy in messages."""

    @cached_property
    def _sources(self) -> dict[str, tuple[str, Calibrator | ZScore | Allocation]]:
        """A map from each fitted signal to the raw column and the fitted state from which it is computed."""
        sources: dict[str, tuple[str, Calibrator | ZScore | Allocation]] = {
            calibrator.output: (calibrator.signal, calibrator) for calibrator in self.calibrators
        }
        for name, fitted in self.state.items():
            if isinstance(fitted, ZScore):
                sources[name] = ("top_score", fitted)
            elif isinstance(fitted, Allocation):
                sources[name] = (DIFFICULTY, fitted)
        return sources

    def raw_of(self, name: str) -> str:
        """Return the measured signal from which a fitted signal is computed; any other signal is returned as it is.

        If a signal is computed from several measured signals, return the first of them.
        """
        return self._raws_of(name)[0]

    def _raws_of(self, name: str) -> tuple[str, ...]:
        fitted = self.state.get(name)
        if isinstance(fitted, RationaleScore):
            return tuple(fitted.weights)
        return (self._sources[name][0],) if name in self._sources else (name,)

    @cached_property
    def raw_signals(self) -> tuple[str, ...]:
        """The signals that must be measured or recorded for the policy to decide, sorted."""
        names = {*self.signals}
        if VOTES & names:
            names |= weights_of(names)
        raw = {raw for name in names for raw in self._raws_of(name)}
        return tuple(sorted(raw - set(CUMULATED) - (self._from_answers - {"abstained"}) - {"round"}))

    @cached_property
    def _from_answers(self) -> frozenset[str]:
        """The signals that are always computed from all answers, even if their values were also measured."""
        own = {"answer_stable"} if self.normalizer != DEFAULT_NORMALIZER else set[str]()
        own |= {"abstained"} if self.abstain_patterns is not None else set()
        return VOTES.union(own).intersection(raw for name in self.signals for raw in self._raws_of(name))

    @property
    def answer_column(self) -> str | None:
        """Name of the raw column in which callers cache the result of `answer_ids` with the policy's normalizer.

        None if the policy does not read these ids.
        """
        return self._shared_column(ANSWER_ID) if self._from_answers - {"abstained"} else None

    @property
    def vote_columns(self) -> dict[str, str]:
        """A map from the name of a raw column to the unweighted signal of `VOTES` that callers cache in it.

        The map contains every such signal that the policy reads.
        """
        read = sorted(VOTES & self._from_answers)
        return {self._shared_column(name): name for name in read if not weights_of([name])}

    def running_votes(self) -> RunningVotes:
        """Return a counter of one question's votes, which updates the signals in `VOTES` and `answer_column` round by round."""
        ids = set[str]() if self.answer_column is None else {ANSWER_ID}
        names = {self._shared_column(name): name for name in sorted(VOTES & self._from_answers | ids)}
        return RunningVotes(names, normalizer_of(self.normalizer))

    def vote_weights(self, raw: Rounds) -> Floats:
        """Return the weight of each answer in weighted votes, shape of a raw column; NaN if the answer does not vote."""
        return self._column(WEIGHT, raw)

    def _shared_column(self, name: str) -> str:
        return f"{name}.{self.normalizer}"

    def unfitted(self, name: str) -> bool:
        """Return True if a signal needs fitted state that this policy lacks."""
        known = SIGNALS.get(name)
        return known is not None and known.fitted and name not in self._sources and name not in self.state

    def _column(self, name: str, raw: Rounds) -> Floats:
        if name == "round":
            return np.where(raw.seen, raw.index.astype(np.float64), np.nan)
        if name in CUMULATED:
            return _cumulated(name, raw)
        if name in self._sources or isinstance(self.state.get(name), RationaleScore):
            return self._fitted_column(name, raw)
        if name in self._from_answers and not (name == "abstained" and raw.answers is None):
            return self._compared(name, raw)
        return clean_column(name, raw[name], index=raw.index)

    def _fitted_column(self, name: str, raw: Rounds) -> Floats:
        """Compute a fitted signal from its raw column or columns, by means of its fitted state."""
        score = self.state.get(name)
        if isinstance(score, RationaleScore):
            return score.apply({feature: self._column(feature, raw) for feature in score.weights})
        source, fitted = self._sources[name]
        column = self._column(source, raw) if source in VOTES else clean_column(source, raw[source], index=raw.index)
        return (
            fitted.apply(column) if isinstance(fitted, ZScore | Allocation) else fitted.predict(column, index=raw.index)
        )

    def _compared(self, name: str, raw: Rounds) -> Floats:
        """Compute a signal from the answers, by means of the policy's normalizer or of its patterns of refusals."""
        if raw.answers is None:
            raise DataError(f"the policy {self.label!r} reads {name!r}, and these rounds carry no answers: record them")
        if name == "abstained":
            refuses = abstained_by(self.abstain_patterns or ())
            return np.asarray(np.frompyfunc(refuses, 1, 1)(raw.answers), dtype=np.float64)
        if self._shared_column(name) in raw.columns:
            return raw.columns[self._shared_column(name)]
        ids = raw.columns.get(self._shared_column(ANSWER_ID))
        if ids is None:
            ids = answer_ids(raw.answers, normalizer_of(self.normalizer))
        if name == "answer_stable":
            before = np.concatenate([np.full_like(ids[..., :1], np.nan), ids[..., :-1]], axis=-1)
            return clean_column(name, np.where(np.isnan(ids + before), np.nan, ids == before), index=raw.index)
        return vote_signal(name, ids, *(self._column(weight, raw) for weight in weights_of([name])))


def _cumulated(name: str, raw: Rounds) -> Floats:
    sources = cost_columns(name)
    columns = [raw.columns[source] for source in sources if source in raw.columns]
    if not columns:
        return raw[sources[0]]  # raises, naming the column
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.cumsum(sum(columns, np.zeros(raw.shape)), axis=-1)
    return np.where(raw.seen & np.isfinite(total), total, np.nan)  # infinite counts as undefined
