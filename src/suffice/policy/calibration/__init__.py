"""Calibration: fitted maps from raw signals to the probability of being correct."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face
from suffice.policy.rules.selectors import CALIBRATED as CALIBRATED

if TYPE_CHECKING:
    from suffice.policy.calibration.calibrator import Calibrator as Calibrator
    from suffice.policy.calibration.report import (
        CalibrationReport as CalibrationReport,
        ReliabilityBin as ReliabilityBin,
        calibration_report as calibration_report,
    )

__getattr__, __dir__, __all__ = lazy_face(__name__)
