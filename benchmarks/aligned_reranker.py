"""Does a reranker aligned with a probe's confidence help the model? (docs/results/aligned-reranker.md).

`python -m benchmarks.aligned_reranker` trains the tiny model with known knowledge (seed 0), fits a linear probe on its
tune questions, once on states of questions alone as CBDR does and once on both prompts, and prints as Markdown: what
is left of each probe with passages; the transfer check's contexts; what a small cross-encoder learns from each probe's
preferences, on questions whose names it never saw; and the model's answers from its first passages, beside BM25's.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from tests.suffice_gates.support.tiny_reranker import linear_probe, tiny_cross_encoder, words_of

from suffice.common.tables import Column, Table, render
from suffice.evaluation.statistics import Resampling
from suffice.loops import RetrievalLoop, record
from suffice.loops.models.prompts import PREFILLED
from suffice.loops.retrieval import PoolBM25, Question, dataset_hash, load_questions
from suffice.policy.session import Policy
from suffice.recordings import read_recording
from suffice_gates.models import TransformersModel
from suffice_gates.probes import ProbeConfidence
from suffice_gates.rerank import CrossEncoderScorer
from suffice_gates.training.answers import answers_in_order, compare_answers
from suffice_gates.training.preference_file import read_preferences
from suffice_gates.training.preferences import build_preferences
from suffice_gates.training.reranker import RerankerSettings, train_reranker
from suffice_gates.training.shift import measure_shift
from suffice_papers.cbdr.contexts import build_contexts
from suffice_papers.cbdr.tiny import train_tiny
from suffice_papers.cbdr.transfer import read_contexts, transfer_check

SEED = 0
PROBES = {"fitted on questions alone": ("qa",), "fitted on both prompts": ("qa", "rag")}
SETTINGS = RerankerSettings(learning_rate=4e-3, epochs=4, evaluations=2, patience=20)
N_DEV, ROUNDS = 60, (1, 3)
CROSS_ENCODER = "2 layers of width 48, random weights"


def gold_places(file: Path, questions: list[Question]) -> Table:
    """Count where the passage that states the fact stands in preference data."""
    gold = {q.question: {f"{p.title}\n{p.text}" for p in q.passages if p.passage_id in q.supporting} for q in questions}
    items = read_preferences(file)
    counts = [
        sum(bool(gold[item.query] & set(item.pos[:1])) for item in items),
        sum(bool(gold[item.query] & set(item.pos)) for item in items),
        sum(bool(gold[item.query] & set(item.neg)) for item in items),
    ]
    names = ("the first positive", "a positive", "a negative")
    rows = tuple((name, count, count / len(items)) for name, count in zip(names, counts, strict=True))
    columns = (Column("the passage that states the fact is"), Column("questions", "d"), Column("%", ".1f", scale=100))
    return Table(title=f"preference data, {len(items)} eval questions", columns=columns, rows=rows)


def aligned(
    confidence: ProbeConfidence, model: TransformersModel, tune: list, held_out: list, folder: Path
) -> list[Table]:
    """Return what is made of one probe."""
    rng = np.random.default_rng(SEED)
    tables = [measure_shift(held_out, confidence, model, rng=rng).table()]
    sets, _ = build_contexts(held_out, rng=rng, most=100)
    tables.append(transfer_check({"tiny": read_contexts(sets, confidence)}, rng=rng).tables()[0])
    for name, questions in (("tune", tune), ("eval", held_out)):
        build_preferences(questions, confidence, folder / f"{name}.jsonl")
    tables.append(gold_places(folder / "eval.jsonl", held_out))
    base = tiny_cross_encoder(folder / "base", words=words_of([*tune, *held_out]))
    preferences = read_preferences(folder / "tune.jsonl")
    run = train_reranker(
        base,
        preferences[N_DEV:],
        folder / "aligned",
        dev=preferences[:N_DEV],
        test=read_preferences(folder / "eval.jsonl"),
        settings=SETTINGS,
        device="cpu",
        seed=SEED,
    )
    tables.append(run.table())
    recorded = {
        kind: answers_in_order(
            held_out,
            model,
            PoolBM25(),
            CrossEncoderScorer(scorer, device="cpu"),
            folder / f"{kind}.parquet",
            max_rounds=max(ROUNDS),
        )
        for kind, scorer in (("base", base), ("aligned", run.path))
    }
    policy = Policy(start_round=1, max_rounds=max(ROUNDS), answer_position=model.position)
    loop = RetrievalLoop(model=model, retriever=PoolBM25(), policy=policy)
    record(held_out, loop, folder / "bm25.parquet")
    recorded["bm25"] = read_recording(folder / "bm25.parquet")
    for before in ("base", "bm25"):
        report = compare_answers(recorded[before], recorded["aligned"], resampling=Resampling(seed=SEED), rounds=ROUNDS)
        tables.append(report.table(f"answers, per cent: before = order of {before}, after = aligned order"))
    return tables


def main() -> None:
    """Print the page's tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aligned_reranker", description=__doc__)
    parser.add_argument("--tiny", type=Path, help="a folder of the tiny model; default: it is trained")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tiny = asked.tiny or folder / "tiny"
        if asked.tiny is None:
            train_tiny(tiny, seed=SEED)
        model = TransformersModel(tiny, layers=("last",), prompt=PREFILLED, max_tokens=4, batch_size=64)
        tune, held_out = (load_questions(tiny / f"{name}.jsonl") for name in ("tune", "eval"))
        print(f"tune {len(tune)} questions ({dataset_hash(tune)}), eval {len(held_out)} ({dataset_hash(held_out)}); "
              f"model {model.revision}; cross-encoder: {CROSS_ENCODER}; seed {SEED}\n")  # fmt: skip
        for name, prompts in PROBES.items():
            probe = linear_probe(model, tune, prompts, seed=SEED)
            confidence = ProbeConfidence(probe, model, allow=("rag",))
            (folder / name).mkdir()
            print(f"## Probe {name}\n")
            print(render(aligned(confidence, model, tune, held_out, folder / name), "md"))


if __name__ == "__main__":
    main()
