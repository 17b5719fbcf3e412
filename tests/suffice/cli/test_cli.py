"""The command line, offline: help, JSON, exit codes, and every wrong file that a user may give it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice import Policy, parse_rule
from suffice.cli.tree import TREE, commands
from suffice.recordings import read_recording, write_recording
from suffice.recordings.schema import META_KEY, build_table
from tests.suffice.importers.test_importers import IRCOT, REFLEXION, tasr_file, tasr_row
from tests.support.cli_tools import cli, dataset, question, reply
from tests.support.endpoint import Endpoint
from tests.support.shared import recording_of

ALL = dict(commands())
ESCAPE = re.compile(r"\x1b")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recording of 40 questions over an endpoint, full width."""
    folder = tmp_path_factory.mktemp("recorded")
    dataset(folder / "q.jsonl", n=40)
    with Endpoint(reply) as endpoint:
        done = cli("record", folder / "q.jsonl", "-o", folder / "r.parquet", "--base-url", endpoint.url, "--model", "m")
    assert done.code == 0, done
    return folder / "r.parquet"


def rewritten(recorded, path, **changes):
    """Write the recording with other cells: a value, or a function of the row."""
    rows = read_recording(recorded).table.to_pylist()
    for row in rows:
        for name, change in changes.items():
            row[name] = change(row) if callable(change) else change
    write_recording(path, rows, read_recording(recorded).metadata)
    return path


# Form


def test_the_command_tree_has_at_most_21_top_commands_beside_groups():
    groups = {words.rpartition(" ")[0] for words in ALL} - {""}
    top = {words for words in ALL if " " not in words} - groups
    assert groups == {"data", "demo", "draft", "gate", "judge", "paper", "reranker", "sample", "think"}
    assert len(top) <= 21
    assert {TREE[words].panel for words in top | groups} == {"Start", "Measure", "Decide", "Deploy and inspect"}


