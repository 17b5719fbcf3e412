"""`suffice.toml` and `suffice init`: what commands take where an option is not given."""

from __future__ import annotations

import tomllib

import pytest

from suffice.cli.settings import KEYS, settings_text
from suffice.cli.tree import commands
from suffice.recordings import write_recording
from tests.suffice.verdicts.test_decide import converged_at_2, log_of
from tests.support.cli_tools import cli


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with logs, in which commands run."""
    log = log_of(200, converged_at_2)
    write_recording(tmp_path / "logs.parquet", log.table, log.metadata)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_key_is_an_option_or_argument_of_some_command():
    names = set()
    for _, command in commands():
        for parameter in command.params:
            argument = parameter.param_type_name == "argument"
            names |= {(parameter.metavar or parameter.name).lower()} if argument else set(parameter.opts)
    assert {key for key in KEYS if key not in names and f"--{key}" not in names} == set()


def test_values_of_the_file_are_taken_and_named_and_options_win(folder):
    (folder / "suffice.toml").write_text('recording = "logs.parquet"\nmax-loss = 0.3\n')
    done = cli("decide", "--metric", "quality", "--json")
    assert done.json["trial"]["max_loss"] == 0.3
    assert "note: from suffice.toml: recording logs.parquet, max-loss 0.3" in done.err.replace("\n", " ")
    other = cli("decide", "logs.parquet", "--metric", "quality", "--max-loss", "0.2", "-o", "b.json", "--json")
    assert other.json["trial"]["max_loss"] == 0.2
    assert "suffice.toml" not in other.err


def test_an_earlier_decision_overrides_the_file_and_refuses_conflicting_options(folder):
    assert cli("decide", "logs.parquet", "--metric", "quality", "--max-loss", "0.2").code == 0
    (folder / "suffice.toml").write_text("max-loss = 0.3\n")
    assert cli("decide", "logs.parquet", "--json").json["trial"]["max_loss"] == 0.2
    assert "max_loss" in cli("decide", "logs.parquet", "--max-loss", "0.1").error


def test_the_endpoint_of_the_file_is_one_thing(folder, monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    (folder / "suffice.toml").write_text('base-url = "http://127.0.0.1:9/v1"\nmodel = "m"\nprices = "list"\n')
    assert "http://127.0.0.1:9/v1" in cli("doctor", "--json").err
    # Where tokens are priced, --model is another thing; and a model that is given is not the file's endpoint's.
    priced = cli("decide", "logs.parquet", "--metric", "quality", "--model", "gpt-4o-mini")
    assert priced.code == 0, priced.err
    assert "suffice.toml" not in priced.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_loss = 0.1", "did you mean"),
        ('api-key = "secret"', "name their environment variable in api-key-env"),
        ('api-key-env = "sk-secret"', "may be the key itself"),
        ("max-loss = true", "max-loss must be a number, not True"),
        ("model = 3", "model must be text, not 3"),
        ("model = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_and_a_secret_is_not_repeated(folder, text, message):
    (folder / "suffice.toml").write_text(text)
    refused = cli("decide", "logs.parquet", "--metric", "quality")
    assert refused.code == 1
    assert message.lower() in refused.error.lower()
    assert "secret" not in refused.error
    assert cli("decide", "--help").code == 0


def test_init_writes_what_its_options_say_and_the_other_keys_as_comments(folder):
    done = cli("init", "--base-url", "http://127.0.0.1:9/v1", "--model", 'a "b"', "--max-loss", "0.05")
    assert done.code == 0, done.err
    data = tomllib.loads((folder / "suffice.toml").read_text("utf-8"))
    assert data == {"base-url": "http://127.0.0.1:9/v1", "model": 'a "b"', "max-loss": 0.05}
    assert "# prices =" in (folder / "suffice.toml").read_text("utf-8")
    assert "--overwrite" in cli("init", "--max-loss", "0.1").error
    assert cli("init", "--max-loss", "0.1", "--overwrite").code == 0


@pytest.mark.parametrize("key", ["sk-secret-0001", "hf_secret", "secret0SECRET1secret2SECRET3", "two words"])
def test_a_key_instead_of_its_variable_is_never_written_or_repeated(folder, key):
    for refused in (
        cli("init", "--api-key-env", key),
        cli("doctor", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--api-key-env", key),
    ):
        assert refused.code == 1
        assert "itself" in refused.error
        assert key not in refused.error
    assert not (folder / "suffice.toml").exists()
    assert cli("init", "--api-key-env", "MY_PROVIDER2_API_KEY").code == 0


def test_on_a_terminal_init_asks(folder, monkeypatch):
    answers = iter(["", "logs.parquet", "", "0.1"])
    monkeypatch.setattr("suffice.cli.init._is_terminal", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    done = cli("init")
    assert done.code == 0, done.err
    assert tomllib.loads((folder / "suffice.toml").read_text()) == {"recording": "logs.parquet", "max-loss": 0.1}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--max-loss", "2"], 2, "between 0 and 1"),
        (["--base-url", "localhost"], 2, "http://"),
        (["--base-url", "http://me:pass@host/v1"], 2, "holds a password"),
        (["--prices", "nothing.toml"], 1, "no file of prices"),
    ],
)
def test_init_refuses_what_commands_would_refuse(folder, options, code, message):
    done = cli("init", *options)
    assert (done.code, message in done.error) == (code, True), done
    assert "pass@" not in done.error
    assert not (folder / "suffice.toml").exists()


def test_the_text_of_no_settings_is_a_file_of_comments():
    assert tomllib.loads(settings_text({})) == {}
