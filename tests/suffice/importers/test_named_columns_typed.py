"""Options and files that name columns: what an import prints works when it is typed."""

from __future__ import annotations

import re
import shlex

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import CITIES, answer, by_command, paired, written

N = 30


def wide(q, **beside):
    """Return a question with two drafts, numbered in the names of their columns."""
    drafts = {f"draft_{r}": f"Intro {q} is version {r} of {q * r}" for r in (1, 2)}
    return {"episode": f"e{q}"} | drafts | {f"{name}_{r}": of(q, r) for name, of in beside.items() for r in (1, 2)}


def points(q, r):
    return 41 + (13 * q + 29 * r) % 55


@pytest.mark.parametrize(
    ("name", "of", "printed"),
    [
        ("judge_score", points, "judge_score=judge_score:0..100"),
        ("judgeRating", lambda q, r: 1 + (q + 2 * r) % 5, "judgeRating=judgeRating:1..5"),
        ("eval.judge", points, "eval_judge=eval.judge:0..100"),
        ("quality", lambda q, r: ("bad", "good")[q // r % 2], "quality=quality:bad,good"),
    ],
)
def test_a_printed_score_in_numbered_columns_judges_when_typed(name, of, printed, tmp_path):
    log = [wide(q, **{name: of}) for q in range(N)]
    done = by_command(tmp_path, log, "--details", name="log.csv", code=0)
    option = shlex.split(re.search(r"--metric-column ('[^']*'|\S+)", done.words)[0].rstrip(",;"))
    assert option[1] == printed
    assert " ... " not in done.words.partition("may: ")[2]
    typed = cli("import", tmp_path / "log.csv", "-o", tmp_path / "r.parquet", "--yes", *option, code=0)
    assert "may:" not in typed.words
    assert len({*read_recording(tmp_path / "r.parquet").table.column(printed.partition("=")[0]).to_pylist()}) > 1


def clips(n=N):
    """Return a log of clips without gold answers, and its labels under other names, as a user would keep them."""
    log = [{"clip": f"X{q:03}", "round": r, "answer": answer(q, r)} for q in range(n) for r in (1, 2)]
    return log, [{"clip": f"X{q:03}", "species": CITIES[q % 4]} for q in range(n)]


def joined(folder, labels, *options, code=0):
    """Import the log of clips with a file of labels."""
    file = written(folder / "labels.csv", labels)
    done = by_command(folder, clips()[0], "--column", "question_id=clip", "--golds", file, *options, code=code)
    golds = read_recording(folder / "r.parquet").table.column("golds").to_pylist() if code == 0 else None
    return done, golds


RIGHT = [[CITIES[q % 4]] for q in range(N) for _ in (1, 2)]


@pytest.mark.parametrize("names", [("clip", "species"), ("tape", "bird"), ("clip", "gold"), ("file_name", "species")])
def test_the_two_columns_of_labels_are_told_by_the_ids(names, tmp_path):
    labels = [{names[0]: row["clip"], names[1]: row["species"]} for row in clips()[1]]
    done, golds = joined(tmp_path, labels)
    assert golds == RIGHT
    assert f"labels.csv, {names[1]!r} by {names[0]!r}: 30 of 30" in done.words or names == ("clip", "gold")


def test_labels_are_found_by_the_texts_of_questions(tmp_path):
    log = [row | {"question": f"Who sings in clip {row['clip']}?"} for row in clips()[0]]
    labels = [{"asked": f"who sings in clip {q['clip']}", "species": q["species"]} for q in clips()[1]]
    file = written(tmp_path / "labels.csv", labels)
    done = by_command(tmp_path, log, "--column", "question_id=clip", "--golds", file, code=0)
    assert "'species' by 'asked': 30 of 30 trajectories matched (30 by text)" in done.words


def test_named_columns_of_labels_are_read(tmp_path):
    labels = [{"nr": q, "seen by": "me", **row} for q, row in enumerate(clips()[1])]
    done, _ = joined(tmp_path, labels, code=1)
    options = re.findall(r"--column ('[^']*'|\S+)", done.error)
    assert [*map(shlex.split, options)] == [["golds=nr"], ["golds=seen by"], ["golds=species"]]
    for own in options:
        _, golds = joined(tmp_path, labels, "--column", *shlex.split(own))
        assert (golds == RIGHT) == (own == "golds=species")


def test_named_labels_judge_beside_kept_gold_answers(tmp_path):
    done, golds = joined(tmp_path, clips()[1], "--column", "golds=species", "--log-golds", "keep")
    assert golds == RIGHT
    assert "30 of 30 trajectories matched" in done.words


def test_a_gold_column_that_no_file_has_is_refused(tmp_path):
    done, _ = joined(tmp_path, clips()[1], "--column", "golds=genus", code=1)
    assert "no column 'genus' (for 'golds'); in the log there are: clip, round, answer" in done.error
    assert "in the file of gold answers: clip, species" in done.error


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ({"tape": "T{q}", "gold": "Oslo"}, "no column has ids or questions of the run, such as 'X000'"),
        ({"clip": "X{q:03}"}, "no column has gold answers; there are: clip. Call the column"),
    ],
)
def test_labels_without_ids_or_gold_answers_are_refused(label, said, tmp_path):
    labels = [{name: text.format(q=q) for name, text in label.items()} for q in range(N)]
    file = written(tmp_path / "labels.jsonl", labels)
    assert said in by_command(tmp_path, clips()[0], "--column", "question_id=clip", "--golds", file, code=1).error


