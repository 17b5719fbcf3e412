"""`suffice demo gate`: compare question-only gates with always retrieving, on real answers, offline."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice._version import __version__
from suffice.cli import options
from suffice.cli.console import print_json, print_table, say
from suffice.cli.output import Output, Screen, check_markdown
from suffice.common.files import quoted
from suffice.common.results import jsonable
from suffice.common.tables import Table, render
from suffice.errors import DataError
from suffice.evaluation.replay import policy_for
from suffice.policy.rules import find_threshold
from suffice.recordings import Recording, write_recording
from suffice.verdicts.certificates import Certification, Claim, certify, path_values, threshold_path
from suffice_gates.commands.compare_gates import GATE_METRICS, comparison_page, comparison_screen
from suffice_gates.gates import (
    ComparedGate,
    GateComparison,
    GateEvaluation,
    GatePoint,
    ScoredGate,
    Transitions,
    answered_recording,
    compare_gates,
    comparison_table,
    even_betas,
    examples_table,
    gate_rule,
    held_out_gates,
    load_answered,
    points_table,
    question_gates,
    rates_table,
    transitions,
    transitions_table,
    with_scores,
)
from suffice_papers.cbdr.ceiling import headroom, headroom_table
from suffice_papers.paper import narrow
from suffice_reader.minilm import MiniLM

_WRITTEN_BY = "suffice demo gate --set markdown=docs/results/gates.md"
_RATES = (0.9, 0.75, 0.5, 0.25)
_LOSS = Claim(epsilon=0.02, metric="contains")
_NOTICE = (
    "Questions: HotpotQA (CC BY-SA 4.0) and 2WikiMultiHopQA (Apache-2.0); answers recorded by AdaRAGUE (MIT). "
    "Llama 3.1 is licensed under the Llama 3.1 Community License, Copyright (c) Meta Platforms, Inc. All Rights Reserved."
)


def demo_gate(
    output: Output,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of recordings with the scores.")] = Path(
        "suffice-demo"
    ),
    markdown: options.Markdown = None,
) -> None:
    """Judge question-only gates on real answers.

    Llama-3.1-8B answered with and without retrieval; this runs offline and without torch.

    Example: suffice demo gate --out demo-gate
    """
    began = time.monotonic()
    check_markdown(markdown)
    page = _Page(prints=output.details and not output.as_json)
    page.section("1. Real answers without and with one retrieval: what could a gate save?")
    tune, evaluation, other = map(_bundled_answers, ("hotpotqa_tune", "hotpotqa_eval", "2wiki_tune"))
    sets = {"HotpotQA, eval": evaluation, "HotpotQA, tune": tune, "2Wiki, tune": other}
    rooms = {name: (evaluation.n, headroom(evaluation)) for name, evaluation in sets.items()}
    page.table(headroom_table("Llama-3.1-8B: headroom", rooms))

    page.section(
        "2. Fit gates that read the question alone on HotpotQA tune, choose thresholds there, judge them on eval."
    )
    embedder = MiniLM()
    gates = question_gates(tune, evaluation, embedder.embed)
    comparison = compare_gates(evaluation, gates, tune)
    page.comparison(comparison, "HotpotQA, eval")

    page.section("3. The same gates at given retrieval rates: does the score know which questions need no retrieval?")
    at_rates = {rate: compare_gates(evaluation, gates, tune, rate=rate) for rate in _RATES}
    page.table(rates_table("HotpotQA, eval: thresholds chosen on tune for a retrieval rate", at_rates))

    best = _best_gate(comparison, gates)
    page.section(
        f"4. The gate that was best on tune, {best.name!r}, threshold by threshold, and which questions change sides."
    )
    sweep = _Sweep.of(best, tune, evaluation, out)
    page.table(points_table(f"{best.name}: the threshold moved, on eval", sweep.points, GATE_METRICS))
    page.table(transitions_table(f"{best.name}: what the next threshold changes ({GATE_METRICS[0]})", sweep.steps))
    page.table(examples_table("Some of those questions", sweep.steps, most=1))

    page.section(
        "5. Certify on eval: the fewest retrievals that lose at most 2 points, thresholds and order from tune."
    )
    certification = sweep.certified(page)

    page.section("6. 2WikiMultiHopQA has tune questions alone: gates and thresholds are cross-fitted there.")
    crossed = compare_gates(other, held_out_gates(other, embedder.embed))
    page.comparison(crossed, "2Wiki, cross-fitted")
    page.sentence(_NOTICE)
    if markdown is not None:
        page.write(markdown)

    seconds = time.monotonic() - began
    if output.as_json:
        results = {
            "headroom": {name: {"n": n, "metrics": room} for name, (n, room) in rooms.items()},
            "hotpotqa": comparison,
            "hotpotqa_at_rates": at_rates,
            "sweep": sweep,
            "certification": certification,
            "2wiki": crossed,
            "notice": _NOTICE,
            "seconds": seconds,
        }
        print_json(jsonable(results))
        return
    if not output.details:
        headlines = f"HotpotQA: {comparison.headline}. 2WikiMultiHopQA: {crossed.headline}."
        tables = [_short_table(comparison), *(replace(table, notes=()) for table in page.tables[1:])]
        Screen(sentences=[headlines], tables=tables).print()
        say(_NOTICE)
    say(f"recordings with the scores: {out}/gate_*.parquet (the whole took {seconds:.0f} s)")
    say(
        f"next: suffice gate compare {quoted(out)}/gate_hotpotqa_eval.parquet --tune {quoted(out)}/gate_hotpotqa_tune.parquet"
    )


def _short_table(comparison: GateComparison) -> Table:
    """Return a table of the gates on HotpotQA, narrow enough for one screen."""
    first = comparison.metrics[0]
    names = ("gate", first.upper(), "retrieves", f"Δ{first} vs always", "verdict")
    return narrow(comparison_table(comparison, f"Gates on HotpotQA, {comparison.n} eval questions"), names)


def gate_column(name: str) -> str:
    """Return the column of a gate's score: the name of the gate in a form that rules can contain.

    >>> gate_column("features, not needed")
    'gate_features_not_needed'
    """
    return f"gate_{re.sub(r'[^0-9A-Za-z]+', '_', name)}"


def _bundled_answers(questions: str) -> GateEvaluation:
    """Return the answers of Llama-3.1-8B with and without retrieval."""
    dataset, _, split = questions.partition("_")
    name = f"{dataset}_llama31_{split}"
    model = {"model": "Llama-3.1-8B", "recorded_by": "AdaRAGUE"}
    metadata = {"dataset": {"name": name}, "config": {"model": model}}
    return GateEvaluation(answered_recording(load_answered(name), metadata=metadata))


def _best_gate(comparison: GateComparison, gates: Sequence[ScoredGate]) -> ScoredGate:
    """Return the gate with the best quality on tune questions; among ties, the one that retrieves least on them."""
    first = comparison.metrics[0]

    def rank(row: ComparedGate) -> tuple[float, float]:
        assert row.tune is not None
        return row.tune.metrics[first], -row.tune.retrieval_rate

    name = max(comparison.rows, key=rank).name
    return next(gate for gate in gates if gate.name == name)


class _Page:
    """Collects the demonstration as Markdown; if `prints` is true, every part is also printed as it is added."""

    def __init__(self, *, prints: bool) -> None:
        self.prints = prints
        self.tables: list[Table] = []
        self._parts = [f"# Question-only gates on real answers\n\n`{_WRITTEN_BY}` (suffice {__version__}), seed 42.\n"]

    def section(self, heading: str) -> None:
        """Begin a section."""
        self._add(f"## {heading}\n")
        if self.prints:
            say(f"\n{heading}", bold=True)

    def sentence(self, text: str) -> None:
        """Add a sentence."""
        self._add(f"{text}\n")
        if self.prints:
            say(text)

    def table(self, table: Table) -> None:
        """Add a table."""
        self._add(render([table], "md"), table)
        if self.prints:
            print_table(table)

    def comparison(self, comparison: GateComparison, name: str) -> None:
        """Add the tables and sentences of a comparison."""
        self._add(comparison_page(comparison, name), *comparison.tables())
        if self.prints:
            comparison_screen(comparison, name).print(details=True)

    def certification(self, certification: Certification) -> None:
        """Add a certification."""
        self.table(certification.table())
        self.sentence(certification.headline)
        if self.prints and certification.policy is not None and certification.missing:
            say(f"cheaper: {certification.missing}")

    def _add(self, text: str, *tables: Table) -> None:
        self._parts.append(text)
        self.tables += tables

    def write(self, path: Path) -> None:
        """Write the page so far."""
        path.write_text("\n".join(part.strip("\n") + "\n" for part in self._parts), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One gate at all its thresholds, with the recordings that contain its score."""

    tune: Recording
    evaluation: GateEvaluation
    column: str
    points: Sequence[GatePoint]
    steps: Sequence[Transitions]

    @classmethod
    def of(cls, gate: ScoredGate, tune: GateEvaluation, evaluation: GateEvaluation, out: Path) -> _Sweep:
        """Build the gate's policies at thresholds that divide the tune scores into shares, and write the recordings."""
        column = gate_column(gate.name)
        scored = evaluation.with_scores({column: gate.evaluation})
        betas = even_betas(gate.tune)
        scored_tune = with_scores(tune.recording, {column: gate.tune})
        for name, recording in (("tune", scored_tune), ("eval", scored.recording)):
            write_recording(out / f"gate_hotpotqa_{name}.parquet", recording.table, recording.metadata)
        points = [scored.reference("never")]
        points += [scored.point(gate_rule(column, beta), beta, label=gate.name) for beta in betas]
        points += [scored.reference("always"), scored.reference("perfect")]
        return cls(scored_tune, scored, column, points, transitions(scored, column, betas))

    def certified(self, page: _Page) -> dict[str, Any]:
        """Certify the gate at all thresholds; add the result to the page, or the reason why this was impossible."""
        recording = self.evaluation.recording
        policy = policy_for(recording, gate_rule(self.column), start_round=0)
        try:
            family = threshold_path(policy, self.column, path_values(policy, self.column, self.tune))
            certification = certify(recording, family, _LOSS, tune=self.tune, cheapest="retrievals")
        except DataError as error:
            page.sentence(f"not certifiable: {error}")
            return {"certified": False, "headline": f"not certifiable: {error}"}
        page.certification(certification)
        chosen = None
        if certification.policy is not None:
            beta = find_threshold(certification.policy.rule, self.column).value
            point = self.evaluation.point(certification.policy.rule, beta, label="certified")
            chosen = point.to_dict()
            page.sentence(point.headline(GATE_METRICS[0]))
        page.sentence(self._blind())
        return {**certification.to_dict(), "chosen": chosen}

    def _blind(self) -> str:
        """Return a sentence on the share of retrievals that a gate could skip at random without violating the claim."""
        room = (
            self.evaluation.always.values[GATE_METRICS[0]].mean() - self.evaluation.never.values[GATE_METRICS[0]].mean()
        )
        if room <= 0:
            return "Retrieval does not raise the mean here: never retrieving loses nothing."
        share = min(1.0, _LOSS.epsilon / room)
        return (
            f"A gate that knows nothing loses {100 * room:.1f} points by skipping everything, so skipping "
            f"{100 * share:.1f} % at random loses {100 * _LOSS.epsilon:g} points: saving less than that shows no knowledge."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        steps = [
            {
                "from": step.low,
                "to": step.high,
                "wrong_to_right": [item.question_id for item in step.gained],
                "right_to_wrong": [item.question_id for item in step.lost],
                "unchanged": step.same,
            }
            for step in self.steps
        ]
        return {"column": self.column, "points": [point.to_dict() for point in self.points], "transitions": steps}
