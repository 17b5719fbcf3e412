"""Make the bundled recordings of models that answered the same questions, and of agents' runs with a judge, from published figures.

    python scripts/bundle_escalations.py --source FOLDER --scores FILE

FOLDER holds `router_mixtral_gpt4.jsonl.gz` (derived from lm-sys/RouteLLM, Apache-2.0) and `verifier_hotpotqa_steps.csv.gz`
(shuvom-s/e-valuator, MIT); FILE is `plaut_maxprob_correctness.csv.gz` (bplaut/llm-calibration-and-correctness-prediction, MIT).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from suffice.recordings import write_recording
from suffice.recordings.runs import ATTEMPTS

OUT = Path(__file__).resolve().parents[1] / "src" / "suffice" / "data" / "recorded"
ROUTER = {"mixtral-8x7b-instruct": 0.24, "gpt-4-1106-preview": 24.7}
"""USD per million tokens, input and output together, as RouteLLM's authors estimate them."""
CHAINS = {
    "gpt": {"gpt-3.5-turbo": 0.5, "gpt-4-turbo": 10.0},
    "llama": {"Llama-7b": 0.07, "Llama-13b": 0.13, "Llama-70b": 0.7},
    "yi": {"Yi-6b": 0.06, "Yi-34b": 0.34},
}
"""Models in the order of price, USD per million tokens: list prices of GPT's input, and a cent for each billion parameters.

An answer is one letter, so that input is nearly all that is paid, and the same for all models of a chain.
"""
TOKENS = 100
"""Tokens of every question, by which `spend` is in dollars; nothing but the unit depends on them."""
_KINDS = {"right": "metric", "spend": "signal", "answer_probability": "signal", "model": "label", "set": "label"}


def attempts(
    question: str, prices: dict[str, float], right: Sequence[bool], **columns: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """Yield the attempts of the models at a question; `spend` is the price of all attempts so far."""
    spent = accumulate(prices.values())
    for place, (model, so_far) in enumerate(zip(prices, spent, strict=True)):
        own = {name: values[place] for name, values in columns.items()}
        yield {
            "question_id": question,
            "round": place + 1,
            "end": "max_rounds",
            "answer": None,
            "right": float(right[place]),
            "spend": float(f"{so_far * TOKENS / 1e6:.6g}"),
            "model": model,
            **own,
        }


def write(name: str, rows: list[dict[str, Any]], source: str, prices: dict[str, float]) -> None:
    """Write the recording of an escalation."""
    metadata = {"source": source, "depends": {ATTEMPTS: [*prices]}}
    kinds = {column: kind for column, kind in _KINDS.items() if column in rows[0]}
    write_recording(OUT / f"escalation_{name}.parquet", rows, metadata, kinds)
    print(f"escalation_{name}: {len({row['question_id'] for row in rows}):,} questions, {len(prices)} models")


def router_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the attempts of two models at each question of GSM8K and MMLU."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for item in map(json.loads, file):
            right = [item["right"][model] for model in ROUTER]
            yield from attempts(item["id"], ROUTER, right, set=[item["set"]] * len(ROUTER))


def scored(path: Path) -> dict[str, dict[str, tuple[bool, float]]]:
    """Return whether each model's letter is right, and its probability, by model and question of MMLU."""
    found: dict[str, dict[str, tuple[bool, float]]] = {model: {} for chain in CHAINS.values() for model in chain}
    chosen = {"dataset": "mmlu", "abst": "no_abst", "logit_kind": "norm", "prompt": "first"}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["model"] in found and all(row[name] == value for name, value in chosen.items()):
                place = int(row["q_start"]) + int(row["row"])
                found[row["model"]][f"mmlu-{place}"] = row["grade"] == "Correct", round(float(row["confidence"]), 3)
    return found


def verified_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the steps of agents' runs, with a judge's probability of success."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            chance = row["judge_probability"]
            yield {
                "question_id": row["uq_problem_idx"],
                "round": int(row["num_steps"]),
                "end": "exhausted",
                "answer": None,
                "solved": float(row["solved"] == "True"),
                "judge_probability": float(chance) if chance else None,
            }


def main() -> None:
    """Write the recordings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--scores", type=Path, required=True)
    args = parser.parse_args()
    write("router", [*router_rows(args.source / "router_mixtral_gpt4.jsonl.gz")], "RouteLLM", ROUTER)
    found = scored(args.scores)
    for name, prices in CHAINS.items():
        questions = sorted(set.intersection(*(set(found[model]) for model in prices)), key=lambda text: int(text[5:]))
        rows: list[dict[str, Any]] = []
        for question in questions:
            right, sure = zip(*(found[model][question] for model in prices), strict=True)
            rows += attempts(question, prices, right, answer_probability=sure)
        write(name, rows, "llm-calibration", prices)
    rows = [*verified_rows(args.source / "verifier_hotpotqa_steps.csv.gz")]
    kinds = {"solved": "metric", "judge_probability": "signal"}
    write_recording(OUT / "agents_hotpotqa.parquet", rows, {"source": "e-valuator"}, kinds)
    print(f"agents_hotpotqa: {len({row['question_id'] for row in rows}):,} runs, {len(rows):,} steps")


if __name__ == "__main__":
    main()
