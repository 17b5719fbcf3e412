"""Bundled questions, JSON lines and the official HotpotQA form."""

from __future__ import annotations

import gzip
import hashlib
import json
import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

from suffice.data import BUNDLED_QUESTIONS
from suffice.errors import DataError, SchemaError
from suffice.loops.retrieval.datasets import bundled_path, dataset_hash, load_questions
from suffice.policy.metrics import normalize_answer

ROOT = Path(__file__).resolve().parents[3]
SIZES = {"hotpotqa_tune": 100, "hotpotqa_eval": 200, "2wiki_tune": 100, "2wiki_eval": 100}
HASHES = {
    "hotpotqa_tune": "01722824da10a7f1",
    "hotpotqa_eval": "a41802a90656dae4",
    "2wiki_tune": "296b855b5395ca65",
    "2wiki_eval": "9bcdaf542ff9976c",
}


def record(**changes):
    base = {
        "id": "q1",
        "question": "Who directed The Tempest (1979)?",
        "answers": ["Derek Jarman"],
        "type": "bridge",
        "level": "hard",
        "paragraphs": [
            {"title": "The Tempest", "text": "A film by Derek Jarman.", "is_supporting": True},
            {"title": "Jubilee", "text": "Another film.", "is_supporting": False},
        ],
    }
    return base | changes


def official(**changes):
    base = {
        "_id": "5a8b57f25542995d1e6f1371",
        "question": "Who directed The Tempest (1979)?",
        "answer": "Derek Jarman",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [["The Tempest", 0], ["The Tempest", 1]],
        "context": [["The Tempest", ["A film.", " By Derek Jarman."]], ["Jubilee", ["Another film.", "Of 1978."]]],
    }
    return base | changes


def lines(path, *records):
    path.write_text("".join(json.dumps(item) + "\n" for item in records), encoding="utf-8")
    return path


# Bundled


@pytest.mark.parametrize("name", BUNDLED_QUESTIONS)
def test_a_bundled_set_has_its_questions_with_answers_and_supporting_passages(name):
    questions = load_questions(name)
    assert len(questions) == SIZES[name]
    for question in questions:
        assert question.question == question.question.strip() != ""
        assert question.answers
        assert all(answer.strip() for answer in question.answers)
        assert 2 <= len(question.passages) <= 10
        assert len(question.supporting) >= 2
        assert all(passage.title and passage.text for passage in question.passages)
        assert question.supporting_titles <= {passage.title for passage in question.passages}


@pytest.mark.parametrize("name", BUNDLED_QUESTIONS)
def test_a_bundled_set_never_changes(name):
    assert dataset_hash(load_questions(name)) == HASHES[name]


@pytest.mark.parametrize("name", BUNDLED_QUESTIONS)
def test_a_bundled_file_holds_only_the_fields_that_may_ship(name):
    with gzip.open(bundled_path(name), "rt", encoding="utf-8") as rows:
        for row in rows:
            assert set(json.loads(row)) == {"id", "question", "answers", "type", "level", "paragraphs"}


def test_no_question_is_in_two_bundled_sets():
    questions = [question for name in BUNDLED_QUESTIONS for question in load_questions(name)]
    assert max(Counter(question.question_id for question in questions).values()) == 1
    assert max(Counter(normalize_answer(question.question) for question in questions).values()) == 1


def test_every_bundled_file_is_attributed():
    text = (bundled_path("2wiki_eval").parents[1] / "DATA.md").read_text(encoding="utf-8")
    for name in BUNDLED_QUESTIONS:
        assert f"questions/{name}.jsonl.gz" in text
    for words in ("CC BY-SA 4.0", "Apache-2.0", "Changes made", "Wikipedia", "AdaRAGUE"):
        assert words in text


