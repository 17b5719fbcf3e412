"""`suffice demo`, which runs the main workflow offline: record, calibrate, replay, deploy, run live, certify, report.

The other demonstrations are subcommands of `suffice demo`, with one module each.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import track

from suffice.cli.certify import certification_screen, certify_path
from suffice.cli.console import errors, print_json, say
from suffice.cli.offline import replay_screen
from suffice.cli.output import Output, Screen
from suffice.common.files import quoted, write_file
from suffice.common.tables import Column, Table, figure
from suffice.errors import DataError, SufficeError
from suffice.evaluation.replay import calibrate, replay
from suffice.loops import Outcome, RetrievalLoop
from suffice.loops.retrieval import PoolBM25, Question, load_questions
from suffice.policy.session import Policy, stops
from suffice.presentation import Settings, make_report, render_html
from suffice.presentation.trajectories import evidence
from suffice.recordings import Recording, read_recording
from suffice.verdicts.certificates import Claim
from suffice.verdicts.decisions import Advice, Labels, decide
from suffice_reader.demo.bundled import record_bundled
from suffice_reader.model import SpanReaderModel

_DEMO_RULES = ("tasr", "tasr_guarded", "answer_stable", "answer_stable_guarded", "margin")
_LIVE_ROWS = 6
_LINES_OF_ADVICE = 13
_DEMO_CLAIM = Claim(epsilon=0.02, metric="f1")


def demo(
    context: typer.Context,
    output: Output,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of recordings and policy.")] = Path("suffice-demo"),
    dataset: Annotated[str, typer.Option("--dataset", help="Bundled questions: hotpotqa or 2wiki.")] = "hotpotqa",
    limit: Annotated[int | None, typer.Option("--limit", min=20, help="Fewer questions per split.")] = None,
) -> None:
    """Record, calibrate, replay, run live, certify and report on bundled questions with the embedded reader.

    Example: suffice demo --dataset 2wiki
    """
    if context.invoked_subcommand is not None:
        return
    if dataset not in ("hotpotqa", "2wiki"):
        raise typer.BadParameter(f"{dataset!r}; allowed: hotpotqa, 2wiki", param_hint="--dataset")
    began = time.monotonic()
    steps = _Steps(output)
    tune, evaluation = (load_questions(f"{dataset}_{split}", limit=limit) for split in ("tune", "eval"))
    paths = {split: out / f"{dataset}_{split}.parquet" for split in ("tune", "eval")}
    steps.begin(f"1. Record {len(tune)} tune and {len(evaluation)} eval questions, 5 rounds each.")
    for split, path in paths.items():
        summary = record_bundled(dataset, split, out, limit=limit, quiet=output.as_json)
        made = f"{summary.rounds} rounds, {summary.cost.calls:,.0f} new calls, {summary.seconds:.1f} s"
        steps.show(Screen(sentences=[f"{path}: {made}"]))
    recordings = {split: read_recording(path) for split, path in paths.items()}

    steps.begin("2. Fit the calibrators of TASR on the tune questions and lock the policy.")
    locked, calibration = calibrate(recordings["tune"], rule="tasr")
    policy_path = out / f"{dataset}_tasr.policy.json"
    locked.save(policy_path)
    steps.show(Screen(tables=calibration.tables(), files={"policy": policy_path}))

    steps.begin("3. Replay it on the eval questions beside every baseline, without another call.")
    policies = [locked, *(calibrate(recordings["tune"], rule=name)[0] for name in _DEMO_RULES if name != "tasr")]
    result = replay(recordings["eval"], policies)
    steps.show(replay_screen(result), lines=9)

    steps.begin("4. Run the locked policy live on the eval questions: fresh model, no cache, no recording.")
    outcomes = _run_live(evaluation, Policy.load(policy_path), quiet=output.as_json)
    differences = _live_differences(recordings["eval"], Policy.load(policy_path), evaluation, outcomes)
    steps.show(_live_screen(outcomes, evaluation, len(outcomes) - len(differences)))

    steps.begin(
        f"5. Certify on the eval questions: the cheapest threshold that loses at most {_DEMO_CLAIM.epsilon:g} F1."
    )
    certified, data, screen = _certify(recordings, locked, out / f"{dataset}_tasr.certified.json")
    steps.show(screen)

    steps.begin("6. Write all of it into one page: trade-offs, a threshold to move, every question.")
    page = out / f"{dataset}_report.html"
    advice = _write_report(recordings["eval"], recordings["tune"], [*policies, *certified], page)
    steps.show(Screen(sentences=[f"{page}: open it in a browser; it needs no network"]))

    steps.begin("7. Decide, as for logs of your own: should a loop that always takes 5 rounds change?")
    asked = _without_golds(recordings["eval"], recordings["tune"])
    screen = Screen(sentences=[f"{advice.sentence} {_labels_text(asked, len(evaluation))}"], tables=advice.tables())
    steps.show(screen, lines=_LINES_OF_ADVICE)
    seconds = time.monotonic() - began
    steps.show(
        Screen(
            sentences=[f"policy, recordings, report: {out}/ (the whole demo took {seconds:.0f} s)"],
            then="suffice record DATASET -o run.parquet --base-url URL --model NAME",
        )
    )
    live = {"questions": len(outcomes), "mean_calls": _mean_calls(outcomes), "differences_from_replay": differences}
    if output.as_json:
        print_json(
            {
                "calibration": calibration.to_dict(),
                "replay": result.to_dict(),
                "live": live,
                "certification": data,
                "report": str(page),
                "decision": advice.to_dict(),
                "labels_without_golds": len(asked.to_label),
                "seconds": seconds,
            }
        )
    if differences:
        raise SufficeError(f"{len(differences)} live questions differ from the replay; the first: {differences[0]}")


@dataclass(frozen=True)
class _Steps:
    """Prints the demo's steps as text, short enough to fit together on one screen."""

    output: Output

    def begin(self, heading: str) -> None:
        """Print the heading of a step."""
        if not self.output.as_json:
            say(heading, bold=True)

    def show(self, screen: Screen, *, lines: int = 0) -> None:
        """Print at most `lines` lines of a step's result; if `lines` is 0, print only the first sentence."""
        details = self.output.details
        if not lines and not details:
            screen = replace(screen, sentences=screen.sentences[:1], tables=(), notes=())
        if not self.output.as_json:
            screen.print(details=details, lines=lines)


