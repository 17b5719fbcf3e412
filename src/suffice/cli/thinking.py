"""`suffice think`: run chains of thought with trial answers, live or recorded, or ask for trial answers along the chains of a log."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer
from typer import Argument, Option

from suffice.cli import datasets, models, options
from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import number, warn
from suffice.cli.gating import note_fitted
from suffice.cli.live import show_live
from suffice.cli.local import DeviceName, hub_name
from suffice.cli.output import Output
from suffice.cli.parameters import Setting
from suffice.cli.recording import RecordOptions
from suffice.common.provided import provided
from suffice.common.tables import counted
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay import Price, component_prices
from suffice.importers.shapes.chains import read_chains
from suffice.loops import ThinkingLoop
from suffice.loops.asked_chains import AskingPrice, RecordedChainLoop, chain_questions
from suffice.loops.boundaries import TOKENS
from suffice.loops.thinking_loop import THINKING_PROMPTS, ThinkingPrompt
from suffice.policy.embedding import DraftEmbedder
from suffice.policy.rules import parse_rule, parse_selector
from suffice.policy.session import Policy
from suffice.policy.signals import TRIAL, AnswerPosition, Enricher

_THEN = "suffice think record DATASET -o t.parquet --model M --base-url URL"


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Options of the signals that are measured on the chain itself."""

    panel: ClassVar[str] = "Signals"

    embedder: models.EmbedderName = "none"
    probe: Annotated[
        Path | None,
        Option("--probe", help="A probe on the states of chains (`suffice gate train`): it measures p_settled."),
    ] = None
    gate_model: Annotated[
        str | None,
        Setting(
            "gate",
            "gate-model",
            help="The model whose states the probe reads here (folder or hub id); default: as named in it.",
        ),
    ] = None
    device: DeviceName = None

    def enrichers(self, prompt: ThinkingPrompt) -> tuple[Enricher, ...]:
        """Return the enrichers that measure chains written in this prompt template."""
        embedder = models.build_embedder(self.embedder, self.device)
        listed: list[Enricher] = [] if embedder is None else [DraftEmbedder(embedder)]
        if self.probe is None:
            if self.gate_model is not None:
                raise DataError("gate-model is the model whose states a probe reads: give --probe, too")
            return tuple(listed)
        probe = provided("gates.Probe").load(self.probe)
        name, revision = hub_name(self.gate_model or probe.card.model)
        model = provided("gates.TransformersModel")(
            name, revision=revision, layers=(probe.card.layer,), device=self.device
        )
        return (*listed, provided("gates.SettledProbe")(probe, provided("gates.ChainStates")(model, prompt)))


@dataclass(frozen=True, kw_only=True)
class Thinker(models.Endpoint):
    """Options of the thinking model and of its checkpoints."""

    panel: ClassVar[str] = "Model"

    template: Annotated[
        str,
        Setting("thinking", "template", help=f"The model's template: {' or '.join(THINKING_PROMPTS)}."),
    ] = "chatml"
    every: Annotated[int, Setting("thinking", "every", min=1, help="Tokens between checkpoints, or looks for one.")] = (
        256
    )
    boundary: Annotated[
        str,
        Setting(
            "thinking",
            "boundary",
            help="Checkpoints: tokens, paragraph, words (wait, hmm, alternatively), or your own words: wait,but.",
        ),
    ] = TOKENS
    trial_tokens: Annotated[int, Setting("thinking", "trial-tokens", min=1, help="Most tokens of a trial answer.")] = 32
    token_ids: Annotated[
        bool,
        Setting(
            "thinking", "token-ids", help="Continue chains from token ids where the server takes and returns them."
        ),
    ] = True
    max_tokens: Annotated[
        int, Setting("endpoint", "max-tokens", min=1, help="Most tokens of the model's own answer.")
    ] = 256
    temperature: Annotated[
        float, Setting("thinking", "temperature", min=0.0, help="Temperature of the chain; trial answers have 0.")
    ] = 0.0
    cache: Annotated[
        Path | None, Setting("endpoint", "cache", help="A response cache (sqlite); the same request is then paid once.")
    ] = None

    def loop(self, policy: Policy, measures: Measures = Measures()) -> ThinkingLoop:
        """Return the loop that these options describe."""
        settings = self.settings(policy)
        return ThinkingLoop(**settings, enrichers=measures.enrichers(settings["prompt"]))

    def settings(self, policy: Policy) -> dict[str, Any]:
        """Return the arguments of a thinking loop."""
        if self.template not in THINKING_PROMPTS:
            raise NotFoundError(
                f"there is no template {self.template!r} of a chain of thought; allowed: {', '.join(THINKING_PROMPTS)}; "
                "another one is a ThinkingPrompt in Python: ThinkingLoop(prompt=...)"
            )
        return {
            "model": self.chat(api="completions", temperature=self.temperature),
            "policy": policy,
            "prompt": THINKING_PROMPTS[self.template],
            "every": self.every,
            "boundary": self.boundary,
            "trial_tokens": self.trial_tokens,
            "answer_tokens": self.max_tokens,
            "token_ids": self.token_ids,
        }


