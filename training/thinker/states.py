"""Train a probe on the states of the recorded tune chains, and judge stops by it on the test chains: ``python -m training.thinker.states``.

The states are read with transformers, the chains were sampled by llama.cpp from the same weights. What reading them costs is left
out: a server that returned the states would compute nothing more.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from tests.support.llamacpp import stored_model

from suffice.policy.signals import SETTLED
from suffice.recordings import bundled_recording
from suffice.recordings.recording import Recording
from suffice_gates.models import ChainStates, TransformersModel
from suffice_gates.models.state_files import read_states
from suffice_gates.probes import Probe, checkpoint_labels, collect_chain_states
from suffice_gates.probes.chains import checkpoint_id, prompt_of_recording
from suffice_gates.training.examples import split_by_hash
from suffice_gates.training.probe_run import LabelledStates, run_training
from suffice_papers.thinking.lines import Lines
from training.thinker.train import OUTPUT

RULES = (
    "lynx(0.7)",
    "lynx(0.8)",
    "lynx(0.9)",
    "(thinking_hesitation > 0) & lynx(0.8)",
    "deer(0.9)",
    "deer(0.95)",
    "dynasor(3)",
)


def trained(source: ChainStates, tune: Recording, folder: Path) -> tuple[Probe, float]:
    """Return a logistic probe on the states of tune chains, and its area under the ROC curve on those that did not fit it."""
    collect_chain_states(source, tune, folder / "tune.states")
    labels, questions = checkpoint_labels(tune)
    split = split_by_hash([*dict.fromkeys(questions.values())]).expanded(questions)
    data = LabelledStates(states=read_states(folder / "tune.states"), labels=labels.known, questions=questions)
    run = run_training(data, split, kind="logistic", calibration="platt")
    return run.probe, run.test_figures[0].measures["auroc"].value


def probed(source: ChainStates, test: Recording, probe: Probe, folder: Path) -> Recording:
    """Return the test chains with what the probe says at each checkpoint."""
    collect_chain_states(source, test, folder / "test.states")
    stored = read_states(folder / "test.states")
    known = dict(zip(stored.ids, probe.predict(stored.of(stored.ids, probe.card.layer)).tolist(), strict=True))
    places = zip(test.table["question_id"].to_pylist(), test.table["round"].to_pylist(), strict=True)
    column = pa.array([known.get(checkpoint_id(name, r)) for name, r in places], pa.float64())
    kind = pa.field(SETTLED, pa.float64(), metadata={"kind": "signal"})
    return Recording(test.table.append_column(kind, column), test.metadata)


def main() -> None:
    """Print a line for each rule."""
    tune, test = bundled_recording("thoughts_tune"), bundled_recording("thoughts_test")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = TransformersModel(stored_model(folder / "model", OUTPUT).directory, layers=("middle", "last"))
        source = ChainStates(model, prompt_of_recording(tune))
        probe, area = trained(source, tune, folder)
        print(f"layer {probe.card.layer}, AUROC {area:.3f} on tune chains that did not fit it")
        for line in Lines(probed(source, test, probe, folder), {rule: rule for rule in RULES}).rules:
            above = line.above.get("cached")
            print(
                f"{line.label}: right {100 * line.accuracy:.1f} %, tokens {line.tokens['cached']:.0f}, trials {line.trials:.2f}, above a coin "
                + (
                    "-"
                    if above is None
                    else f"{100 * above.delta:+.1f} [{100 * above.low:+.1f}, {100 * above.high:+.1f}]"
                )
            )


if __name__ == "__main__":
    main()
