"""A check that two models prefer the same contexts, before a reranker is trained (after CBDR, appendix G).

The check measures the mean change of confidence for each type of context and each model.  A reranker learns the pattern
of these changes in the model that it is aligned with, and will hardly help a model with another pattern.  The paper
takes the largest softmax of the generated answer as confidence.  Here confidence is the probe's probability, from which
preference data are built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from suffice.common.results import Result, jsonable
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.statistics import PairedResult, holm, paired_results, permutation_tests
from suffice.policy.rounds import Floats
from suffice_gates.probes.confidence import Confidence
from suffice_papers.cbdr.contexts import TYPES, ContextSet
from suffice_papers.multinomial import bootstrap_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The effect of one type of context on one model's confidence.

    Attributes:
        model: The model.
        type: `A`, `B` or `C`.
        before: Mean confidence without context.
        paired: Mean change with its interval.
        raised: Share of questions whose confidence rises.
    """

    model: str
    type: str
    before: float
    paired: PairedResult
    raised: float

    @property
    def verdict(self) -> str:
        """`prefers` if the interval is above zero, `rejects` if it is below, else `neither`."""
        return "prefers" if self.paired.low > 0 else "rejects" if self.paired.high < 0 else "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A comparison of two changes of confidence on the same questions.

    Attributes:
        what: The two changes: two types in one model, as `MODEL: A - B`, or one type in two models, as `A: MODEL -
            MODEL`.
        paired: Mean difference with its interval and permutation test, adjusted by Holm over all contrasts of the report.
    """

    what: str
    paired: PairedResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReport(Result):
    """Changes of confidence by model and type, and their contrasts.

    Attributes:
        changes: One change for each model and type of context.
        contrasts: Comparisons between two types of context in one model, and between two models for one type.
        n: Number of questions.
        undefined: Number of questions left out because a confidence was undefined.
    """

    changes: tuple[Change, ...]
    contrasts: tuple[Contrast, ...]
    n: int
    undefined: int

    @property
    def disagreements(self) -> list[str]:
        """The types of context on which the verdicts of the models differ."""
        verdicts: dict[str, set[str]] = {}
        for change in self.changes:
            verdicts.setdefault(change.type, set()).add(change.verdict)
        return [name for name, values in verdicts.items() if len(values) > 1]

    def tables(self) -> list[Table]:
        """Return changes and contrasts as tables."""
        notes = [f"{self.n} questions, the same for every model and type; 95% bootstrap intervals"]
        if self.undefined:
            notes.append(f"{self.undefined} questions left out: a confidence was undefined")
        if len({change.model for change in self.changes}) > 1:
            differ = ", ".join(self.disagreements)
            notes.append(
                f"the models differ about {differ}: a reranker aligned with one will hardly help the other"
                if differ
                else "no verdict differs, but this does not prove that a reranker transfers: check the other model's answers"
            )
        return [
            Table.of(
                "change of confidence by type of context (A on topic, B with the answer, C irrelevant)",
                self.changes,
                {
                    Column("model"): "model",
                    Column("type"): "type",
                    Column("without", ".3f"): "before",
                    Column("change", "+.3f", interval=True): _paired_interval,
                    Column("raised %", ".1f", scale=100): "raised",
                    Column("verdict"): "verdict",
                },
                tuple(notes),
            ),
            Table.of(
                "contrasts on the same questions",
                self.contrasts,
                {
                    Column("contrast"): "what",
                    Column("difference", "+.3f", interval=True): _paired_interval,
                    Column("p (Holm)", ".4f"): "paired.p_holm",
                    Column("test"): "paired.test",
                },
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, including the verdict of each change and the types on which models disagree."""
        verdicts = [{**jsonable(change), "verdict": change.verdict} for change in self.changes]
        return {**Result.to_dict(self), "changes": verdicts, "disagreements": self.disagreements}


def read_contexts(sets: Sequence[ContextSet], confidence: Confidence) -> Floats:
    """Read every question alone and with each of its contexts.

    Args:
        sets: Result of `build_contexts`.
        confidence: The confidence of one model.

    Returns:
        Confidence without context, then with each type, shape ``(1 + len(TYPES), n_sets)``; NaN where undefined.

    Raises:
        DataError: `sets` is empty.
        ModelError: The model failed.
    """
    if not sets:
        raise DataError("sets is empty: give at least one set of contexts")
    texts = [item.question for item in sets]
    aided = [confidence.of(texts, [[item.contexts[i]] for item in sets]) for i in range(len(TYPES))]
    return np.stack([confidence.of(texts), *aided])


def transfer_check(read: Mapping[str, Floats], *, rng: np.random.Generator, n_resamples: int = 1000) -> TransferReport:
    """Compare the effect of contexts on the confidence of several models, from values that were read before.

    The models therefore need not be in memory at the same time.

    Args:
        read: Values of `read_contexts` by name of the model, all on the same sets.
        rng: Draws resamples and signs; it may be the generator that drew the contexts.
        n_resamples: Number of bootstrap resamples.

    Raises:
        DataError: There are no models, their sets differ, or no question has a defined confidence in every model and
            with every context.
    """
    if not read or len({values.shape for values in read.values()}) != 1:
        raise DataError(
            f"{len(read)} models on sets of shapes {[values.shape for values in read.values()]}: give at least "
            "one model, all on the same sets"
        )
    defined = np.logical_and.reduce([np.isfinite(values).all(axis=0) for values in read.values()])
    n = int(defined.sum())
    if not n:
        raise DataError("no question has a defined confidence with every context: check the states for NaN")
    effects = {name: values[1:, defined] - values[0, defined] for name, values in read.items()}
    rows = {(name, kind): row for name, effect in effects.items() for kind, row in zip(TYPES, effect, strict=True)}
    weights = bootstrap_weights(n, n_resamples, rng=rng)
    changes = tuple(
        Change(
            model=name,
            type=kind,
            before=float(read[name][0, defined].mean()),
            paired=paired,
            raised=float((row > 0).mean()),
        )
        for ((name, kind), row), paired in zip(
            rows.items(), paired_results(np.stack(list(rows.values())), weights), strict=True
        )
    )
    differences = _contrasts(effects)
    deltas = np.stack(list(differences.values()))
    tests = permutation_tests(deltas, rng=rng)
    adjusted = holm([test.p for test in tests]).tolist()
    contrasts = tuple(
        Contrast(what=what, paired=replace(paired, p=test.p, p_holm=p, test=test.test))
        for what, paired, test, p in zip(differences, paired_results(deltas, weights), tests, adjusted, strict=True)
    )
    return TransferReport(changes=changes, contrasts=contrasts, n=n, undefined=len(defined) - n)


def _contrasts(change: Mapping[str, Floats]) -> dict[str, Floats]:
    differences = {}
    for name, rows in change.items():
        for i, j in combinations(range(len(TYPES)), 2):
            differences[f"{name}: {TYPES[i]} - {TYPES[j]}"] = rows[i] - rows[j]
    for one, other in combinations(change, 2):
        for i, kind in enumerate(TYPES):
            differences[f"{kind}: {one} - {other}"] = change[one][i] - change[other][i]
    return differences


def _paired_interval(item: Change | Contrast) -> tuple[float, float, float]:
    return item.paired.delta, item.paired.low, item.paired.high
