"""A whole table from one file: each combination of model, data set, retriever, prompt and seed is a cell.

Each cell is recorded, calibrated and certified.  Only questions that are missing in a recording are asked.  A workflow
engine, in contrast, would delete whole files and pay for all their questions again.  The comparison with Snakemake is
in docs/how-to/experiments.md.
"""

from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.reading import read_experiment
from suffice_papers.experiments.run import ExperimentRun, run_experiment

__all__ = ["Cell", "Experiment", "ExperimentRun", "read_experiment", "run_experiment"]
