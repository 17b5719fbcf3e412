"""Comparison of gates: thresholds are chosen on tune questions; quality and cost are measured on other questions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.replay.selected import seen_from, seen_in, selected_on
from suffice.evaluation.results import Evaluation
from suffice.evaluation.statistics import Area, area_under_roc, holm, undefined_notes
from suffice.policy.rounds import Floats
from suffice.policy.seen import Seen
from suffice.policy.signals import GATE, KNOWN
from suffice_gates.gates.evaluation import GateEvaluation, gate_rule
from suffice_gates.gates.point import GatePoint, points_table, quality_columns, quality_of, verdict
from suffice_gates.gates.threshold import choose_beta

_RANDOM = (
    "random: the same share of questions, drawn blindly (exact expectation); p: how often decisions dealt out at random "
    "fall as far from it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePrice:
    """Costs of a gate that the recording does not contain.

    Attributes:
        n_labels: Number of labelled questions that the gate was fitted on; 0 if nothing is fitted, NaN if unknown.
        fit_seconds: Seconds to read these questions and to fit.
        calls: Number of calls of a language model for one decision.
        tokens: Tokens read and written for one decision.
        seconds: Seconds for one decision; NaN if not measured.
    """

    n_labels: float = 0
    fit_seconds: float = 0.0
    calls: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGate:
    """A gate's scores: out-of-fold on tune questions, direct on evaluation questions.

    Attributes:
        name: Name in reports.
        tune: Scores of the tune questions, shape ``(n_tune,)``; NaN where undefined; the gate retrieves for questions
            with NaN.
        evaluation: Scores of the evaluation questions, shape ``(n_eval,)``.
        low: True if low values answer directly, as for an uncertainty.
        beta: Its threshold; None to choose it on the tune questions.
        ranks: Scores of the evaluation questions for areas under the ROC curve. Give them if `evaluation` cannot rank
            all questions, for example because each fold has its own threshold; None to rank by `evaluation`.
        component: The component whose recorded call produces the score: `gate` for the recorded gate, `generator` for
            signals of the closed-book answer; "" if no recorded call produces the score, so that only `price` counts.
        price: Its costs in addition to the recorded ones.
        source: Paper, or other origin.
    """

    name: str
    tune: Floats
    evaluation: Floats
    low: bool = False
    beta: float | None = None
    ranks: Floats | None = None
    component: str = ""
    price: GatePrice = field(default_factory=GatePrice)
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedGate(Result):
    """One gate in a comparison.

    Attributes:
        name: Name in reports.
        source: Paper, or other origin.
        price: Its costs in addition to the recorded ones.
        point: Its quality and cost on the evaluation questions.
        random: The random gate at the same retrieval rate.
        tune: Its quality and cost on the tune questions, optimistic because its threshold was chosen there; None if the
            threshold was given.
        known: Area under the ROC curve for predicting "the answer without retrieval is right" by the gate's score.
        not_needed: Area under the ROC curve for predicting "retrieval does not turn a wrong answer into a right one" by
            the gate's score.
        n_undefined: Number of questions without a score; the gate retrieves for them.
        p_holm: The p-value against random decisions (`GatePoint.p_random`), adjusted by Holm over the gates.
    """

    name: str
    source: str
    price: GatePrice
    known: Area
    not_needed: Area
    n_undefined: int
    p_holm: float = math.nan
    point: GatePoint
    random: GatePoint
    tune: GatePoint | None

    def table(self) -> Table:
        """Return the gate, and the random gate at its retrieval rate."""
        return points_table(self.name, [self.point, self.random], tuple(self.point.metrics))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateComparison(Evaluation):
    """A comparison of gates on one set of questions.

    Attributes:
        rows: The gates, in the given order.
        never: The policy that never retrieves.
        always: The policy that always retrieves.
        perfect: The gate that knows where retrieval helps.
        metrics: Names of the metrics; the first one measures quality.
        n_tune: Number of tune questions; 0 if thresholds were cross-fitted.
        chosen: A sentence on the choice of thresholds.
    """

    rows: tuple[ComparedGate, ...]
    never: GatePoint
    always: GatePoint
    perfect: GatePoint
    metrics: tuple[str, ...]
    n_tune: int
    chosen: str

    def tables(self) -> Sequence[Table]:
        """Return a table of quality and cost, and a table of how well the scores predict right direct answers."""
        return [comparison_table(self), knowledge_table(self)]

    @property
    def headline(self) -> str:
        """A sentence on the gates better than always retrieving, and on the gates better or worse than random gates."""
        first = self.metrics[0]
        better = [row for row in self.rows if row.point.against_always[first].low > 0]
        shown = [row for row in self.rows if row.p_holm < 1 - self.resampling.level]
        informed = [row.name for row in shown if row.point.against_random[first].delta > 0]
        misled = [row.name for row in shown if row.point.against_random[first].delta < 0]
        one = f"{len(self.rows)} gates: " if len(self.rows) != 1 else "1 gate: "
        beats = (
            f"none beats always retrieving in {first}"
            if not better
            else f"better than always retrieving in {first}: {', '.join(row.name for row in better)}"
        )
        knows = f"better than a random gate of the same retrieval rate: {', '.join(informed) or 'none is shown to be'}"
        worse = f"; worse than one: {', '.join(misled)}" if misled else ""
        return f"{one}{beats} ({100 * self.resampling.level:g} % intervals); {knows}{worse}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        return {**Evaluation.to_dict(self), "headline": self.headline}


def compare_gates(
    evaluation: GateEvaluation,
    gates: Sequence[ScoredGate],
    tune: GateEvaluation | None = None,
    *,
    rate: float | None = None,
) -> GateComparison:
    """Choose each gate's threshold on tune questions, and measure the gates on evaluation questions.

    Args:
        evaluation: Evaluation questions, used neither to fit gates nor to choose thresholds.
        gates: At least one gate; names must differ.
        tune: Tune questions; None if the threshold of every gate is given.
        rate: Choose each threshold for this retrieval rate on the tune questions, instead of for the best quality.

    Raises:
        DataError: There are no gates, two have the same name, a question is in both sets, or a gate has no threshold and
            there are no tune questions.
    """
    if not gates or len({gate.name for gate in gates}) < len(gates):
        raise DataError(f"gates need names that differ, and at least one: {[gate.name for gate in gates]!r}")
    recording = evaluation.recording
    shared = seen_in(recording, Seen() if tune is None else seen_from(tune.recording))
    if shared.any():
        raise DataError(
            f"{int(shared.sum())} evaluation questions are among the tune questions, by id or text, the "
            f"first is {recording.question_ids[int(np.argmax(shared))]!r}: a threshold looks too good on the "
            "questions that it was chosen on"
        )
    unscored = [gate.name for gate in gates if not np.isfinite(gate.evaluation).any()]
    if unscored:
        raise DataError(
            f"the gate {unscored[0]!r} has a score for none of the {evaluation.n} evaluation questions, so it "
            "would always retrieve: record its signal, or leave the gate out"
        )
    rows = [_compared(evaluation, gate, tune, rate) for gate in gates]
    adjusted = holm(np.array([row.point.p_random for row in rows]))
    return GateComparison(
        rows=tuple(replace(row, p_holm=float(p)) for row, p in zip(rows, adjusted, strict=True)),
        never=evaluation.reference("never"),
        always=evaluation.reference("always"),
        perfect=evaluation.reference("perfect"),
        metrics=evaluation.metrics,
        n=evaluation.n,
        n_tune=0 if tune is None else tune.n,
        resampling=evaluation.resampling,
        data_hash=evaluation.recording.data_hash,
        chosen=_choice(evaluation, tune, rate),
        notes=_seen_notes(evaluation, gates, tune),
    )


def _seen_notes(
    evaluation: GateEvaluation, gates: Sequence[ScoredGate], tune: GateEvaluation | None
) -> tuple[str, ...]:
    """Return a warning if the recorded gate was fitted on compared questions, and a warning if resamples are undefined."""
    rules = [gate_rule(KNOWN, 0.5)] if any(gate.component == GATE for gate in gates) else []
    notes = [*selected_on(map(evaluation.gated, rules), evaluation.recording).notes]
    notes += undefined_notes(evaluation.draws.units.n_units, evaluation.draws.resampling.n_resamples)
    if tune is not None:
        notes += [f"tune: {note}" for note in selected_on(map(tune.gated, rules), tune.recording).notes]
    return tuple(notes)


def _choice(evaluation: GateEvaluation, tune: GateEvaluation | None, rate: float | None) -> str:
    if tune is None:
        return "thresholds were cross-fitted: each question's was chosen on the other folds, and applied to it alone"
    how = f"the best {evaluation.metrics[0]}" if rate is None else f"a retrieval rate of {100 * rate:g} %"
    return f"thresholds were chosen for {how} on {tune.n} tune questions"


def _compared(
    evaluation: GateEvaluation, gate: ScoredGate, tune: GateEvaluation | None, rate: float | None
) -> ComparedGate:
    beta, on_tune = gate.beta, None
    if beta is None:
        if tune is None:
            raise DataError(
                f"the gate {gate.name!r} has no threshold, and there are no tune questions to choose one on"
            )
        beta = choose_beta(gate.tune, tune.answers, low=gate.low, rate=rate)
        on_tune = _replayed(tune, gate.tune, beta, gate)
    point = _replayed(evaluation, gate.evaluation, beta, gate)
    ranks = gate.evaluation if gate.ranks is None else gate.ranks
    sure = -ranks if gate.low and gate.ranks is None else ranks
    answers, level = evaluation.answers, evaluation.resampling.level
    return ComparedGate(
        name=gate.name,
        source=gate.source,
        price=gate.price,
        point=point,
        random=evaluation.random(point.retrieval_rate),
        tune=on_tune,
        known=area_under_roc(sure, answers.right[0], level=level),
        not_needed=area_under_roc(sure, answers.not_needed, level=level),
        n_undefined=int((~np.isfinite(gate.evaluation)).sum()),
    )


_COLUMN = "gate_score"


def _replayed(evaluation: GateEvaluation, scores: Floats, beta: float, gate: ScoredGate) -> GatePoint:
    """Add a gate's scores to the recording and replay the gate.

    The cost of the recorded gate is removed first, unless `gate` is the recorded gate itself.
    """
    base = evaluation if gate.component == GATE else evaluation.ungated()
    judged = base.with_scores({_COLUMN: scores}, component=gate.component or GATE)
    return judged.point(gate_rule(_COLUMN, beta, low=gate.low), beta, label=gate.name)


def comparison_table(comparison: GateComparison, title: str = "") -> Table:
    """Tabulate the quality, retrieval rate, areas under the ROC curve, online cost and offline cost of each gate."""
    metrics = comparison.metrics
    no_price = GatePrice(n_labels=math.nan, fit_seconds=math.nan, seconds=math.nan)
    rows = [
        (comparison.never, math.nan, no_price),
        (comparison.always, math.nan, no_price),
        *((row.point, row.p_holm, row.price) for row in comparison.rows),
        (comparison.perfect, math.nan, no_price),
    ]
    return Table(
        title=title or f"{comparison.n} questions; {comparison.resampling.text}",
        columns=(
            Column("gate"),
            *quality_columns(metrics),
            Column("p (Holm)", ".3f"),
            Column("calls", ".2f"),
            Column("to decide, ms", ",.2f", scale=1000),
            Column("labels", ",.0f"),
            Column("fit, s", ",.1f"),
            Column("verdict"),
        ),
        rows=tuple(
            (
                point.label,
                *quality_of(point, metrics),
                p_holm,
                point.costs["calls"] + price.calls,
                price.seconds,
                price.n_labels,
                price.fit_seconds,
                verdict(point),
            )
            for point, p_holm, price in rows
        ),
        notes=(comparison.chosen, _RANDOM),
    )


def knowledge_table(comparison: GateComparison) -> Table:
    """Tabulate each gate's areas under the ROC curve, threshold, and quality on the tune questions."""
    first = comparison.metrics[0]
    return Table(
        title="What the scores know: areas under the ROC curve (0.5 = nothing)",
        columns=(
            Column("gate"),
            Column("closed book right", ".2f", interval=True),
            Column("retrieval not needed", ".2f", interval=True),
            Column("beta", ".4f"),
            Column(f"{first.upper()} on tune", ".1f", scale=100),
            Column("retrieves on tune", ".1%"),
            Column("undefined", ",.0f"),
            Column("source"),
        ),
        rows=tuple(
            (
                row.name,
                (row.known.value, row.known.low, row.known.high),
                (row.not_needed.value, row.not_needed.low, row.not_needed.high),
                row.point.beta,
                math.nan if row.tune is None else row.tune.metrics[first],
                math.nan if row.tune is None else row.tune.retrieval_rate,
                row.n_undefined,
                row.source,
            )
            for row in comparison.rows
        ),
        notes=("figures on tune are selected there and flatter",) if any(row.tune for row in comparison.rows) else (),
    )


def rates_table(title: str, comparisons: Mapping[float, GateComparison]) -> Table:
    """Tabulate each gate at several requested retrieval rates, next to a random gate with the rate that the gate reached."""
    first = next(iter(comparisons.values())).metrics[0]
    return Table(
        title=title,
        columns=(
            Column("gate"),
            Column("rate asked", ".0%"),
            Column("retrieves", ".1%"),
            Column(first.upper(), ".1f", scale=100),
            Column("random gate", ".1f", scale=100),
            Column(f"Δ{first} vs random", "+.1f", scale=100, interval=True),
            Column("p (Holm)", ".3f"),
            Column("verdict"),
        ),
        rows=tuple(
            (
                row.name,
                rate,
                row.point.retrieval_rate,
                row.point.metrics[first],
                row.random.metrics[first],
                row.point.against_random[first].triple,
                row.p_holm,
                verdict(row.point),
            )
            for rate, comparison in comparisons.items()
            for row in comparison.rows
        ),
        notes=(_RANDOM,),
    )
