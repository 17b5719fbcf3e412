"""Who may ask a server of ours what: token, host, origin, limits, and clients that are slow."""

import asyncio
import contextlib
import socket
import sys
import threading

import httpx
import pytest
from benchmarks.serve_hostile import campaign
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from suffice.errors import DataError, NotFoundError
from suffice_server.serve import running as running_module
from suffice_server.serve.answers import RefusedError, json_response, responding
from suffice_server.serve.guard import LOCAL_HOSTS, Guard, Limits, bearer_token, read_body, read_token, same_token
from suffice_server.serve.running import PatientProtocol, allowed_connections, bind, url_of
from tests.support.serving import raw, running

TOKEN = "0123456789abcdef0123456789abcdef"
LIMITS = Limits(body=1000, seconds=0.3)
FAILURES = {
    "refused": RefusedError(429, "too many", retry_after=7),
    "unknown": NotFoundError("there is no such thing"),
    "wrong": DataError("it cannot be read"),
    "broken": RuntimeError(f"a secret: {TOKEN}"),
}


async def size(request):
    return json_response({"size": len(await read_body(request, LIMITS))})


async def fail(request):
    raise FAILURES[request.path_params["how"]]


async def healthy(_):
    return PlainTextResponse("ok")


def application(**guard):
    routes = [
        Route("/health", healthy),
        Route("/size", responding(size), methods=["POST"]),
        Route("/fail/{how}", responding(fail)),
    ]
    return Guard(Starlette(routes=routes), **{"token": TOKEN, "open_paths": ["/health"], **guard})


def asked(app, path, method="GET", **arguments):
    """Return the response to one request, without a server."""

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000") as client:
            return await client.request(method, path, **arguments)

    return asyncio.run(ask())


def bearer(token=TOKEN):
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (bearer("0" * 32), 401),
        (bearer(TOKEN[:-1]), 401),
        (bearer(""), 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": f"bearer {TOKEN}"}, 200),
        (bearer(), 200),
    ],
)
def test_only_the_whole_token_opens(headers, status):
    response = asked(application(), "/size", "POST", headers=headers)
    assert response.status_code == status
    assert TOKEN not in response.text
    assert (response.headers.get("www-authenticate") == "Bearer") == (status == 401)


def test_who_is_sent_away_is_counted():
    statuses = []
    app = application(on_refusal=statuses.append, hosts=LOCAL_HOSTS)
    asked(app, "/fail/refused")
    asked(app, "/health")
    asked(app, "/health", headers={"host": "evil.example"})
    assert statuses == [401, 403]


def test_open_paths_need_no_token_and_nothing_else_is_open():
    assert asked(application(), "/health").status_code == 200
    for path in ("/health/", "//health", "/HEALTH", "/fail/refused"):
        assert asked(application(), path).status_code == 401, path


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8000", 200),
        ("evil.example", 403),
        ("evil.example:8000", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
def test_a_host_that_is_not_ours_is_refused(host, status):
    response = asked(application(token=None, hosts=LOCAL_HOSTS), "/health", headers={"host": host})
    assert response.status_code == status


@pytest.mark.parametrize(
    ("origin", "status"), [("http://127.0.0.1:8000", 200), ("http://evil.example", 403), ("null", 403)]
)
def test_pages_of_other_sites_may_not_ask(origin, status):
    response = asked(application(), "/size", "POST", headers={**bearer(), "origin": origin})
    assert response.status_code == status
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("how", "status", "kind"),
    [
        ("refused", 429, "RefusedError"),
        ("unknown", 404, "NotFoundError"),
        ("wrong", 422, "DataError"),
        ("broken", 500, "InternalError"),
    ],
)
def test_a_failure_is_json_without_a_traceback(how, status, kind, caplog):
    response = asked(application(), f"/fail/{how}", headers=bearer())
    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
    assert TOKEN not in response.text
    assert "Traceback" not in response.text
    assert response.headers.get("retry-after") == ("7" if how == "refused" else None)
    assert ("failed" in caplog.text) == (how == "broken")


def test_a_body_beyond_the_limit_is_refused_announced_or_not():
    app = application()
    assert asked(app, "/size", "POST", headers=bearer(), content=b"x" * 1000).json() == {"size": 1000}
    assert asked(app, "/size", "POST", headers=bearer(), content=b"x" * 1001).status_code == 413

    async def pieces():
        for _ in range(11):
            yield b"x" * 100

    assert asked(app, "/size", "POST", headers=bearer(), content=pieces()).status_code == 413


