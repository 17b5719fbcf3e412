"""Data for fitting a probe: labelled states, and three disjoint sets of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics import hash_places
from suffice.policy.rounds import Floats, Mask
from suffice.policy.seen import id_hash, one_name_per_text
from suffice_gates.models.state_files import StoredStates
from suffice_gates.models.states import States


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """States at one layer under one prompt, with the labels of their questions.

    Attributes:
        ids: Question ids.
        states: Finite, shape ``(n, width)``.
        labels: 1.0 where the model's answer is right, else 0.0, shape ``(n,)``.
        n_undefined: Number of labelled questions left out because their state is undefined.
        n_unlabelled: Number of questions that have a state but were left out because they have no label.
    """

    ids: tuple[str, ...]
    states: States
    labels: Floats
    n_undefined: int = 0
    n_unlabelled: int = 0

    def __post_init__(self) -> None:
        if self.states.ndim != 2 or not len(self.ids) == len(self.states) == len(self.labels):  # noqa: PLR2004
            raise DataError(
                f"{len(self.ids)} ids, states of shape {self.states.shape} and {len(self.labels)} labels: the numbers must be equal"
            )
        if not np.isin(self.labels, (0.0, 1.0)).all():
            raise DataError("the labels of a probe must be 0 or 1: apply a threshold to graded ones")
        if not np.isfinite(self.states).all():
            raise DataError("a state is not finite: leave out undefined states (Examples.of does so)")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, stored: StoredStates, labels: Mapping[str, float], layer: int | None) -> Examples:
        """Return the questions that have both a state and a label.

        Args:
            stored: States of one prompt.
            labels: 0 or 1, by question.
            layer: One of the stored layers; None for a source without layers.

        Raises:
            DataError: The layer was not stored, or no question has both.
        """
        labelled = [name for name in stored.ids if name in labels]
        if not labelled:
            raise DataError(
                f"none of the {len(stored)} questions with states is among the {len(labels)} with labels: are both from "
                "the same data?"
            )
        values = stored.of(labelled, layer)
        states = values[:, 0] if layer is None else values
        defined: Mask = np.asarray(np.isfinite(states).all(axis=1), dtype=np.bool_)
        if not defined.any():
            raise DataError(f"all {len(labelled)} states are undefined (NaN): read them in float32")
        ids = tuple(name for name, keep in zip(labelled, defined.tolist(), strict=True) if keep)
        return cls(
            ids=ids,
            states=states[defined],
            labels=np.array([labels[name] for name in ids], dtype=np.float64),
            n_undefined=int((~defined).sum()),
            n_unlabelled=len(stored) - len(labelled),
        )

    def take(self, rows: Mask | npt.NDArray[np.int64]) -> Examples:
        """Return the examples at `rows`: a mask, or indices."""
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Examples(
            ids=tuple(self.ids[row] for row in chosen.tolist()), states=self.states[chosen], labels=self.labels[chosen]
        )

    def balanced(self, size: int, *, rng: np.random.Generator) -> Examples:
        """Return `size` random examples, half of them known and half unknown as far as the data allow.

        Raises:
            DataError: `size` is below 2 or above the number of examples.
        """
        if not 2 <= size <= len(self):  # noqa: PLR2004 - one of each kind
            raise DataError(f"size is {size!r}; allowed: 2 to {len(self)}, the number of questions")
        # Where one kind runs short, the other fills up: n_known covers the lack of unknown questions.
        known, unknown = (rng.permutation(np.flatnonzero(self.labels == kind)) for kind in (1.0, 0.0))
        n_known = min(len(known), max(size // 2, size - len(unknown)))
        return self.take(np.concatenate([known[:n_known], unknown[: size - n_known]]))


@dataclass(frozen=True, kw_only=True)
class Split:
    """Three disjoint sets of questions, to which questions are assigned by a hash of their ids.

    Attributes:
        train: For fitting the weights.
        dev: For early stopping, for choosing layer and seed, and for calibration.
        test: For the final figures, measured once.

    Raises:
        DataError: A question is in two sets, or a set is empty.
    """

    train: frozenset[str]
    dev: frozenset[str]
    test: frozenset[str]

    def __post_init__(self) -> None:
        sets = {name: {id_hash(q) for q in getattr(self, name)} for name in ("train", "dev", "test")}
        empty = [name for name, ids in sets.items() if not ids]
        if empty:
            raise DataError(f"the {empty[0]} set is empty: give more questions, or other shares")
        for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
            shared = sets[one] & sets[other]
            if shared:
                raise DataError(
                    f"{len(shared)} questions are in both {one} and {other}: figures on them would be biased; give each question to one set"
                )

    def of(self, examples: Examples, name: str) -> Examples:
        """Return only the examples that are in one set: `train`, `dev` or `test`.

        Raises:
            DataError: The set contains none of the examples, or only examples with the same label.
        """
        members = getattr(self, name)
        subset = examples.take(np.array([q in members for q in examples.ids], dtype=np.bool_))
        kinds = np.unique(subset.labels)
        if len(kinds) < 2:  # noqa: PLR2004
            contents = (
                "no question"
                if not len(subset)
                else f"{len(subset)} questions, all {'known' if kinds[0] else 'unknown'}"
            )
            raise DataError(
                f"the {name} set contains {contents}, but a probe learns from both kinds: use a model that knows some of "
                "the questions, another label rule, or more questions"
            )
        return subset

    def expanded(self, questions: Mapping[str, str]) -> Split:
        """Return a split of states: each state goes to the set of its question.

        `questions` contains the question id of each state.
        """
        return Split(
            **{
                name: frozenset(state for state, question in questions.items() if question in getattr(self, name))
                for name in ("train", "dev", "test")
            }
        )


def split_by_hash(
    ids: Sequence[str],
    *,
    dev: float = 0.2,
    test: float = 0.2,
    salt: str = "",
    texts: Mapping[str, str] | None = None,
) -> Split:
    """Assign each question to a set by a hash of its id and the salt; adding questions does not move other questions.

    Questions with the same text go to the same set: the set of the question with the smallest id.

    >>> split = split_by_hash([f"q{i}" for i in range(1000)])
    >>> len(split.train), len(split.dev), len(split.test)
    (603, 180, 217)

    Args:
        ids: Question ids.
        dev: Share of the dev set.
        test: Share of the test set.
        salt: Another salt gives another split.
        texts: Question texts by id, where known.

    Raises:
        DataError: A share is out of range, or a set is empty.
    """
    if not (0 < dev < 1 and 0 < test < 1 and dev + test < 1):
        raise DataError(f"dev is {dev!r} and test {test!r}; allowed: shares above 0 with a sum below 1")
    return Split(**sets_by_hash(ids, dev=dev, test=test, salt=salt, texts=texts))


def sets_by_hash(
    ids: Sequence[str], *, dev: float, test: float, salt: str, texts: Mapping[str, str] | None = None
) -> dict[str, frozenset[str]]:
    """Return the ids in each of the sets `train`, `dev` and `test` of `split_by_hash`; a set may be empty."""
    sets: dict[str, set[str]] = {"train": set(), "dev": set(), "test": set()}
    names = one_name_per_text(ids, [(texts or {}).get(q) for q in ids])
    for q, position in zip(ids, hash_places(names, salt=salt).tolist(), strict=True):
        sets["test" if position < test else "dev" if position < test + dev else "train"].add(q)
    return {name: frozenset(members) for name, members in sets.items()}
