"""Forms of gold answers: behind a mark, alternatives in one text, and lists that are one answer of several items."""

from __future__ import annotations

import json

import numpy as np
import pytest

from suffice.errors import UnsettledError
from suffice.importers.answers.golds import gold_form
from suffice.importers.columns.grid import gold_texts
from suffice.recordings import read_recording
from tests.support.logs import by_command, imported, offered, paired, written

CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Bern")
N = 20


def log(path, gold_of, answer_of=lambda place: CITIES[place % 5]):
    """Write a log of two rounds, of which the second is right."""
    rows = [
        {"id": q, "round": r, "question": f"Where is {q}?", "gold": gold_of(q), "answer": answer_of(q + 2 - r)}
        for q in range(N)
        for r in (1, 2)
    ]
    return written(path, rows)


def read(source, **options):
    summary = imported(source, **options)
    recording = read_recording(summary.path)
    name = "match" if "match" in recording.table.column_names else "em"
    return np.nanmean(recording.column(name), axis=0).tolist(), recording.table.column("golds")[0].as_py(), summary


def test_a_gold_answer_follows_the_mark_of_gsm8k(tmp_path):
    source = log(tmp_path / "log.jsonl", lambda q: f"3 + {q} = {q + 3}\n#### {q + 3}", lambda place: str(place + 3))
    scores, golds, summary = read(source)
    assert (scores, golds) == ([0.0, 1.0], ["3"])
    assert any("follows '####'" in note for note in summary.notes)


def test_gold_answers_of_a_file_follow_the_mark_too(tmp_path):
    source = log(tmp_path / "log.jsonl", lambda q: None, str)
    golds = tmp_path / "test.jsonl"
    lines = [{"question": f"Where is {q}?", "answer": f"Count to {q}.\n#### {q}"} for q in range(N)]
    written(golds, lines)
    assert read(source, golds=golds)[:2] == ([0.0, 1.0], ["0"])


@pytest.mark.parametrize(
    "item_of",
    [
        lambda asked, gold: {
            "id": f"e{asked}",
            "dataset_id": "d",
            "inputs": {"question": asked},
            "outputs": {"answer": gold},
        },
        lambda asked, gold: {
            "id": f"x{asked}",
            "inputs": {"q": asked},
            "outputs": {"said": gold},
            "metadata": {"answer": "no"},
        },
        lambda asked, gold: {"id": asked, "input": {"query": asked}, "expectedOutput": {"answer": gold, "why": "so"}},
    ],
    ids=["langsmith", "only fields", "langfuse"],
)
def test_examples_of_a_platform_are_gold_answers(item_of, tmp_path):
    source = log(tmp_path / "log.jsonl", lambda q: None)
    golds = tmp_path / "examples.jsonl"
    items = [item_of(f"Where is {q}?", CITIES[q % 5]) for q in range(N)]
    written(golds, items)
    assert read(source, golds=golds)[:2] == ([0.0, 1.0], ["Oslo"])


@pytest.mark.parametrize("sign", [" | ", "|", "; "])
def test_alternatives_in_one_text_are_several_gold_answers(sign, tmp_path):
    source = log(
        tmp_path / "log.jsonl", lambda q: f"{CITIES[q % 5]}{sign}Old {CITIES[q % 5]}" if q % 2 == 0 else CITIES[q % 5]
    )
    scores, golds, summary = read(source)
    assert (scores, golds) == ([0.0, 1.0], ["Oslo", "Old Oslo"])
    assert any("alternatives" in note for note in summary.notes)


@pytest.mark.parametrize(
    ("golds", "answers"),
    [
        (["a | b"] * 10, ["a | b"] + ["a"] * 9),
        (["x; y"] * 10, ["z"] * 10),
        (["1 #### 2", *["3"] * 9], ["2"] * 10),
        (["Oslo"] * 10, ["Oslo"] * 10),
    ],
    ids=["answers have the sign", "no answer is one", "one mark", "plain"],
)
def test_other_signs_in_gold_answers_are_text(golds, answers):
    assert gold_form(golds, answers) == ""


SETS = (["red", "blue"], ["green"], ["blue", "black", "white"], ["red", "white"], ["grey", "black"])


