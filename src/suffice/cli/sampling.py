"""`suffice sample answer`, `record` and `order`: draw independent answers and vote, live or recorded, and order a panel's models."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from typer import Argument, BadParameter, Option

from suffice.cli import datasets, models, options
from suffice.cli.batching import BatchOptions
from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import warn
from suffice.cli.groups import RecordingPath
from suffice.cli.live import show_live
from suffice.cli.local import json_object
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting, from_file
from suffice.cli.recording import RecordOptions
from suffice.common.provided import provided
from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.evaluation.replay import order_panel
from suffice.evaluation.replay.price_lists import load_prices
from suffice.loops import EscalationLoop, SamplingLoop
from suffice.loops.models import PROMPTS, ChatModel
from suffice.loops.models.prompts import prompt as built_in_prompt
from suffice.policy.comparisons import chosen_normalizer
from suffice.policy.normalizers import DEFAULT_NORMALIZER, NORMALIZERS
from suffice.policy.rules import parse_rule, parse_selector
from suffice.policy.session import Policy
from suffice.policy.signals import LOGPROB_NEEDS, AnswerPosition, member_component
from suffice.recordings import read_recording, write_recording

_AT_URL = re.compile(r"(?P<name>.+?)@(?P<url>https?://.+)")
_RULE, _SELECTOR, _MOST = "lead(3)", "majority_of_samples", 10

_Most = Annotated[
    int | None,
    Option("--samples", min=1, help=f"The largest number of samples; default: {_MOST}, of an escalation all models."),
]
_ComparedBy = Annotated[
    str | None,
    Setting(
        "sampling",
        "normalizer",
        help=f"How answers are compared: {', '.join(NORMALIZERS)}; default: by the golds, {DEFAULT_NORMALIZER} without any.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class _Sampled(models.Examined):
    """Options of the models that answer in turn."""

    model: Annotated[
        str,
        Option(
            "--model",
            help="The model's name at the endpoint; several in turn, the cheapest first: a,a,b. One at another endpoint is "
            "NAME@URL, which is sent the same API key.",
        ),
    ]
    prompt: Annotated[str, Option("--prompt", help=f"{', '.join(PROMPTS)}; several in turn: a,b.")] = "step_by_step"
    max_tokens: Annotated[int, Setting("endpoint", "max-tokens", min=1, help="Most tokens per reply.")] = 512
    logprobs: Annotated[
        bool, Setting("endpoint", "logprobs", help="Ask for log-probabilities; weighted votes need them.")
    ] = False
    cache: Annotated[
        Path | None, Setting("endpoint", "cache", help="A response cache (sqlite); the same sample is then paid once.")
    ] = None

    @property
    def members(self) -> list[tuple[str, str | None]]:
        """The models, each with its own endpoint, in the order in which they are asked."""
        members = [
            (match["name"], match["url"]) if (match := _AT_URL.fullmatch(text)) else (text, None)
            for text in options.split_names(self.model)
        ]
        urls: dict[str, str | None] = {}
        for name, url in members:
            if urls.setdefault(name, url) != url:
                raise DataError(
                    f"--model has {name!r} at two endpoints, and answers and prices are told apart by a model's name: serve one of "
                    "them under another name"
                )
        return members

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return [name for name, _ in self.members]

    def chats(self, *, logprobs: bool, position: AnswerPosition | None = None) -> list[ChatModel]:
        """Return the models; each uses the first of the prompts in the option `--prompt`."""
        if ("span-reader", None) in self.members and self.base_url is None:
            raise DataError(
                "the embedded span reader always gives the same answer: samples need a model at an endpoint (--base-url)"
            )
        by_name = {
            name: self.other(
                name,
                url,
                extra_body=json_object(self.extra_body),
                prompt=built_in_prompt(options.split_names(self.prompt)[0]),
                position=position or models.answer_position(self.answer_position),
                api=self.api,
                max_tokens=self.max_tokens,
                top_logprobs=5 if logprobs else None,
            )
            for name, url in dict(self.members).items()
        }
        return [by_name[name] for name in self.names]


@dataclass(frozen=True, kw_only=True)
class _Sampling:
    """Options for drawing samples."""

    panel: ClassVar[str] = "Sampling"

    temperature: Annotated[
        float | None,
        Setting(
            "sampling",
            "temperature",
            min=0.0,
            help="Sampling temperature; default: 0.7, of an escalation the models' own.",
        ),
    ] = None
    escalate: Annotated[
        bool,
        Setting("sampling", "escalate", help="The models are attempts, the cheapest first, and to stop is to accept."),
    ] = False
    seed: Annotated[
        int, Setting("sampling", "seed", min=0, help="The seed from which those of samples are derived.")
    ] = 0
    no_seed: Annotated[bool, Setting("sampling", "no-seed", help="Send no seeds, for endpoints that refuse them.")] = (
        False
    )
    wave: Annotated[int, Setting("sampling", "wave", min=1, help="Number of samples requested at once.")] = 1
    use_n: Annotated[
        bool, Setting("sampling", "use-n", help="Request a wave as several choices of one request (n).")
    ] = False

    def defaults(self, models: list[str]) -> tuple[str, str, int]:
        """Return the default rule, selector and number of samples."""
        return ("answer_stable_guarded", "last", len(models)) if self.escalate else (_RULE, _SELECTOR, _MOST)

    def loop(self, sampled: _Sampled, chats: list[ChatModel], policy: Policy) -> SamplingLoop:
        """Return the loop that the options describe."""
        prompts = [built_in_prompt(name) for name in options.split_names(sampled.prompt)]
        temperature = 0.7 if self.temperature is None and not self.escalate else self.temperature
        return (EscalationLoop if self.escalate else SamplingLoop)(
            model=chats,
            policy=policy,
            temperature=temperature,
            seed=None if self.no_seed else self.seed,
            prompts=prompts if len(prompts) > 1 else (),
            wave=self.wave,
            use_n=self.use_n,
        )


def sample_command(
    question: Annotated[str, Argument(help="The question.")],
    sampled: _Sampled,
    sampling: _Sampling,
    output: Output,
    contexts: Annotated[
        Path | None,
        Option("--contexts", help="Contexts of every sample: a folder of .txt/.md files or a .jsonl file."),
    ] = None,
    policy: Annotated[Path | None, Option("--policy", help="A policy file.")] = None,
    rule: Annotated[
        str | None,
        Option(
            "--rule",
            help=f"A rule that needs no fitted state, without a policy; default: {_RULE}, of an escalation answer_stable.",
        ),
    ] = None,
    selector: Annotated[
        str | None,
        Option("--selector", help=f"Which sample's answer to return; default: {_SELECTOR}, of an escalation last."),
    ] = None,
    samples: _Most = None,
    normalizer: _ComparedBy = None,
) -> None:
    """Each sample is a round; the answers, the reason for stopping and the cost are shown.

    Example: suffice sample answer "Where is it?" --model M --base-url URL
    """
    if policy is not None:
        theirs = {"--rule": rule, "--selector": selector, "--samples": samples, "normalizer": normalizer}
        theirs["answer-position"] = sampled.answer_position
        given = next(
            (
                name
                for name, value in theirs.items()
                if value is not None and not from_file(name.strip("-").replace("-", "_"))
            ),
            None,
        )
        if given is not None:
            raise BadParameter("the policy says that: leave it out", param_hint=given)
        decides = options.load_policy(policy)
    else:
        its_rule, its_selector, most = sampling.defaults(sampled.names)
        decides = Policy(
            rule=parse_rule(rule or its_rule),
            selector=parse_selector(selector or its_selector),
            max_rounds=samples or most,
            normalizer=normalizer or DEFAULT_NORMALIZER,
        )
    chats = sampled.chats(
        logprobs=sampled.logprobs or bool(LOGPROB_NEEDS & decides.needs),
        position=None if policy is None else decides.answer_position,
    )
    if policy is None:  # a prefilled prompt has another answer position than the policy's default
        decides = replace(decides, answer_position=chats[0].position)
    passages = [] if contexts is None else list(provided("retrieval.read_corpus")(contexts))
    loop = sampling.loop(sampled, chats, decides)
    show_live(
        loop, question, passages, output=output, then="suffice sample record DATASET -o samples.parquet --model M"
    )


def record_samples_command(
    context: typer.Context,
    dataset: Annotated[
        str, Argument(help=f"Questions: {datasets.DATASET}; every sample sees a question's passages, if it has any.")
    ],
    recorder: RecordOptions,
    cluster: ClusterOptions,
    sampled: _Sampled,
    sampling: _Sampling,
    batching: BatchOptions,
    output: Output,
    samples: _Most = None,
    normalizer: _ComparedBy = None,
    closed_book: Annotated[
        bool, Setting("sampling", "closed-book", help="Ask without the passages that the questions bring.")
    ] = False,
) -> None:
    """All samples are recorded, so that any rule can be replayed. Run the same command again to resume.

    Example: suffice sample record q.jsonl -o s.parquet --model M --base-url URL
    """
    if recorder.record_on(cluster, context, f"samples of {dataset}", output):
        return
    batches = batching.queue()
    questions = recorder.questions(dataset, (lambda item: replace(item, passages=())) if closed_book else None)
    chats = sampled.chats(logprobs=sampled.logprobs)
    _, selector, most = sampling.defaults(sampled.names)
    policy = Policy(
        selector=parse_selector(selector),
        max_rounds=samples or most,
        normalizer=normalizer or _by_golds(recorder.golds(dataset, questions)),
        answer_position=chats[0].position,
    )
    loop = sampling.loop(sampled, chats, policy)
    if sampled.logprobs and (batches is None or batches.file is None):
        for chat in loop.models:
            chat.verify(frozenset({"logprobs"}))
    names = dict.fromkeys(sampled.names)
    panel = {member_component(name): name for name in names}
    priced_models = panel if len(panel) > 1 else {"generator": next(iter(names))}
    recorder.record(f"samples of {dataset}", questions, loop, priced_models, output, batches=batches)


def _by_golds(golds: list[str]) -> str:
    """Return the normalizer that fits the gold answers, and print a note on it."""
    chosen = chosen_normalizer(golds)
    warn(f"note: answers are compared as {chosen.normalizer!r}, {chosen.why}; --set normalizer=NAME says otherwise")
    return chosen.normalizer


def order_command(
    path: options.Recorded,
    out: Annotated[RecordingPath, Option("--out", "-o", help="The other questions in this order, a parquet file.")],
    output: Output,
    by: Annotated[
        str, Setting("sampling", "by", help="'accuracy', the most often right first, or 'price', the cheapest first.")
    ] = ("accuracy"),
    metric: Annotated[
        str | None, Option("--metric", help="The metric of accuracy, a column in [0, 1]; default: the recording's own.")
    ] = None,
    tune_share: Annotated[
        float,
        Setting("statistics", "tune-share", help="Share of the questions that choose the order and are left out."),
    ] = 0.3,
    prices: options.Prices = None,
) -> None:
    """Questions used to choose the order are excluded from the results.

    Example: suffice sample order panel.parquet -o ordered.parquet
    """
    panel = order_panel(
        read_recording(path),
        by=options.allowed(by, ("accuracy", "price"), "by"),
        metric=metric,
        tune_share=tune_share,
        prices=None if prices is None else load_prices(prices),
    )
    write_recording(out, panel.recording.table, panel.recording.metadata)
    first, *others = (member.name for member in panel.members)
    sentence = (
        f"{out}: {counted(len(panel.recording.question_ids), 'question')} with {first} first, then {counted(len(others), 'other model')}; "
        f"the best single model on {counted(panel.n_tune, 'tune question')} is {panel.best}"
    )
    outcome = {
        "file": str(out),
        "by": panel.by,
        "metric": panel.metric,
        "best_single": panel.best,
        "n_tune": panel.n_tune,
        "order": [{"model": item.name, "score": item.score, "price": item.price} for item in panel.members],
    }
    then = options.replay_step(out, panel.recording, "best_single")
    screen = Screen(sentences=[sentence], tables=panel.tables(), then=then)
    output.show(outcome, screen)
