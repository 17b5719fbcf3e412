"""List the models, endpoints and packages that a cell loads, and check them without loading any."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from suffice.cli.models import api_key
from suffice.errors import DataError, MissingExtraError, SufficeError
from suffice_papers.experiments.choices import DraftOptions
from suffice_papers.experiments.hub import find_model
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_retrieval.stores import is_store_address

_PATIENCE_S = 5.0
_PORTS = {"http": 80, "https": 443}
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")
_PACKAGED = ("minilm", "none")
"""Names of encoders that are not at the hub."""

_OF_ENDPOINT = "endpoint:"
"""The prefix of encoders at an endpoint."""

_LANGUAGE, _ENCODER, TRAINED = "language", "encoder", "trained"
"""Kinds of models."""

_LIBRARIES = {
    _LANGUAGE: (("torch", "transformers"), ("a local language model", "torch", "suffice-gates")),
    _ENCODER: (("sentence_transformers",), ("a sentence-transformers model", "dense")),
    TRAINED: (
        ("torch", "accelerate", "datasets", "sentence_transformers"),
        ("training a reranker", "torch", "suffice-gates"),
    ),
}
"""Packages that each kind of model needs, and the arguments of the error if one is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """A model that a cell loads on this machine.

    Attributes:
        where: The key in the experiment's file that names the model, for messages.
        name: Its folder, `ID` or `ID@REVISION`.
        kind: Its kind, a key of `_LIBRARIES`.
        revision: Its revision, if a separate key contains the revision.
        dtype: Number type of its weights in memory; `auto` for the stored type.
        device: Torch device; None for the first GPU, or for the processor if there is no GPU.
        stage: The part of the run in which it is in memory.
    """

    where: str
    name: str
    kind: str
    revision: str | None = None
    dtype: str = "auto"
    device: str | None = None
    stage: str = "recording"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPart:
    """An endpoint that a cell sends requests to; the address is None for OpenAI's endpoint."""

    where: str
    url: str | None
    key_variable: str
    remedy: str = "base-url"


def model_parts(cell: Cell, experiment: Experiment) -> Iterator[ModelPart]:
    """Yield the models that a cell loads on this machine."""
    choice, options, rival = cell.model, cell.model.options, cell.rival
    device = getattr(options, "device", None)
    if not choice.scripted and options.local:
        yield ModelPart(
            where=f"model {choice.name!r}",
            name=options.model,
            kind=_LANGUAGE,
            revision=options.revision,
            dtype=options.dtype,
            device=device,
        )
    if isinstance(options, DraftOptions):
        yield ModelPart(where=f"model {choice.name!r}: embedder", name=options.embedder, kind=_ENCODER, device=device)
        return
    if experiment.protocol == "cbdr":
        chosen = experiment.cbdr
        yield ModelPart(where="cbdr: cross-encoder", name=chosen.cross_encoder, kind=TRAINED, stage="training")
        for other in chosen.others:
            yield ModelPart(where="cbdr: others", name=other, kind=_ENCODER, stage=f"comparing {other}")
        return
    retrieval, where = cell.retriever.options, f"retriever {cell.retriever.name!r}"
    for key, name, dtype in (
        ("dense", retrieval.dense, retrieval.dense_dtype),
        ("question-encoder", retrieval.question_encoder, retrieval.dense_dtype),
        ("reranker", retrieval.reranker, "auto"),
    ):
        if name is not None:
            yield ModelPart(where=f"{where}: {key}", name=name, kind=_ENCODER, dtype=dtype, device=device)
    if rival is None and experiment.signals.rerank_signal is not None:
        yield ModelPart(
            where="signals: rerank-signal", name=experiment.signals.rerank_signal, kind=_ENCODER, device=device
        )
    if rival is not None and rival.gating.gate_model is not None and rival.gating.gate_base_url is None:
        gate = rival.gating.gate
        is_here = gate is not None and gate.exists()  # a gate that does not exist is reported elsewhere
        kind = _LANGUAGE if is_here and rival.gating.opens_model else _ENCODER
        where = f"rival {rival.name!r}: gate-model"
        yield ModelPart(where=where, name=rival.gating.gate_model, kind=kind, device=device)


