"""What holds for every test, the examples in docstrings among them; the rest is in `tests/conftest.py`."""

import sys

import pytest

from suffice.common import processes
from suffice.importers import importers
from suffice.policy import metrics
from suffice.policy.rules import parse
from suffice.policy.signals import definitions as signals


def _registries():
    """All registries that a test can add names to; those of other packages only where they have been imported."""
    stores = sys.modules.get("suffice_retrieval.stores.kinds")
    return {
        "signals": signals._REGISTRY,
        "rules": parse.OWN_RULES,
        "selectors": parse.OWN_SELECTORS,
        "metrics": metrics._ALL_METRICS,
        "importers": importers._REGISTERED,
        "files": processes._imported,
        "stores": stores._REGISTERED if stores else {},
    }


@pytest.fixture(autouse=True)
def _own_names_are_forgotten():
    """What a test registers is gone when it ends, so that it can run again."""
    before = {name: dict(registry) for name, registry in _registries().items()}
    yield
    for name, registry in _registries().items():
        if registry != before[name]:
            registry.clear()
            registry.update(before[name])


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for examples only in files that have some: looking through all the others takes an eighth of the collection."""
    collectors = yield
    has_examples = file_path.suffix != ".py" or ">>> " in file_path.read_text("utf-8")
    return [own for own in collectors if has_examples or type(own).__name__ != "DoctestModule"]
