"""Every promise of SECURITY.md is held by a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_promise_names_a_test_that_exists():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [
        line for line in text.splitlines() if line.startswith("| ") and "---" not in line and "| test |" not in line
    ]
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) == len(rows) > 20
    for file, name in named:
        assert re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), name
