"""Facts about all questions of a replay: units, recorded rounds, costs and notes.

`Facts` describe some questions, and `Whole` all of them, in parts; a recording in memory has one part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.evaluation.replay.charging import Charging
from suffice.evaluation.replay.cost_gaps import CostGaps
from suffice.evaluation.replay.costs import TOKEN_KINDS, Ledger
from suffice.evaluation.replay.outcomes import (
    AgreementBasis,
    MultipleChoice,
    choice_notes,
    has_outcome,
    is_agreement,
    outcome,
)
from suffice.evaluation.replay.panels import best_single_note_of, panel_columns
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.references import Available
from suffice.policy.metrics import normalize_answer
from suffice.policy.rounds import COST_KINDS, Mask
from suffice.policy.seen import id_hash, one_name_per_text
from suffice.recordings.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about some questions, except those that failed.

    Attributes:
        clusters: The cluster of each question; None for a question without a cluster.
        texts: The hash of each question's normalised text, "" for a question without a text.  The list is empty if the
            recording has no column of texts.
        cut: Mask of the questions that a rule ended.
        only_closed_book: Whether a rule ended some of the questions at their first round.
        recorded: Mean costs of all recorded rounds, see `cost_means`.
        gaps: Costs that are unknown.
        choice: Counts that show whether the questions are multiple choice.
        agreement: Counts for the note on agreement; None if agreement is not among the metrics.
        measured: For each metric, two values: whether it was measured in any round, and whether it was measured in any
            round before the last.
        panel: For a panel, the columns with the model and the metrics of each answer; else empty.
    """

    ids: Sequence[str] = ()
    clusters: Sequence[Any] = ()
    texts: Sequence[str] = ()
    n_failed: int = 0
    cut: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    only_closed_book: bool = False
    recorded: Mapping[str, float] = field(default_factory=dict)
    gaps: CostGaps = field(default_factory=CostGaps)
    choice: MultipleChoice = field(default_factory=MultipleChoice)
    agreement: AgreementBasis | None = None
    measured: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)
    panel: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    @classmethod
    def of(cls, prepared: PreparedRecording, metrics: Sequence[str]) -> Facts:
        """Return the facts of prepared questions.

        Args:
            prepared: The questions.
            metrics: The metrics that may be needed; those that were not recorded are left out.
        """
        recording = prepared.recording
        n = prepared.n
        texts = recording.texts
        scored = any(name.split(">", maxsplit=1)[0].strip() in ("em", "f1") for name in metrics)
        return cls(
            ids=recording.question_ids,
            clusters=recording.per_question("cluster", [None] * n).tolist(),
            texts=[] if texts is None else [_text_key(text) for text in texts],
            n_failed=prepared.n_failed,
            cut=prepared.cut,
            only_closed_book=bool((prepared.cut & (recording.seen.sum(axis=1) == 1)).any()),
            recorded=cost_means(prepared.costs.recorded),
            gaps=prepared.costs.gaps,
            choice=MultipleChoice.of(recording) if scored else MultipleChoice(),
            agreement=AgreementBasis.of(recording) if any(map(is_agreement, metrics)) else None,
            measured={name: _measured(prepared, name) for name in {*metrics, "em"} if has_outcome(recording, name)},
            panel=panel_columns(recording, metrics),
            models=prepared.costs.models,
        )

    @property
    def n(self) -> int:
        """The number of questions."""
        return len(self.ids)


def _text_key(text: str | None) -> str:
    """Return the hash of a text after normalising it; "" without a text.  The hash itself is a normalised text."""
    known = normalize_answer(text or "")
    return id_hash(known) if known else ""


def _measured(prepared: PreparedRecording, name: str) -> tuple[bool, bool]:
    metrics, seen = prepared.metrics, prepared.recording.seen
    known = ~np.isnan(metrics[name] if name in metrics else outcome(prepared.recording, name))
    last = np.arange(seen.shape[1]) == seen.sum(axis=1, keepdims=True) - 1
    return bool(known.any()), bool((known & ~last).any())


