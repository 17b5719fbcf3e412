"""Logs of search trees: nodes with their parents, of which only leaves have answers."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops


def _nodes(asked: Asked, draw: Draw, said: str, inner: str | None) -> list[dict[str, Any]]:
    """Return a root, and below it a thought and an answer for each rollout."""
    nodes: list[dict[str, Any]] = [{"node_id": 0, "parent_id": None, "depth": 0, "value": 0.1, said: inner}]
    for r, answer in enumerate(asked.answers):
        thought = inner and f"{inner} {draw.prose(3)}"
        nodes.append({"node_id": 2 * r + 1, "parent_id": 0, "depth": 1, "value": 0.3, said: thought})
        nodes.append({"node_id": 2 * r + 2, "parent_id": 2 * r + 1, "depth": 2, "value": 0.7, said: answer})
    return nodes


@shape("rollouts.jsonl")
def tree_keyed_by_places(draw: Draw) -> Log:
    """An object of nodes by their places in the tree; inner ones have no answer, and the record has the gold answer."""
    questions = draw.asked(60, 3, "whole")
    records = []
    for asked in questions:
        tree = {"0": {"text": "", "final_answer": "", "value": 0}}
        for r, answer in enumerate(asked.answers, start=1):
            tree[f"0.{r}"] = {"text": draw.prose(4), "final_answer": "", "value": 0}
            tree[f"0.{r}.1"] = {"text": draw.prose(4), "final_answer": answer, "value": 2 * asked.right[r - 1] - 1}
        records.append({"question": asked.question, "answer": asked.gold, "rstar": tree})
    return Log(records, loops(questions))


@shape("trees.jsonl")
def tree_in_a_list(draw: Draw) -> Log:
    """A list of nodes; inner ones have no answer."""
    questions = draw.asked(60, 3)
    return Log(
        [
            {"id": a.number, "question": a.question, "gold": a.gold, "nodes": _nodes(a, draw, "answer", None)}
            for a in questions
        ],
        loops(questions),
    )


@shape("trees.csv")
def tree_in_rows(draw: Draw) -> Log:
    """A row for each node, with partial texts in the inner ones; `depth` counts no rounds."""
    questions = draw.asked(60, 3)
    return Log(
        [
            {"id": a.number, "question": a.question, "gold": a.gold, **node}
            for a in questions
            for node in _nodes(a, draw, "output", "perhaps")
        ],
        loops(questions),
    )


@shape("trees.jsonl")
def tree_with_its_leaves_marked(draw: Draw) -> Log:
    """Nodes without a name for answers; a flag marks those that end."""
    questions = draw.asked(60, 3)
    records = []
    for asked in questions:
        nodes = [{**node, "is_terminal": node["depth"] > 1} for node in _nodes(asked, draw, "state", "perhaps")[1:]]
        records.append({"id": asked.number, "question": asked.question, "gold": asked.gold, "nodes": nodes})
    return Log(records, loops(questions))


@shape("trees.jsonl")
def tree_of_children(draw: Draw) -> Log:
    """Nodes inside each other, under `children`."""
    questions = draw.asked(60, 3)
    records = []
    for asked in questions:
        children = [
            {"state": draw.prose(3), "value": 0.3, "children": [{"state": answer, "value": 0.7, "children": []}]}
            for answer in asked.answers
        ]
        tree = {"state": "", "value": 0, "children": children}
        records.append({"id": asked.number, "question": asked.question, "gold": asked.gold, "tree": tree})
    return Log(records, loops(questions))


@shape("threads.jsonl")
def thread_of_turns(draw: Draw) -> Log:
    """Turns with the id of the turn before: a thread, in which every turn is a round."""
    questions = draw.asked(60)
    records = []
    for asked in questions:
        turns = [{"id": r, "parent": r - 1, "output": answer} for r, answer in enumerate(asked.answers, start=1)]
        records.append({"id": asked.number, "question": asked.question, "gold": asked.gold, "turns": turns})
    return Log(records, loops(questions))
