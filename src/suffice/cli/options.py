"""Options that several commands share, and what they build."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from suffice.cli.console import warn
from suffice.embedding import Embedder, MiniLM, SentenceTransformersEmbedder
from suffice.errors import DataError, NotFoundError
from suffice.llm import PROMPTS, Answerer, ChatModel, EntailmentJudge, Prompt, SpanReaderModel
from suffice.retrieval import (
    GOLD_FIELDS,
    CrossEncoderScorer,
    PoolBM25,
    Question,
    Reranked,
    Retriever,
    load_questions,
    open_corpus,
)
from suffice.seen import Seen
from suffice.session import Policy
from suffice.signals import Enricher, FittedState, Idf
from suffice.signals.position import AnswerPosition, PositionKind

DEFAULT_KEY = "OPENAI_API_KEY"

ModelName = Annotated[
    str, typer.Option("--model", help="The embedded 'span-reader', or a model's name at the endpoint.")
]
BaseUrl = Annotated[
    str | None, typer.Option("--base-url", help="An OpenAI-compatible endpoint, usually ending with /v1.")
]
KeyVariable = Annotated[
    str, typer.Option("--api-key-env", help="The environment variable that holds the API key; never the key itself.")
]
PromptName = Annotated[str, typer.Option("--prompt", help=f"One of: {', '.join(PROMPTS)}.")]
Api = Annotated[str, typer.Option("--api", help="'chat', or 'completions' (legacy).")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Most tokens per reply.")]
Logprobs = Annotated[
    bool, typer.Option("--logprobs/--no-logprobs", help="Ask for log-probabilities; rules on margins need them.")
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.1, help="Longest silence of the endpoint, seconds; one reply may take ten times that."
    ),
]
CacheFile = Annotated[
    Path | None, typer.Option("--cache", help="A response cache (sqlite); the same request is then paid once.")
]
ExtraBody = Annotated[
    str,
    typer.Option(
        "--extra-body",
        help="More fields of each request, as JSON, for instance to switch thinking off: "
        '\'{"chat_template_kwargs": {"enable_thinking": false}}\'. No secrets: they are recorded.',
    ),
]
Position = Annotated[
    str | None,
    typer.Option(
        "--answer-position",
        help="Where a reply holds its answer: marker:TEXT, json:FIELD, tool:FIELD or start (default: marker:Answer:).",
    ),
]
AllowUnread = Annotated[
    bool,
    typer.Option("--allow-unread", help="Go on, and succeed, although no answer can be read out of any reply."),
]
Corpus = Annotated[
    Path | None,
    typer.Option(
        "--corpus", help="A folder of .txt/.md files or a .jsonl file to search; the index is kept beside it."
    ),
]
Dense = Annotated[
    str | None, typer.Option("--dense", help="Rank with a sentence-transformers model (id or path) instead of BM25.")
]
EmbedderName = Annotated[
    str,
    typer.Option(
        "--embedder",
        help="What embeds drafts for semantic_distance: 'minilm' (in the package), a sentence-transformers id, or 'none'.",
    ),
]
JudgeModel = Annotated[
    str | None,
    typer.Option("--judge-model", help="A model that marks how well the passages entail the answer: judge_entailment."),
]
JudgeBaseUrl = Annotated[
    str | None, typer.Option("--judge-base-url", help="The judge's endpoint; default: that of the model.")
]
JudgeKeyVariable = Annotated[
    str | None,
    typer.Option("--judge-api-key-env", help="The environment variable of the judge's API key; default: the model's."),
]
Rerank = Annotated[
    str | None,
    typer.Option("--rerank", help="A cross-encoder (id or path) that scores each new passage: rerank_score."),
]
Reranker = Annotated[
    str | None,
    typer.Option("--reranker", help="A cross-encoder (id or path) that orders the retriever's best passages."),
]
Candidates = Annotated[
    int, typer.Option("--candidates", min=1, help="How many of the retriever's best passages --reranker orders.")
]
StartRound = Annotated[
    int | None,
    typer.Option(
        "--start-round",
        min=0,
        max=1,
        help="Where rules start: 0 = with the recorded closed-book round, which any of their signals may end; default: 1, "
        "and 0 for rules on p_known.",
    ),
]
MaxRounds = Annotated[int, typer.Option("--max-rounds", min=1, help="The highest round R.")]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        help="A row's label, 'full', a rule or a policy file to compare with. Default: fixed_k(3); 'recorded' where a rule "
        "ended some of the recording.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs, and nothing else, to standard output.")]


def start_of(start_round: int | None, rules: Sequence[str] | None) -> dict[str, Any]:
    """Return what `--start-round` changes in the policies of rules.

    Raises:
        DataError: There are no rules: a policy file says itself where it starts.
    """
    if start_round is None:
        return {}
    if not rules:
        raise DataError(
            f"--start-round {start_round} is for rules, and there are none: a policy file says where it starts. "
            "`suffice calibrate --start-round` writes one"
        )
    return {"start_round": start_round}


def build_model(
    name: str,
    base_url: str | None,
    *,
    key_variable: str,
    prompt: str,
    api: str,
    max_tokens: int,
    logprobs: bool,
    timeout: float,
    cache: Path | None,
    extra_body: str,
    position: AnswerPosition | None = None,
) -> Answerer:
    """Return the model that the options describe.

    Raises:
        DataError: The options contradict each other.
    """
    body = json_object(extra_body)
    known_prompt(prompt)
    if name == "span-reader" and base_url is None:
        if body or (position or AnswerPosition()) != AnswerPosition():
            raise DataError(
                "the embedded span reader has no request and no reply to read: leave out "
                f"{'--extra-body' if body else '--answer-position'}, or give --base-url"
            )
        return SpanReaderModel()
    return build_chat(
        name,
        base_url,
        key_variable=key_variable,
        timeout=timeout,
        cache=cache,
        prompt=PROMPTS[prompt],
        position=position,
        api=api,
        max_tokens=max_tokens,
        top_logprobs=5 if logprobs else None,
        extra_body=body,
    )


def known_prompt(name: str) -> Prompt:
    """Return a built-in prompt.

    Raises:
        DataError: There is none of this name.
    """
    if name not in PROMPTS:
        raise NotFoundError(f"there is no prompt {name!r}; there are: {', '.join(PROMPTS)}")
    return PROMPTS[name]


def answer_position(text: str | None) -> AnswerPosition | None:
    """Return the value of `--answer-position`; None if it was not given.

    >>> answer_position("json:city")
    AnswerPosition(kind='json', text='city', span=None)

    Raises:
        DataError: It is of no kind that can be written down.
    """
    if text is None:
        return None
    kind, _, where = text.partition(":")
    if kind not in ("marker", "json", "tool", "start"):
        raise DataError(f"--answer-position {text!r}: the kinds are marker, json, tool, start")
    return AnswerPosition(cast("PositionKind", kind), where)


def template_options(extra_body: str) -> Mapping[str, Any]:
    """Return the chat template's variables out of `--extra-body`, the only field that a local model reads.

    Raises:
        DataError: There are other fields.
    """
    body = dict(json_object(extra_body))
    options = body.pop("chat_template_kwargs", {})
    if body or not isinstance(options, dict):
        raise DataError(
            f"--extra-body {extra_body!r}: with --local the only field is chat_template_kwargs, a JSON object"
        )
    return options


def build_chat(
    name: str,
    base_url: str | None,
    *,
    key_variable: str,
    timeout: float,
    cache: Path | None,
    option: str = "--base-url",
    **settings: Any,
) -> ChatModel:
    """Return a model at an endpoint.

    Args:
        name: The model's name there.
        base_url: The endpoint.
        key_variable: The environment variable of its key.
        timeout: Its longest silence, seconds.
        cache: The response cache.
        option: The option that gives the endpoint, for messages.
        **settings: Further arguments of `ChatModel`.

    Raises:
        DataError: There is no endpoint, or a setting is out of range.
    """
    _require_endpoint(name, base_url, key_variable, option=option)
    return ChatModel(
        name,
        base_url=base_url,
        api_key=api_key(key_variable),
        timeout_s=timeout,
        cache=None if cache is None else _response_cache(cache),
        **settings,
    )


def api_key(variable: str) -> str | None:
    """Return the key that an environment variable holds; None where the default one is unset: local servers need none.

    Raises:
        DataError: A variable that the user named is unset or empty. Another key must not go to that endpoint instead.
    """
    key = os.environ.get(variable)
    if not key and variable != DEFAULT_KEY:
        state = "is not set" if key is None else "is empty"
        raise DataError(
            f"the environment variable {variable!r}, which is to hold the API key, {state}: export it, or leave the "
            f"option out to use {DEFAULT_KEY}"
        )
    return key


def read_baseline(text: str | None) -> str | Policy | None:
    """Return the value of `--baseline`: a policy if it names a file."""
    return Policy.load(text) if text is not None and Path(text).suffix == ".json" else text


def json_object(text: str) -> Mapping[str, Any]:
    """Return the value of `--extra-body`.

    Raises:
        DataError: It is no JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DataError(f"--extra-body {text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise DataError(f"--extra-body must be a JSON object, not {text!r}")
    return value


def _response_cache(path: Path) -> Any:
    from suffice.store import ResponseCache

    return ResponseCache(path)


def build_enrichers(
    rerank: str | None,
    judge_model: str | None,
    base_url: str | None,
    *,
    key_variable: str,
    timeout: float,
    cache: Path | None,
) -> tuple[Enricher, ...]:
    """Return what measures signals with calls of its own, cheapest first.

    Args:
        rerank: A cross-encoder.
        judge_model: The judge's name at its endpoint.
        base_url: The judge's endpoint.
        key_variable: The environment variable of its key.
        timeout: Longest silence of its endpoint, seconds.
        cache: The response cache.

    Raises:
        DataError: A judge without an address.
    """
    enrichers: list[Enricher] = [] if rerank is None else [CrossEncoderScorer(rerank)]
    if judge_model is not None:
        judge = build_chat(
            judge_model, base_url, key_variable=key_variable, timeout=timeout, cache=cache, option="--judge-base-url"
        )
        enrichers.append(EntailmentJudge(judge))
    return tuple(enrichers)


def _require_endpoint(name: str, base_url: str | None, key_variable: str, *, option: str) -> None:
    if base_url is None and "OPENAI_BASE_URL" not in os.environ and api_key(key_variable) is None:
        raise DataError(
            f"model {name!r} needs an endpoint: give {option} (or OPENAI_BASE_URL), or put a key for OpenAI's into "
            f"{key_variable}; without a network use --model span-reader"
        )


def build_retriever(
    corpus: Path | None, dense: str | None, reranker: str | None = None, candidates: int = 20
) -> Retriever:
    """Return the retriever that the options describe: the question's own pool unless there is a corpus.

    Args:
        corpus: What is searched.
        dense: A sentence-transformers model that ranks instead of BM25.
        reranker: A cross-encoder that orders the best of them.
        candidates: How many it orders.
    """
    found: Retriever
    if dense is not None:
        from suffice.retrieval.corpus import read_corpus
        from suffice.retrieval.dense import DenseRetriever

        found = DenseRetriever(dense, passages=None if corpus is None else list(read_corpus(corpus)))
    else:
        found = PoolBM25() if corpus is None else open_corpus(corpus)
    return found if reranker is None else Reranked(found, CrossEncoderScorer(reranker), candidates=candidates)


def load_to_record(dataset: str, limit: int | None, split: str | None) -> list[Question]:
    """Return the questions of a recording; say before anything is paid for how many have no gold answer."""
    questions = load_questions(dataset, limit=limit, split=split)
    bare = sum(not question.answers for question in questions)
    if bare:
        known = len(questions) - bare
        which = f"only {known}" if known else "none"
        warn(
            f"note: {which} of these {len(questions)} questions has a gold answer (looked for: {', '.join(GOLD_FIELDS)}): EM "
            f"and F1 {'of the others ' if known else ''}will be unknown; the metric agreement needs none"
        )
    return questions


def overlap_state(dataset: str | None) -> dict[str, FittedState]:
    """Return the inverse document frequencies that `overlap` needs, fitted on the passages of a data set."""
    if dataset is None:
        return {}
    questions = load_questions(dataset)
    seen = Seen.of([item.question_id for item in questions], [item.question for item in questions])
    return {"overlap": Idf.fit((f"{p.title} {p.text}" for item in questions for p in item.passages), seen)}


def build_embedder(name: str) -> Embedder | None:
    """Return what embeds drafts: the packaged embedder, a sentence-transformers model, or nothing.

    Raises:
        MissingExtraError: sentence-transformers is needed and not installed.
    """
    if name == "none":
        return None
    return MiniLM() if name == "minilm" else SentenceTransformersEmbedder(name)
