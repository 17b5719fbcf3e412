"""Reports: everything a replay shows, as one HTML page, text or JSON."""

from suffice.reports.data import Report, ReportCell, Settings, make_report
from suffice.reports.html import render_html
from suffice.reports.page import report

__all__ = ["Report", "ReportCell", "Settings", "make_report", "render_html", "report"]
