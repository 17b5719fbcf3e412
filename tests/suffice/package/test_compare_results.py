"""The comparison of generated results: every figure that differs is found, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripts.compare_results import IGNORED, compare_folders, figures, main

PAGE = """# Results

Of 200 questions 4.44 calls; recording `9283a770224e0327`.

**Rules on 200 questions**

| policy | F1 | calls | verdict |
| --- | ---: | ---: | --- |
| `tasr` | 36.8 [-1.1, +4.7] | 1,827 | not dominated |
| `tasr` | 35.1 [-, -] | 819 | dominated by fixed_k(4) |

```
| not | a table |
```
"""
DATA = {
    "suffice": "0.3.0",
    "n": 200,
    "rows": [{"label": "tasr", "f1": 0.3680000000000001}, {"label": "full", "f1": 0.1}],
}


@pytest.fixture
def folders(tmp_path) -> tuple[Path, Path]:
    both = tmp_path / "old", tmp_path / "new"
    for folder in both:
        folder.mkdir()
        (folder / "a.md").write_text(PAGE)
        (folder / "a.json").write_text(json.dumps(DATA))
    return both


def changed(folders, before: str, after: str, name: str = "a.md"):
    path = folders[1] / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    return compare_folders(*folders)[0]


def test_equal_folders_are_equal_and_pages_of_one_folder_are_named(folders, capsys):
    (folders[0] / "b.md").write_text("# B")
    assert main([str(folder) for folder in folders]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a.json: equal",
        "a.md: equal",
        "b.md: only in one folder, not compared",
    ]


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ("36.8", "37.0", "Results > Rules on _ questions > `tasr` > F1"),
        ("+4.7", "+4.9", "Results > Rules on _ questions > `tasr` > F1"),
        ("1,827", "1,828", "Results > Rules on _ questions > `tasr` > calls"),
        ("| 819 |", "| 820 |", "Results > Rules on _ questions > `tasr` #2 > calls"),
        ("fixed_k(4)", "fixed_k(3)", "Results > Rules on _ questions > `tasr` #2 > verdict"),
        ("| not dominated", "| dominated", "Results > Rules on _ questions > `tasr` > verdict"),
        ("Of 200", "Of 201", "Results > prose"),
        ("4.44", "4.46", "Results > prose"),
        ("9283a770224e0327", "1283a770224e0327", "Results > prose"),
        ("on 200", "on 201", "Results > Rules on _ questions > title"),
    ],
)
def test_a_figure_that_differs_is_found_at_its_place(folders, capsys, before, after, place):
    [difference] = changed(folders, before, after)
    assert (difference.place, difference.exact) == (place, True)
    assert main([str(folder) for folder in folders]) == 1
    assert f"a.md: {place}: " in capsys.readouterr().out


def test_a_row_or_a_table_that_is_missing_is_a_difference(folders):
    assert {d.new for d in changed(folders, "| `tasr` | 35.1 [-, -] | 819 | dominated by fixed_k(4) |\n", "")} == {
        "missing"
    }
    found = changed(folders, "**Rules on", "**Other rules on")
    assert sum(d.new == "missing" for d in found) == 7
    assert sum(d.old == "missing" for d in found) == 4


def test_the_last_printed_digit_undefined_ends_and_reworded_prose_are_no_difference(folders, capsys):
    [slight] = changed(folders, "36.8", "36.9")
    assert not slight.exact
    changed(folders, "[-, -]", "[n/a]")
    changed(folders, "Of 200 questions", "Among 200 questions")
    assert main([str(folder) for folder in folders]) == 0
    assert "a.md: equal, 1 in the last digit" in capsys.readouterr().out


def test_json_is_compared_by_key_and_what_a_rule_names_is_not(folders):
    assert changed(folders, '"0.3.0"', '"0.4.0"', "a.json") == []
    assert not changed(folders, "0.3680000000000001", "0.368", "a.json")[0].exact
    places = [d.place for d in changed(folders, '"f1": 0.1', '"f1": 0.1001', "a.json")]
    assert places == ["rows[tasr].f1", "rows[full].f1"]
    assert [d.place for d in changed(folders, "200", "201", "a.json") if d.exact] == ["n", "rows[full].f1"]
    assert all(rule.reason for rule in IGNORED)


def test_wrong_usage_is_said(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "usage" in capsys.readouterr().err
    assert figures("no tables, no figures") == {}
