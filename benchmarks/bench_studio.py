"""How long does a page of the studio take on a recording of 100,000 rounds, as a multiple of one of 1,000?

The pages of two recordings with the same kinds of texts are fetched from a server on the loopback: the list of questions
under a policy, a search, the last page of the list, and a question far down.  Asserted first: the search finds the one question that it
names, and the page of the question has its rounds.  What is shown is the median of the later visits; the first ones read the file
and replay the policy, and are shown beside them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from tests.support.report_tools import rows
from tests.support.studio import opened_studio

from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay import policy_for
from suffice.recordings import read_recording, write_recording
from suffice_server.studio import Folder

SMALL, LARGE, VISITS = 210, 20_900, 9
TARGET_RATIO, TARGET_MS = 10.0, 300.0
DRAFT = "Answer: a draft of a few sentences, as models write them, which is neither short nor long. " * 4


def visited(client: httpx.Client, path: str) -> tuple[float, list[float], str]:
    """Return the milliseconds of the first visit, those of the later ones, and the page."""
    spent, text = [], ""
    for _ in range(VISITS + 1):
        began = time.perf_counter()
        response = client.get(path)
        spent.append(1000 * (time.perf_counter() - began))
        assert response.status_code == 200, response.text
        text = response.text
    return spent[0], spent[1:], text


def measured(folder: Path, name: str, n: int) -> dict[str, tuple[float, float]]:
    """Return the first and the median visit of each page, milliseconds."""
    items = {item.name: item.id for item in Folder(folder).scan()}
    base, policy = f"/recording/{items[name]}", items["tasr.json"]
    pages = {
        "overview": base,
        "questions": f"{base}/questions?policy={policy}",
        "search": f"{base}/questions?policy={policy}&search=tower+{n - 1}%3F",
        "last page": f"{base}/questions?policy={policy}&show=wrong&page=100000",
        "question": f"{base}/questions/{n - 2}?policy={policy}&show=early",
        "folder": "/",
    }
    times = {}
    with opened_studio(folder) as address, httpx.Client(base_url=address.partition("/open")[0], timeout=60) as client:
        client.get(address)
        for title, path in pages.items():
            first, later, text = visited(client, path)
            times[title] = first, statistics.median(later)
            if title == "search":
                assert "1 question<" in text.replace("\n", "")
                assert f"Where is tower {n - 1}?" in text
            if title == "question":
                assert f"Where is tower {n - 2}?" in text
                assert "Stops here" in text
    return times


def run() -> dict[str, Any]:
    """Return the figures of this machine."""
    with tempfile.TemporaryDirectory() as name:
        results = {}
        for size in (SMALL, LARGE):
            folder = Path(name, str(size))
            folder.mkdir()
            write_recording(folder / "run.parquet", rows(size, seed=1, text=DRAFT))
            recording = read_recording(folder / "run.parquet")
            policy_for(recording, "tasr").save(folder / "tasr.json")
            results[size] = recording.table.num_rows, measured(folder, "run.parquet", size)
    (small, before), (large, after) = results[SMALL], results[LARGE]
    table = Table(
        title=f"A page of the studio, milliseconds, on {small:,} and {large:,} rounds",
        columns=(Column("page"), *(Column(text, ",.0f") for text in ("small", "large", "large, first visit"))),
        rows=tuple((page, before[page][1], after[page][1], after[page][0]) for page in before),
    )
    sys.stderr.write(render([table], "md"))
    slowest = max(after, key=lambda page: after[page][1])
    ratio = max(after[page][1] / before[page][1] for page in after)
    milliseconds = after[slowest][1]
    return {
        "question": "how much slower are pages on 100,000 rounds than on 1,000?",
        "ours": {page: round(later, 1) for page, (_, later) in after.items()},
        "peer": {page: round(later, 1) for page, (_, later) in before.items()},
        "first": {page: round(first, 1) for page, (first, _) in after.items()},
        "ratio": round(ratio, 2),
        "target": {"ratio": TARGET_RATIO, "milliseconds": TARGET_MS},
        "met": ratio <= TARGET_RATIO and milliseconds <= TARGET_MS,
        "sizes": {"small": small, "large": large},
    }
