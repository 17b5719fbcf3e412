"""Published question sets, converted: every form by its documented schema, samples and splits, and what is left out.

The rows of HotpotQA and 2WikiMultiHopQA are bundled questions put back into the published forms; the others are written
after the sets' own pages.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError, NotFoundError, SchemaError, UnsettledError
from suffice.loops.retrieval import dataset_hash, load_questions
from suffice.loops.retrieval.forms import QUESTION_FORMS
from suffice.policy.metrics import normalize_answer
from suffice_retrieval.indexes import convert_corpus, open_corpus, read_corpus
from suffice_retrieval.question_sets import convert_questions, open_source
from tests.support.cli_tools import cli

MUSIQUE = {
    "id": "3hop1__136129_87694_124169",
    "paragraphs": [
        {"idx": 0, "title": "Oslo", "paragraph_text": "Oslo is a city.", "is_supporting": True},
        {"idx": 1, "title": "Lima", "paragraph_text": "Lima is another.", "is_supporting": False},
    ],
    "question": "Which city?",
    "question_decomposition": [{"id": 1, "question": "city?", "answer": "Oslo", "paragraph_support_idx": 0}],
    "answer": "Oslo",
    "answer_aliases": ["Christiania", "Oslo"],
    "answerable": True,
}
TRIVIA = {
    "question": "Where is the tower?",
    "question_id": "tc_1",
    "question_source": "http://www.triviacountry.com/",
    "entity_pages": {
        "doc_source": ["TagMe"],
        "filename": ["Oslo.txt"],
        "title": ["Oslo"],
        "wiki_context": ["Oslo has a tower."],
    },
    "search_results": {"description": [], "filename": [], "rank": [], "title": [], "url": [], "search_context": []},
    "answer": {
        "aliases": ["Christiania"],
        "normalized_aliases": ["christiania", "oslo"],
        "matched_wiki_entity_name": "",
        "normalized_value": "oslo",
        "type": "WikipediaEntity",
        "value": "Oslo",
    },
}
TRIVIA_OWN = {
    "Answer": {
        "Aliases": ["Christiania"],
        "NormalizedAliases": ["christiania"],
        "Type": "WikipediaEntity",
        "Value": "Oslo",
    },
    "EntityPages": [{"DocSource": "TagMe", "Filename": "Oslo.txt", "Title": "Oslo"}],
    "Question": "Where is the tower?",
    "QuestionId": "tc_1",
    "QuestionSource": "http://www.triviacountry.com/",
    "SearchResults": [],
}
POPQA = {
    "id": 4222362,
    "subj": "George Rankin",
    "prop": "occupation",
    "obj": "politician",
    "subj_id": 1850297,
    "prop_id": 22,
    "obj_id": 2834605,
    "s_aliases": '["George James Rankin"]',
    "o_aliases": '["political leader"]',
    "s_uri": "http://www.wikidata.org/entity/Q5543720",
    "o_uri": "http://www.wikidata.org/entity/Q82955",
    "s_wiki_title": "George Rankin",
    "o_wiki_title": "Politician",
    "s_pop": 142,
    "o_pop": 25692,
    "question": "What is George Rankin's occupation?",
    "possible_answers": '["politician", "political leader"]',
}
DPR = {
    "dataset": "nq_train_psgs_w100",
    "question": "who made it",
    "answers": ["Ada"],
    "positive_ctxs": [{"title": "Ada", "text": "Ada made it.", "score": 1000, "title_score": 1, "passage_id": "3"}],
    "negative_ctxs": [],
    "hard_negative_ctxs": [{"title": "Bo", "text": "Bo did not.", "score": 9.1, "title_score": 0, "passage_id": "4"}],
}
FEVER = {
    "id": 75397,
    "verifiable": "VERIFIABLE",
    "label": "SUPPORTS",
    "claim": "Nikolaj Coster-Waldau worked with Fox.",
    "evidence": [[[92206, 104971, "Nikolaj_Coster-Waldau", 7], [92206, 104971, "Fox_-LRB-channel-RRB-", 0]]],
}
GSM8K = {"question": "How many clips?", "answer": "She sold 48/2 = <<48/2=24>>24 clips.\n48+1,200 in all.\n#### 1,248"}
MATH = {
    "problem": "What is half of a half?",
    "level": "Level 2",
    "type": "Prealgebra",
    "solution": "First \\boxed{1}. So it is $\\boxed{\\frac{1}{2^{2}}}$.",
}
ROWS = {
    "musique": (MUSIQUE, ("Oslo", "Christiania"), "3hop1", ["Oslo"]),
    "nq_open": ({"question": "who made it", "answer": ["Ada", "Ada L."]}, ("Ada", "Ada L."), None, []),
    "dpr": (DPR, ("Ada",), None, ["Ada"]),
    "triviaqa": (TRIVIA, ("Oslo", "Christiania"), None, []),
    "popqa": (POPQA, ("politician", "political leader"), "occupation", ["George Rankin"]),
    "fever": (FEVER, ("SUPPORTS",), "SUPPORTS", ["Fox (channel)", "Nikolaj Coster-Waldau"]),
    "gsm8k": (GSM8K, ("1248",), None, []),
    "math": (MATH, (r"\frac{1}{2^{2}}",), "Prealgebra", []),
}


def jsonl(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def authors_rows(name, n=12):
    """Bundled questions in the form of HotpotQA's authors; each sentence but the first begins with a blank."""
    rows = []
    for item in load_questions(name, limit=n):
        context = [
            [p.title, [s if i == 0 else f" {s}" for i, s in enumerate(p.text.split(" "))]] for p in item.passages
        ]
        facts = [[p.title, 0] for p in item.passages if p.passage_id in item.supporting]
        row = {"_id": item.question_id, "question": item.question, "answer": item.answers[0], "context": context}
        rows.append(row | {"supporting_facts": facts, "type": item.type, "level": item.level})
    return rows