def cost_means(ledger: Ledger) -> dict[str, float]:
    """Return the mean cost per question by kind, `tokens`, `retrievals` and `money` included; NaN where unknown."""
    totals = {kind: float(ledger.total(kind).mean()) for kind in COST_KINDS if kind != "calls"}
    return {
        "calls": float(ledger.calls.mean()),
        **totals,
        "tokens": sum(totals[kind] for kind in TOKEN_KINDS),
        "retrievals": float(ledger.total("retrievals").mean()),
        "money": float(ledger.money.mean()),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class Whole:
    """All questions of a replay.

    Attributes:
        recording: The recording, or only its header if its rows are read part by part.
        facts: Facts about all questions, in parts.
        metrics: The metrics; the first one is the quality.
    """

    recording: Recording
    facts: tuple[Facts, ...]
    charging: Charging
    metrics: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.n:
            raise DataError(
                f"all {self.n_failed} recorded questions failed: run `suffice record` again to complete them"
            )

    @cached_property
    def n(self) -> int:
        """The number of questions."""
        return sum(part.n for part in self.facts)

    @cached_property
    def n_failed(self) -> int:
        """The number of questions left out because their recording failed."""
        return sum(part.n_failed for part in self.facts)

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return list(chain.from_iterable(part.ids for part in self.facts))

    @cached_property
    def _texts(self) -> list[str] | None:
        known = any(any(part.texts) for part in self.facts)
        return list(chain.from_iterable(part.texts or [""] * part.n for part in self.facts)) if known else None

    @cached_property
    def clusters(self) -> list[str]:
        """The unit of each question, see `Recording.clusters`."""
        named = list(chain.from_iterable(part.clusters for part in self.facts))
        if "cluster" not in self.recording.table.column_names:
            return one_name_per_text(self.ids, self._texts)
        return [own if name is None else str(name) for name, own in zip(named, self.ids, strict=True)]

    @cached_property
    def cut(self) -> Mask:
        """Mask of the questions that a rule ended before the recording's highest round."""
        return np.concatenate([part.cut for part in self.facts])

    @property
    def highest(self) -> int:
        """The highest recorded round."""
        return int(self.recording.index[-1])

    @property
    def first(self) -> int:
        """The first recorded round."""
        return int(self.recording.index[0])

    def available(self, start: int) -> Available:
        """Return the baselines that are available for policies with this start round."""
        return Available(
            closed_book=self.first == 0,
            # If a rule ended questions at round 0, as a gate does, the recorded loop began there.
            recorded=bool(self.cut.any()),
            recorded_from=0 if self.first == 0 and any(part.only_closed_book for part in self.facts) else 1,
            earliest=self.highest >= start and self.is_measured("em"),
            best=self.highest >= start and bool(self.metrics) and self.is_measured(self.metrics[0]),
        )

    @cached_property
    def recorded(self) -> dict[str, float]:
        """Mean costs of all recorded rounds, by kind."""
        known = [part for part in self.facts if part.n]
        return {name: sum(part.recorded[name] * part.n for part in known) / self.n for name in known[0].recorded}

    def is_measured(self, metric: str) -> bool:
        """Return whether a metric was measured in some round."""
        return any(part.measured[metric][0] for part in self.facts if metric in part.measured)

    def is_measured_at_the_end_alone(self, metric: str) -> bool:
        """Return whether a metric was measured only in the last round of questions."""
        earlier = any(part.measured[metric][1] for part in self.facts if metric in part.measured)
        return self.is_measured(metric) and not earlier

    @cached_property
    def choice(self) -> MultipleChoice:
        """Counts over all questions that show whether they are multiple choice."""
        return reduce(add, (part.choice for part in self.facts))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes on the recorded questions, which appear in every replay of the recording."""
        gaps = reduce(add, (part.gaps for part in self.facts if part.n))
        notes = [*self.recording.reading_notes, *gaps.notes, *filter(None, [self.charging.note])]
        if any(map(is_agreement, self.metrics)):
            notes.append(reduce(add, (part.agreement for part in self.facts if part.agreement is not None)).note)
        notes += choice_notes(self.recording, self.metrics, self.choice)
        notes += self._single_note() if self.metrics else []
        if self.n_failed:
            notes.append(f"{counted(self.n_failed, 'question')} failed while recording: left out of every row alike")
        units, texts = len(set(self.clusters)), len(set(one_name_per_text(self.clusters, self._texts)))
        if texts < units:
            notes.append(
                f"{units} questions have {texts} texts: intervals take all of them for independent, and are too narrow if "
                "those of one text are one question; give these one value in a column 'cluster'"
            )
        if self.cut.any():
            notes.append(
                f"censored: a rule ended {int(self.cut.sum())} of {len(self.cut)} recorded questions early; what a policy "
                "would have answered in rounds that never ran is unknown"
            )
        return tuple(notes)

    def _single_note(self) -> list[str]:
        parts = [part.panel for part in self.facts if part.panel]
        if not parts:
            return []
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        names = one_name_per_text(self.clusters, self._texts)
        return best_single_note_of(columns, self.recording.metadata.get("panel") or {}, names, self.metrics[0])
