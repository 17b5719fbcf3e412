"""The studio without a browser: who may open it, what it lists, and how fast it finds a question among many."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from suffice import Recorder
from suffice.errors import DataError
from suffice.policy.rounds import Round
from suffice.policy.session import Policy, Session
from suffice.recordings import write_recording
from suffice_server.studio import Folder
from suffice_server.studio.browsing import FILTERS, Browsed
from suffice_server.studio.door import HEADERS
from suffice_server.studio.pages import _environment
from tests.support.cli_tools import cli
from tests.support.serving import ending
from tests.support.studio import TOKEN, filled, opened_studio


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("studio"))


@pytest.fixture(scope="module")
def address(folder):
    with opened_studio(folder) as address:
        yield address


@pytest.fixture
def client(address):
    with httpx.Client(base_url=address.partition("/open")[0], timeout=600) as client:
        yield client


@pytest.fixture
def inside(client, address):
    client.get(address)
    return client


@pytest.mark.whole
@pytest.mark.parametrize("path", ["/", "/static/studio.js", "/open", "/open?token=another", "/recording/x"])
def test_nothing_is_shown_without_the_key(client, path):
    response = client.get(path)
    assert (response.status_code, TOKEN in response.text, "eval" in response.text) == (403, False, False)


@pytest.mark.whole
def test_the_key_becomes_a_cookie_that_no_other_site_can_send(client, address):
    response = client.get(address)
    cookie = response.headers["set-cookie"].lower()
    assert (response.status_code, response.headers["location"]) == (303, "/")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    page = client.get("/")
    assert page.status_code == 200
    assert TOKEN not in page.text
    assert {name: page.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.whole
@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}, {"host": ""}]
)
def test_another_name_or_page_is_refused_even_with_the_key(inside, headers):
    assert inside.get("/", headers=headers).status_code == 403


def test_a_folder_lists_everything_by_kind_and_damaged_files_with_their_error(folder):
    items = {item.name: item for item in Folder(folder).scan()}
    assert {name: item.kind for name, item in items.items()} == {
        "certified.json": "policy",
        "changed.json": "policy",
        "cut.parquet": "recording",
        "eval.parquet": "recording",
        "judged/june.parquet": "recording",
        "log.parquet": "log",
        "questions.jsonl": "questions",
        "rounds.csv": "import",
        "stable.json": "policy",
        "tasr.json": "policy",
    }
    assert "parquet" in items["cut.parquet"].error
    assert items["eval.parquet"].line.startswith("150 questions, rounds 1 to 5, f1 ")


def test_a_folder_of_parts_or_a_lone_journal_is_one_recording(tmp_path):
    with Recorder(tmp_path / "log", part_questions=1) as recorder:
        for q in range(3):
            with recorder.question(f"Who is {q}?") as run:
                run.observe("Oslo")
        (tmp_path / "log" / "policy.json").write_bytes(b"{")
        alone = Recorder(tmp_path / "alone.parquet").question("Where?").__enter__()
        alone.observe("Here")
        items = {item.name: item for item in Folder(tmp_path).scan()}
        assert {name: item.kind for name, item in items.items()} == {
            "log": "recording",
            "log/policy.json": "other",
            "alone.parquet": "recording",
        }
        assert items["log"].line.startswith("3 questions, round 1 alone")
        assert items["alone.parquet"].line.startswith("1 question, round 1 alone")
        assert items["alone.parquet"].line.endswith("1 in progress")
        assert items["log/policy.json"].error
        inside = {item.name: item.line for item in Folder(tmp_path / "log").scan()}
        assert inside["."] == items["log"].line
        alone.__exit__(None, None, None)


def test_files_are_read_when_changed_and_hidden_or_outside_ones_never(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    Policy(rule="answer_stable").save(root / "p.json")
    Policy(rule="answer_stable").save(tmp_path / "outside.json")
    (root / ".hidden.json").write_text("{}")
    (root / "link.json").symlink_to(tmp_path / "outside.json")
    folder = Folder(root)
    (first,) = folder.scan()
    assert folder.skipped == ("link.json is a link that leaves the folder",)
    assert folder.scan() == [first]
    assert folder.scan()[0] is first
    assert folder.policy(first) is folder.policy(first)
    Policy(rule="fixed_k(2)").save(root / "p.json")
    (second,) = folder.scan()
    assert (second.id, second.line) == (first.id, "round >= 2, rounds 1 to 5, last")
    assert str(folder.policy(second).rule) == "round >= 2"


def test_a_policy_says_whether_its_certificate_is_valid_void_or_suspended(folder, tmp_path):
    certified = Policy.load(folder / "certified.json")
    certified.save(tmp_path / "valid.json")
    certified.suspended_because("the alarm rang").save(tmp_path / "suspended.json")
    replace(certified, max_rounds=3).suspended_because("the alarm rang").save(tmp_path / "void.json")
    states = {item.name: item.state for item in Folder(tmp_path).scan()}
    assert states == {f"{state}.json": state for state in ("suspended", "valid", "void")}


def test_what_takes_long_is_made_once_and_holds_up_nothing_else(folder):
    things = Folder(folder)
    one, other = (next(item for item in things.scan() if item.name == name) for name in ("tasr.json", "stable.json"))
    began, goes_on, made = threading.Event(), threading.Event(), []

    def slow():
        began.set()
        assert goes_on.wait(600)
        made.append(1)
        return "made"

    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(things.once, slow, one, name="slow") for _ in range(3)]
        assert began.wait(600)
        assert things.policy(other).label == "stable"
        goes_on.set()
        assert [one.result() for one in waiting] == ["made"] * 3
    assert made == [1]
    with pytest.raises(DataError):
        things.once(refuse, one, name="refused")
    assert things.once(lambda: "later", one, name="refused") == "later"


def refuse():
    raise DataError("not now")


@pytest.mark.parametrize("name", ["tasr.json", "stable.json", "certified.json"])
def test_every_question_is_shown_with_the_decision_of_a_real_session(folder, name):
    policy = Policy.load(folder / name)
    browsed = Browsed.read(folder / "eval.parquet")
    fates = browsed.fates(policy)
    for place in range(0, 150, 7):
        shown = browsed.question(place, policy)
        session = Session(policy, missing="ignore")
        for one in shown["rounds"]:
            if session.decision is None:
                session.observe(Round(index=one["round"], answer=one.get("answer"), signals=one["signals"]))
        decision = session.decision or session.end("exhausted")
        decided = shown["policies"][0]
        assert (decided["stop"], decided["answer"], decided["reason"], decided["fired"]) == (
            decision.stop_round,
            decision.answer_round,
            decision.reason,
            decision.fired,
        )
        assert (fates.stop[place], fates.answer[place]) == (decision.stop_round, decision.answer_round)
        one = next(one for one in shown["rounds"] if one["round"] == decision.answer_round)
        assert fates.score[place] == pytest.approx(one["metrics"]["f1"])


def test_the_filters_divide_the_questions(folder):
    browsed = Browsed.read(folder / "eval.parquet")
    fates = browsed.fates(Policy.load(folder / "stable.json"))
    counts = {name: len(browsed.positions(fates, name)) for name in fates.filters}
    assert counts["all"] == 150
    assert counts["early"] == counts["lost"] + counts["saved"] > 0
    assert 0 < counts["lost"] < counts["saved"]
    assert counts["failed"] == 0
    assert len(browsed.positions(fates, "all", "TOWER 7?")) == 1
    logged = Browsed.read(folder / "log.parquet").fates(Policy.load(folder / "stable.json"))
    assert set(logged.filters) - set(fates.filters) == {"audited"}
    assert int(logged.filters["audited"].sum()) == 24
    assert {*logged.filters} == {*FILTERS}


@pytest.mark.whole
def test_the_command_prints_the_address_and_ends_by_ctrl_c(folder, tmp_path):
    browser = tmp_path / "browser"
    # As a browser on a terminal, it returns when it is closed.
    browser.write_text(
        f'#!/bin/sh\necho "$1" > {tmp_path}/part\nmv {tmp_path}/part {tmp_path}/opened\n'
        f"while kill -0 $PPID && [ ! -e {tmp_path}/closed ]; do sleep 0.05; done\n"
    )
    browser.chmod(0o755)
    command = [sys.executable, "-m", "suffice", "studio", str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env={**os.environ, "BROWSER": f"{browser} %s"}, **pipes)
    with ending(process), httpx.Client(timeout=600, follow_redirects=True) as client:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/open\?token=\S{32}$", line)
        assert address, line + process.stderr.read()
        page = client.get(address[0])
        assert "eval.parquet" in page.text
        assert "server" not in page.headers
        assert process.stdout.readline() == "Ctrl-C ends it\n"
        while not (tmp_path / "opened").exists():
            assert process.poll() is None
            time.sleep(0.01)
        once = (tmp_path / "opened").read_text().strip()
        assert once != address[0]  # what a browser is started with, every user of the machine may read
        assert "eval.parquet" in client.get(once).text
        assert client.get(once).status_code == 403
        assert client.get(address[0]).status_code == 200
        (tmp_path / "closed").touch()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (0, "", "")


def test_what_the_command_cannot_open_is_said(tmp_path):
    done = cli("studio", tmp_path / "nowhere", "--no-browser", code=2)
    assert "policies or logs" in done.error
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = cli("studio", tmp_path, "--no-browser", "--port", taken.getsockname()[1])
    assert done.code == 1
    assert "Give another --port" in done.error


def test_a_column_that_is_damaged_behind_an_intact_header_is_named(folder, tmp_path):
    whole = bytearray((folder / "eval.parquet").read_bytes())
    whole[len(whole) // 3] ^= 0xFF
    (tmp_path / "flipped.parquet").write_bytes(whole)
    (item,) = Folder(tmp_path).scan()
    assert (item.kind, item.page) == ("recording", "")
    assert item.error


def test_only_what_may_be_rounds_is_offered_for_import(tmp_path):
    (tmp_path / "package.json").write_text('{"name": "x", "version": "1"}')
    (tmp_path / "notes.txt").write_text("a note")
    (tmp_path / "settings.csv").write_text("name,value\na,1\n")
    (tmp_path / "log.jsonl").write_text('{"question": "Where?", "round": 1, "answer": "Oslo"}\n')
    (tmp_path / "questions.jsonl").write_text('{"question": "Where?", "answers": ["Oslo"]}\n')
    folder = Folder(tmp_path)
    assert {item.name: item.kind for item in folder.scan()} == {"log.jsonl": "import", "questions.jsonl": "questions"}
    assert set(folder.others) == {"package.json", "notes.txt", "settings.csv"}
    assert folder.scan() == folder.scan()


def test_what_is_not_a_file_is_named_and_never_read(tmp_path):
    """A pipe in the folder would stop every page for ever, and a loop of links would break it."""
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.json").symlink_to("nowhere")
    (tmp_path / "to_pipe.csv").symlink_to("pipe.json")
    Policy(rule="answer_stable").save(tmp_path / "p.json")
    folder = Folder(tmp_path)
    assert [item.name for item in folder.scan()] == ["p.json"]
    assert set(folder.skipped) == {
        "pipe.json is a pipe, a socket or a device",
        "pipe.html is a pipe, a socket or a device",
        "to_pipe.csv is a pipe, a socket or a device",
        "loop.json is a link that leads nowhere",
        "gone.json is a link that leads nowhere",
    }


def test_a_document_that_would_fill_the_memory_is_only_named(tmp_path, monkeypatch):
    (tmp_path / "big.json").write_text(json.dumps({"spans": ["x" * 100] * 100}))
    monkeypatch.setattr("suffice_server.studio.describing._LARGEST_JSON", 5_000)
    (item,) = Folder(tmp_path).scan()
    assert (item.kind, item.page) == ("import", "")
    assert "too large to be read" in item.line


def test_a_text_is_cut_by_its_own_characters_and_says_so():
    """A sign for a character that is not seen is longer than that: nothing is left out for it."""
    shown = _environment().filters["shown"]
    assert shown("\u202e" * 30, 30).count("⟨U+202E⟩") == 30
    assert shown("a" * 31, 30) == f"<bdi>{'a' * 30}</bdi> … (31 characters)"


@pytest.mark.whole
def test_a_folder_has_its_name_however_it_is_called(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "runs")
    assert Folder(".").name == "runs"
    assert Folder("..").name == tmp_path.name
    assert Folder("/").name == "/"
    with opened_studio(".") as address, httpx.Client(base_url=address.partition("/open")[0], timeout=600) as client:
        client.get(address)
        assert "<h1>runs</h1>" in client.get("/").text


@pytest.mark.whole
def test_names_of_files_are_text_and_what_is_left_out_is_named(tmp_path):
    root = tmp_path / "<b>root"
    root.mkdir()
    for name in (
        b"<img src=x onerror=alert(1)>.json",
        "\u202eevil.json".encode(),
        b"not \xff utf-8.json",
        b"a\nb.json",
    ):
        Policy(rule="answer_stable").save(root / "p.json")
        (root / "p.json").rename(os.fsdecode(os.fsencode(root) + b"/" + name))
    (root / "linked").symlink_to(tmp_path, target_is_directory=True)
    with opened_studio(root) as address, httpx.Client(base_url=address.partition("/open")[0], timeout=600) as client:
        client.get(address)
        page = client.get("/").text
        pages = re.findall(r'href="(/policy/\w+)"', page)
        assert len(pages) == 4
        for path in pages:
            assert client.get(path).status_code == 200
            assert client.get(f"{path}/file").headers["content-disposition"].startswith("attachment; filename=")
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;.json" in page
    assert "⟨U+202E⟩evil.json" in page
    assert "not ⟨U+DCFF⟩ utf-8.json" in page
    assert "linked is a linked folder, which is not followed" in page


@pytest.mark.whole
@pytest.mark.parametrize(
    "path", ["/policy/../tasr.json", "/report/%2e%2e", "/static/..%2fview.py", "/recording/tasr.json"]
)
def test_no_address_contains_a_path(inside, path):
    assert inside.get(path).status_code == 404


@pytest.mark.whole
@pytest.mark.parametrize("answers", [["a", "a"], ["a", "b", "c", "d"]])
def test_a_log_without_audits_is_shown_during_and_after_a_question(tmp_path, answers):
    policy = Policy(rule="answer_stable", max_rounds=4)
    with (
        opened_studio(tmp_path) as address,
        httpx.Client(base_url=address.partition("/open")[0], timeout=600) as client,
    ):
        client.get(address)
        with Recorder(tmp_path / "log", policy=policy) as recorder:
            run = recorder.question("Where?")
            for answer in answers:
                run.observe(answer)
                key = re.search(r"/(?:log|recording)/(\w+)", client.get("/").text)[1]
                pages = [
                    client.get(f"/recording/{key}{rest}")
                    for rest in ("", "/questions", "/questions/0", "/try", "/decide")
                ]
                assert {page.status_code for page in pages} == {200}
        assert f"by the policy <code>{policy.digest}</code>: stopped after round {len(answers)} (" in pages[2].text
        assert "drawn for an audit" not in pages[2].text
        assert client.get(f"/log/{key}").status_code == 200
        report = client.get(f"/recording/{key}/report")  # a log has no gold answers
        assert (report.status_code, "--metric agreement" in report.text) == (200, True)


@pytest.mark.whole
def test_a_recording_without_signals_has_a_report_of_the_full_budget(tmp_path):
    rows = [{"question_id": f"q{q}", "round": r, "answer": "a", "golds": ["a"]} for q in range(3) for r in (1, 2)]
    write_recording(tmp_path / "plain.parquet", [{**row, "f1": 1.0, "em": 1.0, "end": "max_rounds"} for row in rows])
    with (
        opened_studio(tmp_path) as address,
        httpx.Client(base_url=address.partition("/open")[0], timeout=600) as client,
    ):
        client.get(address)
        key = re.search(r"/recording/(\w+)", client.get("/").text)[1]
        report = client.get(f"/recording/{key}/report")
    assert (report.status_code, "suffice report plain.parquet --rule full" in report.text) == (200, True)


@pytest.mark.whole
def test_a_log_with_a_code_policy_or_strange_clock_is_shown(tmp_path):
    row = {"question_id": "q", "round": 1, "answer": "a", "end": "max_rounds", "stop_round": 1.0, "recorded_at": 1e300}
    known = {"policy_digest": "abc", "question_id": "r"}
    write_recording(tmp_path / "log.parquet", [row | {"policy_digest": None}, row | known])
    with (
        opened_studio(tmp_path) as address,
        httpx.Client(base_url=address.partition("/open")[0], timeout=600) as client,
    ):
        client.get(address)
        key = re.search(r"/log/(\w+)", client.get("/").text)[1]
        assert client.get(f"/log/{key}").status_code == 200
        texts = [client.get(f"/recording/{key}/questions/{place}").text for place in (0, 1)]
    assert "by a policy with code of its own: stopped after round 1 (" in texts[0]
    assert "by the policy <code>abc</code>: stopped after round 1 (" in texts[1]


@pytest.mark.whole
def test_a_question_of_a_log_shows_the_decision_that_was_handed_out(inside, folder):
    log = next(item for item in Folder(folder).scan() if item.kind == "log")
    recording = Browsed.read(log.path).recording
    stops, digest = recording.per_question("stop_round", []), Policy.load(folder / "stable.json").digest
    for place in (0, 5, 7):
        page = inside.get(f"/recording/{log.id}/questions/{place}").text
        assert f"by the policy <code>{digest}</code>: stopped after round {stops[place]:g} (" in page
        assert ("drawn for an audit" in page) == (place % 5 == 0)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("?rule=answer_stble", 200, "Did you mean"),
        ("?rule=(((", 200, "The full budget is shown instead"),
        ("?policy=nothing", 200, "this is not in the folder any more"),
        ("?show=nonsense", 422, "there is no filter"),
        ("?page=-3", 200, "page 1 of 3"),
        ("?page=99999999999999999999", 200, "page 1 of 3"),
        ("?page=9999", 200, "page 3 of 3"),
        ("?search=%00%ff", 200, "No question fits"),
        ("/150", 404, "there is no question 151"),
        (f"/{'9' * 5000}", 404, "there is no place"),
        (f"/1/round/{'9' * 5000}/answer", 404, "there is no round"),
    ],
)
def test_an_address_that_makes_no_sense_is_answered_in_words(inside, folder, query, status, text):
    item = next(item for item in Folder(folder).scan() if item.name == "eval.parquet")
    response = inside.get(f"/recording/{item.id}/questions{query}")
    assert (response.status_code, text in response.text) == (status, True)
