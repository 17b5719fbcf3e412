"""`suffice answer`: one question, live, with its rounds, the reason and the cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli import gating, options
from suffice.cli.live import show_live
from suffice.errors import DataError
from suffice.loop import RetrievalLoop
from suffice.rules import parse_rule, parse_selector
from suffice.session import Policy
from suffice.signals import LOGPROB_NEEDS

__all__ = ["answer"]


def answer(
    question: Annotated[str, typer.Argument(help="The question.")],
    corpus: Annotated[
        Path, typer.Option("--corpus", help="A folder of .txt/.md files or a .jsonl file; the index is kept beside it.")
    ],
    policy: Annotated[
        Path | None, typer.Option("--policy", help="A policy file, as `suffice calibrate` writes it.")
    ] = None,
    rule: Annotated[str, typer.Option("--rule", help="A rule that needs no fitted state, without a policy.")] = (
        "answer_stable_guarded"
    ),
    selector: Annotated[str, typer.Option("--selector", help="Which seen round's answer to return.")] = "last",
    max_rounds: options.MaxRounds = 5,
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
    """The rounds, the reason for stopping and the cost are shown.

    Example: suffice answer "Where is the tower?" --corpus documents
    """
    if policy is None:
        decides = Policy(
            rule=parse_rule(rule),
            selector=parse_selector(selector),
            start_round=1 if gate is None else 0,
            max_rounds=max_rounds,
        )
    elif answer_position is not None:
        raise DataError("the policy says where a reply holds its answer: leave out --answer-position")
    else:
        decides = Policy.load(policy)
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
        logprobs=logprobs and bool(LOGPROB_NEEDS & decides.needs),
        timeout=timeout,
        cache=cache,
        extra_body=extra_body,
        position=options.answer_position(answer_position) if policy is None else decides.answer_position,
    )
    if policy is None:  # a prefilled prompt has another position than the policy's default
        decides = replace(decides, answer_position=getattr(answerer, "position", decides.answer_position))
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
    loop = RetrievalLoop(model=answerer, retriever=retriever, policy=decides, enrichers=enrichers, gate=decider)
    show_live(loop, question, as_json=as_json)
