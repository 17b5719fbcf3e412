"""Calibration: fitted maps from raw signals to the probability of being correct."""

from suffice.policy.calibration.calibrator import Calibrator
from suffice.policy.calibration.report import CalibrationReport, ReliabilityBin, calibration_report
from suffice.policy.rules.selectors import CALIBRATED

__all__ = ["CALIBRATED", "CalibrationReport", "Calibrator", "ReliabilityBin", "calibration_report"]
