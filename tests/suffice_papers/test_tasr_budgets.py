"""A folder of TASR's predictions with fixed budgets is one recording, and gives the paper's figures without own code."""

from __future__ import annotations

import json

import numpy as np
import pytest

from suffice.errors import DataError, SchemaError
from suffice.importers import import_recording, kind_of
from suffice.policy.metrics import METRICS
from suffice.recordings import read_recording
from suffice_papers.tasr.cells import read_cells
from suffice_papers.tasr.importer import read_tasr
from suffice_papers.tasr.tasr_tables import paper_tasr
from tests.support.cli_tools import cli

N = 40
SHARES = {1: 0.3, 3: 0.6, 5: 0.8}


def answer_of(i, k):
    return f"City {i}" if (i * 7 % N) / N < SHARES[k] else "City of nobody" if i % 3 else "Not mentioned"


def write_budget(folder, k, n=N, name="fixed_k{}_dev_eval.json", **more):
    folder.mkdir(exist_ok=True)
    value = {
        "predictions": {f"id{i}": answer_of(i, k) for i in range(n)},
        "confidences": {f"id{i}": 1 + (i + k) % 5 for i in range(n)},
        **more,
    }
    (folder / name.format(k)).write_text(json.dumps(value, indent=2))


@pytest.fixture
def folder(tmp_path):
    """Three files of predictions in the shape of the authors', with invented values."""
    for k in SHARES:
        write_budget(tmp_path / "results", k)
    golds = [{"id": f"id{i}", "question": f"Where is tower {i}?", "answer": f"City {i}"} for i in range(N)]
    (tmp_path / "dev_eval.json").write_text(json.dumps(golds))
    return tmp_path / "results"


def test_the_rounds_of_a_folder_of_predictions_are_its_budgets(folder):
    assert kind_of(folder) == "tasr"
    run = read_tasr(folder)
    assert len(run.trajectories) == N
    for i, item in enumerate(run.trajectories):
        answers = [seen.answer for seen in item.rounds]
        assert answers == [answer_of(i, 1), None, answer_of(i, 3), None, answer_of(i, 5)]
        confidences = [seen.signals["verbal_confidence"] for seen in item.rounds]
        assert np.array_equal(
            confidences, [1 + (i + 1) % 5, np.nan, 1 + (i + 3) % 5, np.nan, 1 + i % 5], equal_nan=True
        )
    assert any("k = 1, 3, 5" in note for note in run.notes)
    assert any("nothing was asked at k = 2, 4" in note for note in run.notes)


def test_the_figures_of_each_budget_come_without_own_code(folder, tmp_path):
    out = tmp_path / "budgets.parquet"
    cli("import", folder, "-o", out, "--golds", tmp_path / "dev_eval.json", code=0)
    assert np.isnan(read_recording(out).column("answer_stable")).all()
    cells = tmp_path / "cells.toml"
    cells.write_text(
        '[[cell]]\nname = "theirs"\nmodel = "m"\nretriever = "BM25"\ncorpus = "HotpotQA distractor"\n'
        'setting = "distractor"\npublished = "qwen_hp"\neval = "budgets.parquet"\n'
    )
    [cell] = read_cells(cells)
    assert cell.tune is None
    paper = paper_tasr([cell])
    rows = {row[1]: row[3:] for row in paper.summary.rows}
    f1 = METRICS["f1"]
    means = {k: np.mean([f1(answer_of(i, k), [f"City {i}"]) for i in range(N)]) for k in SHARES}
    assert [*rows] == [f"fixed_k({k})" for k in SHARES]
    for k, mean in means.items():
        value, calls, delta = (figure[0] if isinstance(figure, tuple) else figure for figure in rows[f"fixed_k({k})"])
        assert (value, calls, delta) == pytest.approx((mean, k, mean - means[3]))
    assert paper.headline.startswith("theirs: F1 of fixed_k(1)")
    assert paper.figures == ()
    shown = cli("paper", "tasr", "--cells", cells, code=0)
    assert f"{100 * means[5]:.2f}" in shown.out


def test_answers_without_evidence_are_round_0(folder, tmp_path):
    (folder / "closed_book_dev_eval.json").write_text(json.dumps({f"id{i}": "City 0" for i in range(N)}))
    summary = import_recording(folder, "tasr", out=tmp_path / "out.parquet", golds=tmp_path / "dev_eval.json")
    recording = read_recording(summary.path)
    assert list(recording.index) == [0, 1, 2, 3, 4, 5]
    assert recording.column("em")[:, 0].sum() == 1


def test_budgets_that_do_not_belong_together_are_refused(tmp_path):
    one = tmp_path / "one"
    write_budget(one, 3)
    with pytest.raises(DataError, match="one budget"):
        read_tasr(one)
    with pytest.raises(DataError, match="one budget"):
        read_tasr(one / "fixed_k3_dev_eval.json")
    write_budget(one, 3, name="fixed_k{}_dev_tune.json")
    with pytest.raises(DataError, match="both have"):
        read_tasr(one)
    other = tmp_path / "other"
    write_budget(other, 1)
    write_budget(other, 3, n=N - 2)
    with pytest.raises(DataError, match="different questions: 2"):
        read_tasr(other)
    write_budget(other, 5, name="five{}.json")
    with pytest.raises(DataError, match="has no budget"):
        read_tasr(other)
    with pytest.raises(DataError, match="leave out first-round"):
        read_tasr(other, first_round=1)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"predictions": {"id0": 3}}, "predictions is not"),
        ({"confidences": {"id0": True}}, "confidences is not"),
        ({"confidences": None}, "confidences is not"),
    ],
)
def test_a_file_of_another_shape_is_named(more, match, tmp_path):
    write_budget(tmp_path / "r", 1)
    write_budget(tmp_path / "r", 3, **more)
    with pytest.raises(SchemaError, match=match) as caught:
        read_tasr(tmp_path / "r")
    assert "fixed_k3" in str(caught.value)
