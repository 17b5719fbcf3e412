"""The forms for issues: they are forms as the hosting service reads them, and the commands that they name exist."""

import re
from pathlib import Path

import pytest
import yaml

from suffice.cli.tree import commands

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".github" / "ISSUE_TEMPLATE"
FORMS = sorted(path.stem for path in FOLDER.glob("*.yml") if path.stem != "config")
TYPES = {"textarea", "input", "dropdown"}


@pytest.mark.parametrize("name", FORMS)
def test_an_issue_form_asks_for_what_its_reader_needs(name):
    assert FORMS == ["bug", "feature", "misread_log"]
    form = yaml.safe_load((FOLDER / f"{name}.yml").read_text("utf-8"))
    assert form.keys() == {"name", "description", "labels", "body"}
    ids = [part["id"] for part in form["body"]]
    assert len(ids) == len(set(ids))
    assert any(part.get("validations", {}).get("required") for part in form["body"])
    for part in form["body"]:
        assert part["type"] in TYPES
        assert part["attributes"]["label"]
        assert (part["type"] == "dropdown") == ("options" in part["attributes"])


@pytest.mark.parametrize("name", FORMS)
def test_the_commands_and_pages_of_a_form_exist(name):
    text = (FOLDER / f"{name}.yml").read_text("utf-8")
    for words in re.findall(r"`suffice ((?:[a-z]+ )+)", text):
        assert words.strip() in dict(commands()), words
    for page in re.findall(r"docs/[\w/-]+\.md", text):
        assert (ROOT / page).is_file()
