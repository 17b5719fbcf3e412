"""Choose the questions that a report shows in full, and collect their rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.evaluation.replay.costs import NOT_LANGUAGE_MODELS
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.loops.retrieval import load_questions
from suffice.policy.metrics import answer_key
from suffice.policy.rounds import COST_KINDS, Floats, Passage, Rounds
from suffice.policy.session import Policy, Stops
from suffice.recordings.recording import Recording

FEW = 300
"""The most questions that a report contains, unless all are requested."""

Passages = Mapping[str, Mapping[str, Passage]]
"""The evidence by question id, then passage id."""

_SHOWN_DIGITS = 6
_ROUND_TEXTS = ("text", "feedback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The stops of one policy, with the answers of the full budget; arrays have shape ``(n_questions,)``.

    Attributes:
        full: Position of the full budget's answer; -1 if the full budget has no answer, or if a rule cut the recording.
        differs: Mask of the questions for which policy and full budget return different answers (as normalised text);
            False if the full budget never ran.
    """

    policy: Policy
    stops: Stops
    reasons: Sequence[str]
    full: npt.NDArray[np.int64]
    differs: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, prepared: PreparedRecording, policy: Policy) -> Stopped:
        """Replay a policy."""
        stopped = prepared.stops(policy)
        view = stopped.view
        last = view.seen.sum(axis=-1) - 1
        full = np.where(prepared.cut, -1, policy.selector.select(view, last))
        differs = np.zeros(len(last), dtype=np.bool_)
        if view.answers is not None:
            for q in np.flatnonzero((full != stopped.answer_position) & ~prepared.cut).tolist():
                pair = [_key(view.answers[q, p]) if p >= 0 else "" for p in (full[q], stopped.answer_position[q])]
                differs[q] = pair[0] != pair[1]
        return cls(
            policy=policy,
            stops=stopped,
            reasons=stopped.reasons(prepared.recording.ends, policy.max_rounds),
            full=full,
            differs=differs,
        )

    def to_dict(self, q: int) -> dict[str, Any]:
        """Return the policy's stop and answer for question `q`, JSON-ready."""
        stopped, view = self.stops, self.stops.view
        position = int(stopped.position[q])
        fired = None
        if stopped.fired[q]:
            seen = slice(0, position + 1)
            one = Rounds({n: c[q, seen] for n, c in view.columns.items()}, view.index[seen], view.seen[q, seen])
            fired = self.policy.rule.held(one)
        signals = {name: [_rounded(v) for v in column[q].tolist()] for name, column in view.columns.items()}
        return {
            "stop": int(stopped.rounds[q]),
            "answer": int(stopped.answer_rounds[q]),
            "full": int(view.index[self.full[q]]) if self.full[q] >= 0 else -1,
            "reason": self.reasons[q],
            "fired": fired,
            "differs": bool(self.differs[q]),
            "first": int(view.index[0]),
            "signals": signals,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """The questions that a report shows in full.

    Attributes:
        chosen: Positions of these questions in the recording, ascending.
        disagreements: Number of these questions for which some policy and the full budget return different answers.
    """

    chosen: npt.NDArray[np.int64]
    disagreements: int
    n_disagreements: int
    n: int

    @property
    def left_out(self) -> int:
        """Number of questions that are left out."""
        return self.n - len(self.chosen)

    def sentence(self, seed: int) -> str:
        """Return a sentence on the questions that the page shows and omits."""
        if not self.left_out:
            return f"All {self.n:,} questions are here."
        rest = len(self.chosen) - self.disagreements
        part = f"a random sample of {rest:,} others (seed {seed})"
        if self.disagreements < self.n_disagreements:
            part = f"a random part of those with another answer than the full budget's (seed {seed})"
        elif self.disagreements:
            part = f"all {self.disagreements:,} with another answer than the full budget's, and {part}"
        return f"{len(self.chosen):,} of {self.n:,} questions are here: {part}. {self.left_out:,} are left out."


def choose(policies: Sequence[Stopped], n: int, limit: int, *, seed: int) -> Trajectories:
    """Choose questions: first those on which a policy disagrees with the full budget, then a seeded sample of the rest.

    Args:
        policies: The stops of each policy.  Questions on which the first policy disagrees are chosen first, then those
            of the second, and so on.
        n: Number of questions in the recording.
        limit: The largest number of questions to choose.
        seed: Seed of the sample.
    """
    # Sort by the first policy that disagrees; since the sort is stable, the permutation stays random within each class.
    order = np.full(n, len(policies))
    for place, stopped in reversed(list(enumerate(policies))):
        order[stopped.differs] = place
    shuffled = np.random.default_rng(seed).permutation(n)
    chosen = np.sort(shuffled[np.argsort(order[shuffled], kind="stable")][:limit])
    disagree = order < len(policies)
    return Trajectories(
        chosen=chosen, disagreements=int(disagree[chosen].sum()), n_disagreements=int(disagree.sum()), n=n
    )


def to_dicts(
    prepared: PreparedRecording,
    policies: Sequence[Stopped],
    chosen: npt.NDArray[np.int64],
    passages: Passages | None = None,
) -> list[dict[str, Any]]:
    """Return the chosen questions with all their rounds, JSON-ready."""
    recording = prepared.recording
    held = np.zeros(recording.shape[0], dtype=np.bool_)
    held[chosen] = True
    part = recording.select(held)
    columns = {kind: {n: part.column(n) for n in part.names(kind)} for kind in ("signal", "metric", "cost")}
    metrics = columns["metric"] | {name: values[chosen] for name, values in prepared.metrics.items()}
    texts = {n: part.objects(n) for n in ("answer", *_ROUND_TEXTS, "passage_ids") if n in part.table.column_names}
    nothing = [None] * len(part.question_ids)
    questions, golds = part.per_question("question", nothing), part.per_question("golds", nothing)
    labels = _text_labels(part)
    trajectories = []
    for place, q in enumerate(chosen.tolist()):
        rounds = [
            {
                "round": int(part.index[r]),
                **{name: values[place, r] for name, values in texts.items() if values[place, r] is not None},
                "metrics": _known_values(metrics, place, r),
                "signals": _known_values(columns["signal"], place, r),
                "cost": _round_costs(columns["cost"], place, r),
            }
            for r in np.flatnonzero(part.seen[place]).tolist()
        ]
        trajectories.append(
            {
                "id": part.question_ids[place],
                "question": questions[place],
                "golds": list(golds[place] or ()),
                "labels": {name: values[place] for name, values in labels.items() if values[place] is not None},
                "end": part.ends[place],
                "cut": bool(prepared.cut[q]),
                "rounds": rounds,
                "passages": _evidence(rounds, (passages or {}).get(part.question_ids[place], {})),
                "policies": [stopped.to_dict(q) for stopped in policies],
            }
        )
    return trajectories


def evidence(questions: str) -> dict[str, dict[str, Passage]]:
    """Return the passages of a data set by question id, then passage id."""
    with_passages = load_questions(questions)
    return {one.question_id: {passage.passage_id: passage for passage in one.passages} for one in with_passages}


def _evidence(rounds: Sequence[Mapping[str, Any]], known: Mapping[str, Passage]) -> dict[str, tuple[str, str]]:
    """Return title and text of the passages that were seen in at least one of the rounds, by passage id."""
    seen = dict.fromkeys(name for one in rounds for name in one.get("passage_ids") or ())
    return {name: (known[name].title, known[name].text) for name in seen if name in known}


def _text_labels(part: Recording) -> dict[str, npt.NDArray[np.object_]]:
    """Return the text labels that differ between questions."""
    labels = {}
    for name in part.names("label"):
        values = part.objects(name)[:, 0]
        if len(set(map(str, values.tolist()))) > 1 and all(isinstance(v, str | None) for v in values.tolist()):
            labels[name] = values
    return labels


def _key(answer: Any) -> str:
    return answer_key(answer) if isinstance(answer, str) else ""


def _known_values(columns: dict[str, Floats], q: int, r: int) -> dict[str, float | None]:
    return {name: _rounded(float(values[q, r])) for name, values in columns.items() if not math.isnan(values[q, r])}


def _round_costs(columns: dict[str, Floats], q: int, r: int) -> dict[str, float | None]:
    total: dict[str, float] = {}
    for name, values in columns.items():
        kind = name.rsplit(".", 1)[-1]
        is_request = kind != "calls" or name.split(".")[1] not in NOT_LANGUAGE_MODELS
        if kind in COST_KINDS and not math.isnan(values[q, r]) and is_request:
            total[kind] = total.get(kind, 0.0) + float(values[q, r])
    return {kind: _rounded(value) for kind, value in total.items()}


def _rounded(value: float) -> float | None:
    return float(f"{value:.{_SHOWN_DIGITS}g}") if math.isfinite(value) else None
