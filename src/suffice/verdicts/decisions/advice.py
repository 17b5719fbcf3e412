"""Advice: one sentence with a verb, the few figures behind it, and the trial that more questions can extend."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from suffice._version import __version__
from suffice.common.display import Chart
from suffice.common.files import write_file
from suffice.common.json_text import refuse_constant
from suffice.common.results import Result, jsonable
from suffice.common.tables import Table, counted
from suffice.errors import NotFoundError, SchemaError
from suffice.policy.rounds import Mask
from suffice.policy.seen import id_hash
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.decisions.answer_counts import why_blind
from suffice.verdicts.decisions.candidates import is_fixed_budget
from suffice.verdicts.decisions.figures import (
    CandidateFigures,
    advice_chart,
    candidate_columns,
    candidate_figures,
    twin_table,
)
from suffice.verdicts.decisions.trial import Trial
from suffice.verdicts.decisions.words import AdviceWords
from suffice.verdicts.losses import failed_text, open_text

FORMAT = "suffice-decision"
VERSION = 2
"""The version that is written.  In files of version 1 the bets share their capital evenly; an older release would wrongly assume the same of this one."""
_READ = (1, VERSION)

AdviceKind = Literal["do it", "not enough data", "keep what you have", "cannot be judged"]

_MOST_ROWS = 5


@dataclass(frozen=True, slots=False, kw_only=True)
class Advice(Result):
    """Advice about a loop, with its certainty and the figures behind it.

    Every figure is of the verdict part: questions that neither chose nor fitted a candidate.

    Attributes:
        trial: The declared question and the evidence.
        notes: Notes for the reader.
        rounds_text: The behaviour of the logged loop, in words.
    """

    trial: Trial
    rounds_text: str = ""
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Independent questions of the verdict part."""
        return self.trial.totals.n

    @cached_property
    def chosen(self) -> int | None:
        """The position of the candidate that the sentence is about; None if there is none.

        The cheapest that saves and is proved; else, of those that are tested, save, and seem to lose less than `max_loss`,
        the one that the fewest further questions would prove.
        """
        trial = self.trial
        costs = trial.totals.costs[trial.cost][:-1]
        loss = trial.totals.losses / max(self.n, 1)
        tested = [place for place in trial.sequence if self.saves[place]]
        proved = [place for place in tested if trial.proved[place]]
        if proved:
            return min(proved, key=lambda place: costs[place])
        hopeful = [place for place in tested if loss[place] < trial.max_loss]
        waiting = trial.waiting_for
        return min(
            hopeful,
            key=lambda place: (self._needed_in_order(place) or np.inf, place not in waiting, costs[place]),
            default=None,
        )

    @property
    def saves(self) -> Mask:
        """Mask of the candidates that save on the verdict part; all False without questions."""
        saves: Mask = self.trial.totals.saving(self.trial.cost) > 0
        return saves

    @cached_property
    def unjudged(self) -> str:
        """The reason why nothing can be judged: the metric cannot show a loss, or too much is unknown of all candidates that save; else empty."""
        trial, totals = self.trial, self.trial.totals
        if trial.answers is not None and (reason := trial.answers.unreadable(trial.metric)):
            return reason
        if reason := why_blind(trial.answers, trial.metric, totals.constant, totals.never_varied, self.n):
            return reason
        blocked = totals.blocked(trial.max_loss) & ~trial.hopeless & self.saves
        if not blocked.any() or not (blocked | trial.hopeless)[self.saves].all():
            return ""
        if totals.failed > self.n * trial.max_loss:
            return (
                f"{totals.failed:,} of {counted(self.n, 'question')} failed while recording, and count as lost. Complete the "
                "recording, or leave them out if they failed by chance (leave_out_failed=True, --leave-out-failed)"
            )
        if totals.unexplained > self.n * trial.max_loss:
            return (
                f"{self.unexplained}. If your loop stopped there by itself, import the log again with --ended rule (ended='rule'; "
                "exhausted or max_rounds for other reasons); if rounds are missing, log all. Then decide anew (-o OTHER.json)"
            )
        return (
            f"{trial.metric} is unknown where the candidates would stop in {100 * totals.unknown / self.n:.0f} % of the "
            f"questions. Score every round, or record {counted(self.n, 'question')} at full width"
        )

    @cached_property
    def verdict(self) -> AdviceKind:
        """The recommended action."""
        trial = self.trial
        if self.unjudged:
            return "cannot be judged"
        if (trial.proved & self.saves).any():
            return "do it"
        if self.n and trial.hopeless[self.saves].all():  # also if no candidate saves
            return "keep what you have"
        return "not enough data"

    def knows(self, recording: Recording) -> bool:
        """Return whether the trial has already used a question of the recording, by its id.

        That does not show that the recording comes from the same loop, which may have been asked the same questions.
        """
        return any(id_hash(name) in self.trial.marks for name in recording.question_ids)

    @property
    def policy(self) -> Policy | None:
        """The policy to deploy; None unless the advice is to change the loop."""
        if self.verdict != "do it":
            return None
        assert self.chosen is not None
        policy, trial = self.trial.candidates[self.chosen], self.trial
        decision = {"metric": trial.metric, "max_loss": trial.max_loss, "alpha": trial.alpha, "questions": self.n}
        seen = trial.tune | trial.counted
        return replace(policy, provenance={**policy.provenance, **seen.to_dict(), "decision": decision})

    @property
    def sentence(self) -> str:
        """The advice, beginning with a verb, and the treatment of questions with missing data."""
        if self.verdict == "cannot be judged":
            return AdviceWords(self).verdict
        missing = [failed_text(self.trial.totals.failed, left_out=False)]
        if self.trial.totals.unexplained:
            missing.append(
                f"{self.unexplained}, so they count at their worst; if your loop stopped there by itself, import with --ended rule"
            )
        if self.chosen is not None:
            text = open_text(float(self.trial.totals.open[self.chosen] / max(self.n, 1)))
            missing.append(f"In all, {text.replace('that', 'the', 1)}" if text else "")
        if self.trial.leave_out_failed:
            missing.append("Questions that failed are left out, as declared")
        return " ".join([AdviceWords(self).verdict, *(f"{text}." for text in missing if text)])

    @property
    def unexplained(self) -> str:
        """Number of questions that have fewer rounds than others for no recorded reason."""
        n = self.trial.totals.unexplained
        have = "has" if n == 1 else "have"
        return f"{n:,} of {counted(self.n, 'question')} {have} fewer than {self.trial.loop.highest} rounds, and the log does not say why"

    @property
    def against(self) -> str:
        """The baseline in words; empty if it is the logged loop itself."""
        return "" if self.trial.baseline == "recorded" else f" against {self.trial.baseline}"

    @property
    def lead(self) -> str:
        """The sentence."""
        return self.sentence

    def questions_needed(self, place: int) -> int | None:
        """Return the approximate number of further questions that would prove a tested candidate; None if its own evidence is complete."""
        return None if place in self.trial.waiting_for else self._needed_in_order(place)

    def _needed_in_order(self, place: int) -> int | None:
        """Return the largest number of questions that a candidate up to this one needs, since the sequence of tests ends at the first failure."""
        upto = self.trial.sequence[: self.trial.sequence.index(place) + 1]
        shown = self.trial.below.shown(self.trial.alpha) & ~self.trial.contradicted
        numbers = [self.trial.below.more_losses(self.trial.alpha, before) for before in upto if not shown[before]]
        known = [number for number in numbers if number is not None]
        return max(known) if known and len(known) == len(numbers) else None

    @cached_property
    def rival(self) -> int | None:
        """The position of the cheapest other fixed budget that has at least the metric of the chosen one and costs no more.

        A budget that may lose more than `max_loss`, given what is unknown, does not count.
        """
        if self.chosen is None:
            return None
        trial, me = self.trial, self.chosen
        values, costs = trial.totals.values, trial.totals.costs[trial.cost]
        most = trial.max_loss * self.n
        others = [
            place
            for place, policy in enumerate(trial.candidates)
            if place != me
            and is_fixed_budget(policy)
            and trial.totals.losses[place] <= most
            and values[place] >= values[me]
            and costs[place] <= costs[me]
            and (values[place], -costs[place]) != (values[me], -costs[me])
        ]
        return min(others, key=lambda place: costs[place]) if others else None

    def _rows(self) -> list[int]:
        """Return the positions of the candidates in the short table: the advised one, its rival, then others in order."""
        wanted = [place for place in (self.chosen, self.rival) if place is not None]
        sequence = list(self.trial.sequence)
        if self.chosen in sequence:  # a reader will ask next about the neighbours of the advised candidate
            at = sequence.index(self.chosen)
            sequence.sort(key=lambda place: abs(self.trial.sequence.index(place) - at))
        rest = [*sequence, *range(len(self.trial.candidates))]
        rows = list(dict.fromkeys([*wanted, *rest]))[: _MOST_ROWS - 1]
        costs = self.trial.totals.costs[self.trial.cost]
        return sorted(rows, key=lambda place: -costs[place])

    @property
    def figures(self) -> list[CandidateFigures]:
        """The figures of each candidate, in their order."""
        advised = self.chosen if self.verdict == "do it" else None
        return candidate_figures(
            self.trial, advised, {place: self.questions_needed(place) for place in self.trial.sequence}
        )

    def plot(self) -> Chart:
        """Return the chart of each candidate's change of the metric, with its interval, against its cost."""
        return advice_chart(self.figures, self.trial, self.now)

    @property
    def now(self) -> str:
        """The baseline of differences, in words."""
        if self.against:
            return f"baseline: {self.trial.baseline}"
        return f"now: {self.rounds_text}" if self.rounds_text else "now"

    def table(self) -> Table:
        """Return a table of the current loop, the advised candidate and its neighbours: at most five rows."""
        return self._table(self._rows(), "What you have, and what you could do")

    def tables(self) -> list[Table]:
        """Return the short table, and one with every candidate."""
        costs = self.trial.totals.costs[self.trial.cost]
        everything = sorted(range(len(self.trial.candidates)), key=lambda place: -costs[place])
        twins = twin_table(self.figures, self.trial)
        return [self.table(), self._table(everything, "Every candidate"), *([] if twins is None else [twins])]

    def _table(self, places: Iterable[int], title: str) -> Table:
        trial, n, figures = self.trial, max(self.trial.totals.n_recorded, 1), self.figures
        spent, value = float(trial.totals.costs[trial.cost][-1] / n), float(trial.totals.values[-1] / n)
        have = (self.now, spent, None, value, None, "advised" if self.verdict == "keep what you have" else "", "")
        rows = (have, *(figures[place].row(trial.cost, trial.max_loss) for place in places))
        heading = f"{title}, on {counted(self.n, 'question')} of the verdict part"
        return Table(title=heading, columns=candidate_columns(trial), rows=rows, notes=self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values for `Advice.from_dict`."""
        trial, policy = self.trial, self.policy
        values: dict[str, Any] = jsonable(
            {
                "format": FORMAT,
                "version": VERSION,
                "suffice": __version__,
                "verdict": self.verdict,
                "sentence": self.sentence,
                "n": self.n,
                "unjudged": self.unjudged,
                "rounds_text": self.rounds_text,
                "policy": None if policy is None else policy.to_dict(),
                "dominated_by": None if self.rival is None else trial.candidates[self.rival].label,
                "candidates": [figures.to_dict(trial.metric) for figures in self.figures],
                "notes": list(self.notes),
                "trial": trial.to_dict(),
            }
        )
        return values

    @classmethod
    def from_dict(cls, data: Any) -> Advice:
        """Return the advice that `to_dict` wrote; nothing in it is executed.

        Raises:
            SchemaError: It is not a decision, has another version, or its trial cannot be read.
        """
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise SchemaError(f"this is not a decision: the field 'format' must be {FORMAT!r}")
        if data.get("version") not in _READ:
            raise SchemaError(
                f"decision version {data.get('version')!r} is not readable; this release reads {', '.join(map(str, _READ))}"
            )
        try:
            return cls(
                trial=Trial.from_dict(data["trial"]),
                rounds_text=str(data["rounds_text"]),
                notes=tuple(map(str, data["notes"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(f"a decision file does not read: {error!r}") from None

    def save(self, path: str | Path) -> None:
        """Write the decision as JSON, whole or not at all."""
        write_file(path, json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Advice:
        """Read a decision file.

        Raises:
            NotFoundError: There is no such file.
            SchemaError: The file is not a decision that this release reads.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse_constant)
        except OSError as error:
            raise NotFoundError(f"the decision {str(path)!r} cannot be read: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"the decision {str(path)!r} is not JSON: {error}") from None
        return cls.from_dict(data)
