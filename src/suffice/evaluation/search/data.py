"""Prepare a recording for a search: signals, outcomes of a stop at each round, and a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt

from suffice.errors import CensoredError, ConfigMismatchError, DataError, UnknownSignalError
from suffice.evaluation.replay import CostTable, check_policy, policy_for, reads_round_0, selected_on
from suffice.evaluation.replay.charging import LIVE, answered_closed_book, loop_masks
from suffice.evaluation.replay.costs import TOKEN_KINDS
from suffice.evaluation.replay.outcomes import answers_by_stop, expected_by_stop, other_metrics
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.selected import Selected
from suffice.evaluation.search.trials import TrialCosts
from suffice.evaluation.statistics import Keys, keys_of
from suffice.policy.calibration import CALIBRATED
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.rules import MajorityOfSamples, Never, Rule, Threshold, fixed_k, parse_rule
from suffice.policy.rules.selectors import Last
from suffice.policy.session import Policy
from suffice.policy.signals import CRITIC, TRIAL
from suffice.recordings.recording import Recording

OUTCOMES = ("quality", "calls", "tokens")
"""The outcomes of a stop, in the order of every array that holds all three."""


_TRIALS_COUNT = (
    "a stretch of thought is a call, and so is each trial answer that a rule reads or returns; thresholds that stop alike may ask "
    "for different trials"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The rounds of one prompt as arrays, with one row for each question.

    Attributes:
        recording: The recording of these rounds, in its own order.
        policy: A policy with the fitted state that rules need.
        view: The signals, shape ``(n_questions, n_rounds)``.
        tables: By name in `OUTCOMES`, the outcome of a stop at each round, shape of `view`.  A stop past the end counts
            as a stop at the last round.  Tokens are NaN where unknown.  If rounds start at 0, a table has a second half,
            for rules that read the closed-book answer and so pay for it: shape ``(n_questions, 2 * n_rounds)``.
        last: Position of the last round, shape ``(n_questions,)``; -1 without rounds.
        baseline: The outcomes of the baseline by name in `OUTCOMES`, shape ``(n_questions,)``.
        paid: Mask of the stops where the cost of the closed-book answer is included in any case, even if no rule reads
            the answer, shape of `view`; None if rounds start at 1.
        trials: The trial answers of chains of thought, whose costs are not in `tables`; None for other recordings.
        gated: The same questions from round 0 on, for rules that read a gate; None if no rule reads one.
    """

    recording: Recording
    policy: Policy
    view: Rounds
    tables: Mapping[str, Floats]
    last: npt.NDArray[np.int64]
    baseline: Mapping[str, Floats]
    paid: Mask | None = None
    trials: TrialCosts | None = None
    gated: Side | None = None

    def of(self, *, gated: bool) -> Side:
        """Return the side for rules with a gate, which start at round 0, or the side for other rules."""
        if not gated:
            return self
        assert self.gated is not None
        return self.gated

    def select(self, rows: npt.NDArray[np.int64]) -> Side:
        """Return some of the questions, in the order of `rows`."""
        keep = np.zeros(len(self.last), dtype=np.bool_)
        keep[rows] = True
        recording, gated = self.recording.select(keep), None if self.gated is None else self.gated.select(rows)
        return replace(self.rows(rows), recording=recording, gated=gated)

    def rows(self, rows: npt.NDArray[np.int64]) -> Side:
        """Return the arrays of some questions; `recording` still has all of them."""
        return replace(
            self,
            view=self.view.taken(lambda values: values[rows], self.view.index),
            tables={name: table[rows] for name, table in self.tables.items()},
            last=self.last[rows],
            baseline={name: values[rows] for name, values in self.baseline.items()},
            paid=None if self.paid is None else self.paid[rows],
            trials=None if self.trials is None else self.trials.rows(rows),
            gated=None if self.gated is None else self.gated.rows(rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The questions of a search; every side has the same rows.

    Attributes:
        sides: One side for each prompt; under "" if the recording names no prompt.
        clusters: The unit of each row, shape ``(n_questions,)``.
        keys: The hash of each row's name, shape ``(n_questions,)``; it depends neither on the order nor on the parts.
        units: The key of each row's unit, same shape.  A unit is drawn, and assigned to a fold, as a whole.
        left_out: Number of units that some prompt lacks.
    """

    sides: Mapping[str, Side]
    clusters: npt.NDArray[np.object_]
    keys: Keys
    units: Keys
    notes: tuple[str, ...] = ()
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, rows: npt.NDArray[np.int64]) -> Questions:
        """Return the arrays of some of the questions."""
        return replace(
            self,
            sides={prompt: side.rows(rows) for prompt, side in self.sides.items()},
            clusters=self.clusters[rows],
            keys=self.keys[rows],
            units=self.units[rows],
        )

    @classmethod
    def of(
        cls,
        recordings: Mapping[str, Recording],
        policies: Mapping[str, Policy],
        *,
        metric: str,
        baseline: str,
        recorded: Sequence[str] = (),
    ) -> Questions:
        """Prepare questions for a search: all questions of the recordings, or one part of them.

        Args:
            recordings: The recordings, by prompt.
            policies: A policy for each prompt, with fitted state and a rule that reads every signal of the search.
            metric: The quality: a column in [0, 1] or `agreement`.
            baseline: A rule's text, `fixed_k(3)` or `full`; each prompt has its own baseline.
            recorded: Names of all recorded metrics, for error messages, even if their columns were not read.

        Raises:
            DataError: The metric is missing or was not measured, or a prompt has a question twice.
        """
        sides, clusters, notes, names = {}, {}, list[str](), list[str]()
        for prompt, recording in recordings.items():
            prepared = PreparedRecording.of(recording, [metric])
            complete = prepared.recording
            if prepared.n_failed:
                notes.append(f"{prepared.n_failed} questions failed while recording and are left out")
            if TRIAL in prepared.costs.components:
                notes.append(_TRIALS_COUNT)
            policy = replace(policies[prompt], max_rounds=max(1, int(complete.index[-1])))
            readers = _readers(policy, complete)
            policy_notes = {start: check_policy(reading, complete, part=True) for start, reading in readers.items()}
            gated_notes = [note for note in policy_notes.get(0, ()) if note not in policy_notes[1]]
            notes += [*policy_notes[1], *(f"{note} (from round 0 on)" for note in gated_notes)]
            sides[prompt] = _side(prepared, readers, policy_of_baseline(complete, policy, baseline), recorded)
            clusters[prompt], names = complete.clusters, complete.question_ids
        if len(sides) == 1:
            (own,) = clusters.values()
            keys = keys_of(names)
            units = keys if own.tolist() == names else keys_of(map(str, own.tolist()))
            return cls(sides=sides, clusters=own, keys=keys, units=units, notes=tuple(notes))
        shared, rows, left_out = _paired(clusters)
        paired = {prompt: side.select(rows[prompt]) for prompt, side in sides.items()} if len(shared) else {}
        keys = keys_of(map(str, shared.tolist()))
        return cls(
            sides=paired,
            clusters=shared,
            keys=keys,
            units=keys,
            notes=tuple(dict.fromkeys(notes)),
            left_out=left_out,
        )


def seen_before(policy: Policy, recording: Recording) -> Selected:
    """Return the questions that the recording's models were fitted on; the search's own tune fits are ignored."""
    return selected_on(replace(policy, calibrators=(), state={}, provenance={}), recording)


def prompt_names(recording: Recording) -> npt.NDArray[np.object_]:
    """Return the prompt of each question, shape ``(n_questions,)``: the name before the ``@`` of the column `prompt_id`."""
    prompts = recording.per_question("prompt_id", [""] * len(recording.question_ids))
    names = np.empty(len(prompts), dtype=object)
    names[:] = [str(prompt or "").split("@")[0] for prompt in prompts.tolist()]
    return names


def by_prompt(recording: Recording, *, several: bool = False) -> dict[str, Recording]:
    """Split a recording by prompt, which is the name before the ``@`` in the column `prompt_id`.

    A prompt without a name is called "" if it is the only one, otherwise "unnamed".

    Args:
        recording: Recorded rounds.
        several: Whether the whole recording, of which this may be a part, has several prompts.
    """
    if "prompt_id" not in recording.table.column_names:
        return {"unnamed" if several else "": recording}
    names = prompt_names(recording)
    prompt_of = dict(zip(names.tolist(), recording.per_question("prompt_id", []).tolist(), strict=True))
    if len(prompt_of) == 1 and not several:
        return {str(next(iter(prompt_of))): recording}
    parts = {name: recording.select(np.asarray(names == name, dtype=np.bool_)) for name in prompt_of}
    if "prompts" in (recording.metadata.get("config") or {}):  # a merged recording: each part gets its own prompt again
        for name, part in parts.items():
            part.metadata["depends"] = {**part.metadata.get("depends", {}), "prompt_id": prompt_of[name]}
    return {str(name) or "unnamed": part for name, part in parts.items()}


def find_prompt(wanted: str, prompts: Iterable[str], named: Iterable[str]) -> str:
    """Find the prompt whose rounds a block reads.

    >>> find_prompt("", ["answer_first", "confidence_first"], ["", "confidence_first"])
    'answer_first'

    Args:
        wanted: The prompt of the block; "" for the prompt that no block names.
        prompts: The prompts of the recording.
        named: The prompts that blocks name.

    Raises:
        ConfigMismatchError: The recording has no such prompt, or several prompts that might be meant.
    """
    there = list(prompts)
    fitting = [p for p in there if p == wanted] if wanted else [p for p in there if p not in set(named) - {""}]
    if not wanted and len(there) == 1:
        fitting = there
    if len(fitting) == 1:
        return fitting[0]
    have = ", ".join(map(repr, there))
    if wanted:
        raise ConfigMismatchError(
            f"the space has rules for the prompt {wanted!r}, and the recording has no such rounds (column prompt_id: "
            f"{have}): record the same questions with that prompt, too, join the files with `suffice merge`, or search another space"
        )
    raise ConfigMismatchError(
        f"the recording holds several prompts ({have}) and a block of the space names none: set its 'prompt'"
    )


def refuse_shared(shared: int, n: int) -> None:
    """Raise if `shared`, the number of searched questions that are also tune questions, is above 0.

    The message also states `n`, the number of searched questions.
    """
    if shared:
        raise ConfigMismatchError(
            f"{shared} of {n} questions are among the tune questions: what is selected on a "
            "question proves nothing on it. Give a tune recording of other questions, or none, and the recording is "
            "split"
        )


def _readers(policy: Policy, recording: Recording) -> dict[int, Policy]:
    """Return one policy for each start round, which reads the signals of all rules with this start round.

    Rules with a gate start at round 0, other rules at round 1.
    """
    gates = {name for name in policy.rule.signals if reads_round_0(Threshold(name, ">", 0.0))}
    if not gates:
        return {1: replace(policy, start_round=1)}
    if int(recording.index[0]) > 0:
        raise UnknownSignalError(
            f"the space reads {min(gates)!r}, which is known at round 0 alone, and the recording starts at round "
            f"{int(recording.index[0])}: record with round 0 (`suffice record --round-zero --gate PROBE`), or search a "
            "space without it"
        )
    plain = replace(policy, start_round=1, rule=reading(sorted(policy.rule.signals - gates)))
    return {1: plain, 0: replace(policy, start_round=0)}


def reading(signals: Sequence[str]) -> Rule:
    """Return a rule that reads these signals."""
    return reduce(or_, (Threshold(name, ">", 0.0) for name in signals)) if signals else Never()


def _side(
    prepared: PreparedRecording, readers: Mapping[int, Policy], baseline: Policy, recorded: Sequence[str]
) -> Side:
    stopped = prepared.stops(baseline)
    views = {baseline.start_round: stopped.view, **{start: prepared.view(policy) for start, policy in readers.items()}}
    outcomes = {start: _stop_tables(prepared, view, recorded) for start, view in views.items()}
    tables, paid = outcomes[baseline.start_round]
    place = np.maximum(stopped.position, 0)
    if paid is not None:
        # In the second half of the tables the closed-book answer is always paid.
        place = place + len(stopped.view) * answered_closed_book(prepared.costs, baseline, stopped)
    rows = np.arange(len(place))
    against = {name: table[rows, place] for name, table in tables.items()}
    thinks = TRIAL in prepared.costs.components
    if thinks:
        asked = LIVE.demanded(prepared.costs, baseline, stopped)[TRIAL]
        for name, column in _columns(prepared.costs, TRIAL):
            against[name] = against[name] + np.where(asked, column, 0.0).sum(axis=1)
    sides = {
        start: Side(
            recording=prepared.recording,
            policy=policy,
            view=views[start],
            tables=outcomes[start][0],
            last=views[start].seen.sum(axis=-1) - 1,
            baseline=against,
            paid=outcomes[start][1],
            trials=TrialCosts.of(prepared, views[start], policy) if thinks else None,
        )
        for start, policy in readers.items()
    }
    return replace(sides[1], gated=sides.get(0))


def policy_of_baseline(recording: Recording, policy: Policy, baseline: str) -> Policy:
    """Return the baseline as a policy."""
    highest = int(recording.index[-1])
    rule = fixed_k(highest) if baseline == "full" else parse_rule(baseline)
    fitted = set(rule.signals) & set(CALIBRATED) - {c.output for c in policy.calibrators}
    lacking = [name for name in fitted if name not in recording.table.column_names]
    if lacking:
        raise DataError(
            f"the baseline {baseline!r} reads {lacking[0]!r}, which no rule of the search reads: use another"
        )
    against = replace(policy_for(recording, rule), calibrators=policy.calibrators, state=policy.state)
    check_policy(against, recording, part=True)
    return against


def _stop_tables(
    prepared: PreparedRecording, view: Rounds, recorded: Sequence[str]
) -> tuple[dict[str, Floats], Mask | None]:
    """Return the values of `Side.tables` and `Side.paid`."""
    recording, costs = prepared.recording, prepared.costs
    ((metric, measured),) = prepared.metrics.items()
    selector = MajorityOfSamples() if recording.independent else Last()
    quality = expected_by_stop(selector, view, prepared.in_view(measured, view))
    _refuse_unmeasured(recording, quality, view, metric, recorded)
    masks = loop_masks(costs, view, np.full(len(view.seen), len(view)))
    tables = {"quality": quality, "calls": np.zeros(recording.shape), "tokens": np.zeros(recording.shape)}
    closed = dict.fromkeys(("quality", "calls", "tokens"), np.zeros((len(view.seen), 1)))
    for component, mask in masks.items():
        for name, column in _columns(costs, component):
            tables[name] = tables[name] + _due(component, np.where(mask, column, 0.0))
            closed[name] = closed[name] + prepared.in_view(np.where(mask, 0.0, column), view)[:, :1]
    for name in ("calls", "tokens"):
        tables[name] = np.cumsum(prepared.in_view(tables[name], view), axis=1)
    if view.index[0] > 0:
        return tables, None
    # A rule pays for the closed-book answer if it returns the answer or the answer is free; otherwise only if it reads
    # it.
    paid: Mask = (answers_by_stop(Last(), view) <= 0) | (closed["calls"] + closed["tokens"] == 0)
    return {
        name: np.concatenate([table + np.where(paid, closed[name], 0.0), table + closed[name]], axis=1)
        for name, table in tables.items()
    }, paid


def _columns(costs: CostTable, component: str) -> Iterator[tuple[str, Floats]]:
    """Yield pairs of "calls" or "tokens" and a column of a component, shape ``(n_questions, n_rounds)``."""
    if component in costs.call_columns:
        yield "calls", costs.call_columns[component]
    for kind in TOKEN_KINDS:
        yield "tokens", costs.columns[component][kind]


def _due(component: str, column: Floats) -> Floats:
    """Shift the cost of a critic's reply to the next draft, which needs it: a stop before that draft does not pay it."""
    return np.pad(column, ((0, 0), (1, 0)))[:, :-1] if component == CRITIC else column


def _refuse_unmeasured(
    recording: Recording, quality: Floats, view: Rounds, metric: str, recorded: Sequence[str]
) -> None:
    unknown = np.isnan(quality) & view.seen
    if not unknown.any():
        return
    q, r = (int(place[0]) for place in np.nonzero(unknown))
    what = (
        f"{metric!r} was not measured in {int(unknown.sum())} of {int(view.seen.sum())} rounds (question "
        f"{recording.question_ids[q]!r}, round {int(view.index[r])}), and a search stops everywhere"
    )
    measured = ~np.isnan(quality) & view.seen
    if measured.any() and not (measured[:, :-1] & view.seen[:, 1:]).any():
        raise CensoredError(f"{what}: answers exist only at the last round. Record answers at every round")
    use = "Drop those questions (Recording.select), or use" if measured.any() else "Use"
    raise DataError(f"{what}. {use} another metric: {other_metrics(recorded, metric)}")


def _paired(
    clusters: Mapping[str, npt.NDArray[np.object_]],
) -> tuple[npt.NDArray[np.object_], dict[str, npt.NDArray[np.int64]], int]:
    """Find the questions that every prompt has.

    Return the questions, their rows in each prompt, and the number of questions left out.
    """
    places = {}
    for prompt, names in clusters.items():
        places[prompt] = {name: row for row, name in enumerate(names.tolist())}
        if len(places[prompt]) != len(names):
            raise DataError(
                f"a search over several prompts pairs their questions by the column 'cluster', and with {prompt!r} some "
                "question was recorded more than once: keep one run of each question and prompt"
            )
    first, *others = places.values()
    shared = [name for name in first if all(name in other for other in others)]
    everything = set().union(*places.values())
    rows = {prompt: np.array([place[name] for name in shared]) for prompt, place in places.items()}
    out = np.empty(len(shared), dtype=object)
    out[:] = shared
    return out, rows, len(everything) - len(shared)
