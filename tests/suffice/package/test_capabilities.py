"""The account of capabilities: nothing that release 0.4.0 could do is missing without a word."""

from __future__ import annotations

import json

import pytest
from scripts.capabilities import ACCOUNT, BEFORE, account, capabilities, listed, missing, unaccounted

OLD = {
    "commands": {"suffice": {}, "suffice replay": {"path": {"type": "str"}, "--stream": {"type": "bool"}}},
    "names": {"Rule": ["suffice"], "replay": ["suffice", "suffice.evaluation.replay"]},
    "formats": {"suffice.policy": 1},
    "registered": {"rule": ["tasr"]},
}
NEW = {
    "commands": {"suffice": {}, "suffice replay": {"path": {"type": "str"}}},
    "names": {"Rule": ["suffice.policy"], "evaluate": ["suffice"]},
    "formats": {"suffice.policy": 2},
    "registered": {"rule": ["tasr"]},
}
GONE = ["option replay --stream", "name replay"]


def entry(was: str, fate: str = "dropped", now: str = "") -> dict[str, str]:
    """Return an entry of an account."""
    return {"was": was, "fate": fate, "why": "a reason", **({"now": now} if now else {})}


@pytest.mark.whole
def test_every_capability_of_0_4_0_is_there_or_accounted_for():
    now = capabilities()
    before = json.loads(BEFORE.read_text("utf-8"))
    assert unaccounted(missing(before, now), account(ACCOUNT.read_text("utf-8")), now) == []


def test_the_list_of_0_4_0_holds_commands_options_names_and_formats():
    lines = listed(json.loads(BEFORE.read_text("utf-8")))
    some = {"command suffice decide", "option decide --max-loss", "argument decide path", "name Session", "extra ray"}
    some |= {"format suffice.recording", "rule tasr", "signal overlap", "entry point suffice.importers otlp"}
    assert some <= lines.keys()
    assert sum(line.startswith("option ") for line in lines) > 800


def test_what_is_missing_is_found_and_a_moved_name_is_not():
    assert missing(OLD, NEW) == GONE


def test_what_has_no_account_is_a_line():
    assert unaccounted(GONE, [entry("name replay", "renamed", "name evaluate")], NEW) == [GONE[0]]
    assert unaccounted(GONE, [entry("option * --stream"), entry("name rep*")], NEW) == []


def test_an_account_of_what_is_not_missing_is_a_line():
    (line,) = unaccounted([], [entry("name Rule")], NEW)
    assert "nothing of that name" in line


def test_an_account_that_names_what_is_not_there_is_a_line():
    (line,) = unaccounted(["name replay"], [entry("name replay", "renamed", "name measure")], NEW)
    assert "which there is not" in line


@pytest.mark.parametrize(
    "text",
    [
        'was = "name a"\nfate = "dropped"',
        'was = "name a"\nfate = "lost"\nwhy = "b"',
        'was = "name a"\nfate = "renamed"\nwhy = "b"',
        'was = "name a"\nfate = "dropped"\nwhy = "b"\nnow = "name c"',
        'was = "name a"\nfate = "dropped"\nwhy = "b"\nreason = "c"',
    ],
)
def test_an_account_that_says_too_little_is_refused(text):
    with pytest.raises(SystemExit, match="why"):
        account(f"[[account]]\n{text}")


def test_an_option_that_is_a_setting_now_has_one_account():
    now = {"commands": {"suffice": {}, "suffice replay": {"path": {}, "setting stream": {"table": "statistics"}}}}
    now |= {name: NEW[name] for name in NEW if name != "commands"}
    settings = entry("option *", "renamed", "setting *")
    assert unaccounted(GONE, [settings], now) == ["name replay"]
    assert GONE[0] in unaccounted(GONE, [settings], NEW)