def columns_of(row):
    """A row as the hub stores it."""
    titles, sentences = zip(*row["context"], strict=True)
    facts = {"title": [title for title, _ in row["supporting_facts"]], "sent_id": [0] * len(row["supporting_facts"])}
    rest = {name: value for name, value in row.items() if name not in ("_id", "context")}
    return rest | {
        "id": row["_id"],
        "supporting_facts": facts,
        "context": {"title": [*titles], "sentences": [*sentences]},
    }


def plain(n, kinds=("a", "b"), start=0):
    return [
        {"id": f"q{i}", "question": f"Where is tower {i}?", "answers": ["Oslo"], "type": kinds[i % len(kinds)]}
        for i in range(start, start + n)
    ]


# Forms


@pytest.mark.parametrize("form", ROWS)
def test_a_form_is_recognised_and_its_golds_types_and_titles_are_read(form, tmp_path):
    row, answers, kind, titles = ROWS[form]
    conversion = convert_questions(jsonl(tmp_path / "rows.jsonl", row), tmp_path / "q.jsonl")
    (question,) = load_questions(tmp_path / "q.jsonl")
    assert (conversion.form, conversion.unread) == (form, ())
    assert (question.answers, question.type) == (answers, kind)
    assert sorted(question.supporting_titles) == titles
    (direct,) = load_questions(tmp_path / "rows.jsonl")
    assert direct == question, "suffice record reads the form itself, too"
    card = json.loads(conversion.card.read_text())
    assert (card["licence"], card["home"]) == (QUESTION_FORMS[form].licence, QUESTION_FORMS[form].home)


def test_the_passages_of_tevatron_are_those_of_dpr_under_other_names(tmp_path):
    passages = [
        {"docid": item["passage_id"], "title": item["title"], "text": item["text"]} for item in DPR["positive_ctxs"]
    ]
    others = [{"docid": "4", "title": "Bo", "text": "Bo did not."}]
    row = {"query_id": "7", "query": DPR["question"], "answers": DPR["answers"], "positive_passages": passages}
    convert_questions(jsonl(tmp_path / "t.jsonl", row | {"negative_passages": others}), tmp_path / "q.jsonl")
    (question,) = load_questions(tmp_path / "q.jsonl")
    (same,) = load_questions(jsonl(tmp_path / "d.jsonl", DPR | {"id": "7"}))
    assert question == same
    assert question.question_id == "7"


