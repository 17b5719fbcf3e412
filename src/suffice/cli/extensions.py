"""Import users' Python files: modules that register rules, metrics and so on, and objects named in options."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from suffice.common.provided import installed, load_entry
from suffice.errors import DataError

EXTENSIONS = "suffice.extensions"
"""The group of entry points whose modules are imported before a command runs."""

_IN_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")


def load_extensions(names: Iterable[str]) -> None:
    """Import the modules that register signals, rules, metrics and so on: the installed extensions, and those in `names`."""
    for entry in installed(EXTENSIONS):
        load_entry((entry,), f"the extension {entry.name!r}")
    for name in names:
        import_named(name)


def import_named(name: str) -> ModuleType:
    """Import a module by its name or its file's path, at most once."""
    from suffice.common.processes import import_file

    try:
        return import_file(Path(name)) if name.endswith(".py") else import_module(name)
    except (ImportError, OSError, SyntaxError) as error:
        raise DataError(f"the extension {name!r} cannot be imported: {error}") from error


def is_in_file(text: str) -> bool:
    """Return whether an option's value names an object in a Python file.

    >>> is_in_file("mine/words.py:Words"), is_in_file("llama3:latest")
    (True, False)
    """
    return _IN_FILE.fullmatch(text) is not None


def object_in_file(text: str) -> Any:
    """Import a file and return the object of the given name; if it is a class, return an instance made without arguments.

    Args:
        text: ``FILE.py:NAME``.

    Raises:
        DataError: The file cannot be imported, or has no such name.
    """
    match = _IN_FILE.fullmatch(text)
    assert match is not None
    module = import_named(match["file"])
    if not hasattr(module, match["name"]):
        raise DataError(f"{match['file']} has no {match['name']!r}: name an object or a class that it defines")
    found = getattr(module, match["name"])
    return found() if isinstance(found, type) else found
