"""Find recorded questions on which a gate, fitted state, calibrators or choices were based."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from suffice.policy.rounds import Mask
from suffice.policy.seen import Seen, one_name_per_text
from suffice.policy.session import Policy
from suffice.policy.signals import GATE, SIGNALS, Idf, state_from_dict
from suffice.recordings.recording import Recording

THE_POLICY = "the policy"
"""Name of the part with the calibrators, the thresholds and the choice of rule and selector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Recorded questions on which a part was fitted, chosen or certified before.

    A part is a policy, or a component with fitted state, such as a gate or a reranker.

    Attributes:
        by_part: Number of recorded questions that each part has seen, by the part's name in words; parts that have seen
            no recorded question are left out.
        mask: Questions that any part has seen, shape ``(n_questions,)``.
        unknown: Parts whose questions are not on record.
        ids_only: Parts for which only ids could be compared, because texts are missing on one side.
    """

    by_part: Mapping[str, int]
    mask: Mask
    unknown: tuple[str, ...]
    ids_only: tuple[str, ...]

    @classmethod
    def joined(cls, blocks: Sequence[Selected]) -> Selected:
        """Join the results of one or more blocks of questions."""
        counts: Counter[str] = Counter()
        for block in blocks:
            counts.update(block.by_part)
        return cls(
            by_part=dict(counts),
            mask=np.concatenate([block.mask for block in blocks]),
            unknown=tuple(dict.fromkeys(name for block in blocks for name in block.unknown)),
            ids_only=tuple(dict.fromkeys(name for block in blocks for name in block.ids_only if not counts[name])),
        )

    @property
    def n(self) -> int:
        """Number of questions that any part has seen."""
        return int(self.mask.sum())

    @property
    def parts(self) -> str:
        """The parts in words, each with the number of questions that it has seen.

        >>> mask = np.array([True, False])
        >>> Selected(by_part={"the gate": 1}, mask=mask, unknown=(), ids_only=()).parts
        'the gate was fitted on 1'
        """
        return ", ".join(
            f"{part} was {'fitted or selected' if part == THE_POLICY else 'fitted'} on {n}"
            for part, n in self.by_part.items()
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on figures that include these questions."""
        notes = []
        if self.by_part:
            notes.append(f"selected here: of these {len(self.mask)} questions {self.parts}, so figures on them flatter")
        notes += [
            f"the questions that {part} was fitted on are unknown: if some are here, figures on them flatter"
            for part in self.unknown
        ]
        if self.ids_only:
            notes.append(
                f"questions that {' and '.join(self.ids_only)} saw are known by id alone: one that is here under another id goes "
                "unnoticed"
            )
        return tuple(notes)


def seen_from(recording: Recording) -> Seen:
    """Return the identities of a recording's questions: ids, clusters and texts."""
    # Each order of the samples has ids of its own, and the cluster is the question.
    copies = "orders" in recording.metadata
    names = {*(() if copies else recording.question_ids), *map(str, recording.clusters.tolist())}
    return Seen.of(names, recording.texts or ())


def seen_in(recording: Recording, seen: Seen) -> Mask:
    """Return a mask of the questions that are among `seen`, by id, cluster or text, shape ``(n_questions,)``."""
    by_cluster = seen.among([str(cluster) for cluster in recording.clusters.tolist()])
    return np.asarray(seen.among(recording.question_ids, recording.texts) | by_cluster, dtype=np.bool_)


def dividing_names(recording: Recording) -> list[str]:
    """Return, for each question, the name whose hash decides whether it is a tune question.

    This is the name of the question's cluster; questions with the same text get a common name.
    """
    return one_name_per_text([str(cluster) for cluster in recording.clusters.tolist()], recording.texts)


def selected_on(
    policies: Policy | Iterable[Policy], recording: Recording, others: Mapping[str, Seen | None] | None = None
) -> Selected:
    """Find the recorded questions that parts of the policies or of the recording have seen before.

    Args:
        policies: Policies with the calibrators, state, choices and gates that they read.
        recording: The recording.  Its gate is checked if a policy reads the gate's signal; its reranker is always
            checked.
        others: The questions that further parts have seen, by the part's name; None if not on record.
    """
    parts: dict[str, list[Seen | None]] = {name: [seen] for name, seen in (others or {}).items()}
    every_policy = [policies] if isinstance(policies, Policy) else list(policies)
    ordering = (recording.metadata.get("fitted") or {}).get("retriever")  # a reranker affects every answer
    everywhere = {} if ordering is None else {"the retriever": Seen.from_dict(ordering)}
    found: list[dict[str, Seen | None]] = [everywhere]
    for policy in every_policy:
        own = seen_by(policy)
        found += [{THE_POLICY: own} if own else {}]
        found += [_of_signal(name, policy, recording) for name in policy.raw_signals]
    for seen_by_part in found:
        for name, seen in seen_by_part.items():
            parts.setdefault(name, []).append(seen)
    texts = recording.texts
    mask = np.zeros(recording.shape[0], dtype=np.bool_)
    by_part, unknown, ids_only = {}, [], []
    for name, every in parts.items():
        seen = reduce(or_, (one for one in every if one is not None), Seen())
        hit = seen_in(recording, seen)
        mask |= hit
        if hit.any():
            by_part[name] = int(hit.sum())
        if None in every:
            unknown.append(name)
        elif seen.ids and not hit.any() and (texts is None or not seen.texts):
            ids_only.append(name)
    return Selected(by_part=by_part, mask=mask, unknown=tuple(unknown), ids_only=tuple(ids_only))


def seen_by(policy: Policy) -> Seen:
    """Return the questions that a policy's own parts were fitted, chosen or certified on; empty if not on record."""
    certified = policy.certificate or {}
    chosen = {"tune_ids": certified.get("question_ids"), "tune_texts": certified.get("question_texts")}
    return (Seen.from_dict(policy.provenance) or Seen()) | (Seen.from_dict(chosen) or Seen())


def tuned_on(policy: Policy, recording: Recording) -> int:
    """Count the recorded questions on which the policy, or a model that it reads, was fitted, selected or certified."""
    return selected_on(policy, recording).n


def _of_signal(name: str, policy: Policy, recording: Recording) -> dict[str, Seen | None]:
    """Return the questions on which a signal of a policy was fitted; empty for a signal without fitted state.

    The key is the name of the fitted part, such as `the gate`; the value is None if its questions are not on record.
    """
    state = policy.state.get(name)
    stored = (recording.metadata.get("state") or {}).get(name)
    if state is None and stored is not None:
        state = state_from_dict(stored)
    if isinstance(state, Idf):
        return {f"the state of {name!r}": state.seen or None}
    component = recording.signal_components.get(name) or (SIGNALS[name].component if name in SIGNALS else "")
    everywhere: list[Mapping[str, Any]] = [
        recording.metadata.get("fitted") or {},
        policy.provenance.get("fitted") or {},
    ]
    entries = [fitted[component] for fitted in everywhere if component in fitted]
    known = [seen for seen in map(Seen.from_dict, entries) if seen is not None]
    if known:
        return {f"the {component}": reduce(or_, known)}
    return {f"the {component}": None} if entries or component == GATE else {}
