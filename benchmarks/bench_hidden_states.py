"""What share of a bare batched forward pass's throughput does reading hidden states reach?

Ours: `TransformersModel.read_batch`, from texts to states, prompt building and tokens included.  Peer: the same model on
the same padded batches, tokens ready, nothing read.  Two depths: the last layer (every layer runs) and the middle one
(the layers above do not).  Beside them transformers' own way, `output_hidden_states=True` with logits.  The model
is random, 8 layers of width 256 and 32,000 words; runs alternate.  Asserted first: the states are those of transformers, and ours
reaches 90 % of the bare pass with the last layer.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.support.local_models import SHORT, network, tokenizer

from suffice.loops.retrieval import load_questions
from suffice_gates.models import LoadedModel, TransformersModel

LAYERS, WIDTH = 8, 256
N_QUESTIONS = 64
BATCH = 16
REPEATS = 9
SIZES = {
    "vocab_size": 32_000,
    "num_hidden_layers": LAYERS,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": 2048,
}


def batches(model: TransformersModel, questions: list[str], size: int = BATCH) -> list[Any]:
    """Return the padded batches that `read_batch` makes of the questions: tokens and masks."""
    import torch

    ids = sorted((model._ids(question, ()) for question in questions), key=len, reverse=True)
    made = []
    for start in range(0, len(ids), size):
        part = [torch.tensor(row) for row in ids[start : start + size]]
        tokens = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in part], batch_first=True)
        made.append((tokens, mask))
    return made


def bare(loaded: LoadedModel, prepared: list[Any]) -> None:
    """Pass the batches through the model without its head; look at nothing."""
    import torch

    with torch.inference_mode():
        for tokens, mask in prepared:
            loaded.network.base_model(input_ids=tokens, attention_mask=mask, use_cache=False)


def own_way(loaded: LoadedModel, prepared: list[Any]) -> list[Any]:
    """Return the last tokens' states as transformers gives them: all layers, all tokens, logits."""
    import torch

    found = []
    with torch.inference_mode():
        for tokens, mask in prepared:
            states = loaded.network(input_ids=tokens, attention_mask=mask, output_hidden_states=True, use_cache=False)
            last = mask.sum(-1) - 1
            rows = torch.arange(len(tokens))
            found.append(torch.stack([layer[rows, last] for layer in states.hidden_states], dim=1).numpy())
    return found


def check(loaded: LoadedModel, questions: list[str], prepared: list[Any]) -> None:
    """The states are those of transformers, in the order of the questions."""
    layers = range(LAYERS + 1)
    ours = TransformersModel(loaded, prompt=SHORT, layers=list(layers), batch_size=BATCH).read_batch(questions)
    lengths = [len(TransformersModel(loaded, prompt=SHORT)._ids(question, ())) for question in questions]
    order = sorted(range(len(questions)), key=lambda row: -lengths[row])
    assert np.abs(ours[order] - np.concatenate(own_way(loaded, prepared))).max() < 1e-4


def seconds(runs: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Return how long each run took, one after the other in every repeat, so that drift hits all alike."""
    took: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(REPEATS + 1):
        for name, call in runs.items():
            began = time.perf_counter()
            call()
            if repeat:  # the first one warms up
                took[name].append(time.perf_counter() - began)
    return took


def run() -> dict[str, Any]:
    """Assert correctness, print a table, return the figures."""
    import torch

    questions = [question.question for question in load_questions("hotpotqa_tune", limit=N_QUESTIONS)]
    loaded = LoadedModel(network=network(**SIZES), tokenizer=tokenizer(), id="random", revision="0")
    last = TransformersModel(loaded, prompt=SHORT, layers=("last",), batch_size=BATCH)
    middle = TransformersModel(loaded, prompt=SHORT, layers=("middle",), batch_size=BATCH)
    prepared = batches(last, questions)
    check(loaded, questions, prepared)
    took = seconds(
        {
            "bare pass": lambda: bare(loaded, prepared),
            "last layer": lambda: last.read_batch(questions),
            "middle layer": lambda: middle.read_batch(questions),
            "output_hidden_states": lambda: own_way(loaded, prepared),
        }
    )
    # Ratios within a repeat: what else the machine does slows both.
    ratio = {
        name: statistics.median(b / a for a, b in zip(times, took["bare pass"], strict=True))
        for name, times in took.items()
    }
    rate = {name: len(questions) / statistics.median(times) for name, times in took.items()}
    print(f"{'way':<22}{'prompts/s':>10}{'of bare':>9}")
    for name in took:
        print(f"{name:<22}{rate[name]:>10.1f}{ratio[name]:>9.3f}")
    assert ratio["last layer"] >= 0.9, ratio
    versions = {}
    for name in ("torch", "transformers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "name": "hidden_states",
        "ours": rate["last layer"],
        "peer": rate["bare pass"],
        "ratio": ratio["last layer"],
        "ratio_middle_layer": ratio["middle layer"],
        "ratio_output_hidden_states": ratio["output_hidden_states"],
        "sizes": {
            "prompts": len(questions),
            "tokens": int(sum(int(mask.sum()) for _, mask in prepared)),
            "batch": BATCH,
            "layers": LAYERS,
            "width": WIDTH,
            "threads": torch.get_num_threads(),
        },
        "versions": versions,
    }


if __name__ == "__main__":
    print(json.dumps(run()))
