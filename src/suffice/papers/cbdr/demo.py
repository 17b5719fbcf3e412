"""`suffice demo gate`: do gates that read the question alone beat always retrieving?  On real answers, offline."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice._version import __version__
from suffice.certificates import Certification, Claim, certify, path_values, threshold_path
from suffice.cli import options
from suffice.cli.certify import show_certification
from suffice.cli.compare_gates import comparison_page, show_comparison
from suffice.cli.console import console, print_json, print_table, say
from suffice.embedding import MiniLM
from suffice.errors import DataError
from suffice.gates import (
    ComparedGate,
    GateComparison,
    GateEvaluation,
    GatePoint,
    ScoredGate,
    Transitions,
    answered_recording,
    compare_gates,
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
from suffice.papers.cbdr.ceiling import headroom, headroom_table
from suffice.replays import policy_for
from suffice.rules import find_threshold
from suffice.store import Recording, write_recording
from suffice.tables import Table, render

__all__ = ["demo_gate", "gate_column"]

_COMMAND = "suffice demo gate --markdown docs/results/gates.md"
_METRICS = ("contains", "em", "f1")
_RATES = (0.9, 0.75, 0.5, 0.25)
_CLAIM = Claim(epsilon=0.02, metric="contains")
_NOTICE = (
    "Questions: HotpotQA (CC BY-SA 4.0) and 2WikiMultiHopQA (Apache-2.0); answers recorded by AdaRAGUE (MIT). "
    "Llama 3.1 is licensed under the Llama 3.1 Community License, Copyright (c) Meta Platforms, Inc. All Rights Reserved."
)


def demo_gate(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where recordings with the scores go.")] = Path(
        "suffice-demo"
    ),
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write the tables there, as Markdown.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Judge question-only gates on real answers.

    Llama-3.1-8B answered with and without retrieval; this runs offline and without torch.

    Example: suffice demo gate --out demo-gate
    """
    began = time.monotonic()
    if markdown is not None and not markdown.parent.is_dir():
        raise DataError(f"there is no folder {str(markdown.parent)!r} to write {markdown.name!r} to")
    say = _Teller(as_json)
    say("1. Real answers without and with one retrieval: what could a gate save?")
    tune, evaluation, other = (
        GateEvaluation(answered_recording(load_answered(name), metadata=_told(name)))
        for name in ("hotpotqa_llama31_tune", "hotpotqa_llama31_eval", "2wiki_llama31_tune")
    )
    sets = {"HotpotQA, eval": evaluation, "HotpotQA, tune": tune, "2Wiki, tune": other}
    rooms = {name: (evaluation.n, headroom(evaluation)) for name, evaluation in sets.items()}
    say.table(headroom_table("Llama-3.1-8B: headroom", rooms))

    say("2. Fit gates that read the question alone on HotpotQA tune, choose thresholds there, judge them on eval.")
    embedder = MiniLM()
    gates = question_gates(tune, evaluation, embedder.embed)
    found = compare_gates(evaluation, gates, tune)
    say.comparison(found, "HotpotQA, eval")

    say("3. The same gates at given retrieval rates: does the score know which questions need no retrieval?")
    at_rates = {rate: compare_gates(evaluation, gates, tune, rate=rate) for rate in _RATES}
    say.table(rates_table("HotpotQA, eval: thresholds chosen on tune for a retrieval rate", at_rates))

    best = _best_gate(found, gates)
    say(f"4. The gate that was best on tune, {best.name!r}, threshold by threshold, and which questions change sides.")
    path = _Path.of(best, tune, evaluation, out)
    say.table(points_table(f"{best.name}: the threshold moved, on eval", path.points, _METRICS))
    say.table(transitions_table(f"{best.name}: what the next threshold changes ({_METRICS[0]})", path.steps))
    say.table(examples_table("Some of those questions", path.steps, most=1))

    say("5. Certify on eval: the fewest retrievals that lose at most 2 points, thresholds and order from tune.")
    certification = path.certified(say)

    say("6. 2WikiMultiHopQA has tune questions alone: gates and thresholds are cross-fitted there.")
    crossed = compare_gates(other, held_out_gates(other, embedder.embed))
    say.comparison(crossed, "2Wiki, cross-fitted")

    seconds = time.monotonic() - began
    say(_NOTICE)
    if not as_json:
        say(f"\nrecordings with the scores: {out}/gate_*.parquet (the whole took {seconds:.0f} s)")
    if markdown is not None:
        say.write(markdown)
    if as_json:
        print_json(
            {
                "headroom": {
                    name: {"n": n, "metrics": {metric: item.to_dict() for metric, item in room.items()}}
                    for name, (n, room) in rooms.items()
                },
                "hotpotqa": found.to_dict(),
                "hotpotqa_at_rates": {str(rate): item.to_dict() for rate, item in at_rates.items()},
                "sweep": path.to_dict(),
                "certification": certification,
                "2wiki": crossed.to_dict(),
                "notice": _NOTICE,
                "seconds": seconds,
            }
        )


