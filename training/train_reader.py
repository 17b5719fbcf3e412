"""Fine-tune all-MiniLM-L6-v2 into the span reader.

    python -m training.train_reader --data prepared/ --minilm path/to/all-MiniLM-L6-v2 --output reader.pt

`prepared/` comes from `training/prepare.py`.  Runs on a GPU if there is one, else on the CPU (about half an hour on two
cores with bf16 support).  One step: draw some questions, draw for each a handful of its passages, score all spans
of all of them, and maximise the total probability of all spans that match a gold answer.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from suffice.policy.metrics import normalize_answer
from suffice_reader._span_windows import NO, YES, Featurizer, ReaderConfig, Window
from suffice_reader.span_reader import PassageSpans, passage_spans
from training.evaluate_reader import score_rounds, table
from training.prepare import Record, cloze_questions, pairs_hash, read_questions
from training.reader_model import SpanModel, batches, collate, load_minilm

ARTICLES = {"a", "an", "the"}
MASKED = -1e4  # logit of what cannot be an answer; finite, so that no gradient is NaN


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """What a run depends on beside its data."""

    seed: int = 0
    epochs: int = 2
    stop_after: int | None = None  # steps after which to stop, though the learning rate was to fall for longer
    cloze_per_question: int = 0  # recurring-span questions made of each multi-hop question's paragraphs
    cloze_first: bool = False  # all of them before the real questions; else mixed into every epoch
    questions_per_step: int = 12
    lr: float = 2e-4
    head_lr: float = 1e-3
    layer_decay: float = 0.9  # each layer learns at this share of the rate of the layer above it
    weight_decay: float = 0.01
    warmup: float = 0.06
    dropout: float = 0.1
    unanswerable: float = 0.15  # share of draws without any passage that has the answer
    support_weight: float = 0.2
    passages_multi: tuple[int, ...] = (2, 3, 3, 4, 5, 6, 8, 10)  # numbers of passages drawn, equally likely
    passages_single: tuple[int, ...] = (1, 2, 2, 3, 4)
    single_share: tuple[float, ...] = (1.0, 0.5)  # of single-passage questions, per epoch
    chunk: int = 16  # windows per forward pass


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage as trained on: windows, gold masks of the same shapes as `allowed`, and its supporting flag."""

    windows: list[Window]
    gold: list[NDArray[np.bool_]]
    supporting: bool

    @property
    def has_answer(self) -> bool:
        """Whether a span matches a gold answer."""
        return any(mask.any() for mask in self.gold)


# --- gold spans ---------------------------------------------------------------------------------------------------


def content_pieces(pieces: Sequence[str]) -> list[tuple[int, str]]:
    """(index, piece) of the word pieces that the scorer's normalisation keeps."""
    return [(i, p) for i, p in enumerate(pieces) if p not in ARTICLES and any(c.isalnum() for c in p)]


def gold_mask(
    window: Window, answers: Sequence[Sequence[str]], closed: str | None, supporting: bool
) -> NDArray[np.bool_]:
    """Which spans match an answer, bool, shape (t, max_span).

    Args:
        window: The window.
        answers: Content word pieces of each gold answer.
        closed: `yes` or `no` if that is the gold answer; then only the supporting passages' word is gold.
        supporting: Whether the passage is a supporting one.
    """
    gold = np.zeros_like(window.allowed)
    if closed is not None:
        if supporting:
            gold[np.flatnonzero(window.segment == (YES if closed == "yes" else NO)), 0] = True
        return gold & window.allowed
    content = content_pieces(window.pieces)
    pieces = [piece for _, piece in content]
    for answer in answers:
        n = len(answer)
        for i in range(len(pieces) - n + 1):
            if n and pieces[i : i + n] == list(answer):
                start, end = content[i][0], content[i + n - 1][0]
                article = start and window.pieces[start - 1] in ARTICLES
                for first in (start, start - 1) if article else (start,):
                    if end - first < gold.shape[1]:
                        gold[first, end - first] = True
    return gold & window.allowed


def featurize(record: Record, featurizer: Featurizer, tokenizer: Any) -> list[Passage]:
    """All passages of one training question."""
    pieces = [tokenizer.encode(answer, add_special_tokens=False).tokens for answer in record["answers"]]
    answers = [[piece for _, piece in content_pieces(p)] for p in pieces]
    closed = next((a for a in map(normalize_answer, record["answers"]) if a in {"yes", "no"}), None)
    passages = []
    for p in record["paragraphs"]:
        windows = featurizer.windows(record["question"], p["title"], p["text"])
        gold = [gold_mask(window, answers, closed, p["is_supporting"]) for window in windows]
        passages.append(Passage(windows, gold, bool(p["is_supporting"])))
    return [passage for passage in passages if passage.windows]


# --- drawing ------------------------------------------------------------------------------------------------------


