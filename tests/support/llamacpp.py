"""A tiny Llama that this file writes and teaches, and llama.cpp's own server over it.

The model (about 130,000 weights, byte-level BPE) was trained, with a seed, on a made-up world of things and cities,
until it replies in the format of the prompts.  It **knows** where half of the things are; for the
others it names the city of the newest passage: so it is stable and sure on the first, and wavers on the second.

::

    model = stored_model(folder)  # gguf, transformers weights and tokenizer of the same model
    with start_server(model) as server:
        ChatModel("tiny", base_url=server.url)
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.loops.models.prompts import ANSWER_FIRST
from suffice.policy.rounds import Passage

CITIES = [
    "Oslo",
    "Lima",
    "Rome",
    "Cairo",
    "Delhi",
    "Kyoto",
    "Paris",
    "Quito",
    "Tunis",
    "Sofia",
    "Hanoi",
    "Accra",
    "Dakar",
    "Minsk",
    "Riga",
    "Bern",
]
THINGS = [
    "tower",
    "bridge",
    "museum",
    "harbour",
    "garden",
    "castle",
    "library",
    "market",
    "temple",
    "palace",
    "theatre",
    "station",
]
KNOWN = len(THINGS) // 2
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STORED_MODEL = Path(__file__).resolve().parents[1] / "data" / "taught_model"
HIDDEN, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 2, 4, 2, 4096


@dataclass(frozen=True)
class TinyModel:
    """Where the files are: `gguf` for llama.cpp; `directory` for transformers' LlamaForCausalLM."""

    directory: Path

    @property
    def gguf(self) -> Path:
        return self.directory / "tiny.gguf"

    def tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.directory / "tokenizer.json"))

    def transformers(self) -> Any:
        from transformers import LlamaForCausalLM

        return LlamaForCausalLM.from_pretrained(self.directory).eval()


@dataclass(frozen=True)
class Server:
    """A running llama.cpp server; `url` ends with /v1."""

    url: str


@dataclass(frozen=True)
class Question:
    """A question of the made-up world, its true answer, and the passages about it and other things."""

    question_id: str
    question: str
    answer: str
    passages: tuple[Passage, ...]


def questions(n: int, *, seed: int = 0) -> list[Question]:
    """Return `n` questions with five passages each."""
    rng = random.Random(seed)
    return [_question(rng, f"world-{seed}-{i}") for i in range(n)]


def _question(rng: random.Random, question_id: str) -> Question:
    things = rng.sample(range(len(THINGS)), 5)
    asked = rng.choice(things)
    passages = tuple(
        Passage(passage_id=f"{question_id}-{i}", title=THINGS[i].capitalize(), text=f"The {THINGS[i]} is in {city}.")
        for i in things
        for city in [CITIES[i] if i == asked or i < KNOWN else rng.choice(CITIES)]
    )
    return Question(question_id, f"Where is the {THINGS[asked]}?", CITIES[asked], passages)


def chat_text(messages: Any) -> str:
    """Return what the chat template makes of messages, up to where the model goes on."""
    parts = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
    return "".join(parts) + "<|im_start|>assistant\n"


def build_model(directory: Path, *, taught: bool = True) -> TinyModel:
    """Write the model into `directory`.

    Args:
        directory: Where.
        taught: Whether it learns anything; untaught weights are enough for numbers to be compared.
    """
    import transformers

    model = TinyModel(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = _write_tokenizer(directory)
    network = _train(tokenizer) if taught else _network(tokenizer)
    transformers.utils.logging.disable_progress_bar()
    network.save_pretrained(directory)
    _write_gguf(model, network)
    return model


def stored_model(directory: Path, stored: Path = STORED_MODEL) -> TinyModel:
    """Write a model into `directory` from its stored weights: teaching takes 20 seconds of a processor, or minutes."""
    shutil.copytree(stored, directory, ignore=shutil.ignore_patterns("*.md"))
    model = TinyModel(directory)
    _write_gguf(model, model.transformers())
    return model


def _write_tokenizer(directory: Path) -> Any:
    """Byte-level BPE; the words Answer and Confidence are not in its corpus, so they are split over tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = [ANSWER_FIRST.system.replace("Answer", "").replace("Confidence", "")]
    text += [f" {city}" for city in CITIES] * 30
    text += [f" {thing} {thing.capitalize()} is in The the\n\nPassage 1: Question: Where" for thing in THINGS] * 30
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=560, min_frequency=1, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    return tokenizer


def _network(tokenizer: Any) -> Any:
    """Return the model as it is before it learns, the same every time."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=SPECIAL.index("<|im_end|>"),
    )
    return LlamaForCausalLM(config).eval()