def test_hotpotqa_is_the_same_from_the_hub_and_from_its_authors(tmp_path):
    rows = authors_rows("hotpotqa_tune")
    (tmp_path / "hotpot_dev_distractor_v1.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist([*map(columns_of, rows)]), tmp_path / "validation-00000-of-00001.parquet")
    listed = []
    for name in ("hotpot_dev_distractor_v1.json", "validation-00000-of-00001.parquet"):
        conversion = convert_questions(tmp_path / name, tmp_path / "q.jsonl")
        assert (conversion.form, conversion.title, conversion.notes) == ("hotpotqa", "HotpotQA", ())
        listed.append(load_questions(tmp_path / "q.jsonl"))
    bundled = load_questions("hotpotqa_tune", limit=12)
    assert listed[0] == listed[1]
    for read, question in zip(listed[0], bundled, strict=True):
        assert (read.question_id, read.answers, read.supporting) == (
            question.question_id,
            question.answers[:1],
            question.supporting,
        )
        assert [p.text for p in read.passages] == [" ".join(p.text.split(" ")).strip() for p in question.passages]


def test_2wiki_is_recognised_by_its_evidences_even_as_text(tmp_path):
    rows = [row | {"evidences": [["a", "mother", "b"]]} for row in authors_rows("2wiki_tune", 3)]
    texts = [{name: json.dumps(v) if isinstance(v, list) else v for name, v in row.items()} for row in rows]
    listed = []
    for name, written in (("plain.jsonl", rows), ("texts.jsonl", texts)):
        assert convert_questions(jsonl(tmp_path / name, *written), tmp_path / "q.jsonl").form == "2wiki"
        listed.append(load_questions(tmp_path / "q.jsonl"))
    assert listed[0] == listed[1]
    assert all(question.supporting for question in listed[0])


def test_what_was_retrieved_without_the_gold_page_keeps_its_title(tmp_path):
    row = authors_rows("hotpotqa_tune", 1)[0] | {"supporting_facts": [["A page that was not retrieved", 0]]}
    convert_questions(jsonl(tmp_path / "rows.jsonl", row), tmp_path / "q.jsonl")
    (question,) = load_questions(tmp_path / "q.jsonl")
    assert (question.supporting, question.supporting_titles) == (frozenset(), {"A page that was not retrieved"})


def test_the_authors_triviaqa_has_its_questions_in_one_object(tmp_path):
    data = {
        "Data": [TRIVIA_OWN, TRIVIA_OWN | {"QuestionId": "tc_2"}],
        "Domain": "Web",
        "VerifiedEval": False,
        "Version": 1,
    }
    (tmp_path / "unfiltered-web-dev.json").write_text(json.dumps(data))
    conversion = convert_questions(tmp_path / "unfiltered-web-dev.json", tmp_path / "q.jsonl")
    first, second = load_questions(tmp_path / "q.jsonl")
    assert (conversion.form, first.answers, first.question_id) == ("triviaqa", ("Oslo", "Christiania"), "tc_1")
    assert second.question_id == "tc_2"
    assert any("without passages: record with --corpus" in note for note in conversion.notes)


def test_the_hubs_fever_has_a_row_for_each_piece_of_evidence(tmp_path):
    row = {"id": 1, "label": "REFUTES", "claim": "It is so.", "evidence_annotation_id": 5, "evidence_id": 6}
    pages = [
        {"evidence_wiki_url": "Oslo", "evidence_sentence_id": 0},
        {"evidence_wiki_url": "Lima", "evidence_sentence_id": 2},
    ]
    other = row | {
        "id": 2,
        "label": "NOT ENOUGH INFO",
        "claim": "Is it?",
        "evidence_wiki_url": "",
        "evidence_sentence_id": -1,
    }
    pq.write_table(pa.Table.from_pylist([*(row | page for page in pages), other]), tmp_path / "labelled.parquet")
    conversion = convert_questions(tmp_path / "labelled.parquet", tmp_path / "q.jsonl")
    first, second = load_questions(tmp_path / "q.jsonl")
    assert (conversion.n_rows, conversion.unread) == (2, ())
    assert (first.supporting_titles, second.supporting_titles) == ({"Oslo", "Lima"}, frozenset())
    assert second.answers == ("NOT ENOUGH INFO",)


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"\boxed{1}, then \boxed{\{x : \sqrt{x} > 2\}}", r"\{x : \sqrt{x} > 2\}"),
        (r"thus $\boxed 5$.", "5"),
        (r"\fbox{\text{yes}}", r"\text{yes}"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed{\frac{1}{2}", None),
        ("no box", None),
    ],
)
def test_the_last_box_of_a_solution_is_its_answer_with_nested_braces(solution, answer, tmp_path):
    jsonl(tmp_path / "rows.jsonl", MATH, MATH | {"problem": "Another?", "solution": solution})
    conversion = convert_questions(tmp_path / "rows.jsonl", tmp_path / "q.jsonl")
    questions = load_questions(tmp_path / "q.jsonl")
    if answer is None:
        assert len(questions) == 1
        assert conversion.unread[0].first.endswith("line 2")
    else:
        assert questions[1].answers == (answer,)


