"""Alarms about columns of the log that have no fixed meaning but may mark the returned round or divide the questions into groups."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from suffice.common.files import quoted
from suffice.common.tables import counted, cut_list
from suffice.importers.answers.answer_or_gold import is_model_text
from suffice.importers.checks.alarm import Doubt, Read, used_columns
from suffice.importers.checks.gold_alarms import may_be_gold
from suffice.importers.checks.judging import may_judge
from suffice.importers.rounds.facts import Facts
from suffice.importers.rounds.own_columns import MANY_VALUES, OwnColumn, OwnColumns
from suffice.importers.words.choices import Choices, column_options, of_options
from suffice.importers.words.names import TIMES, in_log, is_error_count, last_name, words, words_in
from suffice.policy.rounds import Floats
from suffice.recordings.runs import tells_loops_apart
from suffice.recordings.schema import RETURNED

_ENOUGH, _FEW, _SHOWN = 20, 5, 8
_NEARLY_ALL, _MOSTLY, _SOME = 0.98, 0.9, 0.01
_TENTH, _LEAST_PERCENT = 0.1, 10
_WORDS = 3
"""The fewest words of a text that is named where it is not read, whatever its values are."""

_GROUPS, _MEMBERS = 8, 10
"""The most groups of questions that are compared, and the fewest questions of one."""

_ORDERS, _SURE = 499, 0.99
"""Random divisions of the questions into the groups, and the share of them that must be less uneven."""

_MOST_OTHER = 0.8
_RETURNED = frozenset({"final", "selected", "chosen", "best", "returned", "accepted", "output", "prediction", "result"})
_SAID = frozenset(words("answer answers response reply output completion prediction sample sampled generation raw"))
"""Words of columns with what a loop returned, and with what a model said."""

_QUESTIONS = 2_000
NOT_READ = "not read: "
"""The beginning of the note on columns that are not read and in no other note."""

_MONEY = frozenset({"cost", "costs", "spend", "spent"})
"""Words of columns with what a loop paid, perhaps once for all rounds of a question."""

_AFTERWARDS = frozenset(
    words(
        "status state reason verdict result outcome final chosen selected best stop stopped end ended total "
        "count round rounds steps error errors grade score label judge correct success solved passed answer "
        "answers winner converged resolved feedback flag flagged termination exit finish "
        "closed closing closure completed completion resolution disposition escalated escalation terminated "
        "finished accepted approved rejected csat stars rating satisfaction thumbs"
    )
)
"""Words of columns that are known only once a loop has ended, and so may follow from its rounds."""


def returned_rounds(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if many questions seem to have returned a round before the last.

    Either a flag marks the returned round, or its answer equals a text that is constant in the question.
    """
    facts = read.facts
    if not read.is_table or read.samples or RETURNED in read.said:
        return
    for name, own in facts.own.columns.items():
        theirs = in_log(name)
        for value, marks in () if name in read.columns or is_error_count(name) else own.marks.items():
            is_one = marks.once >= max(_ENOUGH, _MOSTLY * facts.trajectories)
            if is_one and marks.moves and marks.other >= max(_FEW, _SOME * marks.once):
                sentence = (
                    f"{theirs!r} is {value!r} in exactly one round of {marks.once:,} of "
                    f"{counted(facts.trajectories, 'trajectory', 'trajectories')}, and in {marks.other:,} of them the last answer is another "
                    "one: if the loop returned the marked answer, the last one is not what you have now"
                )
                yield sentence, _of_returned(theirs)
                return
    for name, n in facts.equalling.most_common():
        other = n - facts.equalling_last[name]
        is_one = n >= max(_ENOUGH, 0.95 * facts.trajectories) and name not in read.columns and other <= _MOST_OTHER * n
        if is_one and facts.is_vote(name) and other >= max(_FEW, 2 * (1 - _NEARLY_ALL) * n):
            yield from _of_votes(facts, name)
            return
        is_one = is_one and (not facts.without_golds or not _RETURNED.isdisjoint(words_in(name)))  # else it is the gold
        if is_one and other >= max(_FEW, 2 * (1 - _NEARLY_ALL) * n):
            theirs = in_log(name)
            sentence = (
                f"{theirs!r} equals an answer of {n:,} of {counted(facts.trajectories, 'trajectory', 'trajectories')}, but not the last one "
                f"in {other:,}: if the loop returned it, the last answer is not what you have now"
            )
            yield sentence, {**_of_returned(theirs), **_of_gold(facts, theirs)}
            return


def _of_votes(facts: Facts, name: str) -> Iterator[Doubt]:
    theirs = in_log(name)
    sentence = (
        f"{theirs!r} is the most frequent answer in {facts.voted[name, True]:,} of {counted(sum(facts.voted[name, own] for own in (True, False)), 'trajectory', 'trajectories')} "
        "in which one answer is more frequent than any other: if they were put to a vote, they are no rounds that follow one another"
    )
    samples = of_options(f"they are independent samples, and {theirs!r} is the answer to most of them", samples=True)
    others = [own for own in facts.equalling if may_be_gold(facts, own) and not facts.is_vote(own)]
    gold = {} if others else _of_gold(facts, theirs)
    yield sentence, samples | _of_returned(theirs) | gold


