"""Decide refuses to judge where the metric does not measure the answers, and says what to do instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pytest

from suffice.policy.seen import id_hash
from suffice.recordings import bundled_recording, write_recording
from suffice.recordings.bundled import BUNDLED_RECORDINGS, BUNDLED_SAMPLES
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice.verdicts.decisions import Advice, decide
from suffice.verdicts.decisions.answer_counts import AnswerCounts
from tests.suffice.policy.test_votes import sampled
from tests.suffice.verdicts.test_decide import log_of
from tests.support.cli_tools import cli

CITIES = ("Oslo", "Bergen", "Tromso", "Bodo", "Molde")


def city(q: int) -> str:
    return f"{CITIES[q % 5]} {q}"


def asked(n: int, answer: Callable[[int, int], str | None], *, first: int = 0, rounds: int = 4) -> Recording:
    """Return a log of n questions with gold answers, of which `answer` gives the text of question q at round r."""
    rows = [
        {
            "question_id": f"q{q}",
            "question": f"where is tower {q}?",
            "round": r,
            "answer": answer(q, r),
            "golds": [city(q)],
        }
        for q in range(first, first + n)
        for r in range(1, rounds + 1)
    ]
    return Recording(build_table(rows, {}))


def reply(q: int, r: int) -> str:
    """Return a whole reply: right in four of five questions in the last round, in three of five before."""
    right = q % 5 > 0 if r == 4 else q % 5 > 1
    return (
        f"I looked at document {r}, and I believe that the tower is in {city(q) if right else 'Paris'}, in the north."
    )


WHOLE_REPLIES = asked(200, reply)


def test_nothing_is_called_proved_where_nothing_can_be_judged():
    advice = decide(WHOLE_REPLIES, metric="em", max_loss=0.1)
    assert advice.trial.proved.any()  # every loss is 0 by a metric that sees none
    assert not {item.state for item in advice.figures} & {"proved", "advised"}
    assert not any(item["proved"] or item["needed"] for item in advice.to_dict()["candidates"])


@pytest.mark.parametrize("metric", ["em", "f1", "f1 > 0.9", None])
def test_whole_replies_that_contain_the_gold_answer_are_not_judged_by_words(metric):
    advice = decide(WHOLE_REPLIES, metric=metric, max_loss=0.1)
    assert advice.verdict == "cannot be judged"
    assert advice.policy is None
    assert "of the answers contain a gold answer, and 0 % equal one" in advice.sentence
    assert "--metric contains" in advice.sentence


def test_whole_replies_are_judged_by_what_they_contain():
    assert decide(asked(600, reply), metric="contains", max_loss=0.1).verdict == "keep what you have"


def test_short_answers_are_judged_also_where_few_of_them_are_right():
    for share in (2, 10):
        log = asked(600, lambda q, r, share=share: city(q) if q % share == 0 else f"no {q}")
        assert decide(log, metric="em").verdict == "do it"


def test_replies_are_seen_also_where_few_are_right_and_some_are_short():
    def hard(q: int, r: int) -> str:
        right = q % 5 == 0 if r > 2 else q % 10 == 0
        return city(q) if right and q % 30 == 0 else f"In step {r} I found {city(q) if right else 'Paris'}, I believe."

    advice = decide(asked(600, hard), metric="em")
    assert advice.verdict == "cannot be judged"
    assert re.search(r"[12]\d % of the answers contain a gold answer, and [2-5] % equal one", advice.sentence)


def test_numbers_that_contain_the_gold_answer_as_digits_are_no_replies():
    log = asked(600, lambda q, r: city(q) if q % 30 == 0 else f"1{city(q)}0" if q % 5 == 0 else "7")
    assert decide(log, metric="em").verdict == "do it"


@pytest.mark.parametrize("golds", [True, False])
@pytest.mark.parametrize("metric", ["em", "f1"])
def test_a_whole_question_score_is_not_judged_whatever_its_name(metric, golds):
    rows = [
        {**row, "golds": row["golds"] if golds else [], metric: float(int(row["question_id"][1:]) % 3 > 0)}
        for row in asked(200, lambda q, r: city(q) if r > 2 else f"{r} {city(q)}").table.to_pylist()
    ]
    log = Recording(build_table(rows, {metric: "metric"}), {"read_from": {metric: "score"}} if golds else {})
    advice = decide(log, metric=metric)
    assert advice.verdict == "cannot be judged"
    assert f"{metric} is the same in all rounds of each question" in advice.sentence


def test_answers_with_a_few_words_around_them_are_judged():
    log = asked(600, lambda q, r: city(q) if q % 3 == 0 else f"in {city(q)}")
    assert decide(log, metric="f1").verdict == "do it"


def test_whole_replies_as_samples_are_not_judged_by_votes():
    rng = np.random.default_rng(0)
    rows = [
        {"question_id": f"q{q}", "round": r, "golds": ["7"], "end": "max_rounds", "match": 0.0}
        | {"answer": f"try {rng.integers(1e9)}: it is {7 if rng.random() < 0.8 else 8} apples"}
        for q in range(100)
        for r in range(1, 6)
    ]
    log = Recording(build_table(rows, {"match": "metric"}), {"exchangeable": True, "normalizer": "qa"})
    advice = decide(log, orders=3)
    assert advice.verdict == "cannot be judged"
    assert "these are whole replies" in advice.sentence


def test_votes_that_the_normalizer_cannot_read_are_no_evidence():
    texts = [["It has 2 rows and 3 columns"] * 4 if q % 14 else ["6"] * 4 for q in range(500)]
    log = Recording(sampled(texts, [[0.0] * 4] * 500).table, {"exchangeable": True, "normalizer": "number"})
    advice = decide(log, metric="right", orders=2)
    assert advice.verdict == "cannot be judged"
    assert "92 % of the answers cannot be read" in advice.sentence
    assert "--set normalizer" in advice.sentence


def test_gold_answers_that_are_missing_are_no_evidence():
    rows = [
        {**row, "golds": [] if int(row["question_id"][1:]) % 10 == 0 else row["golds"]}
        for row in asked(200, lambda q, r: city(q)).table.to_pylist()
    ]
    advice = decide(Recording(build_table(rows, {})), metric="em")
    assert advice.verdict == "cannot be judged"
    assert re.search(r"1\d % of the questions have no gold answer that can be read", advice.sentence)


def test_gold_answers_that_the_normalizer_cannot_read_are_no_evidence():
    rows = [
        {"question_id": f"q{q}", "round": r, "golds": ["twelve" if q % 3 == 0 else "12"], "answer": "12"}
        | {"match": float(q % 3 > 0)}
        for q in range(300)
        for r in range(1, 5)
    ]
    log = Recording(build_table(rows, {"match": "metric"}), {"exchangeable": True, "normalizer": "number"})
    advice = decide(log, orders=2)
    assert advice.verdict == "cannot be judged"
    assert "of the questions have no gold answer that can be read" in advice.sentence


@pytest.mark.parametrize("metric", ["em", "agreement"])
def test_last_rounds_without_an_answer_are_no_evidence(metric):
    def answer(q: int, r: int) -> str | None:
        return None if r == 4 and q % 10 == 0 else city(q)

    advice = decide(asked(200, answer), metric=metric)
    assert advice.verdict == "cannot be judged"
    assert "the last round has no answer in 1" in advice.sentence
    assert "--column answer=" in advice.sentence
    few = decide(asked(600, lambda q, r: None if r == 4 and q % 50 == 0 else city(q)), metric=metric)
    assert few.verdict == "do it"


def test_rounds_in_the_middle_may_have_no_answer():
    assert decide(asked(600, lambda q, r: city(q) if r > 1 else None), metric="em").verdict == "do it"


def drafted(value: Callable[[int, int], float], text: Callable[[int, int], str]) -> Recording:
    rows = log_of(400, value).table.to_pylist()
    rows = [{**row, "answer": text(int(row["question_id"][1:]), row["round"])} for row in rows]
    return Recording(build_table(rows, {"quality": "metric"}))


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_a_metric_that_never_varies_cannot_judge_answers_that_differ(value):
    advice = decide(drafted(lambda q, r: value, lambda q, r: f"draft {r} of {q}"), metric="quality")
    assert advice.verdict == "cannot be judged"
    assert f"quality is {value:g} in every answer" in advice.sentence
    assert "although the answers differ between rounds" in advice.sentence


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_equal_answers_lose_nothing_whatever_the_metric(value):
    advice = decide(drafted(lambda q, r: value, lambda q, r: f"the answer to {q}"), metric="quality")
    assert advice.verdict == "do it"
    assert any("they are equal in all rounds" in note for note in advice.notes)


def test_a_question_score_repeated_by_round_cannot_judge_different_answers():
    advice = decide(drafted(lambda q, r: float(q % 3 > 0), lambda q, r: f"draft {r} of {q}"), metric="quality")
    assert advice.verdict == "cannot be judged"
    assert "quality is the same in all rounds of each question" in advice.sentence
    log = drafted(lambda q, r: float(q % 3 > 0), lambda q, r: f"draft {r > 1 and q % 40 == 0} of {q}")
    assert decide(log, metric="quality").verdict == "do it"  # a few answers change and nothing is lost


def test_a_metric_that_never_varies_without_answers_on_record_cannot_judge():
    rows = [{**row, "answer": None} for row in log_of(400, lambda q, r: 1.0).table.to_pylist()]
    advice = decide(Recording(build_table(rows, {"quality": "metric"})), metric="quality")
    assert advice.verdict == "cannot be judged"
    assert "there are no answers on record" in advice.sentence


def test_failed_questions_are_not_counted_as_unread():
    def end(q: int, r: int) -> str:
        return "failed" if q % 10 == 0 else "max_rounds"

    log = log_of(600, lambda q, r: float(r >= 2), end=end)
    answers = decide(log, metric="quality", leave_out_failed=False).trial.answers
    assert answers is not None
    assert answers.questions == sum(int(name[1:]) % 10 > 0 for name in verdict_names(log))


def verdict_names(log: Recording) -> list[str]:
    counted = decide(log, metric="quality").trial.counted.ids
    return [name for name in log.question_ids if id_hash(name) in counted]


def test_an_unjudgeable_loop_stays_so_in_files_and_with_more_questions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = decide(asked(100, reply), metric="em", max_loss=0.1)
    again = Advice.from_dict(json.loads(json.dumps(first.to_dict())))
    assert again.to_dict() == first.to_dict()
    assert again.verdict == "cannot be judged"
    later = decide(asked(100, reply, first=100), previous=again)
    assert later.verdict == "cannot be judged"
    assert later.trial.answers == first.trial.answers + AnswerCounts.of(asked(100, reply, first=100), "em")
    later.save("decision.json")
    assert cli("deploy", "decision.json").code != 0
    log = asked(100, reply)
    write_recording("log.parquet", log.table, log.metadata)
    shown = cli("decide", "log.parquet", "--metric", "em", "-o", "again.json", "--json").json
    assert shown["verdict"] == "cannot be judged"
    assert "--metric contains" in shown["unjudged"]


def test_a_file_without_counts_of_answers_is_read_as_before():
    data = decide(asked(600, reply), metric="contains", max_loss=0.5).to_dict()
    del data["trial"]["answers"]
    old = Advice.from_dict(data)
    assert old.verdict == data["verdict"] == "do it"
    assert decide(asked(100, reply, first=600), previous=old).trial.answers.questions == 100


@pytest.mark.parametrize("name", [*BUNDLED_RECORDINGS, *BUNDLED_SAMPLES])
def test_the_answers_of_bundled_recordings_can_be_read(name):
    recording = bundled_recording(name)
    metric = "match" if recording.independent else "target_sentiment"
    assert AnswerCounts.of(recording, metric).unreadable(metric) == ""
