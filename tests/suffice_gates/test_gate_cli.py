"""A gated loop from the command line: record, replay, calibrate, certify, answer, with a model on disk or an encoder."""

from __future__ import annotations

import json

import numpy as np
import pytest

from suffice import Policy, read_recording
from suffice.loops.models import EndpointEmbedder
from suffice.loops.models.prompts import PROMPTS
from suffice.policy.calibration.calibrator import Sigmoid
from suffice_gates.models import EncoderStates, EndpointStates, TransformersModel
from suffice_gates.probes import Calibration, Probe, ProbeCard, pinned_of
from tests.suffice.policy.test_embedder import letters, server
from tests.support import local_models
from tests.support.batches import BatchEndpoint
from tests.support.cli_tools import cli, corpus, dataset

pytestmark = [pytest.mark.whole, pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")]

LOCAL = ("--local", "--prompt", "prefilled", "--set=max-tokens=8")


def probe_of(source, width, *, layer=None, slope=1.0):
    """A probe that says something else of each question."""
    card = ProbeCard(model=source.id, revision=source.revision, layer=layer, pinned=pinned_of(source.fingerprint()))
    weight = np.random.default_rng(0).normal(size=(1, width)).astype(np.float32)
    return Probe([(weight, np.zeros(1, dtype=np.float32))], card).calibrated(
        Calibration(method="platt", map=Sigmoid(slope, 0.0))
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, its probe, a probe of the packaged encoder, questions and a gated recording."""
    from suffice_reader.minilm import MiniLM

    base = tmp_path_factory.mktemp("gated")
    local_models.save(base / "model", max_position_embeddings=4096, **local_models.ENDING)
    model = TransformersModel(base / "model", layers=("middle",), prompt=PROMPTS["prefilled"])
    probe_of(model, local_models.WIDTH, layer=2).save(base / "probe")
    encoder = EncoderStates(MiniLM())
    probe_of(encoder, encoder.read_batch(["Where?"]).shape[2], slope=20.0).save(base / "encoded")
    dataset(base / "q.jsonl", n=8)
    done = cli(
        *("record", base / "q.jsonl", "-o", base / "r.parquet", "--model", base / "model", *LOCAL),
        *("--round-zero", "--max-rounds", "2", "--gate", base / "probe", "--json"),
    )
    assert done.code == 0, done.err
    return base


def test_a_recording_through_the_gate_holds_both_halves_of_round_0(folder):
    recording = read_recording(folder / "r.parquet")
    known = recording.column("p_known")
    assert (np.isfinite(known[:, 0]) & np.isnan(known[:, 1])).all()
    assert (recording.column("cost.gate.uncached_tokens")[:, 0] > 0).all()
    assert (recording.column("cost.generator.uncached_tokens")[:, 0] == 0).all()
    pinned = recording.metadata["depends"]["gate"]
    assert pinned["weights_sha256"] == Probe.load(folder / "probe").weights_sha256
    assert (pinned["layer"], pinned["prompts"]) == (2, ["qa"])


def test_the_chain_to_an_answer(folder, tmp_path):
    cli("replay", folder / "r.parquet", "--rule", "(p_known > 0.5) | (answer_stable >= 1)", "--json", code=0)
    policy = tmp_path / "p.json"
    cli("calibrate", folder / "r.parquet", "--rule", "(p_known > 0.5) | (answer_stable >= 1)", "-o", policy, "--json")
    assert Policy.load(policy).start_round == 0
    texts = corpus(tmp_path / "corpus")
    shown = ("--corpus", texts, "--policy", policy, "--model", folder / "model", *LOCAL, "--json")
    recording = read_recording(folder / "r.parquet")
    for q, known in zip(recording.question_ids, recording.column("p_known")[:, 0].tolist(), strict=True):
        question = str(recording.objects("question")[recording.question_ids.index(q), 0])
        done = cli("answer", question, *shown, "--gate", folder / "probe", code=0)
        assert done.json["rounds"][0]["signals"]["p_known"] == pytest.approx(known, abs=1e-5)
        assert (done.json["stop_round"] == 0) == (known > 0.5)
        assert ("generator" in done.json["rounds"][0]["costs"]) == (known > 0.5)
    assert "needs p_known" in cli("answer", "Where is tower 1?", *shown).error


def test_a_policy_refuses_another_probe(folder, tmp_path):
    policy = tmp_path / "p.json"
    cli("calibrate", folder / "r.parquet", "--rule", "p_known > 0.5", "-o", policy)
    probe = Probe.load(folder / "probe")
    Probe([(weight + 1e-3, bias) for weight, bias in probe.layers], probe.card).save(tmp_path / "other")
    told = cli(
        *("answer", "Where is tower 1?", "--corpus", corpus(tmp_path / "corpus"), "--policy", policy),
        *("--model", folder / "model", *LOCAL, "--gate", tmp_path / "other"),
    ).error
    assert "gate: fitted with" in told


def test_a_probe_on_an_encoder_gates_a_model_whose_states_nobody_shows(folder, tmp_path):
    """The span reader answers; MiniLM reads the question."""
    done = cli(
        *("record", folder / "q.jsonl", "-o", tmp_path / "r.parquet", "--round-zero", "--max-rounds", "1"),
        *("--gate", folder / "encoded", "--json"),
    )
    assert done.code == 0, done.err
    recording = read_recording(tmp_path / "r.parquet")
    assert len(set(recording.column("p_known")[:, 0].tolist())) > 1


def test_questions_that_the_probe_was_fitted_on_are_told(folder, tmp_path):
    from suffice.policy.seen import id_hash

    Probe.load(folder / "encoded").described(provenance={"tune_ids": [id_hash("q1")]}).save(tmp_path / "p")
    done = cli(
        *("record", folder / "q.jsonl", "-o", tmp_path / "r.parquet", "--round-zero", "--max-rounds", "1"),
        *("--gate", tmp_path / "p"),
    )
    assert "fitted on 1 of these 8 questions" in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--gate", "probe"), "--round-zero"),
        (("--round-zero", "--gate", "nothing"), "cannot be read"),
        (("--round-zero", "--set=gate-model=x"), "give --gate"),
        (("--round-zero", "--gate", "other"), "another model"),
        (("--round-zero", "--gate", "prompted"), "prompt_sha256"),
        (("--round-zero", "--gate", "endpoint"), "gate-base-url"),
        (("--base-url", "http://localhost:1"), "--local"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_question(folder, tmp_path, more, told):
    probe = Probe.load(folder / "probe")
    probe.described(revision="x", pinned={**probe.card.pinned, "content": "x"}).save(folder / "other")
    probe.described(pinned={**probe.card.pinned, "prompt_sha256": "x"}).save(folder / "prompted")
    probe.described(pinned={"kind": "endpoint states"}, layer=None).save(folder / "endpoint")
    given = [folder / word if (folder / word).is_dir() or word == "nothing" else word for word in more]
    done = cli(
        *("record", folder / "q.jsonl", "-o", tmp_path / "r.parquet", "--model", folder / "model", *LOCAL, *given),
        *("--max-rounds", "2"),
    )
    assert told in " ".join(done.error.split())
    assert not (tmp_path / "r.parquet").exists()


def test_hidden_states_need_a_local_model_or_a_gate_model(folder, tmp_path):
    base = ("record", folder / "q.jsonl", "-o", tmp_path / "r.parquet", "--round-zero", "--max-rounds", "1")
    assert "--set gate-model" in cli(*base, "--gate", folder / "probe").error
    done = cli(
        *base, "--gate", folder / "probe", f"--set=gate-model={folder / 'model'}", "--prompt", "prefilled", "--json"
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["failed"] == {}


EXTRA = {"embd_normalize": -1, "add_special_tokens": False}


def test_states_of_an_endpoint_use_the_gates_request_fields(folder, tmp_path):
    with server(letters) as (url, asked):
        done = cli(
            *(
                "gate",
                "states",
                folder / "q.jsonl",
                "-o",
                tmp_path / "s",
                "--model",
                "m",
                "--base-url",
                url,
                "--limit",
                "3",
            ),
            *(f"--set=extra-body={json.dumps(EXTRA)}", "--json"),
        )
        assert done.code == 0, done.err
        assert (done.json["stored"], done.json["layers"]) == (3, [])
        source = EndpointStates(EndpointEmbedder("m", base_url=url, extra_body=EXTRA))
        probe_of(source, 3, layer=None).save(tmp_path / "probe")
        gated = cli(
            *("record", folder / "q.jsonl", "-o", tmp_path / "r.parquet", "--round-zero", "--max-rounds", "1"),
            *("--gate", tmp_path / "probe", f"--set=gate-base-url={url}"),
        )
        assert gated.code == 0, gated.err
        source.embedder.close()
    assert len(asked) > 3
    assert all(EXTRA.items() <= body.items() for _, body, _ in asked)


def test_a_gate_is_asked_once_and_live_where_answers_come_in_batches(folder, tmp_path):
    prices = {name: {"uncached": 1e6, "cached": 1e6, "output": 1e6} for name in ("m", "gate")}
    (tmp_path / "prices.json").write_text(json.dumps(prices))
    with server(letters) as (url, asked), BatchEndpoint(usage="plain") as endpoint:
        source = EndpointStates(EndpointEmbedder("gate", base_url=url))
        probe_of(source, 3, layer=None).save(tmp_path / "probe")
        source.embedder.close()
        asked.clear()
        done = cli(
            *(
                "record",
                folder / "q.jsonl",
                "-o",
                tmp_path / "r.parquet",
                "--round-zero",
                "--max-rounds",
                "1",
                "--batch",
            ),
            *("--model", "m", "--base-url", endpoint.url, "--gate", tmp_path / "probe", f"--set=gate-base-url={url}"),
            *("--prices", tmp_path / "prices.json", "--json"),
        )
        assert done.code == 0, done.err
    assert len(asked) == done.json["questions"]
    recording = read_recording(tmp_path / "r.parquet")
    tokens = {
        name: sum(
            np.nansum(recording.column(f"cost.{name}.{kind}_tokens")) for kind in ("uncached", "cached", "output")
        )
        for name in ("generator", "gate")
    }
    assert tokens["gate"] > 0
    assert done.json["usd"] == pytest.approx(tokens["generator"] / 2 + tokens["gate"])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--base-url", "http://127.0.0.1:1/v1", "--layers", "middle"), "gives the state that leaves the last layer"),
        (('--set=extra-body={"a": 1}',), "there is none: give --base-url"),
        (("--base-url", "http://127.0.0.1:1/v1", "--set=extra-body=[]"), "expected a JSON object"),
    ],
)
def test_what_an_endpoint_would_take_no_notice_of_is_refused(folder, tmp_path, more, told):
    done = cli("gate", "states", folder / "q.jsonl", "-o", tmp_path / "s", "--model", "m", *more)
    assert told in " ".join(done.error.split())
    assert not (tmp_path / "s").exists()
    encoded = cli("gate", "states", folder / "q.jsonl", "-o", tmp_path / "s", "--encoder", "minilm", "--layers", "last")
    assert "an encoder has none: leave it out" in " ".join(encoded.error.split())


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("endpoint states", "at an embeddings endpoint, and this command runs the model here"),
        ("encoder states", "as a sentence encoder, which reads questions alone"),
    ],
)
def test_a_probe_without_layers_is_refused_for_its_own_reason(folder, tmp_path, kind, told):
    Probe.load(folder / "probe").described(pinned={"kind": kind}, layer=None).save(tmp_path / "probe")
    done = cli(
        *("reranker", "preferences", folder / "q.jsonl", "-o", tmp_path / "p.jsonl", "--model", folder / "model"),
        *("--probe", tmp_path / "probe", "--set=allow-prompt=rag"),
    )
    assert told in " ".join(done.error.split())
