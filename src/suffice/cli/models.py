"""Options for a model, its judge and an embedder of drafts, and functions that build them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from typer import BadParameter, Option

from suffice.cli.extensions import is_in_file, object_in_file
from suffice.cli.local import LocalRun, hub_name, json_object
from suffice.cli.parameters import Setting, from_file, given_fields
from suffice.cli.settings import DEFAULT_KEY, check_key_variable
from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.loops.judges import VERDICTS, JudgeModel, Panel
from suffice.loops.models import PROMPTS, Answerer, ChatModel, EntailmentJudge, RequestLimits
from suffice.loops.models.limits import limits_here
from suffice.loops.models.prompts import PAPER_PROMPTS, Prompt, prompt as built_in_prompt
from suffice.loops.models.protocols import has_attentions
from suffice.loops.models.sentence_transformers import SentenceTransformersEmbedder
from suffice.policy.embedding import Embedder
from suffice.policy.signals import CRITIQUE, NEW_CONFIDENCE, SAMPLE_SPREAD, Enricher
from suffice.policy.signals.position import AnswerPosition

__all__ = [
    "DEFAULT_KEY",
    "OWN_SIGNALS",
    "PLACES",
    "Answering",
    "EmbedderName",
    "Endpoint",
    "Examined",
    "Judge",
    "Signals",
    "answer_position",
    "api_key",
    "build_embedder",
    "cross_encoder",
]

PLACES = "marker:TEXT, regex:PATTERN, json:FIELD, tool:FIELD, start, whole, boxed, last-number, letter or code-block"
"""The values of `answer-position`, for help."""

EmbedderName = Annotated[
    str,
    Setting(
        "drafts",
        "embedder",
        help="The embedder for semantic_distance: 'minilm' (in the package), a sentence-transformers id, or 'none'.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Options of a language model at an OpenAI-compatible endpoint."""

    panel: ClassVar[str] = "Model"

    model: Annotated[str, Option("--model", help="The model's name at the endpoint.")]
    base_url: Annotated[
        str | None,
        Option(
            "--base-url",
            help="An OpenAI-compatible endpoint, usually ending with /v1; or several of the same model: URL,URL,...",
        ),
    ] = None
    api_key_env: Annotated[
        str, Option("--api-key-env", help="The environment variable that holds the API key; never the key itself.")
    ] = DEFAULT_KEY
    max_tokens: Annotated[int, Setting("endpoint", "max-tokens", min=1, help="Most tokens per reply.")] = 64
    timeout: Annotated[
        float,
        Setting(
            "endpoint",
            "timeout",
            min=0.1,
            help="Longest silence of the endpoint, seconds; one reply may take ten times that.",
        ),
    ] = 120.0
    extra_body: Annotated[
        str,
        Setting(
            "endpoint",
            "extra-body",
            help="More fields of each request, as JSON, for instance to switch thinking off: "
            '\'{"chat_template_kwargs": {"enable_thinking": false}}\'. No secrets: they are recorded.',
        ),
    ] = "{}"
    requests_per_minute: Annotated[
        int | None,
        Setting(
            "endpoint",
            "requests-per-minute",
            min=1,
            help="Most requests in a minute, spread evenly, of all models together.",
        ),
    ] = None
    tokens_per_minute: Annotated[
        int | None,
        Setting(
            "endpoint",
            "tokens-per-minute",
            min=1,
            help="Most tokens in a minute, of prompts and replies, of all models together.",
        ),
    ] = None
    max_in_flight: Annotated[
        int | None, Setting("endpoint", "max-in-flight", min=1, help="Most requests at once, of all models together.")
    ] = None

    @cached_property
    def limits(self) -> RequestLimits:
        """Limits on requests to the endpoints, shared by all models of the command."""
        return limits_here(
            RequestLimits(
                requests_per_minute=self.requests_per_minute,
                tokens_per_minute=self.tokens_per_minute,
                max_in_flight=self.max_in_flight,
            )
        )

    def chat(self, **settings: Any) -> ChatModel:
        """Build the model; further settings are arguments of `ChatModel`."""
        return self.other(extra_body=json_object(self.extra_body), **settings)

    def other(
        self,
        name: str | None = None,
        base_url: str | None = None,
        key_variable: str | None = None,
        option: str = "--base-url",
        **settings: Any,
    ) -> ChatModel:
        """Build a second model; its name, endpoint and key default to those of this model."""
        name, base_url, key_variable = name or self.model, base_url or self.base_url, key_variable or self.api_key_env
        key = api_key(key_variable)
        if base_url is None and "OPENAI_BASE_URL" not in os.environ and key is None:
            raise DataError(
                f"model {name!r} needs an endpoint: give {option} (or OPENAI_BASE_URL), or put a key for OpenAI's into "
                f"{key_variable}; without a network use --model span-reader"
            )
        cache: Path | None = getattr(self, "cache", None)
        if cache is not None and "cache" not in settings:
            from suffice.recordings import ResponseCache

            settings["cache"] = ResponseCache(cache)
        return ChatModel(name, base_url=base_url, api_key=key, timeout_s=self.timeout, limits=self.limits, **settings)


