"""The whole way by the command line on the tiny model: states, probe, gate, preferences, reranker, loop."""

import numpy as np
import pytest

from suffice.recordings import read_recording
from suffice_gates.probes import Probe
from suffice_papers.cbdr.tiny_reranker import write_tiny_reranker
from tests.support.cli_tools import cli

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
]

BETA = 0.5


def done(*arguments):
    return cli(*arguments, code=0)


@pytest.fixture(scope="module")
def chain(tiny_model, tmp_path_factory, no_model_cards):
    """The folder after every command of the chain."""
    folder = tmp_path_factory.mktemp("chain")
    tune, held_out = tiny_model / "tune.jsonl", tiny_model / "eval.jsonl"
    local = ["--local", "--model", tiny_model, "--prompt", "prefilled", "--set=max-tokens=4", "--round-zero"]
    record = [*local, "--max-rounds", 1, "--json"]
    read = ["--model", tiny_model, "--set=instructions=prefilled", "--json"]
    done("record", tune, "-o", folder / "tune.parquet", "--limit", 160, *record)
    done("gate", "states", tune, "-o", folder / "tune.states", "--limit", 160, "--layers", "last", *read)
    probe = folder / "probe"
    done(
        "gate", "train", folder / "tune.states", "--labels", folder / "tune.parquet", "-o", probe, "--kind", "logistic"
    )
    done("record", held_out, "-o", folder / "gated.parquet", "--limit", 60, "--gate", probe, *record)
    preferences = ["--probe", probe, "--set=allow-prompt=rag", "--set=candidates=6", *read]
    done("reranker", "preferences", tune, "-o", folder / "preferences.jsonl", "--limit", 60, *preferences)
    base = write_tiny_reranker(folder / "base", tiny_model)
    training = ["--base", base, "--set=lr=1e-3", "--set=batch=8", "--set=device=cpu", "--json"]
    done("reranker", "train", folder / "preferences.jsonl", "-o", folder / "aligned", *training)
    aligned = ["--gate", probe, "--reranker", folder / "aligned", *record]
    done("record", held_out, "-o", folder / "aligned.parquet", "--limit", 60, *aligned)
    return folder


def test_the_gate_answers_directly_what_the_model_knows(chain):
    recording = read_recording(chain / "gated.parquet")
    known, right = recording.column("p_known")[:, 0], recording.column("em")[:, 0]
    assert np.isnan(recording.column("p_known")[:, 1]).all()
    direct = known > BETA
    assert 0.2 < direct.mean() < 0.8
    assert right[direct].mean() > 0.7
    assert right[~direct].mean() < 0.3


def test_replay_always_charges_the_gate_and_the_answer_when_used(chain):
    recording = read_recording(chain / "gated.parquet")
    rule = f"p_known > {BETA}"
    rows = done("replay", chain / "gated.parquet", "--rule", rule, "--metric", "em", "--json").json["rows"]
    (gated,) = (row for row in rows if row["label"] == rule)
    direct = recording.column("p_known")[:, 0] > BETA
    em = np.where(direct, recording.column("em")[:, 0], recording.column("em")[:, 1])
    assert gated["metrics"]["em"] == pytest.approx(em.mean())
    assert gated["stop_rounds"]["0"] == pytest.approx(direct.mean())
    assert gated["costs"]["retrievals"] == pytest.approx((~direct).mean())
    decide, answered, retrieved = (
        recording.column(f"cost.{part}")[:, r]
        for part, r in (("gate.uncached_tokens", 0), ("generator.output_tokens", 0), ("generator.output_tokens", 1))
    )
    prompt = recording.column("cost.generator.uncached_tokens")[:, 1]
    paid = decide + np.where(direct, answered, prompt + retrieved)
    assert gated["costs"]["tokens"] == pytest.approx(paid.mean())


def test_the_aligned_reranker_orders_the_evidence_of_the_loop(chain):
    plain, aligned = (read_recording(chain / f"{name}.parquet") for name in ("gated", "aligned"))
    assert plain.question_ids == aligned.question_ids
    first = [recording.table.column("passage_ids").to_pylist() for recording in (plain, aligned)]
    assert first[0] != first[1]
    assert "reranked" in aligned.table.column("retriever").to_pylist()[0]


def test_the_probe_goes_with_its_model_alone(chain, tiny_model):
    card = Probe.load(chain / "probe").card
    assert card.model.endswith("tiny_model")
    assert card.prompts == ("qa",)
    words = ["--model", tiny_model, "--probe", chain / "probe", "--set=instructions=prefilled", "--limit", 5]
    told = cli("reranker", "preferences", tiny_model / "eval.jsonl", "-o", chain / "refused.jsonl", *words).error
    assert "--set allow-prompt=rag" in told
