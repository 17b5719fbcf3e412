"""What the importers of published runs share."""

from __future__ import annotations

import re
from pathlib import Path

from suffice.errors import NotFoundError

__all__ = ["existing", "run_labels"]


def existing(path: str | Path, expected: str) -> Path:
    """Return the path of a file.

    Args:
        path: The file.
        expected: What the file should be, for the message.

    Raises:
        NotFoundError: It does not exist.
    """
    path = Path(path)
    if not path.is_file():
        raise NotFoundError(f"the file {str(path)!r} does not exist; give {expected}.")
    return path


def run_labels(pattern: re.Pattern[str], name: str) -> dict[str, str]:
    """Return what the name of a file says about its run: the groups of a pattern, else the whole name."""
    match = pattern.search(name)
    return match.groupdict() if match else {"run": name}