def draw_passages(
    passages: Sequence[Passage], kind: str, config: TrainConfig, rng: np.random.Generator
) -> list[Passage]:
    """Draw 1 to 10 passages: usually one with the answer and others of the same question, sometimes only others."""
    n = int(rng.choice(config.passages_multi if kind == "multi" else config.passages_single))
    with_answer = [i for i, p in enumerate(passages) if p.has_answer]
    without = [i for i, p in enumerate(passages) if not p.has_answer]
    weights = np.array([3.0 if p.supporting else 1.0 for p in passages])
    if without and rng.random() < config.unanswerable:
        chosen = _draw(without, n, weights, rng)
    else:
        chosen = _draw(with_answer, 1, weights, rng)
        chosen += _draw([i for i in range(len(passages)) if i not in chosen], n - 1, weights, rng)
    return [passages[i] for i in chosen]


def _draw(indices: Sequence[int], n: int, weights: NDArray[np.float64], rng: np.random.Generator) -> list[int]:
    if not indices or n < 1:
        return []
    p = weights[list(indices)]
    return [int(i) for i in rng.choice(indices, min(n, len(indices)), replace=False, p=p / p.sum())]


def steps(kinds: Sequence[str], config: TrainConfig, rng: np.random.Generator) -> list[list[int]]:
    """The question indices of every step of the run."""
    plan: list[list[int]] = []
    cloze = [i for i, kind in enumerate(kinds) if kind == "cloze"]
    real = [i for i, kind in enumerate(kinds) if kind != "cloze"]
    for epoch in range(-1, config.epochs):
        share = config.single_share[min(max(epoch, 0), len(config.single_share) - 1)]
        drawn = [i for i in real if epoch >= 0 and (kinds[i] != "single" or rng.random() < share)]
        drawn += cloze if config.cloze_first == (epoch < 0) else []
        rng.shuffle(drawn)
        plan += [drawn[i : i + config.questions_per_step] for i in range(0, len(drawn), config.questions_per_step)]
    return plan


# --- loss ---------------------------------------------------------------------------------------------------------


def step_loss(
    model: SpanModel, drawn: Sequence[Sequence[Passage]], config: TrainConfig, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Mean over questions of -log P(gold answers | question, its drawn passages), and the auxiliary loss.

    A null answer with logit 0 takes part in the softmax; it is the gold answer where no drawn passage has one.  So
    span logits are log-odds against "not here", and passages without evidence learn to be flat and low.
    """
    windows = [w for passages in drawn for p in passages for w in p.windows]
    golds = [g for passages in drawn for p in passages for g in p.gold]
    supporting = [p.supporting for passages in drawn for p in passages for _ in p.windows]
    owner = [i for i, passages in enumerate(drawn) for p in passages for _ in p.windows]
    everything: list[Tensor] = [torch.empty(0)] * len(windows)
    right: list[Tensor] = [torch.empty(0)] * len(windows)
    support = torch.zeros((), device=device)
    for batch in batches(windows, config.chunk):
        ids, types, mask = collate([windows[i] for i in batch], device)
        with torch.autocast(device.type, torch.bfloat16):
            logits, support_logits = model(ids, types, mask)  # (B, T, L), (B,)
        allowed = torch.zeros(logits.shape, dtype=torch.bool)
        gold = torch.zeros(logits.shape, dtype=torch.bool)
        for row, i in enumerate(batch):
            n = len(windows[i].ids)
            allowed[row, :n], gold[row, :n] = torch.from_numpy(windows[i].allowed), torch.from_numpy(golds[i])
        lse = logits.masked_fill(~allowed.to(device), MASKED).flatten(1).logsumexp(1)  # (B,)
        lse_gold = logits.masked_fill(~gold.to(device), MASKED).flatten(1).logsumexp(1)
        for row, i in enumerate(batch):
            everything[i], right[i] = lse[row], lse_gold[row]
        flags = torch.tensor([float(supporting[i]) for i in batch], device=device)
        support = support + F.binary_cross_entropy_with_logits(support_logits, flags, reduction="sum")
    losses = []
    null = torch.zeros((), device=device)
    for q, passages in enumerate(drawn):
        mine = [i for i, o in enumerate(owner) if o == q]
        total = torch.stack([everything[i] for i in mine] + [null]).logsumexp(0)
        answerable = any(p.has_answer for p in passages)
        target = torch.stack([right[i] for i in mine]).logsumexp(0) if answerable else null
        losses.append(total - target)
    return torch.stack(losses).mean(), support / len(windows)


def parameter_groups(model: SpanModel, config: TrainConfig) -> list[dict[str, Any]]:
    """Learning rate by depth; no decay of biases and norms; word embeddings stay as they are.

    The word embeddings are half of all weights: 4,000 questions touch few of them, and those would drift away from
    the words that are never seen.
    """
    model.words.requires_grad_(False)
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            if name.startswith("layers."):
                lr = config.lr * config.layer_decay ** (len(model.layers) - 1 - int(name.split(".")[1]))
            elif name.split(".")[0] in {"positions", "types", "norm"}:
                lr = config.lr * config.layer_decay ** len(model.layers)
            else:
                lr = config.head_lr
            decay = config.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((lr, decay), []).append(parameter)
    return [{"params": p, "lr": lr, "weight_decay": decay} for (lr, decay), p in groups.items()]


# --- development figures ------------------------------------------------------------------------------------------


def torch_spans(
    model: SpanModel, featurizer: Featurizer, record: Record, device: torch.device, bf16: bool = True
) -> list[PassageSpans]:
    """What `SpanReader.spans` gives, computed by the torch model."""
    passages = [featurizer.windows(record["question"], p["title"], p["text"]) for p in record["paragraphs"]]
    flat = [window for windows in passages for window in windows]
    scores: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(flat)
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        for batch in batches(flat, 16):
            logits, _ = model(*collate([flat[i] for i in batch], device))
            for row, i in enumerate(batch):
                scores[i] = logits[row, : len(flat[i].ids)].cpu().numpy()
    cursor: Iterator[NDArray[np.float32]] = iter(scores)
    return [
        passage_spans(windows, [next(cursor) for _ in windows], p["title"], p["text"], featurizer.config.candidates)
        for windows, p in zip(passages, record["paragraphs"], strict=True)
    ]


def evaluate(model: SpanModel, featurizer: Featurizer, data: Path, device: torch.device) -> dict[str, Any]:
    """Figures on every `*_dev` file."""
    model.eval()
    figures = {}
    for path in sorted(data.glob("*_dev.jsonl.gz")):
        records = list(read_questions([path]).values())
        figures[path.name.split(".")[0]] = score_rounds(records, lambda r: torch_spans(model, featurizer, r, device))
    model.train()
    return figures


def main(argv: Sequence[str] | None = None) -> None:
    """Train one model and save it with its configuration and development figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minilm", type=Path, required=True, help="folder with model.safetensors and tokenizer.json")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--init", type=Path, help="start from this checkpoint's weights instead of MiniLM's")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=JSON", help="fields of TrainConfig")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reports", type=int, default=3, help="how often development figures are taken")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    chosen = {k: json.loads(v) for k, v in (item.split("=", 1) for item in args.set)}
    config = TrainConfig(**{k: tuple(v) if isinstance(v, list) else v for k, v in chosen.items()})
    train(config, args.data, args.minilm, args.output, n_reports=args.reports, init=args.init)


