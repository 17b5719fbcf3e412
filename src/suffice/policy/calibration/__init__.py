"""Calibration: fitted maps from raw signals to the probability of being correct."""

from suffice.policy.calibration.calibrator import CALIBRATED, Calibrator
from suffice.policy.calibration.report import CalibrationReport, ReliabilityBin, calibration_report

__all__ = ["CALIBRATED", "CalibrationReport", "Calibrator", "ReliabilityBin", "calibration_report"]
