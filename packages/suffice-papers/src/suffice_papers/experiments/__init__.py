"""A whole table from one file: models, data sets, retrievers, prompts and seeds as cells.

Each cell is recorded, calibrated and certified.  The recordings show which questions are missing; a workflow engine
would delete and pay for whole files.  The comparison with Snakemake is in docs/how-to/experiments.md.
"""

from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.reading import read_experiment
from suffice_papers.experiments.run import ExperimentRun, run_experiment

__all__ = ["Cell", "Experiment", "ExperimentRun", "read_experiment", "run_experiment"]
