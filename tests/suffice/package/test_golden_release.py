"""The comparison with release 0.4.0: what is computed in seconds is equal, and a difference cannot hide."""

from __future__ import annotations

import json

import pytest
from scripts.golden_cases import CASES, FAST
from scripts.golden_release import (
    ABSENT,
    FOLDER,
    Difference,
    compared,
    differences,
    expected,
    known_changes,
    normalised,
    same,
    unexplained,
    written,
)

KNOWN = expected('[[expected]]\nstep = "new draws"\nwhy = "order"\npaths = ["replay/*/interval/*"]')


@pytest.mark.whole
def test_what_takes_seconds_equals_release_0_4_0():
    assert unexplained(compared(FAST), *known_changes(), FAST) == []


def test_every_case_has_a_golden_file_and_every_file_a_case():
    assert {path.stem for path in FOLDER.glob("*.json")} - {"accepted"} == CASES.keys()


def test_every_accepted_path_is_expected():
    known, accepted = known_changes()
    lost = unexplained([Difference(path, 1, value) for path, value in accepted.items()], known, accepted, ())
    assert lost == []


def test_golden_files_are_strict_json_without_failed_cases():
    for path in FOLDER.glob("*.json"):
        assert "raised" not in json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        (0.1, 0.1 + 1e-12, True),
        (0.1, 0.1001, False),
        (1, 1.0, True),
        (1, True, False),
        (None, 0, False),
        ("a", "b", False),
        ([1.0, {"a": 2}], [1.0, {"a": 2}], True),
        ([1.0], [1.0, 1.0], False),
    ],
)
def test_values_are_the_same_within_the_tolerance(before, after, is_same):
    assert same(before, after) is is_same


def test_a_demo_may_differ_by_the_kernels_of_its_model():
    assert [*differences(2.380423, 2.380418, "demo/x")] == []
    assert [*differences(2.380423, 2.380418, "decide/x")] != []
    assert [*differences(2.381, 2.380, "demo/x")] != []


def test_rows_are_compared_by_their_label_wherever_they_stand():
    old = [{"label": "full", "f1": 0.5}, {"label": "tasr", "f1": 0.4}]
    new = [{"label": "best", "f1": 0.6}, {"label": "full", "f1": 0.5}, {"label": "tasr", "f1": 0.3}]
    assert [*differences(old, new, "rows")] == [
        Difference("rows/tasr/f1", 0.4, 0.3),
        Difference("rows/best", ABSENT, {"label": "best", "f1": 0.6}),
    ]


def test_rows_in_another_order_are_one_difference():
    old, new = [{"label": "a"}, {"label": "b"}], [{"label": "b"}, {"label": "a"}]
    assert [*differences(old, new, "rows")] == [Difference("rows/order", ["a", "b"], ["b", "a"])]


def test_a_branch_that_is_missing_is_one_difference():
    assert [*differences({"a": {"b": 1, "c": 2}}, {}, "x")] == [Difference("x/a", {"b": 1, "c": 2}, ABSENT)]


def test_durations_versions_hashes_and_folders_are_left_out():
    text = f"suffice 0.4.0 took 3.2 s at /{'home'}/me/run.parquet (9283a770224e0327ab) on 2026-01-31, at 2026-02-01 09:20 UTC"
    assert normalised({"seconds": 3.2, "note": text}) == {
        "note": "suffice VERSION took N s at FOLDER/run.parquet (HASH) on DATE, at DATE"
    }


def test_a_threshold_in_a_rule_is_no_hash():
    assert normalised("p_correct > 0.43398461538461536") == "p_correct > 0.433984615"


@pytest.mark.parametrize("change", [(3, 9.5), (90, -1.0), (40, float("nan"))])
def test_a_change_anywhere_in_a_long_list_shows(change):
    values = [number / 7 for number in range(100)]
    place, value = change
    changed = [*values[:place], value, *values[place + 1 :]]
    assert not same(normalised(values), normalised(changed))


def test_two_texts_that_change_places_in_a_long_list_show():
    names = [f"q{number}" for number in range(50)]
    assert not same(normalised(names), normalised([*names[:30], names[31], names[30], *names[32:]]))


def test_a_difference_that_nothing_expects_is_a_line():
    lines = unexplained([Difference("replay/a/mean", 1.0, 2.0)], KNOWN, {}, ["replay"])
    assert lines == ["replay/a/mean: 1.0 -> 2.0"]


def test_a_line_shows_long_texts_where_they_differ():
    shown = str(Difference("a", "x" * 500 + "before", "x" * 500 + "after"))
    assert "before" in shown
    assert "after" in shown
    assert len(shown) < 120


def test_an_expected_difference_needs_its_accepted_value():
    found = [Difference("replay/a/interval/0", 1.0, 2.0)]
    assert "not accepted yet" in unexplained(found, KNOWN, {}, ["replay"])[0]
    assert unexplained(found, KNOWN, {"replay/a/interval/0": 2.0}, ["replay"]) == []
    assert unexplained(found, KNOWN, {"replay/a/interval/0": 3.0}, ["replay"]) == [
        "replay/a/interval/0: 3.0 since 'new draws' -> 2.0"
    ]


def test_an_accepted_value_that_no_longer_differs_is_a_line():
    assert "again" in unexplained([], KNOWN, {"replay/a/interval/0": 2.0}, ["replay"])[0]
    assert unexplained([], KNOWN, {"replay/a/interval/0": 2.0}, ["search"]) == []


def test_an_expected_change_without_a_reason_is_refused():
    with pytest.raises(SystemExit, match="why"):
        expected('[[expected]]\nstep = "s"\nwhy = ""\npaths = ["a"]')


def test_what_is_written_reads_back_the_same():
    value = {"a": {"b": [1, 2.5, None], "c": {}}, "d": [], "e": "x"}
    assert json.loads(written(value)) == value
