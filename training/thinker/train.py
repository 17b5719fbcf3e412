"""Train the model that thinks about puzzles: ``python -m training.thinker.train`` writes tests/data/thinker."""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from suffice.loops.thinking_loop import CHATML
from training.thinker.puzzles import DOUBT, LABELS, LISTS, OPERATIONS, draw_chain, draw_puzzle

OUTPUT = Path(__file__).resolve().parents[2] / "tests" / "data" / "thinker"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
THINK = ["<think>", "</think>"]
CONTEXT = 1024
PLAIN = CHATML.start.replace("<|im_start|>system\n{system}<|im_end|>\n", "")
"""The template without the system's turn, which is most of a short prompt: the first stages learn faster without it."""

TRIALS = 6
"""Trial answers that one chain is taught with: at its end, and at random words."""

STAGES = (
    {"steps": 300, "rate": 3e-3, "size": 24, "longest": 4, "most": 1, "plain": 1.0},
    {"steps": 300, "rate": 3e-3, "size": 24, "longest": 8, "most": 2, "plain": 1.0},
    {"steps": 750, "rate": 2.5e-3, "size": 16, "longest": 8, "most": 6, "plain": 0.3},
)
"""Short chains first, then long ones."""


def write_tokenizer(path: Path) -> Tokenizer:
    """Write a byte-level tokenizer to which every word of a puzzle, with the space before it, is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    words = [*LABELS, *OPERATIONS, *map(str, range(10)), *LISTS, "Start", "=", ":", ".", "So", "Wait", "Done"]
    text = [
        " " + " ".join(words),
        *LISTS,
        "Start",
        "Answer",
        "\n\n",
        "system\n",
        "user\n",
        "assistant\n",
        CHATML.system,
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in THINK])
    tokenizer.save(str(path))
    return tokenizer


def untrained(tokenizer: Tokenizer) -> LlamaForCausalLM:
    """Return the model before it learns, the same every time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        initializer_range=0.05,
        bos_token_id=0,
        eos_token_id=SPECIAL.index("<|im_end|>"),
    )
    return LlamaForCausalLM(config)


class _Lesson(NamedTuple):
    """A chain and its trial answers in one sequence of tokens.

    Attributes:
        ids: Tokens.
        labels: The same where they are learned, else -100.
        positions: Place of each in the text that it belongs to.
        trials: Of each trial answer the place where it begins, and where the chain was cut for it.
    """

    ids: list[int]
    labels: list[int]
    positions: list[int]
    trials: list[tuple[int, int]]


class Texts:
    """Draws lessons."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.tokenizer, self.rng = tokenizer, random.Random(seed)
        self.known: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text, from a table for those that come again."""
        if text not in self.known:
            self.known[text] = self.tokenizer.encode(text).ids
        return self.known[text]

    def draw(self, longest: int, most: int, plain: float) -> _Lesson:
        """Return a prompt and a chain, followed by trial answers at some of its words."""
        rng = self.rng
        puzzle = draw_puzzle(rng, longest)
        chain = draw_chain(puzzle, rng, most)
        template = PLAIN if rng.random() < plain else CHATML.start
        ids = self.tokenizer.encode(template.format(system=CHATML.system, question=puzzle.question)).ids
        first, end = len(ids), self.ids(CHATML.end)
        ids = ids + [
            token for word in (*chain.words, THINK[1]) for token in self.ids(f" {word}" if word != THINK[1] else word)
        ]
        labels = [-100] * first + ids[first:]
        positions, trials = [*range(len(ids))], []
        for cut in (len(chain.words), *(rng.randrange(1, len(chain.words)) for _ in range(TRIALS - 1))):
            held = chain.holds[cut - 1]
            if held is None or (cut < len(chain.words) and rng.random() < DOUBT):
                held = puzzle.answer
            tail = self.ids(f"Answer: {held}<|im_end|>")
            trials.append((len(ids), first + cut))
            positions += range(first + cut, first + cut + len(end) + len(tail))
            ids, labels = ids + end + tail, labels + [-100] * len(end) + tail
        return _Lesson(ids, labels, positions, trials)

    def batch(self, size: int, **settings: Any) -> dict[str, torch.Tensor]:
        """Return lessons as the arguments of a model: each trial answer sees only the chain before it."""
        drawn = [self.draw(**settings) for _ in range(size)]
        length = max(len(lesson.ids) for lesson in drawn)
        ids, positions = torch.zeros((2, size, length), dtype=torch.long)
        labels = torch.full((size, length), -100)
        hidden = torch.ones((length, length), dtype=torch.bool).triu(1).repeat(size, 1, 1)
        for row, lesson in enumerate(drawn):
            n = len(lesson.ids)
            ids[row, :n], labels[row, :n] = torch.tensor(lesson.ids), torch.tensor(lesson.labels)
            positions[row, :n] = torch.tensor(lesson.positions)
            for (start, cut), (after, _) in zip(lesson.trials, [*lesson.trials[1:], (n, n)], strict=True):
                hidden[row, start:after, cut:start] = True
        mask = torch.zeros(hidden.shape).masked_fill_(hidden, torch.finfo(torch.float32).min)[:, None]
        return {"input_ids": ids, "labels": labels, "position_ids": positions, "attention_mask": mask}


def train(model: LlamaForCausalLM, texts: Texts) -> None:
    """Train by the stages, and print the loss every 50 steps."""
    began = time.process_time()
    for stage in STAGES:
        steps, rate, size = (stage[name] for name in ("steps", "rate", "size"))
        settings = {name: stage[name] for name in ("longest", "most", "plain")}
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate * min((step + 1) / 30, max(0.05, (steps - step) / steps))
            loss = model(**texts.batch(size, **settings)).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 50 == 49:
                print(f"{step + 1:5d}  loss {loss.item():.3f}  {time.process_time() - began:5.0f} s", flush=True)


def main() -> None:
    """Train, and write model and tokenizer into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tokenizer = write_tokenizer(output / "tokenizer.json")
    model = untrained(tokenizer)
    print(f"{sum(p.numel() for p in model.parameters()):,} weights, {tokenizer.get_vocab_size()} tokens")
    train(model, Texts(tokenizer, seed=1))
    model.eval().save_pretrained(output)


if __name__ == "__main__":
    main()
