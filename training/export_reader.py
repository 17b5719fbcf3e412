"""Export a trained reader to ONNX, quantise it, and check it against torch.

    python -m training.export_reader --checkpoint reader.pt --minilm path/to/all-MiniLM-L6-v2 \
        --output packages/suffice-reader/src/suffice_reader/models/span_reader --golden tests/golden/span_reader.json

Weights are stored as int8 with one scale per output feature and 32 inputs (per word and 32
features in the embeddings) and multiplied
in fp32: a quarter of the size, logits close to torch's, and the same answers on processors with and without int8
instructions.  `--precision dynamic` quantises activations on the fly too: twice as fast, but it drifts further, its
scale is taken over the input tensor (so only batches of one are independent of their neighbours), and it needs 7-bit
weights not to saturate on processors without VNNI.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from suffice_reader._span_windows import ReaderConfig
from training.reader_model import SpanModel

MAX_DIFFERENCE = 2e-3  # fp32 ONNX against fp32 torch, absolute


class Exported(nn.Module):
    """The part of the model that answers: span logits of one window."""

    def __init__(self, model: SpanModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, types: Tensor) -> Tensor:
        """(1, T) -> (1, T, L)."""
        return self.model(ids, types)[0]


def load_checkpoints(paths: Sequence[Path]) -> tuple[SpanModel, dict[str, Any]]:
    """Return the mean of the checkpoints' weights, in evaluation mode, and what `config.json` says of its training.

    Averaging pays where the runs started from one checkpoint and differ in their seed only (Wortsman et al., 2022).
    """
    stored = [torch.load(path, map_location="cpu", weights_only=True) for path in paths]
    weights = {name: torch.stack([s["weights"][name] for s in stored]).mean(0) for name in stored[0]["weights"]}
    model = SpanModel()
    model.load_state_dict(weights)
    if any(s["train_questions"] != stored[0]["train_questions"] for s in stored):
        raise ValueError("the checkpoints were trained on different questions: they cannot be averaged")
    about = {"averaged_runs": [s["stages"] for s in stored], "train_questions": stored[0]["train_questions"]}
    return model.eval(), about


def export_fp32(model: SpanModel, path: Path) -> None:
    """Write the fp32 graph with a free number of tokens."""
    ids = torch.arange(1000, 1040)[None]
    torch.onnx.export(
        Exported(model).eval(),
        (ids, torch.ones_like(ids)),
        str(path),
        input_names=["ids", "types"],
        output_names=["span_logits"],
        dynamic_axes={"ids": {1: "tokens"}, "types": {1: "tokens"}, "span_logits": {1: "tokens"}},
        opset_version=17,
        dynamo=False,
        do_constant_folding=True,
    )


def quantise_embeddings(graph: Any, group: int = 32) -> None:
    """Store the word embeddings as int8 with one scale per word and `group` features: 13 MB instead of 47."""
    from onnx import TensorProto, helper, numpy_helper

    table = max(graph.initializer, key=lambda tensor: int(np.prod(tensor.dims)))
    values = numpy_helper.to_array(table)  # (words, D)
    grouped = values.reshape(len(values), -1, group)
    scale = np.maximum(np.abs(grouped).max(2, keepdims=True), 1e-8) / 127
    gather = next(node for node in graph.node if node.op_type == "Gather" and table.name in node.input)
    at, ids = list(graph.node).index(gather), gather.input[1]
    graph.initializer.remove(table)
    graph.initializer.append(numpy_helper.from_array(np.round(grouped / scale).astype(np.int8), "words_int8"))
    graph.initializer.append(numpy_helper.from_array(scale.astype(np.float32), "words_scale"))
    graph.initializer.append(numpy_helper.from_array(np.array([0, 0, -1], np.int64), "words_shape"))
    nodes = [
        helper.make_node("Gather", ["words_int8", ids], ["words_gathered"], axis=0),
        helper.make_node("Cast", ["words_gathered"], ["words_float"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["words_scale", ids], ["words_group_scale"], axis=0),
        helper.make_node("Mul", ["words_float", "words_group_scale"], ["words_grouped"]),
        helper.make_node("Reshape", ["words_grouped", "words_shape"], [gather.output[0]]),
    ]
    graph.node.remove(gather)
    for offset, node in enumerate(nodes):
        graph.node.insert(at + offset, node)


def quantise_weights(graph: Any, group: int = 32) -> None:
    """Store every large weight matrix as int8 with one scale per output feature and `group` inputs.

    The matrices are restored by three nodes that onnxruntime folds into constants when it loads the model.
    """
    from onnx import TensorProto, helper, numpy_helper

    matrices = {name for node in graph.node if node.op_type == "MatMul" for name in node.input}
    large = [
        t for t in graph.initializer if t.name in matrices and t.data_type == TensorProto.FLOAT and len(t.dims) == 2
    ]
    for tensor in large:
        values = numpy_helper.to_array(tensor)  # (in, out)
        grouped = values.reshape(-1, group, values.shape[1])  # (in / group, group, out)
        scale = np.maximum(np.abs(grouped).max(1, keepdims=True), 1e-8) / 127
        name = tensor.name
        graph.initializer.remove(tensor)
        graph.initializer.append(numpy_helper.from_array(np.round(grouped / scale).astype(np.int8), f"{name}_int8"))
        graph.initializer.append(numpy_helper.from_array(scale.astype(np.float32), f"{name}_scale"))
        graph.initializer.append(numpy_helper.from_array(np.array(values.shape, np.int64), f"{name}_shape"))
        nodes = [
            helper.make_node("Cast", [f"{name}_int8"], [f"{name}_float"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"{name}_float", f"{name}_scale"], [f"{name}_grouped"]),
            helper.make_node("Reshape", [f"{name}_grouped", f"{name}_shape"], [name]),
        ]
        for node in reversed(nodes):
            graph.node.insert(0, node)


def quantise(fp32: Path, int8: Path, *, dynamic: bool) -> None:
    """Write the int8 model; `dynamic` also quantises the encoder's activations."""
    import onnx
    from onnxruntime.quantization import QuantType, quant_pre_process, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work.onnx"
        quant_pre_process(str(fp32), str(work), skip_symbolic_shape=True)
        if dynamic:
            encoder = [
                n.name for n in onnx.load(str(work)).graph.node if n.op_type == "MatMul" and "/layers." in n.name
            ]
            quantize_dynamic(
                str(work),
                str(work),
                op_types_to_quantize=["MatMul"],
                nodes_to_quantize=encoder,
                per_channel=True,
                reduce_range=True,
                weight_type=QuantType.QInt8,
            )
        model = onnx.load(str(work))
        if not dynamic:
            quantise_weights(model.graph)
        quantise_embeddings(model.graph)
        onnx.checker.check_model(model)
        onnx.save(model, str(int8))


