"""`suffice draft answer` and `suffice draft record`: a writer and a critic, live or recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from suffice.cli import options
from suffice.cli.live import show_live
from suffice.cli.panel import DEFAULT_MARKS, Judge, Marks, Weights, build_panel, require_contexts
from suffice.cli.recording import report_recorded
from suffice.cli.show import recording_progress
from suffice.embedding import DraftEmbedder
from suffice.judges import Panel
from suffice.loop import DraftingLoop, record
from suffice.replays import component_prices
from suffice.retrieval import BUNDLED, read_corpus
from suffice.rules import parse_rule, parse_selector
from suffice.session import Policy

__all__ = ["draft_command", "record_drafts_command"]

Writer = Annotated[str, typer.Option("--model", help="The writer's name at its endpoint.")]
Critic = Annotated[str | None, typer.Option("--critic-model", help="The critic's name; default: the writer.")]
CriticUrl = Annotated[
    str | None, typer.Option("--critic-base-url", help="The critic's endpoint; default: the writer's.")
]
CriticKeyVariable = Annotated[
    str | None,
    typer.Option("--critic-api-key-env", help="The environment variable of the critic's key; default: the writer's."),
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Most tokens per draft or critique.")]


def draft_command(
    question: Annotated[str, typer.Argument(help="The question.")],
    model: Writer,
    contexts: Annotated[
        Path | None,
        typer.Option("--contexts", help="What every draft may use: a folder of .txt/.md files or a .jsonl file."),
    ] = None,
    policy: Annotated[Path | None, typer.Option("--policy", help="A policy file.")] = None,
    rule: Annotated[str, typer.Option("--rule", help="A rule that needs no fitted state, without a policy.")] = (
        "first_of((critic_approved >= 1), (answer_stable >= 1))"
    ),
    selector: Annotated[str, typer.Option("--selector", help="Which seen round's draft to return.")] = "last",
    max_rounds: options.MaxRounds = 6,
    base_url: options.BaseUrl = None,
    api_key_env: options.KeyVariable = "OPENAI_API_KEY",
    critic_model: Critic = None,
    critic_base_url: CriticUrl = None,
    critic_api_key_env: CriticKeyVariable = None,
    judge_model: Judge = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_api_key_env: options.JudgeKeyVariable = None,
    marks: Marks = DEFAULT_MARKS,
    weights: Weights = "",
    api: options.Api = "chat",
    max_tokens: MaxTokens = 512,
    embedder: options.EmbedderName = "minilm",
    timeout: options.Timeout = 120.0,
    cache: options.CacheFile = None,
    extra_body: options.ExtraBody = "{}",
    as_json: options.AsJson = False,
) -> None:
    """A writer drafts and a critic reviews, round after round.

    Example: suffice draft answer "What is HTTP?" --model NAME --base-url URL
    """
    if policy is None:
        decides = Policy(rule=parse_rule(rule), selector=parse_selector(selector), max_rounds=max_rounds)
    else:
        decides = Policy.load(policy)
    judge = (judge_model, judge_base_url or base_url, judge_api_key_env or api_key_env)
    panels = build_panel(judge, marks, weights, timeout=timeout, cache=cache, extra_body=extra_body)
    passages = [] if contexts is None else list(read_corpus(contexts))
    if not passages:
        require_contexts(panels, "give --contexts")
    loop = _loop(
        decides,
        model,
        base_url,
        api_key_env,
        critic=(critic_model, critic_base_url, critic_api_key_env),
        api=api,
        max_tokens=max_tokens,
        embedder=embedder,
        panels=panels,
        timeout=timeout,
        cache=cache,
        extra_body=extra_body,
    )
    show_live(loop, question, passages, as_json=as_json)


def record_drafts_command(
    dataset: Annotated[
        str,
        typer.Argument(
            help=f"A bundled set ({', '.join(BUNDLED)}), a .jsonl(.gz) file, HotpotQA's .json, or published "
            "scenarios (.json); a question's passages are its contexts."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The recording, a parquet file.")],
    model: Writer,
    max_rounds: options.MaxRounds = 6,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first questions.")] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Only questions that the file says to be of this split.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Questions in flight.")] = 8,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="USD per million tokens by component or model (TOML or JSON).")
    ] = None,
    base_url: options.BaseUrl = None,
    api_key_env: options.KeyVariable = "OPENAI_API_KEY",
    critic_model: Critic = None,
    critic_base_url: CriticUrl = None,
    critic_api_key_env: CriticKeyVariable = None,
    judge_model: Judge = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_api_key_env: options.JudgeKeyVariable = None,
    marks: Marks = DEFAULT_MARKS,
    weights: Weights = "",
    api: options.Api = "chat",
    max_tokens: MaxTokens = 512,
    embedder: options.EmbedderName = "minilm",
    timeout: options.Timeout = 120.0,
    cache: options.CacheFile = None,
    extra_body: options.ExtraBody = "{}",
    allow_unread: options.AllowUnread = False,
    as_json: options.AsJson = False,
) -> None:
    """All rounds are recorded, so that any rule can be replayed. Run the same command again to resume.

    Example: suffice draft record 2wiki_tune -o d.parquet --model M --base-url URL
    """
    questions = options.load_to_record(dataset, limit, split)
    judge = (judge_model, judge_base_url or base_url, judge_api_key_env or api_key_env)
    panels = build_panel(judge, marks, weights, timeout=timeout, cache=cache, extra_body=extra_body)
    if not all(question.passages for question in questions):
        require_contexts(panels, "record questions that bring passages")
    loop = _loop(
        Policy(max_rounds=max_rounds),
        model,
        base_url,
        api_key_env,
        critic=(critic_model, critic_base_url, critic_api_key_env),
        api=api,
        max_tokens=max_tokens,
        embedder=embedder,
        panels=panels,
        timeout=timeout,
        cache=cache,
        extra_body=extra_body,
    )
    names = {"writer": model, "critic": critic_model or model, **{p.name: p.model.model.model for p in panels}}
    by_component = None if prices is None else component_prices(prices, names)
    with recording_progress(f"recording drafts of {dataset}", by_component, quiet=as_json) as tell:
        summary = record(questions, loop, out, concurrency=concurrency, allow_unread=allow_unread, on_progress=tell)
    report_recorded(summary, by_component, as_json=as_json, allow_unread=allow_unread)


def _loop(
    policy: Policy,
    model: str,
    base_url: str | None,
    key_variable: str,
    *,
    critic: tuple[str | None, str | None, str | None],
    api: str,
    max_tokens: int,
    embedder: str,
    panels: tuple[Panel, ...],
    timeout: float,
    cache: Path | None,
    extra_body: str,
) -> DraftingLoop:
    """Return the loop that the options describe; `critic` is its model, endpoint and key variable, None = the writer's."""
    settings: dict[str, Any] = {
        "timeout": timeout,
        "cache": cache,
        "api": api,
        "extra_body": options.json_object(extra_body),
    }
    writer = options.build_chat(model, base_url, key_variable=key_variable, **settings)
    name, url, variable = critic
    reviewer = None
    if name is not None or url is not None:
        reviewer = options.build_chat(
            name or model,
            url or base_url,
            key_variable=variable or key_variable,
            option="--critic-base-url",
            **settings,
        )
    return DraftingLoop(
        writer=writer, critic=reviewer, policy=policy, max_tokens=max_tokens, enrichers=(*_embedders(embedder), *panels)
    )


def _embedders(name: str) -> tuple[DraftEmbedder, ...]:
    embedder = options.build_embedder(name)
    return () if embedder is None else (DraftEmbedder(embedder),)
