"""Measure the tests that `make check` could run, and list the slow ones in tests/slow.txt, which it leaves out.

    python -m scripts.slow_tests [PYTEST ARGUMENTS...]

Slow is a test that takes more than `MOST_S` processor seconds, all its cases together; those marked `whole` are left out
anyway.  With arguments only the tests that they choose are measured, and the others keep their place in the list.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

LISTED = Path(__file__).resolve().parent.parent / "tests" / "slow.txt"
MOST_S = 0.05
"""Processor seconds of a test that `make check` still runs."""


def function_of(nodeid: str) -> str:
    """Return the name of a test without its case.

    >>> function_of("tests/test_a.py::test_b[c::d]")
    'tests/test_a.py::test_b'
    """
    return nodeid.partition("[")[0]


class Clock:
    """A pytest plugin that adds up the processor seconds of each test function."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Time one test with its fixtures; the first that needs a shared fixture pays for it."""
        began, name = time.process_time(), function_of(item.nodeid)
        try:
            return (yield)  # type: ignore[return-value]
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began


def listed(seconds: Mapping[str, float], before: Iterable[str] = ()) -> list[str]:
    """Return the names of slow tests: of those that were measured, and the others that were listed before.

    >>> listed({"a": 0.05, "b": 7.0}, ["a", "c"])
    ['b', 'c']
    """
    slow = {name for name, spent in seconds.items() if spent > MOST_S}
    return sorted(slow.union(set(before) - seconds.keys()))


def main(arguments: list[str]) -> int:
    """Measure, write the list, and print how long the tests that stay take."""
    clock = Clock()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not whole", *arguments], plugins=[clock])
    if code:
        return int(code)
    before = LISTED.read_text("utf-8").split() if arguments else ()
    LISTED.write_text("".join(f"{name}\n" for name in listed(clock.seconds, before)), "utf-8")
    quick = [spent for spent in clock.seconds.values() if spent <= MOST_S]
    print(
        f"{len(quick)} of {len(clock.seconds)} tests are not slow; they take {sum(quick):.0f} of "
        f"{sum(clock.seconds.values()):.0f} processor seconds"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
