"""Panels of models in logs of calls: the model in a nested field, the commands that name it, and what each call costs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import lines

from suffice.evaluation.replay import order_panel
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES, cli

MODELS = {"small": 1e-05, "large": 5e-05, "medium": 2e-05}


def calls(n: int = 40) -> list[dict[str, Any]]:
    """Return calls of three models, none of which is always right, in an order that is not that of their costs."""
    return [
        {
            "id": f"c{q}{place}",
            "timestamp": f"2026-05-01T00:{q:02}:{place:02}",
            "metadata": {"question_id": f"q{q}", "expected": CITIES[q % 4]},
            "request": {"model": model, "messages": [{"role": "user", "content": f"Where is tower {q}?"}]},
            "response": {
                "choices": [{"message": {"role": "assistant", "content": CITIES[(q + (q % 5 == place)) % 4]}}],
                "usage": {"prompt_tokens": 90, "completion_tokens": 2},
            },
            "cost": cost,
        }
        for q in range(n)
        for place, (model, cost) in enumerate(MODELS.items())
    ]


def imported(folder: Path, *options: str, code: int = 0) -> Any:
    (folder / "log.jsonl").write_text(lines(calls()), "utf-8")
    return cli("import", folder / "log.jsonl", "-o", folder / "r.parquet", "--yes", *options, code=code)


def test_models_of_one_call_each_are_attempts_or_a_panel(tmp_path):
    shown = "".join(imported(tmp_path).words.split())  # long commands are wrapped
    assert "--columnround=request.model:small,medium,large;iftheyareputtoavote:" in shown
    assert shown.count("--samples") == 1


def test_the_printed_order_of_models_names_their_column(tmp_path):
    imported(tmp_path, "--column", "round=request.model:small,large,medium")
    refused = cli("decide", tmp_path / "r.parquet", "-o", tmp_path / "d.json", code=1)
    option = "--column round=request.model:small,medium,large"
    assert option in refused.err
    imported(tmp_path, *shlex.split(option))
    assert cli("decide", tmp_path / "r.parquet", "-o", tmp_path / "d.json", code=0)


@pytest.mark.parametrize("name", ["", "model", "member"])
def test_a_nested_model_names_the_members_of_a_panel(name, tmp_path):
    imported(tmp_path, "--samples", *(["--column", f"{name}=request.model"] if name else []))
    recording = read_recording(tmp_path / "r.parquet")
    assert {item.name for item in order_panel(recording).members} == {*MODELS}
    assert (name or "request.model") in recording.table.column_names
    cli("sample", "order", tmp_path / "r.parquet", "-o", tmp_path / "o.parquet", code=0)
    assert read_recording(tmp_path / "o.parquet").metadata["panel"]["order"]


def test_money_of_samples_is_known_in_any_order(tmp_path):
    imported(tmp_path, "--samples", "--column", "spend=cost:each")
    cli("decide", tmp_path / "r.parquet", "--cost", "money", "-o", tmp_path / "d.json", code=0)
    listed = json.loads((tmp_path / "d.json").read_text())["candidates"]
    (first,) = [row for row in listed if row["policy"] == "fixed_k(1)"]
    assert first["money"] == pytest.approx(sum(MODELS.values()) / 3, rel=0.05)
