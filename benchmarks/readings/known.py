"""All cases, and those that are known to be misread or not to be read, each with its reason: no other log may be."""

from __future__ import annotations

from benchmarks.readings import harnesses, items, loops, plain
from benchmarks.readings.cases import CASES

__all__ = ["CASES", "KNOWN", "NOT_READ", "harnesses", "items", "loops", "plain"]

KNOWN: dict[str, str] = {
    "boxed_replies": "whole replies are read as answers",
    "intercode_turns": "the turns and their rewards are read, but not the actions as answers",
    "qwen_math_samples": "parallel lists called `pred` and `score` may be independent samples, which no note says",
    "smolagents_gaia": "the thoughts of an agent are read as its answers",
    "whole_replies": "whole replies are read as answers",
}

NOT_READ: dict[str, str] = {
    "bigcode_generations": "a list of lists has no names for its questions",
    "no_and_one_retrieval": "columns that are named after what was retrieved are not known as rounds",
    "self_refine_gsm": "the rounds and the answer must both be named",
}
