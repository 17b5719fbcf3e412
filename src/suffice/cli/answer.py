"""`suffice answer`: one question, live, with its rounds, the reason and the cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Option

from suffice.cli import datasets, models, options
from suffice.cli.gating import GateOptions, require_used
from suffice.cli.live import show_live
from suffice.cli.local import LocalRun
from suffice.cli.output import Output
from suffice.cli.parameters import from_file
from suffice.cli.querying import LoopOptions
from suffice.common.files import quoted
from suffice.common.provided import provided
from suffice.policy.rules import parse_rule, parse_selector
from suffice.policy.session import Policy
from suffice.policy.signals import LOGPROB_NEEDS


@dataclass(frozen=True, kw_only=True)
class _Searched(datasets.Retrieval):
    """Options for the corpus to search, which is required."""

    corpus: Annotated[
        str,
        Option(
            "--corpus",
            help="An index of `suffice index`; a folder of .txt/.md files or a .jsonl file; a store "
            "(postgres://HOST/DB?table=NAME, qdrant://, lancedb://, opensearch://, elasticsearch://); or MODULE:FUNCTION.",
        ),
    ] = field()


def answer(
    question: Annotated[str, Argument(help="The question.")],
    retrieval: _Searched,
    looping: LoopOptions,
    answering: models.Answering,
    signals: models.Signals,
    gate: GateOptions,
    local: LocalRun,
    output: Output,
    policy: Annotated[Path | None, Option("--policy", help="A policy file, as `suffice calibrate` writes it.")] = None,
    rule: Annotated[str, Option("--rule", help="A rule that needs no fitted state, without a policy.")] = (
        "answer_stable_guarded"
    ),
    selector: options.SelectorText = "last",
    max_rounds: options.MaxRounds = 5,
) -> None:
    """The rounds, the reason for stopping and the cost are shown.

    Example: suffice answer "Where is the tower?" --corpus documents
    """
    if policy is None:
        decides = Policy(
            rule=parse_rule(rule),
            selector=parse_selector(selector),
            start_round=1 if gate.gate is None else 0,
            max_rounds=max_rounds,
        )
    elif answering.answer_position is not None and not from_file("answer_position"):
        raise BadParameter("the policy says where a reply holds its answer", param_hint="answer-position")
    else:
        decides = options.load_policy(policy)
    require_used(local, answering, gate, retrieval, signals)
    answerer = answering.answerer(
        local,
        logprobs=answering.logprobs and bool(LOGPROB_NEEDS & (decides.needs | looping.needs)),
        position=None if policy is None else decides.answer_position,
        layer=gate.layer,
    )
    if policy is None:  # a prefilled prompt has another answer position than the policy's default
        decides = replace(decides, answer_position=getattr(answerer, "position", decides.answer_position))
    loop = looping.build(
        answerer,
        gate.build(answerer, answering, local),
        retriever=retrieval.retriever(local.device, answering.cache),
        policy=decides,
        enrichers=(*signals.enrichers(answering, local.device), *signals.own(answerer)),
    )
    shown = provided("retrieval.shown_corpus")(retrieval.corpus)
    dense = "" if retrieval.dense is None else f" --dense {quoted(retrieval.dense)}"
    show_live(
        loop,
        question,
        output=output,
        then=f"suffice record DATASET -o run.parquet --corpus {quoted(shown)}{dense}",
    )
