"""What many tests share: a builder of recordings, and fixtures that cost seconds.

The fixtures are made once in a test session, by whichever worker asks first, and nothing changes them.  A test that
asks for one of them is marked `whole`, see `tests/conftest.py`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suffice.recordings.recording import Recording
from suffice.recordings.schema import table_of_columns
from tests.support import llamacpp

__all__ = ["STORED_TINY_MODEL", "taught_model", "tiny_model"]


def recording_of(
    answers: list[list[str | None]],
    *,
    start: int = 1,
    gold: str = "a",
    kinds: dict[str, str] | None = None,
    metadata: dict | None = None,
    **columns: Any,
) -> Recording:
    """Return the recording of the answers of questions q0, q1, ...: one call a round, right where it answers `gold`.

    Every column is one value, a list with one for each question, or a list of lists with one for each of its rounds.
    """
    widths = [len(rounds) for rounds in answers]
    given = [answer for rounds in answers for answer in rounds]
    right = [float(answer == gold) for answer in given]
    made = {
        "question_id": _cells([f"q{q}" for q in range(len(answers))], widths),
        "round": [start + i for width in widths for i in range(width)],
        "end": ["max_rounds"] * len(given),
        "answer": given,
        "em": right,
        "f1": right,
        "cost.generator.calls": [1.0] * len(given),
    }
    made |= {name: _cells(values, widths) for name, values in columns.items()}
    return Recording(table_of_columns(made, kinds or {}), metadata)


def _cells(values: Any, widths: list[int]) -> list[Any]:
    """Return a value for each round of each question."""
    if not isinstance(values, list):
        return [values] * sum(widths)
    cells: list[Any] = []
    for q, width in enumerate(widths):
        cells += values[q][:width] if isinstance(values[q], list) else [values[q]] * width
    return cells


def once(factory: pytest.TempPathFactory, name: str, write: Callable[[Path], object]) -> Path:
    """Return a folder that the workers of a session share, filled by the first of them that needs it."""
    base = factory.getbasetemp()
    # Workers of pytest-xdist have folders of their own below one that they share.
    shared = base.parent if base.name.startswith("popen-") else base
    folder, done = shared / name, shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            write(folder)
            done.touch()
    return folder


STORED_TINY_MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny_model"
TRAIN_TINY_MODEL = "SUFFICE_TRAIN_TINY_MODEL"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """The tiny model with known knowledge, of seed 0: model, tokenizer, tune.jsonl, eval.jsonl, world.json.

    Training takes a minute and a half of a processor, so the weights are stored; `make stress` trains them anew.
    """
    return once(tmp_path_factory, "tiny_model", _write_tiny_model)


def _write_tiny_model(folder: Path) -> None:
    from suffice_papers.cbdr.tiny import train_tiny, write_world
    from suffice_papers.cbdr.world import make_world

    if os.environ.get(TRAIN_TINY_MODEL):
        train_tiny(folder, seed=0)
    else:
        shutil.copytree(STORED_TINY_MODEL, folder, ignore=shutil.ignore_patterns("*.md"))
        write_world(folder, make_world(0))


@pytest.fixture(scope="session")
def taught_model(tmp_path_factory) -> llamacpp.TinyModel:
    """The model that `tests.support.llamacpp` teaches, stored as well; `make stress` teaches it anew."""
    write = llamacpp.build_model if os.environ.get(TRAIN_TINY_MODEL) else llamacpp.stored_model
    return llamacpp.TinyModel(once(tmp_path_factory, "taught_model", write))
