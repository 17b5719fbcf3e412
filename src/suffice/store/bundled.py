"""Recordings in the package: numbers derived from published runs, without texts (see data/DATA.md)."""

from __future__ import annotations

from importlib.resources import as_file, files

from suffice.errors import DataError
from suffice.store.recording import Recording, read_recording

__all__ = ["BUNDLED_RECORDINGS", "bundled_recording"]

BUNDLED_RECORDINGS = ("self_refine_gpt4", "self_refine_dv3")
"""Drafts of two models for self-refine's sentiment reversal; `target_sentiment` is the metric."""


def bundled_recording(name: str) -> Recording:
    """Return a recording in the package.

    Its column `answer` contains a hash of each draft instead of its text: equal drafts have equal hashes.

    >>> bundled_recording("self_refine_gpt4").shape
    (480, 5)

    Raises:
        DataError: The name is unknown.
    """
    if name not in BUNDLED_RECORDINGS:
        raise DataError(f"unknown bundled recording {name!r}; allowed: {', '.join(BUNDLED_RECORDINGS)}")
    with as_file(files("suffice") / "data" / "recorded" / f"{name}.parquet") as path:
        return read_recording(path)
