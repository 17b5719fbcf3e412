"""`suffice draft answer` and `suffice draft record`: run a writer and a critic, live or recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from typer import Argument, Option

from suffice.cli import datasets, models, options
from suffice.cli.cluster import ClusterOptions
from suffice.cli.judge import parse_weights
from suffice.cli.live import show_live
from suffice.cli.local import DeviceName, json_object
from suffice.cli.output import Output
from suffice.cli.parameters import Setting
from suffice.cli.recording import RecordOptions
from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.loops import DraftingLoop
from suffice.loops.judges import MARKS, JudgeModel, Panel
from suffice.loops.judges.marks import SCORE
from suffice.policy.embedding import DraftEmbedder
from suffice.policy.rules import parse_rule, parse_selector
from suffice.policy.session import Policy

LIVE_MARKS = tuple(name for name, prompt in MARKS.items() if prompt.subject == "draft")
"""The marks that a live loop may read; the others need the gold answer."""

_MAX_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class PanelOptions(models.Judge):
    """Options of a judge that marks drafts."""

    judge_model: Annotated[
        str | None,
        Option("--judge-model", help="A model that marks drafts, for rules as semantic_full: information_score."),
    ] = None
    marks: Annotated[
        str, Setting("drafts", "marks", help=f"Marks that the judge gives, comma-separated: {', '.join(LIVE_MARKS)}.")
    ] = ",".join(LIVE_MARKS)
    weights: options.MarkWeights = ""

    def panels(self, endpoint: models.Endpoint) -> tuple[Panel, ...]:
        """Return the judge's panel; empty without a judge."""
        if self.judge_model is None:
            return ()
        wanted = options.split_names(self.marks)
        with_gold = [mark for mark in wanted if mark in MARKS and mark not in LIVE_MARKS]
        if with_gold:
            raise DataError(
                f"{with_gold[0]!r} is marked by the gold answer, which no live loop has: leave it out of marks, and mark "
                "the recording with `suffice judge drafts`"
            )
        if len(wanted) < 2:  # noqa: PLR2004
            raise DataError(
                f"{SCORE} is the mean of two marks or more, not of {self.marks!r}: name them with --set marks=..., and give one of "
                "them all the weight with --set weights=MARK=1 if only that counts"
            )
        chat = self.chat(endpoint, extra_body=json_object(endpoint.extra_body))
        asks = JudgeModel(chat, cache=chat.cache, max_tokens=_MAX_TOKENS)
        return (Panel(asks, wanted, weights=parse_weights(self.weights)),)


def require_contexts(panels: tuple[Panel, ...], where: str) -> None:
    """Raise if the judge's marks need contexts but drafts have none, because the marks would be undefined."""
    for panel in panels:
        wanting = [mark for mark, weight in panel.weights.items() if weight and MARKS[mark].with_contexts]
        if wanting:
            raise DataError(
                f"the judge marks {', '.join(wanting)} by contexts, and there are none: {where}, or give what needs none "
                "all the weight (--set weights=answer_relevancy=1)"
            )


_THEN = "suffice draft record DATASET -o drafts.parquet --model M --base-url URL"


@dataclass(frozen=True, kw_only=True)
class Writer(models.Endpoint):
    """Options of the writer and of the embedder of its drafts."""

    panel: ClassVar[str] = "Writer"

    model: Annotated[str, Option("--model", help="The writer's name at its endpoint.")]
    max_tokens: Annotated[int, Setting("endpoint", "max-tokens", min=1, help="Most tokens per draft or critique.")] = (
        512
    )
    api: Annotated[str, Setting("endpoint", "api", help="'chat', or 'completions' (legacy).")] = "chat"
    cache: Annotated[
        Path | None, Setting("endpoint", "cache", help="A response cache (sqlite); the same request is then paid once.")
    ] = None
    embedder: models.EmbedderName = "minilm"
    device: DeviceName = None


