"""Probes: from a model's hidden state to the probability that it knows the answer; they need only numpy at run time."""

from suffice.probes.card import Calibration, ProbeCard, pinned_of
from suffice.probes.confidence import ProbeConfidence
from suffice.probes.enough import ReplyProbes
from suffice.probes.gate import ProbeGate
from suffice.probes.labels import LabelRule, QuestionLabels, closed_book_labels, is_right
from suffice.probes.measures import MEASURES, ProbeFigure, ProbeMeasures, measure_probe
from suffice.probes.probe import Probe

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
    "closed_book_labels",
    "is_right",
    "measure_probe",
    "pinned_of",
]