@dataclass(frozen=True, kw_only=True)
class Examined(Endpoint):
    """Options of a model that answers questions, without a cache."""

    prompt: Annotated[str, Option("--prompt", help=f"One of: {', '.join((*PROMPTS, *PAPER_PROMPTS))}.")] = (
        "answer_first"
    )
    api: Annotated[str, Setting("endpoint", "api", help="'chat', or 'completions' (legacy).")] = "chat"
    answer_position: Annotated[
        str | None,
        Setting(
            "endpoint",
            "answer-position",
            help=f"The place of the answer in a reply: {PLACES} (default: marker:Answer:).",
        ),
    ] = None

    def answerer(
        self,
        run: LocalRun | None = None,
        *,
        logprobs: bool = True,
        position: AnswerPosition | None = None,
        layer: int | None = None,
    ) -> Answerer:
        """Return the model that the options describe: at an endpoint, local, from a user's file, or the span reader.

        Args:
            run: Options of a model on this machine.
            logprobs: Whether to request log-probabilities.
            position: The position of the answer in a reply; by default as in the options.
            layer: The layer of a local model whose hidden states are also read.
        """
        prompt, position, run = (
            built_in_prompt(self.prompt),
            position or answer_position(self.answer_position),
            run or LocalRun(),
        )
        if is_in_file(self.model):
            return self._own()
        if getattr(self, "local", False):
            return self._local(run, prompt, position, logprobs=logprobs, layer=layer)
        if self.model == "span-reader" and self.base_url is None:
            body = json_object(self.extra_body) and not from_file("extra_body")
            is_elsewhere = not (position or AnswerPosition()).is_default and not from_file("answer_position")
            if body or is_elsewhere:
                raise DataError(
                    "the embedded span reader has no request and no reply to read: leave out "
                    f"{'extra-body' if body else 'answer-position'}, or give --base-url"
                )
            return provided("reader.SpanReaderModel")()
        return self.chat(
            prompt=prompt,
            position=position,
            api=self.api,
            max_tokens=self.max_tokens,
            top_logprobs=5 if logprobs else None,
        )

    def _own(self) -> Answerer:
        examined = {item.name for item in fields(Examined)} - {"model"}
        for field, option in given_fields(self).items():
            if field in examined:
                raise DataError(f"{option} is for a model at an endpoint, and {self.model!r} is code: leave it out")
        if getattr(self, "local", False):
            raise DataError(f"--local opens a folder or hub id, and {self.model!r} is code: leave it out")
        found = object_in_file(self.model)
        if not isinstance(found, Answerer):
            wanted = "name, capabilities, verify, fingerprint, answer and answer_async"
            raise DataError(f"{self.model!r} is no model: one has {wanted}, see suffice.loops.models.Answerer")
        return found

    def _local(
        self, run: LocalRun, prompt: Prompt, position: AnswerPosition | None, *, logprobs: bool, layer: int | None
    ) -> Answerer:
        if self.base_url is not None:
            raise DataError(
                f"--local runs {self.model!r} here, and --base-url {self.base_url!r} is an endpoint: give one of them"
            )
        body = dict(json_object(self.extra_body))
        variables = body.pop("chat_template_kwargs", {})
        if body or not isinstance(variables, dict):
            raise DataError(
                f"extra-body {self.extra_body!r}: with --local the only field is chat_template_kwargs, a JSON object"
            )
        if variables and json_object(run.template_args, "template-args"):
            raise DataError("template-args and extra-body both set variables of the chat template: give one of them")
        return run.open(
            self.model,
            prompt,
            layers=("middle",) if layer is None else (layer,),
            position=position,
            max_tokens=self.max_tokens,
            top_logprobs=5 if logprobs else 1,
            chat_template_kwargs=variables,
        )


