"""A GPU, or a CPU that stands in for it, and a language model on it that the parts of `python -m benchmarks.gpu` measure."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tests.support.local_models import tokenizer

from suffice.loops.retrieval import load_questions
from suffice_gates.models import LoadedModel
from suffice_gates.training.memory import GIB

LLAMA_3_8B = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "max_position_embeddings": 8192,
    "rope_theta": 500_000.0,
}
"""The configuration of meta-llama/Meta-Llama-3-8B-Instruct."""

TINY_LLAMA = LLAMA_3_8B | {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 224,
}


class Measurement:
    """Where models run, and what each part measures there."""

    def __init__(self, *, tiny: bool, repeats: int, seed: int) -> None:
        import torch

        self.tiny, self.repeats, self.seed = tiny, repeats, seed
        self.device = "cpu" if tiny else "cuda"
        self.name = "CPU" if tiny else torch.cuda.get_device_name()
        self.rng = np.random.default_rng(seed)
        questions = load_questions("hotpotqa_tune", limit=200)
        self.questions = [item.question for item in questions]
        self.texts = [f"{passage.title}. {passage.text}" for item in questions for passage in item.passages]

    def synchronize(self) -> None:
        """Wait for what the GPU was given to do."""
        import torch

        if not self.tiny:
            torch.cuda.synchronize()

    def in_turns(self, runs: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
        """Return the seconds of each run, in turns, without the first turn, which warms up."""
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(self.repeats + 1):
            for name, call in runs.items():
                self.synchronize()
                began = time.perf_counter()
                call()
                self.synchronize()
                if turn:
                    seconds[name].append(time.perf_counter() - began)
        return seconds

    @contextlib.contextmanager
    def peak(self) -> Iterator[list[float | None]]:
        """Yield a list that holds the peak memory of the device in GiB afterwards; None on a CPU, where it is not known."""
        import torch

        result: list[float | None] = [None]
        gc.collect()
        if not self.tiny:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        yield result
        if not self.tiny:
            result[0] = torch.cuda.max_memory_allocated() / GIB

    def held(self) -> float | None:
        """Return the memory in use on the device, GiB; None on a CPU."""
        import torch

        gc.collect()
        return None if self.tiny else torch.cuda.memory_allocated() / GIB

    def llama(self, dtype: str) -> LoadedModel:
        """Return the language model, with the same weights for each number type."""
        import torch
        from transformers import AutoModelForCausalLM, LlamaConfig

        sizes = TINY_LLAMA if self.tiny else LLAMA_3_8B
        torch.manual_seed(self.seed)
        with torch.device(self.device):
            config = LlamaConfig(eos_token_id=256, bos_token_id=None, pad_token_id=256, **sizes)
            network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        if dtype != "bfloat16":  # a cast would round the frequencies of positions, too
            network = network.to(getattr(torch, dtype))
        words = tokenizer(model_max_length=sizes["max_position_embeddings"])
        return LoadedModel(network=network, tokenizer=words, id="random", revision="0")

    def prompts(self, tokens: int, n: int) -> list[str]:
        """Return texts of so many bytes from passages, each with its own beginning."""
        long = " ".join(self.texts)
        return [long[start : start + tokens].ljust(tokens, ".") for start in range(0, 131 * n, 131)]
