"""From prompts to stored hidden states: some at a time, resumable, nothing read twice."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffice.errors import ConfigMismatchError, DataError
from suffice.llm.states import QA, RAG, StateSource, prompt_id
from suffice.rounds import Passage
from suffice.store.states import StateWriter

__all__ = ["Collected", "Prompted", "collect_states"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """One prompt to read.

    Attributes:
        id: What the state is stored under: a question's id, by custom.
        question: The question.
        passages: What is read with it; none of them for the QA prompt.
    """

    id: str
    question: str
    passages: tuple[Passage, ...] = ()

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of what is read."""
        parts = [self.question, *(text for p in self.passages for text in (p.title, p.text))]
        return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a run stored.

    Attributes:
        path: The folder.
        stored: States in it.
        read: Prompts that this run read.
        undefined: Prompts of this run whose state holds a NaN in some layer: kept as NaN.
        clipped: Numbers of this run that float16 cannot hold, made the largest that it can.
        seconds: What this run took.
    """

    path: Path
    stored: int
    read: int
    undefined: int
    clipped: int
    seconds: float


def collect_states(
    source: StateSource,
    prompts: Sequence[Prompted],
    path: str | Path,
    *,
    chunk: int = 128,
    about: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Collected:
    """Read prompts and store their states; run it again with the same arguments to go on after an interruption.

    Args:
        source: What reads them.
        prompts: All under one prompt: either none of them has passages, or all have.
        path: The folder of states.
        chunk: Prompts of one shard: what a kill may cost.
        about: What else the folder should say about itself and insist on, JSON-ready: the data set, the passages.
        on_progress: Told the prompts done and all of them, after each shard.

    Raises:
        ConfigMismatchError: The folder was begun with another model, revision, layer or prompt, or with another text
            under one of the ids.
        DataError: There are no prompts, an id occurs twice, or the source cannot read this prompt.
        ModelError: The source failed.
    """
    began = time.perf_counter()
    kind = _checked(source, prompts)
    header = {
        "model": source.id,
        "revision": source.revision,
        "layers": list(source.layers),
        "prompt": kind,
        "source": dict(source.fingerprint()),
        "about": dict(about or {}),
    }
    writer = StateWriter(path, header)
    waiting = _unread(prompts, writer)
    tell = on_progress or (lambda _done, _total: None)
    tell(len(prompts) - len(waiting), len(prompts))
    undefined = 0
    for start in range(0, len(waiting), chunk):
        part = waiting[start : start + chunk]
        passages = None if kind == QA else [item.passages for item in part]
        states = source.read_batch([item.question for item in part], passages)
        writer.append([item.id for item in part], states, [item.digest for item in part])
        undefined += int((~np.isfinite(states)).any(axis=(1, 2)).sum())
        tell(len(prompts) - len(waiting) + start + len(part), len(prompts))
    return Collected(
        path=writer.path,
        stored=len(writer.done),
        read=len(waiting),
        undefined=undefined,
        clipped=writer.clipped,
        seconds=time.perf_counter() - began,
    )


def _checked(source: StateSource, prompts: Sequence[Prompted]) -> str:
    """Return which prompt they are read under."""
    if not prompts:
        raise DataError("there are no prompts to read")
    ids = [item.id for item in prompts]
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise DataError(f"the id {twice!r} occurs more than once: each state needs an id of its own")
    kinds = {prompt_id(item.passages) for item in prompts}
    if len(kinds) > 1:
        bare = next(item.id for item in prompts if not item.passages)
        raise DataError(
            f"{bare!r} has no passages and others have: states of the prompts {QA!r} and {RAG!r} go into folders of their own"
        )
    (kind,) = kinds
    if kind not in source.prompts:
        raise DataError(f"{source.id!r} reads {', '.join(source.prompts)} only, not {kind!r}: leave the passages out")
    return kind


def _unread(prompts: Sequence[Prompted], writer: StateWriter) -> list[Prompted]:
    """Return the prompts that are not stored.

    Raises:
        ConfigMismatchError: One is, with another text.
    """
    done = writer.done
    for item in prompts:
        if done.get(item.id, item.digest) != item.digest:
            raise ConfigMismatchError(
                f"{str(writer.path)!r} holds the state of {item.id!r} for another question or other passages: go on with "
                "the old data, or name another folder"
            )
    return [item for item in prompts if item.id not in done]
