"""What holds for every test, the examples in docstrings among them; the rest is in `tests/conftest.py`."""

import pytest

from suffice.common import processes
from suffice.importers import importers
from suffice.policy import metrics
from suffice.policy.rules import parse
from suffice.policy.signals import base as signals


@pytest.fixture(autouse=True)
def _own_names_are_forgotten():
    """What a test registers is gone when it ends, so that it can run again."""
    registries = (
        signals._REGISTRY,
        parse.OWN_RULES,
        parse.OWN_SELECTORS,
        metrics._ALL_METRICS,
        importers._REGISTERED,
        processes._imported,
    )
    before = [dict(registry) for registry in registries]
    yield
    for registry, names in zip(registries, before, strict=True):
        if registry != names:
            registry.clear()
            registry.update(names)