def test_the_bundling_script_is_deterministic_and_drops_other_fields(tmp_path, monkeypatch):
    source = tmp_path / "source.jsonl.gz"
    rows = [record(id=f"q{i}", llama31_8b={"answer": "secret"}) for i in range(4)]
    source.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    roles = ("hotpotqa_tune", "hotpotqa_eval_bundled", "2wiki_tune", "2wiki_eval")
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({role: [f"q{i}"] for i, role in enumerate(roles)}))
    digests = []
    for folder in ("one", "two"):
        out = tmp_path / folder
        arguments = ["bundle", "--splits", str(splits), "--source", str(source), "--out", str(out)]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as done:
            runpy.run_path(str(ROOT / "scripts" / "bundle_questions.py"), run_name="__main__")
        assert done.value.code == 0
        digests.append(
            [hashlib.sha256((out / f"{name}.jsonl.gz").read_bytes()).hexdigest() for name in BUNDLED_QUESTIONS]
        )
        assert b"secret" not in gzip.decompress((out / "2wiki_eval.jsonl.gz").read_bytes())
        assert [question.question_id for question in load_questions(out / "2wiki_eval.jsonl.gz")] == ["q3"]
    assert digests[0] == digests[1]


def test_limit_takes_the_first_questions():
    assert load_questions("2wiki_tune", limit=3) == load_questions("2wiki_tune")[:3]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(DataError, match="limit is"):
        load_questions("2wiki_tune", limit=limit)


def test_an_unknown_name_lists_the_bundled_sets():
    with pytest.raises(DataError, match="hotpotqa_tune, hotpotqa_eval"):
        load_questions("hotpotqa_test")
    with pytest.raises(DataError, match="bundled"):
        bundled_path("nope")


# JSON lines


def test_a_line_becomes_a_question(tmp_path):
    (question,) = load_questions(lines(tmp_path / "q.jsonl", record()))
    assert (question.question_id, question.answers, question.type, question.level) == (
        "q1",
        ("Derek Jarman",),
        "bridge",
        "hard",
    )
    assert [passage.passage_id for passage in question.passages] == ["q1#0", "q1#1"]
    assert question.supporting == {"q1#0"}
    assert question.supporting_titles == {"The Tempest"}
    assert all(passage.score != passage.score for passage in question.passages), "unranked scores are NaN"


def test_gzip_blank_lines_and_byte_order_mark_read_the_same(tmp_path):
    plain = lines(tmp_path / "q.jsonl", record())
    packed = tmp_path / "q.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + plain.read_bytes() + b"\n  \n"))
    assert load_questions(packed) == load_questions(plain)


def test_only_id_and_question_are_required(tmp_path):
    (question,) = load_questions(lines(tmp_path / "q.jsonl", {"id": "q", "question": " Why? ", "anything": 1}))
    assert question.question == "Why?"
    assert question.answers == question.passages == ()
    assert question.type is question.level is None


def test_a_passage_of_one_megabyte_is_kept(tmp_path):
    text = "word " * 200_000
    (question,) = load_questions(lines(tmp_path / "q.jsonl", record(paragraphs=[{"title": "Long", "text": text}])))
    assert question.passages[0].text == text


