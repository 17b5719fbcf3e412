"""Which model it is: the content of its files decides, not the name of their folder."""

import hashlib
import shutil

import numpy as np
import pytest

from suffice import Policy
from suffice.common import identities
from suffice.common.identities import aligned, hub_folder, model_content, same_model, sha256_of
from suffice.errors import ConfigMismatchError
from suffice.recordings.journal import differences
from suffice_gates.models import TransformersModel
from suffice_gates.probes import ProbeCard, pinned_of
from suffice_gates.probes.collect import StatePrompt, collect_states
from tests.support.local_models import SHORT, save

CLUSTER = {"model": "jobs/llama", "revision": "00112233aabbccdd", "content": "0123456789abcdef"}


def files_of(folder, **contents):
    folder.mkdir(parents=True)
    for name, text in contents.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.fixture
def model(tmp_path):
    return files_of(tmp_path / "jobs" / "llama", model__safetensors="weights", config__json="{}", tokenizer__json="[]")


def test_a_copy_under_another_name_is_the_same_model(model, tmp_path):
    assert model_content(shutil.copytree(model, tmp_path / "elsewhere" / "llama3")) == model_content(model)


def test_files_that_no_loader_reads_do_not_count(model, tmp_path):
    known = model_content(model)
    others = ("README.md", "notes.txt", "results.json", "pytorch_model.bin", "consolidated.safetensors", "vocab.json")
    for name in (*others, "tokenizer.model"):
        (model / name).write_text(name)
    files_of(model / "original", config__json="other")
    assert model_content(model) == known


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "adapter_config.json"])
def test_files_that_a_loader_reads_count(model, name):
    known = model_content(model)
    (model / name).write_text("other")
    assert model_content(model) != known


def test_without_safetensors_and_without_a_fast_tokenizer_the_other_forms_count(tmp_path):
    folder = files_of(tmp_path / "old", pytorch_model__bin="w", vocab__txt="a")
    prints = [model_content(folder)]
    for name in ("pytorch_model.bin", "vocab.txt"):
        (folder / name).write_text("other")
        prints.append(model_content(folder))
    assert len(set(prints)) == 3


def test_the_digest_of_a_large_file_is_remembered_until_the_file_changes(tmp_path, monkeypatch):
    read = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(identities, "_LARGE", 4)
    whole = identities.file_sha256
    monkeypatch.setattr(identities, "file_sha256", lambda file: read.append(file.name) or whole(file))
    weights = tmp_path / "weights"
    for content, reads in ((b"many weights", 1), (b"other weights", 2)):
        weights.write_bytes(content)
        for _ in range(3):
            assert sha256_of(weights) == hashlib.sha256(content).digest()
        assert len(read) == reads
    for note in (tmp_path / "cache" / "suffice" / "sha256").iterdir():
        note.write_text("{broken")
    assert sha256_of(weights) == hashlib.sha256(b"other weights").digest()


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(identities, "_LARGE", 4)
    (tmp_path / "weights").write_bytes(b"many weights")
    assert sha256_of(tmp_path / "weights") == hashlib.sha256(b"many weights").digest()


def test_large_files_of_the_hub_cache_are_not_read(tmp_path):
    """It names them by their SHA-256, so a copy of them has the same content."""
    digest = hashlib.sha256(b"weights").hexdigest()
    blob = files_of(tmp_path / "hub" / "blobs") / digest
    blob.write_bytes(b"not read")
    snapshot = files_of(tmp_path / "hub" / "snapshots" / "commit", config__json="{}")
    (snapshot / "model.safetensors").symlink_to(blob)
    copy = files_of(tmp_path / "copy", config__json="{}", model__safetensors="weights")
    assert model_content(snapshot) == model_content(copy)