def test_math_is_also_a_folder_with_one_file_for_each_problem(tmp_path):
    for number, split in enumerate(("train", "train", "test")):
        folder = tmp_path / "MATH" / split / "algebra"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.json").write_text(json.dumps(MATH | {"problem": f"Problem {number}?"}))
    with pytest.raises(UnsettledError, match="--split test"):
        convert_questions(tmp_path / "MATH", tmp_path / "q.jsonl")
    assert convert_questions(tmp_path / "MATH", tmp_path / "q.jsonl", split="train").n_questions == 2


def test_a_table_of_popqa_is_read_as_its_authors_wrote_it(tmp_path):
    cells = ["\t".join(POPQA), "\t".join(f'"{str(v).replace(chr(34), chr(34) * 2)}"' for v in POPQA.values())]
    (tmp_path / "popQA.tsv").write_text("\n".join(cells) + "\n")
    assert convert_questions(tmp_path / "popQA.tsv", tmp_path / "q.jsonl").form == "popqa"
    (question,) = load_questions(tmp_path / "q.jsonl")
    assert (question.question_id, question.answers) == ("4222362", ("politician", "political leader"))


@pytest.mark.parametrize(
    ("cell", "answers"),
    [
        ('["Ada", "Bo"]', ("Ada", "Bo")),
        ("['Ada', \"Bo's\"]", ("Ada", "Bo's")),
        ("['Ada'\n 'Bo']", ("Ada", "Bo")),
        ("['Ada' 'Bo', 'Cy']", None),
        ("['Ada' ... 'Bo']", None),
    ],
)
def test_a_list_in_a_table_is_parsed_and_never_joined(cell, answers, tmp_path):
    rows = ("question", "answer"), ("who made it", cell), ("who made that", "['Ada']")
    lines = [",".join(f'"{field.replace(chr(34), chr(34) * 2)}"' for field in row) for row in rows]
    (tmp_path / "nq.csv").write_text("\n".join(lines) + "\n")
    conversion = convert_questions(tmp_path / "nq.csv", tmp_path / "q.jsonl", form="nq_open")
    first, *_ = load_questions(tmp_path / "q.jsonl")
    if answers is None:
        assert first.question == "who made that"
        assert "begins like a list, but cannot be read as one" in conversion.unread[0].reason
    else:
        assert first.answers == answers


def test_the_subset_of_500_problems_gives_its_answers_and_levels_as_numbers(tmp_path):
    row = {
        "problem": "Half?",
        "solution": "So $\\boxed{1}$.",
        "answer": "\\frac{1}{2}",
        "subject": "Algebra",
        "level": 3,
    }
    convert_questions(jsonl(tmp_path / "t.jsonl", row | {"unique_id": "test/algebra/1.json"}), tmp_path / "q.jsonl")
    (question,) = load_questions(tmp_path / "q.jsonl")
    assert (question.question_id, question.answers) == ("test/algebra/1.json", ("\\frac{1}{2}",))
    assert (question.type, question.level) == ("Algebra", "Level 3")


def test_an_unknown_or_ambiguous_form_is_an_error_with_the_choice(tmp_path):
    with pytest.raises(SchemaError, match="body, name") as refused:
        convert_questions(jsonl(tmp_path / "rows.jsonl", {"name": "t", "body": "x"}), tmp_path / "q.jsonl")
    assert "--as" in str(refused.value)
    assert len(str(refused.value)) <= 600
    mixed = jsonl(tmp_path / "mixed.jsonl", MUSIQUE, {"question": "who made it", "answer": ["Ada"]})
    with pytest.raises(UnsettledError, match="--as nq_open"):
        convert_questions(mixed, tmp_path / "q.jsonl")
    both = jsonl(tmp_path / "both.jsonl", MUSIQUE | {"answer": GSM8K["answer"]})
    with pytest.raises(UnsettledError, match="--as gsm8k"):
        convert_questions(both, tmp_path / "q.jsonl")
    with pytest.raises(DataError, match="musique or gsm8k"):
        load_questions(both)
    assert convert_questions(both, tmp_path / "q.jsonl", form="gsm8k").form == "gsm8k"
    with pytest.raises(DataError, match="'squad'"):
        convert_questions(both, tmp_path / "q.jsonl", form="squad")