def test_a_line_separator_inside_a_string_does_not_split_the_line(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(record(question="one\u2028two"), ensure_ascii=False) + "\n", encoding="utf-8")
    assert load_questions(path)[0].question == "one\u2028two"


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"answers": ["Oslo", "Christiania"]}, ("Oslo", "Christiania")),
        ({"answers": "Oslo"}, ("Oslo",)),
        ({"answer": "Oslo"}, ("Oslo",)),
        ({"answer": ["Oslo", 1925]}, ("Oslo", "1925")),
        ({"gold": "Oslo"}, ("Oslo",)),
        ({"golds": ["Oslo"]}, ("Oslo",)),
        ({"gold_answer": "Oslo"}, ("Oslo",)),
        ({"golden_answers": ["Oslo"]}, ("Oslo",)),
        ({"target": 1925}, ("1925",)),
        ({"target": 1925.0}, ("1925",)),
        ({"ground_truth": "Oslo"}, ("Oslo",)),
        ({"reference_answer": "Oslo"}, ("Oslo",)),
        ({"answers": [], "answer": "Oslo"}, ("Oslo",)),
        ({"answer": "what a model said", "ground_truth": "Oslo"}, ("Oslo",)),
        ({"answer": None}, ()),
        ({"answer": ""}, ()),
        ({}, ()),
    ],
)
def test_gold_answers_are_read_under_every_usual_name_and_as_plain_text(tmp_path, fields, answers):
    (question,) = load_questions(lines(tmp_path / "q.jsonl", {"id": "q", "question": "Why?"} | fields))
    assert question.answers == answers
    listed = tmp_path / "q.json"
    listed.write_text(json.dumps([{"id": "q", "question": "Why?"} | fields]))
    assert load_questions(listed) == [question]


def test_a_missing_id_comes_from_the_text_and_numbers_become_text(tmp_path):
    bare = [
        {"question": "Why?"},
        {"question": "  who wrote  It"},
        {"id": 7, "question": "Where?"},
        {"qid": "x", "question": "?"},
    ]
    first, second, third, fourth = load_questions(lines(tmp_path / "q.jsonl", *bare))
    assert len({first.question_id, second.question_id}) == 2
    assert len(first.question_id) == 12
    again = load_questions(lines(tmp_path / "r.jsonl", {"question": "Who wrote it?"}, bare[0]))
    assert [question.question_id for question in again] == [second.question_id, first.question_id]
    assert (third.question_id, fourth.question_id) == ("7", "x")
    with pytest.raises(DataError, match="derived"):
        load_questions(lines(tmp_path / "twice.jsonl", bare[0], bare[0]))


def test_what_is_not_read_is_listed_once(tmp_path, caplog):
    path = lines(tmp_path / "q.jsonl", *(record(id=f"q{i}", anser="Oslo", source=i, answer="Rome") for i in range(5)))
    load_questions(path)
    (logged,) = caplog.messages
    assert "anser (5), answer (5), source (5)" in logged
    caplog.clear()
    load_questions(lines(tmp_path / "known.jsonl", record(split="dev")))
    load_questions("hotpotqa_tune", limit=3)
    assert caplog.messages == []


def test_json_lines_may_hold_the_published_forms(tmp_path):
    path = tmp_path / "hotpot.json"
    path.write_text(json.dumps([official()]))
    assert load_questions(lines(tmp_path / "hotpot.jsonl", official())) == load_questions(path)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"id": ""}, "id is ''"),
        ({"id": True}, "id is True"),
        ({"question": "  "}, "question is '"),
        ({"question": None}, "question is None"),
        ({"answers": [["Derek"]]}, "number"),
        ({"answers": [True]}, "yes or no"),
        ({"answers": {"text": "Derek"}}, "answers is"),
        ({"type": 1}, "type is 1"),
        ({"paragraphs": {}}, "paragraphs is"),
        ({"paragraphs": ["text"]}, "paragraph 0"),
        ({"paragraphs": [{"title": "t", "text": 3}]}, "text is 3"),
        ({"paragraphs": [{"title": "t", "text": "x", "is_supporting": "yes"}]}, "true or false"),
    ],
)
def test_a_bad_field_is_named_with_file_and_line(tmp_path, bad, message):
    path = lines(tmp_path / "q.jsonl", record(id="q0"), record(**bad))
    with pytest.raises(DataError, match=message) as raised:
        load_questions(path)
    assert "q.jsonl, line 2" in str(raised.value)


