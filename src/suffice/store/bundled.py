"""Recordings that ship with Suffice: numbers derived from runs of others, without a text (see data/DATA.md)."""

from __future__ import annotations

from importlib.resources import as_file, files

from suffice.errors import DataError
from suffice.store.recording import Recording, read_recording

__all__ = ["BUNDLED_RECORDINGS", "bundled_recording"]

BUNDLED_RECORDINGS = ("self_refine_gpt4", "self_refine_dv3")
"""Drafts of two models for self-refine's sentiment reversal; `target_sentiment` is the metric."""


def bundled_recording(name: str) -> Recording:
    """Return a recording that ships with the package.

    Its column `answer` holds a hash of each draft in the place of its text: equal drafts have equal hashes.

    >>> bundled_recording("self_refine_gpt4").shape
    (480, 5)

    Raises:
        DataError: There is none of that name.
    """
    if name not in BUNDLED_RECORDINGS:
        raise DataError(f"no bundled recording {name!r}; there are: {', '.join(BUNDLED_RECORDINGS)}")
    with as_file(files("suffice") / "data" / "recorded" / f"{name}.parquet") as path:
        return read_recording(path)
