"""Import a package's exported names on first use, so that importing one of its modules does not load all others."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_face(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that exports names of its modules.

    >>> get, names = lazy_face("suffice.common", {"lazy_face": "suffice.common.lazy"})
    >>> get("lazy_face") is lazy_face, names()
    (True, ['lazy_face'])
    """

    def get(name: str) -> Any:
        if name in names:
            return getattr(import_module(names[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(names)
