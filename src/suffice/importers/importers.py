"""Registry of importers by format name: those of this package, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, TypeVar

from suffice.common.provided import by_name, load_entry
from suffice.errors import DataError, MissingExtraError, did_you_mean
from suffice.importers.answers.imported import ImportedRun
from suffice.importers.files.recognise import Head, head_of, is_archive, recognise
from suffice.policy.signals.position import AnswerPosition

IMPORTERS = "suffice.importers"
"""The group of entry points; each has the name of a format and a function from a path to an `ImportedRun`."""

OF_PAPERS = ("debate", "ircot", "reflexion", "self_refine", "tasr")
"""Formats of published runs, whose importers are in suffice-papers."""

NOT_OF_A_FORMAT = frozenset({"kind", "golds", "outcomes", "samples", "normalizer", "query", "pattern", "expected"})
"""Arguments that readers of formats need not take."""

_RECOGNISES = "recognises"
"""The attribute of an importer that holds its test."""

_LOG_OF = "log_of"
"""The attribute of an importer of traces that holds the function from a path to its spans."""

_Test = Callable[[Head], bool]
_Reader = TypeVar("_Reader", bound=Callable[..., ImportedRun])

_REGISTERED: dict[str, Callable[..., ImportedRun]] = {}


def recognised_by(test: Callable[[Head], bool]) -> Callable[[_Reader], _Reader]:
    """Return a decorator that adds to an importer a test for files of its format.

    This is for importers that an installed package declares in its entry points.  `register_importer` takes the test as an
    argument.

    Args:
        test: Returns whether a file has the format, by its `Head`.  It is called before the tests of traces and tables.
    """
    return _marking(_RECOGNISES, test)


def reads_traces(log_of: Callable[[str | Path], Any]) -> Callable[[_Reader], _Reader]:
    """Return a decorator that marks an importer of traces; `log_of` reads the spans of a file."""
    return _marking(_LOG_OF, log_of)


def _marking(attribute: str, value: Callable[..., Any]) -> Callable[[_Reader], _Reader]:
    def mark(read: _Reader) -> _Reader:
        setattr(read, attribute, value)
        return read

    return mark


def log_reader(name: str) -> Callable[[str | Path], Any] | None:
    """Return the function that reads the spans of a trace format; None for any other format."""
    return getattr(importer(name), _LOG_OF, None) if name in importer_names() else None


def is_of_own_loop(name: str) -> bool:
    """Return whether a format has logs of users' loops (tables or traces), and not the published runs of a paper.

    >>> is_of_own_loop("tabular"), is_of_own_loop("langfuse"), is_of_own_loop("claude_code")
    (True, True, False)
    """
    return name == "tabular" or log_reader(name) is not None


def register_importer(name: str, *, recognises: Callable[[Head], bool] | None = None) -> Callable[[_Reader], _Reader]:
    """Return a decorator that registers a function, from a path to an `ImportedRun`, as the importer of a format.

    An installed package may declare its importers in the entry-point group `suffice.importers` instead.

    Args:
        name: The format, as ``--kind`` takes it.
        recognises: Returns whether a file has this format, by its `Head`; called before the tests of traces and tables.
            None = the format must be chosen with ``--kind``.

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
    return tuple(sorted(by_name(IMPORTERS).keys() | _REGISTERED.keys()))


def kind_of(path: str | Path) -> str:
    """Return the format of a file or folder, recognised from its content; see `suffice.importers.files.recognise`.

    Raises:
        NotFoundError: There is no such file or folder, or no file in the folder.
        SchemaError: The format is unknown, several importers recognise it, the files of a folder have different formats, or the
        file is already a recording.
        DataError: A file cannot be read, or an importer of an installed package cannot be loaded.
    """
    others, traces, lacks_papers = _tests()
    published = f"A published run ({', '.join(OF_PAPERS)})"
    return recognise(path, others, traces, f". {_missing(published)}" if lacks_papers else "")


def is_archive_of_data(path: Path) -> bool:
    """Return whether a zip file contains data files, and is not itself the format of an importer."""
    return is_archive(head_of(path), *_tests()[:2])


def _tests() -> tuple[dict[str, _Test], dict[str, _Test], bool]:
    """Return the tests of formats, the tests of trace formats, and whether the importers of published runs are missing."""
    traces: dict[str, _Test] = {}
    others: dict[str, _Test] = {}
    entries = by_name(IMPORTERS)  # once: each call reads the metadata of all installed packages
    for name in sorted(entries.keys() | _REGISTERED.keys()):
        read = _REGISTERED.get(name) or _loaded(name, entries[name])
        if hasattr(read, _RECOGNISES):
            (traces if hasattr(read, _LOG_OF) else others)[name] = getattr(read, _RECOGNISES)
    return others, traces, not {*OF_PAPERS} <= entries.keys()


def _missing(what: str) -> MissingExtraError:
    return MissingExtraError(what, distribution="suffice-papers")


def importer(name: str) -> Callable[..., ImportedRun]:
    """Return the function that reads a format.

    >>> importer("tabular").__name__
    'read_tabular'

    Raises:
        DataError: There is no such format, or its importer cannot be loaded.
        MissingExtraError: The format is that of a published run, and suffice-papers is not installed.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    entries = by_name(IMPORTERS)
    if name in entries:
        return _loaded(name, entries[name])
    if name in OF_PAPERS:
        raise _missing(f"the importer of {name!r}")
    names = importer_names()
    raise DataError(f"unknown format {name!r}.{did_you_mean(name, names)} Formats: {', '.join(names)}")


def _loaded(name: str, entries: Iterable[EntryPoint]) -> Callable[..., ImportedRun]:
    read: Callable[..., ImportedRun] = load_entry(
        entries, f"the importer of {name!r}", ", or choose another format with --kind"
    )
    return read


def reader_arguments(options: Mapping[str, Any], takes: Collection[str]) -> dict[str, Any]:
    """Return the options that a reader takes.

    Some options imply others: `samples` implies `ended="exhausted"`, and `golds` implies `log_golds="drop"`.
    """
    arguments = {name: value for name, value in options.items() if name not in NOT_OF_A_FORMAT}
    if options.get("samples") and "ended" in takes:  # a smaller number of samples does not mean that a loop stopped
        arguments.setdefault("ended", "exhausted")
    if options.get("samples") and "samples" in takes:
        arguments["samples"] = True
    if options.get("golds") is not None and "log_golds" in takes:
        arguments.setdefault("log_golds", "drop")
    for name in ("expected", "normalizer", "outcomes"):
        if name in options and name in takes:
            arguments[name] = options[name]
    if "answer_position" in options:
        arguments["answer_position"] = AnswerPosition.parse(options["answer_position"])
    return arguments
