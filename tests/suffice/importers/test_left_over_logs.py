"""Logs of classifiers, amounts as sheets write them, padded ids, outcomes of runs, averages, and parameters without a value."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import Result, cli
from tests.support.logs import by_command

TOWNS = ("Graz", "Bern", "Lyon", "Oslo")
N, ROUNDS = 30, (1, 2, 3)


def town(q: int, r: int) -> str:
    return TOWNS[(q + (r < 1 + q % 5)) % 4]


def rows(more: Callable[[int, int], dict[str, Any]], *, gold: bool = True) -> list[dict[str, Any]]:
    """Return a row for each question and round, in which `more` replaces what is usual."""
    usual = lambda q, r: {"id": f"q{q}", "round": r, "answer": town(q, r), **({"gold": TOWNS[q % 4]} if gold else {})}  # noqa: E731
    return [{**usual(q, r), **more(q, r)} for q in range(N) for r in ROUNDS]


def column(folder: Path, name: str) -> list[Any]:
    values: list[Any] = read_recording(folder / "r.parquet").table.column(name).to_pylist()
    return values


def printed(refused: Result, meaning: str) -> list[str]:
    """Return the options of the command that an error prints below a meaning."""
    lines = refused.err.splitlines()
    place = next(i for i, line in enumerate(lines) if meaning in line)
    words = shlex.split(lines[place + 1])
    return words[words.index("--yes") + 1 :]


def labelled(gold: str | None, **replaced: Any) -> list[dict[str, Any]]:
    made = []
    for row in rows(lambda q, r: {"text": f"Here is {q}", "why": f"{q} {r} {town(q, r)}"}):
        right = {gold: row["gold"]} if gold else {}
        own = {"id": row["id"], "round": row["round"], "text": row["text"], "label": row["answer"]}
        made.append({**own, "rationale": row["why"], **right, **replaced})
    return made


@pytest.mark.parametrize("gold", ["expected", "target", "gold_label", None])
def test_a_label_beside_a_rationale_is_the_answer(tmp_path, gold):
    by_command(tmp_path, labelled(gold), code=0)
    assert column(tmp_path, "answer") == [town(q, r) for q in range(N) for r in ROUNDS]
    assert column(tmp_path, "question")[0] == "Here is 0"
    assert column(tmp_path, "golds")[0] == ([TOWNS[0]] if gold else [])


def test_a_reply_beside_a_label_is_a_question(tmp_path):
    made = [{**row, "response": f"{row['rationale']}: {row['label']}"} for row in labelled("expected")]
    refused = by_command(tmp_path, made, code=2)
    assert by_command(tmp_path, made, *printed(refused, "'label' is the answer")).code == 0
    assert column(tmp_path, "answer")[0] == town(0, 1)


def test_a_label_that_judges_is_no_answer(tmp_path):
    made = rows(lambda q, r: {"response": f"{town(q, r)} is it, {q} {r}", "label": ("good", "bad")[(q + r) % 2]})
    made = [{name: value for name, value in row.items() if name != "answer"} for row in made]
    assert "'label' is the answer" not in by_command(tmp_path, made).err


def test_separators_and_signs_are_read_as_numbers(tmp_path):
    made = rows(lambda q, r: {"input_tokens": f"{1000 + q:,}", "output_tokens": f"{10 * r}", "latency_ms": "2,500"})
    assert by_command(tmp_path, made).code == 0
    assert column(tmp_path, "cost.generator.uncached_tokens")[:4] == [1000, 1000, 1000, 1001]
    assert column(tmp_path, "cost.generator.seconds")[0] == 2.5


@pytest.mark.parametrize(("cost", "form", "spent"), [("$0.02", "each", 0.02), ("0,05 €", "each", 0.05)])
def test_dollars_of_each_row_are_added_up(tmp_path, cost, form, spent):
    made = rows(lambda q, r: {"cost_usd": cost})
    result = by_command(tmp_path, made)
    option = f"--column spend=cost_usd:{form}"
    assert option in result.words
    assert by_command(tmp_path, made, *option.split()).code == 0
    assert column(tmp_path, "spend")[:3] == pytest.approx([spent, 2 * spent, 3 * spent])


def test_a_comma_that_may_mean_either_is_asked_about(tmp_path):
    made = rows(lambda q, r: {"latency_s": f"{r},250"})
    words = by_command(tmp_path, made, "--details").words
    for form, seconds in (("thousands", 1250), ("decimal-comma", 1.25)):
        option = f"--column cost.generator.seconds=latency_s:{form}"
        assert option in words
        assert by_command(tmp_path, made, *option.split()).code == 0
        assert column(tmp_path, "cost.generator.seconds")[0] == seconds


@pytest.mark.parametrize(
    ("of_first", "of_others", "gold", "form"),
    [("7{:02}", "07{:02}", "Oslo", "alike"), ("q{}", " q{} ", "Oslo", "alike"), ("q{}", "Q{}", None, "any-case")],
)
def test_ids_that_look_alike_are_asked_about(tmp_path, of_first, of_others, gold, form):
    made = rows(lambda q, r: {"id": (of_first if r == 1 else of_others).format(q)} | ({"gold": gold} if gold else {}))
    refused = by_command(tmp_path, made, code=2)
    options = printed(refused, "their rows belong together")
    assert options == ["--column", f"question_id=id:{form}"]
    assert by_command(tmp_path, made, *options).code == 0
    assert len({*column(tmp_path, "question_id")}) == N


def test_ids_of_other_questions_may_look_alike(tmp_path):
    made = rows(lambda q, r: {"id": f"{q // 2:0{1 + 2 * (q % 2)}}", "question": f"Where is tower {q}?"})
    assert by_command(tmp_path, made).code == 0
    assert len({*column(tmp_path, "question_id")}) == N


def test_gold_answers_are_joined_to_padded_ids(tmp_path):
    (tmp_path / "golds.jsonl").write_text("\n".join(json.dumps({"id": q, "answers": [TOWNS[q % 4]]}) for q in range(N)))
    made = rows(lambda q, r: {"id": f"{q:03}"}, gold=False)
    result = by_command(tmp_path, made, "--golds", str(tmp_path / "golds.jsonl"))
    assert f"{N} by id without spaces and leading zeros" in result.words
    assert column(tmp_path, "golds")[0] == ["Graz"]


def succeeded(q: int) -> dict[str, Any]:
    return {"success": q % 4 != 0}


def test_the_success_of_a_run_counts_for_its_last_round(tmp_path):
    made = rows(lambda q, r: succeeded(q), gold=False)
    result = by_command(tmp_path, made)
    assert "counts for the last round alone" in result.words
    assert column(tmp_path, "success")[:6] == [None, None, 0, None, None, 1]
    assert by_command(tmp_path, made, "--metric-column", "success=success").code == 0
    assert column(tmp_path, "success")[:6] == [0, 0, 0, 1, 1, 1]


def test_the_success_of_a_run_without_answers_counts_at_its_end(tmp_path):
    made = [{"id": q, "step": r, "tool": f"t{(q + r) % 3}", **succeeded(q)} for q in range(N) for r in ROUNDS]
    assert by_command(tmp_path, made, "--column", "answer=").code == 0
    assert column(tmp_path, "success")[:6] == [None, None, 0, None, None, 1]


@pytest.mark.parametrize(("n", "code", "options"), [(4, 0, ""), (N, 2, "--expected empty-rounds")])
def test_the_success_of_tool_calls_counts_at_the_answer(tmp_path, n, code, options):
    made = [
        {"id": q, "step": r, "tool": "t" if r < 3 else None, "answer": None if r < 3 else "Done.", **succeeded(q)}
        for q in range(n)
        for r in (1, 2, 3)
    ]
    assert options in by_command(tmp_path, made, code=code).err
    result = by_command(tmp_path, made, *options.split(), code=0)
    assert "counts for the last round alone" in result.words
    assert column(tmp_path, "success")[:6] == [None, None, 0, None, None, 1]


def test_a_failed_call_leaves_scores_to_their_answers(tmp_path):
    made = rows(lambda q, r: {"answer": None if q == r == 1 else TOWNS[q % 4], **succeeded(q)}, gold=False)
    by_command(tmp_path, made, code=0)
    assert column(tmp_path, "success")[:6] == [0, 0, 0, 1, 1, 1]


def test_scores_that_follow_the_answers_count_in_all_rounds(tmp_path):
    assert by_command(tmp_path, rows(lambda q, r: {"success": town(q, r) == TOWNS[q % 4]})).code == 0
    assert None not in column(tmp_path, "success")


AVERAGES = [
    [{"model": f"m{s}", "round": r, "accuracy": 0.4 + s / 90, "n": 500} for s in range(9) for r in ROUNDS],
    [{"system": f"s{s}", "accuracy": 0.4 + s / 90, "tokens": 90 + s} for s in range(30)],
    [{"group": f"g{s}", "round": r, "mean_em": 0.4, "mean_tokens": 9 + s} for s in range(30) for r in ROUNDS],
    [
        {"id": f"s{s}", "round": r, "accuracy_mean": 0.4 + s / 90, "accuracy_std": 0.1}
        for s in range(30)
        for r in ROUNDS
    ],
]


@pytest.mark.parametrize("made", AVERAGES)
@pytest.mark.parametrize("key", ["", "round"])
def test_averages_are_refused(tmp_path, made, key):
    options = ["--column", f"question_id={next(iter(made[0]))}"] if key else []
    refused = by_command(tmp_path, made, *options, code=1)
    assert "the rows are averages" in refused.error


def test_fractions_of_answers_are_no_averages(tmp_path):
    score = random.Random(0).random
    made = [{"id": q, "model": "m", "round": r, "score": round(score(), 2), "n": 5} for q in range(N) for r in ROUNDS]
    assert by_command(tmp_path, made).code == 0


def test_case_that_no_gold_answer_decides_is_a_caution(tmp_path):
    made = rows(lambda q, r: {"answer": (town(q, r).lower, town(q, r).title)[r % 2]()}, gold=False)
    result = by_command(tmp_path, made)
    assert "differ in case alone" in result.words
    assert "differ in case" not in by_command(tmp_path, made, "--set", "normalizer=exact").words
    assert "differ in case" not in by_command(tmp_path, rows(lambda q, r: {}, gold=False)).words


@pytest.mark.parametrize("name", ["qid", "round"])
def test_an_empty_parameter_is_named(tmp_path, name):
    for q in range(6):
        for r in ROUNDS:
            run = tmp_path / f"mlruns/0/{q:02}{r}"
            (run / "params").mkdir(parents=True)
            (run / "artifacts").mkdir()
            (run / "meta.yaml").write_text("run_id: x\n")
            values = {"qid": f"q{q}", "round": str(r), "note": ""}
            for own, value in values.items():
                (run / "params" / own).write_text("" if (q, r, own) == (3, 2, name) else value)
            (run / "artifacts" / "out.jsonl").write_text(json.dumps({"answer": town(q, r), "gold": TOWNS[q % 4]}))
    result = cli("import", tmp_path / "mlruns", "-o", tmp_path / "r.parquet", "--yes")
    assert "032/params/" + name in result.error
    (tmp_path / f"mlruns/0/032/params/{name}").write_text({"qid": "q3", "round": "2"}[name])
    assert cli("import", tmp_path / "mlruns", "-o", tmp_path / "r.parquet", "--yes").code == 0


def test_columns_in_use_are_not_called_unread(tmp_path):
    made = rows(lambda q, r: {"ok": (q + r) % 2, "tenant": f"t{q % 2}", "style": "ab"[r % 2], "cost_usd": 0.1 * r})
    assert "not read: ok, tenant, style" in by_command(tmp_path, made).words
    options = ("--metric-column", "fine=ok", "--label", "site=tenant", "--column", "spend=cost_usd:each")
    words = by_command(tmp_path, made, *options).words
    assert "not read: style" in words
    assert "not read: style," not in words
