"""The ready files of experiments: they parse, name the paper's cells, and only their servers are missing here.

The data of the hub is not here: rows with the columns that its sets have stand in for it, converted by the commands
that the files show.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.loops.retrieval import load_questions
from suffice_papers.cbdr.cbdr_tables import published_cbdr
from suffice_papers.experiments import read_experiment
from suffice_papers.experiments.checks import find_problems
from suffice_papers.published import published_tasr
from suffice_retrieval.question_sets.sources import _HUB_ID
from tests.suffice_retrieval.test_convert import authors_rows, columns_of
from tests.support.cli_tools import cli

pytestmark = pytest.mark.usefixtures("quick_runs")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LINE = re.compile(r"^# +suffice (convert .*?)(?: +#.*)?$", re.MULTILINE)


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Forbid requests to the hub, whose models are not here."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def stand_ins(folder):
    """What the hub has, in few rows, by id."""
    hotpot, wiki = (authors_rows(f"{name}_tune", 40) for name in ("hotpotqa", "2wiki"))
    content = [columns_of(row) for row in wiki]
    for row in content:
        row["context"]["content"] = row["context"].pop("sentences")
        row["evidences"] = {"fact": ["a"], "relation": ["mother"], "entity": ["b"]}
    sets = {
        "hotpotqa/hotpot_qa/distractor/validation-00000-of-00001": [columns_of(row) for row in hotpot],
        "voidful/2WikiMultihopQA/data/validation-00000-of-00001": content,
        "mteb/hotpotqa/corpus/corpus-00000-of-00001": [
            {"_id": str(i), "title": f"Tower {i}", "text": f"The tower {i}."} for i in range(9)
        ],
        "mteb/nq/corpus/corpus-00000-of-00001": [{"_id": f"doc{i}", "title": "Ada", "text": "."} for i in range(9)],
    }
    for name, rows in sets.items():
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), path)
    for name in ("nq", "trivia"):
        rows = [
            {"question": f"{name} {i}?", "answers": ["Ada"], "positive_ctxs": [], "hard_negative_ctxs": []}
            for i in range(30)
        ]
        (folder / f"biencoder-{name}-dev.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    (folder / "psgs_w100.tsv").write_text("id\ttext\ttitle\n1\tA tower.\tTower\n", encoding="utf-8")


@pytest.fixture(scope="module")
def tasr(tmp_path_factory):
    """The file of TASR in a folder with its data, which its own commands converted, of fewer questions."""
    folder = tmp_path_factory.mktemp("tasr")
    stand_ins(folder)
    text = (EXAMPLES / "tasr.toml").read_text("utf-8")
    commands = [shlex.split(line) for line in LINE.findall(text)]
    assert len(commands) == 7
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in commands:
            assert _HUB_ID.fullmatch(words[1]) or words[1].startswith(("psgs_w100.tsv", "biencoder-"))
            smaller = {"tune=100,eval=300": "tune=10,eval=20", "300": "20"}
            cli(*(smaller.get(word, word) for word in words), code=0)
    (folder / "tasr.toml").write_text(text, encoding="utf-8")
    return folder / "tasr.toml"


def test_the_page_converts_what_the_file_converts():
    page = (ROOT / "docs" / "how-to" / "tasr-on-your-gpu.md").read_text("utf-8")
    for line in LINE.findall((EXAMPLES / "tasr.toml").read_text("utf-8")):
        assert f"\nsuffice {line}\n" in page


def test_the_file_of_tasr_has_its_24_cells_beside_what_they_repeat(tasr):
    experiment = read_experiment(tasr)
    published = published_tasr().cells
    assert sorted(experiment.published.values()) == sorted(published)
    places = {cell.configuration.rpartition("/")[0]: cell for cell in experiment.cells()}
    assert {*places} == {*experiment.published}
    for place, name in experiment.published.items():
        cell, theirs = places[place], published[name]
        assert (cell.data.setting, cell.data.corpus) == (theirs["setting"], theirs["corpus"])
        assert cell.model.options.model.rpartition("/")[2].lower().startswith(theirs["model"].lower())
        assert (cell.retriever.options.dense is not None) == (theirs["setting"] == "dense")
        assert experiment.tune_cell(cell).data.name == ("2wiki" if cell.data.name == "2wiki" else "hotpotqa")


def test_of_the_file_of_tasr_only_servers_and_encoders_are_missing(tasr, tmp_path):
    problems = find_problems(read_experiment(tasr), tmp_path)
    servers = [problem for problem in problems if "cannot be reached at 'http://localhost:800" in problem]
    encoders = [problem for problem in problems if "is not in the cache, and HF_HUB_OFFLINE is set" in problem]
    assert (len(servers), len(encoders), len(problems)) == (3, 3, 6)
    result = cli("run", tasr, "-o", tmp_path, "--dry-run", code=2)
    calls = 3 * 6 * (2 * 30 + 6 * 20)
    assert f"{calls:,} calls" in result.words


def test_the_thinking_switch_is_a_model_of_its_own(tasr, tmp_path):
    text = tasr.read_text("utf-8")
    commented = text[text.index("# [[model]]") : text.index("# Distractor cells")]
    (tasr.parent / "thinking.toml").write_text(
        text.replace(commented, re.sub("(?m)^# ?", "", commented)), encoding="utf-8"
    )
    models = {model.name: model.options for model in read_experiment(tasr.parent / "thinking.toml").models}
    assert len(models) == 4
    switches = {name: json.loads(models[name].extra_body)["chat_template_kwargs"] for name in ("qwen", "qwen-thinking")}
    assert switches == {"qwen": {"enable_thinking": False}, "qwen-thinking": {"enable_thinking": True}}
    assert models["qwen-thinking"].max_tokens > 1000


def test_the_converted_questions_are_those_that_the_file_names(tasr):
    folder = tasr.parent / "data"
    assert {path.name for path in folder.glob("*.jsonl")} == {
        *("hotpotqa.jsonl", "2wiki.jsonl", "nq.jsonl", "trivia.jsonl", "fullwiki.jsonl", "nq-corpus.jsonl", "dpr.jsonl")
    }
    for name in ("hotpotqa", "2wiki"):
        assert [len(load_questions(folder / f"{name}.jsonl", split=split)) for split in ("tune", "eval")] == [10, 20]
        assert all(question.supporting for question in load_questions(folder / f"{name}.jsonl"))


def test_the_file_of_cbdr_has_the_papers_models_sets_and_settings(tmp_path):
    rows = [
        {
            "query_id": str(i),
            "query": f"who made number {i}",
            "answers": ["Ada"],
            "positive_passages": [{"docid": str(i), "title": "Ada", "text": f"Ada made {i}."}],
            "negative_passages": [{"docid": f"n{i}", "title": "Bo", "text": "Bo made none."}],
        }
        for i in range(30)
    ]
    for name, listed in {
        "Tevatron/wikipedia-nq/data/train-00000-of-00001": rows,
        "hotpotqa/hotpot_qa/distractor/train-00000-of-00001": [
            columns_of(row) for row in authors_rows("hotpotqa_tune", 30)
        ],
    }.items():
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(listed), path)
    text = (EXAMPLES / "cbdr.toml").read_text("utf-8")
    smaller = text.replace("prefer-size = 7622", "prefer-size = 8").replace("test-size = 1216", "test-size = 4")
    (tmp_path / "cbdr.toml").write_text(smaller, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for line in LINE.findall(text):
            cli(*({"12338": "20"}.get(word, word) for word in shlex.split(line)), code=0)
    experiment = read_experiment(tmp_path / "cbdr.toml")
    models = [cell.model.options.model.rpartition("/")[2] for cell in experiment.cells()]
    assert {name.replace("Meta-Llama-3", "Llama3") for name in models} == {
        name.split(", ")[0] for name in published_cbdr().tables["table2"]
    }
    assert [cell.data.name for cell in experiment.cells()] == ["nq", "hotpotqa"] * 2
    settings = experiment.cbdr.settings
    assert (settings.betas, settings.depths, settings.candidates) == ((0.90, 0.95, 0.98, 1.00), (1, 3), 8)
    assert {cell.prompt for cell in experiment.cells()} == {"cbdr"}
    assert [[*experiment.aligned_before(cell)] for cell in experiment.cells()] == [[], *[["llama3-8b/nq"]] * 3]
    assert "prefer-size = 7622" in text
    assert "test-size = 1216" in text
    assert experiment.cbdr.cross_encoder == "BAAI/bge-reranker-v2-m3"
    problems = find_problems(experiment, tmp_path / "out")
    assert all("is not in the cache" in problem for problem in problems), problems
    assert len(problems) == 3


def test_the_rivals_file_asks_the_questions_of_the_tasr_file(tasr):
    text = (EXAMPLES / "rivals.toml").read_text("utf-8")
    commands = LINE.findall(text)
    assert len(commands) == 2
    assert {*commands} < {*LINE.findall(tasr.read_text("utf-8"))}
    (tasr.parent / "rivals.toml").write_text(text, encoding="utf-8")
    result = cli("run", tasr.parent / "rivals.toml", "--dry-run", "--json", code=2)
    assert {cell.rpartition("/")[0] for cell in (row["cell"] for row in result.json["cells"]) if "dragin" in cell} == {
        f"qwen/{name}/bm25/dragin/answer_first" for name in ("hotpotqa", "2wiki")
    }
    [problem] = result.json["problems"]
    assert "'Qwen/Qwen2.5-7B-Instruct' is not in the cache" in problem


@pytest.mark.filterwarnings("ignore::UserWarning:torch.*")
def test_the_rivals_file_runs_every_method_on_a_local_model(tiny_model, tmp_path):
    text = (EXAMPLES / "rivals.toml").read_text("utf-8")
    smaller = {
        '"Qwen/Qwen2.5-7B-Instruct"': f'"{tiny_model}"',
        'dtype = "bfloat16"\n': "",
        "max-tokens = 128": "max-tokens = 6",
        "max-rounds = 10": "max-rounds = 3\ntune-draws = 1\nprompts = ['prefilled']",
        "resamples = 1000": "resamples = 20",
    }
    for old, new in smaller.items():
        assert old in text
        text = text.replace(old, new)
    lines = (tiny_model / "tune.jsonl").read_text("utf-8").splitlines(keepends=True)[:12]
    (tmp_path / "known.jsonl").write_text("".join(lines), encoding="utf-8")
    draw = ("--splits", "tune=4,eval=2", "--seed", 42)
    assert cli("convert", tmp_path / "known.jsonl", "-o", tmp_path / "data/hotpotqa.jsonl", *draw).code == 0
    first, second = text.index('[[data]]\nname = "2wiki"'), text.index("# Methods, each")
    (tmp_path / "rivals.toml").write_text(text[:first] + text[second:], encoding="utf-8")
    result = cli("run", tmp_path / "rivals.toml", "--json", code=0)
    table = next(table for table in result.json["tables"] if table["title"].startswith("Ways of asking"))
    rows = {row["method"]: row for row in table["rows"] if row["kind"] != "fixed"}
    names = ["self-ask", "ircot", "flare", "flare-questions", "dragin", "ircot-stable", "stable"]
    assert [*rows] == ["TASR", *names]
    assert all(rows[name]["calls"] > 0 for name in names if "not run" not in rows[name]["verdict"]), rows
    assert not any("not run" in rows[name]["verdict"] for name in names[:5]), rows
    again = cli("run", tmp_path / "rivals.toml")
    assert "nothing was asked" in again.words
