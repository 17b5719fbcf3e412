"""Options for a gate at round 0: a probe or a classifier of questions, before the model that answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from typer import Option

from suffice.cli import datasets, models
from suffice.cli.console import warn
from suffice.cli.local import LocalRun
from suffice.cli.parameters import Setting
from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.loops.models import Answerer, EndpointEmbedder, Gate
from suffice.loops.models.prompts import prompt as built_in_prompt
from suffice.loops.models.protocols import has_attentions
from suffice.loops.retrieval import Question
from suffice.policy.embedding import Embedder
from suffice.policy.seen import Seen

SELF_RAG_GATE = Path("self-rag")
"""The name of the gate that is not a file: Self-RAG's reflection tokens."""


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """Options of the gate, which decides at round 0, and of the gate's model, which reads the questions."""

    panel: ClassVar[str] = "Gate"

    gate: Annotated[
        Path | None,
        Option(
            "--gate",
            help="A gate of `suffice gate train` or `suffice gate classify`; it decides at round 0. 'self-rag' with --local: the "
            "reflection tokens of a model that was trained with them.",
        ),
    ] = None
    gate_model: Annotated[
        str | None,
        Setting(
            "gate",
            "gate-model",
            help="The model that reads the question for the gate (folder, hub id, or a name at gate-base-url); default: with "
            "--local the answering model, and for an encoder the one that the probe names.",
        ),
    ] = None
    gate_base_url: Annotated[
        str | None, Setting("gate", "gate-base-url", help="The embeddings endpoint whose states the probe reads.")
    ] = None

    @cached_property
    def probe(self) -> Any:
        """The probe, if the gate is a probe; else None."""
        return (
            None
            if self.gate is None or self.reflects or self._is_classifier
            else provided("gates.Probe").load(self.gate)
        )

    @property
    def reflects(self) -> bool:
        """True if the gate decides by reflection tokens of the answering model."""
        return self.gate == SELF_RAG_GATE

    @cached_property
    def _is_classifier(self) -> bool:
        return bool(provided("gates.is_complexity_gate")(self.gate or Path()))

    @property
    def reads_with(self) -> str | None:
        """The name of the gate's model that reads the question, to look up this model's price; None without a gate."""
        if self.gate is not None and self._is_classifier:
            return str(provided("gates.read_complexity_card")(self.gate)["encoder"]["id"])
        return None if self.probe is None else self.probe.card.model

    @property
    def layer(self) -> int | None:
        """The layer of the local model whose hidden states the probe reads."""
        return None if self.probe is None else self.probe.card.layer

    @property
    def opens_model(self) -> bool:
        """True if the gate needs a language model of its own on this machine."""
        kinds = ("encoder states", "endpoint states")
        reads_states = self.probe is None or self.probe.card.pinned.get("kind") not in kinds
        return self.gate_model is not None and not self._is_classifier and reads_states

    def build(self, answerer: Answerer, answering: models.Examined, run: LocalRun) -> Gate | None:
        """Build the gate; return None if the options declare no gate. `run` has the options of the gate's own local model."""
        if self.reflects:
            return self._reflection(answerer)
        if self.gate is not None and self._is_classifier:
            if self.gate_base_url is not None:
                raise DataError("a classifier of questions reads them with a sentence encoder: leave out gate-base-url")
            return provided("gates.ComplexityGate").load(
                self.gate, encoder_of(self.gate_model or str(self.reads_with), run.device)
            )
        if self.probe is not None:
            return provided("gates.ProbeGate")(self.probe, self._source(self.probe, answerer, answering, run))
        if self.gate_model is not None or self.gate_base_url is not None:
            raise DataError("gate-model and gate-base-url say what reads questions for a gate: give --gate, too")
        return None

    def _reflection(self, answerer: Answerer) -> Gate:
        """Return the gate that reads the answering model's reflection tokens."""
        if self.gate_model is not None or self.gate_base_url is not None:
            raise DataError("--gate self-rag reads the answering model itself: leave out gate-model and gate-base-url")
        if not has_attentions(answerer):
            raise DataError("--gate self-rag reads tokens of a model that runs here: answer with --local")
        return provided("gates.ReflectionGate")(answerer)

    def _source(self, probe: Any, answerer: Answerer, answering: models.Examined, run: LocalRun) -> Any:
        """Return the model whose hidden states the probe was fitted on."""
        card, model, prompt = probe.card, self.gate_model, built_in_prompt(answering.prompt)
        kind = card.pinned.get("kind")
        if kind == "encoder states":
            return provided("gates.EncoderStates")(encoder_of(model or card.model, run.device))
        if kind == "endpoint states":
            if self.gate_base_url is None:
                raise DataError("the probe reads states from an embeddings endpoint: give --set gate-base-url=URL")
            at_endpoint = EndpointEmbedder(
                model or card.model,
                base_url=self.gate_base_url,
                api_key=models.api_key(answering.api_key_env),
                extra_body=card.pinned.get(
                    "extra_body"
                ),  # as in the requests for the states that the probe was fitted on
                limits=answering.limits,
            )
            return provided("gates.EndpointStates")(
                at_endpoint, prompt=prompt, template=str(card.pinned.get("template"))
            )
        if model is not None:
            is_main = not has_attentions(answerer)
            return run.open(model, prompt, layers=(card.layer or 0,), is_main=is_main)
        if has_attentions(answerer):
            return answerer
        raise DataError(
            f"the probe reads hidden states of {card.model!r}: answer with it (--local --model PATH), or give its folder "
            "or hub id as --set gate-model=..."
        )


def require_used(
    run: LocalRun,
    answering: models.Answering,
    gate: GateOptions,
    retrieval: datasets.Retrieval,
    signals: models.Signals,
) -> None:
    """Raise if options for local models are given but no model runs on this machine; call this before loading models."""
    if answering.local or gate.opens_model:
        return
    placed = retrieval.runs_models or signals.rerank_signal is not None or gate.gate is not None
    run.refuse_unused("give --local, or leave it out", *(("device",) if placed else ()))


def encoder_of(name: str, device: str | None = None) -> Embedder:
    """Return the sentence encoder that a gate uses to read questions."""
    packaged = provided("reader.MiniLM")()
    embedder = packaged if name in ("minilm", packaged.id) else models.build_embedder(name, device)
    if embedder is None:
        raise DataError("the gate needs an encoder, not 'none': name the one that it was fitted on")
    return embedder


def note_fitted(fitted: Mapping[str, Seen | None], questions: Sequence[Question]) -> None:
    """Warn on standard error about each fitted part, such as a gate, that was fitted on some of `questions`.

    Also warn about parts whose fitted questions are unknown. Questions are compared by id or text.
    """
    ids, texts = [item.question_id for item in questions], [item.question for item in questions]
    for name, seen in fitted.items():
        if seen is None:
            note = f"the questions that the {name} was fitted on are unknown"
        elif n := int(seen.among(ids, texts).sum()):
            note = f"the {name} was fitted on {n} of these {len(ids)} questions"
        else:
            continue
        warn(f"note: {note}: what it says of those is too good. Replay and certify on others")
