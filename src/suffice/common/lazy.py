"""Import a package's exported names on first use, so that importing one of its modules does not load all others."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_face(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package that exports names of its modules.

    The package's `__init__.py` imports the names under `if TYPE_CHECKING:`, where type checkers and editors read them; this function
    reads the same lines, so that each name is listed once.  `__all__` also has names
    that the file imports immediately, as `name as name`.
    The package's modules are attributes, too, and imported on first use; `dir` does not list them.

    >>> get, _, names = lazy_face("suffice.common.display")
    >>> names
    ['Chart', 'Displayed', 'facts_table', 'html_table']
    >>> get("Chart").__module__
    'suffice.common.display.chart'

    Args:
        package: The package's name.
    """
    module_of, now = _imports(package)

    def get(name: str) -> Any:
        if name in module_of:
            return getattr(import_module(module_of[name]), name)
        if name.isidentifier() and not name.startswith("__"):  # `__main__` would run the command line
            module = f"{package}.{name}"
            try:
                return import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:  # the module is there, and needs another one that is not
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(sys.modules[package].__all__), sorted([*module_of, *now])


def _imports(package: str) -> tuple[dict[str, str], list[str]]:
    """Return the module of each name that a package imports for type checkers, and the names that it imports immediately."""
    spec = find_spec(package)
    assert spec is not None
    text = spec.loader.get_source(package)  # type: ignore[union-attr]
    body = ast.parse(text).body
    later = [line for node in body if isinstance(node, ast.If) for line in node.body]
    module_of = {
        alias.name: line.module
        for line in later
        if isinstance(line, ast.ImportFrom) and line.module
        for alias in line.names
    }
    now = [
        alias.name
        for line in body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
        if alias.asname == alias.name
    ]
    return module_of, now
