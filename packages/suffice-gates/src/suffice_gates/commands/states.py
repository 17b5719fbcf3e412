"""`suffice gate states`: a model's hidden states after it read a question, before its first generated token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import typer

from suffice.cli import datasets, models, options
from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import number, progress_bar
from suffice.cli.local import LocalModel, json_object
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting, from_file
from suffice.common.files import quoted
from suffice.errors import DataError
from suffice.loops.models import EndpointEmbedder
from suffice.loops.models.prompts import prompt as built_in_prompt
from suffice.loops.retrieval import BUNDLED_QUESTIONS, PoolBM25, Question, load_questions
from suffice.policy.rounds import Passage
from suffice.recordings import Recording, is_recording, read_recording
from suffice_gates.models import EncoderStates, EndpointStates
from suffice_gates.models.chain_states import THOUGHTS, ChainStates
from suffice_gates.models.embedding_states import RAW
from suffice_gates.models.states import StateSource
from suffice_gates.probes.chains import collect_chain_states, prompt_of_recording
from suffice_gates.probes.collect import CollectionSummary, StatePrompt, collect_states

_CHUNK = 8
"""Batches in one shard."""


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Options that choose the reader of the questions: a local model, a model at an endpoint, or a sentence encoder."""

    panel: ClassVar[str] = "What reads the questions"

    model: Annotated[
        str | None,
        typer.Option("--model", help="A folder or hub id of a causal language model; at --base-url its name."),
    ] = None
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="An embeddings endpoint that pools by the last token, ends with /v1."),
    ] = None
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", help="Instead of a model: 'minilm' (in the package) or a sentence-transformers id."),
    ] = None
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            help="For a model that runs here: middle (the default), last, or comma-separated numbers; 0 is the "
            "embedding, -1 the last.",
        ),
    ] = None
    template: Annotated[
        str, Setting("gate", "template", help="At an endpoint: its chat template, with {system}, {user} and {prefill}.")
    ] = RAW
    extra_body: Annotated[
        str, Setting("endpoint", "extra-body", help="At an endpoint: more fields of each request, as JSON; no secrets.")
    ] = "{}"
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", help="The environment variable that holds the API key.")
    ] = models.DEFAULT_KEY

    def source(self, local: LocalModel) -> StateSource:
        """Return the source of states that the options choose."""
        if self.encoder is not None:
            return _encoder_states(self.encoder, local.device)
        if self.base_url is None:
            loaded: StateSource = local.load(str(self.model), options.split_names(self.layers or "middle"))
            return loaded
        asked = EndpointEmbedder(
            str(self.model),
            base_url=self.base_url,
            api_key=models.api_key(self.api_key_env),
            batch=local.batch_size,
            extra_body=json_object(self.extra_body),
        )
        return EndpointStates(
            asked, prompt=built_in_prompt(local.instructions), template=self.template.replace("\\n", "\n")
        )

    def check(self, local: LocalModel) -> None:
        """Raise unless exactly one source of states is chosen and every given option applies to that source."""
        if (self.model is None) == (self.encoder is None):
            raise typer.BadParameter(
                "name one of --model (a language model) and --encoder (a sentence encoder)", param_hint="--model"
            )
        is_endpoint, is_encoder = self.base_url is not None, self.encoder is not None
        if self.layers is not None and (is_endpoint or is_encoder):
            gives = (
                "an embeddings endpoint gives the state that leaves the last layer"
                if is_endpoint
                else "an encoder has none"
            )
            raise DataError(
                f"--layers {self.layers!r} chooses among the layers of a model that runs here; {gives}: leave it out"
            )
        if not is_endpoint and json_object(self.extra_body) and not from_file("extra_body"):
            raise DataError(
                f"extra-body {self.extra_body!r} goes to an endpoint, and there is none: give --base-url, too"
            )
        if is_endpoint or is_encoder:
            place = ("device",) if is_encoder else ()
            local.refuse_unused(
                "leave it out, or give --model without --base-url", "batch_size", "instructions", *place
            )


def states_command(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(help=f"A recording (.parquet), or questions: a file, or one of {', '.join(BUNDLED_QUESTIONS)}."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of states, usually NAME.states.")],
    reader: _Reader,
    local: LocalModel,
    cluster: ClusterOptions,
    output: Output,
    prompt: Annotated[
        Literal["qa", "rag", "thoughts"],
        typer.Option("--prompt", help="The question alone, with its passages, or recorded chains at every checkpoint."),
    ] = "qa",
    passages: Annotated[
        int, Setting("gate", "passages", min=1, help="With --prompt rag: passages, in the rounds' order.")
    ] = 3,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", help="With --prompt rag and a recording: the questions with their passages."),
    ] = None,
    limit: options.Limit = None,
    shard: datasets.ShardOption = None,
) -> None:
    """Store a model's states of questions, read before it answers. Run the same command again to resume.

    Example: suffice gate states hotpotqa_tune -o tune.states --encoder minilm
    """
    labels = data if is_recording(data) else "RECORDING"
    then = f"suffice gate train {quoted(out)} --labels {quoted(labels)} -o probe"
    run = cluster.run(context, out, f"reading {data}", shard=shard, quiet=output.as_json)
    if run is not None:
        output.show(*_states_shown(_sum_of([outcome.data for outcome in run[0]], out, run[1].seconds), then))
        return
    reader.check(local)
    if prompt == THOUGHTS:
        output.show(*_states_shown(_of_chains(data, out, reader, local, limit, shard, output), then))
        return
    n_passages = passages if prompt == "rag" else 0
    prompted = _prompted(data, dataset, n_passages, limit)
    with progress_bar(f"reading {data}", quiet=output.as_json) as progress:
        source = reader.source(local)
        collected = collect_states(
            source,
            prompted,
            out,
            chunk=_CHUNK * local.batch_size,
            about={"passages": n_passages},
            on_progress=progress,
            shard=shard,
        )
    output.show(*_states_shown(_as_json(collected, source, prompt), then if shard is None else ""))


