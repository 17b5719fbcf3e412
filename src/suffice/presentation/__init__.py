"""Present the figures of a replay as one HTML page, as text or as JSON.

The page opens from disk without a network.
"""

from suffice.presentation.data import Report, ReportCell, Settings, make_report
from suffice.presentation.html import render_html
from suffice.presentation.page import report

__all__ = ["Report", "ReportCell", "Settings", "make_report", "render_html", "report"]
