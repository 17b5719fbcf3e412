"""Types for users: each distribution says that it has some, and the file that type checkers read runs."""

from importlib.resources import files
from importlib.util import find_spec

import pytest
from scripts.version import ROOT

from suffice import Policy

HOUSES = sorted(
    path.parent.name for path in [*ROOT.glob("src/*/__init__.py"), *ROOT.glob("packages/*/src/*/__init__.py")]
)


@pytest.mark.parametrize("house", HOUSES)
def test_a_distribution_says_that_it_has_types(house):
    assert len(HOUSES) == 7
    assert find_spec(house) is not None
    assert files(house).joinpath("py.typed").is_file()


def test_the_user_of_the_types_can_run():
    from tests.typed.user import live, rounds, rules  # it registers names

    assert live(Policy(rule="answer_stable"), ["Oslo", "Oslo", "Bergen"]) == "Oslo"
    assert rounds("Oslo has a fjord").stop_round == 2
    assert {"answer_stable", "answer_margin"} <= rules().signals