def test_a_hub_id_and_its_local_copy_are_the_same_model(model, tmp_path, monkeypatch):
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    place = cache / "models--org--llama"
    shutil.copytree(model, place / "snapshots" / "c0ffee")
    (place / "snapshots" / "c0ffee" / "model.safetensors.index.json").write_text("{}")
    files_of(place / "refs", main="c0ffee")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    assert hub_folder("org/llama") == hub_folder("org/llama", "c0ffee") == place / "snapshots" / "c0ffee"
    assert model_content(hub_folder("org/llama")) == model_content(model)
    assert hub_folder("org/other") is None
    assert hub_folder("org/llama", "another") is None
    assert hub_folder("not/an/id") is None


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"model": "org/llama", "revision": "c0ffee", "content": CLUSTER["content"]}, True),
        ({**CLUSTER, "model": "mine/llama", "revision": "ffff000011112222", "content": "ffff000011112222"}, False),
        ({"model": "mine/llama", "revision": CLUSTER["revision"]}, True),
        ({"model": "jobs/llama", "revision": "main"}, False),
    ],
)
def test_content_decides_and_else_the_hash_of_a_folder(other, expected):
    assert same_model(CLUSTER, other) is same_model(other, CLUSTER) is expected


def test_hub_ids_of_older_releases_are_compared_by_name_and_commit():
    old = {"model": "org/llama", "revision": "c0ffee"}
    assert same_model(old, {**old, "content": "0123456789abcdef"})
    assert not same_model(old, {**old, "model": "org/other"})
    assert not same_model(old, {**old, "revision": "main"})


def test_configurations_of_the_same_model_do_not_differ():
    mine = {**CLUSTER, "model": "mine/llama3", "revision": "ffff000011112222"}
    assert differences({"model": CLUSTER, "k": 1}, {"model": mine, "k": 1}) == []
    assert differences({"model": CLUSTER, "k": 1}, {"model": mine, "k": 2}) == ["k: 1 -> 2"]
    assert differences({"model": CLUSTER}, {"model": {**mine, "content": "0"}})
    endpoint = {"model": "gpt", "revision": None}
    assert differences({"model": endpoint}, {"model": {**endpoint, "model": "other"}}) == [
        "model.model: 'gpt' -> 'other'"
    ]
    assert aligned({"a": 1}, {"a": {"b": 2}}) == {"a": 1}


def test_a_policy_of_the_cluster_runs_on_a_copy_of_the_model():
    policy = Policy(rule="answer_stable", depends={**CLUSTER, "prompt_id": "p"})
    policy.check_depends({**CLUSTER, "model": "mine/llama3", "revision": "ffff000011112222", "prompt_id": "p"})
    with pytest.raises(ConfigMismatchError, match="another model"):
        policy.check_depends({**CLUSTER, "content": "ffff000011112222", "revision": "main", "prompt_id": "p"})


@pytest.mark.whole
def test_a_probe_of_the_cluster_reads_a_copy_of_the_model(tmp_path):
    theirs = save(tmp_path / "jobs" / "llama")
    (theirs / "run.json").write_text("{}")
    mine = save(tmp_path / "mine" / "llama3")
    other = save(tmp_path / "other" / "llama", seed=1)
    sources = [TransformersModel(folder, prompt=SHORT, layers=(2,)) for folder in (theirs, mine, other)]
    card = ProbeCard(
        model=sources[0].id, revision=sources[0].revision, layer=2, pinned=pinned_of(sources[0].fingerprint())
    )
    assert (sources[0].id, sources[0].revision) != (sources[1].id, sources[1].revision)
    assert card.check_source(sources[1]) == 0
    with pytest.raises(ConfigMismatchError, match="differ"):
        card.check_source(sources[2])
    old = {key: value for key, value in card.pinned.items() if key != "content"}
    renamed = ProbeCard(model="jobs/llama", revision=sources[1].revision, layer=2, pinned=old)
    assert renamed.check_source(sources[1]) == 0
    with pytest.raises(ConfigMismatchError, match="releases"):
        ProbeCard(model="jobs/llama", revision="c0ffee", layer=2, pinned=old).check_source(sources[1])

    prompts = [StatePrompt(id=name, question=f"Who {name}?") for name in "ab"]
    collect_states(sources[0], prompts[:1], tmp_path / "states")
    assert collect_states(sources[1], prompts, tmp_path / "states").read == 1
    with pytest.raises(ConfigMismatchError, match="another configuration"):
        collect_states(sources[2], prompts, tmp_path / "states")
    assert np.isfinite(sources[1].read("Who?").values).all()
