"""Reports: everything a replay shows, as one HTML page, text or JSON."""

from suffice.presentation.data import Report, ReportCell, Settings, make_report
from suffice.presentation.html import render_html
from suffice.presentation.page import report

__all__ = ["Report", "ReportCell", "Settings", "make_report", "render_html", "report"]
