"""Modules of one's own that register rules, metrics and the like, imported before a command runs."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from suffice.common.processes import import_file
from suffice.errors import DataError

__all__ = ["EXTENSIONS", "load_extensions"]

EXTENSIONS = "suffice.extensions"
"""The group of entry points whose modules are imported before a command runs."""


def load_extensions(names: Iterable[str]) -> None:
    """Import the modules that register signals, rules, selectors, metrics and importers: the installed ones and some more."""
    for entry in entry_points(group=EXTENSIONS):
        entry.load()
    for name in names:
        try:
            import_file(Path(name)) if name.endswith(".py") else import_module(name)
        except (ImportError, OSError, SyntaxError) as error:
            raise DataError(f"the extension {name!r} cannot be imported: {error}") from error
