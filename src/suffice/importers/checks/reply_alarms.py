"""Alarms about replies that are not answers: grades of an answer, and error messages of failed calls."""

from __future__ import annotations

from collections.abc import Iterator

from suffice.common.tables import counted
from suffice.importers.checks.alarm import Doubt, Read
from suffice.importers.words.choices import of_rows
from suffice.importers.words.grades import is_grade, may_be_grade
from suffice.importers.words.names import in_log

_FEW, _MOSTLY = 5, 0.9
_SOME = 0.005
"""The share of answers that are errors from which on they are named, and of trajectories with a text that may have been cut."""

_LONG, _LETTERS = 250, 4
"""The least length at which texts are cut, and the least number of letters in which they then end; whole ones end in few."""


def graded(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if a grader seems to have written later answers: in nearly all questions they are grades, and the first is not."""
    facts = read.facts
    is_dialogue = read.columns.get("round", "").startswith("order in") and read.columns.get("answer") == "answer"
    is_traced = not read.is_table
    n = facts.graded if is_dialogue or is_traced else facts.in_words
    if n < max(_FEW, _MOSTLY * facts.several) or any(map(may_be_grade, facts.golds)) or read.samples:
        return
    is_told = is_traced and is_grade(facts.grade)
    choices = of_rows("reply", "", "replies that are no verdicts are rounds") if is_told else {}
    for name, (grading, answering) in facts.grade_kinds.items():
        if grading and len(answering) == 1 and answering.isdisjoint(grading):
            theirs, (value,) = in_log(name), answering
            choices = of_rows(theirs, value, f"rounds are answers, whose {theirs!r} is {value!r}")
    if not choices and len(facts.rows) == len(("answer", "grade")) and is_dialogue:
        choices = of_rows("round", "1", "only the first is an answer, so there is nothing to stop")
    sentence = (
        f"answers after the first are grades or verdicts in {n:,} of {counted(facts.several, 'trajectory', 'trajectories')}, such as "
        f"{facts.grade!r:.40}: what a grader says of an answer is no round{'' if choices else '; leave its rows out of the log'}"
    )
    yield sentence, choices


def error_answers(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if some answers are error messages of failed calls."""
    facts = read.facts
    if facts.errors > _SOME * facts.answers:
        sentence = (
            f"{facts.errors:,} of {facts.answers:,} answers, such as {facts.error!r:.60}, may be messages of calls that failed: they count as "
            "wrong answers. Where they are, leave them empty in the log: a round without an answer"
        )
        yield sentence, {}


def cut_texts(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if the texts that contain the answers may be truncated: their greatest length occurs in several questions."""
    name = "text" if "answer_position" in read.options else "answer"
    longest, n, ends_in = read.facts.longest.get(name, (0, 0, ""))
    if longest >= _LONG and n >= max(_FEW, _SOME * read.facts.trajectories) and len(ends_in) >= _LETTERS:
        sentence = (
            f"the longest texts that answers are read from have exactly {longest:,} characters in {counted(n, 'question')}: they were probably cut "
            "there, as by a cell of a spreadsheet, and an answer behind the cut is lost. Write the log again with the whole texts"
        )
        yield sentence, {}