def train(
    config: TrainConfig, data: Path, minilm: Path, output: Path, *, n_reports: int = 3, init: Path | None = None
) -> None:
    """One run, from prepared data to `output` (a torch file of weights, configuration and figures)."""
    from tokenizers import Tokenizer

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(config.seed)
    rng = np.random.default_rng(config.seed)
    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    featurizer = Featurizer(tokenizer, ReaderConfig())
    records = list(read_questions([data / "train.jsonl.gz"]).values())
    n = config.cloze_per_question
    cloze = [c for r in records if n and r["type"] != "single" for c in cloze_questions(r, rng, n)]
    questions: list[list[Passage]] = []
    kinds: list[str] = []
    for record in records + cloze:
        passages = featurize(record, featurizer, tokenizer)
        if any(p.has_answer for p in passages):
            questions.append(passages)
            kinds.append(record["type"] if record["type"] in {"single", "cloze"} else "multi")
    plan = steps(kinds, config, rng)
    print(f"{Counter(kinds)} of {len(records)} questions have a span to learn from; {len(plan)} steps", flush=True)

    model = SpanModel(config.dropout).to(device)
    load_minilm(model, minilm / "model.safetensors")
    earlier: list[dict[str, Any]] = []
    if init is not None:
        stored = torch.load(init, weights_only=True)
        model.load_state_dict(stored["weights"])
        earlier = stored["stages"]
    optimizer = torch.optim.AdamW(parameter_groups(model, config), betas=(0.9, 0.98))
    warmup = max(1, int(config.warmup * len(plan)))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warmup, (len(plan) - s) / max(1, len(plan) - warmup))
    )
    model.train()
    last = min(len(plan), config.stop_after or len(plan))
    reports = {last * i // n_reports for i in range(1, n_reports + 1)}
    averages, began = np.zeros(2), time.perf_counter()
    for step, chosen in enumerate(plan[: config.stop_after], 1):
        drawn = [draw_passages(questions[i], kinds[i], config, rng) for i in chosen]
        loss, support = step_loss(model, drawn, config, device)
        (loss + config.support_weight * support).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        averages += loss.item(), support.item()
        if step % 50 == 0:
            seconds = time.perf_counter() - began
            print(
                f"step {step}: loss {averages[0] / 50:.3f}, support {averages[1] / 50:.3f}, {seconds:.0f} s", flush=True
            )
            averages[:] = 0
        if step in reports:
            figures = evaluate(model, featurizer, data, device)
            for name, values in figures.items():
                print(f"step {step} {name}\n{table(values)}", flush=True)
            about = {
                "stages": [*earlier, asdict(config)],
                "figures": figures,
                "step": step,
                "train_questions": pairs_hash(records),
            }
            torch.save({"weights": model.state_dict(), **about}, output)


if __name__ == "__main__":
    main()
