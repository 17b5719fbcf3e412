"""`suffice record`: record every round of every question, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer import Option

from suffice.cli import datasets, models, options
from suffice.cli.batching import BatchOptions
from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import number, warn
from suffice.cli.gating import GateOptions, note_fitted, require_used
from suffice.cli.groups import RecordingPath
from suffice.cli.local import LocalRun
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.cli.querying import LoopOptions
from suffice.cli.show import money, recording_progress
from suffice.common.files import quoted
from suffice.common.tables import counted
from suffice.evaluation.replay import component_prices
from suffice.loops import LiveLoop, RecordSummary, record
from suffice.loops.retrieval import GOLD_FIELDS, Question, load_share
from suffice.loops.retrieval.datasets import iter_questions
from suffice.policy.session import Policy
from suffice.policy.signals import GATE, QUERY
from suffice.policy.signals.position import AnswerPosition


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """Options for the questions to record, the output file, and the number of concurrent questions."""

    panel: ClassVar[str] = "Recording"

    out: Annotated[
        RecordingPath, Option("--out", "-o", help="The recording: a parquet file; with --shard, a folder. Or its URL.")
    ]
    shard: datasets.ShardOption = None
    journal: Annotated[
        Path | None,
        Setting(
            "record",
            "journal",
            help="If -o is a URL: the folder of the journal on this machine; default: in the user's cache.",
        ),
    ] = None
    limit: options.Limit = None
    split: Annotated[str | None, Option("--split", help="Only questions that the file says to be of this split.")] = (
        None
    )
    concurrency: Annotated[
        int | None,
        Setting(
            "record",
            "concurrency",
            min=1,
            help="Questions in flight; default: 8, with --local as many as batch-size.",
        ),
    ] = None
    prices: options.Prices = None
    allow_unread: datasets.AllowUnread = False

    def questions(self, dataset: str, change: Callable[[Question], Question] | None = None) -> list[Question]:
        """Return the questions, or those of the shard, after reporting how many have no gold answer.

        Args:
            dataset: Name of the questions.
            change: A function that changes each question before it is recorded; None = no change.
        """
        selected: dict[str, Any] = {"limit": self.limit, "split": self.split}
        if self.shard is not None:
            questions: list[Question] = load_share(dataset, self.shard.takes, change=change, **selected)
        else:
            questions = [*map(change or (lambda item: item), iter_questions(dataset, **selected))]
        bare = sum(not question.answers for question in questions)
        if bare:
            known = len(questions) - bare
            which = f"only {known}" if known else "none"
            warn(
                f"note: {which} of these {len(questions)} questions has a gold answer (looked for: {', '.join(GOLD_FIELDS)}): "
                f"EM and F1 {'of the others ' if known else ''}will be unknown; the metric agreement needs none"
            )
        return questions

    def golds(self, dataset: str, questions: Sequence[Question]) -> list[str]:
        """Return the gold answers of all questions of the data set, even if `questions` are only those of a shard."""
        every = questions if self.shard is None else iter_questions(dataset, limit=self.limit, split=self.split)
        return [gold for question in every for gold in question.answers]

    def record(
        self,
        dataset: str,
        questions: list[Question],
        loop: LiveLoop,
        priced_models: Mapping[str, str],
        output: Output,
        *,
        at_once: int = 8,
        batches: Any = None,
        **more: Any,
    ) -> None:
        """Record the questions and print a summary; exit with 1 if some failed, or no reply contained an answer.

        Args:
            dataset: Name of the questions.
            questions: The questions.
            loop: The loop to record.
            priced_models: The model of each component, for prices.
            output: The options for printing.
            at_once: Number of concurrent questions if `concurrency` is not given.
            batches: The queue that takes requests instead of the endpoint, at batch prices; None = requests go to the
                endpoint.
            **more: Further arguments of `record`.
        """
        prices = None if self.prices is None else component_prices(self.prices, priced_models)
        if prices is not None and batches is not None:
            # A gate is asked live, never in batches.
            prices = {name: price if name == GATE else price.in_batches for name, price in prices.items()}
        title = f"recording {dataset}" + ("" if self.shard is None else f", shard {self.shard}")
        with recording_progress(title, prices, quiet=output.as_json) as progress:
            if batches is not None:
                batches.on_progress = progress
            summary = record(
                questions,
                loop,
                self.out,
                shard=self.shard,
                journal_folder=self.journal,
                concurrency=self.concurrency or at_once,
                allow_unread=self.allow_unread,
                batches=batches,
                on_progress=progress,
                **more,
            )
        for note in loop.notes:
            warn(f"note: {note}")
        spent = None if prices is None else money(summary.costs, prices)
        self._show(summary, spent, output, in_batches=batches is not None)

    def record_on(self, cluster: ClusterOptions, context: typer.Context, dataset: str, output: Output) -> bool:
        """Record the questions on a cluster, shard by shard, and print a summary; return False without a cluster."""
        run = cluster.run(context, self.out, f"recording {dataset}", shard=self.shard, quiet=output.as_json)
        if run is not None:
            outcomes, total = run
            self._show(_sum_of(outcomes, total, self.out), total.usd, output)
        return run is not None

    def _show(self, summary: RecordSummary, usd: float | None, output: Output, *, in_batches: bool = False) -> None:
        output.show(*_summary_shown(summary, usd, in_batches=in_batches))
        if summary.failed or (summary.unread == summary.replies > 0 and not self.allow_unread):
            raise typer.Exit(1)


def _sum_of(outcomes: Sequence[Any], total: Any, out: Path) -> RecordSummary:
    every = [outcome.data for outcome in outcomes]
    folder_lacks = [data["incomplete"] for data in every]
    return RecordSummary(
        path=out,
        questions=sum(data["questions"] for data in every),
        rounds=sum(data["rounds"] for data in every),
        failed={question: why for data in every for question, why in data["failed"].items()},
        replies=sum(data["replies"] for data in every),
        unread=sum(data["unread"] for data in every),
        remedy=next((data["remedy"] for data in every if data["unread"]), ""),
        cut=dict(sum((Counter(data["cut"] or {}) for data in every), Counter())),
        costs=total.progress.costs,
        seconds=total.seconds,
        folder=out,
        incomplete="" if None in folder_lacks else folder_lacks[0],
    )


def record_command(
    context: typer.Context,
    dataset: datasets.Dataset,
    recorder: RecordOptions,
    cluster: ClusterOptions,
    retrieval: datasets.Retrieval,
    looping: LoopOptions,
    answering: models.Answering,
    signals: models.Signals,
    gate: GateOptions,
    local: LocalRun,
    batching: BatchOptions,
    output: Output,
    max_rounds: options.MaxRounds = 5,
    round_zero: Annotated[bool, Option("--round-zero", help="Record the model alone as round 0, too.")] = False,
    parallel_rounds: Annotated[
        bool,
        Setting("record", "parallel-rounds", help="Send a question's rounds together; cached costs are then modelled."),
    ] = False,
    fit_overlap_on: Annotated[
        str | None,
        Setting("record", "fit-overlap-on", help="A data set of tune questions: its passages weigh `overlap`."),
    ] = None,
) -> None:
    """All rounds are recorded, so that any rule can be replayed. Run the same command again to resume.

    Example: suffice record hotpotqa_tune -o tune.parquet --limit 50
    """
    if recorder.record_on(cluster, context, dataset, output):
        return
    batches = batching.queue()
    questions = recorder.questions(dataset)
    require_used(local, answering, gate, retrieval, signals)
    answerer = answering.answerer(local, logprobs=answering.logprobs, layer=gate.layer)
    policy = Policy(
        start_round=0 if round_zero else 1,
        max_rounds=max_rounds,
        state=datasets.overlap_state(fit_overlap_on),
        # A prefilled prompt has another answer position.
        answer_position=getattr(answerer, "position", AnswerPosition()),
    )
    loop = looping.build(
        answerer,
        gate.build(answerer, answering, local),
        enrichers=(*signals.enrichers(answering, local.device), *signals.own(answerer)),
        retriever=retrieval.retriever(local.device, answering.cache),
        policy=policy,
    )
    if answering.logprobs and (batches is None or batches.file is None):
        answerer.verify(frozenset({"logprobs"}))
    model_name = answerer.fingerprint().get("model", answerer.name)
    priced_models = {"generator": model_name} | ({} if looping.method is None else {QUERY: model_name})
    priced_models |= {} if gate.reads_with is None else {GATE: gate.reads_with}
    priced_models |= {
        e.name: e.fingerprint().get("model", e.name) for e in loop.enrichers if e.name.startswith("judge:")
    }
    at_once = local.batch_size if answering.local else 8
    recorder.record(
        dataset,
        questions,
        loop,
        priced_models,
        output,
        at_once=at_once,
        batches=batches,
        parallel_rounds=parallel_rounds,
    )
    note_fitted(loop.fitted, questions)


def _summary_shown(summary: RecordSummary, usd: float | None, *, in_batches: bool) -> tuple[dict[str, Any], Screen]:
    """Return the summary of a recording as JSON and as text."""
    cost = summary.cost
    data = {
        "path": str(summary.path),
        "questions": summary.questions,
        "rounds": summary.rounds,
        "failed": dict(summary.failed),
        "replies": summary.replies,
        "unread": summary.unread,
        "remedy": summary.remedy if summary.unread else None,
        "cut": dict(summary.cut) or None,
        "calls": cost.calls,
        "tokens": cost.tokens,
        "usd": usd,
        "seconds": summary.seconds,
    }
    if summary.folder is not None:
        data |= {"folder": str(summary.folder), "incomplete": summary.incomplete or None}
    if in_batches:
        data["pending"] = summary.pending
    spent = f", ${number(usd, 4)}{' at the prices of batches' * in_batches}" if usd is not None else ""
    sentence = (
        f"{summary.path}: {counted(summary.questions, 'question')}, {counted(summary.rounds, 'round')}; this run: "
        f"{cost.calls:,.0f} calls, {number(cost.tokens, 0)} tokens{spent}, {number(summary.seconds, 1)} s"
    )
    notes = []
    if summary.unread:
        notes.append(
            f"{summary.unread} of {summary.replies} replies hold no answer that could be read. {summary.remedy}"
        )
    if summary.cut:
        notes.append(summary.cut_note)
    if summary.failed:
        question, why = next(iter(summary.failed.items()))
        notes.append(
            f"{counted(len(summary.failed), 'question')} failed; run the same command again to complete them. "
            f"The first, {question}: {why}"
        )
    if summary.incomplete:
        notes.append(summary.incomplete)
    if in_batches and not summary.pending:
        notes.append("the seconds of replies in batches are unknown, and rules on them are undefined")
    if summary.pending:
        questions = counted(summary.questions, "question")
        sentence = f"{summary.path}: {counted(summary.pending, 'question')} in batches, {questions} complete"
        return data, Screen(sentences=["; ".join([sentence, *summary.notes])], notes=notes)
    whole = summary.folder or summary.path
    return data, Screen(
        sentences=[sentence], notes=notes, then="" if summary.incomplete else f"suffice replay {quoted(whole)}"
    )