# What is left out


def test_every_row_that_is_not_a_question_is_counted_and_shown(tmp_path):
    rows = [
        *(MUSIQUE | {"id": f"2hop__{i}", "question": f"Which city {i}?"} for i in range(4)),
        MUSIQUE | {"id": "2hop__0", "answerable": False},
        MUSIQUE | {"id": "2hop__8", "question": None},
        MUSIQUE | {"id": "2hop__9", "answer": 7},
        MUSIQUE | {"id": "2hop__10", "answer": ["a"]},
        MUSIQUE | {"id": "2hop__1", "question": "Another with the same id?"},
    ]
    jsonl(tmp_path / "musique_full_v1.0_dev.jsonl", *rows)
    result = cli("convert", tmp_path / "musique_full_v1.0_dev.jsonl", "-o", tmp_path / "q.jsonl", "--json", code=0)
    unread = {item["reason"]: item["n"] for item in result.json["unread"]}
    assert unread == {
        "answer is 7; expected a string": 2,
        "the paragraphs do not answer it (answerable is false)": 1,
        "question is None; expected a non-empty string": 1,
        "the id was already used by an earlier row": 1,
    }
    assert (result.json["n_rows"], result.json["n_questions"]) == (9, 4)
    assert sum(unread.values()) + 4 == 9
    assert json.loads((tmp_path / "q.card.json").read_text())["unread"] == result.json["unread"]
    screen = cli("convert", tmp_path / "musique_full_v1.0_dev.jsonl", "-o", tmp_path / "q.jsonl")
    assert "of which 5 were left out" in screen.words
    assert "note: 2 left out: answer is 7; expected a string (the first:" in screen.words
    assert f"next: suffice record {tmp_path / 'q.jsonl'}" in screen.words