def _of_gold(facts: Facts, theirs: str) -> Choices:
    """Return the option that reads a column as the gold answer; empty if gold answers are read already."""
    gold = of_options(f"{theirs!r} is the gold answer", columns={"golds": theirs})
    return gold if facts.without_golds == facts.trajectories else {}


def _of_returned(theirs: str) -> Choices:
    meaning = f"{theirs!r} says what the loop returned: decide compares with that"
    return of_options(meaning, columns={RETURNED: theirs})


def copied_choice(facts: Facts) -> Iterator[Doubt]:
    """Yield a doubt if the last rounds are marked by a flag, and repeat the answer of an earlier round.

    In some questions, the earlier round is not the one just before the last.  The last row may then record the loop's choice again,
    without a call.
    """
    for name, own in facts.own.columns.items():
        for value, marks in own.marks.items():
            is_last = marks.last >= _NEARLY_ALL * marks.once and marks.once >= max(_ENOUGH, _MOSTLY * facts.several)
            if is_last and marks.copied >= _NEARLY_ALL * marks.last:
                theirs = in_log(name)
                option = column_options({RETURNED: theirs})
                sentence = (
                    f"the last rounds, the only ones whose {theirs!r} is {value!r}, have the same answer as an earlier round, not always the "
                    f"one before: they may be the loop's choice written once more, and no call ({option} leaves them out and judges the choice)"
                )
                yield sentence, {}
                return


