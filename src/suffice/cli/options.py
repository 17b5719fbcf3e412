"""Options that several commands share, in groups, and what they build."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from typer import Argument, BadParameter, Option

from suffice import statistics
from suffice.embedding import Embedder, MiniLM, SentenceTransformersEmbedder
from suffice.errors import DataError, NotFoundError
from suffice.llm import PROMPTS, Answerer, ChatModel, EntailmentJudge, SpanReaderModel
from suffice.llm.prompts import Prompt
from suffice.llm.prompts import prompt as built_in_prompt
from suffice.replays import Price, component_prices, list_price
from suffice.retrieval import (
    BUNDLED_QUESTIONS,
    CrossEncoderScorer,
    PoolBM25,
    Reranked,
    Retriever,
    load_questions,
    open_corpus,
)
from suffice.seen import Seen
from suffice.session import Policy
from suffice.signals import GATE, LOOP_COMPONENTS, Enricher, FittedState, Idf
from suffice.signals.position import AnswerPosition, PositionKind
from suffice.store import Recording

__all__ = [
    "DATASET",
    "AllowUnread",
    "Answering",
    "Baseline",
    "Candidates",
    "Compared",
    "Dataset",
    "EmbedderName",
    "Endpoint",
    "Examined",
    "LedgerName",
    "Limit",
    "Margins",
    "MarkWeights",
    "Markdown",
    "MaxRounds",
    "Prices",
    "Pricing",
    "Quality",
    "Recorded",
    "ResamplingOptions",
    "Retrieval",
    "Search",
    "SelectorText",
    "Signals",
    "StartRound",
    "allowed",
    "answer_position",
    "api_key",
    "build_embedder",
    "json_object",
    "load_policy",
    "overlap_state",
    "prices_of",
    "read_baseline",
    "split_names",
    "start_of",
]

DEFAULT_KEY = "OPENAI_API_KEY"
DATASET = f"a bundled set ({', '.join(BUNDLED_QUESTIONS)}), a .jsonl(.gz) file, or HotpotQA's .json"
"""What a data set may be, for help."""

Limit = Annotated[int | None, Option("--limit", min=1, help="Only the first questions.")]
Markdown = Annotated[Path | None, Option("--markdown", help="Also write the tables there, as Markdown.")]
Quality = Annotated[
    str | None, Option("--metric", help="f1 (default; em for multiple choice), em, agreement, or a column in [0, 1].")
]
MaxRounds = Annotated[int, Option("--max-rounds", min=1, help="The highest round R.")]
Candidates = Annotated[
    int, Option("--candidates", min=1, help="How many of the retriever's best passages --reranker orders.")
]
AllowUnread = Annotated[bool, Option("--allow-unread", help="Succeed even if no answer can be read from any reply.")]
EmbedderName = Annotated[
    str,
    Option(
        "--embedder",
        help="What embeds drafts for semantic_distance: 'minilm' (in the package), a sentence-transformers id, or 'none'.",
    ),
]
StartRound = Annotated[
    int | None,
    Option(
        "--start-round",
        min=0,
        max=1,
        help="Where rules start: 0 = with the recorded closed-book round, which any of their signals may end; default: 1, "
        "and 0 for rules on p_known.",
    ),
]
Baseline = Annotated[
    str | None,
    Option(
        "--baseline",
        help="A row's label, 'full', a rule or a policy file to compare with. Default: fixed_k(3); 'recorded' where a rule "
        "ended some of the recording.",
    ),
]


Dataset = Annotated[str, Argument(help=f"Questions: {DATASET}.")]
LedgerName = Annotated[
    str,
    Option(
        "--ledger",
        help="'live': judges are charged where the rule reads them; 'published': as Semantic Early-Stopping counted.",
    ),
]
Margins = Annotated[
    list[float] | None, Option("--margin", help="For non-inferiority and equivalence; may be repeated.")
]
Prices = Annotated[
    Path | None,
    Option("--prices", help="USD per million tokens by model or component (TOML or JSON), or 'list'."),
]
Recorded = Annotated[Path, Argument(metavar="RECORDING", help="Recorded rounds.")]
SelectorText = Annotated[str, Option("--selector", help="Which seen round's answer to return.")]
MarkWeights = Annotated[str, Option("--weights", help="Of the information score, as MARK=WEIGHT,...; default: equal.")]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Policies, and what they are compared by."""

    panel: ClassVar[str] = "What is compared"

    rule: Annotated[list[str] | None, Option("--rule", help="A rule: a name or its text; may be repeated.")] = None
    policy: Annotated[list[Path] | None, Option("--policy", help="A policy file; may be repeated.")] = None
    start_round: StartRound = None
    metric: Annotated[
        list[str] | None,
        Option("--metric", help="f1, em, contains, agreement, or a column in [0, 1]; the first is the quality."),
    ] = None
    baseline: Baseline = None
    margin: Margins = None

    @property
    def margins(self) -> tuple[float, ...]:
        """The margins; 2 points by default."""
        return tuple(self.margin or (0.02,))

    def files(self) -> list[Policy]:
        """Return the policies of the files."""
        return [load_policy(file) for file in self.policy or ()]


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """What tokens cost."""

    panel: ClassVar[str] = "Prices"

    prices: Prices = None
    model: Annotated[
        str | None, Option("--model", help="Price every language model as this one of the list prices.")
    ] = None

    def price(self) -> Price | None:
        """Return the price of `--model`."""
        if self.prices is not None and self.model is not None:
            raise BadParameter("--prices says what tokens cost, too: give one of them", param_hint="--model")
        return None if self.model is None else list_price(self.model).price

    def of(self, recording: Recording) -> Price | dict[str, Price] | None:
        """Return the prices of the recorded components."""
        return self.price() or prices_of(self.prices, recording)


