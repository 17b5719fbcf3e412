"""Recorded chains of thought: the states at their checkpoints, and whether each trial answer is right."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from suffice.errors import ConfigMismatchError, DataError
from suffice.loops.boundaries import TOKENS
from suffice.loops.thinking_loop import THINKING_PROMPTS, ThinkingPrompt
from suffice.policy.rounds import Round
from suffice.recordings.recording import Recording
from suffice_gates.models.chain_states import THOUGHTS, ChainStates
from suffice_gates.models.state_files import StateWriter, StoredStates
from suffice_gates.probes.collect import CollectionSummary
from suffice_gates.probes.labels import LabelRule, QuestionLabels, marks_of


def checkpoint_id(question_id: str, r: int) -> str:
    """Return the name of a question's checkpoint in a folder of states.

    >>> checkpoint_id("q1", 3)
    'q1@3'
    """
    return f"{question_id}@{r}"


def recorded_chains(recording: Recording) -> list[tuple[str, str, list[Round]]]:
    """Return the id, the question and the checkpoints of each recorded chain.

    The answer that the model gives at the end of its chain is not a checkpoint.

    Raises:
        DataError: The recording has no chains of thought, or lacks the text of a question.
    """
    lacking = {"thinking", "question"} - set(recording.table.column_names)
    if lacking:
        raise DataError(
            f"the recording has no column {min(lacking)!r}, so the chains cannot be read: record them with `suffice think record`"
        )
    texts, thoughts = recording.per_question("question", ()).tolist(), recording.objects("thinking")
    known = "thinking_ids" in recording.table.column_names
    ids = recording.objects("thinking_ids") if known else np.full(thoughts.shape, None, dtype=object)
    chains = []
    for name, text, row, numbers in zip(recording.question_ids, texts, thoughts, ids, strict=True):
        if not text:
            raise DataError(f"the recording has no words of question {name!r}: record the chains again")
        rounds = [
            Round(index=int(r), thinking=thought, thinking_ids=None if own is None else tuple(map(int, own)))
            for r, thought, own in zip(recording.index, row, numbers, strict=True)
            if thought
        ]
        chains.append((name, str(text), rounds))
    return chains


def prompt_of_recording(recording: Recording) -> ThinkingPrompt:
    """Return the template of the recorded chains, which must be a built-in one.

    Raises:
        DataError: The template is not built in, or the chains have several templates.
    """
    names = sorted({str(name) for name in recording.per_question("prompt_id", ("",)).tolist()})
    built_in = {prompt.prompt_id: prompt for prompt in THINKING_PROMPTS.values()}
    if len(names) != 1 or names[0] not in built_in:
        raise DataError(
            f"the chains have the template {', '.join(map(repr, names))}; built in are {', '.join(built_in)}: give your own ThinkingPrompt "
            "to ChainStates in Python"
        )
    return built_in[names[0]]


def collect_chain_states(
    source: ChainStates,
    recording: Recording,
    path: str | Path,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> CollectionSummary:
    """Read the states at every checkpoint of recorded chains and store them.

    After an interruption, the same call resumes.

    Args:
        source: The source of the states.
        recording: Recorded chains of thought.
        path: Folder of the states; the ids in the folder are those of `checkpoint_id`.
        on_progress: Called after each chain with the number of chains done and the number of all chains.

    Raises:
        ConfigMismatchError: The folder was begun with another model, layer or template, or has other chains under these ids.
        DataError: The recording has no chains, lacks the text of their questions, or has trials that end before a checkpoint.
        ModelError: A pass failed, or a chain exceeds the context.
    """
    began = time.perf_counter()
    boundary = (recording.metadata.get("depends") or {}).get("boundary", TOKENS)
    if boundary != TOKENS:
        raise DataError(
            f"the chains have checkpoints by boundary={boundary!r}, up to which trials are asked, and their states are those beyond it: "
            "record chains with the boundary tokens"
        )
    fingerprint = source.fingerprint()
    header = {
        "model": source.id,
        "revision": source.revision,
        **{key: value for key, value in fingerprint.items() if key == "content"},
        "layers": list(source.layers),
        "prompt": THOUGHTS,
        "source": dict(fingerprint),
    }
    chains, writer = recorded_chains(recording), StateWriter(path, header)
    done, read, undefined = writer.done, 0, 0
    for number, (name, question, rounds) in enumerate(chains, start=1):
        digests = _digests(name, question, rounds)
        _check_digests(done, digests, f"the folder {str(writer.path)!r}")
        ids = list(digests)
        unread = [place for place, own in enumerate(ids) if own not in done]
        if unread:
            states = source.of_checkpoints(question, rounds)[unread]
            writer.append([ids[place] for place in unread], states, [digests[ids[place]] for place in unread])
            read += len(unread)
            undefined += int((~np.isfinite(states)).any(axis=(1, 2)).sum())
        if on_progress is not None:
            on_progress(number, len(chains))
    return CollectionSummary(
        path=writer.path,
        stored=len(writer.done),
        read=read,
        undefined=undefined,
        clipped=writer.clipped,
        seconds=time.perf_counter() - began,
    )


def checkpoint_labels(recording: Recording, rule: LabelRule | str = "em") -> tuple[QuestionLabels, dict[str, str]]:
    """Label each checkpoint of recorded chains by whether its trial answer is right.

    A trial answer that was cut off counts as wrong.

    Returns:
        The labels by `checkpoint_id`, and the id of each checkpoint's question.

    Raises:
        DataError: The recording has no chains, or no checkpoint has a label.
        UnknownSignalError: The rule reads a missing column.
    """
    parsed = LabelRule.parse(rule) if isinstance(rule, str) else rule
    columns = [marks_of(recording, parsed, place) for place in range(len(recording.index))]
    places = {int(r): place for place, r in enumerate(recording.index)}
    shares: dict[str, float] = {}
    questions: dict[str, str] = {}
    unlabelled, failed = 0, int((recording.ends == "failed").sum())
    for row, (name, _, rounds) in enumerate(recorded_chains(recording)):
        for observed in rounds if recording.ends[row] != "failed" else ():
            mark = columns[places[observed.index]][row]
            unlabelled += bool(np.isnan(mark))
            if not np.isnan(mark):
                own = checkpoint_id(name, observed.index)
                shares[own], questions[own] = mark, name
    if not shares:
        raise DataError(
            f"no checkpoint has a label: {failed} chains failed, {unlabelled} checkpoints have no usable gold answer"
        )
    labels = QuestionLabels(
        shares=shares, rule=str(parsed), least=1.0, answers=len(shares), n_failed=failed, n_unlabelled=unlabelled
    )
    return labels, questions


def check_chains(states: StoredStates, recording: Recording) -> None:
    """Raise if states were read from other chains than those of a recording.

    Args:
        states: States of chains, as `collect_chain_states` stores them.
        recording: Recorded chains; chains without states are not compared.

    Raises:
        ConfigMismatchError: A checkpoint has states of another chain.
        DataError: The recording has no chains, or lacks the text of their questions.
    """
    for name, question, rounds in recorded_chains(recording):
        _check_digests(states.digests, _digests(name, question, rounds), "the folder of states")


def _check_digests(stored: Mapping[str, str], digests: Mapping[str, str], folder: str) -> None:
    """Raise if the states stored for a checkpoint were read from another chain."""
    wrong = next((own for own, digest in digests.items() if stored.get(own, digest) != digest), None)
    if wrong is not None:
        raise ConfigMismatchError(
            f"{folder} has states of another chain under {wrong!r}, so its questions were recorded anew: give the recording that was read, "
            "or read its states into another folder"
        )


def _digests(name: str, question: str, rounds: Sequence[Round]) -> dict[str, str]:
    """Return a hash (16 hexadecimal digits) of the chain up to each checkpoint, by `checkpoint_id`."""
    chain = [[observed.thinking, observed.thinking_ids] for observed in rounds]
    return {
        checkpoint_id(name, observed.index): hashlib.sha256(
            json.dumps([question, chain[: place + 1]]).encode()
        ).hexdigest()[:16]
        for place, observed in enumerate(rounds)
    }
