"""Find the questions of a recording that need a label, and the questions on which bets need no label.

Equal answers lose nothing under any metric that is a function of question and answer, so most questions of a log need
no gold answer.  The order in which questions are labelled and bet on is computed from their texts, so it is fixed
before the first label. Bets stop at the first question that still needs a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.outcomes import outcome
from suffice.evaluation.replay.prices import Prices
from suffice.policy.normalizers import MATCH
from suffice.policy.rounds import Floats, Mask
from suffice.recordings.recording import Recording
from suffice.verdicts.decisions.labels import Labels, normalizer_in
from suffice.verdicts.decisions.losses import Measured, account_of, measure_candidates
from suffice.verdicts.decisions.trial import Trial
from suffice.verdicts.losses import PREFERENCE, Questions, at_rounds

if TYPE_CHECKING:
    from suffice.verdicts.decisions.label_matches import DoubleLabels

_BASELINES = ("recorded", "full")
_AGREEMENT = "agreement"


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelling:
    """The questions of a recording, with the labels that they have and the labels that they need.

    Attributes:
        recording: The recording, with `match` where it is known.
        questions: The questions of the recording; copies count as one question.
        differing: See `differing_answers`.
        losses: The losses of the candidates; a question without a label counts at its worst.
        lacking: Mask of the rows that need a label, shape ``(n_candidates, n_rows)``: candidate and baseline answer
            differently, and there is neither a label nor a gold answer.
        doubles: The comparison of labels of the same question.
        pairs: If pairs of answers are judged: by candidate and row, the answers of candidate and baseline that nobody
            has compared yet.  Empty for labels of single answers.
    """

    recording: Recording
    questions: Questions
    differing: Floats
    losses: Measured
    lacking: Mask
    doubles: DoubleLabels
    pairs: Mapping[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, recording: Recording, trial: Trial, labels: Labels, prices: Prices = None) -> Labelling:
        """Compare the answers of all candidates with the answers of the baseline.

        Args:
            recording: Recorded rounds.
            trial: The declared trial.
            labels: The labels that were given.
            prices: Prices, to compute money; None = unknown.
        """
        if trial.metric == PREFERENCE:
            from suffice.verdicts.decisions.preferences import labelling_of_pairs

            return labelling_of_pairs(recording, trial, labels, prices)
        from suffice.verdicts.decisions.label_matches import judged_by

        (labelled, doubles), differing = (
            judged_by(labels, recording, trial.label_noise),
            differing_answers(recording, trial),
        )
        given = np.array([name in labels.right for name in recording.question_ids], dtype=np.bool_)
        known: Mask = np.isfinite(outcome(labelled, MATCH)).any(axis=1) | given
        # A label cannot help if rounds are missing or failed: such unknown outcomes count at their worst.
        lacking = ~known & ~recording.failed & ~recording.unexplained & _various(recording)
        losses = measured(labelled, trial, MATCH, prices, by_unit=True).within(differing)
        return cls(
            recording=labelled,
            questions=Questions.of(recording),
            differing=differing,
            losses=losses,
            lacking=np.broadcast_to(lacking, (len(trial.candidates), len(lacking))),
            doubles=doubles,
        )

    def needed(self, place: int) -> npt.NDArray[np.int64]:
        """Return the questions that need a label to judge a candidate, as positions in the order of bets."""
        lacking = self.questions.units.sums(self.lacking[place].astype(np.float64)) > 0
        return np.flatnonzero((lacking & (self.differing[place] > 0))[self.losses.order])

    def settled(self, trial: Trial) -> tuple[Mask, int | None]:
        """Return the questions to bet on, and the candidate that needs further labels, or None.

        The questions are a mask of shape ``(n_questions,)``.

        Candidates are tested in order, so labels are requested for one candidate at a time, until it is proved or
        refuted. All bets end at the first question that lacks a label for this candidate. Questions that lack a label
        for a later candidate count at their worst for it, which can only delay a proof.
        """
        order, n_bet, asking, level = self.losses.order, 0, None, 0.0
        worst, best = self.losses.worst[:, order], self.losses.best[:, order]
        for place, share in zip(trial.sequence, trial.shares, strict=True):
            needed = self.needed(place)
            n_bet = max(n_bet, int(needed[0]) if len(needed) else len(order))
            bets = ((trial.below, worst), (trial.above, best))
            below, above = (wealth.begun_anew().of(place).bet(losses[[place], :n_bet]) for wealth, losses in bets)
            level = min(level + trial.alpha * share, trial.alpha)
            proved = level > 0 and below.shown(level).any()
            if not (proved or above.shown(trial.alpha).any()) and len(needed):
                asking = place
                break
            level = level if proved else 0.0
        settled = np.zeros(len(order), dtype=np.bool_)
        settled[order[:n_bet]] = True
        return settled, asking

    def rows(self, settled: Mask) -> Recording:
        """Return the rows of the questions in a mask."""
        return self.recording.select(settled[_unit_of_row(self.questions)])

    def to_label(self, place: int) -> list[int]:
        """Return the rows to label in order to judge a candidate, in the order of bets."""
        index, names = _unit_of_row(self.questions), self.recording.question_ids
        rows: dict[int, list[int]] = {}
        for row in np.flatnonzero(self.lacking[place]).tolist():
            rows.setdefault(int(index[row]), []).append(row)
        units = self.losses.order[self.needed(place)].tolist()
        return [row for unit in units for row in sorted(rows[unit], key=lambda row: names[row])]

    def asked(self, place: int | None) -> dict[str, Any]:
        """Return the fields of `Advice` on the labels that a candidate needs; empty fields if `place` is None."""
        rows = [] if place is None else self.to_label(place)
        pairs = [self.pairs[place, row] for row in rows] if self.pairs and place is not None else []
        ids = tuple(self.recording.question_ids[row] for row in rows)
        return {"to_label": ids, "asks_for": place, "pairs": tuple(pairs)}


def _unit_of_row(questions: Questions) -> npt.NDArray[np.int64]:
    codes = questions.units.codes
    return np.arange(len(questions.names)) if codes is None else codes


def differing_answers(recording: Recording, trial: Trial) -> Floats:
    """Return the differences in [0, 1] between the answers of candidates and baseline, shape ``(n_candidates, n_questions)``.

    A difference is the largest possible loss under the metric `match`: 0 for equal answers, and 1 for different answers
    or if a round is missing. Means over orders of samples, or over copies of a question, lie between 0 and 1.
    """
    if trial.loop.samples:
        units = measured(recording, trial, _AGREEMENT)  # the agreement of each vote with that of all samples
        # If answers are tied, the baseline may return any of them, so there can be a loss even if votes agree.
        tied = Questions.of(recording).units.sums(_tied(recording).astype(np.float64)) > 0
        return np.where(tied, 1.0, np.maximum(units.worst, 0.0))
    questions, returned = Questions.of(recording), ReturnedAnswers.of(recording, trial)
    differing = (returned.numbers != returned.of_baseline) | returned.unsure
    return np.stack([questions.means(row, failed=1.0) for row in differing])


@dataclass(frozen=True, kw_only=True, eq=False)
class ReturnedAnswers:
    """The answers that candidates and the baseline return in the rows that did not fail.

    Attributes:
        recording: The rows that did not fail.
        numbers: The id of each candidate's answer, shape ``(n_candidates, n_rows)``. Equal answers in a row have the
            same id. The id is -1 if the answer is missing or cannot be read; such an answer is never right.
        of_baseline: The id of the baseline's answer, shape ``(n_rows,)``.
        unsure: Mask of the rows in which the answer of candidate or baseline is unknown, shape of `numbers`.
    """

    recording: Recording
    numbers: Floats
    of_baseline: Floats
    unsure: Mask

    @classmethod
    def of(cls, recording: Recording, trial: Trial) -> ReturnedAnswers:
        """Replay candidates and baseline, with samples in their stored order."""
        start_round = trial.loop.start_round
        account = account_of(
            recording, trial.candidates, trial.baseline, _AGREEMENT, prices=None, orders=1, start_round=start_round
        )
        compared = account.prepared.recording
        ids = compared.answer_ids(normalizer_in(compared))

        def answered(run: Run) -> Floats:
            rounds = np.full(len(ids), -1) if run.answer_rounds is None else run.answer_rounds
            numbers: Floats = np.nan_to_num(at_rounds(compared, ids, rounds), nan=-1.0)
            return numbers

        unknown = account.open_ends | (account.baseline.answer_rounds is None)
        runs = [(answered(loss.run), loss.run.unrun) for loss in account.losses(trial.candidates)]
        return cls(
            recording=compared,
            numbers=np.stack([numbers for numbers, _ in runs]),
            of_baseline=answered(account.baseline),
            unsure=np.stack([unrun | unknown for _, unrun in runs]),
        )


def measured(
    recording: Recording, trial: Trial, metric: str, prices: Prices = None, *, by_unit: bool = False
) -> Measured:
    """Measure the candidates of a trial by a metric, with the orders of samples that the trial declares."""
    options: dict[str, Any] = {"orders": trial.orders, "start_round": trial.loop.start_round, "by_unit": by_unit}
    return measure_candidates(recording, trial.candidates, trial.baseline, metric, prices=prices, **options)


def of_units(losses: Measured, chosen: Mask) -> Measured:
    """Return the measurements restricted to some questions; orders of samples stay the same.

    Args:
        losses: Losses measured with `by_unit`. Quality and random twins become undefined in the result, because labels
            do not determine them.
        chosen: Mask of the questions, shape ``(n_questions,)``.
    """
    if (parts := losses.parts) is None:
        raise ValueError("the losses were measured without their parts: measure with by_unit=True")
    costs = {name: spent[:, chosen] for name, spent in parts.costs.items()}
    totals = replace(
        losses.totals,
        n=int(chosen.sum()),
        n_recorded=int(chosen[parts.places].sum()),
        costs={name: spent.sum(axis=-1) for name, spent in costs.items()},
        failed=int(parts.failed[chosen].sum()),
        unexplained=int(parts.unexplained[chosen].sum()),
    )
    some = Measured(
        worst=losses.worst[:, chosen],
        best=losses.best[:, chosen],
        order=(np.cumsum(chosen) - 1)[losses.order[chosen[losses.order]]],
        totals=totals,
        unpriced={name: int(np.isnan(spent).any(axis=0).sum()) for name, spent in costs.items()},
    )
    return some.within(np.ones_like(some.worst))


def check_asking(selector: str, baseline: str, metric: str, *, samples: bool) -> None:
    """Raise a `DataError` if labels cannot be used with this selector, baseline and metric."""
    if samples and metric == PREFERENCE:
        raise DataError(
            f"{PREFERENCE} judges one answer against another, and the vote of samples returns another one in each order: leave --metric "
            f"out, so that labels say which answers are right ({MATCH})"
        )
    needed = "majority_of_samples" if samples else "last"
    if selector != needed or baseline not in _BASELINES:
        raise DataError(
            f"labels are asked where answers differ from the full run's, and that needs the selector {needed} and the baseline "
            f"{' or '.join(_BASELINES)}, not {selector!r} and {baseline!r}: leave the option out, or import gold answers (--golds FILE)"
        )


def check_noise(noise: float, *, of_labels: bool) -> None:
    """Raise a `DataError` if the declared share of wrong labels is outside [0, 0.5), or no labels are used."""
    if of_labels and 0 <= noise < 0.5:  # noqa: PLR2004 - the throw of a coin
        return
    if not of_labels:
        raise DataError(
            f"label_noise is {noise!r}, and no labels judge here: give them (--ask FILE, labels=...), or leave the option out"
        )
    raise DataError(
        f"label_noise must be at least 0 and below 0.5, not {noise!r}: 0.1 says that one label in ten is wrong at random"
    )


def _various(recording: Recording) -> Mask:
    """Return a mask of the questions with different answers, shape ``(n_questions,)``; a missing answer counts as different."""
    ids = np.where(recording.seen, np.nan_to_num(recording.answer_ids(normalizer_in(recording)), nan=-1.0), np.nan)
    various: Mask = np.nanmin(ids, axis=1) < np.nanmax(ids, axis=1)
    return various


def _tied(recording: Recording) -> Mask:
    """Return a mask of the questions with a tie for the most frequent answer; all False if rounds are not samples."""
    if not recording.independent:
        return np.zeros(recording.shape[0], dtype=np.bool_)
    ids = recording.answer_ids(normalizer_in(recording))
    counts = np.stack([(ids == own).sum(axis=1) for own in range(int(np.nanmax(ids, initial=0.0)) + 1)], axis=1)
    most = counts.max(axis=1, keepdims=True)
    tied: Mask = ((counts == most) & (most > 0)).sum(axis=1) > 1
    return tied
