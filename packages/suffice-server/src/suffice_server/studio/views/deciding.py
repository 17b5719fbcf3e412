"""The page of `suffice decide`: advice on changing the loop, in one sentence and tables."""

from __future__ import annotations

import asyncio
import json
import shlex
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from suffice.common.files import quoted
from suffice.common.processes import start_python_async
from suffice.common.tables import Table
from suffice.errors import DataError, SufficeError
from suffice.evaluation.replay.outcomes import has_outcome
from suffice.evaluation.replay.price_lists import list_prices
from suffice.verdicts.decisions import SAVABLE, Advice
from suffice.verdicts.decisions.figures import bar_heading
from suffice_server.studio.folder import Item
from suffice_server.studio.pages import render_page
from suffice_server.studio.view import Tab, View, ViewModule
from suffice_server.studio.views.recordings import RECORDINGS

_PROGRESS = 0.25
"""Seconds between lines of progress."""

_NUMBERS = {"max_loss": ("--max-loss", 0.01), "risk": ("--risk", 0.01)}
"""Fields of the form that are given in percent, with their options."""


def _declared_options(view: View) -> list[str]:
    """Translate the form into options of `suffice decide`.

    Raises:
        DataError: A field is not a number, or has characters that are not printed.
        NotFoundError: The tune questions are not in the folder.
    """
    options: list[str] = []
    odd = [name for name, text in view.request.query_params.items() if not text.isprintable()]
    if odd:
        raise DataError(f"{', '.join(odd)}: an option cannot contain characters that are not printed")
    for name, option in (("metric", "--metric"), ("cost", "--cost"), ("baseline", "--baseline"), ("model", "--model")):
        if view.value(name):
            options.append(f"{option}={view.value(name)}")
    for name, (option, scale) in _NUMBERS.items():
        text = view.value(name).strip()
        if text:
            try:
                options.append(f"{option}={scale * float(text):.6g}")
            except ValueError:
                raise DataError(f"{text!r} is not a number") from None
    if view.value("tune"):
        options.append(f"--tune={view.item(*RECORDINGS, key=view.value('tune')).path.resolve()}")
    if view.value("failed"):
        options.append("--set=leave-out-failed=true")
    return options


def decide_page(view: View) -> Response:
    """Return the page with the form of `suffice decide`."""
    item = view.item(*RECORDINGS)
    recording = view.folder.recording(item).recording
    names = ["f1", "em", *recording.names("metric"), "agreement"]
    return view.page(
        "deciding.html",
        f"Decide about {item.name}",
        item=item,
        charts=True,
        metrics=[name for name in dict.fromkeys(names) if has_outcome(recording, name)],
        costs=SAVABLE,
        models=sorted(list_prices()),
        caps=range(1, int(recording.index[-1]) + 1),
        others=[one for one in view.of_kind(*RECORDINGS) if one.id != item.id],
        n_failed=int((recording.ends == "failed").sum()),
        values={name: view.value(name) for name in view.request.query_params},
        decisions=[one.path.name for one in view.of_kind("decision")],
        command=f"suffice decide {quoted(item.path)}",
    )


def advice_answer(view: View) -> Response:
    """Stream lines of progress, then the advice; if the browser disconnects, the computation ends."""
    item = view.item(*RECORDINGS)
    return StreamingResponse(_advice_lines(view, item), media_type="application/x-ndjson")


async def _advice_lines(view: View, item: Item) -> AsyncIterator[str]:
    try:
        options = await run_in_threadpool(_declared_options, view)
    except SufficeError as error:
        yield _json_line({"problem": str(error)})
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "decision.json")
        # A separate process runs the command itself, and can be ended at any moment.
        process = await start_python_async(
            *("-m", "suffice", "decide", str(item.path.resolve()), *options, "--json", "-o", str(out)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        began, reading = time.monotonic(), asyncio.ensure_future(process.communicate())
        try:
            while not reading.done():
                yield _json_line({"seconds": time.monotonic() - began})
                await asyncio.wait([reading], timeout=_PROGRESS)
            _, errors = reading.result()
            if process.returncode:
                text = errors.decode("utf-8", "replace").strip()
                yield _json_line(
                    {"problem": " ".join(text.split()).partition("error: ")[2] or text or "the command ended"}
                )
            else:
                yield _json_line(await run_in_threadpool(_advice_shown, view, item, options, out))
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await asyncio.shield(process.wait())


def _json_line(values: dict[str, Any]) -> str:
    return json.dumps(values, allow_nan=False) + "\n"


def _advice_shown(view: View, item: Item, options: list[str], path: Path) -> dict[str, Any]:
    """Render the part of the page that shows an advice, with its chart."""
    advice = Advice.load(path)
    command = shlex.join(["suffice", "decide", str(item.path), *options])
    then = {
        "do it": "suffice deploy decision.json",
        "not enough data": "suffice decide FRESH.parquet --continue decision.json",
    }
    after = (
        "suffice decide FRESH.parquet -o OTHER.json"
        if advice.trial.taken_back
        else f"suffice diagnose {quoted(item.path)}"
    )
    html = render_page(
        "decided.html",
        view=view,
        item=item,
        advice=advice,
        tables=[_without_column(table, bar_heading(advice.trial.max_loss)) for table in advice.tables()],
        command=command,
        then=then.get(advice.verdict, after),
        policy=advice.policy,
    )
    return {"html": html, "chart": advice.plot().spec, "sentence": advice.sentence}


def _without_column(table: Table, name: str) -> Table:
    """Return a table without the named column, if it has one."""
    return table.with_columns([place for place, column in enumerate(table.columns) if column.name != name])


DECIDING_VIEW = ViewModule(
    pages=[("GET", "/recording/{id}/decide", decide_page), ("GET", "/recording/{id}/decide/advice", advice_answer)],
    tabs=[Tab(title="Decide", path="/recording/{id}/decide", kinds=RECORDINGS, place=15)],
)
