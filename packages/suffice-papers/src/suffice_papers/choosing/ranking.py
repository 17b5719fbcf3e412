"""Fit a ranker on tune questions; a ranker is a learned selector of the round whose answer is returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from suffice.common.results import NOT_IN_JSON, Result
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.replay.checks import check_policy
from suffice.evaluation.replay.outcomes import answers_by_stop, outcome, values_by_stop
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.selected import seen_from
from suffice.evaluation.statistics import ROUNDING, Units, drawn_folds
from suffice.policy.calibration.logistic import fit_logistic
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.rules.parse import parse_selector
from suffice.policy.rules.ranker import Ranked, Term
from suffice.policy.rules.selectors import Last, Selector, answered
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

RANKER_FEATURES = ("p_correct", "sum_p_correct", "best_p_correct")
"""The default features, chosen on tune questions; see docs/results/which-round.md."""

PENALTIES = (0.001, 0.01, 0.1, 1.0)
"""Inverse strengths of the penalty on the weights, the strongest penalty first."""

_WEIGHT_DIGITS = 6
_FEWEST_FOLDS = 3
"""Fewest folds: one to judge on, one to calibrate on, one to learn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankerFit(Result):
    """A fitted ranker; its figures are computed by cross-fitting, on tune questions that were held out.

    Attributes:
        policy: The policy with the ranker as its selector, and the tune questions in its provenance.
        metric: The metric that decides which round of a pair is better.
        cross_fitted: Mean metric, over questions and over stops at every round, of the ranker with each penalty and of
            simple selectors. A ranker is judged on questions on which neither the ranker nor its calibrators were
            fitted.
        penalty: The chosen inverse strength of the penalty; NaN if nothing could be learnt.
        n: Number of questions.
        n_failed: Number of questions left out because their recording failed.
        n_pairs: Number of pairs of rounds, of one question at one stop, whose answers differ in the metric.
        folds: Number of folds of the cross-fitting.
        seed: Seed of the division into folds.
        notes: Notes for the reader.
    """

    json_first: ClassVar[tuple[str, ...]] = ("selector",)

    policy: Policy = field(metadata=NOT_IN_JSON)
    metric: str
    cross_fitted: Mapping[str, float]
    penalty: float
    n: int
    n_failed: int
    n_pairs: int
    folds: int
    seed: int
    notes: tuple[str, ...]

    @property
    def selector(self) -> str:
        """The text of the ranker."""
        return str(self.policy.selector)

    def table(self) -> Table:
        """Return a table of the cross-fitted figures, by which the penalty was chosen."""
        return Table.of(
            f"Selectors on {self.n} tune questions, held out in {self.folds} parts, stops at every round",
            sorted(self.cross_fitted.items(), key=lambda item: -item[1]),
            {Column("selector"): itemgetter(0), Column(self.metric.upper(), ".1f", scale=100): itemgetter(1)},
            notes=(f"chosen: {self.policy.selector}", *self.notes),
        )


