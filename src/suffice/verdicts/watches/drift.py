"""Drift since the policy was fitted: signals and loop behaviour in the log, compared with tune questions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.common.tables import Column, Table, counted
from suffice.evaluation.statistics import Coded
from suffice.evaluation.statistics.restarts import share
from suffice.policy.rounds import COST_KINDS, Floats, Mask
from suffice.policy.session import Policy
from suffice.policy.signals import ABSTAIN_PATTERNS, abstained_by, clean_column
from suffice.recordings.merging import LEFT_OUT
from suffice.recordings.recording import Recording
from suffice.verdicts.diagnostics.drift import kolmogorov_p, kolmogorov_smirnov
from suffice.verdicts.diagnostics.rows import mean_known
from suffice.verdicts.losses import at_rounds
from suffice.verdicts.watches.losses import reference_stops
from suffice.verdicts.watches.requests import Requests, numbers_of

_READ, _OTHER, _HABIT = "the rule reads it", "signal", "habit"
_TOKEN_ENDINGS = tuple(f".{kind}" for kind in COST_KINDS if kind.endswith("tokens"))
KEPT = "watched."
"""Prefix of the columns with the numbers of requests whose rounds are left out."""

_FEWEST_VALUES = 20
"""Fewest values on either side for a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """One number of each request (a signal, cost or length), compared in each window with the same number of tune questions.

    Attributes:
        role: The kind of number: a signal that the rule reads, another recorded signal, or a habit of the loop (stops,
            costs, length).
        now: Mean of the number in the last whole window.
        distance: The largest distance between the two distribution functions in the last whole window, in [0, 1].
        p: Probability of at least this distance if both sets came from one distribution.
        since: Position of the first request of the first window in which the number moved; None if there is none.
        moved: Whether the number moved in some window and still differs by at least the effect size in the last whole window.
    """

    name: str
    role: str
    before: float
    now: float
    distance: float
    p: float
    since: int | None
    moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifts:
    """The numbers that were compared for drift, and the settings.

    Attributes:
        movements: Every number that the log and the tune questions both have.
        reference: The questions or requests that the log is compared with, in words.
        n_windows: Number of whole windows; each is tested once.
        alpha: The risk that any number in any window is falsely said to have moved.
        effect: The smallest distance that counts as drift.
    """

    movements: tuple[Movement, ...]
    reference: str
    window: int
    n_windows: int
    alpha: float
    effect: float
    notes: tuple[str, ...] = ()

    @property
    def moved(self) -> list[Movement]:
        """The numbers that moved: signals that the rule reads come first, and otherwise larger distances come first."""
        moved = [item for item in self.movements if item.moved]
        return sorted(moved, key=lambda item: (item.role != _READ, -item.distance))

    @property
    def of_rule(self) -> list[Movement]:
        """The moved signals that the rule reads."""
        return [item for item in self.moved if item.role == _READ]

    def table(self, ids: list[str]) -> Table:
        """Return the table of all numbers; the numbers that moved come first."""
        rows = [*self.moved, *sorted((m for m in self.movements if not m.moved), key=lambda m: (m.role, -m.distance))]
        return Table.of(
            f"What has moved: the last whole window of {self.window:,} requests beside {self.reference}",
            rows,
            {
                Column("what"): "name",
                Column("role"): "role",
                Column("before", ",.3g"): "before",
                Column("now", ",.3g"): "now",
                Column("distance", ".3f"): "distance",
                Column("p", ".2g"): "p",
                Column("moved"): lambda item: (
                    "" if item.since is None else f"since {ids[item.since]}" if item.moved else "for a while"
                ),
            },
            notes=(
                (
                    f"one number for each request, and p by the number of different questions; distance: between the two distribution functions, at least {self.effect:g} to count; "
                    f"the risk of any false alarm is {100 * self.alpha:g} %, over all numbers and {counted(self.n_windows, 'window')}"
                ),
                *self.notes,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Numbers of each question by name, each of shape ``(n_questions,)``, and the role of each number."""

    values: Mapping[str, Floats]
    roles: Mapping[str, str]


def drifts_of(
    requests: Requests, tune: Recording | None, *, window: int, alpha: float = 0.05, effect: float = 0.1
) -> Drifts:
    """Compare each whole window of a log with a replay of the policy on tune questions.

    The same policy stops requests and tune questions, so the same rounds are missing on both sides.  Each window is
    tested once; the k-th test spends ``alpha * share(k)`` over all numbers, so the risk over an infinite log is alpha.

    Args:
        requests: The requests of the log.
        tune: Recorded rounds; None = the first window of the log itself.
        window: Number of requests in a window.
        alpha: The risk of any false alarm.
        effect: The smallest distance between the distribution functions that counts as drift, because a million
            requests can show differences that are too small to matter.
    """
    notes = []
    mine = habits_of(requests)
    n = len(requests)
    if tune is not None:
        stopped = reference_stops(tune, requests.policy)
        ran = tune.seen & (tune.index >= requests.policy.start_round) & (tune.index <= stopped.rounds[:, None])
        theirs, first = _habits(tune, requests.policy, ran, stopped.rounds, stopped.answer_rounds), 0
        unrun = int(stopped.unrun(tune.ends, requests.policy.max_rounds).sum())
        reference = f"{counted(len(stopped.rounds), 'tune question')} under the same policy"
        if unrun:
            notes.append(
                f"in {counted(unrun, 'tune question')} the policy goes on past what was recorded: censored there"
            )
    else:
        part = {name: values[:window] for name, values in mine.values.items()}
        theirs, first = Habits(values=part, roles=mine.roles), window
        reference = f"the first {window:,} requests of the log"
        notes.append(
            "without tune questions (tune) the log is compared with its own beginning: what was wrong from the first day does not show"
        )
    starts = range(first, n - window + 1, window)
    questions = np.unique(requests.questions, return_inverse=True)[1]
    known = {name: int(np.isfinite(values).sum()) for name, values in theirs.values.items()}
    names = [name for name in mine.values if known.get(name, 0) >= _FEWEST_VALUES]
    missing = sorted(name for name, role in mine.roles.items() if role == _READ and name not in names)
    if missing:
        notes.append(f"not compared, since tune questions do not have it: {', '.join(missing)}")
    if not starts:
        more = first + window - n
        notes.append(f"{counted(more, 'more request')} until the first whole window")
    movements = tuple(
        _movement_of(
            name,
            mine.roles[name],
            before=theirs.values[name],
            values=mine.values[name],
            questions=questions,
            starts=starts,
            window=window,
            alpha=alpha / max(len(names), 1),
            effect=effect,
        )
        for name in names
    )
    return Drifts(
        movements=movements,
        reference=reference,
        window=window,
        n_windows=len(starts),
        alpha=alpha,
        effect=effect,
        notes=tuple(notes),
    )


def _movement_of(
    name: str,
    role: str,
    *,
    before: Floats,
    values: Floats,
    questions: npt.NDArray[np.int64],
    starts: range,
    window: int,
    alpha: float,
    effect: float,
) -> Movement:
    reference = Coded.of(before)
    n_before = int(reference.defined.sum())
    since, distance, p = None, math.nan, math.nan
    for look, start in enumerate(starts, start=1):
        part = Coded.of(values[start : start + window])
        # A request that repeats a question adds no new value.
        n_now = len(np.unique(questions[start : start + window][part.defined]))
        if n_now < _FEWEST_VALUES:
            distance, p = math.nan, math.nan
            continue
        distance = kolmogorov_smirnov(reference, part)
        p = kolmogorov_p(distance, n_before, n_now)
        if since is None and distance >= effect and p <= alpha * float(share(look)):
            since = start
    last = values[starts[-1] : starts[-1] + window] if len(starts) else values
    return Movement(
        name=name,
        role=role,
        before=mean_known(before),
        now=mean_known(last),
        distance=distance,
        p=p,
        since=since,
        moved=since is not None and distance >= effect,
    )


def habits_of(requests: Requests) -> Habits:
    """Return the numbers of each request.

    If the rounds of a request were left out of the log, the numbers that were stored in their place are used.
    """
    recording = requests.recording
    habits = _habits(recording, requests.policy, requests.ran, requests.stop, requests.answer)
    left_out = numbers_of(recording, LEFT_OUT) > 0
    if not left_out.any():
        return habits
    kept = {name: numbers_of(recording, f"{KEPT}{name}") for name in habits.values}
    values = {name: np.where(left_out, kept[name], column) for name, column in habits.values.items()}
    return Habits(values=values, roles=habits.roles)


def _habits(
    recording: Recording, policy: Policy, ran: Mask, stop: npt.NDArray[np.int64], answer: npt.NDArray[np.int64]
) -> Habits:
    """Compute the numbers of questions that a policy stopped: signals in the rounds that ran, and habits of the loop."""
    values: dict[str, Floats] = {}
    roles: dict[str, str] = {}

    def add(name: str, role: str, column: Floats) -> None:
        values[name], roles[name] = np.asarray(column, dtype=np.float64), role

    n_ran = ran.sum(axis=1)
    columns = {
        name: clean_column(name, recording.column(name), index=recording.index) for name in recording.names("signal")
    }
    read = {policy.raw_of(name) for name in policy.signals} & set(columns)
    for name, column in columns.items():
        defined = ran & np.isfinite(column)
        sums, counts = np.where(defined, column, 0.0).sum(axis=1), defined.sum(axis=1)
        role = _READ if name in read else _OTHER
        add(name, role, np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0))
        if name in read:
            lacking = np.divide(n_ran - counts, n_ran, out=np.full(len(sums), np.nan), where=n_ran > 0)
            add(f"{name} undefined", role, lacking)
    for name in sorted(read):
        add(f"{name} at the stop", _READ, at_rounds(recording, columns[name], stop))
    add("stop round", _HABIT, np.where(stop >= 0, stop, np.nan))
    tokens = tuple(name for name in recording.names("cost") if name.endswith(_TOKEN_ENDINGS))
    add("calls", _HABIT, _spent_up_to_the_stop(recording, ran, ("cost.generator.calls",)))
    add("tokens", _HABIT, _spent_up_to_the_stop(recording, ran, tokens))
    if "answer" in recording.table.column_names:
        refuses = abstained_by(policy.abstain_patterns or ABSTAIN_PATTERNS)
        given = at_rounds(recording, recording.answers, answer, None).tolist()
        # The patterns are matched once for each text: short answers repeat, and this was a quarter of a look.
        shares = {text: math.nan if text is None else float(refuses(text)) for text in {*given}}
        add("answer refuses", _HABIT, np.array([shares[text] for text in given]))
        add("answer length", _HABIT, _lengths(given))
    if "text" in recording.table.column_names:
        add("reply length", _HABIT, _lengths(at_rounds(recording, recording.objects("text"), answer, None).tolist()))
    return Habits(values=values, roles=roles)


def _lengths(texts: Sequence[str | None]) -> Floats:
    return np.array([math.nan if text is None else len(text) for text in texts], dtype=np.float64)


def _spent_up_to_the_stop(recording: Recording, ran: Mask, names: tuple[str, ...]) -> Floats:
    known = [name for name in names if name in recording.table.column_names]
    if not known:
        return np.full(len(ran), np.nan)
    total = np.zeros(len(ran))
    for name in known:
        total = total + np.where(ran, recording.column(name), 0.0).sum(axis=1)
    return total
