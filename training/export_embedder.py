r"""Export all-MiniLM-L6-v2 to ONNX as the embedder of drafts, and say how far int8 weights are from fp32.

    python -m training.export_embedder --minilm path/to/all-MiniLM-L6-v2 --output packages/suffice-reader/src/suffice_reader/models/minilm

The graph takes the token ids of one chunk, with [CLS] and [SEP], and returns the mean of its token vectors: nothing is
padded, and no vector depends on what else is embedded.  Weights are stored as the span reader's (`export_reader.py`):
int8 with one fp16 scale for each group of 32, multiplied in fp32.  Positions stop at 256, the length that the model was
trained with.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor, nn

from suffice_reader.minilm import MAX_TOKENS, MiniLM
from training.export_reader import quantise_embeddings, quantise_weights
from training.reader_model import SpanModel, load_minilm

DRAFTS = Path("src/suffice/data/questions/hotpotqa_tune.jsonl.gz")


class Exported(nn.Module):
    """The encoder and its mean pooling."""

    def __init__(self, model: SpanModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """(1, T) -> (1, D)."""
        return self.model.encode(ids, torch.zeros_like(ids), None).mean(1)


def export_fp32(model: SpanModel, path: Path) -> None:
    """Write the fp32 graph with a free number of tokens."""
    model.positions = nn.Embedding.from_pretrained(model.positions.weight[:MAX_TOKENS].detach())
    torch.onnx.export(
        Exported(model).eval(),
        (torch.arange(1000, 1040)[None],),
        str(path),
        input_names=["ids"],
        output_names=["mean"],
        dynamic_axes={"ids": {1: "tokens"}},
        opset_version=17,
        dynamo=False,
        do_constant_folding=True,
    )


def halve_scales(graph: Any) -> None:
    """Store the scales of the int8 weights as fp16, which onnxruntime widens when it loads the model."""
    from onnx import TensorProto, helper, numpy_helper

    for tensor in [tensor for tensor in graph.initializer if tensor.name.endswith("_scale")]:
        name = tensor.name
        values = numpy_helper.to_array(tensor).astype(np.float16)
        graph.initializer.remove(tensor)
        graph.initializer.append(numpy_helper.from_array(values, f"{name}_half"))
        graph.node.insert(0, helper.make_node("Cast", [f"{name}_half"], [name], to=TensorProto.FLOAT))


def quantise(fp32: Path, int8: Path) -> None:
    """Write the model with int8 weights."""
    import onnx
    from onnxruntime.quantization import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work.onnx"
        quant_pre_process(str(fp32), str(work), skip_symbolic_shape=True)
        model = onnx.load(str(work))
    quantise_weights(model.graph)
    quantise_embeddings(model.graph)
    halve_scales(model.graph)
    onnx.checker.check_model(model)
    onnx.save(model, str(int8))


def drafts(n: int) -> list[list[str]]:
    """Return texts that grow and change as drafts do: four versions of each of `n` bundled paragraphs pairs."""
    rows = [json.loads(line) for line in gzip.decompress(DRAFTS.read_bytes()).splitlines()[:n]]
    made = []
    for row in rows:
        first, second = (paragraph["text"] for paragraph in row["paragraphs"][:2])
        made.append([first, f"{first} {second}", f"{first} In short: {second}", f"{second} {first}"])
    return made


def distances(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n, 4, D) unit vectors -> (n * 3,) distances of consecutive versions."""
    return (1 - (vectors[:, 1:] * vectors[:, :-1]).sum(-1)).ravel()


def embed(model: SpanModel, embedder: MiniLM, text: str) -> NDArray[np.float32]:
    """Return the fp32 torch embedding of a text that fits into one chunk."""
    (ids,) = embedder.chunks(text)
    with torch.inference_mode():
        mean = Exported(model)(torch.from_numpy(ids)[None])[0].numpy()
    return mean / np.linalg.norm(mean)


def agreement(model: SpanModel, embedder: MiniLM, n: int = 100) -> dict[str, Any]:
    """Compare the embedder with fp32 torch on drafts that fit into one chunk."""
    kept = [versions for versions in drafts(n) if all(len(embedder.chunks(text)) == 1 for text in versions)]
    ours = np.stack([embedder.embed(versions) for versions in kept])
    reference = np.stack([[embed(model, embedder, text) for text in versions] for versions in kept])
    cosines = (ours * reference).sum(-1)
    found, expected = distances(ours), distances(reference)
    return {
        "drafts": int(cosines.size),
        "cosine_mean": round(float(cosines.mean()), 5),
        "cosine_lowest": round(float(cosines.min()), 5),
        "distances": int(found.size),
        "distance_spearman": round(float(spearmanr(found, expected).statistic), 5),
        "distance_largest_error": round(float(np.abs(found - expected).max()), 5),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Export the model and write its agreement with fp32 beside it."""
    from tokenizers import Tokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minilm", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(args.minilm / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(args.output / "tokenizer.json"), pretty=False)
    model = SpanModel()
    load_minilm(model, args.minilm / "model.safetensors")
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        export_fp32(model, Path(folder) / "fp32.onnx")
        quantise(Path(folder) / "fp32.onnx", args.output / "model.onnx")
    about = agreement(model, MiniLM(args.output))
    (args.output / "agreement.json").write_text(json.dumps(about, indent=2) + "\n", "utf-8")
    size = sum(file.stat().st_size for file in args.output.iterdir())
    print(json.dumps({**about, "bytes": size}))


if __name__ == "__main__":
    main()