def _train(tokenizer: Any) -> Any:
    """Teach the format: first without the instructions, which is fast, then with them, until it knows what it should."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # faster at this size, and the same weights whatever the number of cores
    try:
        network = _network(tokenizer).train()
        rng = random.Random(1)
        _fit(network, tokenizer, rng, shorts=[True] * 200 + [False] * 60, rate=3e-3)
        for _ in range(4):
            if _knows(network, tokenizer) >= 0.97:
                break
            _fit(network, tokenizer, rng, shorts=[False] * 50, rate=2e-3)
        return network.eval()
    finally:
        torch.set_num_threads(threads)


def _fit(network: Any, tokenizer: Any, rng: random.Random, *, shorts: list[bool], rate: float) -> None:
    """Take one step per element of `shorts`: whether that batch leaves the instructions out."""
    import torch

    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
    for step, short in enumerate(shorts):
        # Warm up, then down to nothing in a straight line.
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / 30, (len(shorts) - step) / len(shorts))
        ids, labels = _batch(tokenizer, rng, size=16, short=short)
        loss = network(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()


def _knows(network: Any, tokenizer: Any) -> float:
    """Return the share of known things whose city is its most likely answer."""
    import torch

    right = []
    for question in questions(80, seed=99):
        if CITIES.index(question.answer) < KNOWN:
            prompt = chat_text(ANSWER_FIRST.messages(question.question, question.passages))
            ids = tokenizer.encode(f"{prompt}Answer:").ids
            with torch.no_grad():
                best = int(network(torch.tensor([ids])).logits[0, -1].argmax())
            right.append(tokenizer.decode([best]).strip() == question.answer)
    return sum(right) / len(right)


def _batch(tokenizer: Any, rng: random.Random, *, size: int, short: bool) -> tuple[Any, Any]:
    """Return token ids and labels, shape (size, length); only the reply is learned."""
    import torch

    pairs = []
    for _ in range(size):
        question = _question(rng, "train")
        seen = question.passages[: rng.randint(0, 5)]
        messages = ANSWER_FIRST.messages(question.question, seen)
        reply = _reply(rng, question, seen)
        prompt = tokenizer.encode(chat_text(messages[1:] if short else messages)).ids
        pairs.append((prompt, tokenizer.encode(f"{reply}<|im_end|>").ids))
    length = max(len(prompt) + len(reply) for prompt, reply in pairs)
    ids = torch.zeros((size, length), dtype=torch.long)
    labels = torch.full((size, length), -100)
    for row, (prompt, reply) in enumerate(pairs):
        ids[row, : len(prompt) + len(reply)] = torch.tensor(prompt + reply)
        labels[row, len(prompt) : len(prompt) + len(reply)] = torch.tensor(reply)
    return ids, labels


def _reply(rng: random.Random, question: Question, seen: tuple[Passage, ...]) -> str:
    """Return what the model is taught to say; other cities now and then, so that no margin is infinite."""
    known = CITIES.index(question.answer) < KNOWN
    city = question.answer if known else seen[-1].text.split()[-1].rstrip(".") if seen else rng.choice(CITIES)
    if rng.random() < (0.05 if known else 0.2):
        city = rng.choice(CITIES)
    return f"Answer: {city}\nConfidence: {rng.choice('45' if known else '12')}"


def _write_gguf(model: TinyModel, network: Any) -> None:
    """Write the weights as F32 GGUF, the way llama.cpp wants a Llama."""
    import gguf

    written, config = json.loads((model.directory / "tokenizer.json").read_text()), network.config
    vocabulary, added = written["model"], {token["content"]: token for token in written["added_tokens"]}
    places = vocabulary["vocab"] | {word: token["id"] for word, token in added.items()}
    tokens = sorted(places, key=places.get)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    writer = gguf.GGUFWriter(str(model.gguf), "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // heads)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    types = {True: gguf.TokenType.CONTROL, False: gguf.TokenType.USER_DEFINED, None: gguf.TokenType.NORMAL}
    writer.add_token_types([types[added[token]["special"] if token in added else None] for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in vocabulary["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(SPECIAL.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, weight in network.state_dict().items():
        array = weight.detach().float().numpy()
        if "q_proj" in name or "k_proj" in name:
            array = _interleaved(array, heads if "q_proj" in name else kv_heads)
        writer.add_tensor(_gguf_name(name), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _interleaved(weight: Any, heads: int) -> Any:
    """Reorder the rows of each head: transformers rotates (i, i + d/2), llama.cpp neighbours (2i, 2i + 1)."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns).copy()


def _gguf_name(name: str) -> str:
    plain = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    inner = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    stem = name.removesuffix(".weight")
    if stem in plain:
        return f"{plain[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{inner[part]}.weight"


@contextlib.contextmanager
def start_server(
    model: TinyModel,
    *,
    exact: bool = True,
    slots: int = 1,
    threads: int = 1,
    states: bool = False,
    timeout_s: float = 600.0,
) -> Iterator[Server]:
    """Run llama.cpp's server on a free port of the loopback until the block ends.

    Args:
        model: What to serve.
        exact: F32 keys and values and no flash attention; else the server's defaults (F16, flash attention auto).
        slots: Requests that it handles at a time; each slot has its own prefix cache.
        threads: Threads that it computes with.
        states: Serve embeddings pooled by the last token instead of completions.
        timeout_s: How long to wait for it, seconds.
    """
    settings = {"model": str(model.gguf), "exact": exact, "slots": slots, "threads": threads, "states": states}
    # A process of its own: llama.cpp may not take the tests down with it, and ends when our end of the pipe closes.
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address.startswith("http"):
            raise RuntimeError(f"llama.cpp's server did not start; exit status {process.wait()}")
        _wait_until_healthy(address, timeout_s)
        yield Server(f"{address}/v1")
    finally:
        process.stdin.close()
        try:
            process.wait(600)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _wait_until_healthy(address: str, timeout_s: float) -> None:
    import httpx

    end = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{address}/health", timeout=600.0).status_code == 200:
                return
        if time.monotonic() > end:
            raise RuntimeError(f"llama.cpp's server at {address} is not healthy after {timeout_s} s")
        time.sleep(0.05)


def _serve(settings: dict[str, Any]) -> None:
    """Run the server in this process until stdin closes."""
    import os

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_ctx = CONTEXT * settings["slots"]
    params.n_parallel = settings["slots"]
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.warmup = False
    params.cache_ram_mib = 0
    params.verbosity = 0
    if settings["exact"]:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if settings["states"]:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_LAST
        params.n_batch = params.n_ubatch = CONTEXT  # a prompt must fit into one batch
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    # Without the native destructors, which may wait for connections that clients keep open.
    os._exit(0)


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
