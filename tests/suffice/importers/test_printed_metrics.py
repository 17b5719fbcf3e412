"""Metric options in notes and questions: each is typed as it is printed, under names and with values of all kinds."""

from __future__ import annotations

import math
import random
import re
import shlex

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import CITIES, asked, by_command, imported, paired, written

N = 30
_PRINTED = re.compile(r"--metric-column (?:'(?:[^']|'\"'\"')*'|\S+)")

NAMES = (
    "judge score",
    "1st_score",
    "accuracy %",
    "score ",
    "Pass/Fail grade",
    "judges' score",
    "score:final",
    "rating, avg",
)
VALUES = {
    "one to five": lambda n: 1 + n % 5,
    "n/a among numbers": lambda n: "n/a" if n % 7 == 0 else 1 + n % 5,
    "percent": lambda n: f"{30 + n % 70} %",
    "words": lambda n: ("bad", "ok", "good")[n % 3],
    "flags": lambda n: bool(n % 3),
}  # fmt: skip


def rows(name, value, n=N):
    """Return rounds with a score under a name, in no order, and nothing else that says which answers are right."""
    drawn = random.Random(5)
    return [
        {
            "qid": f"q{q}",
            "round": r,
            "question": f"Where is {q}?",
            "answer": CITIES[(q + r) % 4],
            name: value(drawn.randrange(1000)),
        }
        for q in range(n)
        for r in range(1, 4)
    ]


def printed(text):
    """Return the metric options in a text, as a shell reads them, without templates for words in the user's order."""
    options = [shlex.split(found.rstrip(".,:;)") if "'" not in found else found) for found in _PRINTED.findall(text)]
    return [option for option in options if "WORST" not in option[1]]


@pytest.mark.parametrize(("name", "kind"), paired(NAMES, VALUES))
def test_each_printed_metric_option_works_as_it_stands(name, kind, tmp_path):
    source = written(tmp_path, rows(name, VALUES[kind]))
    notes = imported(source).notes
    options = [option for note in notes for option in printed(note)]
    assert options or kind not in ("one to five", "n/a among numbers")  # others may be read at once, or have no order
    for option in options:
        assert cli("import", source, "-o", tmp_path / "r.parquet", "--yes", *option).code == 0
        scores = read_recording(tmp_path / "r.parquet").table.column(option[1].partition("=")[0]).to_pylist()
        assert len({*scores}) > 1


def test_scales_are_quoted_for_a_shell(tmp_path):
    notes = imported(written(tmp_path, rows("accuracy %", VALUES["one to five"]))).notes
    assert "--metric-column 'accuracy=accuracy %:1..5'" in " ".join(notes)


def test_words_for_missing_scores_are_unknown_on_a_scale(tmp_path):
    by_command(tmp_path, rows("mark", VALUES["n/a among numbers"]), "--metric-column", "mark=mark:1..5", code=0)
    scores = read_recording(tmp_path / "r.parquet").column("mark")
    values = [row["mark"] for row in rows("mark", VALUES["n/a among numbers"])]
    expected = [math.nan if value == "n/a" else (value - 1) / 4 for value in values]
    assert scores.ravel() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "value", "first", "golds"),
    [
        ("f1", lambda n: 30 + n % 70, ":0..100", True),
        ("f1", lambda n: 30 + n % 70, ":0..100", False),
        ("em", lambda n: 100 * (n % 3 > 0), ":0..100", False),
        (
            "em",
            lambda n: ("incorrect", "partially correct", "correct")[n % 3],
            ":incorrect,partially correct,correct",
            True,
        ),
    ],
)
def test_a_metric_of_our_name_on_another_scale_is_asked_about(name, value, first, golds, tmp_path):
    made = [{**row, **({"gold": "Oslo"} if golds else {})} for row in rows(name, value)]
    source = written(tmp_path, made)
    choices = asked(source, "what is its scale").choices
    assert next(iter(choices.values()))[0] == {"metrics": {name: f"{name}{first}"}}
    assert [*choices][-1] == f"--column {name}="
    for option in choices:
        typed = cli("import", source, "-o", tmp_path / "r.parquet", "--yes", *shlex.split(option))
        assert "what is its scale" not in typed.err
    other = {"columns": {name: ""}, "metrics": {"own": f"{name}{first}"}}
    assert (
        "own" in read_recording(imported(source, **other, expected=["never-right", "returned"]).path).table.column_names
    )


def test_a_single_metric_outside_its_range_is_an_error_of_its_row(tmp_path):
    made = [{**row, "f1": 1.02 if n == 4 else 0.5 + n % 2 / 2} for n, row in enumerate(rows("note", str))]
    done = by_command(tmp_path, made, code=1)
    assert "line 5: f1 is 1.02" in done.err


def test_a_critique_in_numbers_is_a_score(tmp_path):
    notes = imported(written(tmp_path, rows("critic", lambda n: n % 9 / 10))).notes
    assert "--metric-column critic=critic judges by it" in " ".join(notes)
