"""A paper's tables from recordings, beside the published figures."""

from suffice.report.paper.cells import Cell, read_cells
from suffice.report.paper.tasr import Paper, paper_tasr

__all__ = ["Cell", "Paper", "paper_tasr", "read_cells"]
