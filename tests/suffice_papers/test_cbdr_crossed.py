"""Rerankers that are only compared: those of other cells, in the number type in which they are stored."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.policy.rounds import Passage
from suffice_gates.rerank import CrossEncoderScorer
from suffice_gates.training.reranker_trainer import RerankerSettings, load_base
from suffice_papers.cbdr.tiny_reranker import write_tiny_reranker
from suffice_papers.experiments import read_experiment
from tests.suffice_papers.test_experiments import CBDR
from tests.support.cli_tools import cli

pytestmark = [
    pytest.mark.whole,
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
]

CROSSED = CBDR.replace("eval-limit = 120", "eval-limit = 60").replace(
    'cross-encoder = "reranker"', 'cross-encoder = "reranker"\ncompare-aligned = ["tiny/known"]'
) + ('\n[[data]]\nname = "other"\neval = "tiny/eval.jsonl"\neval-limit = 40\n')


@pytest.fixture
def folder(tiny_model, tmp_path, no_model_cards):
    (tmp_path / "tiny").symlink_to(tiny_model)
    write_tiny_reranker(tmp_path / "reranker", tiny_model)
    return tmp_path


def test_an_aligned_reranker_is_compared_in_the_cells_after_its_own(folder):
    path = folder / "run.toml"
    path.write_text(CROSSED)
    cli("run", path, "--json", code=0)
    name = "aligned, tiny/known"
    figures = {
        data: [
            item["figure"]
            for item in json.loads(next((folder / "run/cells/tiny" / data).rglob("figures.json")).read_text())
        ]
        for data in ("known", "other")
    }
    assert not any(name in figure for figure in figures["known"])
    assert f"accuracy, {name}, top-1" in figures["other"]
    assert "nothing was asked" in cli("run", path).words
    source = next((folder / "run/cells/tiny/known").rglob("work"))
    shutil.rmtree(source / "reranker")
    shutil.rmtree(next((folder / "run/cells/tiny/other").rglob("work")))
    next((folder / "run/cells/tiny/other").rglob("settings.json")).unlink()
    again = cli("run", path, "--json", code=1)
    assert "no aligned reranker to compare" in again.json["failed"]["tiny/other/bm25/prefilled/seed-0"]


def test_a_cell_to_compare_has_to_be_in_the_file(folder):
    (folder / "run.toml").write_text(CROSSED.replace('["tiny/known"]', '["tiny/unknown"]'))
    with pytest.raises(DataError, match="'tiny/known'"):
        read_experiment(folder / "run.toml")


def test_only_a_reranker_to_train_has_weights_in_single_precision(folder):
    import torch
    from sentence_transformers import CrossEncoder

    half = folder / "half"
    CrossEncoder(str(folder / "reranker"), model_kwargs={"dtype": torch.bfloat16}).save_pretrained(str(half))

    def dtype_of(encoder):
        return {weight.dtype for weight in encoder.parameters()}

    settings = RerankerSettings(batch=8)
    compared, trained = (
        load_base(str(half), settings, revision=None, device="cpu", seed=0, new_head=new) for new in (False, True)
    )
    assert dtype_of(compared) == {torch.bfloat16}
    assert dtype_of(trained) == {torch.float32}
    scorer = CrossEncoderScorer(half, device="cpu", dtype="auto")
    [score] = scorer.scores("Where is it?", [Passage(passage_id="1", title="A tower", text="It is here.")])
    assert np.isfinite(score)
    assert dtype_of(scorer._encoder) == {torch.bfloat16}
