"""`suffice record`: every round of every question, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer import Option

from suffice.cli import models, options
from suffice.cli.console import number, warn
from suffice.cli.gating import GateOptions, note_fitted, require_used
from suffice.cli.local import LocalRun
from suffice.cli.output import Output, Screen
from suffice.cli.querying import LoopOptions
from suffice.cli.show import money, recording_progress
from suffice.files import quoted
from suffice.loop import LiveLoop, RecordSummary, record
from suffice.replays import component_prices
from suffice.retrieval import GOLD_FIELDS, Question, load_questions
from suffice.session import Policy
from suffice.signals import GATE, QUERY
from suffice.signals.position import AnswerPosition
from suffice.tables import counted

__all__ = ["RecordOptions", "record_command"]


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """Which questions are recorded, where to, and how many at once."""

    panel: ClassVar[str] = "Recording"

    out: Annotated[Path, Option("--out", "-o", help="The recording, a parquet file.")]
    limit: options.Limit = None
    split: Annotated[str | None, Option("--split", help="Only questions that the file says to be of this split.")] = (
        None
    )
    concurrency: Annotated[
        int | None,
        Option("--concurrency", min=1, help="Questions in flight; default: 8, with --local as many as --batch-size."),
    ] = None
    prices: options.Prices = None
    allow_unread: options.AllowUnread = False

    def questions(self, dataset: str) -> list[Question]:
        """Return the questions; before anything is paid for, report how many have no gold answer."""
        questions = load_questions(dataset, limit=self.limit, split=self.split)
        bare = sum(not question.answers for question in questions)
        if bare:
            known = len(questions) - bare
            which = f"only {known}" if known else "none"
            warn(
                f"note: {which} of these {len(questions)} questions has a gold answer (looked for: {', '.join(GOLD_FIELDS)}): "
                f"EM and F1 {'of the others ' if known else ''}will be unknown; the metric agreement needs none"
            )
        return questions

    def record(
        self,
        dataset: str,
        questions: list[Question],
        loop: LiveLoop,
        priced_models: Mapping[str, str],
        output: Output,
        *,
        at_once: int = 8,
        **more: Any,
    ) -> None:
        """Record the questions and print what was done; exit with 1 if some failed, or no reply held an answer.

        Args:
            dataset: What the questions are called.
            questions: The questions.
            loop: The models.
            priced_models: The model of each component, for prices.
            output: How to print.
            at_once: Questions in flight if `--concurrency` does not say it.
            **more: Others of `record`.
        """
        prices = None if self.prices is None else component_prices(self.prices, priced_models)
        with recording_progress(f"recording {dataset}", prices, quiet=output.as_json) as progress:
            summary = record(
                questions,
                loop,
                self.out,
                concurrency=self.concurrency or at_once,
                allow_unread=self.allow_unread,
                on_progress=progress,
                **more,
            )
        output.show(*_summary_shown(summary, None if prices is None else money(summary.costs, prices)))
        if summary.failed or (summary.unread == summary.replies > 0 and not self.allow_unread):
            raise typer.Exit(1)


def record_command(
    dataset: options.Dataset,
    recorder: RecordOptions,
    retrieval: options.Retrieval,
    looping: LoopOptions,
    answering: models.Answering,
    signals: models.Signals,
    gate: GateOptions,
    local: LocalRun,
    output: Output,
    max_rounds: options.MaxRounds = 5,
    round_zero: Annotated[bool, Option("--round-zero", help="Record the model alone as round 0, too.")] = False,
    parallel_rounds: Annotated[
        bool, Option("--parallel-rounds", help="Send a question's rounds together; cached costs are then modelled.")
    ] = False,
    fit_overlap_on: Annotated[
        str | None, Option("--fit-overlap-on", help="A data set of tune questions: its passages weigh `overlap`.")
    ] = None,
) -> None:
    """All rounds are recorded, so that any rule can be replayed. Run the same command again to resume.

    Example: suffice record hotpotqa_tune -o tune.parquet --limit 50
    """
    questions = recorder.questions(dataset)
    require_used(local, answering, gate, retrieval, signals)
    answerer = answering.answerer(local, logprobs=answering.logprobs, layer=gate.layer)
    policy = Policy(
        start_round=0 if round_zero else 1,
        max_rounds=max_rounds,
        state=options.overlap_state(fit_overlap_on),
        answer_position=getattr(answerer, "position", AnswerPosition()),  # a prefilled prompt has another
    )
    loop = looping.build(
        answerer,
        gate.build(answerer, answering, local),
        enrichers=(*signals.enrichers(answering, local.device), *signals.own(answerer)),
        retriever=retrieval.retriever(local.device),
        policy=policy,
    )
    if answering.logprobs:
        answerer.verify(frozenset({"logprobs"}))
    model_name = answerer.fingerprint().get("model", answerer.name)
    priced_models = {"generator": model_name} | ({} if looping.method is None else {QUERY: model_name})
    priced_models |= {} if gate.reads_with is None else {GATE: gate.reads_with}
    priced_models |= {
        e.name: e.fingerprint().get("model", e.name) for e in loop.enrichers if e.name.startswith("judge:")
    }
    at_once = local.batch_size if answering.local else 8
    recorder.record(dataset, questions, loop, priced_models, output, at_once=at_once, parallel_rounds=parallel_rounds)
    note_fitted(loop.fitted, questions)


def _summary_shown(summary: RecordSummary, usd: float | None) -> tuple[dict[str, Any], Screen]:
    """Return what was recorded as JSON and for people."""
    cost = summary.cost
    data = {
        "path": str(summary.path),
        "questions": summary.questions,
        "rounds": summary.rounds,
        "failed": dict(summary.failed),
        "replies": summary.replies,
        "unread": summary.unread,
        "calls": cost.calls,
        "tokens": cost.tokens,
        "usd": usd,
        "seconds": summary.seconds,
    }
    spent = f", ${number(usd, 4)}" if usd is not None else ""
    sentence = (
        f"{summary.path}: {counted(summary.questions, 'question')}, {counted(summary.rounds, 'round')}; this run: "
        f"{cost.calls:,.0f} calls, {number(cost.tokens, 0)} tokens{spent}, {number(summary.seconds, 1)} s"
    )
    notes = []
    if summary.unread:
        notes.append(
            f"{summary.unread} of {summary.replies} replies hold no answer that could be read. {summary.remedy}"
        )
    if summary.failed:
        question, why = next(iter(summary.failed.items()))
        notes.append(
            f"{counted(len(summary.failed), 'question')} failed; run the same command again to complete them. "
            f"The first, {question}: {why}"
        )
    return data, Screen(sentences=[sentence], notes=notes, then=f"suffice replay {quoted(summary.path)}")
