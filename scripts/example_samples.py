"""Write examples/samples.jsonl: ten answers of ChatGPT to each of 60 questions about dates, as an application logs them.

    python scripts/example_samples.py

A part of the bundled recording `samples_date` (lz1oceani/verify_cot, CC BY 4.0).
"""

from __future__ import annotations

import json
from pathlib import Path

from suffice.recordings import bundled_recording

OUT = Path(__file__).resolve().parents[1] / "examples" / "samples.jsonl"
N = 60


def main() -> None:
    """Write the file."""
    recording = bundled_recording("samples_date")
    golds = recording.per_question("golds", [])
    lines = [
        json.dumps({"id": name, "gold": golds[q][0], "answers": recording.answers[q].tolist()})
        for q, name in enumerate(recording.question_ids[:N])
    ]
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
