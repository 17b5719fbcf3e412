"""Options that a note prints for words, cents, counts and decimal commas: typed as printed, they judge rightly or are refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import lines

from suffice.importers.words.word_scales import order_of_words
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES, cli


def imported(folder: Path, rows: Any, *options: str, name: str = "log.jsonl") -> Any:
    path = folder / name
    path.write_text(rows if isinstance(rows, str) else lines(rows), "utf-8")
    return cli("import", path, "-o", folder / "r.parquet", "--yes", "--details", *options)


def printed(done: Any) -> list[str]:
    """Return the first metric option of a note, as a shell reads it."""
    said = " ".join(done.out.split())
    return shlex.split(re.search(r"--metric-column ('[^']*'|\S+)", said)[0].rstrip(",;"))


def drafts(**own: list[Any]) -> list[dict[str, Any]]:
    """Return three drafts each of forty tickets, with values of further columns in turn."""
    rows = [{"ticket": t, "draft": r, "reply": f"Draft {t} {r} says {t * r}"} for t in range(40) for r in (1, 2, 3)]
    return [{**row, **{name: own[name][n % len(own[name])] for name in own}} for n, row in enumerate(rows)]


IDS = ("--column", "question_id=ticket")


def values(folder: Path, name: str) -> list[float]:
    return read_recording(folder / "r.parquet").table.column(name).to_pylist()


def test_ratings_in_usual_words_are_offered_in_their_order(tmp_path):
    rows = drafts(quality=["poor", "excellent", "Good", "fair"])
    option = printed(imported(tmp_path, rows, *IDS))
    assert option[1] == "quality=quality:poor,fair,Good,excellent"
    assert imported(tmp_path, rows, *IDS, *option).code == 0
    assert values(tmp_path, "quality")[:4] == pytest.approx([0, 1, 2 / 3, 1 / 3])


def test_words_without_a_known_order_are_never_ordered(tmp_path):
    rows = drafts(critic=["too vague", "apologise", "ok"])
    done = imported(tmp_path, rows, *IDS)
    assert "judges by its words in your order (apologise, ok, too vague;" in " ".join(done.out.split())
    assert printed(done)[1] == "critic=critic:WORST,...,BEST"
    refused = imported(tmp_path, rows, *IDS, *printed(done))
    assert refused.code == 1
    assert "it has apologise, ok, too vague" in refused.err
    assert imported(tmp_path, rows, *IDS, "--metric-column", "critic=critic:too vague|apologise,ok").code == 0
    assert values(tmp_path, "critic")[:3] == [0, 0, 1]


def test_placeholders_may_be_words_of_the_log(tmp_path):
    rows = drafts(critic=["WORST", "BEST", "so-so"])
    assert imported(tmp_path, rows, *IDS, "--metric-column", "critic=critic:WORST,so-so,BEST").code == 0
    assert values(tmp_path, "critic")[:3] == [0, 1, 0.5]


def test_numbers_are_offered_before_words(tmp_path):
    done = imported(tmp_path, drafts(quality=["poor", "fair", "good"], qa_score=[0.4, 0.6, 0.9]), *IDS)
    assert printed(done)[1] == "qa_score=qa_score"
    assert "quality:poor,fair,good" in done.out
    done = imported(tmp_path, drafts(critic=["vague", "fine", "ok"], qa_score=[0.4, 0.6, 0.9]), *IDS)
    assert printed(done)[1] == "qa_score=qa_score"


def test_all_verdicts_but_one_are_equally_wrong(tmp_path):
    rows = drafts(verdict=["WA", "TLE", "AC", "RE", "AC"])
    option = printed(imported(tmp_path, rows, *IDS))
    assert option[1] == "verdict=verdict:RE|TLE|WA,AC"
    assert imported(tmp_path, rows, *IDS, *option).code == 0
    assert values(tmp_path, "verdict")[:5] == [0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("name", "words", "order"),
    [
        ("verdict", ("reject", "accept", "minor revision"), "reject,minor revision,accept"),
        ("grade", ("partially correct", "wrong", "correct"), "wrong,partially correct,correct"),
        ("Bewertung", ("gut", "schlecht", "sehr gut"), "schlecht,gut,sehr gut"),
        ("note", ("bon", "moyen", "mauvais"), "mauvais,moyen,bon"),
        ("grade", ("falsch", "richtig"), "falsch,richtig"),
        ("quality", ("high", "low", "medium"), "low,medium,high"),
        ("feedback", ("👎", "👍"), "👎,👍"),
        ("hallucination_quality", ("high", "low"), ""),
        ("feedback", ("yes", "no"), ""),
        ("quality", ("poor", "good", "n/a"), ""),
        ("quality", ("Good", "good"), ""),
        ("quality", ("good|bad", "bad"), ""),
        ("rating", ("fair", "ok", "good"), ""),
    ],
)
def test_only_known_orders_are_offered(name, words, order):
    assert order_of_words(name, words) == order


def test_a_count_of_a_reserved_name_is_offered_under_another(tmp_path):
    rows = [{**row, "total": 4} for row in drafts(passed=[1, 2, 4])]
    option = printed(imported(tmp_path, rows, *IDS))
    assert option[1] == "passed_score=passed/total"
    assert imported(tmp_path, rows, *IDS, *option).code == 0
    assert values(tmp_path, "passed_score")[:3] == [0.25, 0.5, 1]


def test_a_reserved_name_says_so(tmp_path):
    rows = [{**row, "total": 4} for row in drafts(passed=[1, 2, 4])]
    refused = imported(tmp_path, rows, *IDS, "--metric-column", "passed=passed/total")
    assert "column or signal of this name" in refused.err
    assert "'passed_score'" in refused.err
    refused = imported(tmp_path, rows, *IDS, "--metric-column", "pass rate=passed/total")
    assert "use letters, digits and _" in refused.err


def test_cents_are_no_dollars(tmp_path):
    rows = drafts(cost_cents=[1.0, "2", 3])
    said = " ".join(imported(tmp_path, rows, *IDS).out.split())
    assert "--column spend=cost_cents:cents if each row has its own cents" in said
    assert ":each" not in said
    for wrong in ("spend=cost_cents:each", "spend=cost_cents"):
        refused = imported(tmp_path, rows, *IDS, "--column", wrong)
        assert refused.code == 1
        assert "--column spend=cost_cents:cents" in refused.err
    done = imported(tmp_path, rows, *IDS, "--column", "spend=cost_cents:cents")
    assert "cents of each call, 100 a dollar" in " ".join(done.out.split())
    assert values(tmp_path, "spend")[:3] == pytest.approx([0.01, 0.03, 0.06])


@pytest.mark.parametrize("parent", ["tool_input", "arguments", "input"])
def test_an_argument_of_a_tool_is_no_gold_answer(tmp_path, parent):
    records = [
        {
            "incident": f"INC-{q}",
            "label_of_analyst": CITIES[q % 4],
            "steps": [{"step": r, parent: {"target": f"10.0.{q}.{r * (r > 1)}"}, "answer": CITIES[(q + r) % 4]} for r in (1, 2, 3)],
        }
        for q in range(12)
    ]  # fmt: skip
    done = imported(tmp_path, records)
    assert done.code == 0
    assert "target" not in done.out.partition("Question")[0]
    assert read_recording(tmp_path / "r.parquet").table.column("golds").to_pylist()[0] in (None, [])


@pytest.mark.parametrize("name", ["Note", "Bewertung"])
def test_grades_with_a_decimal_comma_are_offered(tmp_path, name):
    marks = ("4,8", "6,2", "7")
    text = f"id;Runde;Antwort;{name}\n" + "".join(
        f"R{q};{r};Text {q} gut {r};{mark}\n" for q in range(40) for r, mark in enumerate(marks, start=1)
    )
    option = printed(imported(tmp_path, text, name="log.csv"))
    assert option[1].endswith(f"{name}:0..10")
    assert imported(tmp_path, text, *option, name="log.csv").code == 0
    assert values(tmp_path, option[1].partition("=")[0])[:3] == pytest.approx([0.48, 0.62, 0.7])
