"""Make the bundled recordings of self-refine: numbers derived from its drafts, never a text.

    python scripts/bundle_self_refine.py --source gpt4.jsonl.gz --source dv3.jsonl.gz

The sources are madaan/self-refine's outputs of sentiment reversal (Apache-2.0), whose texts are Yelp reviews and may not
be passed on.  What ships: the recorded verdict, distances under the embedder of the package, counts of words, and for
each draft a hash that says only which drafts are equal.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from typing import Any

from suffice.loops.retrieval import text_id
from suffice.recordings import write_recording
from suffice_papers.semantic import read_self_refine
from suffice_reader.minilm import MiniLM

OUT = Path(__file__).resolve().parents[1] / "src" / "suffice" / "data" / "recorded"
DIGITS = 5
COLUMNS = (
    "question_id",
    "round",
    "cluster",
    "end",
    "answer",
    "target_sentiment",
    "target_sentiment_stated",
    "answer_stable",
    "answer_similarity_previous",
    "answer_length",
    "semantic_distance",
    "semantic_distance_2",
    "semantic_distance_3",
    "semantic_distance_4",
    "semantic_distance_5",
    "critic_approved",
    "critic_praise",
    "lexical_support",
    "draft_tokens",
    "log_probability",
    "cost.writer.calls",
    "cost.writer.output_tokens",
    "cost.critic.calls",
    "cost.critic.output_tokens",
    "cost.judge:target_sentiment.calls",
    "cost.judge:target_sentiment.output_tokens",
)
"""Everything that ships; all but the first five and the costs are numbers computed by the importer."""


def derived(row: dict[str, Any]) -> dict[str, Any]:
    """Return what ships of one draft: its numbers, rounded, and a hash in the place of its text."""
    kept = {name: row.get(name) for name in COLUMNS if name in row}
    kept["answer"] = None if row["answer"] is None else text_id(row["answer"])
    return {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in kept.items()}


def bundle(source: Path, out: Path) -> str:
    """Write one recording and return the sha256 of the file."""
    run = read_self_refine(source, MiniLM())
    metadata = {
        "source": "madaan/self-refine, Apache-2.0; numbers derived by scripts/bundle_self_refine.py, no texts",
        "source_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "notes": run.notes,
        "depends": dict(run.depends),
    }
    write_recording(out, [derived(row) for row in run.rows()], metadata, run.kinds())
    return hashlib.sha256(out.read_bytes()).hexdigest()


def main() -> None:
    """Write a recording for every source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, action="append", required=True, help="gpt4.jsonl.gz or dv3.jsonl.gz")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    for source in arguments.source:
        out = arguments.out / f"self_refine_{source.name.split('.')[0]}.parquet"
        sys.stdout.write(f"{bundle(source, out)}  {out.name}  {out.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
