"""What every test runs under, and fixtures that each may ask for."""

import os
import random

# Two tests run at a time: one thread each, as waiting threads only take the processor from the other's.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from hypothesis import HealthCheck, settings  # noqa: E402

from tests.tiny import tiny_model  # noqa: E402

__all__ = ["tiny_model"]

LONGEST = ("test_cbdr", "test_docs", "test_transformers_model", "test_record", "test_chain_tiny", "test_search")

# A law holds on slow and busy machines too.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_modifyitems(items):
    """Begin with the longest files, as one that comes last keeps one worker busy and the other waiting.

    Where `SUFFICE_TEST_ORDER` is a seed: shuffle files, and the tests of each; the same in every worker.
    """
    if seed := os.environ.get("SUFFICE_TEST_ORDER"):
        keys = {}
        rng = random.Random(seed)
        items.sort(key=lambda item: (keys.setdefault(item.path, rng.random()), rng.random()))
    else:
        items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
