"""Training probes: from stored states to a folder that is served, chosen on dev, measured once on test."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import ConfigMismatchError, DataError
from suffice.policy.seen import Seen, id_hash
from suffice.recordings import write_recording
from suffice_gates.models.state_files import StateWriter, StoredStates, read_states
from suffice_gates.probes import Probe, ProbeCard, measure_probe
from suffice_gates.training.examples import Examples, Split, split_by_hash
from suffice_gates.training.probe import ProbeSettings, calibrate_probe, fit_calibration, logistic_probe, train_probe
from suffice_gates.training.probe_run import LabelledStates, run_training
from tests.support.cli_tools import cli

pytestmark = pytest.mark.whole

QUICK = ProbeSettings(hidden=(16, 8), lr=3e-3, epochs=12, patience=4, dropout=0.2)
CARD = ProbeCard(model="m", revision="r", layer=1)
HEADER = {
    "model": "m",
    "revision": "r",
    "layers": [1, 2],
    "prompt": "qa",
    "source": {"kind": "t", "prompt_sha256": "q"},
}


def world(n=600, width=24, *, share=0.35, seed=0, layers=2, header=HEADER):
    """States in whose second layer some numbers tell whether the answer is known; nothing does in the first."""
    rng = np.random.default_rng(seed)
    known = (rng.random(n) < share).astype(float)
    states = rng.normal(size=(n, layers, width))
    states[:, -1, :6] += 1.1 * (known - share)[:, None]
    ids = tuple(f"q{i}" for i in range(n))
    stored = StoredStates(ids=ids, values=states.astype(np.float16), header=header)
    return LabelledStates(states=stored, labels=dict(zip(ids, known.tolist(), strict=True)))


@pytest.fixture(scope="module")
def data():
    return world()


@pytest.fixture(scope="module")
def split(data):
    return split_by_hash(data.states.ids)


@pytest.fixture(scope="module")
def sets(data, split):
    examples = Examples.of(data.states, data.labels, 2)
    return {name: split.of(examples, name) for name in ("train", "dev", "test")}


def test_the_network_learns_what_the_states_tell(sets):
    trained = train_probe(sets["train"], sets["dev"], CARD, settings=QUICK)
    measured = measure_probe(trained.probe.predict(sets["test"].states), sets["test"].labels)
    assert measured["auroc"].value > 0.85
    assert trained.dev_auroc > 0.85
    assert trained.losses[trained.best_epoch - 1] == min(trained.losses)


def test_a_seed_gives_equal_weights_and_leaves_other_random_state(sets):
    import torch

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002 - that nobody touches it
    probes = [train_probe(sets["train"], sets["dev"], CARD, settings=QUICK, seed=seed).probe for seed in (1, 1, 2)]
    assert torch.equal(before, torch.random.get_rng_state())
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002
    assert probes[0].weights_sha256 == probes[1].weights_sha256 != probes[2].weights_sha256


def test_the_served_numbers_are_those_of_the_trained_network(sets, tmp_path):
    """Through the file, standardised inputs and all."""
    import torch

    probe = train_probe(sets["train"], sets["dev"], CARD, settings=QUICK).probe
    probe.save(tmp_path)
    parts = []
    for weight, bias in probe.layers:
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data, linear.bias.data = torch.from_numpy(weight.copy()), torch.from_numpy(bias.copy())
        parts += [linear, torch.nn.ReLU()]
    x = (torch.from_numpy(sets["test"].states) - torch.from_numpy(probe.mean)) / torch.from_numpy(probe.scale)
    with torch.no_grad():
        expected = torch.sigmoid(torch.nn.Sequential(*parts[:-1])(x))[:, 0].numpy()
    np.testing.assert_allclose(Probe.load(tmp_path).predict(sets["test"].states), expected, atol=1e-5)


def test_standardisation_is_optional_and_stored(sets):
    plain = train_probe(sets["train"], sets["dev"], CARD, settings=replace(QUICK, standardize=False)).probe
    assert plain.mean is None
    scaled = train_probe(sets["train"], sets["dev"], CARD, settings=QUICK).probe
    np.testing.assert_allclose(scaled.mean, sets["train"].states.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(scaled.scale, sets["train"].states.std(axis=0), atol=1e-5)


def test_one_layer_is_a_logistic_regression(sets):
    one = train_probe(sets["train"], sets["dev"], CARD, settings=replace(QUICK, hidden=(), lr=0.05)).probe
    base = logistic_probe(sets["train"], sets["dev"], CARD).probe
    assert len(one.layers) == len(base.layers) == 1
    correlation = np.corrcoef(one.logits(sets["test"].states), base.logits(sets["test"].states))[0, 1]
    assert correlation > 0.95


def test_the_logistic_regression_is_scikit_learns(sets):
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    probe = logistic_probe(sets["train"], sets["dev"], CARD, strengths=(0.1,)).probe
    scaler = StandardScaler().fit(sets["train"].states.astype(float))
    fitted = LogisticRegression(C=0.1, class_weight="balanced", max_iter=2000)
    fitted.fit(scaler.transform(sets["train"].states.astype(float)), sets["train"].labels)
    expected = fitted.predict_proba(scaler.transform(sets["test"].states.astype(float)))[:, 1]
    np.testing.assert_allclose(probe.predict(sets["test"].states), expected, atol=1e-3)
    with pytest.raises(DataError, match="strengths is empty"):
        logistic_probe(sets["train"], sets["dev"], CARD, strengths=())


def test_early_stopping_stops_and_no_patience_runs_on(sets):
    short = train_probe(sets["train"], sets["dev"], CARD, settings=replace(QUICK, epochs=60, patience=2))
    assert len(short.losses) == short.best_epoch + 2 < 60
    whole = train_probe(sets["train"], sets["dev"], CARD, settings=replace(QUICK, patience=None))
    assert (len(whole.losses), whole.best_epoch) == (12, 12)


def test_a_training_that_diverges_says_so(sets):
    with pytest.raises(DataError, match="learning rate"):
        train_probe(sets["train"], sets["dev"], CARD, settings=replace(QUICK, lr=1e30))


def test_labels_of_one_kind_are_refused(sets, data, split):
    one = replace(sets["train"], labels=np.ones(len(sets["train"])))
    with pytest.raises(DataError, match="are known"):
        train_probe(one, sets["dev"], CARD, settings=QUICK)
    with pytest.raises(DataError, match="are known"):
        logistic_probe(one, sets["dev"], CARD)
    with pytest.raises(DataError, match="all unknown"):
        run_training(LabelledStates(states=data.states, labels=dict.fromkeys(data.labels, 0.0)), split, settings=QUICK)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": (0,)},
        {"dropout": 1.0},
        {"lr": 0.0},
        {"epochs": 0},
        {"batch_size": 0},
        {"patience": 0},
        {"weight_decay": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(DataError, match="allowed"):
        ProbeSettings(**change)


def test_the_default_is_the_papers_network():
    """Five layers, about two million parameters over Llama-3's 4,096 numbers, dropout .5, lr 5e-5, batch 32."""
    widths = (4096, *ProbeSettings().hidden, 1)
    n = sum(given * out + out for given, out in pairwise(widths))
    assert (len(widths) - 1, 1_900_000 < n < 2_100_000) == (5, True)
    assert (ProbeSettings().dropout, ProbeSettings().lr, ProbeSettings().batch_size) == (0.5, 5e-5, 32)


