"""The published formats are those of the code, and the readers refuse what their schemas refuse."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from docs import formats
from jsonschema import Draft202012Validator

from suffice.recordings import BUNDLED_RECORDINGS, bundled_recording, read_recording, write_recording
from tests.support.cli_tools import cli
from tests.support.files import ROOT, held, made, mutated

SCHEMAS = {
    name: Draft202012Validator(json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text("utf-8")))
    for name in formats.schemas()
}


WHOLE = {"unchanged", "readable", "without a hash"}


def validated(*paths: Path) -> list[dict]:
    """Return what `suffice data validate` says of files, whose exit code must fit."""
    done = cli("data", "validate", *paths, "--json")
    found = json.loads(done.out)
    assert found["sound"] == all(item["state"] in WHOLE for item in found["files"]) == (done.code == 0)
    return found["files"]


@cache
def every_value() -> list[tuple[str, dict]]:
    return [*held(), *made()]


@cache
def chosen(seed: int, n: int) -> list[tuple[str, dict]]:
    """Return values and mutations of them, of each kind as many."""
    rng = random.Random(seed)
    by_kind = {
        kind: [value for one, value in every_value() if one == kind] for kind in ("policy", "decision", "session")
    }
    # The values with most parts are the last ones.
    return [(kind, mutated(rng.choice(by_kind[kind][-3:]), rng)) for _ in range(n // 3) for kind in by_kind]


def written(values: list[tuple[str, dict]], folder: Path) -> list[Path]:
    """Write values as JSON files."""
    paths = [folder / f"{place}.json" for place in range(len(values))]
    for path, (_, value) in zip(paths, values, strict=True):
        path.write_text(json.dumps(value))
    return paths


def test_the_schemas_accept_every_value_that_the_repository_holds():
    seen = Counter()
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema.schema)
    for kind, value in every_value():
        assert [error.message for error in SCHEMAS[kind].iter_errors(value)] == []
        seen[kind] += 1
    assert seen["policy"] > 20
    assert min(seen[kind] for kind in ("decision", "session")) > 1


def test_validate_accepts_every_value_that_the_repository_holds(tmp_path):
    found = validated(*written(every_value(), tmp_path))
    assert {item["kind"] for item in found} == {"policy", "session state", "decision of a session"}
    assert {item["state"] for item in found} <= WHOLE


def test_what_validate_accepts_of_300_mutations_their_schemas_accept_too(tmp_path):
    values = chosen(33, 300)
    accepted = [item["state"] in WHOLE for item in validated(*written(values, tmp_path))]
    valid = [SCHEMAS[kind].is_valid(value) for kind, value in values]
    wrong = [value for value, ours, theirs in zip(values, accepted, valid, strict=True) if ours > theirs]
    assert wrong == []
    assert len(values) == 300
    assert sum(accepted) < 120
    assert sum(valid) - sum(accepted) < 30, "a schema lets too much pass that the reader refuses"


def test_validate_reads_every_bundled_recording_and_a_folder_of_them(tmp_path):
    paths = []
    for name in BUNDLED_RECORDINGS:
        recording = bundled_recording(name)
        paths.append(tmp_path / f"{name}.parquet")
        write_recording(paths[-1], recording.table, recording.metadata)
    (tmp_path / "folder").mkdir()
    part = tmp_path / "folder" / "part-0001.parquet"
    part.write_bytes(paths[0].read_bytes())
    assert {item["state"] for item in validated(*paths, part.parent)} == {"readable"}
    whole, rng = part.read_bytes(), random.Random(3)
    for _ in range(30):
        place = rng.randrange(len(whole))
        cut = (
            whole[:place]
            if rng.random() < 0.3
            else bytes([*whole[:place], whole[place] ^ 1 << rng.randrange(8), *whole[place + 1 :]])
        )
        part.write_bytes(cut)
        (found,) = validated(part)
        if found["state"] == "readable":  # a byte that no value depends on
            assert read_recording(part).table.equals(read_recording(paths[0]).table)


def test_a_decision_file_is_read_whole_and_fits_its_schema(tmp_path):
    recording = bundled_recording("self_refine_gpt4")
    write_recording(tmp_path / "r.parquet", recording.table, recording.metadata)
    assert cli("decide", tmp_path / "r.parquet", "--metric", "target_sentiment", "-o", tmp_path / "d.json").code == 0
    value = json.loads((tmp_path / "d.json").read_text())
    assert [error.message for error in SCHEMAS["verdict"].iter_errors(value)] == []
    assert validated(tmp_path / "d.json")[0] | {"path": ""} == {
        "path": "",
        "kind": "verdict",
        "file": "",
        "state": "unchanged",
    }
    del value["sha256"], value["trial"]
    assert not SCHEMAS["verdict"].is_valid(value)
    (tmp_path / "d.json").write_text(json.dumps(value))
    assert validated(tmp_path / "d.json")[0]["state"].startswith("not valid")


@pytest.mark.parametrize(
    "text", ["{}", "[]", '{"format": "suffice.other"}', '{"format": 3}', "{", "NaN", "[" * 100_000, "\ud800"]
)
def test_validate_refuses_what_is_none_of_the_formats(tmp_path, text):
    (tmp_path / "x.json").write_text(text, "utf-8", "surrogatepass")
    (found,) = validated(tmp_path / "x.json")
    assert found["kind"] == "JSON"
    assert found["state"].startswith(("not JSON", "of no known kind"))


def test_the_published_formats_are_those_of_the_code():
    texts = {ROOT / "schemas" / name: text for name, text in formats.schema_files().items()}
    texts[ROOT / "packages" / "suffice-js" / "src" / "generated.js"] = formats.javascript_tables()
    stale = [path.name for path, text in texts.items() if path.read_text("utf-8") != text]
    assert stale == [], "run python docs/build.py"
    page = (ROOT / "docs" / "reference" / "formats.md").read_text("utf-8")
    assert formats.arrow_text() in page
    assert {path.name for path in (ROOT / "schemas").iterdir()} == {*formats.schema_files()}


def test_the_arrow_schema_on_the_page_is_that_of_recordings():
    published = formats.arrow_schema()
    for name in BUNDLED_RECORDINGS:
        for field in bundled_recording(name).table.schema:
            if field.name in published.names:
                own = published.field(field.name)
                assert (own.type, own.metadata) == (field.type, field.metadata), (name, field.name)
