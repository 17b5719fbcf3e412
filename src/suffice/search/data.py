"""What a search reads of a recording: signals, outcomes of a stop at each round, and the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt

from suffice.calibration import CALIBRATED
from suffice.errors import CensoredError, ConfigMismatchError, DataError, UnknownSignalError
from suffice.replay import CostTable, calibrate, check_policy, outcome, policy_for, seen_from, seen_in
from suffice.replay.costs import TOKEN_KINDS, loop_masks
from suffice.replay.evaluate import drop_failed
from suffice.replay.outcomes import answers_by_stop, values_by_stop
from suffice.rounds import Floats, Rounds
from suffice.rules import Rule, Threshold, fixed_k, parse_rule
from suffice.rules.selectors import Last
from suffice.session import Policy, stops
from suffice.signals import CRITIC, SIGNALS
from suffice.store.recording import Recording

__all__ = ["OUTCOMES", "Questions", "Side", "by_prompt", "check_disjoint", "find_prompt", "fit", "fitted_columns"]

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
            last round.  Tokens are NaN where they are unknown.
        last: Position of the last round, shape ``(n_questions,)``; -1 without rounds.
        baseline: By name in `OUTCOMES`: the same for the baseline, shape ``(n_questions,)``.
    """

    recording: Recording
    policy: Policy
    view: Rounds
    tables: Mapping[str, Floats]
    last: npt.NDArray[np.int64]
    baseline: Mapping[str, Floats]

    def select(self, rows: npt.NDArray[np.int64]) -> Side:
        """Return the side of some of its questions, in another order."""
        view = self.view
        columns = {name: column[rows] for name, column in view.columns.items()}
        answers = None if view.answers is None else view.answers[rows]
        kept = np.zeros(len(self.last), dtype=np.bool_)
        kept[rows] = True
        return replace(
            self,
            recording=self.recording.select(kept),
            view=Rounds(columns, view.index, view.seen[rows], answers),
            tables={name: table[rows] for name, table in self.tables.items()},
            last=self.last[rows],
            baseline={name: values[rows] for name, values in self.baseline.items()},
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
            kept, failed = drop_failed(recording)
            if failed:
                notes.append(f"{failed} questions failed while recording and are left out")
            policy = replace(policies[prompt], max_rounds=max(1, int(kept.index[-1])))
            notes += check_policy(policy, kept)
            sides[prompt] = _side(kept, policy, metric, baseline)
            clusters[prompt] = kept.clusters
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
    listed = dict.fromkeys(names.tolist())
    if len(listed) == 1:
        return {str(next(iter(listed))): recording}
    return {str(name) or "unnamed": recording.select(np.asarray(names == name, dtype=np.bool_)) for name in listed}


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
            f"{have}): record the same questions with that prompt too, both in one file, or search another space"
        )
    raise ConfigMismatchError(
        f"the recording holds several prompts ({have}) and a block of the space names none: set its 'prompt'"
    )


def fitted_columns(recording: Recording) -> dict[str, str]:
    """Return the signals with a value somewhere, and those that can be fitted, with the column that each is read from.

    A recorded column wins over one that could be fitted.
    """
    there = {
        name: name
        for name in recording.table.column_names
        if (name in SIGNALS or name in recording.names("signal")) and np.isfinite(recording.column(name)).any()
    }
    made = {name: source for name, source in _FITTED.items() if source in there}
    return {"round": "round", **dict.fromkeys(_UNREAD, "cost"), **made, **there}


def fit(tune: Recording, signals: Sequence[str], *, target: str) -> Policy:
    """Return a policy with the fitted state of those signals that are no columns of their own, fitted on tune.

    Raises:
        UnknownSignalError: A signal is neither recorded, with a value somewhere, nor can be fitted; naming all.
    """
    there = fitted_columns(tune)
    missing = [name for name in signals if name not in there]
    if missing:
        empty = [name for name in missing if name in tune.table.column_names]
        why = f" ({', '.join(empty)}: there, but without a single value)" if empty else ""
        raise UnknownSignalError(
            f"the search needs the columns {', '.join(missing)}, and the recording lacks them{why}. Record or import "
            "them, or search the space 'available', which takes the signals that there are"
        )
    made = [name for name in signals if there[name] != name and name in _FITTED]
    reads: Rule = reduce(or_, (Threshold(name, ">", 0.0) for name in made)) if made else fixed_k(1)
    policy, _ = calibrate(tune, rule=reads, target=target, unseen_round="nearest")
    listed: list[Rule] = [Threshold(name, ">", 0.0) for name in signals]
    return replace(policy, rule=reduce(or_, listed))


def check_disjoint(tune: Recording, recording: Recording) -> None:
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


def _side(recording: Recording, policy: Policy, metric: str, baseline: str) -> Side:
    listed = _baseline_policy(recording, policy, baseline)
    raw = recording.rounds(sorted({*policy.raw_columns, *listed.raw_columns}))
    view = policy.view(raw)
    tables = _tables(recording, view, metric)
    stopped = np.maximum(stops(listed, raw).position, 0)
    rows = np.arange(len(stopped))
    return Side(
        recording=recording,
        policy=policy,
        view=view,
        tables=tables,
        last=view.seen.sum(axis=-1) - 1,
        baseline={name: table[rows, stopped] for name, table in tables.items()},
    )


def _baseline_policy(recording: Recording, policy: Policy, baseline: str) -> Policy:
    highest = int(recording.index[-1])
    rule = fixed_k(highest) if baseline == "full" else parse_rule(baseline)
    fitted = set(rule.signals) & set(CALIBRATED) - {c.output for c in policy.calibrators}
    lacking = [name for name in fitted if name not in recording.table.column_names]
    if lacking:
        raise DataError(
            f"the baseline {baseline!r} reads {lacking[0]!r}, which no rule of the search reads: use another"
        )
    listed = replace(policy_for(recording, rule), calibrators=policy.calibrators, state=policy.state)
    check_policy(listed, recording)
    return listed


def _tables(recording: Recording, view: Rounds, metric: str) -> dict[str, Floats]:
    offset = int(view.index[0] - recording.index[0])
    part = slice(offset, offset + len(view))
    measured = outcome(recording, metric)[:, part]
    quality = values_by_stop(answers_by_stop(Last(), view), view.seen, measured)
    _refuse_unmeasured(recording, quality, view, metric)
    costs = CostTable(recording)
    everywhere = np.full(len(view.seen), len(view) - 1)
    masks = loop_masks(costs, view, everywhere)
    calls, tokens = np.zeros(recording.shape), np.zeros(recording.shape)
    for component, mask in masks.items():
        if component in costs.call_columns:
            calls = calls + _due(component, np.where(mask, costs.call_columns[component], 0.0))
        for kind in TOKEN_KINDS:
            tokens = tokens + _due(component, np.where(mask, costs.columns[component][kind], 0.0))
    return {
        "quality": quality,
        "calls": np.cumsum(calls[:, part], axis=1),
        "tokens": np.cumsum(tokens[:, part], axis=1),
    }


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