def fit_ranker(
    recording: Recording,
    policy: Policy,
    *,
    metric: str = "f1",
    features: Sequence[str] = RANKER_FEATURES,
    penalties: Sequence[float] = PENALTIES,
    folds: int = 5,
    seed: int = 42,
) -> RankerFit:
    """Fit a ranker on a recording of tune questions.

    The ranker learns from pairs of rounds of one question whose answers differ in the metric.  A logistic regression on
    the difference of their features predicts which of the two answers is better, so that the difficulty of the question
    cancels out.  Features are computed at stops at every round, so that one ranker serves every stopping rule.
    Calibrated signals of a training question come from calibrators that were fitted without that question.

    Args:
        recording: Recorded rounds of tune questions.
        policy: The policy whose calibrators compute `p_correct`; its rule is not used.
        metric: A column in [0, 1], or `agreement`.
        features: Names of terms, see `suffice.policy.rules.ranker.Term`.
        penalties: Inverse strengths of the L2 penalty on standardised weights; the best is chosen by cross-fitting.
        folds: Number of folds of the questions (clusters) for cross-fitting, at least 3.
        seed: Seed of the division into folds.

    Raises:
        DataError: There are fewer questions than folds, no features, or the metric is missing.
        UnknownSignalError: A feature reads a signal that was not recorded.
        NotFittedError: A feature reads a calibrated signal and the policy has no calibrator.
    """
    prepared = PreparedRecording.of(recording)
    n_units = Units.of(prepared.n, prepared.recording.clusters).n_units
    if not _FEWEST_FOLDS <= folds <= n_units:
        raise DataError(f"{folds!r} parts of {n_units} questions: give folds between 3 and the number of questions")
    if not features or not penalties:
        raise DataError("a ranker needs at least one feature and one penalty")
    part = drawn_folds(prepared.n, folds, clusters=prepared.recording.clusters, seed=seed)
    drafted = Ranked(tuple(Term(name, 0.0) for name in features))
    study = _Study(prepared.with_metrics([metric]), replace(policy, selector=drafted), part, penalties)
    cross_fitted, notes = study.cross_fitted(), []
    best = max(penalties, key=lambda penalty: (cross_fitted[_penalty_name(penalty)], -penalty))
    selector, n_pairs = study.fitted(np.ones(len(part), dtype=np.bool_), best)
    if isinstance(selector, Last):
        notes.append("nothing to learn: no two rounds of a question differ both in the metric and in a feature")
    simple = max((name for name in cross_fitted if not name.startswith("ranked")), key=lambda name: cross_fitted[name])
    if cross_fitted[simple] >= cross_fitted[_penalty_name(best)]:
        notes.append(f"on held-out tune questions {simple!r} does as well as the ranker: prefer it")
    seen = seen_from(prepared.recording) | (Seen.from_dict(policy.provenance) or Seen())
    provenance = {**policy.provenance, **seen.to_dict(), "ranker": {"metric": metric, "seed": seed}}
    return RankerFit(
        policy=replace(policy, selector=selector, provenance=provenance),
        metric=metric,
        cross_fitted=cross_fitted,
        penalty=float("nan") if isinstance(selector, Last) else float(best),
        n=prepared.n,
        n_failed=prepared.n_failed,
        n_pairs=n_pairs,
        folds=folds,
        seed=seed,
        notes=tuple(notes),
    )


def _penalty_name(penalty: float) -> str:
    return f"ranked, C = {penalty:g}"


class _Study:
    """Fits rankers on parts of a recording's tune questions, by one metric."""

    def __init__(
        self,
        prepared: PreparedRecording,
        policy: Policy,
        part: npt.NDArray[np.int64],
        penalties: Sequence[float],
    ) -> None:
        self._recording, self._policy, self._part, self._penalties = prepared.recording, policy, part, penalties
        (metric,) = prepared.metrics.values()
        check_policy(policy, prepared.recording)
        self._targets = {c.output: outcome(prepared.recording, c.target) for c in policy.calibrators}
        self._prepared, self._whole = prepared, prepared.view(policy)
        self._metric = prepared.in_view(metric, self._whole)

    def cross_fitted(self) -> dict[str, float]:
        """Return the mean metric of each penalty and of the simple selectors, on held-out questions."""
        simple = ["last", "majority"]
        if "p_correct" in self._policy.signals:
            simple += ["max_p_correct", "weighted_majority"]
        totals: dict[str, list[Floats]] = {}
        for k in np.unique(self._part).tolist():
            train = self._part != k
            view = self._view(train)
            named: dict[str, Selector] = {name: parse_selector(name) for name in simple}
            named |= {_penalty_name(penalty): self.fitted(train, penalty, view)[0] for penalty in self._penalties}
            for name, selector in named.items():
                held = _select_questions(view, ~train)
                table = values_by_stop(answers_by_stop(selector, held), held.seen, self._metric[~train])
                totals.setdefault(name, []).append(np.where(held.seen, table, np.nan))
        return {name: float(np.nanmean(np.concatenate(tables))) for name, tables in totals.items()}

    def fitted(self, train: Mask, penalty: float, view: Rounds | None = None) -> tuple[Selector, int]:
        """Return the ranker fitted on training questions, and the number of pairs of rounds that it learned from.

        If no feature differs within a pair, the selector `last` is returned instead of a ranker.
        """
        rounds = _select_questions(self._view(train) if view is None else view, train)
        assert isinstance(self._policy.selector, Ranked)
        terms = tuple(replace(term, fill=_median(term, rounds)) for term in self._policy.selector.terms)
        draft = Ranked(terms)
        values, candidates = _by_stop(draft, rounds)
        pairs = _unequal_pairs(candidates, self._metric[train])
        weights = _weights(values, candidates, pairs, penalty)
        if weights is None:
            return Last(), len(pairs[-1])
        return Ranked(tuple(replace(t, weight=w) for t, w in zip(terms, weights, strict=True))), len(pairs[-1])

    def _view(self, train: Mask) -> Rounds:
        """Return the rounds with calibrated signals; the calibrators of each question were fitted without that question.

        The calibrators of a training question are fitted on the other parts of the training set.  Those of any other
        question are fitted on the whole training set.
        """
        view, recording = self._whole, self._recording
        columns = dict(view.columns)
        for calibrator in self._policy.calibrators:
            if calibrator.output not in columns:
                continue
            source, target = recording.column(calibrator.signal), self._targets[calibrator.output]
            column = np.full(recording.shape, np.nan)
            for k in (-1, *np.unique(self._part[train]).tolist()):  # -1 = questions that are not for training
                rows = ~train if k < 0 else train & (self._part == k)
                others = train & (self._part != k)
                refitted = replace(calibrator, unseen_round="nearest").fit(
                    source[others], target[others], index=recording.index
                )
                column[rows] = refitted.predict(source[rows], index=recording.index)
            columns[calibrator.output] = self._prepared.in_view(column, view)
        return Rounds(columns, view.index, view.seen, view.answers, view.normalizer)


