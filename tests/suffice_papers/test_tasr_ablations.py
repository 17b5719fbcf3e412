"""TASR's ablations against plain loops: calibrators, folds, other signals, and seconds."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.recordings import read_recording, write_recording
from suffice_papers.published import published_tasr
from suffice_papers.tasr.ablations import calibrators_table, folds_table, negatives_table, seconds_table
from suffice_papers.tasr.cells import load_cell, read_cells
from tests.suffice_papers.test_paper_tasr import recorded, rows, tasr_stop
from tests.support import paper

DRAWS = Resampling(n_resamples=100)
PUBLISHED = published_tasr()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablations")
    paper.cell_list(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    return [load_cell(cell, resampling=DRAWS) for cell in read_cells(folder / "cells.toml")]


def fitted(tune, rounds):
    """Isotonic regressions of EM on the margin, by scikit-learn, each on some rounds (places in a question)."""
    known = [question[r] for question in tune for r in rounds if question[r]["answer_token_margin"] is not None]
    model = IsotonicRegression(out_of_bounds="clip")
    return model.fit([row["answer_token_margin"] for row in known], [row["current_em"] for row in known])


def probabilities(models, evaluation):
    return [
        [
            None if row["answer_token_margin"] is None else float(models[r].predict([row["answer_token_margin"]])[0])
            for r, row in enumerate(question)
        ]
        for question in evaluation
    ]


def scored(evaluation, chances, threshold=0.25):
    """Mean F1 and calls of TASR with another threshold."""
    stops = []
    for question, row in zip(evaluation, chances, strict=True):
        moved = [None if p is None else p + 0.25 - threshold for p in row]
        stops.append(tasr_stop(question, moved))
    f1 = [question[stop]["current_f1"] for question, stop in zip(evaluation, stops, strict=True)]
    return fmean(f1), fmean(stop + 1 for stop in stops), f1


@pytest.mark.parametrize(
    ("form", "groups"),
    [("isotonic, each round", [[r] for r in range(5)]), ("isotonic, all rounds", [list(range(5))] * 5)],
)
def test_forms_of_calibrators_equal_plain_loops(loaded, form, groups):
    found = rows(calibrators_table(loaded, PUBLISHED, DRAWS))
    tune, evaluation = recorded("ours_qwen_hp")
    chances = probabilities([fitted(tune, group) for group in groups], evaluation)
    errors = [
        (p - row["current_em"]) ** 2
        for question, of_question in zip(evaluation, chances, strict=True)
        for row, p in zip(question, of_question, strict=True)
        if p is not None
    ]
    f1, calls, _ = scored(evaluation, chances)
    row = next(row for row in found if (row["cell"], row["calibrator"]) == ("ours_qwen_hp", form))
    assert (row["Brier, eval"], row["F1"], row["calls"]) == pytest.approx((fmean(errors), f1, calls))
    mean = next(row for row in found if (row["cell"], row["calibrator"]) == ("mean of 5", form))
    assert mean["F1"] == pytest.approx(fmean(row["F1"] for row in found if row["calibrator"] == form and row["calls"]))


def test_platts_wins_are_counted(loaded):
    table = calibrators_table(loaded, PUBLISHED, DRAWS)
    found = rows(table)
    of = {(row["cell"], row["calibrator"]): row["F1"] for row in found}
    names = [item.cell.name for item in loaded]
    wins = sum(of[name, "Platt, each round"] > of[name, "isotonic, each round"] for name in names)
    assert f"in {wins} of 5 cells" in table.notes[1]


def best_threshold(questions, chances):
    """The best F1 with at most three mean calls over every distinct threshold, else the fewest calls."""
    values = sorted({p for row in chances for p in row if p is not None})
    tried = [(*scored(questions, chances, t)[:2], t) for t in (-1.0, *values)]
    allowed = [item for item in tried if item[1] <= 3 + 1e-9]
    return max(allowed, key=lambda item: item[0]) if allowed else min(tried, key=lambda item: item[1])


def test_folds_within_the_tune_questions_equal_plain_loops(loaded):
    found = rows(folds_table(loaded, PUBLISHED, DRAWS))
    assert {row["cell"] for row in found} == {"ours_qwen_hp", "ours_gemma_hp", "of_my_own", "mean of 3"}
    tune, evaluation = recorded("ours_qwen_hp")
    folds = np.random.default_rng(DRAWS.seed).permutation(np.arange(len(tune)) % 5)
    inside, outside = [], []
    for number in range(5):
        train = [question for question, fold in zip(tune, folds, strict=True) if fold != number]
        held = [question for question, fold in zip(tune, folds, strict=True) if fold == number]
        models = [fitted(train, [r]) for r in range(5)]
        quality, _, threshold = best_threshold(train, probabilities(models, train))
        inside.append(quality)
        outside += scored(held, probabilities(models, held), threshold)[2]
    row = next(row for row in found if row["cell"] == "ours_qwen_hp")
    assert row["F1, four fifths"] == pytest.approx(fmean(inside))
    assert row["F1, other fifth"] == pytest.approx(fmean(outside))
    assert row["gap"] == pytest.approx(fmean(inside) - fmean(outside))
    models = [fitted(tune, [r]) for r in range(5)]
    chances = probabilities(models, evaluation)
    threshold = best_threshold(tune, probabilities(models, tune))[2]
    lead = scored(evaluation, chances)[0] - scored(evaluation, chances, threshold)[0]
    assert row["eval ΔF1, locked minus tuned"][0] == pytest.approx(lead)


def test_a_signal_beside_the_rule_equals_plain_loops(loaded):
    table = negatives_table(loaded[:1], PUBLISHED, DRAWS)
    tune, evaluation = recorded("ours_qwen_hp")

    def alone(threshold):
        stops = [next((r for r, row in enumerate(q) if row["rerank_score"] > threshold), 4) for q in tune]
        f1 = fmean(q[stop]["current_f1"] for q, stop in zip(tune, stops, strict=True))
        return f1, fmean(stop + 1 for stop in stops), threshold

    scores = [row["rerank_score"] for question in tune for row in question]
    tried = [alone(t) for t in np.linspace(min(scores), max(scores), 40).tolist()]
    threshold = max((item for item in tried if item[1] <= 3 + 1e-9), key=lambda item: item[0])[2]
    chances = probabilities([fitted(tune, [r]) for r in range(5)], evaluation)
    before = after = calls = 0.0
    for question, row in zip(evaluation, chances, strict=True):
        stop = tasr_stop(question, row)
        earlier = next((r for r, item in enumerate(question) if item["rerank_score"] > threshold), 4)
        before += question[stop]["current_f1"]
        after += question[min(stop, earlier)]["current_f1"]
        calls += min(stop, earlier) - stop
    found = rows(table)[0]
    n = len(evaluation)
    assert found["variant of TASR"] == "or rerank_score > t"
    assert found["ΔF1 vs TASR"][0] == pytest.approx((after - before) / n)
    assert found["Δcalls"] == pytest.approx(calls / n)
    assert found["lowest cell"] == found["highest cell"] == pytest.approx((after - before) / n)
    assert any("answer_margin_p10" in note for note in table.notes)


def with_columns(folder, name, change):
    """Return the path of a recording with further columns in each row."""
    recording = read_recording(folder / f"{name}.parquet")
    listed = [row | change(row) for row in recording.table.to_pylist()]
    write_recording(folder / f"{name}-more.parquet", listed, recording.metadata, kinds={"answer_margin_min": "signal"})
    return folder / f"{name}-more.parquet"


def test_another_margin_is_calibrated_like_the_first(folder):
    cell = read_cells(folder / "cells.toml")[0]
    parts = {
        part: with_columns(folder, name, lambda row: {"answer_margin_min": row["answer_margin"]})
        for part, name in (("tune", "qwen_hp_tune"), ("eval", "ours_qwen_hp"))
    }
    found = rows(negatives_table([load_cell(replace(cell, **parts), resampling=DRAWS)], PUBLISHED, DRAWS))
    row = next(row for row in found if row["variant of TASR"] == "p_correct by answer_margin_min")
    assert (row["ΔF1 vs TASR"], row["Δcalls"]) == (pytest.approx((0, 0, 0)), 0)


def test_seconds_are_shown_only_where_all_were_recorded(loaded, folder):
    with pytest.raises(DataError, match="seconds of its"):
        seconds_table(loaded, PUBLISHED, DRAWS)
    cell = read_cells(folder / "cells.toml")[0]
    path = with_columns(folder, "ours_qwen_hp", lambda row: {"cost.generator.seconds": 0.5 * row["round"]})
    found = rows(seconds_table([load_cell(replace(cell, eval=path), resampling=DRAWS)], PUBLISHED, DRAWS))
    of = {row["policy"]: row for row in found}
    assert of["fixed_k(3)"]["seconds"][0] == pytest.approx(0.5 + 1.0 + 1.5)
    assert of["fixed_k(3)"]["seconds per call"] == pytest.approx(1.0)
    assert of["tasr"]["seconds, P95"] <= 7.5
