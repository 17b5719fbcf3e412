"""Probes: from a model's hidden state to the probability that it knows the answer; they need only numpy at run time."""

from suffice.probes.card import Calibration, ProbeCard, pinned_of
from suffice.probes.confidence import ProbeConfidence
from suffice.probes.gate import ProbeGate
from suffice.probes.labels import LabelRule, Labels, closed_book_labels, is_right
from suffice.probes.measures import MEASURES, Figure, ProbeMeasures, measure_probe
from suffice.probes.probe import Probe

__all__ = [
    "MEASURES",
    "Calibration",
    "Figure",
    "LabelRule",
    "Labels",
    "Probe",
    "ProbeCard",
    "ProbeConfidence",
    "ProbeGate",
    "ProbeMeasures",
    "closed_book_labels",
    "is_right",
    "measure_probe",
    "pinned_of",
]
