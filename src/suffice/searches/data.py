"""What a search reads of a recording: signals, outcomes of a stop at each round, and the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt

from suffice.calibration import CALIBRATED
from suffice.errors import CensoredError, ConfigMismatchError, DataError, UnknownSignalError
from suffice.replays import (
    CostTable,
    calibrate,
    check_policy,
    policy_for,
    reads_round_0,
    seen_from,
    seen_in,
    selected_on,
)
from suffice.replays.charging import answered_closed_book
from suffice.replays.costs import TOKEN_KINDS, loop_masks
from suffice.replays.fitting import first_of_question
from suffice.replays.outcomes import answers_by_stop, expected_by_stop, has_outcome, is_agreement
from suffice.replays.prepared import PreparedRecording
from suffice.rounds import Floats, Mask, Rounds
from suffice.rules import MajorityOfSamples, Never, Rule, Threshold, fixed_k, parse_rule
from suffice.rules.selectors import Last
from suffice.session import Policy
from suffice.signals import CRITIC, SIGNALS, VOTES, ZScore
from suffice.signals.votes import weights_of
from suffice.store.recording import Recording

__all__ = ["OUTCOMES", "Questions", "Side", "by_prompt", "find_prompt", "fit", "fitted_columns", "refuse_shared"]

OUTCOMES = ("quality", "calls", "tokens")
"""What a stop gives and costs, in the order of every array that holds all three."""

_FITTED = {**CALIBRATED, "top_score_z": "top_score"}
_UNREAD = frozenset({"calls", "tokens", "seconds"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The rounds of one prompt; one row for each question.

    Attributes:
        recording: Where they come from, in its own order.
        policy: The fitted state with which rules read them.
        view: The signals, shape ``(n_questions, n_rounds)``.
        tables: By name in `OUTCOMES`: what a stop at each round gives, same shape; a stop past the end is one at the
            last round.  Tokens are NaN where they are unknown.  From round 0 on the same once more, for rules that
            have the closed-book answer generated without stopping on it: shape ``(n_questions, 2 * n_rounds)``.
        last: Position of the last round, shape ``(n_questions,)``; -1 without rounds.
        baseline: By name in `OUTCOMES`: the same for the baseline, shape ``(n_questions,)``.
        paid: From round 0 on: which stops pay for the closed-book answer whatever a rule reads, shape of `view`.
        gated: The same questions from round 0 on, for rules that read a gate; None where no rule does.
    """

    recording: Recording
    policy: Policy
    view: Rounds
    tables: Mapping[str, Floats]
    last: npt.NDArray[np.int64]
    baseline: Mapping[str, Floats]
    paid: Mask | None = None
    gated: Side | None = None

    def of(self, *, gated: bool) -> Side:
        """Return what rules read that start at round 1, or those with a gate, which start at round 0."""
        if not gated:
            return self
        assert self.gated is not None
        return self.gated

    def select(self, rows: npt.NDArray[np.int64]) -> Side:
        """Return the side of some of its questions, in another order."""
        view = self.view
        columns = {name: column[rows] for name, column in view.columns.items()}
        answers = None if view.answers is None else view.answers[rows]
        keep = np.zeros(len(self.last), dtype=np.bool_)
        keep[rows] = True
        return replace(
            self,
            recording=self.recording.select(keep),
            view=Rounds(columns, view.index, view.seen[rows], answers, view.normalizer),
            tables={name: table[rows] for name, table in self.tables.items()},
            last=self.last[rows],
            baseline={name: values[rows] for name, values in self.baseline.items()},
            paid=None if self.paid is None else self.paid[rows],
            gated=None if self.gated is None else self.gated.select(rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The questions of a search, the same rows in every side.

    Attributes:
        sides: By prompt; under "" the only one of a recording that names none.
        clusters: The unit of each row, shape ``(n_questions,)``.
        notes: What a reader must know.
    """

    sides: Mapping[str, Side]
    clusters: npt.NDArray[np.object_]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.clusters)

    @classmethod
    def of(
        cls, recordings: Mapping[str, Recording], policies: Mapping[str, Policy], *, metric: str, baseline: str
    ) -> Questions:
        """Prepare recorded questions for a search.

        Args:
            recordings: By prompt.
            policies: By prompt: fitted state, and a rule that reads every signal of the search.
            metric: What quality means: a column in [0, 1] or `agreement`.
            baseline: A rule's text, `fixed_k(3)` or `full`; each prompt has its own.

        Raises:
            DataError: The metric is missing or was not measured, or prompts share no questions.
        """
        sides, clusters, notes = {}, {}, list[str]()
        for prompt, recording in recordings.items():
            prepared = PreparedRecording.of(recording, [metric])
            complete = prepared.recording
            if prepared.n_failed:
                notes.append(f"{prepared.n_failed} questions failed while recording and are left out")
            policy = replace(policies[prompt], max_rounds=max(1, int(complete.index[-1])))
            readers = _readers(policy, complete)
            policy_notes = {start: check_policy(reading, complete) for start, reading in readers.items()}
            gated_notes = [note for note in policy_notes.get(0, ()) if note not in policy_notes[1]]
            notes += [*policy_notes[1], *(f"{note} (from round 0 on)" for note in gated_notes)]
            # Of the recording's own models: what tune questions fit and choose is what a search is about.
            notes += selected_on(replace(policy, calibrators=(), state={}, provenance={}), complete).notes
            sides[prompt] = _side(prepared, readers, _baseline_policy(complete, policy, baseline))
            clusters[prompt] = complete.clusters
        if len(sides) == 1:
            return cls(sides=sides, clusters=next(iter(clusters.values())), notes=tuple(notes))
        shared, rows, left_out = _paired(clusters)
        if left_out:
            notes.append(f"{left_out} questions are left out: they were not recorded with every prompt")
        paired = {prompt: side.select(rows[prompt]) for prompt, side in sides.items()}
        return cls(sides=paired, clusters=shared, notes=tuple(dict.fromkeys(notes)))


def by_prompt(recording: Recording) -> dict[str, Recording]:
    """Return the recording of each prompt: the name before the ``@`` of the column `prompt_id`, "" without one."""
    if "prompt_id" not in recording.table.column_names:
        return {"": recording}
    prompts = recording.per_question("prompt_id", [])
    names = np.array([str(prompt or "").split("@")[0] for prompt in prompts.tolist()], dtype=object)
    prompt_names = dict.fromkeys(names.tolist())
    if len(prompt_names) == 1:
        return {str(next(iter(prompt_names))): recording}
    parts = {name: recording.select(np.asarray(names == name, dtype=np.bool_)) for name in prompt_names}
    if "prompts" in (recording.metadata.get("config") or {}):  # merged: the prompt of each part is known again
        for name, part in parts.items():
            (prompt,) = {prompt for prompt in prompts.tolist() if str(prompt).split("@")[0] == name}
            part.metadata["depends"] = {**part.metadata.get("depends", {}), "prompt_id": prompt}
    return {str(name) or "unnamed": part for name, part in parts.items()}


def find_prompt(wanted: str, prompts: Iterable[str], named: Iterable[str]) -> str:
    """Return the prompt whose rounds a block reads.

    >>> find_prompt("", ["answer_first", "confidence_first"], ["", "confidence_first"])
    'answer_first'

    Args:
        wanted: The prompt of the block, "" for the one that no block names.
        prompts: Those of the recording.
        named: Those of all blocks.

    Raises:
        ConfigMismatchError: The recording has no such prompt, or several that might be meant.
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


def fitted_columns(recording: Recording) -> dict[str, str]:
    """Return the signals with a value somewhere, and those that can be fitted, with the column that each is read from.

    A recorded column wins over one that could be fitted.  A z-score cannot where all questions have one score.
    """
    there = {
        name: name
        for name in recording.table.column_names
        if (name in SIGNALS or name in recording.names("signal")) and np.isfinite(recording.column(name)).any()
    }
    fitted = {name: source for name, source in _FITTED.items() if source in there}
    if "top_score_z" in fitted and ZScore.fit(first_of_question(recording, "top_score")).scale == 0:
        del fitted["top_score_z"]
    vote_columns = {name: name for name in sorted(VOTES) if recording.independent and not weights_of([name])}
    return {"round": "round", **dict.fromkeys(_UNREAD, "cost"), **fitted, **there, **vote_columns}


def fit(tune: Recording, signals: Sequence[str], *, target: str | None, metric: str = "em") -> Policy:
    """Return a policy with the fitted state of those signals that are not columns of their own, fitted on tune.

    Args:
        tune: Tune questions.
        signals: What a search reads.
        target: What calibrators are fitted to; None = `em`, or `metric` where that needs no gold answers.
        metric: What quality means; also the target where there is no `em` and nothing to calibrate.

    Raises:
        UnknownSignalError: A signal is neither recorded, with a value somewhere, nor can be fitted; naming all.
    """
    there = fitted_columns(tune)
    missing = [name for name in signals if name not in there]
    if missing:
        empty = [name for name in missing if name in tune.table.column_names]
        why = f" ({', '.join(empty)}: there, but without a single value)" if empty else ""
        why += " (top_score_z: top_score is the same in every question)" * (
            "top_score_z" in missing and "top_score" in there
        )
        raise UnknownSignalError(
            f"the search needs the columns {', '.join(missing)}, and the recording lacks them{why}. Record or import "
            "them, or search the space 'available', which takes the signals that there are"
        )
    fitted = [name for name in signals if there[name] != name and name in _FITTED]
    if target is None:
        scored = has_outcome(tune, "em") or not CALIBRATED.keys().isdisjoint(fitted)
        target = "em" if scored and not is_agreement(metric) else metric
    policy, _ = calibrate(tune, rule=_reading(fitted), target=target, unseen_round="nearest")
    return replace(policy, rule=_reading(signals))


def refuse_shared(tune: Recording, recording: Recording) -> None:
    """Refuse tune questions that are also searched, by id, cluster and text.

    Raises:
        ConfigMismatchError: There are such questions.
    """
    shared = int(seen_in(recording, seen_from(tune)).sum())
    if shared:
        raise ConfigMismatchError(
            f"{shared} of {len(recording.question_ids)} questions are among the tune questions: what is selected on a "
            "question proves nothing on it. Give a tune recording of other questions, or none, and the recording is "
            "split"
        )


def _readers(policy: Policy, recording: Recording) -> dict[int, Policy]:
    """Return by start round a policy that reads what rules read which start there: from round 0 on if one is a gate."""
    gates = {name for name in policy.rule.signals if reads_round_0(Threshold(name, ">", 0.0))}
    if not gates:
        return {1: replace(policy, start_round=1)}
    if int(recording.index[0]) > 0:
        raise UnknownSignalError(
            f"the space reads {min(gates)!r}, which is known at round 0 alone, and the recording starts at round "
            f"{int(recording.index[0])}: record with round 0 (`suffice record --round-zero --gate PROBE`), or search a "
            "space without it"
        )
    plain = replace(policy, start_round=1, rule=_reading(sorted(policy.rule.signals - gates)))
    return {1: plain, 0: replace(policy, start_round=0)}


def _reading(signals: Sequence[str]) -> Rule:
    return reduce(or_, (Threshold(name, ">", 0.0) for name in signals)) if signals else Never()


def _side(prepared: PreparedRecording, readers: Mapping[int, Policy], baseline: Policy) -> Side:
    stopped = prepared.stops(baseline)
    views = {baseline.start_round: stopped.view, **{start: prepared.view(policy) for start, policy in readers.items()}}
    outcomes = {start: _stop_tables(prepared, view) for start, view in views.items()}
    tables, paid = outcomes[baseline.start_round]
    place = np.maximum(stopped.position, 0)
    if paid is not None:
        # The second half of the tables counts the closed-book answer, whatever the rule does with it.
        place = place + len(stopped.view) * answered_closed_book(prepared.costs, baseline, stopped)
    rows = np.arange(len(place))
    against = {name: table[rows, place] for name, table in tables.items()}
    sides = {
        start: Side(
            recording=prepared.recording,
            policy=policy,
            view=views[start],
            tables=outcomes[start][0],
            last=views[start].seen.sum(axis=-1) - 1,
            baseline=against,
            paid=outcomes[start][1],
        )
        for start, policy in readers.items()
    }
    return replace(sides[1], gated=sides.get(0))


def _baseline_policy(recording: Recording, policy: Policy, baseline: str) -> Policy:
    highest = int(recording.index[-1])
    rule = fixed_k(highest) if baseline == "full" else parse_rule(baseline)
    fitted = set(rule.signals) & set(CALIBRATED) - {c.output for c in policy.calibrators}
    lacking = [name for name in fitted if name not in recording.table.column_names]
    if lacking:
        raise DataError(
            f"the baseline {baseline!r} reads {lacking[0]!r}, which no rule of the search reads: use another"
        )
    against = replace(policy_for(recording, rule), calibrators=policy.calibrators, state=policy.state)
    check_policy(against, recording)
    return against


def _stop_tables(prepared: PreparedRecording, view: Rounds) -> tuple[dict[str, Floats], Mask | None]:
    """Return `Side.tables` and `Side.paid`."""
    recording, costs = prepared.recording, prepared.costs
    ((metric, measured),) = prepared.metrics.items()
    selector = MajorityOfSamples() if recording.independent else Last()
    quality = expected_by_stop(selector, view, prepared.in_view(measured, view))
    _refuse_unmeasured(recording, quality, view, metric)
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
    # A rule pays for the closed-book answer if it returns it, or if it costs nothing; otherwise only if it reads it.
    paid: Mask = (answers_by_stop(Last(), view) <= 0) | (closed["calls"] + closed["tokens"] == 0)
    return {
        name: np.concatenate([table + np.where(paid, closed[name], 0.0), table + closed[name]], axis=1)
        for name, table in tables.items()
    }, paid


def _columns(costs: CostTable, component: str) -> Iterator[tuple[str, Floats]]:
    """Yield what adds to calls and to tokens, shape ``(n_questions, n_rounds)`` of the recording."""
    if component in costs.call_columns:
        yield "calls", costs.call_columns[component]
    for kind in TOKEN_KINDS:
        yield "tokens", costs.columns[component][kind]


def _due(component: str, column: Floats) -> Floats:
    """Return a cost by the round that makes it due: a critic's reply is read by the next draft, so a stop saves it."""
    return np.pad(column, ((0, 0), (1, 0)))[:, :-1] if component == CRITIC else column


def _refuse_unmeasured(recording: Recording, quality: Floats, view: Rounds, metric: str) -> None:
    unknown = np.isnan(quality) & view.seen
    if not unknown.any():
        return
    q, r = (int(place[0]) for place in np.nonzero(unknown))
    what = (
        f"{metric!r} was not measured in {int(unknown.sum())} of {int(view.seen.sum())} rounds (question "
        f"{recording.question_ids[q]!r}, round {int(view.index[r])}), and a search stops everywhere"
    )
    if not (~np.isnan(quality[:, :-1]) & view.seen[:, 1:]).any():
        raise CensoredError(f"{what}: answers exist only at the last round. Record answers at every round")
    raise DataError(
        f"{what}. Drop those questions (Recording.select), or use another metric: 'agreement' needs no golds"
    )


def _paired(
    clusters: Mapping[str, npt.NDArray[np.object_]],
) -> tuple[npt.NDArray[np.object_], dict[str, npt.NDArray[np.int64]], int]:
    """Return the questions that every prompt has, their rows in each, and how many are left out."""
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
    if not shared:
        raise DataError(
            f"the prompts {', '.join(map(repr, places))} share no questions: give the runs of one question the same 'cluster'"
        )
    everything = set().union(*places.values())
    rows = {prompt: np.array([place[name] for name in shared]) for prompt, place in places.items()}
    out = np.empty(len(shared), dtype=object)
    out[:] = shared
    return out, rows, len(everything) - len(shared)