@dataclass(frozen=True, kw_only=True)
class Critic:
    """Options of the critic, by default the writer's model."""

    panel: ClassVar[str] = "Critic"

    critic_model: Annotated[
        str | None, Setting("endpoint", "critic-model", help="The critic's name; default: the writer.")
    ] = None
    critic_base_url: Annotated[
        str | None, Setting("endpoint", "critic-base-url", help="The critic's endpoint; default: the writer's.")
    ] = None
    critic_api_key_env: Annotated[
        str | None,
        Setting(
            "endpoint",
            "critic-api-key-env",
            help="The environment variable of the critic's key; default: the writer's.",
        ),
    ] = None


def draft_command(
    question: Annotated[str, Argument(help="The question.")],
    writer: Writer,
    critic: Critic,
    judge: PanelOptions,
    output: Output,
    contexts: Annotated[
        Path | None,
        Option("--contexts", help="Contexts of every draft: a folder of .txt/.md files or a .jsonl file."),
    ] = None,
    policy: Annotated[Path | None, Option("--policy", help="A policy file.")] = None,
    rule: Annotated[str, Option("--rule", help="A rule that needs no fitted state, without a policy.")] = (
        "first_of((critic_approved >= 1), (answer_stable >= 1))"
    ),
    selector: options.SelectorText = "last",
    max_rounds: options.MaxRounds = 6,
) -> None:
    """A writer drafts and a critic reviews, round after round.

    Example: suffice draft answer "What is HTTP?" --model NAME --base-url URL
    """
    if policy is None:
        decides = Policy(rule=parse_rule(rule), selector=parse_selector(selector), max_rounds=max_rounds)
    else:
        decides = options.load_policy(policy)
    panels = judge.panels(writer)
    passages = [] if contexts is None else list(provided("retrieval.read_corpus")(contexts))
    if not passages:
        require_contexts(panels, "give --contexts")
    show_live(drafting_loop(decides, writer, critic, panels), question, passages, output=output, then=_THEN)


def record_drafts_command(
    context: typer.Context,
    dataset: Annotated[
        str,
        Argument(
            help=f"Questions: {datasets.DATASET}, or published scenarios (.json); a question's passages are its contexts."
        ),
    ],
    recorder: RecordOptions,
    cluster: ClusterOptions,
    writer: Writer,
    critic: Critic,
    judge: PanelOptions,
    output: Output,
    max_rounds: options.MaxRounds = 6,
) -> None:
    """All rounds are recorded, so that any rule can be replayed. Run the same command again to resume.

    Example: suffice draft record 2wiki_tune -o d.parquet --model M --base-url URL
    """
    if recorder.record_on(cluster, context, f"drafts of {dataset}", output):
        return
    questions = recorder.questions(dataset)
    panels = judge.panels(writer)
    if not all(question.passages for question in questions):
        require_contexts(panels, "record questions that bring passages")
    loop = drafting_loop(Policy(max_rounds=max_rounds), writer, critic, panels)
    priced_models = {"writer": writer.model, "critic": critic.critic_model or writer.model}
    priced_models |= {panel.name: panel.model.model.model for panel in panels}
    recorder.record(f"drafts of {dataset}", questions, loop, priced_models, output)


def drafting_loop(policy: Policy, writer: Writer, critic: Critic, panels: tuple[Panel, ...]) -> DraftingLoop:
    """Return the loop that the options describe."""
    reviewer = None
    if critic.critic_model is not None or critic.critic_base_url is not None:
        reviewer = writer.other(
            critic.critic_model,
            critic.critic_base_url,
            critic.critic_api_key_env,
            "--set critic-base-url=URL",
            api=writer.api,
            extra_body=json_object(writer.extra_body),
        )
    embedder = models.build_embedder(writer.embedder, writer.device)
    embedding = () if embedder is None else (DraftEmbedder(embedder),)
    return DraftingLoop(
        writer=writer.chat(api=writer.api),
        critic=reviewer,
        policy=policy,
        max_tokens=writer.max_tokens,
        enrichers=(*embedding, *panels),
    )
