"""Record the thinker's chains over llama.cpp: ``python -m training.thinker.record`` writes the bundled recordings.

The server, the commands and the costs are those of anyone's model; the chains are sampled at temperature 1, without a seed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from tests.support.llamacpp import start_server, stored_model

from suffice.recordings import write_recording
from suffice.recordings.recording import read_recording
from training.thinker.puzzles import WHOLE, questions
from training.thinker.train import OUTPUT

RECORDED = Path(__file__).resolve().parents[2] / "src" / "suffice" / "data" / "recorded"
SPLITS = {"tune": 300, "test": 700}
SETTINGS = {
    "every": 16,
    "temperature": 1,
    "trial-tokens": 8,
    "max-tokens": 16,
    "concurrency": 1,
    "extra-body": json.dumps(WHOLE),
}
LEFT_OUT = re.compile(
    r".*\.seconds|recorded_at|reply_model|system_fingerprint|text|finish_reason|f1|contains|answer_entropy_.*|answer_margin.*|answer_logprob_sum|thinking_ids"
)
"""Columns that the demonstration does not read; those without values are left out, too."""


def record(folder: Path, output: Path) -> None:
    """Record every split by `suffice think record`, and store what the demonstration reads."""
    drawn = questions()
    with start_server(stored_model(folder / "model", OUTPUT)) as server:
        for split, n in SPLITS.items():
            asked, path = folder / f"{split}.jsonl", folder / f"{split}.parquet"
            asked.write_text("".join(json.dumps(next(drawn)) + "\n" for _ in range(n)))
            settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
            where = ["--model", "thinker", "--base-url", server.url]
            command = [sys.executable, "-m", "suffice", "think", "record", str(asked), "-o", str(path)]
            subprocess.run([*command, *where, *settings], check=True)
            store(path, output / f"thoughts_{split}.parquet")


def store(path: Path, output: Path) -> None:
    """Write a recording without the columns that nothing reads."""
    recording = read_recording(path)
    table = recording.table
    names = [
        name for name in table.column_names if not LEFT_OUT.fullmatch(name) and table[name].null_count < len(table)
    ]
    write_recording(output, table.select(names).replace_schema_metadata(None), recording.metadata)
    print(f"{output}: {output.stat().st_size:,} bytes, {pq.read_metadata(output).num_rows:,} checkpoints")


def main() -> None:
    """Record into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORDED)
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder), output)


if __name__ == "__main__":
    main()
