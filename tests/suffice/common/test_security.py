"""What comes from elsewhere (keys, models, replies, policies) reaches only what it is meant for."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import csv
import json
import os
import stat
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from suffice import ChatModel, Policy, Recorder
from suffice.cli.console import printable
from suffice.common.redaction import Redactor
from suffice.common.tables import Column, Table, render
from suffice.errors import DataError, ModelError
from suffice.loops.models import EndpointEmbedder
from suffice.loops.models.sentence_transformers import load_encoder
from suffice.recordings import write_recording
from suffice.recordings.parts_compaction import compact_recording
from suffice_gates.models import load_model
from suffice_gates.rerank import load_cross_encoder
from tests.support import local_models
from tests.support.cli_tools import cli, dataset, reply
from tests.support.endpoint import Endpoint

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
                "--set=judge-api-key-env=TOGETHER_KEY",
            ),
            ("answer", "Where is tower 1?", "--corpus", tmp_path, *at, "--api-key-env", "TOGETHER_KEY"),
            ("doctor", *at, "--api-key-env", "TOGETHER_KEY"),
            (
                "draft",
                "answer",
                "Where is tower 1?",
                *at,
                "--set=critic-model=c",
                "--set=critic-api-key-env=TOGETHER_KEY",
            ),
            ("draft", "record", data, "-o", tmp_path / "r.parquet", *at, "--api-key-env", "TOGETHER_KEY"),
            ("gate", "states", data, "-o", tmp_path / "s.states", *at, "--api-key-env", "TOGETHER_KEY"),
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


@pytest.mark.whole
@pytest.mark.parametrize(
    "load",
    [load_model, load_cross_encoder, lambda path: load_encoder(path, None, None)],
    ids=["language model", "cross-encoder", "encoder"],
)
def test_code_in_a_model_folder_never_runs_even_if_allowed(load, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    ran = model_folder_with_code(tmp_path / "m")
    with pytest.raises(ModelError):
        load(str(tmp_path / "m"))
    assert not ran.exists()
    # The tokenizer is loaded first: with one of the library's own, it is the model that is refused.
    local_models.tokenizer().save_pretrained(tmp_path / "m")
    with pytest.raises(ModelError):
        load(str(tmp_path / "m"))
    assert not ran.exists()


class _Odd(BaseHTTPRequestHandler):
    """Replies without end, in several ways, by the first part of the path."""

    protocol_version = "HTTP/1.1"
    elsewhere, asked = "", []

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.path.split("/")[1]
        self.asked.append(kind)
        if kind == "moved":
            self.send_response(307)
            self.send_header("Location", self.elsewhere or self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(500 if kind == "broken" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        if kind == "packed":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client goes away
            self.endless(kind)

    def endless(self, kind):
        packer = zlib.compressobj(wbits=31)
        while True:
            data = b" " if kind == "slow" else b" " * 100_000
            data = packer.compress(data * 100) + packer.flush(zlib.Z_FULL_FLUSH) if kind == "packed" else data
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            if kind == "slow":
                time.sleep(0.005)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def odd_server(elsewhere="", asked=None):
    handler = type("Handler", (_Odd,), {"elsewhere": elsewhere, "asked": [] if asked is None else asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("kind", "says"), [("long", "max_reply_bytes"), ("packed", "max_reply_bytes"), ("slow", "0.2 s"), ("broken", "500")]
)
def test_a_reply_without_end_is_cut_off_and_not_asked_for_again(kind, says):
    asked = []
    with odd_server(asked=asked) as url:
        at = {"base_url": f"{url}/{kind}", "api_key": "k", "max_retries": 0 if kind == "broken" else 3}
        bounds = {"total_s": 0.2} if kind == "slow" else {"max_reply_bytes": 1_000_000}
        model = ChatModel("m", **at, **bounds)
        with pytest.raises(ModelError, match=says):
            model.complete("Where?")
        with pytest.raises(ModelError, match=says):
            asyncio.run(model.complete_async("Where?"))
        model.close()
        if kind == "long":
            embedder = EndpointEmbedder("m", **at, **bounds)
            with pytest.raises(ModelError, match=says):
                embedder.embed(["Where?"])
            embedder.close()
    assert len(asked) == (3 if kind == "long" else 2)


def test_the_bounds_of_a_reply_are_positive():
    for wrong in ({"total_s": 0.0}, {"max_reply_bytes": 0}):
        with pytest.raises(DataError, match="positive"):
            ChatModel("m", base_url="http://127.0.0.1:9/v1", **wrong)


def test_a_redirect_to_another_host_takes_no_header_of_the_endpoint_along():
    headers = {"X-Api-Key": OTHER_KEY, "Helicone-Auth": f"Bearer {OTHER_KEY}"}
    with Endpoint() as endpoint:
        for host in ("localhost", "127.0.0.1"):  # another port is another place, too
            with odd_server(f"http://{host}:{endpoint.port}/v1/chat/completions") as url:
                model = ChatModel("m", base_url=f"{url}/moved", api_key=OTHER_KEY, default_headers=headers)
                assert model.complete("Where?").text
                assert asyncio.run(model.complete_async("Where?")).text
                model.close()
            for request in endpoint.requests[-2:]:
                assert OTHER_KEY not in json.dumps(request.headers)
        straight = ChatModel("m", base_url=endpoint.url, api_key=OTHER_KEY, default_headers=headers)
        straight.complete("Where?")
        straight.close()
        assert endpoint.requests[-1].headers["x-api-key"] == OTHER_KEY


def test_an_endpoint_that_redirects_in_a_circle_is_named():
    asked = []
    with odd_server(asked=asked) as url:
        model = ChatModel("m", base_url=f"{url}/moved", api_key="k", max_retries=0)
        with pytest.raises(ModelError, match="20 redirects"):
            model.complete("Where?")
        with pytest.raises(ModelError, match="check base_url"):
            asyncio.run(model.complete_async("Where?"))
        model.close()
    assert len(asked) == 40


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_a_key_that_is_echoed_in_another_form_is_removed(before):
    key = "sk-1234567890/+x\u00e9"
    escaped = "".join(f"\\u{ord(c):04X}" if i % 2 else c for i, c in enumerate(key))
    packed = base64.b64encode(f"{before}{key} and more".encode()).decode()
    linked = base64.urlsafe_b64encode(f"{before}{key}".encode()).decode()
    redact = Redactor([key])
    for text in (key, escaped, json.dumps(escaped), packed, linked):
        assert "[redacted]" in redact(text), text
    for text in (packed, linked):
        shown = redact(text)
        middle = base64.b64encode(f"{before}{key}".encode()).decode()[4:12]
        assert middle not in shown
        assert middle in text.replace("-", "+").replace("_", "/")
    assert redact("an ordinary text, c2stMTIz") == "an ordinary text, c2stMTIz"
    assert Redactor(["abcd"])("abcd YWJjZA==") == "[redacted] YWJjZA=="  # too short to be told from other text


ESCAPES = "\x1b]0;OWNED\x07\x1b[2J\x1b[31mred\x9b2J\x7f\r\nstopped  after round 9, answer of round 9\tx"


def unseen(text):
    """Return the control characters of a text, line feed and tab aside."""
    return [c for c in text if (ord(c) < 32 or 127 <= ord(c) < 160) and c not in "\n\t"]


def test_no_text_from_elsewhere_gives_orders_to_a_terminal(tmp_path):
    lines = [{"id": f"q{i}", "title": f"T{i} {ESCAPES}", "text": f"The tower {i} is {ESCAPES} tall."} for i in range(3)]
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    policy = {
        "question_id": "q",
        "round": 1,
        "answer": ESCAPES,
        "question": ESCAPES,
        "question_type": ESCAPES,
        "em": 1.0,
    }
    write_recording(tmp_path / "r.parquet", [policy, {**policy, "round": 2}])
    with Endpoint(f"Answer: {ESCAPES}") as endpoint:
        at = ("--base-url", endpoint.url, "--model", f"m{ESCAPES}")
        shown = [
            cli("answer", f"Where is tower 1?{ESCAPES}", "--corpus", corpus, *at),
            cli("draft", "answer", "Where?", "--contexts", corpus, *at, "--max-rounds", "2", "--set=embedder=none"),
            cli("doctor", *at),
            cli("replay", tmp_path / "r.parquet", "--rule", "round >= 1", "--metric", "em"),
            cli("replay", tmp_path / "r.parquet", "--rule", ESCAPES),
            cli("report", tmp_path / "r.parquet", "--rule", "round >= 1", "--metric", "em", "--format", "md"),
        ]
        as_json = cli("answer", "Where is tower 1?", "--corpus", corpus, *at, "--json")
    with Endpoint(fault="echo") as endpoint:
        at = ("--base-url", endpoint.url, "--model", "m")
        shown.append(cli("--debug", "doctor", *at, f"--set=extra-body={json.dumps({'x': ESCAPES})}"))
    for result in [*shown, as_json]:
        assert unseen(result.out + result.err) == [], result
    assert as_json.json["answer"].startswith("\x1b]0;OWNED")
    assert "␛]0;OWNED" in shown[0].out
    lines = shown[0].out.splitlines()
    assert sum(line.startswith("stopped") for line in lines) == 1


def test_a_cell_is_neither_a_formula_nor_html():
    rows = (("=cmd|' /C calc'!A0", -0.5), ("@SUM(1)", 1.0), ("<img src=x onerror=alert(1)>|", 2.0), ("a < 1", 3.0))
    table = Table(title="T", columns=(Column("policy"), Column("f1", ".2f")), rows=rows)
    told = list(csv.reader(render([table], "csv").splitlines()))
    assert [row[0] for row in told[1:3]] == ["'=cmd|' /C calc'!A0", "'@SUM(1)"]
    assert told[1][1] == "-0.5"
    markdown = render([table], "md")
    assert "<img" not in markdown
    assert "a < 1" in markdown


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_logs_and_their_parts_can_be_read_by_their_owner_alone(tmp_path):
    policy = Policy(rule="answer_stable", max_rounds=3)
    log = tmp_path / "log"
    for turn in range(2):
        with Recorder(log, policy=policy) as recorder:
            for number in range(3):
                with recorder.question(f"Where is tower {turn} of {number}?") as asked:
                    asked.observe("Oslo")
                    asked.observe("Oslo")
                    modes = {stat.S_IMODE(path.stat().st_mode) for path in log.rglob("*") if path.suffix}
                    assert modes == {0o600}
    compact_recording(log, idle_s=0)
    written = [path for path in log.rglob("*") if path.suffix == ".parquet"]
    assert len(written) == 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}


def test_characters_that_reorder_a_line_are_shown():
    assert printable("a\u202egnp.exe\u2069 \u05d0") == "a<U+202E>gnp.exe<U+2069> \u05d0"
