"""The comparison of all recordings: its files, its choice on one part, and the page."""

import pytest
from benchmarks.which_loops.__main__ import FILES, PAGE, Described, chosen, found, main

from suffice import decide
from suffice.errors import DataError
from suffice.recordings import bundled_recording
from suffice.recordings.bundled import ALL_BUNDLED
from suffice.verdicts.decisions.candidates import is_fixed_budget

DESCRIBED = [Described.read(path) for path in sorted(FILES.glob("*.toml"))]


def test_every_bundled_recording_has_its_row():
    named = {name for one in DESCRIBED for name in (one.bundled, one.tune)}
    assert set(ALL_BUNDLED) - named == {"checked_loops_loopgain"}  # ended by another rule: what it cut off is unknown


@pytest.mark.parametrize("one", DESCRIBED, ids=lambda one: one.name)
def test_each_source_and_licence_are_on_the_page(one):
    page = PAGE.read_text("utf-8")
    assert all(text in page for text in (one.title, one.source, one.licence, one.metric))


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ('loop = "drafts"', "metric"),
        ('loop = "a"\ntitle = "b"\nmetric = "em"\nsource = "c"\nlicence = "d"', "bundled"),
        ('loop = "a"\ntitle = "b"\nmetric = "em"\nsource = "c"\nlicence = "d"\nfile = "e"\ncolour = "f"', "colour"),
        ('loop = "a"\ntitle = "b"\nmetric = "em"\nsource = "c"\nlicence = "d"\nfile = "e"\nmade_by = "f"', "folder"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, lines, word):
    (tmp_path / "one.toml").write_text(lines)
    with pytest.raises(DataError, match=word):
        Described.read(tmp_path / "one.toml")


def test_a_name_without_a_file_is_refused():
    with pytest.raises(DataError, match="no nothing"):
        main(["--only", "nothing"])


def test_budget_and_rule_come_from_the_choosing_questions():
    described = next(one for one in DESCRIBED if one.name == "thoughts")
    result = found(described)
    advice = decide(bundled_recording("thoughts_tune"), metric="em", max_loss=0.02, cost="tokens")
    budget, rule = chosen(advice)
    assert result.rule is not None
    assert rule is not None
    assert result.rule.rule == str(rule.rule)
    assert budget is not None
    assert is_fixed_budget(budget) or budget.label.startswith("token_budget")
    assert not is_fixed_budget(rule)
    assert result.n == 700
