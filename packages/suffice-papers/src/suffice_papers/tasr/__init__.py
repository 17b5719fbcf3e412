"""TASR: Tables 1-6 and the data of figures 2-5 from recordings, beside the published figures."""

from suffice.papers.tasr.cells import TasrCell, read_cells
from suffice.papers.tasr.importer import read_tasr
from suffice.papers.tasr.tables import paper_tasr

__all__ = ["TasrCell", "paper_tasr", "read_cells", "read_tasr"]
