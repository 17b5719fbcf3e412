"""`suffice record`: every round of every question, once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice.cli import gating, options
from suffice.cli.console import number, print_json, say
from suffice.cli.show import money, recording_progress
from suffice.loop import RecordSummary, RetrievalLoop, record
from suffice.replays import Price, component_prices
from suffice.retrieval import BUNDLED
from suffice.session import Policy
from suffice.signals import GATE
from suffice.signals.position import AnswerPosition
from suffice.tables import counted

__all__ = ["record_command", "report_recorded"]


def record_command(
    dataset: Annotated[
        str, typer.Argument(help=f"A bundled set ({', '.join(BUNDLED)}), a .jsonl(.gz) file, or HotpotQA's .json.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The recording, a parquet file.")],
    max_rounds: options.MaxRounds = 5,
    round_zero: Annotated[bool, typer.Option("--round-zero", help="Record the model alone as round 0, too.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first questions.")] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Only questions that the file says to be of this split.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Questions in flight.")] = 8,
    parallel_rounds: Annotated[
        bool,
        typer.Option("--parallel-rounds", help="Send a question's rounds together; cached costs are then modelled."),
    ] = False,
    fit_overlap_on: Annotated[
        str | None, typer.Option("--fit-overlap-on", help="A data set of tune questions: its passages weigh `overlap`.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="USD per million tokens by model (TOML or JSON).")
    ] = None,
    model: options.ModelName = "span-reader",
    base_url: options.BaseUrl = None,
    api_key_env: options.KeyVariable = "OPENAI_API_KEY",
    prompt: options.PromptName = "answer_first",
    api: options.Api = "chat",
    max_tokens: options.MaxTokens = 64,
    logprobs: options.Logprobs = True,
    timeout: options.Timeout = 120.0,
    cache: options.CacheFile = None,
    extra_body: options.ExtraBody = "{}",
    answer_position: options.Position = None,
    allow_unread: options.AllowUnread = False,
    corpus: options.Corpus = None,
    dense: options.Dense = None,
    reranker: options.Reranker = None,
    candidates: options.Candidates = 20,
    rerank: options.Rerank = None,
    judge_model: options.JudgeModel = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_api_key_env: options.JudgeKeyVariable = None,
    local: gating.Local = False,
    gate: gating.GateFolder = None,
    gate_model: gating.GateModel = None,
    gate_base_url: gating.GateBaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """All rounds are recorded, so that any rule can be replayed. Run the same command again to resume.

    Example: suffice record hotpotqa_tune -o tune.parquet --limit 50
    """
    questions = options.load_to_record(dataset, limit, split)
    probe = gating.load_probe(gate)
    answerer = gating.build_answerer(
        local,
        probe,
        model,
        base_url,
        key_variable=api_key_env,
        prompt=prompt,
        api=api,
        max_tokens=max_tokens,
        logprobs=logprobs,
        timeout=timeout,
        cache=cache,
        extra_body=extra_body,
        position=options.answer_position(answer_position),
    )
    policy = Policy(
        start_round=0 if round_zero else 1,
        max_rounds=max_rounds,
        state=options.overlap_state(fit_overlap_on),
        answer_position=getattr(answerer, "position", AnswerPosition()),  # a prefilled prompt has another
    )
    enrichers = options.build_enrichers(
        rerank,
        judge_model,
        judge_base_url or base_url,
        key_variable=judge_api_key_env or api_key_env,
        timeout=timeout,
        cache=cache,
    )
    retriever = options.build_retriever(corpus, dense, reranker, candidates)
    decider = gating.build_gate(probe, answerer, gate_model, gate_base_url, prompt=prompt, key_variable=api_key_env)
    loop = RetrievalLoop(model=answerer, retriever=retriever, policy=policy, enrichers=enrichers, gate=decider)
    if logprobs:
        answerer.verify(frozenset({"logprobs"}))
    by_component = None
    if prices is not None:
        names = {"generator": answerer.fingerprint().get("model", answerer.name)}
        names |= {} if probe is None else {GATE: probe.card.model}
        names |= {e.name: e.fingerprint().get("model", e.name) for e in enrichers if e.name.startswith("judge:")}
        by_component = component_prices(prices, names)
    with recording_progress(f"recording {dataset}", by_component, quiet=as_json) as tell:
        summary = record(
            questions,
            loop,
            out,
            concurrency=concurrency,
            parallel_rounds=parallel_rounds,
            allow_unread=allow_unread,
            on_progress=tell,
        )
    report_recorded(summary, by_component, as_json=as_json, allow_unread=allow_unread)
    gating.tell_fitted(loop.fitted, questions)


def report_recorded(
    summary: RecordSummary, prices: Mapping[str, Price] | None, *, as_json: bool, allow_unread: bool
) -> None:
    """Print what a recording run did; exit with 1 if questions failed, or no reply held an answer."""
    cost = summary.cost
    usd = None if prices is None else money(summary.costs, prices)
    if as_json:
        data: dict[str, Any] = {
            "path": str(summary.path),
            "questions": summary.questions,
            "rounds": summary.rounds,
            "failed": dict(summary.failed),
            "replies": summary.replies,
            "unread": summary.unread,
            "calls": cost.calls,
            "tokens": None if cost.tokens != cost.tokens else cost.tokens,
            "usd": usd,
            "seconds": summary.seconds,
        }
        print_json(data)
    else:
        _print_recorded(summary, usd)
    if summary.failed or (summary.unread == summary.replies > 0 and not allow_unread):
        raise typer.Exit(1)


def _print_recorded(summary: RecordSummary, usd: float | None) -> None:
    cost = summary.cost
    spent = f", ${number(usd, 4)}" if usd is not None else ""
    say(
        f"{summary.path}: {counted(summary.questions, 'question')}, {counted(summary.rounds, 'round')}; this run: "
        f"{cost.calls:,.0f} calls, {number(cost.tokens, 0)} tokens{spent}, {number(summary.seconds, 1)} s"
    )
    if summary.unread:
        say(f"{summary.unread} of {summary.replies} replies hold no answer that could be read. {summary.remedy}")
    if summary.failed:
        question, why = next(iter(summary.failed.items()))
        say(
            f"{counted(len(summary.failed), 'question')} failed; run the same command again to complete them. "
            f"The first, {question}: {why}"
        )