def test_a_file_without_one_question_is_an_error_with_the_first_reason(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", GSM8K | {"question": ""}, GSM8K | {"question": " "})
    with pytest.raises(DataError, match="question is ''"):
        convert_questions(path, tmp_path / "q.jsonl")
    assert not (tmp_path / "q.jsonl").exists()


def test_questions_without_golds_and_unused_fields_are_noted(tmp_path):
    rows = [{"question": "Where?", "anser": "Oslo"}, {"question": "Why?", "answers": ["So"]}]
    notes = convert_questions(jsonl(tmp_path / "rows.jsonl", *rows), tmp_path / "q.jsonl").notes
    assert notes[0] == "unused fields, with the number of rows that have them: anser (1)"
    assert notes[1] == "1 question without a gold answer: EM and F1 will be unknown"


# Samples and splits


def test_splits_share_no_text_keep_type_shares_and_ignore_row_order(tmp_path):
    rows = plain(60, ("a", "a", "b"))
    again = [row | {"id": f"again {row['id']}", "question": row["question"].upper()} for row in rows[:20]]
    sizes = {"tune": 9, "eval": 30}
    sets = []
    for order in (rows + again, [*reversed(rows + again)]):
        conversion = convert_questions(jsonl(tmp_path / "rows.jsonl", *order), tmp_path / "q.jsonl", splits=sizes)
        questions = load_questions(tmp_path / "q.jsonl")
        texts = {split: {normalize_answer(q.question) for q in questions if q.split == split} for split in sizes}
        assert {split: len(part) for split, part in texts.items()} == sizes
        assert not texts["tune"] & texts["eval"]
        by_type = Counter((q.split, q.type) for q in questions if not q.question_id.startswith("again"))
        assert (by_type["tune", "a"], by_type["eval", "a"]) == (6, 20)
        assert any("more than the 39 asked for: texts that repeat" in note for note in conversion.notes)
        sets.append({q.question_id: q.split for q in questions})
    assert sets[0] == sets[1]
    tune = load_questions(tmp_path / "q.jsonl", split="tune")
    smaller = convert_questions(tmp_path / "rows.jsonl", tmp_path / "small.jsonl", splits={"tune": 9, "eval": 3})
    assert {*load_questions(tmp_path / "small.jsonl", split="tune")} == {*tune}, "another eval leaves tune as it is"
    assert json.loads(smaller.card.read_text())["drawn"] == {"sample": 12, "splits": {"tune": 9, "eval": 3}, "seed": 0}
    convert_questions(tmp_path / "rows.jsonl", tmp_path / "other.jsonl", splits=sizes, seed=1)
    assert {q.question_id for q in load_questions(tmp_path / "other.jsonl", split="tune")} != {
        q.question_id for q in tune
    }


def test_a_draw_by_rows_is_that_of_plain_python(tmp_path):
    path, out = jsonl(tmp_path / "rows.jsonl", *plain(7405)), tmp_path / "q.jsonl"
    ids = [row["id"] for row in plain(7405)]
    random.seed(42)
    indices = list(range(7405))
    random.shuffle(indices)
    cli("convert", path, "-o", out, "--draw", "shuffled", "--splits", "tune=100,eval=300", "--seed", 42, code=0)
    for split, drawn in (("tune", indices[:100]), ("eval", indices[100:400])):
        assert [q.question_id for q in load_questions(out, split=split)] == [ids[i] for i in drawn]
    conversion = convert_questions(path, out, sample=300, seed=42, draw="sampled")
    assert [q.question_id for q in load_questions(out)] == random.Random(42).sample(ids, 300)
    assert json.loads(conversion.card.read_text())["drawn"]["draw"] == "sampled"


def test_a_draw_by_rows_says_where_it_may_differ(tmp_path):
    twice = [row | {"question": "Who is it?"} for row in plain(2)]
    path = jsonl(tmp_path / "rows.jsonl", *twice, {"id": "none"}, *plain(2, start=9))
    conversion = convert_questions(path, tmp_path / "q.jsonl", splits={"a": 2, "b": 2}, seed=1, draw="shuffled")
    assert any("1 row was left out before the draw" in note for note in conversion.notes)
    assert any("1 text is in several splits" in note for note in conversion.notes)


def test_the_first_lines_of_a_sample_are_a_smaller_sample(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", *plain(50))
    listed = []
    for n in (10, 40):
        convert_questions(path, tmp_path / "q.jsonl", sample=n)
        listed.append([q.question_id for q in load_questions(tmp_path / "q.jsonl")])
    assert listed[1][:10] == listed[0]
    assert len({*listed[1]}) == 40


def test_without_a_draw_rows_keep_their_order_and_split(tmp_path):
    rows = [row | {"split": "dev"} for row in plain(5)]
    conversion = convert_questions(jsonl(tmp_path / "rows.jsonl", *rows), tmp_path / "q.jsonl")
    assert [q.question_id for q in load_questions(tmp_path / "q.jsonl")] == [row["id"] for row in rows]
    assert conversion.splits == {"dev": {"a": 3, "b": 2}}
    assert (
        convert_questions(
            jsonl(tmp_path / "r.jsonl", *rows, *plain(3, start=9)), tmp_path / "d.jsonl", split="dev"
        ).n_rows
        == 5
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--splits", "tune=8,eval=8"], "16 questions were asked for, and there are 10 with different texts"),
        (["--sample", "3", "--splits", "tune=2"], "the splits have 2 questions in all, and the sample 3"),
        (["--splits", "tune"], "it is given as NAME=N,NAME=N"),
        (["--splits", "tune=2,tune=3"], "each name once"),
        (["--splits", "tune=0"], "need a size of at least 1"),
        (["--revision", "abc"], "a revision belongs to the id of a set on the hub"),
        (["--draw", "shuffled"], "draw is 'shuffled', and nothing is drawn"),
        (["--draw", "shuffled", "--sample", "11"], "11 questions were asked for, and there are 10; ask for fewer"),
        (["-o", "q.csv"], "end the name in .jsonl"),
    ],
)
def test_a_draw_that_cannot_be_made_is_refused(options, message, tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", *plain(10))
    out = [] if "-o" in options else ["-o", tmp_path / "q.jsonl"]
    assert message in " ".join(cli("convert", path, *out, *options).error.split())


def test_packed_output_is_deterministic_and_hashes_as_a_recording_does(tmp_path):
    rows = jsonl(tmp_path / "rows.jsonl", *authors_rows("2wiki_tune", 6))
    digests = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        conversion = convert_questions(rows, tmp_path / name / "q.jsonl.gz", sample=4)
        digests.add((tmp_path / name / "q.jsonl.gz").read_bytes())
        assert conversion.data_hash == dataset_hash(load_questions(tmp_path / name / "q.jsonl.gz"))
        assert conversion.card == tmp_path / name / "q.card.json"
    assert len(digests) == 1
    assert len(gzip.decompress(digests.pop()).splitlines()) == 4


def test_without_passages_the_titles_of_the_evidence_stay(tmp_path):
    rows = jsonl(tmp_path / "rows.jsonl", *authors_rows("hotpotqa_tune", 3))
    conversion = convert_questions(rows, tmp_path / "q.jsonl", passages=False)
    bare, full = load_questions(tmp_path / "q.jsonl"), load_questions(rows)
    assert [q.passages for q in bare] == [()] * 3
    assert [q.supporting_titles for q in bare] == [q.supporting_titles for q in full]
    assert all(chain(q.supporting_titles for q in bare))
    assert conversion.notes == ()


# Corpora


@pytest.mark.parametrize(
    ("rows", "passages"),
    [
        ([{"_id": "doc1", "title": "Oslo", "text": "A city.", "metadata": {}}], [("doc1", "Oslo", "A city.")]),
        ([{"id": "1", "text": "A city.", "title": "Oslo", "embeddings": [0.5]}], [("1", "Oslo", "A city.")]),
        ([{"id": "1", "contents": '"Oslo"\nA city.'}], [("1", "Oslo", "A city.")]),
        ([{"title": "Oslo", "text": "A city."}, {"title": "Lima", "text": " "}], [("1", "Oslo", "A city.")]),
    ],
)
def test_the_passages_of_a_corpus_are_recognised_and_searched(rows, passages, tmp_path):
    source = jsonl(tmp_path / "passages.jsonl", *rows)
    result = cli("convert", source, "-o", tmp_path / "corpus.jsonl", "--json")
    assert (result.json["n_rows"], result.json["n_passages"]) == (len(rows), len(passages))
    read = [(p.passage_id, p.title, p.text) for p in read_corpus(tmp_path / "corpus.jsonl")]
    assert read == passages
    assert [p.title for p in open_corpus(tmp_path / "corpus.jsonl").rank("city", k=1)] == ["Oslo"]
    screen = cli("convert", source, "-o", tmp_path / "corpus.jsonl").words
    assert "next: suffice record QUESTIONS.jsonl --corpus" in screen
    assert ("1 row without text left out" in screen) == (len(rows) > 1)


def test_dpr_passages_are_a_table_and_a_corpus_cannot_be_sampled(tmp_path):
    (tmp_path / "psgs_w100.tsv").write_text("id\ttext\ttitle\n1\tA city.\tOslo\n")
    source = open_source(tmp_path / "psgs_w100.tsv")
    assert convert_corpus(source, tmp_path / "c.jsonl").n_passages == 1
    assert "no questions" in cli("convert", source.name, "-o", tmp_path / "c.jsonl", "--sample", 1).error
    with pytest.raises(DataError, match="no questions"):
        convert_questions(source, tmp_path / "q.jsonl")
    with pytest.raises(DataError, match=r"\.jsonl"):
        convert_corpus(source, tmp_path / "c.jsonl.gz")
    empty = jsonl(tmp_path / "empty.jsonl", {"id": 1, "text": ""})
    with pytest.raises(DataError, match="passage"):
        convert_corpus(open_source(empty), tmp_path / "c.jsonl")
    wrong = jsonl(tmp_path / "wrong.jsonl", {"id": 1, "text": ["a"]})
    with pytest.raises(DataError, match="line 1|item 1"):
        convert_corpus(open_source(wrong), tmp_path / "c.jsonl")


# Sources


def test_a_folder_of_the_hub_asks_for_split_and_configuration(tmp_path):
    rows = [*map(columns_of, authors_rows("hotpotqa_tune", 4))]
    for config, split, part in (
        ("distractor", "validation", rows[:2]),
        ("fullwiki", "validation", rows[:3]),
        ("distractor", "train", rows[3:]),
    ):
        folder = tmp_path / "hotpot_qa" / config
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(part), folder / f"{split}-00000-of-00001.parquet")
    source, out = tmp_path / "hotpot_qa", tmp_path / "q.jsonl"
    (source / "README.md").write_text("# HotpotQA")
    with pytest.raises(UnsettledError, match="several splits"):
        convert_questions(source, out)
    with pytest.raises(UnsettledError, match="--config fullwiki"):
        convert_questions(source, out, split="validation")
    assert convert_questions(source, out, split="validation", config="fullwiki").n_questions == 3
    everything = convert_questions(source, out, split="validation", config="all")
    assert (everything.n_questions, everything.unread[0].n) == (3, 2)
    with pytest.raises(DataError, match="'test'"):
        convert_questions(source, out, split="test")
    with pytest.raises(DataError, match="'distractr'"):
        convert_questions(source, out, split="validation", config="distractr")


def test_a_folder_that_lacks_a_shard_is_incomplete(tmp_path):
    (tmp_path / "hub").mkdir()
    rows = pa.Table.from_pylist([*map(columns_of, authors_rows("hotpotqa_tune", 2))])
    shard = tmp_path / "hub" / "validation-00001-of-00002.parquet"
    pq.write_table(rows.slice(0, 1), shard)
    with pytest.raises(DataError, match="'validation'"):
        convert_questions(shard.parent, tmp_path / "q.jsonl")
    assert convert_questions(shard, tmp_path / "q.jsonl").n_questions == 1
    pq.write_table(rows.slice(1, 1), shard.with_name("validation-00000-of-00002.parquet"))
    assert convert_questions(shard.parent, tmp_path / "q.jsonl").n_questions == 2


def test_a_folder_of_two_sets_is_not_read_as_one(tmp_path):
    (tmp_path / "sets").mkdir()
    rows = [*map(columns_of, authors_rows("hotpotqa_tune", 4))]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "sets" / "hotpot.parquet")
    (tmp_path / "sets" / "math.jsonl").write_text(json.dumps({"question": "1 + 2?", "answer": "It is 3.\n#### 3"}))
    with pytest.raises(DataError, match="GSM8K"):
        convert_questions(tmp_path / "sets", tmp_path / "q.jsonl")
    assert not (tmp_path / "q.jsonl").exists()


