"""A question on a terminal that is not answered: the input ends, or Ctrl-C."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from benchmarks.readings.cases import Draw, lines
from benchmarks.readings.fields_and_tools import what_a_judge_says_in_rows

from tests.support.cli_tools import cli


class _Interrupted(io.StringIO):
    def readline(self, size=-1):
        raise KeyboardInterrupt


@pytest.fixture
def answering(tmp_path, monkeypatch):
    """Return a function that imports a log on a terminal on which some lines are typed before the input ends."""
    path = tmp_path / "log.jsonl"
    path.write_text(lines(what_a_judge_says_in_rows(Draw("x")).content), "utf-8")
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(
        "suffice.cli.importing.sys", SimpleNamespace(**dict.fromkeys(("stdin", "stdout", "stderr"), terminal))
    )

    def run(typed):
        monkeypatch.setattr(sys, "stdin", typed if isinstance(typed, io.StringIO) else io.StringIO(typed))
        return cli("import", path, "-o", tmp_path / "r.parquet")

    return run


def test_the_end_of_the_input_chooses_nothing(answering, tmp_path):
    left = answering("")
    assert left.code == 2
    assert "nothing was chosen" in left.error
    assert left.commands[0][-2:] == ["--where", "role=writer"]
    assert not (tmp_path / "r.parquet").exists()


def test_commands_have_what_was_chosen_before(answering):
    left = answering("1\n")
    assert left.code == 2
    assert cli(*left.commands[0], "--yes").code == 0


def test_a_reading_that_is_not_confirmed_is_not_imported(answering, tmp_path):
    left = answering("1\n1\n")
    assert left.code == 2
    assert "--yes" in left.error
    assert not (tmp_path / "r.parquet").exists()


def test_ctrl_c_at_a_question_interrupts(answering):
    left = answering(_Interrupted())
    assert left.code == 130
    assert "internal error" not in left.err
