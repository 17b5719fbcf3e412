"""A folder for the studio, and the studio of a folder in a server of its own."""

from __future__ import annotations

import contextlib

from suffice.replays import policy_for
from suffice.store import read_recording
from suffice.studio import studio_app
from suffice.studio.door import OPEN
from tests.report_tools import hostile, questions, recording
from tests.serving import running

TOKEN = "a-token-of-the-tests"


def filled(path):
    """Write a folder with one thing of most kinds, one of them damaged."""
    recording(path / "eval.parquet", n=150, seed=3)
    (path / "judged").mkdir()
    recording(path / "judged" / "june.parquet", n=70, seed=4, judged=True)
    questions(path / "questions.jsonl", n=150)
    known = read_recording(path / "eval.parquet")
    policy = policy_for(known, "tasr", name="tasr")
    policy.save(path / "tasr.json")
    policy_for(known, "answer_stable", name="stable").save(path / "stable.json")
    whole = (path / "eval.parquet").read_bytes()
    (path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (path / "rounds.csv").write_text("question,round,answer\nWhere?,1,Oslo\nWhere?,2,Oslo\n")
    return path


@contextlib.contextmanager
def opened_studio(path):
    """Yield the address that opens the studio of a folder."""
    with running(studio_app(path, token=TOKEN)) as url:
        yield f"{url}{OPEN}?token={TOKEN}"


__all__ = ["TOKEN", "filled", "hostile", "opened_studio"]
