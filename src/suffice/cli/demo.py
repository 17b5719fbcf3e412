"""`suffice demo`: the main job, offline: record, calibrate, replay, deploy, live equals replayed, certify, report.

Bare, it runs that chain; the other demonstrations are its subcommands, one module each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import track

from suffice.certificates import Claim
from suffice.cli import options
from suffice.cli.bundled import record_bundled
from suffice.cli.certify import certify_path, show_certification
from suffice.cli.console import console, errors, number, print_json, say, table
from suffice.cli.offline import show_calibration, show_replay
from suffice.cli.report import evidence
from suffice.errors import DataError, SufficeError
from suffice.files import write_file
from suffice.llm import SpanReaderModel
from suffice.loop import Outcome, RetrievalLoop
from suffice.replays import calibrate, replay
from suffice.reports import Settings, make_report, render_html
from suffice.retrieval import PoolBM25, Question, load_questions
from suffice.session import Policy, stops
from suffice.store import read_recording
from suffice.tables import figure

__all__ = ["demo"]

_RULES = ("tasr", "tasr_guarded", "answer_stable", "answer_stable_guarded", "margin")
_SHOWN = 6
_CLAIM = Claim(epsilon=0.02, metric="f1")


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where recordings and policy go.")] = Path("suffice-demo"),
    dataset: Annotated[str, typer.Option("--dataset", help="Bundled questions: hotpotqa or 2wiki.")] = "hotpotqa",
    limit: Annotated[int | None, typer.Option("--limit", min=20, help="Fewer questions per split.")] = None,
    details: options.Details = False,
    as_json: options.AsJson = False,
) -> None:
    """Record, calibrate, replay, run live, certify and report on bundled questions with the embedded reader.

    Example: suffice demo --dataset 2wiki
    """
    if context.invoked_subcommand is not None:
        return
    if dataset not in ("hotpotqa", "2wiki"):
        raise typer.BadParameter(f"{dataset!r}; allowed: hotpotqa, 2wiki", param_hint="--dataset")
    began = time.monotonic()
    tune, evaluation = (load_questions(f"{dataset}_{split}", limit=limit) for split in ("tune", "eval"))
    recordings = {"tune": out / f"{dataset}_tune.parquet", "eval": out / f"{dataset}_eval.parquet"}
    _say(as_json, f"1. Record {len(tune)} tune and {len(evaluation)} eval questions, 5 rounds each.")
    for split, path in recordings.items():
        made = record_bundled(dataset, split, out, limit=limit, quiet=as_json)
        _say(as_json, f"   {path}: {made.rounds} rounds, {made.cost.calls:,.0f} new calls, {made.seconds:.1f} s")

    _say(as_json, "\n2. Fit the calibrators of TASR on the tune questions and lock the policy.")
    locked, summary = calibrate(read_recording(recordings["tune"]), rule="tasr")
    policy_path = out / f"{dataset}_tasr.policy.json"
    locked.save(policy_path)
    if not as_json:
        show_calibration(summary)

    _say(as_json, "\n3. Replay it on the eval questions beside every baseline, without another call.")
    policies = _policies(recordings, locked)
    result = replay(read_recording(recordings["eval"]), policies)
    if not as_json:
        show_replay(result, details=details)

    _say(as_json, "\n4. Run the locked policy live on the eval questions: fresh model, no cache, no recording.")
    outcomes = _live(evaluation, Policy.load(policy_path), quiet=as_json)
    differences = _differences(recordings["eval"], Policy.load(policy_path), evaluation, outcomes)
    if not as_json:
        _show_live(outcomes, evaluation, len(outcomes) - len(differences))

    _say(
        as_json, f"\n5. Certify on the eval questions: the cheapest threshold that loses at most {_CLAIM.epsilon:g} F1."
    )
    certification, certified = _certify(recordings, locked, out / f"{dataset}_tasr.certified.json", quiet=as_json)

    _say(as_json, "\n6. Write all of it into one page: trade-offs, a threshold to move, every question.")
    page = _write_report(recordings, [*policies, *certified], out / f"{dataset}_report.html", out)
    _say(as_json, f"   {page}: open it in a browser; it needs no network")

    _finish(out, time.monotonic() - began, quiet=as_json)
    if as_json:
        live = {"questions": len(outcomes), "mean_calls": _mean_calls(outcomes), "differences_from_replay": differences}
        print_json(
            {
                "calibration": summary.to_dict(),
                "replay": result.to_dict(),
                "live": live,
                "certification": certification,
                "report": str(page),
                "seconds": time.monotonic() - began,
            }
        )
    if differences:
        raise SufficeError(f"{len(differences)} live questions differ from the replay; the first: {differences[0]}")


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        say(text, bold=True)


def _policies(recordings: dict[str, Path], locked: Policy) -> list[Policy]:
    tune = read_recording(recordings["tune"])
    return [locked, *(calibrate(tune, rule=name)[0] for name in _RULES if name != "tasr")]


def _live(questions: Sequence[Question], policy: Policy, *, quiet: bool) -> list[Outcome]:
    loop = RetrievalLoop(model=SpanReaderModel(), retriever=PoolBM25(), policy=policy)
    disabled = quiet or not errors.is_terminal
    listed = track(questions, "answering live", console=errors, transient=True, disable=disabled)
    return [loop.run(question.question, question.passages) for question in listed]


def _differences(path: Path, policy: Policy, questions: Sequence[Question], outcomes: Sequence[Outcome]) -> list[str]:
    """Return the questions whose live stop round or answer is not the replayed one."""
    recording = read_recording(path)
    replayed = stops(policy, recording.rounds(policy.raw_columns))
    place = {question_id: position for position, question_id in enumerate(recording.question_ids)}
    found = []
    for question, outcome in zip(questions, outcomes, strict=True):
        q = place[question.question_id]
        column = int(np.searchsorted(recording.index, replayed.answer_rounds[q]))
        expected = (int(replayed.rounds[q]), recording.answers[q, column])
        if (outcome.decision.stop_round, outcome.answer) != expected:
            live = (outcome.decision.stop_round, outcome.answer)
            found.append(f"{question.question_id}: live {live!r}, replayed {expected!r}")
    return found


def _mean_calls(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean([outcome.costs["generator"].calls for outcome in outcomes]))


def _show_live(outcomes: Sequence[Outcome], questions: Sequence[Question], equal: int) -> None:
    rows = [
        [
            question.question[:70],
            outcome.answer or "(none)",
            question.answers[0],
            f"{outcome.decision.reason}, round {outcome.decision.stop_round}",
            number(outcome.cost.tokens, 0),
        ]
        for question, outcome in list(zip(questions, outcomes, strict=True))[:_SHOWN]
    ]
    console.print(table("The first live answers", ["question", "answer", "gold", "stopped", "tokens"], rows, left=4))
    say(
        f"\nlive = replayed for {equal} of {len(outcomes)} questions (stop round and answer); "
        f"{figure(_mean_calls(outcomes), '.2f')} calls on average instead of 5."
    )


def _certify(
    recordings: dict[str, Path], locked: Policy, path: Path, *, quiet: bool
) -> tuple[dict[str, Any], list[Policy]]:
    """Certify along the threshold of `p_correct`; thresholds and test order come from the tune questions."""
    tune, evaluation = (read_recording(recordings[split]) for split in ("tune", "eval"))
    try:
        found = certify_path(evaluation, tune, locked, "p_correct", _CLAIM)
    except DataError as error:  # with few questions no threshold may save a call
        _say(quiet, f"not certifiable: {error}")
        return {"certified": False, "headline": f"not certifiable: {error}"}, []
    if not quiet:
        show_certification(found)
    if found.policy is not None:
        found.policy.save(path)
        _say(quiet, f"certified policy: {path} (read it with  suffice data show {path})")
    return found.to_dict(), [] if found.policy is None else [found.policy]


def _write_report(recordings: dict[str, Path], policies: Sequence[Policy], path: Path, out: Path) -> Path:
    tune, evaluation = (read_recording(recordings[split]) for split in ("tune", "eval"))
    settings = Settings(command=f"suffice demo --out {out.name}")
    report = make_report({recordings["eval"].stem: evaluation}, policies, tune=tune, settings=settings)
    write_file(path, render_html(report, passages=evidence(recordings["eval"].stem)))
    return path


def _finish(out: Path, seconds: float, *, quiet: bool) -> None:
    if quiet:
        return
    say(
        f"\npolicy, recordings, report: {out}/ (the whole demo took {seconds:.0f} s)\n"
        "The same on your endpoint:  suffice record DATASET -o run.parquet --base-url URL --model NAME"
    )