# --- splits


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=8), min_size=60, max_size=200, unique=True), st.text(max_size=3))
def test_a_split_is_disjoint_and_moves_no_question_when_others_come(ids, salt):
    try:
        whole = split_by_hash(ids, salt=salt)
        half = split_by_hash(ids[: len(ids) // 2], salt=salt)
    except DataError:
        return
    sets = [whole.train, whole.dev, whole.test]
    assert frozenset().union(*sets) == set(ids)
    assert sum(map(len, sets)) == len(ids)
    assert (half.train <= whole.train, half.dev <= whole.dev, half.test <= whole.test) == (True, True, True)


def test_a_question_in_two_sets_is_refused():
    with pytest.raises(DataError, match="both train"):
        Split(train=frozenset("ab"), dev=frozenset("c"), test=frozenset("bd"))
    with pytest.raises(DataError, match="dev set"):
        Split(train=frozenset("ab"), dev=frozenset(), test=frozenset("d"))
    for shares in ({"dev": 0.0}, {"test": 1.0}, {"dev": 0.6, "test": 0.5}, {"dev": math.nan}):
        with pytest.raises(DataError, match="shares"):
            split_by_hash(["a", "b"], **shares)


def test_examples_leave_undefined_and_unlabelled_questions_out_and_count_them(data):
    values = data.states.values.copy()
    values[3, 1, 0] = np.nan
    stored = replace(data.states, values=values)
    labels = {q: label for q, label in data.labels.items() if q != "q5"}
    examples = Examples.of(stored, labels, 2)
    assert (len(examples), examples.n_undefined, examples.n_unlabelled) == (598, 1, 1)
    assert {"q3", "q5"}.isdisjoint(examples.ids)
    with pytest.raises(DataError, match="same data"):
        Examples.of(stored, {"other": 1.0}, 2)
    with pytest.raises(DataError, match="layer 7"):
        Examples.of(stored, labels, 7)
    with pytest.raises(DataError, match="undefined"):
        Examples.of(replace(stored, values=np.full_like(values, np.nan)), labels, 2)
    with pytest.raises(DataError, match="0 or 1"):
        Examples.of(stored, dict.fromkeys(labels, 0.5), 2)


@pytest.mark.parametrize("size", [2, 50, 401, 600])
def test_a_balanced_part_is_balanced_as_far_as_there_are_questions(data, size):
    examples = Examples.of(data.states, data.labels, 2)
    part = examples.balanced(size, rng=np.random.default_rng(0))
    n_known = int(examples.labels.sum())
    assert (len(part), len(set(part.ids))) == (size, size)
    assert int(part.labels.sum()) == min(n_known, size // 2)
    with pytest.raises(DataError, match="allowed"):
        examples.balanced(601, rng=np.random.default_rng(0))


# --- calibration


def test_temperature_is_the_one_that_fits_best():
    rng = np.random.default_rng(0)
    z = rng.normal(size=4000) * 2
    y = (rng.random(4000) < 1 / (1 + np.exp(-z / 3))).astype(float)
    found = fit_calibration(z, y, "temperature").map.to_dict()
    assert 1 / found["slope"] == pytest.approx(3, rel=0.1)

    def loss(slope):
        return np.logaddexp(0, np.where(y == 1, -z, z) * slope).mean()

    assert all(loss(found["slope"]) <= loss(found["slope"] * factor) for factor in (0.9, 0.99, 1.01, 1.1))


def test_isotonic_is_scikit_learns():
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(1)
    z = rng.normal(size=300)
    y = (rng.random(300) < 1 / (1 + np.exp(-z))).astype(float)
    ours = fit_calibration(z, y, "isotonic").map.predict(np.linspace(-4, 4, 50))
    theirs = IsotonicRegression(out_of_bounds="clip").fit(z, y).predict(np.linspace(-4, 4, 50))
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("method", ["none", "temperature", "platt", "isotonic"])
def test_calibration_keeps_the_order_and_lowers_the_dev_loss(sets, method):
    probe = train_probe(sets["train"], sets["dev"], CARD, settings=QUICK).probe
    calibrated = calibrate_probe(probe, sets["dev"], method)
    z = np.argsort(probe.logits(sets["test"].states))
    assert (np.diff(calibrated.predict(sets["test"].states)[z]) >= 0).all()
    before, after = (measure_probe(p.predict(sets["dev"].states), sets["dev"].labels) for p in (probe, calibrated))
    assert after["brier"].value <= before["brier"].value + 2e-3
    assert calibrated.weights_sha256 == probe.weights_sha256
    assert (calibrated.pin() == probe.pin()) == (method == "none")
    with pytest.raises(DataError, match="unknown calibration"):
        fit_calibration(np.zeros(3), np.zeros(3), "magic")


# --- the run


def test_a_run_chooses_its_layer_on_dev_and_measures_on_test(data, split):
    run = run_training(data, split, seeds=(0, 1), settings=QUICK, calibration="platt", curve=(40, 200))
    assert run.probe.card.layer == 2
    assert [(c.layer, c.seed) for c in run.candidates] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [c.test_auroc is None for c in run.candidates] == [True, True, False, False]
    best = max(run.candidates, key=lambda c: c.dev_auroc)
    assert run.probe.card.provenance["seed"] == best.seed
    assert [m.what for m in run.test_figures] == ["mlp, platt", "mlp, uncalibrated", "logistic baseline, platt"]
    assert [m.size for m in run.curve] == [40, 200]
    assert run.test_figures[0].measures["auroc"].value == pytest.approx(best.test_auroc)
    assert run.test_figures[0].measures.n == len(split.test)
    tuned = set(run.probe.card.provenance["tune_ids"])
    assert tuned == {id_hash(q) for q in split.train | split.dev}
    named = replace(data, texts={q: f"Who is {q}?" for q in data.labels})
    card = run_training(named, split, kind="logistic", layers=(2,), settings=QUICK).probe.card
    assert card.seen == Seen.of(split.train | split.dev, [f"who is {q}" for q in split.train | split.dev])
    assert json.loads(json.dumps(run.to_dict())) == run.to_dict()
    assert len(run.tables()) == 3
    assert run.probe.card.pinned == {"kind": "t", "prompt_sha256": "q"}


def test_labels_at_random_are_not_learned(data, split):
    rng = np.random.default_rng(4)
    shuffled = dict(zip(data.labels, rng.permutation(list(data.labels.values())).tolist(), strict=True))
    run = run_training(replace(data, labels=shuffled), split, layers=(2,), settings=QUICK)
    assert 0.35 < run.test_figures[0].measures["auroc"].value < 0.65


def test_another_prompt_is_valid_only_after_training_on_both(data, split):
    rag = world(seed=9, header={**HEADER, "prompt": "rag"})
    apart = run_training(data, split, kind="logistic", layers=(2,), other=rag)
    assert apart.probe.card.prompts == ("qa",)
    assert apart.test_figures[-1].what == "logistic, none, prompt rag"
    both = run_training(data, split, kind="logistic", layers=(2,), other=rag, train_on_both=True)
    assert both.probe.card.prompts == ("qa", "rag")
    assert both.test_figures[0].size == 2 * apart.test_figures[0].size
    with pytest.raises(DataError, match="second"):
        run_training(data, split, other=data)


@pytest.mark.parametrize(("change", "word"), [({"model": "x"}, "model"), ({"source": {"kind": "u"}}, "precision")])
def test_states_of_another_model_or_precision_are_refused(data, split, change, word):
    with pytest.raises(ConfigMismatchError, match=word):
        run_training(data, split, other=world(header={**HEADER, **change, "prompt": "rag"}))


@pytest.mark.parametrize(("options", "word"), [({"train_on_both": True}, "second prompt"), ({"seeds": ()}, "one seed")])
def test_a_training_without_second_prompt_or_seed_is_refused(data, split, options, word):
    with pytest.raises(DataError, match=word):
        run_training(data, split, **options)


# --- the command


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    for name, prompted in (("qa", data), ("rag", world(seed=9, header={**HEADER, "prompt": "rag"}))):
        writer = StateWriter(folder / f"{name}.states", prompted.states.header)
        writer.append(prompted.states.ids, prompted.states.values.astype(np.float32))
    rows = [
        {"question_id": q, "round": r, "answer": "Oslo" if known or r else "Rome", "golds": ["Oslo"]}
        for q, known in data.labels.items()
        for r in (0, 1)
    ]
    for row in rows[1::10]:  # some answers stay wrong with evidence
        row["answer"] = "Rome"
    write_recording(folder / "r.parquet", rows)
    (folder / "labels.jsonl").write_text(
        "".join(json.dumps({"question_id": q, "label": int(known)}) + "\n" for q, known in data.labels.items())
    )
    return folder


FAST = ("--set=hidden=16,8", "--set=lr=0.003", "--set=epochs=6", "--set=layers=2")


def test_the_command_writes_a_probe_that_loads(files, tmp_path, data):
    done = cli(
        *("gate", "train", files / "qa.states", "--labels", files / "r.parquet", "-o", tmp_path / "p", *FAST),
        *("--set=seeds=0,1", "--set=calibration=isotonic", "--set=curve=60", "--json"),
    )
    assert (done.code, done.err) == (0, "")
    told = done.json
    assert told["labels"]["questions"] == 600
    assert told["weights_sha256"] == Probe.load(tmp_path / "p").weights_sha256
    assert [c["layer"] for c in told["candidates"]] == [2, 2]
    assert told["measured"][0]["auroc"]["value"] > 0.8
    states = read_states(files / "qa.states").of(data.states.ids[:5], 2)
    assert ((Probe.load(tmp_path / "p").predict(states) >= 0) & (Probe.load(tmp_path / "p").predict(states) <= 1)).all()


def test_the_command_prints_tables_and_takes_labels_of_ones_own(files, tmp_path):
    done = cli(
        *("gate", "train", files / "qa.states", "--labels", files / "labels.jsonl", "-o", tmp_path / "p"),
        *("--kind", "logistic", "--layer", "2"),
    )
    assert (done.code, done.err) == (0, "")
    assert "labels: " in done.out
    assert "AUROC" in done.out
    assert "layer 2 of m, prompts qa, calibration none" in done.words


def test_the_command_measures_the_rag_prompt_apart(files, tmp_path):
    done = cli(
        *("gate", "train", files / "qa.states", "--labels", files / "r.parquet", "-o", tmp_path / "p", "--json"),
        *("--kind", "logistic", "--layer", "2", f"--set=rag-states={files / 'rag.states'}", "--set=rag-round=1"),
    )
    assert done.json["measured"][-1]["what"] == "logistic, none, prompt rag"


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (("--layer", "7"), 1, "layer 7"),
        (("--layer", "2", "--set=layers=2"), 2, "not both"),
        (("--set=layers=x",), 2, "whole numbers"),
        (("--set=seeds=",), 1, "one seed"),
        (("--set=calibration=magic", "--kind", "logistic"), 2, "unknown calibration"),
        (("--set=label-rule=f1",), 1, "label rule"),
        (("--set=dropout=1",), 1, "dropout"),
        (("--set=train-size=9999", "--kind", "logistic"), 1, "allowed"),
        (("--set=rag-states=nothing",), 2, "does not exist"),
        (("--set=dev-share=0.9",), 1, "shares"),
    ],
)
def test_what_the_command_cannot_do_is_said(files, tmp_path, more, code, told):
    done = cli("gate", "train", files / "qa.states", "--labels", files / "r.parquet", "-o", tmp_path / "p", *more)
    assert done.code == code
    assert told in " ".join(done.error.split())
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}\n", "line 1"),
        ("[1]\n", "line 1"),
        ('{"question_id": "q1", "label": 0.5}\n', "line 1"),
        ("nonsense", "line 1: not JSON"),
    ],
)
def test_labels_that_do_not_read_are_refused(files, tmp_path, text, told):
    (tmp_path / "l.jsonl").write_text(text)
    done = cli("gate", "train", files / "qa.states", "--labels", tmp_path / "l.jsonl", "-o", tmp_path / "p")
    assert told in done.error
