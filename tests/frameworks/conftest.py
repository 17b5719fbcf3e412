"""What the tests of frameworks share; they run in environments of their own, see `.ci/full`."""

import pytest

from suffice.policy.signals import definitions
from tests.frameworks.acceptance import policy_file


@pytest.fixture
def folder(tmp_path):
    """A folder with the policy of the acceptance test; its signal is forgotten afterwards."""
    before = dict(definitions._REGISTRY)
    policy_file(tmp_path)
    yield tmp_path
    definitions._REGISTRY.clear()
    definitions._REGISTRY.update(before)
