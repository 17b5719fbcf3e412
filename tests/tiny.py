"""The tiny model with known knowledge, trained once in a test session, whichever worker asks first."""

import fcntl
from pathlib import Path

import pytest

from suffice.papers.cbdr.tiny import train_tiny

__all__ = ["tiny_model"]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """The folder of the tiny model of seed 0: model, tokenizer, tune.jsonl, eval.jsonl, world.json."""
    base = tmp_path_factory.getbasetemp()
    # Workers of pytest-xdist have folders of their own below one that they share.
    shared = base.parent if base.name.startswith("popen-") else base
    folder = shared / "tiny_model"
    with (shared / "tiny_model.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "world.json").exists():  # written last
            train_tiny(folder, seed=0)
    return folder