def test_nan_is_neither_an_answer_nor_an_id(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1, "question": "a?", "answer": NaN}\n{"id": NaN, "question": "b?", "answer": 2.0}\n')
    with pytest.raises(DataError, match="2 rows"):
        convert_questions(path, tmp_path / "q.jsonl")
    with pytest.raises(DataError, match="answer is nan"):
        load_questions(path)


def test_a_source_is_not_replaced_by_a_sample_of_it(tmp_path):
    path = jsonl(tmp_path / "q.jsonl", *({"id": f"q{i}", "question": f"Who is {i}?", "answer": "a"} for i in range(4)))
    for source in (path, tmp_path):
        with pytest.raises(DataError, match="be lost"):
            convert_questions(source, path, sample=2)
    assert len(path.read_text().splitlines()) == 4


def test_a_missing_file_is_not_looked_for_on_the_hub(tmp_path):
    for name in ("data/q.jsonl", "q.json", "a/b/c"):
        with pytest.raises(NotFoundError, match="file or folder"):
            open_source(name)


@pytest.mark.whole
def test_a_set_of_the_hub_is_read_by_the_datasets_library(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    from suffice_retrieval.question_sets import sources

    folder = tmp_path / "hotpotqa" / "hotpot_qa"
    folder.mkdir(parents=True)
    rows = authors_rows("hotpotqa_tune", 4)
    pq.write_table(pa.Table.from_pylist([*map(columns_of, rows)]), folder / "validation-00000-of-00001.parquet")
    pq.write_table(pa.Table.from_pylist([columns_of(rows[0])]), folder / "train-00000-of-00001.parquet")
    monkeypatch.chdir(tmp_path)
    # The library takes a folder's name where a repository would have it.
    with pytest.raises(UnsettledError, match="--split train"):
        sources._hub("hotpotqa/hotpot_qa", None, None, None)
    source = sources._hub("hotpotqa/hotpot_qa", "validation", None, None)
    (listed,) = [[row["id"] for _, row in source.rows("hotpotqa")]]
    assert listed == [row["_id"] for row in rows]
    assert source.to_dict()["config"] == "default"
    with pytest.raises(DataError, match="ValueError"):
        sources._hub("hotpotqa/hotpot_qa", "validation", "fullwiki", None)
    (folder / "hotpot_qa.py").write_text("import datasets\n")
    with pytest.raises(DataError, match="--revision"):
        sources._hub("hotpotqa/hotpot_qa", "validation", None, None)
