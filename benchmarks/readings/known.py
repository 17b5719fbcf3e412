"""All cases, and those that are known to be misread or not to be read, each with its reason: no other log may be."""

from __future__ import annotations

from benchmarks.readings import harnesses, loops, plain
from benchmarks.readings.cases import CASES

__all__ = ["CASES", "KNOWN", "NOT_READ", "harnesses", "loops", "plain"]

KNOWN: dict[str, str] = {
    "whole_replies": "whole replies are read as answers",
    "boxed_replies": "whole replies are read as answers",
    "code_answers": "programs are compared by the words of question answering, where `-` and `+` are the same",
    "smolagents_gaia": "the thoughts of an agent are read as its answers",
    "qwen_math_samples": "`answer`, the worked solution, is read as the gold, since `gt` is no usual name",
    "verl_rollouts": "`gts` is not read as the gold answers",
}

NOT_READ: dict[str, str] = {
    "bigcode_generations": "a list of lists has no names for its questions",
    "calls_of_an_interface": "`trace` is not read as the id of a question",
    "intercode_turns": "lists inside an object of a record are not looked into",
    "no_and_one_retrieval": "columns that are named after what was retrieved are not known as rounds",
    "reflexion_programs": "the list of rounds has no usual name",
    "self_refine_gsm": "the rounds and the answer must both be named",
}
