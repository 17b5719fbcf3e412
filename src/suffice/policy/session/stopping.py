"""The stops of a policy on many recorded questions at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.policy.rounds import Mask, Positions, Rounds
from suffice.policy.session.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """The stops of a policy on recorded questions; every array has shape ``(n_questions,)``.

    Attributes:
        view: The rounds that the policy read, from its start round on.
        position: Position of the stop on the last axis of `view`; -1 if no round was seen.
        answer_position: Position of the returned answer; -1 if no seen round has an answer.
        fired: Whether the rule fired at the stop; otherwise the rounds ran out.
    """

    view: Rounds
    position: npt.NDArray[np.int64]
    answer_position: npt.NDArray[np.int64]
    fired: Mask

    @property
    def rounds(self) -> npt.NDArray[np.int64]:
        """The round of each stop; -1 where no round was seen."""
        return np.where(self.position >= 0, self.view.index[self.position], -1)

    @property
    def answer_rounds(self) -> npt.NDArray[np.int64]:
        """The round of each returned answer; -1 if no answer is returned."""
        return np.where(self.answer_position >= 0, self.view.index[self.answer_position], -1)

    def charged(self) -> Mask:
        """Return a mask of the rounds that a question is charged for, up to its stop, shape ``(n_questions, n_rounds)`` of `view`."""
        mask: Mask = self.view.seen & (np.arange(len(self.view)) <= self.position[:, None])
        return mask

    def cut(self, ends: npt.NDArray[Any], max_rounds: int) -> Mask:
        """Return a mask of questions whose recording a rule ended before `max_rounds`, shape ``(n_questions,)``."""
        mask = np.zeros(len(ends), dtype=np.bool_)
        by_rule = np.flatnonzero(ends == "rule")
        last = self.view.seen[by_rule].sum(axis=-1) - 1
        mask[by_rule] = np.where(last >= 0, self.view.index[last], -1) < max_rounds
        return mask

    def unrun(self, ends: npt.NDArray[Any], max_rounds: int) -> Mask:
        """Return a mask of questions in which the policy continues past the recorded rounds, shape ``(n_questions,)``.

        A rule ended the recording of these questions, so the next rounds never ran and their outcome is unknown. The
        recording of any other question ended as a live run would have.

        Args:
            ends: The reason why each recorded trajectory has no further round, shape ``(n_questions,)``.
            max_rounds: The policy's highest round.
        """
        return self.cut(ends, max_rounds) & ~self.fired

    def reasons(self, ends: npt.NDArray[Any], max_rounds: int) -> list[str]:
        """Return the reason for each question's stop, as a live session gives it; "unrun" if it is unknown, see `unrun`.

        Args:
            ends: The reason why each recorded trajectory has no further round, shape ``(n_questions,)``.
            max_rounds: The policy's highest round.
        """
        reasons = np.full(len(self.position), "rule", dtype=object)
        others, named = self._other_reasons(ends, max_rounds)
        reasons[others] = named
        return [*reasons.tolist()]

    def counted_reasons(self, ends: npt.NDArray[Any], max_rounds: int) -> Counter[str]:
        """Count the questions by `reasons`, without building the list."""
        others, named = self._other_reasons(ends, max_rounds)
        return Counter({"rule": len(self.position) - len(others)}) + Counter(named.tolist())

    def _other_reasons(self, ends: npt.NDArray[Any], max_rounds: int) -> tuple[Positions, npt.NDArray[np.object_]]:
        """Return the positions of the questions that did not simply stop by the rule, and the reason for each one's stop.

        They are the questions at whose stop the rule did not fire, and the questions without an answer.
        """
        others = np.flatnonzero(~self.fired | (self.position < 0) | (self.answer_position < 0))
        position, fired = self.position[others], self.fired[others]
        ended = np.where(self.view.index[position] == max_rounds, "max_rounds", ends[others])
        reasons = np.where(fired, "rule", ended).astype(object)
        reasons[(position < 0) | (self.answer_position[others] < 0)] = "failed"
        reasons[self.unrun(ends, max_rounds)[others]] = "unrun"
        return others, reasons


def stops(policy: Policy, raw: Rounds) -> Stops:
    """Find the stops of a policy on recorded questions.

    Args:
        policy: The policy.
        raw: Raw columns, shape ``(n_questions, n_rounds)``, with answers.
    """
    view = policy.view(raw)
    position, fired = stop_positions(policy, view)
    answer_position = policy.selector.select(view, position)
    return Stops(view=view, position=position, answer_position=answer_position, fired=fired)


def stop_positions(policy: Policy, view: Rounds) -> tuple[Positions, Mask]:
    """Return `Stops.position` and `Stops.fired` of a policy's view."""
    fires = policy.rule.fires(view) & view.seen
    first = np.asarray(np.argmax(fires, axis=-1))
    fired = np.take_along_axis(fires, first[..., None], axis=-1)[..., 0]
    first[~fired] = view.seen[~fired].sum(axis=-1) - 1
    return first, fired
