"""The pages of the site that are no files: one for each command and each face, and links to files outside docs/."""

import importlib
import importlib.util
from pathlib import Path

import pytest
from scripts.command_outputs import examples

from suffice.cli.tree import TREE

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts" / "site_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_public_name_is_described_once(site):
    described = [name for names in site.faces().values() for name in names]
    assert len(described) == len(set(described))
    for module, names in site.faces().items():
        face = importlib.import_module(module)
        assert set(names) <= set(face.__all__)
    assert {"decide", "Session", "certify", "import_recording"} <= set(site.faces()["suffice"])


def test_each_command_has_a_page_with_its_help(site):
    page = site.command_text("data signals")
    assert page.startswith("# suffice data signals")
    assert "$ suffice data signals" in page
    assert "--details" in page.partition("## Help")[2]


def test_outputs_belong_to_commands_that_exist(site):
    known = {words for words, _ in examples() if words}
    assert {path.stem for path in site.OUTPUTS.glob("*.txt")} <= {words.replace(" ", "-") for words in known}
    assert all(words in TREE or words in site._commands() for words in known)


def test_links_to_files_outside_docs_lead_to_published_files(site):
    class Page:
        class file:
            src_uri = "how-to/serve.md"

    links = "[s](../../SECURITY.md#servers) [r](../reference/rules.md) [w](https://e.org/a)"
    assert site.on_page_markdown(links, Page) == links.replace("../../", "../files/")
    code = "```python\nrun[name](event)\n``` and `run[name](event)`"
    assert site.on_page_markdown(code, Page) == code
    assert site.on_page_markdown("in [examples](../../examples)", Page) == "in examples"
    assert "SECURITY.md" in site.linked_outside()


def test_navigation_lists_every_page_of_docs(site):
    class Config:
        nav = None

    def pages(nav):
        for entry in nav:
            if isinstance(entry, str):
                yield entry
            else:
                yield from (
                    page for below in entry.values() for page in pages([below] if isinstance(below, str) else below)
                )

    listed = list(pages(site.on_config(Config).nav))
    written = {path.relative_to(site.DOCS).as_posix() for path in site.DOCS.rglob("*.md")}
    assert written <= set(listed)
    assert len(listed) == len(set(listed))
