"""Alarms about a reading: signs that a log was misread, or unusual properties that may be correct.

An alarm of the level `stop` is evidence that the reading is wrong: nothing is written until the user names the right
column, or confirms with ``--expected NAME`` that the log was read correctly.  An alarm of the level `caution` is stored in the
recording as a note, and repeated before any verdict, unless it is expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal

from suffice.common.files import quoted
from suffice.common.tables import counted, cut_list
from suffice.errors import DataError, did_you_mean
from suffice.importers.answers.answer_or_gold import ACTION_INPUTS, FEW, answer_readings, is_of_passages
from suffice.importers.checks import gold_alarms, order_alarms, own_alarms, reply_alarms, sample_alarms
from suffice.importers.checks.alarm import Alarm, Doubt, Read
from suffice.importers.checks.contained import golds_in_answers, golds_in_texts
from suffice.importers.checks.named_columns import named_golds
from suffice.importers.checks.unanswered import empty_answers, no_answers
from suffice.importers.rounds.facts import SCORES, Facts
from suffice.importers.rows.outside import KINDS, may_be_outside
from suffice.importers.rows.repeated_rounds import COPIED_ROUNDS
from suffice.importers.rows.scores import LAST_ROUND
from suffice.importers.shapes.shape import ANY
from suffice.importers.words.choices import Choices, in_options, of_each, of_options, of_rows
from suffice.importers.words.names import MOST_SPEAKERS, in_log, last_name
from suffice.policy.normalizers import MATCH
from suffice.recordings.schema import COPIED_ANSWERS

_ENOUGH = 20
"""The least number of questions, or of answers, about which a share says something."""

_FEW = 5
_MANY = 100
"""Answers of questions that have converged are seldom the same in so many questions without any exception."""

_UNCOUNTED = 10
"""Questions of several rows from which on it is no chance that no answer changes, though the rows may be rounds."""

_CHANGING, _NEARLY_ALL, _MOSTLY, _SHARE_OF_MISSING, _SHOWN = 0.1, 0.98, 0.9, 0.05, 5
_PARAGRAPH = 300
"""Characters of an answer on average from which on answers are texts to read, not to compare."""

_OWN_TEXTS = frozenset({"literal", "math", "exact"})
"""Normalizers for answers that may be long and still be compared."""


def check_expected(names: Iterable[str]) -> list[str]:
    """Return the names of expected alarms; raise if one of them is not the name of an alarm."""
    names = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    for name in names:
        if name not in ALARMS:
            raise DataError(f"there is no alarm {name!r}.{did_you_mean(name, ALARMS)} There are: {', '.join(ALARMS)}")
    return names


def find_alarms(read: Read) -> list[Alarm]:
    """Return the alarms about a reading, those of the level `stop` first."""
    result = []
    for name, (level, check) in ALARMS.items():
        # if the user named the doubtful column, a stop becomes a caution
        doubted = _DOUBTED.get(name, "answer")
        own: Literal["stop", "caution"] = level if doubted is None or read.was_guessed(doubted) else "caution"
        result += [
            Alarm(name=name, level=own, sentence=text, choices=choices, confirmed="".join(sure))
            for text, choices, *sure in check(read)
        ]
    names = {alarm.name for alarm in result}
    result = [alarm for alarm in result if names.isdisjoint(_MORE_SPECIFIC.get(alarm.name, ()))]
    return sorted(result, key=lambda alarm: alarm.level != "stop")


def _equal_answers(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if the answers stay the same within nearly every question, while a reply or another text changes.

    The column read as answers may then be a gold answer or an input.
    """
    facts = read.facts
    if facts.several < _FEW or facts.several - facts.equal > FEW * facts.several or not read.is_table:
        return
    passages = [name for name in facts.beside if is_of_passages(in_log(name))]
    if passages and facts.several >= _UNCOUNTED and read.columns.get("round") == "order of the rows":
        yield from _passages_as_rounds(facts, passages)
        return
    said_beside = Counter({name: n for name, n in facts.beside.items() if name not in passages})
    for name, n in said_beside.most_common(1):
        if n >= _CHANGING * facts.several:
            answer = read.named("answer")
            said = in_log(name) if name != "text" else read.named("text")
            golds = read.named("golds") if "golds" in read.columns else None
            sentence = (
                f"all answers of {facts.equal:,} of {counted(facts.several, 'question')} are equal, while {said!r} varies between "
                f"the rounds of {n:,}: {answer!r} may be a gold answer, an input or the result of the whole run, and {said!r} what the model said"
            )
            yield sentence, in_options(answer_readings(answer, [said], golds, may_be_gold=golds is None))


