"""Words of a log for the ends of its loops: each is asked about alone, and may be in the last row of a question only."""

from __future__ import annotations

import pytest

from suffice.errors import DataError, UnsettledError
from suffice.recordings import read_recording
from tests.support.logs import asked, imported, offered, paired, written

CITIES = ("Oslo", "Lima", "Rome", "Cairo")
WORDS = ("released", "quit", "ok_final")


def rows(words=WORDS, *, only_last=False, n=30):
    """Return rows of one to three rounds, whose length says why the loop ended."""
    return [
        {
            "id": f"T{q}",
            "round": r,
            "answer": CITIES[(q + r) % 4],
            "gold": CITIES[q % 4],
            "outcome": None if only_last and r < length else words[length - 1],
        }
        for q in range(n)
        for length in [1 + q % 3]
        for r in range(1, length + 1)
    ]


def ends_by_length(summary):
    table = read_recording(summary.path).table
    lengths = {row["question_id"]: row["round"] for row in table.to_pylist()}
    return {lengths[row["question_id"]]: row["end"] for row in table.to_pylist()}


@pytest.mark.parametrize("only_last", [False, True])
def test_each_unknown_word_for_an_end_is_asked_about(tmp_path, only_last):
    source = written(tmp_path, rows(only_last=only_last))
    said, ends = "outcome", {}
    for word, end in zip(WORDS, ("rule", "failed", "max_rounds"), strict=True):
        error = asked(source, match=f"end is '{word}'", columns={"end": said})
        options = {option.rpartition("=")[2]: own[0]["end"] for option, own in error.choices.items()}
        assert [*options] == ["rule", "max_rounds", "exhausted", "failed"]
        assert all(typed.count("=") == 1 + len(ends) for typed in options.values())
        said, ends = options[end], {**ends, word: end}
    assert said == "outcome:released=rule,quit=failed,ok_final=max_rounds"
    assert ends_by_length(imported(source, columns={"end": said})) == {1: "rule", 2: "failed", 3: "max_rounds"}


def test_the_words_that_follow_are_named(tmp_path):
    error = asked(written(tmp_path, rows()), columns={"end": "outcome"})
    assert "'quit', 'ok_final' will be asked about next" in error.question


def test_words_that_the_user_maps_to_no_end_are_refused(tmp_path):
    with pytest.raises(DataError, match="end is 'stop'") as error:
        imported(written(tmp_path, rows()), columns={"end": "outcome:released=rule,quit=stop,ok_final=rule"})
    assert not isinstance(error.value, UnsettledError)


def test_usual_words_in_last_rows_alone_are_read(tmp_path):
    words = ("converged", "converged", "max_iterations")
    summary = imported(written(tmp_path, rows(words, only_last=True)))
    assert ends_by_length(summary) == {1: "rule", 2: "rule", 3: "max_rounds"}


def test_unusual_words_in_last_rows_alone_are_noted(tmp_path):
    notes = " ".join(imported(written(tmp_path, rows(only_last=True))).notes)
    assert "(--column end=outcome)" in notes


def test_a_state_that_some_questions_lack_is_no_end(tmp_path):
    log = [{**row, "outcome": None if row["id"] == "T2" else row["outcome"]} for row in rows(only_last=True)]
    assert "--column end=outcome" not in " ".join(imported(written(tmp_path, log)).notes)


def test_one_unknown_word_has_a_choice_for_each_end(tmp_path):
    words = ("converged", "converged", "tired")
    options = offered(written(tmp_path, rows(words)), columns={"end": "outcome"})
    assert options[0] == "--column end=outcome:tired=rule"


def of_caps(word, flag=None, n=30):
    """Return rows of one to three rounds whose last one has a word: the loops with one round stopped by themselves, and others did not."""
    made = rows((None, word, word), only_last=True, n=n)
    ends = {row["id"]: row["round"] for row in made}
    for row in made:
        is_last = row["round"] == ends[row["id"]]
        own = ends[row["id"]] == 1
        row["outcome"] = (own if flag else "converged" if own else word) if is_last else (False if flag else None)
    return made


@pytest.mark.parametrize(
    ("word", "flag", "file"),
    paired([("gave_up", None), ("false", "stop")], ["log.jsonl", "log.csv"]),
)
def test_a_loop_at_its_cap_did_not_fail_as_others_did(word, flag, file, tmp_path):
    made = [{"stop" if name == "outcome" else name: own for name, own in row.items()} for row in of_caps(word, flag)]
    source = written(tmp_path / file, made)
    said = "False" if flag and file == "log.csv" else word
    choices = asked(source, columns={"end": "stop"}).choices
    option = f"--column end=stop:{said}=max_rounds-or-failed"
    assert [*choices][-1] == option
    assert ends_by_length(imported(source, columns=choices[option][0])) == {1: "rule", 2: "failed", 3: "max_rounds"}


@pytest.mark.parametrize(("end", "file"), paired(["failed", "exhausted", "rule"], ["log.jsonl", "log.csv"]))
def test_a_flag_means_something_else_before_the_cap_alone(file, end, tmp_path):
    source = written(tmp_path / file, of_caps("false", "stop"))
    columns = {"end": f"outcome:{'False' if file == 'log.csv' else 'false'}={end}"}
    assert ends_by_length(imported(source, columns=columns)) == {1: "rule", 2: end, 3: "max_rounds"}


def test_a_word_that_is_said_to_mean_the_limit_is_read(tmp_path):
    source = written(tmp_path, of_caps("gave_up"))
    ends = ends_by_length(imported(source, columns={"end": "outcome:gave_up=at-limit"}))
    assert ends == {1: "rule", 2: "max_rounds", 3: "max_rounds"}


def test_other_words_may_mean_failures_at_the_cap_too(tmp_path):
    source = written(tmp_path, of_caps("gave_up"))
    assert ends_by_length(imported(source, columns={"end": "outcome:gave_up=failed"}))[3] == "failed"
