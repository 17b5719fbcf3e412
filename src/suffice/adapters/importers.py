"""Importers by the name of their format: ours, the papers' and those of other packages."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from suffice.adapters.base import ImportedRun
from suffice.errors import DataError, did_you_mean

__all__ = ["IMPORTERS", "importer", "importer_names"]

IMPORTERS = "suffice.importers"
"""The group of entry points: the name of a format, and a function from a path to an `ImportedRun`."""


def importer_names() -> tuple[str, ...]:
    """Return the names of all formats; nothing is loaded."""
    return tuple(sorted(entry_points(group=IMPORTERS).names))


def importer(name: str) -> Callable[..., ImportedRun]:
    """Return the function that reads a format.

    >>> importer("tabular").__name__
    'read_tabular'

    Raises:
        DataError: No such format.
    """
    entries = entry_points(group=IMPORTERS, name=name)
    if not entries:
        names = importer_names()
        raise DataError(f"unknown format {name!r}.{did_you_mean(name, names)} Formats: {', '.join(names)}")
    found: Callable[..., ImportedRun] = next(iter(entries)).load()
    return found
