"""Importers by the name of their format: ours, the papers' and those of other packages."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from suffice.errors import DataError, did_you_mean
from suffice.importers.base import ImportedRun
from suffice.importers.recognise import Head, recognise

__all__ = ["IMPORTERS", "importer", "importer_names", "kind_of", "register_importer"]

IMPORTERS = "suffice.importers"
"""The group of entry points: the name of a format, and a function from a path to an `ImportedRun`."""


_Reader = TypeVar("_Reader", bound=Callable[..., ImportedRun])

_REGISTERED: dict[str, Callable[..., ImportedRun]] = {}


_RECOGNISES: dict[str, Callable[[Head], bool]] = {}


def register_importer(name: str, *, recognises: Callable[[Head], bool] | None = None) -> Callable[[_Reader], _Reader]:
    """Return a decorator that makes a function from a path to an `ImportedRun` the importer of a format.

    An installed package may name its importers in the group of entry points `suffice.importers` instead.

    Args:
        name: The format, as ``--kind`` takes it.
        recognises: Whether a file has this format, by its `suffice.importers.recognise.Head`; asked before any test of the
            library's own formats.  None = the format is chosen with ``--kind``.

    Raises:
        DataError: The name is taken.
    """
    if name in importer_names():
        raise DataError(f"there is an importer of {name!r} already; choose another name")

    def register(read: _Reader) -> _Reader:
        _REGISTERED[name] = read
        if recognises is not None:
            _RECOGNISES[name] = recognises
        return read

    return register


def importer_names() -> tuple[str, ...]:
    """Return the names of all formats; nothing is loaded."""
    return tuple(sorted(entry_points(group=IMPORTERS).names | _REGISTERED.keys()))


def kind_of(path: str | Path) -> str:
    """Return the format of a file or folder, recognised from its content; see `suffice.importers.recognise`.

    Raises:
        NotFoundError: There is no such file or folder, or no file in the folder.
        SchemaError: The format is not known, the files of a folder have several, or it is a recording already.
        DataError: A file cannot be read.
    """
    return recognise(path, _RECOGNISES)


def importer(name: str) -> Callable[..., ImportedRun]:
    """Return the function that reads a format.

    >>> importer("tabular").__name__
    'read_tabular'

    Raises:
        DataError: No such format.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    entries = entry_points(group=IMPORTERS, name=name)
    if not entries:
        names = importer_names()
        raise DataError(f"unknown format {name!r}.{did_you_mean(name, names)} Formats: {', '.join(names)}")
    read: Callable[..., ImportedRun] = next(iter(entries)).load()
    return read
