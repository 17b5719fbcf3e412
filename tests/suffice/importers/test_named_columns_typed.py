"""Options and files that name columns: what an import prints works when it is typed."""

from __future__ import annotations

import re
import shlex

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import CITIES, answer, by_command, offered, written

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