@pytest.mark.parametrize("words", ["", *ALL])
def test_help_fits_its_lines_and_ends_with_an_example_that_parses(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = cli(*words.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert not ESCAPE.search(result.out)
    lines = [line.rstrip() for line in result.out.rstrip().splitlines()]
    assert max(map(len, lines)) <= 80
    below = [place for place in ALL if place.rpartition(" ")[0] == words]
    for place in below:
        summary = str(ALL[place].help).split("\n")[0]
        assert any(f" {place.split()[-1]} " in line and summary in line for line in lines), place
        assert summary.endswith(".")
    if not words:
        assert all(name in result.out for name in ("--extension", "--debug", "--version"))
        assert len(lines) <= 46
        assert "0 done, 1 failed, 2 wrong usage, 130 interrupted" in " ".join(result.out.split())
    example = re.search(r"Example: suffice (.*)$", lines[-1])
    assert example is not None, lines[-1]
    called = shlex.split(example[1])
    place = max((place for place in ALL if called[: len(place.split())] == place.split()), key=len)
    assert place.startswith(words)
    ALL[place].make_context(place, called[len(place.split()) :])


@pytest.mark.whole
def test_help_of_the_top_imports_no_command():
    code = "import sys; from suffice.cli.main import run\ntry: run(['--help'])\nexcept SystemExit: pass\n"
    heavy = "print([name for name in sys.modules if name.startswith('suffice.') and name.split('.')[1] in {'replays','loop','llm'}])"
    done = subprocess.run([sys.executable, "-c", code + heavy], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.whole
def test_completion_that_bash_installs_completes_in_a_new_bash(tmp_path):
    environment = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    asked = [
        f"COMP_WORDS=(suffice {words}); COMP_CWORD=2; _suffice_completion suffice; echo ${{COMPREPLY[@]}}"
        for words in ("decide --max", "gate t")
    ]
    for words in (["-c", "suffice --install-completion; true"], ["-c", f". ~/.bashrc; {'; '.join(asked)}"]):
        done = subprocess.run(["bash", *words], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["--max-loss", "train"], done


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_zsh_and_fish_asks_the_command(shell, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "suffice demo th")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    script, answer = "", ""
    for step in ("source", "complete"):
        monkeypatch.setenv("_SUFFICE_COMPLETE", f"{step}_{shell}")
        script, answer = answer, cli().out
    assert f"_SUFFICE_COMPLETE=complete_{shell}" in script
    assert "thinking" in answer
    assert "semantic" not in answer


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "nonsense"),
        (["gate", "nonsense"], "nonsense"),
        (["record"], "'dataset'"),
        (["record", "q.jsonl"], "'--out'"),
        (["record", "q.jsonl", "-o", "r.parquet", "--set=concurrency=0"], "--set concurrency"),
        (["record", "q.jsonl", "-o", "r.parquet", "--limit", "0"], "'--limit'"),
        (["replay"], "RECORDING"),
        (["replay", "r.parquet", "--set=level=2"], "--set level"),
        (["calibrate", "r.parquet", "-o", "p.json", "--set=method=magic"], "'magic'; allowed"),
        (["calibrate", "r.parquet", "-o", "p.json", "--set=unseen-round=x"], "'x'; allowed"),
        (["answer", "Where?"], "--corpus"),
        (["demo", "--dataset", "squad"], "'squad'; allowed"),
        (["import", "x", "--kind", "pickle", "-o", "r.parquet"], "'pickle' is not a known format"),
        (["import", "x", "--kind", "tasr", "-o", "r.parquet", "--column", "round=step"], "tasr files do not take it"),
        (["import", "tabular", "run.csv", "-o", "r.parquet"], "the format is an option now"),
        (["import", "a.csv", "b.csv"], "expected one path, got 2"),
        (["import", "x", "-o", "r.parquet", "--column", "round"], "OURS=THEIRS"),
        (["doctor"], "'--model'"),
        (["data", "signals", "--unknown"], "--unknown"),
        (["answer", "Where?", "--corpus", ".", "--rule", "not answer_stable"], "is not allowed"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_wrong(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli(*arguments, code=2)
    assert says in " ".join(result.error.split())
    assert result.out == "" or "Usage" in result.out


MISSING_OR_UNKNOWN = """
replay MISSING
replay R --policy MISSING
replay R --rule nosuch
replay R --rule nosuch>1
replay R --metric nosuch
replay R --baseline nosuch
replay R --cost nosuch
replay R --selector nosuch
replay R --prices MISSING
replay R --set interval=nosuch
replay R --set ledger=nosuch
replay MISSING --rule full
calibrate MISSING -o x.json
calibrate R -o x.json --target nosuch
calibrate R -o x.json --signal nosuch
search MISSING
search R --space nosuch
search R --metric nosuch
certify R --max-loss 0.1 --policy MISSING
certify R --max-loss 0.1 --rules MISSING
certify R --max-loss 0.1 --rules MISSING --set loss=nosuch
diagnose MISSING
diagnose R --metric nosuch
report MISSING
report R --rule nosuch
record MISSING -o x.parquet
record hotpotqa_tune -o x.parquet --prompt nosuch
record hotpotqa_tune -o x.parquet --set answer-position=nosuch
record hotpotqa_tune -o x.parquet --set extra-body=nosuch
answer Where? --corpus MISSING
index MISSING -o x
draft record MISSING -o x.parquet --model m
judge drafts MISSING -o x.parquet --model m
judge pairs MISSING -o x.parquet --model m
judge gold MISSING -o x.parquet
judge gold R -o x.parquet --set measures=nosuch
gate states MISSING -o x --encoder minilm
gate train MISSING --labels R -o x
gate compare MISSING
gate classify MISSING -o x
reranker train MISSING -o x
data show MISSING
data costs MISSING
data prices nosuch
data selectors R --tune MISSING
import MISSING -o x.parquet
paper tasr --cells MISSING
paper protocol MISSING
paper transfer MISSING --model m --probe p
""".strip().splitlines()


@pytest.mark.parametrize("arguments", MISSING_OR_UNKNOWN)
def test_a_missing_file_or_unknown_name_is_a_usage_error_everywhere(arguments, recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = arguments.replace("MISSING", "missing.parquet").split()
    result = cli(*(recorded if word == "R" else word for word in words))
    assert (result.code, bool(result.error), result.out) == (2, True, "")


@pytest.mark.parametrize(
    "arguments", [["data", "signals"], ["replay", "{r}"], ["calibrate", "{r}", "-o", "{d}/p.json"]]
)
def test_json_is_strict_and_alone_on_standard_output(arguments, recorded, tmp_path):
    filled = [argument.format(r=recorded, d=tmp_path) for argument in arguments]
    result = cli(*filled, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json
    plain = cli(*filled, code=0)
    assert not ESCAPE.search(plain.out)
    with pytest.raises(ValueError, match=r"Expecting|Extra data"):
        json.loads(plain.out)


@pytest.mark.whole
def test_a_pipe_gets_no_escape_codes():
    command = [sys.executable, "-m", "suffice", "data", "signals"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not ESCAPE.search(done.stdout + done.stderr)
    assert "answer_stable" in done.stdout


def test_debug_shows_the_traceback_and_nothing_else_does(tmp_path):
    missing = tmp_path / "missing.parquet"
    plain, debug = cli("replay", missing), cli("--debug", "replay", missing)
    assert "does not exist" in plain.error
    assert debug.code == plain.code == 2
    assert "Traceback" in debug.err
    assert plain.err.strip() in debug.err


# What a child of the tests inherits depends on the shell that started them: a background job ignores SIGINT.
INHERIT = "import os, signal, sys; signal.signal(signal.SIGINT, signal.{}); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.whole
@pytest.mark.parametrize("inherited", ["SIG_DFL", "SIG_IGN"])
def test_an_interrupted_recording_is_130_and_the_same_command_goes_on(inherited, tmp_path):
    path = dataset(tmp_path / "q.jsonl", n=6)
    with Endpoint(reply, allow=6) as endpoint:
        arguments = ["record", str(path), "-o", str(tmp_path / "r.parquet"), "--base-url", endpoint.url, "--model", "m"]
        command = [sys.executable, "-m", "suffice", *arguments, "--set=concurrency=1"]
        child = subprocess.Popen(
            [sys.executable, "-c", INHERIT.format(inherited), *command], stderr=subprocess.PIPE, text=True
        )
        while len(endpoint.requests) < 7:
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=600)[1]
        assert child.returncode == 130
        assert "interrupted; what was recorded is kept" in said
        assert "Traceback" not in said
        before = len(endpoint.requests)
        endpoint.allow = None
        assert cli(*arguments).code == 0
        # One probe for log-probabilities a run; of the rest only what was in flight is asked again.
        assert (before, len(endpoint.requests)) == (7, 6 * 5 + 2 + 1)
    assert read_recording(tmp_path / "r.parquet").shape == (6, 5)


# Calibrate, replay, signals


def test_signals_lists_every_signal_and_named_rule():
    listed = cli("data", "signals", "--json").json
    names = {signal["name"] for signal in listed["signals"]}
    assert {"answer_margin", "judge_entailment", "rerank_score", "answer_stable"} <= names
    assert next(s for s in listed["signals"] if s["name"] == "answer_margin_min")["needs"] == ["token_logprobs"]
    assert "tasr" in listed["rules"]
    shown = cli("data", "signals", "--details").out
    assert all(name in shown for name in names)


def test_calibrate_and_replay_chain_through_files(recorded, tmp_path):
    policy = tmp_path / "p.json"
    fitted = cli("calibrate", recorded, "-o", policy, "--rule", "tasr", "--json").json
    assert fitted["policy"] == str(policy)
    loaded = Policy.load(policy)
    assert loaded.depends["model"] == "m"
    result = cli(
        "replay", recorded, "--policy", policy, "--rule", "answer_stable", "--set=resamples=100", "--json"
    ).json
    labels = [row["label"] for row in result["rows"]]
    assert loaded.label in labels
    kinds = {row["kind"] for row in result["rows"]}
    assert kinds == {"rule", "random", "fixed", "oracle"}
    assert {"fixed_k(1)", "fixed_k(5)", "oracle_best", "oracle_earliest", "answer_stable_guarded"} <= set(labels)
    shown = cli("replay", recorded, "--policy", policy, "--set=resamples=100").out
    assert "selected here" in shown


def test_replay_compares_with_any_baseline_metric_and_price(recorded, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text("[m]\nuncached = 1.0\ncached = 0.1\noutput = 2.0\n")
    result = cli(
        *("replay", recorded, "--rule", "fixed_k(2)", "--baseline", "full", "--metric", "em", "--metric", "agreement"),
        *("--set=resamples=50", "--set=level=0.9", "--set=margin=0.05", "--json"),
    ).json
    assert result["metrics"][:2] == ["em", "agreement"]
    wrong = cli("replay", recorded, "--prices", tmp_path / "none.toml")
    assert "none.toml" in wrong.error
    for arguments, says in [
        (("--metric", "beauty"), "beauty"),
        (("--baseline", "fixed_k(99)x"), "fixed_k"),
        (("--rule", "nothing_like_it > 1"), "nothing_like_it"),
        (("--rule", "p_correct > 0.5"), "p_correct"),
    ]:
        assert says in cli("replay", recorded, *arguments).error


# Wrong files


def broken_files(recorded, folder):
    """Yield what a user may take for a recording, with what the message must say."""
    whole = recorded.read_bytes()
    table = read_recording(recorded).table
    yield folder / "missing.parquet", "does not exist"
    for name, data in {
        "empty": b"",
        "noise": os.urandom(3000),
        "text": b"question_id,round\nq,1\n",
        "latin": "Öl für Tübingen".encode("latin-1"),
        "half": whole[: len(whole) // 2],
        "tail": whole[-len(whole) // 2 :],
        "short": whole[:-1],
    }.items():
        (folder / f"{name}.parquet").write_bytes(data)
        yield folder / f"{name}.parquet", "corrupt or truncated"
    pq.write_table(pa.table({"a": [1]}), folder / "foreign.parquet")
    yield folder / "foreign.parquet", "suffice import"
    newer = table.replace_schema_metadata({META_KEY: b'{"format": "suffice.recording", "version": 2}'})
    pq.write_table(newer, folder / "newer.parquet")
    yield folder / "newer.parquet", "version 2"
    rows = table.to_pylist()
    for name, changed, says in [
        ("twice", [*rows, rows[7]], "more than once"),
        ("gap", [row for row in rows if (row["question_id"], row["round"]) != ("q3", 2)], "'q3' lacks round 2"),
        ("headless", [row for row in rows if row["round"] > 1], "start at 0 or 1"),
        ("ends", [{**row, "end": "bored"} for row in rows], "bored"),
    ]:
        write_recording(folder / f"{name}.parquet", changed, {})
        yield folder / f"{name}.parquet", says


def test_every_command_that_reads_a_recording_rejects_other_files(recorded, tmp_path):
    for path, says in broken_files(recorded, tmp_path):
        for arguments in (["replay", path], ["calibrate", path, "-o", tmp_path / "p.json"]):
            assert says in cli(*arguments).error, path
        assert not (tmp_path / "p.json").exists()
        if path.exists():
            with Endpoint(reply) as endpoint:
                before = path.read_bytes()
                questions = dataset(tmp_path / "q.jsonl")
                told = cli(
                    "record", questions, "-o", path, "--base-url", endpoint.url, "--model", "m", "--set=logprobs=false"
                )
                assert told.error
                assert (path.read_bytes(), endpoint.requests) == (before, [])


def test_signals_that_are_undefined_everywhere_are_refused(recorded, tmp_path):
    nothing = {"answer_margin": float("nan"), "verbal_confidence": None, "answer_stable": float("inf")}
    path = rewritten(recorded, tmp_path / "r.parquet", **nothing)
    for rule in ("answer_margin > 0", "answer_stable"):
        assert "undefined" in cli("replay", path, "--rule", rule, "--set=resamples=20").error
    assert "answer_margin" in cli("calibrate", path, "-o", tmp_path / "p.json", "--rule", "margin").error


def test_empty_answers_and_a_megabyte_are_ordinary_rows(recorded, tmp_path):
    def answer(row):
        return [None, "", "  ", "The The", "x" * 1_000_000][(row["round"] - 1 + int(row["question_id"][1:])) % 5]

    path = rewritten(recorded, tmp_path / "r.parquet", answer=answer)
    result = cli("replay", path, "--rule", "answer_stable", "--set=resamples=20", "--metric", "agreement", "--json")
    assert result.code == 0
    assert result.json["n"] == 40


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"surprise": 1}, "surprise"),
        ({"rule": "answer_stable >="}, "answer_stable >="),
        ({"rule": "__import__('os').system('true')"}, "not allowed"),
        ({"rule": 5}, "rule"),
        ({"version": 9}, "version 9"),
        ({"format": "other"}, "suffice.policy"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"max_rounds": "5"}, "max_rounds"),
        ({"selector": "best"}, "best"),
        ({"calibrators": [{"kind": "pickle"}]}, "calibrator"),
        ({"state": {"overlap": {}}}, "state"),
        ({"answer_position": {"kind": "python"}}, "position"),
    ],
)
def test_a_policy_file_with_something_wrong_is_told(change, says, recorded, tmp_path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps({**Policy(rule=parse_rule("answer_stable")).to_dict(), **change}))
    result = cli("replay", recorded, "--policy", path)
    assert says in result.error


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"rule": NaN}', b'"policy"', b"[" * 100_000])
def test_a_file_that_is_no_policy_is_told(data, recorded, tmp_path):
    (tmp_path / "p.json").write_bytes(data)
    for name in ("p.json", "nowhere.json"):
        told = cli("replay", recorded, "--policy", tmp_path / name).error
        assert "policy" in told.replace(str(tmp_path), "")  # the folder has the name of this test


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("q.jsonl", b'{"id": "a", "question": "\xff?"}\n', "UTF-8"),
        ("q.jsonl", b'{"id": "a"', "line 1: not JSON"),
        ("q.jsonl", b"", "no questions"),
        ("q.jsonl", b"[1]", "as one JSON object"),
        ("q.jsonl", b'{"id": "a", "question": ""}', "question is ''"),
        (
            "q.jsonl",
            json.dumps(question(1)).encode() + b"\n" + json.dumps(question(1)).encode(),
            "question id 'q1' was",
        ),
        ("q.csv", b"id,question\n", "jsonl"),
        ("q.jsonl.gz", b"not gzip", "gzip"),
    ],
)
def test_questions_that_cannot_be_read_are_told_before_any_call(name, data, says, tmp_path):
    (tmp_path / name).write_bytes(data)
    with Endpoint(reply) as endpoint:
        told = cli("record", tmp_path / name, "-o", tmp_path / "r.parquet", "--base-url", endpoint.url, "--model", "m")
        assert says in told.error
        assert endpoint.requests == []


# Imports


def test_tasr_files_are_imported_and_replayed(tmp_path):
    source = tasr_file(tmp_path / "t.parquet", [tasr_row(f"q{i}", r) for i in range(12) for r in (1, 2, 3, 4, 5)])
    done = cli("import", source, "-o", tmp_path / "r.parquet", "--json").json
    assert (done["trajectories"], done["rounds"], done["censored"]) == (12, 5, 0)
    result = cli("replay", tmp_path / "r.parquet", "--rule", "answer_stable", "--metric", "em", "--json").json
    row = next(row for row in result["rows"] if row["label"] == "answer_stable")
    assert (row["calls"]["mean"], row["metrics"]["em"]) == (3, 1)


def test_any_table_is_imported_with_a_column_map(tmp_path):
    source = tmp_path / "t.csv"
    lines = [f"{q},{step},{'Oslo' if step > 1 else 'Lima'},Oslo,{step / 4}" for q in "abc" for step in (1, 2, 3)]
    source.write_text("\n".join(["qid,step,ans,gold,sure", *lines]))
    names = {"question_id": "qid", "round": "step", "answer": "ans", "golds": "gold", "sureness": "sure"}
    columns = [part for ours, theirs in names.items() for part in ("--column", f"{ours}={theirs}")]
    assert cli("import", source, "-o", tmp_path / "r.parquet", *columns).code == 0
    result = cli("replay", tmp_path / "r.parquet", "--rule", "sureness >= 0.5", "--set=resamples=20", "--json").json
    (row,) = [row for row in result["rows"] if row["kind"] == "rule"]
    assert (row["calls"]["mean"], row["metrics"]["em"]) == (2, 1)
    wrong = [part.replace("round=step", "round=none") for part in columns]
    assert "'none'" in cli("import", source, "-o", tmp_path / "x.parquet", *wrong).error


def test_ircot_answers_exist_only_at_the_last_round(tmp_path):
    done = cli("import", IRCOT, "-o", tmp_path / "r.parquet", code=0)
    assert "note:" in done.out
    refused = cli("replay", tmp_path / "r.parquet", "--rule", "fixed_k(1)")
    assert "last round" in refused.error


def test_reflexion_is_marked_censored_and_clustered(tmp_path):
    done = cli("import", REFLEXION, "-o", tmp_path / "r.parquet", "--json").json
    assert done["censored"] > 0
    assert done["clusters"] < done["trajectories"]
    shown = cli(
        "replay", tmp_path / "r.parquet", "--rule", "fixed_k(3)", "--baseline", "fixed_k(1)", "--set=resamples=50"
    )
    assert shown.code == 0, shown.err
    assert "†" in shown.out
    assert "censored" in shown.out
    result = cli("replay", tmp_path / "r.parquet", "--rule", "fixed_k(3)", "--baseline", "fixed_k(1)", "--json").json
    assert any(row["censored"] for row in result["rows"])
    assert result["n_clusters"] < result["n"]


@pytest.mark.parametrize("kind", ["tasr", "tabular", "ircot", "reflexion", "debate"])
def test_importing_what_is_something_else_is_an_error_and_writes_nothing(kind, tmp_path):
    for name, data in {"x.parquet": b"PAR1noPAR1", "x.csv": b"\xff\xfe\n", "x.jsonl": b"{]", "x.zip": b"PK no"}.items():
        (tmp_path / name).write_bytes(data)
        assert cli("import", tmp_path / name, "--kind", kind, "-o", tmp_path / "r" / "r.parquet").error
    assert cli("import", tmp_path / "missing.csv", "--kind", kind, "-o", tmp_path / "r" / "r.parquet").error
    assert not (tmp_path / "r").exists()


def test_a_table_without_a_recording_header_is_not_a_recording(tmp_path):
    pq.write_table(build_table([{"question_id": "q", "round": 1}]), tmp_path / "r.parquet")
    assert "suffice import" in cli("replay", tmp_path / "r.parquet").error


def test_a_rule_runs_on_an_unguarded_recording_and_says_so(tmp_path):
    rows = [
        {"question_id": f"q{q}", "round": r, "end": "max_rounds", "answer": "a", "em": 1.0, "f1": 1.0,
         "answer_stable": None if r == 1 else 1.0, "cost.generator.calls": 1.0}
        for q in range(3) for r in (1, 2, 3)
    ]  # fmt: skip
    write_recording(tmp_path / "r.parquet", rows)
    replayed = cli("replay", tmp_path / "r.parquet", "--rule", "answer_stable", "--set=resamples=10", code=0)
    assert "no column 'abstained' was recorded: answer_stable is not shown without stops on refusals" in replayed.err
    guarded = [{**row, "abstained": 0.0} for row in rows]
    write_recording(tmp_path / "g.parquet", guarded)
    named = cli("replay", tmp_path / "g.parquet", "--rule", "answer_stable", "--selector", "majority", "--json").json
    assert [row["label"] for row in named["rows"][:2]] == ["answer_stable, majority", "answer_stable_guarded, majority"]


def test_too_little_memory_is_a_sentence(tmp_path, monkeypatch):
    def too_large(path, **how):
        raise MemoryError(path)

    recording = recording_of([["a", "b"], ["b", "a"]])
    write_recording(tmp_path / "r.parquet", recording.table, recording.metadata)
    monkeypatch.setattr("suffice.cli.offline.opened", too_large)
    told = cli("replay", tmp_path / "r.parquet", "--rule", "answer_stable", code=1)
    assert "takes more memory than there is. Take fewer questions" in told.err
