"""Build the bundled files of questions answered without and with retrieval, byte for byte the same each time.

    python scripts/bundle_answers.py --source hotpotqa_llama31_tune.jsonl.gz --source hotpotqa_llama31_eval.jsonl.gz \
        --source 2wiki_llama31_tune.jsonl.gz

A source holds JSON lines with `id, question, answers, type` and a record of answers `llama31_8b{no_retrieval,
one_retrieval}`.  Paragraphs do not ship: a gate decides before any was read.  Each file keeps the name of its source.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parents[1] / "src" / "suffice" / "data" / "answers"


def slim(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that ship, in a fixed order."""
    answered = record["llama31_8b"]
    return {
        "id": record["id"],
        "question": record["question"],
        "answers": record["answers"],
        "type": record["type"],
        "no_retrieval": answered["no_retrieval"],
        "one_retrieval": answered["one_retrieval"],
    }


def main() -> int:
    """Build the files; exit status 1 if a source lacks an answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, action="append", required=True, help="gzipped JSON lines; repeat")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.source:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            records = [slim(json.loads(line)) for line in lines]
        if any(not isinstance(record[name], str) for record in records for name in ("no_retrieval", "one_retrieval")):
            sys.stderr.write(f"{path.name}: a question lacks an answer\n")
            return 1
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
        (args.out / path.name).write_bytes(packed)
        sys.stdout.write(f"{path.name}: {len(records)} questions, sha256 {hashlib.sha256(packed).hexdigest()}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
