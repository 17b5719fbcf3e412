"""`suffice answer`: one question, live, with its rounds, the reason and the cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from suffice.cli import options
from suffice.cli.show import console, decision_lines, print_json, round_row, rounds_table
from suffice.errors import ModelError
from suffice.loop import Outcome, RetrievalLoop
from suffice.rounds import COST_KINDS, Cost, Decision, Round
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
    dense: options.Dense = None,
    rerank: options.Rerank = None,
    judge_model: options.JudgeModel = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_api_key_env: options.JudgeKeyVariable = None,
    as_json: options.AsJson = False,
) -> None:
    """Answer one question from a corpus, stopping as soon as the policy says so."""
    if policy is None:
        decides = Policy(rule=parse_rule(rule), selector=parse_selector(selector), max_rounds=max_rounds)
    else:
        decides = Policy.load(policy)
    answerer = options.build_model(
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
        position=decides.answer_position,
    )
    enrichers = options.build_enrichers(
        rerank,
        judge_model,
        judge_base_url or base_url,
        key_variable=judge_api_key_env or api_key_env,
        timeout=timeout,
        cache=cache,
    )
    retriever = options.build_retriever(corpus, dense)
    loop = RetrievalLoop(model=answerer, retriever=retriever, policy=decides, enrichers=enrichers)
    outcome, decisions = _quiet(loop, question) if as_json else _shown(loop, question)
    if as_json:
        print_json(_as_dict(outcome, decisions))
    else:
        console.print(decision_lines(outcome.decision, outcome.costs), markup=False, soft_wrap=True)
    if outcome.error is not None:
        raise ModelError(f"the model failed after {len(outcome.rounds)} rounds: {outcome.error}")


def _quiet(loop: RetrievalLoop, question: str) -> tuple[Outcome, list[Decision]]:
    """Run the question; return the outcome and what was decided at each round."""
    *rounds, (_, outcome) = loop.stream(question)
    assert isinstance(outcome, Outcome)
    return outcome, [decision for _, decision in rounds if isinstance(decision, Decision)]


def _shown(loop: RetrievalLoop, question: str) -> tuple[Outcome, list[Decision]]:
    """Like `_quiet`, and print the rounds; on a terminal they appear as they come."""
    rows: list[list[str]] = []
    decisions: list[Decision] = []
    outcome: Outcome | None = None
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for observed, result in loop.stream(question):
            if isinstance(result, Outcome):
                outcome = result
            elif observed is not None:
                decisions.append(result)
                rows.append(round_row(observed, result))
                live.update(rounds_table(rows), refresh=console.is_terminal)
    console.print(rounds_table(rows))
    assert outcome is not None
    return outcome, decisions


def _as_dict(outcome: Outcome, decisions: Sequence[Decision]) -> dict[str, Any]:
    return {
        "question": outcome.question,
        **outcome.decision.to_dict(),
        "error": None if outcome.error is None else str(outcome.error),
        "costs": {component: _cost(cost) for component, cost in outcome.costs.items()},
        "rounds": [_round(*pair) for pair in zip(outcome.rounds, decisions, strict=True)],
    }


def _round(observed: Round, decision: Decision) -> dict[str, Any]:
    return {
        "round": observed.index,
        "answer": observed.answer,
        "text": observed.text,
        "passages": [{"id": passage.passage_id, "title": passage.title} for passage in observed.passages],
        "signals": decision.to_dict()["signals"],
        "costs": {component: _cost(cost) for component, cost in observed.costs.items()},
    }


def _cost(cost: Cost) -> dict[str, float | None]:
    spent = {kind: float(getattr(cost, kind)) for kind in COST_KINDS}
    return {kind: None if math.isnan(value) else value for kind, value in spent.items()}
