"""The screen of `decide` in the studio: the command itself, in a process that ends with the page."""

from __future__ import annotations

import asyncio
import json
import sys

import httpx
import psutil
import pytest

from tests.support.cli_tools import cli
from tests.support.studio import filled, opened_studio

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("deciding"))


@pytest.fixture(scope="module")
def inside(folder):
    with opened_studio(folder) as address, httpx.Client(base_url=address.partition("/open")[0], timeout=600) as client:
        client.get(address)
        yield client


@pytest.fixture(scope="module")
def address(inside):
    page = inside.get("/").text.partition("<bdi>eval.parquet</bdi>")[0]
    return "/recording/" + page.rpartition("/recording/")[2].partition('"')[0] + "/decide"


def test_the_advice_is_that_of_the_command_after_lines_of_progress(inside, address, folder, tmp_path):
    options = {"metric": "em", "max_loss": "3.5", "baseline": "fixed_k(4)"}
    *progress, last = map(json.loads, inside.get(f"{address}/advice", params=options).text.splitlines())
    assert progress
    assert all(set(line) == {"seconds"} for line in progress)
    given = ["--metric", "em", "--max-loss", "0.035", "--baseline", "fixed_k(4)"]
    wanted = cli("decide", folder / "eval.parquet", *given, "-o", tmp_path / "decision.json", "--json").json
    assert last["sentence"] == wanted["sentence"]
    assert f'data-verdict="{wanted["verdict"]}"' in last["html"]
    assert "--max-loss=0.035" in last["html"]
    assert "-3.5 and 0 are |" not in last["html"]  # drawn for terminals; the page has the chart
    assert 'scope="col">verdict' in last["html"] or "verdict</th>" in last["html"]
    assert last["chart"]["layer"]
    assert not list(folder.glob("decision*"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_loss": "much"}, "'much' is not a number"),
        ({"metric": "--help"}, "--help"),
        ({"tune": "../../etc/passwd"}, "not in the folder"),
        ({"metric": "em\0"}, "characters that are not printed"),
    ],
)
def test_what_cannot_be_decided_is_said(inside, address, options, problem):
    last = json.loads(inside.get(f"{address}/advice", params=options).text.splitlines()[-1])
    assert problem in last["problem"]


def test_a_page_that_goes_away_ends_the_process(inside, address, monkeypatch):
    start, started = asyncio.create_subprocess_exec, []

    async def endless(*_, **options):
        process = await start(sys.executable, "-c", "import time; time.sleep(3600)", **options)
        started.append(psutil.Process(process.pid))
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", endless)
    with inside.stream("GET", f"{address}/advice") as response:
        lines = response.iter_lines()  # once this is forgotten, the connection is closed
        assert "seconds" in next(lines)
    gone, _ = psutil.wait_procs(started, timeout=600)
    assert gone == started != []
