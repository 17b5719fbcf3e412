"""Commands on a Ray cluster: the recording of one process, whatever is killed meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.ray_kills import CONCURRENCY, VICTIMS, columns_of, nodes, record_alone, record_killed

from suffice.cli.console import ShardReport
from suffice.common.processes import over_parts, pools_from
from suffice.errors import DataError
from suffice.loops import Progress
from suffice.policy.rounds import Cost
from suffice.recordings import write_recording
from suffice.recordings.shards import Shard
from suffice_gates.models import read_states
from suffice_scale.clusters.command import _needs
from suffice_scale.clusters.connection import Cluster, RayPool
from suffice_scale.clusters.total import Total
from suffice_scale.clusters.worker import Needs, Worker
from tests.support.cli_tools import cli, dataset, reply
from tests.support.endpoint import Endpoint

ENTRY = "suffice.cli.main:run"


@pytest.fixture(scope="module")
def cluster():
    """Two nodes on this machine."""
    with nodes() as two:
        yield two


@pytest.fixture(scope="module")
def connected(cluster):
    """Connect once: a command keeps a connection that there is, and those that are killed below make their own."""
    with Cluster().connected():
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Questions as one process records them that nobody kills."""
    return record_alone(tmp_path_factory.mktemp("alone") / "alone", questions=40)


def words_for(endpoint, *more):
    return ["record", "q.jsonl", "--model", "m", "--base-url", endpoint.url, "--max-rounds", "3", *more]


@pytest.mark.whole
def test_shards_on_a_cluster_are_the_recording_of_one_process(connected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "q.jsonl", n=20)
    with Endpoint(reply, usage="plain") as endpoint:
        assert cli(*words_for(endpoint, "-o", "one.parquet")).code == 0
        alone = len(endpoint.requests)
        times = []
        endpoint.reply = lambda body: (times.append(time.monotonic()), reply(body))[1]
        endpoint.most_running = 0
        on_ray = ("--on", "ray", "--set=workers=2")
        limits = ("--set=requests-per-minute=3000", "--set=max-in-flight=3")
        many = cli(*words_for(endpoint, "-o", "many", *on_ray, "--set=shards=3", *limits, "--json"), code=0)
        assert len(endpoint.requests) - alone == 60 + 3  # a call of each shard examines the endpoint
        assert many.json["calls"] == 60
        assert (many.json["questions"], many.json["incomplete"]) == (20, None)
        assert "2 workers for 3 shards, on a Ray cluster of 2 nodes" in many.err
        assert columns_of(Path("many")) == columns_of(Path("one.parquet"))
        assert sorted(path.name for path in Path("many").iterdir())[:2] == [
            "manifest.json",
            "part-0001-of-0003.parquet",
        ]
        # Limits hold for all workers together.
        assert endpoint.most_running <= 3
        assert len(times) == 60 + 3
        assert max(times) - min(times) > 0.9 * 62 / 50

        # A wrong configuration ends all at once, with its own words; without the setting shards the folder says how many there are.
        other = cli(*words_for(endpoint, "-o", "many", *on_ray, "--prompt", "step_by_step"))
        assert "another configuration" in other.error
        assert "shard " in other.error
        assert len(endpoint.requests) - alone <= 60 + 3 + 2
        monkeypatch.setenv("ABSENT_KEY", "here alone")
        one = ("--on", "ray", "--set=workers=1")
        elsewhere = cli(*words_for(endpoint, "-o", "none", *one, "--api-key-env", "ABSENT_KEY"))
        assert "'ABSENT_KEY'" in elsewhere.error
        assert "here alone" not in elsewhere.err


@pytest.mark.whole
def test_parts_are_replayed_and_searched_on_a_cluster(connected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "q.jsonl", n=24)
    with Endpoint(reply, usage="plain") as endpoint:
        for shard in ("1/3", "2/3", "3/3"):
            assert cli(*words_for(endpoint, "-o", "many", "--shard", shard)).code == 0
    sent, submit = [], RayPool.submit
    monkeypatch.setattr(RayPool, "submit", lambda pool, *words: (sent.append(words), submit(pool, *words))[1])
    on_ray = ("--on", "ray", "--set=workers=2")
    replay = ("replay", "many", "--rule", "answer_stable", "--json")
    assert cli(*replay, *on_ray).json == cli(*replay, "--jobs", 1).json
    search = ("search", "many", "--set=resamples=20", "--json")
    there, here = cli(*search, *on_ray), cli(*search, "--jobs", 1)
    assert (there.code, here.code) == (0, 0), there
    assert there.json == here.json
    assert len(sent) > 6, "the parts were read by tasks"
    with Cluster().connected() as ray, pools_from(lambda: RayPool(ray, Cluster())):
        assert list(over_parts(int, ["1", "2", "3"], jobs=2)) == [1, 2, 3]
        with pytest.raises(DataError, match="two numbers"):
            list(over_parts(Shard.parse, ["1/2", "slurm"], jobs=2, name=lambda _: "'x'"))
    assert "2 parts at a time, on a Ray cluster of 2 nodes" in there.err


