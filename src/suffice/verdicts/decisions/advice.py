"""Advice about a loop: one sentence that begins with a verb, a few figures, and the trial, which can be extended later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice._version import __version__
from suffice.common.files import write_file
from suffice.common.json_text import refuse_constant, sealed_text, unsealed, was_edited
from suffice.common.results import Result, jsonable
from suffice.common.tables import Table, counted, figure
from suffice.errors import NotFoundError, SchemaError
from suffice.evaluation.replay.outcomes import abandoned
from suffice.policy.seen import id_hash
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.decisions.candidates import change_text, is_vote
from suffice.verdicts.decisions.figures import (
    CandidateFigures,
    candidate_columns,
    candidate_figures,
    change_of,
    dominating_label,
    range_notes,
    rivals_text,
    twin_table,
)
from suffice.verdicts.decisions.notes import needed_text, taken_back_text
from suffice.verdicts.decisions.steps import Spending, worth_of
from suffice.verdicts.decisions.trial import AdviceKind, Trial
from suffice.verdicts.decisions.trial_file import trial_from_dict, trial_to_dict
from suffice.verdicts.losses import IF_INDEPENDENT, PREFERENCE, failed_text, open_text, range_text

if TYPE_CHECKING:
    from suffice.common.display import Chart
    from suffice.verdicts.decisions.dollars import Worth

FORMAT = "suffice-decision"
VERSION = 3
"""The version that is written.

