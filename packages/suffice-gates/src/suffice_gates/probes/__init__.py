"""Probes, which map a model's hidden state to the probability that it knows the answer; they run with numpy alone."""

from suffice_gates.probes.card import Calibration, ProbeCard, pinned_of
from suffice_gates.probes.chains import checkpoint_labels, collect_chain_states
from suffice_gates.probes.confidence import ProbeConfidence
from suffice_gates.probes.enough import ReplyProbes
from suffice_gates.probes.gate import ProbeGate
from suffice_gates.probes.labels import LabelRule, QuestionLabels, closed_book_labels, is_right
from suffice_gates.probes.measures import MEASURES, ProbeFigure, ProbeMeasures, measure_probe
from suffice_gates.probes.probe import Probe
from suffice_gates.probes.settled import SettledProbe

__all__ = [
    "MEASURES",
    "Calibration",
    "LabelRule",
    "Probe",
    "ProbeCard",
    "ProbeConfidence",
    "ProbeFigure",
    "ProbeGate",
    "ProbeMeasures",
    "QuestionLabels",
    "ReplyProbes",
    "SettledProbe",
    "checkpoint_labels",
    "closed_book_labels",
    "collect_chain_states",
    "is_right",
    "measure_probe",
    "pinned_of",
]
