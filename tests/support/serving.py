"""A server of ours in a thread or a proxy in a process, on a free port of the loopback, and raw connections to them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading

import httpx


@contextlib.contextmanager
def running(app, *, protocol=None, keep_alive=600):
    """Yield the address of a server for an application, as `run_app` sets it up."""
    import uvicorn

    from suffice_server.serve.running import PatientProtocol, bind, url_of

    listener = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        app,
        http=protocol or PatientProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        timeout_keep_alive=keep_alive,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    try:
        with httpx.Client(base_url=url_of(listener), timeout=600) as client:
            while thread.is_alive():
                with contextlib.suppress(httpx.TransportError):
                    client.get("/health")
                    break
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(600)
        listener.close()


def watching_here(monkeypatch):
    """Let a server look at its log in this process."""
    from suffice_server.serve.watching import LogWatch

    monkeypatch.setattr(LogWatch, "_elsewhere", lambda _, look: look.result())


@contextlib.contextmanager
def ending(process):
    """End a process whose test fails; to leave `with process` is to wait for it."""
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def raw(url, *pieces):
    """Send bytes on a connection of their own, and return all that comes back until the server closes it."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=600) as connection:
        parts = []
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                piece() if callable(piece) else connection.sendall(piece)
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(1 << 16):
                parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def proxy(folder, upstream, *options):
    """Yield the process of a proxy and its address; end it in order unless it was killed."""
    command = [sys.executable, "-m", "suffice", "proxy", str(folder), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--upstream", upstream, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        match = re.search(r"ANTHROPIC_BASE_URL=(\S+)", line)
        assert match, line + process.stderr.read()
        yield process, match[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