def test_more_requests_than_places_are_told_to_come_again():
    inside, go = threading.Event(), threading.Event()

    async def wait(_):
        inside.set()
        await asyncio.to_thread(go.wait, 60)
        return PlainTextResponse("ok")

    app = Guard(
        Starlette(routes=[Route("/wait", wait), Route("/health", healthy)]),
        token=None,
        open_paths=["/health"],
        requests=1,
    )
    with running(app) as url, httpx.Client(base_url=url, timeout=600) as client:
        first = threading.Thread(target=httpx.get, args=(f"{url}/wait",), kwargs={"timeout": 60})
        first.start()
        assert inside.wait(600)
        refused = client.get("/wait")
        assert client.get("/health").status_code == 200  # or whoever looks would start a busy server again
        go.set()
        first.join(600)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert client.get("/wait").status_code == 200


def test_a_slow_body_and_a_slow_head_are_given_up():
    protocol = type("Changing", (PatientProtocol,), {"head_s": 600.0})
    head = f"POST /size HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\n".encode()

    def hurry():
        protocol.head_s = 0.2

    with running(application(), protocol=protocol, keep_alive=1) as url:
        assert b" 408 " in raw(url, head + b"connection: close\r\ncontent-length: 10\r\n\r\n12").partition(b"\r\n")[0]
        answered = raw(url, head + b"content-length: 2\r\n\r\n12", hurry, b"POST /size")
        assert answered.endswith(b'{"size":2}')  # and the second request, whose head does not come, is not waited for
        assert raw(url, head) == b""
        assert raw(url) == b""
        protocol.head_s = 600.0
        assert raw(url, head + b"connection: close\r\ncontent-length: 2\r\n\r\n12").endswith(b'{"size":2}')


def test_half_open_connections_keep_nobody_out():
    protocol = type("Small", (PatientProtocol,), {"head_s": 600.0, "most": 5})
    with running(application(), protocol=protocol) as url:
        host, port = url.removeprefix("http://").split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(40)]
        try:
            with httpx.Client(base_url=url, timeout=600) as client:
                for _ in range(3):
                    assert client.get("/health").status_code == 200
            for early in idle[:30]:
                early.settimeout(600)
                with contextlib.suppress(ConnectionResetError):
                    assert early.recv(1) == b""  # closed by the server
        finally:
            for one in idle:
                one.close()


def test_the_limit_of_files_is_raised_and_leaves_room_for_files():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        most = allowed_connections()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == (65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536))
        assert 0 < most < soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_no_thread_keeps_the_interpreter_for_long(monkeypatch):
    before = sys.getswitchinterval()
    monkeypatch.setattr(running_module.asyncio, "run", lambda served: served.close())
    try:
        running_module.run_app(None, None)
        assert sys.getswitchinterval() == pytest.approx(0.0005)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.whole
def test_hostile_clients_leave_others_their_answers(tmp_path):
    attacks = ["500 half-open connections", "JSON 3 million levels deep", "looks at the log, 40 at once"]
    results = campaign(tmp_path, seconds=0.5, rate=20, rows=2000, attacks=attacks)
    assert [row["attack"] for row in results[1:-1]] == attacks
    assert {row["failed"] for row in results} == {0}
    assert {row["n"] for row in results} == {10}


def test_a_token_comes_from_file_or_environment_and_is_long_enough(tmp_path, monkeypatch):
    monkeypatch.delenv("A_TOKEN", raising=False)
    assert read_token("A_TOKEN") is None
    monkeypatch.setenv("A_TOKEN", TOKEN)
    assert read_token("A_TOKEN") == TOKEN
    file = tmp_path / "token"
    file.write_text("another-token-of-24-chars\n")
    assert read_token("A_TOKEN", file) == "another-token-of-24-chars"
    for wrong in ("", "short", "with a blank inside it", "ümlaut-ümlaut-ümlaut"):
        file.write_text(wrong)
        with pytest.raises(DataError, match="least 16") as raised:
            read_token("A_TOKEN", file)
        assert wrong == "" or wrong not in str(raised.value)
    with pytest.raises(DataError, match="be read"):
        read_token("A_TOKEN", tmp_path / "none")


def test_tokens_are_compared_whatever_characters_they_have():
    assert same_token(TOKEN, TOKEN)
    assert not same_token(None, TOKEN)
    assert not same_token("ü\ud800", TOKEN)


def test_a_port_in_use_is_an_error_that_says_what_to_do():
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(DataError, match="--port"):
            bind("127.0.0.1", port)
    with pytest.raises(DataError, match="cannot use"):
        bind("no such host", 0)
    if socket.has_ipv6:
        with bind("::1", 0) as six:
            assert url_of(six).startswith("http://[::1]:")


def test_limits_are_positive():
    with pytest.raises(DataError, match="positive"):
        Limits(rounds=0)


def test_a_bearer_token_is_read_from_its_header_alone():
    from starlette.requests import Request

    scope = {"type": "http", "query_string": f"token={TOKEN}".encode(), "headers": [(b"authorization", b"Bearer  x ")]}
    assert bearer_token(Request(scope)) == "x"
    assert bearer_token(Request({**scope, "headers": []})) is None
