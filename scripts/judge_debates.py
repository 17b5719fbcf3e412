"""Show the whole cascade of Semantic Early-Stopping on real drafts: recorded debates, marked by their gold solutions.

    python scripts/judge_debates.py FOLDER -o docs/results/debates.md

FOLDER holds the runs of lferreiraMD/slm_multiagent_debate, `gsm_*.json.gz`: three agents solve a GSM8K question in three
rounds, each having read what the others wrote.  An agent's reply is its draft, the other two are its critic: they
approve where both have its answer.  The judge is ROUGE-L against the gold solution, so that the gain is an oracle.  The
drafts may not be passed on; the page holds figures alone.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.common.tables import render
from suffice.evaluation.statistics import Resampling
from suffice.importers import one_call
from suffice.loops.judges import gold_score, reference_columns, with_columns
from suffice.policy.embedding import identity
from suffice.recordings import Recording
from suffice.recordings.schema import build_table
from suffice_papers.semantic import read_debate, semantic_protocol, split_drafts, tune
from suffice_reader.minilm import MiniLM

METRIC, DEV_SHARE, SEED = "em", 0.25, 42
TABLES = ("Table 1", "Do the", "Table 2")
PAGE = """# The whole cascade on real drafts: debates marked by their gold solutions

Five small models debate GSM8K questions: three agents, three rounds (lferreiraMD/slm_multiagent_debate). An agent's reply is a draft;
the other two are its critic and approve where both have its answer (two calls); distances are those of the packaged embedder. The
quality is whether the draft's number is right. **The judge reads the gold solution** (ROUGE-L), so `gain` is an *oracle*: no live run
has it. The page shows all three members at work; it says nothing about a language model's marks, and another likeness to the gold
solution may stop elsewhere. The drafts do not ship: this page is built from the data folder by

`{command}`

seed {seed}, resampled by question; sha256 of the files, in the order of their names: {digest}; data {data}.

{told}{tables}"""


def rows_of(path: Path, embedder: MiniLM) -> list[dict[str, Any]]:
    """Return one row for each draft of a run, with its critic's reply, its distance, and the gold solution."""
    run = read_debate(path)
    solutions = {question: entry[1] for question, entry in json.loads(gzip.decompress(path.read_bytes())).items()}
    answers: dict[tuple[str, int], list[str | None]] = defaultdict(list)
    for item in run.trajectories:
        for observed in item.rounds:
            answers[item.question, observed.index].append(observed.answer)
    made = []
    for item in run.trajectories:
        rounds = []
        vectors = embedder.embed([observed.text for observed in item.rounds])
        for observed, vector in zip(item.rounds, vectors, strict=True):
            said = answers[item.question, observed.index]
            alike = observed.answer is not None and all(answer == observed.answer for answer in said)
            others = "; ".join(str(answer) for answer in said)
            rounds.append(
                replace(
                    observed,
                    answer=observed.text if observed.text.strip() else None,
                    feedback="APPROVED" if alike else f"The answers are {others}.",
                    embedding=vector,
                    costs={"writer": one_call(), "critic": replace(one_call(), calls=float(len(said) - 1))},
                )
            )
        name = f"{item.labels.get('model', path.stem)}/{item.question_id}"
        made.append(replace(item, question_id=name, golds=(solutions[item.question],), rounds=tuple(rounds)))
    return replace(run, trajectories=made).rows()


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    files, embedder = sorted(given.folder.glob("gsm_*.json.gz")), MiniLM()
    if not files:
        raise SystemExit(f"no gsm_*.json.gz in {given.folder}")
    recording = Recording(
        build_table([row for path in files for row in rows_of(path, embedder)]),
        {"depends": {"embedder": identity(embedder)}},
    )
    marks, metadata = gold_score(recording, reference_columns(recording, ["rouge_l"])["rouge_l"])
    marked = Recording(with_columns(recording.table, marks, signals={"information_gain"}), metadata)
    test, dev = split_drafts(marked, DEV_SHARE)
    command = f"python scripts/judge_debates.py FOLDER -o {given.out.as_posix()}"
    found = semantic_protocol(test, tune(dev, METRIC), metric=METRIC, resampling=Resampling(seed=SEED), command=command)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    told = "".join(f"{sentence}\n\n" for sentence in (*found.headlines(), found.tuned.sentence()))
    notes = "".join(f"- {note}\n" for note in found.notes)
    tables = render([table for table in found.tables() if table.title.startswith(TABLES)], "md")
    given.out.write_text(
        PAGE.format(
            command=command,
            seed=SEED,
            digest=digest,
            data=found.result.data_hash,
            told=told,
            tables=f"{tables}\n\n{notes}",
        ),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
