"""Ask which column is the model's answer: public logs often keep the gold answer in `answer`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from suffice.errors import UnsettledError
from suffice.importers.columns.table_columns import TableColumns, several_rows
from suffice.importers.words.choices import Choices, of_columns
from suffice.importers.words.likeness import are_other_questions
from suffice.importers.words.names import (
    ANSWERS,
    FEEDBACK,
    GOLDS,
    IDS,
    MODELS,
    PARSED_ANSWERS,
    QUESTIONS,
    REPLIES,
    RUNS,
    TIMES,
    WEAK_REPLIES,
    is_round_name,
    last_name,
    plain_name,
    words,
)
from suffice.importers.words.score_names import is_critic

FEW = 0.01
"""Share of the questions whose gold answers may differ between their rows: in a large log, a slip and not another meaning."""

_ENOUGH = 5
"""With at least this many questions of several rows, equal answers raise doubts about a column of any name."""

CHANGING = 0.1
"""A text may be the model's answer if it varies within at least this share of the questions; most answers seldom change."""

_NEARLY_ALL = 0.9
_GOLD_WORDS = ("gold", "gt", "golden", "true", "expected", "reference", "target")
_GOLD_PREFIXES = ("gold_", "reference_", "expected_")
_ASKED = frozenset(
    f"{who}{what}" for who in ("user", "human", "customer") for what in ("_message", "_msg", "_text", "_input", "_turn")
)
"""Names of what a user says."""

_QUERIES = frozenset((*QUESTIONS, "message", "user_question", "human_question", "customer_question"))
_SESSION = re.compile(r"(?:\w+_)?(?:session|conversation|chat|thread|dialog|dialogue|user)(?:_?(?:id|key|uuid|no|nr))?")
"""Names of questions, which a loop may put in other words, and of the ids under which a user may ask several."""

_ONE_SESSION = re.compile(
    r"(?:\w+_)?(?:session|conversation|chat|thread|dialog|dialogue|trace)(?:_?(?:id|key|uuid|no|nr|ts))?"
)

_CHOICES = 2
_ROWS_OF_ONE = 1.5
"""The fewest rows of a question in a session, on average, if they are rounds."""

_WHO = r"(?:model|llm|lm|ai|bot|assistant|system|agent|generated|gpt|chatbot)"
_OF_WHO = re.compile(rf"(?:{_WHO}|pred|predicted)_")
_PARSED = re.compile(rf"{_WHO}_(?:final_)?(?:answer|prediction|pred)")
_REPLY = re.compile(
    rf"(?:{_WHO}|raw|full)_(?:output|response|reply|completion|generation|text|message)|generated|hypothesis"
)
_OTHER_TEXTS = words(
    "finish_reason stop_reason error cluster end split member status type kind error_type exception "
    "error_message stderr traceback stack_trace at when sub_question subquestion sub_query role node "
    "event event_type speaker sender author step_type span_type component context contexts passage "
    "passages document documents evidence retrieved search_query title titles source url stage phase"
)
_PARTS_OF_ANSWERS = frozenset({"component", "kind", "cluster", "node", "stage", "phase", "source", "title"})
"""Names of who or what speaks that are what was asked for in an object called like an answer."""

_OF_PASSAGES = re.compile(
    r"(?:\w+_)?(?:contexts?|passages?|documents?|docs?|chunks?|snippets?|paragraphs?|evidence|retrieved)(?:_(?:id|text|content|title|name|url))?"
    r"|page_content|titles?|sources?|urls?|(?:\w+_)?rank"
)
"""Names of what was retrieved."""

ACTION_INPUTS = frozenset({"action_input", "tool_input", "action", "actions"})
ACTIONS = ("action", "actions", "tool", "tool_name", "tool_input")

THOUGHTS = words("observation observations thought thoughts reasoning rationale explanation justification")
"""Names of what an agent does, and of what it sees or thinks, which is no answer."""

_VERDICTS = frozenset({"good", "bad", "right", "wrong", "ok", "okay", "error", "helpful", "unhelpful"})
"""Labels that judge an answer."""

_NOT_SAID = frozenset((*IDS, *RUNS, *MODELS, *TIMES, *_QUERIES, *FEEDBACK, *GOLDS, *_OTHER_TEXTS)) - {"message"}
"""Names of texts that vary between rounds but are not the model's answer."""

_OF_CRITICS = frozenset({*FEEDBACK, "review"})