In files of version 1 the bets share their capital evenly, and up to 2 the candidates are tested in a fixed sequence; an older
release would wrongly assume the same of this one.
"""
_READ = (1, 2, VERSION)

SELECTED_HERE = "(selected here: these questions also chose it)"
"""What a sentence says of figures that may look better than they are."""

_MOST_ROWS = 5


@dataclass(frozen=True, slots=False, kw_only=True)
class Advice(Result):
    """Advice about a loop, with its certainty and the figures that support it.

    Every figure is computed on the verdict part: the questions that were not used to choose or fit a candidate.

    Attributes:
        trial: The declared question and the evidence.
        notes: Notes for the reader.
        rounds_text: The behaviour of the logged loop, in words.
        where: Filters that chose the loop from a recording of several, such as ``model=gpt-4o``.
        to_label: Ids of the questions to label next, in the order of asking; see `decide`.
        asks_for: The position of the candidate for which the questions in `to_label` need labels; None if no label is needed.
        pairs: The two answers to compare for each question in `to_label`, if `metric` is `preference`.
        spending: Where the money of an agent's runs went; None for other loops.
        worth: The dollars that giving up runs saves and loses; None if no price of a success is given.
        n_left: Number of questions that cannot be judged before the questions in `to_label` have labels. Some of them need no label themselves.
    """

    trial: Trial
    rounds_text: str = ""
    notes: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    to_label: tuple[str, ...] = ()
    asks_for: int | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    n_left: int = 0
    spending: Spending | None = None
    worth: Worth | None = None

    @property
    def n(self) -> int:
        """Number of independent questions of the verdict part."""
        return self.trial.totals.n

    @property
    def verdict(self) -> AdviceKind:
        """The recommended action."""
        return self.trial.verdict

    @property
    def chosen(self) -> int | None:
        """The position of the candidate that the sentence is about; None if there is none."""
        return self.trial.chosen

    def knows(self, recording: Recording) -> bool:
        """Return True if the trial has already used a question of the recording, recognised by its id.

        True does not prove that the recording comes from the same loop: another loop may have been asked the same questions.
        """
        return any(id_hash(name) in self.trial.marks for name in recording.question_ids)

    @property
    def policy(self) -> Policy | None:
        """The policy to deploy; None unless the advice is to change the loop."""
        trial = self.trial
        if trial.verdict != "do it":
            return None
        assert trial.chosen is not None
        policy, n = trial.candidates[trial.chosen], trial.totals.n
        decision = {"metric": trial.metric, "max_loss": trial.max_loss, "alpha": trial.alpha, "questions": n}
        seen = trial.tune | trial.counted
        return replace(policy, provenance={**policy.provenance, **seen.to_dict(), "decision": decision})

    @cached_property
    def sentence(self) -> str:
        """The advice as text that begins with a verb, with a remark on how questions with missing data are counted."""
        trial = self.trial
        said = (
            _verdict_text(trial)
            if trial.totals.n or trial.labels is None
            else "Not enough data: the first question needs a label."
        )
        if trial.verdict == "cannot be judged":
            return said
        missing = [taken_back_text(trial) if trial.verdict == "do it" else ""]
        if trial.totals.failed:
            missing.append(failed_text(trial.totals.failed, left_out=False))
        if trial.totals.unexplained:
            missing.append(
                f"{trial.unexplained}: what they would have answered later is unknown, and counts at its worst; if your loop stopped there by "
                "itself, import with --ended rule"
            )
        if trial.chosen is not None:
            unknown = float(trial.totals.open[trial.chosen]) / (max(trial.totals.n, 1) * trial.by_labels)
            if unknown > 0:
                missing.append(f"In all, {open_text(unknown).replace('that', 'the', 1)}")
        if trial.labels is not None and trial.totals.n:
            missing += self._labels_texts()
        if trial.leave_out_failed:
            missing.append("Questions that failed are left out, as declared")
        return " ".join([said, *(f"{text}." for text in missing if text)])

    def _labels_texts(self) -> list[str]:
        """Return sentences on the labels used so far, and on the labels needed next."""
        trial, n = self.trial, len(self.to_label)
        nothing = "No label so far" if self.to_label else "No label was needed"
        used = nothing if not trial.labels else f"{counted(trial.labels, 'label')} judged"
        texts = [f"{used}: where answers equal those of the full run, nothing is lost"] if trial.totals.n else []
        if trial.metric == PREFERENCE:
            texts.append(
                "A loss is here the share of questions in which the full run's answer is better, less the share in which it is worse"
            )
        if trial.label_noise:
            texts.append(
                f"If {100 * trial.label_noise:g} % of the labels are wrong at random, they show {100 * (1 - 2 * trial.label_noise):g} % of a change: it "
                f"is scaled to the whole, and the bets are against a loss of {100 * trial.bound:.3g} points by these labels"
            )
        if self.asks_for is None:
            if trial.chosen is None:  # the verdict says already that more questions are needed
                return texts
            needed = trial.questions_needed(trial.chosen)
            many = f", on about {range_text(needed)} more questions than these, should do" if needed else " may do"
            return texts + [f"A decision of its own{many}"] * (trial.verdict == "not enough data")
        asked = trial.candidates[self.asks_for].label
        needed = trial.questions_needed(self.asks_for) if trial.totals.n else None
        if trial.verdict == "do it":
            return [*texts, f"To test {asked}, too, label the next of {counted(n, 'question')}"]
        if needed is None or needed[1] >= self.n_left:
            return [
                *texts,
                f"For {asked}, answers differ in {counted(n, 'further question')}: label them, the first ones first",
            ]
        first = max(1, round(n * needed[1] / self.n_left))
        return [
            *texts,
            f"For {asked}, answers differ in {counted(n, 'further question')}: labels of about the first {first:,} should do",
        ]

    @property
    def lead(self) -> str:
        """The sentence of the advice; if anything can be judged, sentences on giving up and on spending follow it."""
        if self.trial.unjudged:
            return f"{self.sentence.rstrip('.')}."
        return " ".join(filter(None, [self.sentence, *(about.sentence for about in self._money)]))

    @property
    def _money(self) -> list[Worth | Spending]:
        worth = None if self.trial.unjudged else self.worth
        return [about for about in (worth, self.spending) if about is not None]

    def table(self) -> Table:
        """Return a table of at most five rows: the current loop, the advised candidate, its rival, and neighbouring candidates."""
        wanted = [place for place in (self.trial.chosen, self.trial.rival) if place is not None]
        sequence = list(self.trial.sequence)
        if self.trial.chosen in sequence:  # readers ask next about the neighbours of the advised candidate
            at = sequence.index(self.trial.chosen)
            sequence.sort(key=lambda place: abs(self.trial.sequence.index(place) - at))
        rest = [*sequence, *range(len(self.trial.candidates))]
        rows = list(dict.fromkeys([*wanted, *rest]))[: _MOST_ROWS - 1]
        costs = self.trial.totals.costs[self.trial.cost]
        return self._table(sorted(rows, key=lambda place: -costs[place]), "What you have, and what you could do")

    @cached_property
    def figures(self) -> list[CandidateFigures]:
        """The figures of each candidate, in the order of the candidates."""
        return candidate_figures(self.trial)

    def plot(self) -> Chart:
        """Return the chart: each candidate's change of the metric, with its interval, against its cost."""
        from suffice.verdicts.decisions.charts import advice_chart

        return advice_chart(self.figures, self.trial, self.now)

    @property
    def now(self) -> str:
        """The baseline with which candidates are compared, in words."""
        if self.trial.against:
            return f"baseline: {self.trial.baseline}"
        return f"now: {self.rounds_text}" if self.rounds_text else "now"

    def tables(self) -> list[Table]:
        """Return the short table, and one table with all candidates."""
        costs = self.trial.totals.costs[self.trial.cost]
        everything = sorted(range(len(self.trial.candidates)), key=lambda place: -costs[place])
        tables = [self.table(), *(about.table() for about in self._money), self._table(everything, "Every candidate")]
        if self.trial.twinned and (twins := twin_table(self.figures, self.trial)) is not None:
            tables.append(twins)
        return tables

    def _table(self, places: Sequence[int], title: str) -> Table:
        trial, n, figures = self.trial, max(self.trial.totals.n_recorded, 1), self.figures
        spent, value = float(trial.totals.costs[trial.cost][-1] / n), float(trial.totals.values[-1] / n)
        have = (self.now, spent, None, value, None, "advised" if trial.verdict == "keep what you have" else "", "")
        rows = (have, *(figures[place].row(trial.cost, trial.max_loss) for place in places))
        others = f", {trial.n_tune:,} others fitted the candidates" if trial.n_tune else ""
        others += f", {self.n_left:,} wait for labels" if self.n_left else ""
        heading = f"{title}: {counted(trial.totals.n, 'question')} judge{others}"
        notes = self.notes + range_notes([figures[place] for place in places], trial.max_loss)
        table = Table(title=heading, columns=candidate_columns(trial), rows=rows, notes=notes)
        if trial.labels is None:
            return table
        # Labels show how much is lost, not how good the answers are.
        return table.with_columns([at for at, column in enumerate(table.columns) if column.name != trial.metric])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values for `Advice.from_dict`."""
        trial, policy = self.trial, self.policy
        values: dict[str, Any] = jsonable(
            {
                "format": FORMAT,
                "version": VERSION,
                "suffice": __version__,
                "verdict": trial.verdict,
                "sentence": self.sentence,
                "n": trial.totals.n,
                "unjudged": trial.unjudged,
                "rounds_text": self.rounds_text,
                "policy": None if policy is None else policy.to_dict(),
                "dominated_by": dominating_label(trial),
                "candidates": [figures.to_dict(trial.metric) for figures in self.figures],
                "notes": list(self.notes),
                "trial": trial_to_dict(trial),
                **({} if trial.mixture is None else {"mixture": trial.mixture}),
                **({"where": list(self.where)} if self.where else {}),
                **({} if self.spending is None else {"spending": self.spending.to_dict()}),
                **({} if self.worth is None else {"success_price": self.worth.price}),
                **({} if trial.labels is None else {"labels": {"used": trial.labels, "to_label": len(self.to_label)}}),
            }
        )
        return values

    @classmethod
    def from_dict(cls, data: Any) -> Advice:
        """Return the advice that `to_dict` wrote; nothing in it is executed.

        Raises:
            SchemaError: The values are not a decision, their version is not supported, or the trial cannot be read.
        """
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise SchemaError(f"this is not a decision: the field 'format' must be {FORMAT!r}")
        if data.get("version") not in _READ:
            raise SchemaError(
                f"decision version {data.get('version')!r} is not readable; this release reads {', '.join(map(str, _READ))}"
            )
        try:
            trial = trial_from_dict(data["trial"])
            notes = dict.fromkeys([*map(str, data["notes"]), *trial.notes])
            where = tuple(map(str, data.get("where", ())))
            spending = None if data.get("spending") is None else Spending.from_dict(data["spending"])
            told: Any = {"rounds_text": str(data["rounds_text"]), "worth": worth_of(trial, data.get("success_price"))}
            return cls(trial=trial, notes=tuple(notes), where=where, spending=spending, **told)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(f"a decision file does not read: {error!r}") from None

    def save(self, path: str | Path) -> None:
        """Write the decision as JSON, whole or not at all."""
        write_file(path, sealed_text(self.to_dict()))

    @classmethod
    def load(cls, path: str | Path) -> Advice:
        """Read a decision file.

        Raises:
            NotFoundError: There is no such file.
            SchemaError: The file is not a decision that this release reads, or somebody edited it.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse_constant)
        except OSError as error:
            raise NotFoundError(f"the decision {str(path)!r} cannot be read: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"the decision {str(path)!r} is not JSON: {error}") from None
        if was_edited(data):
            raise SchemaError(
                f"the decision {str(path)!r} was edited after it was written (its sha256 is not that of its content), so it is no "
                "evidence: restore it, or decide anew into another file"
            )
        return cls.from_dict(unsealed(data))


def _verdict_text(trial: Trial) -> str:
    """Return the advice as one sentence that begins with a verb."""
    totals, place = trial.totals, trial.chosen
    points, judges = f"{100 * trial.max_loss:g} points", counted(totals.n, "question")
    do, show, rule = ("does", "shows", "rules") if totals.n == 1 else ("do", "show", "rule")
    if trial.verdict == "cannot be judged":
        return f"This cannot be judged yet: {trial.unjudged}"
    if trial.verdict == "keep what you have":
        return _keep_text(trial, f"as {judges} {show}")
    if place is None:
        return (
            f"Not enough data: nothing tested that saves {trial.cost} lost less than {points} of {trial.metric} on {judges}, too few to "
            "settle it. Record more questions."
        )
    change = change_text(trial.candidates[place], None if trial.against else trial.loop.highest)
    change = change.replace("stop when", "give up when") if abandoned(trial.metric) else change
    effect = change_of(trial, place)
    shown: float | tuple[float, ...] = effect if np.isfinite(effect).all() else effect[0]  # old files have no interval
    saved, changed = _saved_text(trial, place), f"{figure(shown, '+.1f', 100)} points{trial.against}"
    rivals = rivals_text(trial, place)
    noise = f" and at most {100 * trial.label_noise:g} % of the labels are wrong at random" if trial.label_noise else ""
    if trial.verdict == "do it":
        return (
            f"{change[0].upper()}{change[1:]}: {_taken_text(trial, place, 'with ', ' ')}it saves {saved} and changes {trial.metric} by "
            f"{changed} {SELECTED_HERE}; {judges} {rule} out a loss of {points} or more (risk "
            f"{100 * trial.alpha:g} % {IF_INDEPENDENT}{noise}).{rivals}"
        )
    more = ""
    if trial.labels is None:
        more = f" {needed_text(trial.questions_needed(place))}"
    if place in trial.waiting_for:
        rest = f"{_waiting_text(trial, place, judges, points)}{more}"
    else:
        excluded = -effect[1]
        so_far = f", only of {100 * excluded:.1f}" if 0 < excluded < 1 else ""
        rest = f"{judges} {do} not rule out a loss of {points}{so_far}.{more}"
    return (
        f"Not enough data: to {change} would {_taken_text(trial, place, 'take ', ', ')}save {saved} and change {trial.metric} by "
        f"{changed}, but {rest}{rivals}"
    )


def _keep_text(trial: Trial, source: str) -> str:
    """Return the advice to change nothing, or to undo an earlier change."""
    if taken_back := taken_back_text(trial):
        return f"Go back to what you had: {taken_back}."
    saved = f"{100 * trial.min_saving:g} % of the {trial.cost} or more" if trial.min_saving else trial.cost
    if not trial.saves.any():
        return f"Keep what you have: nothing here would save {saved}, {source}."
    points = f"{100 * trial.max_loss:g} points of {trial.metric}"
    if not trial.hopeless[trial.tested_savers].all():
        return f"Keep what you have: nothing tested that would save {saved} lost less than {points} on these {counted(trial.totals.n, 'question')}{_small_text(trial)}."
    everything = "everything" if trial.hopeless[trial.saves].all() else "everything tested"
    return f"Keep what you have: {everything} that would save {saved} loses more than {points}, {source}."


def _small_text(trial: Trial) -> str:
    """Name the candidate that saves most, though less than `min_saving`, and loses little; empty without one."""
    saving = trial.totals.saving(trial.cost)
    small = [
        place
        for place, saved in enumerate(saving.tolist())
        if 0 < saved < trial.min_saving and trial.totals.losses[place] < trial.bound * trial.totals.n
    ]
    if not small:
        return ""
    best = max(small, key=lambda place: saving[place])
    return f"; of what lost less, {trial.candidates[best].label} saved most, {100 * saving[best]:.1f} %"


def _waiting_text(trial: Trial, place: int, judges: str, points: str) -> str:
    """Explain why a candidate is not proved yet although its evidence would be enough if it were tested alone."""
    one, before = trial.candidates[place].label, [trial.candidates[other].label for other in trial.waiting_for[place]]
    return (
        f"{judges} would be enough to rule out a loss of {points} if {one} alone were tested. The {len(trial.sequence)} tested candidates "
        f"share the risk of {100 * trial.alpha:g} %, so each needs more questions; this one needs fewer once {' and '.join(before)} "
        f"{'is' if len(before) == 1 else 'are'} proved."
    )


def _taken_text(trial: Trial, place: int, before: str, after: str) -> str:
    """Return the mean number of samples as text if the candidate is a vote with a stopping rule; else an empty text."""
    if place not in trial.twinned or not is_vote(trial.candidates[place]):
        return ""
    calls = trial.totals.costs["calls"] / trial.totals.n_recorded
    if not np.isfinite(calls).all():
        return ""
    return f"{before}{calls[place]:.1f} of {calls[-1]:.3g} samples a question{after}"


def _saved_text(trial: Trial, place: int) -> str:
    """Return the share of each cost that a candidate saves, and the money, as text.

    Money is named first if every call has a price and the candidate spends less, even if the cost to save is calls.
    """
    spent = trial.totals.costs["money"]
    is_known = bool(np.isfinite(spent).all() and spent[-1])
    lead = "money" if trial.cost == "calls" and is_known and spent[place] < spent[-1] else trial.cost
    more = []
    for name in ("calls", "tokens"):
        share = float(trial.totals.saving(name)[place])
        of_thoughts = name == "calls" and trial.cost == "tokens" and share < 0  # trial answers; their tokens count
        if name != lead and np.isfinite(share) and not of_thoughts:
            more.append(f"{_percent(share)} of the {name}" if share >= 0 else f"for {_percent(-share)} more {name}")
    if is_known:
        amount = 1000 * float(spent[-1] - spent[place]) / trial.totals.n_recorded
        more.append(f"{trial.currency} {amount:,.{2 if abs(amount) >= 0.1 else 4}f} per 1,000 questions")  # noqa: PLR2004
    text = f"{_percent(float(trial.totals.saving(lead)[place]))} of the {lead}"
    return f"{text} ({', '.join(more)})" if more else text


def _percent(share: float) -> str:
    """Return a share as a percentage: in whole numbers from 1 % on, with one significant digit below 1 %.

    >>> _percent(0.6), _percent(0.004), _percent(-0.12)
    ('60 %', '0.4 %', '-12 %')
    """
    return f"{100 * share:.0f} %" if abs(share) >= 0.01 or not share else f"{100 * share:.1g} %"  # noqa: PLR2004
