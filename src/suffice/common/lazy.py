"""Import a package's exported names on first use, so that importing one of its modules does not load all others."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_face(package: str, names: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that exports names of its modules.

    The package's modules are attributes, too, and imported on first use; `dir` does not list them.

    >>> get, _ = lazy_face("suffice.common", {"lazy": ["lazy_face"]})
    >>> get("lazy_face") is lazy_face
    True

    Args:
        package: The package's name.
        names: The exported names of each module, which is named relative to the package.
    """
    module_of = {name: module for module, exported in names.items() for name in exported}

    def get(name: str) -> Any:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        if name.isidentifier() and not name.startswith("__"):  # `__main__` would run the command line
            module = f"{package}.{name}"
            try:
                return import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:  # the module is there, and needs another one that is not
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(sys.modules[package].__all__)
