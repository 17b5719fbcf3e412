"""Certificates: the cheapest policy of a declared family whose loss is bounded with confidence."""

from suffice.verdicts.certificates.certificate import ASSUMES, BREAKS, Certificate, metric_of
from suffice.verdicts.certificates.family import Family, arranged, listed, path_values, threshold_path
from suffice.verdicts.certificates.losses import COST_NAMES, Claim, MeasuredLosses, measure_losses
from suffice.verdicts.certificates.ltt import PROCEDURES, questions_needed, rejected
from suffice.verdicts.certificates.procedure import Certification, Need, certify

__all__ = [
    "ASSUMES",
    "BREAKS",
    "COST_NAMES",
    "PROCEDURES",
    "Certificate",
    "Certification",
    "Claim",
    "Family",
    "MeasuredLosses",
    "Need",
    "arranged",
    "certify",
    "listed",
    "measure_losses",
    "metric_of",
    "path_values",
    "questions_needed",
    "rejected",
    "threshold_path",
]