def prices_of(path: Path | None, recording: Recording) -> dict[str, Price] | None:
    """Return the prices of the recorded components; one whose model the recording does not name goes by its own name."""
    if path is None:
        return None
    config = recording.metadata.get("config", {})
    names = {column.split(".")[1]: "" for column in recording.names("cost")}
    names |= {component: about.get("model", "") for component, about in config.get("enrichers", {}).items()}
    names["generator"] = config.get("model", {}).get("model", "")
    priced = {*LOOP_COMPONENTS, GATE}
    return component_prices(path, {c: n for c, n in names.items() if c in priced or c.startswith("judge:")})


@dataclass(frozen=True, kw_only=True)
class ResamplingOptions:
    """How intervals are drawn."""

    panel: ClassVar[str] = "Resampling"

    resamples: Annotated[int, Option("--resamples", min=1, help="Bootstrap draws.")] = 1000
    seed: Annotated[int, Option("--seed", min=0, help="Seed of everything that is drawn.")] = 42
    level: Annotated[float, Option("--level", min=0.5, max=0.9999, help="Coverage of intervals.")] = 0.95

    @property
    def value(self) -> statistics.Resampling:
        """What functions of the library take."""
        return statistics.Resampling(n_resamples=self.resamples, seed=self.seed, level=self.level)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A language model at an OpenAI-compatible endpoint."""

    panel: ClassVar[str] = "Model"

    model: Annotated[str, Option("--model", help="The model's name at the endpoint.")]
    base_url: Annotated[
        str | None, Option("--base-url", help="An OpenAI-compatible endpoint, usually ending with /v1.")
    ] = None
    api_key_env: Annotated[
        str, Option("--api-key-env", help="The environment variable that holds the API key; never the key itself.")
    ] = DEFAULT_KEY
    max_tokens: Annotated[int, Option("--max-tokens", min=1, help="Most tokens per reply.")] = 64
    timeout: Annotated[
        float,
        Option(
            "--timeout", min=0.1, help="Longest silence of the endpoint, seconds; one reply may take ten times that."
        ),
    ] = 120.0
    extra_body: Annotated[
        str,
        Option(
            "--extra-body",
            help="More fields of each request, as JSON, for instance to switch thinking off: "
            '\'{"chat_template_kwargs": {"enable_thinking": false}}\'. No secrets: they are recorded.',
        ),
    ] = "{}"

    def chat(self, **settings: Any) -> ChatModel:
        """Return the model; further settings are those of `ChatModel`."""
        return self.other(extra_body=json_object(self.extra_body), **settings)

    def other(
        self,
        name: str | None = None,
        base_url: str | None = None,
        key_variable: str | None = None,
        option: str = "--base-url",
        **settings: Any,
    ) -> ChatModel:
        """Return a model whose name, endpoint and key are by default those of this one."""
        name, base_url, key_variable = name or self.model, base_url or self.base_url, key_variable or self.api_key_env
        key = api_key(key_variable)
        if base_url is None and "OPENAI_BASE_URL" not in os.environ and key is None:
            raise DataError(
                f"model {name!r} needs an endpoint: give {option} (or OPENAI_BASE_URL), or put a key for OpenAI's into "
                f"{key_variable}; without a network use --model span-reader"
            )
        cache: Path | None = getattr(self, "cache", None)
        if cache is not None and "cache" not in settings:
            from suffice.store import ResponseCache

            settings["cache"] = ResponseCache(cache)
        return ChatModel(name, base_url=base_url, api_key=key, timeout_s=self.timeout, **settings)


@dataclass(frozen=True, kw_only=True)
class Examined(Endpoint):
    """A model that answers questions, without a cache in front of it."""

    prompt: Annotated[str, Option("--prompt", help=f"One of: {', '.join(PROMPTS)}.")] = "answer_first"
    api: Annotated[str, Option("--api", help="'chat', or 'completions' (legacy).")] = "chat"
    answer_position: Annotated[
        str | None,
        Option(
            "--answer-position",
            help="Where a reply holds its answer: marker:TEXT, json:FIELD, tool:FIELD or start (default: marker:Answer:).",
        ),
    ] = None

    def answerer(
        self, *, logprobs: bool = True, position: AnswerPosition | None = None, layer: int | None = None
    ) -> Answerer:
        """Return the model that the options describe: at an endpoint, local, or the embedded span reader."""
        prompt, position = built_in_prompt(self.prompt), position or answer_position(self.answer_position)
        if getattr(self, "local", False):
            return self._local(prompt, position, logprobs=logprobs, layer=layer)
        if self.model == "span-reader" and self.base_url is None:
            body = json_object(self.extra_body)
            if body or (position or AnswerPosition()) != AnswerPosition():
                raise DataError(
                    "the embedded span reader has no request and no reply to read: leave out "
                    f"{'--extra-body' if body else '--answer-position'}, or give --base-url"
                )
            return SpanReaderModel()
        return self.chat(
            prompt=prompt,
            position=position,
            api=self.api,
            max_tokens=self.max_tokens,
            top_logprobs=5 if logprobs else None,
        )

    def _local(self, prompt: Prompt, position: AnswerPosition | None, *, logprobs: bool, layer: int | None) -> Answerer:
        from suffice.cli.console import quiet_bars
        from suffice.llm import TransformersModel

        if self.base_url is not None:
            raise DataError(
                f"--local runs {self.model!r} here, and --base-url {self.base_url!r} is an endpoint: give one of them"
            )
        body = dict(json_object(self.extra_body))
        variables = body.pop("chat_template_kwargs", {})
        if body or not isinstance(variables, dict):
            raise DataError(
                f"--extra-body {self.extra_body!r}: with --local the only field is chat_template_kwargs, a JSON object"
            )
        quiet_bars()
        return TransformersModel(
            self.model,
            layers=("middle",) if layer is None else (layer,),
            prompt=prompt,
            position=position,
            max_tokens=self.max_tokens,
            top_logprobs=5 if logprobs else 1,
            chat_template_kwargs=variables,
        )


@dataclass(frozen=True, kw_only=True)
class Answering(Examined):
    """A model that answers questions: by default the embedded span reader."""

    model: Annotated[str, Option("--model", help="The embedded 'span-reader', or a model's name at the endpoint.")] = (
        "span-reader"
    )
    local: Annotated[
        bool, Option("--local", help="--model is a folder or hub id of a causal language model, and runs here (torch).")
    ] = False
    logprobs: Annotated[
        bool, Option("--logprobs/--no-logprobs", help="Ask for log-probabilities; rules on margins need them.")
    ] = True
    cache: Annotated[
        Path | None, Option("--cache", help="A response cache (sqlite); the same request is then paid once.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched."""

    panel: ClassVar[str] = "Retrieval"

    corpus: Annotated[
        Path | None,
        Option("--corpus", help="A folder of .txt/.md files or a .jsonl file to search; the index is kept beside it."),
    ] = None
    dense: Annotated[
        str | None, Option("--dense", help="Rank with a sentence-transformers model (id or path) instead of BM25.")
    ] = None

    def retriever(self) -> Retriever:
        """Return the retriever; without a corpus it ranks each question's own passages."""
        if self.dense is None:
            return PoolBM25() if self.corpus is None else open_corpus(self.corpus)
        from suffice.retrieval.corpus import read_corpus
        from suffice.retrieval.dense import DenseRetriever

        return DenseRetriever(self.dense, passages=None if self.corpus is None else list(read_corpus(self.corpus)))


