r"""Recorded IRCoT runs: a zip with `prediction_chains.txt`, `prediction.json` and `ground_truth.json`.

In each round, IRCoT (Trivedi et al., 2023) retrieves and writes one more sentence of its chain of thought.  It stops
when a sentence contains "answer is" or nothing new is written, and then a reader answers once.  So **only the last
round has an answer**: at earlier rounds the answer is None and the metrics are NaN.  Rounds after the loop's own stop
were never run, so every trajectory is censored.

`prediction_chains.txt` contains for each question its id and its text. Each round has a JSON list of all titles so far,
then the thought so far, and then, except in the last round, ``Exit? No.``. After the last round come passage ids, and
once more the thought and the answer; these are not read.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.errors import DataError, SchemaError
from suffice.importers import ImportedRun, ImportedTrajectory, one_call, recognised_by, score, unknown_metrics
from suffice.policy.rounds import Cost, Passage, Round
from suffice_papers.importing import existing, run_labels

_CHAINS, _PREDICTIONS, _GOLDS = "prediction_chains.txt", "prediction.json", "ground_truth.json"
_ZIP_NAME = re.compile(
    r"(?P<system>(?:sc_)?ircot(?:_qa)?)_(?P<model>[^_]+)_(?P<dataset>.+?)_(?P<prompts>prompt_set_\d+)$"
)
_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_GO_ON = "Exit? No."


@recognised_by(lambda head: head.form == "zip" and head.has("prediction_chains.txt"))
def read_ircot(path: str | Path) -> ImportedRun:
    """Import the zip file of one IRCoT or self-consistency IRCoT run.

    The passages of a round are titles without texts, so `answer_in_evidence` is undefined.

    Args:
        path: The zip file; system, model, data set and prompts are read from a name like
            ``ircot_qa_codex_hotpotqa_prompt_set_2.zip``.

    Raises:
        SchemaError: The file is not a zip with these files.
        DataError: A chain does not have the expected form, or a question has no prediction or no gold answer; the
            message names file and line.
    """
    path = existing(path, "the zip of an IRCoT run")
    chains, predictions, golds = _contents(path)
    labels = run_labels(_ZIP_NAME, path.stem)
    mended = 0
    trajectories = []
    for question_id, question, steps, where in _blocks(chains, f"{path}, {_CHAINS}"):
        if question_id not in predictions or question_id not in golds:
            lacking = _PREDICTIONS if question_id not in predictions else _GOLDS
            raise DataError(f"{where}: question {question_id!r} is not in {lacking}; the run is incomplete.")
        answer = _unescape(predictions[question_id])
        mended += answer != predictions[question_id]
        trajectory = _chain_trajectory(
            question_id, question, steps, answer or None, tuple(map(str, golds[question_id]))
        )
        trajectories.append(replace(trajectory, labels={**labels, **trajectory.labels}))
    if not trajectories:
        raise DataError(f"{path}: {_CHAINS} contains no question.")
    notes = [
        "answers are known at the last round only: metrics of earlier stops are undefined",
        "every trajectory ended by the loop's own rule (an answer sentence, or nothing new written): censored",
        "passages are titles without texts; tokens and seconds are not in the files",
    ]
    if mended:
        notes.append(f"{mended} answers contained escapes like \\u00e9 as text and were decoded")
    missing = len(set(predictions) - {item.question_id for item in trajectories})
    if missing:
        notes.append(f"{missing} predictions have no chain and were left out")
    return ImportedRun(source="ircot", trajectories=trajectories, notes=notes)


def _contents(path: Path) -> tuple[str, dict[str, str], dict[str, list[str]]]:
    try:
        with zipfile.ZipFile(path) as archive:
            chains = archive.read(_CHAINS).decode("utf-8")
            predictions, golds = json.loads(archive.read(_PREDICTIONS)), json.loads(archive.read(_GOLDS))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise SchemaError(f"{path}: not a complete zip file ({error}).") from error
    except KeyError as error:
        raise SchemaError(f"{path}: an IRCoT run contains {_CHAINS}, {_PREDICTIONS} and {_GOLDS}; {error}.") from error
    except ValueError as error:
        raise DataError(f"{path}: a file in it is not JSON in UTF-8 ({error}).") from error
    if not (_is_map(predictions, str) and _is_map(golds, list)):
        raise SchemaError(f"{path}: expected {_PREDICTIONS} as id -> answer and {_GOLDS} as id -> list of answers.")
    return chains, predictions, golds


def _is_map(value: Any, kind: type) -> bool:
    return isinstance(value, dict) and all(isinstance(item, kind) for item in value.values())


def _blocks(chains: str, name: str) -> Iterator[tuple[str, str, list[tuple[list[str], str]], str]]:
    """Yield `(id, question, [(titles so far, thought so far), ...], place)` of each question."""
    lines = chains.split("\n")
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        start = at
        while at < len(lines) and lines[at].strip():
            at += 1
        block = lines[start:at]
        where = f"{name}, line {start + 1}"
        if len(block) < 4:  # noqa: PLR2004 - id, question, titles, thought
            raise DataError(f"{where}: a question has an id, a text, and titles and a thought for each round.")
        yield block[0].strip(), block[1].strip(), list(_chain_steps(block, start, name)), where


def _chain_steps(block: Sequence[str], start: int, name: str) -> Iterator[tuple[list[str], str]]:
    at = 2
    while True:
        where = f"{name}, line {start + at + 1}"
        if at + 1 >= len(block) or not block[at + 1].startswith("A:"):
            raise DataError(f"{where}: the chain breaks off; expected a list of titles and a thought.")
        try:
            titles = json.loads(block[at].removeprefix("A: "))
        except json.JSONDecodeError:
            titles = None
        if not isinstance(titles, list) or not all(isinstance(title, str) for title in titles):
            raise DataError(f"{where}: expected a JSON list of titles, not {block[at]!r:.80}.")
        yield titles, block[at + 1].removeprefix("A:").strip()
        at += 3
        if at - 1 >= len(block) or block[at - 1].removeprefix("A: ").strip() != _GO_ON:
            return


def _chain_trajectory(
    question_id: str, question: str, steps: Sequence[tuple[list[str], str]], answer: str | None, golds: tuple[str, ...]
) -> ImportedTrajectory:
    rounds = []
    for index, (titles, thought) in enumerate(steps, start=1):
        last = index == len(steps)
        rounds.append(
            Round(
                index=index,
                answer=answer if last else None,
                text=thought,
                passages=tuple(Passage(passage_id=title, title=title, text="") for title in titles),
                signals={"answer_in_evidence": math.nan},
                costs={
                    "retrieval": one_call(),
                    "generator": one_call(),
                    "reader": one_call() if last else Cost(),
                },
            )
        )
    return ImportedTrajectory(
        question_id=question_id,
        cluster=question_id,
        question=question,
        golds=golds,
        rounds=tuple(rounds),
        end="rule",
        metrics=(*(unknown_metrics() for _ in steps[:-1]), score(answer, golds)),
        labels={"ended_by": "answer sentence" if "answer is" in steps[-1][1] else "nothing new"},
    )


def _unescape(text: str) -> str:
    r"""Decode escapes like ``\uXXXX`` that the text contains literally; half a surrogate pair is left unchanged."""

    def decode(match: re.Match[str]) -> str:
        decoded: str = json.loads(f'"{match.group()}"')
        try:
            decoded.encode()
        except UnicodeEncodeError:
            return match.group()
        return decoded

    return _ESCAPE.sub(decode, text)
