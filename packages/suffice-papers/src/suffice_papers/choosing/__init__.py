"""Choosing among the answers of all rounds so far.

There are rankers that are fitted on tune questions, procedures with few calls of a judge, and the command `suffice data
selectors`.
"""

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