def _passages_as_rounds(facts: Facts, passages: Collection[str]) -> Iterator[Doubt]:
    """Yield a doubt if the unnumbered rows of a question repeat one answer, but nearly always with different passages.

    Such rows may be the passages behind one answer, not rounds.
    """
    name = max(passages, key=facts.beside.__getitem__)
    if facts.beside[name] >= _MOSTLY * facts.several:
        sentence = (
            f"all answers of {facts.equal:,} of {counted(facts.several, 'question')} are equal, and their rows, which nothing counts, "
            f"differ in {in_log(name)!r}: if each is a passage that one answer was given from, there is nothing to stop"
        )
        yield sentence, {}


def _one_question(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if all trajectories have the same question text: it may be an instruction or an example."""
    facts, text = read.facts, read.columns.get("question")
    is_one = facts.clusters == 1 and _ENOUGH <= facts.trajectories < facts.rounds
    if is_one and text and read.is_table:
        sentence = f"all {facts.trajectories:,} trajectories have the same question in {text!r}: it may be an instruction or an example"
        own = read.columns.get("question_id", "record")
        yield sentence, of_options(f"each {own!r} is a question of its own", columns={"question": ""})


def _empty_rounds(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if all rounds with some number, all rounds of some kind, or nearly all last rounds have no answer.

    Such rounds may be steps of the loop, such as retrievals.
    """
    facts = read.facts
    empty = [r for r, n in sorted(facts.rows.items()) if n >= _FEW and not facts.answered[r]]
    which = [
        f"{counted(len(empty), 'round')} ({cut_list(map(str, empty))}) of {len(facts.rows)} have no answer in any question"
    ] * bool(empty)
    for name, kinds in _silent_kinds(facts):
        which.append(
            f"rounds whose {in_log(name)!r} is {cut_list(sorted(map(repr, kinds)))} have no answer in any question"
        )
    if facts.silent_ends >= max(_FEW, _NEARLY_ALL * facts.trajectories):
        which.append(f"the last round of {facts.silent_ends:,} of {facts.trajectories:,} trajectories has no answer")
    if not which or not facts.answers or not read.is_table:  # in other formats, the rounds are known
        return
    sentence = f"{which[0]}: they are steps of the loop, and only steps that end with an answer are rounds"
    choices: Choices = {}
    for name, (answering, others) in facts.kinds.items():
        if len(answering) == 1 and answering.isdisjoint(others) and answering != {"None"}:
            theirs, (value,) = in_log(name), answering
            choices |= of_rows(theirs, value, f"rounds are rows whose {theirs!r} is {value!r}")
    single = {name: own for name, own in facts.changing.items() if len(own[0]) == 1 and own[1] - own[0]}
    for name in [] if choices else sorted(single, key=lambda name: -len(single[name][1]))[:1]:
        theirs, (value,) = in_log(name), single[name][0]
        choices |= of_rows(theirs, value, f"only where {theirs!r} is {value!r} are there new answers")
    if not choices and facts.answers + facts.unanswered == facts.trajectories:  # such rows leave nothing to stop
        judge = (
            "" if read.options.get("outcomes") else ", and an outcome of each run judges its steps (--outcomes FILE)"
        )
        sentence += f". No question has two such{judge}"
    else:
        choices = choices or of_rows(read.named("answer"), ANY, "only rows with an answer are rounds")
    yield sentence, choices


def _silent_kinds(facts: Facts) -> Iterator[tuple[str, set[str]]]:
    """Yield each column that names the kinds of rows, with those kinds that never have an answer and are not failed calls."""
    for name, (answering, others) in facts.kinds.items():
        kinds = others - answering - {"None"}
        if last_name(in_log(name)) in KINDS and answering and kinds and all(map(may_be_outside, kinds)):
            yield name, kinds


def _copied_rounds(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if a round, such as round 3, has the same answer as the round before in every question.

    The rows of this round may be copies that were written without a call of the model.
    """
    facts = read.facts
    if facts.several == facts.equal or not read.is_table or read.samples:
        return
    copied = [r for r in facts.rows if facts.changes[r, False] >= _MANY and not facts.changes[r, True]]
    mark = "".join(_marks_of_last(facts))
    where = f"{counted(len(copied), 'round')} ({cut_list(map(str, sorted(copied)))}) of {len(facts.rows)} have"
    if mark and not copied:
        where = "the last rounds have"
    if copied or mark:
        sentence = (
            f"{where} the same answer as the round before in every question{mark}: the rows may be copies, such as a last row with the "
            "final answer or rows that were written twice"
        )
        yield sentence, {}
    else:
        yield from own_alarms.copied_choice(facts)


def _marks_of_last(facts: Facts) -> Iterator[str]:
    """Yield words about a label whose value marks all last rounds and no others, with the option that leaves last rounds out.

    Nothing is yielded unless nearly all last answers are copies of the answers before.
    """
    changed, copied = facts.last_changes[True], facts.last_changes[False]
    if copied < _FEW or copied < _NEARLY_ALL * (changed + copied):
        return
    for name, (last, others) in facts.last_kinds.items():
        if len(last) == 1 and others and last.isdisjoint(others):
            theirs, (value,) = in_log(name), last
            option = (
                f" (--where {quoted(f'{theirs}={next(iter(others))}')} leaves them out)" if len(others) == 1 else ""
            )
            yield f", and {theirs!r} is {value!r} only there{option}"
            return


def _drafts(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if answers are long or never repeat, as drafts do: stability and votes of such answers mean little."""
    facts = read.facts
    if not facts.answers or facts.normalizer in _OWN_TEXTS:
        return
    mean = facts.characters / facts.answers
    means = "they are drafts or whole replies, so repeated answers, agreement and votes mean little"
    if mean > _PARAGRAPH:
        yield f"answers have {mean:,.0f} characters on average: {means}", {}
    elif facts.repeating >= _ENOUGH and facts.unrepeated >= _NEARLY_ALL * facts.repeating:
        n = counted(facts.repeating, "trajectory", "trajectories")
        yield f"no answer occurs twice in {facts.unrepeated:,} of {n} with several: {means}", {}
    elif facts.answers >= _ENOUGH and facts.sentences >= _MOSTLY * facts.answers:
        same, new = (sum(n for (_, is_new), n in facts.changes.items() if is_new is side) for side in (False, True))
        if same < new:
            yield (
                f"{facts.sentences:,} of {facts.answers:,} answers are sentences, and most change from round to round: {means}",
                {},
            )


def _options(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if, in nearly every question, all answers differ and exactly one of them is right.

    The answers may then be the options of a multiple-choice question.
    """
    facts = read.facts
    is_distinct = facts.repeating >= _ENOUGH and facts.unrepeated >= _NEARLY_ALL * facts.repeating
    is_distinct = (
        is_distinct and len(facts.golds) == _FEW and facts.golden <= facts.lasts / 2
    )  # otherwise, the loop continued until its answer was right
    if is_distinct and facts.right_once >= _NEARLY_ALL * facts.repeating and not read.samples:
        sentence = (
            f"the answers of {facts.unrepeated:,} of {counted(facts.repeating, 'question')} are all different, and exactly one of them is "
            "right: they may be the options of a multiple choice (--column answer=COLUMN names what the model chose)"
        )
        yield sentence, {}


def _missing_values(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if answers, gold answers or metrics are missing in more than a few places."""
    facts = read.facts
    missing = {"an answer": (facts.rounds - facts.answers, facts.rounds)} if facts.answers else {}
    if 0 < facts.without_golds < facts.trajectories:
        missing["gold answers"] = facts.without_golds, facts.trajectories
    for name, n in facts.known.items():
        if n and name not in SCORES and not _is_of_runs(read, name):
            missing[name] = facts.rounds - n, facts.rounds
    texts = [
        f"{n:,} of {whole:,} {'trajectories' if what == 'gold answers' else 'rounds'} lack {what}"
        for what, (n, whole) in missing.items()
        if n > _SHARE_OF_MISSING * whole
    ]
    if texts:
        returned = "; a loop that stops there returns the last answer before" if "an answer" in texts[0] else ""
        yield f"{', '.join(texts)}: they are missing in the log, or were not read{returned}", {}


def _is_of_runs(read: Read, metric: str) -> bool:
    """Return whether a metric judges whole runs; it is then known only in last rounds."""
    return read.columns.get(f"{metric} (metric)", "").endswith(LAST_ROUND)


def _other_systems(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if the rounds of a question come from different models, systems or files."""
    facts, said = read.facts, read.said.get("round", "")
    for name, n in facts.systems.most_common(1):
        theirs = in_log(name)
        if 2 * n > facts.trajectories and not (
            read.samples or said
        ):  # who names the rounds says that they follow one another
            counts = read.columns.get("round", "round")
            by = counts if " " in counts else f"by {counts!r}"
            sentence = (
                f"{theirs!r} changes within {n:,} of {counted(facts.trajectories, 'trajectory', 'trajectories')}, whose rounds are read as attempts "
                f"that follow one another ({by}): if each {theirs!r} answered alone, --column round= reads it as a run of its own"
            )
            yield sentence, {}


def _same_score(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if a metric has the same value in all rounds although answers differ; such a metric cannot show a loss."""
    facts = read.facts
    if facts.scored < _ENOUGH or facts.several == facts.equal:
        return
    quality = MATCH if MATCH in facts.spans else "f1"
    for name, (low, high) in facts.spans.items():
        if low == high and (name == quality or name not in SCORES) and facts.known[name] >= _ENOUGH:
            golds = f", and {read.columns['golds']!r} may not be the gold answer" if "golds" in read.columns else ""
            why = golds if name == quality else ""
            yield (
                f"{name} is {low:g} in all {facts.known[name]:,} rounds{_share(facts, name)} although answers differ: it cannot show a loss{why}",
                {},
            )
            return


def _share(facts: Facts, name: str) -> str:
    """Return the words " that have it (of 120)" if only some of 120 rounds have the metric; "" if all rounds have it."""
    known = facts.known[name]
    return f" that have it (of {facts.rounds:,})" if known < facts.rounds else ""


def _other_speakers(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if a question's rounds after the first come from several speakers or are of several kinds.

    Some of these rounds may not be answers.
    """
    facts = read.facts
    are_judged = any(name not in SCORES and not _is_of_runs(read, name) for name in facts.spans)
    if not (facts.answers or are_judged):
        return
    of_actions = last_name(read.columns.get("answer", "")) in ACTION_INPUTS
    said = Counter({name: n for name, n in facts.speakers.items() if of_actions or last_name(name) != "action"})
    for name, n in said.most_common(1):
        values = [value for value, _ in facts.said_by[name].most_common()]
        theirs = in_log(name)
        are_stages = read.said.get("round", "").startswith(f"{theirs}:")
        is_usual = 2 * n > facts.trajectories and not (read.samples or are_stages)
        if n >= _FEW and is_usual and len(values) <= MOST_SPEAKERS:
            sentence = (
                f"the rounds of {n:,} of {counted(facts.trajectories, 'trajectory', 'trajectories')} differ in {theirs!r} "
                f"({cut_list(map(repr, values))}): are all of them answers to the question?"
            )
            yield sentence, of_each(theirs, values[:_SHOWN], "those with {!r} alone are answers")


def _in_tables(check: Callable[[Read], Iterator[Doubt]], *, tables: bool) -> Callable[[Read], Iterator[Doubt]]:
    """Return a check that is made only for tables, whose rows ``--where`` can select.

    With ``tables=False``, the check is made only for all other formats.
    """
    return lambda read: check(read) if read.is_table is tables else iter(())


def _stopped_when_right(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if loops seem to have ended because the gold answer was reached.

    This is so if every shorter trajectory ends at its first round with a metric of 1, and no trajectory continues after such a round.
    """
    stopped = read.facts.stopped
    for metric in dict.fromkeys(name for name, _, _ in stopped):
        ends = {(length, end): n for (name, length, end), n in stopped.items() if name == metric}
        longest = max(length for length, _ in ends)
        shorter = sum(n for (length, _), n in ends.items() if length < longest)
        if shorter >= _ENOUGH and all(end is not None and (end or length == longest) for length, end in ends):
            sentence = (
                f"each of the {shorter:,} shorter trajectories ends at its first round with {metric} 1, and none goes on after "
                "one: if the gold answer stopped the loop, a live loop would go on, and may lose what was right"
            )
            yield sentence, {}
            return


ALARMS: Mapping[str, tuple[Literal["stop", "caution"], Callable[[Read], Iterator[Doubt]]]] = {
    COPIED_ANSWERS: ("stop", _equal_answers),
    "named-golds": ("stop", _in_tables(named_golds, tables=True)),
    "no-answers": ("stop", no_answers),
    "empty-answers": ("stop", empty_answers),
    "empty-rounds": ("stop", _empty_rounds),
    "graded": ("stop", reply_alarms.graded),
    "one-question": ("stop", _one_question),
    "returned": ("stop", own_alarms.returned_rounds),
    "unread-golds": ("stop", gold_alarms.unread_golds),
    "golds-in-answers": ("stop", golds_in_answers),
    "falling-scores": ("stop", order_alarms.falling_scores),
    "never-right": ("stop", gold_alarms.never_right),
    "options": ("stop", _options),
    "stricter-golds": ("stop", gold_alarms.stricter_golds),
    COPIED_ROUNDS: ("caution", _copied_rounds),
    "error-answers": ("caution", reply_alarms.error_answers),
    "drafts": ("caution", _drafts),
    "missing-values": ("caution", _missing_values),
    "other-systems": ("caution", _other_systems),
    "ordered-samples": ("caution", own_alarms.ordered_samples),
    "mixed-groups": ("caution", own_alarms.mixed_groups),
    "mixed-scales": ("caution", own_alarms.mixed_scales),
    "same-score": ("caution", _same_score),
    "last-is-gold": ("caution", gold_alarms.last_is_gold),
    "other-score": ("caution", gold_alarms.other_score),
    "case": ("caution", gold_alarms.case_alone),
    "golds-in-texts": ("caution", golds_in_texts),
    "other-speakers": ("stop", _in_tables(_other_speakers, tables=True)),
    "sample-list": ("stop", sample_alarms.sample_list),
    "dependent-samples": ("stop", own_alarms.dependent_samples),
    "other-calls": ("caution", _in_tables(_other_speakers, tables=False)),
    "left-out-costs": ("caution", lambda read: iter([(read.doubt, {})] if read.doubt else [])),
    "stopped-when-right": ("caution", _stopped_when_right),
    "transcripts": ("stop", order_alarms.transcripts),
    "cut-texts": ("stop", reply_alarms.cut_texts),
    "sorted-answers": ("stop", order_alarms.sorted_answers),
    "own-score": ("stop", gold_alarms.own_score),
}
"""All alarms by name: the level, and the check."""

_MORE_SPECIFIC = {
    "drafts": {"options"},
    "empty-answers": {"no-answers"},
    "falling-scores": {"graded", "other-speakers", "named-golds"},
    "never-right": {"graded", "named-golds"},
    "unread-golds": {"returned", "named-golds"},
    "golds-in-texts": {"unread-golds", "returned"},
    "same-score": {"never-right"},
    "missing-values": {"empty-answers", "empty-rounds"},
    "other-score": {"stricter-golds"},
    "last-is-gold": {"stopped-when-right"},
    COPIED_ANSWERS: {"transcripts", "named-golds"},
}
"""For an alarm, those that name the same cause more precisely: they are shown instead of it."""

_DOUBTED: Mapping[str, str | None] = {
    "named-golds": None,
    "sample-list": None,
    "never-right": "golds",
    "unread-golds": "golds",
    "stricter-golds": "",
    "no-answers": "",
    "graded": None,
    "one-question": "question",
    "returned": None,
    "dependent-samples": None,
    "falling-scores": None,
    "transcripts": None,
    "cut-texts": None,
    "sorted-answers": None,
    "own-score": None,
}
"""The column that a stop doubts, if it is not that of the answers; "" for a stop even if the user named the column, None for one
in all formats."""
