"""No training question is in tune, dev or eval; and the code that prepares the data refuses one that is."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from suffice.errors import DataError

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # training/ is no part of the package

from training.prepare import (  # noqa: E402
    CONVERTERS,
    bm25_scores,
    borrow_negatives,
    main,
    question_key,
    read_questions,
    short_hash,
    split_roles,
)

HASHES = json.loads((ROOT / "training" / "split_hashes.json").read_text("utf-8"))
GUARDED = sorted(set(HASHES) - {"train"})


def record(identifier: str, question: str, n: int = 2) -> dict:
    paragraphs = [{"title": f"T{i}", "text": f"text {i}", "is_supporting": i == 0} for i in range(n)]
    return {
        "id": identifier,
        "question": question,
        "answers": ["text"],
        "type": "single",
        "level": None,
        "paragraphs": paragraphs,
    }


def write(path: Path, rows: list[dict]) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def test_no_training_id_or_question_is_in_tune_dev_or_eval():
    ids = {pair[0] for pair in HASHES["train"]}
    questions = {pair[1] for pair in HASHES["train"]}
    assert len(ids) == len(HASHES["train"]) == 3955
    assert {"hotpotqa_tune", "hotpotqa_dev", "hotpotqa_eval", "2wiki_tune", "2wiki_dev", "2wiki_eval"} <= set(GUARDED)
    for role in GUARDED:
        assert not ids & {pair[0] for pair in HASHES[role]}
        assert not questions & {pair[1] for pair in HASHES[role]}


def test_questions_bundled_with_the_package_are_guarded_ones():
    known = {tuple(pair) for role in GUARDED for pair in HASHES[role]}
    train = {tuple(pair) for pair in HASHES["train"]}
    bundled = sorted((ROOT / "src" / "suffice" / "data" / "questions").glob("*.jsonl.gz"))
    for row in read_questions(bundled).values():
        pair = (short_hash(row["id"]), short_hash(question_key(row["question"])))
        assert pair in known
        assert pair not in train


def test_the_released_model_was_trained_on_these_questions():
    config = json.loads(
        (ROOT / "packages/suffice-reader/src/suffice_reader/models/span_reader/config.json").read_text("utf-8")
    )
    pairs = json.dumps(HASHES["train"], separators=(",", ":"))
    assert config["train_questions"] == {"n": len(HASHES["train"]), "hash": short_hash(pairs)}


@pytest.mark.parametrize("question", ["Who wrote it?", "who wrote  IT", "Who wrote the it!"])
def test_preparing_refuses_a_training_question_that_is_guarded_by_its_text(question):
    records = {"a": record("a", "Who wrote it?"), "b": record("b", question)}
    with pytest.raises(DataError, match="also in"):
        split_roles(records, {"train": ["a"], "x_eval": ["b"]})


def test_preparing_refuses_a_training_question_that_is_guarded_by_its_id():
    with pytest.raises(DataError, match="'a'"):
        split_roles({"a": record("a", "Who?")}, {"train": ["a"], "x_tune": ["a"]})


def test_preparing_refuses_unknown_ids_and_conflicting_records(tmp_path):
    with pytest.raises(DataError, match="question file"):
        split_roles({}, {"train": ["a"]})
    path = write(tmp_path / "q.jsonl.gz", [record("a", "one"), record("a", "two")])
    with pytest.raises(DataError, match="twice"):
        read_questions([path])


def test_recorded_answers_of_language_models_do_not_reach_training(tmp_path):
    path = write(tmp_path / "q.jsonl.gz", [{**record("a", "one"), "llama31_8b": {"no_retrieval": "secret"}}])
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"about": "x", "train": ["a"], "x_dev": []}))
    main(["split", "--questions", str(path), "--splits", str(splits), "--output", str(tmp_path / "out")])
    (row,) = read_questions([tmp_path / "out" / "train.jsonl.gz"]).values()
    assert "llama31_8b" not in row
    assert "secret" not in json.dumps(row)


def test_borrowed_negatives_rank_by_bm25_and_never_hold_the_answer():
    rows = []
    for i, text in enumerate(["a red fox ran", "a red fox slept", "blue whales sing", "the red fox dreams of Paris"]):
        paragraph = {"title": f"T{i}", "text": text, "is_supporting": True}
        rows.append(
            {
                **record(str(i), "where is the sleeping red fox"),
                "answers": ["paris"] if i == 0 else ["x"],
                "paragraphs": [paragraph],
            }
        )
    rows += [
        {**record(f"f{i}", "filler"), "paragraphs": [{"title": "", "text": f"filler {i}", "is_supporting": True}]}
        for i in range(20)
    ]
    first = borrow_negatives(rows, n=2)[0]
    assert [p["text"] for p in first["paragraphs"]] == ["a red fox ran", "a red fox slept"]
    assert [p["is_supporting"] for p in first["paragraphs"]] == [True, False]


def test_bm25_prefers_rare_words_and_short_documents():
    scores = bm25_scores(
        "tempest play", ["the tempest", "a play and another play and more", "the tempest " + "x " * 50]
    )
    assert scores[0] > scores[2] > 0
    assert bm25_scores("nothing", ["a", ""]) == [0.0, 0.0]


OFFICIAL = {
    "hotpotqa": [{"_id": "h1", "question": "Q?", "answer": "A", "type": "bridge", "level": "easy",
                  "supporting_facts": [["T", 0]], "context": [["T", ["One. ", " Two."]], ["U", ["Three."]]]}],
    "nq-dpr": [{"question": "Q?", "answers": ["A"], "positive_ctxs": [{"title": "T", "text": "A b."}],
                "hard_negative_ctxs": [{"title": "N", "text": "c"}]},
               {"question": "R?", "answers": ["A"], "positive_ctxs": [], "hard_negative_ctxs": []}],
}  # fmt: skip


def test_official_hotpotqa_and_dpr_files_convert(tmp_path):
    source = tmp_path / "in.json"
    source.write_text(json.dumps(OFFICIAL["hotpotqa"]))
    (row,) = CONVERTERS["hotpotqa"](source)
    assert row["paragraphs"] == [
        {"title": "T", "text": "One. Two.", "is_supporting": True},
        {"title": "U", "text": "Three.", "is_supporting": False},
    ]
    assert (row["id"], row["answers"], row["level"]) == ("h1", ["A"], "easy")
    source.write_text(json.dumps(OFFICIAL["nq-dpr"]))
    (row,) = CONVERTERS["nq-dpr"](source)
    assert [p["is_supporting"] for p in row["paragraphs"]] == [True, False]


def test_official_musique_and_nq_open_files_convert(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({
        "id": "2hop__1_2", "question": "Q?", "answer": "A", "answer_aliases": ["B", "A"],
        "paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "A.", "is_supporting": True}],
    }))  # fmt: skip
    (row,) = CONVERTERS["musique"](source)
    assert (row["answers"], row["type"]) == (["A", "B"], "2hop")
    source.write_text(json.dumps({"question": "Q?", "answer": ["A", "B"]}))
    (row,) = CONVERTERS["nq-open"](source)
    assert (row["answers"], row["paragraphs"]) == (["A", "B"], [])
    source.write_text("who is it\t['A', \"B's\"]\n")
    (row,) = CONVERTERS["nq-qas"](source)
    assert row["answers"] == ["A", "B's"]
    output = tmp_path / "out.jsonl.gz"
    main(["convert", "--dataset", "nq-qas", "--input", str(source), "--output", str(output)])
    assert read_questions([output])["nq-qas-0"]["question"] == "who is it"
