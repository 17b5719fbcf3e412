"""The container file, held against the package: it is built where docker is (`.ci/full`), and its statements are checked here."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from suffice.cli.tree import commands
from suffice_server.serve.app import make_app
from suffice_server.serve.guard import Limits
from suffice_server.serve.policies import PolicyFolder
from suffice_server.serve.service import Service
from suffice_server.serve.sessions import SessionStore
from tests.support.serving import running

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packages" / "suffice-server"
LINES = re.sub(r"\\\n", " ", (FOLDER / "Dockerfile").read_text("utf-8")).splitlines()


def statement(name):
    """Return what the last statement of a name says."""
    return [line.partition(" ")[2].strip() for line in LINES if line.startswith(f"{name} ")][-1]


def option(name):
    words = json.loads(statement("CMD"))
    return words[words.index(name) + 1]


def test_the_container_starts_a_command_with_options_that_exist():
    (program,) = json.loads(statement("ENTRYPOINT"))
    assert program in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    name, *words = json.loads(statement("CMD"))
    dict(commands())[name].make_context(name, [*words])
    assert {words[0], option("--log")} == set(json.loads(statement("VOLUME")))


def test_the_container_serves_the_port_that_it_exposes_and_asks():
    assert statement("EXPOSE") == option("--port")
    assert f"127.0.0.1:{option('--port')}/health" in statement("HEALTHCHECK")
    assert option("--host") == "0.0.0.0"


def test_the_container_runs_as_nobody_in_particular_who_owns_the_log():
    user = statement("USER")
    assert all(int(number) >= 1000 for number in user.split(":"))
    assert f"chown {user} {option('--log')}" in statement("RUN")


def test_the_container_has_a_python_that_the_packages_name():
    (release,) = {re.match(r"python:(3\.\d+)-slim", line.split()[1])[1] for line in LINES if line.startswith("FROM ")}
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert f"Programming Language :: Python :: {release}" in named


def test_the_context_has_all_that_the_packages_are_built_from():
    kept = {line[1:] for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"pyproject.toml", "src", "packages/suffice-server", project["readme"], *project["license-files"]} == kept
    assert all((ROOT / name).exists() for name in kept)


@pytest.mark.whole
def test_the_health_check_passes_while_it_serves_and_fails_after(tmp_path):
    check = json.loads(statement("HEALTHCHECK").partition("CMD ")[2])
    limits = Limits()
    service = Service(PolicyFolder(tmp_path), SessionStore(None, limits))
    with contextlib.closing(service.store), running(make_app(service, limits, token="secret")) as url:
        here = [word.replace(f"http://127.0.0.1:{option('--port')}", url) for word in check]
        assert subprocess.run([sys.executable, *here[1:]], check=False).returncode == 0, shlex.join(here)
    assert subprocess.run([sys.executable, *here[1:]], check=False, capture_output=True).returncode == 1
