"""The command line, live: recording, answering and examining an endpoint in every mood, and the demo."""

from __future__ import annotations

import re
import shlex
import time

import pytest

from suffice import Policy, parse_rule
from suffice.loops.retrieval import load_questions
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES, cli, corpus, dataset, question, reply
from tests.support.endpoint import Endpoint, prompt_of

pytestmark = pytest.mark.usefixtures("remembered_windows")

ASKED = "Where is tower 2?"
LOGPROBS = re.compile("log-?prob")


def record(endpoint, folder, *more, questions=None):
    return cli(
        *("record", questions or folder / "q.jsonl", "-o", folder / "r.parquet", "--base-url", endpoint.url),
        *("--model", "m", "--set=concurrency=1", *more),
    )


@pytest.fixture
def folder(tmp_path):
    dataset(tmp_path / "q.jsonl", n=3)
    return tmp_path


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    """Without the client's waits between retries, which other tests hold to Retry-After."""
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


# Record


def test_record_writes_a_recording_and_says_what_it_spent(folder):
    with Endpoint(reply) as endpoint:
        told = record(endpoint, folder, "--json").json
        assert len(endpoint.requests) == 1 + 15  # the first asks for log-probabilities
    assert (told["questions"], told["rounds"], told["failed"], told["calls"]) == (3, 15, {}, 15)
    assert told["tokens"] > 0
    recording = read_recording(folder / "r.parquet")
    assert recording.metadata["cache_state"] == "live"
    with Endpoint(reply) as endpoint:
        again = record(endpoint, folder, "--json", "--set=logprobs=false")
        assert "another configuration" in again.error
        assert endpoint.requests == []


@pytest.mark.filterwarnings("always:some questions have fewer rounds")
def test_a_warning_advises_an_option_that_exists(tmp_path):
    paragraphs = [{"title": "Manual", "text": f"Part {i}."} for i in range(3)]
    asked = {"id": "a", "question": "Where?", "answers": ["Oslo"], "paragraphs": paragraphs}
    with Endpoint(reply) as endpoint:
        told = record(endpoint, tmp_path, questions=dataset(tmp_path / "q.jsonl", asked)).err
    assert "note: some questions have fewer rounds than passages" in told
    assert "give each passage its own title" in told
    assert "Warning" not in told


def test_record_with_round_zero_limit_prices_overlap_and_parallel_rounds(folder):
    (folder / "prices.toml").write_text("[m]\nuncached = 1.0\ncached = 0.5\noutput = 2.0\n")
    with Endpoint(reply) as endpoint:
        told = record(
            *(
                endpoint,
                folder,
                "--json",
                "--round-zero",
                "--limit",
                "2",
                "--max-rounds",
                "3",
                "--set=parallel-rounds=true",
            ),
            *("--prices", folder / "prices.toml", f"--set=fit-overlap-on={folder / 'q.jsonl'}"),
        ).json
    assert told["usd"] > 0
    recording = read_recording(folder / "r.parquet")
    assert (recording.shape, recording.index.tolist()) == ((2, 4), [0, 1, 2, 3])
    assert recording.metadata["cache_state"] == "unknown"
    assert "overlap" in recording.names("signal")


FAULTS = ["429", "500", "503", "html", "half", "empty", "list", "gateway", "drop", "hang"]
ATTEMPTS = dict.fromkeys(("429", "500", "503", "drop", "hang"), 5) | dict.fromkeys(
    ("html", "half", "empty", "list", "gateway"), 1
)
PATIENCE = dict.fromkeys(FAULTS, ()) | {"hang": ("--set=timeout=60",)}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_reply_is_a_recorded_failure_that_the_same_command_completes(fault, folder, impatient):
    # The third question's second round fails, whatever the client's retries; all before is kept.
    faulty = {"on": True}

    def fails(body):
        text = prompt_of(body)
        return faulty["on"] and "tower 2?" in text and text.count("Passage ") == 2

    if fault == "hang":
        impatient.append(fails)
    with Endpoint(reply, fault=lambda body: fault if fails(body) else None) as endpoint:
        told = record(endpoint, folder, "--json", *PATIENCE[fault])
        assert told.code == 1
        assert list(told.json["failed"]) == ["q2"]
        assert told.json["rounds"] == 11
        recording = read_recording(folder / "r.parquet")
        assert recording.ends.tolist() == ["max_rounds", "max_rounds", "failed"]
        assert (folder / "r.parquet.journal").exists()
        before = 1 + 11 + ATTEMPTS[fault]
        while len(endpoint.requests) < before:  # the endpoint may read later what the client gave up
            time.sleep(0.01)
        faulty["on"] = False
        assert record(endpoint, folder).code == 0
        assert len(endpoint.requests) - before == 1 + 4  # the probe, and the four rounds that are missing
    assert read_recording(folder / "r.parquet").ends.tolist() == ["max_rounds"] * 3
    assert not (folder / "r.parquet.journal").exists()


