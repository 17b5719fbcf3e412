"""Calibration: fitted maps from raw signals to the probability of being correct."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face
from suffice.policy.rules.selectors import CALIBRATED

if TYPE_CHECKING:
    from suffice.policy.calibration.calibrator import Calibrator
    from suffice.policy.calibration.report import CalibrationReport, ReliabilityBin, calibration_report

__all__ = ["CALIBRATED", "CalibrationReport", "Calibrator", "ReliabilityBin", "calibration_report"]

__getattr__, __dir__ = lazy_face(
    __name__,
    {
        "calibrator": ("Calibrator",),
        "report": ("CalibrationReport", "ReliabilityBin", "calibration_report"),
    },
)
