"""Alarms about a log without answers, with the columns that may contain answers or judge rounds without them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from suffice.common.tables import counted, cut_list
from suffice.importers.answers.answer_or_gold import ACTIONS, THOUGHTS, is_model_text
from suffice.importers.checks.alarm import Doubt, Read, used_columns
from suffice.importers.checks.gold_alarms import has_own_score, marks_like_golds
from suffice.importers.checks.judging import metric_of, metric_option, scale_of, scores_of
from suffice.importers.words.choices import Choices, of_options
from suffice.importers.words.names import (
    ARGUMENTS,
    OUTCOME_NAMES,
    TOOL_FIELDS,
    in_log,
    is_error_count,
    last_name,
    plain_name,
    words_in,
)
from suffice.importers.words.score_names import is_task_outcome
from suffice.importers.words.word_scales import TEMPLATE

_FEW, _OFFERED = 5, 4


def empty_answers(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if most trajectories have no answer, and no score of the log judges their rounds."""
    facts = read.facts
    answer = read.columns.get("answer")
    is_mostly_empty = facts.trajectories >= _FEW and 2 * facts.unanswered > facts.trajectories
    said = marks_like_golds(facts)
    is_unjudged = not (facts.answers or said) and has_own_score(facts)  # judged by scores alone
    if is_mostly_empty and not is_unjudged and read.is_table:
        where = f"{answer!r} may not be the answer" if answer else "no column is read as the answer"
        sentence = (
            f"{facts.unanswered:,} of {counted(facts.trajectories, 'trajectory', 'trajectories')} have no answer in any round: "
            f"{where} (--column answer=COLUMN names {'another one' if answer else 'it'}). Steps without answers of their own cannot be stopped"
        )
        texts = [*(read.named_metric(name) for name in said), *texts_of_rounds(read)]
        outcomes, ways = ({}, "") if answer or read.options.get("outcomes") else _of_outcomes(read)
        sentence += f". What became of each run is read by {ways}" if ways else ""
        yield sentence, {**outcomes, **_of_answers(texts), **_of_scores(read, texts)}


def no_answers(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if the user declares that the log has no answers, and no score judges the rounds.

    Nothing can be decided from such a log.
    """
    facts = read.facts
    if read.is_table and read.said.get("answer") == "" and not facts.answers and not has_own_score(facts):
        sentence = (
            "no round has an answer, as --column answer= says, and no score of each round is read, so there is nothing to judge by, and "
            "`suffice decide` refuses the recording. Name the answers or such a score, or log one of them"
        )
        texts = texts_of_rounds(read)
        yield sentence, {**_of_answers(texts), **_of_scores(read, texts)}


def _of_answers(names: Sequence[str]) -> Choices:
    result: Choices = {}
    for name in names[:_OFFERED]:
        result |= of_options(f"{name!r} is what the model said", columns={"answer": name})
    return result


def _of_outcomes(read: Read) -> tuple[Choices, str]:
    """Return the options that read the outcomes of runs from a column that is constant in each run.

    If there is no such column, return no options, and a text on how else to give outcomes; otherwise, this text is "".
    """
    ways = "--outcomes FILE"
    result: Choices = {}
    used = used_columns(read)
    for name, own in read.facts.own.columns.items():
        theirs = read.named(in_log(name))
        is_called = is_task_outcome(theirs) or last_name(theirs) in OUTCOME_NAMES or "outcome" in words_in(theirs)
        if not is_called or name in used or own.varying or 2 * own.known <= read.facts.trajectories:
            continue
        scale = scale_of(name, own)
        if scale == TEMPLATE:
            said = cut_list([f"{word:.24}" for word in sorted(own.values)])
            ways = f"{metric_option(theirs, scale)} (its words in your order: {said}) or {ways}"
        elif scale is not None:
            metrics = {"metrics": {metric_of(theirs): f"{theirs}{scale}"}}
            result[metric_option(theirs, scale)] = (
                metrics,
                f"{theirs!r} says what became of each run, of its last step alone: what giving a run up loses can be judged, and no lower cap",
            )
    return result, "" if result else ways


def texts_of_rounds(read: Read) -> list[str]:
    """Return the columns with texts that vary between rounds and may be written by the model."""
    used = used_columns(read)
    known = {name: own for name, own in read.facts.own.columns.items() if name not in used and own.varying}
    names = [read.named(in_log(name)) for name, own in known.items() if math.isnan(own.low)]
    names = [name for name in names if ARGUMENTS.isdisjoint(plain_name(name).split("."))]
    return [
        name for name in names if is_model_text(name) and last_name(name) not in (*THOUGHTS, *ACTIONS, *TOOL_FIELDS)
    ]


def _of_scores(read: Read, texts: Collection[str]) -> Choices:
    """Return the options that judge rounds by a score of the log; scores that may be answers (`texts`) are left out."""
    result: Choices = {}
    known = {read.named(theirs): scale for theirs, scale in scores_of(read.facts.own.columns).items()}
    scores = [pair for pair in known.items() if pair[0] not in texts]
    scores = [pair for pair in scores if "answer" in read.columns or not is_error_count(pair[0])]
    for theirs, scale in scores[:_OFFERED]:
        option = metric_option(theirs, scale)
        ours = option.removeprefix("--metric-column ").strip("'").partition("=")[0]
        meaning = f"{theirs!r} judges the rounds, which have no answers"
        result[option] = ({"metrics": {ours: f"{theirs}{scale}"}}, meaning)
    return result
