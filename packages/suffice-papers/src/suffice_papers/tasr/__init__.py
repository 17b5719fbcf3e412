"""TASR: the paper's Tables 1-6 and the data of its figures 2-5 from recordings, compared with the published figures."""

from suffice_papers.tasr.cells import TasrCell, read_cells
from suffice_papers.tasr.importer import read_tasr
from suffice_papers.tasr.tasr_tables import paper_tasr

__all__ = ["TasrCell", "paper_tasr", "read_cells", "read_tasr"]
