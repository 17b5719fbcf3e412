"""What costs seconds to make and nothing changes: made once in a test session, whichever worker asks first.

A test that asks for one of these fixtures is marked `whole`, see `tests/conftest.py`.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import llamacpp

__all__ = ["taught_model", "tiny_model"]


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


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """The tiny model with known knowledge, of seed 0: model, tokenizer, tune.jsonl, eval.jsonl, world.json."""
    from suffice.papers.cbdr.tiny import train_tiny

    return once(tmp_path_factory, "tiny_model", lambda folder: train_tiny(folder, seed=0))


@pytest.fixture(scope="session")
def taught_model(tmp_path_factory) -> llamacpp.TinyModel:
    """The model that `tests.llamacpp` teaches."""
    return llamacpp.TinyModel(once(tmp_path_factory, "taught_model", llamacpp.build_model))
