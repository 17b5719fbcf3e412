"""What comes from elsewhere (keys, models, replies, policies) reaches only what it is meant for."""

from __future__ import annotations

import json

import pytest

from suffice import ChatModel
from suffice.embedding.sentence_transformers import load_encoder
from suffice.errors import ModelError
from suffice.llm import load_model
from suffice.retrieval.rerank import load_cross_encoder
from tests.cli_tools import cli, dataset, reply
from tests.endpoint import Endpoint

OTHER_KEY = "sk-another-provider-0001"


@pytest.mark.parametrize("value", [None, ""])
def test_a_named_key_variable_that_is_not_there_sends_no_other_key(value, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", OTHER_KEY)
    if value is None:
        monkeypatch.delenv("TOGETHER_KEY", raising=False)
    else:
        monkeypatch.setenv("TOGETHER_KEY", value)
    data = dataset(tmp_path / "q.jsonl")
    with Endpoint(reply) as endpoint:
        at = ("--base-url", endpoint.url, "--model", "m")
        commands = [
            ("record", data, "-o", tmp_path / "r.parquet", *at, "--api-key-env", "TOGETHER_KEY"),
            (
                "record",
                data,
                "-o",
                tmp_path / "r.parquet",
                *at,
                "--judge-model",
                "j",
                "--judge-api-key-env",
                "TOGETHER_KEY",
            ),
            ("answer", "Where is tower 1?", "--corpus", tmp_path, *at, "--api-key-env", "TOGETHER_KEY"),
            ("doctor", *at, "--api-key-env", "TOGETHER_KEY"),
            ("draft", "Where is tower 1?", *at, "--critic-model", "c", "--critic-api-key-env", "TOGETHER_KEY"),
            ("record-drafts", data, "-o", tmp_path / "r.parquet", *at, "--api-key-env", "TOGETHER_KEY"),
            ("states", data, "-o", tmp_path / "s.states", *at, "--api-key-env", "TOGETHER_KEY"),
        ]
        for command in commands:
            assert "'TOGETHER_KEY'" in cli(*command).error, command
    assert endpoint.requests == []


def test_an_empty_key_is_no_key_and_not_that_of_another_variable(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", OTHER_KEY)
    with Endpoint() as endpoint:
        ChatModel("m", base_url=endpoint.url, api_key="").answer("Where?")
    assert all(OTHER_KEY not in json.dumps(request.headers) for request in endpoint.requests)


def model_folder_with_code(folder):
    """Write a model folder whose settings name classes in a file of its own, which leaves a mark when it is run."""
    folder.mkdir()
    ran = folder / "ran"
    (folder / "code.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\nclass Own: pass\n")
    classes = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForSequenceClassification")
    own = {"model_type": "own", "auto_map": dict.fromkeys(classes, "code.Own")}
    (folder / "config.json").write_text(json.dumps(own))
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["code.Own", None]}}))
    modules = [{"idx": 0, "name": "0", "path": "", "type": "code.Own"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return ran


@pytest.mark.parametrize(
    "load",
    [load_model, load_cross_encoder, lambda path: load_encoder(path, None, None)],
    ids=["language model", "cross-encoder", "encoder"],
)
def test_code_in_a_model_folder_is_never_run_even_if_somebody_says_yes(load, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    ran = model_folder_with_code(tmp_path / "m")
    with pytest.raises(ModelError):
        load(str(tmp_path / "m"))
    assert not ran.exists()
