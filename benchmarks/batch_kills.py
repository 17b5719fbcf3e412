"""What is left of a recording in batches whose process is killed at random: the live recording, and no request submitted twice.

A process records from a local server with the batch interface.  `kill -9` hits it after a random time, again and again, and another
process goes on.  At the end the recording must be the live one but for times, and the server must have had each request once.  Then
the requests of a larger set go through files (`--batch-file`), for the processor time and the memory that writing and taking in need.

    python -m benchmarks.batch_kills --kills 100 --questions 2000
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.batches import BatchEndpoint, run_batch

from suffice import ChatModel, Policy, RetrievalLoop, load_questions, read_recording, record
from suffice.loops.retrieval import PoolBM25, Question
from suffice.policy.rounds import Passage
from suffice_scale.batches import BatchQueue

_QUESTIONS, _ROUNDS, _IN_A_BATCH = 40, 4, 9
_LONGEST_LIFE_S = 2.0
_CLOCKS = ("recorded_at", "seconds")


def loop_at(url: str, rounds: int = _ROUNDS) -> RetrievalLoop:
    """Return the loop that is recorded."""
    model = ChatModel("m", base_url=url, api_key="", max_retries=0)
    return RetrievalLoop(model=model, retriever=PoolBM25(), policy=Policy(max_rounds=rounds))


def rows_without_times(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a recording without what depends on the clock."""
    table = read_recording(path).table
    names = sorted(name for name in table.column_names if name.rsplit(".", 1)[-1] not in _CLOCKS)
    return table.select(names).to_pylist()


def child(url: str, path: str) -> None:
    """Record in batches, in a process that may be killed."""
    import openai  # noqa: F401 - takes longer than the rest

    queue = BatchQueue(most_requests=_IN_A_BATCH, first_poll_s=0.02, longest_poll_s=0.05)
    print("ready", flush=True)
    record(load_questions("hotpotqa_tune", limit=_QUESTIONS), loop_at(url), path, batches=queue)


def killed(folder: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    """Kill the process of one recording after another until there were enough kills, and check each at its end."""
    done = recordings = batches = 0
    with BatchEndpoint(usage="plain") as endpoint:
        live = folder / "live.parquet"
        record(load_questions("hotpotqa_tune", limit=_QUESTIONS), loop_at(endpoint.url), live, parallel_rounds=True)
        expected = rows_without_times(live)
    while done < kills:
        path = folder / f"{recordings}.parquet"
        with BatchEndpoint(usage="plain", looks=3) as endpoint:
            has_ended = False
            while not has_ended:
                command = [sys.executable, "-m", "benchmarks.batch_kills", "--child", endpoint.url, str(path)]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                try:
                    has_ended = process.wait(rng.uniform(0.02, _LONGEST_LIFE_S)) == 0
                    assert has_ended
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    done += 1
            assert rows_without_times(path) == expected
            assert set(endpoint.rows.values()) == set(endpoint.paid.values()) == {1}
            assert sum(endpoint.rows.values()) == _QUESTIONS * _ROUNDS
            recordings, batches = recordings + 1, batches + len(endpoint.batches)
    return {"kills": done, "recordings": recordings, "batches": batches, "submitted_twice": 0}


def through_files(folder: Path, n: int) -> dict[str, Any]:
    """Write the requests of many questions into a file, answer them, and take the replies in."""
    rng, words = random.Random(0), [f"word{i}" for i in range(3000)]
    questions = [
        Question(
            question_id=f"q{i}",
            question=" ".join(rng.choices(words, k=12)),
            answers=("yes",),
            passages=tuple(
                Passage(passage_id=f"{i}-{j}", title=f"t{j}", text=" ".join(rng.choices(words, k=80))) for j in range(6)
            ),
        )
        for i in range(n)
    ]
    loop, file, rounds = loop_at("http://localhost:1/v1", 5), folder / "in.jsonl", 5
    result: dict[str, Any] = {"questions": n, "requests": n * rounds, "peak_mib_before": _peak_mib()}
    for step in ("write", "take_in"):
        began = time.process_time()
        summary = record(questions, loop, folder / "many.parquet", batches=BatchQueue(file=file))
        result[f"{step}_ms_of_a_request"] = round(1000 * (time.process_time() - began) / (n * rounds), 3)
        result[f"peak_mib_after_{step}"] = _peak_mib()
        if step == "write":
            assert summary.pending == n
            lines = run_batch(BatchEndpoint(usage="plain"), file.read_bytes())[0]
            file.with_name("in.output.jsonl").write_text("".join(lines))
            del lines
    assert (summary.pending, summary.rounds) == (0, n * rounds)
    return result


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both, print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        child(*options.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        files = through_files(Path(folder), options.questions)
        result = {**killed(Path(folder), options.kills, random.Random(options.seed)), "files": files}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
