"""One gate at one threshold: what it gives, what it costs, and what does as well blindly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suffice.common.results import Result
from suffice.common.tables import Table, figure
from suffice.evaluation.statistics import MarginTest, PairedResult

__all__ = ["ALWAYS", "NEVER", "PERFECT", "GatePoint"]

NEVER, ALWAYS, PERFECT = "never retrieve", "always retrieve", "perfect gate"
"""What the references are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePoint(Result):
    """One gate, at one threshold.

    Attributes:
        label: What reports call it.
        kind: `gate`, `random`, `never`, `always`, `perfect`, or `other` for always retrieving in another way.
        beta: Its threshold; NaN where it has none.
        retrieval_rate: Share of questions that go on to retrieval.
        metrics: Means over questions, by name.
        costs: Mean operational cost per question: calls, tokens, seconds, retrievals; NaN where unknown.
        against_always: Paired differences to always retrieving, by metric.
        against_random: Paired differences to the random gate at the same retrieval rate, by metric.
        p_random: Two-sided p-value of its own decisions dealt out to the questions at random, for the first metric:
            whether they fall better or worse than blind ones. Read it instead of the interval where few questions are
            answered directly, or few retrieved for. NaN where it does not apply.
        margin: Non-inferiority to always retrieving in the first metric; None for always itself.
        label_blind_rate: The lowest retrieval rate at which never, always or a random gate has at least this quality;
            None if there is none.
        dominated_by: That gate where it retrieves no more and is better in one; None otherwise.
    """

    label: str
    kind: str
    beta: float
    retrieval_rate: float
    metrics: Mapping[str, float]
    costs: Mapping[str, float]
    against_always: Mapping[str, PairedResult]
    against_random: Mapping[str, PairedResult]
    p_random: float
    margin: MarginTest | None
    label_blind_rate: float | None
    dominated_by: str | None

    def headline(self, metric: str) -> str:
        """Return one sentence: quality, difference to always retrieving, retrieval rate, and what does as well blindly."""
        delta = self.against_always.get(metric)
        parts = [f"{metric} {figure(self.metrics[metric], '.1f', 100)}"]
        if delta is not None and self.kind != "always":
            parts[0] += f" ({figure(delta.triple, '+.1f', 100)} vs {ALWAYS})"
        parts.append(f"retrieves for {figure(self.retrieval_rate, '.1f', 100)} % of questions")
        if self.dominated_by is not None:
            parts.append(f"dominated by {self.dominated_by}")
        elif self.label_blind_rate is None:
            parts.append(f"no label-blind gate reaches this {metric}")
        else:
            parts.append(f"a label-blind gate needs {figure(self.label_blind_rate, '.1f', 100)} % for this {metric}")
        if self.margin is not None:
            doubt = "" if self.margin.shown else "not shown to be "
            parts.append(f"{doubt}non-inferior within {100 * self.margin.margin:g} points")
        return f"{self.label}: {'; '.join(parts)}"

    def table(self) -> Table:
        """Return the gate as a row of its quality, retrieval rate, differences and costs."""
        from suffice_gates.gates.tables import points_table  # it reads this class

        return points_table(self.label, [self], tuple(self.metrics))
