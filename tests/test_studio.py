"""The studio without a browser: who may open it, what it lists, and how fast it finds a question among many."""

from __future__ import annotations

import httpx
import pytest

from suffice.studio import Folder
from suffice.studio.door import HEADERS
from tests.studio import TOKEN, filled, opened_studio


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("studio"))


@pytest.fixture(scope="module")
def address(folder):
    with opened_studio(folder) as address:
        yield address


@pytest.fixture
def client(address):
    with httpx.Client(base_url=address.partition("/open")[0], timeout=60) as client:
        yield client


@pytest.fixture
def inside(client, address):
    client.get(address)
    return client


@pytest.mark.whole
@pytest.mark.parametrize("path", ["/", "/static/studio.js", "/open", "/open?token=another", "/recording/x"])
def test_nothing_is_shown_without_the_key(client, path):
    response = client.get(path)
    assert (response.status_code, TOKEN in response.text, "eval" in response.text) == (403, False, False)


@pytest.mark.whole
def test_the_key_becomes_a_cookie_that_no_other_site_can_send(client, address):
    response = client.get(address)
    cookie = response.headers["set-cookie"].lower()
    assert (response.status_code, response.headers["location"]) == (303, "/")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    page = client.get("/")
    assert page.status_code == 200
    assert TOKEN not in page.text
    assert {name: page.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.whole
@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}, {"host": ""}]
)
def test_another_name_or_page_is_refused_even_with_the_key(inside, headers):
    assert inside.get("/", headers=headers).status_code == 403


def test_a_folder_lists_everything_by_kind_and_damaged_files_with_their_error(folder):
    items = {item.name: item for item in Folder(folder).scan()}
    assert {name: item.kind for name, item in items.items()} == {
        "cut.parquet": "recording",
        "eval.parquet": "recording",
        "judged/june.parquet": "recording",
        "questions.jsonl": "questions",
        "rounds.csv": "import",
        "stable.json": "policy",
        "tasr.json": "policy",
    }
    assert "cannot be read as parquet" in items["cut.parquet"].error
    assert items["eval.parquet"].line.startswith("150 questions, rounds 1 to 5, f1 ")
