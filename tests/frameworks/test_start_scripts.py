"""The scripts of examples/start that need a framework print what docs/examples.md shows."""

import pytest
from scripts.examples_page import FRAMEWORKS, PAGE, SCRIPTS, differs, printed, shown_outputs

SHOWN = shown_outputs(PAGE.read_text("utf-8"))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_script_prints_what_the_page_shows(name, tmp_path):
    (script,) = (script for script in SCRIPTS if script.stem == name)
    said = printed(script, tmp_path)
    assert not differs(SHOWN[name], said), said
