"""Options of a gated round 0, and what they build: a local model, and a probe in front of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice.cli import options
from suffice.cli.console import quiet_bars, warn
from suffice.embedding import MiniLM
from suffice.errors import DataError
from suffice.llm import PROMPTS, Answerer, EncoderStates, EndpointEmbedder, EndpointStates, TransformersModel
from suffice.llm.states import StateSource
from suffice.probes import Probe, ProbeGate
from suffice.retrieval import Question
from suffice.seen import Seen

__all__ = [
    "GateBaseUrl",
    "GateFolder",
    "GateModel",
    "Local",
    "build_answerer",
    "build_gate",
    "load_probe",
    "tell_fitted",
]

Local = Annotated[
    bool,
    typer.Option("--local", help="--model is a folder or hub id of a causal language model, and runs here (torch)."),
]
GateFolder = Annotated[
    Path | None, typer.Option("--gate", help="A probe, as `suffice gate train` writes it: it decides at round 0.")
]
GateModel = Annotated[
    str | None,
    typer.Option(
        "--gate-model",
        help="What reads the question for the gate (folder, hub id, or a name at --gate-base-url); default: with "
        "--local the answering model, and for an encoder the one that the probe names.",
    ),
]
GateBaseUrl = Annotated[
    str | None, typer.Option("--gate-base-url", help="The embeddings endpoint whose states the probe reads.")
]


def load_probe(folder: Path | None) -> Probe | None:
    """Return the probe of `--gate`, if there is one."""
    return None if folder is None else Probe.load(folder)


def build_answerer(local: bool, probe: Probe | None, name: str, base_url: str | None, **settings: Any) -> Answerer:
    """Return the model that answers: a local one, or whatever `options.build_model` finds.

    Args:
        local: Whether it runs here.
        probe: The gate's probe; a local model then reads the layer that it wants, too.
        name: `--model`.
        base_url: Its endpoint.
        **settings: As for `options.build_model`.

    Raises:
        DataError: The options contradict each other.
    """
    if not local:
        return options.build_model(name, base_url, **settings)
    if base_url is not None:
        raise DataError(f"--local runs {name!r} here, and --base-url {base_url!r} is an endpoint: give one of them")
    layer = None if probe is None else probe.card.layer
    quiet_bars()
    return TransformersModel(
        name,
        layers=("middle",) if layer is None else (layer,),
        prompt=options.known_prompt(settings["prompt"]),
        position=settings.get("position"),
        max_tokens=settings["max_tokens"],
        top_logprobs=5 if settings["logprobs"] else 1,
        chat_template_kwargs=options.template_options(settings["extra_body"]),
    )


def build_gate(
    probe: Probe | None, answerer: Answerer, model: str | None, base_url: str | None, *, prompt: str, key_variable: str
) -> ProbeGate | None:
    """Return the gate that the options describe, if there is a probe.

    Args:
        probe: From `--gate`.
        answerer: The model that answers; where the probe belongs to it, one pass serves both.
        model: `--gate-model`.
        base_url: `--gate-base-url`.
        prompt: The name of the prompt.
        key_variable: The environment variable of the endpoint's key.

    Raises:
        DataError: Nothing reads the questions.
        ConfigMismatchError: The probe belongs to another model, layer or prompt.
    """
    if probe is None:
        if model is not None or base_url is not None:
            raise DataError("--gate-model and --gate-base-url say what reads questions for a probe: give --gate, too")
        return None
    return ProbeGate(probe, _source(probe, answerer, model, base_url, prompt, key_variable))


def _source(
    probe: Probe, answerer: Answerer, model: str | None, base_url: str | None, prompt: str, key_variable: str
) -> StateSource:
    """Return what reads the states that the probe was fitted on."""
    card = probe.card
    kind = card.pinned.get("kind")
    if kind == "encoder states":
        name = model or card.model
        packaged = MiniLM()
        embedder = packaged if name in ("minilm", packaged.id) else options.build_embedder(name)
        if embedder is None:
            raise DataError("--gate-model none reads nothing: name the encoder that the probe was fitted on")
        return EncoderStates(embedder)
    if kind == "endpoint states":
        if base_url is None:
            raise DataError("the probe reads states from an embeddings endpoint: give --gate-base-url")
        at_endpoint = EndpointEmbedder(
            model or card.model,
            base_url=base_url,
            api_key=options.api_key(key_variable),
            extra_body=card.pinned.get("extra_body"),  # what the probe's states were asked for with
        )
        return EndpointStates(at_endpoint, prompt=PROMPTS[prompt], template=str(card.pinned.get("template")))
    if model is None:
        if isinstance(answerer, TransformersModel):
            return answerer
        raise DataError(
            f"the probe reads hidden states of {card.model!r}: answer with it (--local --model PATH), or give its folder "
            "or hub id as --gate-model"
        )
    return TransformersModel(model, layers=(card.layer or 0,), prompt=PROMPTS[prompt])


def tell_fitted(fitted: Mapping[str, Seen | None], questions: Sequence[Question]) -> None:
    """Say on standard error which models were fitted on some of these questions, by id or text.

    Args:
        fitted: What each model saw, by component; None where that is not on record.
        questions: The questions that are asked.
    """
    ids, texts = [item.question_id for item in questions], [item.question for item in questions]
    for name, seen in fitted.items():
        if seen is None:
            said = f"it is not on record which questions the {name} was fitted on"
        elif n := int(seen.among(ids, texts).sum()):
            said = f"the {name} was fitted on {n} of these {len(ids)} questions"
        else:
            continue
        warn(f"note: {said}: what it says of those is too good. Replay and certify on others")