@dataclass(frozen=True, kw_only=True)
class Answering(Examined):
    """Options of a model that answers questions, by default the embedded span reader."""

    model: Annotated[
        str,
        Option(
            "--model",
            help="The embedded 'span-reader', a model's name at the endpoint, or your own model: FILE.py:NAME.",
        ),
    ] = "span-reader"
    local: Annotated[
        bool, Option("--local", help="--model is a folder or hub id of a causal language model, and runs here (torch).")
    ] = False
    logprobs: Annotated[
        bool, Setting("endpoint", "logprobs", help="Ask for log-probabilities; rules on margins need them.")
    ] = True
    cache: Annotated[
        Path | None,
        Setting(
            "endpoint", "cache", help="A cache of replies and rankings (sqlite); the same request is then paid once."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Options of the judge of a live loop."""

    panel: ClassVar[str] = "Judge"

    judge_model: Annotated[
        str | None, Option("--judge-model", help="A model that judges the passages, see the setting judge-signal.")
    ] = None
    judge_base_url: Annotated[
        str | None, Setting("endpoint", "judge-base-url", help="The judge's endpoint; default: that of the model.")
    ] = None
    judge_api_key_env: Annotated[
        str | None,
        Setting(
            "endpoint",
            "judge-api-key-env",
            help="The environment variable of the judge's API key; default: the model's.",
        ),
    ] = None

    def chat(self, endpoint: Endpoint, **settings: Any) -> ChatModel:
        """Return the judge's model."""
        return endpoint.other(
            self.judge_model, self.judge_base_url, self.judge_api_key_env, "--set judge-base-url=URL", **settings
        )


@dataclass(frozen=True, kw_only=True)
class Signals(Judge):
    """Options for signals that need extra calls."""

    panel: ClassVar[str] = "Signals"

    rerank_signal: Annotated[
        str | None,
        Setting(
            "record",
            "rerank-signal",
            help="A cross-encoder (id or path) that scores each new passage: rerank_score.",
        ),
    ] = None
    own_signal: Annotated[
        list[str] | None,
        Setting(
            "record",
            "own-signal",
            help="With --local, a signal from the model's own passes at each round: sample_spread (SeaKR), new_confidence "
            "(CtrlA) or critique_score (Self-RAG). May be repeated.",
        ),
    ] = None

    judge_signal: Annotated[
        str,
        Setting(
            "record",
            "judge-signal",
            help="What the judge gives: judge_entailment, how well the passages entail the answer; or context_sufficient, whether "
            "they suffice to answer the question.",
        ),
    ] = "judge_entailment"

    def enrichers(self, endpoint: Endpoint, device: str | None = None) -> tuple[Enricher, ...]:
        """Return the enrichers that measure these signals, the cheapest first."""
        listed: list[Enricher] = [] if self.rerank_signal is None else [cross_encoder(self.rerank_signal, device)]
        return (*listed, *([] if self.judge_model is None else [self._judge(endpoint)]))

    @property
    def judge_component(self) -> str:
        """The component whose costs include the judge's calls."""
        return f"judge:{self.judge_signal}" if self.judge_signal in VERDICTS else EntailmentJudge.name

    def _judge(self, endpoint: Endpoint) -> Enricher:
        """Return the judge that measures the setting `judge-signal`."""
        known = ("judge_entailment", *VERDICTS)
        if self.judge_signal not in known:
            raise BadParameter(f"judge-signal is {self.judge_signal!r}; allowed: {', '.join(known)}")
        chat = self.chat(endpoint)
        if self.judge_signal in VERDICTS:
            return Panel(JudgeModel(chat, cache=chat.cache), [self.judge_signal])
        return EntailmentJudge(chat)

    def own(self, answerer: Answerer) -> tuple[Enricher, ...]:
        """Return the enrichers for the setting `own-signal`; they need additional passes of the answering model.

        Raises:
            BadParameter: The setting names a signal that is not in `OWN_SIGNALS`.
            DataError: The model does not run on this machine.
        """
        names = list(dict.fromkeys(self.own_signal or ()))
        unknown = [name for name in names if name not in OWN_SIGNALS]
        if unknown:
            raise BadParameter(f"{unknown[0]!r}; allowed: {', '.join(OWN_SIGNALS)}", param_hint="own-signal")
        if names and not has_attentions(answerer):
            raise DataError(f"own-signal {names[0]} reads passes of a model that runs here: answer with --local")
        return tuple(OWN_SIGNALS[name](answerer) for name in names)


def _spread(model: Any) -> Enricher:
    return provided("gates.SampleSpread")(model)


def _critique(model: Any) -> Enricher:
    return provided("gates.SelfCritique")(model)


def _monitor(model: Any) -> Enricher:
    return provided("gates.ConfidenceMonitor")(model, provided("gates.fit_directions")(model)[0])


OWN_SIGNALS: Mapping[str, Callable[[Any], Enricher]] = {
    SAMPLE_SPREAD: _spread,
    NEW_CONFIDENCE: _monitor,
    CRITIQUE: _critique,
}
"""Enrichers that measure a round by passes of the answering model, by the signal that they give."""


def answer_position(text: str | None) -> AnswerPosition | None:
    """Parse the setting `answer-position`; None if it was not given.

    >>> answer_position("json:city")
    AnswerPosition(kind='json', text='city', span=None, form='')
    """
    if text is None:
        return None
    try:
        return AnswerPosition.parse(text)
    except DataError as error:
        raise BadParameter(str(error), param_hint="answer-position") from error


def api_key(variable: str) -> str | None:
    """Return the key in an environment variable.

    If the variable is the default one and is unset, return None, since local servers need no key.
    """
    check_key_variable(variable, "--api-key-env")
    key = os.environ.get(variable)
    if not key and variable != DEFAULT_KEY:
        state = "is not set" if key is None else "is empty"
        raise DataError(
            f"the environment variable {variable!r}, which is to hold the API key, {state}: export it, or leave the "
            f"option out to use {DEFAULT_KEY}"
        )
    return key


def build_embedder(name: str, device: str | None = None) -> Embedder | None:
    """Return the embedder of drafts for a name: the packaged one for `minilm`, None for `none`.

    Any other name is that of a sentence-transformers model.
    """
    if name == "none":
        return None
    if name == "minilm":
        return provided("reader.MiniLM")()
    model, revision = hub_name(name)
    return SentenceTransformersEmbedder(model, revision=revision, device=device)


def cross_encoder(name: str, device: str | None = None) -> Any:
    """Return the cross-encoder with this name: a folder, `ID` or `ID@REVISION`."""
    model, revision = hub_name(name)
    return provided("gates.CrossEncoderScorer")(model, revision=revision, device=device)