def test_a_duplicate_id_names_both_lines(tmp_path):
    path = lines(tmp_path / "q.jsonl", record(), record(id="q2"), record())
    with pytest.raises(DataError, match="'q1'"):
        load_questions(path)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_bytes(json.dumps(record()).encode() + b"\n" + '{"id": "caf\u00e9"}'.encode("latin-1") + b"\n")
    with pytest.raises(DataError, match="line 2: byte"):
        load_questions(path)


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_a_file_without_questions_is_an_error(tmp_path, content):
    (tmp_path / "q.jsonl").write_bytes(content)
    with pytest.raises(DataError, match="no questions"):
        load_questions(tmp_path / "q.jsonl")


def test_a_truncated_or_foreign_gzip_file_is_an_error(tmp_path):
    whole = gzip.compress(b"".join(json.dumps(record(id=f"q{i}")).encode() + b"\n" for i in range(50)))
    for content in (whole[: len(whole) // 2], b"not gzip at all"):
        (tmp_path / "q.jsonl.gz").write_bytes(content)
        with pytest.raises(DataError, match="gzip"):
            load_questions(tmp_path / "q.jsonl.gz")


def test_broken_json_and_foreign_shapes_are_errors(tmp_path):
    path = tmp_path / "q.jsonl"
    for content, message in (("{", "not JSON"), ("[1]", "found list"), ("3", "found int")):
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            load_questions(path)
    (tmp_path / "q.csv").write_text("id,question\n")
    with pytest.raises(SchemaError, match=r"\.jsonl"):
        load_questions(tmp_path / "q.csv")


# HotpotQA's official form


def test_the_official_form_is_read(tmp_path):
    path = tmp_path / "hotpot.json"
    path.write_text(json.dumps([official(), official(_id="b")], indent=1))
    first, second = load_questions(path)
    assert first.question_id == "5a8b57f25542995d1e6f1371"
    assert first.answers == ("Derek Jarman",)
    assert [passage.text for passage in first.passages] == ["A film. By Derek Jarman.", "Another film. Of 1978."]
    assert first.supporting_titles == {"The Tempest"}
    assert second.question_id == "b"
    assert load_questions(path, limit=1) == [first]


def test_an_official_test_set_has_no_answers(tmp_path):
    path = tmp_path / "test.json"
    path.write_text(json.dumps([{"_id": "a", "question": "Q?", "context": [["T", ["S."]]]}]))
    (question,) = load_questions(path)
    assert question.answers == ()
    assert question.supporting == frozenset()
    assert len(question.passages) == 1


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ('{"a": 1}', SchemaError, "JSON list"),
        ("", SchemaError, "JSON list"),
        ("[]", DataError, "no questions"),
        (json.dumps([official()])[:-1], DataError, "truncated"),
        (json.dumps([official()])[:-9], DataError, "item 1: not"),
        (json.dumps([official()])[:-1] + " 7", DataError, "item 2: not"),
        ("[3]", DataError, "found int"),
        (json.dumps([official(), official()]), DataError, "already used"),
        (json.dumps([official(context=[["T"]])]), DataError, "expected pairs"),
        (json.dumps([official(context=[["T", "text"]])]), DataError, "of sentences"),
        (json.dumps([official(answer={"a": 1})]), DataError, "answer is"),
    ],
)
def test_a_broken_official_file_is_an_error(tmp_path, content, error, message):
    path = tmp_path / "hotpot.json"
    path.write_text(content)
    with pytest.raises(error, match=message):
        load_questions(path)


# Hashes


def test_a_dataset_hash_depends_on_everything_that_was_read_and_on_order(tmp_path):
    def hashed(*records):
        return dataset_hash(load_questions(lines(tmp_path / "q.jsonl", *records)))

    base = hashed(record(), record(id="q2"))
    assert base == hashed(record(ignored=1), record(id="q2"))
    others = [
        hashed(record(id="q2"), record()),
        hashed(record(), record(id="q2", answers=["x"])),
        hashed(record(), record(id="q2", type=None)),
        hashed(record(), record(id="q2", paragraphs=[])),
        hashed(record()),
    ]
    assert len({base, *others}) == 6
