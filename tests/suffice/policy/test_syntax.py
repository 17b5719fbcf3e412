"""Python's syntax in threads."""

import gc
import threading
import time

import pytest

from suffice.policy.normalizers import NORMALIZERS
from suffice.policy.rules import parse_rule

READERS = [
    lambda: parse_rule("(answer_stable >= 1) & ((p_correct > 0.25) | (overlap > 0.5))"),
    lambda: NORMALIZERS["literal"]("[1, (2, 3), {'a': [4, 5, (6, 7)]}]"),
]


@pytest.fixture
def collecting():
    """Collect garbage often, and let another thread run meanwhile."""

    def yield_to_others(*_):
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(yield_to_others)
    gc.set_threshold(5)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(yield_to_others)


def test_threads_read_rules_and_literals_while_garbage_is_collected(collecting):
    # Without a lock most runs end in a SystemError, with Python 3.11.7 and before.
    raised, kept = [], []

    def read(reader):
        try:
            kept.append([reader() for _ in range(200)])  # what is freed makes no garbage
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=read, args=(reader,)) for reader in READERS * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) + len(raised) == len(threads)
    assert raised == []
