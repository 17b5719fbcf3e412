"""Measure chains that wait for their trial answers and chains that go on beside them: ``python -m training.thinker.overlap``.

Both ways answer the same puzzles with the same seed over llama.cpp's server, in turns, so that they stop at the same checkpoints and
differ in tokens and seconds only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean

from tests.support.llamacpp import start_server, stored_model

from suffice import ChatModel, Policy, ThinkingLoop
from suffice.loops import Outcome
from suffice.loops.waves import SURPLUS
from training.thinker.puzzles import WHOLE, questions
from training.thinker.train import OUTPUT

MEASURED = Path(__file__).resolve().parents[2] / "packages/suffice-papers/src/suffice_papers/thinking/overlap.json"
RULE, N, SEED = "deer(0.9)", 200, 17


def figures(slots: int, way: str, outcomes: Sequence[Outcome], seconds: Sequence[float]) -> dict[str, object]:
    """Return the means of one way, per puzzle."""
    costs = [outcome.costs for outcome in outcomes]
    beyond = [cost[SURPLUS] for cost in costs if SURPLUS in cost]
    kept = [cost for own in costs for name, cost in own.items() if name != SURPLUS]
    return {
        "slots": slots,
        "way": way,
        "seconds": fmean(seconds),
        "computed": sum(cost.uncached_tokens + cost.output_tokens for cost in kept) / len(outcomes),
        "beyond_output": sum(cost.output_tokens for cost in beyond) / len(outcomes),
        "beyond_read": sum(cost.uncached_tokens for cost in beyond) / len(outcomes),
        "stopped": len(beyond) / len(outcomes),
    }


async def measure(folder: Path) -> dict[str, object]:
    """Answer the puzzles both ways, on a server with one slot and on one with two."""
    asked = [item["question"] for item in islice(questions(seed=SEED), N)]
    rows = []
    for slots in (1, 2):
        with start_server(stored_model(folder / f"model{slots}", OUTPUT), slots=slots) as server:
            settings = {"temperature": 1.0, "seed": 3, "extra_body": WHOLE, "max_retries": 0}
            model = ChatModel("thinker", base_url=server.url, api="completions", **settings)
            policy = Policy(rule=RULE, max_rounds=24)
            waits = ThinkingLoop(model=model, policy=policy, every=16, trial_tokens=8, answer_tokens=16)
            ways = {"waits": replace(waits, overlap=False), "goes on": replace(waits, overlap=True)}
            outcomes: dict[str, list[Outcome]] = {way: [] for way in ways}
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for place, question in enumerate(
                ["What is it?", *asked]
            ):  # the first opens connections, and does not count
                for way in sorted(ways, reverse=bool(place % 2)):
                    began = time.perf_counter()
                    outcome = await ways[way].run_async(question)
                    if place:
                        seconds[way].append(time.perf_counter() - began)
                        outcomes[way].append(outcome)
            one, other = ([outcome.decision.stop_round for outcome in outcomes[way]] for way in ways)
            if one != other:
                raise RuntimeError("the chains stopped elsewhere: the server is not deterministic")
            rows += [figures(slots, way, outcomes[way], seconds[way]) for way in ways]
            await model.aclose()
    return {"rule": RULE, "n": N, "every": 16, "rows": rows}


def main() -> None:
    """Write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=MEASURED)
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as folder:
        output.write_text(json.dumps(asyncio.run(measure(Path(folder))), indent=1) + "\n", "utf-8")
    print(output.read_text("utf-8"))


if __name__ == "__main__":
    main()