@dataclass(frozen=True, kw_only=True)
class Retrieval(Search):
    """What is searched, and in which order passages are revealed."""

    reranker: Annotated[
        str | None, Option("--reranker", help="A cross-encoder (id or path) that orders the retriever's best passages.")
    ] = None
    candidates: Candidates = 20

    def retriever(self) -> Retriever:
        """Return the retriever, with the reranker's order if there is one."""
        ranked = super().retriever()
        if self.reranker is None:
            return ranked
        return Reranked(ranked, CrossEncoderScorer(self.reranker), candidates=self.candidates)


@dataclass(frozen=True, kw_only=True)
class Judge:
    """A judge of a live loop."""

    panel: ClassVar[str] = "Judge"

    judge_model: Annotated[
        str | None, Option("--judge-model", help="A model that marks how well the passages entail the answer.")
    ] = None
    judge_base_url: Annotated[
        str | None, Option("--judge-base-url", help="The judge's endpoint; default: that of the model.")
    ] = None
    judge_api_key_env: Annotated[
        str | None,
        Option("--judge-api-key-env", help="The environment variable of the judge's API key; default: the model's."),
    ] = None

    def chat(self, endpoint: Endpoint, **settings: Any) -> ChatModel:
        """Return the judge's model."""
        return endpoint.other(
            self.judge_model, self.judge_base_url, self.judge_api_key_env, "--judge-base-url", **settings
        )


