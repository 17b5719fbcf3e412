"""`suffice gate classify`: Adaptive-RAG's classifier of questions, fitted on recorded rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suffice.cli.gating import encoder_of
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.files import quoted
from suffice_gates.commands.compare_gates import read_answers
from suffice_gates.gates import BUNDLED_ANSWERS, fit_complexity


def classify_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RECORDING",
            help="Full-width rounds of tune questions, round 0 among them; JSON lines answered both ways; or one of: "
            f"{', '.join(BUNDLED_ANSWERS)}.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the gate.")],
    output: Output,
    encoder: Annotated[
        str, typer.Option("--encoder", help="'minilm' (in the package) or a sentence-transformers id.")
    ] = "minilm",
    metric: Annotated[
        str, typer.Option("--metric", help="An answer is right if this metric is at least one half.")
    ] = "em",
    multi_hop: Annotated[
        bool,
        Setting("gate", "multi-hop", off="single-hop", help="Label of a question that no way answered rightly."),
    ] = True,
) -> None:
    """Fit a gate on labels: the cheapest way that answers a question rightly, with no, one or all retrievals.

    Example: suffice gate classify hotpotqa_llama31_tune -o routes
    """
    gate = fit_complexity(read_answers(source), encoder_of(encoder), metric=metric, multi_hop=multi_hop)
    gate.save(out)
    labels = gate.provenance["labels"]
    counted = ", ".join(f"{count} {name}" for name, count in labels.items())
    then = f"suffice record OTHER -o other.parquet --round-zero --gate {quoted(out)}"
    screen = Screen(sentences=[f"Labels: {counted}."], files={"gate": out}, then=then)
    output.show({"gate": str(out), "labels": labels, **gate.fingerprint()}, screen)
