"""Logs of search trees: the import asks which nodes are answers."""

from __future__ import annotations

import pytest

from suffice import import_recording, read_recording
from tests.support.cli_tools import CITIES
from tests.support.logs import imported, offered, written

LEAVES = {"node_type": "leaf"}


def said(q):
    return [CITIES[(q + r) % 4] for r in range(3)]


def nodes(q, root=True):
    """Return a thought and an answer for each rollout below a root."""
    own = [{"node_id": 0, "parent_id": None, "depth": 0, "output": "?"}] if root else []
    for r, answer in enumerate(said(q)):
        own.append({"node_id": 2 * r + 1, "parent_id": 0, "depth": 1, "output": f"perhaps {answer}"})
        own.append({"node_id": 2 * r + 2, "parent_id": 2 * r + 1, "depth": 2, "output": answer})
    return own


def leaves_of(path, out, **options):
    """Import the leaves; return the answers of each question."""
    recording = read_recording(import_recording(path, out=out, where=LEAVES, **options).path)
    answers = recording.table.column("answer").to_pylist()
    return [answers[3 * q : 3 * q + 3] for q in range(len(answers) // 3)]


@pytest.mark.parametrize("has_root", [True, False])
@pytest.mark.parametrize("is_listed", [True, False])
def test_inner_nodes_are_no_rounds(tmp_path, is_listed, has_root):
    records = [{"id": q, "nodes": nodes(q, has_root)} for q in range(20)]
    if not is_listed:
        records = [{"id": item["id"], **node} for item in records for node in item["nodes"]]
    path, out = written(tmp_path / "trees.jsonl", records), tmp_path / "trees.parquet"
    assert offered(path, match="search trees") == ["--where node_type=leaf", "--where 'node_type=*'"]
    assert leaves_of(path, out) == [said(q) for q in range(20)]
    if is_listed:
        every = import_recording(path, out=out, where={"node_type": "*"})
        assert every.rounds == 6 + has_root


def test_a_flag_that_marks_ends_is_offered_first(tmp_path):
    records = [{"id": q, **node, "is_terminal": node["depth"] == 2} for q in range(20) for node in nodes(q)]
    path, out = written(tmp_path / "trees.jsonl", records), tmp_path / "trees.parquet"
    assert offered(path, match="search trees")[0] == "--where is_terminal=true"
    assert import_recording(path, out=out, where={"is_terminal": "true"}).rounds == 3


def test_trees_of_children_and_of_places_are_lists_of_nodes(tmp_path):
    records, places = [], []
    for q in range(20):
        below = [{"final_answer": "", "children": [{"final_answer": answer}]} for answer in said(q)]
        records.append({"id": q, "root": {"final_answer": "", "children": below}})
        inner = {place: {"final_answer": ""} for place in ("0", "0.1", "0.2", "0.3")}
        ends = {f"0.{r}.1": {"final_answer": answer} for r, answer in enumerate(said(q), start=1)}
        places.append({"id": q, "tree": inner | ends})
    for name, log in {"children": records, "places": places}.items():
        path = written(tmp_path / f"{name}.jsonl", log)
        assert leaves_of(path, tmp_path / f"{name}.parquet") == [said(q) for q in range(20)]


def test_a_thread_is_no_tree(tmp_path):
    turns = [[{"id": r + 1, "parent": r, "output": text} for r, text in enumerate(said(q))] for q in range(20)]
    path = written(tmp_path / "threads.jsonl", [{"id": q, "turns": own} for q, own in enumerate(turns)])
    summary = imported(path)
    assert (summary.trajectories, summary.rounds) == (20, 3)


def test_rounds_without_an_answer_can_be_left_out(tmp_path):
    steps = [[{"answer": text} for own in said(q) for text in ("", own)] for q in range(20)]
    path = written(tmp_path, [{"id": q, "steps": own} for q, own in enumerate(steps)])
    assert offered(path, match="no answer")[0] == "--where 'answer=*'"
    assert imported(path, where={"answer": "*"}).rounds == 3