def dependent_samples(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if answers that are read as samples depend on their order, and another column may contain the real samples.

    Each of the answers may then be the vote of the samples so far.
    """
    choices = _other_answers(read)
    if choices and _are_ordered(read):
        answer = read.columns.get("answer", "answer")
        yield f"the answers in {answer!r} {_ORDERED}: they may be the vote so far", choices


def ordered_samples(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if agreement or correctness of samples depends on their order more than by chance: they may be rounds."""
    if _are_ordered(read) and not _other_answers(read):
        yield f"the answers {_ORDERED}: they may be rounds that follow one another (then leave --samples out)", {}


_ORDERED = (
    "depend on their order, as independent samples do not: neighbours agree more or less than others, or later ones agree or are right "
    "more or less often than earlier ones"
)


def _are_ordered(read: Read) -> bool:
    facts = read.facts
    is_panel = facts.systems.total() > 0
    return read.samples and not is_panel and facts.trajectories >= _ENOUGH and facts.order.are_clear


def _other_answers(read: Read) -> Choices:
    """Return the options that read, as the answers, another column that varies within questions and is named like an answer."""
    facts, used = read.facts, used_columns(read)
    names = [name for name in facts.own.columns if name not in used and not _SAID.isdisjoint(words_in(name))]
    said = [name for name in names if facts.own.columns[name].varying >= _SOME * facts.trajectories]
    result: Choices = {}
    for theirs in [in_log(name) for name in said if is_model_text(in_log(name))]:
        result |= of_options(f"{theirs!r} is what each sample said", columns={"answer": theirs})
    return result


def mixed_groups(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if the scores of some groups of questions change differently from round to round.

    The groups may be questions to different systems.
    """
    facts = read.facts
    used = used_columns(read)
    names = [name for name in facts.own.columns if name not in used and not tells_loops_apart(name)]
    names = [name for name in names if _AFTERWARDS.isdisjoint(words_in(name))]
    names = [name for name in names if not all(map(is_plain_number, facts.own.columns[name].values))]
    found = uneven_groups(facts.own, names) if read.is_table and not read.samples else None
    if found is not None:
        name, place, means = found
        theirs = in_log(name)
        listed = cut_list(f"{value:.20} {100 * mean:+.1f}" for value, (_, mean) in means.items())
        sentence = (
            f"what later rounds gain differs with {theirs!r}: from round {place + 1} to the last, {listed} points (by chance in less than 1 % "
            f"of logs). `decide` judges all its values together; if they are several systems, and no outcome known only at the end, --where {quoted(f'{theirs}={next(iter(means))}')} "
            "judges one, here and in decide"
        )
        yield sentence, {}


def uneven_groups(own: OwnColumns, names: Sequence[str]) -> tuple[str, int, Mapping[str, tuple[int, float]]] | None:
    """Find the column whose values divide questions into groups that gain differently from some round to the last.

    Return the column, that round, and the number of questions and the mean gain for each value.  Return None if no difference
    exceeds chance in a permutation test of all columns and rounds together.
    """
    changes = own.changes[:_QUESTIONS]
    known = [place for place, row in enumerate(changes) if row]
    longest = max((len(changes[place]) for place in known), default=0)
    table = np.array([np.pad(changes[place], (0, longest - len(changes[place]))) for place in known])
    groups = {name: _groups(own.members[name], known) for name in names}
    groups = {name: each for name, each in groups.items() if 1 < len(each) <= _GROUPS}
    if not groups or not table.size or not (spread := table.std(axis=0)).any():
        return None
    places = np.flatnonzero(spread)
    table = (table[:, places] - table[:, places].mean(axis=0)) / spread[places]
    members = np.array([mask / np.sqrt(mask.sum()) for each in groups.values() for mask in each.values()])
    sizes = [len(each) for each in groups.values()]
    seen = _unevenness(table, members, sizes)
    random = np.random.default_rng(0)
    others = [_unevenness(table[random.permutation(len(table))], members, sizes).max() for _ in range(_ORDERS)]
    if seen.max() <= np.quantile(others, _SURE):
        return None
    column, at = np.unravel_index(int(seen.argmax()), seen.shape)
    name, place = [*groups][int(column)], int(places[at])
    gains = np.array([changes[i][place] if place < len(changes[i]) else 0.0 for i in known])
    return (
        name,
        place,
        {value: (int(mask.sum()), float(gains[mask > 0].mean())) for value, mask in groups[name].items()},
    )


def _groups(values: Sequence[str | None], known: Sequence[int]) -> dict[str, Floats]:
    """Return a mask of the questions with each value; values with too few questions are left out.

    The result is empty if the masks cover too few questions.
    """
    own = [values[place] for place in known]
    masks = (
        {value: np.array([other == value for other in own], dtype=float) for value in {*own} - {None}}
        if len({*own}) <= _GROUPS + 1
        else {}
    )
    large = {str(value): masks[value] for value in sorted(masks, key=str) if masks[value].sum() >= _MEMBERS}
    return large if sum(mask.sum() for mask in large.values()) >= _MOSTLY * len(own) else {}


def _unevenness(table: Floats, members: Floats, sizes: Sequence[int]) -> Floats:
    """Return how much the groups of each column differ, in each round.

    Differences are standardised: those by chance have mean 0 and standard deviation 1.
    """
    squares = (members @ table) ** 2
    sums = np.add.reduceat(squares, np.cumsum([0, *sizes[:-1]]), axis=0)
    free = np.array(sizes)[:, None] - 1
    result: Floats = (sums - free) / np.sqrt(2 * free)
    return result


def unread_note(read: Read, notes: Sequence[str]) -> list[str]:
    """Return a note on columns that are not read although they vary within questions or divide questions into groups.

    Columns that another note names are left out.
    """
    facts = read.facts
    whole = {*read.columns.values(), *read.names.values()}  # an object may be read as a whole, with all of its fields
    used = used_columns(read) | {name for name in facts.own.columns if in_log(name).rpartition(".")[0] in whole}
    used |= {name for name in facts.own.columns if any(f"{in_log(name)!r}" in n for n in notes)}
    # times and row ids vary in every question, amounts that were read from them in few
    amounts = {
        name
        for name, own in facts.own.columns.items()
        if math.isfinite(own.low) and 0 < 2 * own.varying <= facts.trajectories
    }
    sizes = {
        name: len(own.values)
        for name, own in facts.own.columns.items()
        if name not in used and not tells_loops_apart(name) and last_name(name) not in TIMES
        if (own.varying and (len(own.values) <= facts.rounds / 2 or name in amounts))
        or (len(own.groups) > 1 and len(own.values) <= facts.trajectories / 2)
    }
    names = [
        in_log(name)
        for name, n in sorted(sizes.items(), key=lambda item: item[1])
        if n < MANY_VALUES or may_judge(name) or name in amounts
    ]
    own = {
        name: each
        for name, each in facts.own.columns.items()
        if name not in used and (_has_sentences(each) or not _MONEY.isdisjoint(words_in(in_log(name))))
    }
    names += [text for name in own if (text := in_log(name)) not in names]
    if not names or not read.is_table:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{NOT_READ}{', '.join(names[:_SHOWN])}{more}"]


def _has_sentences(own: OwnColumn) -> bool:
    """Return whether a column has texts of several words, such as notes or solutions."""
    return any(len(re.findall(r"[^\W\d_]{2,}", value)) >= _WORDS for value in own.values)


def mixed_scales(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if a confidence is between 0 and 1 in some rounds, and a percentage in others."""
    for name, (inside, above, most) in read.facts.scales.items():
        if min(inside, above) >= max(_ENOUGH, _TENTH * (inside + above)) and _LEAST_PERCENT < most <= 100:  # noqa: PLR2004
            sentence = (
                f"{in_log(name)!r} is between 0 and 1 in {inside:,} rounds and up to {most:g} in {above:,} others: if the log "
                "mixes shares and percentages, no threshold on it means anything. Write one scale in the log"
            )
            yield sentence, {}


def is_plain_number(text: str) -> bool:
    """Return whether a text is a number in digits."""
    return re.fullmatch(r"-?\d+(?:\.\d+)?", text) is not None
