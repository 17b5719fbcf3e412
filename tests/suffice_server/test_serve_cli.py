"""`suffice serve` as a process: its start, its end, and what it refuses to start with."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from playwright._impl._driver import compute_driver_executable

from suffice import Policy
from suffice_server.serve.document import schemas_for
from suffice_server.serve.guard import Limits
from tests.support.cli_tools import cli
from tests.support.serving import ending

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "policies"
    path.mkdir()
    Policy(rule="answer_stable", max_rounds=4).save(path / "stable.json")
    return path


def started(folder, *options, **environment):
    """Start the server and return the process with its address."""
    command = [sys.executable, "-m", "suffice", "serve", str(folder), "--port", "0", *map(str, options)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    line = process.stdout.readline()
    match = re.search(r"at (http://\S+),", line)
    assert match, line + process.stderr.read()
    return process, match[1]


@pytest.mark.whole
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_starts_answers_and_ends(folder, tmp_path, number):
    process, url = started(folder, f"--set=sessions={tmp_path / 's.sqlite'}", SUFFICE_TOKEN=TOKEN)
    with ending(process), httpx.Client(base_url=url, timeout=600) as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/v1/policies").status_code == 401
        body = {"policy": "stable", "rounds": [{"answer": "a"}, {"answer": "a"}]}
        headers = {"authorization": f"Bearer {TOKEN}"}
        response = client.post("/v1/decide", json=body, headers=headers)
        assert response.json()["stop_round"] == 2
        assert "server" not in response.headers
        (folder / "broken").write_text("{")
        (folder / "broken").rename(folder / "broken.json")  # at once: each state that it sees is a warning
        while client.get("/ready").json()["broken"] != ["broken"]:
            time.sleep(0.1)
        process.send_signal(number)
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out) == (0, "")
        assert re.fullmatch(r"\S+ \S+ WARNING the policy file broken.json does not load: .* is not JSON: .*\n", err), (
            err
        )


CLIENT = Path(__file__).resolve().parents[2] / "examples" / "typescript" / "client.ts"


@pytest.mark.whole
def test_the_client_in_typescript_gets_its_decision_by_node(folder, tmp_path):
    """With the node that playwright brings, which runs TypeScript as it is."""
    node, _ = compute_driver_executable()
    environment = {**os.environ, "SUFFICE_TOKEN": TOKEN}
    process, url = started(folder, SUFFICE_TOKEN=TOKEN)
    with ending(process):
        done = subprocess.run(
            [node, CLIENT],
            env={**environment, "SUFFICE_URL": url},
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        decided = json.loads(done.stdout)
        assert (decided["stop_round"], decided["answer"], decided["reason"]) == (3, "Oslo", "rule")
        environment["SUFFICE_TOKEN"] = "another token, which is wrong"
        refused = subprocess.run(
            [node, CLIENT],
            env={**environment, "SUFFICE_URL": url},
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert "another token" in refused.stderr
        process.terminate()


def test_the_types_of_the_client_are_those_of_the_document():
    names = re.search(r"type Decided = \{(.*?)\}", CLIENT.read_text("utf-8"))[1]
    fields = dict(field.strip().split(": ") for field in names.split(";") if field.strip())
    kinds = {"string": "string", "boolean": "boolean", "number": "integer", "null": "null"}
    described = schemas_for(Limits())["Decided"]["properties"]
    for name, kind in fields.items():
        ours = described[name]["type"]
        assert {kinds[word] for word in kind.split(" | ")} == {*([ours] if isinstance(ours, str) else ours)}, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "the server needs a token: set SUFFICE_TOKEN, or give --token-file"),
        (["--no-token", "--host", "0.0.0.0"], "--no-token is allowed on this machine only, not with --host 0.0.0.0"),
        (["--token-file", "none"], "the token file 'none' cannot be read"),
        (["--no-token", "--host", "no.such.host.invalid"], "--no-token is allowed on this machine only"),
        (["--token", TOKEN], "No such option: --token"),
    ],
)
def test_a_server_that_everybody_could_ask_does_not_start(folder, options, message, monkeypatch):
    monkeypatch.delenv("SUFFICE_TOKEN", raising=False)
    result = cli("serve", folder, *options)
    assert result.code != 0
    assert message in result.err
    assert TOKEN not in result.err or "--token" in options


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    result = cli("serve", tmp_path / "none", "--no-token")
    assert result.code != 0
    assert "the folder of policies cannot be read" in result.err


def test_an_unwritable_place_for_sessions_or_logs_is_an_error(folder, tmp_path):
    (tmp_path / "text").write_text("not a database, and long enough to have a header of one" * 5)
    for options in (
        [f"--set=sessions={tmp_path / 'text'}"],
        [f"--set=sessions={tmp_path / 'none' / 's'}"],
        ["--log", tmp_path / "text"],
    ):
        result = cli("serve", folder, "--no-token", "--port", "0", *options, code=1)
        assert "error: " in result.err
        assert "internal" not in result.err
        assert "[Errno" not in result.err
    both = cli("serve", folder, "--no-token", "--token-file", tmp_path / "text")
    assert "give one of the two" in both.err
    assert "give --log FOLDER" in cli("serve", folder, "--no-token", "--audit-rate", "0.5").err


@pytest.mark.whole
def test_a_file_of_prices_that_cannot_be_read_is_an_error(folder, tmp_path):
    result = cli("serve", folder, "--no-token", "--port", "0", "--set", f"price-file={tmp_path / 'none.toml'}", code=2)
    assert "none.toml' cannot be read" in result.err.replace("\n", " ")


@pytest.mark.whole
def test_without_its_extra_it_says_what_to_install(folder):
    code = (
        "import sys\nfor name in ('starlette', 'uvicorn', 'prometheus_client'): sys.modules[name] = None\n"
        f"from suffice.cli.main import run; run(['serve', {str(folder)!r}, '--no-token'])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "suffice-server" in done.stderr
    assert json.dumps("Traceback")[1:-1] not in done.stderr
