"""Find the signals that a search can read on tune questions, and fit the state that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.errors import UnknownSignalError
from suffice.evaluation.replay import calibrate
from suffice.evaluation.replay.fitted_state import first_of_question
from suffice.evaluation.replay.outcomes import has_outcome, is_agreement
from suffice.evaluation.search.data import reading
from suffice.policy.calibration import CALIBRATED
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS, VOTES
from suffice.policy.signals.votes import weights_of
from suffice.recordings.recording import Recording
from suffice.recordings.schema import is_computed

_FITTED = {**CALIBRATED, "top_score_z": "top_score"}
_UNREAD = frozenset({"calls", "tokens", "seconds"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined:
    """The signals that a search can read for some questions; the signals of several parts can be joined with `|`.

    Attributes:
        scores: The smallest and the largest `top_score` of any question; infinite without any `top_score`.
        independent: Whether rounds are independent answers that vote.
    """

    recorded: frozenset[str]
    signals: frozenset[str]
    scores: tuple[float, float]
    independent: bool

    @classmethod
    def of(cls, recording: Recording) -> Defined:
        """Examine all signals of a recording."""
        own = {*recording.names("signal")}
        names = [name for name in recording.table.column_names if name in SIGNALS or name in own]
        signals = frozenset(name for name in names if np.isfinite(recording.column(name)).any())
        scores = first_of_question(recording, "top_score") if "top_score" in signals else np.empty(0)
        finite = scores[np.isfinite(scores)]
        ends = float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf))
        return cls(recorded=frozenset(names), signals=signals, scores=ends, independent=recording.independent)

    def __or__(self, other: Defined) -> Defined:
        (low, high), (other_low, other_high) = self.scores, other.scores
        ends = min(low, other_low), max(high, other_high)
        return replace(self, recorded=self.recorded | other.recorded, signals=self.signals | other.signals, scores=ends)

    @property
    def same_score(self) -> bool:
        """True if `top_score` is the same in every question, so that its z-score is undefined."""
        return "top_score" in self.signals and not self.scores[0] < self.scores[1]

    @property
    def columns(self) -> dict[str, str]:
        """The signals that can be read or fitted, each with the column that it comes from.

        A recorded column is preferred to a fitted one.
        """
        there = {name: name for name in self.signals}
        fitted = {name: source for name, source in _FITTED.items() if source in there}
        if self.same_score:
            fitted.pop("top_score_z", None)
        vote_columns = {name: name for name in sorted(VOTES) if self.independent and not weights_of([name])}
        return {"round": "round", **dict.fromkeys(_UNREAD, "cost"), **fitted, **there, **vote_columns}


def fit(
    tune: Recording,
    signals: Sequence[str],
    *,
    target: str | None,
    metric: str = "em",
    defined: Defined | None = None,
) -> Policy:
    """Fit the signals that were not recorded, on tune questions, and return a policy with that state.

    Args:
        tune: Tune questions.
        signals: The signals that a search reads.
        target: The outcome that calibrators predict; None = `em`, or `metric` if that needs no gold answers.
        metric: The quality; also the target if `em` is missing and no calibrator is needed.
        defined: The available signals, if `tune` has only the columns needed for fitting.

    Raises:
        UnknownSignalError: Some signals have no recorded value and cannot be fitted; the message names all of them.
    """
    of = Defined.of(tune) if defined is None else defined
    computed = {name: name for name in signals if name not in tune.table.column_names and is_computed(name)}
    there = {**computed, **of.columns}
    missing = [name for name in signals if name not in there]
    if missing:
        empty = [name for name in missing if name in of.recorded]
        why = f" ({', '.join(empty)}: there, but without a single value)" if empty else ""
        why += " (top_score_z: top_score is the same in every question)" * ("top_score_z" in missing and of.same_score)
        raise UnknownSignalError(
            f"the search needs the columns {', '.join(missing)}, and the recording lacks them{why}. Record or import "
            "them, or search the space 'available', which takes the signals that there are"
        )
    fitted = [name for name in signals if there[name] != name and name in _FITTED]
    if target is None:
        scored = has_outcome(tune, "em") or not CALIBRATED.keys().isdisjoint(fitted)
        target = "em" if scored and not is_agreement(metric) else metric
    policy, _ = calibrate(tune, rule=reading(fitted), target=target, unseen_round="nearest", compare=defined is None)
    return replace(policy, rule=reading(signals))