def difference(model: SpanModel, path: Path, windows: Sequence[Any]) -> float:
    """Largest absolute difference of allowed span logits between the ONNX file and torch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = 0.0
    for window in windows:
        with torch.inference_mode():
            expected = model(torch.from_numpy(window.ids)[None], torch.from_numpy(window.types)[None])[0][0].numpy()
        got = session.run(None, {"ids": window.ids[None], "types": window.types[None]})[0][0]
        worst = max(worst, float(np.abs(got - expected)[window.allowed].max()))
    return worst


PARITY_PASSAGES = (
    (
        "Who wrote The Tempest?",
        "The Tempest",
        "The Tempest is a play by William Shakespeare, written in 1610 and 1611.",
    ),
    (
        "What is the height of Mount Zirkel?",
        "Mount Zirkel",
        "Mount Zirkel is 12,185 ft (3,714 m) high; it lies in Colorado.",
    ),
    ("Are both rivers in Spain?", "Ebro", "The Ebro is a river of the Iberian Peninsula, in the north of Spain."),
    (
        "Where was the painter born?",
        "Łucja Kowalska",
        "Łucja Kowalska (12 May 1901 - 3 June 1987) was a Polish painter, born in Kraków.",
    ),
    ("Which band sang it?", "", "“Harvest” was sung by The Marches, a band from Leeds. " * 20),
)
"""Written for the parity check: (question, title, text)."""


def write_golden(model: SpanModel, featurizer: Any, path: Path) -> None:
    """Store fp32 torch logits of the allowed spans of `PARITY_PASSAGES`, for the tests."""
    entries = []
    for question, title, text in PARITY_PASSAGES:
        windows = []
        for window in featurizer.windows(question, title, text):
            with torch.inference_mode():
                logits = model(torch.from_numpy(window.ids)[None], torch.from_numpy(window.types)[None])[0][0].numpy()
            windows.append([round(float(x), 4) for x in logits[:, :2][window.allowed[:, :2]]])
        entries.append({"question": question, "title": title, "text": text, "logits": windows})
    about = "torch fp32 logits of allowed spans of 1 and 2 tokens, per window, row-major"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": about, "passages": entries}, ensure_ascii=False) + "\n", "utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """Export one checkpoint."""
    from tokenizers import Tokenizer

    from suffice_reader._span_windows import Featurizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, nargs="+", required=True, help="several are averaged")
    parser.add_argument("--minilm", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--golden", type=Path, help="write torch logits for the parity test")
    parser.add_argument("--precision", choices=("weights", "dynamic", "fp32"), default="weights")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    model, about = load_checkpoints(args.checkpoint)
    tokenizer = Tokenizer.from_file(str(args.minilm / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(args.output / "tokenizer.json"), pretty=False)
    config = ReaderConfig()
    settings = {"reader": asdict(config), **about}
    (args.output / "config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    featurizer = Featurizer(tokenizer, config)
    windows = [w for passage in PARITY_PASSAGES for w in featurizer.windows(*passage)]
    with tempfile.TemporaryDirectory() as folder:
        fp32, target = Path(folder) / "fp32.onnx", args.output / "model.onnx"
        export_fp32(model, fp32)
        drift = difference(model, fp32, windows)
        if drift > MAX_DIFFERENCE:
            raise RuntimeError(
                f"ONNX differs from torch by {drift:.2e}, more than {MAX_DIFFERENCE}: the export is wrong"
            )
        if args.precision == "fp32":
            shutil.copyfile(fp32, target)
        else:
            quantise(fp32, target, dynamic=args.precision == "dynamic")
    if args.golden:
        write_golden(model, featurizer, args.golden)
    size = target.stat().st_size / 2**20
    print(
        f"fp32 ONNX differs by {drift:.1e}, {args.precision} by {difference(model, target, windows):.3f}; {size:.1f} MB"
    )


if __name__ == "__main__":
    main()
