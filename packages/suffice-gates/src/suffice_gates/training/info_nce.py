"""InfoNCE over given negatives, as a loss for sentence-transformers' cross-encoder trainer.

CBDR, section 3.2, equation 7: for a question Q, a positive C+ and negatives C-, with f(Q, C) = exp(phi(Q, C) / tau)::

    loss = -log( f(Q, C+) / (f(Q, C+) + sum of f(Q, C-)) )

The closest losses of sentence-transformers differ: `MultipleNegativesRankingLoss` always adds negatives from the batch
and needs the same number of negatives in every row, and `ListNetLoss` treats all positives as one target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def contrasts(
    queries: Sequence[str], positives: Sequence[str], negatives: Sequence[Sequence[str]], in_batch: int
) -> list[list[str]]:
    """Return, for each row, the passages that compete in the loss; the positive comes first.

    Negatives from the batch are the positives of the following rows; the first row follows the last. Rows with the same
    question are skipped, and so are texts that the row already contains.

    >>> contrasts(["q", "r", "q"], ["a", "b", "c"], [["x"], ["y", "z"], ["x"]], in_batch=2)
    [['a', 'x', 'b'], ['b', 'y', 'z', 'c', 'a'], ['c', 'x', 'b']]

    Args:
        queries: The question of each row.
        positives: The positive of each row.
        negatives: The negatives of each row.
        in_batch: Largest number of negatives from the batch for each row.
    """
    rows = []
    for i, query in enumerate(queries):
        row = [positives[i], *negatives[i]]
        others = [(i + step) % len(queries) for step in range(1, len(queries))]
        foreign = dict.fromkeys(positives[j] for j in others if queries[j] != query)
        rows.append(row + [text for text in foreign if text not in row][:in_batch])
    return rows


def info_nce(model: Any, *, temperature: float, in_batch: int = 0) -> Any:
    """Return the loss for rows of a question, a positive and a list of negatives.

    Args:
        model: A `sentence_transformers.CrossEncoder` with one label.
        temperature: tau, > 0; scores are divided by it.
        in_batch: Largest number of negatives from the batch for each row.
    """
    import torch
    from sentence_transformers.util import batch_to_device

    class InfoNCE(torch.nn.Module):  # type: ignore[misc]  # torch is Any to mypy here
        def __init__(self) -> None:
            super().__init__()
            self.model = model  # the trainer replaces it with the wrapped model on several devices

        def forward(self, inputs: Sequence[Any], labels: Any = None, prompt: Any = None, task: Any = None) -> Any:
            del labels, prompt, task
            queries, positives, negatives = inputs
            rows = contrasts(queries, positives, negatives, in_batch)
            pairs = [(query, text) for query, row in zip(queries, rows, strict=True) for text in row]
            # A plain dict: DistributedDataParallel finds no tensors in a BatchEncoding and treats all weights as unused.
            features = batch_to_device(dict(self.model.preprocess(pairs)), model.device)
            flat = self.model(features)["scores"].view(-1).float() / temperature  # (n_pairs,)
            scores = flat.new_full((len(rows), max(map(len, rows))), -torch.inf)  # (n_rows, longest row)
            start = 0  # rows differ in length: missing passages stay at -inf, which the softmax ignores
            for i, row in enumerate(rows):
                scores[i, : len(row)] = flat[start : start + len(row)]
                start += len(row)
            target = torch.zeros(len(rows), dtype=torch.long, device=scores.device)
            return torch.nn.functional.cross_entropy(scores, target)

        def get_config_dict(self) -> dict[str, float]:
            return {"temperature": temperature, "in_batch": in_batch}

    return InfoNCE()
