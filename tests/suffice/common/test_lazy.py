"""Names and modules of a package are imported on first use."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a package that exports a name, and has one module that works and two that do not."""
    folder = tmp_path / "lazy_sample"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from math import pi, tau as tau\n"
        "from typing import TYPE_CHECKING\n"
        "from suffice.common.lazy import lazy_face\n"
        "if TYPE_CHECKING:\n"
        "    from lazy_sample.whole import name as name\n"
        "__getattr__, __dir__, __all__ = lazy_face(__name__)\n"
    )
    (folder / "__main__.py").write_text("raise SystemExit('the command line ran')\n")
    (folder / "whole.py").write_text("name = 1\n")
    (folder / "needy.py").write_text("import a_package_that_nobody_has\n")
    (folder / "broken.py").write_text("from lazy_sample.whole import nothing\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("lazy_sample")
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy_sample"]:
        del sys.modules[name]


def test_modules_are_attributes_and_not_listed(package):
    assert package.whole.name == package.name == 1
    assert dir(package) == package.__all__ == ["name", "tau"]


def test_a_missing_module_is_an_attribute_error(package):
    for name in ("missing", "missing.further", "__main__", "__missing__"):
        with pytest.raises(AttributeError, match=name):
            getattr(package, name)
    assert not hasattr(package, "missing")


def test_an_error_inside_a_module_is_raised_as_it_is(package):
    with pytest.raises(ModuleNotFoundError, match="a_package_that_nobody_has"):
        _ = package.needy
    with pytest.raises(ImportError, match="nothing"):
        _ = package.broken
