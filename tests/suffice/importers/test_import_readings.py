"""`suffice import` where a reading would be wrong without a word: gold answers called `answer`, numbers, code, brackets."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from suffice import Policy, import_recording, read_recording, replay
from suffice.errors import DataError, UnsettledError
from suffice.evaluation.replay import outcome, policy_for
from suffice.importers import read_tabular
from suffice.importers.tables import table_parts
from suffice.importers.words.names import REPLIES
from suffice.policy.comparisons import guess_normalizer
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import paired, written

MODEL_TEXTS = (
    *REPLIES,
    *("prediction", "predicted", "pred", "predicted_answer", "final_answer", "parsed_answer", "extracted_answer"),
    *("model_answer", "llm_answer", "llm_output", "llm_response", "model_prediction", "assistant_response"),
    *("generated_answer", "raw_output", "Model Output", "llmAnswer"),
)
TYPED = ("response", "pred", "Model Output", "llmAnswer")
"""Names of several kinds, for which the printed commands are typed; one has to be quoted."""


def gold_as_answer(theirs, n=30, rounds=4, **columns):
    """Return a log that keeps the gold answer in `answer`, and what the model said, right from round 3 on, in another column."""
    return [
        {"id": q, "question": f"Where is tower {q}?", "answer": CITIES[q % 4], "round": r}
        | {theirs: CITIES[(q + (r < 3)) % 4]}
        | {name: value(q, r) for name, value in columns.items()}
        for q in range(n)
        for r in range(1, rounds + 1)
    ]


def nested(answers, golds=None):
    records = [{"id": f"q{q}", "steps": [{"answer": answer} for answer in row]} for q, row in enumerate(answers)]
    return records if golds is None else [{**item, "gold": gold} for item, gold in zip(records, golds, strict=True)]


@pytest.mark.parametrize("theirs", dict.fromkeys(MODEL_TEXTS))
def test_answer_or_gold_is_asked_with_commands_that_work(theirs, tmp_path):
    source = written(tmp_path, gold_as_answer(theirs, n=8))
    out = tmp_path / "r.parquet"
    done = cli("import", source, "-o", out, "--yes", code=2)
    assert not out.exists()
    assert f"answer='Oslo' and {theirs}='Lima'" in done.error
    other, same = done.commands
    assert f"answer={theirs}" in other
    assert "golds=answer" in other
    if theirs not in TYPED:
        return
    assert cli(*other).code == 0
    recording = read_recording(out)
    np.testing.assert_array_equal(recording.column("em"), [[0, 0, 1, 1]] * 8)
    assert cli(*same).code == 0
    assert "golds" not in read_recording(out).metadata["read_from"]


def test_an_answer_equal_to_gold_is_never_advised_to_stop_early(tmp_path):
    draw = random.Random(5)
    rows = [
        {
            "id": q,
            "answer": CITIES[q % 4],
            "round": r,
            "response": CITIES[q % 4] if draw.random() < 0.1 + 0.2 * r else "Bern",
        }
        for q in range(100)
        for r in (1, 2, 3, 4)
    ]
    source = written(tmp_path, rows)
    read, _ = cli("import", source, "-o", tmp_path / "r.parquet", "--yes").commands
    assert cli(*read).code == 0
    decided = cli("decide", tmp_path / "r.parquet", "-o", tmp_path / "d.json", "--json").json
    (once,) = [row for row in decided["candidates"] if row["policy"] == "fixed_k(1)"]
    assert not once["proved"]
    assert once["loss"] > 0.2


def test_an_equal_answer_beside_any_other_text_that_varies_is_asked_about(tmp_path):
    rows = gold_as_answer("utterance")
    error = cli("import", written(tmp_path / "a.jsonl", rows), "-o", tmp_path / "r.parquet", "-y", code=2)
    assert "--column answer=utterance --column golds=answer" in error.error
    repeated = [{"final_answer": row.pop("answer"), **row} for row in gold_as_answer("output")]
    with pytest.raises(UnsettledError, match="--column answer=final_answer"):
        read_tabular(written(tmp_path / "b.jsonl", repeated))
    inner = [
        {"steps": [{"answer": CITIES[q % 4], "response": CITIES[(q + r) % 4]} for r in range(3)]} for q in range(6)
    ]
    with pytest.raises(UnsettledError, match="--column golds=answer"):
        read_tabular(written(tmp_path / "c.jsonl", inner))  # without ids, each record is a question


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": q, "round": r, "answer": f"a{r}", "response": f"So it is a{r}."} for q in range(9) for r in (1, 2)],
        [{"id": q, "round": r, "answer": f"a{q}", "model": f"m{q % 2}"} for q in range(9) for r in (1, 2)],
        [{"id": q, "round": r, "answer": f"a{q}", "stage": f"stage {r}"} for q in range(9) for r in (1, 2)],
        [{"id": q, "round": r, "answer": f"a{q}", "context": f"c{r}{q}"} for q in range(9) for r in (1, 2)],
        [{"id": q, "round": r, "answer": f"a{q}", "output_tokens": r} for q in range(9) for r in (1, 2)],
        [{"id": q, "round": r, "answer": f"a{q}", "response": f"a{q}"} for q in range(9) for r in (1, 2)],
    ],
    ids=["parsed reply", "model", "stage", "context", "tokens", "the same text"],
)
def test_an_answer_that_cannot_be_the_gold_is_read_without_a_question(rows, tmp_path):
    run = read_tabular(written(tmp_path / "a.jsonl", rows))
    assert [item.answer for item in run.trajectories[0].rounds] == [row["answer"] for row in rows[:2]]


def test_an_equal_answer_is_questioned_even_where_texts_rarely_differ(tmp_path):
    rows = gold_as_answer("bot", n=40)
    for row in rows:
        if row["id"] % 5:
            row["bot"] = row["answer"]
    log = written(tmp_path, rows)
    result = cli("import", log, "--yes", "-o", tmp_path / "rec.parquet", code=2)
    assert "'bot'" in result.error


def test_a_few_answers_that_change_do_not_hide_gold_answers(tmp_path):
    rows = gold_as_answer("pred", n=210)  # one in a hundred may change: two do, then three
    for q in (7, 209):
        rows[4 * q + 2]["answer"] = "a slip"
    source, out = written(tmp_path, rows), tmp_path / "r.parquet"
    refused = cli("import", source, "-o", out, "--yes")
    assert "'answer' is the same in every row of a question, but for 2 of 210 questions" in refused.error
    read, _ = refused.commands
    done = cli(*read, code=0)
    assert "the gold answers of 2 questions differ between rows, so that they count as unknown" in done.words
    em = read_recording(out).column("em")
    assert np.isnan(em).all(axis=1).nonzero()[0].tolist() == [7, 209]
    np.testing.assert_array_equal(np.delete(em, [7, 209], axis=0), [[0, 0, 1, 1]] * 208)
    rows[4 * 20 + 2]["answer"] = "a slip"
    with pytest.raises(DataError, match="question '7'"):
        import_recording(written(source, rows), out=out, columns={"answer": "pred", "golds": "answer"})


def test_golds_equal_to_nearly_all_answers_are_questioned_unless_named(tmp_path):
    answers = [["Rome" if q == 3 else "Oslo", "Oslo", "Rome" if q == 7 else "Oslo"] for q in range(20)]
    source, out = written(tmp_path, nested(answers, ["Oslo"] * 20)), tmp_path / "r.parquet"
    done = cli("import", source, "-o", out, "--yes", code=2)
    assert "in 58 of 60 rounds" in done.error
    keep, drop = done.commands
    assert cli(*keep).code == 0
    assert np.isfinite(read_recording(out).column("em")).all()
    assert cli(*drop).code == 0
    assert "golds" not in read_recording(out).metadata["read_from"]
    assert cli("import", source, "-o", out, "--column", "golds=gold").code == 0


def test_colliding_ids_are_separated_by_the_text_the_error_names(tmp_path):
    rows = [
        {"id": q % 10, "round": r, "question": f"{q} + 1?", "gold": "x", "answer": f"a{q % 3}{r}"}
        for q in range(20)
        for r in (1, 2)
    ]
    done = cli("import", written(tmp_path, rows), "-o", tmp_path / "r.parquet", code=2)
    assert "'0 + 1?' there and '10 + 1?' here" in done.error
    (command,) = done.commands
    assert cli(*command).code == 0
    assert read_recording(tmp_path / "r.parquet").shape == (20, 2)


NUMBERS = [
    (["-5", "5", "5"], "5"),
    (["105", "10.5", "10.5"], 10.5),
    (["1", "2.0", 2], "2"),
    (["1,200", "12", ""], 1200),
]


def test_numbers_of_a_loop_are_compared_as_numbers_in_replay_and_live(tmp_path):
    source = written(tmp_path, nested(*zip(*NUMBERS, strict=True)))
    out = tmp_path / "r.parquet"
    summary = import_recording(source, out=out)
    recording = read_recording(out)
    assert recording.metadata["normalizer"] == "number"
    assert not recording.independent
    np.testing.assert_array_equal(recording.column("match"), [[0, 1, 1], [0, 1, 1], [0, 1, 1], [1, 0, 0]])
    assert [item.match for item in summary.by_round] == [0.25, 0.75, 0.75]
    (note,) = [note for note in summary.notes if "compared as" in note]
    assert "'number', which reads all gold answers; --set normalizer=qa compares them as in question answering" in note
    result = replay(recording, "answer_stable", baseline="full")
    assert result.metrics == ("match",)
    # By question answering, -5 and 5 are one answer, as are 10.5 and 105: all would stop at round 2.
    assert result.rows[0].stop_rounds == {3: 1.0}
    policy = policy_for(recording, "answer_stable")
    assert Policy.from_dict(policy.to_dict()).normalizer == "number"
    import_recording(source, out=out, normalizer="qa")
    assert read_recording(out).names("metric") == ["em", "f1", "contains"]
    assert policy_for(read_recording(out), "answer_stable").normalizer == "qa"


def test_numbers_without_gold_answers_agree_as_numbers(tmp_path):
    answers = [["-5", "5"], ["10.5", "105"], ["2", "2.0"], [None, "7"]]
    import_recording(written(tmp_path, nested(answers)), out=tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    np.testing.assert_array_equal(outcome(recording, "agreement"), [[0, 1], [0, 1], [1, 1], [0, 1]])
    assert "match" not in recording.table.column_names


@pytest.mark.parametrize(
    ("golds", "answers", "expected"),
    [
        (["'abc'", "[1, 2]", "{'a': 1}"], ["'ABC'", "[12]", "{'a': 1 }"], [0, 0, 1]),
        (
            ["def f(a, b):\n    return a - b"] * 2,
            ["def f(a, b):\n    return a + b", "def f(a, b):\n    return a - b"],
            [0, 1],
        ),
        (["(1, 2)", "7"], ["(1,2)", "-7"], [1, 0]),
    ],
    ids=["literals", "programs", "numbers among tuples"],
)
def test_code_is_compared_as_it_is_written(golds, answers, expected, tmp_path):
    source = written(tmp_path, nested([[answer, answer] for answer in answers], golds))
    for samples in (False, True):
        import_recording(source, out=tmp_path / "r.parquet", samples=samples, log_golds="keep")
        recording = read_recording(tmp_path / "r.parquet")
        assert recording.metadata["normalizer"] == "literal"
        assert recording.column("match")[:, 0].tolist() == expected


def test_the_normalizer_is_that_of_question_answering_where_nothing_else_reads_all():
    assert guess_normalizer(["True", "False"]) == "qa"
    assert guess_normalizer(["Oslo", "[2, 5]"]) == "qa"
    assert guess_normalizer([], answers=["It is 5.", "So 7 it is."]) == "qa"
    assert guess_normalizer([], answers=["-5", "$1,200", "12 %", "1/2", "2e3"]) == "number"
    assert guess_normalizer([], answers=["f(x)", "print"]) == "qa"
    assert guess_normalizer([], answers=["import os\nprint(1)", "def f(x):\n    return x"]) == "literal"


@pytest.mark.parametrize(
    ("value", "text", "theirs"),
    paired(
        [*((text, text) for text in ("[2, 5]", '{"a": 1}', "(1, 2)", "[0, 1)")), ([2, 5], "[2, 5]")],
        ["answer", "prediction", "output"],
    ),
)
def test_one_answer_in_brackets_is_a_text_and_costs_no_column(value, text, theirs, tmp_path):
    rows = [{"id": q, "round": r, "gold": f"Q {q}", theirs: f"Q {q - (r == 1)}"} for q in range(40) for r in (1, 2)]
    rows[0][theirs] = value
    for name in ("log.jsonl", *(["log.csv"] if value == text else [])):
        run = read_tabular(written(tmp_path / name, rows), log_golds="keep")
        first, second = run.trajectories[:2]
        assert [item.answer for item in first.rounds] == [text, "Q 0"]
        assert [metrics["em"] for metrics in second.metrics] == [0.0, 1.0]


def test_one_bracketed_answer_leaves_lists_of_golds_unchanged(tmp_path):
    rows = [
        {"id": q, "round": r, "golds": '["Oslo", "Kristiania"]', "answer": ("Rome", "Kristiania")[r]}
        for q in range(120)
        for r in (0, 1)
    ]
    rows[0]["answer"] = "[2, 5]"
    run = read_tabular(written(tmp_path / "log.csv", rows), first_round=1, log_golds="keep")
    assert {item.golds for item in run.trajectories} == {("Oslo", "Kristiania")}


def test_the_order_of_items_in_list_answers_counts_if_said(tmp_path):
    answers = [[["b", "a"], ["a", "b"]], [["a"], ["a", "b"]], [["c", "a"], ["a", "c"]]]
    source = written(tmp_path, nested(answers, [["a", "b"], ["a", "b"], ["a", "b"]]))
    out = tmp_path / "r.parquet"
    summary = import_recording(source, out=out)
    recording = read_recording(out)
    np.testing.assert_array_equal(recording.column("match"), [[1, 1], [0, 1], [0, 0]])
    assert any("the order of their items does not count" in note for note in summary.notes)
    assert recording.metadata["normalizer"] == "unordered"
    import_recording(source, out=out, normalizer="literal")
    np.testing.assert_array_equal(read_recording(out).column("match"), [[0, 1], [0, 1], [0, 0]])
    plain = import_recording(written(tmp_path / "b.jsonl", nested(answers, ["a b"] * 3)), out=out)
    assert "normalizer" not in read_recording(plain.path).metadata  # a gold answer that is no list


def test_an_ambiguous_comparison_is_asked_with_commands_that_work(tmp_path):
    rows = [{"id": q, "step": r, "answer": str(q + (r < 2)), "gold": f"00{q}"} for q in range(1, 9) for r in (1, 2)]
    source, out = written(tmp_path / "log.csv", rows), tmp_path / "r.parquet"
    done = cli("import", source, "-o", out, "--yes", code=2)
    assert not out.exists()
    ids, numbers = done.commands
    for words, match in ((numbers, [[0, 1]] * 8), (ids, [[0, 0]] * 8)):
        assert cli(*words).code == 0
        np.testing.assert_array_equal(read_recording(out).column("match"), match)
    asked = []
    import_recording(source, out=tmp_path / "s.parquet", settle=lambda error: asked.append(error.parameter) or "number")
    assert asked == ["normalizer"]
    assert read_recording(tmp_path / "s.parquet").metadata["normalizer_why"] == "as chosen for this log"
    assert not any("which reads" in note for note in import_recording(source, out=tmp_path / "s.parquet").notes)


def test_signs_and_points_among_words_change_the_comparison(tmp_path):
    golds = ["Oslo", "-5", "10.5", "the Nile"]
    answers = [["oslo.", "Oslo"], ["5", "-5.0"], ["105", "10.50"], ["Nile", "Nile"]]
    source, out = written(tmp_path, nested(answers, golds)), tmp_path / "r.parquet"
    summary = import_recording(source, out=out)
    recording = read_recording(out)
    assert recording.metadata["normalizer"] == "mixed"
    assert recording.metadata["normalizer_why"].startswith("since 2 of 12 pairs differ in a sign")
    np.testing.assert_array_equal(recording.column("match"), [[1, 1], [0, 1], [0, 1], [1, 1]])
    np.testing.assert_array_equal(recording.column("em"), [[1, 1], [1, 0], [1, 0], [1, 1]])
    assert policy_for(recording, "answer_stable").normalizer == "mixed"
    assert any("'mixed', since 2 of 12 pairs" in note for note in summary.notes)
    noted = import_recording(source, out=out, normalizer="qa").notes
    assert any("--set normalizer=mixed tells them apart" in note for note in noted)


def test_a_large_log_is_read_and_asked_about_as_a_small_one(tmp_path, monkeypatch):
    numeric = [
        {"id": q, "step": r, "answer": str(a), "gold": "-5"}
        for q, (r, a) in itertools.product(range(20), enumerate(["5", "-5.0", "[2, 5]"], start=1))
    ]
    sources = {
        "numeric.csv": numeric,
        "plain.csv": [{**row, "gold": f"town {row['step']}", "answer": f"Town {row['id']}."} for row in numeric],
        "gold.jsonl": gold_as_answer("pred", n=120),
    }
    sources["gold.jsonl"][-1]["answer"] = "a slip"
    for name, rows in sources.items():
        written(tmp_path / name, rows)

    def readings(folder):
        folder.mkdir()
        monkeypatch.setattr(table_parts, "PART", 25)
        for name in ("numeric.csv", "plain.csv"):
            golds = {"log_golds": "drop"} if name == "plain.csv" else {}
            summary = import_recording(tmp_path / name, out=folder / f"{name}.parquet", **golds)
            recording = read_recording(summary.path)
            yield recording.metadata.get("normalizer"), recording.table.to_pylist()
            yield [(item.round, item.n, item.match) for item in summary.by_round]
            yield sorted(summary.columns, key=lambda item: item.name)
        monkeypatch.setattr(table_parts, "PART", 200)
        with pytest.raises(UnsettledError) as raised:
            import_recording(tmp_path / "gold.jsonl", out=folder / "r.parquet")
        yield [*raised.value.choices]
        columns = {"answer": "pred", "golds": "answer"}
        summary = import_recording(tmp_path / "gold.jsonl", out=folder / "r.parquet", columns=columns)
        yield read_recording(summary.path).table.to_pylist(), [note for note in summary.notes if "differ" in note]

    whole = [*readings(tmp_path / "whole")]
    assert whole[0][0] == "number"
    assert [row["match"] for row in whole[0][1][:3]] == [0.0, 1.0, 0.0]
    monkeypatch.setattr(table_parts, "LARGE", 0)
    for expected, part in zip(whole, readings(tmp_path / "parts"), strict=True):
        assert repr(part) == repr(expected)
