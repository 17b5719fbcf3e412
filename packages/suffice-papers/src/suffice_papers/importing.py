"""Helpers of the importers of published runs."""

from __future__ import annotations

import re
from pathlib import Path

from suffice.errors import NotFoundError


def existing(path: str | Path, expected: str) -> Path:
    """Return the path of a file, or raise if it does not exist.

    Args:
        path: The file.
        expected: Description of the expected file, for the message.

    Raises:
        NotFoundError: The file does not exist.
    """
    path = Path(path)
    if not path.is_file():
        raise NotFoundError(f"the file {str(path)!r} does not exist; give {expected}.")
    return path


def run_labels(pattern: re.Pattern[str], name: str) -> dict[str, str]:
    """Parse labels of a run from a file name: one label for each group of the pattern.

    If the pattern does not match, the only label is `run`, with the whole name.
    """
    match = pattern.search(name)
    return match.groupdict() if match else {"run": name}