def test_parts_on_a_cluster_take_no_jobs(tmp_path, cut_path):
    assert "go with --on" in cli("search", cut_path, "--on", "ray", "--jobs", 2).error
    assert "go with --on" in cli("search", cut_path, "--on", "ray", "--set=shards=2").error
    assert "give --on ray" in cli("search", cut_path, "--set=workers=2").error


@pytest.mark.whole
def test_drafts_are_judged_on_a_cluster(connected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question_id": f"q{i}", "round": 1, "question": f"Where is {i}?", "answer": f"In {i}.", "end": "max_rounds"}
        for i in range(12)
    ]
    write_recording("drafts.parquet", rows, {"config": {}})
    with Endpoint('{"score": 4}', usage="plain") as endpoint:
        words = ["judge", "drafts", "drafts.parquet", "--model", "j", "--base-url", endpoint.url]
        words.append("--set=marks=answer_relevancy")
        alone = cli(*words, "-o", "one.parquet", "--json")
        asked = len(endpoint.requests)
        many = cli(*words, "-o", "many.parquet", "--on", "ray", "--set=workers=2", "--set=shards=2", "--json")
        assert (alone.code, many.code) == (0, 0), many
        assert len(endpoint.requests) == 2 * asked
    assert many.json["marks"] == alone.json["marks"]
    assert many.json["path"] == "many.parquet"
    assert columns_of(Path("many.parquet")) == columns_of(Path("one.parquet"))
    assert sorted(path.name for path in tmp_path.glob("*many*")) == ["many.parquet", "many.parquet.judged.sqlite"]


@pytest.mark.whole
def test_states_are_read_on_a_cluster(connected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "q.jsonl", n=8)
    words = ["gate", "states", "q.jsonl", "--encoder", "minilm"]
    assert cli(*words, "-o", "one.states").code == 0
    many = cli(*words, "-o", "many.states", "--on", "ray", "--set=workers=2", "--set=shards=2", "--json").json
    assert (many["stored"], many["read"], many["path"]) == (8, 8, "many.states")
    assert read_states("many.states").ids == read_states("one.states").ids
    again = cli(*words, "-o", "many.states", "--on", "ray", "--set=workers=1")
    assert "many.states: 8 states" in again.words
    assert "this run: 0 prompts" in again.words
    assert "suffice gate train many.states" in again.words


@pytest.mark.whole
def test_what_is_killed_costs_no_more_than_the_calls_in_flight(cluster, alone, tmp_path):
    result = record_killed(tmp_path / "killed", cluster, VICTIMS, alone)
    assert result["kills"] == 3
    assert result["workers_ended"] >= 4, "one, that of a node, and both of the driver"
    assert result["repeated"] <= CONCURRENCY * result["workers_ended"]


def test_options_of_a_cluster_need_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "q.jsonl")
    words = ["record", "q.jsonl", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "-o"]
    assert "--on ray" in cli(*words, "r", "--set=workers=2").error
    assert "of the two" in cli(*words, "r", "--on", "ray", "--shard", "1/2").error
    for alone in (["--batch-file", "b.jsonl"], ["--batch", "--set=wait=false"]):
        assert "for one process" in cli(*words, "r", "--on", "ray", *alone).error
    assert "folder" in cli(*words, "r.parquet", "--on", "ray").error
    assert "not a cluster" in cli(*words, "r", "--on", "slurm").error
    leaky = ["record", "q.jsonl", "--model", "m", "--base-url", "http://me:secret@127.0.0.1:9/v1", "-o", "r"]
    refused = cli(*leaky, "--on", "ray")
    assert "holds a password" in refused.error
    assert "secret" not in refused.error