def gate_column(name: str) -> str:
    """Return the column of a gate's score: its name as rules can spell it.

    >>> gate_column("features, not needed")
    'gate_features_not_needed'
    """
    return f"gate_{re.sub(r'[^0-9A-Za-z]+', '_', name)}"


def _told(name: str) -> dict[str, Any]:
    return {"dataset": {"name": name}, "config": {"model": {"model": "Llama-3.1-8B", "recorded_by": "AdaRAGUE"}}}


def _best_gate(found: GateComparison, gates: Sequence[ScoredGate]) -> ScoredGate:
    """Return the gate with the best quality on tune; among equals the one that retrieves least there."""
    first = found.metrics[0]

    def rank(row: ComparedGate) -> tuple[float, float]:
        assert row.tune is not None
        return row.tune.metrics[first], -row.tune.retrieval_rate

    name = max(found.rows, key=rank).name
    return next(gate for gate in gates if gate.name == name)


class _Teller:
    """Prints for people, unless JSON is asked for, and keeps the same as Markdown."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self._parts = [f"# Question-only gates on real answers\n\n`{_COMMAND}` (suffice {__version__}), seed 42.\n"]

    def __call__(self, text: str) -> None:
        """Tell a heading, as ``1. ...``, or a sentence."""
        if not self.quiet:
            say(text, bold=True)
        self._parts.append(f"## {text}\n" if text[:1].isdigit() else f"{text.strip()}\n")

    def table(self, table: Table) -> None:
        """Tell a table."""
        if not self.quiet:
            print_table(table)
        self._parts.append(render([table], "md"))

    def comparison(self, found: GateComparison, name: str) -> None:
        """Tell a comparison."""
        if not self.quiet:
            show_comparison(found, name)
            console.print()
        self._parts.append(comparison_page(found, name))

    def certification(self, found: Certification) -> None:
        """Tell a certification."""
        if not self.quiet:
            show_certification(found)
        self._parts += [render([found.table()], "md"), f"{found.headline}\n"]

    def write(self, path: Path) -> None:
        """Write everything told so far."""
        path.write_text("\n".join(part.strip("\n") + "\n" for part in self._parts), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Path:
    """One gate over its thresholds, with the recordings that hold its score."""

    tune: Recording
    judged: GateEvaluation
    column: str
    points: Sequence[GatePoint]
    steps: Sequence[Transitions]

    @classmethod
    def of(cls, gate: ScoredGate, tune: GateEvaluation, evaluation: GateEvaluation, out: Path) -> _Path:
        """Move the threshold over shares of the tune scores, and write the recordings."""
        column = gate_column(gate.name)
        judged = evaluation.with_scores({column: gate.evaluation})
        betas = even_betas(gate.tune)
        own = with_scores(tune.recording, {column: gate.tune})
        for name, recording in (("tune", own), ("eval", judged.recording)):
            write_recording(out / f"gate_hotpotqa_{name}.parquet", recording.table, recording.metadata)
        points = [judged.reference("never")]
        points += [judged.point(gate_rule(column, beta), beta, label=gate.name) for beta in betas]
        points += [judged.reference("always"), judged.reference("perfect")]
        return cls(own, judged, column, points, transitions(judged, column, betas))

    def certified(self, say: _Teller) -> dict[str, Any]:
        """Certify along the threshold; what could not be certified is told, too."""
        policy = policy_for(self.judged.recording, gate_rule(self.column), start_round=0)
        try:
            family = threshold_path(policy, self.column, path_values(policy, self.column, self.tune))
            found: Certification = certify(self.judged.recording, family, _CLAIM, tune=self.tune, cheapest="retrievals")
        except DataError as error:
            say(f"not certifiable: {error}")
            return {"certified": False, "headline": f"not certifiable: {error}"}
        told = {**found.to_dict(), "chosen": None}
        say.certification(found)
        if found.policy is not None:
            beta = find_threshold(found.policy.rule, self.column).value
            chosen = self.judged.point(found.policy.rule, beta, label="certified")
            told["chosen"] = chosen.to_dict()
            say(chosen.headline(_METRICS[0]))
        say(f"{self._blind()}\n")
        return told

    def _blind(self) -> str:
        """Return what a gate that knows nothing may skip within the claim, in words."""
        room = self.judged.always.values[_METRICS[0]].mean() - self.judged.never.values[_METRICS[0]].mean()
        if room <= 0:
            return "Retrieval does not raise the mean here: never retrieving loses nothing."
        share = min(1.0, _CLAIM.epsilon / room)
        return (
            f"A gate that knows nothing loses {100 * room:.1f} points by skipping everything, so skipping "
            f"{100 * share:.1f} % at random loses {100 * _CLAIM.epsilon:g} points: saving less than that shows no knowledge."
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
