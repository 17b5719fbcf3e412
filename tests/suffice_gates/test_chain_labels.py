"""States of chains belong to the recorded chains that they were read from, and chains of one question are drawn together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from suffice import read_recording
from suffice.errors import ConfigMismatchError, DataError
from suffice.loops.thinking_loop import CHATML
from suffice.recordings import write_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice_gates.models.state_files import read_states
from suffice_gates.probes import collect_chain_states
from suffice_gates.probes.chains import check_chains
from tests.support.cli_tools import cli


class Letters:
    """States that can be told from the chain so far: how long it is, and what it ends with."""

    id, revision, layers, prompts, prompt = "letters", "1", (1,), ("thoughts",), CHATML

    def __init__(self):
        self.passes = 0

    def fingerprint(self):
        return {"model": self.id, "kind": "chain states"}

    def of_checkpoints(self, question, rounds):
        self.passes += 1
        chains = ["".join(observed.thinking for observed in rounds[: r + 1]) for r in range(len(rounds))]
        return np.array([[[len(chain), float(chain.endswith("sure"))]] for chain in chains], dtype=np.float32)


def table(chains: dict[str, list[str]], words: dict[str, str] | None = None):
    """Return rows of chains that are right at a checkpoint where they say so, by the ids of their questions."""
    rows = [
        {
            "question_id": name,
            "question": (words or {}).get(name, f"What {name}?"),
            "round": r,
            "end": "max_rounds",
            "thinking": thought,
            "answer": "4" if "right" in thought else "5",
            "golds": ["4"],
        }
        for name, thoughts in chains.items()
        for r, thought in enumerate(thoughts, start=1)
    ]
    return build_table(rows)


def test_states_of_other_chains_are_refused(tmp_path):
    collect_chain_states(Letters(), Recording(table({"a": ["one", "two"]})), tmp_path / "s")
    for other in (["one", "three"], ["no", "no"], ["on", "etwo", "more"]):
        with pytest.raises(ConfigMismatchError, match="another chain"):
            collect_chain_states(Letters(), Recording(table({"a": other})), tmp_path / "s")
    with pytest.raises(ConfigMismatchError, match="another chain"):
        check_chains(read_states(tmp_path / "s"), Recording(table({"a": ["one", "two"]}, {"a": "Why?"})))
    check_chains(read_states(tmp_path / "s"), Recording(table({"a": ["one", "two"], "b": ["x"]})))


def test_states_beyond_a_boundary_are_not_read(tmp_path):
    beyond = Recording(table({"a": ["one. Wait, two"]}), {"depends": {"boundary": "words"}})
    with pytest.raises(DataError, match="beyond it"):
        collect_chain_states(Letters(), beyond, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_chain_that_goes_on_is_read_where_states_are_missing(tmp_path):
    source = Letters()
    collect_chain_states(source, Recording(table({"a": ["one", "two"]})), tmp_path / "s")
    longer = Recording(table({"a": ["one", "two", "sure"]}))
    assert collect_chain_states(source, longer, tmp_path / "s").read == 1
    assert collect_chain_states(source, longer, tmp_path / "s").read == 0
    assert source.passes == 2
    assert read_states(tmp_path / "s").of(["a@1", "a@2", "a@3"])[:, 0].tolist() == [[3, 0], [6, 0], [10, 1]]


def chains_of(draw: int) -> dict[str, list[str]]:
    """Return four chains of each of 60 questions, alike in whether they are right and in whether they sound so."""
    right, seems = np.random.default_rng(draw).random((2, 60)) < [[0.5], [0.7]]
    thoughts = [
        f"{draw} {'right' if is_right else 'wrong'} {'sure' if is_right == is_plain else 'no'}"
        for is_right, is_plain in zip(right, seems, strict=True)
    ]
    return {f"q{n}-{k}": [f"{k} {thought}"] for n, thought in enumerate(thoughts) for k in range(4)}


def trained(folder, recording: Recording | None = None):
    train = ("gate", "train", folder / "s", "--labels", folder / "t.parquet", "-o", folder / "p", "--kind", "logistic")
    return cli(*train, "--json")


@pytest.mark.whole
def test_a_probe_is_not_trained_on_states_of_other_chains(tmp_path):
    write_recording(tmp_path / "t.parquet", table(chains_of(1)))
    collect_chain_states(Letters(), read_recording(tmp_path / "t.parquet"), tmp_path / "s")
    assert trained(tmp_path).code == 0
    write_recording(tmp_path / "t.parquet", table(chains_of(3)))
    refused = trained(tmp_path)
    assert refused.code == 1
    assert "another chain" in refused.err


@pytest.mark.whole
def test_chains_of_one_question_are_drawn_together(tmp_path):
    widths = []
    for name, words in (("apart", {}), ("together", {own: own.partition("-")[0] for own in chains_of(1)})):
        (tmp_path / name).mkdir()
        write_recording(tmp_path / name / "t.parquet", table(chains_of(1), words))
        collect_chain_states(Letters(), read_recording(tmp_path / name / "t.parquet"), tmp_path / name / "s")
        done = trained(tmp_path / name)
        assert done.code == 0, done
        figures = json.loads(done.out)["measured"][0]
        widths.append((figures["accuracy"]["high"] - figures["accuracy"]["low"]) * figures["n"] ** 0.5)
    apart, together = widths
    assert together > 1.5 * apart
