"""Recordings in a bucket of a real S3 server, through s3fs: the tests of URLs once more, and what only a network does."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import pytest
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

from suffice import read_recording, record
from suffice.common.files import place, write_file
from suffice.errors import DataError
from suffice.recordings.shards import Shard
from tests.suffice.recordings import test_places
from tests.suffice.recordings.test_places import (  # noqa: F401 - pytest runs them here with the bucket below
    shards,
    test_a_folder_of_shards_at_a_url_is_the_same_recording,
    test_a_search_by_parts_reads_a_url_as_the_folder,
    test_an_uploaded_log_is_read_with_journals_and_recorders_stay_local,
    test_another_machine_takes_up_a_recording_from_the_copy_of_its_journal,
    test_every_command_takes_the_url_of_a_recording_and_refuses_another_one,
    test_shards_are_recorded_to_a_url_with_their_journal_on_this_machine,
)
from tests.suffice_scale.test_shards import columns_of, loop, questions, record_shards
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint
from tests.support.recording import reply

SECRET = "a-secret-key"
"""Of the server's only user."""


@pytest.fixture(scope="module", autouse=True)
def server():
    """An S3 server; s3fs finds it, and the keys, by the variables that every client of AWS reads."""
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "user")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield running
        running.stop()


@pytest.fixture
def bucket():
    name = f"b{uuid.uuid4().hex}"
    S3FileSystem().mkdir(name)
    return f"s3://{name}/runs"


def test_processes_record_their_shards_to_a_bucket(bucket, tmp_path):
    """Each shard in a process of its own, as on machines that share nothing but the bucket."""
    (tmp_path / "q.jsonl").write_text("".join(f'{{"id": "q{i}", "question": "Where is q{i}?", "answers": ["a"]}}\n' for i in range(9)))  # fmt: skip
    (tmp_path / "c.jsonl").write_text('{"id": "1", "title": "T", "text": "here"}\n')
    with Endpoint(reply) as endpoint:
        command = [sys.executable, "-m", "suffice", "record", str(tmp_path / "q.jsonl"), "--corpus", str(tmp_path / "c.jsonl"), "--model", "m", "--base-url", endpoint.url]  # fmt: skip
        running = [
            subprocess.Popen(
                [*command, "--shard", f"{i}/3", "-o", bucket, f"--set=journal={tmp_path / f'machine-{i}'}"],
                cwd=tmp_path,
                env={**os.environ, "OPENAI_API_KEY": "k"},
                stderr=subprocess.PIPE,
                text=True,
            )
            for i in (1, 2, 3)
        ]
        for process in running:
            _, said = process.communicate()
            assert process.returncode == 0, said
    assert read_recording(bucket).question_ids == [f"q{i}" for i in range(9)]


def test_a_process_that_is_killed_goes_on_elsewhere(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(test_places.recording_files, "_COPY_EVERY_S", 0.0)
    monkeypatch.setattr(test_places.recording_files, "_PAUSE_SHARE", 0.0)
    test_another_machine_takes_up_a_recording_from_the_copy_of_its_journal(bucket, tmp_path)


def test_an_upload_that_fails_leaves_the_former_file(bucket, monkeypatch):
    content = os.urandom(8 * 2**20)
    write_file(f"{bucket}/large", content)
    call = S3FileSystem._call_s3

    async def fail(self, method, *arguments, **options):
        if method in ("put_object", "upload_part"):
            raise ConnectionResetError("the connection ended")
        return await call(self, method, *arguments, **options)

    with monkeypatch.context() as broken:
        broken.setattr(S3FileSystem, "_call_s3", fail)
        with pytest.raises(DataError, match="read or written"):
            write_file(f"{bucket}/large", content[:-1])
    assert place(f"{bucket}/large").read_bytes() == content


def test_what_is_missing_has_a_name_and_no_key_is_said(bucket, tmp_path, monkeypatch):
    missing = "s3://b-that-is-not-there/runs"
    for command in (
        ["replay", f"{bucket}/absent", "--rule", "answer_stable"],
        ["replay", missing, "--rule", "answer_stable"],
        ["merge", missing, "-o", str(tmp_path / "one.parquet")],
    ):
        failed = cli(*command)
        assert "s3://" in failed.error
        assert SECRET not in failed.err
    record_shards(questions(["q1", "q2"]), tmp_path / "local", 1)
    failed = cli("merge", str(tmp_path / "local"), "-o", f"{missing}/one.parquet")
    assert "read or written" in failed.error
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    S3FileSystem.clear_instance_cache()
    failed = cli("replay", f"{bucket}/absent", "--rule", "answer_stable")
    assert "read or written" in failed.error
    assert SECRET not in failed.err
    S3FileSystem.clear_instance_cache()


def test_a_shard_in_a_bucket_can_run_beside_a_local_one(bucket, tmp_path):
    items = questions([f"q{i}" for i in range(6)])
    record(items, loop(), bucket, shard=Shard(1, 2), journal_folder=tmp_path / "journals")
    with pytest.raises(DataError, match="shard 2"):
        read_recording(bucket)
    record(items, loop(), bucket, shard=Shard(2, 2), journal_folder=tmp_path / "journals")
    record(items, loop(), tmp_path / "one.parquet")
    assert columns_of(bucket) == columns_of(tmp_path / "one.parquet")
