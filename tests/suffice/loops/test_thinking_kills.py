"""Recordings of chains that are killed at random and resumed: nothing is paid twice but replies in flight, and nothing changes."""

from __future__ import annotations

import json
import random
import time
from collections import Counter

import pytest

from suffice import read_recording
from tests.suffice.loops.test_boundaries import CHAIN, reply
from tests.support import children
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint

N, KILLS, AT_ONCE = 8, 3, 2


def table_of(path):
    """Return the columns that do not depend on the time."""
    table = read_recording(path).table
    names = [name for name in sorted(table.column_names) if name != "recorded_at" and not name.endswith("seconds")]
    return table.select(names).to_pylist()


def words(command, log, out, url):
    settings = [f"--set={text}" for text in ("every=4", "boundary=words", f"concurrency={AT_ONCE}")]
    yes = ["--yes"] if command == "ask" else []
    return ["think", command, str(log), "-o", str(out), "--model", "m", "--base-url", url, "--json", *settings, *yes]


@pytest.mark.whole
@pytest.mark.parametrize("command", ["record", "ask"])
def test_killed_recordings_of_chains_resume_without_paying_twice(tmp_path, monkeypatch, command):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    log = tmp_path / "log.jsonl"
    rows = [{"id": f"q{i}", "question": f"6 times 7? ({i})", "answers": ["42"]} for i in range(N)]
    thought = [{**row, "response": f"<think>\n{CHAIN}\n</think>\n\nAnswer: 42"} for row in rows]
    log.write_text("".join(json.dumps(row) + "\n" for row in (thought if command == "ask" else rows)))
    rng = random.Random(command)
    with Endpoint(reply, latency_s=0.03) as endpoint:
        for _ in range(KILLS):
            began = len(endpoint.requests)
            asked = words(command, log, tmp_path / "killed.parquet", endpoint.url)
            child = children.started(children.run_command, asked, {"OPENAI_API_KEY": "key"})
            endpoint.allow = began + 8  # not the whole recording
            while len(endpoint.requests) < began + 5:
                assert child.is_alive(), "the recording ended by itself"
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.1))
            children.killed(child)
            while endpoint.running:  # what the dead process sent is no reply of the next one
                endpoint.allow = None
                time.sleep(0.002)
        endpoint.allow = None
        assert cli(*words(command, log, tmp_path / "killed.parquet", endpoint.url)).code == 0
        sent = Counter(json.dumps(request.body, sort_keys=True) for request in endpoint.requests)
        began = len(endpoint.requests)
        assert cli(*words(command, log, tmp_path / "whole.parquet", endpoint.url)).code == 0
        needed = len(endpoint.requests) - began
    assert len(sent) == needed
    assert 0 <= sum(sent.values()) - needed <= KILLS * AT_ONCE
    assert table_of(tmp_path / "killed.parquet") == table_of(tmp_path / "whole.parquet")
    assert not (tmp_path / "killed.parquet.journal").exists()
