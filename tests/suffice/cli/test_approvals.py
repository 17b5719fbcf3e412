"""A folder may come from somebody else: its `suffice.toml` sends no key that the user has not approved."""

from __future__ import annotations

import json
import os
import shlex
import stat

import pytest

from suffice.cli import approvals
from suffice.cli.approvals import Approval, approvals_file, approvals_here, is_loopback
from suffice.cli.tree import Command, commands
from suffice.errors import DataError
from suffice.loops.models._clients import checked_url
from tests.support.cli_tools import cli, corpus, dataset
from tests.support.endpoint import Endpoint, nobody

ELSEWHERE = "http://example.invalid:8443/v1"
ORIGIN = "http://example.invalid:8443"
RECORD = ("record", "q.jsonl", "-o", "run.parquet", "--limit", 1, "--set=timeout=5")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with questions, in which commands run, and keys in the environment."""
    dataset(tmp_path / "q.jsonl", n=1)
    corpus(tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OPENAI_API_KEY", "openai-secret")
    monkeypatch.setenv("MINE_API_KEY", "mine-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-secret")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path


@pytest.fixture
def sent(monkeypatch):
    """What goes to hosts elsewhere, by a proxy in front of them: no test needs a network to see that."""
    with Endpoint() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield Sent(proxy)


class Sent:
    """The keys that were sent since this was looked at last, with the host that each went to."""

    def __init__(self, proxy):
        self._proxy = proxy

    def taken(self):
        found = {
            (request.path.partition("/v1")[0], request.headers["authorization"]) for request in self._proxy.requests
        }
        self._proxy.requests.clear()
        return found


def settings(folder, url=ELSEWHERE, variable=None):
    lines = [f'base-url = "{url}"' * (url is not None), 'model = "m"', f'api-key-env = "{variable}"' * bool(variable)]
    (folder / "suffice.toml").write_text("\n".join(lines))


@pytest.mark.parametrize("variable", [None, "MINE_API_KEY"])
@pytest.mark.parametrize("words", [("doctor",), RECORD, ("answer", "Where?", "--corpus", "docs")])
def test_no_key_goes_where_a_file_says_before_the_user_approves(folder, sent, words, variable):
    settings(folder, variable=variable)
    refused = cli(*words, code=2)
    assert sent.taken() == set()
    text = " ".join(refused.error.split())
    for said in (str(folder), f"key in {variable or 'OPENAI_API_KEY'} to {ORIGIN}", "`suffice init --approve`"):
        assert said in text
    assert f"SUFFICE_APPROVE={variable or 'OPENAI_API_KEY'}@{ORIGIN}" in text
    assert "secret" not in refused.err


def test_an_approval_covers_exactly_one_host_port_and_variable(folder, sent):
    settings(folder, variable="MINE_API_KEY")
    approved = cli("init", "--approve", "--json")
    assert approved.json["approved"] == [{"folder": str(folder), "origin": ORIGIN, "variable": "MINE_API_KEY"}]
    assert stat.S_IMODE(approvals_file().stat().st_mode) == 0o600
    doctor = cli("doctor", "--json")
    assert doctor.json["approved"] == approved.json["approved"]
    assert sent.taken() == {(ORIGIN, "Bearer mine-secret")}
    assert f"MINE_API_KEY@{ORIGIN}" in cli("doctor").out
    sent.taken()
    for url, variable in (
        (ELSEWHERE.replace("8443", "8444"), "MINE_API_KEY"),
        (ELSEWHERE.replace("http:", "https:"), "MINE_API_KEY"),
        (ELSEWHERE.replace("example.", "example2."), "MINE_API_KEY"),
        (ELSEWHERE, None),
        (f"{ELSEWHERE},http://other.invalid/v1", "MINE_API_KEY"),
    ):
        settings(folder, url, variable)
        assert cli("doctor").code == 2, (url, variable)
    assert sent.taken() == set()


def test_another_folder_is_not_approved(folder, sent, monkeypatch):
    settings(folder)
    assert cli("init", "--approve").code == 0
    (folder / "other").mkdir()
    settings(folder / "other")
    monkeypatch.chdir(folder / "other")
    assert "which you have not approved" in " ".join(cli("doctor").error.split())
    assert approvals_here() == []
    assert sent.taken() == set()


def test_the_environment_approves_by_variable_and_origin(folder, sent, monkeypatch):
    settings(folder, variable="MINE_API_KEY")
    monkeypatch.setenv("SUFFICE_APPROVE", "OPENAI_API_KEY@http://example.invalid:8443")
    assert cli("doctor").code == 2
    assert sent.taken() == set()
    monkeypatch.setenv("SUFFICE_APPROVE", f"MINE_API_KEY@{ELSEWHERE} X_API_KEY@https://a.invalid")
    assert cli("doctor", "--json").json["approved"] == [
        {"folder": "", "origin": ORIGIN, "variable": "MINE_API_KEY"},
        {"folder": "", "origin": "https://a.invalid:443", "variable": "X_API_KEY"},
    ]
    assert sent.taken() == {(ORIGIN, "Bearer mine-secret")}
    monkeypatch.setenv("SUFFICE_APPROVE", "1")
    assert "expected NAME_API_KEY@https://host:443" in " ".join(cli("doctor").error.split())


def test_the_variable_that_a_refusal_prints_approves_as_a_shell_reads_it(folder, sent, monkeypatch):
    settings(folder, url="http://\u0430.invalid:8443/v1")
    printed = " ".join(cli("doctor").error.split()).partition("SUFFICE_APPROVE=")[2].partition(". To leave")[0]
    monkeypatch.setenv("SUFFICE_APPROVE", shlex.split(printed)[0])
    assert approvals.is_approved(Approval(str(folder), r"http://\u0430.invalid:8443", "OPENAI_API_KEY"))


def test_on_a_terminal_the_user_is_asked_once(folder, sent, monkeypatch):
    settings(folder, variable="MINE_API_KEY")
    asked, answers = [], iter([False, True])
    monkeypatch.setattr(approvals, "_is_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda text, **_: (asked.append(text), next(answers))[1])
    assert cli("doctor").code == 2
    assert sent.taken() == set()
    cli("doctor")
    cli("doctor")
    assert sent.taken() == {(ORIGIN, "Bearer mine-secret")}
    assert len(asked) == 2
    assert all(said in asked[0] for said in (str(folder), ORIGIN, "MINE_API_KEY"))


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "HOME", "MY_KEY", "API_KEY_2"])
def test_a_file_names_only_variables_that_hold_api_keys(folder, sent, variable):
    settings(folder, "http://127.0.0.1:9/v1", variable)
    refused = cli("doctor")
    assert f"names {variable!r}" in refused.error
    assert "end in _API_KEY" in " ".join(refused.error.split())
    (folder / "suffice.toml").unlink()
    assert "end in _API_KEY" in " ".join(cli("init", "--api-key-env", variable).error.split())
    assert not (folder / "suffice.toml").exists()
    assert sent.taken() == set()


def test_a_local_server_gets_the_usual_key_and_named_ones_once_approved(folder):
    with Endpoint() as endpoint:
        settings(folder, endpoint.url)
        assert cli("doctor", "--set=repeats=1").code == 0
        assert {request.headers["authorization"] for request in endpoint.requests} == {"Bearer openai-secret"}
        endpoint.requests.clear()
        settings(folder, endpoint.url, "MINE_API_KEY")
        assert cli("doctor", "--set=repeats=1").code == 2
        assert endpoint.requests == []
        assert cli("init", "--approve").code == 0
        assert cli("doctor", "--set=repeats=1").code == 0
        assert {request.headers["authorization"] for request in endpoint.requests} == {"Bearer mine-secret"}


def test_a_variable_alone_is_approved_for_the_endpoint_that_gets_it(folder, sent, monkeypatch):
    settings(folder, None, "MINE_API_KEY")
    assert "key in MINE_API_KEY to https://api.openai.com:443" in " ".join(cli("doctor").error.split())
    monkeypatch.setenv("OPENAI_BASE_URL", ELSEWHERE)
    assert f"key in MINE_API_KEY to {ORIGIN}" in " ".join(cli("doctor").error.split())
    assert sent.taken() == set()


def test_nothing_is_asked_without_a_key_or_with_an_endpoint_option(folder, sent, monkeypatch):
    settings(folder, variable="MINE_API_KEY")
    assert cli("doctor", "--base-url", ELSEWHERE, "--model", "m").code == 0
    assert sent.taken() == {(ORIGIN, "Bearer openai-secret")}
    settings(folder)
    monkeypatch.delenv("OPENAI_API_KEY")
    assert cli("doctor").code == 0
    assert sent.taken() == {(ORIGIN, "Bearer none")}


def test_approval_is_asked_for_the_key_of_a_judge_without_endpoint(folder, sent):
    settings(folder)
    assert cli("init", "--approve").code == 0
    judge = ("--judge-model", "j", "--set=judge-api-key-env=MINE_API_KEY")
    refused = " ".join(cli(*RECORD, *judge).error.split())
    assert f"key in MINE_API_KEY to {ORIGIN}" in refused
    assert "init --approve" not in refused  # it approves what the file says, and the file does not name this variable
    with nobody() as address:
        assert cli(*RECORD, *judge, f"--set=judge-base-url={address}").code == 1
    assert (ORIGIN, "Bearer mine-secret") not in sent.taken()


def test_a_judge_endpoint_in_a_table_is_asked_for_and_approved(folder, sent):
    (folder / "suffice.toml").write_text(f'[endpoint]\njudge-base-url = "{ELSEWHERE}"\n')
    with nobody() as address:
        judged = (*RECORD, "--base-url", address, "--model", "m", "--judge-model", "j")
        refused = cli(*judged, code=2)
        assert f"key in OPENAI_API_KEY to {ORIGIN}" in " ".join(refused.error.split())
        assert sent.taken() == set()
        assert cli("init", "--approve", "--json").json["approved"] == [
            {"folder": str(folder), "origin": ORIGIN, "variable": "OPENAI_API_KEY"}
        ]
        assert "which you have not approved" not in cli(*judged).error


def test_what_init_writes_is_approved(folder, sent):
    done = cli("init", "--base-url", ELSEWHERE, "--model", "m", "--api-key-env", "MINE_API_KEY", "--json")
    assert done.json["approved"] == [{"folder": str(folder), "origin": ORIGIN, "variable": "MINE_API_KEY"}]
    assert cli("doctor").code == 0
    assert sent.taken() == {(ORIGIN, "Bearer mine-secret")}
    assert "file that is" in cli("init", "--approve", "--model", "m").error
    (folder / "suffice.toml").unlink()
    assert cli("init", "--approve").code == 2


def test_a_damaged_list_of_approvals_approves_nothing(folder, sent):
    settings(folder)
    approvals_file().parent.mkdir(parents=True)
    listed = '[{"folder": %s, "origin": "http://a:80", "variable": "A_API_KEY"}]'
    for text in ("[", "{}1", "{}", '[{"folder": "/"}]', "[3]", listed % 1, listed % '["/"]'):
        approvals_file().write_text(text)
        assert "not a list of approvals" in " ".join(cli("doctor").error.split())
        assert "not a list of approvals" in " ".join(cli("init", "--approve").error.split())
    assert sent.taken() == set()


def test_where_the_user_has_no_home_the_environment_approves_still(folder, monkeypatch):
    settings(folder)

    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.home", nowhere)
    assert "set HOME or XDG_CONFIG_HOME" in " ".join(cli("init", "--approve").error.split())
    wanted = Approval(str(folder), ORIGIN, "OPENAI_API_KEY")
    with pytest.raises(DataError, match="XDG_CONFIG_HOME"):
        approvals.is_approved(wanted)
    monkeypatch.setenv("SUFFICE_APPROVE", f"OPENAI_API_KEY@{ORIGIN}")
    assert approvals.is_approved(wanted)


def test_approvals_are_kept_in_the_configuration_of_the_user(folder, monkeypatch):
    home = os.environ["XDG_CONFIG_HOME"]
    assert str(approvals_file()) == f"{home}/suffice/approved.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", ".")  # a relative one is to be ignored: it would be the folder's
    monkeypatch.setenv("HOME", str(folder / "home"))
    assert approvals_file() == folder / "home" / ".config" / "suffice" / "approved.json"
    approvals.approve([Approval("/a", ORIGIN, "X_API_KEY")])
    assert json.loads(approvals_file().read_text())[0]["folder"] == "/a"


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("http://localhost:8080/v1", True),
        ("http://LOCALHOST/v1", True),
        ("http://127.0.0.1:1/v1", True),
        ("http://127.8.9.1/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://[::ffff:127.0.0.1]/v1", True),
        ("http://[::ffff:10.0.0.1]/v1", False),
        ("http://127.0.0.1.evil.com/v1", False),
        ("http://localhost.evil.com/v1", False),
        ("http://evil.com/localhost", False),
        ("http://0.0.0.0/v1", False),
        ("http://127.1/v1", False),
        ("http://2130706433/v1", False),
        ("http://10.0.0.1/v1", False),
        ("http://l\u043ecalhost/v1", False),
    ],
)
def test_only_an_address_of_this_machine_is_loopback(url, is_here):
    assert is_loopback(checked_url(url)) is is_here


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1@evil.com/v1", "http://127.0.0.1\\@evil.com/v1", "http://a#@b", "http://"),
        *("https://evil.com,http://\x1b[2K\x1b[1Gmine.com", "http://a\x00b", "http://a b"),
    ],
)
def test_an_address_that_another_program_may_read_otherwise_is_refused(folder, sent, url):
    (folder / "suffice.toml").write_text(f"base-url = {json.dumps(url)}\nmodel = 'm'\n")
    assert cli("doctor").code == 1
    assert cli("init", "--approve").code == 1
    assert sent.taken() == set()


def test_every_command_that_takes_an_endpoint_asks():
    endpoints = [
        (words, type(command)) for words, command in commands() if "base_url" in {p.name for p in command.params}
    ]
    assert len(endpoints) > 8
    # `init` is given one to write it down.
    assert {kind for words, kind in endpoints} == {Command}