@pytest.mark.parametrize("between", [", ", "; ", "\n"], ids=["commas", "semicolons", "lines"])
def test_a_list_that_answers_name_whole_is_asked_about(between, tmp_path):
    source = log(tmp_path / "log.jsonl", lambda q: SETS[q % 5], lambda place: between.join(SETS[place % 5][::-1]))
    with pytest.raises(UnsettledError, match="items") as caught:
        read(source)
    assert {value for value, _ in caught.value.choices.values()} == {"unordered", "qa"}
    assert read(source, normalizer="unordered")[:2] == ([0.0, 1.0], ['["red", "blue"]'])
    assert read(source, normalizer="qa")[1] == ["red", "blue"]


def test_lists_written_as_answers_are_compared_with_whole_lists(tmp_path):
    source = log(tmp_path / "log.jsonl", lambda q: SETS[q % 5], lambda place: json.dumps(SETS[place % 5][::-1]))
    scores, golds, summary = read(source)
    assert (scores, golds) == ([0.0, 1.0], ['["red", "blue"]'])
    assert summary.preview.normalizer == "unordered"


def test_alternatives_with_commas_are_not_asked_about(tmp_path):
    source = log(tmp_path / "log.jsonl", lambda q: [f"{CITIES[q % 5]}, Norway", CITIES[q % 5]])
    assert read(source)[:2] == ([0.0, 1.0], ["Oslo, Norway", "Oslo"])


@pytest.mark.parametrize("written", [lambda value: value, json.dumps])
def test_references_with_a_tag_are_gold_answers(tmp_path, written):
    def references(q):
        return written([{"output": {"text": city}, "tags": ["correct"] * (city == CITIES[q % 5])} for city in CITIES])

    scores, golds, _ = read(log(tmp_path / "log.jsonl", references))
    assert (scores, golds) == ([0.0, 1.0], ["Oslo"])


@pytest.mark.parametrize("written", ['["Oslo", "Lima"]', "['Oslo', 'Lima']", "['Oslo' 'Lima']", "['Oslo'\n 'Lima']"])
def test_lists_that_programs_print_are_several_gold_answers(written):
    assert gold_texts(written, "") == ("Oslo", "Lima")


def test_a_text_in_brackets_is_one_gold_answer():
    assert gold_texts("[Oslo", "") == ("[Oslo",)
    assert gold_texts("[Oslo]", "") == ("[Oslo]",)
    assert gold_texts("['Oslo' 'Lima', 3]", "") == ("['Oslo' 'Lima', 3]",)


WAYS = {
    "pipe": "|".join,
    "spaced": " | ".join,
    "semicolon": "; ".join,
    "json": json.dumps,
    "list": list,
}


def trivia(name, join, wrong="Bern", n=30):
    """Return rows of two rounds, of which the second has the answer that a list begins or ends with; other ones are wrong."""
    pairs = [(city, f"{city} City") for city in CITIES[:4]]
    return [
        {"id": q, "round": r, "question": f"Where is {q}?", "answer": pairs[q % 4][q % 2] if r == 2 else wrong}
        | {name: join(pairs[q % 4])}
        for q in range(n)
        for r in (1, 2)
    ]


@pytest.mark.parametrize(("join", "name"), paired(WAYS.values(), ["accepted_answers", "valid_answers", "gold_aliases"]))
def test_accepted_answers_are_read_as_several_golds(tmp_path, name, join):
    scores, golds, _ = read(written(tmp_path / "log.jsonl", trivia(name, join)))
    assert (scores, golds) == ([0.0, 1.0], ["Oslo", "Oslo City"])


@pytest.mark.parametrize(("join", "name"), paired(WAYS.values(), ["answers", "aliases", "spellings"]))
def test_other_lists_with_answers_are_asked_about(tmp_path, name, join):
    rows = trivia(name, join)
    source = written(tmp_path / "log.jsonl", rows)
    assert offered(source) == [f"--column golds={name}", "--expected unread-golds"]
    if name == "spellings":
        by_command(tmp_path, rows, "--column", f"golds={name}", code=0)
    scores, golds, _ = read(source, columns={"golds": name})
    assert (scores, golds) == ([0.0, 1.0], ["Oslo", "Oslo City"])


def test_lists_that_hold_every_answer_are_options(tmp_path):
    rows = [{**row, "spellings": f"{row['spellings']}|Bern"} for row in trivia("spellings", "|".join)]
    assert "golds" not in {item.ours for item in imported(written(tmp_path / "log.jsonl", rows)).readings}
