"""Choosing among seen answers: a ranker fitted on tune questions, procedures with few calls of a judge, and `suffice data selectors`."""

from suffice_papers.choosing.judged import JudgedComparison, JudgedRow, compare_judged
from suffice_papers.choosing.judging import Halving, JudgeAll, JudgeDistinct, JudgeUntil, Procedure, Unjudged
from suffice_papers.choosing.ranking import RankerFit, fit_ranker

__all__ = [
    "Halving",
    "JudgeAll",
    "JudgeDistinct",
    "JudgeUntil",
    "JudgedComparison",
    "JudgedRow",
    "Procedure",
    "RankerFit",
    "Unjudged",
    "compare_judged",
    "fit_ranker",
]
