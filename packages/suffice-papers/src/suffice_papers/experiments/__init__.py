"""A whole table from one file: models, data sets, retrievers, prompts and seeds as cells, recorded, calibrated and certified."""

from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.reading import read_experiment
from suffice_papers.experiments.run import ExperimentRun, run_experiment

__all__ = ["Cell", "Experiment", "ExperimentRun", "read_experiment", "run_experiment"]