def think_command(
    question: Annotated[str, Argument(help="The question.")],
    thinker: Thinker,
    measures: Measures,
    output: Output,
    policy: Annotated[Path | None, Option("--policy", help="A policy file.")] = None,
    rule: Annotated[str, Option("--rule", help="A rule that needs no fitted state, without a policy.")] = "dynasor",
    selector: options.SelectorText = "last",
    max_rounds: options.MaxRounds = 32,
    overlap: Annotated[
        bool,
        Option(
            "--overlap", help="Let the chain go on while trial answers are asked beside it: sooner, for more tokens."
        ),
    ] = False,
) -> None:
    """The model thinks, and stops where the rule says so. The server must continue raw text, and should cache prefixes.

    Example: suffice think answer "What is 6 times 7?" --model NAME --base-url URL
    """
    if policy is None:
        decides = Policy(rule=parse_rule(rule), selector=parse_selector(selector), max_rounds=max_rounds)
    else:
        decides = options.load_policy(policy)
    show_live(replace(thinker.loop(decides, measures), overlap=overlap), question, [], output=output, then=_THEN)


def record_thoughts_command(
    context: typer.Context,
    dataset: Annotated[str, Argument(help=f"Questions: {datasets.DATASET}. Their passages are left out.")],
    recorder: RecordOptions,
    cluster: ClusterOptions,
    thinker: Thinker,
    measures: Measures,
    output: Output,
    max_rounds: options.MaxRounds = 32,
) -> None:
    """Every checkpoint is recorded with its trial answer, so that any rule can be replayed. Run it again to resume.

    Example: suffice think record q.jsonl -o t.parquet --model M --base-url URL
    """
    if recorder.record_on(cluster, context, f"chains of thought on {dataset}", output):
        return
    questions = recorder.questions(dataset, lambda item: replace(item, passages=()))
    loop = thinker.loop(Policy(max_rounds=max_rounds), measures)
    priced = {"generator": thinker.model, TRIAL: thinker.model}
    recorder.record(f"chains of thought on {dataset}", questions, loop, priced, output)
    note_fitted(loop.fitted, questions)


def ask_command(
    log: Annotated[Path, Argument(help="A log of finished chains of thought: a table, JSON lines, or traces.")],
    recorder: RecordOptions,
    thinker: Thinker,
    measures: Measures,
    output: Output,
    golds: Annotated[
        Path | None, Option("--golds", help="Questions with gold answers, joined by id or by the question's text.")
    ] = None,
    answer_position: Annotated[
        str | None,
        Option("--answer-position", help=f"The place of the answer in the replies of the log: {models.PLACES}."),
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Pay the printed price without asking.")] = False,
    max_rounds: options.MaxRounds = 32,
) -> None:
    """The price is printed before anything is paid. Run it again to resume.

    Example: suffice think ask log.jsonl -o t.parquet --model M --base-url URL
    """
    if recorder.split is not None:
        raise typer.BadParameter("a log of chains is not split: leave it out", param_hint="--split")
    chains, notes = read_chains(log, golds)
    questions = chain_questions(chains[: recorder.limit])
    position = models.answer_position(answer_position) or AnswerPosition()
    notes += _unread_notes([chain.reply for chain in chains], position)
    settings = thinker.settings(Policy(max_rounds=max_rounds, answer_position=position))
    loop = RecordedChainLoop(**settings, enrichers=measures.enrichers(settings["prompt"]))
    priced = {"generator": thinker.model, TRIAL: thinker.model}
    prices = None if recorder.prices is None else component_prices(recorder.prices, priced)
    for note in (*notes, *_price_notes(loop.price(questions), None if prices is None else prices[TRIAL])):
        warn(f"note: {note}")
    _agreed(yes=yes)
    recorder.record(f"trial answers on {log}", questions, loop, priced, output)


def _unread_notes(replies: Sequence[str | None], position: AnswerPosition) -> list[str]:
    """Return a note on the replies of a log that have no answer at this position."""
    whole = [reply for reply in replies if reply is not None]
    unread = sum(position.locate(reply, None).answer is None for reply in whole)
    if not unread:
        return []
    where = f"after {position.text!r}" if position.kind == "marker" else f"at {position.kind}"
    said = f"{unread} of {counted(len(whole), 'reply', 'replies')} in the log have no answer {where}, and count as unanswered"
    return [f"{said}: --answer-position whole takes the whole reply, and others are in its help"]


def _price_notes(price: AskingPrice, of_tokens: Price | None) -> list[str]:
    """Return the price of asking in words, without and with a prefix cache."""
    cached = price.prompt_tokens - price.new_tokens
    usd = ["", ""]
    if of_tokens is not None:
        for place, tokens in enumerate(((price.prompt_tokens, 0.0), (price.new_tokens, cached))):
            uncached, reused, generated = (np.array(value) for value in (*tokens, price.output_tokens))
            usd[place] = f", ${number(float(of_tokens.of(uncached, reused, generated)), 4)}"
    return [
        (
            f"{counted(price.trials, 'trial answer')} along {counted(price.chains, 'chain')} are {counted(price.requests, 'request')}: "
            f"about {price.prompt_tokens:,.0f} prompt tokens, at most {price.output_tokens:,.0f} generated ones{usd[0]}"
        ),
        (
            f"a server that caches prefixes reads about {price.new_tokens:,.0f} of these prompt tokens{usd[1]}; without a cache each "
            "trial reads its whole chain again, so the price grows with the square of the length"
        ),
        "what an earlier run of this command was answered is not asked again",
    ]


def _agreed(*, yes: bool) -> None:
    """Ask the user to pay, or raise if there is nobody to ask."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise DataError("nothing was asked, because nobody agreed to this price: give --yes to pay it")
    if not typer.confirm("Ask these trial answers?", default=False, err=True):
        raise typer.Exit(1)
