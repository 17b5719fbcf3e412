"""A local server with the batch interface as OpenAI publishes it: files, batches, and outputs in any order.

Rows are answered by the same code as chat completions, so that a recording in batches can be compared with a live one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.endpoint import Endpoint, Request

ROUTES = ("/v1/files", "/v1/batches")


class BatchEndpoint(Endpoint):
    """An endpoint with `/v1/files` and `/v1/batches`.

    Args:
        outcome: What becomes of a row, by its custom_id and how often the server has had it: None for a reply, an error of
            `ROW_ERRORS`, or `missing`.
        ending: With which status a batch ends, by its number from 1.
        looks: How often a batch is retrieved until it has ended.
        without: Which routes are missing.
        **more: Others of `Endpoint`.
    """

    def __init__(
        self,
        *args: Any,
        outcome: Callable[[str, int], str | None] = lambda _id, _nth: None,
        ending: Callable[[int], str] = lambda _: "completed",
        looks: int = 1,
        without: tuple[str, ...] = (),
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.outcome, self.ending, self.looks, self.without = outcome, ending, looks, without
        self.files: dict[str, tuple[str, bytes]] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.rows: Counter[str] = Counter()  # how often each custom_id was submitted
        self.paid: Counter[str] = Counter()  # how often it was answered
        self.calls: list[str] = []  # method and route of each request to files and batches
        self._retrieved: Counter[str] = Counter()

    async def _answer(self, request: Request) -> bytes | None:
        route = request.path.partition("?")[0]
        if not route.startswith(ROUTES):
            return await super()._answer(request)
        self.calls.append(f"{request.method} {re.sub('(file|batch)-[0-9]+', 'ID', route)}")
        if any(route.startswith(missing) for missing in self.without):
            return self._bytes(404, "application/json", '{"detail": "Not Found"}')
        fault = self._fault({"route": self.calls[-1]})
        if fault is not None:
            return self._bytes(503, "text/html", "<html>busy</html>")
        if route.endswith("/content"):
            return self._bytes(200, "application/octet-stream", self.files[route.split("/")[3]][1].decode())
        return self._bytes(200, "application/json", json.dumps(self._routed(request, route)))

    def _routed(self, request: Request, route: str) -> dict[str, Any]:
        if route == "/v1/files":
            return self._uploaded(request)
        if route == "/v1/batches" and request.method == "POST":
            return self._created(request.body)
        if route == "/v1/batches":
            newest = list(self.batches.values())[::-1]
            return {"object": "list", "data": newest, "has_more": False}
        return self._retrieve(route.split("/")[3])

    def _uploaded(self, request: Request) -> dict[str, Any]:
        boundary = re.search("boundary=(.+)", request.headers["content-type"])
        assert boundary is not None
        parts = {}
        for part in request.content.split(b"--" + boundary[1].encode()):
            head, _, content = part.strip(b"\r\n").partition(b"\r\n\r\n")
            if name := re.search(rb'name="(\w+)"', head):
                parts[name[1].decode()] = head.decode(), content
        assert parts["purpose"][1] == b"batch"
        head, content = parts["file"]
        filename = re.search('filename="(.+?)"', head)
        assert filename is not None
        file_id = f"file-{len(self.files) + 1}"
        self.files[file_id] = filename[1], content + b"\n"
        return {"id": file_id, "object": "file", "bytes": len(content), "purpose": "batch", "filename": filename[1]}

    def _created(self, body: dict[str, Any]) -> dict[str, Any]:
        assert set(body) == {"input_file_id", "endpoint", "completion_window"}
        assert body["completion_window"] == "24h"
        rows = [json.loads(line) for line in self.files[body["input_file_id"]][1].splitlines()]
        assert all(set(row) == {"custom_id", "method", "url", "body"} for row in rows)
        assert all(row["method"] == "POST" and row["url"] == body["endpoint"] for row in rows)
        assert len({row["custom_id"] for row in rows}) == len(rows)
        assert all(len(row["custom_id"]) <= 64 for row in rows)
        assert len({row["body"]["model"] for row in rows}) == 1
        self.rows.update(row["custom_id"] for row in rows)
        batch_id = f"batch-{len(self.batches) + 1}"
        self.batches[batch_id] = {
            "id": batch_id,
            "object": "batch",
            **body,
            "status": "validating",
            "errors": None,
            "output_file_id": None,
            "error_file_id": None,
            "request_counts": {"total": len(rows), "completed": 0, "failed": 0},
            "metadata": None,
        }
        return self.batches[batch_id]

    def _retrieve(self, batch_id: str) -> dict[str, Any]:
        batch = self.batches[batch_id]
        self._retrieved[batch_id] += 1
        if self._retrieved[batch_id] >= self.looks and batch["status"] == "validating":
            self._run(batch)
        return batch

    def _run(self, batch: dict[str, Any]) -> None:
        """End a batch: rows in the reverse order, errors in a file of their own."""
        batch["status"] = self.ending(int(batch["id"].partition("-")[2]))
        if batch["status"] == "failed":
            batch["errors"] = {
                "object": "list",
                "data": [{"code": "token_limit_exceeded", "message": "enqueued tokens"}],
            }
            return
        content = self.files[batch["input_file_id"]][1]
        results = run_batch(self, content, order=-1)
        for name, lines in zip(("output", "error"), results, strict=True):
            if lines:
                file_id = f"file-{len(self.files) + 1}"
                self.files[file_id] = f"{name}.jsonl", "".join(lines).encode()
                batch[f"{name}_file_id"] = file_id
        batch["request_counts"] |= {"completed": len(results[0]), "failed": len(results[1])}


ROW_ERRORS: dict[str, dict[str, Any]] = {
    "400": {"response": {"status_code": 400, "body": {"error": {"message": "no such parameter"}}}, "error": None},
    "429": {"response": {"status_code": 429, "body": {"error": {"message": "slow down"}}}, "error": None},
    "expired": {"response": None, "error": {"code": "batch_expired", "message": "the window has passed"}},
}


def run_batch(server: BatchEndpoint, content: bytes, *, order: int = 1) -> tuple[list[str], list[str]]:
    """Answer the rows of an input file; return the lines of the output and of the errors."""
    output, errors = [], []
    for line in content.splitlines()[::order]:
        row = json.loads(line)
        key = row["custom_id"]
        outcome = server.outcome(key, server.rows[key])
        about = {"id": f"batch_req_{len(output)}", "custom_id": key}
        if outcome is None:
            body = server._body(Request(row["url"], {}, row["body"]))
            output.append(json.dumps({**about, "response": {"status_code": 200, "body": body}, "error": None}) + "\n")
            server.paid[key] += 1
        elif outcome == "twice":
            body = server._body(Request(row["url"], {}, row["body"]))
            output += [json.dumps({**about, "response": {"status_code": 200, "body": body}, "error": None}) + "\n"] * 2
            server.paid[key] += 1
        elif outcome != "missing":
            errors.append(json.dumps({**about, **ROW_ERRORS[outcome]}) + "\n")
    return output, errors
