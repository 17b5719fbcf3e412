"""How long does a stop wait for its log, and how often does a commit wait for the disk?  `python -m benchmarks.journal_latency`.

Two servers with `--log` answer `/v1/decide` in turn, at the same rate and from the same client: this release, and with `--other SRC` the
package in another source folder, so that both see the same disk and the same neighbours. Latency counts from when a request was due.
With `--syncs` each server is traced by strace, and the calls of fsync and fdatasync are counted for each stop.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks.serve_latency import POLICY, TOKEN, measured, observed

ROOT = Path(__file__).resolve().parent.parent
_STOPS_TRACED = 40


@contextlib.contextmanager
def serving(source: Path, folder: Path, trace: Path | None = None) -> Iterator[str]:
    """Yield the address of a server of the package in a source folder, which logs to `folder`."""
    POLICY.save(folder / "policies" / "p.json")
    command = [
        sys.executable,
        "-m",
        "suffice",
        "serve",
        str(folder / "policies"),
        "--port",
        "0",
        "--log",
        str(folder / "log"),
    ]
    if trace is not None:
        command = ["strace", "-D", "-f", "-q", "-o", str(trace), "-e", "trace=fsync,fdatasync", *command]
    paths = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH", "")]))
    environment = {
        **os.environ,
        "SUFFICE_TOKEN": TOKEN,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": paths,
    }
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    match = re.search(r"at (http://\S+),", process.stdout.readline())
    assert match
    try:
        yield match[1]
    finally:
        process.terminate()
        process.wait(120)


def stops(url: str, n: int) -> None:
    """Let a server decide and log some questions, one after the other."""
    rounds = [observed(r).to_dict() for r in (1, 2, 3)]
    for _ in range(n):
        response = httpx.post(
            f"{url}/v1/decide", json={"policy": "p", "rounds": rounds}, headers={"authorization": f"Bearer {TOKEN}"}
        )
        assert response.json()["stop"], response.text


def syncs_of_a_stop(source: Path, folder: Path) -> float:
    """Return how often a stop waits for the disk, by the calls that strace sees."""
    trace = folder / "trace"
    with serving(source, folder, trace) as url:
        stops(url, 5)  # the first begins the part
        time.sleep(1)
        before = _syncs(trace)
        stops(url, _STOPS_TRACED)
        time.sleep(1)
        return (_syncs(trace) - before) / _STOPS_TRACED


def _syncs(trace: Path) -> int:
    return len(re.findall(r"\b(?:fsync|fdatasync)\(", trace.read_text()))


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, help="the source folder of another release, for the ratio")
    parser.add_argument("--rate", type=float, default=200.0, help="stops per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--syncs", action="store_true", help="count fsync and fdatasync, with strace")
    arguments = parser.parse_args()
    sources = {"this": ROOT / "src", **({"other": arguments.other.resolve()} if arguments.other else {})}
    result: dict[str, object] = {"rate": arguments.rate, "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        if arguments.syncs:
            counts = {key: syncs_of_a_stop(source, Path(name, key, "traced")) for key, source in sources.items()}
            result["syncs_of_a_stop"] = counts
            print(f"syncs of a stop: {counts}")
        urls = {key: stack.enter_context(serving(source, Path(name, key))) for key, source in sources.items()}
        runs: dict[str, list[dict[str, float]]] = {key: [] for key in sources}
        print(f"{'run':>4} {'release':>8} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'empty p99':>10}")
        for number in range(1, arguments.runs + 1):
            for key, url in urls.items():
                both = measured(url, rate=arguments.rate, seconds=arguments.seconds)
                run = both["decide"]
                runs[key].append(run)
                print(
                    f"{number:>4} {key:>8} {run['p50']:>8.2f} {run['p99']:>8.2f} {run['max']:>8.1f} {both['empty']['p99']:>10.2f}"
                )
    for figure in ("p50", "p99"):
        result[figure] = {key: statistics.median(run[figure] for run in of) for key, of in runs.items()}
        if arguments.other:
            ratios = [one[figure] / two[figure] for one, two in zip(runs["other"], runs["this"], strict=True)]
            result[f"{figure}_ratios"] = ratios
    print(json.dumps({"benchmark": "journal_latency", **result}))


if __name__ == "__main__":
    main()