def _run_live(questions: Sequence[Question], policy: Policy, *, quiet: bool) -> list[Outcome]:
    loop = RetrievalLoop(model=SpanReaderModel(), retriever=PoolBM25(), policy=policy)
    disabled = quiet or not errors.is_terminal
    progress = track(questions, "answering live", console=errors, transient=True, disable=disabled)
    return [loop.run(question.question, question.passages) for question in progress]


def _live_differences(
    recording: Recording, policy: Policy, questions: Sequence[Question], outcomes: Sequence[Outcome]
) -> list[str]:
    """Describe each question whose live stop round or answer differs from the replay."""
    replayed = stops(policy, recording.rounds(policy.raw_columns))
    place = {question_id: position for position, question_id in enumerate(recording.question_ids)}
    differences = []
    for question, outcome in zip(questions, outcomes, strict=True):
        q = place[question.question_id]
        column = int(np.searchsorted(recording.index, replayed.answer_rounds[q]))
        expected = (int(replayed.rounds[q]), recording.answers[q, column])
        if (outcome.decision.stop_round, outcome.answer) != expected:
            live = (outcome.decision.stop_round, outcome.answer)
            differences.append(f"{question.question_id}: live {live!r}, replayed {expected!r}")
    return differences


def _mean_calls(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean([outcome.costs["generator"].calls for outcome in outcomes]))


def _live_screen(outcomes: Sequence[Outcome], questions: Sequence[Question], equal: int) -> Screen:
    sentence = (
        f"live = replayed for {equal} of {len(outcomes)} questions (stop round and answer); "
        f"{figure(_mean_calls(outcomes), '.2f')} calls on average instead of 5."
    )
    rows = tuple(
        (
            question.question[:70],
            outcome.answer or "(none)",
            question.answers[0],
            f"{outcome.decision.reason}, round {outcome.decision.stop_round}",
            outcome.cost.tokens,
        )
        for question, outcome in list(zip(questions, outcomes, strict=True))[:_LIVE_ROWS]
    )
    columns = (*map(Column, ("question", "answer", "gold", "stopped")), Column("tokens", ",.0f"))
    return Screen(sentences=[sentence], tables=[Table(title="The first live answers", columns=columns, rows=rows)])


def _certify(
    recordings: Mapping[str, Recording], locked: Policy, path: Path
) -> tuple[list[Policy], dict[str, Any], Screen]:
    """Certify thresholds of `p_correct` one after the other; the tune questions determine thresholds and order."""
    try:
        result = certify_path(recordings["eval"], recordings["tune"], locked, "p_correct", _DEMO_CLAIM)
    except DataError as error:  # with few questions no threshold may save a call
        headline = f"not certifiable: {error}"
        return [], {"certified": False, "headline": headline}, Screen(sentences=[headline])
    screen = certification_screen(result)
    if result.policy is None:
        return [], result.to_dict(), screen
    result.policy.save(path)
    files = {"certified policy": path}
    return [result.policy], result.to_dict(), replace(screen, files=files, then=f"suffice data show {quoted(path)}")


def _without_golds(evaluation: Recording, tune: Recording) -> Advice:
    """Return the advice that these recordings would give if they had neither gold answers nor labels."""
    bare = [Recording(one.table.drop(["golds", *one.names("metric")]), one.metadata) for one in (evaluation, tune)]
    return decide(bare[0], tune=bare[1], labels=Labels())


def _labels_text(asked: Advice, n: int) -> str:
    """Return a sentence on the number of labels that could replace the gold answers."""
    if asked.asks_for is None:
        return f"Without gold answers no label would be asked for: the answers of {n} questions decide by themselves."
    policy = asked.trial.candidates[asked.asks_for].label
    return (
        f"Without gold answers, `suffice decide --ask` would ask for labels of {len(asked.to_label)} of {n} questions to judge "
        f"{policy}: elsewhere its answers equal those of the full run."
    )


def _write_report(evaluation: Recording, tune: Recording, policies: Sequence[Policy], path: Path) -> Advice:
    """Write the report; return the advice at its top."""
    settings = Settings(command=f"suffice demo --out {path.parent.name}")
    name = path.name.replace("report.html", "eval")
    report = make_report({name: evaluation}, policies, tune=tune, settings=settings)
    write_file(path, render_html(report, passages=evidence(name)))
    return report.cells[0].advice or decide(evaluation, tune=tune)  # the advice, or the reason why there is none
