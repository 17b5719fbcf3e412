"""How long does the probe take in numpy, and how much does a gate add to a closed-book call?

Ours: `Probe.predict`, five layers and 1.97 M parameters over states of 4,096 numbers, one question and 64 together.  Peer:
the same weights in torch, one thread each, best of many in turns; asserted equal to 1e-5.  Then, on a random local model (8 layers of
width 512), a gated closed-book answer (the pass, the probe, and generation from that pass) against the plain answer,
questions in turns; asserted: the same answers.  The probe of that model has five layers, too.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from tests.support.local_models import SHORT, START, network, tokenizer

from suffice import Policy, RetrievalLoop, parse_rule
from suffice.loops.retrieval import InMemoryRetriever, load_questions
from suffice.policy.calibration.calibrator import Sigmoid
from suffice_gates.models import LoadedModel, TransformersModel
from suffice_gates.probes import Calibration, Probe, ProbeCard, ProbeGate
from suffice_gates.training.probe import HIDDEN

WIDTH, BATCH, REPEATS = 4096, 64, 300
MODEL = {
    "vocab_size": 8000,
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "max_position_embeddings": 2048,
}
N_QUESTIONS, TOKENS = 24, 16


def probe(width: int, card: ProbeCard) -> Probe:
    """Five layers, random."""
    rng = np.random.default_rng(0)
    widths = (width, *HIDDEN, 1)
    layers = [
        ((rng.normal(size=(out, given)) * np.sqrt(2 / given)).astype(np.float32), np.zeros(out, dtype=np.float32))
        for given, out in pairwise(widths)
    ]
    return Probe(layers, card, mean=np.zeros(width), scale=np.ones(width))


def in_torch(made: Probe) -> Callable[[np.ndarray], np.ndarray]:
    """The same network in torch."""
    import torch

    torch.set_num_threads(1)
    parts: list[torch.nn.Module] = []
    for weight, bias in made.layers:
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data, linear.bias.data = torch.from_numpy(weight.copy()), torch.from_numpy(bias.copy())
        parts += [linear, torch.nn.ReLU()]
    whole = torch.nn.Sequential(*parts[:-1]).eval()

    def predict(states: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return torch.sigmoid(whole(torch.from_numpy(states)))[:, 0].numpy()

    return predict


def best_us(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Best time of each call, in turns, microseconds: what other work on the machine adds is not the probe's."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 5):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if repeat >= 5:
                took[name].append(time.perf_counter() - began)
    return {name: min(times) * 1e6 for name, times in took.items()}


def gate_overhead() -> dict[str, float]:
    """Seconds of a plain and of a gated closed-book answer, and how much more the gated one takes."""
    loaded = LoadedModel(network=network(**MODEL), tokenizer=tokenizer(), id="random/Llama", revision="0")
    model = TransformersModel(loaded, prompt=SHORT, position=START, max_tokens=TOKENS, layers=("middle",))
    card = ProbeCard(model=model.id, revision=model.revision, layer=model.layers[0])
    sure = probe(MODEL["hidden_size"], card).calibrated(Calibration(method="platt", map=Sigmoid(1e-6, 9.0)))
    policy = Policy(rule=parse_rule("p_known > 0.5"), start_round=0, max_rounds=1, answer_position=START)
    loop = RetrievalLoop(model=model, retriever=InMemoryRetriever([]), policy=policy, gate=ProbeGate(sure, model))
    questions = [question.question for question in load_questions("hotpotqa_tune", limit=N_QUESTIONS)]
    plain: list[float] = []
    gated: list[float] = []
    for question in [questions[0], *questions]:
        began = time.perf_counter()
        expected = model.answer(question)
        middle = time.perf_counter()
        outcome = loop.run(question)
        ended = time.perf_counter()
        assert (outcome.decision.stop_round, outcome.rounds[0].text) == (0, expected.text)
        plain.append(middle - began)
        gated.append(ended - middle)
    ratios = [b / a for a, b in zip(plain[1:], gated[1:], strict=True)]
    return {
        "plain_ms": round(1e3 * statistics.median(plain[1:]), 2),
        "gated_ms": round(1e3 * statistics.median(gated[1:]), 2),
        "overhead": round(statistics.median(ratios) - 1, 4),
    }


def run() -> dict[str, object]:
    """Assert equality, time, print a table, return the figures."""
    made = probe(WIDTH, ProbeCard(model="m", revision="0", layer=16))
    peer = in_torch(made)
    many = np.random.default_rng(1).normal(size=(BATCH, WIDTH)).astype(np.float32)
    one = many[:1].copy()
    if np.abs(made.predict(many) - peer(many)).max() > 1e-5:
        raise AssertionError("numpy and torch disagree")
    single = best_us({"ours": lambda: made.predict(one), "peer": lambda: peer(one)}, REPEATS)
    batch = best_us({"ours": lambda: made.predict(many), "peer": lambda: peer(many)}, REPEATS // 3)
    gate = gate_overhead()
    print(f"{'microseconds a question':26}{'numpy':>10}{'torch':>10}")
    print(f"{'one question':26}{single['ours']:10.1f}{single['peer']:10.1f}")
    print(f"{f'{BATCH} together':26}{batch['ours'] / BATCH:10.1f}{batch['peer'] / BATCH:10.1f}")
    print(
        f"a closed-book call: {gate['plain_ms']} ms, behind a gate {gate['gated_ms']} ms ({100 * gate['overhead']:+.1f} %)"
    )
    result: dict[str, object] = {
        "name": "probe_us",
        "ours": round(single["ours"], 1),
        "peer": round(single["peer"], 1),
        "ratio": round(single["peer"] / single["ours"], 3),
        "amortised_us": round(batch["ours"] / BATCH, 1),
        "amortised_peer_us": round(batch["peer"] / BATCH, 1),
        "amortised_ratio": round(batch["peer"] / batch["ours"], 3),
        "gate": gate,
        "target": "ratio >= 0.8, amortised_ratio >= 0.5",
        "sizes": {"parameters": made.n_parameters, "width": WIDTH, "batch": BATCH, "model": MODEL, "tokens": TOKENS},
        "versions": {"python": platform.python_version()},
    }
    if single["peer"] < 0.8 * single["ours"] or batch["peer"] < 0.5 * batch["ours"]:
        raise AssertionError(f"the probe is too slow: {result}")
    return result


if __name__ == "__main__":
    print(json.dumps(run()))
