"""Budgets: distributions and rooms stay within them, and growth is found."""

from __future__ import annotations

import tomllib
from collections import Counter

import pytest
from scripts import budgets as script
from scripts.budgets import FILE, ROOT, Size, functions_of, main, measured, options, over, size_of, written

SETTINGS = {"roots": ["src/*", "packages/*/src/*"], "counted": ["tests"], "limits": {"module": 9, "function": 4}}


@pytest.fixture
def tree(tmp_path):
    """Return a folder with two distributions and tests."""
    for path, lines in (
        ("src/main/__init__.py", 2),
        ("src/main/rules/parse.py", 6),
        ("src/main/rules/deep/er.py", 3),
        ("packages/extra/src/extra/serve/app.py", 5),
        ("tests/test_a.py", 4),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x = 1\n" * lines, encoding="utf-8")
    (tmp_path / "src/other").mkdir()  # no Python in it
    return tmp_path


def sizes(tree, **found_options):
    """Return what is measured in a tree."""
    return measured(SETTINGS, tree, Counter({"main": 3, **found_options}))


def grown(tree, path, text):
    """Return what is over the budgets of a tree after a file of it became longer."""
    budgets = tomllib.loads(written(SETTINGS, sizes(tree)))
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    with (tree / path).open("a", encoding="utf-8") as file:
        file.write(text)
    return over(budgets, sizes(tree))


@pytest.mark.whole
def test_every_distribution_and_room_is_within_its_budget():
    budgets = tomllib.loads(FILE.read_text("utf-8"))
    assert over(budgets, measured(budgets, ROOT, options())) == []


def test_writing_keeps_the_opening_comment(tree, monkeypatch):
    path = tree / "budgets.toml"
    monkeypatch.setattr(script, "FILE", path)
    monkeypatch.setattr(script, "measured", lambda *_: sizes(tree))
    monkeypatch.setattr(script, "options", Counter)
    path.write_text(written(SETTINGS, sizes(tree), ["# Where it stopped.", "#", "# And why."]))
    before = path.read_text()
    assert main(["--write"]) == 0
    assert path.read_text() == before
    assert before.startswith("# Where it stopped.\n#\n# And why.\nroots = ")


def test_rooms_are_the_folders_below_each_root(tree):
    found = sizes(tree)
    assert {name: sorted(rooms) for name, rooms in found.rooms.items()} == {
        "main": ["itself", "rules"],
        "extra": ["serve"],
    }
    assert found.rooms["main"]["rules"] == Size(9, 9)
    assert found.totals["main"] == Size(11, 11)
    assert found.totals["tests"].lines == 4


def test_budgets_as_written_are_kept(tree):
    assert over(tomllib.loads(written(SETTINGS, sizes(tree))), sizes(tree)) == []


def test_growth_past_the_rounding_is_named_for_room_and_distribution(tree):
    lines = grown(tree, "src/main/rules/more.py", "\n" * 190)
    assert [line.split(" has")[0] for line in lines] == ["main", "main/rules", "the module main/rules/more.py"]
    assert "budget is 200" in lines[0]
    assert "budget is 50" in lines[1]


def test_statements_squeezed_into_few_lines_are_counted(tree):
    lines = grown(tree, "src/main/rules/parse.py", "; ".join(["x = 1"] * 100) + "\n")
    assert all("statements" in line for line in lines)
    assert len(lines) == 2


def test_more_options_than_the_budget_are_named(tree):
    budgets = tomllib.loads(written(SETTINGS, sizes(tree)))
    assert "options" in over(budgets, sizes(tree, main=4))[0]


def test_a_room_without_a_budget_is_named(tree):
    assert any("main/new has no budget" in line for line in grown(tree, "src/main/new/a.py", "x = 1\n"))


def test_a_function_longer_than_allowed_is_named(tree):
    lines = grown(tree, "src/main/rules/deep/er.py", "def long():\n" + "    x = 1\n" * 4)
    assert lines == ["the function long has 5 lines; allowed are 4: split it"]


def test_an_exception_may_not_grow_and_goes_when_it_is_short(tree):
    path = tree / "src/main/rules/deep/er.py"
    path.write_text("def long():\n" + "    x = 1\n" * 4, encoding="utf-8")
    budgets = tomllib.loads(written(SETTINGS, sizes(tree)))
    assert over(budgets, sizes(tree)) == []
    path.write_text("def long():\n" + "    x = 1\n" * 5, encoding="utf-8")
    assert "split it" in over(budgets, sizes(tree))[0]
    path.write_text("def long():\n    x = 1\n", encoding="utf-8")
    assert "remove it" in over(budgets, sizes(tree))[0]


def test_docstrings_are_lines_and_no_statements():
    assert size_of('"""Doc."""\nclass A:\n    """Doc."""\n\n    x = "text"\n') == Size(5, 2)


def test_functions_are_named_with_their_classes():
    text = "class A:\n    def f(self):\n        def g():\n            return 1\n        return g\n"
    assert dict(functions_of(text)) == {"A.f": 4, "A.f.g": 2}