def endpoint_parts(cell: Cell, experiment: Experiment) -> Iterator[EndpointPart]:
    """Yield the endpoints that a cell sends requests to."""
    choice, options, rival = cell.model, cell.model.options, cell.rival
    key = getattr(options, "api_key_env", "OPENAI_API_KEY")
    here = getattr(options, "base_url", None)
    if choice.is_remote:
        yield EndpointPart(where=f"model {choice.name!r}", url=here, key_variable=key)
    listed: list[tuple[str, str, str | None, str | None]] = []
    judge = options.judge if isinstance(options, DraftOptions) else experiment.signals
    if judge.judge_model is not None and rival is None:
        name = f"judge {judge.judge_model!r}"
        listed.append((name, "judge-base-url", judge.judge_base_url, judge.judge_api_key_env))
    if isinstance(options, DraftOptions) and (options.critic_model or options.critic_base_url):
        name = f"critic {options.critic_model or options.model!r}"
        listed.append((name, "critic-base-url", options.critic_base_url, options.critic_api_key_env))
    if rival is not None and rival.gating.gate_base_url is not None:
        listed.append((f"rival {rival.name!r}: gate", "gate-base-url", rival.gating.gate_base_url, None))
    if (cell.retriever.options.dense or "").startswith(_OF_ENDPOINT):
        listed.append((f"retriever {cell.retriever.name!r}: dense", "OPENAI_BASE_URL", None, None))
    for where, remedy, url, own_key in listed:
        yield EndpointPart(where=where, url=url or here, key_variable=own_key or key, remedy=remedy)


def part_problems(cell: Cell, experiment: Experiment) -> Iterator[str]:
    """Yield the reasons why a part of a cell cannot be loaded or reached; no request is sent to a model."""
    for endpoint in endpoint_parts(cell, experiment):
        yield from _endpoint_problems(endpoint)
    corpus = cell.retriever.options.corpus
    if corpus is not None and is_store_address(corpus):
        yield from _store_problems(cell.retriever.name, corpus)
    for part in model_parts(cell, experiment):
        if part.name in _PACKAGED or part.name.startswith(_OF_ENDPOINT):
            continue
        packages, error = _LIBRARIES[part.kind]
        if missing := [name for name in packages if find_spec(name) is None]:
            yield f"{part.where}: the package {missing[0]!r} is not installed: {MissingExtraError(*error)}"
        try:
            model = find_model(part.name, part.revision)
        except SufficeError as problem:  # it is named with two revisions
            yield f"{part.where}: {problem}"
            continue
        if model.problem:
            yield f"{part.where}: {model.problem}"
        elif model.needs_code:
            yield (
                f"{part.where}: {part.name!r} loads code of its repository (auto_map in its config.json), which is never run here: "
                "give a model that needs none"
            )


def _endpoint_problems(part: EndpointPart) -> Iterator[str]:
    if find_spec("openai") is None:
        yield f"{part.where}: {MissingExtraError('a model behind an endpoint (openai)', 'endpoint')}"
    try:
        key = api_key(part.key_variable)
    except DataError as error:
        yield f"{part.where}: {error}"
        return
    url = part.url or os.environ.get("OPENAI_BASE_URL")
    if url is None:
        if key is None:
            yield f"{part.where}: give {part.remedy}, or put a key for OpenAI's endpoint into {part.key_variable}"
        return
    for address in url.split(","):
        why = unreachable(address.strip())
        if why is not None:
            yield f"{part.where} cannot be reached at {address.strip()!r}: {why}"


def _store_problems(name: str, address: str) -> Iterator[str]:
    """Yield the reason if the server of a store cannot be reached; an address without host or port is not tried."""
    try:
        parts = urlsplit(address)
        if parts.hostname is None or parts.port is None:
            return
        socket.create_connection((parts.hostname, parts.port), timeout=_PATIENCE_S).close()
    except (OSError, ValueError) as error:
        yield f"retriever {name!r}: the store at {parts.hostname}:{parts.port} cannot be reached: {error}: start it, or correct corpus"


@cache
def unreachable(url: str) -> str | None:
    """Try to connect to an endpoint; return the reason if that fails, else None."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or parts.hostname is None:
        return "expected http://HOST/... or https://HOST/..."
    if any(os.environ.get(name) for name in _PROXIES):
        return None  # a proxy connects, and only a request would show whether it can
    try:
        socket.create_connection((parts.hostname, parts.port or _PORTS[parts.scheme]), timeout=_PATIENCE_S).close()
    except (OSError, ValueError) as error:
        return f"{error}: start the server, or correct the address"
    return None


def place_of(path: Path) -> Path:
    """Return the nearest existing folder at or above a path.

    A file at the path would be written to the disk of that folder.
    """
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
