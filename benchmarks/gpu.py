"""Hidden states and reranker training at full size: `python -m benchmarks.gpu`, on a GPU; `--tiny` on a CPU.

The models have the shapes of Llama-3-8B (bf16) and bge-reranker-v2-m3, from their configurations, and random weights: what a
pass costs does not depend on what a model knows, and nothing is downloaded.  Prompts are questions and passages of HotpotQA,
in bytes.  With ``--tiny`` both models are small, which checks that all of this runs; the rates of a CPU are not those of a GPU.

Measured, each beside its peer, in turns in one process:

- states: prompts per second from text to the last layer's states, against a bare pass of the same padded batches, over
  batches and lengths.  Asserted on a GPU at the largest of them: at least 90 %.
- gate: seconds of a question that the gate lets pass without retrieval, against the answer alone; and against a gate whose
  pass the answer does not continue.
- precision: the same weights in float32 and bfloat16.  Asserted: their states differ by at most `DRIFT`.
- memory: what passes over batches take beside the weights, against what `suffice run --dry-run` counts; and a batch for which
  memory does not suffice, whose states are asserted to be those of smaller batches.
- reranker: pairs per second and peak memory of a step with the default settings, against sentence-transformers' trainer with
  its own loss on the same pairs; and the memory that was counted before.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.local_models import SHORT, START, tokenizer

from benchmarks.bench_hidden_states import bare, batches
from benchmarks.gpu_measurement import Measurement
from benchmarks.gpu_memory import crowded, passes, scores
from suffice.errors import SufficeError
from suffice_gates.models import LoadedModel, TransformersModel
from suffice_gates.probes import Probe, ProbeCard, ProbeGate
from suffice_gates.training.memory import GIB
from suffice_gates.training.preference_file import Preference
from suffice_gates.training.reranker_trainer import (
    RerankerSettings,
    in_parts,
    load_base,
    make_trainer,
    planned_memory,
    quiet,
)

BGE_M3 = {
    "vocab_size": 250_002,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 8194,
    "type_vocab_size": 1,
}
"""The configuration of BAAI/bge-reranker-v2-m3, an XLM-RoBERTa with one label."""

TINY_BGE = BGE_M3 | {
    "vocab_size": 512,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 1026,
}
DRIFT = 0.1
"""Largest difference of a state in bfloat16 from that in float32, as a share of its length: 0.056 in docs/results/gpu.md."""

SHARE = 0.9


def check(run: Measurement, loaded: LoadedModel) -> None:
    """Assert that the states are those that transformers returns for a prompt alone."""
    import torch

    every = range(loaded.n_layers + 1)
    model = TransformersModel(loaded, prompt=SHORT, layers=list(every), batch_size=2)
    prompts = run.prompts(100, 2)
    ours = model.read_batch(prompts)
    for row, prompt in zip(ours, prompts, strict=True):
        tokens = torch.tensor([model.prompt_ids(SHORT.messages(prompt, ()))], device=run.device)
        with torch.inference_mode():
            layers = loaded.network(input_ids=tokens, output_hidden_states=True).hidden_states
        theirs = torch.stack([layer[0, -1] for layer in layers]).float().cpu().numpy()
        assert (np.linalg.norm(row - theirs, axis=-1) <= DRIFT * np.linalg.norm(theirs, axis=-1)).all()


def states(run: Measurement, loaded: LoadedModel) -> list[dict[str, Any]]:
    """Return prompts per second over batches and lengths, against bare passes."""
    grid = [(4, 64), (16, 64)] if run.tiny else [(n, size) for n in (1, 8, 32, 128) for size in (64, 256, 1024)]
    rows = []
    check(run, loaded)
    for n, length in grid:
        prompts = run.prompts(length, 2 * n)
        ours = TransformersModel(loaded, prompt=SHORT, layers=("last",), batch_size=n)
        middle = TransformersModel(loaded, prompt=SHORT, layers=("middle",), batch_size=n)
        padded = [tuple(part.to(run.device) for part in batch) for batch in batches(ours, prompts, n)]
        with run.peak() as peak:
            seconds = run.in_turns(
                {
                    "bare": lambda padded=padded: bare(loaded, padded),
                    "last": lambda ours=ours, prompts=prompts: ours.read_batch(prompts),
                    "middle": lambda middle=middle, prompts=prompts: middle.read_batch(prompts),
                }
            )
        rows.append(
            {
                "batch": n,
                "tokens": int(padded[0][1].sum(1).max()),
                "prompts_per_s": len(prompts) / statistics.median(seconds["last"]),
                "of_bare": _ratio(seconds["bare"], seconds["last"]),
                "of_bare_middle": _ratio(seconds["bare"], seconds["middle"]),
                "peak_gib": peak[0],
            }
        )
    return rows


def gate(run: Measurement, loaded: LoadedModel) -> dict[str, Any]:
    """Return what a gate adds to a question that is answered without retrieval, and what continuing its pass saves."""
    width = int(loaded.config.hidden_size)
    model = TransformersModel(loaded, prompt=SHORT, position=START, layers=("middle",), max_tokens=16)
    sizes = [(width, width // 4), (width // 4, 1)]  # about the probe of the paper: one hidden layer
    layers = [
        (
            run.rng.normal(0, wide**-0.5, (narrow, wide)).astype(np.float32),
            np.zeros(narrow, dtype=np.float32),
        )
        for wide, narrow in sizes
    ]
    probe = Probe(layers, ProbeCard(model=model.id, revision=model.revision, layer=model.layers[0]))
    reads = ProbeGate(probe, model)
    asked = run.questions[: 1 if run.tiny else 32]

    def continued() -> None:
        for question in asked:
            verdict = reads.decide(question)
            assert verdict.resume is not None
            verdict.resume()

    def again() -> None:
        for question in asked:
            reads.decide(question)
            model.answer(question)

    seconds = run.in_turns(
        {
            "answer alone": lambda: [model.answer(question) for question in asked],
            "gate, its pass continued": continued,
            "gate, and a pass of its own": again,
            "gate alone": lambda: [reads.decide(question) for question in asked],
        }
    )
    per_question = {name: statistics.median(times) / len(asked) for name, times in seconds.items()}
    return {
        "seconds": per_question,
        "overhead": 1 / _ratio(seconds["answer alone"], seconds["gate, its pass continued"]) - 1,
    }


def precision(run: Measurement) -> dict[str, Any]:
    """Return how far states in bfloat16 are from those in float32, as shares of their length."""
    prompts = run.prompts(64 if run.tiny else 256, 8)
    values = {}
    for dtype in ("bfloat16", "float32"):
        loaded = run.llama(dtype)
        every = range(loaded.n_layers + 1)
        values[dtype] = TransformersModel(loaded, prompt=SHORT, layers=list(every), batch_size=4).read_batch(prompts)
        del loaded
        _free()
    half, full = values["bfloat16"], values["float32"]
    drift = np.linalg.norm(half - full, axis=-1) / np.linalg.norm(full, axis=-1)  # (prompts, layers)
    assert float(drift.max()) <= DRIFT, f"states differ by {float(drift.max()):.3f}, more than {DRIFT}"
    middle = drift.shape[1] // 2
    return {"largest": float(drift.max()), "middle": float(drift[:, middle].max()), "last": float(drift[:, -1].max())}


def memory(run: Measurement, loaded: LoadedModel) -> dict[str, Any]:
    """Return the memory of passes, measured and counted, and what became of a batch that does not fit."""
    result: dict[str, Any] = {"passes": passes(run, loaded), "crowded": crowded(run, loaded)}
    difference = result["crowded"]["largest_difference"]
    assert difference <= DRIFT, f"states of smaller batches differ by {difference:.3f}, more than {DRIFT}"
    with tempfile.TemporaryDirectory() as folder:
        _save_base(Path(folder), TINY_BGE if run.tiny else BGE_M3, run.seed)
        with quiet():
            encoder = load_base(folder, RerankerSettings(), revision=None, device=run.device, seed=run.seed)
        result["scores"] = scores(run, encoder)
        del encoder
        _free()
    return result


def reranker(run: Measurement) -> dict[str, Any]:
    """Return pairs per second and peak memory of training, against the plain trainer on the same pairs."""
    steps, settings = 6, RerankerSettings()
    if run.tiny:
        steps, settings = 2, RerankerSettings(batch=4, query_tokens=32, passage_tokens=64, precision="fp32")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _save_base(folder / "base", TINY_BGE if run.tiny else BGE_M3, run.seed)
        device = "cpu" if run.tiny else None
        preferences = _preferences(run, steps * settings.batch, settings.negatives)
        pairs = len(preferences) * (1 + settings.negatives)
        seconds: dict[str, list[float]] = {"ours": [], "plain": []}
        peaks: dict[str, float | None] = {}
        planned, chosen = None, settings
        for turn in range(min(run.repeats, 3) + 1):
            for who, times in seconds.items():
                with quiet():
                    encoder = load_base(str(folder / "base"), settings, revision=None, device=device, seed=run.seed)
                planned = planned_memory(encoder, settings, device)
                chosen, _ = in_parts(settings, planned)
                trainer = make_trainer(encoder, preferences, [], chosen, folder / "run", device=device, seed=run.seed)
                if who == "plain":
                    trainer = _plain(trainer, encoder, preferences)
                trainer.args.save_strategy = "no"
                with run.peak() as peak, contextlib.redirect_stdout(sys.stderr):
                    run.synchronize()
                    began = time.perf_counter()
                    trainer.train()
                    run.synchronize()
                if turn:
                    times.append(time.perf_counter() - began)
                peaks[who] = peak[0]
                del trainer, encoder
                _free()
    rows = settings.batch // (chosen.accumulate or 1)
    return {
        "settings": {"batch": settings.batch, "parts": chosen.accumulate, "pairs": pairs, "steps": steps},
        "pairs_per_s": {who: pairs / statistics.median(times) for who, times in seconds.items()},
        "of_plain": _ratio(seconds["plain"], seconds["ours"]),
        "peak_gib": peaks,
        "counted_gib": None if planned is None else planned.total(rows * (1 + settings.negatives)) / GIB,
    }


def _ratio(peer: Sequence[float], ours: Sequence[float]) -> float:
    """Return the median of the ratios within a turn: what else the machine does slows both."""
    return statistics.median(a / b for a, b in zip(peer, ours, strict=True))


def _free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _save_base(folder: Path, sizes: dict[str, int], seed: int) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, XLMRobertaConfig

    torch.manual_seed(seed)
    config = XLMRobertaConfig(num_labels=1, pad_token_id=256, bos_token_id=256, eos_token_id=256, **sizes)
    with quiet():
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer(model_max_length=sizes["max_position_embeddings"] - 2).save_pretrained(folder)


def _preferences(run: Measurement, n: int, negatives: int) -> list[Preference]:
    """Return rows of a question, one positive and negatives, all of real text."""
    drawn = [run.rng.choice(len(run.texts), 1 + negatives, replace=False).tolist() for _ in range(n)]
    return [
        Preference(
            query=f"{run.questions[i % len(run.questions)]} {i}",
            pos=(run.texts[row[0]],),
            neg=tuple(run.texts[j] for j in row[1:]),
        )
        for i, row in enumerate(drawn)
    ]


def _plain(ours: Any, encoder: Any, preferences: Sequence[Preference]) -> Any:
    """Return sentence-transformers' trainer with its own loss, the same arguments, and the same pairs in each step."""
    from datasets import Dataset
    from sentence_transformers.cross_encoder import CrossEncoderTrainer
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
    from transformers import PrinterCallback

    per_row = 1 + len(preferences[0].neg)
    pairs = [(item.query, text, float(text in item.pos)) for item in preferences for text in (*item.pos, *item.neg)]
    rows = Dataset.from_dict(
        {
            name: list(values)
            for name, values in zip(("query", "passage", "label"), zip(*pairs, strict=True), strict=True)
        }
    )
    arguments = replace(ours.args, per_device_train_batch_size=ours.args.per_device_train_batch_size * per_row)
    trainer = CrossEncoderTrainer(
        model=encoder, args=arguments, train_dataset=rows, loss=BinaryCrossEntropyLoss(encoder)
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _printed(title: str, result: Any) -> None:
    """Write a part's rows to standard error, one on each line."""
    if isinstance(result, dict) and any(isinstance(value, list) for value in result.values()):
        for name, rows in result.items():
            _printed(f"{title}: {name}", rows)
        return
    sys.stderr.write(f"{title}\n")
    for row in result if isinstance(result, list) else [result]:
        sys.stderr.write("  " + json.dumps(row) + "\n")


OF_ONE_MODEL: dict[str, Callable[[Measurement, LoadedModel], Any]] = {"states": states, "gate": gate, "memory": memory}
ALONE: dict[str, Callable[[Measurement], Any]] = {"precision": precision, "reranker": reranker}
PARTS = (*OF_ONE_MODEL, *ALONE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table to standard error and one JSON line to standard output; return the exit code."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(PARTS)}; default: all")
    parser.add_argument("--tiny", action="store_true", help="small models on the CPU, to check that it runs")
    parser.add_argument("--repeats", type=int, default=7, help="turns, beside one that warms up")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; there are {', '.join(PARTS)}")
    if not options.tiny and not torch.cuda.is_available():
        parser.error("torch finds no GPU on this machine: --tiny runs small models on the CPU")
    run = Measurement(tiny=options.tiny, repeats=options.repeats, seed=options.seed)
    wanted = options.parts or PARTS
    result: dict[str, Any] = {"name": "gpu", "device": run.name, "tiny": run.tiny}
    try:
        of_model = [part for part in OF_ONE_MODEL if part in wanted]
        if of_model:
            loaded = run.llama("float32" if run.tiny else "bfloat16")
            for part in of_model:
                result[part] = OF_ONE_MODEL[part](run, loaded)
                _printed(part, result[part])
            del loaded
            _free()
        for part in (name for name in ALONE if name in wanted):
            result[part] = ALONE[part](run)
            _printed(part, result[part])
    except (SufficeError, torch.OutOfMemoryError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    result["versions"] = {
        name: importlib.metadata.version(name) for name in ("torch", "transformers", "sentence-transformers")
    }
    sys.stdout.write(json.dumps(result) + "\n")
    best = max((row["of_bare"] for row in result.get("states", [])), default=1.0)
    if not run.tiny and best < SHARE:
        sys.stderr.write(f"error: states reach {best:.3f} of a bare pass at best; wanted: {SHARE}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
