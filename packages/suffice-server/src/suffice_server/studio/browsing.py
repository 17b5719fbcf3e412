"""Browse the questions of a recording page by page, with a search and with filters by the outcome of a policy."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.tables import Column, Table
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay import check_policy, policy_for
from suffice.evaluation.replay.baselines import fixed_budget
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import Floats, Mask
from suffice.policy.session import Policy
from suffice.presentation.trajectories import Passages, Stopped, to_dicts
from suffice.recordings import Recording, read_recording
from suffice.verdicts.watches.requests import numbers_of
from suffice_server.studio.describing import headline_metric
from suffice_server.studio.workbench import Workbench

PAGE_SIZE = 50
"""Questions on one page."""

_WRONG_BELOW = 0.5
_POLICIES = 16
"""Policies whose stops are cached, for each recording."""

FILTERS = {
    "all": ("All", "every question"),
    "wrong": ("Wrong", "the returned answer scores below one half"),
    "early": ("Stopped early", "the policy stopped before the last recorded round"),
    "lost": ("Lost by stopping", "stopped early, and the answer of the full budget scores higher"),
    "saved": ("Saved", "stopped early, and nothing was lost"),
    "differs": ("Other answer", "the full budget returns another answer"),
    "against": ("Other than the baseline", "another answer than that of the policy which it is compared with"),
    "failed": ("Failed or cut", "the recording failed, or a rule cut it before the policy stops"),
    "audited": ("Audited", "drawn for an audit when it was asked"),
}
"""Filters of the list of questions: title and meaning by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """The outcome of a policy for each question of a recording; arrays have shape ``(n_questions,)``.

    Attributes:
        policy: The policy.
        stop: The stop round; -1 without a stop.
        answer: The round of the returned answer; -1 without one.
        last: The last recorded round.
        reasons: The reason for the stop; `failed` if the question failed while it was recorded, `unrun` if its recorded
            rounds end before the policy stops.
        score: The metric of the returned answer; NaN if unknown.
        whole: The metric of the answer after the full budget; NaN if unknown.
        filters: A mask of questions for each filter in `FILTERS`.
        notes: Cautions about this policy on this recording.
    """

    policy: Policy
    stop: npt.NDArray[np.int64]
    answer: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    reasons: npt.NDArray[np.object_]
    score: Floats
    whole: Floats
    filters: Mapping[str, Mask]
    notes: tuple[str, ...]


