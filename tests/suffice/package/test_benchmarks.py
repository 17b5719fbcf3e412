"""The benchmarks start; what their programs for docs/results share with the library still fits."""

import importlib
import json
import pkgutil

import benchmarks
import pytest

from suffice.recordings import bundled_recording


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__)))
def test_every_benchmark_can_be_imported(name):
    importlib.import_module(f"benchmarks.{name}")


def test_self_refine_centroids_and_last_drafts_are_compared_with_two_drafts():
    from benchmarks.self_refine import against_fixed

    table = against_fixed(bundled_recording("self_refine_gpt4"), "drafts")
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == [*(f"centroid of {k}" for k in range(2, 6)), *(f"fixed_k({k})" for k in range(1, 6))]
    assert rows["fixed_k(2)"][1] == (0, 0, 0)
    assert rows["centroid of 5"][0] > 0.94 > rows["fixed_k(2)"][0] > rows["fixed_k(5)"][0]


@pytest.mark.whole
def test_the_benchmark_for_a_gpu_runs_with_small_models_on_the_cpu(capsys):
    from benchmarks.gpu import DRIFT, main

    assert main(["--tiny", "--repeats", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["device"] == "CPU"
    assert [row["batch"] for row in result["states"]] == [4, 16]
    assert all(row["of_bare"] > 0 and row["peak_gib"] is None for row in result["states"])
    assert 0 < result["precision"]["largest"] <= DRIFT
    assert set(result["gate"]["seconds"]) == {
        "answer alone",
        "gate, its pass continued",
        "gate, and a pass of its own",
        "gate alone",
    }
    assert [row["new_tokens"] for row in result["memory"]["passes"]] == [0, 4]
    counted = [row["counted_gib"] for row in (*result["memory"]["passes"], *result["memory"]["scores"])]
    assert all(0 < size < 0.01 for size in counted)
    assert result["memory"]["crowded"]["largest_difference"] <= DRIFT
    assert result["reranker"]["settings"] == {"batch": 4, "parts": 1, "pairs": 48, "steps": 2}
    assert set(result["reranker"]["pairs_per_s"]) == {"ours", "plain"}


@pytest.mark.whole
def test_a_gpu_benchmark_without_a_gpu_says_so_first(capsys, monkeypatch):
    import torch
    from benchmarks.gpu import main

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        main([])
    assert "no GPU on this machine: --tiny runs small models" in capsys.readouterr().err
