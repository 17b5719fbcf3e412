"""Tiny Llamas that learn an invented world, with one token per word and attention heads initialised to look back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from suffice.errors import MissingExtraError

END_TOKEN, PAD_TOKEN = "<end>", "<pad>"
_LOOK = 5.0
"""Size of the biases by which a head looks back."""

OnProgress = Callable[[int, int], None]
"""Called with the number of training steps that are done and the number of all steps."""


def require_torch(task: str) -> None:
    """Raise if torch or transformers is not installed.

    Raises:
        MissingExtraError: torch or transformers is not installed; the message names the task.
    """
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(task, "torch", "suffice-papers") from error


def train_llama(
    folder: Path, tokenizer: Any, network: Callable[[], Any], train: Callable[[Any], None], *, seed: int, threads: int
) -> None:
    """Train a network and save it with its tokenizer; equal seeds and threads give equal weights on one machine.

    Args:
        folder: Output folder.
        tokenizer: The tokenizer.
        network: Function that returns the network, with weights drawn by torch's seeded generator.
        train: Function that trains the network.
        seed: Seed of torch's draws.
        threads: Processor threads.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = network()
            train(model)
    finally:
        torch.set_num_threads(before)
    model.eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def word_tokenizer(words: Iterable[str], samples: Sequence[str], *, template: str, longest: int) -> Any:
    """Return a byte-level BPE tokenizer with one token for each word that follows a space.

    Args:
        words: The words.
        samples: Texts from which further tokens are learned.
        template: The chat template.
        longest: The longest text, in tokens.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=20_000,
        special_tokens=[PAD_TOKEN, END_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*(f" {word}" for word in words), *samples], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_TOKEN,
        pad_token=PAD_TOKEN,
        chat_template=template,
        model_max_length=longest,
    )


def tiny_llama(tokenizer: Any, *, heads: int, width: int, longest: int, distances: Sequence[int]) -> Any:
    """Return a Llama of two layers, some of whose heads are initialised to look a fixed number of tokens back.

    Args:
        tokenizer: The tokenizer of the texts.
        heads: Number of attention heads.
        width: Width of each head.
        longest: The longest text, in tokens.
        distances: Distances of the first heads of the first layer, see `look_back`.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=width,
            max_position_embeddings=longest,
            rope_theta=100.0,
            attention_bias=True,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    look_back(network, distances)
    return network


def look_back(network: Any, distances: Sequence[int]) -> None:
    """Initialise heads of the first layer to look a fixed number of tokens back, since this is slow to learn.

    The biases of query and key are rotated against each other by that distance, so that with rotary embeddings their
    product is largest at that distance.

    Args:
        network: A Llama with biases in its attention.
        distances: Distance of each head, in tokens.
    """
    import torch

    attention = network.model.layers[0].self_attn
    frequencies, width = network.model.rotary_emb.inv_freq, attention.head_dim
    with torch.no_grad():
        for head, back in enumerate(distances):
            rows = slice(head * width, (head + 1) * width)
            ones = torch.ones(width // 2)
            attention.k_proj.bias[rows] = _LOOK * torch.cat([ones, 0 * ones])
            attention.q_proj.bias[rows] = _LOOK * torch.cat(
                [torch.cos(back * frequencies), -torch.sin(back * frequencies)]
            )


def train_network(
    network: Any,
    backward: Callable[[], None],
    steps: int,
    *,
    rate: float,
    warm: float,
    on_progress: Callable[[int, int], None] | None,
) -> None:
    """Train a network with AdamW, clipped gradients and one cycle of the learning rate.

    Args:
        network: The network.
        backward: Function that adds the gradients of one step's loss.
        steps: Number of steps.
        rate: The highest learning rate.
        warm: Share of the steps in which the rate rises.
        on_progress: Called with the number of steps done and the number of all steps.
    """
    import torch

    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=warm)
    network.train()
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if on_progress is not None:
            on_progress(step, steps)
