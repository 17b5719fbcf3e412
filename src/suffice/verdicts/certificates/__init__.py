"""Certificates: the cheapest policy of a declared family whose loss is bounded with confidence."""

from suffice.certificates.certificate import ASSUMES, BREAKS, Certificate
from suffice.certificates.family import Family, arranged, listed, path_values, threshold_path
from suffice.certificates.losses import COST_NAMES, Claim, MeasuredLosses, measure_losses
from suffice.certificates.ltt import PROCEDURES, questions_needed, rejected
from suffice.certificates.procedure import Certification, Need, certify
from suffice.statistics import betting_p_value, hoeffding_bentkus_p_value, net_p_value

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
    "betting_p_value",
    "certify",
    "hoeffding_bentkus_p_value",
    "listed",
    "measure_losses",
    "net_p_value",
    "path_values",
    "questions_needed",
    "rejected",
    "threshold_path",
]