class Browsed:
    """A recording with everything that browsing needs, each part computed on first use.

    Args:
        recording: Recorded rounds.

    Attributes:
        recording: The recording.
        metric: The metric that lists show; empty if the recording has neither metrics nor answers.
        workbench: Tries rules on the recording.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.metric = headline_metric(recording)
        self.workbench = Workbench(recording, self.metric)
        self._fates: dict[str, Fates] = {}
        self._lock = threading.RLock()

    @classmethod
    def read(cls, path: Path) -> Browsed:
        """Read a recording."""
        return cls(read_recording(path))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metric as a tuple of one name; empty if lists show no metric."""
        return (self.metric,) if self.metric else ()

    @cached_property
    def prepared(self) -> PreparedRecording:
        """The recording without failed questions, prepared for replay; samples are replayed in their stored order.

        Raises:
            DataError: All questions failed.
        """
        return PreparedRecording.of(self.recording, self.metrics, samples=True)

    @cached_property
    def whole(self) -> Policy:
        """The policy that never stops before the last recorded round."""
        return policy_for(self.recording, "full", name="the full budget")

    @cached_property
    def _texts(self) -> list[str]:
        """The searched text of each question in lower case: id, question, gold answers and answers."""
        n, nothing = len(self.recording.question_ids), [None] * len(self.recording.question_ids)
        parts: list[list[str]] = [[name] for name in self.recording.question_ids]
        for q, (question, golds) in enumerate(
            zip(
                self.recording.per_question("question", nothing).tolist(),
                self.recording.per_question("golds", nothing).tolist(),
                strict=True,
            )
        ):
            parts[q] += [str(question or ""), *map(str, golds or ())]
        if "answer" in self.recording.table.column_names:
            for q, answers in enumerate(self.recording.answers.tolist()):
                parts[q] += dict.fromkeys(str(answer) for answer in answers if answer)
        return ["\n".join(parts[q]).lower() for q in range(n)]

    def fates(self, policy: Policy) -> Fates:
        """Replay a policy on every question; cached by the policy's digest.

        Raises:
            SufficeError: The policy is not fitted, or reads a signal that was not recorded.
        """
        with self._lock:
            key = policy.digest
            if key not in self._fates:
                while len(self._fates) >= _POLICIES:
                    del self._fates[next(iter(self._fates))]
                self._fates[key] = self._replayed(policy)
            return self._fates[key]

    def _replayed(self, policy: Policy) -> Fates:
        notes = check_policy(policy, self.recording)
        recording, n = self.recording, len(self.recording.question_ids)
        fine = np.asarray(recording.ends != "failed", dtype=np.bool_)
        stop, answer = np.full(n, -1), np.full(n, -1)
        score, whole, differs = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, dtype=np.bool_)
        reasons = np.full(n, "failed", dtype=object)
        last = recording.index[recording.shape[1] - 1 - np.argmax(recording.seen[:, ::-1], axis=1)]
        if fine.any():
            stopped = Stopped.of(self.prepared, policy)
            stop[fine], answer[fine] = stopped.stops.rounds, stopped.stops.answer_rounds
            reasons[fine], differs[fine] = stopped.reasons, stopped.differs
            if self.metric:
                metric = self.prepared.in_view(self.prepared.metrics[self.metric], stopped.stops.view)
                rows = np.arange(len(metric))
                places = stopped.stops.answer_position
                score[fine] = np.where(places >= 0, metric[rows, np.maximum(places, 0)], 0.0)
                whole[fine] = np.where(stopped.full >= 0, metric[rows, np.maximum(stopped.full, 0)], np.nan)
        # Without a recorded stop there is nothing to compare: such questions are neither lost nor saved.
        unknown = (reasons == "failed") | (reasons == "unrun") | ~fine
        score[reasons == "unrun"] = np.nan
        early = (stop < last) & ~unknown
        filters = {
            "all": np.ones(n, dtype=np.bool_),
            "wrong": score < _WRONG_BELOW,
            "early": early,
            "lost": early & (score < whole),
            "saved": early & (score >= whole),
            "differs": differs,
            "against": np.zeros(n, dtype=np.bool_),
            "failed": unknown,
        }
        if "audited" in recording.table.column_names:
            filters["audited"] = numbers_of(recording, "audited") == 1
        return Fates(
            policy=policy,
            stop=stop,
            answer=answer,
            last=last,
            reasons=reasons,
            score=score,
            whole=whole,
            filters=filters,
            notes=notes,
        )

    def compared(self, fates: Fates, other: Policy) -> Fates:
        """Add a filter for the questions to which another policy returns a different answer.

        Raises:
            SufficeError: The other policy is not fitted, or reads a signal that was not recorded.
        """
        if "answer" not in self.recording.table.column_names:
            return fates
        ids, rows = self.recording.answer_ids(fates.policy.normalizer), np.arange(len(fates.answer))
        mine, theirs = (
            np.where(of.answer >= 0, ids[rows, np.maximum(of.answer - int(self.recording.index[0]), 0)], np.nan)
            for of in (fates, self.fates(other))
        )
        differs = (mine != theirs) & ~(np.isnan(mine) & np.isnan(theirs)) & ~fates.filters["failed"]
        return replace(fates, filters={**fates.filters, "against": differs})

    def positions(self, fates: Fates, chosen: str = "all", search: str = "") -> npt.NDArray[np.int64]:
        """Return the indices of the questions that pass a filter and a search, ascending.

        Raises:
            DataError: There is no such filter.
        """
        if chosen not in fates.filters:
            raise DataError(f"there is no filter {chosen!r}; there are: {', '.join(fates.filters)}")
        places = np.flatnonzero(fates.filters[chosen])
        words = search.lower().strip()
        if not words:
            return places
        texts = self._texts
        return np.array([q for q in places.tolist() if words in texts[q]], dtype=np.int64)

    def summaries(self, fates: Fates, places: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return the lines of the list for the given questions, JSON-ready."""
        part = self._part(places)
        texts = part.per_question("question", part.question_ids).tolist()
        return [
            {
                "place": q,
                "id": part.question_ids[i],
                "text": texts[i] or part.question_ids[i],
                "stop": int(fates.stop[q]),
                "last": int(fates.last[q]),
                "reason": str(fates.reasons[q]),
                "score": float(fates.score[q]),
                "lost": bool(fates.filters["lost"][q]),
                "saved": bool(fates.filters["saved"][q]),
            }
            for i, q in enumerate(places.tolist())
        ]

    def _part(self, places: npt.NDArray[np.int64]) -> Recording:
        keep = np.zeros(len(self.recording.question_ids), dtype=np.bool_)
        keep[places] = True
        return self.recording.select(keep)

    def question(self, place: int, policy: Policy, passages: Passages | None = None) -> dict[str, Any]:
        """Return one question with all its rounds and a policy's decision, JSON-ready, as in a report.

        Args:
            place: Index of the question in the recording.
            policy: The policy that decides.
            passages: The text of the evidence.

        Raises:
            NotFoundError: There is no question at that index.
        """
        if not 0 <= place < len(self.recording.question_ids):
            raise NotFoundError(
                f"there is no question {place + 1}; the recording has {len(self.recording.question_ids):,}"
            )
        one = self._part(np.array([place]))
        alone = PreparedRecording(recording=one, metric_names=self.metrics)
        stopped = [Stopped.of(alone, policy)]
        (question,) = to_dicts(alone, stopped, np.array([0]), passages)
        return question

    def cell(self, place: int, round_number: int, field: str) -> str:
        """Return the full text of one field of one round.

        Raises:
            NotFoundError: The recording has no text in this place.
        """
        if field in ("answer", "text", "feedback") and 0 <= place < len(self.recording.question_ids):
            one = self._part(np.array([place]))
            if field in one.table.column_names and round_number in one.index.tolist():
                text = one.objects(field)[0, round_number - int(one.index[0])]
                if isinstance(text, str):
                    return text
        raise NotFoundError("there is no such text in this round")

    @cached_property
    def budgets(self) -> Table:
        """Return the quality and cost of every fixed budget, one row for each."""
        first = max(1, int(self.recording.index[0]))
        runs = [fixed_budget(self.prepared, k) for k in range(first, self.prepared.highest + 1)]
        shown = [(name.upper() if name in METRICS else name, ",.1f", 100, name) for name in self.metrics]
        costs = (("calls", ",.2f"), ("tokens", ",.0f"), ("seconds", ",.2f"))
        return Table(
            title="Every question stops after k rounds",
            columns=(
                Column("budget"),
                *(Column(title, spec, scale=scale) for title, spec, scale, _ in shown),
                *(Column(name, spec) for name, spec in costs),
            ),
            rows=tuple(
                (
                    run.label,
                    *(float(np.mean(run.values[name])) for *_, name in shown),
                    *(float(np.mean(run.ledger.spent(name))) for name, _ in costs),
                )
                for run in runs
            ),
        )