def _of_chains(
    data: str, out: Path, reader: _Reader, local: LocalModel, limit: int | None, shard: Any, output: Output
) -> dict[str, Any]:
    """Read the states of a recording's chains; return a JSON-ready summary."""
    if not is_recording(data):
        raise DataError(f"--prompt thoughts reads recorded chains of thought, and {data!r} is not a recording")
    if reader.model is None or reader.base_url is not None or shard is not None:
        raise DataError(
            "--prompt thoughts reads the model that thought, here and in one process: give --model, without --base-url and --shard"
        )
    recording = read_recording(data)
    if limit is not None:
        recording = recording.select(np.arange(len(recording.question_ids)) < limit)
    with progress_bar(f"reading {data}", quiet=output.as_json) as progress:
        model: Any = reader.source(local)
        source = ChainStates(model, prompt_of_recording(recording))
        collected = collect_chain_states(source, recording, out, on_progress=progress)
    return _as_json(collected, source, THOUGHTS)


def _encoder_states(name: str, device: str | None) -> EncoderStates:
    embedder = models.build_embedder(name, device)
    if embedder is None:
        raise DataError("--encoder none reads nothing: name 'minilm' or a sentence-transformers id")
    return EncoderStates(embedder)


def _prompted(data: str, dataset: str | None, n_passages: int, limit: int | None) -> list[StatePrompt]:
    """Return the prompts to read, from a recording or from questions."""
    if is_recording(data):
        return _prompts_of(read_recording(data), dataset, n_passages)[:limit]
    return [_of_question(question, n_passages) for question in load_questions(data, limit=limit)]


def _of_question(question: Question, n_passages: int) -> StatePrompt:
    """Return a question's prompt with its `n_passages` best passages by BM25; 0 for no passages."""
    if not n_passages:
        return StatePrompt(id=question.question_id, question=question.question)
    if not question.passages:
        raise DataError(f"question {question.question_id!r} has no passages of its own: --prompt rag needs them")
    ranked = PoolBM25().rank(question.question, pool=question.passages, k=n_passages)
    return StatePrompt(id=question.question_id, question=question.question, passages=tuple(ranked))


def _prompts_of(recording: Recording, dataset: str | None, n_passages: int) -> list[StatePrompt]:
    """Return the prompts of a recording's questions, each with the first `n_passages` passages of the rounds."""
    if "question" not in recording.table.column_names:
        raise DataError("the recording contains ids of questions, not their words: give the questions themselves")
    texts = recording.per_question("question", ())
    blank = [name for name, text in zip(recording.question_ids, texts, strict=True) if not text]
    if blank:
        raise DataError(f"the recording has no words of question {blank[0]!r}: give the questions themselves")
    read: list[tuple[Passage, ...]] = [()] * len(texts)
    if n_passages:
        known = _passages_of(dataset)
        revealed = recording.objects("passage_ids")
        read = [_passages_shown(ids, n_passages, known) for ids in revealed]
    return [
        StatePrompt(id=name, question=str(text), passages=passages)
        for name, text, passages in zip(recording.question_ids, texts, read, strict=True)
    ]


def _passages_of(dataset: str | None) -> dict[str, Passage]:
    if dataset is None:
        raise DataError("recordings contain ids of passages, not their texts: with --prompt rag give --dataset, too")
    return {passage.passage_id: passage for question in load_questions(dataset) for passage in question.passages}


def _passages_shown(rounds: Sequence[Sequence[str] | None], n: int, known: dict[str, Passage]) -> tuple[Passage, ...]:
    """Return the first `n` passages that a question's rounds revealed."""
    most: Sequence[str] = max((ids or () for ids in rounds), key=len)
    missing = [name for name in most[:n] if name not in known]
    if missing:
        raise DataError(f"--dataset has no passage {missing[0]!r}: give the questions that were recorded")
    return tuple(known[name] for name in most[:n])


def _as_json(collected: CollectionSummary, source: StateSource, prompt: str) -> dict[str, Any]:
    """Return the summary of a run, JSON-ready."""
    return {
        "path": str(collected.path),
        "model": source.id,
        "revision": source.revision,
        "layers": list(source.layers),
        "prompt": prompt,
        "stored": collected.stored,
        "read": collected.read,
        "undefined": collected.undefined,
        "clipped": collected.clipped,
        "batch_size": getattr(source, "batch_size", None),
        "seconds": collected.seconds,
    }


def _sum_of(every: Sequence[Mapping[str, Any]], out: Path, seconds: float) -> dict[str, Any]:
    """Add up the summaries of all shards."""
    sums = {name: sum(data[name] for data in every) for name in ("stored", "read", "undefined", "clipped")}
    return {**every[0], **sums, "path": str(out), "seconds": seconds}


def _states_shown(data: dict[str, Any], then: str) -> tuple[dict[str, Any], Screen]:
    """Return the summary as JSON-ready values and as a screen."""
    layers = f"layers {', '.join(map(str, data['layers']))}" if data["layers"] else "one vector"
    sentence = (
        f"{data['path']}: {data['stored']} states of {data['model']} ({data['revision']}), {layers}, prompt {data['prompt']}; this "
        f"run: {data['read']} prompts, {number(data['seconds'], 1)} s"
    )
    notes = []
    if data["undefined"]:
        notes.append(f"{data['undefined']} states are undefined (NaN): a probe gives NaN for them")
    if data["clipped"]:
        notes.append(f"{data['clipped']} numbers were too large for float16 and became its largest number")
    return data, Screen(sentences=[sentence], notes=notes, then=then)
