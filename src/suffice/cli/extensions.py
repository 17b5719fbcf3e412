"""Modules of one's own that register rules, metrics and the like, imported before a command runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

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
            _import_file(Path(name)) if name.endswith(".py") else import_module(name)
        except (ImportError, OSError, SyntaxError) as error:
            raise DataError(f"the extension {name!r} cannot be imported: {error}") from error


def _import_file(path: Path) -> None:
    if getattr(sys.modules.get(path.stem), "__file__", None) == str(path.resolve()):
        return
    spec = spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = module = module_from_spec(spec)  # dataclasses look their module up there
    spec.loader.exec_module(module)
