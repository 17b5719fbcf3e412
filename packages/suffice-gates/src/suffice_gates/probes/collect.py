"""Read prompts and store their hidden states in shards; a resumed run reads no prompt twice."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffice.errors import ConfigMismatchError, DataError
from suffice.policy.rounds import Passage
from suffice.recordings.shards import Shard
from suffice_gates.models.state_files import StateWriter, check_states_shard
from suffice_gates.models.states import QA, RAG, StateSource, prompt_id


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePrompt:
    """One prompt to read.

    Attributes:
        id: Id of the stored state, usually that of the question.
        question: Text of the question.
        passages: Its passages; empty for the QA prompt.
    """

    id: str
    question: str
    passages: tuple[Passage, ...] = ()

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that identify question and passages."""
        parts = [self.question, *(text for p in self.passages for text in (p.title, p.text))]
        return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionSummary:
    """The outcome of a run that stored states.

    Attributes:
        path: Folder of the states.
        stored: Number of states in the folder.
        read: Number of prompts read in this run.
        undefined: Number of prompts in this run whose state contains NaN in some layer; the NaN is stored.
        clipped: Count of numbers in this run that were clipped to the range of float16.
        seconds: Duration of this run.
    """

    path: Path
    stored: int
    read: int
    undefined: int
    clipped: int
    seconds: float


def collect_states(
    source: StateSource,
    prompts: Sequence[StatePrompt],
    path: str | Path,
    *,
    chunk: int = 128,
    about: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    shard: Shard | None = None,
) -> CollectionSummary:
    """Read prompts and store their states; after an interruption, the same call resumes.

    Args:
        source: The source of the states.
        prompts: Either all with passages, or all without.
        path: Folder of the states.
        chunk: Number of prompts per shard; an interruption loses at most one shard.
        about: Further JSON-ready values that must match on resuming: the data set, the passages.
        on_progress: Called after each shard with the number of prompts done and the number of all prompts.
        shard: Read only the prompts of this shard, into its own folder in `path`; `read_states` reads all shards.

    Raises:
        ConfigMismatchError: The folder was begun with another model, revision, layer or prompt, or with another text
            under one of the ids.
        DataError: There are no prompts, an id occurs twice, some prompts have passages and others have none, or the
            source does not read prompts of this kind.
        ModelError: The source failed.
    """
    began = time.perf_counter()
    kind = _checked_prompt(source, prompts)
    header = {
        "model": source.id,
        "revision": source.revision,
        **{key: value for key, value in source.fingerprint().items() if key == "content"},
        "layers": list(source.layers),
        "prompt": kind,
        "source": dict(source.fingerprint()),
        "about": dict(about or {}),
    }
    if shard is not None:
        check_states_shard(Path(path), shard)
        places = {item.id: place for place, item in enumerate(prompts) if shard.takes(item.id)}
        prompts, path = [item for item in prompts if item.id in places], Path(path) / shard.folder_name
    writer = StateWriter(path, header)
    if shard is not None:
        writer.write_places(places)
    pending = _unread(prompts, writer)
    report = on_progress or (lambda _done, _total: None)
    report(len(prompts) - len(pending), len(prompts))
    undefined = 0
    for start in range(0, len(pending), chunk):
        batch = pending[start : start + chunk]
        passages = None if kind == QA else [item.passages for item in batch]
        states = source.read_batch([item.question for item in batch], passages)
        writer.append([item.id for item in batch], states, [item.digest for item in batch])
        undefined += int((~np.isfinite(states)).any(axis=(1, 2)).sum())
        report(len(prompts) - len(pending) + start + len(batch), len(prompts))
    return CollectionSummary(
        path=writer.path,
        stored=len(writer.done),
        read=len(pending),
        undefined=undefined,
        clipped=writer.clipped,
        seconds=time.perf_counter() - began,
    )


def _checked_prompt(source: StateSource, prompts: Sequence[StatePrompt]) -> str:
    """Check the prompts and return their kind, `qa` or `rag`."""
    if not prompts:
        raise DataError("prompts is empty: give at least one")
    ids = [item.id for item in prompts]
    if len(set(ids)) < len(ids):
        repeated = next(name for name in ids if ids.count(name) > 1)
        raise DataError(f"the id {repeated!r} occurs more than once: each state needs an id of its own")
    kinds = {prompt_id(item.passages) for item in prompts}
    if len(kinds) > 1:
        bare = next(item.id for item in prompts if not item.passages)
        raise DataError(
            f"{bare!r} has no passages but others have: store states of the prompts {QA!r} and {RAG!r} in separate folders"
        )
    (kind,) = kinds
    if kind not in source.prompts:
        raise DataError(f"{source.id!r} reads {', '.join(source.prompts)} only, not {kind!r}: leave the passages out")
    return kind


def _unread(prompts: Sequence[StatePrompt], writer: StateWriter) -> list[StatePrompt]:
    """Return the prompts without a stored state.

    Raises:
        ConfigMismatchError: A state is stored for another text with the same id.
    """
    done = writer.done
    for item in prompts:
        if done.get(item.id, item.digest) != item.digest:
            raise ConfigMismatchError(
                f"{str(writer.path)!r} contains the state of {item.id!r} for another question or other passages: resume with "
                "the old data, or give another folder"
            )
    return [item for item in prompts if item.id not in done]
