"""Small random models of transformers, made in a moment, with a tokenizer of bytes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.loops.models.prompts import Prompt
from suffice.policy.signals.position import AnswerPosition

if TYPE_CHECKING:
    from suffice_gates.models import LoadedModel, TransformersModel

LAYERS, WIDTH = 4, 32
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% if not loop.last or add_generation_prompt %}<end>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + TEMPLATE
)
SHORT = Prompt(name="short", version=1, system="Answer.", question="Q: {question}\nA:", passage="\n{title}: {text}")
"""A prompt that a model with a short context can read."""
START = AnswerPosition("start", "A:")
_LETTERS = [i for i, c in enumerate("".join(map(chr, range(33, 127)))) if c.isalnum()]
ENDING: dict[str, Any] = {"seed": 20, "eos_token_id": sorted({*range(257)} - {*_LETTERS})}
"""Settings of a model whose replies begin with a letter or a digit, and end at any other token: an untaught one never ends."""


def tokenizer(**settings: Any) -> Any:
    """Return a tokenizer whose tokens are bytes, and `<end>`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({character: i for i, character in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    return PreTrainedTokenizerFast(tokenizer_object=made, **{"eos_token": "<end>", "pad_token": "<end>", **settings})


def config(kind: str = "Llama", **settings: Any) -> Any:
    """Return the configuration of a small model of one architecture."""
    import transformers

    sizes: dict[str, Any] = {"vocab_size": 257, "num_hidden_layers": LAYERS, "hidden_size": WIDTH}
    if kind != "Mamba":
        sizes |= {"num_attention_heads": 4}
    own = {"OPT": {"ffn_dim": 64, "word_embed_proj_dim": WIDTH}, "Gemma2": {"head_dim": 8}}.get(kind, {})
    if kind not in ("GPT2", "OPT", "Mamba", "Falcon"):
        own |= {"intermediate_size": 64}
    if kind in ("Llama", "Qwen2", "Gemma2", "Mistral"):
        own |= {"num_key_value_heads": 2}
    own |= {"sliding_window": 6} if kind == "Mistral" else {}
    return getattr(transformers, f"{kind}Config")(
        **{"eos_token_id": 256, "bos_token_id": None, **sizes, **own, **settings}
    )


def network(kind: str = "Llama", *, seed: int = 0, **settings: Any) -> Any:
    """Return a small random model, weights wide enough that its states differ."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    made = AutoModelForCausalLM.from_config(config(kind, **settings)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.2)
        if made.get_input_embeddings().padding_idx is not None:
            made.get_input_embeddings().padding_idx = None
    return made


def loaded(kind: str = "Llama", *, template: str | None = None, **settings: Any) -> LoadedModel:
    """Return a small random model in memory."""
    from suffice_gates.models import LoadedModel

    words = tokenizer()
    words.chat_template = template
    return LoadedModel(network=network(kind, **settings), tokenizer=words, id=f"tiny/{kind}", revision="0")


def model(
    kind: str = "Llama", *, template: str | None = None, settings: Any = None, **options: Any
) -> TransformersModel:
    """Return a small random model that answers at once."""
    from suffice_gates.models import TransformersModel

    options = {"prompt": SHORT, "position": START, "max_tokens": 8, "layers": ("middle", "last"), **options}
    return TransformersModel(loaded(kind, template=template, **(settings or {})), **options)


def save(folder: Path, kind: str = "Llama", **settings: Any) -> Path:
    """Write a small random model as save_pretrained does."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        network(kind, **settings).save_pretrained(folder)
    finally:
        if shown:  # the command line hides them for good
            bars.enable_progress_bar()
    tokenizer().save_pretrained(folder)
    return folder


@contextlib.contextmanager
def counting_tokens(made: TransformersModel) -> Any:
    """Count the tokens that the model processes: every one passes through its input embedding."""
    seen: list[int] = []
    hook = made.loaded.network.get_input_embeddings().register_forward_hook(
        lambda _module, args, _out: seen.append(int(args[0].numel()))
    )
    try:
        yield seen
    finally:
        hook.remove()
