"""Alarms about gold answers: none is read, another column has them, or they do not judge answers correctly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from suffice.common.tables import counted
from suffice.importers.checks.alarm import Doubt, Read, used_columns
from suffice.importers.rounds.facts import SCORES, SEVERAL, Facts
from suffice.importers.words.choices import of_expected, of_options
from suffice.importers.words.gold_names import may_be_golds
from suffice.importers.words.names import in_log, last_name
from suffice.policy.normalizers import MATCH, is_structured

_ENOUGH, _FEW = 20, 5
"""The least number of answers about which a share says something, and of different gold answers."""

_SELDOM, _APART, _OFTEN, _NEARLY_ALL = 0.01, 0.1, 0.3, 0.98
_PLACES = {*map(str, range(10)), *"ABCDEFGHabcdefgh"}
"""Numbers and letters of options, while answers may be their texts."""

_SCORED_BY = re.compile(
    r"(?:score|grade|rating|reward|judge|confidence|eval|verdict)_(?:source|by|from|type|origin|method)|(?:scored|graded|rated|judged)_by|scorer|grader|rater|judge"
)
_SELF = frozenset({"self", "own", "generator", "verbalized", "introspection"})
"""Names of columns that say who gave a score, and first words of names for the model that gave the answer."""

_MARKS = frozenset({"0", "1", "0.0", "1.0", "true", "false", "yes", "no"})
"""Gold answers that a score may be, too."""

_SHORT = 40
"""Characters of answers, on average, and of gold answers that are names, numbers and the like, of which some are right."""


def has_own_score(facts: Facts) -> bool:
    """Return whether the log has its own score of answers."""
    return any(name not in SCORES for name in facts.spans)


def marks_like_golds(facts: Facts) -> list[str]:
    """Return the log's scores that may be outputs of the model: there are no answers, and all gold answers are grades, too.

    Return an empty list if there are answers, or if some gold answer is not a grade.
    """
    are_marks = bool(facts.golds) and {gold.strip().lower() for gold in facts.golds} <= _MARKS
    return [
        name
        for name in facts.spans
        if name not in SCORES and are_marks and name not in facts.graded_by and not facts.answers
    ]


def may_be_gold(facts: Facts, name: str) -> bool:
    """Return whether a column that is constant in each question equals many answers, not only last answers."""
    is_scored = any(
        agreed >= _NEARLY_ALL * facts.rounds for (other, _), agreed in facts.agreeing.items() if other == name
    )
    is_judged = has_own_score(facts) and any(map(is_structured, facts.several_values[name]))
    is_varied = len(facts.several_values[name]) >= SEVERAL or facts.is_beyond_chance(name)
    is_often = facts.equalling[name] >= max(_ENOUGH, _OFTEN * facts.trajectories)
    return is_often and is_varied and not (facts.is_last(name) or is_scored or is_judged)


def unread_golds(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if there are no gold answers, and a text that is constant in each question equals many answers."""
    facts = read.facts
    is_said = read.options.get("log_golds") or read.options.get("golds") or not read.was_guessed("golds")
    if is_said or facts.without_golds < facts.trajectories:
        return
    names = sorted((own for own, _ in facts.equalling.most_common()), key=facts.is_vote)
    names = [name for name in names if may_be_gold(facts, name)] or [*_named_golds(read, names)]
    for name in [name for name in names if not (read.samples and facts.is_vote(name))][:1]:
        n = facts.equalling[name]
        theirs = in_log(name)
        sentence = (
            f"no column is read as the gold answer, but {theirs!r} {'has' if name in facts.listed else 'equals'} an answer of {n:,} of "
            f"{counted(facts.trajectories, 'trajectory', 'trajectories')}: without gold answers, only agreement is judged"
        )
        golds, meaning = {"golds": theirs}, f"{theirs!r} is the gold answer"
        own = of_options(meaning, columns=golds)
        votes = [] if read.samples else [vote for vote in facts.equalling if facts.is_vote(vote)]
        for vote in votes[:1]:
            more = f"the answers are samples, of which {in_log(vote)!r} is the most frequent"
            if vote == name:
                own |= of_options(more, samples=True)
            else:
                own = of_options(f"{meaning}, and {more}", columns=golds, samples=True) | own
        yield sentence, own


def _named_golds(read: Read, names: Sequence[str]) -> Iterator[str]:
    """Yield columns that are named like gold answers and often equal answers.

    These columns may have too few different values for `may_be_gold`, which excludes chance.
    """
    facts = read.facts
    for name in names if not has_own_score(facts) else ():
        is_often = facts.equalling[name] >= max(_FEW, _OFTEN * facts.trajectories)
        if is_often and not facts.is_last(name) and len(facts.several_values[name]) > 1 and may_be_golds(in_log(name)):
            yield name


def possible_golds(read: Read) -> list[str]:
    """Return the columns that may be the gold answer: constant per question, and named like gold answers or often equal to answers."""
    facts, n = read.facts, read.facts.trajectories
    if read.options.get("golds") or "golds" in read.columns or "golds" in read.said:
        return []
    if "unread-golds" in read.options.get("expected", ()):
        return []
    used = used_columns(read)
    columns = {name: own for name, own in facts.own.columns.items() if name not in used and not facts.is_vote(name)}
    known = [name for name, own in columns.items() if 2 * own.known > n and len(own.values) > 1 and not own.varying]
    named = [name for name in known if may_be_golds(in_log(name))]
    alike = [name for name in known if facts.equalling[name] >= max(_FEW, _OFTEN * n) and name not in named]
    return [*named, *(name for name in alike if not facts.is_last(name))]


