"""How long does an edit of a rule in the studio take on 100,000 rounds, as a share of `replay` of the same rule?

Asked over HTTP as the page does: first figures, figures with intervals, completions while nothing else runs, and the last of twenty
edits in quick succession.  Beside them a bare `replay` of the same rules in this process, which prepares the
recording, its baselines and its draws each time.  Asserted first: the figures are those of `replay`; of twenty edits the last
alone has figures.  The first figures of all, for which the file is read and baselines are replayed, are shown beside them.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from tests.support.report_tools import rows
from tests.support.studio import opened_studio

from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay import replay
from suffice.recordings import read_recording, write_recording
from suffice_server.studio import Folder

QUESTIONS, EDITS, BARE = 20_900, 9, 3
TARGET_FIRST, TARGET_WHOLE, TARGET_TWENTY = 0.15, 0.5, 0.75


def figures(client: httpx.Client, base: str, rule: str, tab: str = "a") -> tuple[float, float, list[dict[str, Any]]]:
    """Return the seconds until the first and the last line of an answer, and its lines."""
    began, first, lines = time.perf_counter(), 0.0, []
    with client.stream("GET", f"{base}/try/figures", params={"rule": rule, "tab": tab}) as response:
        for line in response.iter_lines():
            first = first or time.perf_counter() - began
            lines.append(json.loads(line))
    return first, time.perf_counter() - began, lines


def twenty(client: httpx.Client, base: str) -> float:
    """Return the seconds from the last of twenty edits, 20 ms apart, until it is answered whole."""
    answers: dict[int, list[dict[str, Any]]] = {}

    def edit(number: int) -> None:
        answers[number] = figures(client, base, f"p_correct > 0.{number}", "quick")[2]

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(10, 30)]
    for thread in threads:
        began = time.perf_counter()
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - began
    assert [number for number, lines in answers.items() if lines[-1].get("final")] == [29]
    return spent


def run() -> dict[str, Any]:
    """Return the figures of this machine."""
    rules = [f"(answer_stable >= 1) & (p_correct > 0.{number})" for number in range(20, 20 + EDITS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_recording(folder / "run.parquet", rows(QUESTIONS, seed=1))
        recording = read_recording(folder / "run.parquet")
        bare = []
        for rule in rules[:BARE]:
            began = time.perf_counter()
            wanted = replay(recording, rule, metrics="f1")
            bare.append(time.perf_counter() - began)
        (item,) = Folder(folder).scan()
        base = f"/recording/{item.id}"
        with (
            opened_studio(folder) as address,
            httpx.Client(base_url=address.partition("/open")[0], timeout=300) as client,
        ):
            client.get(address)
            began = time.perf_counter()
            client.get(f"{base}/try")
            opened = time.perf_counter() - began
            begun, _, lines = figures(client, base, rules[BARE - 1])
            assert f'data-value="{wanted.rows[0].metrics["f1"]!r}"' in lines[-1]["html"]
            edits = [figures(client, base, rule) for rule in rules]
            spent = []
            for text in ("(answer_stable >= 1) & p", "(p_correct > ", "(overlap < 0.2) "):
                began = time.perf_counter()
                client.get(f"{base}/try/completion", params={"what": "rule", "text": text, "cursor": len(text)})
                spent.append(time.perf_counter() - began)
            quick = twenty(client, base)
    peer = statistics.median(bare)
    ours = {
        "page, first time": opened,
        "figures, first time": begun,
        "first figures of an edit": statistics.median(first for first, _, _ in edits),
        "with intervals": statistics.median(whole for _, whole, _ in edits),
        "completion": max(spent),
        "twenty edits": quick,
        "bare replay": peer,
    }
    table = Table.of(
        f"Trying a rule on {recording.table.num_rows:,} rounds of {QUESTIONS:,} questions",
        ours.items(),
        {
            Column("what"): lambda pair: pair[0],
            Column("seconds", ".3f"): lambda pair: pair[1],
            Column("share of a replay", ".2f"): lambda pair: pair[1] / peer,
        },
    )
    sys.stderr.write(render([table], "md"))
    ratios = {name: round(seconds / peer, 3) for name, seconds in ours.items()}
    return {
        "question": "what does an edit of a rule cost beside a replay?",
        "ours": {name: round(seconds, 4) for name, seconds in ours.items()},
        "peer": round(peer, 3),
        "ratio": ratios["with intervals"],
        "ratios": ratios,
        "target": {"first": TARGET_FIRST, "ratio": TARGET_WHOLE, "twenty": TARGET_TWENTY},
        "met": ratios["first figures of an edit"] <= TARGET_FIRST
        and ratios["with intervals"] <= TARGET_WHOLE
        and ratios["twenty edits"] <= TARGET_TWENTY,
        "sizes": {"rounds": recording.table.num_rows, "questions": QUESTIONS},
    }


if __name__ == "__main__":
    print(json.dumps(run()))