def test_refused_credentials_end_at_once_and_what_was_paid_is_kept(folder, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-right-key-1")
    with Endpoint(reply, api_key="sk-right-key-1") as endpoint:
        assert record(endpoint, folder, "--api-key-env", "MY_KEY", "--limit", "1").code == 0
        before = len(endpoint.requests)
        monkeypatch.setenv("MY_KEY", "sk-wrong-key-2")
        told = record(endpoint, folder, "--api-key-env", "MY_KEY")
        assert "401" in told.error
        assert "sk-wrong" not in told.err
        assert len(endpoint.requests) == before + 1
    assert read_recording(folder / "r.parquet").question_ids == ["q0"]


def test_an_endpoint_without_logprobs_is_told_before_the_first_question(folder):
    for mood in ("none", "refused", "processed"):
        with Endpoint(reply, logprobs=mood) as endpoint:
            told = record(endpoint, folder)
            assert LOGPROBS.search(told.error)
            assert "--set logprobs=false" in told.error
            assert len(endpoint.requests) == 1
            assert record(endpoint, folder, "--set=logprobs=false", "-o", folder / f"{mood}.parquet").code == 0


def test_nothing_is_reachable_or_named(folder, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert "needs an endpoint" in cli("record", folder / "q.jsonl", "-o", folder / "r.parquet", "--model", "m").error
    arguments = ["record", folder / "q.jsonl", "-o", folder / "r.parquet", "--model", "m"]
    assert "cannot be reached" in cli(*arguments, "--base-url", "http://127.0.0.1:9/v1").error
    assert "base_url" in cli(*arguments, "--base-url", "ftp://x").error
    for *words, says in [
        ("--prompt", "poem", "unknown prompt 'poem'"),
        ("--set=extra-body={", "'{' is not JSON"),
        ("--set=extra-body=[]", "expected a JSON object"),
        ("--set=api=soap", "api must be one of"),
    ]:
        assert says in cli(*arguments, "--base-url", "http://127.0.0.1:9/v1", *words).error
    assert not (folder / "r.parquet").exists()


def test_odd_questions_are_recorded_or_fail_alone(folder):
    huge = question(1)
    huge["paragraphs"][0]["text"] = "word " * 200_000
    bare = {"id": "bare", "question": "Where is tower 9?", "answers": []}
    dataset(folder / "q.jsonl", question(0), huge, bare, {**question(2), "answers": []})
    with Endpoint(lambda body: "Answer:   \nConfidence: ?") as endpoint:
        told = record(endpoint, folder, "--json", "--max-rounds", "2")
    assert told.code == 1
    assert list(told.json["failed"]) == ["bare"]
    recording = read_recording(folder / "r.parquet")
    assert recording.question_ids == ["q0", "q1", "q2"]
    assert not any(recording.answers.ravel())
    assert (
        cli("replay", folder / "r.parquet", "--rule", "fixed_k(1)", "--metric", "agreement", "--set=resamples=20").code
        == 0
    )
    assert (
        "agreement" in cli("replay", folder / "r.parquet", "--rule", "fixed_k(1)").error
    )  # one question has no gold answer


def test_a_response_cache_pays_once(folder):
    with Endpoint(reply) as endpoint:
        spent = [
            record(
                endpoint, folder, f"--set=cache={folder / 'cache.sqlite'}", "-o", folder / f"{name}.parquet", "--json"
            ).json
            for name in ("a", "b")
        ]
        assert len(endpoint.requests) == 2 + 15
    assert [run["calls"] for run in spent] == [15, 0]
    one, two = (read_recording(folder / f"{name}.parquet") for name in "ab")
    assert one.data_hash == two.data_hash


def test_a_judge_and_a_cross_encoder_are_recorded_and_named(folder, monkeypatch):
    monkeypatch.setattr("suffice_gates.rerank.load_cross_encoder", lambda *_: Words())
    with Endpoint(reply) as endpoint, Endpoint("Mark: 4") as judge:
        more = (
            "--judge-model",
            "j",
            f"--set=judge-base-url={judge.url}",
            "--set=rerank-signal=words",
            "--max-rounds",
            "2",
        )
        assert record(endpoint, folder, *more).code == 0
        assert len(judge.requests) == 6
        plain = record(endpoint, folder, "--judge-model", "m", "--max-rounds", "1", "-o", folder / "same.parquet")
        assert plain.code == 0  # the judge's endpoint is the model's unless told otherwise
    recording = read_recording(folder / "r.parquet")
    assert (recording.column("judge_entailment") == 4).all()
    assert recording.column("cost.reranker.calls").sum() == 6
    assert set(recording.metadata["config"]["enrichers"]) == {"judge:entailment", "reranker"}


class Words:
    def predict(self, pairs):
        return [float(len(set(a.split()) & set(b.split()))) for a, b in pairs]


# Answer


def test_answer_reads_a_folder_with_the_embedded_reader(tmp_path):
    docs = corpus(tmp_path / "docs")
    told = cli("answer", ASKED, "--corpus", docs, "--json").json
    assert told["reason"] in ("rule", "max_rounds", "exhausted")
    assert [r["round"] for r in told["rounds"]] == list(range(1, told["stop_round"] + 1))
    assert set(told["rounds"][0]["signals"]) == {"abstained", "answer_stable"}
    assert told["costs"]["generator"]["calls"] == told["stop_round"]
    shown = cli("answer", ASKED, "--corpus", docs)
    assert (shown.code, shown.err) == (0, "")
    for part in ("answer", "stopped", "reason", "cost", "answer_stable"):
        assert part in shown.out
    assert "\x1b" not in shown.out


def test_answer_stops_early_over_an_endpoint_and_says_why(tmp_path):
    docs = corpus(tmp_path / "docs")
    with Endpoint("Answer: Rome\nConfidence: 5") as endpoint:
        told = cli("answer", ASKED, "--corpus", docs, "--base-url", endpoint.url, "--model", "m", "--json").json
        assert len(endpoint.requests) == 2
        assert (told["answer"], told["reason"], told["stop_round"]) == ("Rome", "rule", 2)
        assert told["fired"] == "(answer_stable >= 1) & (abstained < 1)"
        more = ("--rule", "verbal_confidence >= 5", "--selector", "first", "--max-rounds", "3")
        told = cli("answer", ASKED, "--corpus", docs, "--base-url", endpoint.url, "--model", "m", "--json", *more).json
        assert (told["stop_round"], told["rounds"][0]["signals"]) == (1, {"verbal_confidence": 5})


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A locked TASR policy, fitted on a recording of 40 questions."""
    folder = tmp_path_factory.mktemp("policy")
    dataset(folder / "q.jsonl", n=40)
    with Endpoint(reply) as endpoint:
        done = cli("record", folder / "q.jsonl", "-o", folder / "r.parquet", "--base-url", endpoint.url, "--model", "m")
    assert done.code == 0, done
    assert cli("calibrate", folder / "r.parquet", "-o", folder / "p.json").code == 0
    return folder / "p.json"


def test_answer_runs_a_calibrated_policy(policy, tmp_path):
    docs = corpus(tmp_path / "docs")
    with Endpoint(reply) as endpoint:
        arguments = ("answer", ASKED, "--corpus", docs, "--policy", policy, "--base-url", endpoint.url, "--model", "m")
        told = cli(*arguments, "--json").json
        assert len(endpoint.requests) == 1 + told["stop_round"]
        assert set(told["signals"]) == {"answer_stable", "p_correct"}
        assert told["answer"] in CITIES
        assert "model" in cli(*arguments[:-1], "other").error
        assert "prompt" in cli(*arguments, "--prompt", "no_confidence").error
    assert "model" in cli("answer", ASKED, "--corpus", docs, "--policy", policy).error  # the span reader is another


@pytest.mark.parametrize("mood", ["none", "refused", "processed"])
def test_a_policy_on_margins_without_margins_is_refused_before_questions(mood, policy, tmp_path):
    docs = corpus(tmp_path / "docs")
    with Endpoint(reply, logprobs=mood) as endpoint:
        arguments = ("answer", ASKED, "--corpus", docs, "--policy", policy, "--base-url", endpoint.url, "--model", "m")
        assert LOGPROBS.search(cli(*arguments).error)
        assert len(endpoint.requests) == 1  # the probe
        assert ASKED not in endpoint.requests[0].prompt
        assert LOGPROBS.search(cli(*arguments, "--set=logprobs=false").error)
        assert len(endpoint.requests) == 1


def test_a_rule_on_a_judge_needs_one_and_asks_it_lazily(tmp_path):
    docs = corpus(tmp_path / "docs")
    rule = "(answer_stable >= 1) & (judge_entailment >= 4)"
    with Endpoint("Answer: Rome") as endpoint, Endpoint("Mark: 5") as judge:
        arguments = ("answer", ASKED, "--corpus", docs, "--rule", rule, "--base-url", endpoint.url, "--model", "m")
        assert "judge" in cli(*arguments).error
        assert endpoint.requests == []
        told = cli(*arguments, "--judge-model", "j", f"--set=judge-base-url={judge.url}", "--json").json
        assert (told["stop_round"], told["signals"]["judge_entailment"]) == (2, 5)
        assert (len(endpoint.requests), len(judge.requests)) == (2, 1)
        assert told["costs"]["judge:entailment"]["calls"] == 1


@pytest.mark.parametrize("fault", ["500", "html", "hang", "empty", "half"])
def test_an_endpoint_that_breaks_in_the_middle_leaves_the_best_answer(fault, tmp_path, impatient):
    docs = corpus(tmp_path / "docs")

    def fails(body):
        return "Passage 2" in prompt_of(body)

    if fault == "hang":
        impatient.append(fails)
    with Endpoint(reply, fault=lambda body: fault if fails(body) else None) as endpoint:
        arguments = ("answer", ASKED, "--corpus", docs, "--base-url", endpoint.url, "--model", "m", *PATIENCE[fault])
        result = cli(*arguments, "--json", code=1)
        assert (result.json["reason"], result.json["stop_round"]) == ("failed", 1)
        assert result.json["answer"] in CITIES
        assert result.json["error"]
        assert "failed after 1 round" in result.err
        shown = cli(*arguments, code=1)
        assert result.json["answer"] in shown.out


def test_an_unreadable_corpus_or_none_is_told(tmp_path):
    assert "nowhere" in cli("answer", ASKED, "--corpus", tmp_path / "nowhere").error
    (tmp_path / "empty").mkdir()
    assert cli("answer", ASKED, "--corpus", tmp_path / "empty").error
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.txt").write_bytes("Tübingen".encode("latin-1"))
    assert "UTF-8" in cli("answer", ASKED, "--corpus", tmp_path / "bad").error
    (tmp_path / "bad" / "b.txt").write_text("The tower 2 stands in Rome.")
    (tmp_path / "bad" / "scan.pdf").write_bytes(b"%PDF")
    done = cli("answer", ASKED, "--corpus", tmp_path / "bad", code=0)
    assert "not UTF-8: a.txt" in done.err
    assert "skipped 1 .pdf" in done.err


def test_answers_with_brackets_and_backslashes_are_printed_as_they_are(tmp_path):
    docs = corpus(tmp_path / "docs")
    with Endpoint("Answer: \\[/bold] [red]x[/red]") as endpoint:
        shown = cli("answer", ASKED, "--corpus", docs, "--base-url", endpoint.url, "--model", "m")
    assert shown.code == 0
    assert shown.out.count("\\[/bold] [red]x[/red]") == 3  # two rounds and the answer


def test_a_hand_written_policy_file_runs(tmp_path):
    docs = corpus(tmp_path / "docs")
    Policy(rule=parse_rule("round >= 2"), max_rounds=4).save(tmp_path / "p.json")
    told = cli("answer", ASKED, "--corpus", docs, "--policy", tmp_path / "p.json", "--json").json
    assert (told["stop_round"], told["fired"]) == (2, "round >= 2")


# Doctor


def doctor(endpoint, *more):
    return cli("doctor", "--base-url", endpoint.url, "--model", "m", "--set=repeats=2", *more)


@pytest.mark.parametrize(
    ("mood", "kind", "tasr"),
    [
        ("raw", "raw", "after calibration"),
        ("processed", "processed", "no"),
        ("none", "none", "no"),
        ("refused", "none", "no"),
    ],
)
def test_the_doctor_says_which_rules_run_there(mood, kind, tasr):
    with Endpoint(reply, logprobs=mood) as endpoint:
        told = doctor(endpoint, "--json").json
        shown = doctor(endpoint)
    assert (told["reachable"], told["logprobs"]) == (True, kind)
    assert told["rules"]["tasr"].startswith(tasr)
    assert told["rules"]["answer_stable"] == "yes"
    assert "judge" in told["rules"]["stable_and_entailed"]
    assert shown.code == 0
    assert "log-probabilities" in shown.out


@pytest.mark.parametrize("mood", ["raw", "processed", "none", "refused"])
def test_the_doctors_next_step_runs_as_printed(mood, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Endpoint(reply, logprobs=mood) as endpoint:
        step = shlex.split(doctor(endpoint, "--prompt", "no_confidence").out.rpartition("next: suffice ")[2])
        done = cli(*step, "--limit", "2")
    assert done.code == 0, (step, done)
    assert ("logprobs=false" in step) == (mood != "raw")
    assert step[step.index("--prompt") + 1] == "no_confidence"


@pytest.mark.parametrize("fault", ["401", "html", "500", "drop"])
def test_the_doctor_on_a_sick_endpoint_is_1_with_a_note(fault):
    with Endpoint(reply, fault=fault) as endpoint:
        told = doctor(endpoint, "--json")
        shown = doctor(endpoint)
    assert told.code == shown.code == 1
    assert told.json["reachable"] is False
    assert told.json["notes"]
    assert "note:" in shown.out
    assert "Traceback" not in shown.out + shown.err


def test_the_span_reader_has_no_endpoint_to_examine():
    assert "no endpoint" in cli("doctor", "--model", "span-reader").error


# Demo


def few(name, limit):
    return load_questions(name, limit=limit)[:5]


@pytest.mark.whole
def test_the_demo_runs_the_whole_chain_and_live_equals_replayed(tmp_path, monkeypatch):
    # The command takes 20 questions at least, and the reader takes a second for each five.
    monkeypatch.setattr("suffice_reader.demo.demo.load_questions", few)
    monkeypatch.setattr("suffice_reader.demo.bundled.load_questions", few)
    told = cli("demo", "--limit", "20", "--out", tmp_path / "out", "--json")
    assert (told.code, told.err) == (0, "")
    assert told.json["live"] == {
        "questions": 5,
        "mean_calls": pytest.approx(told.json["live"]["mean_calls"]),
        "differences_from_replay": [],
    }
    labels = {row["label"] for row in told.json["replay"]["rows"]}
    assert {"tasr", "tasr_guarded", "fixed_k(1)", "fixed_k(5)", "oracle_best"} <= labels
    assert "not certifiable with n = 5 at eps = 0.02" in told.json["certification"]["headline"]
    assert told.json["report"] == str(tmp_path / "out" / "hotpotqa_report.html")
    assert {"hotpotqa_tasr.policy.json", "hotpotqa_tune.parquet", "hotpotqa_eval.parquet", "hotpotqa_report.html"} <= {
        item.name for item in (tmp_path / "out").iterdir()
    }
    shown = cli("demo", "--limit", "20", "--out", tmp_path / "out")  # what is recorded is not recorded again
    assert shown.code == 0
    assert "live = replayed for 5 of 5 questions" in shown.words
    assert "questions needed" in shown.words
