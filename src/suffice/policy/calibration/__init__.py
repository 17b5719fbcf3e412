"""Calibration: fitted maps from raw signals to the probability of being correct."""

from suffice.calibration.calibrator import CALIBRATED, Calibrator
from suffice.calibration.report import CalibrationReport, ReliabilityBin, calibration_report

__all__ = ["CALIBRATED", "CalibrationReport", "Calibrator", "ReliabilityBin", "calibration_report"]
