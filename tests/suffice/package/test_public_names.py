"""No public name goes without a word: what semantic versioning promises, as docs/reference/versions.md says it."""

import pytest
from scripts.capabilities import capabilities
from scripts.public_names import CHANGELOG, public, sections, stored, unannounced

GONE = "suffice.Old"
BEFORE = [GONE, "suffice replay --rule"]


def changelog(work="1.0.0", under="Dropped", name=GONE, earlier=""):
    said = f"## {work}\n\n**{under}**\n\n- `{name}`: use `suffice.New`.\n\n**New**\n\n- `suffice.New`.\n\n"
    return f"# Changelog\n\n{said}## 0.9.0\n\n**Deprecated**\n\n- {earlier}\n"


def refused(text, release="0.9.0", version="1.0.0", now=BEFORE[1:]):
    return unannounced(BEFORE, now, text, release, version)


@pytest.mark.whole
def test_no_public_name_of_the_last_release_went_without_a_word():
    found = capabilities()
    release, before = stored()
    assert len(before) > 2000
    assert unannounced(before, list(public(found)), CHANGELOG.read_text("utf-8"), release, found["release"]) == []


def test_the_list_holds_names_commands_options_settings_and_formats():
    _, names = stored()
    some = {
        "suffice.Policy",
        "suffice.policy.rules.Rule",
        "suffice_server.studio.studio_app",
        "suffice decide --max-loss",
    }
    some |= {"suffice replay --set seed", "format suffice.policy 1", "rule tasr", "extra endpoint", "metric em"}
    assert some <= set(names)
    assert [name for name in names if "._" in name] == ["suffice.__version__"]


@pytest.mark.parametrize("under", ["Dropped", "Renamed"])
def test_a_name_may_go_before_1_0_if_the_changelog_says_so(under):
    assert refused(changelog(under=under)) == []


@pytest.mark.parametrize("text", [changelog(under="New"), changelog(name="suffice.Olde"), changelog(name="Old")])
def test_a_name_that_goes_without_a_word_is_a_line(text):
    (line,) = refused(text)
    assert GONE in line


def test_what_an_earlier_version_dropped_does_not_count():
    (line,) = refused("## 1.0.0\n\n- more\n\n" + changelog("0.9.0"))
    assert GONE in line


def test_no_name_goes_within_a_major_version():
    text = changelog("1.1.0", earlier=f"`{GONE}`")
    (line,) = refused(text, "1.0.0", "1.1.0")
    assert "keep it" in line
    assert refused(text, "1.0.0rc1", "1.1.0") == []
    assert refused(text, "1.0.0", "1.1.0", BEFORE) == []


def test_a_major_version_drops_only_what_was_deprecated():
    assert refused(changelog("2.0.0", earlier=f"`{GONE}`"), "1.4.0", "2.0.0") == []
    (line,) = refused(changelog("2.0.0"), "1.4.0", "2.0.0")
    assert "Deprecated" in line


def test_a_changelog_that_does_not_begin_with_the_version_is_refused():
    (line,) = refused(changelog("0.9.9"))
    assert "0.9.9" in line
    assert refused("nothing")


def test_the_sections_of_a_changelog_have_their_paragraphs_by_heading():
    (first, paragraphs), (second, _) = sections(changelog())
    assert (first, second) == ("1.0.0", "0.9.0")
    assert list(paragraphs) == ["Dropped", "New"]


def test_a_new_version_of_a_format_is_another_name():
    assert list(public({"formats": {"suffice.policy": 2, "x": None}})) == ["format suffice.policy 2"]
