"""Registry of importers by the name of their format: ours and those of other packages."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from suffice.common.provided import load_entry
from suffice.errors import DataError, did_you_mean
from suffice.importers.base import ImportedRun
from suffice.importers.recognise import FORMAT_TESTS, Head, recognise

IMPORTERS = "suffice.importers"
"""The group of entry points; each has the name of a format and a function from a path to an `ImportedRun`."""

_RECOGNISES = "recognises"
"""The attribute of an importer that holds its test."""

_Test = Callable[[Head], bool]
_Reader = TypeVar("_Reader", bound=Callable[..., ImportedRun])

_REGISTERED: dict[str, Callable[..., ImportedRun]] = {}


def recognised_by(test: Callable[[Head], bool]) -> Callable[[_Reader], _Reader]:
    """Return a decorator that gives an importer the test by which files of its format are recognised.

    Use it for importers that an installed package names in its entry points; `register_importer` takes the test as an argument.

    Args:
        test: Returns whether a file has the format, by its `Head`.  It is asked before the tests of traces and tables.
    """

    def mark(read: _Reader) -> _Reader:
        setattr(read, _RECOGNISES, test)
        return read

    return mark


def register_importer(name: str, *, recognises: Callable[[Head], bool] | None = None) -> Callable[[_Reader], _Reader]:
    """Return a decorator that registers a function, from a path to an `ImportedRun`, as the importer of a format.

    An installed package may name its importers in the group of entry points `suffice.importers` instead.

    Args:
        name: The format, as ``--kind`` takes it.
        recognises: Returns whether a file has this format, by its `Head`; asked before the tests of traces and tables.
            None = the format is chosen with ``--kind``.

    Raises:
        DataError: The name is taken.
    """
    if name in importer_names():
        raise DataError(f"there is an importer of {name!r} already; choose another name")

    def register(read: _Reader) -> _Reader:
        _REGISTERED[name] = read
        return read if recognises is None else recognised_by(recognises)(read)

    return register


def importer_names() -> tuple[str, ...]:
    """Return the names of all formats, without loading their importers."""
    return tuple(sorted(entry_points(group=IMPORTERS).names | _REGISTERED.keys()))


def kind_of(path: str | Path) -> str:
    """Return the format of a file or folder, recognised from its content; see `suffice.importers.recognise`.

    Raises:
        NotFoundError: There is no such file or folder, or no file in the folder.
        SchemaError: The format is not known, several importers recognise it, the files of a folder have several, or it is a
            recording already.
        DataError: A file cannot be read, or an importer of an installed package cannot be loaded.
    """
    tests: dict[str, _Test] = {}
    for name in sorted({*importer_names()} - {name for name, _ in FORMAT_TESTS}):
        test = getattr(importer(name), _RECOGNISES, None)
        if test is not None:
            tests[name] = test
    return recognise(path, tests)


def importer(name: str) -> Callable[..., ImportedRun]:
    """Return the function that reads a format.

    >>> importer("tabular").__name__
    'read_tabular'

    Raises:
        DataError: There is no such format, or its importer cannot be loaded.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    entries = entry_points(group=IMPORTERS, name=name)
    if not entries:
        names = importer_names()
        raise DataError(f"unknown format {name!r}.{did_you_mean(name, names)} Formats: {', '.join(names)}")
    read: Callable[..., ImportedRun] = load_entry(
        entries, f"the importer of {name!r}", ", or choose another format with --kind"
    )
    return read
