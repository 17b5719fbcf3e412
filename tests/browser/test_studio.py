"""The studio in a real browser: a newcomer's folder, a recording, a walk, a policy, a log."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.studio import filled, opened_studio


class Visit:
    """A browser in a studio, with everything that it complained about."""

    def __init__(self, browser, address, **options):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.problems, self.requests = [], []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.context.on("weberror", lambda error: self.problems.append(str(error.error)))
        self.context.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        self.address = address
        self.page = self.tab()

    def tab(self):
        page = self.context.new_page()
        page.goto(self.address)
        return page


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with opened_studio(filled(tmp_path_factory.mktemp("studio"))) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    visits = []

    def start(where=address, **options):
        visits.append(Visit(browser, where, **options))
        return visits[-1]

    yield start
    for one in visits:
        assert one.problems == []
        own = where_from(one.address)
        assert all(where_from(url) == own for url in one.requests if not url.startswith("data:"))
        one.context.close()


def where_from(url):
    return url.split("/")[2]


def test_a_newcomers_folder_says_what_to_do_and_the_key_leaves_the_address(visit, tmp_path):
    with opened_studio(tmp_path) as address:
        page = visit(address).page
        assert page.url == f"{address.partition('/open')[0]}/"
        expect(page.locator(".headline")).to_contain_text("Nothing to look at yet")
        commands = page.locator(".command code").all_inner_texts()
        assert [command.split()[1] for command in commands] == ["demo", "import", "record"]
        (tmp_path / "run.csv").write_text("question,round,answer\nWhere?,1,Oslo\n")
        page.reload()
        expect(page.locator(".thing .name")).to_have_text("run.csv")
        assert "suffice import" in page.locator(".command code").inner_text()