def refuse_gold_as_answer(
    table: TableColumns, ids: Sequence[Any], answer: str, golds: str | None, unread: Collection[str]
) -> None:
    """Raise if the column of answers may hold gold answers, while another column may hold the model's answers.

    A column named `answer` is doubtful if the log also has a parsed answer (`prediction`, `llm_answer`, ...).  It is also doubtful
    if the log has a reply, and `answer` stays the same within nearly every question.  A column of any name is doubtful if it stays
    the same within nearly every question while a reply or another text varies; this takes at least five questions.

    Args:
        table: The columns.
        ids: The question of each row.
        answer: The column that would be read as the answer, although the user did not name it.
        golds: The column of gold answers.  "" = the user says that there is none; None = none is known.
        unread: Columns without a known meaning, which may be texts of the model.
    """
    several = several_rows(ids)
    if not several:
        return  # one row per question: there is nothing to stop, and another message says so
    others = [name for name in unread if _is_other_text(table, name, answer)]
    is_same = table.constant_in(answer, ids, but_for=FEW)
    parsed = _called(others, PARSED_ANSWERS[1:], _PARSED)
    replies = _called(others, REPLIES, _REPLY)
    if last_name(answer) != "answer":
        parsed = []  # several parsed answers are asked about elsewhere
        replies = replies if len(several) >= _ENOUGH else []
    if is_same and not parsed and not replies and len(several) >= _ENOUGH:
        replies = [name for name in others if varies(table, name, ids, len(several))]
    candidates = [*parsed, *(replies if is_same else ())][:_CHOICES]
    if candidates:
        once = is_same and sum(value is not None for value in table.column(answer)) <= len({*map(str, ids)})
        where = "filled in one row of a question alone" if once else "the same in every row of a question"
        same = f"; {answer!r} is {where}" if is_same else ""
        changing = table.changing_in(answer, ids) if is_same else 0
        same += f", but for {changing:,} of {len(several):,} questions" if changing else ""
        may_be_gold = is_same and golds is None
        of_run = f"{answer!r} is the result of the whole run{'' if once else ', which each of its rows repeats'}: no round has an answer"
        is_result = may_be_gold and last_name(answer) != "answer"
        raise UnsettledError(
            f"{_doubt(table, answer, candidates[0], may_be_gold=may_be_gold)}{same}",
            "columns",
            answer_readings(answer, candidates, golds, may_be_gold=may_be_gold)
            | (of_columns({"answer": ""}, of_run) if is_result else {}),
        )


def refuse_steps(table: TableColumns, reply: str, final: str) -> None:
    """Raise if the replies seem to be steps to the answer of their record: in most records, the last reply does not contain this answer."""
    last: dict[int, tuple[str, str]] = {}
    for row, said, answer in zip(table.rows, table.column(reply), table.column(final), strict=True):
        if said is not None and answer is not None:
            last[row.number] = str(said), str(answer).strip()
    missing = [(said, answer) for said, answer in last.values() if answer.lower() not in said.lower()]
    if len(missing) > len(last) / 2 and len(last) >= _ENOUGH:
        said, answer = missing[0]
        raise UnsettledError(
            f"{final!r} has the answer of a record, such as {answer!r:.40}, and in {len(missing):,} of {len(last):,} records it is not in the "
            f"last {reply!r}, such as {said!r:.40}. A loop can stop only where each round has an answer: if these are steps to a "
            "later one, log an answer in each",
            "columns",
            of_columns({"answer": reply}, f"{reply!r} is an answer in each round"),
        )


def changes_in_rounds(table: TableColumns, ids: Sequence[Any], name: str) -> bool:
    """Return whether a column cannot be the gold answer because its value varies between the rows of too many questions."""
    return not table.constant_in(name, ids, but_for=FEW)


def labels_as_answers(table: TableColumns, ids: Sequence[Any], names: Sequence[str], golds: str) -> list[str]:
    """Find the column with the classes that a classifier chose; return a list with its name, or an empty list.

    At least half of the classes must be gold answers.  Without gold answers, the column must be named `label` and vary in questions.

    Args:
        table: The columns.
        ids: The question of each row.
        names: Unused columns whose names mean classes, such as `label`.
        golds: The column of gold answers; "" if none is known.
    """
    several = len(several_rows(ids))
    right = _classes(table.column(golds)) if golds else set()
    for name in names:
        are_lists = table.lists_texts(name)  # several labels in each cell
        said = _classes(table.column(name))
        is_verdict = {text.lower() for text in said} <= _VERDICTS or table.not_a_number(name) is None
        is_class = bool(right) and 2 * len(said & right) >= len(said) > 1
        is_said = last_name(name) in ("label", "labels") and not (right or is_verdict)
        if is_said:
            is_said = (
                table.changing_in(name, ids) >= CHANGING * several if are_lists else varies(table, name, ids, several)
            )
        if several and (are_lists or table.is_text(name)) and (is_class or is_said):
            return [name]
    return []


