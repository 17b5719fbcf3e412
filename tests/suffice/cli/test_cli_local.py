"""One set of options for every command that opens a model on this machine."""

import shutil

import pytest

from suffice import read_recording
from suffice.cli.local import LocalRun, hub_name
from suffice.errors import DataError
from tests.support import local_models
from tests.support.cli_tools import cli, dataset


def test_a_name_holds_its_revision_unless_it_is_a_folder(tmp_path):
    assert hub_name("org/model@main") == ("org/model", "main")
    assert hub_name("org/model", "main") == hub_name("org/model@main", "main") == ("org/model", "main")
    (tmp_path / "run@5").mkdir()
    assert hub_name(str(tmp_path / "run@5")) == (str(tmp_path / "run@5"), None)
    with pytest.raises(DataError, match="one of them"):
        hub_name("org/model@main", "v2")


@pytest.mark.parametrize(
    "option",
    [
        ("--set=device=cuda",),
        ("--set=dtype=float16",),
        ("--set=batch-size=2",),
        ("--set=revision=v2",),
        ('--set=template-args={"a": 1}',),
    ],
)
def test_options_of_local_models_are_refused_where_none_runs(tmp_path, option):
    out = tmp_path / "r.parquet"
    for command in (
        ("record", "hotpotqa_tune", "-o", out, "--limit", 1),
        ("answer", "Who?", "--corpus", tmp_path),
        ("gate", "compare", "2wiki_llama31_tune"),
    ):
        assert f"{option[0].split('=')[1]} is for" in cli(*command, *option).error


def test_an_option_that_an_encoder_uses_is_accepted():
    LocalRun(device="cpu").refuse_unused("", "device")
    with pytest.raises(DataError, match="dtype"):
        LocalRun(device="cpu", dtype="float16").refuse_unused("", "device")


@pytest.mark.whole
def test_a_recording_says_how_its_local_model_ran_and_can_resume(tmp_path):
    folder = local_models.save(tmp_path / "jobs" / "llama", max_position_embeddings=4096)
    words = local_models.tokenizer()
    words.chat_template = local_models.TEMPLATE + "{% if enable_thinking %}think{% endif %}"
    words.save_pretrained(folder)
    questions, out = dataset(tmp_path / "q.jsonl", n=2), tmp_path / "r.parquet"
    record = (
        "record",
        questions,
        "-o",
        out,
        "--local",
        "--max-rounds",
        1,
        "--set=max-tokens=2",
        "--set=allow-unread=true",
    )
    run = ("--set=device=cpu", "--set=batch-size=2", '--set=template-args={"enable_thinking": true}')
    assert cli(*record, "--model", folder, *run, "--set=dtype=bfloat16", "--limit", 1).code == 0
    model = read_recording(out).metadata["config"]["model"]
    assert model["precision"] == "bfloat16"
    copy = shutil.copytree(folder, tmp_path / "mine" / "llama3")
    (copy / "notes.json").write_text("{}")
    again = cli(*record, "--model", copy, *run, "--set=dtype=bfloat16", "--json")
    assert (again.code, again.json["calls"]) == (0, 1)
    assert "model.precision" in cli(*record, "--model", folder, *run).error
    other = cli(*record, "--model", folder, "--set=dtype=bfloat16").error
    assert "template_sha256" in other
    both = ('--set=extra-body={"chat_template_kwargs": {"enable_thinking": true}}',)
    assert "one of them" in cli(*record, "--model", folder, *run, *both).error
