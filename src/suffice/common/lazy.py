"""Faces of rooms whose names are imported when they are first used, so that one module of a room does not load all others."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_face"]


def lazy_face(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package that exports names of its modules.

    >>> get, names = lazy_face("suffice.common", {"lazy_face": "suffice.common.lazy"})
    >>> get("lazy_face") is lazy_face, names()
    (True, ['lazy_face'])

    Args:
        package: The package's name, for the error of an unknown name.
        names: By exported name, the module that defines it.
    """

    def get(name: str) -> Any:
        if name in names:
            return getattr(import_module(names[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(names)