def _classes(values: Sequence[Any]) -> set[str]:
    """Return the distinct labels in a column whose cells contain one label or a list of labels."""
    known = [value for value in values if value is not None]
    return {str(label) for value in known for label in (value if isinstance(value, list) else [value])}


def _is_other_text(table: TableColumns, name: str, answer: str) -> bool:
    return name != answer and table.filled(name) and table.is_text(name) and table.column(name) != table.column(answer)


def _called(names: Collection[str], usual: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the columns with a name in `usual`, in the order of `usual`, followed by the other columns that match a pattern."""
    plain = {name: last_name(name) for name in names}
    best = sorted((name for name in names if plain[name] in usual), key=lambda name: usual.index(plain[name]))
    return [*best, *(name for name in names if plain[name] not in usual and pattern.fullmatch(plain[name]))]


def varies(table: TableColumns, name: str, ids: Sequence[Any], several: int) -> bool:
    """Return whether a column's texts vary within at least a tenth of the questions.

    Texts that depend only on the position of the row, such as "first" and "second" in every question, do not count.
    """
    may_be_said = is_model_text(name) or last_name(name) in GOLDS  # a gold answer would not vary
    if not may_be_said or table.numbers(name) is not None:
        return False
    places: Counter[str] = Counter()
    at_place: dict[int, set[str]] = {}
    texts: dict[str, set[str]] = {}
    for key, value in zip(map(str, ids), table.column(name), strict=True):
        places[key] += 1
        if isinstance(value, str):
            at_place.setdefault(places[key], set()).add(value)
            texts.setdefault(key, set()).add(value)
    by_place = all(len(values) == 1 for values in at_place.values())
    return not by_place and sum(len(values) > 1 for values in texts.values()) >= CHANGING * several


def gold_beside(table: TableColumns, ids: Sequence[Any], answer: str, unread: Collection[str]) -> str | None:
    """Return the column named as the gold answer for `answer`, such as `gold_entities` for `entities`, if it is constant per question."""
    plain = last_name(answer)
    usual = {f"{word}_{plain}" for word in _GOLD_WORDS} | {f"{plain}_{word}" for word in _GOLD_WORDS[:2]}
    return next((n for n in unread if last_name(n) in usual and table.filled(n) and table.constant_in(n, ids)), None)


def refuse_unnamed_pair(table: TableColumns, ids: Sequence[Any], unread: Collection[str]) -> None:
    """Raise if no column is named like an answer, but a column such as `entities_gold` is named like the gold answer of `entities`.

    The choice offered reads `entities` as the answer; see `gold_beside`.
    """
    several = len(several_rows(ids))
    for name in unread:
        gold = gold_beside(table, ids, name, unread) if is_model_text(name) and table.changing_in(name, ids) else None
        if gold is not None and several >= _ENOUGH:
            columns = {"answer": name, "golds": gold}
            meaning = f"{name!r} is what the model said, and {gold!r} the gold answer"
            raise UnsettledError(
                f"no column is called like an answer, but {gold!r} like the gold answer of {name!r}",
                "columns",
                of_columns(columns, meaning),
            )


def refuse_other_questions(table: TableColumns, ids: Sequence[Any], key: str, golds: str) -> None:
    """Raise if the requests of a conversation differ in nearly every row: the replies then answer several questions.

    Nothing is raised if the column `golds` has one gold answer per conversation.  `golds` may be "" (no such column).
    """
    name = "" if golds and table.constant_in(golds, ids) else other_questions(table, ids, key)
    if name:
        several = len(several_rows(ids))
        has_rounds = _has_rounds(table, ids, name)
        meaning = f"each {name!r} is a question, and the rows up to the next one of its {key!r} are its rounds"
        each = of_columns({"question_id": name, "run": key}, meaning) if has_rounds else {}
        meaning = f"all rows of one {key!r} are about its first question: each reply is a round"
        said = (
            "the rows may be rounds of several questions"
            if has_rounds
            else "the replies are no rounds of one question, and there is nothing to stop"
        )
        raise UnsettledError(
            f"{name!r} differs between the rows of {table.changing_in(name, ids):,} of {several:,} values of {key!r}: if a user asks something "
            f"else each time, {said}",
            "columns",
            each | of_columns({"question_id": key}, meaning),
        )


def _has_rounds(table: TableColumns, ids: Sequence[Any], name: str) -> bool:
    """Return whether each request in the column `name` has several rows on average.

    Rows after the first row of a request may lack its text.
    """
    asked = {pair for pair in zip(map(str, ids), table.column(name), strict=True) if pair[1] is not None}
    return len(ids) >= _ROWS_OF_ONE * len(asked)


def other_questions(table: TableColumns, ids: Sequence[Any], key: str) -> str:
    """Find the column of user requests, if nearly every row of a conversation has a different one; return its name or ""."""
    several = len(several_rows(ids))
    names = [name for name in table.names if last_name(name) in _ASKED and table.is_text(name)]
    if not names and _SESSION.fullmatch(last_name(key)):
        names = [name for name in table.names if last_name(name) in _QUERIES and table.is_text(name)]
        names = [name for name in names if are_other_questions(table.column(name), ids)]
    is_clear = several >= _ENOUGH and any(table.changing_in(name, ids) >= _NEARLY_ALL * several for name in names[:1])
    return names[0] if is_clear else ""


def session_of(table: TableColumns, question: str) -> str | None:
    """Return the column of session ids if each session asks one question, perhaps in changing words; None if there is no such column."""
    texts = table.column(question)
    for name in table.names:
        ids = table.column(name)
        if _ONE_SESSION.fullmatch(last_name(name)) and table.repeats(name) and len({*ids}) > 1:
            changes = table.changing_in(question, ids)
            other = other_questions(table, ids, name)
            asks_once = not question or (changes and not are_other_questions(texts, ids))
            if (asks_once and not other) or (not question and other and _has_rounds(table, ids, other)):
                return name  # in the latter case, a later question asks which rows are rounds
    return None


def code_of(table: TableColumns, questions: Sequence[str]) -> str | None:
    """Find a column of codes for the question texts in the first of `questions`; return its name, or None.

    The column is one of the others in `questions`.  Each of its values is a single word, and each word belongs to one text.
    """
    texts = table.column(questions[0]) if questions else []
    for name in questions[1:]:
        words = table.column(name)
        is_word = all(isinstance(value, str | int) and len(str(value).split()) == 1 for value in words)
        if is_word and any(" " in str(text) for text in texts) and table.constant_in(questions[0], words):
            return name
    return None


def is_step_name(name: str) -> bool:
    """Return whether a name is usual for a column that says the kind of a step, or how the step ended."""
    return last_name(name) in _OTHER_TEXTS


def is_of_passages(name: str) -> bool:
    """Return whether a name is usual for a column of retrieved passages or of their titles."""
    return _OF_PASSAGES.fullmatch(last_name(name)) is not None


def is_called_reply(name: str) -> bool:
    """Return whether a name is usual for a column of replies, such as `model_solution`."""
    plain = last_name(name)
    return plain in (*PARSED_ANSWERS, *REPLIES, *WEAK_REPLIES) or _OF_WHO.match(plain) is not None


def is_model_text(name: str) -> bool:
    """Return whether a column of this name may contain text of the model; text of a critic does not count.

    >>> is_model_text("message"), is_model_text("critic.comment"), is_model_text("stop_reason")
    (True, False, False)
    """
    plain = last_name(name).lstrip("@")
    if any(part in _OF_CRITICS or is_critic(part) for part in plain_name(name).split(".")[:-1]):
        return False
    if plain in _PARTS_OF_ANSWERS and last_name(name.rpartition(".")[0]) in ANSWERS:
        return True
    return not (
        plain in _NOT_SAID or plain.endswith(("_id", "_at")) or plain.startswith(_GOLD_PREFIXES) or is_round_name(plain)
    )


def _doubt(table: TableColumns, answer: str, other: str, *, may_be_gold: bool) -> str:
    """Describe the doubtful columns, with their values in one row."""
    rows = [
        (row.where, said, text)
        for row, said, text in zip(table.rows, table.column(answer), table.column(other), strict=True)
        if said is not None or text is not None
    ]
    known = [row for row in rows if None not in row]
    where, said, text = next((row for row in known if row[1] != row[2]), (known or rows)[0])
    place = where.replace("\\", "/").rpartition("/")[2]
    doubt = f"{answer!r} or {other!r} may be the answer"
    if may_be_gold:
        doubt = f"{answer!r} may be the gold answer, and {other!r} what the model said"
    return f"{doubt}: {place} has {answer}={said!r:.40} and {other}={text!r:.40}"


def answer_readings(answer: str, candidates: Sequence[str], golds: str | None, *, may_be_gold: bool) -> Choices:
    """Return the possible readings as choices; each choice names a column of answers, and some also name a column of gold answers."""
    kept = {"golds": golds} if golds else {}
    result: Choices = {}
    for name in candidates:
        columns = {"answer": name, **({"golds": answer} if may_be_gold else kept)}
        gold = f", and {answer!r} the gold answer" if may_be_gold else ""
        result |= of_columns(columns, f"{name!r} is what the model said{gold}")
    return result | of_columns({"answer": answer, **kept}, f"{answer!r} is what the model said")
