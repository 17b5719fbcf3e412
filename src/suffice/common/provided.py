"""Load components of other distributions by name, through entry points, since the main package never imports them.

A distribution provides a component by an entry point of the group `suffice.provides`; the command line and loops load it when
an option needs it.  `registration` adds users' own metrics and normalizers to a table by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from importlib.metadata import Distribution, EntryPoint, EntryPoints, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any, TypeVar

from suffice._version import __version__
from suffice.errors import DataError, MissingExtraError, SufficeError, paths_in_checkout

PROVIDES = "suffice.provides"
"""The group of entry points."""

DISTRIBUTIONS = (
    "suffice-gates",
    "suffice-papers",
    "suffice-reader",
    "suffice-retrieval",
    "suffice-scale",
    "suffice-server",
)
"""Names, as pip knows them, of the packages beside the main one."""


def installed(group: str) -> EntryPoints:
    """Return the entry points of a group that are installed now.

    Reading the metadata of all packages takes 30 ms. They are read again only if a folder of `sys.path` has changed.
    """
    folders = tuple((folder, Path(folder).stat().st_mtime_ns) for folder in sys.path if Path(folder).exists())
    return _read(folders).get(group, EntryPoints())


@lru_cache(maxsize=1)
def _read(folders: tuple[tuple[str, int], ...]) -> dict[str, EntryPoints]:  # noqa: ARG001 - the key of the cache
    """Return the entry points of all our groups at once, because selecting a group searches every package."""
    found, ours = entry_points(), {}
    for group in found.groups:
        if group.startswith("suffice."):
            ours[group] = found.select(group=group)
    return ours


def by_name(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of a group by name; a name that several packages define has several entry points."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in sorted(installed(group), key=lambda entry: entry.name):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def load_entry(entries: Iterable[EntryPoint], what: str, instead: str = "") -> Any:
    """Load the object that an entry point names.

    Args:
        entries: All entry points with the name, at least one. More than one raises an error.
        what: A description of the object for messages: ``the command 'gate train'``.
        instead: Advice on what a user can do if the object cannot be loaded, worded as the end of a sentence.

    Raises:
        DataError: Several packages define the entry point, the object cannot be imported, or its package belongs to this
            project but has a different version than the main package.
    """
    first, *others = entries
    if others:
        packages = ", ".join(sorted(package_of(entry) for entry in (first, *others)))
        raise DataError(f"{what} is in several installed packages ({packages}): uninstall all but one{instead}")
    package = package_of(first)
    if first.dist is not None and package in DISTRIBUTIONS and _about(first.dist)[1] != _own_version():
        raise DataError(
            f"{what} is in {package} {_about(first.dist)[1]}, and suffice is {_own_version()}: they must have the same version; from a "
            f"checkout, run  pip install {paths_in_checkout(package)}"
        )
    try:
        return first.load()
    except SufficeError:
        raise
    except (ImportError, AttributeError, SyntaxError) as error:
        raise DataError(
            f"{what} in {package} cannot be loaded ({error}): upgrade or uninstall the package{instead}"
        ) from error


def package_of(entry: EntryPoint) -> str:
    """Return the name of the distribution that an entry point comes from, as pip shows it."""
    return "an installed package" if entry.dist is None else _about(entry.dist)[0]


@lru_cache(maxsize=256)
def _about(package: Distribution) -> tuple[str, str]:
    """Return a distribution's name, as pip shows it, and its version; cached, because each is parsed from a file."""
    return package.name.lower().replace("_", "-"), package.version


@cache
def _own_version() -> str:
    """Return the installed version of the main package; in a checkout it may lag behind the code."""
    try:
        return version("suffice")
    except PackageNotFoundError:
        return __version__


@cache
def _provided() -> dict[str, tuple[EntryPoint, ...]]:
    return by_name(PROVIDES)


def is_provided(name: str) -> bool:
    """Return whether an installed distribution provides a component."""
    return name in _provided()


def provided(name: str, feature: str = "") -> Any:
    """Load a component that another distribution provides.

    Args:
        name: The name of the component's entry point in the group `suffice.provides`, such as `reader.MiniLM`.  Such a name
            begins with the last word of its distribution's name, so that an error can say which distribution to install.
        feature: What a user asked for, for messages; default: the component's own name.

    Raises:
        MissingExtraError: The distribution that provides the component is not installed.
        DataError: Several distributions provide the component, its distribution has a different version than the main
            package, or the component cannot be imported.
    """
    entries = _provided().get(name)
    if entries is not None:
        return load_entry(entries, f"the component {name!r}")
    distribution, _, component = name.partition(".")
    raise MissingExtraError(feature or component, distribution=f"suffice-{distribution}")


_Named = TypeVar("_Named")
_Entry = TypeVar("_Entry")


def registration(table: dict[str, _Entry], name: str, what: str) -> Callable[[_Named], _Named]:
    """Return a decorator that registers a function or class in a table, under a name not yet in use.

    >>> table = {}
    >>> registration(table, "upper", "a function")(str.upper)("a"), list(table)
    ('A', ['upper'])

    Args:
        table: The registered items by name.
        name: An ASCII identifier.
        what: The kind of item, for messages: ``a metric``.
    """
    if not (name.isidentifier() and name.isascii()):
        raise DataError(f"{name!r} cannot name {what}: use ASCII letters, digits and underscores")
    if name in table:
        raise DataError(f"there is {what} {name!r} already; choose another name")

    def register(entry: _Named) -> _Named:
        table[name] = entry  # type: ignore[assignment]  # what the decorator's own type promises
        return entry

    return register
