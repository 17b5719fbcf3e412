"""Make the bundled recordings of agents and checked loops from the published figures of their runs.

    python scripts/bundle_agents.py --source FOLDER

FOLDER holds `swebench_gemini3pro_runs.jsonl.gz` (derived from gruckion/mini-swe-agent, MIT) and `loopgain_bench.jsonl.gz`
(loopgain-ai/loopgain-bench, Apache-2.0).
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suffice.evaluation.replay.prices import Price
from suffice.policy.signals import StepSignals
from suffice.recordings import write_recording

OUT = Path(__file__).resolve().parents[1] / "src" / "suffice" / "data" / "recorded"
PRICE = Price(uncached=2.0, cached=0.2, output=12.0)
"""USD per million tokens of the model when the runs were made; every recorded price of a step is checked against it."""

ROUNDING = 1e-6


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a compressed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def agent_rows(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the steps of a run: its state stands for the result, and `resolved` counts where the state is the final one.

    A step without a recorded price has that of its tokens (the two agree in every step that has both).
    """
    steps, signals = run["steps"], StepSignals()
    for place, step in enumerate(steps, start=1):
        uncached = step["prompt_tokens"] - step["cached_tokens"]
        tokens = {"uncached": uncached, "cached": step["cached_tokens"], "output": step["completion_tokens"]}
        dollars = sum(getattr(PRICE, kind) * n for kind, n in tokens.items()) / 1e6
        if step["cost_usd"] is not None and abs(step["cost_usd"] - dollars) > ROUNDING:
            raise ValueError(
                f"{run['id']}, step {place}: {step['cost_usd']} USD is not the price of the tokens, {dollars}"
            )
        code = step["returncode"]
        own = signals.add(
            step["command"], failed=None if code is None else code != 0, dollars=dollars, check=step["check"]
        )
        yield {
            "question_id": run["id"],
            "round": place,
            "end": "exhausted",
            "answer": f"state {step['state']}" if step["state"] else None,
            "resolved": float(run["resolved"] and step["state"] == steps[-1]["state"]),
            **{name: None if math.isnan(value) else value for name, value in own.items()},
            "cost.generator.calls": 1.0,
            **{f"cost.generator.{kind}_tokens": float(n) for kind, n in tokens.items()},
            "cost.generator.seconds": None,
        }


def checked_rows(trial: dict[str, Any], run: str) -> Iterator[dict[str, Any]]:
    """Yield the rounds of a checked loop under a cap of 20 rounds, or as LoopGain ended it."""
    for place, error in enumerate(trial[run]["error_history"], start=1):
        yield {
            "question_id": f"{trial['cell']} {trial['trial']}",
            "round": place,
            "end": "rule" if run == "LG" else "max_rounds",
            "answer": f"draft {place}",
            "error_free": float(error == 0),
            "check_error": error,
            "cost.generator.calls": 1.0,
            **{
                f"cost.generator.{kind}": None
                for kind in ("uncached_tokens", "cached_tokens", "output_tokens", "seconds")
            },
            "cell": trial["cell"],
        }


def main() -> None:
    """Write the recordings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    source = parser.parse_args().source
    rows = [row for run in lines(source / "swebench_gemini3pro_runs.jsonl.gz") for row in agent_rows(run)]
    metadata = {"source": "mini_swe_agent", "model": "google/gemini-3-pro-preview"}
    write_recording(OUT / "agents_swebench.parquet", rows, metadata, {"resolved": "metric"})
    print(f"agents_swebench: {len({row['question_id'] for row in rows})} runs, {len(rows):,} steps")

    trials = list(lines(source / "loopgain_bench.jsonl.gz"))
    for name, run in (("checked_loops", "B20"), ("checked_loops_loopgain", "LG")):
        rows = [row for trial in trials for row in checked_rows(trial, run)]
        kinds = {"error_free": "metric", "cell": "label"}
        write_recording(OUT / f"{name}.parquet", rows, {"source": "loopgain-bench"}, kinds)
        print(f"{name}: {len(trials):,} loops, {len(rows):,} rounds")


if __name__ == "__main__":
    main()