def other_score(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if the log's own score calls many answers right that equal no gold answer."""
    facts = read.facts
    for name, n in facts.apart.most_common(1):
        if n >= max(_ENOUGH, _APART * facts.scored):
            sentence = (
                f"{name} is 1 for {n:,} of {facts.scored:,} answers although they equal no gold answer, as where numbers were rounded or "
                f"replies hold more than the answer: decide judges by the gold answers, unless --metric {name} chooses the log's own score"
            )
            yield sentence, {}


def never_right(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if no answer is right.

    The gold answer may be in another column, or the answers may be inside longer texts.
    """
    facts = read.facts
    quality = facts.spans.get(MATCH, facts.spans.get("em", (0, 0)))
    are_short = facts.characters <= _SHORT * facts.answers or all(len(gold) <= _SHORT for gold in facts.golds)
    is_wrong = are_short or facts.spans.get("f1") == (0, 0)
    is_known = has_own_score(facts) or "golds" in read.options or "answer_position" in read.options
    are_places = facts.golds <= _PLACES
    if (
        (are_places or (len(facts.golds) == _FEW and is_wrong))
        and facts.scored >= _ENOUGH
        and quality == (0, 0)
        and not is_known
    ):
        golds = read.columns.get("golds", "golds")
        sentence = (
            f"none of {facts.scored:,} answers equals {golds!r}: it may not be the gold answer, or be the number of an option, or have "
            "more than the answer (then join gold answers by --golds FILE), or answers are inside replies (--answer-position says where)"
        )
        yield sentence, of_options("the log has no gold answers", columns={"golds": ""})


def last_is_gold(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if nearly all last answers equal the gold answers exactly: the gold answers may be copies of the last answers."""
    facts = read.facts
    is_said = read.options.get("log_golds") or read.options.get("golds")
    if (
        read.was_guessed("golds")
        and not is_said
        and facts.lasts >= _ENOUGH
        and facts.golden >= _NEARLY_ALL * facts.lasts
        and facts.several
    ):
        sentence = (
            f"the last answer is exactly the gold answer in {facts.golden:,} of {facts.lasts:,} trajectories: if "
            f"{read.columns.get('golds', 'golds')!r} was copied from it, scores are agreement with the last answer"
        )
        yield sentence, {}


def case_alone(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if answers that count as equal differ in case.

    Only questions without gold answers are counted; a gold answer would show if case matters.
    """
    facts = read.facts
    if (
        facts.case is not None
        and facts.cased >= max(_FEW, _SELDOM * facts.several)
        and "normalizer" not in read.options
    ):
        one, other = facts.case
        sentence = (
            f"answers of {facts.cased:,} of {counted(facts.several, 'trajectory', 'trajectories')} differ in case alone, such as {one!r:.40} and "
            f"{other!r:.40}, and count as the same: no gold answer says whether they are (--set normalizer=exact tells them apart)"
        )
        yield sentence, {}


def stricter_golds(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if the log's score accepts nearly all answers that equal a gold answer, and also many that equal none.

    The latter may be code with the same effect as the gold answer, or rounded numbers.
    """
    facts = read.facts
    if not read.is_table or read.options.get("golds"):
        return
    for name, n in facts.apart.most_common(1):
        low, high = facts.spans.get(name, (0, 0))
        agrees = facts.contrary[name] <= _APART * (facts.contrary[name] + facts.confirmed[name])
        if agrees and low < high and n >= max(_ENOUGH, _APART * facts.scored):
            theirs = read.named_metric(name)
            golds = read.columns.get("golds", "golds")
            kind = "the code in " if facts.golds and all(map(is_structured, facts.golds)) else ""
            sentence = (
                f"{theirs!r} is 1 for {n:,} of {facts.scored:,} answers that differ from {kind}{golds!r}, such as rounded numbers, code that does the "
                "same, or longer replies: gold answers count these as wrong, so a rule may look better only since it waits for their spelling"
            )
            own = of_options(f"answers are judged by {theirs!r}", columns={"golds": ""})
            yield sentence, own | of_expected("stricter-golds", f"answers are judged by {golds!r}")


def own_score(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if a score is read as correctness, but another column says that the model itself gave the score."""
    facts = read.facts
    score = next((name for name in facts.spans if name not in SCORES), "")
    theirs = read.columns.get(f"{score} (metric)", "")
    if not theirs or theirs in (read.options.get("metrics") or {}).values():
        return
    for name, own in facts.own.columns.items():
        words = {value.lower().replace("-", "_").partition("_")[0] for value in own.values}
        if _SCORED_BY.fullmatch(last_name(in_log(name))) and words and words <= _SELF:
            said = in_log(name)
            sentence = (
                f"{theirs!r} is read as what is right, but {said!r} is {next(iter(own.values))!r:.40}: what a model thinks of its own answers rises "
                "with their number whether they are right or not"
            )
            meaning = "it is a signal, by which a rule may stop, and judges nothing"
            yield sentence, of_options(meaning, columns={f"self_{score}": read.named_metric(score)})
            return