def _select_questions(view: Rounds, rows: Mask) -> Rounds:
    columns = {name: column[rows] for name, column in view.columns.items()}
    answers = None if view.answers is None else view.answers[rows]
    return Rounds(columns, view.index, view.seen[rows], answers, view.normalizer)


def _median(term: Term, rounds: Rounds) -> float:
    """Return the median of a term's signal, to replace missing values; 0 if the signal is never defined."""
    if term.signal is None:
        return 0.0
    known = rounds[term.signal][rounds.seen & ~np.isnan(rounds[term.signal])]
    return float(f"{np.median(known):.{_WEIGHT_DIGITS}g}") if known.size else 0.0


def _by_stop(ranker: Ranked, rounds: Rounds) -> tuple[Floats, Mask]:
    """Return features ``(n_terms, n_questions, n_stops, n_rounds)`` and a mask of the candidates at each stop."""
    n = len(rounds)
    # The axis of stops comes before that of rounds: a stop at t has seen the rounds up to t.
    columns = {name: rounds[name][:, None, :] for name in ranker.signals}
    assert rounds.answers is not None
    wide = Rounds(columns, rounds.index, rounds.seen[:, None, :], rounds.answers[:, None, :], rounds.normalizer)
    stops = rounds.seen[:, :, None] & (np.arange(n) <= np.arange(n)[:, None])  # no stop past the end
    candidates: Mask = answered(wide) & stops
    return np.stack([np.broadcast_to(f, candidates.shape) for f in ranker.features(wide, candidates)]), candidates


def _unequal_pairs(candidates: Mask, metric: Floats) -> tuple[Any, Any, Floats]:
    """Return the indices of each pair's better and worse round, and their difference of the metric."""
    # Axes: question, stop, better round, worse round.  The 0 for an unknown metric is masked out on both sides.
    known = np.where(np.isnan(metric), 0.0, metric)[:, None, :]
    both = candidates[..., :, None] & candidates[..., None, :] & ~np.isnan(metric)[:, None, :, None]
    q, t, a, b = np.nonzero(both & (known[..., :, None] > known[..., None, :]) & ~np.isnan(metric)[:, None, None, :])
    return (q, t, a), (q, t, b), metric[q, a] - metric[q, b]


def _weights(values: Floats, candidates: Mask, pairs: tuple[Any, Any, Floats], penalty: float) -> list[float] | None:
    """Return the weight of each feature; None if no feature differs within any pair of rounds."""
    better, worse, importance = pairs
    spread = np.array([feature[candidates].std() if candidates.any() else 0.0 for feature in values])
    # Otherwise a constant feature would be divided by the rounding error of its spread.
    usable = spread > ROUNDING * (1 + np.abs(values[:, candidates]).max(axis=1, initial=0.0))
    difference = np.stack([feature[better] - feature[worse] for feature in values], axis=-1)[:, usable]
    difference = difference / spread[usable]
    if not difference.any():
        return None
    # Each pair in both orders: without an intercept the classes are then balanced, and no order is preferred.
    rows = np.concatenate([difference, -difference])
    labels = np.repeat([1, 0], len(difference))
    shares = np.concatenate([importance, importance])
    fitted = fit_logistic(rows, labels, strength=penalty, shares=shares, intercept=False, most=1000)
    weights = np.zeros(len(values))
    weights[usable] = fitted.weights[0] / spread[usable]
    return [float(f"{weight:.{_WEIGHT_DIGITS}g}") for weight in weights]
