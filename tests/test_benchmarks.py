"""The benchmarks start; what their programs for docs/results share with the library still fits."""

import importlib
import pkgutil

import benchmarks
import pytest

from suffice.store import bundled_recording


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__)))
def test_every_benchmark_can_be_imported(name):
    importlib.import_module(f"benchmarks.{name}")


def test_two_drafts_are_what_each_centroid_and_each_last_draft_is_compared_with():
    from benchmarks.self_refine import against_fixed

    table = against_fixed(bundled_recording("self_refine_gpt4"), "drafts")
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == [*(f"centroid of {k}" for k in range(2, 6)), *(f"fixed_k({k})" for k in range(1, 6))]
    assert rows["fixed_k(2)"][1] == (0, 0, 0)
    assert rows["centroid of 5"][0] > 0.94 > rows["fixed_k(2)"][0] > rows["fixed_k(5)"][0]
