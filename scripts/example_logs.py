"""Write examples/logs.jsonl: a log as an application writes it, of GPT-4 revising its drafts five times.

    python scripts/example_logs.py

The rounds are those of the bundled recording `self_refine_gpt4` (madaan/self-refine, Apache-2.0) that ran to their cap.  The
drafts themselves may not be passed on, so `output` is the hash of a draft, which says only which drafts are equal; `score` is 1
where the recorded judge saw the sentiment that was asked for.
"""

from __future__ import annotations

import json
from pathlib import Path

from suffice.recordings import bundled_recording

OUT = Path(__file__).resolve().parents[1] / "examples" / "logs.jsonl"


def lines() -> list[str]:
    """Return one line of JSON for each review."""
    runs: dict[str, list[dict[str, object]]] = {}
    for row in bundled_recording("self_refine_gpt4").table.to_pylist():
        if row["end"] == "max_rounds":
            tokens = row["cost.writer.output_tokens"] + row["cost.critic.output_tokens"]
            step = {"output": row["answer"], "score": row["target_sentiment"], "output_tokens": int(tokens)}
            runs.setdefault(row["question_id"], []).append(step)
    return [json.dumps({"id": name, "model": "gpt-4", "iterations": steps}) for name, steps in runs.items()]


if __name__ == "__main__":
    OUT.write_text("\n".join(lines()) + "\n", encoding="utf-8")
