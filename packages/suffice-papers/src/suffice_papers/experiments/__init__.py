"""A whole table from one file: models, data sets, retrievers, prompts and seeds as cells.

Each cell is recorded, calibrated and certified.  Only questions that are missing in a recording are asked; a workflow
engine would delete whole files and pay for them again.  The comparison with Snakemake is in docs/how-to/experiments.md.
"""

from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.reading import read_experiment
from suffice_papers.experiments.run import ExperimentRun, run_experiment

__all__ = ["Cell", "Experiment", "ExperimentRun", "read_experiment", "run_experiment"]
