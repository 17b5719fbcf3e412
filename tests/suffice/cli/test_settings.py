"""`suffice.toml` and `suffice init`: what commands take where an option is not given."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer import Context

from suffice.cli.groups import command_line, command_words
from suffice.cli.parameters import defaults_of, is_from_file, settings_in
from suffice.cli.settings import KEYS, TABLES, read_settings, settings_text
from suffice.cli.tree import Group, command_at, commands, every_setting
from suffice.recordings import write_recording
from tests.suffice.verdicts.test_decide import converged_at_2, log_of
from tests.support.cli_tools import cli

ROOT = Path(__file__).resolve().parents[3]

SETTING_OF = {
    "endpoint": "timeout = 60",
    "local": 'device = "cpu"',
    "cluster": "workers = 4",
    "record": "concurrency = 4",
    "retrieval": "k1 = 1.2",
    "sampling": "seed = 1",
    "thinking": "every = 64",
    "drafts": "attempts = 2",
    "statistics": "level = 0.9",
    "calibration": "per-round = false",
    "search": "folds = 3",
    "certificate": "confidence = 0.9",
    "watch": "window = 50",
    "service": "ttl = 60",
    "proxy": "idle = 60",
    "gate": "epochs = 3",
    "reranker": "lr = 1e-5",
    "papers": "seed = 1",
}
"""A valid line of every table."""


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


def test_every_table_has_a_line_here_and_no_name_of_a_key():
    assert list(SETTING_OF) == list(TABLES)
    assert TABLES.keys() & KEYS.keys() == set()


@pytest.mark.parametrize("table", TABLES)
def test_a_table_leaves_every_other_parameter_of_commands_alone(tmp_path, table):
    file, name = tmp_path / "suffice.toml", SETTING_OF[table].split(" = ")[0]
    file.write_text(f"[{table}]\n{SETTING_OF[table]}\n")
    settings = read_settings(file)
    for words, command in commands():
        defaults = defaults_of(command, [], settings, every_setting)
        own = settings_in(command.params).get(name)
        if own is None or own.setting.table != table:
            assert defaults == {}, words
            continue
        assert list(defaults) == [own.name], words
        own.process_value(Context(command), defaults[own.name])


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
    priced = cli("decide", "logs.parquet", "--metric", "quality", "--model", "gpt-4o-mini", code=0)
    assert "suffice.toml" not in priced.err


def test_another_endpoint_alone_says_which_model_is_asked(folder):
    call = ("answer", "Who?", "--corpus", "none.jsonl", "--base-url", "http://127.0.0.1:9/v1")
    (folder / "suffice.toml").write_text('base-url = "http://127.0.0.1:8/v1"\nmodel = "mine"\n')
    alone = " ".join(cli(*call).err.split())
    assert "the model asked at --base-url is span-reader, since mine of suffice.toml" in alone
    assert "model asked" not in cli(*call, "--model", "m").err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_loss = 0.1", "did you mean"),
        ('api-key = "secret"', "name their environment variable in api-key-env"),
        ('api-key-env = "sk-secret"', "may be the key itself"),
        ("max-loss = true", "max-loss must be a number, not True"),
        ("model = 3", "model must be text, not 3"),
        ("[recording]\nconcurrency = 4", "recording must be text, not a table"),
        ('base-url = "https://u:secret@host/v1"', "base-url holds a password"),
        ('base-url = "https://secret@host/v1"', "base-url holds a password"),
        ('recording = "sftp://u:secret@host/r.parquet"', "recording holds a password"),
        ('[endpoint]\njudge-base-url = "https://u:secret@host/v1"', "judge-base-url holds a password"),
        ('[endpoint]\nextra-body = {api_key = "secret"}', "extra-body: api_key may hold a key"),
        ('[endpoint]\nextra-body = {a = [{Authorization = "secret"}]}', "Authorization may hold a key"),
        ('[endpoint]\nextra-body = \'{"api_key": "secret"}\'', "api_key may hold a key"),
        ("[drafts]\nmarks = 'redis://u:secret@host/0'", "marks holds a password"),
        ("model = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_and_a_secret_is_not_repeated(folder, text, message):
    (folder / "suffice.toml").write_text(text)
    refused = cli("decide", "logs.parquet", "--metric", "quality", code=1)
    assert message.lower() in refused.error.lower()
    assert "note: from" not in refused.error
    assert "secret" not in refused.error
    assert cli("decide", "--help").code == 0


def test_the_note_shows_neither_queries_of_urls_nor_the_inside_of_json(folder):
    (folder / "suffice.toml").write_text(
        'base-url = "http://127.0.0.1:9/v1?sig=word"\nmodel = "m"\n[endpoint]\nextra-body = {a = "word", max_token = "x"}\n'
    )
    note = cli("answer", "Who?", "--corpus", "none.jsonl", "--policy", "none.json").err
    assert "base-url http://127.0.0.1:9/v1?..., extra-body {...}" in " ".join(note.split())
    assert "word" not in note


def test_the_note_names_the_table_of_a_name_in_several(folder):
    (folder / "suffice.toml").write_text("[statistics]\nseed = 7\nlevel = 0.9\nresamples = 20\n[papers]\nseed = 8\n")
    note = cli("replay", "logs.parquet", "--metric", "quality", "--rule", "answer_stable", "--json").err
    assert "[statistics] seed 7" in " ".join(note.split())
    assert ", level 0.9" in " ".join(note.split())


def test_init_writes_what_its_options_say_and_the_other_keys_as_comments(folder):
    cli("init", "--base-url", "http://127.0.0.1:9/v1", "--model", 'a "b"', "--max-loss", "0.05", code=0)
    data = tomllib.loads((folder / "suffice.toml").read_text("utf-8"))
    assert data == {"base-url": "http://127.0.0.1:9/v1", "model": 'a "b"', "max-loss": 0.05}
    assert "# prices =" in (folder / "suffice.toml").read_text("utf-8")
    assert "--overwrite" in cli("init", "--max-loss", "0.1").error
    assert cli("init", "--max-loss", "0.1", "--overwrite").code == 0


def test_init_keeps_the_tables_of_the_file_that_it_replaces(folder):
    file = folder / "suffice.toml"
    file.write_text("max-loss = 0.3\n[statistics]  # mine\nseed = 7\n\n[endpoint]\nextra-body = {a = 1}\n")
    assert cli("init", "--model", "m", "--overwrite").code == 0
    kept = {"statistics": {"seed": 7}, "endpoint": {"extra-body": {"a": 1}}}
    assert tomllib.loads(file.read_text()) == {"model": "m", **kept}
    assert "# mine" in file.read_text()
    file.write_text("statistics.seed = 7\n")
    assert "[statistics]" in cli("init", "--model", "m", "--overwrite").error
    assert file.read_text() == "statistics.seed = 7\n"
    file.write_text("model = \n[statistics]\n")
    assert "nothing of it is kept" in " ".join(cli("init", "--model", "m", "--overwrite").err.split())
    assert tomllib.loads(file.read_text()) == {"model": "m"}


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
    cli("init", code=0)
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


def test_settings_come_from_tables_and_the_command_line_wins(folder):
    (folder / "suffice.toml").write_text("[statistics]\nresamples = 30\nlevel = 0.9\nmargin = [0.01, 0.05]\n")
    replay = ("replay", "logs.parquet", "--metric", "quality", "--rule", "answer_stable", "--json")
    done = cli(*replay)
    assert "note: from suffice.toml: margin 0.01,0.05, resamples 30, level 0.9" in done.err.replace("\n", " ")
    assert (done.json["n_resamples"], done.json["level"]) == (30, 0.9)
    other = cli(*replay, "--set", "resamples=40", "--set=margin=0.1", "--set", "margin=0.2").json
    assert (other["n_resamples"], other["level"]) == (40, 0.9)
    margins = {item["margin"] for row in other["rows"] for item in row["margins"]}
    assert margins == {0.1, 0.2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[statistics]\nresample = 3", "did you mean 'resamples'"),
        ("[endpoint]\nresamples = 3", "stands under [statistics], not under [endpoint]"),
        ("[statistic]\nresamples = 3", "did you mean 'statistics'"),
        ("[statistic]\nseed = 1", "did you mean 'statistics'"),
        ("[foo]\nseed = 1", "seed stands under [statistics], not under [foo]"),
        ("[foo]\nlr = 1", "lr stands under [papers] or [gate] or [reranker], not under [foo]"),
        ("[foo]", "there is no table [foo]"),
        ('[endpoint]\nmodel = "m"', "model stands at the top of the file, above all tables"),
        ('[endpoint]\napi-key = "k"', "name their environment variable in api-key-env"),
        ('[statistics]\ninterval = "x"', "interval under [statistics] in suffice.toml"),
        ("[statistic]\nreasmples = 3", "did you mean 'statistics'"),
        ('[statistics]\nresamples = "many"', "resamples under [statistics] in suffice.toml"),
        ("[statistics]\nresamples = true", "resamples under [statistics] in suffice.toml"),
        ("[statistics]\nresamples = 0", "resamples under [statistics] in suffice.toml"),
        ("resamples = 3", "settings stand in tables"),
        ('[drafts]\nembedder = "words.py:Words"', "names code"),
        ('[endpoint]\njudge-api-key-env = "HOME"', "_API_KEY"),
    ],
)
def test_a_wrong_setting_of_the_file_is_refused(folder, text, message):
    (folder / "suffice.toml").write_text(text)
    # A table of other commands is checked when one of them runs.
    command = ("record", "q.jsonl", "-o", "r") if "[endpoint]" in text else ("replay", "logs.parquet")
    assert message.lower() in " ".join(cli(*command).error.split()).lower()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("resample=3", "Did you mean 'resamples'"),
        ("resamples", "write --set resamples=VALUE"),
        ("resamples=many", "--set resamples"),
        ("level=2", "--set level"),
        ("rule=lead(3)", "It is an option: --rule. Settings here"),
        ("interval=x", "--set interval"),
    ],
)
def test_a_wrong_setting_of_the_command_line_is_refused(folder, value, message):
    refused = cli("replay", "logs.parquet", "--set", value)
    assert (refused.code, message in refused.error) == (2, True), refused


def test_a_setting_of_one_value_is_given_once(folder):
    replay = ("replay", "logs.parquet", "--metric", "quality")
    assert "--set seed is given more than once" in cli(*replay, "--set", "seed=1", "--set", "seed=2").error
    assert "`suffice replay --help`" in cli(*replay, "--set").error


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["record", "q", "-o", "r", "--timeout", "60"], "--set timeout=60, or timeout = 60 under [endpoint]"),
        (["record", "q", "-o", "r", "--dtype=float16"], '--set dtype=float16, or dtype = "float16" under [local]'),
        (["record", "q", "-o", "r", "--no-logprobs"], "--set logprobs=false, or logprobs = false under [endpoint]"),
        (["replay", "r", "--seed", "--json"], '--set seed=VALUE, or seed = "VALUE" under [statistics]'),
        (["record", "q", "-o", "r", "--rerank", "m"], '--set rerank-signal=m, or rerank-signal = "m" under [record]'),
        (["calibrate", "r", "-o", "p", "--global"], "--set per-round=false, or per-round = false under [calibration]"),
    ],
)
def test_a_former_option_says_what_to_give_instead(folder, words, advice):
    refused = cli(*words)
    assert (refused.code, f"is a setting now: {advice} in suffice.toml" in refused.error) == (2, True), refused


def test_the_former_option_of_streamed_replays_is_explained(folder):
    assert "in blocks by itself" in cli("replay", "logs.parquet", "--stream").error


def test_a_setting_of_the_file_without_a_use_is_left_alone(folder):
    (folder / "suffice.toml").write_text('[cluster]\nworkers = 4\n[local]\ndtype = "float16"\n[gate]\nlr = 0.1\n')
    replay = ("replay", "logs.parquet", "--metric", "quality", "--rule", "answer_stable", "--set=resamples=20")
    assert cli(*replay).code == 0
    assert "workers is for a cluster" in cli("search", "logs.parquet", "--set", "workers=4").error


def test_other_processes_get_settings_of_the_file_and_the_command_line(folder):
    command = command_at("replay")
    words = ["logs.parquet", "--set", "resamples=20", "--rule", "a >= 1"]
    above = Context(Group(name="suffice"), info_name="suffice")
    context = command.make_context(
        "replay", words, parent=above, default_map={"level": 0.9, "margin": [0.1, 0.2], "path": "other.parquet"}
    )
    given = ["--set", "margin?=0.1", "--set", "margin?=0.2", "--set", "resamples=20", "--set", "level?=0.9"]
    assert command_words(context) == ["replay", "logs.parquet", "--rule", "a >= 1", *given]
    again = command.make_context("replay", command_words(context)[1:], parent=above)
    values = (again.params["level"], list(again.params["margin"]), again.params["resamples"])
    assert values == (0.9, [0.1, 0.2], 20)
    assert [name for name in again.params if is_from_file(again, name)] == ["margin", "level"]
    assert command_line(context).startswith("suffice replay logs.parquet --rule 'a >= 1' --set margin=0.1")


def test_the_text_of_every_default_is_the_default():
    for words, command in commands():
        for name, parameter in settings_in(command.params).items():
            if isinstance(parameter.default, bool | int | float | str):
                text = str(parameter.default)
                value = parameter.process_value(Context(command), text)
                assert value == parameter.default, f"{words}: {name}"


def test_the_page_lists_every_table_with_its_settings():
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text("utf-8")
    listed = {
        table: set(re.findall(r"`([a-z0-9-]+)`", names))
        for table, names in re.findall(r"^\| `\[(\w+)\]` \| .* \| (.*) \|$", page, re.MULTILINE)
    }
    assert listed == every_setting()
    assert list(listed) == list(TABLES)