@dataclass(frozen=True, kw_only=True)
class Signals(Judge):
    """Signals that cost calls of their own."""

    panel: ClassVar[str] = "Signals"

    rerank_signal: Annotated[
        str | None,
        Option("--rerank-signal", help="A cross-encoder (id or path) that scores each new passage: rerank_score."),
    ] = None

    def enrichers(self, endpoint: Endpoint) -> tuple[Enricher, ...]:
        """Return what measures these signals, cheapest first."""
        listed: list[Enricher] = [] if self.rerank_signal is None else [CrossEncoderScorer(self.rerank_signal)]
        return (*listed, *([] if self.judge_model is None else [EntailmentJudge(self.chat(endpoint))]))


def allowed(value: str, choices: Collection[str], option: str) -> Any:
    """Return a value that is one of the choices."""
    if value not in choices:
        raise BadParameter(f"{value!r}; allowed: {', '.join(choices)}", param_hint=option)
    return value


def split_names(text: str) -> list[str]:
    """Return comma-separated names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def start_of(start_round: int | None, rules: Sequence[str] | None) -> dict[str, Any]:
    """Return what `--start-round` changes in the policies of rules."""
    if start_round is None:
        return {}
    if not rules:
        raise DataError(
            f"--start-round {start_round} is for rules, and there are none: a policy file says where it starts. "
            "`suffice calibrate --start-round` writes one"
        )
    return {"start_round": start_round}


def answer_position(text: str | None) -> AnswerPosition | None:
    """Return the value of `--answer-position`; None if it was not given.

    >>> answer_position("json:city")
    AnswerPosition(kind='json', text='city', span=None)

    Raises:
        BadParameter: It is of no kind that can be written down.
    """
    if text is None:
        return None
    kind, _, where = text.partition(":")
    if kind not in ("marker", "json", "tool", "start"):
        raise BadParameter(f"{text!r}: the kinds are marker, json, tool, start", param_hint="--answer-position")
    return AnswerPosition(cast("PositionKind", kind), where)


def api_key(variable: str) -> str | None:
    """Return the key that an environment variable holds; None where the default one is unset: local servers need none."""
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
    return load_policy(text) if text is not None and Path(text).suffix == ".json" else text


def load_policy(path: str | Path) -> Policy:
    """Return the policy of a file that the command line names."""
    if not Path(path).exists():
        raise NotFoundError(f"the policy file {str(path)!r} does not exist: `suffice calibrate` writes one")
    return Policy.load(path)


def json_object(text: str) -> Mapping[str, Any]:
    """Return the value of `--extra-body`."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadParameter(f"{text!r} is not JSON: {error}", param_hint="--extra-body") from None
    if not isinstance(value, dict):
        raise BadParameter(f"expected a JSON object, not {text!r}", param_hint="--extra-body")
    return value


def overlap_state(dataset: str | None) -> dict[str, FittedState]:
    """Return the inverse document frequencies that `overlap` needs, fitted on the passages of a data set."""
    if dataset is None:
        return {}
    questions = load_questions(dataset)
    seen = Seen.of([item.question_id for item in questions], [item.question for item in questions])
    return {"overlap": Idf.fit((f"{p.title} {p.text}" for item in questions for p in item.passages), seen)}


def build_embedder(name: str) -> Embedder | None:
    """Return what embeds drafts: the packaged embedder, a sentence-transformers model, or nothing."""
    if name == "none":
        return None
    return MiniLM() if name == "minilm" else SentenceTransformersEmbedder(name)