def test_no_flag_is_offered_as_judge_beside_labels(tmp_path):
    log, labels = clips()
    log = [row | {"flagged": (7 * q + 3 * q // 4) % 3 == 0} for q, row in enumerate(log)]
    alone = by_command(tmp_path, log, "--column", "question_id=clip", "--details", code=0)
    assert "if 'flagged' does" in alone.words
    file = written(tmp_path / "labels.csv", labels)
    beside = by_command(tmp_path, log, "--column", "question_id=clip", "--golds", file, "--details", code=0)
    assert "'flagged' does" not in beside.words


LENGTHS = (1, 2, 3)


def flagged(name="stop", *, is_true=lambda q, r, n: r == n, spell=bool, n_questions=N):
    """Return rows of loops of up to three rounds, with a flag in each."""
    return [
        {"id": f"T{q}", "round": r, "answer": answer(q, r), "gold": CITIES[q % 4], name: spell(is_true(q, r, n))}
        for q in range(n_questions)
        for n in [LENGTHS[q % 3]]
        for r in range(1, n + 1)
    ]


def ends(folder):
    """Return the ends of loops by their number of rounds, in the recording of a folder."""
    rows = read_recording(folder / "r.parquet").table.select(["question_id", "round", "end"]).to_pylist()
    lengths = {row["question_id"]: row["round"] for row in rows}
    return {n: {row["end"] for row in rows if lengths[row["question_id"]] == n} for n in LENGTHS}


@pytest.mark.parametrize(
    ("name", "spell"),
    paired(["stop", "stopped", "done", "converged", "shouldStop", "is_done", "state.converged"], [bool, int, str]),
)
def test_a_flag_of_the_last_round_is_the_loop_s_stop(name, spell, tmp_path):
    done = by_command(tmp_path, flagged(name, is_true=lambda q, r, n: r == n < 3, spell=spell), name="log.csv", code=0)
    assert f"{name} (true = rule) as end" in done.words
    assert ends(tmp_path) == {1: {"rule"}, 2: {"rule"}, 3: {"max_rounds"}}


def test_flags_are_read_in_the_order_of_rounds(tmp_path):
    by_command(tmp_path, flagged()[::-1], code=0)
    assert ends(tmp_path) == {n: {"rule"} for n in LENGTHS}


def test_flags_that_leave_short_loops_open_are_offered(tmp_path):
    log = flagged(is_true=lambda q, r, n: r == n == 1)
    done = by_command(tmp_path, log, "--details", code=0)
    assert "(--column end=stop)" in done.words
    typed = by_command(tmp_path, log, "--column", "end=stop", code=2)
    assert [own[-1] for own in typed.commands] == [
        f"end=stop:false={end}" for end in ("rule", "max_rounds", "exhausted", "max_rounds-or-failed")
    ]
    by_command(tmp_path, log, "--column", "end=stop:false=exhausted", code=0)
    assert (ends(tmp_path)[2], ends(tmp_path)[3]) == ({"exhausted"}, {"max_rounds"})


def test_a_flag_that_the_user_names_is_read_as_it_is_without(tmp_path):
    by_command(tmp_path, flagged(is_true=lambda q, r, n: r == n < 3), "--column", "end=stop", code=0)
    assert ends(tmp_path) == {1: {"rule"}, 2: {"rule"}, 3: {"max_rounds"}}


@pytest.mark.parametrize(
    "is_true", [lambda q, r, n: r == 1, lambda q, r, n: True, lambda q, r, n: False, lambda q, r, n: q % 2 and r < n]
)
def test_other_flags_are_neither_read_as_ends_nor_offered(is_true, tmp_path):
    done = by_command(tmp_path, flagged(is_true=is_true), "--details", "--expected", "returned", code=0)
    assert "end=stop" not in done.words
    assert "as end" not in done.words


def test_words_of_last_rounds_alone_are_offered_as_ends(tmp_path):
    words = ("settled", "settled", "gave_up")
    log = [row | {"status": words[row["round"] - 1] if row.pop("stop") else "retry"} for row in flagged()]
    done = by_command(tmp_path, log, "--details", code=0)
    assert "(--column end=status)" in done.words
    asked = by_command(tmp_path, log, "--column", "end=status", code=2)
    option = asked.commands[0][-1]
    assert option == "end=status:settled=rule"
    then = by_command(tmp_path, log, "--column", option, code=2)
    by_command(tmp_path, log, "--column", then.commands[1][-1], code=0)
    assert ends(tmp_path) == {1: {"rule"}, 2: {"rule"}, 3: {"max_rounds"}}
