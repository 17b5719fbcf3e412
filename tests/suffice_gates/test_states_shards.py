"""Hidden states in shards: the states of one process, in its order, or an error that says what is missing."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import ConfigMismatchError, DataError, SchemaError
from suffice.recordings.shards import Shard
from suffice_gates.models.state_files import read_states
from suffice_gates.probes.collect import StatePrompt, collect_states
from tests.support.cli_tools import cli, dataset


class Source:
    """States that follow from the text."""

    id, revision, layers, prompts = "source", "1", (1, 2), ("qa",)

    def __init__(self, scale=1.0):
        self.scale, self.read = scale, []

    def fingerprint(self):
        return {"model": self.id, "scale": self.scale}

    def read_batch(self, questions, passages=None):
        self.read += questions
        values = [[[len(text) * self.scale, ord(text[0])], [layer, len(text)]] for text in questions for layer in [7]]
        return np.array(values, dtype=np.float32)


def prompts(n):
    return [StatePrompt(id=f"q{i}", question="x" * (i + 1)) for i in range(n)]


def store(items, folder, shards, n, source=None):
    for index in shards:
        collect_states(source or Source(), items, folder, shard=Shard(index, n), chunk=2)


@settings(max_examples=15, deadline=None)
@given(n_prompts=st.integers(1, 12), n=st.integers(1, 5), data=st.data())
def test_shards_in_any_order_are_the_states_of_one_process(tmp_path_factory, n_prompts, n, data):
    folder = tmp_path_factory.mktemp("law")
    items = prompts(n_prompts)
    store(items, folder / "many", data.draw(st.permutations(range(1, n + 1))), n)
    collect_states(Source(), items, folder / "one")
    one, many = read_states(folder / "one"), read_states(folder / "many")
    assert many.ids == one.ids
    assert many.header == one.header
    np.testing.assert_array_equal(many.values, one.values)


def test_a_shard_goes_on_and_reads_nothing_twice(tmp_path):
    source = Source()
    for _ in range(2):
        store(prompts(9), tmp_path / "s", [2, 1, 3], 3, source)
    assert sorted(source.read) == sorted(item.question for item in prompts(9))


def test_missing_unfinished_and_foreign_shards_are_errors(tmp_path):
    folder = tmp_path / "s"
    store(prompts(12), folder, [1, 3], 4)
    with pytest.raises(DataError, match="2 and 4"):
        read_states(folder)
    with pytest.raises(ConfigMismatchError, match="4 shards"):
        store(prompts(12), folder, [1], 3)
    store(prompts(12), folder, [2, 4], 4)
    assert len(read_states(folder)) == 12
    part = folder / "part-0002-of-0004"
    shutil.copytree(part, tmp_path / "kept")
    max(part.glob("*.safetensors")).unlink()
    with pytest.raises(DataError, match="unfinished"):
        read_states(folder)
    (part / "places.json").unlink()
    with pytest.raises(SchemaError, match="damaged"):
        read_states(folder)
    shutil.rmtree(part)
    store(prompts(12), folder, [2], 4, Source(scale=2.0))
    with pytest.raises(ConfigMismatchError, match="other settings"):
        read_states(folder)
    collect_states(Source(), prompts(3), tmp_path / "one")
    with pytest.raises(ConfigMismatchError, match="one process"):
        store(prompts(3), tmp_path / "one", [1], 2)


@pytest.mark.whole
def test_the_command_reads_shards(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "q.jsonl", n=6)
    words = ["gate", "states", "q.jsonl", "--encoder", "minilm", "-o"]
    assert cli(*words, "one").code == 0
    for shard in ("2/2", "1/2"):
        assert cli(*words, "many", "--shard", shard, "--json").json["path"].startswith("many/part-000")
    one, many = read_states("one"), read_states("many")
    assert many.ids == one.ids
    np.testing.assert_allclose(many.values, one.values, atol=2e-3)  # batches of another size