def test_a_worker_says_what_it_does_not_see(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").write_text("1234")
    (tmp_path / "marker").write_text("token")
    worker = Worker(ENTRY)
    needs = {
        "folder": str(tmp_path),
        "files": {"q.jsonl": 4},
        "folders": [str(tmp_path)],
        "marker": "marker",
        "token": "token",
    }
    monkeypatch.chdir(tmp_path.parent)
    assert worker.check(Needs(**needs)) is None
    assert Path.cwd() == tmp_path.parent, "a question about files moves nothing"
    for change, message in [
        ({"version": "0.0"}, "install the same version"),
        ({"folder": str(tmp_path / "absent")}, "working directory"),
        ({"files": {"q.jsonl": 5}}, "has 4 bytes, and the driver's has 5"),
        ({"files": {"p.jsonl": 5}}, "does not see the file 'p.jsonl'"),
        ({"folders": ["corpus"]}, "does not see the folder 'corpus'"),
        ({"token": "other"}, "not that of the driver"),
        ({"marker": "absent"}, "not that of the driver"),
        ({"variables": ["ABSENT_KEY"]}, "keys are never sent"),
    ]:
        assert message in worker.check(Needs(**needs | change))


def test_a_worker_needs_the_variables_that_the_client_of_a_store_reads(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setenv("QDRANT_API_KEY", "secret")
    monkeypatch.delenv("PGUSER", raising=False)
    for address, wanted in [
        ("postgresql://db/wiki?table=t", ["PGPASSWORD"]),
        ("qdrant://db/wiki", ["QDRANT_API_KEY"]),
        ("documents", []),
    ]:
        needs = _needs(
            SimpleNamespace(params={}), ["record", "--corpus", address], tmp_path, tmp_path / "marker", "token"
        )
        assert [name for name in needs.variables if name != "OPENAI_API_KEY"] == wanted
        assert "secret" not in str(needs)


def test_a_worker_returns_what_the_command_prints_and_its_own_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "q.jsonl", n=3)
    worker = Worker(ENTRY)
    assert worker.report() is None
    with Endpoint(reply) as endpoint:
        outcome = worker.run([*words_for(endpoint, "-o", "one.parquet"), "--json"])
    assert (outcome.code, outcome.error, outcome.data["questions"]) == (0, None, 3)
    assert outcome.report.progress.done == worker.report().progress.done == 3
    assert outcome.report.progress.cost.calls == 9
    failed = worker.run(["replay", "absent.parquet", "--json"])
    assert (failed.code, failed.data) == (2, None)
    assert failed.error.startswith("error: ")
    assert "absent.parquet" in failed.error


def test_a_shard_that_another_process_holds_is_waited_for(tmp_path, monkeypatch):
    from suffice.recordings.journal import Journal

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("suffice.recordings.journal._JOURNAL_BUSY_S", 0.01)
    dataset(tmp_path / "q.jsonl", n=3)
    with Endpoint(reply) as endpoint:
        words = [*words_for(endpoint, "-o", "one.parquet"), "--json"]
        Worker(ENTRY).run(words)  # whatever the journal is begun with
        Path("one.parquet").unlink()
        holder = Journal("one.parquet.journal", {})
        try:
            held = Worker(ENTRY, busy_s=0).run(words)
            assert held.code == 1
            assert "another process" in held.error
        finally:
            clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: holder.delete())
            monkeypatch.setattr("suffice_scale.clusters.worker.time", clock)  # of this module: other threads sleep, too
            outcome = Worker(ENTRY).run(words)
    assert (outcome.code, outcome.data["questions"]) == (0, 3)


def test_the_sum_keeps_what_lost_workers_spent():
    total = Total(4)
    total.put(1, ShardReport(Progress(total=10, done=4, resumed=1, costs={"generator": Cost(calls=9.0)}), 0.5))
    total.put(2, ShardReport(Progress(total=12, done=12, failed=1, costs={"generator": Cost(calls=30.0)}), 1.0))
    total.put(None, ShardReport(Progress(total=99), None))
    assert total.give_up(1)
    assert not total.give_up(3)
    total.put(1, ShardReport(Progress(total=10, done=5, resumed=4, costs={"generator": Cost(calls=3.0)}), 0.25))
    progress = total.progress
    assert (progress.total, progress.done, progress.resumed, progress.failed) == (44, 17, 1, 1)
    assert (progress.cost.calls, total.usd, total.lost) == (42.0, 1.75, 2)
    assert not Total(1).give_up(1)
    assert Total(1).usd is None


@pytest.mark.parametrize("on", ["", "ray://", "rays", "slurm", "local"])
def test_a_cluster_has_an_address(on):
    with pytest.raises(DataError, match="a cluster"):
        Cluster(on=on)


def test_words_for_workers_hold_what_the_settings_file_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "q.jsonl")
    Path("suffice.toml").write_text('base-url = "http://127.0.0.1:9/v1"\nmodel = "m"\n')
    jobs = []

    def run_shards(cluster, job, **_):
        jobs.append((cluster, job))
        raise DataError("enough")

    monkeypatch.setattr("suffice_scale.clusters.command.run_shards", run_shards)
    words = [
        "record",
        "q.jsonl",
        "-o",
        "r",
        "--set=logprobs=false",
        "--on",
        "ray",
        "--set=workers=3",
        "--set=gpus-per-worker=0.5",
        "--json",
    ]
    assert cli("--extension", "json", *words).error.endswith("error: enough\n")
    ((cluster, job),) = jobs
    endpoint = ["--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    assert job.words[:6] == ["--extension", "json", "record", "q.jsonl", "--out", "r"]
    assert sorted(job.words[6:]) == sorted([*endpoint, "--set", "logprobs=false", "--json"])
    assert (cluster.workers, cluster.gpus, job.n_shards) == (3, 0.5, None)
    assert dict(job.needs.files) == {"q.jsonl": (tmp_path / "q.jsonl").stat().st_size}
    assert not list(Path("r").iterdir())  # the marker is gone
