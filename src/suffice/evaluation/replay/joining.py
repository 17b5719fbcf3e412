"""Join the runs on several parts of the questions; the values behind means and differences are kept per question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.evaluation.replay.baselines import Run, missing_note
from suffice.evaluation.replay.checks import run_notes
from suffice.evaluation.replay.costs import Ledger
from suffice.evaluation.replay.estimated_shares import EstimatedShares
from suffice.policy.rounds import COST_KINDS, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedLedger(Ledger):
    """The ledger of questions that were read in parts: calls and tokens per question, only means of other costs.

    Each mean is an array of one number, which is enough because only means of these costs are reported.

    Attributes:
        tokens: Shape ``(n_questions,)``, count; NaN where unknown.
    """

    tokens: Floats

    @classmethod
    def of(cls, ledgers: Sequence[Ledger]) -> JoinedLedger:
        """Join the ledgers of several parts, with the questions in the order of the parts."""
        sizes = [len(part.calls) for part in ledgers]
        n, components = sum(sizes), sorted({name for part in ledgers for name in part.costs})

        def mean(columns: Sequence[Floats]) -> Floats:
            return np.array([sum(float(c.mean()) * size for c, size in zip(columns, sizes, strict=True)) / n])

        def column_of(part: Ledger, component: str, kind: str) -> Floats:
            kinds = part.costs.get(component)  # a model of a panel may be missing from a part
            return np.zeros(1) if kinds is None else kinds[kind]

        return cls(
            costs={
                name: {kind: mean([column_of(part, name, kind) for part in ledgers]) for kind in COST_KINDS}
                for name in components
            },
            calls=np.concatenate([part.calls for part in ledgers]),
            money=mean([part.money for part in ledgers]),
            tokens=np.concatenate([part.total("tokens") for part in ledgers]),
        )

    def total(self, kind: str) -> Floats:
        """Return one kind of cost over all components; see `Ledger.total`."""
        return self.tokens if kind == "tokens" else Ledger.total(self, kind)


def joined_run(parts: Sequence[Run]) -> Run:
    """Join one policy's runs on several parts into its run on all questions, in the order of the parts."""
    if len(parts) == 1:
        return parts[0]
    sizes = [len(part.unrun) for part in parts]
    worst = _columns([part.worst for part in parts])
    same = all(part.best is part.worst for part in parts)
    support, weights = _values_with_weights(parts)
    joined = replace(
        parts[0],
        worst=worst,
        best=worst if same else _columns([part.best for part in parts]),
        unrun=np.concatenate([part.unrun for part in parts]),
        ledger=JoinedLedger.of([part.ledger for part in parts]),
        calls=(support, weights),
        stop_rounds=_mean([part.stop_rounds for part in parts], sizes),
        reasons=dict(sum((Counter(part.reasons) for part in parts), Counter())),
        oracle_seen=None if parts[0].oracle_seen is None else _mean([part.oracle_seen or {} for part in parts], sizes),
        rounds=_rounds(parts),
        n_selected=sum(part.n_selected for part in parts),
        estimated=_estimated(parts),
    )
    return replace(joined, notes=_notes(joined))


def _columns(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _mean(parts: Sequence[Mapping[Any, float]], sizes: Sequence[int]) -> dict[Any, float]:
    """Average figures by name over parts, weighted by the parts' numbers of questions.

    If a part lacks a figure, the figure counts as 0 in this part.
    """
    names = sorted({name for part in parts for name in part})
    n = sum(sizes)
    return {
        name: sum(part.get(name, 0.0) * size for part, size in zip(parts, sizes, strict=True)) / n for name in names
    }


def _values_with_weights(parts: Sequence[Run]) -> tuple[Floats, Floats]:
    """Return the distinct numbers of calls with their weights."""
    support, place = np.unique(np.concatenate([part.calls[0] for part in parts]), return_inverse=True)
    weights = np.concatenate([part.calls[1] for part in parts])
    return support, np.bincount(place.reshape(-1), weights=weights, minlength=len(support)).astype(np.float64)


def _rounds(parts: Sequence[Run]) -> Any:
    columns = [part.rounds for part in parts if part.rounds is not None]
    return np.concatenate(columns) if len(columns) == len(parts) else None


def _estimated(parts: Sequence[Run]) -> EstimatedShares | None:
    known = [part.estimated for part in parts if part.estimated is not None]
    return EstimatedShares.joined(known) if known else None


def _notes(run: Run) -> tuple[str, ...]:
    """Return the notes of a run; notes that contain counts are recomputed for all questions."""
    without = 0 if run.rounds is None else int(((run.rounds < 0) & ~run.unrun).sum())
    if run.kind in ("rule", "fixed") and run.policy is not None:
        return run_notes(run.policy, without)
    if run.kind == "fixed":  # a run that requests only one answer
        return (run.notes[0], *missing_note(without))
    return run.notes
