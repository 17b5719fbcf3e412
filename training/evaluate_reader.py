"""Score a reader: F1, EM and how well its margin tells right from wrong, round by round.

    python -m training.evaluate_reader --model packages/suffice-reader/src/suffice_reader/models/span_reader --questions prepared/hotpotqa_dev.jsonl.gz

Round r reads the r passages that BM25 ranks highest among the question's own; `all` reads every one.  `--role eval`
appends the figures to `eval_log.jsonl`: the eval questions are scored once per released model, and each scoring shows.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from suffice.policy.metrics import exact_match, f1
from suffice_reader.span_reader import PassageSpans, SpanReader, decode
from training.prepare import Record, bm25_scores, read_questions

ROUNDS = (1, 2, 3, 4, 5)


def auroc(scores: Sequence[float], labels: Sequence[float]) -> float:
    """Area under the ROC curve with ties counted half; NaN if one class is missing.  NaN scores are left out."""
    s, y = np.asarray(scores, float), np.asarray(labels, bool)
    s, y = s[~np.isnan(s)], y[~np.isnan(s)]
    if y.all() or not y.any():
        return float("nan")
    positive, negative = s[y][:, None], s[~y][None, :]
    return float((positive > negative).mean() + 0.5 * (positive == negative).mean())


def bm25_order(record: Record) -> list[int]:
    """Indices of the paragraphs in the order in which the rounds reveal them."""
    documents = [f"{p['title']} {p['text']}" for p in record["paragraphs"]]
    scores = bm25_scores(record["question"], documents)
    return sorted(range(len(documents)), key=lambda i: (-scores[i], i))


def score_rounds(
    records: Sequence[Record], spans: Callable[[Record], list[PassageSpans]]
) -> dict[str, dict[str, float]]:
    """Figures per round (`1`..`5`, `all`) and `pooled` (AUROC over rounds 1..5 of all questions).

    Args:
        records: Questions with their paragraphs.
        spans: Gives the spans of each paragraph of a question, in the question's order.
    """
    rows: dict[str, list[tuple[float, float, float, float]]] = {str(r): [] for r in ROUNDS} | {"all": []}
    for record in records:
        passages = spans(record)
        ranked = [passages[i] for i in bm25_order(record)]
        for name, read in [(str(r), ranked[:r]) for r in ROUNDS] + [("all", passages)]:
            answer, margin, probability, _ = decode(read)
            gold = record["answers"]
            rows[name].append((f1(answer, gold), exact_match(answer, gold), margin, probability))
    rows["pooled"] = [row for r in ROUNDS for row in rows[str(r)]]
    figures = {}
    for name, values in rows.items():
        scores, em, margins, probabilities = zip(*values, strict=True)
        figures[name] = {
            "f1": round(100 * float(np.mean(scores)), 2),
            "em": round(100 * float(np.mean(em)), 2),
            "auroc_margin": round(auroc(margins, em), 4),
            "auroc_probability": round(auroc(probabilities, em), 4),
        }
    return figures


def table(figures: dict[str, dict[str, float]]) -> str:
    """The figures as fixed-width text."""
    names = ["f1", "em", "auroc_margin", "auroc_probability"]
    lines = ["round    F1     EM  margin AUROC  probability AUROC"]
    lines += [
        "{:6}{:5.1f}  {:5.1f}  {:12.3f}  {:17.3f}".format(name, *(row[n] for n in names))
        for name, row in figures.items()
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Score one question file with one model folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder with model.onnx")
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--splits", type=Path, help="with --role: splits.json")
    parser.add_argument("--role", help="score only this role's ids; an eval role is logged")
    args = parser.parse_args(argv)
    records = read_questions([args.questions])
    if args.role:
        records = {i: records[i] for i in json.loads(args.splits.read_text("utf-8"))[args.role]}
    reader = SpanReader(args.model, cache_size=0)

    def spans(record: Record) -> list[PassageSpans]:
        return reader.spans(record["question"], [(p["title"], p["text"]) for p in record["paragraphs"]])

    figures = score_rounds(list(records.values()), spans)
    print(f"{args.role or args.questions.name}: {len(records)} questions, model {reader.revision}\n{table(figures)}")
    if args.role and "eval" in args.role:
        entry = {
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "role": args.role,
            "questions": len(records),
            "revision": reader.revision,
            "figures": figures,
        }
        with (Path(__file__).parent / "eval_log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
